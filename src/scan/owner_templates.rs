//! What the templates of owners say, for a comparison with their pods. Admission denies nothing of a pod that a controller
//! creates and that could run, because its author saw the findings of the template. A pod with findings that no template
//! shows is therefore reported for its owner. Pure.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::context::EvalContext;
use crate::engine::{evaluate, infer_os};
use crate::model::cluster::severity::Severity;
use crate::model::objects::object::Object;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::path::Path;
use crate::model::windows::os::Verdict;
use crate::rules::Finding;

/// How many owners are known at most: the pods of further ones are not compared.
const MOST: usize = 100_000;
/// How many findings of a template are known at most. The errors of a template with more are its author's, and its pods are
/// not compared.
const MOST_FINDINGS: usize = 50;

/// The templates that were seen, as hashes.
#[derive(Debug, Default)]
pub struct OwnerTemplates {
    known: HashMap<u64, OwnerTemplate>,
    /// Owners that were asked about before they were seen.
    asked: HashSet<u64>,
    hashes: RandomState,
}

#[derive(Clone, PartialEq, Debug)]
struct OwnerTemplate {
    is_windows: bool,
    /// Its own owner, if that is evaluated.
    owner: Option<u64>,
    /// The findings of its pod spec, as hashes, if its controller creates pods from a ControllerRevision.
    findings: Option<Box<[u64]>>,
}

/// What a pod has that the templates of its owners do not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PodDifference {
    /// Evidence that it is for Windows.
    Evidence,
    /// Errors: their rules' ids, and their paths in the pod.
    Errors(Vec<(&'static str, String)>),
}

impl OwnerTemplates {
    /// Records an object that makes pods. Returns whether its pods, or those of what it made, were compared before it was
    /// known: they must be compared again.
    pub fn record(&mut self, context: &EvalContext<'_>, subject: &Object<'_>) -> bool {
        if subject.kind == Kind::Pod || !subject.kind.has_pod() {
            return false;
        }
        let is_windows = is_for_windows(context, subject);
        let template = OwnerTemplate {
            is_windows,
            owner: self.owner(context, subject),
            findings: (is_windows && uses_revisions(subject.kind))
                .then(|| self.findings(context, subject))
                .flatten(),
        };
        let key = self.key(&WorkloadName::of(
            subject.kind,
            &subject.namespace,
            &subject.meta.name,
        ));
        let was_asked = self.asked.remove(&key) && (!is_windows || template.findings.is_some());
        if self.known.len() >= MOST && !self.known.contains_key(&key) {
            return was_asked;
        }
        let has_changed = self.known.get(&key).is_some_and(|before| *before != template);
        self.known.insert(key, template);
        was_asked || has_changed
    }

    /// Forgets an object that is gone.
    pub fn forget(&mut self, kind: Kind, namespace: &str, name: &str) {
        let key = self.key(&WorkloadName::of(kind, namespace, name));
        self.known.remove(&key);
        self.asked.remove(&key);
    }

    /// What a pod has that the templates of its owners do not have; `None` if nothing, or while one of them is unknown.
    pub fn compare(&mut self, context: &EvalContext<'_>, pod: &Object<'_>) -> Option<PodDifference> {
        if pod.kind != Kind::Pod {
            return None;
        }
        let mut next = self.owner(context, pod);
        if next.is_none() || !is_for_windows(context, pod) {
            return None;
        }
        while let Some(key) = next {
            match self.known.get(&key) {
                Some(template) if template.is_windows => {
                    let errors = self.errors(context, pod, template.findings.as_ref()?);
                    return (!errors.is_empty()).then_some(PodDifference::Errors(errors));
                }
                Some(template) => next = template.owner,
                None => {
                    if self.asked.len() < MOST {
                        self.asked.insert(key);
                    }
                    return None;
                }
            }
        }
        Some(PodDifference::Evidence)
    }

    /// What identifies the findings of a template; `None` if they are too many.
    fn findings(&self, context: &EvalContext<'_>, subject: &Object<'_>) -> Option<Box<[u64]>> {
        let evaluation = evaluate(subject, context.facts, &context.policy_in(&subject.namespace));
        let found = evaluation.findings.iter();
        let found: Box<[u64]> = found.filter_map(|found| self.identity(subject, found)).collect();
        (found.len() <= MOST_FINDINGS).then_some(found)
    }

    /// The errors of a pod that its template does not have, and that admission leaves to the template.
    fn errors(
        &self,
        context: &EvalContext<'_>,
        pod: &Object<'_>,
        of_template: &[u64],
    ) -> Vec<(&'static str, String)> {
        let evaluation = evaluate(pod, context.facts, &context.policy_in(&pod.namespace));
        let is_added = |finding: &&Finding| {
            // What registries report of an image may be learned after the template was recorded.
            finding.severity == Severity::Error
                && finding.path.last_name() != "image"
                && (self.identity(pod, finding)).is_some_and(|identity| !of_template.contains(&identity))
        };
        let added = evaluation.of_the_owner().filter(is_added);
        added.map(|found| (found.rule.id, found.path.named())).collect()
    }

    /// What identifies a finding in the spec of a pod, and in that of its template; `None` for other fields.
    fn identity(&self, subject: &Object<'_>, finding: &Finding) -> Option<u64> {
        let below = finding.path.below(&subject.spec_path())?;
        let path = Path::of(&[]).join(below).named();
        Some(self.hashes.hash_one((finding.rule.id, path)))
    }

    /// The owner of an object, if it is evaluated.
    fn owner(&self, context: &EvalContext<'_>, subject: &Object<'_>) -> Option<u64> {
        subject.owner_kind().filter(|kind| context.evaluates(*kind))?;
        Some(self.key(&WorkloadName::owner_of(&subject.meta, &subject.namespace)?))
    }

    fn key(&self, owner: &WorkloadName) -> u64 {
        self.hashes.hash_one(owner)
    }
}

/// Whether the controller of a kind creates pods from ControllerRevisions, which others may have written, and not from the
/// template.
fn uses_revisions(kind: Kind) -> bool {
    matches!(kind, Kind::StatefulSet | Kind::DaemonSet)
}

/// Whether one of the pods of an object is for Windows, or has a sign of it.
fn is_for_windows(context: &EvalContext<'_>, subject: &Object<'_>) -> bool {
    let policy = context.policy_in(&subject.namespace);
    let is_windows = |pod: &Object<'_>| {
        let verdict = infer_os(pod, context.facts, &policy).verdict;
        matches!(verdict, Verdict::Windows | Verdict::Conflicting)
    };
    if subject.custom_pods.is_empty() {
        return is_windows(subject);
    }
    let mut pods = subject.custom_pods.iter();
    pods.any(|pod| is_windows(&subject.of_custom_pod(pod)))
}
