//! Look-ups of images by a running server, with a real registry: outages, slow and lying registries, stored workloads,
//! reports, and credentials. Where pods
//! land by what a registry reports is in `placement/registry_images.rs`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, wait};
use crate::support::hostile_registry::{Behaviour, HostileRegistry};
use crate::support::install::{self, Replica};
use crate::support::kubelet::join;
use crate::support::registry::{LTSC2022, Registry, linux, windows};

const A_WHILE: Duration = Duration::from_secs(60);

fn policies(milliseconds: i32) -> String {
    format!(
        "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {{name: default}}
spec: {{mode: Enforce, evidence: {{imageEvidence: Registry, imageWaitMilliseconds: {milliseconds}}}}}
"
    )
}

/// A pod that says nothing of Windows.
fn pod(namespace: &str, name: &str, image: &str, pull_secret: Option<&str>) -> Value {
    let secrets: Vec<Value> = pull_secret.iter().map(|name| json!({"name": name})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "app", "image": image}], "imagePullSecrets": secrets},
    })
}

/// Whether a pod is created as a Windows pod, as a dry run.
#[track_caller]
fn is_placed(cluster: &ControlPlane, pod: &Value) -> bool {
    let args = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    let created = cluster.kubectl_with(&args, &pod.to_string()).succeeded().object();
    created["spec"]["nodeSelector"]["kubernetes.io/os"] == "windows"
}

fn start(cluster: &ControlPlane, registry: &Registry, more: &[&str]) -> Replica {
    let host = registry.host();
    let args = [&["--image-registry", &host], more].concat();
    let replica = Replica::start(cluster, "transom", &args);
    install::register(cluster, replica.port, &["--image-registry", &host]);
    replica.is_ready(cluster);
    replica
}

#[test]
fn an_outage_of_a_registry_fails_no_create_and_what_is_known_stays() {
    let Some(mut registry) = Registry::start_or_skip() else {
        return;
    };
    let Some(cluster) = ControlPlane::start_or_skip("look-ups of images") else {
        return;
    };
    for name in ["known", "later"] {
        registry.push_image(
            crate::support::registry::Media::Oci,
            &format!("shop/{name}:1"),
            &windows(LTSC2022),
        );
    }
    join(&cluster, "win-2022", "10.0.20348");
    install::prepare(&cluster, &policies(500));
    let replica = start(&cluster, &registry, &[]);
    let (known, later) = (
        registry.reference("shop/known:1"),
        registry.reference("shop/later:1"),
    );
    let missing = registry.reference("shop/missing:1");
    // Nobody has seen these images: the review waits for the answer.
    let placed = || is_placed(&cluster, &pod("default", "known", &known, None));
    assert!(wait(A_WHILE, placed), "{}", cluster.end_of_log("transom"));
    assert!(!is_placed(&cluster, &pod("default", "missing", &missing, None)));

    registry.stop();
    let reviews = || replica.metric("transom_reviews_total");
    let before = reviews();
    for number in 0..20 {
        assert!(placed(), "after {number} pods: what is known stays");
        let unknown = registry.reference(&format!("shop/unknown-{number}:1"));
        assert!(!is_placed(&cluster, &pod("default", "unknown", &unknown, None)));
    }
    assert!(reviews() > before, "the webhook was called");
    assert!(!is_placed(&cluster, &pod("default", "later", &later, None)));
    let dropped = "transom_image_lookups_dropped_total{reason=\"registry_unavailable\"}";
    assert!(
        replica.metric(dropped) > Some(0),
        "no look-up is queued, and no review waits"
    );

    registry.resume();
    let placed = || is_placed(&cluster, &pod("default", "later", &later, None));
    assert!(wait(A_WHILE, placed), "{}", cluster.end_of_log("transom"));
    // One line a minute, not one for each image.
    let log = std::fs::read_to_string(cluster.path("transom.log")).unwrap_or_default();
    let lines = log.matches("cannot look up an image").count();
    assert!((1..=3).contains(&lines), "{lines} lines:\n{log}");
}

#[test]
fn images_of_stored_workloads_are_known_before_their_pods_are_created() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    let Some(cluster) = ControlPlane::start_or_skip("look-ups of images") else {
        return;
    };
    join(&cluster, "win-2022", "10.0.20348");
    let kinds = [
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "Job"),
    ];
    let references: Vec<String> = kinds
        .iter()
        .map(|(version, kind)| {
            let name = kind.to_lowercase();
            let image = format!("shop/{name}:1");
            registry.push_index(&image, &[windows(LTSC2022)]);
            let reference = registry.reference(&image);
            let labels = json!({"app": name});
            let mut spec = json!({
                "selector": {"matchLabels": labels}, "serviceName": name,
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "app", "image": reference}], "restartPolicy": "Always"},
                },
            });
            if *kind == "Job" {
                spec = json!({"template": {
                    "spec": {"containers": [{"name": "app", "image": reference}], "restartPolicy": "Never"},
                }});
            }
            if *kind != "StatefulSet" {
                spec.as_object_mut().unwrap().remove("serviceName");
            }
            let object =
                json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
            cluster
                .kubectl_with(&["create", "-n", "default", "-f", "-"], &object.to_string())
                .succeeded();
            reference
        })
        .collect();
    install::prepare(&cluster, &policies(0));
    let replica = start(&cluster, &registry, &[]);
    let found = format!(
        "transom_image_lookups_total{{registry=\"{}\",outcome=\"found\"}}",
        registry.host()
    );
    assert!(
        wait(A_WHILE, || replica.metric(&found) >= Some(4)),
        "{}",
        cluster.end_of_log("transom")
    );
    for reference in references {
        let pod = pod("default", "app", &reference, None);
        assert!(wait(A_WHILE, || is_placed(&cluster, &pod)), "{reference}");
    }
    // No review has looked anything up: every image was known.
    assert!(replica.metric(&found) < Some(5));
}

#[test]
fn a_private_registry_is_queried_with_the_secrets_that_the_flags_allow() {
    let Some(registry) = Registry::start_with(true, true) else {
        return;
    };
    let Some(cluster) = ControlPlane::start_or_skip("look-ups of images") else {
        return;
    };
    for name in ["own", "shared", "closed"] {
        registry.push_index(&format!("shop/{name}:1"), &[windows(LTSC2022)]);
    }
    join(&cluster, "win-2022", "10.0.20348");
    install::prepare(&cluster, &policies(500));
    let secret = |namespace: &str, name: &str| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": name, "namespace": namespace},
            "stringData": {".dockerconfigjson": registry.docker_config()},
        });
        cluster
            .kubectl_with(&["create", "-f", "-"], &secret.to_string())
            .succeeded();
    };
    for namespace in ["allowed", "not-allowed"] {
        cluster.create_namespace(namespace, &[]);
        secret(namespace, "pull");
    }
    let ca = registry.ca_file().display().to_string();
    let args = [
        "--registry-ca",
        &ca,
        "--image-pull-secret",
        "registries",
        "--image-pull-secret-namespace",
        "allowed",
    ];
    let _replica = start(&cluster, &registry, &args);
    let own = registry.reference("shop/own:1");
    let placed =
        |namespace: &str, image: &str| is_placed(&cluster, &pod(namespace, "web", image, Some("pull")));
    assert!(
        wait(A_WHILE, || placed("allowed", &own)),
        "{}",
        cluster.end_of_log("transom")
    );
    // The answer belongs to those who may see the image, and the other namespace did not agree.
    assert!(!placed("not-allowed", &own));
    assert!(
        !is_placed(&cluster, &pod("allowed", "web", &own, None)),
        "without the secret"
    );

    // Transom's own Secret is for every namespace. It is read again within a minute.
    secret("transom-system", "registries");
    let shared = registry.reference("shop/shared:1");
    assert!(
        wait(2 * A_WHILE, || placed("not-allowed", &shared)),
        "{}",
        cluster.end_of_log("transom")
    );
}

/// The number of reviews, and of those that took at most this many seconds.
fn reviews(replica: &Replica, at_most: &str) -> (u64, u64) {
    let bucket = |limit: &str| {
        let of = |kind: &str| {
            let name = format!("transom_review_duration_seconds_bucket{{le=\"{limit}\",type=\"{kind}\"}}");
            replica.metric(&name).unwrap_or(0)
        };
        of("mutating") + of("validating")
    };
    (bucket("+Inf"), bucket(at_most))
}

#[test]
fn slow_and_lying_registries_fail_no_create_delay_no_review_and_take_nothing_that_is_known() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    let Some(cluster) = ControlPlane::start_or_skip("look-ups of images") else {
        return;
    };
    // An image for Linux only, on a pod for Windows: what the registry reports denies it, and each denial looks the tag up
    // again.
    registry.push_index("shop/known:1", &[linux()]);
    let all = [
        Behaviour::Drip,
        Behaviour::WrongDigest,
        Behaviour::Redirect,
        Behaviour::TooLarge,
        Behaviour::Page,
        Behaviour::Hang,
        Behaviour::TooManyRequests,
    ];
    let hostile = all.map(|behaviour| (behaviour, HostileRegistry::before(registry.port)));
    join(&cluster, "win-2022", "10.0.20348");
    install::prepare(&cluster, &policies(200));
    let hosts = hostile.each_ref().map(|(_, registry)| registry.host()).join(",");
    let replica = Replica::start(&cluster, "transom", &["--image-registry", &hosts]);
    install::register(&cluster, replica.port, &["--image-registry", &hosts]);
    replica.is_ready(&cluster);
    let create = |image: &str| {
        let mut pod = pod("default", "known", image, None);
        pod["spec"]["os"] = json!({"name": "windows"});
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "windows"});
        cluster.kubectl_with(&["create", "--dry-run=server", "-f", "-"], &pod.to_string())
    };
    let is_denied = |registry: &HostileRegistry| {
        let printed = create(&registry.reference("shop/known:1"));
        !printed.ok && printed.err.contains("has no Windows variant")
    };
    for (_, registry) in &hostile {
        assert!(
            wait(A_WHILE, || is_denied(registry)),
            "{}",
            cluster.end_of_log("transom")
        );
    }
    for (behaviour, registry) in &hostile {
        registry.behave(*behaviour);
    }
    // Each denial looks up again what it is by. What is known stays, while that look-up runs and after it has failed.
    let asked_again = wait(A_WHILE, || {
        for (behaviour, registry) in &hostile {
            assert!(is_denied(registry), "{behaviour:?}");
        }
        let asked = |(_, registry): &(_, HostileRegistry)| registry.refused("/shop/known/") > 0;
        hostile.iter().all(asked)
    });
    assert!(asked_again, "{}", cluster.end_of_log("transom"));
    // What nobody knows is created.
    for number in 0..3 {
        for (behaviour, registry) in &hostile {
            let created = create(&registry.reference(&format!("shop/unknown-{number}:1")));
            assert!(created.ok, "{behaviour:?}: {}", created.err);
        }
    }
    // A look-up of the slow ones takes ten seconds or more, and a review waits for at most a fifth of one.
    let (all, prompt) = reviews(&replica, "2.0");
    assert!(
        all > 0 && all <= prompt,
        "{prompt} of {all} reviews within two seconds"
    );
    let lookups = |outcome: &str, registry: &HostileRegistry| {
        let host = registry.host();
        replica.metric(&format!(
            "transom_image_lookups_total{{registry=\"{host}\",outcome=\"{outcome}\"}}"
        ))
    };
    for (behaviour, registry) in &hostile {
        let outcome = match behaviour {
            Behaviour::Drip | Behaviour::Hang | Behaviour::TooManyRequests => "unreachable",
            _ => "failed",
        };
        let failed = || lookups(outcome, registry) > Some(0);
        assert!(
            wait(A_WHILE, failed),
            "{behaviour:?}: {}",
            cluster.end_of_log("transom")
        );
        assert!(is_denied(registry), "{behaviour:?}: what is known stays");
    }
    // One that wants fewer requests is left alone.
    let [.., (_, busy)] = &hostile;
    assert_eq!(busy.refused(""), 1, "the next attempt is after ten minutes");
}

#[test]
fn repositories_of_one_namespace_that_never_answer_switch_evidence_off_for_nobody_else() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    let Some(cluster) = ControlPlane::start_or_skip("look-ups of images") else {
        return;
    };
    for number in 0..4 {
        let media = crate::support::registry::Media::Oci;
        registry.push_image(media, &format!("shop/web:{number}"), &windows(LTSC2022));
    }
    let hostile = HostileRegistry::before(registry.port);
    join(&cluster, "win-2022", "10.0.20348");
    install::prepare(&cluster, &policies(200));
    cluster.create_namespace("evil", &[]);
    let host = hostile.host();
    let replica = Replica::start(&cluster, "transom", &["--image-registry", &host]);
    install::register(&cluster, replica.port, &["--image-registry", &host]);
    replica.is_ready(&cluster);
    let is_known = |number: usize| {
        let image = hostile.reference(&format!("shop/web:{number}"));
        let placed = || is_placed(&cluster, &pod("default", "web", &image, None));
        assert!(
            wait(A_WHILE, placed),
            "{number}: {}",
            cluster.end_of_log("transom")
        );
    };
    is_known(0);
    let unreachable = || {
        let labels = format!("registry=\"{host}\",outcome=\"unreachable\"");
        replica
            .metric(&format!("transom_image_lookups_total{{{labels}}}"))
            .unwrap_or(0)
    };
    let ask = |name: &str| {
        for number in 0..6 {
            let image = hostile.reference(&format!("evil/{name}-{number}:1"));
            assert!(!is_placed(&cluster, &pod("evil", "web", &image, None)));
        }
    };
    hostile.behave_for("/evil/", Behaviour::Hang);
    ask("hang");
    assert!(
        wait(Duration::from_secs(240), || unreachable() >= 3),
        "{}",
        unreachable()
    );
    is_known(1);
    // More hang meanwhile.
    ask("more");
    is_known(2);
    hostile.behave_for("/evil/", Behaviour::TooManyRequests);
    let before = unreachable();
    assert!(
        wait(A_WHILE, || {
            ask("limited");
            unreachable() > before && hostile.refused("limited") > 0
        }),
        "{}",
        cluster.end_of_log("transom")
    );
    is_known(3);
    let down = replica.metric(&format!(
        "transom_image_registries_unreachable{{registry=\"{host}\"}}"
    ));
    assert_eq!(down, Some(0));
    // It is asked by this namespace no more.
    assert_eq!(hostile.refused("limited"), 1);
}

#[test]
fn reports_and_scan_use_what_registries_report_of_stored_workloads() {
    const RULE: &str = "image-has-no-windows-variant";
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    let Some(cluster) = ControlPlane::start_or_skip("look-ups of images") else {
        return;
    };
    registry.push_index("shop/web:1", &[linux()]);
    let web = registry.reference("shop/web:1");
    join(&cluster, "win-2022", "10.0.20348");
    install::prepare(&cluster, &policies(0));
    cluster
        .kubectl_with(
            &["apply", "--server-side", "-f", "-"],
            include_str!("../reports/openreports.yaml"),
        )
        .succeeded();
    let labels = json!({"app": "web"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "web", "image": web}],
        }}},
    });
    cluster
        .kubectl_with(&["create", "-f", "-"], &deployment.to_string())
        .succeeded();

    scan_asks(&cluster, &registry, RULE);

    // The reports of a server: the object is evaluated again when the answer arrives.
    let _replica = start(&cluster, &registry, &["--reports"]);
    let reported = || {
        let listed = cluster.kubectl(&["get", "reports.openreports.io", "-n", "default", "-o", "json"]);
        let list: Value = serde_json::from_str(&listed.out).unwrap_or_default();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().any(|report| {
            let results = report["results"].as_array();
            let mut results = results.into_iter().flatten();
            results.any(|result| result["rule"] == RULE)
        })
    };
    assert!(wait(2 * A_WHILE, reported), "{}", cluster.end_of_log("transom"));
}

/// `transom scan` without and with `--registry`, with a cache and credentials of its own.
fn scan_asks(cluster: &ControlPlane, registry: &Registry, rule: &str) {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let scan = |options: &[&str]| {
        let run = std::process::Command::new(crate::support::command::program())
            .args([
                "scan",
                "--kubeconfig",
                &kubeconfig,
                "-o",
                "json",
                "--fail-on",
                "never",
            ])
            .args(options)
            .env("XDG_CACHE_HOME", home.path())
            .env("DOCKER_CONFIG", home.path())
            .output()
            .unwrap();
        let notes = String::from_utf8(run.stderr).unwrap();
        let report: Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
        assert!(report.is_object(), "{notes}");
        let rules: Vec<String> = (report["owners"].as_array().unwrap().iter())
            .filter(|owner| owner["name"] == "web")
            .flat_map(|owner| owner["findings"].as_array().unwrap())
            .map(|finding| finding["rule"].as_str().unwrap().to_owned())
            .collect();
        (rules, report["notes"].clone(), notes)
    };
    let (rules, _, notes) = scan(&[]);
    assert!(!rules.iter().any(|found| found == rule), "{rules:?}");
    assert!(
        notes.contains("policy default uses what registries report") && notes.contains("add --registry"),
        "{notes}"
    );
    assert!(registry.requests().is_empty(), "{:?}", registry.requests());
    let (rules, _, notes) = scan(&["--registry"]);
    assert!(rules.iter().any(|found| found == rule), "{rules:?}\n{notes}");
    assert!(!notes.contains("did not look up"), "{notes}");
    let requests = registry.requests().len();
    // What was kept is enough for the next scan, also of a cluster without registries.
    let (rules, _, _) = scan(&["--registry", "--offline"]);
    assert!(rules.iter().any(|found| found == rule), "{rules:?}");
    assert_eq!(registry.requests().len(), requests);
    let other = tempfile::tempdir().unwrap();
    let run = std::process::Command::new(crate::support::command::program())
        .args([
            "scan",
            "--kubeconfig",
            &kubeconfig,
            "--registry",
            "--offline",
            "--fail-on",
            "never",
        ])
        .env("XDG_CACHE_HOME", other.path())
        .env("DOCKER_CONFIG", other.path())
        .output()
        .unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{text}");
    assert!(
        text.contains("it is not in the cache") && text.contains("1 image"),
        "{text}"
    );
}
