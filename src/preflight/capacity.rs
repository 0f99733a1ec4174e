//! What Windows nodes have for the pods that use them: memory, room for pods, addresses, ports. And who keeps pods off new
//! nodes: readiness rules, and DaemonSets that Karpenter counts for the wrong pool.

use std::collections::{BTreeMap, BTreeSet};

use super::{ClusterInput, MOST, PreflightFinding};
use crate::cluster::environment::{AnyNode, NodeGroupResource};
use crate::engine::scheduling::{AdmissionStage, Constraints, constraints};
use crate::model::cluster::facts::Facts;
use crate::model::knowledge::NodePlatform;
use crate::model::nodes::memory_limits::{NO_OOM_KILLER, largest_below, mebibytes};
use crate::model::nodes::node::{Host, OS_LABEL, PRIVATE_IPV4_RESOURCE};
use crate::model::nodes::node_affinity::{KnownNodeLabels, LabelValue, Match};
use crate::model::objects::object::Object;
use crate::model::objects::pod::PodSpec;
use crate::model::objects::workload::Kind;
use crate::model::syntax::text::{count, list};
use crate::model::windows::os::Verdict;
use crate::scan::OwnerResult;

/// How many workloads with more memory than a node are kept.
const MOST_WORKLOADS: usize = 200;

/// How many Services with `externalTrafficPolicy: Cluster` are reported: AKS documents about 500, sometimes fewer.
const MOST_SERVICES: usize = 400;

/// What the pods on one node use.
#[derive(Clone, Copy, Debug, Default)]
struct NodeLoad {
    /// The sum of their memory limits, in bytes.
    limits: u64,
    pods: u64,
    addresses: u64,
}

/// The use of Windows nodes, collected one object at a time.
#[derive(Debug)]
pub struct Capacity<'w> {
    facts: &'w Facts,
    windows_nodes: BTreeMap<&'w str, &'w AnyNode>,
    /// The pools of Karpenter that state no operating system.
    pools: Vec<&'w NodeGroupResource>,
    loads: BTreeMap<&'w str, NodeLoad>,
    /// Workloads with a memory limit above that of each node that they select, with both in bytes.
    too_large: Vec<(String, u64, u64)>,
    /// The Windows DaemonSets that Karpenter counts for such a pool.
    counted: BTreeMap<&'w str, Vec<String>>,
}

/// A pool without nodes: labels that are not its own may be those of the cloud provider.
struct NodeOfPool<'p>(&'p NodeGroupResource);

impl KnownNodeLabels for NodeOfPool<'_> {
    fn node_name(&self) -> Option<&str> {
        None
    }

    fn label_value(&self, key: &str) -> LabelValue<'_> {
        match self.0.labels.get(key) {
            None if key.contains("kubernetes.io/") || key.contains("karpenter") => LabelValue::Unknown,
            value => value.map(String::as_str).into(),
        }
    }
}

impl<'w> Capacity<'w> {
    /// The state before the first workload.
    pub fn new(input: ClusterInput<'w>) -> Self {
        let environment = input.environment;
        let windows = environment.nodes.iter().filter(|node| node.is_windows);
        let is_unstated =
            |pool: &&NodeGroupResource| pool.labels.contains_key("karpenter.sh/nodepool") && !pool.states_os;
        Capacity {
            facts: &input.snapshot.facts,
            windows_nodes: windows.map(|node| (node.name.as_str(), node)).collect(),
            pools: environment.scaled.iter().filter(is_unstated).collect(),
            loads: BTreeMap::new(),
            too_large: Vec::new(),
            counted: BTreeMap::new(),
        }
    }

    /// Visits a pod, whether its owner is evaluated or not.
    pub fn visit_pod(&mut self, subject: &Object<'_>) {
        let Some(pod) = subject.pod().filter(|_| subject.kind == Kind::Pod) else {
            return;
        };
        let node = pod.node_name.as_deref().unwrap_or_default();
        let Some((node, _)) = self.windows_nodes.get_key_value(node) else {
            return;
        };
        let load = self.loads.entry(node).or_default();
        load.limits = load.limits.saturating_add(pod.memory_limit());
        load.pods += 1;
        let requests = pod.extended_requests();
        let addresses = requests.iter().filter(|(name, _)| *name == PRIVATE_IPV4_RESOURCE);
        load.addresses += addresses.map(|(_, amount)| amount).sum::<u64>();
    }

    /// Records what the pods of a workload request.
    pub fn visit(&mut self, owner_result: &OwnerResult, subject: &Object<'_>, pod: &PodSpec<'_>) {
        if owner_result.verdict != Verdict::Windows {
            return;
        }
        let title = owner_result.title();
        let Some(constraints) = constraints(subject, self.facts, AdmissionStage::AsWritten) else {
            return;
        };
        if subject.kind == Kind::DaemonSet {
            self.count_for_pools(&title, &constraints);
        }
        let nodes = self.windows_nodes.values();
        let selected = nodes.filter(|node| constraints.matches(**node) != Match::No);
        let limit = pod.memory_limit();
        if let Some(largest) = largest_below(limit, selected.map(|node| node.allocatable.memory))
            && self.too_large.len() < MOST_WORKLOADS
        {
            self.too_large.push((title, limit, largest));
        }
    }

    /// Records the pools for whose nodes Karpenter counts a DaemonSet.
    fn count_for_pools(&mut self, title: &str, constraints: &Constraints<'_>) {
        for pool in &self.pools {
            let is_kept_off = constraints.untolerated(&pool.taints).next().is_some();
            if !pool.is_windows && !is_kept_off && constraints.matches(&NodeOfPool(pool)) != Match::No {
                self.counted
                    .entry(&pool.source)
                    .or_default()
                    .push(title.to_owned());
            }
        }
    }

    fn memory(&self) -> Vec<PreflightFinding> {
        let mut all = Vec::new();
        if !self.too_large.is_empty() {
            let text = format!(
                "the memory limits of {} are above what any Windows node has that they select",
                count(self.too_large.len(), "workload")
            );
            let remedy = format!("lower the limits, or use larger nodes: {NO_OOM_KILLER}");
            let evidence = self.too_large.iter().map(|(title, limit, largest)| {
                format!("{title} ({} of {})", mebibytes(*limit), mebibytes(*largest))
            });
            all.push(PreflightFinding::act(text, remedy).by(evidence));
        }
        let overcommitted: Vec<String> = { self.loads.iter() }
            .filter_map(|(name, load)| {
                let memory = self.windows_nodes.get(name)?.allocatable.memory?;
                let is_above = load.limits > memory;
                is_above.then(|| {
                    format!(
                        "node {name} ({} of {})",
                        mebibytes(load.limits),
                        mebibytes(memory)
                    )
                })
            })
            .collect();
        if !overcommitted.is_empty() {
            let text = format!(
                "the pods on {} may together use more memory than is allocatable (sum of their limits)",
                count(overcommitted.len(), "Windows node")
            );
            let remedy = format!(
                "set memory requests equal to limits, so that the scheduler counts what pods may use: {NO_OOM_KILLER}"
            );
            all.push(PreflightFinding::act(text, remedy).by(overcommitted));
        }
        all
    }

    /// Nodes without room for another pod.
    fn density(&self, platform: Option<NodePlatform>) -> Option<PreflightFinding> {
        let full: Vec<String> = { self.loads.iter() }
            .filter_map(|(name, load)| {
                let allocatable = self.windows_nodes.get(name)?.allocatable;
                let of = |used: u64, room: Option<u64>, what: &str| {
                    let room = room.filter(|room| *room > 0 && used >= *room)?;
                    Some(format!("node {name} ({used} of {room} {what})"))
                };
                let addresses = of(load.addresses, allocatable.addresses, "addresses");
                addresses.or_else(|| of(load.pods, allocatable.pods, "pods"))
            })
            .collect();
        let remedy = match platform {
            Some(NodePlatform::Eks) => {
                "add nodes, or set enable-windows-prefix-delegation in the ConfigMap kube-system/amazon-vpc-cni"
            }
            Some(NodePlatform::Aks) => "add nodes, or a node pool with a higher --max-pods",
            _ => "add nodes, or raise maxPods of the kubelet if the network has addresses",
        };
        let text = format!(
            "{} no room for another pod",
            match full.len() {
                1 => "1 Windows node has".to_owned(),
                number => format!("{number} Windows nodes have"),
            }
        );
        (!full.is_empty()).then(|| PreflightFinding::act(text, remedy).by(full))
    }

    fn karpenter(&self) -> impl Iterator<Item = PreflightFinding> {
        self.counted.iter().map(|(pool, daemon_sets)| {
            let text = format!(
                "{pool} states no operating system, so Karpenter counts Windows DaemonSets for its nodes, and may create none \
                 (https://github.com/kubernetes-sigs/karpenter/issues/1009)"
            );
            let remedy = "add the requirement kubernetes.io/os In [linux] to it";
            PreflightFinding::act(text, remedy).by(daemon_sets)
        })
    }

    /// Compares what was requested with the nodes.
    pub fn findings(&self, input: ClusterInput<'_>, not_listed: &BTreeSet<String>) -> Vec<PreflightFinding> {
        let mut all = self.memory();
        all.extend(self.density(input.platform.of_nodes));
        all.extend(services(input));
        all.extend(self.karpenter());
        all.extend(readiness_rules(input));
        let read = [
            "nodes",
            "API groups",
            "nodepools",
            "nodereadinessrules",
            "services",
        ];
        let unread = input.unread(&read).chain(not_listed.iter().map(String::as_str));
        let ending = PreflightFinding::ending(&all, unread, "the Windows nodes have room for their pods");
        all.extend(ending);
        all
    }
}

/// Services whose connections each take a port of a Windows node.
fn services(input: ClusterInput<'_>) -> Option<PreflightFinding> {
    let services = input.environment.cluster_traffic_services?;
    let text = format!(
        "{services} Services have externalTrafficPolicy: Cluster; AKS documents that Windows nodes run out of ports at about 500 \
         (https://learn.microsoft.com/azure/aks/windows-faq)"
    );
    let remedy = "set externalTrafficPolicy: Local where a Service of a Windows workload allows it, or use an ingress controller";
    (services >= MOST_SERVICES).then(|| PreflightFinding::act(text, remedy))
}

/// Readiness rules whose taint is on Windows nodes, because nothing reports their conditions there; and those that only select
/// nodes that declared pools will have.
fn readiness_rules(input: ClusterInput<'_>) -> impl Iterator<Item = PreflightFinding> {
    input.environment.readiness_rules.iter().filter_map(move |rule| {
        let selector = rule.selector.as_ref()?;
        let text = format!(
            "NodeReadinessRule {} keeps pods off Windows nodes with the taint {} until they report {}",
            rule.name,
            rule.taint,
            list(&rule.conditions, MOST)
        );
        let remedy = if selector.names(OS_LABEL) {
            "let an agent on Windows nodes report the condition"
        } else {
            "let an agent on Windows nodes report the condition, or limit its nodeSelector to kubernetes.io/os: linux"
        };
        let windows = input.environment.nodes.iter().filter(|node| node.is_windows);
        let selected: Vec<&AnyNode> = windows.filter(|node| selector.selects(&node.labels)).collect();
        if selected.is_empty() {
            let pools = input.snapshot.facts.pools.iter();
            let pools = pools.filter(|pool| selector.selects(&labels_of_pool(pool)));
            let pools: Vec<String> = pools.map(|pool| format!("WindowsNodePool {}", pool.name)).collect();
            let finding = PreflightFinding {
                remedy: Some(remedy.to_owned()),
                ..PreflightFinding::fine(text)
            };
            return (!pools.is_empty()).then(|| finding.by(pools));
        }
        let is_tainted = |node: &&AnyNode| node.taints.iter().any(|taint| taint.key == rule.taint);
        let tainted = selected.into_iter().filter(is_tainted);
        let tainted: Vec<&str> = tainted.map(|node| node.name.as_str()).collect();
        (!tainted.is_empty()).then(|| PreflightFinding::act(text, remedy).on_nodes(tainted))
    })
}

/// The labels that the nodes of a declared pool will have, as far as it declares them.
fn labels_of_pool(pool: &Host) -> BTreeMap<String, String> {
    let declared = pool.labels.iter();
    let mut labels: BTreeMap<String, String> = declared
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    labels.insert(OS_LABEL.to_owned(), "windows".to_owned());
    labels
}
