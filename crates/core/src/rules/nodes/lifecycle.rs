//! Rules on the maintenance of Windows nodes: releases of Windows, kubelet and containerd that are too old, and CPU
//! that is not reserved.

use super::{OF_NODES, RESOURCES, VERSIONS, windows_node};
use crate::model::cluster::severity::Severity;
use crate::model::nodes::node::major_minor;
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::model::windows::build::Build;
use crate::rules::rule::{Check, Rule};

const SKEW: &str = "https://kubernetes.io/releases/version-skew-policy/#kubelet";

pub(super) static NODE_EOL_BUILD: Rule = Rule {
    id: "TSM907",
    name: "node-eol-build",
    summary: "the Windows release of the node is out of support",
    docs: "After the end of support, Microsoft publishes no security updates for a release of Windows Server. For \
           long-term releases (LTSC) the rule uses the end of extended support, for others that of mainstream support. \
           It skips a release whose end is not documented. For the annual channel (23H2) the rule uses 2026-05-15. \
           After that day AKS provides no images or security patches for it and creates no pools with it. On \
           2027-05-15 AKS removes the images, so that scaling a remaining pool fails. The rule \
           `node-build-unsupported` checks which releases Kubernetes supports.",
    remedy: "move the node's pods to a pool of a Windows Server release in support, and remove the node",
    see: &[
        "https://learn.microsoft.com/windows-server/get-started/windows-server-release-info",
        "https://github.com/Azure/AKS/issues/5608",
    ],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.19042.1}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.18363.1556}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.6893}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.25398.1}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}}",
    ],
    check: Check::Object(&[Kind::Node], |cx, out| {
        let Some(node) = windows_node(cx) else { return };
        let Some(release) = node.kernel_build().and_then(Build::release) else {
            return;
        };
        if let Some(end) = release.end_of_support().filter(|end| *end < cx.facts.today) {
            out.report(Path::of(&["status", "nodeInfo", "kernelVersion"]))
                .message(format!("support for {} ended on {end}", release.product));
        }
    }),
    ..OF_NODES
};

pub(super) static NODE_KUBELET_SKEW: Rule = Rule {
    id: "TSM908",
    name: "node-kubelet-skew",
    summary: "the kubelet of the Windows node is too old for its cluster",
    docs: "A kubelet may be three minor releases older than the API server (two before 1.28), and never newer. Windows \
           pools are often the last to be upgraded. In a cluster, the rule compares with the API server. For files, it \
           compares with the newest kubelet among the given nodes, including Linux nodes, because the API server is \
           at least as new.",
    remedy: "upgrade the node pool",
    see: &[SKEW],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, kubeletVersion: v1.31.4}}}
---
{apiVersion: v1, kind: Node, metadata: {name: linux-1}, status: {nodeInfo: {operatingSystem: linux, kernelVersion: 6.8.0, kubeletVersion: v1.35.2}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: linux-1}, status: {nodeInfo: {operatingSystem: linux, kernelVersion: 6.8.0, kubeletVersion: v1.27.2}}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, kubeletVersion: v1.24.0}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, kubeletVersion: v1.32.4}}}
---
{apiVersion: v1, kind: Node, metadata: {name: linux-1}, status: {nodeInfo: {operatingSystem: linux, kernelVersion: 6.8.0, kubeletVersion: v1.35.2}}}",
        // A single kubelet does not show the release of the API server.
        "# --kubernetes-version 1.37\n{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, kubeletVersion: v1.31.4}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: linux-0}, status: {nodeInfo: {operatingSystem: linux, kernelVersion: 6.8.0, kubeletVersion: v1.28.0}}}
---
{apiVersion: v1, kind: Node, metadata: {name: linux-1}, status: {nodeInfo: {operatingSystem: linux, kernelVersion: 6.8.0, kubeletVersion: v1.35.2}}}",
    ],
    check: Check::Object(&[Kind::Node], |cx, out| {
        let Some(node) = windows_node(cx) else { return };
        let own = major_minor(node.kubelet_version());
        let (Some((1, own)), Some(newest)) = (own, cx.facts.oldest_api_server) else {
            return;
        };
        let allowed = if newest < 28 { 2 } else { 3 };
        if own + allowed < newest {
            out.report(Path::of(&["status", "nodeInfo", "kubeletVersion"])).message(format!(
                "the kubelet is 1.{own}, {} releases older than the cluster, which has at least 1.{newest}; {allowed} are supported",
                newest - own
            ));
        }
    }),
    ..OF_NODES
};

pub(super) static NODE_CPU_RESERVATION: Rule = Rule {
    id: "TSM909",
    name: "node-cpu-reservation",
    severity: Severity::Advice,
    summary: "no CPU is reserved for Windows and its services",
    docs: "Kubernetes recommends reserving CPU for the system on Windows nodes, as well as memory. If pods use all of \
           the CPU, the kubelet and the container runtime get too little, and the node becomes NotReady. The rule uses \
           the difference between the node's capacity and its allocatable CPU: `--system-reserved` and \
           `--kube-reserved`. The kubelet's `--windows-priorityclass` also helps, but does not appear in the Node \
           object.",
    remedy: "start the kubelet with --system-reserved=cpu=500m, or set systemReserved in its configuration",
    see: &[RESOURCES],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {capacity: {cpu: 4, memory: 16Gi}, allocatable: {cpu: 4, memory: 14Gi}, nodeInfo: {operatingSystem: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {capacity: {cpu: '8'}, allocatable: {cpu: 8000m}, nodeInfo: {operatingSystem: windows}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {capacity: {cpu: 4}, allocatable: {cpu: 3860m}, nodeInfo: {operatingSystem: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {capacity: {cpu: 4}, nodeInfo: {operatingSystem: windows}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: linux-1}, status: {capacity: {cpu: 4}, allocatable: {cpu: 4}, nodeInfo: {operatingSystem: linux}}}",
    ],
    check: Check::Object(&[Kind::Node], |cx, out| {
        let reserved = windows_node(cx).and_then(|node| node.reserved().cpu);
        if reserved == Some(0) {
            out.report(Path::of(&["status", "allocatable"]).key("cpu"));
        }
    }),
    ..OF_NODES
};

pub(super) static NODE_CONTAINERD_VERSION: Rule = Rule {
    id: "TSM910",
    name: "node-containerd-version",
    severities: "warning; advice when the release is no longer maintained",
    summary: "containerd on the Windows node is too old",
    docs: "containerd 1.6 is the first that runs HostProcess containers, which network plugins, CSI drivers and \
           kube-proxy on Windows use today. It is also the first with version 1 of the runtime interface: the kubelet \
           of Kubernetes 1.26 and later does not start with an older containerd. An older containerd is a warning. \
           containerd 1.6 and 1.7 are advice from the day after their end of life (2025-08-23, and the end of \
           September 2026). The kubelet of Kubernetes 1.38 drops the flags and fallbacks for runtimes without \
           `RuntimeConfig`, and with them containerd 1.x. Upgrade the nodes to containerd 2 before they get that \
           kubelet. (The removal was planned for 1.36 and 1.37, and deferred twice.) A platform may maintain its own \
           build of 1.7 for longer.",
    remedy: "install a supported containerd on the node, or move its pods to a pool with a supported containerd",
    see: &[
        "https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/#before-you-begin",
        "https://kubernetes.io/blog/2022/11/18/upcoming-changes-in-kubernetes-1-26/#cri-api-removal",
        "https://containerd.io/releases/",
        "https://github.com/kubernetes/kubernetes/pull/139121",
        VERSIONS,
    ],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, containerRuntimeVersion: 'containerd://1.5.13'}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, containerRuntimeVersion: 'containerd://1.4.0-beta.2'}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://1.6.39'}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://1.7.20+azure'}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://2.1.9'}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, containerRuntimeVersion: 'docker://20.10.9'}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: linux-1}, status: {nodeInfo: {operatingSystem: linux, containerRuntimeVersion: 'containerd://1.5.13'}}}",
    ],
    check: Check::Object(&[Kind::Node], |cx, out| {
        let Some(node) = windows_node(cx) else { return };
        let Some(containerd) = node.containerd() else {
            return;
        };
        let version = node.container_runtime();
        let path = || Path::of(&["status", "nodeInfo", "containerRuntimeVersion"]);
        if containerd < (1, 6) {
            out.report(path())
                .message(format!("{} is older than containerd 1.6", shown(version)));
            return;
        }
        let end = cx.facts.knowledge.containerd_end(containerd);
        if let Some(end) = end.filter(|end| *end < cx.facts.today) {
            out.report(path()).severity(Severity::Advice).message(format!(
                "maintenance of {} ended on {end}, and the kubelet of Kubernetes 1.38 needs containerd 2",
                shown(version)
            ));
        }
    }),
    ..OF_NODES
};

#[cfg(test)]
mod tests {
    use jiff::civil::{Date, date};

    use crate::engine::evaluate;
    use crate::model::cluster::facts::Facts;
    use crate::model::cluster::policy::Policy;
    use crate::model::objects::object::{Object, ReviewStage};

    use super::*;

    /// The findings of this file's rules for a node on a day.
    fn reported(kernel: &str, containerd: &str, today: Date) -> Vec<(&'static str, Severity, String)> {
        let node = format!(
            r#"{{"metadata": {{"name": "w"}}, "status": {{"nodeInfo": {{"operatingSystem": "windows", "kernelVersion":
            "{kernel}", "containerRuntimeVersion": "containerd://{containerd}"}}}}}}"#
        );
        let subject = Object::parse(Kind::Node, &node, ReviewStage::Written).unwrap();
        let evaluation = evaluate(
            &subject,
            &Facts::new(Facts::KUBERNETES, today),
            &Policy::standalone(),
        );
        let ours = evaluation
            .findings
            .into_iter()
            .filter(|f| ["TSM907", "TSM910"].contains(&f.rule.id));
        ours.map(|f| (f.rule.id, f.severity, f.message.into_owned()))
            .collect()
    }

    #[test]
    fn containerd_and_the_annual_channel_end_on_their_days() {
        let ids = |kernel, containerd, today| {
            let reported = reported(kernel, containerd, today).into_iter();
            reported
                .map(|(id, severity, _)| (id, severity))
                .collect::<Vec<_>>()
        };
        let server_2022 = "10.0.20348.2700";
        assert_eq!(ids(server_2022, "1.7.30", date(2026, 9, 30)), []);
        assert_eq!(
            ids(server_2022, "1.7.30", date(2026, 10, 1)),
            [("TSM910", Severity::Advice)]
        );
        assert_eq!(ids(server_2022, "1.6.39", date(2025, 8, 23)), []);
        assert_eq!(ids(server_2022, "2.1.4", date(2030, 1, 1)), []);
        assert_eq!(
            ids(server_2022, "1.5.13", date(2025, 1, 1)),
            [("TSM910", Severity::Warning)]
        );
        let [(_, _, message)] =
            <[_; 1]>::try_from(reported(server_2022, "1.7.30", date(2026, 11, 22))).unwrap();
        assert!(
            message.contains("2026-09-30") && message.contains("1.38"),
            "{message}"
        );
        let annual = "10.0.25398.1";
        assert_eq!(ids(annual, "2.1.4", date(2026, 5, 15)), []);
        assert_eq!(
            ids(annual, "2.1.4", date(2026, 5, 16)),
            [("TSM907", Severity::Warning)]
        );
    }
}
