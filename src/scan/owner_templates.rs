//! Which owners are for Windows by their own templates. A pod that is for Windows although the template of its owner is not
//! has the evidence from admission, where no author saw the findings: it is reported for its owner. Pure.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::context::EvalContext;
use crate::engine::infer_os;
use crate::model::object::Object;
use crate::model::os::Verdict;
use crate::model::workload::Kind;

/// How many owners are known at most: the pods of further ones are not compared.
const MOST: usize = 100_000;

/// The templates that were seen, as hashes.
#[derive(Debug, Default)]
pub struct OwnerTemplates {
    known: HashMap<u64, OwnerTemplate>,
    /// Owners that were asked about before they were seen.
    asked: HashSet<u64>,
    hashes: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct OwnerTemplate {
    is_windows: bool,
    /// Its own owner, if that is evaluated.
    owner: Option<u64>,
}

impl OwnerTemplates {
    /// Records an object that makes pods. Returns whether its pods, or those of what it made, were compared before it was
    /// known: they must be compared again.
    pub fn record(&mut self, context: &EvalContext<'_>, subject: &Object<'_>) -> bool {
        if subject.kind == Kind::Pod || !subject.kind.has_pod() {
            return false;
        }
        let template = OwnerTemplate {
            is_windows: is_for_windows(context, subject),
            owner: self.owner(context, subject),
        };
        let key = self.key(subject.kind, &subject.namespace, &subject.meta.name);
        let mut before = None;
        if self.known.len() < MOST || self.known.contains_key(&key) {
            before = self.known.insert(key, template);
        }
        let was_asked = self.asked.remove(&key) && !template.is_windows;
        was_asked || before.is_some_and(|before| before.is_windows != template.is_windows)
    }

    /// Forgets an object that is gone.
    pub fn forget(&mut self, kind: Kind, namespace: &str, name: &str) {
        let key = self.key(kind, namespace, name);
        self.known.remove(&key);
        self.asked.remove(&key);
    }

    /// Whether a pod is for Windows although the templates of its owners are not. False while one of them is unknown.
    pub fn is_only_pod_windows(&mut self, context: &EvalContext<'_>, pod: &Object<'_>) -> bool {
        if pod.kind != Kind::Pod {
            return false;
        }
        let mut next = self.owner(context, pod);
        if next.is_none() || !is_for_windows(context, pod) {
            return false;
        }
        while let Some(key) = next {
            match self.known.get(&key) {
                Some(template) if template.is_windows => return false,
                Some(template) => next = template.owner,
                None => {
                    if self.asked.len() < MOST {
                        self.asked.insert(key);
                    }
                    return false;
                }
            }
        }
        true
    }

    /// The owner of an object, if it is evaluated.
    fn owner(&self, context: &EvalContext<'_>, subject: &Object<'_>) -> Option<u64> {
        let owner = subject.meta.controller()?;
        let kind = subject.owner_kind().filter(|kind| context.evaluates(*kind))?;
        Some(self.key(kind, &subject.namespace, &owner.name))
    }

    fn key(&self, kind: Kind, namespace: &str, name: &str) -> u64 {
        self.hashes.hash_one((kind, namespace, name))
    }
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
