//! What the owner of a namespace can do against Enforce: a user with the ClusterRole `admin` in one namespace, and nothing
//! else, before a real API server with Transom as a team installs it. Without the programs (kube-controller-manager too)
//! these tests say so and prove nothing.
#![cfg(unix)]

mod clients;
mod deletion;
mod metadata;
mod namespace_admin;
mod place;

use std::time::Duration;

use crate::support::command::printed;
use crate::support::control_plane::wait;
use crate::support::objects::{KINDS, object, spec_of};
use place::{Answer, MALLORY, NODE, OUTSIDE, Place, RUNTIME, TEAM, denied, merged, place, windows};
use serde_json::{Value, json};
use transom::model::objects::workload::Kind;

/// An update of an object that is there: it is refused, with these words.
fn refuses_update(place: &Place, kind: Kind, object: &Value, words: &str) {
    let answer = RUNTIME.block_on(place.update(kind, object));
    assert!(
        denied(&answer) && answer.message.contains(words),
        "{object}: {answer:?}"
    );
}

fn create(place: &Place, kind: Kind, object: &Value) -> Answer {
    RUNTIME.block_on(place.create(kind, object))
}

#[test]
fn the_annotation_of_mirror_pods_opens_nothing() {
    let Some(place) = place() else { return };
    let bad = windows(&json!({"hostPID": true, "nodeName": NODE}));
    let annotations = json!({"kubernetes.io/config.mirror": ""});
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": place.node_uid, "controller": true}]);
    for kind in KINDS {
        for (n, owners) in [Value::Null, owner.clone()].iter().enumerate() {
            let mut forged = object(kind, &format!("mirror-{n}"), &bad);
            forged["metadata"]["annotations"] = annotations.clone();
            forged["metadata"]["ownerReferences"] = owners.clone();
            let answer = create(place, kind, &forged);
            assert!(
                denied(&answer) && answer.message.contains("host-pid"),
                "{forged}: {answer:?}"
            );
        }
        if matches!(kind, Kind::Pod | Kind::Job) {
            continue;
        }
        // In two steps: first the annotation, which changes nothing, then the template.
        let name = "mirror-later";
        let mut good = object(kind, name, &windows(&json!({})));
        good["metadata"]["annotations"] = annotations.clone();
        let answer = create(place, kind, &good);
        assert!(answer.ok, "{good}: {answer:?}");
        let mut worse = good.clone();
        *spec_of(kind, &mut worse).unwrap() = merged(
            spec_of(kind, &mut good.clone()).unwrap(),
            &json!({"hostPID": true}),
        );
        refuses_update(place, kind, &worse, "host-pid");
    }
    // The kubelet of the node makes such pods.
    let mut mirror = object(Kind::Pod, "mirror-of-kubelet", &bad);
    mirror["metadata"]["annotations"] = annotations;
    mirror["metadata"]["ownerReferences"] = owner;
    let creates_as = |user: &str| {
        let requester = [
            "create",
            "-n",
            TEAM,
            "--as",
            user,
            "--as-group=system:nodes",
            "--as-group=system:masters",
            "--dry-run=server",
            "-f",
            "-",
        ];
        place.cluster.kubectl_with(&requester, &mirror.to_string())
    };
    let own = creates_as(&format!("system:node:{NODE}"));
    assert!(own.ok, "{own:?}");
    let other = creates_as("system:node:another");
    assert!(other.err.contains("host-pid"), "{other:?}");
}

#[test]
fn ten_thousand_pieces_of_advice_hide_no_error() {
    let Some(place) = place() else { return };
    let items: Vec<Value> = (0..100)
        .map(|n| json!({"key": format!("k{n}"), "path": format!("p{n}"), "mode": 493}))
        .collect();
    let volumes: Vec<Value> = (0..101)
        .map(|n| json!({"name": format!("v{n}"), "configMap": {"name": "c", "items": items}}))
        .collect();
    // Its rule is asked after that of the volumes.
    let error = json!([{"name": "web", "image": "mcr.microsoft.com/windows/servercore:latest"}]);
    for kind in [Kind::Pod, Kind::Deployment] {
        let padded = windows(&json!({"volumes": volumes, "containers": error}));
        let answer = create(place, kind, &object(kind, "advice", &padded));
        assert!(
            denied(&answer) && answer.message.contains("image-untagged-or-latest"),
            "{kind}: {answer:?}"
        );
        let harmless = windows(&json!({ "volumes": volumes }));
        let answer = create(place, kind, &object(kind, "harmless", &harmless));
        assert!(answer.ok, "{kind}: {answer:?}");
    }
}

#[test]
fn an_update_makes_no_error_of_what_was_advice() {
    let Some(place) = place() else { return };
    let image = |image: &str| windows(&json!({"containers": [{"name": "web", "image": image}]}));
    for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Job) {
        let advice = object(kind, "worse", &image("registry.example.com/app"));
        let answer = create(place, kind, &advice);
        assert!(answer.ok, "{kind}: {answer:?}");
        let mut error = RUNTIME.block_on(place.get(kind, "worse"));
        spec_of(kind, &mut error).unwrap()["containers"][0]["image"] =
            "mcr.microsoft.com/windows/servercore:latest".into();
        refuses_update(place, kind, &error, "image-untagged-or-latest");
    }
}

#[test]
fn the_label_of_kubectl_debug_lifts_what_kubectl_writes_and_nothing_else() {
    let Some(place) = place() else { return };
    let label = json!({"app.kubernetes.io/managed-by": "kubectl-debug"});
    let debugger = |name: &str, over: &Value| {
        let mut spec = windows(
            &json!({"nodeName": NODE, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}],
            "hostPID": true, "hostIPC": true, "hostNetwork": true}),
        );
        json_patch::merge(&mut spec, over);
        let mut pod = object(Kind::Pod, name, &spec);
        pod["metadata"]["labels"] = label.clone();
        pod
    };
    let as_kubectl = |suffix: &str| format!("node-debugger-{NODE}-{suffix}");
    let answer = create(place, Kind::Pod, &debugger(&as_kubectl("aaaaa"), &json!({})));
    assert!(answer.ok, "{answer:?}");
    for (name, over, rule) in [
        ("web".to_owned(), json!({}), "host-pid"),
        ("node-debugger".to_owned(), json!({}), "host-pid"),
        (
            as_kubectl("bbbbb"),
            json!({"restartPolicy": "Always"}),
            "host-pid",
        ),
        (as_kubectl("ccccc"), json!({"tolerations": null}), "host-pid"),
        (as_kubectl("ddddd"), json!({"hostIPC": false}), "host-pid"),
        (
            as_kubectl("eeeee"),
            json!({"securityContext": {"runAsUser": 0}}),
            "run-as-user",
        ),
        (
            as_kubectl("fffff"),
            json!({"initContainers": [{"name": "i", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}]}),
            "host-pid",
        ),
        (as_kubectl("ggggg"), json!({"nodeName": "another"}), "host-pid"),
    ] {
        let pod = debugger(&name, &over);
        let answer = create(place, Kind::Pod, &pod);
        assert!(
            denied(&answer) && answer.message.contains(rule),
            "{pod}: {answer:?}"
        );
    }
}

#[test]
fn no_term_of_the_affinity_hides_another_one() {
    let Some(place) = place() else { return };
    let expression = |key: &str, operator: &str, values: &[&str]| {
        let mut expression = json!({"key": key, "operator": operator});
        if !values.is_empty() {
            expression["values"] = json!(values);
        }
        expression
    };
    let term = |expressions: &[Value]| json!({ "matchExpressions": expressions });
    let windows = [
        term(&[expression("kubernetes.io/os", "In", &["windows"])]),
        term(&[expression("node.openshift.io/os_id", "In", &["Windows"])]),
    ];
    let impossible = [
        term(&[
            expression("a", "Exists", &[]),
            expression("a", "DoesNotExist", &[]),
        ]),
        term(&[expression("a", "In", &["x"]), expression("a", "In", &["y"])]),
        term(&[expression("a", "In", &["x"]), expression("a", "NotIn", &["x"])]),
        term(&[expression("a", "Gt", &["9"]), expression("a", "Lt", &["3"])]),
        term(&[expression("a", "Gt", &["4"]), expression("a", "Lt", &["5"])]),
        term(&[expression("a", "Lt", &["0"])]),
        term(&[expression("a", "Gt", &["9223372036854775807"])]),
        term(&[expression("a", "In", &["3"]), expression("a", "Gt", &["7"])]),
        term(&[expression("kubernetes.io/os", "Gt", &["1"])]),
        term(&[expression("kubernetes.io/os", "Lt", &["1"])]),
    ];
    for (n, impossible) in impossible.iter().enumerate() {
        for (m, windows) in windows.iter().enumerate() {
            let spec = json!({
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": [impossible, windows]}}},
                "hostPID": true, "containers": [{"name": "web", "image": "registry.example.com/web:1"}],
            });
            for kind in KINDS {
                let answer = create(place, kind, &object(kind, &format!("terms-{n}-{m}"), &spec));
                assert!(
                    denied(&answer) && answer.message.contains("host-pid"),
                    "{kind} {spec}: {answer:?}"
                );
            }
        }
    }
    let openshift = json!({"nodeSelector": {"node.openshift.io/os_id": "Windows"}, "hostPID": true,
        "containers": [{"name": "web", "image": "registry.example.com/web:1"}]});
    let answer = create(
        place,
        Kind::Deployment,
        &object(Kind::Deployment, "openshift", &openshift),
    );
    assert!(denied(&answer), "{answer:?}");
}

#[test]
fn a_namespace_that_leaves_every_selector_is_counted_and_reported() {
    let Some(place) = place() else { return };
    let kubectl = |args: &[&str]| place.cluster.kubectl(args);
    place.cluster.create_namespace("leaving", &[]);
    let counted = |count: usize| {
        let line = format!("\ntransom_namespaces_without_policy {count}\n");
        let metrics = place.replica.get("/metrics").map(|(_, metrics)| metrics);
        metrics.is_some_and(|metrics| metrics.contains(&line))
    };
    let backoff_interval = Duration::from_secs(90);
    assert!(wait(backoff_interval, || counted(0)));
    // The leader has to have seen it with its policy.
    std::thread::sleep(Duration::from_secs(5));
    kubectl(&["label", "namespace", "leaving", &format!("{OUTSIDE}=yes")]).succeeded();
    assert!(
        wait(backoff_interval, || counted(1)),
        "{:?}",
        place.replica.get("/metrics")
    );
    let condition = || {
        let jsonpath = "jsonpath={.status.conditions[?(@.type==\"NamespacesWithoutPolicy\")].message}";
        kubectl(&["get", "wpp", "default", "-o", jsonpath]).out
    };
    assert!(
        wait(backoff_interval, || condition().contains("leaving")),
        "{}",
        condition()
    );
    let reported = || {
        let field = "--field-selector=reason=NamespaceWithoutPolicy";
        kubectl(&["get", "events", "-n", "default", field, "-o", "name"]).out
    };
    assert!(wait(backoff_interval, || !reported().is_empty()));
    let kubeconfig = place.cluster.path("admin.kubeconfig");
    let scan = printed(&[
        "scan",
        "--kubeconfig",
        &kubeconfig.display().to_string(),
        "--fail-on",
        "never",
    ]);
    assert!(scan.contains("1 namespace without a policy: leaving;"), "{scan}");
    kubectl(&["delete", "namespace", "leaving", "--wait=false"]).succeeded();
}

#[test]
fn the_requester_is_a_namespace_admin_and_nothing_else() {
    let Some(place) = place() else { return };
    let may = |verb: &str, what: &str, namespace: &str| {
        let requested = place
            .cluster
            .kubectl(&["auth", "can-i", verb, what, "-n", namespace, "--as", MALLORY]);
        requested.out.trim() == "yes"
    };
    for what in [
        "pods",
        "deployments.apps",
        "jobs.batch",
        "cronjobs.batch",
        "roles.rbac.authorization.k8s.io",
    ] {
        assert!(may("create", what, TEAM), "{what}");
        assert!(!may("create", what, "default"), "{what}");
    }
    for what in [
        "nodes",
        "windowspodpolicies.transom.dev",
        "validatingwebhookconfigurations",
    ] {
        assert!(!may("patch", what, TEAM), "{what}");
    }
    assert!(!may("patch", "namespaces", TEAM));
}
