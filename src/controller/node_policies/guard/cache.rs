//! The guard's result for each policy, and when it runs again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use super::GuardResult;
use super::affected::AffectedWorkloads;
use super::inputs::PlacementInputs;
use super::survey::{SurveyOutcome, WaitingNodes, survey};
use crate::cluster::node::NodeView;
use crate::cluster::rate_limit::backoff_interval;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored_node_policies::NodePolicy;
use crate::controller::node_policies::node_state::{PolicyResolver, TaintsOfNodes, WaitingTaints};
use crate::controller::node_policies::{NodeControllerSettings, SURVEY_REST};

/// The results, by policy.
pub struct GuardCache {
    client: Client,
    settings: NodeControllerSettings,
    by_policy: HashMap<String, GuardAnswer>,
    /// What decides about placement, as of the last update.
    inputs: Option<PlacementInputs>,
}

/// The guard's result for the taints of a policy.
struct GuardAnswer {
    generation: i64,
    approved: TaintsOfNodes,
    /// The earliest time of the next run.
    again: Option<Instant>,
    /// The same if something changes that decides about placement.
    earliest: Option<Instant>,
    /// The workloads because of which it refused.
    affected: AffectedWorkloads,
    /// How many runs in a row did not approve the taints.
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
            inputs: None,
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
            answer.approved.age(nodes.iter().map(|node| &**node));
        }
    }

    /// Which taints of each policy affect no workload, as far as they were surveyed.
    pub fn approved(&self) -> BTreeMap<String, TaintsOfNodes> {
        (self.by_policy.iter())
            .map(|(name, answer)| (name.clone(), answer.approved.clone()))
            .collect()
    }

    /// Runs the guard for the taints that nodes wait for, for all policies together: what placement adds depends on the
    /// taints of all nodes. Skips a policy during its back-off, unless one of the affected workloads has changed, or whether
    /// placement applies to them. Returns when to run again.
    pub async fn update(
        &mut self,
        resolver: &PolicyResolver,
        waiting: &WaitingTaints,
        nodes: &[Arc<NodeView>],
        snapshot: &Snapshot,
    ) -> Option<Instant> {
        let inputs = PlacementInputs::of(snapshot);
        if self.inputs.as_ref().is_some_and(|last| !last.is_same(&inputs)) {
            self.by_policy.values_mut().for_each(GuardAnswer::shorten);
        }
        self.inputs = Some(inputs);
        let mut alarms = Vec::new();
        let mut groups = Vec::new();
        for policy in resolver.policies.iter() {
            let Some(of_policy) = waiting.get(&policy.name) else {
                continue;
            };
            let answer =
                (self.by_policy.entry(policy.name.clone())).or_insert_with(|| GuardAnswer::new(policy));
            match answer.is_due(&self.client).await {
                Ok(()) => {
                    groups.extend(WaitingNodes::of(policy, of_policy, &resolver.policies, nodes));
                }
                Err(again) => alarms.extend(again),
            }
        }
        if !groups.is_empty() {
            let began = Instant::now();
            let outcome = survey(&groups, resolver, nodes, &self.client, snapshot).await;
            let took = began.elapsed();
            let outcome = outcome.unwrap_or_else(|error| SurveyOutcome::failed(&error));
            let surveyed: BTreeSet<&str> = groups.iter().map(|group| group.policy).collect();
            for name in surveyed {
                alarms.extend(self.record(name, &groups, &outcome, took).await);
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
        took: Duration,
    ) -> Option<Instant> {
        let answer = self.by_policy.get_mut(policy)?;
        let approved = outcome.approved.iter().filter_map(|at| groups.get(*at));
        for group in approved.filter(|group| group.policy == policy) {
            group.approve(&mut answer.approved);
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
        answer.earliest = Some(Instant::now() + self.settings.guard_every.max(took * SURVEY_REST));
        let again = Instant::now() + backoff_interval(self.settings.guard_every, answer.refusals);
        answer.again = Some(again);
        Some(answer.affected.due().map_or(again, |due| due.min(again)))
    }
}

impl GuardAnswer {
    fn new(policy: &NodePolicy) -> Self {
        GuardAnswer {
            generation: policy.generation,
            approved: TaintsOfNodes::default(),
            again: None,
            earliest: None,
            affected: AffectedWorkloads::none(),
            refusals: 0,
            result: GuardResult::Free,
        }
    }

    /// Something changed that may allow what was refused: the next run waits no longer than after a first refusal.
    fn shorten(&mut self) {
        if self.result != GuardResult::Free {
            self.refusals = 0;
            self.again = self.again.into_iter().chain(self.earliest).min();
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::survey::tests::{deployment, registered};
    use super::*;
    use crate::api::WindowsNodePolicy;
    use crate::cluster::list::tests::{page_of, server};
    use crate::cluster::stored_node_policies::NodePolicies;
    use crate::cluster::workload_survey::tests::discovery;
    use crate::model::nodes::node::Taint;

    #[tokio::test(start_paused = true)]
    async fn a_taint_that_is_withheld_does_not_wait_long_after_placement_applies_again() {
        let web = deployment("web", "windows");
        let (client, _) = server(move |uri, _| {
            if uri.starts_with("/apis/apps/v1/deployments") {
                return page_of(std::slice::from_ref(&web), "");
            }
            discovery(uri).unwrap_or_else(|| page_of(&[], ""))
        });
        let nodes = [Arc::new(NodeView {
            name: "w".to_owned(),
            uid: "w".to_owned(),
            labels: Arc::new([("kubernetes.io/os".to_owned(), "windows".to_owned())].into()),
            operating_system: "windows".to_owned(),
            kernel_version: "10.0.20348.1".to_owned(),
            ..NodeView::default()
        })];
        let taint = json!({"key": "os", "value": "windows", "effect": "NoSchedule"});
        let policy: WindowsNodePolicy = serde_json::from_value(json!({
            "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": "p"},
            "spec": crate::api::reconciling(&serde_json::json!({"taints": {"mode": "Reconcile", "required": [taint]}}))}))
        .unwrap();
        let resolver = PolicyResolver {
            policies: NodePolicies::of(&[("p".to_owned(), Arc::new(policy))].into()),
            ..PolicyResolver::default()
        };
        let of_node = ("w".to_owned(), vec![Taint::no_schedule("os", "windows")]);
        let waiting = [("p".to_owned(), [of_node].into())].into();
        let placed = registered(&nodes);
        let unplaced = Snapshot {
            registered: None,
            ..registered(&nodes)
        };
        let settings = NodeControllerSettings::default();
        let mut cache = GuardCache::new(client, settings);
        for _ in 0..5 {
            cache.update(&resolver, &waiting, &nodes, &unplaced).await;
            assert!(matches!(cache.result("p"), GuardResult::Refused { .. }));
            tokio::time::advance(settings.guard_every * 15).await;
        }
        cache.update(&resolver, &waiting, &nodes, &unplaced).await;
        let again = cache.update(&resolver, &waiting, &nodes, &placed).await;
        assert!(matches!(cache.result("p"), GuardResult::Refused { .. }));
        assert!(again.unwrap() <= Instant::now() + settings.guard_every);
        tokio::time::advance(settings.guard_every).await;
        cache.update(&resolver, &waiting, &nodes, &placed).await;
        assert_eq!(cache.result("p"), GuardResult::Free);
    }
}
