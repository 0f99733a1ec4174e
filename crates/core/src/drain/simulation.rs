//! Drains of random clusters in which time passes: lists and evictions take time, answers fail or are lost, owners scale, roll
//! out and recreate late, replacements fail after they were Ready, nodes vanish and come back, others evict too, and a second
//! drain begins. The cluster itself computes whether an eviction broke what was promised, and nothing here asks the code under
//! test.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::join_all;

use proptest::prelude::*;

use super::inventory::{ListedWorkload, NamespaceObjects};
use super::*;
use crate::model::nodes::node::{Host, Labels};
use crate::model::objects::label_selector::LabelSelector;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::plan::ResourceList;

/// How old what a drain knows may be, in seconds: what happened before that must be seen.
const PROMISED_AGE: i64 = 5;
/// The seconds in which a pod that is not Ready may recover.
const RECOVERY: i64 = 40;
/// The seconds between two rounds.
const PAUSE: u64 = 2;
/// How long a replica must be Ready, if its workload does not say it.
const MIN_READY: i64 = 10;
/// More seconds than any drain of these clusters may take.
const MOST_SECONDS: i64 = 40_000;
const NAMESPACE: &str = "shop";
/// A Lease, as in `cluster/lease.rs`: the seconds until it may be taken from a holder that does not renew it, for which a holder
/// acts on a renewal, and between renewals.
const LEASE: i64 = 10;
const ACT: i64 = 7;
const RENEW: i64 = 2;
/// The seconds that `--force-lock` waits after it has taken the Lease.
const FORCED: i64 = 10;
/// How many pools the nodes are of, in turn.
const POOLS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerKind {
    Deployment,
    /// An Argo Rollout with two ReplicaSets, of which the second has this many replicas.
    Canary(u64),
    /// A custom resource with a scale subresource.
    Scaled,
    /// A custom resource without one.
    Unscaled,
}

#[derive(Clone, Debug)]
struct SimulatedWorkload {
    kind: OwnerKind,
    replicas: u64,
    /// Whether its budget is `maxUnavailable`, otherwise `minAvailable`; and the number.
    budget: Option<(bool, u64)>,
    /// The seconds until a new pod is Ready.
    start: i64,
    /// The seconds for which a new pod is Ready before it fails.
    fails_after: Option<i64>,
    never_ready: bool,
    /// `minReadySeconds`.
    min_ready: i64,
    /// The seconds until its controller notices a missing pod.
    recreates_after: i64,
    priority: i64,
    /// Whether its pods tolerate cordoned nodes.
    returns: bool,
    /// When it is scaled, and to how many replicas.
    scaled: Option<(i64, u64)>,
    /// When it is rolled out.
    rolled_out: Option<i64>,
    /// Its node selector: the pool of this number; `None` for any node.
    pool: Option<usize>,
}

/// A drain that begins while another one may be at work.
#[derive(Clone, Debug)]
struct SecondDrain {
    begins: i64,
    /// `--force-lock`.
    forces: bool,
    /// Whether it drains the same nodes again.
    of_same_nodes: bool,
    /// When the first one is killed.
    first_dies: Option<i64>,
}

#[derive(Clone, Debug)]
struct Scenario {
    seed: u64,
    drained: usize,
    others: usize,
    /// How many pods a node holds.
    slots: usize,
    workloads: Vec<SimulatedWorkload>,
    max_unavailable: u64,
    allow_outage: bool,
    has_failures: bool,
    has_slow_lists: bool,
    second: Option<SecondDrain>,
}

fn workloads() -> impl Strategy<Value = SimulatedWorkload> {
    let kind = prop_oneof![
        4 => Just(OwnerKind::Deployment),
        1 => (1..3_u64).prop_map(OwnerKind::Canary),
        2 => Just(OwnerKind::Scaled),
        1 => Just(OwnerKind::Unscaled),
    ];
    let budget = prop_oneof![2 => Just(None), 1 => (any::<bool>(), 0..4_u64).prop_map(Some)];
    let times = (0..30_i64, prop::option::weighted(0.15, 1..25_i64), 0..25_i64);
    let times = (times, prop_oneof![3 => Just(0_i64), 1 => 1..30_i64]);
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.04), -1..2_i64);
    let flags = (flags, prop::option::weighted(0.4, 0..POOLS));
    let changes = (
        prop::option::weighted(0.2, (0..120_i64, 1..8_u64)),
        prop::option::weighted(0.2, 0..120_i64),
    );
    (kind, 1..7_u64, budget, times, flags, changes).prop_map(
        |(
            kind,
            replicas,
            budget,
            ((start, fails_after, recreates_after), min_ready),
            (flags, pool),
            changes,
        )| {
            SimulatedWorkload {
                kind,
                replicas,
                budget,
                start,
                fails_after,
                never_ready: flags.0,
                min_ready,
                recreates_after,
                priority: flags.2,
                returns: flags.1,
                scaled: changes.0,
                rolled_out: changes.1.filter(|_| kind == OwnerKind::Deployment),
                pool,
            }
        },
    )
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let nodes = (1..4_usize, 0..4_usize, 1..14_usize);
    let workloads = prop::collection::vec(workloads(), 1..6);
    let second = (
        0..90_i64,
        any::<[bool; 2]>(),
        prop::option::weighted(0.3, 0..60_i64),
    );
    let second = second.prop_map(|(begins, [forces, of_same_nodes], first_dies)| SecondDrain {
        begins,
        forces,
        of_same_nodes,
        first_dies,
    });
    let second = prop::option::weighted(0.4, second);
    (
        any::<u64>(),
        nodes,
        workloads,
        1..4_u64,
        any::<[bool; 3]>(),
        second,
    )
        .prop_map(
            |(seed, (drained, others, slots), workloads, max_unavailable, flags, second)| Scenario {
                seed,
                drained,
                others,
                slots,
                workloads,
                max_unavailable,
                allow_outage: flags[0],
                has_failures: flags[1],
                has_slow_lists: flags[2],
                second,
            },
        )
}

/// A pod as it really is. Times are seconds of the cluster.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // independent facts
struct SimulatedPod {
    name: String,
    workload: usize,
    /// Whether it is of the second ReplicaSet.
    is_canary: bool,
    node: Option<String>,
    /// The generation of its template.
    revision: u32,
    /// Whether it was there before the drain.
    is_old: bool,
    ready_at: i64,
    ready_since: Option<i64>,
    unready_since: i64,
    /// When it was not Ready, or its node was gone: the first and the last second of each time.
    down: Vec<(i64, i64)>,
    is_terminating: bool,
    /// When it is gone, once it is being deleted; `None` if its kubelet is dead.
    gone_at: Option<i64>,
    /// Whether its node is gone: it is still listed as it last was.
    is_ghost: bool,
    /// When another node of this name starts it again.
    restarts_at: Option<i64>,
}

impl SimulatedPod {
    /// Whether it was down for so long when its eviction was sent, as lists of that time show it, that only its budget holds it.
    /// Whatever it is when the eviction is carried out: it may have recovered since, also because its node came back.
    fn was_broken(&self, sent: i64) -> bool {
        let mut down = self.down.iter();
        down.any(|(first, last)| *first <= sent - RECOVERY && *last >= sent - PROMISED_AGE)
    }
}

/// An eviction without an answer, which is carried out later.
struct LostEviction {
    drain: usize,
    name: PodName,
    sent: i64,
    at: i64,
}

/// The Lease as the API server stores it, and what the two drains know of it.
#[derive(Default)]
struct SimulatedLease {
    holder: Option<usize>,
    version: u64,
    drains: [LeaseView; 2],
}

#[derive(Clone, Copy, Default)]
struct LeaseView {
    /// Whether the drain renews the Lease.
    takes_part: bool,
    /// Until when it certainly holds it.
    until: i64,
    /// From when it acts.
    acts_from: i64,
    /// Until when its requests for the Lease fail.
    away: i64,
}

/// The cluster: what it does in a second stands in for controllers, scheduler, kubelets and other users.
struct Cluster {
    scenario: Scenario,
    dice: u64,
    now: i64,
    pods: Vec<SimulatedPod>,
    replicas: Vec<u64>,
    revisions: Vec<u32>,
    /// Since when pods of a workload are missing.
    short_since: Vec<Option<i64>>,
    /// When something else than the drain last brought a workload closer to its floor.
    disturbed: Vec<i64>,
    cordoned: BTreeSet<String>,
    vanished: BTreeSet<String>,
    /// How often nodes have come back.
    returned: BTreeMap<String, u32>,
    lease: SimulatedLease,
    lost: Vec<LostEviction>,
    created: u64,
    evictions: usize,
    /// Pods that came back to a drained node and were evicted.
    evicted_again: usize,
    first_eviction: BTreeMap<usize, i64>,
    preempted: usize,
    broken: Vec<String>,
}

impl Cluster {
    fn new(scenario: Scenario) -> Self {
        let count = scenario.workloads.len();
        let mut cluster = Cluster {
            dice: scenario.seed,
            now: 0,
            pods: Vec::new(),
            replicas: scenario
                .workloads
                .iter()
                .map(|workload| workload.replicas)
                .collect(),
            revisions: vec![0; count],
            short_since: vec![None; count],
            disturbed: vec![i64::MIN / 2; count],
            cordoned: BTreeSet::new(),
            vanished: BTreeSet::new(),
            returned: BTreeMap::new(),
            lease: SimulatedLease::default(),
            lost: Vec::new(),
            created: 0,
            evictions: 0,
            evicted_again: 0,
            first_eviction: BTreeMap::new(),
            preempted: 0,
            broken: Vec::new(),
            scenario,
        };
        for workload in 0..count {
            for _ in 0..cluster.replicas[workload] {
                cluster.create(workload);
            }
        }
        let nodes = cluster.scenario.drained + cluster.scenario.others;
        for index in 0..cluster.pods.len() {
            let mut node = cluster.roll(nodes);
            let workload = cluster.pods[index].workload;
            for _ in 0..nodes {
                let name = format!("node-{node}");
                if cluster.selects(workload, &name) && cluster.used(&name) < cluster.scenario.slots {
                    break;
                }
                node = (node + 1) % nodes;
            }
            let pod = &mut cluster.pods[index];
            pod.node = Some(format!("node-{node}"));
            (pod.is_old, pod.ready_at, pod.ready_since) = (true, -1000, Some(-1000));
        }
        cluster
    }

    /// A number below `sides` (SplitMix64).
    fn roll(&mut self, sides: usize) -> usize {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) >> 8).unwrap() % sides.max(1)
    }

    fn seconds(&mut self, below: usize) -> i64 {
        i64::try_from(self.roll(below)).unwrap()
    }

    fn fails(&mut self, one_in: usize) -> bool {
        self.scenario.has_failures && self.roll(one_in) == 0
    }

    fn drained(&self) -> Vec<String> {
        (0..self.scenario.drained)
            .map(|node| format!("node-{node}"))
            .collect()
    }

    /// Whether the node selector of a workload matches a node.
    fn selects(&self, workload: usize, node: &str) -> bool {
        let pool = self.scenario.workloads[workload].pool;
        pool.is_none_or(|pool| pool == pool_of_node(node))
    }

    fn all_nodes(&self) -> impl Iterator<Item = String> {
        (0..self.scenario.drained + self.scenario.others).map(|node| format!("node-{node}"))
    }

    fn used(&self, node: &str) -> usize {
        self.pods
            .iter()
            .filter(|pod| pod.node.as_deref() == Some(node))
            .count()
    }

    fn of(&self, workload: usize) -> impl Iterator<Item = &SimulatedPod> {
        self.pods.iter().filter(move |pod| pod.workload == workload)
    }

    fn min_ready(&self, workload: usize) -> i64 {
        match (
            self.scenario.workloads[workload].min_ready,
            self.scenario.workloads[workload].kind,
        ) {
            // A custom resource does not say it.
            (0, _) | (_, OwnerKind::Scaled | OwnerKind::Unscaled) => MIN_READY,
            (seconds, _) => seconds,
        }
    }

    fn is_healthy(pod: &SimulatedPod) -> bool {
        pod.ready_since.is_some() && !pod.is_terminating && !pod.is_ghost
    }

    /// What counts against the floor: Ready for a budget, otherwise available.
    fn serves(&self, pod: &SimulatedPod) -> bool {
        let has_budget = self.scenario.workloads[pod.workload].budget.is_some();
        let since = pod.ready_since.unwrap_or(self.now);
        Self::is_healthy(pod) && (has_budget || self.now - since >= self.min_ready(pod.workload))
    }

    fn serving(&self, workload: usize) -> u64 {
        self.of(workload).filter(|pod| self.serves(pod)).count() as u64
    }

    fn healthy(&self, workload: usize) -> u64 {
        self.of(workload).filter(|pod| Self::is_healthy(pod)).count() as u64
    }

    /// How many replicas must stay, by the budget or by `--max-unavailable`.
    fn floor(&self, workload: usize) -> u64 {
        let replicas = self.replicas[workload];
        match self.scenario.workloads[workload].budget {
            Some((true, most)) => replicas.saturating_sub(most),
            Some((false, least)) => least,
            None => replicas.saturating_sub(self.scenario.max_unavailable),
        }
    }

    fn margins(&self) -> Vec<i64> {
        let count = self.scenario.workloads.len();
        let margin = |workload| self.serving(workload).cast_signed() - self.floor(workload).cast_signed();
        (0..count).map(margin).collect()
    }

    /// Lets a second pass.
    fn tick(&mut self) {
        self.carry_out_lost();
        let before = self.margins();
        let served: Vec<(usize, String)> = self.names_serving().collect();
        self.now += 1;
        self.renew();
        self.change_owners();
        self.create_missing();
        self.roll_out();
        self.run();
        self.schedule();
        self.note_down();
        for (workload, (before, after)) in before.into_iter().zip(self.margins()).enumerate() {
            if after < before {
                self.disturbed[workload] = self.now;
            }
        }
        // Another pod may begin to serve in the same second.
        let serving: BTreeSet<String> = self.names_serving().map(|(_, name)| name).collect();
        for (workload, name) in served {
            if !serving.contains(&name) {
                self.disturbed[workload] = self.now;
            }
        }
    }

    fn note_down(&mut self) {
        for pod in &mut self.pods {
            if pod.ready_since.is_some() && !pod.is_ghost {
                continue;
            }
            match pod.down.last_mut() {
                Some((_, last)) if *last >= self.now - 1 => *last = self.now,
                _ => pod.down.push((self.now, self.now)),
            }
        }
    }

    /// The pods that serve, each with its workload.
    fn names_serving(&self) -> impl Iterator<Item = (usize, String)> {
        let serving = self.pods.iter().filter(|pod| self.serves(pod));
        serving.map(|pod| (pod.workload, pod.name.clone()))
    }

    /// Drains renew the Lease that they hold, and take one without a holder.
    fn renew(&mut self) {
        for drain in 0..self.lease.drains.len() {
            if self.fails(80) {
                self.lease.drains[drain].away = self.now + 1 + self.seconds(30);
            }
            let view = self.lease.drains[drain];
            let is_due = view.takes_part && self.now >= view.away && self.now % RENEW == 0;
            if is_due && self.lease.holder.is_none_or(|holder| holder == drain) {
                self.write_lease(drain);
            }
        }
    }

    fn write_lease(&mut self, drain: usize) {
        self.lease.holder = Some(drain);
        self.lease.version += 1;
        let view = &mut self.lease.drains[drain];
        (view.takes_part, view.until) = (true, self.now + ACT);
    }

    fn release_lease(&mut self, drain: usize) {
        self.lease.drains[drain] = LeaseView::default();
        if self.lease.holder == Some(drain) {
            self.lease.holder = None;
        }
    }

    fn holds_lease(&self, drain: usize) -> bool {
        self.now < self.lease.drains[drain].until
    }

    /// A drain changes something: no other one may.
    fn acts(&self, drain: usize) {
        let other = self.lease.drains[1 - drain];
        let may_act = other.acts_from <= self.now && self.now < other.until;
        assert!(!may_act, "at {}, both drains may act", self.now);
    }

    fn change_owners(&mut self) {
        for workload in 0..self.replicas.len() {
            let SimulatedWorkload {
                scaled, rolled_out, ..
            } = self.scenario.workloads[workload];
            if let Some((at, replicas)) = scaled.filter(|(at, _)| *at == self.now) {
                let _ = at;
                self.replicas[workload] = replicas;
                let mut extra = self.of(workload).filter(|pod| !pod.is_terminating).count();
                for index in 0..self.pods.len() {
                    if self.pods[index].workload == workload
                        && !self.pods[index].is_terminating
                        && extra > usize::try_from(replicas).unwrap()
                    {
                        self.terminate(index);
                        extra -= 1;
                    }
                }
            }
            if rolled_out == Some(self.now) {
                self.revisions[workload] += 1;
            }
        }
    }

    fn create(&mut self, workload: usize) {
        let canaries = self
            .of(workload)
            .filter(|pod| pod.is_canary && !pod.is_terminating)
            .count() as u64;
        let is_canary =
            matches!(self.scenario.workloads[workload].kind, OwnerKind::Canary(most) if canaries < most);
        self.created += 1;
        self.pods.push(SimulatedPod {
            name: format!("w{workload}-{}", self.created),
            workload,
            is_canary,
            node: None,
            revision: self.revisions[workload],
            is_old: false,
            ready_at: i64::MAX,
            ready_since: None,
            unready_since: self.now,
            down: Vec::new(),
            is_terminating: false,
            gone_at: None,
            is_ghost: false,
            restarts_at: None,
        });
    }

    /// Controllers create the pods that are missing, when they notice it.
    fn create_missing(&mut self) {
        for workload in 0..self.replicas.len() {
            let there = self.of(workload).filter(|pod| !pod.is_terminating).count() as u64;
            if there >= self.replicas[workload] {
                self.short_since[workload] = None;
                continue;
            }
            let since = *self.short_since[workload].get_or_insert(self.now);
            if self.now - since >= self.scenario.workloads[workload].recreates_after {
                for _ in there..self.replicas[workload] {
                    self.create(workload);
                }
            }
        }
    }

    /// A Deployment replaces the pods of an old revision: one more than desired, and one less at most.
    fn roll_out(&mut self) {
        for workload in 0..self.replicas.len() {
            let revision = self.revisions[workload];
            let stays = |pod: &&SimulatedPod| !pod.is_terminating;
            if self
                .of(workload)
                .filter(stays)
                .all(|pod| pod.revision == revision)
            {
                continue;
            }
            let replicas = self.replicas[workload];
            let there = self.of(workload).filter(stays).count() as u64;
            if there <= replicas {
                self.create(workload);
            }
            let old = self
                .pods
                .iter()
                .position(|pod| pod.workload == workload && !pod.is_terminating && pod.revision != revision);
            let old = old.filter(|_| self.serving(workload) >= replicas);
            if let Some(index) = old {
                self.terminate(index);
            }
        }
    }

    fn terminate(&mut self, index: usize) {
        let gone_at = if self.fails(60) {
            None
        } else {
            Some(self.now + 1 + self.seconds(20))
        };
        let pod = &mut self.pods[index];
        (pod.is_terminating, pod.gone_at) = (true, gone_at);
    }

    fn is_open(&self, node: &str, workload: usize) -> bool {
        let is_cordoned = self.cordoned.contains(node) && !self.scenario.workloads[workload].returns;
        !is_cordoned && !self.vanished.contains(node) && self.selects(workload, node)
    }

    fn schedule(&mut self) {
        for index in 0..self.pods.len() {
            let workload = self.pods[index].workload;
            if self.pods[index].node.is_some() || self.pods[index].is_terminating {
                continue;
            }
            let nodes: Vec<String> = self
                .all_nodes()
                .filter(|node| self.is_open(node, workload))
                .collect();
            let has_room = |node: &&String| self.used(node) < self.scenario.slots;
            let free: Vec<&String> = nodes.iter().filter(has_room).collect();
            if free.is_empty() {
                self.preempt(index, &nodes);
                continue;
            }
            let node = free[usize::try_from(self.dice).unwrap_or_default() % free.len()].clone();
            self.roll(2);
            let SimulatedWorkload {
                start, never_ready, ..
            } = self.scenario.workloads[workload];
            let pod = &mut self.pods[index];
            pod.node = Some(node);
            pod.ready_at = if never_ready { i64::MAX } else { self.now + start };
        }
    }

    /// The scheduler makes room for a pod of higher priority.
    fn preempt(&mut self, index: usize, nodes: &[String]) {
        let priority = |pod: &SimulatedPod| self.scenario.workloads[pod.workload].priority;
        let own = priority(&self.pods[index]);
        let is_victim = |pod: &&SimulatedPod| {
            let is_there = pod.node.as_ref().is_some_and(|node| nodes.contains(node));
            is_there && !pod.is_terminating && priority(pod) < own
        };
        // One at a time for each pod: the next one when the first is gone.
        let leaving = self
            .pods
            .iter()
            .any(|pod| pod.is_terminating && pod.node.as_ref().is_some_and(|node| nodes.contains(node)));
        let victim = self.pods.iter().filter(is_victim).min_by_key(|pod| priority(pod));
        if let Some(name) = victim.filter(|_| !leaving).map(|pod| pod.name.clone()) {
            let victim = self.pods.iter().position(|pod| pod.name == name).unwrap();
            self.terminate(victim);
            self.preempted += 1;
        }
    }

    /// Kubelets start and end pods; some fail, nodes vanish, and someone uncordons or evicts.
    fn run(&mut self) {
        let away: Vec<bool> = (0..self.replicas.len()).map(|_| self.fails(200)).collect();
        for index in 0..self.pods.len() {
            let crashes = self.fails(400) || away[self.pods[index].workload];
            let recovers = self.fails(10);
            let again = self.now + self.seconds(60);
            let SimulatedWorkload {
                fails_after,
                never_ready,
                ..
            } = self.scenario.workloads[self.pods[index].workload];
            let start = self.scenario.workloads[self.pods[index].workload].start;
            let now = self.now;
            let pod = &mut self.pods[index];
            if pod.restarts_at == Some(now) && !pod.is_terminating {
                (pod.is_ghost, pod.ready_since, pod.unready_since) = (false, None, now);
                pod.ready_at = now + start;
                // It has its time to recover again.
                pod.down.push((now, now));
            }
            if pod.is_terminating || pod.is_ghost || pod.node.is_none() {
                continue;
            }
            match pod.ready_since {
                None if now >= pod.ready_at => pod.ready_since = Some(now),
                None if recovers && !never_ready && pod.ready_at < i64::MAX => pod.ready_since = Some(now),
                Some(since) => {
                    let wears_out = !pod.is_old && fails_after.is_some_and(|after| now - since >= after);
                    if crashes || wears_out {
                        (pod.ready_since, pod.unready_since) = (None, now);
                        pod.ready_at = again;
                    }
                }
                None => {}
            }
        }
        let now = self.now;
        self.pods.retain(|pod| pod.gone_at.is_none_or(|at| at > now));
        self.disturb();
    }

    fn disturb(&mut self) {
        if self.fails(300) {
            self.cordoned.pop_first();
        }
        if self.fails(600) {
            let node = self.roll(self.scenario.drained + self.scenario.others);
            let node = format!("node-{node}");
            let gone_at = self.now + 40 + self.seconds(60);
            for pod in self
                .pods
                .iter_mut()
                .filter(|pod| pod.node.as_ref() == Some(&node))
            {
                // The garbage collector of pods deletes them later.
                (pod.is_ghost, pod.gone_at, pod.restarts_at) = (true, Some(gone_at), None);
            }
            self.vanished.insert(node);
        }
        if self.fails(40)
            && let Some(node) = self.vanished.pop_first()
        {
            *self.returned.entry(node.clone()).or_default() += 1;
            self.cordoned.remove(&node);
            // Its kubelet finds the pods of the former node, and reports on them a little later.
            let restarts_at = self.now + 1 + self.seconds(8);
            for pod in self
                .pods
                .iter_mut()
                .filter(|pod| pod.is_ghost && pod.node.as_ref() == Some(&node))
            {
                pod.restarts_at = Some(restarts_at);
                pod.gone_at = pod.is_terminating.then_some(restarts_at);
            }
        }
        if self.fails(300) && !self.pods.is_empty() {
            let index = self.roll(self.pods.len());
            self.terminate(index);
        }
    }

    fn carry_out_lost(&mut self) {
        let now = self.now;
        let (due, rest) = std::mem::take(&mut self.lost)
            .into_iter()
            .partition(|lost| lost.at <= now);
        self.lost = rest;
        let due: Vec<LostEviction> = due;
        for lost in due {
            let workload = self
                .pods
                .iter()
                .find(|pod| pod.name == lost.name.name)
                .map(|pod| pod.workload);
            // The other drain cannot know of it, and sees the pod end.
            if let Some(workload) = workload.filter(|_| !self.lease.drains[lost.drain].takes_part) {
                self.disturbed[workload] = self.now;
            }
            self.end(&lost.name, lost.sent);
        }
    }

    /// Carries out an eviction that was sent at this time; returns what the API server answers. This is where a promise breaks.
    fn end(&mut self, name: &PodName, sent: i64) -> EvictionAnswer {
        let Some(index) = self
            .pods
            .iter()
            .position(|pod| pod.name == name.name && !pod.is_terminating)
        else {
            return EvictionAnswer::Gone;
        };
        let (workload, serves) = (self.pods[index].workload, self.serves(&self.pods[index]));
        let is_healthy = Self::is_healthy(&self.pods[index]);
        let has_budget = self.scenario.workloads[workload].budget.is_some();
        if has_budget && is_healthy && self.healthy(workload) <= self.floor(workload) {
            return EvictionAnswer::NotNow("the budget".to_owned());
        }
        let (left, floor) = (self.serving(workload) - u64::from(serves), self.floor(workload));
        let is_excused = self.pods[index].was_broken(sent)
            || self.disturbed[workload] >= sent - PROMISED_AGE
            || (self.scenario.allow_outage && self.has_outage(workload))
            // Only its budget holds one that has not been Ready for long.
            || (has_budget && !is_healthy);
        if left < floor && !is_excused {
            self.broken.push(format!(
                "{left} of w{workload} are left at {}, and {floor} must be; disturbed at {}",
                self.now, self.disturbed[workload]
            ));
        }
        let first = *self.first_eviction.entry(workload).or_insert(self.now);
        let pod = &self.pods[index];
        if !pod.is_old && self.scenario.workloads[workload].returns && first < self.now {
            self.evicted_again += 1;
        }
        self.evictions += 1;
        self.terminate(index);
        EvictionAnswer::Accepted
    }

    /// Whether a workload has an outage whatever a drain does.
    fn has_outage(&self, workload: usize) -> bool {
        let SimulatedWorkload { kind, returns, .. } = self.scenario.workloads[workload];
        let is_zero = self.scenario.workloads[workload].budget.is_some()
            && self.floor(workload) >= self.replicas[workload];
        self.replicas[workload] == 1 || kind == OwnerKind::Unscaled || returns || is_zero
    }

    fn lose(&mut self, drain: usize, name: &PodName, sent: i64) {
        let at = sent + 16 + self.seconds(40);
        self.lost.push(LostEviction {
            drain,
            name: name.clone(),
            sent,
            at,
        });
    }

    fn are_closed(&self, nodes: &[String], pod: &PodName) {
        let is_closed = |node: &String| self.cordoned.contains(node) || self.vanished.contains(node);
        assert!(
            self.scenario.has_failures || nodes.iter().all(is_closed),
            "all nodes are cordoned before {pod} is evicted"
        );
    }

    fn list_takes(&mut self) -> i64 {
        let slow = self.scenario.has_slow_lists && self.roll(8) == 0;
        if slow { 1 + self.seconds(12) } else { 0 }
    }

    /// What the drain lists of nodes.
    fn nodes(&self) -> BTreeMap<String, InventoryNode> {
        let there = self.all_nodes().filter(|node| !self.vanished.contains(node));
        let nodes = there.map(|name| {
            let pool = Arc::new([("pool".to_owned(), pool_of_node(&name).to_string())].into());
            let node = InventoryNode {
                uid: format!("{name}-{}", self.returned.get(&name).copied().unwrap_or_default()),
                is_cordoned: self.cordoned.contains(&name),
                is_ready: true,
                images: BTreeSet::new(),
                has_more_images: false,
                allocatable: Some(ResourceList {
                    cpu_millis: self.scenario.slots as u64,
                    memory_bytes: 1,
                    pods: 1000,
                    ..ResourceList::default()
                }),
                host: Host {
                    name: name.clone(),
                    labels: Labels::of_node(pool),
                    ..Host::default()
                },
            };
            (name, node)
        });
        nodes.collect()
    }

    fn seen(&self, pod: &SimulatedPod) -> DrainPod {
        let workload = &self.scenario.workloads[pod.workload];
        let spec = workload.pool.map_or_else(
            || "{}".to_owned(),
            |pool| format!(r#"{{"nodeSelector": {{"pool": "{pool}"}}}}"#),
        );
        DrainPod {
            uid: pod.name.clone(),
            node: pod.node.clone(),
            owner: Some(self.direct_owner(pod.workload, pod.is_canary)),
            is_ready: pod.ready_since.is_some(),
            ready_transition: format!("{:?} {}", pod.ready_since, pod.unready_since),
            is_terminating: pod.is_terminating,
            grace: Duration::from_secs(30),
            unschedulable: pod.node.is_none().then(|| "0/3 nodes are available".to_owned()),
            returns: workload.returns.then(|| "it tolerates everything".to_owned()),
            priority: workload.priority,
            preempts: true,
            requests: ResourceList {
                cpu_millis: 1,
                pods: 1,
                ..ResourceList::default()
            },
            spec: Some(spec.into()),
            ..tests::pod(&pod.name, &format!("w{}", pod.workload))
        }
    }

    fn direct_owner(&self, workload: usize, is_canary: bool) -> WorkloadName {
        let name = format!("w{workload}");
        match self.scenario.workloads[workload].kind {
            OwnerKind::Deployment => WorkloadName::of(Kind::ReplicaSet, NAMESPACE, &format!("{name}-5d")),
            OwnerKind::Canary(_) => {
                let name = format!("{name}-{}", if is_canary { "new" } else { "old" });
                WorkloadName::of(Kind::ReplicaSet, NAMESPACE, &name)
            }
            OwnerKind::Scaled => WorkloadName::new("apps.kruise.io", "CloneSet", NAMESPACE, &name),
            OwnerKind::Unscaled => WorkloadName::new("example.com", "Thing", NAMESPACE, &name),
        }
    }

    fn list_workloads(&self, listed: &mut NamespaceObjects) {
        for (index, workload) in self.scenario.workloads.iter().enumerate() {
            let (replicas, name) = (self.replicas[index], format!("w{index}"));
            let min_ready = time(workload.min_ready);
            let mut list = |name: WorkloadName, owner: Option<WorkloadName>, replicas, is_rolling| {
                let listed_workload = ListedWorkload {
                    owner,
                    replicas: Some(replicas),
                    min_ready,
                    is_rolling,
                    ..ListedWorkload::default()
                };
                listed.workloads.insert(name, listed_workload);
            };
            match workload.kind {
                OwnerKind::Deployment => {
                    let own = tests::owner(&name);
                    let revision = self.revisions[index];
                    let mut pods = self.of(index).filter(|pod| !pod.is_terminating);
                    let is_rolling = pods.any(|pod| pod.revision != revision);
                    list(own.clone(), None, replicas, is_rolling);
                    list(self.direct_owner(index, false), Some(own), replicas, false);
                }
                OwnerKind::Canary(most) => {
                    let own = WorkloadName::new("argoproj.io", "Rollout", NAMESPACE, &name);
                    let canary = most.min(replicas);
                    list(self.direct_owner(index, true), Some(own.clone()), canary, false);
                    list(
                        self.direct_owner(index, false),
                        Some(own.clone()),
                        replicas - canary,
                        false,
                    );
                    listed.scales.insert(own, Some(replicas));
                }
                OwnerKind::Scaled => {
                    _ = listed
                        .scales
                        .insert(self.direct_owner(index, false), Some(replicas));
                }
                OwnerKind::Unscaled => _ = listed.scales.insert(self.direct_owner(index, false), None),
            }
        }
    }

    fn budgets(&self) -> Vec<DisruptionBudget> {
        let budgets = self
            .scenario
            .workloads
            .iter()
            .enumerate()
            .filter_map(|(index, workload)| {
                let (is_most, _) = workload.budget?;
                let name = format!("w{index}");
                // The disruption controller takes for `minAvailable` the pods that there are.
                let expected = if is_most {
                    self.replicas[index]
                } else {
                    self.of(index).count() as u64
                };
                Some(DisruptionBudget {
                    namespace: NAMESPACE.to_owned(),
                    name: name.clone(),
                    selector: Some(LabelSelector {
                        match_labels: [("app".to_owned(), name)].into(),
                        ..LabelSelector::default()
                    }),
                    allowed: self.healthy(index).saturating_sub(self.floor(index)),
                    desired_healthy: self.floor(index),
                    is_zero: self.floor(index) >= expected,
                    failure: None,
                })
            });
        budgets.collect()
    }
}

fn pool_of_node(name: &str) -> usize {
    let number: usize = name.trim_start_matches("node-").parse().unwrap();
    number % POOLS
}

fn time(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap())
}

fn rules(scenario: &Scenario) -> DrainRules {
    DrainRules {
        max_unavailable: scenario.max_unavailable,
        allow_outage: scenario.allow_outage,
        min_ready: time(MIN_READY),
        pending_timeout: time(120),
        progress_timeout: time(400),
        recovery_timeout: time(RECOVERY),
        ..tests::rules()
    }
}

/// Lets a drain wait while seconds of the cluster pass.
async fn pass(cluster: &RefCell<Cluster>, seconds: i64) {
    let until = cluster.borrow().now + seconds;
    poll_fn(|_| {
        if cluster.borrow().now >= until {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// What a drain lists of the namespace: each list shows another second.
async fn read(cluster: &RefCell<Cluster>, inventory: &mut DrainInventory) {
    let started = cluster.borrow().now;
    inventory.nodes = cluster.borrow().nodes();
    let mut listed = NamespaceObjects::default();
    let first = cluster.borrow_mut().roll(3);
    for list in 0..3 {
        let takes = cluster.borrow_mut().list_takes();
        pass(cluster, takes).await;
        let cluster = cluster.borrow();
        match (first + list) % 3 {
            0 => listed.pods = cluster.pods.iter().map(|pod| cluster.seen(pod)).collect(),
            1 => cluster.list_workloads(&mut listed),
            _ => listed.budgets = cluster.budgets(),
        }
    }
    let read = ReadTime {
        started: time(started),
        took: time(cluster.borrow().now - started),
    };
    inventory.spaces.insert(NAMESPACE.to_owned(), listed);
    inventory.read_in(read);
}

/// The API server evicts a pod, or refuses to; its answer may be late or lost.
async fn evict(cluster: &RefCell<Cluster>, drain: usize, name: &PodName) -> EvictionAnswer {
    let sent = cluster.borrow().now;
    let (fault, delay, kind) = {
        let mut cluster = cluster.borrow_mut();
        let delay = cluster.seconds(4);
        let delay = if cluster.scenario.has_failures { delay } else { 0 };
        (cluster.fails(6), delay, cluster.roll(6))
    };
    if !fault {
        pass(cluster, delay).await;
        return cluster.borrow_mut().end(name, sent);
    }
    match kind {
        0 => EvictionAnswer::NotNow("429".to_owned()),
        1 => EvictionAnswer::Failed("500".to_owned()),
        2 => {
            pass(cluster, 15).await;
            EvictionAnswer::Unknown("504".to_owned())
        }
        3 => {
            cluster.borrow_mut().end(name, sent);
            pass(cluster, 15).await;
            EvictionAnswer::Unknown("504".to_owned())
        }
        4 => {
            cluster.borrow_mut().lose(drain, name, sent);
            pass(cluster, 15).await;
            EvictionAnswer::Unknown("no answer".to_owned())
        }
        _ => EvictionAnswer::Gone,
    }
}

/// Takes the Lease, as `cli/drain/lock.rs`; returns whether this drain may act now.
async fn acquire(cluster: &RefCell<Cluster>, drain: usize, forces: bool) -> bool {
    let version = cluster.borrow().lease.version;
    let mut waited = 0;
    while !forces && waited < LEASE && cluster.borrow().lease.holder.is_some() {
        pass(cluster, 1).await;
        waited += 1;
        if cluster.borrow().lease.version != version && cluster.borrow().lease.holder.is_some() {
            return false;
        }
    }
    let is_held = cluster.borrow().lease.holder.is_some();
    let waits = if forces && is_held { FORCED } else { 0 };
    {
        let mut cluster = cluster.borrow_mut();
        cluster.lease.drains[drain].acts_from = cluster.now + waits;
        cluster.write_lease(drain);
    }
    pass(cluster, waits).await;
    true
}

/// How a drain of these nodes ends: its last step; `None` if it is not the one at work.
async fn drain(
    cluster: &RefCell<Cluster>,
    own: usize,
    nodes: Vec<String>,
    begins: i64,
    forces: bool,
) -> Option<DrainAction> {
    pass(cluster, begins).await;
    let rules = rules(&cluster.borrow().scenario);
    let mut history = DrainHistory::default();
    let mut inventory = DrainInventory::default();
    let mut preempted = None;
    if !acquire(cluster, own, forces).await {
        return None;
    }
    loop {
        read(cluster, &mut inventory).await;
        let now = |cluster: &RefCell<Cluster>| time(cluster.borrow().now);
        let mut state = history.state(&inventory, &nodes, &rules, now(cluster));
        let foreseen = preempted
            .get_or_insert_with(|| foreseen_preemption(&inventory, &state, &rules))
            .clone();
        loop {
            state.preempted.clone_from(&foreseen);
            state.elapsed = now(cluster);
            let step = next(&state, &rules);
            if !cluster.borrow().holds_lease(own) {
                let holder = cluster.borrow().lease.holder;
                if holder.is_some_and(|holder| holder != own) {
                    return None;
                }
                break;
            }
            match step {
                DrainAction::Cordon(node) if cluster.borrow_mut().fails(6) => {
                    state.not_cordoned(&node, "409");
                }
                DrainAction::Cordon(node) => {
                    let mut cluster = cluster.borrow_mut();
                    cluster.acts(own);
                    state.cordoned(&node);
                    inventory.nodes.get_mut(&node).unwrap().is_cordoned = true;
                    cluster.cordoned.insert(node);
                }
                DrainAction::Read(_) => {
                    read(cluster, &mut inventory).await;
                    state = history.state(&inventory, &nodes, &rules, now(cluster));
                }
                DrainAction::Evict(pod) => {
                    cluster.borrow().acts(own);
                    cluster.borrow().are_closed(&nodes, &pod);
                    let answer = evict(cluster, own, &pod).await;
                    state.elapsed = now(cluster);
                    history.answered(&mut state, &pod, &answer);
                }
                DrainAction::Wait(_) => break,
                end => return Some(end),
            }
        }
        pass(cluster, PAUSE.cast_signed()).await;
    }
}

/// The same, with the Lease given back in the end, unless the drain is killed at some time.
async fn released(
    cluster: &RefCell<Cluster>,
    own: usize,
    drain: impl Future<Output = Option<DrainAction>>,
    dies: Option<i64>,
) -> Option<DrainAction> {
    let mut drain = std::pin::pin!(drain);
    let end = poll_fn(|context| match dies {
        Some(dies) if cluster.borrow().now >= dies => Poll::Ready(None),
        _ => drain.as_mut().poll(context).map(Some),
    });
    let Some(end) = end.await else {
        cluster.borrow_mut().lease.drains[own] = LeaseView::default();
        return None;
    };
    cluster.borrow_mut().release_lease(own);
    end
}

/// How the drains end, each with its last step, and the cluster then.
fn ended(scenario: &Scenario) -> (Vec<Option<DrainAction>>, Cluster) {
    let cluster = Cluster::new(scenario.clone());
    let nodes = cluster.drained();
    let cluster = RefCell::new(cluster);
    let (first, second) = match &scenario.second {
        None => (nodes, None),
        Some(second) if second.of_same_nodes => (nodes.clone(), Some((nodes, second))),
        Some(second) => {
            let (one, other) = nodes.split_at(nodes.len() / 2);
            (one.to_vec(), Some((other.to_vec(), second)))
        }
    };
    let dies = second.as_ref().and_then(|(_, second)| second.first_dies);
    let mut drains = vec![(first, 0, false, dies)];
    drains.extend(second.map(|(nodes, second)| (nodes, second.begins, second.forces, None)));
    let drains = drains
        .into_iter()
        .enumerate()
        .map(|(own, (nodes, begins, forces, dies))| {
            released(&cluster, own, drain(&cluster, own, nodes, begins, forces), dies)
        });
    let mut all = Box::pin(join_all(drains));
    let mut context = Context::from_waker(Waker::noop());
    let ends = loop {
        if let Poll::Ready(ends) = all.as_mut().poll(&mut context) {
            break ends;
        }
        cluster.borrow_mut().tick();
        assert!(cluster.borrow().now < MOST_SECONDS, "the drain does not end");
    };
    drop(all);
    (ends, cluster.into_inner())
}

/// At least so many cases; more if `PROPTEST_CASES` says so.
fn cases(least: u32) -> ProptestConfig {
    let set = ProptestConfig::default();
    ProptestConfig {
        cases: set.cases.max(least),
        ..set
    }
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn replicas_stay_available_as_promised_and_every_drain_ends(scenario in scenarios()) {
        let (ends, cluster) = ended(&scenario);
        prop_assert!(cluster.broken.is_empty(), "{:?}", cluster.broken);
        let is_quiet = !scenario.has_failures
            && scenario.second.is_none()
            && scenario.workloads.iter().all(|workload| workload.scaled.is_none() && workload.rolled_out.is_none());
        if is_quiet {
            prop_assert!(scenario.allow_outage || cluster.preempted == 0, "preempted: {}", cluster.preempted);
            prop_assert!(cluster.evicted_again == 0, "evicted again: {}", cluster.evicted_again);
        }
        if scenario.second.is_some() {
            return Ok(());
        }
        match ends.into_iter().next().flatten() {
            Some(DrainAction::Done) => {
                let nodes = cluster.drained();
                let is_left = |pod: &SimulatedPod| {
                    pod.node.as_ref().is_some_and(|node| nodes.contains(node) && !cluster.returned.contains_key(node))
                };
                let returns = |pod: &SimulatedPod| scenario.workloads[pod.workload].returns;
                let is_left = |pod: &SimulatedPod| (pod.is_old || (is_quiet && !returns(pod))) && is_left(pod);
                prop_assert!(!cluster.pods.iter().any(is_left), "no pod is left on the nodes");
            }
            Some(DrainAction::Stop(StopCause::Outage(_))) => {
                prop_assert!(!scenario.allow_outage);
                prop_assert!(!is_quiet || cluster.evictions == 0, "nothing was changed");
            }
            Some(DrainAction::Stop(_)) => {}
            other => panic!("{other:?} is no end"),
        }
    }

}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn with_room_and_without_failures_everything_moves(mut scenario in scenarios()) {
        are_sound(&mut scenario);
        let (ends, cluster) = ended(&scenario);
        prop_assert!(cluster.broken.is_empty(), "{:?}", cluster.broken);
        prop_assert_eq!(ends, [Some(DrainAction::Done)]);
    }

    /// The replacements of the first workload find no node.
    #[test]
    fn what_finds_no_node_does_not_hold_those_that_run_on_other_nodes(mut scenario in scenarios()) {
        are_sound(&mut scenario);
        scenario.workloads[0].pool = Some(POOLS);
        let (ends, cluster) = ended(&scenario);
        prop_assert!(cluster.broken.is_empty(), "{:?}", cluster.broken);
        let nodes = cluster.drained();
        let is_left = |pod: &&SimulatedPod| pod.node.as_ref().is_some_and(|node| nodes.contains(node));
        let left: BTreeSet<usize> = cluster.pods.iter().filter(is_left).map(|pod| pod.workload).collect();
        prop_assert!(left.iter().all(|workload| *workload == 0), "left: {left:?}, {ends:?}");
        // What was scaled up before the drain was Pending before.
        let is_stop = matches!(&ends[..], [Some(DrainAction::Stop(StopCause::Pending(..) | StopCause::NoProgress(..)))]);
        prop_assert!(is_stop || left.is_empty(), "{ends:?}");
    }
}

/// Its node is gone for the seconds 11 to 60, and the other replica is being deleted, so that this one must stay.
#[test]
fn an_eviction_is_judged_by_what_could_be_known_when_it_was_sent() {
    let workload = SimulatedWorkload {
        kind: OwnerKind::Deployment,
        replicas: 2,
        budget: None,
        start: 0,
        fails_after: None,
        never_ready: false,
        min_ready: 0,
        recreates_after: MOST_SECONDS,
        priority: 0,
        returns: false,
        scaled: None,
        rolled_out: None,
        pool: None,
    };
    let scenario = Scenario {
        seed: 0,
        drained: 1,
        others: 0,
        slots: 2,
        workloads: vec![workload],
        max_unavailable: 1,
        allow_outage: false,
        has_failures: false,
        has_slow_lists: false,
        second: None,
    };
    let breaks = |sent: i64, carried_out: i64| {
        let mut cluster = Cluster::new(scenario.clone());
        cluster.terminate(1);
        while cluster.now < carried_out {
            match cluster.now {
                10 => cluster.pods[0].is_ghost = true,
                60 => cluster.pods[0].restarts_at = Some(61),
                _ => {}
            }
            cluster.tick();
        }
        let name = cluster.seen(&cluster.pods[0]).name;
        assert_eq!(cluster.end(&name, sent), EvictionAnswer::Accepted);
        !cluster.broken.is_empty()
    };
    let recovered = 11 + RECOVERY;
    assert!(breaks(recovered - 1, recovered), "it may recover");
    assert!(!breaks(recovered, recovered), "only a budget holds it");
    assert!(!breaks(recovered, 62), "the node came back before a late answer");
    assert!(!breaks(recovered, 100), "it came back, and no answer came");
    assert!(!breaks(60 + PROMISED_AGE, 66), "the lists may be so old");
    assert!(breaks(61 + PROMISED_AGE, 67), "the lists are too old");
}

/// Makes room, and lets every workload move without an outage.
fn are_sound(scenario: &mut Scenario) {
    (scenario.has_failures, scenario.second) = (false, None);
    (scenario.others, scenario.slots) = (scenario.others.max(POOLS), 60);
    for workload in &mut scenario.workloads {
        (workload.never_ready, workload.returns, workload.fails_after) = (false, false, None);
        workload.replicas = workload.replicas.max(2);
        workload.scaled = workload.scaled.map(|(at, replicas)| (at, replicas.max(2)));
        if workload.kind == OwnerKind::Unscaled {
            workload.kind = OwnerKind::Scaled;
        }
        // A budget that allows one eviction.
        workload.budget = workload.budget.map(|_| (true, 1));
    }
}
