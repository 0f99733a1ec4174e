//! The guard's result for each policy, and when it runs again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::Client;
use tokio::time::Instant;

use super::GuardResult;
use super::affected::AffectedWorkloads;
use super::survey::{SurveyOutcome, WaitingNodes, survey};
use crate::cluster::node::NodeView;
use crate::cluster::node_policies::NodePolicy;
use crate::cluster::rate_limit::backoff_interval;
use crate::cluster::snapshot::Snapshot;
use crate::controller::node_policies::NodeControllerSettings;
use crate::controller::node_policies::node_state::{NodesOfPolicy, PolicyResolver, TaintsOfNodes};

/// The results, by policy.
pub struct GuardCache {
    client: Client,
    settings: NodeControllerSettings,
    by_policy: HashMap<String, GuardAnswer>,
}

/// The guard's result for the taints of a policy.
struct GuardAnswer {
    generation: i64,
    cleared: TaintsOfNodes,
    /// The earliest time of the next run.
    again: Option<Instant>,
    /// The workloads because of which it refused.
    affected: AffectedWorkloads,
    /// How many runs in a row did not clear the taints.
    refusals: u32,
    result: GuardResult,
}

impl GuardCache {
    /// A cache without results.
    pub fn new(client: Client, settings: NodeControllerSettings) -> Self {
        GuardCache {
            client,
            settings,
            by_policy: HashMap::new(),
        }
    }

    /// Drops results for other generations of a policy.
    pub fn apply_generations(&mut self, generations: &BTreeMap<String, i64>) {
        self.by_policy
            .retain(|name, answer| generations.get(name) == Some(&answer.generation));
    }

    /// The result for the taints of a policy.
    pub fn result(&self, policy: &str) -> GuardResult {
        self.by_policy
            .get(policy)
            .map(|answer| answer.result.clone())
            .unwrap_or_default()
    }

    /// Drops results that expire with this state of the nodes. Call it before the results are used.
    pub fn age(&mut self, nodes: &[Arc<NodeView>]) {
        for answer in self.by_policy.values_mut() {
            answer.cleared.age(nodes.iter().map(|node| &**node));
        }
    }

    /// Which taints of each policy affect no workload, as far as they were surveyed.
    pub fn cleared(&self) -> BTreeMap<String, TaintsOfNodes> {
        (self.by_policy.iter())
            .map(|(name, answer)| (name.clone(), answer.cleared.clone()))
            .collect()
    }

    /// Runs the guard for the taints that nodes wait for, for all policies together: what placement adds depends on the
    /// taints of all nodes. Skips a policy during its back-off, unless one of the affected workloads has changed. Returns
    /// when to run again.
    pub async fn update(
        &mut self,
        resolver: &PolicyResolver,
        by_policy: &BTreeMap<String, NodesOfPolicy>,
        nodes: &[Arc<NodeView>],
        snapshot: &Snapshot,
    ) -> Option<Instant> {
        let mut alarms = Vec::new();
        let mut groups = Vec::new();
        for policy in resolver.policies.iter() {
            let Some(of_policy) = by_policy.get(&policy.name).filter(|it| !it.waiting.is_empty()) else {
                continue;
            };
            let answer =
                (self.by_policy.entry(policy.name.clone())).or_insert_with(|| GuardAnswer::new(policy));
            match answer.is_due(&self.client).await {
                Ok(()) => {
                    let waiting = &of_policy.waiting;
                    groups.extend(WaitingNodes::of(policy, waiting, &resolver.policies, nodes));
                }
                Err(again) => alarms.extend(again),
            }
        }
        if !groups.is_empty() {
            let outcome = survey(&groups, resolver, nodes, &self.client, snapshot).await;
            let outcome = outcome.unwrap_or_else(|error| SurveyOutcome::failed(&error));
            let surveyed: BTreeSet<&str> = groups.iter().map(|group| group.policy).collect();
            for name in surveyed {
                alarms.extend(self.record(name, &groups, &outcome).await);
            }
        }
        alarms.into_iter().min()
    }

    /// Records the outcome of a survey for a policy. Returns when to run again if it refused a taint.
    async fn record(
        &mut self,
        policy: &str,
        groups: &[WaitingNodes<'_>],
        outcome: &SurveyOutcome,
    ) -> Option<Instant> {
        let answer = self.by_policy.get_mut(policy)?;
        let cleared = outcome.cleared.iter().filter_map(|at| groups.get(*at));
        for group in cleared.filter(|group| group.policy == policy) {
            group.clear(&mut answer.cleared);
        }
        (answer.result, answer.affected) = outcome.of_policy(policy, self.settings.affected_every);
        answer.affected.read_unknown(&self.client).await;
        if answer.result == GuardResult::Free {
            answer.refusals = 0;
            // Nodes that join one after the other should not each cause a survey.
            answer.again = Some(Instant::now() + self.settings.status_every);
            return None;
        }
        answer.refusals = answer.refusals.saturating_add(1);
        let again = Instant::now() + backoff_interval(self.settings.guard_every, answer.refusals);
        answer.again = Some(again);
        Some(answer.affected.due().map_or(again, |due| due.min(again)))
    }
}

impl GuardAnswer {
    fn new(policy: &NodePolicy) -> Self {
        GuardAnswer {
            generation: policy.generation,
            cleared: TaintsOfNodes::default(),
            again: None,
            affected: AffectedWorkloads::none(),
            refusals: 0,
            result: GuardResult::Free,
        }
    }

    /// Whether to run the guard now; else when to ask again.
    async fn is_due(&mut self, client: &Client) -> Result<(), Option<Instant>> {
        let Some(again) = self.again.filter(|again| Instant::now() < *again) else {
            return Ok(());
        };
        let due = self.affected.due().filter(|due| *due < again);
        if due.is_none_or(|due| Instant::now() < due) {
            return Err(Some(due.unwrap_or(again)));
        }
        if !self.affected.have_changed(client).await {
            return Err(self.affected.due().map(|due| due.min(again)));
        }
        Ok(())
    }
}
