//! Templates that name a RuntimeClass before it exists: nobody evaluates them when the class appears but Transom.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::command::transom;
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::install::{self, Replica};

/// Changes of RuntimeClasses cause a new evaluation once a minute.
const SOON: Duration = Duration::from_secs(150);

fn deployment(name: &str, class: &str, image: &str) -> String {
    let labels = json!({"app": name});
    let spec =
        json!({"runtimeClassName": class, "hostPID": true, "containers": [{"name": "app", "image": image}]});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}})
    .to_string()
}

#[test]
fn a_template_is_for_windows_by_a_usual_name_of_a_class_that_is_missing_and_by_any_class_that_appears() {
    let Some(cluster) = ControlPlane::start_or_skip("missing RuntimeClasses") else {
        return;
    };
    install::prepare(&cluster, install::POLICIES);
    cluster.create_namespace("shop", &[]);
    let definition = include_str!("../reports/openreports.yaml");
    cluster
        .kubectl_with(&["create", "-f", "-"], definition)
        .succeeded();
    let replica = Replica::start(&cluster, "transom", &["--reports"]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    let create = |name: &str, class: &str, image: &str| {
        cluster.kubectl_with(&["create", "-f", "-"], &deployment(name, class, image))
    };
    for class in ["windows-ltsc2025", "windows-2025", "windows-ltsc2022-hyperv"] {
        let is_denied = || {
            let created = create("web", class, "app:1");
            !created.ok && created.err.contains("hostPID")
        };
        assert!(wait(Duration::from_secs(20), is_denied), "{class}");
    }
    // An image for Linux disagrees; another name shows nothing; a class that exists says what it is.
    create("linux", "windows-ltsc2025", "golang:1.25-alpine").succeeded();
    create("other", "ours", "app:1").succeeded();
    let class = |name: &str, os: &str| {
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name},
            "handler": "any", "scheduling": {"nodeSelector": {"kubernetes.io/os": os}}});
        cluster
            .kubectl_with(&["create", "-f", "-"], &class.to_string())
            .succeeded();
    };
    class("windows-ltsc2025", "linux");
    let is_stored = || create("of-a-linux-class", "windows-ltsc2025", "app:1").ok;
    assert!(
        wait(Duration::from_secs(20), is_stored),
        "{}",
        cluster.end_of_log("transom")
    );

    // What was stored is reported when its class appears, on the object too.
    let reported = || -> Vec<String> {
        let listed = cluster.kubectl(&["get", "reports.openreports.io", "-n", "shop", "-o", "json"]);
        let objects = listed.objects().into_iter();
        let named = objects.filter_map(|report| report["scope"]["name"].as_str().map(str::to_owned));
        named.collect()
    };
    assert_eq!(reported(), Vec::<String>::new());
    let kubeconfig = cluster.path("admin.kubeconfig");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let scanned = || {
        transom(
            Path::new("."),
            &["scan", "--kubeconfig", kubeconfig, "-o", "json"],
        )
        .out
    };
    let missing = scanned();
    assert!(missing.contains("there is no RuntimeClass ours"), "{missing}");
    let condition_of = |kind: &str| {
        let path = format!("-o=jsonpath={{.status.conditions[?(@.type=='{kind}')]['status','message']}}");
        cluster.kubectl(&["get", "wpp", "default", &path]).out
    };
    let condition = || condition_of("RuntimeClassUsersDenied");
    let has_reports = || condition_of("ReportsWritten").starts_with("True");
    assert!(wait(SOON, has_reports), "{}", condition_of("ReportsWritten"));
    assert_eq!(condition(), "");
    class("ours", "windows");
    assert!(wait(SOON, || reported() == ["other"]), "{:?}", reported());
    let has_event = || {
        let events = cluster
            .kubectl(&["get", "events.events.k8s.io", "-n", "shop", "-o", "json"])
            .objects();
        let is_on_it = |event: &Value| event["regarding"]["name"] == "other";
        events.iter().any(is_on_it)
    };
    assert!(wait(SOON, has_event), "{}", cluster.end_of_log("transom"));
    let is_named = || condition().contains("Deployment shop/other (RuntimeClass ours)");
    assert!(wait(SOON, is_named), "{}", condition());
    assert!(!scanned().contains("there is no RuntimeClass"), "{}", scanned());
}
