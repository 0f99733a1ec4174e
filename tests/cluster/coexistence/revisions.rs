//! Pods that the controller of a StatefulSet creates from a ControllerRevision, and not from the template that admission saw.

use serde_json::{Value, json};

use super::node_selectors::scan;
use super::{PATIENCE, Place, place};
use crate::support::control_plane::wait;
use crate::support::objects::{IMAGE, windows_pod};

const NAMESPACE: &str = "forged-revision";

/// A StatefulSet without findings of errors, whose pods keep their revision.
fn stateful_set(name: &str) -> Value {
    let mut spec = windows_pod("db")["spec"].clone();
    spec["containers"] = json!([{"name": "db", "image": IMAGE}]);
    let labels = json!({"app": name});
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": {
        "replicas": 1, "serviceName": name, "selector": {"matchLabels": labels},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
        "template": {"metadata": {"labels": labels}, "spec": spec}}})
}

/// Replaces the revision of the only pod of a StatefulSet, and the pod. Returns whether the pod has the forged field: if the
/// controller sees the StatefulSet between the deletion and the creation of the revision, it has not.
fn forge(place: &Place, name: &str) -> bool {
    place.create(NAMESPACE, &stateful_set(name), &[]).succeeded();
    let selector = format!("app={name}");
    let pod = || {
        let mut pods = place.list(&["-n", NAMESPACE, "pods", "-l", &selector]);
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods.into_iter().find(|pod| pod["status"]["phase"] == "Running")
    };
    assert!(wait(PATIENCE, || pod().is_some()));
    let first = pod().unwrap();
    // Another template: the pod stays at the revision that is forged.
    let annotated =
        json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}).to_string();
    place
        .kubectl(&["-n", NAMESPACE, "patch", "statefulset", name, "-p", &annotated])
        .succeeded();
    let revisions = || place.list(&["-n", NAMESPACE, "controllerrevisions", "-l", &selector]);
    assert!(wait(PATIENCE, || revisions().len() == 2));
    let hash = &first["metadata"]["labels"]["controller-revision-hash"];
    let mut forged = (revisions().into_iter())
        .find(|revision| revision["metadata"]["name"] == *hash)
        .unwrap();
    forged["data"]["spec"]["template"]["spec"]["hostPID"] = json!(true);
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        forged["metadata"].as_object_mut().unwrap().remove(field);
    }
    let replace = ["-n", NAMESPACE, "replace", "--force", "-f", "-"];
    place
        .cluster
        .kubectl_with(&replace, &forged.to_string())
        .succeeded();
    let pod_name = format!("{name}-0");
    place
        .kubectl(&["-n", NAMESPACE, "delete", "pod", &pod_name, "--now"])
        .succeeded();
    let is_another = || pod().is_some_and(|pod| pod["metadata"]["uid"] != first["metadata"]["uid"]);
    assert!(wait(PATIENCE, is_another));
    pod().unwrap()["spec"]["hostPID"] == true
}

#[test]
fn a_pod_of_a_forged_revision_runs_and_scan_names_what_its_template_does_not_have() {
    let Some(place) = place() else { return };
    place.cluster.create_namespace(NAMESPACE, &[]);
    let names = ["db-a", "db-b", "db-c", "db-d"];
    let name = names.into_iter().find(|name| forge(place, name));
    let name = name.expect("no attempt was faster than the controller");
    let report = scan(place, NAMESPACE);
    let owners = report["owners"].as_array().unwrap();
    let pods: Vec<&Value> = owners.iter().filter(|owner| owner["kind"] == "Pod").collect();
    let [pod] = pods.as_slice() else {
        panic!("{report:#}")
    };
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name});
    assert_eq!(
        (&pod["owner"], &pod["differsFromTemplate"], &pod["decision"]),
        (&owner, &json!(true), &json!("deny")),
        "{pod:#}"
    );
    let found = pod["findings"].as_array().unwrap().iter();
    let found: Vec<&Value> = found.map(|found| &found["rule"]).collect();
    assert_eq!(found, ["host-pid"]);
}
