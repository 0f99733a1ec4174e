//! Nodes and RuntimeClasses: Windows nodes that pods cannot find or that cannot run them.

mod classes;
mod known_faults;
mod lifecycle;
mod support;

pub use known_faults::NODE_KNOWN_FAULT;

use super::context::Cx;
use super::rule::{Check, Rule};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::nodes::node::{BUILD_LABEL, NodeSigns, major_minor};
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::model::windows::build::{Build, supported_on};

/// Rules TSM901 and up.
pub static RULES: &[&Rule] = &[
    &NODE_BUILD_UNSUPPORTED,
    &NODE_BUILD_LABEL_MISMATCH,
    &NODE_MISSING_BUILD_LABEL,
    &NODE_MISSING_TAINT,
    &NODE_MEMORY_RESERVATION,
    &classes::RUNTIME_CLASS_DOCKER_HANDLER,
    &lifecycle::NODE_EOL_BUILD,
    &lifecycle::NODE_KUBELET_SKEW,
    &lifecycle::NODE_CPU_RESERVATION,
    &lifecycle::NODE_CONTAINERD_VERSION,
    &classes::RUNTIME_CLASS_WITHOUT_SCHEDULING,
    &NODE_KNOWN_FAULT,
    &support::NODE_SUPPORT_ENDS,
    &classes::RUNTIME_CLASS_WITHOUT_OVERHEAD,
];

const VERSIONS: &str = "https://kubernetes.io/docs/concepts/windows/intro/#windows-os-version-support";
const GUIDE: &str = "https://kubernetes.io/docs/concepts/windows/user-guide/";
const RESOURCES: &str = "https://kubernetes.io/docs/concepts/configuration/windows-resource-management/";

/// Common to all rules on nodes.
const OF_NODES: Rule = Rule {
    severity: Severity::Warning,
    class: Class::BestPractice,
    ..Rule::BASE
};

/// The checked node, if it is a Windows node with a kubelet. Its build is that of its kernel, because a label may be stale or
/// wrong.
fn windows_node<'c>(cx: &Cx<'c>) -> Option<&'c dyn NodeSigns> {
    cx.node.filter(|node| node.has_windows())
}

/// Nodes of a build that their release of Kubernetes does not support.
pub static NODE_BUILD_UNSUPPORTED: Rule = Rule {
    id: "TSM901",
    name: "node-build-unsupported",
    summary: "this Kubernetes release does not support the Windows build of the node",
    docs: "Kubernetes tests each release on certain releases of Windows Server only, and the documentation lists them: \
           from 1.25 Windows Server 2019 and 2022, from 1.32 also 2025, and from 1.35 only 2022 and 2025. No code \
           enforces the list: the kubelet starts on any build, and problems appear at run time. The rule uses the \
           release of the node's kubelet, else that of the cluster. If it does not know the list of that release, it \
           reports nothing. For Kubernetes releases newer than this version of Transom (1.38 and later), the rule uses \
           the last known list: it reports nodes of an older Windows, but not of a newer one. Cloud providers may \
           support fewer releases (AKS ended Windows Server 2019 with 1.33), and sometimes more.",
    remedy: "move the node's pods to a pool of a supported Windows Server release, and remove the node",
    see: &[VERSIONS],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.6893, kubeletVersion: v1.35.0}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.1, kubeletVersion: v1.31.4-gke.1}}}",
        "# --kubernetes-version 1.36\n{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {kernelVersion: 10.0.19042.1}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.6893, kubeletVersion: v1.37.0}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.6893, kubeletVersion: v1.39.0}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700, kubeletVersion: v1.36.2}}}",
        // A kubelet may be older than its cluster.
        "# --kubernetes-version 1.36\n{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.6893, kubeletVersion: v1.34.1}}}",
        "# --kubernetes-version 1.37\n{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {kernelVersion: 10.0.26100.1}}}",
        // Newer than the last known release: do not guess what it will support.
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.29500.1, kubeletVersion: v1.39.0}}}",
        // The list of this release is unknown.
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, kubeletVersion: v1.23.0}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: linux, kernelVersion: 5.15.0-1041-azure, kubeletVersion: v1.36.2}}}",
    ],
    check: Check::Object(&[Kind::Node], |cx, out| {
        let Some(node) = windows_node(cx) else { return };
        let own = major_minor(node.kubelet_version());
        let minor = own.map_or(cx.facts.kubernetes, |(_, minor)| minor);
        let (Some(build), Some(support)) = (node.kernel_build(), supported_on(minor)) else {
            return;
        };
        if !support.lacks(build) {
            return;
        }
        let (supported, minor) = (support.builds, support.known);
        let name = |build: &Build| {
            build
                .release()
                .map_or_else(|| build.to_string(), |r| r.product.to_owned())
        };
        let names: Vec<String> = supported.iter().map(name).collect();
        let node_is = build
            .release()
            .map_or_else(|| build.to_string(), |r| format!("{} ({build})", r.product));
        out.report(Path::of(&["status", "nodeInfo", "kernelVersion"]))
            .message(format!(
                "Kubernetes 1.{minor} supports {}, not {node_is}",
                names.join(" and ")
            ));
    }),
    ..OF_NODES
};

static NODE_BUILD_LABEL_MISMATCH: Rule = Rule {
    id: "TSM902",
    name: "node-build-label-mismatch",
    summary: "the label node.kubernetes.io/windows-build does not match the build of the node",
    docs: "Pods that select a Windows build are scheduled by the label `node.kubernetes.io/windows-build`. The kubelet \
           writes the label only when the node registers. After an in-place upgrade of Windows the label stays stale \
           until the kubelet restarts, and `--node-labels` can set it to any value. Pods then land on a node that \
           cannot run them. The correct value is the first three numbers of `status.nodeInfo.kernelVersion`; the label \
           does not include the fourth, the update revision. With a WindowsNodePolicy, Transom keeps the label \
           correct.",
    remedy: "restart the kubelet, or correct the label to the first three numbers of status.nodeInfo.kernelVersion",
    see: &[
        GUIDE,
        "kubernetes: pkg/kubelet/kubelet_node_status_windows.go",
        "kubernetes: pkg/kubelet/winstats/version.go",
    ],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {node.kubernetes.io/windows-build: 10.0.17763}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {node.kubernetes.io/windows-build: 10.0.20348.2700}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: ''}}, status: {nodeInfo: {kernelVersion: 10.0.20348.2700}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {node.kubernetes.io/windows-build: 10.0.20348}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {node.kubernetes.io/windows-build: x}}, status: {nodeInfo: {operatingSystem: linux, kernelVersion: 5.15.0-1041-azure}}}",
    ],
    check: Check::Object(&[Kind::Node], |cx, out| {
        let Some(node) = windows_node(cx) else { return };
        let (Some(label), Some(build)) = (node.label(BUILD_LABEL), node.kernel_build()) else {
            return;
        };
        let truth = build.to_string();
        if *label != *truth {
            out.report(Path::of(&["metadata", "labels"]).key(BUILD_LABEL))
                .message(format!(
                    "the label says \"{}\", but the kernel is {truth}",
                    shown(label)
                ))
                .remedy(format!("restart the kubelet, or set the label to {truth}"));
        }
    }),
    ..OF_NODES
};

static NODE_MISSING_BUILD_LABEL: Rule = Rule {
    id: "TSM903",
    name: "node-missing-build-label",
    summary: "the Windows node has no label node.kubernetes.io/windows-build",
    docs: "Pods that select a Windows build never land on a node without the label. The kubelet writes it since 1.17, \
           but only when the node registers: if the label is removed, it returns when the kubelet restarts. With a \
           WindowsNodePolicy, Transom adds it from `status.nodeInfo.kernelVersion`.",
    remedy: "add the label with the first three numbers of status.nodeInfo.kernelVersion, such as 10.0.20348",
    see: &[GUIDE, "kubernetes: pkg/kubelet/kubelet_node_status_windows.go"],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows, transom.dev.node-restriction.kubernetes.io/windows-build: 10.0.20348}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: linux}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: linux}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}}",
    ],
    check: Check::Object(&[Kind::Node], |cx, out| {
        let Some(node) = windows_node(cx) else { return };
        if node.label(BUILD_LABEL).is_some() {
            return;
        }
        let finding = out.report(Path::of(&["metadata", "labels"]).key(BUILD_LABEL));
        if let Some(build) = node.kernel_build() {
            finding.remedy(format!("add the label with the value {build}"));
        }
    }),
    ..OF_NODES
};

static NODE_MISSING_TAINT: Rule = Rule {
    id: "TSM904",
    name: "node-missing-taint",
    severity: Severity::Advice,
    summary: "no taint keeps Linux pods off the Windows node",
    docs: "Most Linux pods do not select an operating system. Without a taint, the scheduler also places them on \
           Windows nodes, which cannot pull their images. Neither Kubernetes nor its node controllers taint Windows \
           nodes. The usual taint is `os=windows:NoSchedule`, and Transom adds the toleration to Windows pods. Clouds \
           reset the taints of the nodes that they manage, so set the taint in the settings of the pool: \
           `--node-taints` of `az aks nodepool`, `--node-taints` of `gcloud container node-pools`, `taints` of an EKS \
           node group, `--register-with-taints` of a self-managed kubelet. First make sure that every Windows \
           DaemonSet tolerates the taint, because its controller uses the template. The rule accepts any taint with effect \
           `NoSchedule` or `NoExecute`, unless it is temporary. Placement tolerates only taints that mean Windows.",
    remedy: "add the taint os=windows:NoSchedule in the settings of the node pool",
    see: &[
        "https://kubernetes.io/docs/concepts/windows/user-guide/#ensuring-os-specific-workloads-land-on-the-appropriate-container-host",
        "https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/",
    ],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}, spec: {taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}, {key: team, value: windows, effect: PreferNoSchedule}]}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}, spec: {taints: [{key: os, value: windows, effect: PreferNoSchedule}]}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, spec: {taints: [{key: node.kubernetes.io/os, value: windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows}}}",
        // Any key keeps Linux pods off.
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, spec: {taints: [{key: dedicated, value: windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, spec: {taints: [{key: os, value: windows, effect: NoExecute}]}, status: {nodeInfo: {operatingSystem: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: linux}}}",
    ],
    check: Check::Object(&[Kind::Node], |cx, out| {
        let Some(node) = windows_node(cx) else { return };
        if !node.keeps_ordinary_pods_off() {
            out.report(Path::of(&["spec", "taints"]));
        }
    }),
    ..OF_NODES
};

static NODE_MEMORY_RESERVATION: Rule = Rule {
    id: "TSM905",
    name: "node-memory-reservation",
    severity: Severity::Advice,
    summary: "less than 2Gi of memory is reserved for Windows and its services",
    docs: "Windows has no out-of-memory killer: if pods use up the memory of a node, Windows pages to disk, and the \
           node slows down until its kubelet no longer reports. Since 1.31 the kubelet evicts pods before that. \
           Kubernetes recommends at least 2GiB for the system. \
           The rule uses the difference between the node's capacity and its allocatable memory: `--system-reserved`, \
           `--kube-reserved` and the hard eviction threshold, which is 500Mi by default.",
    remedy: "start the kubelet with --system-reserved=memory=2Gi, or set systemReserved in its configuration",
    see: &[RESOURCES],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {capacity: {memory: 16776692Ki}, allocatable: {memory: 16264692Ki}, nodeInfo: {operatingSystem: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {capacity: {memory: 8Gi}, allocatable: {memory: 8Gi}, nodeInfo: {operatingSystem: windows}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {capacity: {memory: 16Gi}, allocatable: {memory: 14Gi}, nodeInfo: {operatingSystem: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {capacity: {memory: 16Gi}, nodeInfo: {operatingSystem: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {capacity: {memory: 16Gi}, allocatable: {memory: 16Gi}, nodeInfo: {operatingSystem: linux}}}",
    ],
    check: Check::Object(&[Kind::Node], |cx, out| {
        const RECOMMENDED: u64 = 2 << 30;
        let reserved = windows_node(cx).and_then(|node| node.reserved().memory);
        if let Some(kept) = reserved.filter(|kept| *kept < RECOMMENDED) {
            out.report(Path::of(&["status", "allocatable"]).key("memory"))
                .message(format!(
                    "{}Mi of memory is reserved for Windows and its services, less than the recommended 2Gi",
                    kept >> 20
                ));
        }
    }),
    ..OF_NODES
};
