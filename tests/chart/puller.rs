//! What an attacker with the token of Transom's account cannot do with the right to create pods that pull images: on a real API
//! server, with the admission policy of the chart.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::engine::engine;
use super::escalation::{Attack, NAMESPACE, apply, merge, serve};
use super::startup::{MINUTE, with_pods};
use crate::support::control_plane::wait;
use crate::support::kubelet::join_tainted;
use crate::support::pulling_kubelet::{PullingKubelets, STARTUP};

/// The pod that the program creates.
fn puller(name: &str, more: Value) -> Value {
    let amounts = json!({"cpu": "1m", "memory": "1Mi"});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("transom-pull-{name}"), "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": "transom", "app.kubernetes.io/component": "image-puller",
                       "app.kubernetes.io/managed-by": "transom", "transom.dev/owned": "true"},
            "annotations": {"transom.dev/node": "win-1", "transom.dev/node-policy": "default", "transom.dev/images": "[]"},
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
    // AlwaysPullImages sets this policy.
    let second =
        json!({"name": "image-1", "image": "registry.example.com/log:2", "imagePullPolicy": "Always"});
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
            container(&json!({"imagePullPolicy": "Never"})),
            "the imagePullPolicy Never",
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
    let only_the_policy = [
        "label",
        "namespace",
        NAMESPACE,
        "pod-security.kubernetes.io/enforce-",
    ];
    attack.cluster.kubectl(&only_the_policy).succeeded();
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
    let connect = |to: &str| {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/transom-0/{to}");
        ["get", "--raw", &path].map(str::to_owned)
    };
    let connects = [
        "exec?command=cmd.exe&stdout=true",
        "attach?stdout=true",
        "portforward?ports=80",
        "proxy/",
    ];
    for to in connects {
        let arguments = connect(to);
        let arguments = arguments.each_ref().map(String::as_str);
        let printed = attack.as_transom(&arguments, &Value::Null);
        let is_of_policy = printed.err.contains("ValidatingAdmissionPolicy 'transom-pods'");
        assert!(!printed.ok && is_of_policy, "{to}: {printed:?}");
        // Others reach the kubelet, or would with a protocol that kubectl does not speak here.
        let others = attack.cluster.kubectl(&arguments);
        assert!(
            !others.err.contains("ValidatingAdmissionPolicy"),
            "{to}: {others:?}"
        );
    }
    for (what, printed) in [
        (
            "an ephemeral container",
            patch(&debugger, &["--subresource=ephemeralcontainers"]),
        ),
        ("another image", patch(&image, &[])),
        ("a status", patch(&failed, &["--subresource=status"])),
        ("another pod", delete("transom-0")),
        ("a dry run without a probe", attack.as_transom(&dry_run, &others)),
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

const WEB: &str = "registry.example/web:1";

#[test]
fn the_program_pulls_and_releases_within_its_rights_and_the_policies() {
    let Some(engine) = engine() else { return };
    let startup = json!({"imageSource": "Listed", "images": [WEB], "puller": "Pods"});
    let mut values = with_pods();
    merge(
        &mut values,
        json!({"mode": "Audit", "nodePolicies": {"default": {"spec": {"startup": startup}}}}),
    );
    let Some(attack) = Attack::start("what the program pulls", &values) else {
        return;
    };
    let cluster = &attack.cluster;
    let rendered = engine.render(&values).unwrap();
    serve(&attack, rendered.object("WindowsNodePolicy", "default"));
    let kubelets = PullingKubelets::start(cluster, BTreeMap::from([(WEB, 300_000_000)]), BTreeMap::new(), "");
    let taints = json!([{"key": STARTUP, "effect": "NoSchedule"}]);
    join_tainted(cluster, "new-1", "10.0.20348", &[], &taints);
    let released = || kubelets.log().nodes.get("new-1")?.released.clone();
    let end = || format!("{:?}\n{}", kubelets.log(), cluster.end_of_log("transom"));
    assert!(wait(2 * MINUTE, || released().is_some()), "{}", end());
    let (images, _) = released().unwrap();
    assert!(images.contains(WEB), "{images:?}");
    let pods = || {
        cluster
            .kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "name"])
            .succeeded()
            .out
    };
    assert!(wait(MINUTE, || pods().is_empty()), "{}\n{}", pods(), end());
    assert_eq!(kubelets.log().most_pullers["default"], 1);
    let log = std::fs::read_to_string(cluster.path("transom.log")).unwrap();
    let is_refused = log.contains("ValidatingAdmissionPolicy") || log.contains("is forbidden");
    assert!(!is_refused, "{log}");
}
