//! Drains of random clusters with random budgets and failures: the replicas that are available never fall below what is
//! allowed because of an eviction, and every drain ends.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::label_selector::LabelSelector;
use crate::model::node::Host;

/// The time between two rounds.
const ROUND: Duration = Duration::from_secs(10);
/// The rounds in which a pod that is not Ready may recover.
const RECOVERY_ROUNDS: u32 = 4;
/// More rounds than any drain of these clusters may take.
const MOST_ROUNDS: usize = 20_000;

#[derive(Clone, Debug)]
struct SimulatedWorkload {
    replicas: u64,
    /// Whether its budget is `maxUnavailable`, otherwise `minAvailable`; and the number.
    budget: Option<(bool, u64)>,
    /// The rounds until a pod is Ready.
    start: u64,
    never_ready: bool,
    /// Whether the drain knows the number of replicas.
    is_known: bool,
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
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let budget = prop_oneof![Just(None), (any::<bool>(), 0..4_u64).prop_map(Some)];
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.8));
    let workload = (1..6_u64, budget, 0..6_u64, flags);
    let workload =
        workload.prop_map(
            |(replicas, budget, start, (never_ready, is_known))| SimulatedWorkload {
                replicas,
                budget,
                start,
                never_ready,
                is_known,
            },
        );
    let workloads = prop::collection::vec(workload, 1..6);
    let nodes = (1..4_usize, 0..4_usize, 1..14_usize);
    (
        any::<u64>(),
        nodes,
        workloads,
        1..4_u64,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(seed, (drained, others, slots), workloads, max_unavailable, allow_outage, has_failures)| {
                Scenario {
                    seed,
                    drained,
                    others,
                    slots,
                    workloads,
                    max_unavailable,
                    allow_outage,
                    has_failures,
                }
            },
        )
}

/// A pod as it really is.
#[derive(Clone, Debug)]
struct SimulatedPod {
    seen: DrainPod,
    workload: usize,
    /// The rounds until it is Ready.
    starts: u64,
    /// The rounds in which it was not Ready.
    unready: u32,
    /// The rounds until it is gone, once it is being deleted; `None` if its kubelet is dead.
    ends: Option<u64>,
}

/// The cluster: what it does in a round stands in for controllers, scheduler and kubelets.
struct Simulation {
    scenario: Scenario,
    dice: u64,
    pods: Vec<SimulatedPod>,
    cordoned: BTreeSet<String>,
    created: u64,
    evictions: usize,
}

impl Simulation {
    fn new(scenario: Scenario) -> Self {
        let mut simulation = Simulation {
            dice: scenario.seed,
            scenario,
            pods: Vec::new(),
            cordoned: BTreeSet::new(),
            created: 0,
            evictions: 0,
        };
        simulation.create_missing();
        for index in 0..simulation.pods.len() {
            let node = simulation.roll(simulation.scenario.drained + simulation.scenario.others);
            let pod = &mut simulation.pods[index];
            (pod.seen.node, pod.seen.unschedulable) = (Some(format!("node-{node}")), None);
            (pod.seen.is_ready, pod.starts) = (true, 0);
        }
        simulation
    }

    /// A number below `sides` (SplitMix64).
    fn roll(&mut self, sides: usize) -> usize {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) >> 8).unwrap() % sides.max(1)
    }

    fn fails(&mut self, one_in: usize) -> bool {
        self.scenario.has_failures && self.roll(one_in) == 0
    }

    fn drained(&self) -> Vec<String> {
        (0..self.scenario.drained)
            .map(|node| format!("node-{node}"))
            .collect()
    }

    fn of(&self, workload: usize) -> impl Iterator<Item = &SimulatedPod> {
        self.pods.iter().filter(move |pod| pod.workload == workload)
    }

    fn available(&self, workload: usize) -> u64 {
        self.of(workload).filter(|pod| pod.seen.is_available()).count() as u64
    }

    /// How many replicas must stay available, by the budget or by `--max-unavailable`.
    fn floor(&self, workload: usize) -> u64 {
        let SimulatedWorkload { replicas, budget, .. } = self.scenario.workloads[workload];
        match budget {
            Some((true, most)) => replicas.saturating_sub(most),
            Some((false, least)) => least,
            None => replicas.saturating_sub(self.scenario.max_unavailable),
        }
    }

    /// Controllers create the pods that are missing.
    fn create_missing(&mut self) {
        for workload in 0..self.scenario.workloads.len() {
            let SimulatedWorkload {
                replicas,
                start,
                is_known,
                ..
            } = self.scenario.workloads[workload];
            // A controller may be slow; without a known number the drain would take the rest for all.
            if self.created > 0 && is_known && self.fails(4) {
                continue;
            }
            let there = self.of(workload).filter(|pod| !pod.seen.is_terminating).count() as u64;
            for _ in there..replicas {
                self.created += 1;
                let name = PodName {
                    namespace: "shop".to_owned(),
                    name: format!("w{workload}-{}", self.created),
                };
                let seen = DrainPod {
                    uid: self.created.to_string(),
                    unschedulable: Some("0/3 nodes are available".to_owned()),
                    ..tests::pod(&name.name, &format!("w{workload}"))
                };
                self.pods.push(SimulatedPod {
                    seen,
                    workload,
                    starts: start,
                    unready: 0,
                    ends: None,
                });
            }
        }
    }

    fn schedule(&mut self) {
        for index in 0..self.pods.len() {
            if self.pods[index].seen.node.is_some() || self.pods[index].seen.is_terminating {
                continue;
            }
            let nodes = (0..self.scenario.drained + self.scenario.others).map(|node| format!("node-{node}"));
            let used = |node: &str| {
                let there = self
                    .pods
                    .iter()
                    .filter(|pod| pod.seen.node.as_deref() == Some(node));
                there.count()
            };
            let is_open = |node: &String| !self.cordoned.contains(node) && used(node) < self.scenario.slots;
            let open: Vec<String> = nodes.filter(is_open).collect();
            if !open.is_empty() {
                let node = open[self.roll(open.len())].clone();
                let seen = &mut self.pods[index].seen;
                (seen.node, seen.unschedulable) = (Some(node), None);
            }
        }
    }

    /// Kubelets start and end pods; some fail.
    fn run(&mut self) {
        // What a workload depends on is away for a moment.
        let away: Vec<bool> = (0..self.scenario.workloads.len())
            .map(|_| self.fails(20))
            .collect();
        for index in 0..self.pods.len() {
            let crashes = self.fails(40) || away[self.pods[index].workload];
            let recovers = self.fails(3);
            let never_ready = self.scenario.workloads[self.pods[index].workload].never_ready;
            let pod = &mut self.pods[index];
            if pod.seen.is_terminating {
                pod.ends = pod.ends.map(|ends| ends.saturating_sub(1));
            } else if pod.seen.node.is_some() {
                let is_new = !pod.seen.is_ready;
                pod.starts = pod.starts.saturating_sub(1);
                let starts = pod.starts == 0 && !(never_ready && is_new);
                pod.seen.is_ready = (starts || recovers) && !crashes;
            }
            pod.unready = if pod.seen.is_ready { 0 } else { pod.unready + 1 };
        }
        self.pods
            .retain(|pod| !(pod.seen.is_terminating && pod.ends == Some(0)));
        if self.fails(30) {
            self.cordoned.pop_first();
        }
    }

    /// What the drain lists.
    fn inventory(&self) -> DrainInventory {
        let mut inventory = DrainInventory::default();
        for name in self.drained() {
            let host = Host {
                name: name.clone(),
                ..Host::default()
            };
            let node = InventoryNode {
                is_cordoned: self.cordoned.contains(&name),
                is_ready: true,
                images: BTreeSet::new(),
                has_more_images: false,
                host,
            };
            inventory.nodes.insert(name, node);
        }
        inventory.pods = self.pods.iter().map(|pod| pod.seen.clone()).collect();
        for (index, workload) in self.scenario.workloads.iter().enumerate() {
            let name = format!("w{index}");
            if workload.is_known {
                inventory.desired.insert(tests::owner(&name), workload.replicas);
            }
            if let Some((is_most, _)) = workload.budget {
                // The disruption controller takes for `minAvailable` the pods that there are.
                let expected = if is_most {
                    workload.replicas
                } else {
                    self.of(index).count() as u64
                };
                let labels = [("app".to_owned(), name.clone())].into();
                inventory.budgets.push(DisruptionBudget {
                    namespace: "shop".to_owned(),
                    name,
                    selector: Some(LabelSelector {
                        match_labels: labels,
                        ..LabelSelector::default()
                    }),
                    allowed: self.available(index).saturating_sub(self.floor(index)),
                    desired_healthy: self.floor(index),
                    is_zero: self.floor(index) >= expected,
                });
            }
        }
        inventory
    }

    /// The API server evicts a pod, or refuses to; its answer may be lost. A pod that is not Ready needs no budget here.
    fn evict(&mut self, name: &PodName) -> EvictionAnswer {
        let index = self.pods.iter().position(|pod| pod.seen.name == *name).unwrap();
        let (workload, is_available) = (self.pods[index].workload, self.pods[index].seen.is_available());
        assert!(
            self.drained().iter().all(|node| self.cordoned.contains(node)),
            "all nodes are cordoned before {name} is evicted"
        );
        let (left, floor) = (
            self.available(workload) - u64::from(is_available),
            self.floor(workload),
        );
        let is_broken = !is_available && self.pods[index].unready > RECOVERY_ROUNDS;
        assert!(
            left >= floor || is_broken,
            "{left} of w{workload} stay available, and {floor} must"
        );
        let answer = match (self.fails(8), self.roll(4)) {
            (false, _) => EvictionAnswer::Accepted,
            (true, 0) => return EvictionAnswer::NotNow("a budget".to_owned()),
            (true, 1) => return EvictionAnswer::Unknown("a timeout".to_owned()),
            (true, 2) => EvictionAnswer::Unknown("a timeout".to_owned()),
            // Someone else has deleted it.
            (true, _) => EvictionAnswer::Gone,
        };
        let ends = if self.fails(60) {
            None
        } else {
            Some(1 + self.roll(3) as u64)
        };
        let pod = &mut self.pods[index];
        (pod.seen.is_terminating, pod.ends) = (true, ends);
        self.evictions += 1;
        answer
    }

    /// Whether a workload really has an outage.
    fn has(&self, outage: &Outage) -> bool {
        let workload = outage.workload.trim_start_matches("Deployment shop/w");
        let workload: usize = workload.parse().unwrap();
        let replicas = self.scenario.workloads[workload].replicas;
        match outage.cause {
            OutageCause::OneReplica => replicas == 1,
            OutageCause::ZeroBudget => self.floor(workload) >= replicas,
            _ => false,
        }
    }

    /// A pod fails while an eviction takes long, and no list shows it.
    fn fail_one(&mut self) {
        let index = self.roll(self.pods.len());
        if let Some(pod) = self.pods.get_mut(index) {
            pod.seen.is_ready = false;
        }
    }
}

fn rules(scenario: &Scenario) -> DrainRules {
    DrainRules {
        max_unavailable: scenario.max_unavailable,
        allow_outage: scenario.allow_outage,
        pending_timeout: ROUND * 5,
        progress_timeout: ROUND * 12,
        recovery_timeout: ROUND * RECOVERY_ROUNDS,
        ..tests::rules()
    }
}

/// How a drain ends: the last step, and the cluster then.
fn ended(scenario: &Scenario) -> (DrainAction, Simulation) {
    let rules = rules(scenario);
    let mut simulation = Simulation::new(scenario.clone());
    let mut history = DrainHistory::default();
    for round in 0..MOST_ROUNDS {
        let now = ROUND * u32::try_from(round).unwrap();
        let nodes = simulation.drained();
        let mut state = history.state(simulation.inventory(), &nodes, &rules, now);
        loop {
            match next(&state, &rules) {
                DrainAction::Cordon(node) => {
                    state.cordoned(&node);
                    simulation.cordoned.insert(node);
                }
                DrainAction::Evict(pod) => {
                    let answer = simulation.evict(&pod);
                    state.answered(&pod, &answer);
                    if simulation.fails(10) {
                        simulation.fail_one();
                        state.age = next::FRESH;
                    }
                }
                DrainAction::Wait(_) => break,
                end => return (end, simulation),
            }
        }
        history.keep(&state);
        simulation.create_missing();
        simulation.run();
        simulation.schedule();
    }
    panic!("the drain does not end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn replicas_stay_available_as_allowed_and_every_drain_ends(scenario in scenarios()) {
        let (end, simulation) = ended(&scenario);
        match end {
            DrainAction::Done => {
                let nodes = simulation.drained();
                let is_left = |pod: &SimulatedPod| pod.seen.node.as_ref().is_some_and(|node| nodes.contains(node));
                prop_assert!(!simulation.pods.iter().any(is_left), "no pod is left on the nodes");
            }
            DrainAction::Stop(StopCause::Outage(outages)) => {
                prop_assert!(!scenario.allow_outage);
                prop_assert!(scenario.has_failures || simulation.evictions == 0, "nothing was changed");
                prop_assert!(outages.iter().all(|outage| simulation.has(outage)), "{:?}", outages);
            }
            DrainAction::Stop(_) => {}
            other => panic!("{other:?} is no end"),
        }
    }

    #[test]
    fn with_room_and_without_failures_everything_moves(mut scenario in scenarios()) {
        scenario.has_failures = false;
        (scenario.others, scenario.slots) = (scenario.others.max(1), 40);
        for workload in &mut scenario.workloads {
            workload.never_ready = false;
            workload.replicas = workload.replicas.max(2);
            // A budget that allows one eviction.
            workload.budget = workload.budget.map(|(is_most, _)| (is_most, if is_most { 1 } else { workload.replicas - 1 }));
        }
        let (end, _) = ended(&scenario);
        prop_assert_eq!(end, DrainAction::Done);
    }
}
