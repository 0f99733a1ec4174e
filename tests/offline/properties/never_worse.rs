//! Placement never makes a pod worse off: whatever node the scheduler would have put it on, and that runs it, is still there.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;
use transom::engine::{AdmissionStage, TaintChange, infer_os};
use transom::model::cluster::facts::Facts;
use transom::model::nodes::node::{BUILD_LABEL, Host, PRIVATE_IPV4_RESOURCE, Taint};
use transom::model::objects::object::{Object, ReviewStage};
use transom::model::objects::workload::Kind;
use transom::model::objects::workload::custom::PodLayout;
use transom::model::windows::build::Build;
use transom::model::windows::os::Verdict;

use super::{cases, identities, inspected, mutate};
use crate::support::schedule::{Cluster, any_cluster, any_pod};

/// How many replicas are placed one after the other.
const REPLICAS: usize = 4;

fn label(cluster: &Cluster, name: &str) -> Option<String> {
    Some(
        cluster.node(name)["metadata"]["labels"][BUILD_LABEL]
            .as_str()?
            .to_owned(),
    )
}

/// Whether the pod asks for an address that only nodes that are new, and do not offer it yet, would not give it.
fn without_new_nodes(cluster: &Cluster, after: &Value, runnable: &BTreeSet<String>) -> BTreeSet<String> {
    let asks = after["spec"]["containers"][0]["resources"]["requests"]
        .get(PRIVATE_IPV4_RESOURCE)
        .is_some();
    let is_new = |name: &String| {
        cluster.node(name)["status"]["conditions"][0]["lastTransitionTime"] == "2026-01-01T11:58:00Z"
    };
    (runnable.iter())
        .filter(|name| !(asks && is_new(name)))
        .cloned()
        .collect()
}

/// Whether the author chose the build in the nodeSelector or by a RuntimeClass; or by the affinity, a node or a pool, and
/// that leaves no right node: then it is the author's choice, and another rule's finding.
fn chose(cluster: &Cluster, pod: &Value, right_before: bool) -> bool {
    let spec = &pod["spec"];
    let class = spec["runtimeClassName"]
        .as_str()
        .and_then(|name| cluster.classes.get(name));
    let by_class = class.is_some_and(|class| class.node_selector.contains_key(BUILD_LABEL));
    spec["nodeSelector"].get(BUILD_LABEL).is_some()
        || by_class
        || (!right_before
            && (spec["affinity"].to_string().contains(BUILD_LABEL)
                || ["kubernetes.io/hostname", "agentpool"]
                    .iter()
                    .any(|of| spec["nodeSelector"].get(of).is_some())))
}

fn check(cluster: &Cluster, pod: &Value) -> Result<(), TestCaseError> {
    let facts = cluster.facts();
    let (_, operations, after) = mutate(pod, &facts, &cluster.policy);
    let patch = operations
        .map(|operations| operations.to_string())
        .unwrap_or_default();
    let patch = format!("{patch} in {}", cluster.brief());
    let again = mutate(&after, &facts, &cluster.policy).1;
    prop_assert!(again.is_none(), "placed again: {again:?} after {patch}");

    let runnable = without_new_nodes(cluster, &after, &cluster.runnable(pod));
    let mut replicas: Vec<String> = Vec::new();
    for _ in 0..REPLICAS {
        let before = cluster.feasible(pod, &replicas);
        let now = cluster.feasible(&after, &replicas);
        let lost: Vec<&String> = before
            .intersection(&runnable)
            .filter(|name| !now.contains(*name))
            .collect();
        prop_assert!(
            lost.is_empty(),
            "lost {lost:?} with replicas on {replicas:?} by {patch} of {pod}"
        );
        no_wrong_node(cluster, pod, &after, &now, &patch)?;
        let Some(next) = now.into_iter().next() else { break };
        replicas.push(next);
    }
    Ok(())
}

/// A pod whose build is certain goes to no wrong node that a label tells from the right ones; for any other a finding says so.
fn no_wrong_node(
    cluster: &Cluster,
    pod: &Value,
    after: &Value,
    now: &BTreeSet<String>,
    patch: &str,
) -> Result<(), TestCaseError> {
    let images = pod["spec"]["containers"].as_array().into_iter().flatten();
    let certain = images
        .filter_map(|container| container["image"].as_str())
        .all(|image| cluster.is_certain(image));
    let all_windows =
        cluster.runnable(&serde_json::json!({"spec": {"containers": [{"name": "c", "image": "x"}]}}));
    let right = cluster.runnable(pod);
    let free = cluster.feasible(pod, &[]);
    let right_before = free.intersection(&right).next().is_some();
    // An image for both systems does not say that the pod is for Windows.
    let is_windows = || {
        inspected(after, &cluster.facts(), &cluster.policy)
            .inference
            .verdict
            == Verdict::Windows
    };
    if !certain || chose(cluster, pod, right_before) || !is_windows() {
        return Ok(());
    }
    let right_labels: BTreeSet<String> = right.iter().filter_map(|name| label(cluster, name)).collect();
    for wrong in now
        .iter()
        .filter(|name| all_windows.contains(*name) && !right.contains(*name))
    {
        let reported = label(cluster, wrong);
        let kernel = cluster.node(wrong)["status"]["nodeInfo"]["kernelVersion"]
            .as_str()
            .unwrap_or_default();
        let own = Build::parse_kernel_version(kernel).map(|(build, _)| build.to_string());
        let is_reported = reported
            .as_ref()
            .is_some_and(|label| !right_labels.contains(label))
            && reported == own;
        // The wrong nodes may be needed as domains; then a finding says so.
        let needs_domains = pod["spec"]["topologySpreadConstraints"][0]["minDomains"].as_i64() > Some(1);
        // Images of which no release runs all: nothing is required, and a finding says so.
        let is_possible = cluster.is_possible(pod);
        prop_assert!(
            !is_reported || needs_domains || !is_possible,
            "{wrong} is wrong, and its label says so: {patch} {pod}"
        );
        let open = identities(inspected(after, &cluster.facts(), &cluster.policy).open());
        let is_mentioned = open.iter().any(|(rule, _)| ["TSM702", "TSM601"].contains(rule));
        prop_assert!(is_mentioned, "nothing is said of {wrong}: {open:?} {pod} {patch}");
    }
    Ok(())
}

/// A taint that some Windows nodes get.
#[derive(Clone, Debug)]
struct NewTaint {
    taint: Taint,
    /// Whether it replaces taints of the same key, which have another value or effect.
    replaces: bool,
    /// The bits choose the nodes.
    nodes: u8,
}

fn any_new_taint() -> impl Strategy<Value = NewTaint> {
    let taints = vec![
        Taint::no_schedule("os", "windows"),
        Taint::no_schedule("os", "win"),
        Taint::no_schedule("os", "other"),
        Taint {
            effect: "NoExecute".to_owned(),
            ..Taint::no_schedule("os", "windows")
        },
        Taint::no_schedule("node.kubernetes.io/os", "windows"),
        Taint::no_schedule("team", "blue"),
        Taint::no_schedule("team", "green"),
    ];
    (prop::sample::select(taints), any::<bool>(), any::<u8>()).prop_map(|(taint, replaces, nodes)| NewTaint {
        taint,
        replaces,
        nodes,
    })
}

/// The same cluster with this taint on some of its Windows nodes.
fn tainted(cluster: &Cluster, new: &NewTaint) -> Cluster {
    let NewTaint {
        taint,
        replaces,
        nodes,
    } = new;
    let mut changed = cluster.clone();
    let windows = (changed.nodes.iter_mut())
        .filter(|node| node["status"]["nodeInfo"]["operatingSystem"] == "windows")
        .enumerate();
    for (_, node) in windows.filter(|(index, _)| nodes & (1 << (index % 8)) != 0) {
        let taints = node["spec"]["taints"].as_array_mut().expect("taints");
        let added = serde_json::json!({"key": taint.key, "value": taint.value, "effect": taint.effect});
        if *replaces {
            taints.retain(|old| old["key"] != added["key"]);
        }
        if !taints.contains(&added) {
            taints.push(added);
        }
    }
    changed
}

/// The pod without requests for addresses, which placement adds.
pub(super) fn without_addresses(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        for amounts in ["limits", "requests"] {
            let amounts = container.pointer_mut(&format!("/resources/{amounts}"));
            if let Some(amounts) = amounts.and_then(Value::as_object_mut) {
                amounts.remove(PRIVATE_IPV4_RESOURCE);
            }
        }
    }
    pod
}

/// The nodes that run a pod and that the scheduler could put it on, apart from requests for addresses.
fn reached(cluster: &Cluster, pod: &Value) -> BTreeSet<String> {
    let pod = without_addresses(pod);
    let runnable = cluster.runnable(&pod);
    cluster
        .feasible(&pod, &[])
        .intersection(&runnable)
        .cloned()
        .collect()
}

/// A kind, and the path of its pod template.
type TemplateKind = (Kind, &'static [&'static str]);

/// Every kind with a pod template at one path. The pods of Argo Workflows and of Tekton are composed of several fields.
fn template_kinds() -> Vec<TemplateKind> {
    let path = |kind: Kind| match kind.layout() {
        Some(PodLayout::Template(path)) => Some(path),
        Some(_) => None,
        None => kind.template(),
    };
    let kinds = Kind::ALL.into_iter();
    kinds.filter_map(|kind| Some((kind, path(kind)?))).collect()
}

/// An object with this pod as its template.
fn with_template(path: &[&str], pod: &Value) -> Value {
    if path.is_empty() {
        return pod.clone();
    }
    let template = serde_json::json!({"spec": pod["spec"]});
    let mut object = path
        .iter()
        .rev()
        .fold(template, |below, &field| serde_json::json!({ field: below }));
    object["metadata"] = serde_json::json!({"name": "t", "namespace": "default"});
    object
}

/// What the guard says of a template before taints are set or changed is what happens to its pods: those that are created
/// before, during and after, and after the taints are as before again.
fn check_taints(
    cluster: &Cluster,
    (kind, path): TemplateKind,
    pod: &Value,
    new: &NewTaint,
) -> Result<(), TestCaseError> {
    let (facts, then) = (cluster.facts(), tainted(cluster, new));
    let taints_of = |host: &Host, of: &Facts| {
        let found = of.hosts().iter().find(|other| other.name == host.name);
        found.map(|found| found.taints.clone()).unwrap_or_default()
    };
    let after = then.facts();
    let change = TaintChange::new(
        &facts,
        |host| host.taints.clone(),
        |host| taints_of(host, &after),
        |_| 0,
    );
    let mut during = facts.clone();
    during.replace_hosts(facts.hosts().iter().cloned().map(|mut host| {
        if !host.may_be_at_zero {
            host.planned_taints = Some(taints_of(&host, &after)).filter(|planned| *planned != host.taints);
        }
        host
    }));
    let text = with_template(path, pod).to_string();
    let subject = Object::parse(kind, &text, ReviewStage::Stored).expect("a template");
    let inference = infer_os(&subject, &facts, &cluster.policy);
    if inference.verdict != Verdict::Windows {
        return Ok(());
    }
    let admission = AdmissionStage::of_template(&subject, true);
    if !change
        .lost(&subject, &inference, &cluster.policy, admission)
        .is_empty()
    {
        // The guard does not let the taints be set.
        return Ok(());
    }
    let created = |facts: &Facts| match admission {
        // The controller of a DaemonSet reads its template, without the RuntimeClass.
        AdmissionStage::AsWritten => {
            let mut pod = pod.clone();
            pod["spec"]
                .as_object_mut()
                .expect("a spec")
                .remove("runtimeClassName");
            pod
        }
        _ => mutate(pod, facts, &cluster.policy).2,
    };
    // What a DaemonSet's images need is decided with its RuntimeClass.
    let runnable = cluster.runnable(pod);
    let reached = |cluster: &Cluster, pod: &Value| -> BTreeSet<String> {
        reached(cluster, pod).intersection(&runnable).cloned().collect()
    };
    let before = reached(cluster, &created(&facts));
    let (new, meanwhile) = (created(&after), created(&during));
    let patch = format!("{new} in {}", cluster.brief());
    for (pod, when) in [(&new, "after"), (&meanwhile, "during")] {
        let now = reached(&then, pod);
        let gone: Vec<&String> = before.difference(&now).collect();
        prop_assert!(
            gone.is_empty(),
            "a pod that was created {when} it loses {gone:?}, and the guard allows it: {patch}"
        );
    }
    // Nothing is lost while the taint is not there yet, and once it is gone.
    let own = if admission == AdmissionStage::AsWritten {
        before
    } else {
        reached(cluster, pod)
    };
    for pod in [&meanwhile, &new] {
        let now = reached(cluster, pod);
        let gone: Vec<&String> = own.difference(&now).collect();
        prop_assert!(gone.is_empty(), "loses {gone:?} without the taint: {patch}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn the_guard_foresees_what_taints_do(
        cluster in any_cluster(),
        pod in any_pod(),
        kind in prop::sample::select(template_kinds()),
        taint in any_new_taint(),
    ) {
        check_taints(&cluster, kind, &pod, &taint)?;
    }

    #[test]
    fn a_pod_keeps_every_node_that_runs_it_and_goes_to_no_wrong_one(cluster in any_cluster(), pod in any_pod()) {
        check(&cluster, &pod)?;
    }
}
