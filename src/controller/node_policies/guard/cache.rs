//! The guard's result for each policy, and when it runs again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::Client;
use tokio::time::Instant;

use super::affected::AffectedWorkloads;
use super::{Guard, GuardResult, ObjectKey};
use crate::cluster::list::{POD_CARRIERS, for_each_of};
use crate::cluster::node::NodeView;
use crate::cluster::rate_limit::backoff_interval;
use crate::cluster::snapshot::Snapshot;
use crate::controller::node_policies::NodeControllerSettings;
use crate::controller::node_policies::node_state::{NodesOfPolicy, SafeTaints};
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

    /// Runs the guard for the taints that nodes wait for and that were not surveyed with these nodes. Skips the run
    /// during the back-off, unless one of the affected workloads has changed. Returns when to run again.
    pub async fn update(
        &mut self,
        policy: &NodePolicy,
        waiting: &NodesOfPolicy,
        nodes: &[Arc<NodeView>],
        snapshot: &Snapshot,
    ) -> Option<Instant> {
        let answer = self
            .by_policy
            .entry(policy.name.clone())
            .or_insert_with(|| GuardAnswer {
                generation: policy.generation,
                cleared: SafeTaints::default(),
                again: None,
                affected: AffectedWorkloads::none(),
                refusals: 0,
                result: GuardResult::Free,
            });
        answer.cleared.age(nodes.iter().map(|node| &**node));
        let open = not_cleared(waiting, nodes, &answer.cleared);
        if open.is_empty() {
            return None;
        }
        if let Some(again) = answer.again
            && Instant::now() < again
        {
            let due = answer.affected.due().filter(|due| *due < again);
            if due.is_none_or(|due| Instant::now() < due) {
                return Some(due.unwrap_or(again));
            }
            if !answer.affected.have_changed(&self.client).await {
                return answer.affected.due().map(|due| due.min(again));
            }
        }
        let (result, affected) = survey(&open, &self.client, snapshot).await;
        answer.result = result;
        answer.affected = AffectedWorkloads::new(affected, self.settings.affected_every);
        answer.affected.read_unknown(&self.client).await;
        if answer.result == GuardResult::Free {
            for (taint, nodes) in open {
                for node in nodes {
                    answer.cleared.add(taint, node);
                }
            }
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

/// Evaluates every workload of the cluster. Also returns the affected ones, with their generations.
async fn survey(
    open: &BTreeMap<&Taint, Vec<&NodeView>>,
    client: &Client,
    snapshot: &Snapshot,
) -> (GuardResult, BTreeMap<ObjectKey, Option<i64>>) {
    let taints: Vec<Taint> = open.keys().map(|taint| (*taint).clone()).collect();
    let names: BTreeSet<&str> = open.values().flatten().map(|node| node.name.as_str()).collect();
    let policy_of = |namespace: &str| snapshot.in_namespace(namespace);
    let mut guard = Guard::new(&taints, names, &snapshot.facts, &policy_of);
    let surveyed = for_each_of(client, &POD_CARRIERS, |kind, json| guard.visit(kind, json)).await;
    let affected = guard.affected();
    let impact = guard.impact();
    let result = match surveyed {
        Err(error) => GuardResult::Unknown(error.to_string()),
        Ok(()) if impact.is_empty() => GuardResult::Free,
        Ok(()) => GuardResult::Refused {
            message: impact.message(&taints),
            brief: impact.brief(&taints),
        },
    };
    (result, affected)
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::json;

    use super::*;
    use crate::cluster::list::tests::{page_of, server, status};
    use crate::cluster::test_client::Reply;
    use crate::engine::policy_set::PolicySet;
    use crate::model::facts::Facts;
    use crate::model::policy::Policy;

    const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

    fn deployment(name: &str, os: &str) -> serde_json::Value {
        json!({"metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": {"template": {"spec": {
            "nodeSelector": {"kubernetes.io/os": os}, "containers": [{"name": "app", "image": "app"}]}}}})
    }

    /// The guard's answer about one new taint, while a list of Deployments with two pages goes wrong like this.
    async fn survey_with(
        fault: impl Fn(&str, usize) -> Option<Reply> + Send + Sync + 'static,
    ) -> GuardResult {
        let (client, _) = server(move |uri, before| {
            if !uri.starts_with(DEPLOYMENTS) {
                return page_of(&[], "");
            }
            if let Some(answer) = fault(uri, before) {
                return answer;
            }
            if uri.contains("continue=") {
                page_of(&[deployment("agent", "windows")], "")
            } else {
                page_of(&[deployment("web", "linux")], "old")
            }
        });
        let taint = Taint {
            key: "team".to_owned(),
            value: "blue".to_owned(),
            effect: "NoExecute".to_owned(),
        };
        let open = BTreeMap::from([(&taint, Vec::new())]);
        let policies = PolicySet::new(Vec::new(), Policy::cluster_default());
        let snapshot = Snapshot::of_files(Facts::new(Facts::KUBERNETES, date(2026, 6, 1)), policies);
        survey(&open, &client, &snapshot).await.0
    }

    fn refused(result: &GuardResult) -> &str {
        match result {
            GuardResult::Refused { message, .. } => message,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_guard_gets_over_faults_that_pass() {
        let healthy = survey_with(|_, _| None).await;
        assert!(
            refused(&healthy).contains("shop/agent"),
            "it is on the second page"
        );
        let expired = |uri: &str, _| {
            let expired = uri.contains("continue=old");
            expired.then(|| status(410, &json!({"metadata": {"continue": "new"}})))
        };
        let limited = |_: &str, before| {
            (before == 0).then(|| status(429, &json!({"details": {"retryAfterSeconds": 2}})))
        };
        let cut = |_: &str, before| (before == 0).then(|| Reply::Text(200, "{\"items\": [{".to_owned()));
        let hangs = |_: &str, before| (before == 0).then_some(Reply::Never);
        for result in [
            survey_with(expired).await,
            survey_with(limited).await,
            survey_with(cut).await,
            survey_with(hangs).await,
        ] {
            assert_eq!(refused(&result), refused(&healthy));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_guard_says_which_list_it_could_not_read() {
        let forbidden = survey_with(|_, _| Some(status(403, &json!({"reason": "Forbidden"})))).await;
        let GuardResult::Unknown(why) = forbidden else {
            panic!("{forbidden:?}");
        };
        assert!(why.contains(DEPLOYMENTS) && why.contains("403"), "{why}");
    }
}
