//! Objects that are being deleted: an update of one passes, because nothing is made of it any more.

use std::time::Duration;

use serde_json::json;
use transom::model::objects::workload::Kind;

use super::place::{MALLORY, RUNTIME, TEAM, denied, merged, place, windows};
use crate::support::control_plane::wait;
use crate::support::objects::{object, spec_of};

/// The kinds of which a running controller makes pods.
const KINDS: [Kind; 5] = [
    Kind::Deployment,
    Kind::ReplicaSet,
    Kind::StatefulSet,
    Kind::DaemonSet,
    Kind::ReplicationController,
];

#[test]
fn what_is_being_deleted_may_be_updated_and_makes_no_pod() {
    let Some(place) = place() else { return };
    let named = |kind: Kind| format!("held-{}", kind.as_str().to_lowercase());
    let held = |kind: Kind| {
        let mut object = object(kind, &named(kind), &windows(&json!({})));
        if kind == Kind::DaemonSet {
            // It makes no pod: no node is like that.
            spec_of(kind, &mut object).unwrap()["nodeSelector"]["nowhere"] = "yes".into();
        } else {
            object["spec"]["replicas"] = 0.into();
        }
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        object
    };
    let list = || {
        let get = [
            "get",
            "pods,replicasets",
            "-n",
            TEAM,
            "-l",
            "app=held",
            "-o",
            "name",
        ];
        place.cluster.kubectl(&get).succeeded().out
    };
    for kind in KINDS {
        let label = |object: &mut serde_json::Value| {
            let labels = json!({"app": "held", "of": named(kind)});
            object["spec"]["template"]["metadata"]["labels"] = labels.clone();
            let selector = &mut object["spec"]["selector"];
            *selector = if kind == Kind::ReplicationController {
                labels
            } else {
                json!({ "matchLabels": labels })
            };
        };
        let mut good = held(kind);
        label(&mut good);
        let answer = RUNTIME.block_on(place.create(kind, &good));
        assert!(answer.ok, "{kind}: {answer:?}");
        let mut bad = good.clone();
        bad["spec"]["replicas"] = 3.into();
        let spec = spec_of(kind, &mut bad).unwrap();
        spec["nodeSelector"] = json!({"kubernetes.io/os": "windows"});
        *spec = merged(spec, &json!({"hostPID": true}));
        if kind == Kind::DaemonSet {
            bad["spec"].as_object_mut().unwrap().remove("replicas");
        }
        let before = RUNTIME.block_on(place.update(kind, &bad));
        assert!(denied(&before), "{kind}: {before:?}");
        let resource = format!("{}/{}", kind.as_str().to_lowercase(), named(kind));
        let delete = [
            "delete",
            &resource,
            "-n",
            TEAM,
            "--as",
            MALLORY,
            "--wait=false",
            "--cascade=orphan",
        ];
        place.cluster.kubectl(&delete).succeeded();
        let deleted = || {
            let object = RUNTIME.block_on(place.get(kind, &named(kind)));
            !object["metadata"]["deletionTimestamp"].is_null()
        };
        assert!(wait(Duration::from_secs(30), deleted), "{kind}");
        let mut stored = RUNTIME.block_on(place.get(kind, &named(kind)));
        stored["spec"] = bad["spec"].clone();
        let answer = RUNTIME.block_on(place.update(kind, &stored));
        assert!(answer.ok, "{kind}: {answer:?}");
    }
    // The controllers make pods within a second of any other object.
    let proof = {
        let mut proof = object(Kind::ReplicaSet, "not-held", &windows(&json!({})));
        let labels = json!({"app": "not-held"});
        proof["spec"]["selector"] = json!({ "matchLabels": labels });
        proof["spec"]["template"]["metadata"]["labels"] = labels;
        proof
    };
    assert!(RUNTIME.block_on(place.create(Kind::ReplicaSet, &proof)).ok);
    let made = || {
        let get = ["get", "pods", "-n", TEAM, "-l", "app=not-held", "-o", "name"];
        !place.cluster.kubectl(&get).out.is_empty()
    };
    assert!(
        wait(Duration::from_secs(60), made),
        "{}",
        place.cluster.end_of_log("kube-controller-manager")
    );
    std::thread::sleep(Duration::from_secs(3));
    let pods: Vec<String> = list()
        .lines()
        .filter(|name| name.starts_with("pod/"))
        .map(str::to_owned)
        .collect();
    assert_eq!(pods, [""; 0]);
}
