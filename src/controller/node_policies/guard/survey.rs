//! One survey of the guard: every workload of the cluster, evaluated with the taints of all groups of waiting nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use super::affected::AffectedWorkloads;
use super::peers::PolicyPeers;
use super::{Guard, GuardGroup, GuardResult, GuardedNodes, Impact};
use crate::cluster::node::NodeView;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored_node_policies::{NodePolicies, NodePolicy};
use crate::cluster::workload_survey::{SurveyError, WorkloadSurvey};
use crate::controller::node_policies::node_state::{PolicyResolver, TaintsOfNodes};
use crate::engine::TaintChange;
use crate::model::cluster::facts::Facts;
use crate::model::nodes::node::{Host, Taint};

/// Nodes of one policy that wait for taints, and get them together or not at all.
pub(super) struct WaitingNodes<'a> {
    pub(super) policy: &'a str,
    /// If they join others that carry the taints: the Ready nodes of their pools.
    joins: Option<BTreeSet<&'a str>>,
    nodes: Vec<(&'a NodeView, &'a [Taint])>,
}

impl<'a> WaitingNodes<'a> {
    /// The waiting nodes of a policy: those that join others which carry the taints, and the rest.
    pub(super) fn of(
        policy: &'a NodePolicy,
        waiting: &'a BTreeMap<String, Vec<Taint>>,
        policies: &NodePolicies,
        nodes: &'a [Arc<NodeView>],
    ) -> Vec<WaitingNodes<'a>> {
        let waiting = (nodes.iter()).filter_map(|node| Some((&**node, &**waiting.get(&node.name)?)));
        let peers = PolicyPeers::of(policy, policies, nodes);
        let (joining, others): (Vec<_>, Vec<_>) =
            waiting.partition(|(node, taints)| taints.iter().all(|taint| peers.is_joined_by(node, taint)));
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

    pub(super) fn approve(&self, approved: &mut TaintsOfNodes) {
        for (node, taints) in &self.nodes {
            for taint in *taints {
                approved.add(taint, node);
            }
        }
    }
}

/// The result of a survey.
#[derive(Default)]
pub(super) struct SurveyOutcome {
    /// The kinds that were read.
    survey: WorkloadSurvey,
    /// The groups whose taints affect no workload, set together.
    pub(super) approved: BTreeSet<GuardGroup>,
    /// By policy: the taints of its refused groups, and the affected workloads.
    refused: BTreeMap<String, (BTreeSet<Taint>, Impact)>,
    /// Why it could not find out.
    failed: Option<GuardResult>,
}

impl SurveyOutcome {
    pub(super) fn failed(error: &SurveyError) -> Self {
        SurveyOutcome {
            failed: Some(GuardResult::Unknown {
                why: error.to_string(),
                is_forbidden: matches!(error, SurveyError::Forbidden { .. }),
            }),
            ..SurveyOutcome::default()
        }
    }

    pub(super) fn of_policy(
        &self,
        policy: &str,
        affected_every: Duration,
    ) -> (GuardResult, AffectedWorkloads) {
        match (&self.failed, self.refused.get(policy)) {
            (Some(unknown), _) => (unknown.clone(), AffectedWorkloads::none()),
            (None, None) => (GuardResult::Free, AffectedWorkloads::none()),
            (None, Some((taints, impact))) => {
                let taints: Vec<Taint> = taints.iter().cloned().collect();
                let (message, brief) = (impact.message(&taints), impact.brief_of_missing(&taints));
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
            taints.extend(nodes.flat_map(|(_, taints)| taints.iter().cloned()));
            impact.add(guard.impact(&of_policy));
        }
    }
}

/// Evaluates every workload of the cluster: first with the taints of all groups, then without those of refused groups,
/// because a node that stays without its taint changes what placement adds.
pub(super) async fn survey(
    groups: &[WaitingNodes<'_>],
    current: &PolicyResolver,
    nodes: &[Arc<NodeView>],
    client: &Client,
    snapshot: &Snapshot,
) -> Result<SurveyOutcome, SurveyError> {
    let mut outcome = SurveyOutcome {
        survey: WorkloadSurvey::of(client, &snapshot.facts.config.pod_templates).await?,
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
            outcome.approved = active;
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
    let mut approved = current.clone();
    for group in active.iter().filter_map(|at| groups.get(*at)) {
        group.approve(approved.approved.entry(group.policy.to_owned()).or_default());
    }
    let planned = |resolver: &PolicyResolver| -> HashMap<&str, Vec<Taint>> {
        let each = nodes
            .iter()
            .map(|node| (node.name.as_str(), resolver.decide(node).taints_after(node)));
        each.collect()
    };
    let (before, after) = (planned(current), planned(&approved));
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
        (group.nodes.iter()).map(move |(node, taints)| (node.name.as_str(), (at, taints.to_vec())))
    });
    GuardedNodes {
        change,
        gains: gains.collect(),
        joining: of_active()
            .filter_map(|(at, group)| Some((at, group.joins.clone()?)))
            .collect(),
        complete: None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use jiff::civil::date;
    use serde_json::json;

    use super::*;
    use crate::api::WindowsNodePolicy;
    use crate::cluster::list::tests::{page_of, server, status};
    use crate::cluster::test_client::Reply;
    use crate::cluster::workload_survey::tests::discovery;
    use crate::engine::policy_set::PolicySet;
    use crate::model::cluster::policy::Policy;
    use crate::registration::configurations::{Configuration, Configurations};
    use crate::registration::{RegistrationOptions, mutating};

    const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

    pub(crate) fn deployment(name: &str, os: &str) -> serde_json::Value {
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
            "spec": crate::api::reconciling(&serde_json::json!({"taints": {"mode": "Reconcile", "noExecute": "Allowed",
                "required": [{"key": "team", "value": "blue", "effect": "NoExecute"}]}}))}))
        .unwrap();
        let resolver = PolicyResolver {
            policies: NodePolicies::of(&[("p".to_owned(), Arc::new(policy))].into()),
            ..PolicyResolver::default()
        };
        let groups = [WaitingNodes {
            policy: "p",
            joins: None,
            nodes: vec![(&*node, std::slice::from_ref(&taint))],
        }];
        let policies = PolicySet::new(Vec::new(), Policy::cluster_default());
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 6, 1));
        facts.add_host(Host::of_node(&*node, None).unwrap());
        let snapshot = Snapshot::of_files(facts, policies);
        let outcome = survey(&groups, &resolver, &[Arc::clone(&node)], &client, &snapshot).await;
        let outcome = outcome.unwrap_or_else(|error| SurveyOutcome::failed(&error));
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
            let GuardResult::Unknown {
                why,
                is_forbidden: true,
            } = forbidden
            else {
                panic!("{forbidden:?}");
            };
            assert!(why.contains(of) && why.contains("verb list"), "{why}");
        }
    }

    /// A snapshot of nodes whose webhooks are called.
    pub(crate) fn registered(nodes: &[Arc<NodeView>]) -> Snapshot {
        let object = serde_json::to_value(mutating(&RegistrationOptions::default())).unwrap();
        let configuration = Configuration::read("zz-transom".to_owned(), Some(&object["webhooks"]));
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 6, 1));
        for node in nodes {
            facts.add_host(Host::of_node(&**node, None).unwrap());
        }
        Snapshot {
            registered: Some(Arc::new(Configurations {
                mutating: configuration.clone(),
                validating: configuration,
            })),
            ..Snapshot::of_files(facts, PolicySet::new(Vec::new(), Policy::standalone()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_workloads_of_every_round_are_named() {
        // With both nodes tainted, placement gives `later` the toleration; without the taint of w19 it does not, because
        // the build of its image is unknown and w19 is open.
        let mut first = deployment("first", "windows");
        first["metadata"]["namespace"] = json!("kube-system");
        first["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/hostname"] = json!("w19");
        let objects = [first, deployment("later", "windows")];
        let (client, _) = server(move |uri, _| {
            if uri.starts_with(DEPLOYMENTS) {
                return page_of(&objects, "");
            }
            discovery(uri).unwrap_or_else(|| page_of(&[], ""))
        });
        let taint = Taint::no_schedule("os", "windows");
        let nodes = [("w19", "10.0.17763.1"), ("w22", "10.0.20348.1")].map(|(name, kernel)| {
            let labels = [("kubernetes.io/os", "windows"), ("kubernetes.io/hostname", name)];
            Arc::new(NodeView {
                name: name.to_owned(),
                uid: name.to_owned(),
                labels: Arc::new(
                    labels
                        .map(|(key, value)| (key.to_owned(), value.to_owned()))
                        .into(),
                ),
                operating_system: "windows".to_owned(),
                kernel_version: kernel.to_owned(),
                ..NodeView::default()
            })
        });
        let policy: WindowsNodePolicy = serde_json::from_value(json!({
            "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": "p"},
            "spec": crate::api::reconciling(&serde_json::json!({"taints": {"mode": "Reconcile",
                "required": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]}}))}))
        .unwrap();
        let resolver = PolicyResolver {
            policies: NodePolicies::of(&[("p".to_owned(), Arc::new(policy))].into()),
            ..PolicyResolver::default()
        };
        let groups = nodes.each_ref().map(|node| WaitingNodes {
            policy: "p",
            joins: None,
            nodes: vec![(&**node, std::slice::from_ref(&taint))],
        });
        let outcome = survey(&groups, &resolver, &nodes, &client, &registered(&nodes)).await;
        let outcome = outcome.unwrap();
        assert_eq!(outcome.approved, BTreeSet::new());
        let (result, _) = outcome.of_policy("p", Duration::ZERO);
        let message = refused(&result);
        assert!(
            message.contains("kube-system/first (its template") && message.contains("shop/later (placement"),
            "{message}"
        );
    }
}
