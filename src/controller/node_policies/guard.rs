//! The guard before the first taint: which workloads would no longer be scheduled, or would be evicted. The engine
//! evaluates them from raw JSON; `survey` lists them.

mod affected;
pub(crate) mod cache;
pub(crate) mod carried;
mod impact;
mod inputs;
mod peers;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::impact::Impact;

use self::impact::{AffectedWorkload, Remedy, remedy};
use crate::cluster::snapshot::NamespacePolicy;
use crate::cluster::stored::ObjectHeadMeta;
use crate::cluster::workload_survey::WorkloadSurvey;
use crate::engine::scheduling::constraints;
use crate::engine::{AdmissionStage, TaintChange, infer_os};
use crate::model::cluster::facts::Facts;
use crate::model::nodes::node::Taint;
use crate::model::objects::object::{Object, ObjectError, ReviewStage};
use crate::model::objects::object_status::ObjectStatus;
use crate::model::objects::pod::PodSpec;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::json::at;
use crate::model::windows::os::{Inference, Verdict};

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
    /// It could not find out.
    Unknown {
        why: String,
        /// Whether Transom lacks the right to list something.
        is_forbidden: bool,
    },
}

/// The nodes of one policy that get their taints together, by number.
pub type GuardGroup = usize;

/// What the guard knows of the nodes: their taints before and after, and which of them get some.
pub struct GuardedNodes<'g> {
    /// The cluster with the taints before and after.
    pub change: &'g TaintChange,
    /// The nodes that get taints: their group, and the taints.
    pub gains: BTreeMap<&'g str, (GuardGroup, Vec<Taint>)>,
    /// The groups of nodes that join others which carry the taints already: only what runs is considered there, and
    /// what no webhook reviews. With the Ready nodes of their pools.
    pub joining: BTreeMap<GuardGroup, BTreeSet<&'g str>>,
    /// If the nodes carry the taints already: the same change in a cluster in which every node has the taints of its policy.
    pub complete: Option<&'g TaintChange>,
}

/// Evaluates objects one by one, and collects the workloads that would be affected.
pub struct Guard<'g> {
    nodes: GuardedNodes<'g>,
    /// Looks up the policy that applies in a namespace.
    look_up: &'g (dyn Fn(&str) -> NamespacePolicy + Send + Sync),
    /// Which kinds are read: what their controllers make is evaluated with them.
    survey: &'g WorkloadSurvey,
    /// What was looked up, by namespace.
    policies: BTreeMap<String, Arc<NamespacePolicy>>,
    /// The owners of ReplicaSets and Jobs, so that the top-level owner of a pod can be named.
    owners: BTreeMap<WorkloadName, WorkloadName>,
    affected_workloads: BTreeMap<WorkloadName, TaintEffects>,
    /// DaemonSets that lose nodes that join others, which matters only if they run on those now.
    if_running: BTreeMap<WorkloadName, (AffectingTaints, Remedy)>,
    /// The generations of the affected workloads whose own object was read.
    generations: BTreeMap<WorkloadName, i64>,
    /// The groups on whose nodes Ready pods of each workload run.
    running: BTreeMap<WorkloadName, BTreeSet<GuardGroup>>,
}

/// A pod, or a template of pods.
struct Subject<'s> {
    object: &'s Object<'s>,
    policy: Arc<NamespacePolicy>,
    inference: Inference,
}

/// How a workload would be affected.
struct TaintEffects {
    why: String,
    remedy: Option<Remedy>,
    /// The groups whose taints affect it.
    groups: BTreeSet<GuardGroup>,
    /// Those of them whose taints would not affect it if every node had the taints of its policy.
    partial: BTreeSet<GuardGroup>,
}

/// The taints that affect an object, by the group of the nodes that get them.
#[derive(Default)]
struct AffectingTaints(BTreeMap<GuardGroup, BTreeSet<Taint>>);

impl AffectingTaints {
    fn add<'t>(&mut self, group: GuardGroup, taints: impl IntoIterator<Item = &'t Taint>) {
        self.0
            .entry(group)
            .or_default()
            .extend(taints.into_iter().cloned());
    }

    /// Divides them: those of the groups that match, and the others.
    fn divide(self, is_first: impl Fn(&GuardGroup) -> bool) -> (Self, Self) {
        let (first, others) = self.0.into_iter().partition(|(group, _)| is_first(group));
        (AffectingTaints(first), AffectingTaints(others))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'g> Guard<'g> {
    /// A guard for these nodes.
    pub fn new(
        nodes: GuardedNodes<'g>,
        policy_of: &'g (dyn Fn(&str) -> NamespacePolicy + Send + Sync),
        survey: &'g WorkloadSurvey,
    ) -> Self {
        Guard {
            nodes,
            look_up: policy_of,
            survey,
            policies: BTreeMap::new(),
            owners: BTreeMap::new(),
            affected_workloads: BTreeMap::new(),
            if_running: BTreeMap::new(),
            generations: BTreeMap::new(),
            running: BTreeMap::new(),
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

    /// Evaluates a workload before and after the taints.
    pub fn visit(&mut self, kind: Kind, json: &str) {
        let subject = match Object::parse(kind, json, ReviewStage::Stored) {
            Ok(subject) => subject,
            Err(error) => return self.note_unreadable(kind, json, &error),
        };
        if subject.meta.deletion_timestamp.0 {
            return;
        }
        let place = WorkloadName::of(subject.kind, &subject.namespace, &subject.meta.name);
        let owner = WorkloadName::owner_of(&subject.meta, &subject.namespace);
        let owner = owner.map(|owner| {
            let kind = subject.owner_kind().filter(|kind| self.survey.reads(*kind));
            (owner, kind)
        });
        match (kind, owner) {
            (Kind::Pod, owner) => self.visit_pod(&subject, json, place, owner),
            // Its owner is evaluated instead.
            (_, Some((owner, Some(_)))) => _ = self.owners.insert(place, owner),
            _ if ObjectStatus::of(json).has_ended(kind) => {}
            _ => {
                let generation = at(json, &["metadata", "generation"]);
                let generation = generation.and_then(|generation| generation.parse().ok());
                subject.for_each_pod(|pod| self.visit_template(pod, generation, &place));
            }
        }
    }

    /// Notes an object that is stored and cannot be read: pods may be created from it.
    fn note_unreadable(&mut self, kind: Kind, json: &str, error: &ObjectError) {
        // Without a pod at the path that the administrator names, it describes none. Pods of its controller are evaluated themselves.
        if matches!(kind, Kind::Configured(_)) {
            return;
        }
        let mut groups = self.groups();
        // The API server validates no pod of a custom resource, so any client could store such an object later.
        groups.retain(|group| !kind.is_custom() || !self.nodes.joining.contains_key(group));
        let head = ObjectHeadMeta::of(json);
        let place = WorkloadName::of(kind, &head.namespace, &head.name);
        let affected = TaintEffects {
            why: format!("cannot be read: {error}"),
            remedy: None,
            groups,
            partial: BTreeSet::new(),
        };
        self.affected_workloads.insert(place, affected);
    }

    /// Evaluates one of the pods that an object describes.
    fn visit_template(&mut self, object: &Object<'_>, generation: Option<i64>, place: &WorkloadName) {
        let subject = self.subject(object);
        let inference = &subject.inference;
        // A Task runs where its TaskRun says, unless it selects nodes itself.
        let is_placed_by_others = !object.kind.selects_nodes() && !inference.selects_nodes(false);
        let names_node = object.pod().is_some_and(PodSpec::is_bound);
        if inference.verdict != Verdict::Windows || is_placed_by_others || names_node {
            return;
        }
        let admission = AdmissionStage::of_template(object, subject.policy.places);
        // A DaemonSet's controller reads the template, so placement of its pods is too late.
        let in_template = admission == AdmissionStage::AsWritten;
        let lost = self.lost(self.nodes.change, &subject, admission);
        let complete = self.nodes.complete.filter(|_| !lost.is_empty());
        let partial = complete.map(|complete| {
            let in_any_case = self.lost(complete, &subject, admission);
            let groups = lost.0.keys().copied();
            groups
                .filter(|group| !in_any_case.0.contains_key(group))
                .collect()
        });
        let (lost, of_joining) = self.without_joining(lost, &subject.policy);
        let remedy = remedy(inference, in_template);
        if lost.is_empty() && of_joining.is_empty() {
            return;
        }
        if let Some(generation) = generation {
            self.generations.insert(place.clone(), generation);
        }
        if in_template && !of_joining.is_empty() {
            self.if_running.insert(place.clone(), (of_joining, remedy));
        }
        let why = if admission == AdmissionStage::Placed {
            "placement would not give its pods, which could run there now, a toleration of"
        } else {
            UNTOLERATING_TEMPLATE
        };
        self.add(place.clone(), &lost, why, remedy);
        if let (Some(affected), Some(partial)) = (self.affected_workloads.get_mut(place), partial) {
            affected.partial = partial;
        }
    }

    /// What is known of an object before the taints are considered.
    fn subject<'s>(&mut self, object: &'s Object<'s>) -> Subject<'s> {
        let policy = self.policy_of(&object.namespace);
        Subject {
            inference: infer_os(object, self.facts(), &policy.policy),
            object,
            policy,
        }
    }

    /// What takes nodes from the pods of an object.
    fn lost(
        &self,
        change: &TaintChange,
        subject: &Subject<'_>,
        admission: AdmissionStage,
    ) -> AffectingTaints {
        let mut found = AffectingTaints::default();
        let policy = &subject.policy.policy;
        for node in change.lost(subject.object, &subject.inference, policy, admission) {
            let Some((group, gained)) = self.nodes.gains.get(node.name.as_str()) else {
                // A change of other nodes takes it from the pods.
                for group in self.groups() {
                    found.add(group, change.gained());
                }
                continue;
            };
            let gained = node.taints.iter().filter(|taint| gained.contains(taint));
            found.add(*group, gained);
            if found.0.get(group).is_none_or(BTreeSet::is_empty) {
                found.add(*group, change.gained());
            }
        }
        found
    }

    /// Divides what an object loses: what affects it in any case, and what nodes that join others take from it. If no webhook
    /// reviews the namespace, everything affects it.
    fn without_joining(
        &self,
        lost: AffectingTaints,
        policy: &NamespacePolicy,
    ) -> (AffectingTaints, AffectingTaints) {
        let joining = &self.nodes.joining;
        lost.divide(|group| !policy.is_reviewed || !joining.contains_key(group))
    }

    /// Notes that a DaemonSet runs on a node: if it loses nodes that join the pool of this one, it is affected.
    fn note_running(&mut self, daemon_set: &WorkloadName, node: &str) {
        let Some((waiting, remedy)) = self.if_running.remove(daemon_set) else {
            return;
        };
        let joining = &self.nodes.joining;
        let is_there = |group: &GuardGroup| joining.get(group).is_some_and(|nodes| nodes.contains(node));
        let (affecting, others) = waiting.divide(is_there);
        self.add(daemon_set.clone(), &affecting, UNTOLERATING_TEMPLATE, remedy);
        if !others.is_empty() {
            self.if_running.insert(daemon_set.clone(), (others, remedy));
        }
    }

    fn visit_pod(
        &mut self,
        object: &Object<'_>,
        json: &str,
        place: WorkloadName,
        owner: Option<(WorkloadName, Option<Kind>)>,
    ) {
        if self.facts().is_stored_mirror(object) {
            return;
        }
        let subject = self.subject(object);
        let is_ready = || ObjectStatus::of(json).is_true("Ready");
        let kind = owner.as_ref().and_then(|(_, kind)| *kind);
        let is_of_daemon_set = kind.is_some_and(Kind::is_daemon_set);
        if let Some((daemon_set, _)) = owner.as_ref().filter(|_| is_of_daemon_set && is_ready())
            && let Some(node) = object.pod().and_then(|pod| pod.node_name.as_deref())
        {
            self.note_running(daemon_set, node);
        }
        let owner = owner.map(|(owner, _)| self.owners.get(&owner).cloned().unwrap_or(owner));
        let node = object.pod().and_then(|pod| pod.node_name.as_deref());
        if let (Some(owner), Some((group, _))) = (&owner, node.and_then(|node| self.nodes.gains.get(node)))
            && is_ready()
        {
            self.running.entry(owner.clone()).or_default().insert(*group);
        }
        if let Some((lacking, why)) = self.pod_lacks(&subject, is_ready, kind) {
            let named = owner.unwrap_or(place);
            let remedy = remedy(&subject.inference, is_of_daemon_set);
            self.add(named, &lacking, why, remedy);
        }
    }

    /// The taints that affect a pod, and how; `None` if there are none, or if its owner is evaluated instead.
    fn pod_lacks(
        &self,
        subject: &Subject<'_>,
        is_ready: impl Fn() -> bool,
        owner: Option<Kind>,
    ) -> Option<(AffectingTaints, &'static str)> {
        let pod = subject.object.pod()?;
        let is_evicting = |taint: &Taint| taint.effect == "NoExecute";
        if let Some(evicting) = self.untolerated(subject.object, is_evicting) {
            return Some((evicting, "its pods would be evicted, as they do not tolerate"));
        }
        let lost = |admission| {
            let lost = self.lost(self.nodes.change, subject, admission);
            self.without_joining(lost, &subject.policy).0
        };
        let (lacking, why) = match subject.inference.verdict {
            // The template of the DaemonSet is evaluated instead; its pods are created again from it.
            Verdict::Windows if owner.is_some_and(Kind::is_daemon_set) => return None,
            Verdict::Windows if pod.is_bound() && owner.is_some() => return None,
            // Placement applies when this bare pod is created again.
            Verdict::Windows if pod.is_bound() => (
                lost(AdmissionStage::of_template(subject.object, subject.policy.places)),
                "it does not tolerate",
            ),
            // It was admitted already: neither placement nor a changed template affects it any longer.
            Verdict::Windows if owner.is_some() => (
                lost(AdmissionStage::Merged),
                "its pods wait for a node and were created before they were given a toleration: delete them, so that \
                 it creates new ones; they do not tolerate",
            ),
            Verdict::Windows => (lost(AdmissionStage::Merged), "it does not tolerate"),
            Verdict::Linux if subject.inference.selects_nodes(false) => return None,
            // Placement adds nothing to a pod that is not known to be for Windows.
            _ if is_ready() => (
                self.untolerated(subject.object, |_| true)?,
                "it selects no operating system, runs on a Windows node, and does not tolerate",
            ),
            _ => return None,
        };
        (!lacking.is_empty()).then_some((lacking, why))
    }

    /// The taints of this kind that the node of a pod gets, and that the pod does not tolerate; `None` if there are none.
    fn untolerated(
        &self,
        object: &Object<'_>,
        is_of_interest: impl Fn(&Taint) -> bool,
    ) -> Option<AffectingTaints> {
        let node = object.pod()?.node_name.as_deref()?;
        let (group, gained) = self.nodes.gains.get(node)?;
        let constraints = constraints(object, self.facts(), AdmissionStage::Merged)?;
        let lacking = constraints.untolerated(gained);
        let mut lacking = lacking.filter(|taint| is_of_interest(taint)).peekable();
        lacking.peek()?;
        let mut affecting = AffectingTaints::default();
        affecting.add(*group, lacking);
        Some(affecting)
    }

    /// The policy that applies in a namespace; looked up once, because a namespace may have thousands of objects.
    fn policy_of(&mut self, namespace: &str) -> Arc<NamespacePolicy> {
        if let Some(policy) = self.policies.get(namespace) {
            return Arc::clone(policy);
        }
        let policy = Arc::new((self.look_up)(namespace));
        self.policies.insert(namespace.to_owned(), Arc::clone(&policy));
        policy
    }

    fn add(&mut self, place: WorkloadName, lacking: &AffectingTaints, why: &str, remedy: Remedy) {
        if lacking.is_empty() {
            return;
        }
        let taints: BTreeSet<&Taint> = lacking.0.values().flatten().collect();
        let taints: Vec<String> = taints.into_iter().map(ToString::to_string).collect();
        let affected = self
            .affected_workloads
            .entry(place)
            .or_insert_with(|| TaintEffects {
                why: format!("{why} {}", taints.join(", ")),
                remedy: Some(remedy),
                groups: BTreeSet::new(),
                partial: BTreeSet::new(),
            });
        affected.groups.extend(lacking.0.keys());
    }

    /// The groups whose taints would affect a workload.
    fn affecting_groups(&self) -> BTreeSet<GuardGroup> {
        let workloads = self.affected_workloads.values();
        workloads.flat_map(|workload| &workload.groups).copied().collect()
    }

    /// The groups whose taints have to be removed: they keep a workload off nodes that it runs on, or only because other nodes
    /// lack their taints. What does not tolerate a taint and was created later does not run there, and removes no taint.
    fn groups_to_release(&self) -> BTreeSet<GuardGroup> {
        let of_workload = self.affected_workloads.iter().flat_map(|(place, affected)| {
            let running = self.running.get(place).into_iter().flatten();
            let running = running.filter(|group| affected.groups.contains(group));
            running.chain(&affected.partial)
        });
        of_workload.copied().collect()
    }

    /// The workloads that the taints of these groups would affect.
    fn impact(&self, groups: &BTreeSet<GuardGroup>) -> Impact {
        let workloads = self.affected_workloads.iter();
        let workloads = workloads.filter(|(_, affected)| !affected.groups.is_disjoint(groups));
        let workloads = workloads.map(|(place, affected)| {
            let affected = AffectedWorkload {
                why: affected.why.clone(),
                remedy: affected.remedy,
                generation: self.generations.get(place).copied(),
            };
            (place.clone(), affected)
        });
        Impact(workloads.collect())
    }
}

/// Why a template is affected whose pods placement does not change, followed by the taints.
const UNTOLERATING_TEMPLATE: &str = "its template does not tolerate";

#[cfg(test)]
mod tests;
