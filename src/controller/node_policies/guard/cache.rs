//! The guard's result for each policy, and when it runs again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::Client;
use tokio::time::Instant;

use super::GuardResult;
use super::affected::AffectedWorkloads;
use super::survey::{SurveyOutcome, WaitingNodes, survey};
use crate::cluster::node::NodeView;
use crate::cluster::rate_limit::backoff_interval;
use crate::cluster::snapshot::Snapshot;
use crate::controller::node_policies::NodeControllerSettings;
use crate::controller::node_policies::node_state::{NodesOfPolicy, PolicyResolver, SafeTaints};
use crate::controller::node_policies::policies::NodePolicy;
use crate::model::node::Taint;

/// The results, by policy.
pub struct GuardCache {
    client: Client,
    settings: NodeControllerSettings,
    by_policy: HashMap<String, GuardAnswer>,
}

/// The guard's result for the taints of a policy.
struct GuardAnswer {
    generation: i64,
    cleared: SafeTaints,
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

    /// Which taints of a policy affect no workload, as far as they were surveyed.
    pub fn cleared(&self, policy: &str) -> Option<&SafeTaints> {
        self.by_policy.get(policy).map(|answer| &answer.cleared)
    }

    /// Runs the guard for the taints that nodes wait for and that were not surveyed with these nodes, for all policies
    /// together: what placement adds depends on the taints of all nodes. Skips a policy during its back-off, unless one
    /// of the affected workloads has changed. Returns when to run again.
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
            let Some(waiting) = by_policy.get(&policy.name) else {
                continue;
            };
            let answer =
                (self.by_policy.entry(policy.name.clone())).or_insert_with(|| GuardAnswer::new(policy));
            answer.cleared.age(nodes.iter().map(|node| &**node));
            let open = not_cleared(waiting, nodes, &answer.cleared);
            if open.is_empty() {
                continue;
            }
            match answer.is_due(&self.client).await {
                Ok(()) => groups.extend(WaitingNodes::of(policy, open, &resolver.policies, nodes)),
                Err(again) => alarms.extend(again),
            }
        }
        if groups.is_empty() {
            return alarms.into_iter().min();
        }
        let current = PolicyResolver {
            cleared: (self.by_policy.iter())
                .map(|(name, answer)| (name.clone(), answer.cleared.clone()))
                .collect(),
            ..resolver.clone()
        };
        let outcome = survey(&groups, &current, nodes, &self.client, snapshot).await;
        let outcome = outcome.unwrap_or_else(|error| SurveyOutcome::failed(&error));
        let surveyed: BTreeSet<&str> = groups.iter().map(|group| group.policy).collect();
        for name in surveyed {
            let Some(answer) = self.by_policy.get_mut(name) else {
                continue;
            };
            for group in outcome.cleared.iter().filter_map(|at| groups.get(*at)) {
                if group.policy == name {
                    group.clear(&mut answer.cleared);
                }
            }
            (answer.result, answer.affected) = outcome.of_policy(name, self.settings.affected_every);
            answer.affected.read_unknown(&self.client).await;
            if answer.result == GuardResult::Free {
                answer.refusals = 0;
                // Nodes that join one after the other should not each cause a survey.
                answer.again = Some(Instant::now() + self.settings.status_every);
                continue;
            }
            answer.refusals = answer.refusals.saturating_add(1);
            let again = Instant::now() + backoff_interval(self.settings.guard_every, answer.refusals);
            answer.again = Some(again);
            alarms.push(answer.affected.due().map_or(again, |due| due.min(again)));
        }
        alarms.into_iter().min()
    }
}

impl GuardAnswer {
    fn new(policy: &NodePolicy) -> Self {
        GuardAnswer {
            generation: policy.generation,
            cleared: SafeTaints::default(),
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

/// The taints that nodes wait for, with the nodes for which it is unknown whether a workload would be affected.
fn not_cleared<'a>(
    of_policy: &'a NodesOfPolicy,
    nodes: &'a [Arc<NodeView>],
    cleared: &SafeTaints,
) -> BTreeMap<&'a Taint, Vec<&'a NodeView>> {
    let open = of_policy.waiting.iter().map(|(taint, names)| {
        let waiting = nodes.iter().filter(|node| names.contains(&node.name));
        let open = waiting.filter(|node| !cleared.has(taint, node));
        (taint, open.map(|node| &**node).collect::<Vec<_>>())
    });
    open.filter(|(_, nodes)| !nodes.is_empty()).collect()
}
