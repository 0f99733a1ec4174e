//! Baselines: what they contain, what they suppress, and what is wrong with them.

use std::fs;

use serde_json::{Value, json};

use crate::support::command::{assert_valid_sarif, bad_pod, files, transom};

#[test]
fn a_baseline_suppresses_what_is_known_and_nothing_else() {
    let folder = files(&[
        ("b.yaml", &bad_pod("name: b, namespace: shop")),
        ("a.yaml", &bad_pod("name: a")),
    ]);
    let root = folder.path();
    let check = |arguments: &[&str]| transom(root, &[&["check", "--no-config"], arguments].concat());
    assert_eq!(check(&["."]).status, 1);
    let run = check(&["--write-baseline", "known.json", "."]);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.err.contains("findings written to known.json"), "{}", run.err);
    let written = fs::read_to_string(root.join("known.json")).unwrap();
    let baseline: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(baseline["schema"], "transom.dev/baseline/v1");
    let findings = baseline["findings"].as_array().unwrap();
    let path = "spec.containers[web].securityContext.runAsUser";
    let entry = json!({"kind": "Pod", "namespace": "shop", "name": "b", "rule": "run-as-user", "path": path});
    assert!(findings.contains(&entry), "{written}");
    // The same findings give the same bytes, whatever the order of the files and the position in them.
    fs::write(root.join("a.yaml"), format!("# moved\n\n{}", bad_pod("name: a"))).unwrap();
    check(&["--write-baseline", "again.json", "b.yaml", "a.yaml"]);
    assert_eq!(fs::read_to_string(root.join("again.json")).unwrap(), written);

    let run = check(&["--baseline", "known.json", "--fail-on", "advice", "."]);
    assert_eq!(run.status, 0, "{}", run.out);
    assert!(
        run.out
            .contains(&format!(", {} suppressed; 0 would be denied", findings.len())),
        "{}",
        run.out
    );
    let report = check(&["--baseline", "known.json", "-o", "json", "a.yaml"]).json();
    assert_eq!(report["objects"][0]["suppressed"][0]["suppressedBy"], "baseline");
    // Objects that are not checked are no reason for a note.
    assert_eq!(report["notes"], json!([]));
    let sarif = check(&["--baseline", "known.json", "-o", "sarif", "a.yaml"]).json();
    assert_valid_sarif(&sarif);
    assert_eq!(
        sarif["runs"][0]["results"][0]["suppressions"][0]["kind"],
        "external"
    );

    // A new finding counts, and one that is fixed is noted.
    let changed = bad_pod("name: a")
        .replace("runAsUser: 1000, ", "")
        .replace("  os:", "  hostPID: true\n  os:");
    fs::write(root.join("a.yaml"), changed).unwrap();
    let run = check(&["--baseline", "known.json", "."]);
    assert_eq!(run.status, 1, "{}", run.out);
    assert!(run.out.contains("error[TSM401 host-pid] (Deny)"), "{}", run.out);
    let note = "note: known.json: entries of the baseline that match no finding: 1; write it again with --write-baseline";
    assert!(run.out.contains(note), "{}", run.out);
    // Written again with itself, it has the old findings that remain and the new one.
    check(&["--baseline", "known.json", "--write-baseline", "known.json", "."]);
    let now = fs::read_to_string(root.join("known.json")).unwrap();
    assert!(
        now.contains("host-pid") && now.matches("run-as-user").count() == 1,
        "{now}"
    );
    assert_eq!(check(&["--baseline", "known.json", "."]).status, 0);
}

#[test]
fn a_baseline_without_comments_keeps_inline_suppressions_apart() {
    let suppressed =
        bad_pod("name: a").replace("  containers:", "  containers: # transom:suppress run-as-user");
    let folder = files(&[("a.yaml", &suppressed)]);
    let run = transom(
        folder.path(),
        &["check", "--no-config", "--write-baseline", "known.json", "a.yaml"],
    );
    assert_eq!(run.status, 0, "{}", run.out);
    let written = fs::read_to_string(folder.path().join("known.json")).unwrap();
    assert!(!written.contains("run-as-user"), "{written}");
}

#[test]
fn a_bad_baseline_is_an_error_with_its_lines() {
    let entry = "{\"kind\": \"Pod\", \"name\": \"a\", \"rule\": \"run-as-user\", \"path\": \"spec\"}";
    for (text, message) in [
        (
            format!("{{\"schema\": \"transom.dev/baseline/v2\", \"findings\": [{entry}]}}"),
            "known.json:1: schema: there is no schema \"transom.dev/baseline/v2\"; did you mean transom.dev/baseline/v1?",
        ),
        (
            format!(
                "{{\"schema\": \"transom.dev/baseline/v1\", \"findings\": [\n{entry},\n{}]}}",
                entry.replace("run-as-user", "run-as-usr")
            ),
            "known.json:3: findings[1].rule: there is no rule \"run-as-usr\"; did you mean run-as-user?",
        ),
        (
            format!(
                "{{\"schema\": \"transom.dev/baseline/v1\", \"findings\": [\n{}]}}",
                entry.replace("kind", "knd")
            ),
            "known.json:2: findings[0]: unknown field \"knd\"; did you mean kind?",
        ),
        (
            "{\"findings\": []}".to_owned(),
            "known.json:1: the field \"schema\" is missing",
        ),
        ("[]".to_owned(), "known.json:1: this is not a map of fields"),
    ] {
        let folder = files(&[("known.json", &text), ("a.yaml", &bad_pod("name: a"))]);
        let run = transom(
            folder.path(),
            &["check", "--no-config", "--baseline", "known.json", "a.yaml"],
        );
        assert_eq!(run.status, 2, "{}", run.out);
        assert!(run.err.contains(message), "{}", run.err);
    }
}
