//! What to do about each node with the startup taint, and about the pods that pull its images. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::pulls::{PullProgress, PullerPod};
use crate::api::{ImagePuller, NodeStartup};
use crate::cluster::node::NodeView;
use crate::model::nodes::node::NodeReadiness;

/// How long a pod that the kubelet has given up stays, so that it is not created again and again.
const RETRY: Duration = Duration::from_secs(30);
/// How long a node waits for images that cannot be pulled: its kubelet tries them about three times. An image that a workload
/// of the cluster names in vain must not delay each new node until its timeout.
const GIVE_UP: Duration = Duration::from_secs(60);
/// How long a pod that no kubelet has acknowledged keeps its slot if another node could use it. Kubelets acknowledge pods within
/// seconds.
const ACKNOWLEDGE: Duration = Duration::from_secs(15);

/// Why a node waits, or does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GateRule {
    /// No policy with `startup` selects it, or it is not a Windows node.
    Open,
    /// It waits for the default timeout at most: this policy, which cannot be read, may select it; without a policy, it has no labels
    /// of its pool yet.
    Held(Option<String>),
    /// This policy selects it.
    Policy {
        /// The name of the policy.
        name: String,
        /// Its `startup`.
        startup: NodeStartup,
    },
}

impl GateRule {
    /// The policy, if Transom pulls for it.
    pub fn pulling_policy(&self) -> Option<(&str, &NodeStartup)> {
        match self {
            GateRule::Policy { name, startup } if startup.puller == ImagePuller::Pods => {
                Some((name, startup))
            }
            _ => None,
        }
    }

    /// Whether the node waits for the images of workloads.
    pub fn waits_for_workloads(&self) -> bool {
        matches!(self, GateRule::Policy { startup, .. } if startup.waits_for_workloads())
    }
}

/// A node with the startup taint.
#[derive(Clone, Debug)]
pub struct GatedNode {
    pub node: Arc<NodeView>,
    /// What it waits for.
    pub rule: GateRule,
    /// The images that were never seen on it, as workloads write them, in the order worth pulling; `None` if it is not known
    /// which images it needs.
    pub missing: Option<Vec<String>>,
    /// Since when none of them can be pulled; `None` if one may still arrive.
    pub all_failed: Option<Timestamp>,
    /// If all that is missing is of one namespace, and the node also waits for others: how long it waits for that one.
    pub share_is_over: Option<Timestamp>,
    /// Whether its kubelet has left a pod that pulls without an answer.
    pub is_idle: bool,
}

/// Why a node gets pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseReason {
    /// Nothing gates it.
    Open,
    /// Its images are there.
    Warm,
    /// All images that it can pull are there.
    Failed,
    /// The timeout is over.
    Late,
}

/// A pod to create.
#[derive(Clone, PartialEq, Debug)]
pub struct NewPuller<'g> {
    pub node: &'g Arc<NodeView>,
    pub policy: &'g str,
    pub startup: &'g NodeStartup,
    pub images: &'g [String],
    /// When the timeout of the node is over.
    pub deadline: Timestamp,
}

/// What a pass of the start gate writes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GatePlan<'g> {
    /// The nodes whose startup taint is removed.
    pub released: Vec<(&'g Arc<NodeView>, ReleaseReason)>,
    /// The pods to create.
    pub created: Vec<NewPuller<'g>>,
    /// The pods to delete.
    pub deleted: Vec<&'g PullerPod>,
    /// When the next node is released in any case.
    pub next: Option<Timestamp>,
}

impl GatedNode {
    /// When it gets pods in any case.
    pub fn deadline(&self) -> Timestamp {
        let timeout = match &self.rule {
            GateRule::Open => Duration::ZERO,
            GateRule::Held(_) => NodeStartup::default().timeout(),
            GateRule::Policy { startup, .. } => startup.timeout(),
        };
        let created = self.node.created.unwrap_or(Timestamp::MIN);
        created.saturating_add(timeout).unwrap_or(Timestamp::MAX)
    }

    /// When it gets pods because nothing more can be pulled.
    fn given_up(&self) -> Option<Timestamp> {
        self.all_failed?.saturating_add(GIVE_UP).ok()
    }

    /// Why it gets pods now; `None` if it waits.
    fn release(&self, now: Timestamp) -> Option<ReleaseReason> {
        let is_warm = || self.missing.as_ref().is_some_and(Vec::is_empty);
        match &self.rule {
            GateRule::Open => Some(ReleaseReason::Open),
            GateRule::Policy { .. } if is_warm() => Some(ReleaseReason::Warm),
            _ if now >= self.deadline() => Some(ReleaseReason::Late),
            _ if self.share_is_over.is_some_and(|at| now >= at) => Some(ReleaseReason::Late),
            _ => (self.given_up()).and_then(|at| (now >= at).then_some(ReleaseReason::Failed)),
        }
    }
}

impl PullerPod {
    /// Whether its kubelet does nothing: it has not even acknowledged the pod.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        let until = self.created.and_then(|at| at.saturating_add(ACKNOWLEDGE).ok());
        !self.is_acknowledged && until.is_some_and(|until| now >= until)
    }

    /// Whether it has the pull Secrets of the policy. Others may have added more of them.
    pub fn has_secrets_of(&self, startup: &NodeStartup) -> bool {
        let mut wanted = startup.pull_secrets.iter();
        wanted.all(|wanted| self.secrets.contains(&wanted.name))
    }

    /// Whether it is of no more use for a node that still waits for these images.
    fn is_spent(&self, startup: &NodeStartup, missing: &[String], now: Timestamp) -> bool {
        if self.has_ended {
            let retry = self.created.and_then(|at| at.saturating_add(RETRY).ok());
            return retry.is_none_or(|retry| now >= retry);
        }
        let is_settled = (self.images.iter()).all(|(_, progress)| *progress != PullProgress::Pulling);
        // A kubelet that has removed an image pulls it again for a pod that still names it.
        let mut of_pod: Vec<&String> = self.images.iter().map(|(image, _)| image).collect();
        let mut missing: Vec<&String> = missing.iter().collect();
        of_pod.sort_unstable();
        missing.sort_unstable();
        is_settled && (of_pod != missing || !self.has_secrets_of(startup))
    }
}

/// Plans the writes for these nodes. `pullers`: the stored pods that pull; `None` if they are not known or may not be created:
/// then none is created or deleted.
pub fn plan<'g>(now: Timestamp, nodes: &'g [GatedNode], pullers: Option<&'g [PullerPod]>) -> GatePlan<'g> {
    let mut plan = GatePlan::default();
    let mut waiting: BTreeMap<&str, &GatedNode> = BTreeMap::new();
    for gated in nodes {
        if let Some(why) = gated.release(now) {
            plan.released.push((&gated.node, why));
        } else {
            let next = plan.next.into_iter().chain(gated.given_up());
            let next = next.chain(gated.share_is_over);
            plan.next = next.chain([gated.deadline()]).min();
            waiting.insert(&gated.node.uid, gated);
        }
    }
    if let Some(pullers) = pullers {
        plan.deleted = no_longer_needed(now, &waiting, pullers);
        let without_slot = new_pullers(waiting.values().copied().collect(), pullers, &mut plan.created);
        let is_stalled = |pod: &PullerPod| {
            let gated = waiting.get(&*pod.node_uid);
            pod.is_idle(now) || gated.is_some_and(|gated| gated.node.readiness == NodeReadiness::NotReady)
        };
        let mut idle = idle_pullers(is_stalled, &plan.deleted, pullers, &without_slot);
        plan.deleted.append(&mut idle);
    }
    plan
}

/// The pods that give their slots to nodes without one whose kubelets work, by policy: the kubelets of these pods do nothing, or
/// no longer answer.
fn idle_pullers<'g>(
    is_stalled: impl Fn(&PullerPod) -> bool,
    deleted: &[&PullerPod],
    pullers: &'g [PullerPod],
    without_slot: &BTreeMap<&str, usize>,
) -> Vec<&'g PullerPod> {
    let mut wanted = without_slot.clone();
    // These give their slots already.
    for pod in pullers
        .iter()
        .filter(|pod| pod.deleting)
        .chain(deleted.iter().copied())
    {
        if let Some(wanted) = wanted.get_mut(&*pod.policy) {
            *wanted = wanted.saturating_sub(1);
        }
    }
    let is_stored = |pod: &&PullerPod| !pod.deleting && !deleted.contains(pod);
    let mut idle: Vec<&PullerPod> = pullers
        .iter()
        .filter(is_stored)
        .filter(|pod| is_stalled(pod))
        .collect();
    idle.retain(|pod| {
        let wanted = wanted.get_mut(&*pod.policy).filter(|wanted| **wanted > 0);
        wanted.map(|wanted| *wanted -= 1).is_some()
    });
    idle
}

/// The pods whose node does not wait any longer, and those that have ended, or have other images than those that are missing, or
/// other pull Secrets than the policy. Nothing is deleted for a node of which it is not known what is missing, for example by a
/// new leader: its kubelet may pull.
fn no_longer_needed<'g>(
    now: Timestamp,
    waiting: &BTreeMap<&str, &GatedNode>,
    pullers: &'g [PullerPod],
) -> Vec<&'g PullerPod> {
    let is_needed = |pod: &&PullerPod| {
        let gated = waiting.get(&*pod.node_uid);
        let needs = gated.and_then(|gated| Some((gated.rule.pulling_policy()?.1, gated.missing.as_deref())));
        needs.is_some_and(|(startup, missing)| {
            missing.is_none_or(|missing| !pod.is_spent(startup, missing, now))
        })
    };
    let stale = pullers.iter().filter(|pod| !pod.deleting && !is_needed(pod));
    stale.collect()
}

/// Adds the pods to create: for the nodes that were created first, as many as each policy has free slots. Nodes that are not Ready,
/// or whose kubelets did nothing before, come last. A pod holds its slot until it is gone. Returns how many of the other nodes of
/// each policy got no slot.
fn new_pullers<'g>(
    mut waiting: Vec<&'g GatedNode>,
    pullers: &[PullerPod],
    created: &mut Vec<NewPuller<'g>>,
) -> BTreeMap<&'g str, usize> {
    let works = |gated: &GatedNode| matches!(gated.node.readiness, NodeReadiness::Since(_)) && !gated.is_idle;
    waiting.sort_by_key(|gated| (!works(gated), gated.node.created, &gated.node.name));
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pullers {
        *used.entry(&pod.policy).or_default() += 1;
    }
    let has_pod: BTreeSet<&str> = pullers.iter().map(|pod| &*pod.node_uid).collect();
    let mut without_slot: BTreeMap<&str, usize> = BTreeMap::new();
    for gated in waiting {
        let Some((policy, startup)) = gated.rule.pulling_policy() else {
            continue;
        };
        let images = gated.missing.as_deref().unwrap_or_default();
        let used = used.entry(policy).or_default();
        if images.is_empty() || has_pod.contains(&*gated.node.uid) {
            continue;
        }
        if *used >= startup.slots() {
            *without_slot.entry(policy).or_default() += usize::from(works(gated));
            continue;
        }
        *used += 1;
        created.push(NewPuller {
            node: &gated.node,
            policy,
            startup,
            images,
            deadline: gated.deadline(),
        });
    }
    without_slot
}
