//! The next step of a drain, decided from the state alone. Whatever the API server answers, the replicas that are
//! available never fall below what budgets or `--max-unavailable` allow, and every drain ends.

use std::fmt;
use std::time::Duration;

use super::classify::{Outage, never_evicted, outages, refused};
use super::state::{DrainNode, DrainPod, DrainRules, DrainState, PodName};
use crate::model::text::{list, one_line};
use crate::model::workload_name::WorkloadName;

/// How old a state may be when a pod is evicted: other pods fail meanwhile, and a state does not show it.
pub(super) const FRESH: Duration = Duration::from_secs(5);

/// A step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DrainAction {
    /// Cordon this node.
    Cordon(String),
    /// Evict this pod.
    Evict(PodName),
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
    /// The eviction has failed for now: why.
    Refused(PodName, String),
    /// The node could not be cordoned: why.
    NotCordoned(String, String),
    /// The state is too old for the next eviction.
    Stale,
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
                write!(f, "{owner} has {available} of {desired} replicas Ready")
            }
            WaitCause::Refused(pod, why) => {
                write!(f, "the API server does not evict {pod} now: {}", one_line(why))
            }
            WaitCause::NotCordoned(node, why) => write!(f, "cannot cordon {node}: {}", one_line(why)),
            WaitCause::Stale => {
                f.write_str("evictions take long, so the cluster is read again before the next one")
            }
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
    /// A pod has had no node for too long: the scheduler's message.
    Pending(PodName, String),
    /// Budgets never allow to evict what is left.
    NeverEvicted(Vec<Outage>),
    /// Nothing has improved for this long.
    NoProgress(Duration, WaitCause),
    /// It has run for this long.
    Timeout(Duration),
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |outages: &[Outage]| {
            let names = outages
                .iter()
                .map(|it| format!("{}: {}", it.workload, it.message));
            list(names.collect::<Vec<_>>(), 5)
        };
        match self {
            StopCause::Refused(option, why, pods) => {
                write!(f, "there are {why} ({}); {option} allows this", list(pods, 5))
            }
            StopCause::Outage(outages) => write!(
                f,
                "workloads have an outage whatever the drain does ({}); --allow-outage accepts this",
                named(outages)
            ),
            StopCause::Pending(pod, message) => write!(
                f,
                "no node is found for {pod}: {}. Add nodes or change what the pod requires",
                one_line(message)
            ),
            StopCause::NeverEvicted(outages) => {
                write!(
                    f,
                    "the API server does not evict what is left ({})",
                    named(outages)
                )
            }
            StopCause::NoProgress(for_long, wait) => {
                write!(
                    f,
                    "nothing has improved for {}: {wait}",
                    shown_duration(*for_long)
                )
            }
            StopCause::Timeout(after) => write!(f, "it has run for {}", shown_duration(*after)),
        }
    }
}

fn shown_duration(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// The next step.
pub fn next(state: &DrainState, rules: &DrainRules) -> DrainAction {
    let step = unlimited(state, rules);
    // What is done is done, and what stops has its own reason.
    if matches!(step, DrainAction::Done | DrainAction::Stop(_)) {
        return step;
    }
    if let Some(timeout) = rules.timeout.filter(|timeout| state.elapsed >= *timeout) {
        return DrainAction::Stop(StopCause::Timeout(timeout));
    }
    let step = match step {
        DrainAction::Evict(_) if state.age >= FRESH => DrainAction::Wait(WaitCause::Stale),
        step => step,
    };
    match step {
        DrainAction::Wait(wait) if state.idle >= rules.progress_timeout => {
            DrainAction::Stop(StopCause::NoProgress(rules.progress_timeout, wait))
        }
        step => step,
    }
}

/// The same without limits of the whole drain.
fn unlimited(state: &DrainState, rules: &DrainRules) -> DrainAction {
    if let Some((why, pods)) = refused(state, rules).into_iter().next() {
        return DrainAction::Stop(StopCause::Refused(why.option(), why.to_string(), pods));
    }
    let outages = outages(state, rules);
    if !outages.is_empty() && !rules.allow_outage {
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
    if let Some((pod, message)) = longest_pending(state, rules) {
        let (name, message) = (pod.name.clone(), message.to_owned());
        return if pod.waits >= rules.pending_timeout {
            DrainAction::Stop(StopCause::Pending(name, message))
        } else {
            DrainAction::Wait(WaitCause::Pending(name, message))
        };
    }
    if let Some(step) = state.nodes.iter().find_map(|node| on_node(state, rules, node)) {
        return step;
    }
    let missing = state
        .moved
        .iter()
        .find_map(|(owner, before)| missing(state, owner, *before));
    if let Some(wait) = missing {
        return DrainAction::Wait(wait);
    }
    let left: Vec<Outage> = state
        .to_move(rules)
        .filter_map(|pod| never_evicted(state, pod))
        .collect();
    if left.is_empty() {
        DrainAction::Done
    } else {
        DrainAction::Stop(StopCause::NeverEvicted(left))
    }
}

/// The pod of a workload of the drain that has had no node for the longest time.
fn longest_pending<'s>(state: &'s DrainState, rules: &DrainRules) -> Option<(&'s DrainPod, &'s str)> {
    let followed = state.followed(rules);
    let is_followed = |pod: &&DrainPod| pod.owner.as_ref().is_some_and(|owner| followed.contains(owner));
    let pending = state
        .pods
        .iter()
        .filter(is_followed)
        .filter(|pod| !pod.is_terminating);
    let pending = pending.filter_map(|pod| Some((pod, pod.unschedulable.as_deref()?)));
    pending.max_by_key(|(pod, _)| pod.waits)
}

/// The step for one node; `None` if nothing is left on it that could ever be evicted.
fn on_node(state: &DrainState, rules: &DrainRules, node: &DrainNode) -> Option<DrainAction> {
    let mut wait = None;
    let on_node = |pod: &&DrainPod| pod.node.as_deref() == Some(&*node.name);
    let mut pods: Vec<&DrainPod> = state.to_move(rules).filter(on_node).collect();
    // What is not available costs nothing.
    pods.sort_by(|a, b| (a.is_available(), &a.name).cmp(&(b.is_available(), &b.name)));
    for pod in pods {
        if never_evicted(state, pod).is_some() {
            continue;
        }
        match held(state, rules, pod) {
            None => return Some(DrainAction::Evict(pod.name.clone())),
            Some(why) => wait = wait.or(Some(why)),
        }
    }
    wait.map(DrainAction::Wait)
}

/// Why a pod is not evicted now.
fn held(state: &DrainState, rules: &DrainRules, pod: &DrainPod) -> Option<WaitCause> {
    if let Some(why) = &pod.refused {
        return Some(WaitCause::Refused(pod.name.clone(), why.clone()));
    }
    if pod.is_terminating {
        return Some(WaitCause::Terminating(pod.name.clone()));
    }
    // One that was not Ready only now may serve again in a moment, as the others of its workload.
    if pod.has_ended || (!pod.is_ready && pod.unready >= rules.recovery_timeout) {
        return None;
    }
    if let Some(budget) = state.budgets_of(pod).next() {
        let is_used = budget.allowed == 0;
        return is_used.then(|| WaitCause::Budget(pod.name.clone(), budget.name.clone()));
    }
    let owner = pod.owner.as_ref().filter(|owner| owner.has_replicas())?;
    let (available, desired) = (state.available(owner), state.desired(owner));
    let others = available.saturating_sub(u64::from(pod.is_available()));
    let stays = others.saturating_add(rules.max_unavailable);
    (stays < desired).then(|| WaitCause::Replicas(owner.clone(), available, desired))
}

/// What a workload lacks after its pods were evicted.
fn missing(state: &DrainState, owner: &WorkloadName, before: u64) -> Option<WaitCause> {
    let available = state.available(owner);
    let expected = before.min(state.desired(owner));
    let is_missing = owner.has_replicas() && available < expected;
    is_missing.then(|| WaitCause::Replicas(owner.clone(), available, expected))
}

#[cfg(test)]
mod tests;
