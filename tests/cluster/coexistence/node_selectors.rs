//! What the API server adds to pods and not to templates: the default node selectors of namespaces, and what injectors add.

use std::path::Path;

use serde_json::{Value, json};

use super::{PATIENCE, Place, place};
use crate::support::command::transom;
use crate::support::control_plane::wait;
use crate::support::install;
use crate::support::objects::workload;
use crate::support::recorder::Recorder;

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector=kubernetes.io/os=windows";
/// A Deployment without any sign of an operating system, and with a field that Windows does not have.
fn without_a_sign() -> Value {
    let spec = json!({"securityContext": {"runAsUser": 1000},
        "containers": [{"name": "web", "image": "registry.example.com/web:1"}]});
    workload("Deployment", "web", &spec, 1)
}

/// What `transom scan` reports of a namespace.
pub fn scan(place: &Place, namespace: &str) -> Value {
    let kubeconfig = place.cluster.path("admin.kubeconfig");
    let run = transom(
        Path::new("."),
        &[
            "scan",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "-n",
            namespace,
            "--fail-on",
            "never",
            "-o",
            "json",
        ],
    );
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

#[test]
fn a_template_that_gets_its_selector_from_the_namespace_is_reported_and_with_the_entry_denied() {
    let Some(place) = place() else { return };
    let annotate = |namespace: &str| {
        let args = ["annotate", "namespace", namespace, ANNOTATION];
        place.kubectl(&args).succeeded();
    };
    place.cluster.create_namespace("windows-by-namespace", &[]);
    annotate("windows-by-namespace");
    let created = place.create("windows-by-namespace", &without_a_sign(), &[]);
    assert_eq!(created.succeeded().err, "", "nothing sends it to Transom");
    let pods = place.running("windows-by-namespace", 1);
    assert_eq!(pods[0]["spec"]["nodeSelector"]["kubernetes.io/os"], "windows");
    let report = scan(place, "windows-by-namespace");
    assert_eq!(report["summary"]["windows"], 1, "{report:#}");
    let owner = &report["owners"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["decision"]),
        (&json!("Deployment"), &json!("web"), &json!("deny")),
        "{owner:#}"
    );
    assert!(
        owner["evidence"][0]
            .as_str()
            .unwrap()
            .contains("default node selector"),
        "{owner:#}"
    );

    // The file is read again, and the API server sends templates without a sign.
    let facts = install::cluster_config(&place.cluster, "podNodeSelector: Enabled");
    let facts = facts.each_ref().map(String::as_str);
    install::register(&place.cluster, place.replica.port, &facts);
    place.cluster.create_namespace("windows-by-facts", &[]);
    annotate("windows-by-facts");
    let mut denied = String::new();
    let is_denied = wait(PATIENCE, || {
        denied = place
            .create("windows-by-facts", &without_a_sign(), &["--dry-run=server"])
            .err;
        denied.contains("denied the request")
    });
    assert!(is_denied, "{denied}");
    assert!(
        denied.contains("default-node-selector.validate.transom.dev") && denied.contains("run-as-user"),
        "{denied}"
    );
    let mut clean = without_a_sign();
    clean["spec"]["template"]["spec"]["securityContext"] = json!({});
    place.create("windows-by-facts", &clean, &[]).succeeded();
    place.running("windows-by-facts", 1);
}

#[test]
fn a_workload_whose_pods_get_a_selector_from_an_injector_is_reported_by_its_pods() {
    let Some(place) = place() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let selects = |_: &str, request: &Value| {
        let has_one = !request["object"]["spec"]["nodeSelector"].is_null();
        let patch =
            json!([{"op": "add", "path": "/spec/nodeSelector", "value": {"kubernetes.io/os": "windows"}}]);
        (!has_one).then_some(patch)
    };
    let injector = runtime.block_on(Recorder::start_with(selects));
    let ca = {
        use base64::Engine as _;
        base64::prelude::BASE64_STANDARD.encode(&injector.ca)
    };
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "aaa-selects"}, "webhooks": [{
        "name": "selects.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": format!("{}/selects", injector.url), "caBundle": ca}, "failurePolicy": "Fail",
        "namespaceSelector": {"matchLabels": {"inject": "selector"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
    }]});
    let create = ["create", "-f", "-"];
    place
        .cluster
        .kubectl_with(&create, &configuration.to_string())
        .succeeded();
    place
        .cluster
        .create_namespace("windows-by-injector", &[("inject", "selector")]);
    let injected = || {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1"}]}});
        let printed = place.create("windows-by-injector", &pod, &["--dry-run=server"]);
        printed.out.contains("\"kubernetes.io/os\": \"windows\"")
    };
    assert!(wait(PATIENCE, injected), "the injector works");
    place
        .create("windows-by-injector", &without_a_sign(), &[])
        .succeeded();
    place.running("windows-by-injector", 1);
    let report = scan(place, "windows-by-injector");
    runtime.shutdown_background();
    assert_eq!(report["summary"]["windows"], 1, "{report:#}");
    let owner = &report["owners"][0];
    assert_eq!(owner["kind"], "Pod", "{owner:#}");
    assert_eq!(
        owner["owner"],
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}),
        "{owner:#}"
    );
    assert_eq!(
        (&owner["isAddedEvidence"], &owner["decision"]),
        (&json!(true), &json!("deny"))
    );
}
