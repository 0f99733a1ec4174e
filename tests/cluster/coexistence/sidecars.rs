//! Webhooks that inject sidecars, called before Transom and after it.

use serde_json::{Value, json};

use super::{PATIENCE, Place, builds, container, place, tolerates};
use crate::support::control_plane::wait;
use crate::support::objects::{windows_pod, workload};
use crate::support::recorder::Recorder;

/// Adds a sidecar to every pod that has none: harmless, or with what only Linux knows.
fn inject(entry: &str, request: &Value) -> Option<Value> {
    let containers = request["object"]["spec"]["containers"].as_array()?;
    if containers
        .iter()
        .any(|container| container["name"] == "istio-proxy")
    {
        return None;
    }
    let mut sidecar = json!({"name": "istio-proxy", "image": "registry.example.com/proxy:1"});
    if entry == "linux" {
        sidecar["securityContext"] = json!({"runAsUser": 1337, "runAsGroup": 1337, "readOnlyRootFilesystem": true,
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    }
    Some(json!([{"op": "add", "path": "/spec/containers/-", "value": sidecar}]))
}

#[test]
fn a_webhook_that_injects_sidecars_before_or_after_confuses_nobody() {
    let Some(place) = place() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let injector = runtime.block_on(Recorder::start_with(inject));
    let ca = {
        use base64::Engine as _;
        base64::prelude::BASE64_STANDARD.encode(&injector.ca)
    };
    let webhook = |order: &str, fields: &str| {
        json!({
            "name": format!("{fields}.{order}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": format!("{}/{fields}", injector.url), "caBundle": ca}, "failurePolicy": "Fail",
            "namespaceSelector": {"matchLabels": {"inject": fields, "order": order}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        })
    };
    // Mutating configurations are called in the order of their names; Transom's is `zz-transom`.
    for (name, order) in [("aaa-inject", "before"), ("zzzz-inject", "after")] {
        let webhooks = ["harmless", "linux"].map(|fields| webhook(order, fields));
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration", "metadata": {"name": name}, "webhooks": webhooks});
        place
            .cluster
            .kubectl_with(&["create", "-f", "-"], &configuration.to_string())
            .succeeded();
    }
    for order in ["before", "after"] {
        for fields in ["harmless", "linux"] {
            let namespace = format!("{fields}-{order}");
            place
                .cluster
                .create_namespace(&namespace, &[("inject", fields), ("order", order)]);
            let injected = || {
                let printed = place.create(&namespace, &json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": "linux"}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}),
                    &["--dry-run=server"]);
                printed.out.contains("istio-proxy")
            };
            assert!(wait(PATIENCE, injected), "{namespace}: the injector works");
            a_workload_runs_with_its_sidecar(place, &namespace, fields == "linux");
            the_warning_of_a_bare_pod_names_who_added_what(place, &namespace, fields == "linux");
        }
    }
    runtime.shutdown_background();
}

fn a_workload_runs_with_its_sidecar(place: &Place, namespace: &str, has_linux_fields: bool) {
    let spec = windows_pod("web")["spec"].clone();
    let mut deployment = workload("Deployment", "web", &spec, 1);
    deployment["spec"]["replicas"] = json!(2);
    place.create(namespace, &deployment, &[]).succeeded();
    // The author says Windows in so many words: with Linux fields beside it the API server refuses it, without us too.
    for pod in place.running(namespace, 2) {
        assert_eq!(container(&pod, "istio-proxy").len(), 1, "{namespace}: {pod}");
        assert!(builds(&pod).contains("10.0.20348"), "{namespace}: {pod}");
        assert_eq!(
            (tolerates(&pod, "os"), tolerates(&pod, "node.kubernetes.io/os")),
            (1, 1),
            "{namespace}: once each: {pod}"
        );
        let states = &pod["spec"]["os"];
        let expected = if has_linux_fields {
            Value::Null
        } else {
            json!({"name": "windows"})
        };
        assert_eq!(
            *states, expected,
            "{namespace}: os.name is withheld beside Linux fields, and only then: {pod}"
        );
    }
    assert_eq!(
        place.refused_pods(namespace),
        "",
        "{namespace}: no pod was ever refused"
    );
}

fn the_warning_of_a_bare_pod_names_who_added_what(place: &Place, namespace: &str, has_linux_fields: bool) {
    let printed = place.create(namespace, &windows_pod("bare"), &[]);
    if !has_linux_fields {
        assert_eq!(printed.succeeded().err, "", "{namespace}");
        return;
    }
    assert!(!printed.ok, "{namespace}: {printed:?}");
    let reported = printed
        .err
        .lines()
        .filter(|line| line.starts_with("spec.containers[istio-proxy].securityContext."));
    let reported: Vec<&str> = reported.collect();
    assert!(reported.len() >= 3, "{namespace}: {}", printed.err);
    assert!(
        reported
            .iter()
            .all(|line| line.contains("(added in admission, probably by Istio)")),
        "{namespace}: {}",
        printed.err
    );
}
