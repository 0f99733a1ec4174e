//! The rule on the calendar of the platforms: nodes whose support ends soon or has ended. The dates are data:
//! `crate::model::knowledge`.

use jiff::civil::Date;

use super::{OF_NODES, windows_node};
use crate::model::cluster::severity::Severity;
use crate::model::knowledge::{NodePlatform, SupportDate, product};
use crate::model::nodes::node::major_minor;
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::rules::rule::{Check, Rule};

pub(super) static NODE_SUPPORT_ENDS: Rule = Rule {
    id: "TSM913",
    name: "node-support-ends",
    severities: "warning when the platform no longer supports the node; advice in the 180 days before an end",
    summary: "support for the Windows release of the node ends soon, or has ended on its platform",
    docs: "A platform ends support for a release of Windows Server independently of Microsoft: it publishes no more \
           node images, later removes them, and does not offer the release with newer releases of Kubernetes. The rule \
           knows the platform from labels of the node (AKS, EKS, GKE, OpenShift, Rancher), and uses the dates that the \
           platform has published. If no source states a date, the rule reports nothing. It gives advice from 180 days \
           before an end of support, by Microsoft or by the platform, and before the removal of node images, and \
           warns when the platform's support has ended. The rule `node-eol-build` warns when Microsoft's support has \
           ended. `transom plan` shows the dates of all pools, and `--today` checks for another day.",
    remedy: "move the node's pods to a pool of a Windows Server release in support, and remove the node",
    see: &[
        "https://github.com/Azure/AKS/issues/4091",
        "https://github.com/Azure/AKS/releases/tag/2026-06-19",
        "https://github.com/Azure/AKS/issues/5608",
        "https://docs.aws.amazon.com/eks/latest/userguide/eks-optimized-windows-ami.html",
        "https://github.com/openshift/openshift-docs/pull/105866",
    ],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-2, labels: {kubernetes.azure.com/cluster: a}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297, kubeletVersion: v1.37.0}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {node.openshift.io/os_id: Windows}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.6893, kubeletVersion: v1.35.1}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {eks.amazonaws.com/nodegroup: win}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.19042.1, kubeletVersion: v1.24.0}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.azure.com/cluster: a}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297, kubeletVersion: v1.36.2}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {eks.amazonaws.com/nodegroup: win}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297, kubeletVersion: v1.37.0}}}",
        // The platform is not known.
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297, kubeletVersion: v1.37.0}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: linux-1, labels: {kubernetes.azure.com/cluster: a}}, status: {nodeInfo: {operatingSystem: linux, kernelVersion: 6.8.0, kubeletVersion: v1.37.0}}}",
    ],
    check: Check::Object(&[Kind::Node], |cx, out| {
        let Some(node) = windows_node(cx) else { return };
        let Some(build) = node.kernel_build() else { return };
        let platform = NodePlatform::of_labels(node.labels().keys().map(String::as_str));
        let path = |field| Path::of(&["status", "nodeInfo", field]);
        let today = cx.facts.today;
        for date in cx.facts.knowledge.support_dates(platform, build) {
            let by_platform = date.platform.is_some();
            let has_passed = date.on < today;
            // TSM907 warns of the end of Microsoft's support.
            if !date.is_near(today) || (has_passed && !by_platform) {
                continue;
            }
            let finding = out.report(path("kernelVersion"));
            finding.message(format!(
                "{date}{} ({})",
                in_days(&date, cx.facts.today),
                date.source
            ));
            if !has_passed {
                finding.severity(Severity::Advice);
            }
        }
        let kubelet = major_minor(node.kubelet_version());
        let support = platform.and_then(|platform| cx.facts.knowledge.support_of(platform, build));
        if let (Some((1, minor)), Some(support)) = (kubelet, support)
            && let Some(last) = support.last_minor.filter(|last| *last < minor)
        {
            out.report(path("kubeletVersion")).message(format!(
                "{} supports {} up to Kubernetes 1.{last}, and the kubelet is 1.{minor} ({})",
                support.platform,
                product(build),
                support.source
            ));
        }
    }),
    ..OF_NODES
};

/// The distance to a day, as in ` in 20 days`; empty for a passed one.
fn in_days(date: &SupportDate, today: Date) -> String {
    match date.days_from(today) {
        days @ 0.. => format!(", in {days} days"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::engine::evaluate;
    use crate::model::cluster::facts::Facts;
    use crate::model::cluster::policy::Policy;
    use crate::model::objects::object::{Object, ReviewStage};

    /// The severities of the rule's findings for a node of AKS on a day.
    fn found(kernel: &str, kubelet: &str, today: Date) -> Vec<Severity> {
        let node = format!(
            r#"{{"metadata": {{"name": "w", "labels": {{"kubernetes.azure.com/cluster": "a"}}}}, "status": {{"nodeInfo":
            {{"operatingSystem": "windows", "kernelVersion": "{kernel}", "kubeletVersion": "{kubelet}"}}}}}}"#
        );
        let object = Object::parse(Kind::Node, &node, ReviewStage::Written).unwrap();
        let facts = Facts::new(Facts::KUBERNETES, today);
        let findings = evaluate(&object, &facts, &Policy::standalone()).findings;
        let ours = findings.into_iter().filter(|finding| finding.rule.id == "TSM913");
        ours.map(|finding| finding.severity).collect()
    }

    #[test]
    fn an_end_is_advice_before_it_and_a_warning_after_it() {
        use Severity::{Advice, Warning};
        let (of_2022, of_2019) = ("10.0.20348.2527", "10.0.17763.6893");
        for (kernel, kubelet, today, expected) in [
            (of_2022, "v1.36.2", date(2026, 11, 23), vec![]),
            (of_2022, "v1.37.0", date(2026, 11, 23), vec![Warning]),
            (of_2022, "v1.36.2", date(2028, 1, 1), vec![]),
            (of_2022, "v1.36.2", date(2028, 1, 2), vec![Advice]),
            (of_2022, "v1.36.2", date(2028, 7, 1), vec![Warning]),
            // Support has ended, and the images will be removed.
            (of_2022, "v1.36.2", date(2029, 6, 1), vec![Warning, Advice]),
            (of_2019, "v1.32.9", date(2025, 6, 1), vec![]),
            (of_2019, "v1.32.9", date(2026, 2, 28), vec![Advice]),
            (of_2019, "v1.32.9", date(2026, 3, 2), vec![Warning]),
            (of_2019, "v1.33.2+k3s1", date(2025, 6, 1), vec![Warning]),
            ("10.0.26100.4061", "v1.37.0", date(2026, 11, 23), vec![]),
        ] {
            assert_eq!(
                found(kernel, kubelet, today),
                expected,
                "{kernel} {kubelet} {today}"
            );
        }
    }
}
