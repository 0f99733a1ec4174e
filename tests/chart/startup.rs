//! New nodes on a real API server: the policy that sets the startup taint, and what an attacker with the token of Transom's
//! account cannot do with the right to create pods that pull images.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use transom::model::node::Taint;
use transom::render::yaml_documents;

use super::cluster::{kustomization, objects_without_helm};
use super::engine::engine;
use super::escalation::{Attack, NAMESPACE, apply, merge};
use super::generated::is_up_to_date;
use super::refusal;
use crate::support::control_plane::{ControlPlane, Printed, programs_or_skip, wait};

const MINUTE: Duration = Duration::from_secs(60);

fn with_taint(node_selector: &Value) -> Value {
    json!({"startup": {"admissionPolicy": {"enabled": true, "nodeSelector": node_selector}}})
}

fn with_pods() -> Value {
    json!({"startup": {"imagePuller": {"enabled": true}}})
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
        let mut values = json!({"policy": {"spec": {"mode": "Audit"}}});
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
            json!({"nodePolicy": {"spec": {"nodeSelector": {"matchLabels": {"pool": "policy"}}}}}),
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
    assert!(!may_patch_nodes(json!({})));
    assert!(may_patch_nodes(with_taint(&json!({}))));
}

#[test]
fn a_gate_that_could_not_open_is_refused() {
    let Some(engine) = engine() else { return };
    let mut without_rights = with_taint(&json!({}));
    without_rights["rbac"] = json!({"nodePolicies": false});
    let mut unlimited = with_pods();
    unlimited["admissionPolicies"] = json!({"enabled": false});
    let wishes = json!({"nodePolicy": {"spec": {"startup": {"puller": "Pods"}}}});
    for (values, words) in [
        (wishes, "nodePolicy.spec.startup.puller: Pods needs the right"),
        (
            without_rights,
            "rbac.nodePolicies: false removes the right to write to nodes",
        ),
        (unlimited, "startup.imagePuller.enabled: the right to create pods"),
        (
            with_taint(&json!({"matchLabels": {"a b": "c"}})),
            "/startup/admissionPolicy/nodeSelector",
        ),
    ] {
        let error = refusal(engine, &values);
        assert!(error.contains(words), "{values}: {error}");
    }
    let older = json!({"values": with_taint(&json!({})), "kube_version": "v1.35.0"});
    let found = engine.request("lint", older).unwrap();
    let words = "startup.admissionPolicy.enabled: it needs Kubernetes 1.36 or later";
    assert!(found.to_string().contains(words), "{found:#}");
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
    let ready = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": null, "lastTransitionTime": null}]}});
    let status = ready.to_string();
    let arguments = [&patch[..], &[&status, "--subresource=status"]].concat();
    as_kubelet(cluster, "bare", &arguments, &Value::Null).succeeded();
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

/// The pod that the program creates.
fn puller(name: &str, more: Value) -> Value {
    let amounts = json!({"cpu": "1m", "memory": "1Mi"});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("transom-pull-{name}"), "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": "transom", "app.kubernetes.io/component": "image-puller",
                       "app.kubernetes.io/managed-by": "transom"},
            "annotations": {"transom.dev/node": "win-1", "transom.dev/node-policy": "default"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "win-1", "uid": "u"}]},
        "spec": {
            "nodeName": "win-1", "nodeSelector": {"kubernetes.io/os": "windows"}, "os": {"name": "windows"},
            "tolerations": [{"operator": "Exists"}], "restartPolicy": "Never",
            "serviceAccountName": "transom-image-puller", "automountServiceAccountToken": false,
            "imagePullSecrets": [{"name": "pull"}], "terminationGracePeriodSeconds": 0, "activeDeadlineSeconds": 780,
            "containers": [{
                "name": "image-0", "image": "registry.example.com/app:1", "imagePullPolicy": "IfNotPresent",
                "command": ["transom-puller-never-runs"], "resources": {"requests": amounts, "limits": amounts},
                "securityContext": {"runAsNonRoot": true, "windowsOptions": {"runAsUserName": "ContainerAdministrator"}},
            }],
        },
    });
    let second = json!({"name": "image-1", "image": "registry.example.com/log:2"});
    let mut second_container = pod["spec"]["containers"][0].clone();
    merge(&mut second_container, second);
    pod["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(second_container);
    merge(&mut pod, more);
    pod
}

/// The same, with its second container changed.
fn container(more: &Value) -> Value {
    let mut pod = puller("container", json!({}));
    merge(&mut pod["spec"]["containers"][1], more.clone());
    pod
}

/// The same, without this field of its spec.
fn without(field: &str) -> Value {
    let mut pod = puller("without", json!({}));
    pod["spec"].as_object_mut().unwrap().remove(field).unwrap();
    pod
}

/// Shapes that the account may not create, with what the refusal says. The API server accepts each of them from others.
fn other_shapes() -> Vec<(&'static str, Value, &'static str)> {
    let spec = |more: Value| puller("spec", json!({ "spec": more }));
    let metadata = |more: Value| puller("metadata", json!({ "metadata": more }));
    let mut all = Vec::new();
    all.extend(other_specs(&spec));
    all.extend(other_containers());
    let host = json!({"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}});
    let mut host_process = spec(json!({"hostNetwork": true}));
    for at in 0..2 {
        host_process["spec"]["containers"][at]["securityContext"] = host.clone();
    }
    all.push(("hostProcess", host_process, "a field in its spec other than"));
    let replica_set = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]);
    let other_node = json!([{"apiVersion": "v1", "kind": "Node", "name": "win-2", "uid": "u"}]);
    let marks = "a label, annotation or finalizer";
    all.extend([
        ("a label", metadata(json!({"labels": {"app": "web"}})), marks),
        (
            "an annotation",
            metadata(json!({"annotations": {"example.com/network": "host"}})),
            marks,
        ),
        (
            "a finalizer",
            metadata(json!({"finalizers": ["example.com/stay"]})),
            marks,
        ),
        (
            "an owner that adopts it",
            metadata(json!({"ownerReferences": replica_set})),
            marks,
        ),
        (
            "another node as its owner",
            metadata(json!({"ownerReferences": other_node})),
            marks,
        ),
        (
            "another name",
            metadata(json!({"name": "web"})),
            "creates and deletes only",
        ),
        (
            "another namespace",
            metadata(json!({"namespace": "apps"})),
            "creates and deletes only",
        ),
    ]);
    all
}

type Shape = (&'static str, Value, &'static str);

fn other_specs(spec: &dyn Fn(Value) -> Value) -> Vec<Shape> {
    let field = "a field in its spec other than";
    let token =
        json!([{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]);
    let init = json!([{"name": "image-2", "image": "a", "command": ["transom-puller-never-runs"]}]);
    let mut no_node = without("nodeName");
    no_node["metadata"]["ownerReferences"] = json!([]);
    let mut linux = without("os");
    linux["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
    vec![
        (
            "a volume of the host",
            spec(json!({"volumes": [{"name": "c", "hostPath": {"path": "C:\\"}}]})),
            field,
        ),
        ("a token in a volume", spec(json!({ "volumes": token })), field),
        (
            "an init container",
            spec(json!({ "initContainers": init })),
            field,
        ),
        ("the host network", spec(json!({"hostNetwork": true})), field),
        ("a host name", spec(json!({"hostname": "web"})), field),
        (
            "host aliases",
            spec(json!({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]})),
            field,
        ),
        ("affinity", spec(json!({"affinity": {"nodeAffinity": {}}})), field),
        (
            "a user of the pod",
            spec(json!({"securityContext": {"windowsOptions": {"runAsUserName": "ContainerUser"}}})),
            field,
        ),
        (
            "another account",
            spec(json!({"serviceAccountName": "transom"})),
            "creates and deletes only",
        ),
        (
            "a mounted token",
            spec(json!({"automountServiceAccountToken": true})),
            "a token",
        ),
        (
            "the default token",
            without("automountServiceAccountToken"),
            "a token",
        ),
        ("a restart", spec(json!({"restartPolicy": "Always"})), "a restart"),
        (
            "a grace period",
            spec(json!({"terminationGracePeriodSeconds": 30})),
            "a grace period",
        ),
        (
            "no deadline",
            without("activeDeadlineSeconds"),
            "without an activeDeadlineSeconds",
        ),
        ("no node", no_node, "without a nodeName"),
        ("a Linux node", linux, "another nodeSelector or os"),
        ("no system", without("os"), "another nodeSelector or os"),
        ("any node", without("nodeSelector"), "another nodeSelector or os"),
        (
            "the priority of the system",
            spec(json!({"priorityClassName": "system-node-critical"})),
            "the priority of the system",
        ),
    ]
}

fn other_containers() -> Vec<Shape> {
    let field = "a field in a container other than";
    let starts = "a container that could start";
    let user = |more: Value| container(&json!({"securityContext": {"windowsOptions": more}}));
    let mut privileged = without("os");
    privileged["spec"]["containers"][1]["securityContext"]["privileged"] = json!(true);
    let mut unrestricted = container(&json!({}));
    unrestricted["spec"]["containers"][1]["securityContext"] = json!({});
    let mut no_command = container(&json!({}));
    no_command["spec"]["containers"][1]["command"] = Value::Null;
    let requests = |more: Value| container(&json!({"resources": {"requests": more.clone(), "limits": more}}));
    let too_much = "requests or limits above";
    vec![
        (
            "another command",
            container(&json!({"command": ["cmd.exe"]})),
            starts,
        ),
        ("no command", no_command, starts),
        ("arguments", container(&json!({"args": ["a"]})), field),
        (
            "root",
            container(&json!({"securityContext": {"runAsNonRoot": false}})),
            starts,
        ),
        (
            "another user",
            user(json!({"runAsUserName": "ContainerUser"})),
            starts,
        ),
        (
            "a group account",
            user(json!({"gmsaCredentialSpec": "{}"})),
            starts,
        ),
        ("no securityContext", unrestricted, starts),
        ("privileged", privileged, "another nodeSelector or os"),
        (
            "a variable",
            container(&json!({"env": [{"name": "A", "value": "b"}]})),
            field,
        ),
        (
            "a Secret",
            container(&json!({"envFrom": [{"secretRef": {"name": "transom-certificates"}}]})),
            field,
        ),
        (
            "a port",
            container(&json!({"ports": [{"containerPort": 80}]})),
            field,
        ),
        (
            "a host port",
            container(&json!({"ports": [{"containerPort": 80, "hostPort": 80}]})),
            field,
        ),
        (
            "a probe",
            container(&json!({"livenessProbe": {"exec": {"command": ["a"]}}})),
            field,
        ),
        (
            "a hook",
            container(&json!({"lifecycle": {"postStart": {"exec": {"command": ["a"]}}}})),
            field,
        ),
        (
            "a terminal",
            container(&json!({"stdin": true, "tty": true})),
            field,
        ),
        (
            "a folder",
            container(&json!({"workingDir": "C:\\Windows"})),
            field,
        ),
        (
            "another name",
            container(&json!({"name": "web"})),
            "a container without the name image-N",
        ),
        (
            "each pull",
            container(&json!({"imagePullPolicy": "Always"})),
            "another imagePullPolicy",
        ),
        ("a CPU", requests(json!({"cpu": "1"})), too_much),
        ("a GPU", requests(json!({"nvidia.com/gpu": "1"})), too_much),
    ]
}

/// The account gets every right on pods, so that only the policy limits it.
fn stolen() -> Option<Attack> {
    let attack = Attack::start("what the account may do with pods", &with_pods())?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "too-much"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "transom"},
                     {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "transom-pre-delete"}]});
    apply(&attack.cluster, &binding.to_string());
    let plain = puller("first", json!({"spec": {"hostname": "web"}}));
    let is_held = || attack.create(&plain).err.contains("ValidatingAdmissionPolicy");
    assert!(wait(MINUTE, is_held), "it may create any pod");
    Some(attack)
}

#[test]
fn the_account_creates_only_pods_whose_containers_never_start() {
    let Some(attack) = stolen() else { return };
    // Each is refused for its own reason, and others may create it, so the API server has nothing against it.
    let shapes = other_shapes();
    assert!(shapes.len() > 40);
    for (what, pod, words) in &shapes {
        let made = attack.create(pod);
        let is_of_policy = made.err.contains("ValidatingAdmissionPolicy 'transom-pods'");
        assert!(!made.ok && is_of_policy, "{what}: {made:?}");
        assert!(made.err.contains(words), "{what}: {words}: {}", made.err);
        let dry_run = ["create", "--dry-run=server", "-f", "-"];
        attack
            .cluster
            .kubectl_with(&dry_run, &pod.to_string())
            .succeeded();
    }
    // Pod Security of the namespace is that of manifests/install.yaml.
    let enforce = [
        "label",
        "namespace",
        NAMESPACE,
        "pod-security.kubernetes.io/enforce=restricted",
    ];
    attack.cluster.kubectl(&enforce).succeeded();
    let made = attack.create(&puller("right", json!({})));
    assert!(made.ok && made.err.is_empty(), "{made:?}");
    // On EKS a webhook requests an address; OpenShift and PodNodeSelector add labels to the selector.
    let mut changed = puller("changed", json!({"spec": {"nodeSelector": {"pool": "win"}}}));
    let address = json!({"vpc.amazonaws.com/PrivateIPv4Address": "1"});
    merge(
        &mut changed["spec"]["containers"][0]["resources"],
        json!({"requests": address, "limits": address}),
    );
    let made = attack.create(&changed);
    assert!(made.ok, "{made:?}");
    it_changes_no_pod_and_deletes_only_these(&attack);
}

fn it_changes_no_pod_and_deletes_only_these(attack: &Attack) {
    let mut others = puller("others", json!({"metadata": {"name": "transom-0"}}));
    others["spec"]["serviceAccountName"] = json!("transom");
    attack
        .cluster
        .kubectl_with(&["create", "-f", "-"], &others.to_string())
        .succeeded();
    let pod = ["-n", NAMESPACE, "pod", "transom-pull-right"];
    let debugger =
        json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "a", "command": ["cmd.exe"]}]}});
    let debugger = debugger.to_string();
    let image = json!({"spec": {"containers": [{"name": "image-0", "image": "b"}]}}).to_string();
    let failed = json!({"status": {"phase": "Failed"}}).to_string();
    let patch = |patch: &str, more: &[&str]| {
        let arguments = [&["patch"], &pod[..], &["--type=strategic", "-p", patch], more].concat();
        attack.as_transom(&arguments, &Value::Null)
    };
    let delete = |name: &str| {
        let arguments = ["delete", "-n", NAMESPACE, "pod", name, "--wait=false"];
        attack.as_transom(&arguments, &Value::Null)
    };
    let dry_run = ["create", "--dry-run=server", "-f", "-"];
    for (what, printed) in [
        (
            "an ephemeral container",
            patch(&debugger, &["--subresource=ephemeralcontainers"]),
        ),
        ("another image", patch(&image, &[])),
        ("a status", patch(&failed, &["--subresource=status"])),
        ("another pod", delete("transom-0")),
        ("a dry run without a probe", attack.as_transom(&dry_run, &others)),
        (
            "exec",
            attack.as_transom(
                &["exec", "-n", NAMESPACE, "transom-pull-right", "--", "cmd.exe"],
                &Value::Null,
            ),
        ),
    ] {
        let is_of_policy = printed.err.contains("ValidatingAdmissionPolicy 'transom-pods'");
        assert!(!printed.ok && is_of_policy, "{what}: {printed:?}");
    }
    delete("transom-pull-right").succeeded();
    // The uninstall deletes them too.
    let account = format!("system:serviceaccount:{NAMESPACE}:transom-pre-delete");
    let arguments = ["delete", "-n", NAMESPACE, "pod", "--wait=false", "--as", &account];
    let uninstalls = |name: &str| attack.cluster.kubectl(&[&arguments[..], &[name]].concat());
    assert!(uninstalls("transom-0").err.contains("ValidatingAdmissionPolicy"));
    uninstalls("transom-pull-changed").succeeded();
}

#[test]
fn the_rights_are_for_pods_of_the_own_namespace_only() {
    let Some(attack) = Attack::start("the rights on pods", &with_pods()) else {
        return;
    };
    let may = |verb: &str, namespace: &str, account: &str| {
        let account = format!("system:serviceaccount:{NAMESPACE}:{account}");
        let arguments = ["auth", "can-i", verb, "pods", "-n", namespace, "--as", &account];
        attack.cluster.kubectl(&arguments).out.starts_with("yes")
    };
    for verb in ["create", "delete", "list"] {
        assert!(may(verb, NAMESPACE, "transom"), "{verb}");
        assert!(!may(verb, NAMESPACE, "transom-image-puller"), "{verb}");
    }
    for verb in ["create", "delete"] {
        assert!(!may(verb, "apps", "transom"), "{verb}");
    }
    for verb in ["update", "patch", "deletecollection"] {
        assert!(!may(verb, NAMESPACE, "transom"), "{verb}");
    }
}
