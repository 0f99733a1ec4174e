//! Computes the facts for reviews from the cache; pure.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration as ClassToleration;
use k8s_openapi::api::node::v1::RuntimeClass;

use super::cache::{CachedNamespace, ClusterCache};
use super::node::NodeView;
use super::node_ownership::NOTHING_OWNED;
use super::stored_node_policies::{NodePolicies, NodePolicy, SelectedPolicy};
use super::stored_node_pools::NodePools;
use crate::api::{Isolation, NodeRuntimeClasses, PartMode};
use crate::model::cluster::facts::{Facts, NamespaceFacts, Runtime, RuntimeClassFacts};
use crate::model::nodes::namespace_selector::NodeSelector;
use crate::model::nodes::node::{Host, NodeSigns as _, ReportedOs, Taint};
use crate::model::objects::pod::Toleration;
use crate::model::windows::build::RELEASES;

/// The facts of a cache: every Windows node, observed pools without a node now, declared pools, and RuntimeClasses. `base` supplies
/// the namespaces of the cache with what decides their node selectors, the date, the feature gates, and everything that is not watched. `now` decides which
/// nodes have been Ready long enough for what they offer to be trusted.
pub fn of(
    cache: &ClusterCache,
    policies: &NodePolicies,
    pools: &NodePools,
    base: &Facts,
    now: Timestamp,
) -> Facts {
    let mut facts = base.clone();
    facts.kubernetes = cache.kubernetes;
    facts.oldest_api_server = Some(cache.kubernetes);
    facts.has_scc = cache.has_scc;
    facts.has_gmsa = cache.has_gmsa;
    facts.injector_groups.clone_from(&cache.injector_groups);
    facts.knows_nodes = !cache.nodes_are_unread;
    facts.other_nodes = Arc::clone(&cache.other_nodes);
    let windows = || cache.nodes.values().filter(|node| node.is_windows());
    facts.network.plugins = windows().filter_map(|node| node.network_plugin).collect();
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
    let required = policies.iter().flat_map(|policy| policy.taints.iter().cloned());
    facts.required_taints = required.collect::<BTreeSet<_>>().into_iter().collect();
    let hosts = windows().filter_map(|node| {
        let mut host = Host::of_node(&**node, Some(now))?;
        if let SelectedPolicy::Policy(policy) = policies.choose(node) {
            expect_writes(policy, node, &mut host);
        }
        Some(host)
    });
    let declared = pools.declared().map(|pool| pool.host.clone());
    facts.pools.extend(declared);
    for host in hosts.chain(pools.absent(&cache.nodes)) {
        facts.add_host(host);
    }
    facts.node_uids = (cache.nodes.iter())
        .map(|(name, node)| (name.clone(), node.uid.clone()))
        .filter(|(_, uid)| !uid.is_empty())
        .collect();
    for drivers in windows().filter_map(|node| cache.csi_nodes.get(&node.name)) {
        // A kubelet creates its CSINode before any driver registers, so an empty one says nothing yet.
        if drivers.is_empty() {
            continue;
        }
        facts.add_windows_csi_drivers(drivers);
    }
    facts.runtime_classes = (cache.runtime_classes.iter())
        .map(|(name, class)| (name.clone(), runtime_class(class)))
        .collect();
    facts.windows_class_names = Arc::new(windows_class_names(policies));
    facts.with_predictions()
}

/// The names of RuntimeClasses for Windows: those that node policies create when the first node of a release joins, and those of
/// the documentation.
fn windows_class_names(policies: &NodePolicies) -> BTreeSet<String> {
    // `windows-2019` is that of https://kubernetes.io/docs/concepts/windows/user-guide/, read on 2026-11-29;
    // `windows-{release}` is the default of `runtimeClasses.namePattern`.
    let default = NodeRuntimeClasses::default();
    let of_policies = policies.iter().map(|policy| &policy.stored.spec);
    let managed = of_policies.filter(|spec| spec.runtime_classes_mode() == PartMode::Reconcile);
    let managed = managed.map(|spec| &spec.runtime_classes);
    let mut names = BTreeSet::new();
    for classes in managed.chain([&default]) {
        for isolation in [Isolation::Process, Isolation::HyperV] {
            for release in RELEASES {
                names.insert(classes.class_name(release.name, isolation));
                let year = release.name.strip_prefix("ltsc");
                names.extend(year.map(|year| format!("windows-{year}")));
            }
        }
    }
    names
}

/// When the facts of a cache change although the cluster does not: when the next node has been Ready long enough.
pub fn change_at(cache: &ClusterCache, now: Timestamp) -> Option<Timestamp> {
    let windows = cache.nodes.values().filter(|node| node.is_windows());
    windows
        .filter_map(|node| node.readiness.settles_at())
        .filter(|at| *at > now)
        .min()
}

/// Adds the labels and taints that the leader is about to write for a policy: if a new node lacks them briefly, they are not
/// missing.
fn expect_writes(policy: &NodePolicy, node: &NodeView, host: &mut Host) {
    let spec = &policy.stored.spec;
    for (label, mode) in spec.label_modes() {
        match (mode, host.build) {
            (PartMode::Reconcile, Some(build)) => host.promise_label(label, build.to_string()),
            (PartMode::Audit, Some(build)) if !host.is_labelled(label) => {
                host.audited_labels.push((label, build.to_string()));
            }
            _ => {}
        }
    }
    let sets_taints = spec.taints_mode() == PartMode::Reconcile;
    // The guard withholds blocked taints.
    if sets_taints && !policy.stored.has_blocked_taints() {
        host.planned_taints = planned_taints(policy, node);
    }
}

/// The taints of a node once the leader has written them, if that changes them.
fn planned_taints(policy: &NodePolicy, node: &NodeView) -> Option<Vec<Taint>> {
    if node.reported_os() != ReportedOs::Windows || node.deleting {
        return None;
    }
    // Of an annotation that is not trusted, no taint is Transom's.
    let owned = node.ownership().unwrap_or(&NOTHING_OWNED);
    let present = node.taints();
    let planned = owned.taints_after(&present, &policy.taints, &policy.name, policy.generation);
    (planned != present).then_some(planned)
}

/// The namespaces of a cache, built separately so that they can be shared: there are thousands, and they seldom
/// change.
pub fn namespaces(cache: &ClusterCache) -> HashMap<String, NamespaceFacts> {
    let facts = |name: &String, namespace: &CachedNamespace| NamespaceFacts {
        labels: namespace.labels.clone(),
        tolerations_whitelist: namespace.tolerations_whitelist.clone(),
        stated_selectors: namespace.stated_selectors.clone(),
        shows_selector: namespace.stated_selectors.plugin.is_some()
            && cache.shown_selectors.get(name) == namespace.stated_selectors.plugin.as_ref(),
        node_selector: NodeSelector::new(),
        injections: namespace.injections.clone(),
    };
    (cache.namespaces.iter())
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
    use super::super::cache::UNREADABLE_ANNOTATION;
    use super::super::node_ownership::{NodeOwnership, PROOF_LABEL};
    use std::sync::Arc;

    use jiff::civil::date;
    use serde_json::json;

    use super::*;
    use crate::model::nodes::node::{BUILD_LABEL, RESTRICTED_BUILD_LABEL};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// Without pools, at [`NOW`].
    fn of_cache(cache: &ClusterCache, base: &Facts) -> Facts {
        let policies = NodePolicies::of(&cache.node_policies);
        of(cache, &policies, &NodePools::default(), base, NOW)
    }

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
        let cache = ClusterCache {
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
        let facts = of_cache(&cache, &Facts::new(36, date(2026, 1, 1)));
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
        let mut cache = ClusterCache {
            nodes: [node("w", "windows", "10.0.20348.1")].into(),
            csi_nodes: [("l".to_owned(), drivers(&["nfs.csi.k8s.io"]))].into(),
            ..ClusterCache::default()
        };
        let lacks = |cache: &ClusterCache, driver: &str| {
            of_cache(cache, &Facts::new(36, date(2026, 1, 1))).lacks_csi_driver_on_windows(driver)
        };
        // The Windows node has no CSINode yet: nothing is known about it.
        assert!(!lacks(&cache, "nfs.csi.k8s.io"));
        cache
            .csi_nodes
            .insert("w".to_owned(), drivers(&["disk.csi.azure.com"]));
        assert!(lacks(&cache, "nfs.csi.k8s.io"));
        assert!(!lacks(&cache, "disk.csi.azure.com"));
    }

    #[test]
    fn docker_is_believed_where_every_windows_node_says_so() {
        let (name, mut docker) = node("d", "windows", "10.0.17763.1");
        Arc::get_mut(&mut docker).unwrap().container_runtime = "docker://20.10".into();
        let mut cache = ClusterCache {
            nodes: [(name, docker)].into(),
            ..ClusterCache::default()
        };
        let base = Facts::new(36, date(2026, 1, 1));
        assert_eq!(of_cache(&cache, &base).runtime, Runtime::Docker);
        cache.nodes.extend([node("c", "windows", "10.0.20348.1")]);
        assert_eq!(of_cache(&cache, &base).runtime, Runtime::Containerd);
    }

    #[test]
    fn a_build_label_is_promised_only_if_the_policy_that_writes_it_is_known() {
        let kept = |policies: &[(&str, serde_json::Value, bool)]| {
            let stored = policies.iter().map(|(name, spec, is_readable)| {
                let mut policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
                    "metadata": {"name": name}, "spec": crate::api::reconciling(&serde_json::json!(spec))});
                if !is_readable {
                    policy["metadata"]["annotations"] = json!({UNREADABLE_ANNOTATION: "newer"});
                }
                (
                    (*name).to_owned(),
                    Arc::new(serde_json::from_value(policy).unwrap()),
                )
            });
            let (name, mut w) = node("w", "windows", "10.0.20348.1");
            let labels = [("kubernetes.io/os".to_owned(), "windows".to_owned())];
            Arc::get_mut(&mut w).unwrap().labels = Arc::new(labels.into());
            let cache = ClusterCache {
                nodes: [(name, w)].into(),
                node_policies: stored.collect(),
                ..ClusterCache::default()
            };
            let base = Facts::new(36, date(2026, 1, 1));
            of_cache(&cache, &base).hosts()[0].is_labelled(BUILD_LABEL)
        };
        assert!(!kept(&[]));
        let all = |name| (name, json!({}), true);
        let typo = json!({"nodeSelector": {"matchLabels": {"Example.com/pool": "win"}}});
        assert!(kept(&[all("b")]));
        // The leader writes nothing to a new node that one of these may select.
        assert!(!kept(&[("a", typo.clone(), true), all("b")]));
        assert!(!kept(&[("a", json!({}), false), all("b")]));
        assert!(kept(&[all("b"), ("c", typo, true)]));
    }

    #[test]
    fn a_label_that_a_policy_only_audits_is_not_promised_and_is_predicted() {
        let spec = json!({"labels": {"kubelet": {"mode": "Audit"}, "nodeRestriction": {"mode": "Disabled"}}});
        let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
            "metadata": {"name": "p"}, "spec": crate::api::reconciling(&serde_json::json!(spec))});
        let (name, mut w) = node("w", "windows", "10.0.20348.1");
        let labels = [("kubernetes.io/os".to_owned(), "windows".to_owned())];
        Arc::get_mut(&mut w).unwrap().labels = Arc::new(labels.into());
        let cache = ClusterCache {
            nodes: [(name, w)].into(),
            node_policies: [("p".to_owned(), Arc::new(serde_json::from_value(policy).unwrap()))].into(),
            ..ClusterCache::default()
        };
        let base = Facts::new(36, date(2026, 1, 1));
        let mut facts = of_cache(&cache, &base);
        let labelled = |facts: &Facts| {
            [BUILD_LABEL, RESTRICTED_BUILD_LABEL].map(|label| facts.hosts()[0].is_labelled(label))
        };
        assert_eq!(labelled(&facts), [false, false]);
        assert_eq!(
            facts.reconciled().map(|facts| labelled(&facts)),
            Some([true, false])
        );
        // What is changed afterwards must be prepared again.
        facts.today = date(2026, 1, 2);
        assert!(facts.reconciled().is_none() && facts.with_predictions().reconciled().is_some());
    }

    #[test]
    fn taints_are_expected_while_a_policy_applies_them() {
        let policy = |mode: &str, blocked: &str| {
            serde_json::from_value(json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
                "metadata": {"name": "p", "generation": 2},
                "spec": crate::api::reconciling(&serde_json::json!({"taints": {"mode": mode, "required": [
                    {"key": "os", "value": "windows", "effect": "NoSchedule"},
                    {"key": "node.kubernetes.io/not-ready", "value": "", "effect": "NoSchedule"}]}})),
                "status": {"conditions": [{"type": "TaintsBlocked", "status": blocked, "reason": "x", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
            .unwrap()
        };
        let owned = |count: u32| {
            let owned =
                json!({"policy": "p", "reversals": {"os=windows:NoSchedule": count}, "generation": 2});
            Some(owned.to_string().into())
        };
        let owns = |value: &str| {
            let owned = NodeOwnership {
                policy: "p".into(),
                taints: vec![Taint::no_schedule("os", value)],
                ..NodeOwnership::default()
            };
            (owned.to_annotation().map(Into::into), owned.proof())
        };
        let proven = owns("other");
        let unproven = (owns("other").0, None);
        let taint = |value: &str| {
            let taint = json!([{"key": "os", "value": value, "effect": "NoSchedule"}]);
            serde_json::from_value(taint).unwrap()
        };
        for (mode, blocked, (owned, proof), taints, expected) in [
            ("Reconcile", "False", (None, None), Vec::new(), true),
            ("Audit", "False", (None, None), Vec::new(), false),
            ("Reconcile", "True", (None, None), Vec::new(), false),
            ("Reconcile", "False", (owned(2), None), Vec::new(), true),
            ("Reconcile", "False", (owned(3), None), Vec::new(), false),
            ("Reconcile", "False", (None, None), taint("windows"), false),
            ("Reconcile", "False", (None, None), taint("other"), false),
            ("Reconcile", "False", unproven, taint("other"), false),
            ("Reconcile", "False", proven, taint("other"), true),
        ] {
            let (name, mut w) = node("w", "windows", "10.0.20348.1");
            let changed = Arc::get_mut(&mut w).unwrap();
            (changed.owned, changed.taints) = (owned, taints);
            let proof = proof.map(|proof| (PROOF_LABEL.to_owned(), proof));
            changed.labels = Arc::new(proof.into_iter().collect());
            let cache = ClusterCache {
                nodes: [(name, w)].into(),
                node_policies: [("p".to_owned(), Arc::new(policy(mode, blocked)))].into(),
                ..ClusterCache::default()
            };
            let facts = of_cache(&cache, &Facts::new(36, date(2026, 1, 1)));
            let planned = facts.hosts()[0].planned_taints.iter().flatten();
            let taints: Vec<String> = planned.map(ToString::to_string).collect();
            let expected = if expected {
                vec!["os=windows:NoSchedule"]
            } else {
                Vec::new()
            };
            assert_eq!(taints, expected, "{mode} {blocked} {cache:?}");
        }
    }
}
