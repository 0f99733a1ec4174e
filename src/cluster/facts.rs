//! From the view to the facts that reviews are judged by; pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;

use super::pools::Memory;
use super::view::{ClusterView, NodeView};
use crate::model::build::Build;
use crate::model::facts::{
    BUILD_LABEL, Facts, Host, NamespaceFacts, Runtime, RuntimeClassFacts, TRUSTED_BUILD_LABEL, Taint,
    major_minor,
};

/// The facts of a view: every Windows node, the pools that are remembered and have none at the moment, RuntimeClasses
/// and namespaces. `base` brings the day, the feature gates, and what else no watch tells.
pub fn of(view: &ClusterView, memory: &Memory, base: &Facts) -> Facts {
    let mut facts = base.clone();
    facts.kubernetes = view.kubernetes;
    let windows = || view.nodes.values().filter(|node| is_windows(node));
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
    for node in windows() {
        facts.add_host(host(node));
    }
    for pool in memory.absent(&view.nodes) {
        facts.add_host(pool);
    }
    facts.runtime_classes = (view.runtime_classes.iter())
        .map(|(name, class)| (name.clone(), runtime_class(class)))
        .collect();
    facts.namespaces = (view.namespaces.iter())
        .map(|(name, namespace)| {
            let facts = NamespaceFacts {
                labels: namespace.labels.clone(),
                tolerations_whitelist: namespace.tolerations_whitelist.clone(),
            };
            (name.clone(), facts)
        })
        .collect();
    facts
}

/// Whether a node is a Windows node: by its kubelet, and by its label as long as the kubelet has not spoken.
pub fn is_windows(node: &NodeView) -> bool {
    let os = if node.operating_system.is_empty() {
        node.labels
            .get(crate::model::facts::OS_LABEL)
            .map_or("", String::as_str)
    } else {
        &node.operating_system
    };
    os.eq_ignore_ascii_case("windows")
}

/// The build of a node: what its kubelet reports of the kernel, and its label as long as it has not.
pub fn build(node: &NodeView) -> Option<Build> {
    let of_label = |key: &str| node.labels.get(key).and_then(|label| Build::parse_label(label));
    Build::parse_kernel_version(&node.kernel_version)
        .map(|(build, _)| build)
        .or_else(|| of_label(TRUSTED_BUILD_LABEL))
        .or_else(|| of_label(BUILD_LABEL))
}

/// The taints of a node as the engine speaks of them.
pub fn taints(node: &NodeView) -> Vec<Taint> {
    (node.taints.iter())
        .map(|taint| Taint {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: taint.effect.clone(),
        })
        .collect()
}

fn host(node: &Arc<NodeView>) -> Host {
    Host {
        name: node.name.clone(),
        build: build(node),
        taints: taints(node),
        containerd: node
            .container_runtime
            .strip_prefix("containerd://")
            .and_then(major_minor),
        template: BTreeMap::new(),
    }
}

fn runtime_class(class: &RuntimeClass) -> RuntimeClassFacts {
    let scheduling = class.scheduling.as_ref();
    RuntimeClassFacts {
        handler: class.handler.clone(),
        node_selector: scheduling
            .and_then(|s| s.node_selector.clone())
            .unwrap_or_default(),
        has_overhead: class.overhead.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

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
    fn the_kernel_is_believed_before_the_label() {
        let mut forged = NodeView {
            kernel_version: "10.0.20348.2700".into(),
            ..NodeView::default()
        };
        forged.labels.insert(BUILD_LABEL.into(), "10.0.17763".into());
        assert_eq!(build(&forged), Some(Build::new(20348)));
        forged.kernel_version = "5.15".into();
        assert_eq!(build(&forged), Some(Build::new(17763)));
    }

    #[test]
    fn windows_nodes_become_hosts_and_others_do_not() {
        let view = ClusterView {
            kubernetes: 34,
            nodes: [
                node("w", "windows", "10.0.20348.1"),
                node("l", "linux", "6.1.0"),
                node("odd", "plan9", "4"),
                node("silent", "", ""),
            ]
            .into(),
            ..ClusterView::default()
        };
        let facts = of(&view, &Memory::default(), &Facts::new(36, date(2026, 1, 1)));
        assert_eq!(facts.kubernetes, 34);
        let names: Vec<_> = facts
            .hosts()
            .iter()
            .map(|host| (host.name.as_str(), host.containerd))
            .collect();
        assert_eq!(names, [("w", Some((1, 7)))]);
    }

    #[test]
    fn docker_is_believed_where_every_windows_node_says_so() {
        let (name, mut docker) = node("d", "windows", "10.0.17763.1");
        Arc::get_mut(&mut docker).unwrap().container_runtime = "docker://20.10".into();
        let mut view = ClusterView {
            nodes: [(name, docker)].into(),
            ..ClusterView::default()
        };
        let base = Facts::new(36, date(2026, 1, 1));
        assert_eq!(of(&view, &Memory::default(), &base).runtime, Runtime::Docker);
        view.nodes.extend([node("c", "windows", "10.0.20348.1")]);
        assert_eq!(of(&view, &Memory::default(), &base).runtime, Runtime::Containerd);
    }
}
