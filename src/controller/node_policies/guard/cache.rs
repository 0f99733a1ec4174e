//! The guard's result for each policy, and when it runs again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use super::affected::AffectedWorkloads;
use super::peers::PolicyPeers;
use super::{Guard, GuardGroup, GuardResult, GuardedNodes, Impact};
use crate::cluster::node::NodeView;
use crate::cluster::rate_limit::backoff_interval;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::workload_survey::{SurveyError, WorkloadSurvey};
use crate::controller::node_policies::NodeControllerSettings;
use crate::controller::node_policies::node_state::{NodesOfPolicy, PolicyResolver, SafeTaints};
use crate::controller::node_policies::policies::{NodePolicies, NodePolicy};
use crate::engine::TaintChange;
use crate::model::facts::Facts;
use crate::model::node::{Host, Taint};

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
        let outcome = outcome.unwrap_or_else(SurveyOutcome::failed);
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

/// Nodes of one policy that wait for taints, and get them together or not at all.
struct WaitingNodes<'a> {
    policy: &'a str,
    /// If they join others that carry the taints: the Ready nodes of their pools.
    joins: Option<BTreeSet<&'a str>>,
    nodes: Vec<(&'a NodeView, Vec<&'a Taint>)>,
}

impl<'a> WaitingNodes<'a> {
    /// The waiting nodes of a policy: those that join others which carry the taints, and the rest.
    fn of(
        policy: &'a NodePolicy,
        open: BTreeMap<&'a Taint, Vec<&'a NodeView>>,
        policies: &NodePolicies,
        nodes: &'a [Arc<NodeView>],
    ) -> Vec<WaitingNodes<'a>> {
        let mut by_node: BTreeMap<&str, (&NodeView, Vec<&Taint>)> = BTreeMap::new();
        for (taint, waiting) in open {
            for node in waiting {
                let (_, taints) = by_node.entry(&node.name).or_insert_with(|| (node, Vec::new()));
                taints.push(taint);
            }
        }
        let peers = PolicyPeers::of(policy, policies, nodes);
        let (joining, others): (Vec<_>, Vec<_>) = (by_node.into_values())
            .partition(|(node, taints)| taints.iter().all(|taint| peers.is_joined_by(node, taint)));
        let joined: Vec<&NodeView> = joining.iter().map(|(node, _)| *node).collect();
        let joins = peers.in_pools_of(&joined);
        let of = |joins, nodes| WaitingNodes {
            policy: &policy.name,
            joins,
            nodes,
        };
        let groups = [of(Some(joins), joining), of(None, others)].into_iter();
        groups.filter(|group| !group.nodes.is_empty()).collect()
    }

    fn clear(&self, cleared: &mut SafeTaints) {
        for (node, taints) in &self.nodes {
            for taint in taints {
                cleared.add(taint, node);
            }
        }
    }
}

/// The result of a survey.
#[derive(Default)]
struct SurveyOutcome {
    /// The kinds that were read.
    survey: WorkloadSurvey,
    /// The groups whose taints affect no workload, set together.
    cleared: BTreeSet<GuardGroup>,
    /// By policy: the taints of its refused groups, and the affected workloads.
    refused: BTreeMap<String, (BTreeSet<Taint>, Impact)>,
    /// Why it could not find out.
    failed: Option<String>,
}

impl SurveyOutcome {
    fn failed(error: SurveyError) -> Self {
        SurveyOutcome {
            failed: Some(error.to_string()),
            ..SurveyOutcome::default()
        }
    }

    fn of_policy(&self, policy: &str, affected_every: Duration) -> (GuardResult, AffectedWorkloads) {
        match (&self.failed, self.refused.get(policy)) {
            (Some(why), _) => (GuardResult::Unknown(why.clone()), AffectedWorkloads::none()),
            (None, None) => (GuardResult::Free, AffectedWorkloads::none()),
            (None, Some((taints, impact))) => {
                let taints: Vec<Taint> = taints.iter().cloned().collect();
                let (message, brief) = (impact.message(&taints), impact.brief(&taints));
                let affected = AffectedWorkloads::new(impact, &self.survey, affected_every);
                (GuardResult::Refused { message, brief }, affected)
            }
        }
    }

    /// Adds what a round found about its refused groups.
    fn refuse(&mut self, refused: &BTreeSet<GuardGroup>, groups: &[WaitingNodes<'_>], guard: &Guard<'_>) {
        let mut by_policy: BTreeMap<&str, BTreeSet<GuardGroup>> = BTreeMap::new();
        for at in refused {
            if let Some(group) = groups.get(*at) {
                by_policy.entry(group.policy).or_default().insert(*at);
            }
        }
        for (policy, of_policy) in by_policy {
            let (taints, impact) = self.refused.entry(policy.to_owned()).or_default();
            let nodes = of_policy.iter().filter_map(|at| groups.get(*at));
            let nodes = nodes.flat_map(|group| &group.nodes);
            taints.extend(nodes.flat_map(|(_, taints)| taints.iter().copied().cloned()));
            impact.add(guard.impact(&of_policy));
        }
    }
}

/// Evaluates every workload of the cluster: first with the taints of all groups, then without those of refused groups,
/// because a node that stays without its taint changes what placement adds.
async fn survey(
    groups: &[WaitingNodes<'_>],
    current: &PolicyResolver,
    nodes: &[Arc<NodeView>],
    client: &Client,
    snapshot: &Snapshot,
) -> Result<SurveyOutcome, SurveyError> {
    let mut outcome = SurveyOutcome {
        survey: WorkloadSurvey::of(client, &snapshot.policies.pod_templates()).await?,
        ..SurveyOutcome::default()
    };
    let survey = outcome.survey.clone();
    let mut active: BTreeSet<GuardGroup> = (0..groups.len()).collect();
    let policy_of = |namespace: &str| snapshot.in_namespace(namespace);
    while !active.is_empty() {
        let change = change(groups, &active, current, nodes, &snapshot.facts);
        let mut guard = Guard::new(guarded(groups, &active, &change), &policy_of, &survey);
        (survey.for_each(client, |kind, json| guard.visit(kind, json))).await?;
        let refused: BTreeSet<GuardGroup> = guard.affecting_groups();
        if refused.is_empty() {
            outcome.cleared = active;
            break;
        }
        outcome.refuse(&refused, groups, &guard);
        active.retain(|group| !refused.contains(group));
    }
    Ok(outcome)
}

/// The cluster before and after the taints of the active groups are set.
fn change(
    groups: &[WaitingNodes<'_>],
    active: &BTreeSet<GuardGroup>,
    current: &PolicyResolver,
    nodes: &[Arc<NodeView>],
    facts: &Facts,
) -> TaintChange {
    let mut cleared = current.clone();
    for group in active.iter().filter_map(|at| groups.get(*at)) {
        group.clear(cleared.cleared.entry(group.policy.to_owned()).or_default());
    }
    let planned = |resolver: &PolicyResolver| -> HashMap<&str, Vec<Taint>> {
        let each = nodes
            .iter()
            .map(|node| (node.name.as_str(), resolver.decide(node).taints_after(node)));
        each.collect()
    };
    let (before, after) = (planned(current), planned(&cleared));
    let of = |all: &HashMap<&str, Vec<Taint>>, host: &Host| {
        (all.get(host.name.as_str()).cloned()).unwrap_or_else(|| host.taints.clone())
    };
    let group_of: HashMap<&str, GuardGroup> = (active.iter())
        .filter_map(|at| Some((*at, groups.get(*at)?)))
        .flat_map(|(at, group)| group.nodes.iter().map(move |(node, _)| (node.name.as_str(), at)))
        .collect();
    TaintChange::new(
        facts,
        |host| of(&before, host),
        |host| of(&after, host),
        |host| {
            (group_of.get(host.name.as_str()))
                .copied()
                .unwrap_or(GuardGroup::MAX)
        },
    )
}

/// What the guard knows of the nodes of the active groups.
fn guarded<'a>(
    groups: &'a [WaitingNodes<'a>],
    active: &BTreeSet<GuardGroup>,
    change: &'a TaintChange,
) -> GuardedNodes<'a> {
    let of_active = || active.iter().filter_map(|at| Some((*at, groups.get(*at)?)));
    let gains = of_active().flat_map(|(at, group)| {
        (group.nodes.iter()).map(move |(node, taints)| {
            let taints = taints.iter().map(|taint| (*taint).clone()).collect();
            (node.name.as_str(), (at, taints))
        })
    });
    GuardedNodes {
        change,
        gains: gains.collect(),
        joining: of_active()
            .filter_map(|(at, group)| Some((at, group.joins.clone()?)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::json;

    use super::*;
    use crate::api::WindowsNodePolicy;
    use crate::cluster::list::tests::{page_of, server, status};
    use crate::cluster::test_client::Reply;
    use crate::cluster::workload_survey::tests::discovery;
    use crate::engine::policy_set::PolicySet;
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
            if let Some(answer) = fault(uri, before) {
                return answer;
            }
            if !uri.starts_with(DEPLOYMENTS) {
                return discovery(uri).unwrap_or_else(|| page_of(&[], ""));
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
        let node = Arc::new(NodeView {
            name: "w".to_owned(),
            uid: "w".to_owned(),
            operating_system: "windows".to_owned(),
            kernel_version: "10.0.20348.1".to_owned(),
            ..NodeView::default()
        });
        let policy: WindowsNodePolicy = serde_json::from_value(json!({
            "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": "p"},
            "spec": {"taints": {"mode": "Apply", "noExecute": "Allowed",
                "required": [{"key": "team", "value": "blue", "effect": "NoExecute"}]}}}))
        .unwrap();
        let resolver = PolicyResolver {
            policies: NodePolicies::of(&[("p".to_owned(), Arc::new(policy))].into()),
            ..PolicyResolver::default()
        };
        let groups = [WaitingNodes {
            policy: "p",
            joins: None,
            nodes: vec![(&*node, vec![&taint])],
        }];
        let policies = PolicySet::new(Vec::new(), Policy::cluster_default());
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 6, 1));
        facts.add_host(Host::of_node(&*node, None).unwrap());
        let snapshot = Snapshot::of_files(facts, policies);
        let outcome = survey(&groups, &resolver, &[Arc::clone(&node)], &client, &snapshot).await;
        let outcome = outcome.unwrap_or_else(SurveyOutcome::failed);
        outcome.of_policy("p", Duration::ZERO).0
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
        let first = |uri: &str, before| uri.starts_with(DEPLOYMENTS) && before == 0;
        let limited = move |uri: &str, before| {
            first(uri, before).then(|| status(429, &json!({"details": {"retryAfterSeconds": 2}})))
        };
        let cut = move |uri: &str, before| {
            first(uri, before).then(|| Reply::Text(200, "{\"items\": [{".to_owned()))
        };
        let hangs = move |uri: &str, before| first(uri, before).then_some(Reply::Never);
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
    async fn the_guard_names_the_right_that_it_lacks() {
        for (path, of) in [
            (DEPLOYMENTS, "deployments of the API group \"apps\""),
            ("/api/v1/pods", "pods of the API group \"\""),
            (
                "/apis/apps.kruise.io/v1alpha1/daemonsets",
                "daemonsets of the API group \"apps.kruise.io\"",
            ),
        ] {
            let forbidden = move |uri: &str, _| {
                uri.starts_with(path)
                    .then(|| status(403, &json!({"reason": "Forbidden"})))
            };
            let forbidden = survey_with(forbidden).await;
            let GuardResult::Unknown(why) = forbidden else {
                panic!("{forbidden:?}");
            };
            assert!(why.contains(of) && why.contains("verb list"), "{why}");
        }
    }

    #[test]
    fn the_workloads_of_every_round_are_named() {
        let impact = |name: &str| {
            let affected = AffectedWorkload {
                why: "x".to_owned(),
                remedy: None,
                generation: Some(1),
            };
            let key = WorkloadKey::new("shop", "apps", "Deployment", name);
            Impact([(key, affected)].into())
        };
        let mut outcome = SurveyOutcome::default();
        for (taint, name) in [("os", "first"), ("team", "second")] {
            let (taints, workloads) = outcome.refused.entry("p".to_owned()).or_default();
            taints.insert(Taint::no_schedule(taint, "blue"));
            workloads.add(impact(name));
        }
        let (result, _) = outcome.of_policy("p", Duration::ZERO);
        for part in [
            "os=blue:NoSchedule, team=blue:NoSchedule",
            "shop/first",
            "shop/second",
        ] {
            assert!(refused(&result).contains(part), "{part}: {result:?}");
        }
    }
}
