//! Computes the facts for reviews from the cache; pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration as ClassToleration;
use k8s_openapi::api::node::v1::RuntimeClass;

use super::cache::{CachedNamespace, ClusterCache, UNREADABLE_ANNOTATION};
use super::node::NodeView;
use super::node_ownership::NodeOwnership;
use super::pool_history::PoolHistory;
use crate::api::{DeclaredPools, KubeletLabel, Management, TaintMode, WindowsNodePolicy, node_selector};
use crate::model::facts::{Facts, NamespaceFacts, Runtime, RuntimeClassFacts};
use crate::model::label_selector::LabelSelector;
use crate::model::namespace_selector::NodeSelector;
use crate::model::node::{
    BUILD_LABEL, BUILD_LABELS, Host, NodeSigns as _, RESTRICTED_BUILD_LABEL, ReportedOs, Taint,
};
use crate::model::pod::Toleration;

/// The facts of a cache: every Windows node, remembered pools without a node now, and RuntimeClasses. `base` supplies
/// the namespaces of the cache with what decides their node selectors, the date, the feature gates, and everything that is not watched. `now` decides which
/// nodes have been Ready long enough for what they offer to be trusted.
pub fn of(view: &ClusterCache, memory: &PoolHistory, base: &Facts, now: Timestamp) -> Facts {
    let mut facts = base.clone();
    facts.kubernetes = view.kubernetes;
    facts.has_scc = view.has_scc;
    facts.has_gmsa = view.has_gmsa;
    facts.knows_nodes = !view.nodes_are_unread;
    let windows = || view.nodes.values().filter(|node| node.is_windows());
    let runtimes = || {
        windows()
            .map(|node| node.container_runtime.as_str())
            .filter(|runtime| !runtime.is_empty())
    };
    if runtimes().next().is_some() {
        let all_docker = runtimes().all(|runtime| runtime.starts_with("docker://"));
        facts.runtime = if all_docker {
            Runtime::Docker
        } else {
            Runtime::Containerd
        };
    }
    let policies = NodePolicyEffects::of(view);
    let hosts = windows().filter_map(|node| {
        let mut host = Host::of_node(&**node, Some(now))?;
        if let Some(build) = host.build {
            for label in BUILD_LABELS
                .into_iter()
                .filter(|label| policies.keep(label, &node.labels))
            {
                host.promise_label(label, build.to_string());
            }
        }
        host.expected_taints = policies.expected_taints(node);
        Some(host)
    });
    for policy in node_policies(view).filter(|policy| is_readable(policy)) {
        DeclaredPools::of(&policy.spec).add_to(&mut facts);
    }
    let remembered = memory.absent(&view.nodes, &facts.policy_pool_labels());
    for host in hosts.chain(remembered) {
        facts.add_host(host);
    }
    facts.node_uids = (view.nodes.iter())
        .map(|(name, node)| (name.clone(), node.uid.clone()))
        .filter(|(_, uid)| !uid.is_empty())
        .collect();
    for drivers in windows().filter_map(|node| view.csi_nodes.get(&node.name)) {
        // A kubelet creates its CSINode before any driver registers, so an empty one says nothing yet.
        if drivers.is_empty() {
            continue;
        }
        facts.add_windows_csi_drivers(drivers);
    }
    facts.runtime_classes = (view.runtime_classes.iter())
        .map(|(name, class)| (name.clone(), runtime_class(class)))
        .collect();
    facts
}

/// When the facts of a cache change although the cluster does not: when the next node has been Ready long enough.
pub fn change_at(view: &ClusterCache, now: Timestamp) -> Option<Timestamp> {
    let windows = view.nodes.values().filter(|node| node.is_windows());
    windows
        .filter_map(|node| node.readiness.settles_at())
        .filter(|at| *at > now)
        .min()
}

/// The node policies that are not being deleted, by name.
fn node_policies(view: &ClusterCache) -> impl Iterator<Item = &WindowsNodePolicy> {
    let policies = view.node_policies.values().map(AsRef::as_ref);
    policies.filter(|policy: &&WindowsNodePolicy| policy.metadata.deletion_timestamp.is_none())
}

/// Whether this version can read the policy.
fn is_readable(policy: &WindowsNodePolicy) -> bool {
    let annotations = policy.metadata.annotations.as_ref();
    !annotations.is_some_and(|all| all.contains_key(UNREADABLE_ANNOTATION))
}

/// What the node policies write to nodes, each with the nodes that it selects: if a new node lacks such a label or taint
/// briefly, it is not missing. A policy without a selector cannot be read and may select any node, and the leader writes
/// nothing to new nodes for the policies after it.
struct NodePolicyEffects<'v>(Vec<NodePolicyEffect<'v>>);

struct NodePolicyEffect<'v> {
    selector: Option<LabelSelector>,
    policy: &'v WindowsNodePolicy,
    /// The taints that the policy sets; none if the guard withholds them.
    taints: Vec<Taint>,
}

impl<'v> NodePolicyEffects<'v> {
    fn of(view: &'v ClusterCache) -> Self {
        let mut policies: Vec<&WindowsNodePolicy> = node_policies(view).collect();
        policies.sort_by_key(|policy| Reverse(policy.spec.priority));
        let effects = policies.into_iter().map(|policy| {
            let selector = node_selector(&policy.spec.node_selector).ok();
            let sets = policy.spec.taints.mode == TaintMode::Apply && !policy.has_blocked_taints();
            let (mut taints, _) = policy.spec.taints.usable();
            taints.retain(|taint| sets && !taint.is_protected());
            NodePolicyEffect {
                selector: selector.filter(|_| is_readable(policy)),
                policy,
                taints,
            }
        });
        NodePolicyEffects(effects.collect())
    }

    /// The policy that applies to a node with these labels: the first one that selects it.
    fn of_node(&self, labels: &BTreeMap<String, String>) -> Option<&NodePolicyEffect<'v>> {
        let mut effects = self.0.iter();
        let first = effects.find(|it| {
            it.selector
                .as_ref()
                .is_none_or(|selector| selector.selects(labels))
        });
        first.filter(|it| it.selector.is_some())
    }

    /// Whether the policy that applies to a node with these labels keeps this label on it.
    fn keep(&self, label: &str, of_node: &BTreeMap<String, String>) -> bool {
        let labels = self.of_node(of_node).map(|it| &it.policy.spec.labels);
        labels.is_some_and(|labels| match label {
            BUILD_LABEL => labels.kubelet == KubeletLabel::Correct,
            RESTRICTED_BUILD_LABEL => labels.node_restriction == Management::Managed,
            _ => false,
        })
    }

    /// The taints that the leader is about to set on a node: not those that another client removed too often, and none
    /// instead of a taint of another writer.
    fn expected_taints(&self, node: &NodeView) -> Vec<Taint> {
        let Some(effect) = self.of_node(&node.labels).filter(|it| !it.taints.is_empty()) else {
            return Vec::new();
        };
        if node.reported_os() != ReportedOs::Windows || node.deleting {
            return Vec::new();
        }
        let present = node.taints();
        let owned = NodeOwnership::parse(node.owned.as_deref()).unwrap_or_default();
        let meta = &effect.policy.metadata;
        let (name, generation) = (
            meta.name.as_deref().unwrap_or_default(),
            meta.generation.unwrap_or_default(),
        );
        let missing = effect.taints.iter().filter(|taint| {
            let mut in_its_place = present
                .iter()
                .filter(|t| t.key == taint.key && t.effect == taint.effect);
            in_its_place.all(|other| other != *taint && owned.taints.contains(other))
                && !owned.is_contested(taint, name, generation)
        });
        missing.cloned().collect()
    }
}

/// The namespaces of a cache, built separately so that they can be shared: there are thousands, and they seldom
/// change.
pub fn namespaces(view: &ClusterCache) -> HashMap<String, NamespaceFacts> {
    let facts = |name: &String, namespace: &CachedNamespace| NamespaceFacts {
        labels: namespace.labels.clone(),
        tolerations_whitelist: namespace.tolerations_whitelist.clone(),
        stated_selectors: namespace.stated_selectors.clone(),
        shows_selector: namespace.stated_selectors.plugin.is_some()
            && view.shown_selectors.get(name) == namespace.stated_selectors.plugin.as_ref(),
        node_selector: NodeSelector::new(),
        injections: namespace.injections.clone(),
    };
    (view.namespaces.iter())
        .map(|(name, namespace)| (name.clone(), facts(name, namespace)))
        .collect()
}

fn runtime_class(class: &RuntimeClass) -> RuntimeClassFacts {
    let scheduling = class.scheduling.as_ref();
    RuntimeClassFacts {
        handler: class.handler.clone(),
        node_selector: scheduling
            .and_then(|s| s.node_selector.clone())
            .unwrap_or_default(),
        tolerations: (scheduling
            .and_then(|s| s.tolerations.as_ref())
            .into_iter()
            .flatten())
        .map(toleration)
        .collect(),
        has_overhead: class.overhead.is_some(),
    }
}

fn toleration(toleration: &ClassToleration) -> Toleration<'static> {
    let text = |field: &Option<String>| field.clone().map(Into::into);
    Toleration {
        key: text(&toleration.key),
        operator: text(&toleration.operator),
        value: text(&toleration.value),
        effect: text(&toleration.effect),
        toleration_seconds: toleration.toleration_seconds,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::civil::date;
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn node(name: &str, os: &str, kernel: &str) -> (String, Arc<NodeView>) {
        let node = NodeView {
            name: name.into(),
            operating_system: os.into(),
            kernel_version: kernel.into(),
            container_runtime: "containerd://1.7.20".into(),
            ..NodeView::default()
        };
        (name.to_owned(), Arc::new(node))
    }

    #[test]
    fn windows_nodes_become_hosts_and_others_do_not() {
        let view = ClusterCache {
            kubernetes: 34,
            nodes: [
                node("w", "windows", "10.0.20348.1"),
                node("l", "linux", "6.1.0"),
                node("odd", "plan9", "4"),
                node("silent", "", ""),
            ]
            .into(),
            ..ClusterCache::default()
        };
        let facts = of(
            &view,
            &PoolHistory::default(),
            &Facts::new(36, date(2026, 1, 1)),
            NOW,
        );
        assert_eq!(facts.kubernetes, 34);
        let names: Vec<_> = facts
            .hosts()
            .iter()
            .map(|host| (host.name.as_str(), host.containerd))
            .collect();
        assert_eq!(names, [("w", Some((1, 7)))]);
    }

    #[test]
    fn the_drivers_of_windows_nodes_are_known_and_those_of_other_nodes_do_not_count() {
        let drivers = |names: &[&str]| Arc::new(names.iter().map(|name| (*name).to_owned()).collect());
        let mut view = ClusterCache {
            nodes: [node("w", "windows", "10.0.20348.1")].into(),
            csi_nodes: [("l".to_owned(), drivers(&["nfs.csi.k8s.io"]))].into(),
            ..ClusterCache::default()
        };
        let lacks = |view: &ClusterCache, driver: &str| {
            of(
                view,
                &PoolHistory::default(),
                &Facts::new(36, date(2026, 1, 1)),
                NOW,
            )
            .lacks_csi_driver_on_windows(driver)
        };
        // The Windows node has no CSINode yet: nothing is known about it.
        assert!(!lacks(&view, "nfs.csi.k8s.io"));
        view.csi_nodes
            .insert("w".to_owned(), drivers(&["disk.csi.azure.com"]));
        assert!(lacks(&view, "nfs.csi.k8s.io"));
        assert!(!lacks(&view, "disk.csi.azure.com"));
    }

    #[test]
    fn docker_is_believed_where_every_windows_node_says_so() {
        let (name, mut docker) = node("d", "windows", "10.0.17763.1");
        Arc::get_mut(&mut docker).unwrap().container_runtime = "docker://20.10".into();
        let mut view = ClusterCache {
            nodes: [(name, docker)].into(),
            ..ClusterCache::default()
        };
        let base = Facts::new(36, date(2026, 1, 1));
        assert_eq!(
            of(&view, &PoolHistory::default(), &base, NOW).runtime,
            Runtime::Docker
        );
        view.nodes.extend([node("c", "windows", "10.0.20348.1")]);
        assert_eq!(
            of(&view, &PoolHistory::default(), &base, NOW).runtime,
            Runtime::Containerd
        );
    }

    #[test]
    fn a_build_label_is_promised_only_if_the_policy_that_writes_it_is_known() {
        let kept = |policies: &[(&str, serde_json::Value, bool)]| {
            let stored = policies.iter().map(|(name, spec, is_readable)| {
                let mut policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
                    "metadata": {"name": name}, "spec": spec});
                if !is_readable {
                    policy["metadata"]["annotations"] = json!({UNREADABLE_ANNOTATION: "newer"});
                }
                (
                    (*name).to_owned(),
                    Arc::new(serde_json::from_value(policy).unwrap()),
                )
            });
            let view = ClusterCache {
                node_policies: stored.collect(),
                ..ClusterCache::default()
            };
            NodePolicyEffects::of(&view).keep(BUILD_LABEL, &BTreeMap::new())
        };
        let all = |name| (name, json!({}), true);
        let typo = json!({"nodeSelector": {"matchLabels": {"Example.com/pool": "win"}}});
        assert!(kept(&[all("b")]));
        // The leader writes nothing to a new node that one of these may select.
        assert!(!kept(&[("a", typo.clone(), true), all("b")]));
        assert!(!kept(&[("a", json!({}), false), all("b")]));
        assert!(kept(&[all("b"), ("c", typo, true)]));
    }

    #[test]
    fn taints_are_expected_while_a_policy_applies_them() {
        let policy = |mode: &str, blocked: &str| {
            serde_json::from_value(json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
                "metadata": {"name": "p", "generation": 2},
                "spec": {"taints": {"mode": mode, "required": [
                    {"key": "os", "value": "windows", "effect": "NoSchedule"},
                    {"key": "node.kubernetes.io/not-ready", "value": "", "effect": "NoSchedule"}]}},
                "status": {"conditions": [{"type": "TaintsBlocked", "status": blocked, "reason": "x", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
            .unwrap()
        };
        let owned = |count: u32| {
            Some(
                json!({"policy": "p", "reversals": {"os=windows:NoSchedule": count}, "generation": 2})
                    .to_string(),
            )
        };
        let taint = |value: &str| {
            let taint = json!([{"key": "os", "value": value, "effect": "NoSchedule"}]);
            serde_json::from_value(taint).unwrap()
        };
        for (mode, blocked, owned, taints, expected) in [
            ("Apply", "False", None, Vec::new(), true),
            ("Report", "False", None, Vec::new(), false),
            ("Apply", "True", None, Vec::new(), false),
            ("Apply", "False", owned(2), Vec::new(), true),
            ("Apply", "False", owned(3), Vec::new(), false),
            ("Apply", "False", None, taint("windows"), false),
            ("Apply", "False", None, taint("other"), false),
        ] {
            let (name, mut w) = node("w", "windows", "10.0.20348.1");
            let changed = Arc::get_mut(&mut w).unwrap();
            (changed.owned, changed.taints) = (owned, taints);
            let view = ClusterCache {
                nodes: [(name, w)].into(),
                node_policies: [("p".to_owned(), Arc::new(policy(mode, blocked)))].into(),
                ..ClusterCache::default()
            };
            let facts = of(
                &view,
                &PoolHistory::default(),
                &Facts::new(36, date(2026, 1, 1)),
                NOW,
            );
            let taints: Vec<String> = (facts.hosts()[0].expected_taints.iter())
                .map(ToString::to_string)
                .collect();
            let expected = if expected {
                vec!["os=windows:NoSchedule"]
            } else {
                Vec::new()
            };
            assert_eq!(taints, expected, "{mode} {blocked} {view:?}");
        }
    }
}
