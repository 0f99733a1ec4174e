//! The next step of a drain, decided from the state alone. Whatever the API server answers, the replicas that are
//! available never fall below what budgets or `--max-unavailable` allow, and every drain ends.

use std::fmt;
use std::time::Duration;

use super::classify::{Outage, PodClass, classify, has_outage, never_evicted, outages, refused};
use super::state::{DrainNode, DrainPod, DrainRules, DrainState, PodName, ReadTime};
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::text::{list, one_line};

/// How old the lists of a namespace may be when one of its pods is evicted, from the start of the first one: other pods
/// fail meanwhile, and the lists do not show it.
pub(super) const FRESH: Duration = Duration::from_secs(5);
/// While so many workloads lack replicas because of the drain, no further node begins. Those that do not improve do not count.
const BUSY: usize = 10;
/// For how long a workload may not improve until it no longer counts.
const STALLED: Duration = Duration::from_secs(60);

/// A step of a drain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DrainAction {
    Cordon(String),
    Evict(PodName),
    /// Read this namespace again now: a pod could be evicted, but the lists are too old.
    Read(String),
    /// Read the cluster again in a moment.
    Wait(WaitCause),
    /// End, although pods are left.
    Stop(StopCause),
    /// Everything is moved and available.
    Done,
}

/// What a drain waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WaitCause {
    /// A pod has no node: the scheduler's message.
    Pending(PodName, String),
    /// An evicted pod ends.
    Terminating(PodName),
    /// The budget of this name allows no eviction now.
    Budget(PodName, String),
    /// Too few replicas of the workload are available: available, desired.
    Replicas(WorkloadName, u64, u64),
    /// The workload is being rolled out, so that its controller ends replicas too.
    Rollout(WorkloadName),
    /// It is not known yet how many replicas the workload should have.
    NotListed(WorkloadName),
    /// An eviction of a pod of this workload has failed a moment ago: why.
    Refused(String, String),
    /// The node could not be cordoned: why.
    NotCordoned(String, String),
    /// The lists of a namespace take too long: their state is too old when they are complete.
    SlowLists(String, Duration),
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitCause::Pending(pod, message) => write!(f, "{pod} has no node: {}", one_line(message)),
            WaitCause::Terminating(pod) => write!(f, "{pod} is ending"),
            WaitCause::Budget(pod, budget) => {
                write!(
                    f,
                    "the PodDisruptionBudget {budget} does not allow to evict {pod} now"
                )
            }
            WaitCause::Replicas(owner, available, desired) => {
                write!(f, "{owner} has {available} of {desired} replicas available")
            }
            WaitCause::Rollout(owner) => write!(f, "{owner} is being rolled out"),
            WaitCause::NotListed(owner) => write!(f, "{owner} is not in the lists yet"),
            WaitCause::Refused(workload, why) => {
                write!(
                    f,
                    "the API server evicts no pod of {workload} now: {}",
                    one_line(why)
                )
            }
            WaitCause::NotCordoned(node, why) => write!(f, "cannot cordon {node}: {}", one_line(why)),
            WaitCause::SlowLists(namespace, took) => write!(
                f,
                "the lists of the namespace {namespace} take {}; a pod is evicted only within {} after their start",
                shown_duration(*took),
                shown_duration(FRESH)
            ),
        }
    }
}

/// Why a drain ends although pods are left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StopCause {
    /// No option allows these pods: the option, why, and the pods.
    Refused(&'static str, String, Vec<String>),
    /// Workloads that have an outage whatever the drain does.
    Outage(Vec<Outage>),
    /// A pod has had no node for too long: the scheduler's message, and the pods that are left.
    Pending(PodName, String, Vec<String>),
    /// Budgets never allow to evict what is left.
    NeverEvicted(Vec<Outage>),
    /// Nothing has improved for this long: what the drain waits for, and the pods that are left.
    NoProgress(Duration, WaitCause, Vec<String>),
    /// A pod came to a drained node after others of its workload were evicted from there.
    Returned(PodName, String),
    /// It has run for this long.
    Timeout(Duration),
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |outages: &[Outage]| list(Outage::lines(outages), 5);
        match self {
            StopCause::Refused(option, why, pods) => {
                write!(f, "there are {why} ({}); {option} allows this", list(pods, 5))
            }
            StopCause::Outage(outages) => write!(
                f,
                "workloads have an outage whatever the drain does ({}); --allow-outage accepts this",
                named(outages)
            ),
            StopCause::Pending(pod, message, left) => {
                write!(
                    f,
                    "no node is found for {pod}: {}. Add nodes or change what the pod requires",
                    one_line(message)
                )?;
                still_to_move(left, f)
            }
            StopCause::NeverEvicted(outages) => {
                write!(
                    f,
                    "the API server does not evict what is left ({})",
                    named(outages)
                )
            }
            StopCause::NoProgress(for_long, wait, left) => {
                write!(
                    f,
                    "nothing has improved for {}: {wait}",
                    shown_duration(*for_long)
                )?;
                still_to_move(left, f)
            }
            StopCause::Returned(pod, node) => write!(
                f,
                "{pod} came to {node}, which is drained: its workload puts pods on cordoned nodes, so evictions do not move it"
            ),
            StopCause::Timeout(after) => write!(f, "it has run for {}", shown_duration(*after)),
        }
    }
}

fn still_to_move(left: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match left {
        [] => Ok(()),
        left => write!(f, "; still to move: {}", list(left, 5)),
    }
}

fn shown_duration(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Decides the next step of a drain.
pub fn next(state: &DrainState, rules: &DrainRules) -> DrainAction {
    let step = unlimited(state, rules);
    // What is done is done, and what stops has its own reason.
    if matches!(step, DrainAction::Done | DrainAction::Stop(_)) {
        return step;
    }
    if let Some(timeout) = rules.timeout.filter(|timeout| state.elapsed >= *timeout) {
        return DrainAction::Stop(StopCause::Timeout(timeout));
    }
    match step {
        DrainAction::Wait(wait) if idle(state, rules) >= rules.progress_timeout => DrainAction::Stop(
            StopCause::NoProgress(rules.progress_timeout, wait, left(state, rules)),
        ),
        step => step,
    }
}

/// The pods that are left.
fn left(state: &DrainState, rules: &DrainRules) -> Vec<String> {
    let mut left: Vec<String> = (state.to_move(rules).map(|pod| pod.name.to_string())).collect();
    left.sort();
    left
}

/// For how long nothing has improved for any workload that is not done.
fn idle(state: &DrainState, rules: &DrainRules) -> Duration {
    let left = state.to_move(rules).map(DrainPod::workload);
    let short = state
        .moved
        .keys()
        .filter(|owner| short_of(state, owner).is_some());
    let open = left.chain(short.cloned());
    let idle = open.map(|workload| state.idle.get(&workload).copied().unwrap_or_default());
    idle.min().unwrap_or(state.elapsed)
}

/// The same without limits of the whole drain.
fn unlimited(state: &DrainState, rules: &DrainRules) -> DrainAction {
    if let Some((why, pods)) = refused(state, rules).into_iter().next() {
        return DrainAction::Stop(StopCause::Refused(why.option(), why.to_string(), pods));
    }
    let outages = outages(state, rules);
    let stops = !outages.is_empty() && !rules.allow_outage;
    // What changed since the drain began keeps its pods; the others are moved first.
    if stops && state.moved.is_empty() {
        return DrainAction::Stop(StopCause::Outage(outages));
    }
    // All nodes first: an evicted pod must not start on the next one.
    let open = state.nodes.iter().filter(|node| !node.is_cordoned);
    if let Some(node) = open.min_by_key(|node| node.refused.is_some()) {
        let name = node.name.clone();
        return match &node.refused {
            None => DrainAction::Cordon(name),
            Some(why) => DrainAction::Wait(WaitCause::NotCordoned(name, why.clone())),
        };
    }
    if let Some((pod, node)) = &state.returned {
        return DrainAction::Stop(StopCause::Returned(pod.clone(), node.clone()));
    }
    match evictable(state, rules) {
        Ok(pod) => return evict(state, pod),
        Err(Some(wait)) => return DrainAction::Wait(wait),
        Err(None) => {}
    }
    if let Some((pod, message)) = longest_pending(state, rules) {
        let (name, message) = (pod.name.clone(), message.to_owned());
        return if pod.waits >= rules.pending_timeout {
            DrainAction::Stop(StopCause::Pending(name, message, left(state, rules)))
        } else {
            DrainAction::Wait(WaitCause::Pending(name, message))
        };
    }
    if let Some(wait) = state.moved.keys().find_map(|owner| short_of(state, owner)) {
        return DrainAction::Wait(wait);
    }
    let left = state.never_evicted(rules);
    match left.is_empty() {
        false => DrainAction::Stop(StopCause::NeverEvicted(left)),
        true if stops && state.to_move(rules).next().is_some() => {
            DrainAction::Stop(StopCause::Outage(outages))
        }
        true => DrainAction::Done,
    }
}

/// The pod of a workload of the drain that has had no node for the longest time.
fn longest_pending<'s>(state: &'s DrainState, rules: &'s DrainRules) -> Option<(&'s DrainPod, &'s str)> {
    let pending = state.pending(rules);
    let pending = pending.filter_map(|pod| Some((pod, pod.unschedulable.as_deref()?)));
    pending.max_by_key(|(pod, _)| pod.waits)
}

/// The next pod that may be evicted; otherwise what the first one of those that are left waits for, or `None` if nothing is
/// left that could ever be evicted. A node begins when nothing is left on those before it, or what is left waits for few others.
fn evictable<'s>(state: &'s DrainState, rules: &DrainRules) -> Result<&'s DrainPod, Option<WaitCause>> {
    let is_busy = |owner: &&WorkloadName| {
        let is_stalled = state.idle.get(*owner).is_some_and(|idle| *idle >= STALLED);
        !is_stalled && short_of(state, owner).is_some()
    };
    let busy = state.moved.keys().filter(is_busy).count();
    let mut wait = None;
    for node in &state.nodes {
        match on_node(state, rules, node) {
            Ok(pod) => return Ok(pod),
            Err(why) => wait = wait.or(why),
        }
        if wait.is_some() && busy >= BUSY {
            break;
        }
    }
    Err(wait)
}

/// The same for one node.
fn on_node<'s>(
    state: &'s DrainState,
    rules: &DrainRules,
    node: &DrainNode,
) -> Result<&'s DrainPod, Option<WaitCause>> {
    let is_there = |pod: &&DrainPod| {
        let is_left = pod.node.as_deref() == Some(&*node.name) && classify(pod, rules) == PodClass::Evict;
        let competes = pod
            .owner
            .as_ref()
            .is_some_and(|owner| state.competing.contains(owner));
        is_left
            && !competes
            && never_evicted(state, pod).is_none()
            && (rules.allow_outage || !has_outage(state, pod))
    };
    let mut pods: Vec<&DrainPod> = state.pods.iter().filter(is_there).collect();
    // What is not available costs nothing, and what was refused is refused again.
    pods.sort_by_key(|pod| (pod.is_available(), pod.refusals, &pod.name));
    let mut wait = None;
    for pod in pods {
        match held(state, rules, pod) {
            None => return Ok(pod),
            Some(why) => wait = wait.or(Some(why)),
        }
    }
    Err(wait)
}

/// Evicts a pod if the lists of its namespace are fresh, otherwise reads them first.
fn evict(state: &DrainState, pod: &DrainPod) -> DrainAction {
    let namespace = &pod.name.namespace;
    let Some(ReadTime { started, took }) = state.read.get(namespace).copied() else {
        return DrainAction::Read(namespace.clone());
    };
    if took >= FRESH {
        return DrainAction::Wait(WaitCause::SlowLists(namespace.clone(), took));
    }
    if state.elapsed.saturating_sub(started) >= FRESH {
        return DrainAction::Read(namespace.clone());
    }
    DrainAction::Evict(pod.name.clone())
}

/// Why a pod is not evicted now.
fn held(state: &DrainState, rules: &DrainRules, pod: &DrainPod) -> Option<WaitCause> {
    let name = || pod.name.clone();
    if let Some(why) = &pod.refused {
        return Some(WaitCause::Refused(pod.workload().to_string(), why.clone()));
    }
    if pod.is_terminating {
        return Some(WaitCause::Terminating(name()));
    }
    // One that was not Ready only now may serve again in a moment, as the others of its workload.
    if pod.has_ended || (!pod.is_ready && pod.unready >= rules.recovery_timeout) {
        return None;
    }
    let service = pod.service();
    if let Some(owner) = service.filter(|owner| state.rolling.contains(*owner)) {
        return Some(WaitCause::Rollout(owner.clone()));
    }
    if let Some(budget) = state.budgets_of(pod).next() {
        let is_used = state.allowed(budget) == 0;
        return is_used.then(|| WaitCause::Budget(name(), budget.name.clone()));
    }
    let owner = service?;
    let Some(desired) = state.desired.get(owner).copied() else {
        return Some(WaitCause::NotListed(owner.clone()));
    };
    let available = state.available(owner);
    let others = available.saturating_sub(u64::from(pod.is_available()));
    let stays = others.saturating_add(rules.max_unavailable);
    (stays < desired).then(|| WaitCause::Replicas(owner.clone(), available, desired))
}

/// What a workload lacks after its pods were evicted: the replicas that it had before, or those that it should have now.
fn short_of(state: &DrainState, owner: &WorkloadName) -> Option<WaitCause> {
    let before = state.moved.get(owner).copied().unwrap_or_default();
    let desired = state.desired.get(owner).copied().unwrap_or_default();
    let (available, expected) = (state.available(owner), before.min(desired));
    (available < expected).then(|| WaitCause::Replicas(owner.clone(), available, expected))
}

#[cfg(test)]
mod tests;
