//! The rule on known faults of the versions that a node reports. The faults are data:
//! `crate::model::knowledge`.

use super::{OF_NODES, windows_node};
use crate::model::cluster::severity::Severity;
use crate::model::knowledge::{FaultField, NodeFault};
use crate::model::nodes::node::INSTANCE_TYPE_LABEL;
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::list;
use crate::rules::rule::{Check, Rule};

/// Nodes with a known fault of Windows, Kubernetes or a component on the node.
pub static NODE_KNOWN_FAULT: Rule = Rule {
    id: "TSM912",
    name: "node-known-fault",
    severities: "warning; one advice for all faults that depend on the workloads or on something that the node does not report, or that only users reported",
    summary: "the node runs a version with a known fault",
    docs: "Some versions of Windows, of the kubelet and of containerd have faults that break pods, and so do some \
           machine types. Transom has a table of them, with sources. It compares the table with what the node reports: \
           the update revision (UBR) in `status.nodeInfo.kernelVersion`, `kubeletVersion`, `containerRuntimeVersion`, \
           the label `node.kubernetes.io/instance-type`, and the network plugin. The network plugin is known only if \
           it writes annotations to the node, as Calico and Flannel do. A message states the affected range and the \
           source, and whether the fixed version is not known. `transom scan`, `plan` and `preflight` show the same \
           faults, and so does `status.knownFaults` of a WindowsNodePolicy.",
    remedy: "install the version with the fix",
    see: &[
        "https://github.com/microsoft/Windows-Containers/issues/516",
        "https://github.com/projectcalico/calico/issues/8529",
        "https://github.com/kubernetes/kubernetes/issues/126965",
        "https://github.com/rancher/rke2/issues/9591",
        "https://github.com/Azure/AKS/issues/5187",
        "https://github.com/containerd/containerd/issues/8070",
    ],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, annotations: {projectcalico.org/IPv4Address: 10.0.0.4/24}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2582, kubeletVersion: v1.36.2, containerRuntimeVersion: 'containerd://2.1.9'}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297, kubeletVersion: v1.31.0, containerRuntimeVersion: 'containerd://2.1.9'}}}",
        // The network plugin is not known: advice.
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700, kubeletVersion: v1.36.2, containerRuntimeVersion: 'containerd://2.1.9'}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {node.kubernetes.io/instance-type: Standard_D4ads_v6}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297, kubeletVersion: v1.36.2, containerRuntimeVersion: 'containerd://2.1.9'}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297, kubeletVersion: v1.34.3+rke2r1, containerRuntimeVersion: 'containerd://2.1.5-k3s1'}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, annotations: {projectcalico.org/IPv4Address: 10.0.0.4/24}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2762, kubeletVersion: v1.38.0, containerRuntimeVersion: 'containerd://2.1.9'}}}",
        // Another network plugin.
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, annotations: {node.antrea.io/mac-address: '00:11:22:33:44:55'}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700, kubeletVersion: v1.38.0, containerRuntimeVersion: 'containerd://2.1.9'}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {node.kubernetes.io/instance-type: Standard_D4ds_v5}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297, kubeletVersion: v1.38.0+k3s1, containerRuntimeVersion: 'containerd://1.7.33'}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: linux-1}, status: {nodeInfo: {operatingSystem: linux, kernelVersion: 6.8.0, kubeletVersion: v1.31.0, containerRuntimeVersion: 'containerd://1.6.6'}}}",
    ],
    check: Check::Object(&[Kind::Node], |cx, out| {
        let Some(node) = windows_node(cx) else { return };
        let faults = cx.facts.knowledge.faults_of_node(node);
        let (certain, mut possible): (Vec<NodeFault>, Vec<NodeFault>) =
            faults.into_iter().partition(|fault| fault.is_certain);
        for fault in certain {
            out.report(path_of(fault.field))
                .message(fault.message)
                .remedy(fault.remedy);
        }
        // One finding, because most nodes have some.
        let Some(first) = possible.first() else { return };
        let finding = out.report(path_of(first.field));
        finding.severity(Severity::Advice);
        if possible.len() > 1 {
            let ids = list(possible.iter().map(|fault| &fault.id), possible.len());
            let message = format!(
                "the versions of the node may have {} faults: {ids}",
                possible.len()
            );
            finding
                .message(message)
                .remedy("transom knowledge list shows whom they affect, and their remedies");
        } else if let Some(fault) = possible.pop() {
            finding.message(fault.message).remedy(fault.remedy);
        }
    }),
    ..OF_NODES
};

fn path_of(field: FaultField) -> Path {
    let of_info = |field| Path::of(&["status", "nodeInfo", field]);
    match field {
        FaultField::KernelVersion => of_info("kernelVersion"),
        FaultField::KubeletVersion => of_info("kubeletVersion"),
        FaultField::ContainerRuntimeVersion => of_info("containerRuntimeVersion"),
        FaultField::InstanceType => Path::of(&["metadata", "labels"]).key(INSTANCE_TYPE_LABEL),
    }
}
