//! Computes the facts for reviews from the cache; pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration as ClassToleration;
use k8s_openapi::api::node::v1::RuntimeClass;

use super::cache::{CachedNamespace, ClusterCache, UNREADABLE_ANNOTATION};
use super::pool_history::PoolHistory;
use crate::api::{DeclaredPools, KubeletLabel, Management, NodeLabels, WindowsNodePolicy, node_selector};
use crate::model::facts::{Facts, NamespaceFacts, Runtime, RuntimeClassFacts};
use crate::model::label_selector::LabelSelector;
use crate::model::node::{BUILD_LABEL, BUILD_LABELS, Host, NodeSigns as _, RESTRICTED_BUILD_LABEL};
use crate::model::pod::Toleration;

/// The facts of a cache: every Windows node, remembered pools without a node now, and RuntimeClasses. `base` supplies
/// the namespaces of the cache, the date, the feature gates, and everything that is not watched. `now` decides which
/// nodes have been Ready long enough for what they offer to be trusted.
pub fn of(view: &ClusterCache, memory: &PoolHistory, base: &Facts, now: Timestamp) -> Facts {
    let mut facts = base.clone();
    facts.kubernetes = view.kubernetes;
    facts.has_scc = view.has_scc;
    facts.has_gmsa = view.has_gmsa;
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
    let keepers = BuildLabelPolicies::of(view);
    let hosts = windows().filter_map(|node| {
        let mut host = Host::of_node(&**node, Some(now))?;
        if let Some(build) = host.build {
            for label in BUILD_LABELS
                .into_iter()
                .filter(|label| keepers.keep(label, &node.labels))
            {
                host.promise_label(label, build.to_string());
            }
        }
        Some(host)
    });
    for host in hosts.chain(memory.absent(&view.nodes)) {
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
    for policy in usable_node_policies(view) {
        DeclaredPools::of(&policy.spec).add_to(&mut facts);
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

/// The node policies that can be read and are not being deleted, by name.
fn usable_node_policies(view: &ClusterCache) -> impl Iterator<Item = &WindowsNodePolicy> {
    let policies = view.node_policies.values().map(AsRef::as_ref);
    policies.filter(|policy: &&WindowsNodePolicy| {
        let annotations = policy.metadata.annotations.as_ref();
        policy.metadata.deletion_timestamp.is_none()
            && !annotations.is_some_and(|all| all.contains_key(UNREADABLE_ANNOTATION))
    })
}

/// The node policies that keep build labels, each with the nodes that it selects: if a new node lacks such a label
/// briefly, it is not missing.
struct BuildLabelPolicies(Vec<(LabelSelector, NodeLabels)>);

impl BuildLabelPolicies {
    fn of(view: &ClusterCache) -> Self {
        let mut policies: Vec<&WindowsNodePolicy> = usable_node_policies(view).collect();
        policies.sort_by_key(|policy| Reverse(policy.spec.priority));
        let keepers = policies.into_iter().filter_map(|policy| {
            let selector = node_selector(&policy.spec.node_selector).ok()?;
            Some((selector, policy.spec.labels.clone()))
        });
        BuildLabelPolicies(keepers.collect())
    }

    /// Whether the policy that applies to a node with these labels keeps this label on it: the first one that selects
    /// it.
    fn keep(&self, label: &str, of_node: &BTreeMap<String, String>) -> bool {
        let first = self.0.iter().find(|(selector, _)| selector.selects(of_node));
        first.is_some_and(|(_, labels)| match label {
            BUILD_LABEL => labels.kubelet == KubeletLabel::Correct,
            RESTRICTED_BUILD_LABEL => labels.node_restriction == Management::Managed,
            _ => false,
        })
    }
}

/// The namespaces of a cache, built separately so that they can be shared: there are thousands, and they seldom
/// change.
pub fn namespaces(view: &ClusterCache) -> HashMap<String, NamespaceFacts> {
    let facts = |namespace: &CachedNamespace| NamespaceFacts {
        labels: namespace.labels.clone(),
        tolerations_whitelist: namespace.tolerations_whitelist.clone(),
        injections: namespace.injections.clone(),
    };
    (view.namespaces.iter())
        .map(|(name, namespace)| (name.clone(), facts(namespace)))
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

    use super::*;
    use crate::cluster::node::NodeView;

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
}
