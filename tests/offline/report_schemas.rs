//! What commands print with `-o json` is what the schemas of the reports describe. Reports of clusters and of registries are
//! validated next to the tests that make them.

use std::path::Path;

use serde_json::Value;

use crate::support::command::{assert_valid_reports, bad_pod, files, transom};

/// Whether a list or a map of a report has entries.
fn has(report: &Value, pointer: &str) -> bool {
    let found = report.pointer(pointer);
    found.is_some_and(|found| {
        found.as_array().is_some_and(|list| !list.is_empty())
            || found.as_object().is_some_and(|map| !map.is_empty())
    })
}

#[test]
fn reports_of_check_are_what_the_schema_says() {
    let pods = [
        bad_pod("name: denied"),
        bad_pod("name: suppressed").replace("spec:", "# transom:suppress run-as-user until=2027-03-31 reason=\"old\"\nspec:"),
        bad_pod("name: exempted, namespace: legacy"),
        bad_pod("name: unseen, namespace: kube-system"),
        "apiVersion: v1\nkind: Pod\nmetadata: {name: placed}\nspec:\n  containers:\n  - name: a\n    image: \
         mcr.microsoft.com/windows/nanoserver:ltsc2022\n"
            .to_owned(),
        "apiVersion: example.com/v1\nkind: GameServerSet\nmetadata: {name: a}\nspec: {template: {spec: {containers: \
         [{name: a, image: a}]}}}\n"
            .to_owned(),
    ];
    let policy = "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: default}\nspec:\n  mode: \
                  Enforce\n  exemptions:\n  - {name: legacy, owner: team@example.com, reason: replaced soon, expiresOn: \
                  2027-03-31, rules: [run-as-user], namespaces: [legacy]}\n";
    let folder = files(&[
        ("pods.yaml", &pods.join("---\n")),
        ("policy.yaml", policy),
        ("values.yaml", "a: b\n"),
        ("broken.yaml", "a: [\n"),
        (
            "expired.yaml",
            &format!(
                "# transom:suppress run-as-user until=2020-01-01\n{}",
                bad_pod("name: expired")
            ),
        ),
    ]);
    let check =
        |arguments: &[&str]| transom(folder.path(), &[&["check", "-o", "json"], arguments].concat()).json();
    let all = check(&["--policy", "policy.yaml", "--today", "2026-06-01", "."]);
    for part in ["/skipped", "/otherDocuments", "/notes", "/errors"] {
        assert!(has(&all, part), "{part}: {all:#}");
    }
    let objects = all["objects"].as_array().unwrap();
    for part in ["/findings", "/exempted", "/suppressed", "/patch", "/evidence"] {
        assert!(objects.iter().any(|object| has(object, part)), "{part}: {all:#}");
    }
    transom(
        folder.path(),
        &["check", "--write-baseline", "known.json", "pods.yaml"],
    );
    let known = check(&["--baseline", "known.json", "pods.yaml"]);
    let corpus = transom(Path::new("."), &["check", "-o", "json", "tests/corpus"]).json();
    assert_valid_reports("check", &[&all, &known, &corpus]);
}

#[test]
fn reports_of_fix_are_what_the_schema_says() {
    let fix =
        |arguments: &[&str]| transom(Path::new("."), &[&["fix", "-o", "json"], arguments].concat()).json();
    let corpus = fix(&["--placement", "tests/corpus"]);
    let folder = files(&[("broken.yaml", "a: [\n"), ("twice.yaml", "a: 1\na: 2\n")]);
    let broken = fix(&[folder.path().to_str().unwrap()]);
    assert!(has(&broken, "/errors") && has(&broken, "/notes"), "{broken:#}");
    assert_valid_reports("fix", &[&corpus, &broken]);
}

#[test]
fn reports_of_plan_are_what_the_schema_says() {
    let plan = |arguments: &[&str]| {
        transom(
            Path::new("."),
            &[&["plan", "-o", "json", "--to", "ltsc2025"], arguments].concat(),
        )
        .json()
    };
    let corpus = plan(&["tests/corpus"]);
    for part in ["/workloads", "/drainOrder", "/capacity", "/pools"] {
        assert!(has(&corpus, part), "{part}: {corpus:#}");
    }
    assert_valid_reports("plan", &[&corpus, &plan(&["--gmsa-ready", "manifests/examples"])]);
}

#[test]
fn reports_of_audit_log_rules_explain_and_version_are_what_the_schemas_say() {
    let run = |arguments: &[&str]| transom(Path::new("."), arguments).json();
    let log = run(&[
        "audit-log",
        "-o",
        "json",
        "tests/audit_log/real.log",
        "CHANGELOG.md",
    ]);
    assert!(
        has(&log, "/workloads") && has(&log, "/workloads/0/rules"),
        "{log:#}"
    );
    assert_valid_reports("audit-log", &[&log]);
    assert_valid_reports("rules", &[&run(&["rules", "-o", "json"])]);
    assert_valid_reports("version", &[&run(&["version", "-o", "json"])]);
    let explained = run(&["explain", "TSM204", "-o", "json"]);
    assert_eq!(explained["rule"], "run-as-user");
    assert!(
        has(&explained, "/bad") && has(&explained, "/good"),
        "{explained:#}"
    );
    assert_valid_reports("explain", &[&explained]);
}

#[test]
fn reports_of_tests_are_what_the_schema_says() {
    let folder = files(&[
        (
            "pod.yaml",
            "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, hostNetwork: true, containers: [{name: a, image: a}]}}",
        ),
        (
            "transom-test.yaml",
            "resources: [pod.yaml, nothing.yaml]\nexpectations: [{object: Pod shop/a, outcome: admitted}]\n",
        ),
    ]);
    let report = transom(folder.path(), &["test", "-o", "json", "."]).json();
    let difference = "/files/0/results/0/differences/0";
    assert_eq!(
        report.pointer(difference).unwrap()["actual"],
        serde_json::json!(["denied"]),
        "{report:#}"
    );
    assert!(has(&report, "/files/0/errors"), "{report:#}");
    assert_valid_reports("test-report", &[&report]);
}
