//! New nodes: what the chart makes for them, and on a real API server the policy that sets the startup taint.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use transom::model::nodes::node::Taint;
use transom::render::yaml_documents;

use super::cluster::{kustomization, objects_without_helm};
use super::engine::engine;
use super::escalation::{apply, merge};
use super::generated::is_up_to_date;
use super::refusal;
use crate::support::control_plane::{ControlPlane, Printed, programs_or_skip, wait};

pub const MINUTE: Duration = Duration::from_secs(60);

fn with_taint(node_selector: &Value) -> Value {
    json!({"nodeStartup": {"admissionPolicy": {"enabled": true, "nodeSelector": node_selector}}})
}

pub fn with_pods() -> Value {
    json!({"nodeStartup": {"imagePuller": {"enabled": true}}})
}

#[test]
fn nothing_of_new_nodes_is_there_before_it_is_enabled() {
    let Some(engine) = engine() else { return };
    let default = engine.render(&json!({})).unwrap();
    assert_eq!(default.names("MutatingAdmissionPolicy"), [""; 0]);
    assert_eq!(default.names("MutatingAdmissionPolicyBinding"), [""; 0]);
    for object in &default.objects {
        let is_role_of_uninstall = object["metadata"]["name"] == "transom-pre-delete";
        let text = object.to_string();
        assert!(is_role_of_uninstall || !text.contains("image-puller"), "{text}");
    }

    let rendered = engine.render(&with_pods()).unwrap();
    let deployment = rendered.object("Deployment", "transom");
    let env = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
    let account = json!({"name": "TRANSOM_IMAGE_PULLER_SERVICE_ACCOUNT", "value": "transom-image-puller"});
    assert!(env.unwrap().contains(&account), "{env:?}");
    let puller = rendered.object("ServiceAccount", "transom-image-puller");
    assert_eq!(puller["automountServiceAccountToken"], false);
    let is_bound = |binding: &Value| binding["subjects"].to_string().contains("image-puller");
    assert!(!rendered.objects.iter().any(is_bound), "the account has rights");
    let role = &rendered.object("Role", "transom-image-puller")["rules"];
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "create", "delete"]});
    assert_eq!(role, &json!([rule]));
}

#[test]
fn the_taint_is_set_on_the_nodes_of_the_node_policy_and_transom_may_remove_it() {
    let Some(engine) = engine() else { return };
    let audit = |more: Value| {
        let mut values = json!({"mode": "Audit"});
        merge(&mut values, more);
        engine.render(&values).unwrap()
    };
    let own = json!({"matchLabels": {"pool": "own"}});
    for (selector, expected) in [
        (
            json!({}),
            json!({"matchLabels": {"kubernetes.io/os": "windows", "pool": "policy"}}),
        ),
        (
            own,
            json!({"matchLabels": {"kubernetes.io/os": "windows", "pool": "own"}}),
        ),
    ] {
        let mut values = with_taint(&selector);
        merge(
            &mut values,
            json!({"nodePolicies": {"default": {"spec": {"nodeSelector": {"matchLabels": {"pool": "policy"}}}}}}),
        );
        let rendered = audit(values);
        let policy = rendered.object("MutatingAdmissionPolicy", "transom-startup-taint");
        assert_eq!(policy["spec"]["matchConstraints"]["objectSelector"], expected);
    }
    let may_patch_nodes = |more: Value| {
        let rendered = audit(more);
        let rules = rendered.object("ClusterRole", "transom")["rules"].clone();
        rules[0]["verbs"].as_array().unwrap().contains(&json!("patch"))
    };
    assert!(may_patch_nodes(with_taint(&json!({}))));
}

#[test]
fn a_gate_that_could_not_open_is_refused() {
    let Some(engine) = engine() else { return };
    let mut without_rights = with_taint(&json!({}));
    without_rights["rbac"] = json!({"nodePolicies": false});
    let mut unlimited = with_pods();
    unlimited["admissionPolicies"] = json!({"enabled": false});
    let wishes = json!({"nodePolicies": {"default": {"spec": {"startup": {"puller": "Pods"}}}}});
    for (values, words) in [
        (
            wishes,
            "nodePolicies.default.spec.startup.puller: Pods needs the right",
        ),
        (
            without_rights,
            "rbac.nodePolicies: false removes the right to write to nodes",
        ),
        (
            unlimited,
            "nodeStartup.imagePuller.enabled: the right to create pods",
        ),
        (
            with_taint(&json!({"matchLabels": {"a b": "c"}})),
            "invalid propertyName 'a b'",
        ),
    ] {
        let error = refusal(engine, &values);
        assert!(error.contains(words), "{values}: {error}");
    }
}

#[test]
fn a_component_for_kustomize_has_what_the_chart_adds() {
    let Some(engine) = engine() else { return };
    let mut both = with_taint(&json!({}));
    merge(&mut both, with_pods());
    let default = objects_without_helm(engine, &json!({}));
    let enabled = objects_without_helm(engine, &both);
    let is_in_default = |it: &Value| {
        let same = |other: &&Value| other["kind"] == it["kind"] && other["metadata"] == it["metadata"];
        default.iter().any(|other| same(&other))
    };
    let (known, added): (Vec<Value>, Vec<Value>) = enabled.into_iter().partition(is_in_default);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let note = "# What the chart adds for new nodes, made by tests/chart.\n";
    is_up_to_date(
        &root.join("manifests/warm-nodes/objects.yaml"),
        &format!("{note}{}", yaml_documents(&added)),
    );

    let Some(cluster) = ControlPlane::start_or_skip("the component for new nodes") else {
        return;
    };
    let (folder, text) = kustomization();
    let component = text.replace("manifests/audit", "manifests/warm-nodes");
    let image = "mirror.example.com";
    let path = folder.path().join("transom");
    fs::write(
        path.join("kustomization.yaml"),
        component.replace("REGISTRY", image),
    )
    .unwrap();
    let built = cluster
        .kubectl(&["kustomize", path.to_str().unwrap()])
        .succeeded()
        .out;
    let parsed = transom::manifest::parse(built.into_bytes());
    let built: Vec<Value> = (parsed.documents.iter())
        .map(|it| serde_json::from_str(it.json()).unwrap())
        .collect();
    assert_eq!(built.len(), known.len() + added.len());
    let find =
        |objects: &[Value], kind: &str| objects.iter().find(|it| it["kind"] == kind).unwrap()["spec"].clone();
    let by_name = |spec: Value| {
        let env = spec["template"]["spec"]["containers"][0]["env"]
            .as_array()
            .unwrap()
            .clone();
        let named = env.into_iter().map(|it| (it["name"].to_string(), it));
        named.collect::<BTreeMap<String, Value>>()
    };
    assert_eq!(
        by_name(find(&built, "Deployment")),
        by_name(find(&known, "Deployment"))
    );
    assert_eq!(
        find(&built, "WindowsNodePolicy")["startup"],
        json!({"puller": "Pods"})
    );
    for object in &added {
        let is_it = |it: &&Value| {
            it["kind"] == object["kind"] && it["metadata"]["name"] == object["metadata"]["name"]
        };
        let made = built.iter().find(is_it).unwrap();
        assert_eq!(made["spec"], object["spec"], "{}", object["kind"]);
    }
}

/// An API server that restricts kubelets, with the policy.
fn cluster_with_taint(values: &Value) -> Option<ControlPlane> {
    let engine = engine()?;
    let programs = programs_or_skip("the startup taint")?;
    let restricts = ["--enable-admission-plugins=NodeRestriction"];
    let cluster = ControlPlane::start_with(programs, &restricts).unwrap_or_else(|error| panic!("{error}"));
    set_taint(&cluster, &engine.render(values).unwrap().objects);
    Some(cluster)
}

fn set_taint(cluster: &ControlPlane, objects: &[Value]) {
    let is_of_it = |object: &&Value| {
        object["kind"]
            .as_str()
            .unwrap()
            .starts_with("MutatingAdmissionPolicy")
    };
    let items: Vec<&Value> = objects.iter().filter(is_of_it).collect();
    assert_eq!(items.len(), 2);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    apply(cluster, &list);
}

/// A node that a kubelet registers.
fn node(name: &str, os: &str, more: Value) -> Value {
    let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": name, "labels": {"kubernetes.io/os": os, "kubernetes.io/hostname": name}}});
    merge(&mut node, more);
    node
}

/// Runs kubectl as the kubelet of a node.
fn as_kubelet(cluster: &ControlPlane, name: &str, arguments: &[&str], input: &Value) -> Printed {
    let user = format!("system:node:{name}");
    let identity = ["--as", &user, "--as-group", "system:nodes"];
    cluster.kubectl_with(&[arguments, &identity].concat(), &input.to_string())
}

fn register(cluster: &ControlPlane, node: &Value) {
    let name = node["metadata"]["name"].as_str().unwrap();
    as_kubelet(cluster, name, &["create", "-f", "-"], node).succeeded();
}

/// The keys of the taints of a stored node, without those of Kubernetes.
fn taints(cluster: &ControlPlane, name: &str) -> Vec<String> {
    let stored = cluster.kubectl(&["get", "node", name, "-o", "json"]).object();
    let taints = stored["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let shown = taints.iter().map(|taint| {
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        format!("{}={}:{}", text("key"), text("value"), text("effect"))
    });
    shown
        .filter(|taint| !taint.starts_with("node.kubernetes.io/"))
        .collect()
}

/// Waits until a new kubelet gets the taint, because the API server learns of a policy a moment later.
fn is_in_effect(cluster: &ControlPlane, more: &Value) {
    let startup = format!("{}=:NoSchedule", Taint::STARTUP_KEY);
    let mut number = 0;
    let is_tainted = || {
        number += 1;
        let name = format!("first-{number}");
        register(cluster, &node(&name, "windows", more.clone()));
        taints(cluster, &name) == [startup.clone()]
    };
    assert!(wait(MINUTE, is_tainted), "no new node is tainted");
}

#[test]
fn a_new_windows_node_gets_the_taint_once_and_keeps_its_own() {
    let Some(cluster) = cluster_with_taint(&with_taint(&json!({}))) else {
        return;
    };
    is_in_effect(&cluster, &json!({}));
    let startup = format!("{}=:NoSchedule", Taint::STARTUP_KEY);
    let os = json!({"key": "os", "value": "windows", "effect": "NoSchedule"});
    let own = json!({"key": Taint::STARTUP_KEY, "effect": "NoSchedule"});
    let with = |taints: Value| json!({"spec": {"taints": taints}});
    for (name, os, more, expected) in [
        ("bare", "windows", json!({}), vec![startup.as_str()]),
        ("empty", "windows", with(json!([])), vec![&startup]),
        (
            "tainted",
            "windows",
            with(json!([os])),
            vec!["os=windows:NoSchedule", &startup],
        ),
        (
            "of-a-pool",
            "windows",
            with(json!([own, os])),
            vec![&startup, "os=windows:NoSchedule"],
        ),
        ("linux", "linux", json!({}), vec![]),
        (
            "linux-tainted",
            "linux",
            with(json!([os])),
            vec!["os=windows:NoSchedule"],
        ),
    ] {
        register(&cluster, &node(name, os, more));
        assert_eq!(taints(&cluster, name), expected, "{name}");
    }
    // An administrator, or a controller of machines, registers no kubelet.
    let by_admin = node("by-admin", "windows", json!({})).to_string();
    cluster
        .kubectl_with(&["create", "-f", "-"], &by_admin)
        .succeeded();
    assert_eq!(taints(&cluster, "by-admin"), [""; 0]);

    // NodeRestriction keeps a kubelet from removing it.
    let patch = ["patch", "node", "bare", "--type=merge", "-p"];
    let removed = json!({"spec": {"taints": null}}).to_string();
    let refused = as_kubelet(
        &cluster,
        "bare",
        &[&patch[..], &[&removed]].concat(),
        &Value::Null,
    );
    assert!(
        refused.err.contains("not allowed to modify taints"),
        "{refused:?}"
    );
    assert_eq!(taints(&cluster, "bare"), [startup]);
    updates_do_not_set_it_again(&cluster);
}

/// The taint that is removed stays away while the kubelet updates and registers the same node again.
fn updates_do_not_set_it_again(cluster: &ControlPlane) {
    let remove = json!({"spec": {"taints": null}}).to_string();
    let patch = ["patch", "node", "bare", "--type=merge", "-p"];
    cluster.kubectl(&[&patch[..], &[&remove]].concat()).succeeded();
    let annotate = json!({"metadata": {"annotations": {"seen": "again"}}}).to_string();
    as_kubelet(
        cluster,
        "bare",
        &[&patch[..], &[&annotate]].concat(),
        &Value::Null,
    )
    .succeeded();
    // A kubelet that starts again sends a create, which fails, and then updates the node.
    let again = as_kubelet(
        cluster,
        "bare",
        &["create", "-f", "-"],
        &node("bare", "windows", json!({})),
    );
    assert!(again.err.contains("already exists"), "{again:?}");
    assert_eq!(taints(cluster, "bare"), [""; 0]);
}

#[test]
fn the_taint_follows_the_selector() {
    let selector = json!({"matchExpressions": [{"key": "agentpool", "operator": "In", "values": ["warm"]}]});
    let Some(cluster) = cluster_with_taint(&with_taint(&selector)) else {
        return;
    };
    let pool = |name: &str| json!({"metadata": {"labels": {"agentpool": name}}});
    is_in_effect(&cluster, &pool("warm"));
    register(&cluster, &node("cold", "windows", pool("cold")));
    assert_eq!(taints(&cluster, "cold"), [""; 0]);
    register(&cluster, &node("lin", "linux", pool("warm")));
    assert_eq!(taints(&cluster, "lin"), [""; 0]);
}
