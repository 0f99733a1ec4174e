//! The guard before the first taint: which workloads would no longer be scheduled, or would be evicted. The engine
//! evaluates them from raw JSON; `survey` lists them.

mod affected;
pub mod cache;
mod impact;
mod peers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::impact::Impact;

use self::impact::{AffectedWorkload, Remedy};
use crate::cluster::snapshot::NamespacePolicy;
use crate::engine::scheduling::constraints;
use crate::engine::{AdmissionStage, TaintChange, infer_os};
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

/// The nodes of one policy that get their taints together, by number.
pub type GuardGroup = usize;

/// What the guard knows of the nodes: their taints before and after, and which of them get some.
pub struct GuardedNodes<'g> {
    /// The cluster with the taints before and after.
    pub change: &'g TaintChange,
    /// The nodes that get taints: their group, and the taints.
    pub gains: BTreeMap<&'g str, (GuardGroup, Vec<Taint>)>,
    /// The groups of nodes that join others which carry the taints already: only what runs is considered there, and
    /// what no webhook reviews.
    pub joining: BTreeSet<GuardGroup>,
}

/// Evaluates objects one by one, and collects the workloads that would be affected.
pub struct Guard<'g> {
    nodes: GuardedNodes<'g>,
    /// The policy that applies in a namespace.
    policy_of: &'g (dyn Fn(&str) -> NamespacePolicy + Send + Sync),
    /// Results of `policy_of`, by namespace.
    met: BTreeMap<String, Arc<NamespacePolicy>>,
    /// The owners of ReplicaSets and Jobs, so that the top-level owner of a pod can be named.
    owners: BTreeMap<ObjectKey, ObjectKey>,
    affected_workloads: BTreeMap<ObjectKey, TaintEffects>,
    /// The generations of the affected workloads whose own object was read.
    generations: BTreeMap<ObjectKey, i64>,
}

/// How a workload would be affected.
struct TaintEffects {
    why: String,
    remedy: Option<Remedy>,
    /// The groups whose taints affect it.
    groups: BTreeSet<GuardGroup>,
}

/// The taints that affect an object, and the groups of the nodes that get them.
#[derive(Default)]
struct AffectingTaints {
    taints: BTreeSet<Taint>,
    groups: BTreeSet<GuardGroup>,
}

impl AffectingTaints {
    fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl<'g> Guard<'g> {
    /// A guard for these nodes.
    pub fn new(
        nodes: GuardedNodes<'g>,
        policy_of: &'g (dyn Fn(&str) -> NamespacePolicy + Send + Sync),
    ) -> Self {
        Guard {
            nodes,
            policy_of,
            met: BTreeMap::new(),
            owners: BTreeMap::new(),
            affected_workloads: BTreeMap::new(),
            generations: BTreeMap::new(),
        }
    }

    /// The cluster as it is now.
    fn facts(&self) -> &'g Facts {
        self.nodes.change.before()
    }

    /// Every group that gets taints.
    fn groups(&self) -> BTreeSet<GuardGroup> {
        self.nodes.gains.values().map(|(group, _)| *group).collect()
    }

    /// Evaluates one object.
    pub fn visit(&mut self, kind: Kind, json: &str) {
        let subject = match Object::parse(kind, json, ReviewStage::Stored) {
            Ok(subject) => subject,
            Err(error) => {
                // The object is stored, so pods may be created from it.
                let place = (String::new(), kind.to_string(), "one of them".to_owned());
                let affected = TaintEffects {
                    why: format!("cannot be read: {error}"),
                    remedy: None,
                    groups: self.groups(),
                };
                self.affected_workloads.insert(place, affected);
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
        let inference = infer_os(subject, self.facts(), &counts.policy);
        if inference.verdict != Verdict::Windows {
            return;
        }
        let admission = AdmissionStage::of_template(subject, counts.places);
        // A DaemonSet's controller reads the template, so placement of its pods is too late.
        let in_template = admission == AdmissionStage::AsWritten;
        let runs = || {
            let ready: Option<i64> =
                at(json, &["status", "numberReady"]).and_then(|ready| ready.parse().ok());
            in_template && ready.is_some_and(|ready| ready > 0)
        };
        let is_strict = !counts.is_reviewed || runs();
        let lost = self.lost(subject, &inference, &counts, admission, is_strict);
        if lost.is_empty() {
            return;
        }
        let why = if admission == AdmissionStage::Placed {
            "placement would not give its pods, which could run there now, a toleration of"
        } else {
            "its template does not tolerate"
        };
        let generation = at(json, &["metadata", "generation"]);
        let generation: Option<i64> = generation.and_then(|generation| generation.parse().ok());
        self.generations
            .extend(generation.map(|generation| (place.clone(), generation)));
        self.add(place, lost, why, remedy(&inference, in_template));
    }

    /// What takes nodes from the pods of an object. `is_strict`: nodes that join others with the taint count too.
    fn lost(
        &self,
        subject: &Object<'_>,
        inference: &Inference,
        counts: &NamespacePolicy,
        admission: AdmissionStage,
        is_strict: bool,
    ) -> AffectingTaints {
        let mut found = AffectingTaints::default();
        let change = self.nodes.change;
        for node in change.lost(subject, inference, &counts.policy, admission) {
            let Some((group, gained)) = self.nodes.gains.get(node.name.as_str()) else {
                // A change of other nodes takes it from the pods.
                found.groups.extend(self.groups());
                found.taints.extend(change.gained().iter().cloned());
                continue;
            };
            if !is_strict && self.nodes.joining.contains(group) {
                continue;
            }
            found.groups.insert(*group);
            let gained: Vec<&Taint> = node
                .taints
                .iter()
                .filter(|taint| gained.contains(taint))
                .collect();
            if gained.is_empty() {
                found.taints.extend(change.gained().iter().cloned());
            }
            found.taints.extend(gained.into_iter().cloned());
        }
        found
    }

    fn visit_pod(
        &mut self,
        subject: &Object<'_>,
        json: &str,
        place: ObjectKey,
        owner: Option<(ObjectKey, Option<Kind>)>,
    ) {
        if self.facts().is_stored_mirror(subject) {
            return;
        }
        let counts = self.counts(&subject.namespace);
        let inference = infer_os(subject, self.facts(), &counts.policy);
        let kind = owner.as_ref().and_then(|(_, kind)| *kind);
        if let Some((lacking, why)) = self.pod_lacks(subject, json, &counts, &inference, kind) {
            let known = |owner: ObjectKey| self.owners.get(&owner).cloned().unwrap_or(owner);
            let named = owner.map_or(place, |(owner, _)| known(owner));
            self.add(
                named,
                lacking,
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
    ) -> Option<(AffectingTaints, &'static str)> {
        let pod = subject.pod()?;
        let on_windows = self.nodes.gains.get(pod.node_name.as_deref().unwrap_or_default());
        let untolerated = |is_of_interest: &dyn Fn(&Taint) -> bool| {
            let (group, gained) = on_windows?;
            let constraints = constraints(subject, self.facts(), AdmissionStage::Merged)?;
            let lacking = constraints
                .untolerated(gained)
                .filter(|taint| is_of_interest(taint));
            let taints: BTreeSet<Taint> = lacking.cloned().collect();
            (!taints.is_empty()).then(|| AffectingTaints {
                taints,
                groups: [*group].into(),
            })
        };
        if let Some(evicting) = untolerated(&|taint| taint.effect == "NoExecute") {
            return Some((evicting, "its pods would be evicted, as they do not tolerate"));
        }
        let lost = |admission| self.lost(subject, inference, counts, admission, !counts.is_reviewed);
        let (lacking, why) = match inference.verdict {
            // The template of the DaemonSet is evaluated instead; its pods are created again from it.
            Verdict::Windows if owner.is_some_and(Kind::is_daemon_set) => return None,
            Verdict::Windows if pod.is_bound() && owner.is_some() => return None,
            // Placement applies when this bare pod is created again.
            Verdict::Windows if pod.is_bound() => (
                lost(AdmissionStage::of_template(subject, counts.places)),
                "it does not tolerate",
            ),
            // It was admitted already: neither placement nor a changed template affects it any longer.
            Verdict::Windows if owner.is_some() => (
                lost(AdmissionStage::Merged),
                "its pods wait for a node and were created before they were given a toleration: delete them, so that \
                 it creates new ones; they do not tolerate",
            ),
            Verdict::Windows => (lost(AdmissionStage::Merged), "it does not tolerate"),
            Verdict::Linux if selects(inference, false) => return None,
            // Placement adds nothing to a pod that is not known to be for Windows.
            _ if ObjectStatus::of(json).is_true("Ready") => (
                untolerated(&|_| true)?,
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

    fn add(&mut self, place: ObjectKey, lacking: AffectingTaints, why: &str, remedy: Remedy) {
        let taints: Vec<String> = lacking.taints.iter().map(ToString::to_string).collect();
        let affected = self
            .affected_workloads
            .entry(place)
            .or_insert_with(|| TaintEffects {
                why: format!("{why} {}", taints.join(", ")),
                remedy: Some(remedy),
                groups: BTreeSet::new(),
            });
        affected.groups.extend(lacking.groups);
    }

    /// The groups whose taints would affect a workload.
    fn affecting_groups(&self) -> BTreeSet<GuardGroup> {
        let workloads = self.affected_workloads.values();
        workloads.flat_map(|workload| &workload.groups).copied().collect()
    }

    /// The workloads that the taints of these groups would affect, with the generations of those whose own object was
    /// read.
    fn affected(&self, groups: &BTreeSet<GuardGroup>) -> BTreeMap<ObjectKey, Option<i64>> {
        let workloads = self.affected_by(groups);
        workloads
            .map(|(place, _)| (place.clone(), self.generations.get(place).copied()))
            .collect()
    }

    fn affected_by<'a>(
        &'a self,
        groups: &'a BTreeSet<GuardGroup>,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a TaintEffects)> {
        let workloads = self.affected_workloads.iter();
        workloads.filter(|(_, affected)| !affected.groups.is_disjoint(groups))
    }

    /// The workloads that the taints of these groups would affect.
    pub fn impact(&self, groups: &BTreeSet<GuardGroup>) -> Impact {
        let workloads = self.affected_by(groups);
        let workloads = workloads.map(|((namespace, kind, name), affected)| {
            let name = if namespace.is_empty() {
                format!("{kind} {name}")
            } else {
                format!("{kind} {namespace}/{name}")
            };
            AffectedWorkload {
                name,
                why: affected.why.clone(),
                remedy: affected.remedy,
            }
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
        EvidenceKind::RuntimeClass | EvidenceKind::NamespaceNodeSelector => !in_template,
        _ => false,
    })
}

#[cfg(test)]
mod tests;
