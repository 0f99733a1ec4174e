//! Real AdmissionReviews of a real API server, through the real program over real TLS. Each snapshot is an answer as a
//! person can read it.

use std::fmt::Write as _;
use std::path::Path;

use crate::support::server::Server;
use base64::Engine as _;
use serde_json::Value;

const FACTS: &str = r"
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: win2019}, spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.6293}}}
- {apiVersion: v1, kind: Node, metadata: {name: win2022}, spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}
- {apiVersion: v1, kind: Node, metadata: {name: win2025}, spec: {taints: [{key: os, value: Windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.1742}}}
- {apiVersion: v1, kind: Node, metadata: {name: linux}, status: {nodeInfo: {operatingSystem: linux, kernelVersion: 6.1.0}}}
- {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2022}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}, tolerations: [{key: os, operator: Equal, value: windows, effect: NoSchedule}]}}
- {apiVersion: v1, kind: Namespace, metadata: {name: default}}
";

/// An answer as a person can read it: the patch decoded, the message on lines of its own.
fn readable(status: u16, body: &str) -> String {
    let Ok(answer) = serde_json::from_str::<Value>(body) else {
        return format!("HTTP {status}: {body}\n");
    };
    let response = &answer["response"];
    let mut out = format!(
        "HTTP {status}, allowed: {}, uid: {}\n",
        response["allowed"], response["uid"]
    );
    if let Some(status) = response.get("status") {
        let message = status["message"].as_str().unwrap();
        let _ = writeln!(
            out,
            "{} {}\n  {}",
            status["code"],
            status["reason"],
            message.replace('\n', "\n  ")
        );
        for cause in status["details"]["causes"].as_array().into_iter().flatten() {
            let _ = writeln!(out, "cause {} {}", cause["reason"], cause["field"]);
        }
    }
    if let Some(patch) = response["patch"].as_str() {
        let patch = base64::prelude::BASE64_STANDARD.decode(patch).unwrap();
        let _ = writeln!(out, "{}", response["patchType"]);
        for operation in serde_json::from_slice::<Vec<Value>>(&patch).unwrap() {
            let _ = writeln!(out, "  {operation}");
        }
    }
    for warning in response["warnings"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "warning: {warning}");
    }
    for (key, value) in response["auditAnnotations"].as_object().into_iter().flatten() {
        let _ = writeln!(out, "audit {key}: {value}");
    }
    out
}

#[test]
fn every_real_review_is_answered_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let facts = folder.path().join("facts.yaml");
    std::fs::write(&facts, FACTS).unwrap();
    let server = Server::start(folder.path(), &["--facts", facts.to_str().unwrap()]);
    let mut count = 0;
    insta::glob!("../reviews", "*.json", |path| {
        let review: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let mut out = String::new();
        for phase in ["/mutate", "/validate"] {
            let (status, body) = server.post(phase, review.to_string().as_bytes());
            let _ = writeln!(out, "{phase}\n{}", readable(status, &body));
            let answer: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(
                answer["response"]["uid"],
                review["request"]["uid"],
                "{}",
                path.display()
            );
        }
        insta::assert_snapshot!(out);
        count += 1;
    });
    assert_eq!(count, 16, "every review of the folder");
    let metrics = server.get("/metrics").unwrap();
    assert!(
        metrics.contains("transom_reviews_total{type=\"mutating\""),
        "{metrics}"
    );
    assert!(
        metrics.contains("transom_review_findings_total{rule=\"run-as-user\",type="),
        "{metrics}"
    );
    assert_eq!(server.terminate(), Some(0), "it ends in peace when asked to");
}

#[test]
fn a_policy_file_is_read_again_and_a_broken_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    let write = |mode: &str| {
        let text = format!(
            "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {{name: p}}\nspec: {{mode: {mode}}}\n"
        );
        std::fs::write(&policy, text).unwrap();
    };
    write("Enforce");
    let server = Server::start(folder.path(), &["--policy", policy.to_str().unwrap()]);
    let review = std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reviews/pod-create-linux-fields.json"),
    )
    .unwrap();
    let allowed = || {
        let (_, body) = server.post("/validate", &review);
        serde_json::from_str::<Value>(&body).unwrap()["response"]["allowed"]
            .as_bool()
            .unwrap()
    };
    let metric = |name: &str| {
        server
            .get("/metrics")
            .unwrap()
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
            .to_owned()
    };
    let wait_for = |what: &str, done: &dyn Fn() -> bool| {
        for _ in 0..200 {
            if done() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{what} did not happen");
    };
    assert!(!allowed());
    write("Enforc");
    wait_for("the report of the broken file", &|| {
        metric("transom_policy_reloads_total{result=\"error\"}").ends_with(" 1")
    });
    assert!(!allowed(), "the old policy stays");
    write("Audit");
    wait_for("the new policy", &allowed);
    drop(server);
}
