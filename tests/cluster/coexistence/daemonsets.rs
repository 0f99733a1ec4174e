//! DaemonSets under Transom's eyes, and how many pods their controller makes of them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::{BUILD, IMAGE_2019, NODES, PATIENCE, Place, place};
use crate::support::control_plane::wait;
use crate::support::objects::{IMAGE, windows_pod, workload};

/// How often each DaemonSet and each Windows node is changed.
const CHANGES: usize = 60;

/// Each has a namespace of its own, of the same name; with the number of its pods.
fn daemonsets() -> Vec<(&'static str, Value, usize)> {
    let tolerations = json!([
        {"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/os", "operator": "Exists", "effect": "NoSchedule"},
    ]);
    let of_build = |build: &str, image: &str| {
        json!({"nodeSelector": {"kubernetes.io/os": "windows", BUILD: build}, "tolerations": tolerations,
            "containers": [{"name": "agent", "image": image}]})
    };
    let mut without_toleration = of_build("10.0.20348", IMAGE);
    without_toleration.as_object_mut().unwrap().remove("tolerations");
    vec![
        ("ds-right", of_build("10.0.20348", IMAGE), 2),
        // Its controller reads the template, so no pod of it is ever made.
        ("ds-without-toleration", without_toleration, 0),
        // Pinned to three nodes, of which two are too new for the image.
        (
            "ds-without-build",
            json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": tolerations,
                "containers": [{"name": "agent", "image": IMAGE_2019, "securityContext": {"runAsUser": 0}}]}),
            3,
        ),
        // What the class selects is merged into the pod, after the controller has chosen by the template.
        (
            "ds-of-a-class",
            json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "runtimeClassName": "windows-2019",
                "tolerations": tolerations, "containers": [{"name": "agent", "image": IMAGE_2019}]}),
            3,
        ),
        // Nothing but its image is for Windows; it has a pod on every node that it tolerates.
        (
            "ds-by-image",
            json!({"tolerations": [{"operator": "Exists"}], "containers": [{"name": "agent", "image": IMAGE}]}),
            4,
        ),
        (
            "ds-linux-agent",
            json!({"tolerations": [{"operator": "Exists"}], "hostPID": true,
                "containers": [{"name": "agent", "image": "fluent/fluent-bit:3.0", "securityContext": {"runAsUser": 0}}]}),
            4,
        ),
        (
            "ds-host-process",
            json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": [{"operator": "Exists"}],
                "hostNetwork": true, "containers": [{"name": "agent", "image": "registry.example.com/agent:1"}],
                "securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}}}),
            3,
        ),
        // What Windows ignores is taken out of its pods, so that they differ from the template in that.
        (
            "ds-repaired",
            with_ignored_fields(&of_build("10.0.20348", IMAGE)),
            2,
        ),
    ]
}

/// The policy of the namespace of that name.
const REPAIRS: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: repairs-daemonsets}
spec: {mode: Enforce, validation: {ignoredFields: Remove}, priority: 6, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ds-repaired}}}
---
# Their last change is what lets them reach nodes that do not run their image, or nodes of Linux.
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: spans-builds}
spec:
  mode: Enforce
  validation: {rules: [{name: daemonset-spans-builds, action: Warn}, {name: daemonset-template-unselective, action: Warn}]}
  priority: 5
  namespaceSelector:
    matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [ds-without-build, ds-of-a-class, ds-by-image]}]
";

fn with_ignored_fields(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["shareProcessNamespace"] = json!(false);
    spec["securityContext"] = json!({"fsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}});
    spec["containers"][0]["securityContext"] =
        json!({"privileged": false, "capabilities": {"drop": ["ALL"]}});
    spec
}

/// What stands for what: the controllers are handed every object again each second or two by `--min-resync-period`, and
/// each DaemonSet and each node is changed sixty times, as one change each ten seconds would do in ten minutes.
#[test]
fn a_daemonset_makes_no_hot_loop_over_ten_minutes_of_changes() {
    let Some(place) = place() else { return };
    let all = daemonsets();
    place
        .cluster
        .kubectl_with(&["apply", "-f", "-"], REPAIRS)
        .succeeded();
    make_before_and_roll_out_after(place, &all);
    let settled = |what: &str| {
        for (name, _, count) in &all {
            let made = || {
                std::thread::sleep(Duration::from_millis(200));
                place.pods(name).len() == *count
            };
            let events = || place.kubectl(&["get", "events", "-n", name]).out;
            assert!(wait(PATIENCE, made), "{what}: {name}: {count} pods: {}", events());
        }
    };
    settled("made");
    let counts = || -> BTreeMap<&str, usize> {
        all.iter()
            .map(|(name, ..)| (*name, place.created_by_controllers(name).len()))
            .collect()
    };
    let before = counts();
    let names: Vec<&str> = all.iter().map(|(name, ..)| *name).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let start = std::time::Instant::now();
    runtime.block_on(change(place, &names));
    let took = start.elapsed();
    settled("after all changes");
    let after = counts();
    let _ = writeln!(
        std::io::stderr(),
        "daemonsets: pods created before and after {CHANGES} changes of every DaemonSet and Windows node in {took:.0?}: \
         {before:?} {after:?}"
    );
    for (name, _, count) in &all {
        let codes = place.created_by_controllers(name);
        assert!(
            codes.iter().all(|code| *code == 201),
            "{name}: nothing is refused: {codes:?}"
        );
        // One that the controller and the scheduler see differently may be made once more, but not with each change.
        assert!(before[name] <= 2 * count, "{name}: {} pods made", before[name]);
        assert_eq!(after[name], before[name], "{name}: pods made again");
    }

    for (name, _, count) in &all {
        place
            .kubectl(&["delete", "pods", "-n", name, "--all", "--wait=false"])
            .succeeded();
        let made = || {
            std::thread::sleep(Duration::from_millis(200));
            place.created_by_controllers(name).len() >= after[name] + count
        };
        assert!(wait(PATIENCE, made), "{name}: every pod comes back");
        let made = place.created_by_controllers(name).len();
        assert!(made <= after[name] + 2 * count, "{name}: {made} pods made");
    }
    for pod in place.pods("ds-repaired") {
        let left = [
            &pod["spec"]["shareProcessNamespace"],
            &pod["spec"]["containers"][0]["securityContext"]["privileged"],
            &pod["spec"]["securityContext"]["fsGroup"],
        ];
        assert_eq!(left, [&Value::Null; 3], "{pod}");
    }
    an_author_is_warned_of_what_the_pods_will_lose(place);
    for pod in place.pods("ds-by-image") {
        assert_eq!(
            pod["spec"]["nodeSelector"],
            Value::Null,
            "its controller compares it with the template: {pod}"
        );
    }
}

fn an_author_is_warned_of_what_the_pods_will_lose(place: &Place) {
    let spec = with_ignored_fields(&daemonsets()[0].1);
    let create = |namespace: &str, kind: &str| {
        place.create(
            namespace,
            &workload(kind, "another", &spec, 1),
            &["--dry-run=server"],
        )
    };
    for kind in ["DaemonSet", "Deployment"] {
        let printed = create("ds-repaired", kind);
        let warning = format!("transom: the pods of {kind} ds-repaired/");
        assert!(printed.ok && printed.err.contains(&warning), "{printed:?}");
        let denied = create("ds-right", kind);
        assert!(
            !denied.ok && denied.err.contains("5 problems with "),
            "{denied:?}"
        );
    }
}

/// They are of the time before Transom: their namespaces have opted out until they are there, with no pod yet. Then every
/// pod is made under Transom's eyes.
fn make_before_and_roll_out_after(place: &Place, all: &[(&str, Value, usize)]) {
    for (name, spec, _) in all {
        place
            .cluster
            .create_namespace(name, &[("transom.dev/ignore", "true")]);
        let mut spec = spec.clone();
        spec["nodeSelector"]["not"] = json!("yet");
        place
            .create(name, &workload("DaemonSet", name, &spec, 1), &[])
            .succeeded();
    }
    for (name, ..) in all {
        place
            .kubectl(&["label", "namespace", name, "transom.dev/ignore-"])
            .succeeded();
    }
    let mut late = windows_pod("late");
    late["spec"]["hostNetwork"] = json!(true);
    for (name, ..) in all {
        let called = || !place.create(name, &late, &["--dry-run=server"]).ok;
        assert!(wait(PATIENCE, called), "{name}: Transom is asked");
    }
    // The change takes something away, so that nothing new is wrong.
    for (name, ..) in all {
        let free = r#"{"spec": {"template": {"spec": {"nodeSelector": {"not": null}}}}}"#;
        let printed = place.kubectl(&["patch", "-n", name, "daemonset", name, "-p", free]);
        assert!(printed.ok, "{name}: {}", printed.err);
    }
}

/// Changes every DaemonSet and every Windows node many times, in ways that make the controller look at them again.
async fn change(place: &Place, daemonsets: &[&str]) {
    use k8s_openapi::api::apps::v1::DaemonSet;
    use k8s_openapi::api::core::v1::Node;
    use kube::api::{Patch, PatchParams};
    let client = place.cluster.client().await;
    let nodes: kube::Api<Node> = kube::Api::all(client.clone());
    for time in 0..CHANGES {
        for name in daemonsets {
            let own: kube::Api<DaemonSet> = kube::Api::namespaced(client.clone(), name);
            let patch = json!({"metadata": {"annotations": {"touched": time.to_string()}}});
            own.patch(name, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .unwrap();
        }
        for (name, build, _) in NODES {
            if !build.is_empty() {
                let patch = json!({"metadata": {"labels": {"touched": time.to_string()}}});
                nodes
                    .patch(name, &PatchParams::default(), &Patch::Merge(patch))
                    .await
                    .unwrap();
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
