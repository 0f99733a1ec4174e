//! Templates without evidence of an operating system that only Windows nodes can run.

use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::nodes::node::{Host, LABELS_OF_ONE_NODE};
use crate::model::nodes::node_affinity::Match;
use crate::model::objects::workload::Kind;
use crate::model::syntax::text::shown;
use crate::model::windows::os::Verdict;
use crate::rules::context::PodCx;
use crate::rules::rule::{Check, Rule};

/// Pods that only Windows nodes can run, and that do not say that they are for Windows.
pub static WINDOWS_NODES_ONLY: Rule = Rule {
    id: "TSM712",
    name: "windows-nodes-only",
    severity: Severity::Warning,
    class: Class::BestPractice,
    verdicts: &[Verdict::Unknown],
    summary: "only Windows nodes match what the pod requires of its node, but nothing says that it is for Windows",
    docs: "A nodeSelector with the name of a node or a pool, a required node affinity with `matchFields`, and `nodeName` \
           are no evidence that a pod is for Windows. Transom therefore does not check the fields of such a pod, and \
           placement does not change it. The rule compares the requirements of the pod with all known nodes and pools. \
           It reports the pod if at least one of them matches, and all that match are for Windows. It is a warning, \
           because a pool of Linux nodes may be at zero, and silent if only Windows nodes are known. Admission reports only pods that the API server sends to \
           Transom for another reason; `scan`, `preflight` and reports read all of them.",
    remedy: "add nodeSelector kubernetes.io/os: windows, or name the label in cluster.nodeLabels of the chart's values",
    see: &["https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/"],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: w, labels: {agentpool: win19}}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: l, labels: {agentpool: lin}}, status: {nodeInfo: {operatingSystem: linux}}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {agentpool: win19}, containers: [{name: app, image: app}]}}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: w}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: l}, status: {nodeInfo: {operatingSystem: linux}}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [w]}]}]}}}, containers: [{name: app, image: app}]}}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: w}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: l}, status: {nodeInfo: {operatingSystem: linux}}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {nodeName: w, containers: [{name: app, image: app}]}}}}",
    ],
    good: &[
        // Without Linux nodes, the list of nodes is not complete.
        "{apiVersion: v1, kind: Node, metadata: {name: w, labels: {agentpool: win19}}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {agentpool: win19}, containers: [{name: app, image: app}]}}}}",
        // A Linux node matches too.
        "{apiVersion: v1, kind: Node, metadata: {name: w, labels: {disk: ssd}}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: l, labels: {disk: ssd}}, status: {nodeInfo: {operatingSystem: linux}}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {disk: ssd}, containers: [{name: app, image: app}]}}}}",
        // The pod requires nothing.
        "{apiVersion: v1, kind: Node, metadata: {name: w}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: l}, status: {nodeInfo: {operatingSystem: linux}}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {tolerations: [{operator: Exists}], containers: [{name: app, image: app}]}}}}",
        // The pod of `kubectl debug node`.
        "{apiVersion: v1, kind: Node, metadata: {name: w}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: l}, status: {nodeInfo: {operatingSystem: linux}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: node-debugger-w-abcde}, spec: {nodeName: w, hostPID: true, containers: [{name: app, image: app}]}}",
        // What a Linux node that a file shortens has is not known.
        "{apiVersion: v1, kind: Node, metadata: {name: w}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: l}, status: {nodeInfo: {operatingSystem: linux}}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {kubernetes.io/arch: amd64}, containers: [{name: app, image: app}]}}}}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        if let Some(host) = only_windows(cx) {
            let path = match cx.spec {
                spec if spec.is_bound() => cx.at(&["nodeName"]),
                spec if spec.node_selector.is_empty() => cx.at(&["affinity", "nodeAffinity"]),
                _ => cx.at(&["nodeSelector"]),
            };
            out.report(path).message(format!(
                "only Windows nodes such as {} match what the pod requires of its node, but nothing says that it is for Windows",
                shown(&host.name)
            ));
        }
    }),
    ..Rule::BASE
};

/// A Windows node or pool that matches what a pod requires of its node, if there is one and no other node matches. Taints
/// do not matter: they can be removed.
fn only_windows<'c>(cx: &PodCx<'c>) -> Option<&'c Host> {
    let others = &cx.facts.other_nodes;
    // Every cluster has other nodes, so without them the list is not complete. A controller created its pods from a template,
    // or for a node that it chose.
    if !cx.facts.knows_nodes || others.is_empty() || cx.meta.controller().is_some() {
        return None;
    }
    if let Some(name) = cx.spec.node_name.as_deref().filter(|_| cx.spec.is_bound()) {
        // A pod that names its node is one of `kubectl debug node`, or was scheduled.
        let mut hosts = cx.facts.hosts().iter().filter(|_| cx.subject.kind != Kind::Pod);
        return hosts.find(|host| host.name == name);
    }
    let constraints = cx.reach().constraints();
    if constraints.is_empty() {
        return None;
    }
    let matches = |host: &&'c Host| constraints.matches(*host) == Match::Yes;
    let windows = if constraints.name_any(&LABELS_OF_ONE_NODE) {
        cx.facts.hosts().iter().find(matches)
    } else {
        cx.facts.sorts().find(matches)
    };
    let windows = windows.or_else(|| cx.facts.pools.iter().find(matches))?;
    let is_only = others.iter().all(|node| constraints.matches(node) == Match::No);
    is_only.then_some(windows)
}
