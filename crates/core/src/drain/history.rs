//! What a drain has done, and the state that follows from that and from what was listed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::inventory::{DrainInventory, InventoryNode};
use super::room::{PodRequirements, competing};
use super::state::{DrainPod, DrainProgress, DrainRules, DrainState, EvictionAnswer, PodName};
use crate::model::doubling_pause::DoublingPause;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;

/// What a drain has done, and when something improved. Times are since its start.
#[derive(Clone, Debug, Default)]
pub struct DrainHistory {
    /// The first uids of nodes: one that comes back under its name is another node.
    nodes: BTreeMap<String, String>,
    /// Where the pods of workloads may run, as far as it was read.
    requirements: BTreeMap<WorkloadName, PodRequirements>,
    /// The workloads of which pods were evicted, with the replicas that were available before.
    moved: BTreeMap<WorkloadName, u64>,
    /// The most pods of workloads that do not say how many they should have.
    most: BTreeMap<WorkloadName, u64>,
    /// The pods, by uid, that were on the drained nodes before others of their workload were evicted.
    present: BTreeSet<String>,
    /// The pods, by uid, that were Pending before the first eviction.
    pending_before: Option<BTreeSet<String>>,
    /// The failed evictions of pods, by uid.
    failures: HashMap<String, FailedEviction>,
    /// Since when pods have no node.
    pending: SeenSince,
    /// Since when pods are not Ready.
    unready: SeenSince,
    /// Since when pods are Ready.
    ready: SeenSince,
    /// Since when pods are being deleted.
    ending: SeenSince,
    /// The best that workloads had, and since when.
    best: BTreeMap<WorkloadName, (DrainProgress, Duration)>,
}

#[derive(Clone, Debug, Default)]
struct FailedEviction {
    workload: Option<WorkloadName>,
    /// How often it was refused.
    times: u32,
    /// Until when no pod of the workload is evicted.
    until: Duration,
    why: String,
    /// Until when the pod may end although the drain has no answer.
    may_end: Duration,
}

/// The pauses after evictions that were refused.
const PAUSE: DoublingPause = DoublingPause {
    first: Duration::from_secs(5),
    longest: Duration::from_secs(120),
};
/// For how long an eviction without an answer may still be carried out: an API server ends a request after a minute.
const IN_FLIGHT: Duration = Duration::from_secs(75);

impl DrainHistory {
    /// The state of the drain of these nodes, in this order, `now` after its start.
    pub fn state(
        &mut self,
        inventory: &DrainInventory,
        nodes: &[String],
        rules: &DrainRules,
        now: Duration,
    ) -> DrainState {
        let nodes = &self.same_nodes(inventory, nodes);
        let mut state = DrainState {
            nodes: inventory.drained(nodes),
            elapsed: now,
            ..DrainState::default()
        };
        for (namespace, space) in &inventory.spaces {
            let mut space = space.clone();
            let services = space.services();
            space.settle_pods(&services, rules.min_ready);
            state.pods.append(&mut space.pods);
            state.budgets.append(&mut space.budgets);
            state.read.insert(namespace.clone(), space.read);
            let rolling = services.iter().filter(|(_, service)| service.is_rolling);
            state.rolling.extend(rolling.map(|(owner, _)| owner.clone()));
            let replicas = services
                .into_iter()
                .filter_map(|(owner, it)| Some((owner, it.replicas?)));
            state.desired.extend(replicas);
        }
        // A pod may wait for a node that the start gate releases.
        if inventory.gated(nodes).next().is_some() {
            self.pending = SeenSince::default();
        }
        for pod in &mut state.pods {
            match pod.node.as_ref().map(|node| inventory.nodes.get(node)) {
                // What is written about a pod may be of an earlier node of that name.
                Some(Some(node)) => {
                    pod.ready_transition = format!("{} {}", pod.ready_transition, node.uid);
                    if self.is_another(node) {
                        pod.min_ready = pod.min_ready.max(rules.min_ready);
                    }
                }
                Some(None) => pod.is_ready = false,
                None => {}
            }
        }
        self.note_times(&mut state);
        self.note_failures(&mut state.pods, now);
        self.count(&mut state);
        // One that is no longer there was deleted, and gets no replicas.
        self.moved.retain(|owner, _| state.desired.contains_key(owner));
        state.moved.clone_from(&self.moved);
        let to_move: Vec<DrainPod> = state.to_move(rules).cloned().collect();
        state.node_claims = inventory.node_claims(&to_move, nodes);
        state.returned = self.returned(&state, &to_move);
        state.settle_budgets();
        self.note_progress(&mut state, rules);
        self.note_requirements(&to_move);
        state.competing = competing(inventory, &state, rules, &self.requirements);
        state
    }

    /// Begins again with the same nodes, as if nothing had been done.
    #[must_use]
    pub fn restarted(self) -> Self {
        DrainHistory {
            nodes: self.nodes,
            requirements: self.requirements,
            ..DrainHistory::default()
        }
    }

    /// Those of these nodes that are gone, or still the nodes which the drain began with.
    fn same_nodes(&mut self, inventory: &DrainInventory, nodes: &[String]) -> Vec<String> {
        for (name, node) in &inventory.nodes {
            if !self.nodes.contains_key(name) {
                self.nodes.insert(name.clone(), node.uid.clone());
            }
        }
        let is_same = |name: &&String| {
            let node = inventory.nodes.get(*name);
            node.is_none_or(|node| !self.is_another(node))
        };
        nodes.iter().filter(is_same).cloned().collect()
    }

    /// Whether there was another node of this name.
    fn is_another(&self, node: &InventoryNode) -> bool {
        (self.nodes.get(&node.host.name)).is_some_and(|uid| *uid != node.uid)
    }

    fn note_requirements(&mut self, to_move: &[DrainPod]) {
        for pod in to_move {
            if let (Some(owner), Some(spec)) = (&pod.owner, &pod.spec)
                && !self.requirements.contains_key(owner)
            {
                self.requirements
                    .insert(owner.clone(), PodRequirements::of(pod, spec));
            }
        }
    }

    /// Notes since when pods are in a condition.
    fn note_times(&mut self, state: &mut DrainState) {
        let (pods, read, now) = (&mut state.pods, &state.read, state.elapsed);
        let before = self.pending_before.get_or_insert_with(|| {
            let pending = pods.iter().filter(|pod| pod.unschedulable.is_some());
            pending.map(|pod| pod.uid.clone()).collect()
        });
        for pod in pods.iter_mut().filter(|pod| before.contains(&pod.uid)) {
            pod.unschedulable = None;
        }
        let pending = pods.iter_mut().filter(|pod| pod.unschedulable.is_some());
        let (uid, seen_now) = (|pod: &DrainPod| pod.uid.clone(), |_: &DrainPod| (now, now));
        self.pending.update(pending, uid, |pod| &mut pod.waits, seen_now);
        // A pod that changed twice between two lists has another transition.
        let transition = |pod: &DrainPod| format!("{} {}", pod.uid, pod.ready_transition);
        let unready = pods.iter_mut().filter(|pod| !pod.is_ready);
        self.unready
            .update(unready, transition, |pod| &mut pod.unready, seen_now);
        let ending = pods.iter_mut().filter(|pod| pod.is_terminating);
        self.ending
            .update(ending, uid, |pod| &mut pod.ending_for, seen_now);
        let ready = pods.iter_mut().filter(|pod| pod.is_ready);
        // Certainly Ready from the end of the list that showed it first until the start of the last one.
        let seen = |pod: &DrainPod| {
            let read = read.get(&pod.name.namespace).copied().unwrap_or_default();
            (read.started, read.started + read.took)
        };
        self.ready
            .update(ready, transition, |pod| &mut pod.ready_for, seen);
    }

    /// Notes which evictions have failed and are not tried again yet, and which may still be carried out.
    fn note_failures(&mut self, pods: &mut [DrainPod], now: Duration) {
        let mut before = std::mem::take(&mut self.failures);
        for pod in pods.iter_mut().filter(|pod| !pod.is_terminating) {
            let Some(failure) = before.remove(&pod.uid) else {
                continue;
            };
            pod.may_end = now < failure.may_end;
            pod.refusals = failure.times;
            self.failures.insert(pod.uid.clone(), failure);
        }
        for failure in self.failures.values().filter(|failure| now < failure.until) {
            let of_workload = |pod: &&mut DrainPod| {
                failure
                    .workload
                    .as_ref()
                    .is_some_and(|workload| pod.is_of(workload))
            };
            for pod in pods.iter_mut().filter(of_workload) {
                pod.refused = Some(failure.why.clone());
            }
        }
    }

    /// Adds the desired replicas of workloads that do not say them: the most pods that they had, also those that end.
    fn count(&mut self, state: &mut DrainState) {
        let mut counts: BTreeMap<&WorkloadName, u64> = BTreeMap::new();
        let services = state
            .pods
            .iter()
            .filter(|pod| !pod.has_ended)
            .filter_map(DrainPod::service);
        for owner in services.filter(|owner| owner.known_kind().is_none_or(Kind::is_custom)) {
            if !state.desired.contains_key(owner) {
                *counts.entry(owner).or_default() += 1;
            }
        }
        for (owner, count) in counts {
            let most = self.most.entry(owner.clone()).or_default();
            *most = count.max(*most);
        }
        for (owner, most) in &self.most {
            if !state.desired.contains_key(owner) {
                state.desired.insert(owner.clone(), *most);
                state.unknown.insert(owner.clone());
            }
        }
    }

    /// A pod that came to a cordoned node after pods of its workload were evicted, and the node.
    fn returned(&mut self, state: &DrainState, to_move: &[DrainPod]) -> Option<(PodName, String)> {
        let is_closed = state.nodes.iter().all(|node| node.is_cordoned);
        let mut returned = None;
        for pod in to_move.iter().filter(|pod| !pod.has_ended && !pod.is_terminating) {
            let is_moved = pod
                .owner
                .as_ref()
                .is_some_and(|owner| self.moved.contains_key(owner));
            if is_closed && is_moved && !self.present.contains(&pod.uid) {
                returned = Some((pod.name.clone(), pod.node.clone().unwrap_or_default()));
            } else {
                self.present.insert(pod.uid.clone());
            }
        }
        returned
    }

    /// Notes for how long nothing has improved for each workload. A pod that still has time to end is progress.
    fn note_progress(&mut self, state: &mut DrainState, rules: &DrainRules) {
        let now = state.elapsed;
        let ending = state.to_move(rules).filter(|pod| pod.is_ending());
        let ending: BTreeSet<WorkloadName> = ending.map(DrainPod::workload).collect();
        let mut before = std::mem::take(&mut self.best);
        for (workload, progress) in state.progress(rules) {
            let known = before.remove(&workload).filter(|(best, _)| *best <= progress);
            let (best, since) = known.unwrap_or((progress, now));
            let since = if ending.contains(&workload) { now } else { since };
            state.idle.insert(workload.clone(), now.saturating_sub(since));
            self.best.insert(workload, (best, since));
        }
    }

    /// Records the answer to the eviction of a pod, in the state too.
    pub fn answered(&mut self, state: &mut DrainState, name: &PodName, answer: &EvictionAnswer) {
        let now = state.elapsed;
        let pod = state.pods.iter().find(|pod| pod.name == *name);
        if let Some(pod) = pod {
            let workload = Some(pod.workload());
            let of_workload = self.failures.values().filter(|it| it.workload == workload);
            let times: u32 = of_workload.map(|failure| failure.times).sum();
            let failure = self.failures.entry(pod.uid.clone()).or_default();
            failure.workload = workload;
            if let EvictionAnswer::NotNow(why) | EvictionAnswer::Failed(why) | EvictionAnswer::Unknown(why) =
                answer
            {
                failure.times += 1;
                (failure.until, failure.why) = (now + PAUSE.after(times), why.clone());
            }
            if matches!(answer, EvictionAnswer::Unknown(_)) {
                failure.may_end = now + IN_FLIGHT;
            }
        }
        state.answered(name, answer);
        self.moved.clone_from(&state.moved);
    }

    /// The workloads of which pods were evicted.
    pub fn moved(&self) -> impl Iterator<Item = &WorkloadName> {
        self.moved.keys()
    }
}

/// Since when pods are in a condition.
#[derive(Clone, Debug, Default)]
struct SeenSince(HashMap<String, Duration>);

impl SeenSince {
    /// Notes how long these pods have been in it, in the field that is given; the other pods no longer are. `key`: what is the same
    /// as long as a pod is in it; `seen`: from when to when it was read that it is.
    fn update<'p>(
        &mut self,
        pods: impl Iterator<Item = &'p mut DrainPod>,
        key: impl Fn(&DrainPod) -> String,
        field: fn(&mut DrainPod) -> &mut Duration,
        seen: impl Fn(&DrainPod) -> (Duration, Duration),
    ) {
        let before = std::mem::take(&mut self.0);
        for pod in pods {
            let (from, to) = seen(pod);
            let key = key(pod);
            let since = before.get(&key).copied().unwrap_or(to);
            self.0.insert(key, since);
            *field(pod) = from.saturating_sub(since);
        }
    }
}
