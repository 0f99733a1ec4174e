//! Suppressions by comments and annotations: what they cover, what is said of them, and that admission ignores them.

use std::path::Path;

use jiff::civil::date;
use serde_json::{Value, json};
use transom::admission::{AdmissionContext, Phase, review as review_bytes};
use transom::check::SUPPRESS_ANNOTATION;
use transom::engine::policy_set::PolicySet;
use transom::model::cluster::facts::Facts;
use transom::model::cluster::policy::Policy;

use crate::support::command::{CommandRun, assert_valid_sarif, bad_pod, files, transom, transom_with};

/// `transom check` of one text, on a fixed day.
fn check(arguments: &[&str], text: &str) -> CommandRun {
    let before = ["check", "--no-config", "--no-advice", "--today", "2026-11-22"];
    transom_with(Path::new("."), &[&before, arguments, &["-"]].concat(), text)
}

/// The bad pod with this text after a line of it, and before its first line.
fn commented(line: usize, comment: &str, above: &str) -> String {
    let pod = bad_pod("name: web");
    let mut text = String::from(above);
    for (at, of_pod) in pod.lines().enumerate() {
        let rest = if at + 1 == line { comment } else { "" };
        text.extend([of_pod, rest, "\n"]);
    }
    text
}

#[test]
fn a_comment_covers_its_field_and_all_below_it_or_the_object() {
    let ignore = "# transom:suppress run-as-user";
    let spaced = format!(" {ignore}");
    for text in [
        // On the line of the field, and of those above it in the object.
        commented(11, &spaced, ""),
        commented(
            4,
            &format!(" {ignore} until=2026-11-22 reason=\"the old chart\""),
            "",
        ),
        commented(9, " # transom:suppress host-pid, TSM204", ""),
        commented(10, &spaced, ""),
        // On the line above.
        commented(10, &format!("\n    # why\n    {ignore}"), ""),
        commented(3, &format!("\n{ignore}"), ""),
        // At the top of the document.
        commented(0, "", &format!("{ignore}\n")),
        commented(0, "", &format!("# A pod\n\n{ignore}\n\n")),
        commented(
            0,
            "",
            &format!("kind: Namespace\napiVersion: v1\nmetadata: {{name: a}}\n--- {ignore}\n"),
        ),
        commented(0, "", &format!("{ignore}\n---\n")),
        // Every object of a list.
        format!(
            "{ignore}\napiVersion: v1\nkind: List\nitems:\n- {}",
            bad_pod("name: web").trim_end().replace('\n', "\n  ")
        ),
        // One object of a list.
        format!(
            "apiVersion: v1\nkind: List\nitems:\n{ignore}\n- {}",
            bad_pod("name: web").trim_end().replace('\n', "\n  ")
        ),
        commented(11, &spaced, "").replace('\n', "\r\n"),
    ] {
        let run = check(&[], &text);
        assert_eq!(run.status, 0, "{text}\n{}", run.out);
        assert!(
            run.out.contains(", 1 suppressed; 0 would be denied"),
            "{text}\n{}",
            run.out
        );
        let denied = "still denied by admission: Pod web: admission does not know suppressions\n";
        assert!(run.out.contains(denied), "{text}\n{}", run.out);
        assert!(!run.out.contains("run-as-user]"), "{text}\n{}", run.out);
    }
    for text in [
        // On another field, below a blank line, after the object, in text, and for another object.
        commented(12, &spaced, ""),
        commented(5, &spaced, ""),
        commented(1, &spaced, ""),
        commented(9, &format!("\n  {ignore}\n"), ""),
        commented(13, &format!("\n{ignore}"), ""),
        commented(3, &format!("\ntext: |\n  {ignore}"), ""),
        format!(
            "{ignore}\nkind: Namespace\napiVersion: v1\nmetadata: {{name: a}}\n---\n{}",
            bad_pod("name: web")
        ),
        commented(11, " # transom:suppress host-pid", ""),
    ] {
        let run = check(&[], &text);
        assert_eq!(run.status, 1, "{text}\n{}", run.out);
        assert!(!run.out.contains("suppressed"), "{text}\n{}", run.out);
    }
}

#[test]
fn what_is_suppressed_is_shown_on_request_and_in_every_format() {
    let text = commented(
        11,
        " # transom:suppress run-as-user until=2027-01-31 reason=\"the old chart\"",
        "",
    );
    let run = check(&["--show-suppressed"], &text);
    for line in [
        "error[TSM204 run-as-user] (suppressed): Windows has no user IDs\n",
        "note: suppressed in -:11, until 2027-01-31: the old chart\n",
    ] {
        assert!(run.out.contains(line), "{}", run.out);
    }
    let report = check(&["-o", "json"], &text).json();
    let subject = &report["objects"][0];
    assert_eq!(
        subject["decision"], "deny",
        "admission does not know suppressions"
    );
    assert_eq!(
        (&report["summary"]["denied"], &report["summary"]["suppressed"]),
        (&json!(0), &json!(1))
    );
    let suppressed = &subject["suppressed"][0];
    assert_eq!(suppressed["rule"], "run-as-user");
    assert_eq!(
        (
            &suppressed["suppressedBy"],
            &suppressed["location"],
            &suppressed["until"],
            &suppressed["reason"]
        ),
        (
            &json!("manifest"),
            &json!("-:11"),
            &json!("2027-01-31"),
            &json!("the old chart")
        )
    );
    let log = check(&["-o", "sarif"], &text).json();
    assert_valid_sarif(&log);
    let results = log["runs"][0]["results"].clone();
    let result = results
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["ruleId"] == "TSM204")
        .unwrap();
    let expected = json!([{"kind": "inSource", "status": "accepted", "justification": "the old chart"}]);
    assert_eq!(result["suppressions"], expected);
    let junit = check(&["-o", "junit"], &text).out;
    assert!(
        junit.contains("<skipped message=\"1 suppressed; admission would deny it\"/>"),
        "{junit}"
    );
    assert!(
        junit.contains("failures=\"0\" errors=\"0\" skipped=\"1\""),
        "{junit}"
    );
    for format in ["github", "gitlab"] {
        let run = check(&["-o", format], &text);
        assert!(!run.out.contains("TSM204"), "{format}: {}", run.out);
    }
}

#[test]
fn an_expired_suppression_is_a_warning_and_an_unused_one_a_note() {
    let text = commented(11, " # transom:suppress run-as-user until=2026-11-21", "");
    let run = check(&[], &text);
    assert_eq!(run.status, 1, "{}", run.out);
    let expired = "the suppression of run-as-user ended on 2026-11-21, and its findings count again";
    assert!(
        run.out.contains(&format!("warning: -:11: {expired}")),
        "{}",
        run.out
    );
    let github = check(&["-o", "github"], &text).out;
    assert!(
        github.contains(&format!("::warning file=-,line=11,title=transom::{expired}")),
        "{github}"
    );
    let gitlab = check(&["-o", "gitlab"], &text).json();
    let of_note = |entry: &&Value| entry["check_name"] == "note";
    let entry = gitlab.as_array().unwrap().iter().find(of_note).unwrap();
    assert_eq!(
        (&entry["severity"], &entry["location"]["lines"]["begin"]),
        (&json!("minor"), &json!(11))
    );

    let text = commented(11, " # transom:suppress run-as-user, host-pid", "");
    let run = check(&[], &text);
    assert_eq!(run.status, 0, "{}", run.out);
    let unused = "the suppression of host-pid matches no finding; remove it";
    let junit = check(&["-o", "junit"], &text).out;
    let junit = junit.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    assert!(
        junit.contains(&format!(
            "</testcase>\n<system-out>\nnote: line 11: {unused}\n</system-out>\n</testsuite>"
        )),
        "{junit}"
    );
    assert!(
        run.out.contains(&format!("note: -:11: {unused}\n")),
        "{}",
        run.out
    );
    let report = check(&["-o", "json"], &text).json();
    let note = json!([{"level": "note", "source": "-", "line": 11, "column": 0, "message": unused}]);
    assert_eq!(report["notes"], note);
    let sarif = check(&["-o", "sarif"], &text).json();
    assert_valid_sarif(&sarif);
    let notifications = &sarif["runs"][0]["invocations"][0]["toolExecutionNotifications"];
    assert_eq!(notifications[0]["level"], "note", "{notifications}");
    // Objects that the arguments do not select use their suppressions too.
    let text = text
        .replace("name: web}", "name: web, namespace: shop}")
        .replace(", host-pid", "");
    let run = check(&["-n", "bank"], &text);
    assert!(!run.out.contains("matches no finding"), "{}", run.out);
}

#[test]
fn a_bad_suppression_is_an_error_with_its_line_and_the_nearest_name() {
    for (comment, error) in [
        (
            "suppress run-as-usr",
            "transom:suppress: there is no rule \"run-as-usr\"; did you mean run-as-user?",
        ),
        (
            "suppress run-as-user until=2027-02-30",
            "transom:suppress: until=2027-02-30: there is no such date; did you mean 2027-02-28?",
        ),
        (
            "suppress run-as-user untill=x",
            "transom:suppress: there is no field \"untill\"; did you mean until?",
        ),
        (
            "suppress",
            "transom:suppress: name the rules, as in run-as-user or TSM204",
        ),
        (
            "ingore run-as-user",
            "there is no comment \"transom:ingore\"; did you mean transom:suppress?",
        ),
    ] {
        let run = check(&[], &commented(11, &format!(" # transom:{comment}"), ""));
        assert_eq!(run.status, 2, "{}", run.out);
        assert!(
            run.out.contains(&format!("cannot read -:11: {error}\n")),
            "{comment}\n{}",
            run.out
        );
        // The object is checked all the same.
        assert!(
            run.out.contains("error[TSM204 run-as-user] (Deny)"),
            "{}",
            run.out
        );
        let annotated = format!(
            "name: web, annotations: {{{SUPPRESS_ANNOTATION}: '{}'}}",
            comment.replace("suppress", "")
        );
        if let Some(why) = error.strip_prefix("transom:suppress: ") {
            let run = check(&[], &bad_pod(&annotated));
            let message = format!("cannot read -:3: the annotation {SUPPRESS_ANNOTATION}: {why}\n");
            let is_empty = comment == "suppress";
            assert_eq!(run.status, if is_empty { 1 } else { 2 }, "{}", run.out);
            assert_eq!(run.out.contains(&message), !is_empty, "{}", run.out);
        }
    }
}

#[test]
fn an_annotation_covers_the_object() {
    let metadata = |lines: &str| format!("name: web, annotations: {{{SUPPRESS_ANNOTATION}: \"{lines}\"}}");
    let run = check(
        &["--show-suppressed"],
        &bad_pod(&metadata(
            "host-pid\\nrun-as-user until=2027-01-31 reason=\\\"old chart\\\"\\n",
        )),
    );
    assert_eq!(run.status, 0, "{}", run.out);
    assert!(
        run.out
            .contains("note: suppressed in -:3, until 2027-01-31: old chart\n"),
        "{}",
        run.out
    );
    assert!(
        run.out
            .contains("note: -:3: the suppression of host-pid matches no finding"),
        "{}",
        run.out
    );
    let run = check(&[], &bad_pod(&metadata("run-as-user until=2026-01-31")));
    assert_eq!(run.status, 1, "{}", run.out);
    assert!(
        run.out
            .contains("warning: -:3: the suppression of run-as-user ended on 2026-01-31"),
        "{}",
        run.out
    );
}

#[test]
fn admission_ignores_the_annotation() {
    let review = |annotations: Value| {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
            "spec": {"os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [
                {"name": "a", "image": "a", "securityContext": {"runAsUser": 1000}},
            ]},
        });
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "shop",
            "userInfo": {"username": "alice"}, "operation": "CREATE", "object": object,
        }});
        let facts = Facts::new(Facts::KUBERNETES, date(2026, 11, 22));
        let context = AdmissionContext {
            facts: &facts,
            policies: &PolicySet::new(Vec::new(), Policy::standalone()),
        };
        [Phase::Mutate, Phase::Validate].map(|phase| {
            let answer = review_bytes(phase, review.to_string().as_bytes(), &context).unwrap();
            String::from_utf8(answer.body.clone()).unwrap()
        })
    };
    let without = review(json!({"a": "b"}));
    let with = review(json!({"a": "b", SUPPRESS_ANNOTATION: "run-as-user"}));
    assert_eq!(without, with);
    assert!(
        with[1].contains("\"allowed\":false") && with[1].contains("run-as-user"),
        "{}",
        with[1]
    );
}

#[test]
fn suppressions_of_one_file_do_not_apply_to_another() {
    let folder = files(&[
        (
            "a.yaml",
            &format!("# transom:suppress run-as-user\n{}", bad_pod("name: a")),
        ),
        ("b.yaml", &bad_pod("name: b")),
    ]);
    let run = transom(folder.path(), &["check", "--no-config", "-o", "json", "."]);
    let report = run.json();
    assert_eq!(
        (&report["summary"]["denied"], &report["summary"]["suppressed"]),
        (&json!(1), &json!(1))
    );
}
