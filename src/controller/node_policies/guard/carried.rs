//! The guard for taints that nodes carry already. What it allowed may be wrong later: another client removes the taint from
//! one pool, so that placement withholds its toleration, or placement no longer applies to a namespace. A taint that keeps
//! restarted pods off nodes on which they run comes off; for other workloads a condition gives the remedy.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use super::affected::AffectedWorkloads;
use super::inputs::PlacementInputs;
use super::{Guard, GuardGroup, GuardedNodes, Impact};
use crate::api::PartMode;
use crate::cluster::node::NodeView;
use crate::cluster::rate_limit::backoff_interval;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored_node_policies::{NodePolicy, SelectedPolicy};
use crate::cluster::workload_survey::{SurveyError, WorkloadSurvey};
use crate::controller::node_policies::node_state::{PolicyResolver, TaintsOfNodes};
use crate::controller::node_policies::{NodeControllerSettings, SURVEY_REST};
use crate::engine::TaintChange;
use crate::model::cluster::facts::{Facts, hash_of};
use crate::model::nodes::node::{Host, NodeSigns as _, ReportedOs, Taint};

/// The workloads that taints of Transom's keep off nodes of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExcludedWorkloads {
    /// The message for the condition.
    pub message: String,
    /// The message in one line.
    pub brief: String,
}

/// What the guard knows of the taints that nodes carry.
pub struct CarriedTaints {
    client: Client,
    settings: NodeControllerSettings,
    /// What the last survey depended on.
    inputs: Option<SurveyInputs>,
    /// Whether that has changed since, even if it has changed back: pods may have been created meanwhile.
    is_stale: bool,
    /// When the last survey ended, and how long it took.
    last: Option<(Instant, Duration)>,
    /// When to repeat it although nothing changed.
    again: Option<Instant>,
    /// How many surveys in a row found workloads, or failed.
    findings: u32,
    /// What the last survey would remove.
    suspected: BTreeMap<String, TaintsOfNodes>,
    /// What the last two would remove.
    withdrawn: BTreeMap<String, TaintsOfNodes>,
    excluded: BTreeMap<String, ExcludedWorkloads>,
    affected: AffectedWorkloads,
}

impl CarriedTaints {
    /// The state before the first survey.
    pub fn new(client: Client, settings: NodeControllerSettings) -> Self {
        CarriedTaints {
            client,
            settings,
            inputs: None,
            is_stale: true,
            last: None,
            again: None,
            findings: 0,
            suspected: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            excluded: BTreeMap::new(),
            affected: AffectedWorkloads::none(),
        }
    }

    /// The taints to remove, by policy.
    pub fn withdrawn(&self) -> BTreeMap<String, TaintsOfNodes> {
        self.withdrawn.clone()
    }

    /// The workloads that taints keep off nodes of a policy.
    pub fn excluded(&self, policy: &str) -> Option<&ExcludedWorkloads> {
        self.excluded.get(policy)
    }

    /// Forgets the taints that are removed by now: the guard may set them again. Call it before [`Self::withdrawn`].
    pub fn age(&mut self, nodes: &[Arc<NodeView>]) {
        for taints in self.withdrawn.values_mut().chain(self.suspected.values_mut()) {
            taints.keep_carried(nodes.iter().map(AsRef::as_ref));
        }
        self.withdrawn.retain(|_, taints| !taints.is_empty());
    }

    /// Surveys the cluster if something that decides has changed since the last survey, and again while it finds workloads.
    /// Returns when to call it again, or why the survey failed.
    ///
    /// # Errors
    /// The survey is incomplete: nothing is removed.
    pub async fn update(
        &mut self,
        resolver: &PolicyResolver,
        nodes: &[Arc<NodeView>],
        snapshot: &Snapshot,
    ) -> Result<Option<Instant>, SurveyError> {
        let planned = PlannedNodes::of(resolver, nodes);
        if planned.groups.is_empty() {
            *self = CarriedTaints::new(self.client.clone(), self.settings);
            return Ok(None);
        }
        // Whether placement applies is unknown, so that nothing may be removed.
        if snapshot.registered.is_none() || !snapshot.lacking().is_empty() {
            self.withdrawn.clear();
            return Ok(None);
        }
        let inputs = SurveyInputs::of(snapshot, &planned);
        self.is_stale |= self.inputs.as_ref().is_none_or(|last| !last.is_same(&inputs));
        if let Some(due) = self.due().await {
            return Ok(due);
        }
        let began = Instant::now();
        let found = survey(&planned, &self.client, snapshot).await;
        (self.inputs, self.is_stale) = (Some(inputs), false);
        self.last = Some((Instant::now(), began.elapsed()));
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.record(BTreeMap::new(), true);
                return Err(error);
            }
        };
        let taints = |policy: &String| found.taints.get(policy).into_iter().flatten().cloned();
        self.excluded = (found.impact.iter())
            .map(|(policy, impact)| {
                let taints: Vec<Taint> = taints(policy).collect();
                let excluded = ExcludedWorkloads {
                    message: impact.message_of_carried(&taints),
                    brief: impact.brief_of_carried(&taints),
                };
                (policy.clone(), excluded)
            })
            .collect();
        let mut all = Impact::default();
        for impact in found.impact.into_values() {
            all.add(impact);
        }
        self.affected = AffectedWorkloads::new(&all, &found.survey, self.settings.affected_every);
        self.affected.read_unknown(&self.client).await;
        self.record(found.released, !all.is_empty());
        Ok(self.next())
    }

    /// `None`: a survey is due now; else when to ask again.
    async fn due(&mut self) -> Option<Option<Instant>> {
        let now = Instant::now();
        let pause = |took: Duration| self.settings.guard_every.max(took * SURVEY_REST);
        let earliest = self.last.map(|(last, took)| last + pause(took));
        if self.is_stale {
            return earliest.filter(|earliest| now < *earliest).map(Some);
        }
        if self.again.is_some_and(|again| again <= now) {
            return None;
        }
        if self.affected.due().is_some_and(|due| due <= now) && self.affected.have_changed(&self.client).await
        {
            // The condition would list workloads that were corrected.
            return None;
        }
        Some(self.next())
    }

    fn next(&self) -> Option<Instant> {
        self.again.into_iter().chain(self.affected.due()).min()
    }

    /// Records what a survey would remove. It is removed only if the survey before agrees, so that what is about to change, as
    /// while many nodes get their taints, removes nothing.
    fn record(&mut self, released: BTreeMap<String, TaintsOfNodes>, has_findings: bool) {
        let every = self.settings.guard_every;
        self.findings = if has_findings {
            self.findings.saturating_add(1)
        } else {
            0
        };
        self.again = match (released.is_empty(), has_findings) {
            (false, _) => Some(Instant::now() + every),
            (true, true) => Some(Instant::now() + backoff_interval(every, self.findings)),
            (true, false) => None,
        };
        let before = std::mem::replace(&mut self.suspected, released);
        let agreed = self.suspected.iter().filter_map(|(policy, now)| {
            let both = now.common(before.get(policy)?);
            (!both.is_empty()).then(|| (policy.clone(), both))
        });
        self.withdrawn = agreed.collect();
    }
}

/// What decides which workloads taints keep off nodes, other than the workloads.
struct SurveyInputs {
    placement: PlacementInputs,
    /// The policies of the groups.
    generations: BTreeMap<String, i64>,
    /// A hash of each group of equivalent nodes.
    nodes: BTreeSet<u64>,
}

impl SurveyInputs {
    fn of(snapshot: &Snapshot, planned: &PlannedNodes<'_>) -> Self {
        let hosts = snapshot.facts.hosts().iter().map(|host| {
            let taints = planned.after(host, &BTreeSet::new());
            let host = Host {
                taints,
                planned_taints: None,
                ..host.clone()
            };
            hash_of(&host)
        });
        SurveyInputs {
            placement: PlacementInputs::of(snapshot),
            generations: (planned.groups.iter())
                .map(|group| (group.policy.name.clone(), group.policy.generation))
                .collect(),
            nodes: hosts.collect(),
        }
    }

    /// Whether nothing has changed.
    fn is_same(&self, now: &SurveyInputs) -> bool {
        self.placement.is_same(&now.placement)
            && self.generations == now.generations
            && self.nodes == now.nodes
    }
}

/// The name of a policy, and the label and the name of a pool of its nodes.
type PoolOfPolicy<'a> = (&'a str, Option<(&'a str, &'a str)>);

/// Nodes of one pool that carry taints of Transom's, and keep them or not together.
struct CarryingNodes<'a> {
    policy: &'a NodePolicy,
    nodes: BTreeMap<&'a str, (&'a NodeView, Vec<Taint>)>,
}

/// All nodes with their taints after the writes that are planned, and those that carry taints of Transom's.
struct PlannedNodes<'a> {
    groups: Vec<CarryingNodes<'a>>,
    /// The group of each node that carries taints of Transom's.
    group_of: HashMap<&'a str, GuardGroup>,
    taints: HashMap<&'a str, Vec<Taint>>,
    /// The taints that the policy of each node requires and that the node lacks.
    missing: HashMap<&'a str, Vec<Taint>>,
}

impl<'a> PlannedNodes<'a> {
    fn of(resolver: &'a PolicyResolver, nodes: &'a [Arc<NodeView>]) -> Self {
        let without_removals = PolicyResolver {
            withdrawn: BTreeMap::new(),
            ..resolver.clone()
        };
        let mut planned = PlannedNodes {
            groups: Vec::new(),
            group_of: HashMap::new(),
            taints: HashMap::new(),
            missing: HashMap::new(),
        };
        let mut by_pool: BTreeMap<PoolOfPolicy<'a>, CarryingNodes<'a>> = BTreeMap::new();
        for node in nodes.iter().map(AsRef::as_ref) {
            let taints = without_removals.decide(node).taints_after(node);
            let is_windows = node.reported_os() == ReportedOs::Windows && !node.deleting;
            if let SelectedPolicy::Policy(policy) = resolver.policies.choose(node)
                && is_windows
            {
                let ours = owned(node, &taints);
                if !ours.is_empty() {
                    let pool = by_pool.entry((&policy.name, node.pool()));
                    let group = pool.or_insert_with(|| CarryingNodes {
                        policy,
                        nodes: BTreeMap::new(),
                    });
                    group.nodes.insert(&node.name, (node, ours));
                }
                planned.missing.insert(&node.name, missing(policy, &taints));
            }
            planned.taints.insert(&node.name, taints);
        }
        planned.groups = by_pool.into_values().collect();
        for (at, group) in planned.groups.iter().enumerate() {
            planned
                .group_of
                .extend(group.nodes.keys().map(|node| (*node, at)));
        }
        planned
    }

    /// The taints of Transom's on a node.
    fn ours(&self, node: &str) -> &[Taint] {
        let group = self.group_of.get(node).and_then(|at| self.groups.get(*at));
        let found = group.and_then(|group| group.nodes.get(node));
        found.map_or(&[], |(_, ours)| ours)
    }

    /// The taints of a node if those of Transom's are removed from these groups.
    fn after(&self, host: &Host, released: &BTreeSet<GuardGroup>) -> Vec<Taint> {
        let mut taints = self.taints.get(&*host.name).unwrap_or(&host.taints).clone();
        let group = self.group_of.get(&*host.name);
        if group.is_some_and(|group| released.contains(group)) {
            let ours = self.ours(&host.name);
            taints.retain(|taint| !ours.contains(taint));
        }
        taints
    }

    /// The taints of a node if every node had the taints of its policy.
    fn complete(&self, host: &Host) -> Vec<Taint> {
        let mut taints = self.after(host, &BTreeSet::new());
        taints.extend(self.missing.get(&*host.name).into_iter().flatten().cloned());
        taints
    }

    /// From the cluster without any taint of Transom's to the one with these taints.
    fn change(&self, facts: &Facts, after: impl Fn(&Host) -> Vec<Taint>) -> TaintChange {
        let all: BTreeSet<GuardGroup> = (0..self.groups.len()).collect();
        let group = |host: &Host| (self.group_of.get(&*host.name).copied()).unwrap_or(GuardGroup::MAX);
        TaintChange::new(facts, |host| self.after(host, &all), after, group)
    }

    /// The nodes of the groups whose taints stay.
    fn gains(&self, released: &BTreeSet<GuardGroup>) -> BTreeMap<&str, (GuardGroup, Vec<Taint>)> {
        let groups = self.groups.iter().enumerate();
        let staying = groups.filter(|(at, _)| !released.contains(at));
        let nodes = staying.flat_map(|(at, group)| {
            (group.nodes.iter()).map(move |(node, (_, ours))| (*node, (at, ours.clone())))
        });
        nodes.collect()
    }
}

/// The taints of Transom's that a node carries and keeps.
fn owned(node: &NodeView, kept: &[Taint]) -> Vec<Taint> {
    let Ok(owned) = node.ownership() else {
        return Vec::new();
    };
    let present = node.taints();
    let ours = present.iter().filter(|taint| owned.may_take_taint(taint));
    ours.filter(|taint| kept.contains(taint)).cloned().collect()
}

/// The taints that a policy requires and a node lacks.
fn missing(policy: &NodePolicy, taints: &[Taint]) -> Vec<Taint> {
    let applies = policy.stored.spec.taints_mode() == PartMode::Reconcile;
    let required = policy.taints.iter().filter(|_| applies);
    let is_free = |taint: &&Taint| {
        !taint.is_protected()
            && !(taints.iter()).any(|now| now.key == taint.key && now.effect == taint.effect)
    };
    required.filter(is_free).cloned().collect()
}

/// The result of a survey.
#[derive(Default)]
struct CarriedOutcome {
    survey: WorkloadSurvey,
    /// The taints to remove, by policy.
    released: BTreeMap<String, TaintsOfNodes>,
    /// The affected workloads, by policy.
    impact: BTreeMap<String, Impact>,
    /// The taints that affect them, by policy.
    taints: BTreeMap<String, BTreeSet<Taint>>,
}

/// Evaluates every workload of the cluster with the taints that nodes carry, and then without those that have to be removed,
/// because a node without its taint changes what placement adds.
async fn survey(
    planned: &PlannedNodes<'_>,
    client: &Client,
    snapshot: &Snapshot,
) -> Result<CarriedOutcome, SurveyError> {
    let mut outcome = CarriedOutcome {
        survey: WorkloadSurvey::of(client, &snapshot.facts.config.pod_templates).await?,
        ..CarriedOutcome::default()
    };
    let survey = outcome.survey.clone();
    let policy_of = |namespace: &str| snapshot.in_namespace(namespace);
    let complete = planned.change(&snapshot.facts, |host| planned.complete(host));
    let mut released = BTreeSet::new();
    loop {
        let change = planned.change(&snapshot.facts, |host| planned.after(host, &released));
        let nodes = GuardedNodes {
            change: &change,
            gains: planned.gains(&released),
            joining: BTreeMap::new(),
            complete: Some(&complete),
        };
        let mut guard = Guard::new(nodes, &policy_of, &survey);
        (survey.for_each(client, |kind, json| guard.visit(kind, json))).await?;
        outcome.add(planned, &guard);
        let mut more = guard.groups_to_release();
        more.retain(|at| {
            planned
                .groups
                .get(*at)
                .is_some_and(CarryingNodes::may_lose_taints)
        });
        let known = released.len();
        released.extend(more);
        if released.len() == known {
            break;
        }
    }
    for group in released.iter().filter_map(|at| planned.groups.get(*at)) {
        let of_policy = outcome.released.entry(group.policy.name.clone()).or_default();
        for (node, ours) in group.nodes.values() {
            for taint in ours {
                of_policy.add(taint, node);
            }
        }
    }
    Ok(outcome)
}

impl CarryingNodes<'_> {
    /// A policy that only audits removes nothing.
    fn may_lose_taints(&self) -> bool {
        self.policy.stored.spec.taints_mode() == PartMode::Reconcile
    }
}

impl CarriedOutcome {
    /// Adds what a round found.
    fn add(&mut self, planned: &PlannedNodes<'_>, guard: &Guard<'_>) {
        let affecting = guard.affecting_groups();
        let groups = affecting
            .iter()
            .filter_map(|at| Some((*at, planned.groups.get(*at)?)));
        for (at, group) in groups {
            let policy = &group.policy.name;
            let impact = self.impact.entry(policy.clone()).or_default();
            impact.add(guard.impact(&[at].into()));
            let taints = group.nodes.values().flat_map(|(_, ours)| ours.iter().cloned());
            self.taints.entry(policy.clone()).or_default().extend(taints);
        }
    }
}
