//! Extended resources that no known Windows node has.

use std::collections::BTreeSet;

use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::nodes::extended_resources::is_extended;
use crate::model::nodes::node::PRIVATE_IPV4_RESOURCE;
use crate::model::syntax::text::{list, shown};
use crate::rules::context::PodCx;
use crate::rules::rule::{Check, Rule};

/// How many of the resources that nodes offer are listed.
const NAMED: usize = 5;

pub(super) static RESOURCE_NOT_OFFERED: Rule = Rule {
    id: "TSM711",
    name: "resource-not-offered",
    severity: Severity::Warning,
    class: Class::Run,
    summary: "no known Windows node offers this extended resource",
    docs: "The scheduler places a pod only on a node that offers the extended resources that the pod requests, in its \
           `status.allocatable`. Device plugins of GPUs exist for each operating system: those of `nvidia.com/gpu` and \
           `amd.com/gpu` run on Linux nodes, and that of `microsoft.com/directx` on Windows nodes. If none of the known \
           Windows nodes and pools offers the resource, the pod stays Pending. The rule is silent if no Windows node or \
           pool is known, while a node is new, because its device plugin may still start, and if a pool without nodes is \
           remembered, because its nodes may offer it.",
    remedy: "request a resource that Windows nodes offer, or declare it in extendedResources of a WindowsNodePool",
    see: &[
        "https://kubernetes.io/docs/tasks/configure-pod-container/extended-resource/",
        "https://learn.microsoft.com/virtualization/windowscontainers/deploy-containers/gpu-acceleration",
    ],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: w, labels: {kubernetes.io/os: windows}}, status: {allocatable: {cpu: 4, microsoft.com/directx: 1}, nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app, resources: {limits: {nvidia.com/gpu: 1}}}]}}",
        "{apiVersion: v1, kind: Node, metadata: {name: w, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, initContainers: [{name: app, image: app, resources: {requests: {corp.example/fpga: 1}, limits: {corp.example/fpga: 1}}}]}}",
    ],
    good: &[
        "containers: [{name: app, image: app, resources: {limits: {nvidia.com/gpu: 1}}}]",
        "{apiVersion: v1, kind: Node, metadata: {name: w, labels: {kubernetes.io/os: windows}}, status: {allocatable: {cpu: 4, microsoft.com/directx: 1}, nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app, resources: {limits: {microsoft.com/directx: 1, cpu: 1, nvidia.com/gpu: 0}}}]}}",
        "{apiVersion: v1, kind: Node, metadata: {name: l, labels: {kubernetes.io/os: linux}}, status: {allocatable: {nvidia.com/gpu: 1}, nodeInfo: {operatingSystem: linux}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app, resources: {limits: {nvidia.com/gpu: 1}}}]}}",
    ],
    needs: FieldSet::LIMITS.or(FieldSet::REQUESTS),
    check: Check::Pod(|cx, out| {
        if cx.hosts().next().is_none() || cx.spec.is_bound() {
            return;
        }
        for container in cx.containers() {
            let Some(resources) = container.resources.as_ref() else {
                continue;
            };
            for (field, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
                for (name, amount) in amounts {
                    // The API server requires that both are equal.
                    let is_again = field == "requests" && resources.limits.get(name).is_some();
                    let is_requested = is_extended(name) && !is_again && amount.millis() != Some(0);
                    if is_requested && !may_be_offered(cx, name) {
                        let offered: BTreeSet<&str> =
                            cx.hosts().flat_map(|host| host.offered.names()).collect();
                        let what = format!("no known Windows node offers {}", shown(name));
                        out.report(container.at(&["resources", field]).key(name)).message(
                            if offered.is_empty() {
                                what
                            } else {
                                format!("{what}; they offer {}", list(offered, NAMED))
                            },
                        );
                    }
                }
            }
        }
    }),
    ..Rule::BASE
};

/// Whether a node or a pool offers a resource, or a node may soon. What a remembered pool offers is not known. An address of
/// the VPC is there for each pod on EKS.
fn may_be_offered(cx: &PodCx<'_>, resource: &str) -> bool {
    let mut known = cx.facts.sorts();
    resource == PRIVATE_IPV4_RESOURCE
        || cx.hosts().any(|host| host.offered.contains(resource))
        || known.any(|host| host.may_be_at_zero || !host.is_settled)
}
