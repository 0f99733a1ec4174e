//! The guard before the first taint: which workloads would no longer be scheduled, or would be evicted. The engine
//! evaluates them from raw JSON; `survey` lists them.

mod affected;
pub mod cache;
mod impact;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::impact::Impact;

use self::impact::{AffectedWorkload, Remedy};
use crate::cluster::snapshot::NamespacePolicy;
use crate::engine::{AdmissionStage, infer_os, untolerated};
use crate::model::facts::Facts;
use crate::model::json::at;
use crate::model::node::Taint;
use crate::model::object::{Object, ReviewStage};
use crate::model::object_status::ObjectStatus;
use crate::model::os::{EvidenceKind, Inference, Verdict};
use crate::model::workload::Kind;

/// The guard's result for a policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum GuardResult {
    /// It has not run, or no workload would be affected.
    #[default]
    Free,
    /// Workloads would be affected.
    Refused {
        /// The message for the condition.
        message: String,
        /// The message in one line.
        brief: String,
    },
    /// It could not find out, and why.
    Unknown(String),
}

/// Namespace, kind and name of an object.
type ObjectKey = (String, String, String);

/// Evaluates objects one by one, and collects the workloads that would be affected.
pub struct Guard<'g> {
    taints: &'g [Taint],
    /// The policy that applies in a namespace.
    policy_of: &'g (dyn Fn(&str) -> NamespacePolicy + Send + Sync),
    /// Results of `policy_of`, by namespace.
    met: BTreeMap<String, Arc<NamespacePolicy>>,
    windows_nodes: BTreeSet<&'g str>,
    facts: &'g Facts,
    /// The owners of ReplicaSets and Jobs, so that the top-level owner of a pod can be named.
    owners: BTreeMap<ObjectKey, ObjectKey>,
    affected_workloads: BTreeMap<ObjectKey, (String, Option<Remedy>)>,
    /// The generations of the affected workloads whose own object was read.
    generations: BTreeMap<ObjectKey, i64>,
}

impl<'g> Guard<'g> {
    /// A guard for these taints, on these nodes.
    pub fn new(
        taints: &'g [Taint],
        nodes: impl IntoIterator<Item = &'g str>,
        facts: &'g Facts,
        policy_of: &'g (dyn Fn(&str) -> NamespacePolicy + Send + Sync),
    ) -> Self {
        Guard {
            taints,
            policy_of,
            met: BTreeMap::new(),
            windows_nodes: nodes.into_iter().collect(),
            facts,
            owners: BTreeMap::new(),
            affected_workloads: BTreeMap::new(),
            generations: BTreeMap::new(),
        }
    }

    /// Evaluates one object.
    pub fn visit(&mut self, kind: Kind, json: &str) {
        let subject = match Object::parse(kind, json, ReviewStage::Stored) {
            Ok(subject) => subject,
            Err(error) => {
                // The object is stored, so pods may be created from it.
                let place = (String::new(), kind.to_string(), "one of them".to_owned());
                self.affected_workloads
                    .insert(place, (format!("cannot be read: {error}"), None));
                return;
            }
        };
        if subject.meta.deletion_timestamp.0 {
            return;
        }
        let place = (
            subject.namespace.to_string(),
            kind.to_string(),
            subject.meta.name.to_string(),
        );
        let owner = subject.meta.controller().map(|owner| {
            let place = (place.0.clone(), owner.kind.to_string(), owner.name.to_string());
            // The guard lists no custom resources, so what these make is evaluated itself.
            (place, subject.owner_kind().filter(|kind| !kind.is_custom()))
        });
        match (kind, owner) {
            (Kind::Pod, owner) => self.visit_pod(&subject, json, place, owner),
            // Its owner is evaluated instead.
            (_, Some((owner, Some(_)))) => _ = self.owners.insert(place, owner),
            (Kind::Job, _) if ObjectStatus::of(json).has_ended(kind) => {}
            _ => self.visit_template(&subject, json, place),
        }
    }

    fn visit_template(&mut self, subject: &Object<'_>, json: &str, place: ObjectKey) {
        let counts = self.counts(&subject.namespace);
        let inference = infer_os(subject, self.facts, &counts.policy);
        if inference.verdict != Verdict::Windows {
            return;
        }
        // A DaemonSet's controller reads the template, so placement of its pods is too late.
        let in_template = subject.kind == Kind::DaemonSet;
        let admission = if in_template {
            AdmissionStage::AsWritten
        } else {
            AdmissionStage::Placed
        };
        let lacking = self.lacking(subject, &counts, admission);
        if !lacking.is_empty() {
            let remedy = remedy(&inference, in_template);
            let generation = at(json, &["metadata", "generation"]);
            let generation: Option<i64> = generation.and_then(|generation| generation.parse().ok());
            self.generations
                .extend(generation.map(|generation| (place.clone(), generation)));
            self.add(place, &lacking, "its template does not tolerate", remedy);
        }
    }

    fn visit_pod(
        &mut self,
        subject: &Object<'_>,
        json: &str,
        place: ObjectKey,
        owner: Option<(ObjectKey, Option<Kind>)>,
    ) {
        if self.facts.is_stored_mirror(subject) {
            return;
        }
        let counts = self.counts(&subject.namespace);
        let inference = infer_os(subject, self.facts, &counts.policy);
        let kind = owner.as_ref().and_then(|(_, kind)| *kind);
        if let Some((lacking, why)) = self.pod_lacks(subject, json, &counts, &inference, kind) {
            let known = |owner: ObjectKey| self.owners.get(&owner).cloned().unwrap_or(owner);
            let named = owner.map_or(place, |(owner, _)| known(owner));
            self.add(
                named,
                &lacking,
                why,
                remedy(&inference, kind == Some(Kind::DaemonSet)),
            );
        }
    }

    /// The taints that affect a pod, and how; `None` if there are none, or if its owner is evaluated instead.
    fn pod_lacks(
        &self,
        subject: &Object<'_>,
        json: &str,
        counts: &NamespacePolicy,
        inference: &Inference,
        owner: Option<Kind>,
    ) -> Option<(Vec<&'g Taint>, &'static str)> {
        let pod = subject.pod()?;
        let on_windows = (self.windows_nodes).contains(pod.node_name.as_deref().unwrap_or_default());
        let merged = self.lacking(subject, counts, AdmissionStage::Merged);
        let evicting = merged.iter().filter(|taint| taint.effect == "NoExecute");
        let evicting: Vec<&Taint> = evicting.copied().collect();
        if on_windows && !evicting.is_empty() {
            return Some((evicting, "its pods would be evicted, as they do not tolerate"));
        }
        let (lacking, why) = match inference.verdict {
            // The template of the DaemonSet is evaluated instead; its pods are created again from it.
            Verdict::Windows if owner == Some(Kind::DaemonSet) => return None,
            Verdict::Windows if pod.is_bound() && owner.is_some() => return None,
            // Placement applies when this bare pod is created again.
            Verdict::Windows if pod.is_bound() => (
                self.lacking(subject, counts, AdmissionStage::Placed),
                "it does not tolerate",
            ),
            // It was admitted already: neither placement nor a changed template affects it any longer.
            Verdict::Windows if owner.is_some() => (
                merged,
                "its pods wait for a node and were created before they were given a toleration: delete them, so that \
                 it creates new ones; they do not tolerate",
            ),
            Verdict::Windows => (merged, "it does not tolerate"),
            Verdict::Linux if selects(inference, false) => return None,
            // Placement adds nothing to a pod that is not known to be for Windows.
            _ if on_windows && ObjectStatus::of(json).is_true("Ready") => (
                merged,
                "it selects no operating system, runs on a Windows node, and does not tolerate",
            ),
            _ => return None,
        };
        (!lacking.is_empty()).then_some((lacking, why))
    }

    /// The policy that applies in a namespace; looked up once, because a namespace may have thousands of objects.
    fn counts(&mut self, namespace: &str) -> Arc<NamespacePolicy> {
        if let Some(counts) = self.met.get(namespace) {
            return Arc::clone(counts);
        }
        let counts = Arc::new((self.policy_of)(namespace));
        self.met.insert(namespace.to_owned(), Arc::clone(&counts));
        counts
    }

    /// The taints that would keep the object's pods away. Placement only helps if the webhooks are called.
    fn lacking(
        &self,
        subject: &Object<'_>,
        counts: &NamespacePolicy,
        admission: AdmissionStage,
    ) -> Vec<&'g Taint> {
        let admission = match admission {
            AdmissionStage::Placed if !counts.places => AdmissionStage::Merged,
            other => other,
        };
        untolerated(subject, self.taints, self.facts, &counts.policy, admission)
    }

    fn add(&mut self, place: ObjectKey, lacking: &[&Taint], why: &str, remedy: Remedy) {
        let taints: Vec<String> = lacking.iter().map(ToString::to_string).collect();
        self.affected_workloads
            .entry(place)
            .or_insert_with(|| (format!("{why} {}", taints.join(", ")), Some(remedy)));
    }

    /// The workloads that would be affected, with the generations of those whose own object was read.
    fn affected(&self) -> BTreeMap<ObjectKey, Option<i64>> {
        let places = self.affected_workloads.keys();
        places
            .map(|place| (place.clone(), self.generations.get(place).copied()))
            .collect()
    }

    /// The workloads that would be affected.
    pub fn impact(self) -> Impact {
        let workloads =
            self.affected_workloads
                .into_iter()
                .map(|((namespace, kind, name), (why, remedy))| {
                    let name = if namespace.is_empty() {
                        format!("{kind} {name}")
                    } else {
                        format!("{kind} {namespace}/{name}")
                    };
                    AffectedWorkload { name, why, remedy }
                });
        Impact(workloads.collect())
    }
}

/// What the author of a pod or template should write. `in_template`: what a RuntimeClass selects is ignored.
fn remedy(inference: &Inference, in_template: bool) -> Remedy {
    match inference.verdict {
        Verdict::Windows if selects(inference, in_template) => Remedy::Tolerate,
        Verdict::Windows => Remedy::SelectWindows,
        Verdict::Linux => Remedy::SelectLinux,
        Verdict::Unknown | Verdict::Conflicting => Remedy::StateOs,
    }
}

/// Whether the scheduler sees the operating system: the other evidence is only used by Transom or the kubelet.
fn selects(inference: &Inference, in_template: bool) -> bool {
    inference.evidence.iter().any(|evidence| match evidence.kind {
        EvidenceKind::NodeSelector | EvidenceKind::PoolLabel | EvidenceKind::NodeAffinity => true,
        EvidenceKind::RuntimeClass => !in_template,
        _ => false,
    })
}

#[cfg(test)]
mod tests;
