//! `kubectl debug` of Windows pods, of copies of them, and of Windows nodes.

use serde_json::{Value, json};

use super::{PATIENCE, Place, place};
use crate::support::control_plane::wait;
use crate::support::objects::{IMAGE, windows_pod, workload};

#[test]
fn kubectl_debug_works_on_windows_pods_and_on_windows_nodes() {
    let Some(place) = place() else { return };
    place.cluster.create_namespace("debug", &[]);
    let target = workload("Deployment", "target", &windows_pod("web")["spec"], 1);
    place.create("debug", &target, &[]).succeeded();
    let running = place.running("debug", 1).remove(0);
    let name = format!("pod/{}", running["metadata"]["name"].as_str().unwrap());
    for profile in ["general", "baseline", "netadmin", "sysadmin", "restricted"] {
        let debug = [
            "debug",
            "-n",
            "debug",
            &name,
            "--image",
            IMAGE,
            "--container",
            profile,
            "--profile",
            profile,
        ];
        let printed = place.kubectl(&debug).succeeded();
        let fixed = printed.err.contains("Warning: transom: removed from Pod ");
        assert_eq!(fixed, profile != "baseline", "{profile}: {printed:?}");
    }
    let stored = place.list(&["-n", "debug", &name]).remove(0);
    assert_eq!(stored["spec"]["ephemeralContainers"].as_array().unwrap().len(), 5);
    // A copy is a pod like any other, and kubectl gives it what the API server refuses beside `os.name`; removal of ignored fields fixes it.
    let copy = [
        "debug",
        "-n",
        "debug",
        &name,
        "--image",
        IMAGE,
        "--copy-to",
        "copy",
    ];
    let denied = place.kubectl(&copy);
    assert!(
        !denied.ok && denied.err.contains("[TSM404 share-process-namespace]"),
        "{denied:?}"
    );
    let policy = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: repairs}
spec: {mode: Enforce, validation: {ignoredFields: Remove}, priority: 3, namespaceSelector: {matchLabels: {ignored-fields: removed}}}
";
    place
        .cluster
        .kubectl_with(&["apply", "-f", "-"], policy)
        .succeeded();
    place
        .kubectl(&["label", "namespace", "debug", "ignored-fields=removed"])
        .succeeded();
    let copied = || place.kubectl(&copy).ok;
    assert!(wait(PATIENCE, copied), "{:?}", place.kubectl(&copy));
    on_a_node(place);
}

/// kubectl makes a pod that is bound to the node, with fields of its own that Windows ignores.
fn on_a_node(place: &Place) {
    place.cluster.create_namespace("debug-node", &[]);
    place
        .cluster
        .create_namespace("debug-bare", &[("transom.dev/ignore", "true")]);
    let debug = |namespace: &str, image: &str, profile: &str, more: &[&str]| {
        let args = [
            "debug",
            "-n",
            namespace,
            "node/win-2022-a",
            "--image",
            image,
            "--profile",
            profile,
        ];
        place.kubectl(&[&args, more].concat())
    };
    let nano = "mcr.microsoft.com/windows/nanoserver:ltsc2022";
    for profile in ["general", "baseline", "netadmin", "sysadmin", "restricted"] {
        for image in ["busybox", nano] {
            debug("debug-bare", image, profile, &[]).succeeded();
            let printed = debug("debug-node", image, profile, &[]).succeeded();
            let warned = printed.err.contains("Warning: transom: Pod ");
            // The pod of an image that nobody knows is no Windows pod, wherever it is bound.
            assert_eq!(
                warned,
                image == nano && profile != "baseline",
                "{profile} {image}: {printed:?}"
            );
        }
    }
    // A shell on the host itself: a HostProcess container, which no profile of kubectl makes.
    let host = json!({"securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}}});
    let file = place.cluster.path("host-process.json");
    std::fs::write(&file, host.to_string()).unwrap();
    let custom = file.display().to_string();
    debug("debug-node", nano, "general", &["--custom", &custom]).succeeded();
    let specs = |namespace: &str| -> Vec<Value> {
        let mut specs: Vec<Value> = place
            .pods(namespace)
            .iter_mut()
            .map(|pod| pod["spec"].take())
            .collect();
        specs.sort_by_key(Value::to_string);
        specs
    };
    let [with, without] = ["debug-node", "debug-bare"].map(specs);
    assert_eq!(with.len(), without.len() + 1);
    for spec in &without {
        assert!(
            with.contains(spec),
            "a pod that is bound already is left as it is: {spec}"
        );
    }
}
