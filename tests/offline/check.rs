//! `transom check` as a person and a CI system run it: what is printed, what is left out, and the exit status.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::command::{
    CommandRun as Run, assert_valid_sarif, bad_pod, files as folder, junit_cases, status_unread, transom_in,
    transom_with,
};

/// Runs `transom check` in a folder, with this on its standard input.
fn check(folder: &Path, arguments: &[&str], input: &str) -> Run {
    transom_with(folder, &[&["check"], arguments].concat(), input)
}

/// The same for one text.
fn check_text(arguments: &[&str], text: &str) -> Run {
    check(Path::new("."), &[arguments, &["-"]].concat(), text)
}

/// The same, with this file of policies.
fn check_by(policies: &str, arguments: &[&str], text: &str) -> Run {
    let files = folder(&[("policies.yaml", policies)]);
    check(
        files.path(),
        &[&["--policy", "policies.yaml"], arguments, &["-"]].concat(),
        text,
    )
}

/// A pod that Windows cannot run, and that no placement fixes: one error.
fn bad(metadata: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{{metadata}}}\nspec:\n  os: {{name: windows}}\n  \
         nodeSelector: {{kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}}\n  \
         containers:\n  - name: web\n    image: mcr.microsoft.com/windows/nanoserver:ltsc2022\n    \
         securityContext: {{runAsUser: 1000, windowsOptions: {{runAsUserName: ContainerUser}}}}\n    \
         resources: {{limits: {{memory: 1Gi}}}}\n"
    )
}

fn policy(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n---\n"
    )
}

#[test]
fn what_admission_never_sees_is_not_called_denied() {
    let namespace = |labels: &str| {
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: web, labels: {{{labels}}}}}\n---\n")
    };
    let in_web = bad("name: a, namespace: web");
    for (arguments, text, why) in [
        (
            &[][..],
            bad("name: a, namespace: kube-system"),
            "the namespace kube-system is excluded by name",
        ),
        (
            &[],
            bad("name: a, namespace: gatekeeper-system"),
            "the namespace gatekeeper-system is excluded by name",
        ),
        (
            &["--exclude-namespace", "web,db"],
            in_web.clone(),
            "the namespace web is excluded by name",
        ),
        (
            &["--namespace", "kube-public"],
            bad("name: a"),
            "the namespace kube-public is excluded by name",
        ),
        (
            &[],
            namespace("transom.dev/ignore: \"true\"") + &in_web,
            "the label transom.dev/ignore excludes the namespace web",
        ),
        (
            &[],
            namespace("kubernetes.azure.com/managedby: aks") + &in_web,
            "the label kubernetes.azure.com/managedby excludes the namespace web",
        ),
    ] {
        let run = check_text(arguments, &text);
        assert_eq!(run.status, 0, "{text}\n{}", run.out);
        assert!(
            run.out
                .contains("error[TSM204 run-as-user] (in an excluded namespace): "),
            "{}",
            run.out
        );
        assert!(
            run.out.contains("would pass: ") && run.out.contains(why),
            "{}",
            run.out
        );
        assert!(
            run.out
                .contains("; 0 would be denied, 1 in excluded namespaces\n"),
            "{}",
            run.out
        );
        let json = check_text(&[arguments, &["-o", "json"]].concat(), &text).json();
        assert!(
            json["objects"][0]["notReviewed"].as_str().unwrap().contains(why),
            "{json:#}"
        );
        assert_eq!(json["objects"][0]["findings"][0]["action"], "Disabled");
    }
    for (arguments, text) in [
        (&[][..], in_web.clone()),
        (
            &["--exclude-namespace", ""],
            bad("name: a, namespace: gatekeeper-system"),
        ),
        (&[], namespace("transom.dev/ignore: \"false\"") + &in_web),
    ] {
        assert_eq!(check_text(arguments, &text).status, 1, "{text}");
    }
}

#[test]
fn a_namespace_that_is_given_is_a_filter_and_that_of_objects_without_one() {
    let named = "apiVersion: v1\nkind: Namespace\nmetadata: {name: web, labels: {transom.dev/mode: Warn}}\n";
    let overridable = policy("all", "mode: Enforce, namespaceOverrides: Any");
    let text = bad("name: a") + "---\n" + named;
    assert_eq!(check_by(&overridable, &[], &text).status, 1);
    let run = check_by(&overridable, &["--namespace", "web"], &text);
    assert_eq!(run.status, 0, "{}", run.out);
    assert!(run.out.contains("(Pod web/a)"), "{}", run.out);
    let elsewhere = bad("name: a, namespace: db") + "---\n" + named;
    assert_eq!(check_text(&["-n", "web"], &elsewhere).status, 0);
    assert_eq!(check_text(&["-n", "web", "-n", "db"], &elsewhere).status, 1);
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n";
    let json = check_text(&["-n", "web", "-o", "json"], node).json();
    assert_eq!(json["objects"][0]["namespace"], Value::Null);
}

#[test]
fn the_report_names_the_policy_that_counted_and_says_why() {
    let two = bad("name: a, namespace: web") + "---\n" + &bad("name: b, namespace: db");
    let labelled = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: web, labels: {team: a}}\n";
    let selecting = policy("team", "mode: Warn, namespaceSelector: {matchLabels: {team: a}}");
    let run = check_text(&[], &two);
    assert!(
        run.out
            .contains("\npolicy: built-in (validation Deny, placement Apply): no policy is given\n"),
        "{}",
        run.out
    );
    let labelled = two.clone() + labelled;
    let run = check_by(&selecting, &[], &labelled);
    assert_eq!(run.status, 1);
    for line in [
        "\npolicy: built-in (validation Deny, placement Apply), for 1 object: no policy selects the namespace, whose labels are not among the inputs\n",
        "\npolicy: team (validation Warn, placement Apply), for 1 object: it selects the namespace\n",
    ] {
        assert!(run.out.contains(line), "{}", run.out);
    }
    let first = policy("first", "mode: Audit, priority: 7");
    let json = check_by(&(selecting + &first), &["-o", "json"], &labelled).json();
    let why = &json["objects"][0]["policy"];
    assert_eq!(
        (&why["name"], &why["validation"], &why["placement"]),
        (&json!("first"), &json!("Audit"), &json!("Audit"))
    );
    let why = why["reason"].as_str().unwrap();
    assert!(
        why.contains("its priority (7) or name puts it before 1 more"),
        "{why}"
    );
}

#[test]
fn a_policy_among_the_inputs_changes_nothing_and_is_named() {
    let glass = policy("break-glass", "mode: Audit");
    let files = folder(&[
        ("app/break-glass.yaml", &glass),
        ("app/pod.yaml", &bad("name: a")),
        (
            "app/job.yaml",
            "apiVersion: corp.example/v1\nkind: Job\nspec: {containers: [{name: a, image: a}]}\n",
        ),
    ]);
    let alone = check(files.path(), &["app/pod.yaml"], "");
    let run = check(files.path(), &["app"], "");
    assert_eq!((alone.status, run.status), (1, 1), "{}", run.out);
    let note = "note: app/break-glass.yaml:2: the policy \"break-glass\" does not apply; to apply: transom check --policy \
                app/break-glass.yaml PATHS\n";
    let unwrapped = |run: &Run| run.out.replace("\n  ", " ");
    assert!(unwrapped(&run).contains(note), "{}", run.out);
    assert!(run.out.contains("\npolicy: built-in ("), "{}", run.out);
    assert!(run.out.contains("skipped: 1 (Job.corp.example 1)"), "{}", run.out);
    let json = check(files.path(), &["-o", "json", "app"], "").json();
    let note = &json["notes"][0];
    assert_eq!(
        (&note["level"], &note["line"]),
        (&json!("note"), &json!(2)),
        "{json:#}"
    );

    // The file that is given applies, also if it is among the inputs, and is not named.
    let run = check(files.path(), &["--policy", "app/break-glass.yaml", "app"], "");
    assert_eq!(run.status, 0, "{}", run.out);
    assert!(!run.out.contains("does not apply"), "{}", run.out);
    // In facts, it does not apply either.
    let configured = folder(&[
        (".transom.yaml", "facts: [cluster.yaml]\n"),
        ("cluster.yaml", &(glass.clone() + &policy("other", "mode: Audit"))),
        ("pod.yaml", &bad("name: a")),
    ]);
    let run = check(configured.path(), &["pod.yaml"], "");
    assert_eq!(run.status, 1, "{}", run.out);
    let named = "the policies \"break-glass\", \"other\" do not apply";
    assert!(unwrapped(&run).contains(named), "{}", run.out);
}

#[test]
fn a_broken_policy_is_refused_wherever_it_is() {
    let audit = policy("default", "mode: Audit, placement: {mode: Apply}");
    let broken = policy("default", "mode: Adit");
    let run = check_text(&[], &(broken.clone() + &bad("name: a")));
    assert_eq!(run.status, 2);
    assert!(run.out.contains("cannot read -:5: spec.mode"), "{}", run.out);
    // Two of one name can be those of two clusters.
    let twice = check_text(&[], &(audit.clone() + &audit + &bad("name: a")));
    assert_eq!(twice.status, 1, "{}", twice.out);
    assert_eq!(check_by(&audit, &[], &broken).status, 2);
    assert_eq!(check_by(&broken, &[], &bad("name: a")).status, 2);
}

#[test]
fn the_policies_of_an_export_of_a_cluster_apply() {
    let export = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}}}\n- apiVersion: \
         transom.dev/v1alpha1\n  kind: WindowsPodPolicy\n  metadata: {{name: exported}}\n  spec: {{mode: Audit}}\n---\n{}",
        bad("name: other")
    );
    let run = check_by(&export, &[], &bad("name: a"));
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    assert!(run.out.contains("\npolicy: exported ("), "{}", run.out);
    assert!(run.out.contains("1 object checked"), "{}", run.out);
    let run = check_by(&bad("name: other"), &[], &bad("name: a"));
    assert_eq!(run.status, 2);
    assert!(
        run.err.contains("there is no WindowsPodPolicy in the file"),
        "{}",
        run.err
    );
    let run = check_by(
        &export.replace("mode: Audit", "mode: Audit, mode: Enforce"),
        &[],
        &bad("name: a"),
    );
    assert_eq!(run.status, 2);
    assert!(run.err.contains("the key mode is given twice"), "{}", run.err);
}

#[test]
fn the_platforms_policies_can_be_checked_by() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for entry in fs::read_dir(root.join("manifests/examples/platforms")).unwrap() {
        let file = entry.unwrap().path().display().to_string();
        let run = check_text(&["--policy", &file], &bad("name: a"));
        assert_eq!(run.status, 1, "{file}: {}{}", run.out, run.err);
        assert!(
            run.out
                .contains("\npolicy: default (validation Deny, placement Apply): it selects the namespace\n"),
            "{}",
            run.out
        );
        seen += 1;
    }
    assert!(seen > 5, "{seen} platforms");
}

#[test]
fn a_finding_says_what_it_does_and_why_that_is_not_what_its_severity_says() {
    let pod = bad("name: a");
    let owned = bad(
        "name: a, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, controller: true}]",
    );
    let exempt = "exemptions: [{name: old, rules: [run-as-user], namespaces: ['*'], expiresOn: 2999-01-01, owner: web team, reason: old image}]";
    let enforce = policy("p", "mode: Enforce");
    for (policies, text, effect, note, status) in [
        (enforce.clone(), &pod, "Deny", "", 1),
        (
            policy("p", "mode: Audit, placement: {mode: Apply}"),
            &pod,
            "Audit",
            "Audit instead of Deny: the policy p limits actions to Audit",
            0,
        ),
        (
            policy(
                "p",
                "mode: Enforce, validation: {rules: [{name: run-as-user, action: Warn}]}",
            ),
            &pod,
            "Warn",
            "Warn instead of Deny: the policy p sets run-as-user to Warn",
            0,
        ),
        (
            enforce,
            &owned,
            "Audit",
            "Audit instead of Deny: its owner's controller is assumed to have created it",
            0,
        ),
        (
            policy("p", &format!("mode: Enforce, {exempt}")),
            &pod,
            "exempted",
            "an exemption lifts this: web team until 2999-01-01: old image",
            0,
        ),
    ] {
        let run = check_by(&policies, &[], text);
        assert_eq!(run.status, status, "{text}\n{}", run.out);
        assert!(
            run.out
                .contains(&format!("error[TSM204 run-as-user] ({effect}): ")),
            "{effect}: {}",
            run.out
        );
        assert!(run.out.contains(note), "{}", run.out);
        let json = check_by(&policies, &["-o", "json"], text).json();
        let subject = &json["objects"][0];
        if effect == "exempted" {
            assert_eq!(json["summary"]["exempted"], 1);
            assert_eq!(subject["exempted"][0]["rule"], "run-as-user");
            assert!(
                run.out.contains(", 1 more exempted; ")
                    || run.out.contains("nothing found, 1 more exempted; "),
                "{}",
                run.out
            );
        } else {
            let finding = subject["findings"]
                .as_array()
                .unwrap()
                .iter()
                .find(|it| it["rule"] == "run-as-user")
                .unwrap();
            assert_eq!(finding["action"], effect);
            assert_eq!(
                finding["actionReason"].as_str().unwrap_or_default(),
                run.out
                    .lines()
                    .find_map(|line| line
                        .split_once("note: ")
                        .filter(|(_, it)| it.contains("instead of")))
                    .map_or("", |(_, it)| it)
            );
        }
    }
}

#[test]
fn advice_that_denies_is_shown_whatever_is_left_out() {
    let pod = bad("name: a").replace("  os: {name: windows}\n", "");
    let policies = policy(
        "p",
        "mode: Enforce, placement: {mode: Disabled}, validation: {rules: [{name: os-name-missing, action: Deny}, {name: run-as-user, action: Disabled}]}",
    );
    let run = check_by(&policies, &["--no-advice"], &pod);
    assert_eq!(run.status, 1);
    assert!(
        run.out.contains("advice[TSM101 os-name-missing] (Deny): "),
        "{}",
        run.out
    );
    assert!(
        run.out
            .contains("note: Deny instead of Audit: the policy p sets os-name-missing to Deny\n"),
        "{}",
        run.out
    );
    let without = check_text(&["--no-advice"], &pod);
    assert!(
        !without.out.contains("advice[TSM101") && without.out.contains("not shown)"),
        "{}",
        without.out
    );
}

#[test]
fn the_documented_report_is_what_is_printed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/cli/check-json.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text
        .split_once("`transom check -o json pod.yaml` for this file\n\n```yaml\n")
        .unwrap();
    let (pod, rest) = rest.split_once("```\n").unwrap();
    let (between, rest) = rest.split_once("```json\n").unwrap();
    let (shown, after) = rest.split_once("```\n").unwrap();
    let files = folder(&[("pod.yaml", pod)]);
    let run = check(files.path(), &["-o", "json", "pod.yaml"], "");
    if std::env::var_os("TRANSOM_BLESS").is_some_and(|value| value == "1") {
        let start = "`transom check -o json pod.yaml` for this file\n\n```yaml\n";
        let page_now = format!(
            "{before}{start}{pod}```\n{between}```json\n{}```\n{after}",
            run.out
        );
        fs::write(&page, page_now).unwrap();
        return;
    }
    let how = "TRANSOM_BLESS=1 cargo test --test offline check:: writes it again";
    assert!(
        run.out == shown,
        "docs/reference/cli/check-json.md shows another report than this; {how}\n{}",
        run.out
    );
}

#[test]
fn ci_can_fail_on_less_than_a_denial() {
    let [enforce, audit] =
        ["Enforce", "Audit"].map(|mode| policy("p", &format!("mode: {mode}, placement: {{mode: Apply}}")));
    let repeated = "apiVersion: v1\nkind: Service\nmetadata: {name: a, name: b}\n";
    let advice = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  nodeSelector: {kubernetes.io/os: windows}\n  \
                  containers: [{name: a, image: a}]\n";
    let linux =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: nginx}]}\n";
    for (policies, text, statuses) in [
        (&audit, bad("name: a").as_str(), [0, 1, 1, 1]),
        (&enforce, &bad("name: a"), [1, 1, 1, 1]),
        (&enforce, advice, [0, 0, 0, 1]),
        (&enforce, linux, [0, 0, 0, 0]),
        // A key that is given twice is a warning.
        (&enforce, repeated, [0, 0, 1, 1]),
    ] {
        for (what, status) in ["deny", "error", "warning", "advice"].into_iter().zip(statuses) {
            let run = check_by(policies, &["--fail-on", what], text);
            assert_eq!(run.status, status, "{what}\n{text}\n{}", run.out);
        }
        assert_eq!(check_by(policies, &[], text).status, statuses[0]);
    }
}

#[test]
fn a_folder_holds_other_things_too() {
    let files = folder(&[
        ("chart/values.yaml", "replicas: 2\n---\n- a\n"),
        ("chart/Chart.yaml", "apiVersion: v2\nname: x\n"),
        ("chart/templates/web.yaml", "kind: {{ .Values.kind }}\n"),
        ("pods/BAD.YAML", &bad("name: a")),
        ("empty/readme.txt", "a"),
    ]);
    let at = |arguments: &[&str]| check(files.path(), arguments, "");
    let run = at(&["--exclude", "chart/templates", "."]);
    assert_eq!(run.status, 1, "{}", run.out);
    assert!(run.out.contains("1 object checked"), "{}", run.out);
    let passed = "ignored: 3 that are not Kubernetes objects (./chart/Chart.yaml:1, ./chart/values.yaml:1, ./chart/values.yaml:3)\n";
    assert!(run.out.contains(passed), "{}", run.out);
    let json = at(&["--exclude", "templates", "-o", "json", "."]).json();
    assert_eq!(json["otherDocuments"].as_array().unwrap().len(), 3, "{json:#}");
    // What cannot be parsed is never passed over, and neither is a file that was named.
    assert_eq!(at(&["."]).status, 2);
    assert_eq!(at(&["chart/values.yaml"]).status, 2);
    for exclude in ["*", "BAD.YAML", "pods/*", "*.YAML"] {
        let run = at(&["--exclude", exclude, "--exclude", "templates", "pods"]);
        let none = "there is no .yaml, .yml or .json file in this folder";
        assert!(
            run.status == 2 && run.out.contains(none),
            "{exclude}: {}",
            run.out
        );
    }
    assert_eq!(at(&["empty"]).status, 2);
    let run = at(&["-"]);
    assert!(
        run.status == 2 && run.out.contains("there is nothing in it"),
        "{}",
        run.out
    );
}

#[test]
fn nothing_of_an_input_gives_an_order_to_who_reads_the_report() {
    // Each place of a text that a report shows, with what would begin a line, give an order or turn the direction.
    let evil = "x\\n::error ::y\\r\\e[31m\\u202ez ##vso[a]##[b]";
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: \"{evil}\", namespace: \"{evil}\", ownerReferences: [{{apiVersion: apps/v1, \
         kind: ReplicaSet, name: \"{evil}\", controller: true}}]}}\nspec:\n  nodeSelector: {{kubernetes.io/os: windows, \"{evil}\": \"{evil}\"}}\n  \
         hostPID: true\n  runtimeClassName: \"{evil}\"\n  serviceAccountName: \"{evil}\"\n  volumes: [{{name: \"{evil}\", hostPath: {{path: \"{evil}\"}}}}]\n  \
         containers: [{{name: \"{evil}\", image: \"{evil}\", workingDir: \"/{evil}\", command: [\"{evil}\"], \
         env: [{{name: \"{evil}\", value: \"{evil}\"}}], volumeMounts: [{{name: \"{evil}\", mountPath: \"/{evil}\"}}], \
         securityContext: {{runAsUser: 1, windowsOptions: {{runAsUserName: \"{evil}\"}}}}, \
         resources: {{limits: {{\"{evil}\": 1}}}}}}]\n---\n\
         apiVersion: \"{evil}/v1\"\nkind: \"{evil}\"\nspec: {{containers: [{{image: a}}]}}\n---\n\
         apiVersion: v1\nkind: Pod\nspec: {{hostPID: \"{evil}\"}}\n---\nkind: \"{evil}\"\n---\n"
    ) + &policy(
        &format!("\"{evil}\""),
        &format!(
            "mode: Enforce, exemptions: [{{name: \"{evil}\", rules: [host-pid], namespaces: ['*'], expiresOn: 2999-01-01, owner: \"{evil}\", reason: \"{evil}\"}}]"
        ),
    );
    let broken = policy("p", &format!("mode: \"{evil}\", \"{evil}\": 1"));
    let files = folder(&[("broken.yaml", &broken)]);
    let named = files.path().join("broken.yaml").display().to_string();
    let run = check_text(&["--policy", &named], &text);
    assert!(run.status == 2 && run.err.contains("error ::y"), "{}", run.err);
    assert!(
        !run.err.lines().any(|line| line.trim_start().starts_with("::")),
        "{}",
        run.err
    );
    assert!(!run.err.contains(['\x1b', '\u{202e}']), "{}", run.err);
    for text in [&text, &(text.clone() + &broken)] {
        for arguments in [&[][..], &["-o", "json"]] {
            let run = check_text(arguments, text);
            assert!(
                run.out.contains("error ::y"),
                "nothing of it was shown: {}",
                run.out
            );
            for line in run.out.lines().chain(run.err.lines()) {
                assert!(!line.trim_start().starts_with("::"), "{line:?}");
                let reported = line.contains(['\r', '\x1b', '\u{202e}'])
                    || line.contains("##vso[")
                    || line.contains("##[");
                assert!(!reported, "{arguments:?}: {line:?}");
            }
        }
    }
}

/// Runs any command of the program, with nothing on its standard input.
fn transom(folder: &Path, arguments: &[&str]) -> Run {
    let kubeconfig = ("KUBECONFIG", Path::new("missing.kubeconfig"));
    transom_in(folder, &[kubeconfig], arguments, "")
}

#[test]
fn outputs_go_where_they_are_sent_and_objects_are_selected_by_labels_and_namespaces() {
    let text = bad("name: a, namespace: web, labels: {team: shop}")
        + "---\n"
        + &bad("name: b, namespace: db, labels: {team: bank}");
    let files = folder(&[("pods.yaml", &text)]);
    let at = |arguments: &[&str]| check(files.path(), arguments, "");
    let both = at(&["-o", "json=report.json", "-o", "text", "-f", "pods.yaml"]);
    assert_eq!(both.status, 1, "{}", both.err);
    assert!(
        both.out
            .ends_with("would be denied:\n  Pod db/b: run-as-user\n  Pod web/a: run-as-user\n"),
        "{}",
        both.out
    );
    let report: Value = serde_json::from_slice(&fs::read(files.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(report["summary"]["denied"], 2);
    for arguments in [["-l", "team=shop"], ["-l", "team,team!=bank"], ["-n", "web"]] {
        let run = at(&[&arguments[..], &["-o", "json", "pods.yaml"]].concat());
        let names: Vec<Value> = run.json()["objects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].clone())
            .collect();
        assert_eq!(names, [json!("a")], "{arguments:?}");
    }
    let never = at(&["--fail-on", "never", "pods.yaml"]);
    assert_eq!(never.status, 0);
    let color = at(&["--color", "always", "pods.yaml"]);
    assert!(color.out.contains("\x1b["), "{}", color.out);
    for (arguments, message) in [
        (&["-o", "jsn", "pods.yaml"][..], "a similar value exists: 'json'"),
        (
            &["--today", "2026-02-30", "pods.yaml"],
            "did you mean 2026-02-28?",
        ),
        (&["-n", "Web", "pods.yaml"], "did you mean web?"),
        (
            &["-n", "web", "-n", "wbe", "pods.yaml"],
            "no object with pods is in the namespace wbe (--namespace); did you mean web?",
        ),
        (
            &["-n", "other", "pods.yaml"],
            "(--namespace); they are in db, web",
        ),
        (
            &["--fail-on", "denny", "pods.yaml"],
            "a similar value exists: 'deny'",
        ),
        (&[], "name files or folders, or - for standard input"),
    ] {
        let run = at(arguments);
        assert!(
            run.status == 2 && run.err.contains(message),
            "{arguments:?}: {}",
            run.err
        );
    }
}

#[test]
fn commands_without_a_cluster_print_what_is_requested() {
    let files = folder(&[]);
    let run = |arguments: &[&str]| transom(files.path(), arguments);
    let version = run(&["version", "-o", "json"]).json();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&["completion", shell]);
        assert!(script.status == 0 && script.out.contains("audit-log"), "{shell}");
    }
    let pages = run(&["generate", "man-pages", "share/man1"]);
    assert_eq!((pages.status, pages.out.as_str()), (0, ""), "{}", pages.err);
    let page = |name: &str| fs::read_to_string(files.path().join("share/man1").join(name)).unwrap();
    assert!(page("transom.1").contains("transom\\-audit\\-log(1)"));
    assert!(page("transom-audit-log.1").contains("Examples:"));
    let without = run(&["generate", "install"]);
    assert!(
        without.status == 2 && without.err.contains("--image <IMAGE>"),
        "{}",
        without.err
    );
    let install = run(&["generate", "install", "--image", "ghcr.io/example/transom:0.1.0"]).out;
    assert!(
        install.contains("image: \"ghcr.io/example/transom:0.1.0\"")
            && !install.contains("registry.example.com")
    );
    let rules = run(&["rules"]).out;
    assert!(
        rules.contains("\n         advice; warning when OpenShift"),
        "{rules}"
    );
}

#[test]
fn a_kubeconfig_that_is_named_is_the_only_one_and_nothing_is_removed_without_an_answer() {
    let config = "{apiVersion: v1, kind: Config, current-context: laptop, contexts: [{name: laptop, context: \
                  {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: u}]}";
    let files = folder(&[("config", config)]);
    let missing = transom(files.path(), &["crds", "apply"]);
    let message = "there is no cluster: $KUBECONFIG names missing.kubeconfig, which does not exist";
    assert!(
        missing.status == 2 && missing.err.contains(message),
        "{}",
        missing.err
    );
    let requested = transom(files.path(), &["uninstall", "--kubeconfig", "config"]);
    assert_eq!(requested.status, 2);
    assert!(
        requested
            .err
            .contains("add --yes to uninstall from laptop (https://127.0.0.1:1/)"),
        "{}",
        requested.err
    );
}

/// The formats of CI systems, of one pod that is denied, in a file whose name needs every escape.
#[test]
fn each_ci_system_gets_its_own_format() {
    const FILE: &str = "team,a: 50% [new].yaml";
    let pod = bad("name: a, namespace: shop");
    let files = folder(&[(FILE, &pod), ("broken.yaml", "a: [")]);
    let outputs = [
        "-o",
        "sarif=out.sarif",
        "-o",
        "gitlab=out.json",
        "-o",
        "junit=out.xml",
        "-o",
        "github",
    ];
    let run = check(
        files.path(),
        &[&outputs[..], &["--no-advice", FILE, "broken.yaml"]].concat(),
        "",
    );
    assert_eq!(run.status, 2, "a file cannot be read: {}", run.err);
    let read = |name: &str| fs::read_to_string(files.path().join(name)).unwrap();

    let denied = run
        .out
        .lines()
        .find(|line| line.starts_with("::error file=team"))
        .unwrap();
    assert!(
        denied.starts_with(
            "::error file=team%2Ca%3A 50%25 [new].yaml,line=10,col=23,title=TSM204 run-as-user::Pod shop/a: \
             spec.containers[web].securityContext.runAsUser: "
        ),
        "{denied}"
    );
    assert!(
        run.out
            .contains("::error file=broken.yaml,line=2,title=transom::"),
        "{}",
        run.out
    );

    let sarif: Value = serde_json::from_str(&read("out.sarif")).unwrap();
    assert_valid_sarif(&sarif);
    let log = &sarif["runs"][0];
    let result_of = |log: &Value| {
        let mut results = log["results"].as_array().unwrap().iter();
        results
            .find(|result| result["ruleId"] == "TSM204")
            .unwrap()
            .clone()
    };
    let result = result_of(log);
    assert_eq!(result["level"], "error");
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(
        place["artifactLocation"]["uri"],
        "team%2Ca%3A%2050%25%20%5Bnew%5D.yaml"
    );
    assert_eq!(place["region"], json!({"startLine": 10, "startColumn": 23}));
    let rules = log["tool"]["driver"]["rules"].as_array().unwrap();
    let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
    assert_eq!(rules[index]["id"], "TSM204");
    assert_eq!(log["invocations"][0]["executionSuccessful"], false);
    // A finding keeps its identity when lines and the order of containers change.
    let sidecar = "  - {name: proxy, image: proxy}\n  - name: web\n";
    let moved = format!("# moved\n\n{}", pod.replace("  - name: web\n", sidecar));
    let again = check_text(&["-o", "sarif"], &moved).json();
    let moved = result_of(&again["runs"][0]);
    assert_eq!(moved["partialFingerprints"], result["partialFingerprints"]);
    assert_ne!(moved["locations"], result["locations"]);

    let gitlab: Value = serde_json::from_str(&read("out.json")).unwrap();
    let entries = gitlab.as_array().unwrap();
    let entry = entries
        .iter()
        .find(|it| it["check_name"] == "TSM204 run-as-user")
        .unwrap();
    assert_eq!(entry["severity"], "critical");
    assert_eq!(entry["location"], json!({"path": FILE, "lines": {"begin": 10}}));
    let fingerprints: std::collections::BTreeSet<&str> = entries
        .iter()
        .map(|it| it["fingerprint"].as_str().unwrap())
        .collect();
    assert_eq!(fingerprints.len(), entries.len());

    let Some(seen) = junit_cases(files.path(), "out.xml") else {
        return;
    };
    assert!(
        seen.contains(&format!("{FILE} Pod shop/a [('failure', 'would be denied: ")),
        "{seen}"
    );
    assert!(
        seen.contains("broken.yaml line 2 cannot be read [('error', "),
        "{seen}"
    );
}

#[test]
fn the_exit_status_does_not_depend_on_the_reader_of_the_report() {
    // Longer than the buffers between the program and its reader.
    let many: Vec<String> = (0..50)
        .map(|number| bad_pod(&format!("name: web-{number}")))
        .collect();
    let folder = folder(&[
        ("many.yaml", &many.join("---\n")),
        ("one.yaml", &bad_pod("name: web")),
        ("broken.yaml", "a: ["),
    ]);
    for format in ["text", "json", "sarif", "junit", "github", "gitlab"] {
        for (files, status) in [
            (&["many.yaml"][..], 1),
            (&["one.yaml"], 1),
            (&["many.yaml", "broken.yaml"], 2),
        ] {
            let arguments = [&["check", "-o", format], files].concat();
            assert_eq!(status_unread(folder.path(), &arguments), status, "{arguments:?}");
        }
        let never = ["check", "-o", format, "--fail-on", "never", "many.yaml"];
        assert_eq!(status_unread(folder.path(), &never), 0, "{format}");
    }
}

#[test]
fn an_empty_pattern_is_refused() {
    let folder = folder(&[("one.yaml", &bad_pod("name: web"))]);
    let run = transom(folder.path(), &["check", "--exclude", "", "one.yaml"]);
    assert_eq!(run.status, 2, "{}", run.out);
    assert!(run.err.contains("the pattern is empty"), "{}", run.err);
}

/// CI systems match paths that start at the root of the repository, wherever the command runs.
#[test]
fn reports_for_ci_systems_name_files_from_the_root_of_the_repository() {
    let outside = folder(&[("pod.yaml", &bad_pod("name: outside"))]);
    let outside_file = outside.path().canonicalize().unwrap().join("pod.yaml");
    let outside_file = outside_file.to_str().unwrap();
    let folder = folder(&[
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".transom.yaml", "paths: [manifests]\n"),
        ("manifests/a b.yaml", &bad_pod("name: web")),
        ("team/pod.yaml", &bad_pod("name: web")),
    ]);
    let team = folder.path().join("team");
    for (arguments, path, uri) in [
        (&[][..], "manifests/a b.yaml", "manifests/a%20b.yaml".to_owned()),
        (&["pod.yaml"], "team/pod.yaml", "team/pod.yaml".to_owned()),
        (
            &["../manifests"],
            "manifests/a b.yaml",
            "manifests/a%20b.yaml".to_owned(),
        ),
        (&[outside_file], outside_file, format!("file://{outside_file}")),
    ] {
        let report = |format: &str| transom(&team, &[&["check", "-o", format], arguments].concat());
        let sarif = report("sarif").json();
        assert_valid_sarif(&sarif);
        let location = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
        assert_eq!(location["artifactLocation"]["uri"], uri, "{arguments:?}");
        let gitlab = report("gitlab").json();
        assert_eq!(gitlab[0]["location"]["path"], path, "{arguments:?}");
        let github = report("github").out;
        assert!(
            github.starts_with(&format!("::error file={path},line=")),
            "{github}"
        );
    }
}

/// A Deployment whose author forgot the nodeSelector.
fn unknown(name: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n      \
         hostPID: true\n      containers:\n      - name: a\n        image: corp.example/a:1\n---\n"
    )
}

#[test]
fn a_forgotten_selector_is_counted_and_found_with_the_operating_system() {
    let run = check_text(&[], &unknown("web"));
    assert_eq!(run.status, 0, "{}", run.out);
    for line in [
        "1 object checked, 0 for Windows, 1 of unknown operating system: nothing found; 0 would be denied\n",
        "\nunknown: if these pods are for Windows, add nodeSelector kubernetes.io/os: windows; check them with --os windows\n",
    ] {
        assert!(run.out.contains(line), "{}", run.out);
    }
    let linux = "apiVersion: v1\nkind: Pod\nmetadata: {name: l}\nspec: {nodeSelector: {kubernetes.io/os: linux}, \
                 containers: [{name: a, image: a}]}\n";
    let run = check_text(&["--os", "windows"], &format!("{}{linux}", unknown("web")));
    assert_eq!(run.status, 1, "{}", run.out);
    for part in [
        "error[TSM103 missing-os-selector] (Deny): nothing in the pod says that it is for Windows",
        "error[TSM401 host-pid] (Deny)",
        "warning[TSM109 other-os-selected] (Warn): the nodeSelector (linux) is for linux, but --os says windows",
        "\n2 objects checked, 1 for Windows: ",
    ] {
        assert!(run.out.contains(part), "{part}\n{}", run.out);
    }
    assert!(
        !run.out.contains("fixed") && !run.out.contains("unknown"),
        "{}",
        run.out
    );
    let run = check_text(&["--os", "linux"], &unknown("web"));
    assert_eq!(run.status, 0, "{}", run.out);
    assert!(
        run.out
            .contains("warning[TSM109 other-os-selected] (Warn): nothing keeps this Linux pod"),
        "{}",
        run.out
    );
    let run = check_text(&["--os", "win"], "");
    assert_eq!(run.status, 2);
    assert!(
        run.err.contains("[possible values: windows, linux]"),
        "{}",
        run.err
    );
}

#[test]
fn the_configuration_states_the_operating_system_by_path() {
    let folder = folder(&[
        (".transom.yaml", "os: {\"*\": linux, apps/win: windows}\n"),
        ("apps/win/a.yaml", &unknown("a")),
        ("apps/b.yaml", &unknown("b")),
    ]);
    let rules_of = |arguments: &[&str]| {
        let run = check(folder.path(), &[arguments, &["-o", "json", "."]].concat(), "");
        let report: Value = serde_json::from_str(&run.out).unwrap();
        let objects = report["objects"].as_array().unwrap().clone();
        let rules = |object: &Value| {
            let findings = object["findings"].as_array().unwrap().iter();
            let has = |id: &str| findings.clone().any(|finding| finding["id"] == id);
            (
                object["verdict"].as_str().unwrap().to_owned(),
                has("TSM103"),
                has("TSM109"),
            )
        };
        objects.iter().map(rules).collect::<Vec<_>>()
    };
    let (windows, linux) = (
        ("Windows".to_owned(), true, false),
        ("Linux".to_owned(), false, true),
    );
    assert_eq!(rules_of(&[]), [linux.clone(), windows]);
    assert_eq!(rules_of(&["--os", "linux"]), [linux.clone(), linux]);
    // The author's statement is what `fix` needs to write the selector.
    let fixed = transom_with(folder.path(), &["fix", "apps/win"], "");
    assert!(
        fixed
            .out
            .contains("+      nodeSelector:\n+        kubernetes.io/os: windows\n")
            && fixed.out.contains("-      hostPID: true\n"),
        "{}\n{}",
        fixed.out,
        fixed.err
    );
}

#[test]
fn the_same_finding_in_several_containers_is_one_with_a_count() {
    let containers: String = ["a", "b", "c", "d"]
        .map(|name| format!("  - {{name: {name}, image: app, securityContext: {{runAsUser: 1000}}}}\n"))
        .concat();
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  os: {{name: windows}}\n  nodeSelector: \
         {{kubernetes.io/os: windows}}\n  containers:\n{containers}"
    );
    let run = check_text(&[], &pod);
    assert_eq!(run.out.matches("[TSM204 run-as-user]").count(), 1, "{}", run.out);
    let field = "= field: spec.containers[0].securityContext.runAsUser, and in 3 more containers: b, c, d\n";
    assert!(run.out.contains(field), "{}", run.out);
    // The totals and the formats for machines have each of them.
    assert!(
        run.out.contains(" checked, 1 for Windows: 4 errors, "),
        "{}",
        run.out
    );
}

#[test]
fn three_hundred_objects_are_readable() {
    let objects: Vec<String> = (0..300)
        .map(|n| bad(&format!("name: web-{n}, namespace: shop")))
        .collect();
    let objects = format!("{}---\n", objects.join("---\n"));
    let run = check_text(&["--no-advice"], &objects);
    assert_eq!(run.status, 1);
    // Three findings in full, one line for each of the others, and one for each object.
    let lines = run.out.lines().count();
    assert!(lines < 1100, "{lines}\n{}", run.out);
    assert!(
        run.out
            .contains("\n300 objects checked, 300 for Windows: 300 errors"),
        "{}",
        run.out
    );
    assert!(run.out.contains("\n  and 250 more\n"), "{}", run.out);
    assert!(
        run.out.contains("-:")
            && run
                .out
                .contains(" (Pod shop/web-299) spec.containers[0].securityContext.runAsUser: ")
    );
}

#[test]
fn rules_are_selected_ignored_and_counted() {
    let text = bad("name: a").replace("spec:\n", "spec:\n  hostPID: true\n");
    let found = |arguments: &[&str]| {
        let run = check_text(&[arguments, &["-o", "json"]].concat(), &text);
        let report: Value = serde_json::from_str(&run.out).unwrap();
        let findings = report["objects"][0]["findings"].as_array().unwrap();
        let ids: Vec<String> = findings
            .iter()
            .map(|it| it["id"].as_str().unwrap().to_owned())
            .collect();
        (run.status, ids)
    };
    assert_eq!(
        found(&["--select", "run-as-user"]),
        (1, vec!["TSM204".to_owned()])
    );
    assert_eq!(found(&["--select", "TSM4", "--ignore", "host-pid"]).0, 0);
    assert_eq!(found(&["--ignore", "TSM204,TSM401"]).0, 0);
    assert!(found(&["--ignore", "TSM204"]).1.contains(&"TSM401".to_owned()));
    let run = check_text(&["--select", "run-as-usr"], &text);
    assert_eq!(run.status, 2);
    assert!(run.err.contains("did you mean run-as-user?"), "{}", run.err);
    let run = check_text(
        &["--statistics", "--select", "TSM204,TSM401"],
        &format!("{text}---\n{text}"),
    );
    assert!(
        run.out.starts_with("     2 error   TSM204 run-as-user (in 2 objects)\n     2 error   TSM401 host-pid (in 2 objects)\n\n2 objects"),
        "{}",
        run.out
    );
    let unlimited = bad("name: a").replace("    resources: {limits: {memory: 1Gi}}\n", "");
    for (arguments, counts_advice) in [
        (&["--statistics"][..], true),
        (&["--statistics", "--no-advice"], false),
    ] {
        let run = check_text(arguments, &unlimited);
        assert_eq!(run.out.contains(" TSM412 "), counts_advice, "{}", run.out);
        assert!(run.out.contains(" TSM204 "), "{}", run.out);
    }
    let run = check_text(&["--statistics", "-o", "json"], &text);
    assert_eq!(run.status, 2, "{}", run.out);
    assert!(
        run.err
            .contains("only the text output has statistics: add -o text"),
        "{}",
        run.err
    );
}

#[test]
fn a_suppressed_denial_of_a_selected_rule_is_still_named() {
    let text = bad("name: a").replace(
        "    securityContext:",
        "    # transom:suppress run-as-user\n    securityContext:",
    );
    let named = "still denied by admission: Pod a: admission does not know suppressions\n";
    for (arguments, denies) in [
        (&[][..], true),
        (&["--select", "run-as-user"], true),
        (&["--ignore", "TSM4"], true),
        (&["--select", "TSM4"], false),
        (&["--ignore", "run-as-user"], false),
    ] {
        let run = check_text(arguments, &text);
        assert_eq!(run.status, 0, "{arguments:?}\n{}", run.out);
        assert_eq!(run.out.contains(named), denies, "{arguments:?}\n{}", run.out);
        let report = check_text(&[arguments, &["-o", "json"]].concat(), &text).json();
        let decision = &report["objects"][0]["decision"];
        assert_eq!(decision == "deny", denies, "{arguments:?}");
    }
}

#[test]
fn a_newer_kubernetes_is_evaluated_as_the_newest_known_or_refused() {
    let run = check_text(&["--kubernetes-version", "1.40"], &bad("name: a"));
    assert_eq!(run.status, 1);
    assert!(
        run.err
            .contains("note: Kubernetes 1.40 is newer than this Transom knows; it is evaluated as 1.37"),
        "{}",
        run.err
    );
    let run = check_text(&["--kubernetes-version", "1.41"], &bad("name: a"));
    assert_eq!(run.status, 2);
    assert!(run.err.contains("knows Kubernetes up to 1.37"), "{}", run.err);
    for (gate, problem) in [
        ("WinDRS=true", "did you mean WinDSR?"),
        ("WinDSR", "write WinDSR=true or WinDSR=false"),
    ] {
        let run = check_text(&["--feature-gate", gate], &bad("name: a"));
        assert_eq!(run.status, 2);
        assert!(run.err.contains(problem), "{}", run.err);
    }
    assert_eq!(
        check_text(&["--feature-gate", "WinDSR=false"], &bad("name: a")).status,
        1
    );
}

#[test]
fn reports_link_to_the_documentation_only_if_it_is_published() {
    let text = bad("name: a");
    let run = check_text(&[], &text);
    assert!(
        run.out
            .contains("\nto read why, with examples: transom explain TSM"),
        "{}",
        run.out
    );
    assert!(!run.out.contains("docs/"), "{}", run.out);
    let sarif = |arguments: &[&str]| check_text(&[arguments, &["-o", "sarif"]].concat(), &text).out;
    let without = sarif(&[]);
    assert!(
        !without.contains("helpUri") && !without.contains("docs/reference"),
        "{without}"
    );
    let with = sarif(&["--documentation-base-url", "https://git.example.com/docs"]);
    assert!(
        with.contains("\"helpUri\": \"https://git.example.com/docs/reference/rules.md#tsm204\""),
        "{with}"
    );
    assert_eq!(check_text(&["--documentation-base-url", "docs"], &text).status, 2);
}

#[test]
fn a_key_that_is_given_twice_is_noted_at_its_position() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: a, name: b}\n...\nkind: Pod\n";
    let run = check_text(&[], text);
    assert_eq!(run.status, 0, "{}", run.out);
    let out = run.out.replace("\n  ", " ");
    let twice =
        "warning: -:3:21: the key name is given twice in one mapping, on line 3: the last one applies";
    assert!(out.contains(twice), "{}", run.out);
    let unread = "warning: -:5:1: kubectl does not read this, because the document above has ended";
    assert!(out.contains(unread), "{}", run.out);
    let json = check_text(&["-o", "json"], text).json();
    let at = |note: &Value| json!([note["line"], note["column"]]);
    let places: Vec<Value> = json["notes"].as_array().unwrap().iter().map(at).collect();
    assert_eq!(places, [json!([3, 21]), json!([5, 1])]);
    let sarif = check_text(&["-o", "sarif"], text).json();
    let notes = &sarif["runs"][0]["invocations"][0]["toolExecutionNotifications"];
    let region = &notes[0]["locations"][0]["physicalLocation"]["region"];
    assert_eq!(
        (&region["startLine"], &region["startColumn"]),
        (&json!(3), &json!(21)),
        "{notes:#}"
    );
    let github = check_text(&["-o", "github"], text).out;
    assert!(github.contains("::warning file=-,line=3,col=21,"), "{github}");
}

#[test]
fn a_folder_that_has_to_be_rendered_is_noted_with_the_command() {
    let component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n";
    let files = folder(&[
        ("overlays/pro d/kustomization.yaml", "resources: [../../base]\n"),
        ("base/Kustomization", "resources: [pod.yaml]\n"),
        ("base/pod.yaml", &bad("name: a")),
        ("component/kustomization.yml", component),
        ("chart/Chart.yaml", "apiVersion: v2\nname: x\n"),
        ("chart/charts/sub/Chart.yaml", "apiVersion: v2\nname: sub\n"),
        ("library/Chart.yaml", "apiVersion: v2\nname: lib\ntype: library\n"),
    ]);
    let json = check(files.path(), &["-o", "json", "."], "").json();
    let notes: Vec<(&str, &str)> = (json["notes"].as_array().unwrap().iter())
        .map(|note| {
            (
                note["source"].as_str().unwrap(),
                note["message"].as_str().unwrap(),
            )
        })
        .collect();
    let message = |renderer: &str| {
        format!("its files are read as written; for what the folder renders: {renderer} | transom check -")
    };
    assert_eq!(
        notes,
        [
            ("./base", &*message("kubectl kustomize ./base")),
            ("./chart", &*message("helm template ./chart")),
            (
                "./overlays/pro d",
                &*message("kubectl kustomize './overlays/pro d'")
            ),
        ]
    );
    let fix = transom(files.path(), &["fix", "base"]);
    assert!(
        fix.err.contains("note: base: its files are read as written; for what the folder renders: kubectl kustomize base | transom fix -"),
        "{}",
        fix.err
    );
    for path in ["base/pod.yaml", "component"] {
        let json = check(files.path(), &["-o", "json", path], "").json();
        assert_eq!(json["notes"], json!([]), "{path}");
    }
    let excluded = check(
        files.path(),
        &["--exclude", "Kustomization", "-o", "json", "base"],
        "",
    )
    .json();
    assert_eq!(excluded["notes"], json!([]));
    // The current folder is the chart.
    let inside = check(&files.path().join("chart"), &["-o", "json", "."], "").json();
    assert_eq!(inside["notes"][0]["message"], message("helm template ."));
}

/// A Windows Deployment that uses a claim by name, and the claim.
const USES_CLAIM: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n      \
                          nodeSelector: {kubernetes.io/os: windows}\n      containers: [{name: a, image: a}]\n      \
                          volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n";

fn claim(mode: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: data}}\nspec: {{volumeMode: {mode}}}\n"
    )
}

#[test]
fn the_nearest_claim_of_a_name_is_the_one_that_is_used() {
    let (block, files) = (claim("Block"), claim("Filesystem"));
    let own = USES_CLAIM.to_owned() + &files;
    let found = |inputs: &[(&str, &str)], paths: &[&str]| {
        let inputs = folder(inputs);
        let json = check(inputs.path(), &[&["-o", "json"], paths].concat(), "").json();
        let mut of_rule = Vec::new();
        for object in json["objects"].as_array().unwrap() {
            let findings = object["findings"].as_array().unwrap();
            if findings.iter().any(|finding| finding["rule"] == "block-pvc") {
                of_rule.push(object["kind"].as_str().unwrap().to_owned());
            }
        }
        of_rule.sort();
        let notes: Vec<String> = (json["notes"].as_array().unwrap().iter())
            .map(|note| {
                format!(
                    "{}:{} {}",
                    note["source"].as_str().unwrap(),
                    note["line"],
                    note["message"].as_str().unwrap()
                )
            })
            .collect();
        (of_rule, notes)
    };
    let both = ["Deployment", "PersistentVolumeClaim"]
        .map(str::to_owned)
        .to_vec();
    // A claim of another example is another claim.
    let other = [("a/web.yaml", &*own), ("b/disk.yaml", &*block)];
    assert_eq!(found(&other, &["."]), (vec![], vec![]));
    let unrelated = [("a/web.yaml", USES_CLAIM), ("b/disk.yaml", &*block)];
    assert_eq!(found(&unrelated, &["."]), (vec![], vec![]));
    // Its own claim, in the file or in the folder.
    let own_file = [
        ("a/web.yaml", &*(USES_CLAIM.to_owned() + &block)),
        ("a/disk.yaml", &*files),
    ];
    assert_eq!(found(&own_file, &["a"]), (both.clone(), vec![]));
    let own_folder = [
        ("a/web.yaml", USES_CLAIM),
        ("a/disk.yaml", &*block),
        ("b/disk.yaml", &*files),
    ];
    assert_eq!(found(&own_folder, &["a", "b"]), (both, vec![]));
    // The cluster has the claim.
    let cluster = [
        (".transom.yaml", "facts: [cluster/claims.yaml]\n"),
        ("cluster/claims.yaml", &*block),
        ("a/web.yaml", USES_CLAIM),
        ("b/disk.yaml", &*files),
    ];
    assert_eq!(found(&cluster, &["a", "b"]).0, ["Deployment"]);
    // Two claims are as near.
    let two = [
        ("a/web.yaml", USES_CLAIM),
        ("a/one.yaml", &*block),
        ("a/two.yaml", &*files),
    ];
    let (of_rule, notes) = found(&two, &["a"]);
    assert_eq!((of_rule.len(), notes.len()), (0, 1), "{notes:?}");
    assert!(
        notes[0].starts_with(
            "a/web.yaml:9 several claims of the input have the name data, and their volumeMode differs"
        ),
        "{notes:?}"
    );
}

#[test]
fn a_class_that_files_define_differently_is_not_known() {
    let class = |name: &str, file_system: &str| {
        format!(
            "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {name}}}\nprovisioner: \
             ebs.csi.aws.com\nparameters: {{fsType: {file_system}}}\n"
        )
    };
    let volume = "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: fast}}}}]\n";
    let web = USES_CLAIM.replace(
        "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n",
        volume,
    );
    let runtime = "---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: fast}\nhandler: a\n";
    let (ext4, ntfs) = (class("fast", "ext4"), class("fast", "ntfs"));
    for (one, other, is_reported, notes) in [
        (&ext4, &ext4, true, 0),
        (&ext4, &ntfs, false, 1),
        (&ntfs, &ext4, false, 1),
    ] {
        let files = folder(&[
            ("a/web.yaml", &(web.clone() + one)),
            ("b/class.yaml", &(other.clone() + runtime)),
        ]);
        let run = check(files.path(), &["."], "");
        assert_eq!(run.out.contains("linux-file-system"), is_reported, "{}", run.out);
        let noted = run
            .out
            .matches("defines the StorageClass fast several times")
            .count();
        assert_eq!(noted, notes, "{}", run.out);
    }
    let other = runtime.replace("handler: a", "handler: b");
    let web = USES_CLAIM.replace("volumes: [", "runtimeClassName: fast\n      volumes: [");
    let run = check_text(&[], &(web + runtime + &other));
    assert!(
        run.out.contains("defines the RuntimeClass fast several times"),
        "{}",
        run.out
    );
}
