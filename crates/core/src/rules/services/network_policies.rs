//! NetworkPolicies that select Windows pods: whether anything enforces them.

use crate::model::cluster::facts::{Facts, WindowsWorkload};
use crate::model::cluster::network_policy_engine::{Enforcement, remedy};
use crate::model::cluster::severity::Severity;
use crate::model::objects::label_selector::LabelSelector;
use crate::model::objects::object::{Body, Object};
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::list;
use crate::rules::rule::{Check, Rule};

/// The maximum number of workloads that a message names.
const MOST: usize = 3;

pub(super) static NETWORK_POLICY_NOT_ENFORCED: Rule = Rule {
    id: "TSM808",
    name: "network-policy-not-enforced",
    severity: Severity::Warning,
    summary: "nothing enforces this NetworkPolicy for Windows pods",
    docs: "The API server stores a NetworkPolicy whether or not anything enforces it. Many engines do not run on Windows \
           nodes: Cilium, the agent of the Amazon VPC CNI, GKE Dataplane V2, OVN-Kubernetes and, since 2026-09-30, Azure \
           Network Policy Manager. A Windows pod that such a policy selects accepts all traffic. The rule recognizes \
           engines by their DaemonSets and by the annotations of Windows nodes. It reports a policy that selects a known \
           Windows workload if only engines without Windows support are known. It reports nothing if Calico or Antrea runs \
           on Windows nodes, or may run there as a service, because no object shows such a service. Admission does not \
           review NetworkPolicies; `transom scan`, `transom check` and reports evaluate them.",
    remedy: "use an engine that runs on Windows nodes, or firewall rules for these nodes",
    see: &[
        "https://kubernetes.io/docs/concepts/services-networking/windows-networking/#network-modes",
        "https://learn.microsoft.com/azure/aks/use-network-policies",
        "https://github.com/cilium/cilium/issues/34929",
        "https://github.com/aws/amazon-vpc-cni-k8s/issues/861",
        "https://docs.tigera.io/calico/latest/getting-started/kubernetes/windows-calico/limitations",
    ],
    bad: &[
        "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny-all, namespace: shop}, spec: {podSelector: {}, policyTypes: [Ingress]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: cilium, namespace: kube-system}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: agent, image: agent}]}}}}",
        // OVN-Kubernetes is seen in an annotation of the node.
        "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: shop}, spec: {podSelector: {matchExpressions: [{key: app, operator: In, values: [web]}]}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {metadata: {labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}}}
---
{apiVersion: v1, kind: Node, metadata: {name: win, labels: {node.openshift.io/os_id: Windows}, annotations: {k8s.ovn.org/hybrid-overlay-node-subnet: 10.132.0.0/24}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}",
    ],
    good: &[
        // Calico may be a service of the Windows nodes.
        "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny-all, namespace: shop}, spec: {podSelector: {}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: aws-node, namespace: kube-system}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: agent, image: agent}]}}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: calico-node, namespace: calico-system}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: agent, image: agent}]}}}}",
        // It selects no Windows pod.
        "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db, namespace: shop}, spec: {podSelector: {matchLabels: {app: db}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: cilium, namespace: kube-system}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: agent, image: agent}]}}}}",
        // No engine is known; the selector is empty, as templates write it.
        "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny-all, namespace: shop}, spec: {podSelector: {matchLabels: null}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    check: Check::Object(&[Kind::NetworkPolicy], |cx, out| {
        let platform = cx.facts.platform();
        let Enforcement::NotEnforced { why, .. } = cx.facts.network.enforcement(platform, cx.facts.today) else { return };
        let selected = selected(cx.subject, cx.facts);
        if !selected.is_empty() {
            let finding = out.report(Path::of(&["spec", "podSelector"]));
            finding.message(format!(
                "nothing enforces this policy for the Windows pods that it selects ({}): {why}",
                list(&selected, MOST)
            ));
            finding.remedy(remedy(platform));
        }
    }),
    ..Rule::BASE
};

/// The known Windows workloads whose pods a NetworkPolicy selects, as in `Deployment web`.
fn selected(subject: &Object<'_>, facts: &Facts) -> Vec<String> {
    let Body::NetworkPolicy(policy) = &subject.body else {
        return Vec::new();
    };
    let Some(selector) = policy.spec.pod_selector.read() else {
        return Vec::new();
    };
    let is_selected = |workload: &&WindowsWorkload| {
        !workload.is_on_host_network
            && *workload.namespace == *subject.namespace
            && LabelSelector::selects(&selector, &workload.labels)
    };
    let selected = facts.workloads.iter().filter(is_selected);
    selected
        .map(|workload| format!("{} {}", workload.kind, workload.name))
        .collect()
}
