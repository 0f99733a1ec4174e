//! `helm test` on a real API server: its Job asks a running release, and tells whether the API server calls it.

use serde_json::json;

use super::container::account;
use super::engine::engine;
use super::release::{NAMESPACE, World, node, windows_pod};
use super::rendered;
use crate::support::command::program;

/// What a test makes, in the order of its deletion by Helm.
const OBJECTS: [&[&str]; 5] = [
    &["role", "transom-test", "-n", "default"],
    &["rolebinding", "transom-test", "-n", "default"],
    &["serviceaccount", "transom-test", "-n", NAMESPACE],
    &["validatingadmissionpolicy", "transom-test"],
    &["validatingadmissionpolicybinding", "transom-test"],
];

#[test]
fn a_test_of_the_release_reports_whether_the_api_server_calls_it() {
    let Some(engine) = engine() else { return };
    let Some(world) = World::start("helm test", &node()) else {
        return;
    };
    // The answer does not depend on what the policies do.
    let values = json!({"hooks": {"runner": "helm"}, "replicaCount": 1, "mode": "Audit"});
    world.deploy(engine, "install", &values);
    let test = || world.request(engine, "test", &json!({}));
    test().unwrap_or_else(|error| panic!("{error}\n{}\n{}", world.kubelet.jobs(), world.kubelet.logs()));
    let message = world.kubelet.jobs();
    assert!(
        message.contains("the API server calls /mutate and /validate"),
        "{message}"
    );
    for object in OBJECTS {
        assert!(!world.has(object), "{object:?} is left");
    }
    assert!(!world.has(&["job", "transom-test", "-n", NAMESPACE]));

    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        let delete = ["delete", kind, "zz-transom"];
        world.cluster.kubectl(&delete).succeeded();
    }
    assert!(test().is_err(), "{}", world.kubelet.jobs());
    let message = world.kubelet.jobs();
    let lost = "calls of the API server to /mutate and /validate do not arrive";
    assert!(
        message.contains(lost) && message.contains("do not select the namespace default"),
        "{message}"
    );
    // Its rights end with it. The Job stays for its log, and Kubernetes deletes it after ten minutes.
    for object in OBJECTS {
        assert!(!world.has(object), "{object:?} is left");
    }
    let job = world.get("job/transom-test", &format!("--namespace={NAMESPACE}"));
    assert_eq!(job["spec"]["ttlSecondsAfterFinished"], 600);
}

#[test]
fn the_account_of_the_test_creates_dry_runs_only() {
    let Some(engine) = engine() else { return };
    let Some(cluster) =
        crate::support::control_plane::ControlPlane::start_or_skip("the account of helm test")
    else {
        return;
    };
    cluster.create_namespace(NAMESPACE, &[]);
    let mut objects = rendered::of_hook(&engine.render(&json!({})).unwrap(), "test");
    objects.retain(|it| it["kind"] != "Job");
    assert_eq!(objects.len(), OBJECTS.len(), "{objects:#?}");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    cluster.kubectl_with(&["create", "-f", "-"], &list).succeeded();
    let mut pod = windows_pod("stored");
    pod["metadata"]["namespace"] = json!("default");
    let who = format!("system:serviceaccount:{NAMESPACE}:transom-test");
    let create = |more: &[&str]| {
        let arguments = [&["create", "-f", "-", "--as", &who], more].concat();
        cluster.kubectl_with(&arguments, &pod.to_string())
    };
    // A policy is followed within a second or so.
    let refused = crate::support::control_plane::wait(std::time::Duration::from_secs(30), || {
        create(&["--dry-run=server"]).ok && {
            let stored = create(&[]);
            if stored.ok {
                cluster
                    .kubectl(&["delete", "pod", "stored", "--force", "--grace-period=0"])
                    .succeeded();
            }
            stored
                .err
                .contains("the test of Transom creates pods as a dry run only")
        }
    });
    assert!(refused, "{:?}", create(&[]));

    // Without Transom a probe is not answered, and without the right nothing can be told.
    let probe = |kubeconfig: &str| {
        let mut transom = std::process::Command::new(program());
        transom
            .args(["probe", "--kubeconfig", kubeconfig])
            .output()
            .unwrap()
    };
    let lost = probe(&cluster.path("admin.kubeconfig").display().to_string());
    assert_eq!(lost.status.code(), Some(1), "{lost:?}");
    let nobody = account(&cluster, "nobody-at-all", &json!([]));
    let unknown = probe(nobody.to_str().unwrap());
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let message = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        message.contains("cannot determine whether") && message.contains("forbidden"),
        "{message}"
    );
}
