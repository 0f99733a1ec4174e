//! Metadata thrown at forbidden pods and workloads of every kind: nothing in it gets one of them in.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use serde_json::{Value, json};
use transom::model::objects::workload::Kind;

use super::place::{Answer, NODE, Place, RUNTIME, denied, merged, place, windows};
use crate::support::dice::Dice;
use crate::support::objects::{KINDS, object, spec_of, template_of};

/// How many requests are under way at once.
const AT_ONCE: usize = 8;

/// How many objects are thrown: `TRANSOM_METADATA_OBJECTS`, else what takes a few seconds.
fn thrown() -> usize {
    let requested = std::env::var("TRANSOM_METADATA_OBJECTS");
    requested.map_or(600, |count| {
        count.parse().expect("TRANSOM_METADATA_OBJECTS is a number")
    })
}

/// What makes a pod for Windows, and is forbidden in one.
fn forbidden(dice: &mut Dice) -> Value {
    let mut spec = match dice.below(4) {
        0 => json!({"os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"}}),
        1 => {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]}]}}}})
        }
        _ => json!({"nodeSelector": {"kubernetes.io/os": "windows"}}),
    };
    let image = "mcr.microsoft.com/windows/servercore:ltsc2022";
    let container = |over: Value| {
        let mut container = json!({"name": "web", "image": image});
        json_patch::merge(&mut container, &over);
        json!({ "containers": [container] })
    };
    let bad = [
        json!({"hostPID": true, "containers": [{"name": "web", "image": image}]}),
        json!({"hostIPC": true, "containers": [{"name": "web", "image": image}]}),
        json!({"securityContext": {"runAsUser": 1000}, "containers": [{"name": "web", "image": image}]}),
        container(json!({"securityContext": {"privileged": true}})),
        container(json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}})),
        container(json!({"securityContext": {"runAsUser": 0}})),
        container(json!({"image": "mcr.microsoft.com/windows/servercore:latest"})),
    ];
    json_patch::merge(&mut spec, &bad[dice.below(bad.len())]);
    spec
}

/// One piece of metadata; some of it is what Transom, the kubelet, kubectl or a controller writes.
fn throw(dice: &mut Dice, meta: &mut Value, node_uid: &str) {
    let key = dice.word(
        "kubernetes.io/config.mirror kubernetes.io/config.mirror kubernetes.io/config.source kubernetes.io/config.hash \
         openshift.io/scc transom.dev/ignore transom.dev/probe transom.dev/probed transom.dev/owned transom.dev/mode \
         scheduler.alpha.kubernetes.io/critical-pod sidecar.istio.io/status policies.kyverno.io/last-applied-patches \
         kubectl.kubernetes.io/last-applied-configuration batch.kubernetes.io/job-name anything",
    );
    let label = dice.word(
        "app.kubernetes.io/managed-by app.kubernetes.io/managed-by app.kubernetes.io/name transom.dev/ignore \
         transom.dev/mode transom.dev/owned control-plane kubernetes.azure.com/managedby pod-template-hash controller-revision-hash \
         job-name kubernetes.io/os kubernetes.io/metadata.name k8s-app",
    );
    match dice.below(9) {
        0..=2 => {
            let value = dice.word("_ true file hash restricted-v2 {} kubelet");
            meta["annotations"][key] = value.into();
        }
        3 | 4 => {
            let value = dice.word("true kubectl-debug transom Helm linux windows aks kube-system");
            // The kubelet rejects such a pod, and Transom says so.
            let value = if label == "kubernetes.io/os" {
                "windows"
            } else {
                value
            };
            meta["labels"][label] = value.into();
        }
        5 | 6 => {
            let (api_version, kind) = dice
                .word(
                    "v1/Node v1/Node apps/v1/ReplicaSet apps/v1/DaemonSet apps/v1/Deployment apps/v1/StatefulSet batch/v1/Job \
                     batch/v1/CronJob v1/Pod kubevirt.io/v1/VirtualMachineInstance example.com/v1/Thing",
                )
                .rsplit_once('/')
                .unwrap();
            let owner = json!({"apiVersion": api_version, "kind": kind,
                "name": if kind == "Node" { NODE } else { "owner" },
                "uid": if kind == "Node" { node_uid } else { "0b5e" }, "controller": !dice.one_in(4)});
            meta["ownerReferences"] = json!([owner]);
        }
        7 => {
            let finalizer =
                dice.word("example.com/hold foregroundDeletion orphan kubernetes.io/pv-protection");
            meta["finalizers"] = json!([finalizer]);
        }
        _ => meta["annotations"]["padding"] = "<".repeat(dice.below(4) * 50_000).into(),
    }
}

/// What the API server does not take from an author, and what else no author has a right to.
fn throw_at_object(dice: &mut Dice, kind: Kind, object: &mut Value) {
    match dice.below(8) {
        0 => object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
        1 => object["metadata"]["deletionGracePeriodSeconds"] = 30.into(),
        2 => object["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into(),
        3 => {
            object["metadata"]["managedFields"] = json!([{"manager": dice.word("kubelet transom kube-controller-manager"),
                "operation": "Update", "apiVersion": object["apiVersion"], "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:annotations": {}}}}]);
        }
        4 => object["metadata"]["generation"] = 7.into(),
        5 if kind == Kind::Pod => {
            object["status"] = json!({"phase": dice.word("Succeeded Failed Running"), "hostIP": "10.0.0.1"});
        }
        5 => object["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]}),
        _ => {}
    }
    if dice.one_in(3) {
        spec_of(kind, object).unwrap()["nodeName"] = NODE.into();
    }
}

fn name(dice: &mut Dice, n: usize) -> String {
    match dice.below(5) {
        0 => format!("node-debugger-{NODE}-{n:05}"),
        1 => format!("kube-proxy-{n}"),
        2 => format!("mirror-{n}-{NODE}"),
        _ => format!("thrown-{n}"),
    }
}

/// A forbidden object with metadata that was thrown at it, and at its template.
fn bad_object(dice: &mut Dice, kind: Kind, name: &str, node_uid: &str) -> Value {
    let mut bad = object(kind, name, &forbidden(dice));
    dress(dice, kind, &mut bad, node_uid);
    bad
}

/// An object of which the controllers make no pod: this is not about them.
fn good_object(kind: Kind, name: &str) -> Value {
    let nowhere = json!({"nodeSelector": {"nowhere": "yes"}});
    let mut good = object(kind, name, &windows(&nowhere));
    if !matches!(
        kind,
        Kind::Pod | Kind::DaemonSet | Kind::CronJob | Kind::PodTemplate
    ) {
        good["spec"]["replicas"] = 0.into();
    }
    good
}

fn dress(dice: &mut Dice, kind: Kind, object: &mut Value, node_uid: &str) {
    for _ in 0..=dice.below(3) {
        throw(dice, &mut object["metadata"], node_uid);
    }
    if kind != Kind::Pod && dice.one_in(2) {
        let meta = &mut template_of(kind, object).unwrap()["metadata"];
        throw(dice, meta, node_uid);
        meta.as_object_mut().unwrap().remove("ownerReferences");
        meta.as_object_mut().unwrap().remove("finalizers");
    }
    throw_at_object(dice, kind, object);
}

/// The word under which an answer is counted.
fn word(answer: &Answer) -> &'static str {
    match answer.code {
        200 => "admitted",
        403 if denied(answer) => "denied by Transom",
        _ => "refused by the API server",
    }
}

async fn create_all(place: &Place, thrown: Vec<(Kind, Value)>) -> Vec<(Kind, Value, Answer)> {
    let each = thrown.into_iter().map(|(kind, object)| async move {
        let answer = place.create(kind, &object).await;
        (kind, object, answer)
    });
    futures::stream::iter(each).buffered(AT_ONCE).collect().await
}

/// Good objects that become bad ones: in one step, or first dressed and then made bad.
async fn update_all(place: &Place, thrown: Vec<(Kind, Value, Value, bool)>) -> Vec<(Kind, Value, Answer)> {
    let each = thrown
        .into_iter()
        .map(|(kind, good, bad, in_two_steps)| async move {
            let name = bad["metadata"]["name"].as_str().unwrap().to_owned();
            let created = place.create(kind, &good).await;
            assert!(created.ok, "{good}: {created:?}");
            if in_two_steps {
                let mut dressed = bad.clone();
                *spec_of(kind, &mut dressed).unwrap() = spec_of(kind, &mut good.clone()).unwrap().clone();
                place.update(kind, &dressed).await;
            }
            let answer = place.update(kind, &bad).await;
            place.delete(kind, &name).await;
            (kind, bad, answer)
        });
    futures::stream::iter(each).buffered(AT_ONCE).collect().await
}

#[test]
fn no_metadata_gets_a_forbidden_object_in() {
    const BATCH: usize = 500;
    let Some(place) = place() else { return };
    let (mut dice, all) = (Dice(0xba5e), thrown());
    // Without metadata each of them is denied: else these tests would prove nothing.
    let plain: Vec<(Kind, Value)> = (0..90)
        .map(|n| {
            let kind = KINDS[n % KINDS.len()];
            (kind, object(kind, &format!("plain-{n}"), &forbidden(&mut dice)))
        })
        .collect();
    for (_, object, answer) in RUNTIME.block_on(create_all(place, plain)) {
        assert!(denied(&answer), "{object}: {answer:?}");
    }
    let (mut counts, mut admitted) = (BTreeMap::<(&str, &str), usize>::new(), Vec::new());
    let mut done = 0;
    while done < all {
        let batch = done..all.min(done + BATCH);
        done = batch.end;
        let (mut creates, mut updates) = (Vec::new(), Vec::new());
        for n in batch {
            let kind = KINDS[dice.below(KINDS.len())];
            // The template of a Job does not change.
            if kind != Kind::Job && dice.one_in(3) {
                let name = format!("updated-{n}");
                let good = good_object(kind, &name);
                let mut bad = good.clone();
                let spec = spec_of(kind, &mut bad).unwrap();
                if kind == Kind::Pod {
                    // Of a pod no more than the image can be changed.
                    spec["containers"][0]["image"] = "mcr.microsoft.com/windows/servercore:latest".into();
                } else {
                    *spec = merged(spec, &json!({"hostPID": true}));
                }
                dress(&mut dice, kind, &mut bad, &place.node_uid);
                if kind == Kind::Pod {
                    bad["spec"].as_object_mut().unwrap().remove("nodeName");
                }
                updates.push((kind, good, bad, dice.one_in(2)));
            } else {
                let name = name(&mut dice, n);
                creates.push((kind, bad_object(&mut dice, kind, &name, &place.node_uid)));
            }
        }
        let created = RUNTIME.block_on(create_all(place, creates));
        let updated = RUNTIME.block_on(update_all(place, updates));
        for (what, answers) in [("create", created), ("update", updated)] {
            for (kind, object, answer) in answers {
                *counts.entry((what, word(&answer))).or_default() += 1;
                if answer.ok {
                    admitted.push(format!("{what} of a {kind}: {object}"));
                    let name = object["metadata"]["name"].as_str().unwrap();
                    RUNTIME.block_on(place.delete(kind, name));
                }
            }
        }
    }
    println!("{all} forbidden objects with metadata: {counts:#?}");
    let count = admitted.len();
    admitted.truncate(10);
    assert!(
        admitted.is_empty(),
        "{count} of {all} admitted:\n{}",
        admitted.join("\n")
    );
    let denied: usize = counts
        .iter()
        .filter(|((_, word), _)| *word == "denied by Transom")
        .map(|(_, count)| count)
        .sum();
    assert!(
        denied * 10 > all * 8,
        "the API server itself refuses too many: {counts:?}"
    );
}
