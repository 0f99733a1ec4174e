//! The configuration file of `check`: where it is found, what it sets, and what arguments replace.

use std::fs;
use std::path::Path;

use serde_json::Value;
use transom::check::CheckConfig;
use transom::check::policy_tests::PolicyTest;

use crate::support::command::{bad_pod, files, is_up_to_date, page_blocks, transom};

#[test]
fn the_nearest_file_applies_and_arguments_replace_its_fields() {
    let folder = files(&[
        (
            ".transom.yaml",
            "failOn: never\nkubernetesVersion: \"1.30\"\nexclude: ['*/generated/*', vendor]\n",
        ),
        (
            "team/.transom.yaml",
            "rules: [{name: run-as-user, action: Warn}]\npolicy: ../policy.yaml\n",
        ),
        (
            "policy.yaml",
            "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: ours}\nspec: {mode: Enforce}\n",
        ),
        ("web.yaml", &bad_pod("name: web")),
        ("app/generated/web.yaml", &bad_pod("name: generated")),
        ("vendor/web.yaml", &bad_pod("name: vendored")),
        ("team/web.yaml", &bad_pod("name: web")),
    ]);
    let root = folder.path();
    let run = transom(root, &["check", "web.yaml"]);
    assert_eq!(run.status, 0, "{}", run.out);
    assert!(
        run.out.contains("\nconfiguration: .transom.yaml\n"),
        "{}",
        run.out
    );
    for arguments in [
        &["check", "--no-config", "web.yaml"][..],
        &["check", "--fail-on", "deny", "web.yaml"],
        &[
            "check",
            "--config",
            "team/.transom.yaml",
            "--fail-on",
            "warning",
            "web.yaml",
        ],
    ] {
        assert_eq!(transom(root, arguments).status, 1, "{arguments:?}");
    }
    // Excludes apply to files that are named, as a pre-commit hook names them; those of the command line replace them.
    for (arguments, objects) in [
        (
            &["check", "-o", "json", "app/generated/web.yaml", "vendor/web.yaml"][..],
            0,
        ),
        (
            &[
                "check",
                "-o",
                "json",
                "--exclude",
                "x",
                "app/generated/web.yaml",
                "vendor/web.yaml",
            ],
            2,
        ),
        (&["check", "-o", "json", "app", "web.yaml"], 1),
    ] {
        let run = transom(root, arguments);
        assert_eq!(
            run.json()["summary"]["objects"],
            objects,
            "{arguments:?} {}",
            run.out
        );
    }
    // Inputs with different configurations are checked apart.
    let run = transom(root, &["check", "-o", "json", "team/web.yaml", "web.yaml"]);
    let report = run.json();
    let objects = report["objects"].as_array().unwrap();
    let of = |at: usize| (&objects[at]["policy"]["name"], &objects[at]["decision"]);
    assert_eq!(of(0), (&"ours".into(), &"patch".into()));
    assert_eq!(of(1), (&"built-in".into(), &"deny".into()));
    assert_eq!(run.status, 0, "{}", run.out);
    // From another folder, and for standard input from the current one.
    let run = transom(&root.join("team"), &["check", "-o", "json", "../web.yaml"]);
    assert_eq!(run.json()["objects"][0]["policy"]["name"], "built-in");
}

#[test]
fn a_file_next_to_the_folders_of_a_path_does_not_apply() {
    let folder = files(&[
        ("repo/team/.transom.yaml", "failOn: never\nexclude: ['*']\n"),
        ("repo/team/web.yaml", &bad_pod("name: web")),
        ("repo/shop/web.yaml", &bad_pod("name: web")),
        ("repo/shop/generated/web.yaml", &bad_pod("name: web")),
    ]);
    let team = folder.path().join("repo/team");
    let run = transom(&team, &["check", "../shop/web.yaml"]);
    assert_eq!(run.status, 1, "{}", run.out);
    assert!(!run.out.contains("configuration:"), "{}", run.out);
    assert_eq!(transom(&team, &["check", "web.yaml"]).status, 0);
    // The patterns of a file also apply to paths that reach their folder by ...
    fs::write(
        folder.path().join("repo/.transom.yaml"),
        "exclude: ['shop/generated']\n",
    )
    .unwrap();
    let report = transom(&team, &["check", "-o", "json", "../shop"]).json();
    assert_eq!(report["summary"]["objects"], 1, "{report:#}");
}

#[test]
fn one_file_is_one_configuration_however_its_paths_are_spelled() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {a: \
                      b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec:\n      runtimeClassName: win\n      \
                      containers: [{name: a, image: a}]\n";
    let class = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: win}\nhandler: runhcs-wcow-process\n\
                 scheduling: {nodeSelector: {kubernetes.io/os: windows}}\n";
    let folder = files(&[
        (".transom.yaml", "failOn: never\n"),
        ("shop/class.yaml", class),
        ("team/web.yaml", deployment),
    ]);
    let root = folder.path().canonicalize().unwrap();
    let class = root.join("shop/class.yaml");
    // The objects of both paths describe one cluster.
    for class in ["../shop/class.yaml", class.to_str().unwrap()] {
        let report = transom(&root.join("team"), &["check", "-o", "json", "web.yaml", class]).json();
        let objects = report["objects"].as_array().unwrap();
        let web = objects.iter().find(|object| object["name"] == "web").unwrap();
        assert_eq!(web["verdict"], "Windows", "{report:#}");
    }
    let run = transom(&root.join("team"), &["check", "web.yaml", "../shop/class.yaml"]);
    assert_eq!(run.out.matches(".transom.yaml").count(), 1, "{}", run.out);
}

#[test]
fn an_action_of_the_file_is_not_attributed_to_the_policy() {
    let folder = files(&[
        (".transom.yaml", "rules: [{name: run-as-user, action: Warn}]\n"),
        ("web.yaml", &bad_pod("name: web")),
    ]);
    let run = transom(folder.path(), &["check", "web.yaml"]);
    assert!(
        run.out
            .contains("Warn instead of Deny: .transom.yaml sets run-as-user to Warn"),
        "{}",
        run.out
    );
}

#[test]
fn a_file_can_name_what_is_checked_and_facts_that_are_not() {
    let node = "apiVersion: v1\nkind: RuntimeClass\nmetadata: {name: broken}\n";
    let class = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: win}\nhandler: runhcs-wcow-process\n\
                 scheduling: {nodeSelector: {kubernetes.io/os: windows}}\n";
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  runtimeClassName: win\n  \
               containers: [{name: a, image: a}]\n";
    let folder = files(&[
        (".transom.yaml", "paths: [manifests]\nfacts: [cluster.yaml]\n"),
        ("cluster.yaml", class),
        ("manifests/web.yaml", pod),
        ("elsewhere/x", node),
    ]);
    for from in ["", "elsewhere"] {
        let report = transom(&folder.path().join(from), &["check", "-o", "json"]).json();
        assert_eq!(report["summary"]["objects"], 1, "{report}");
        assert_eq!(report["objects"][0]["verdict"], "Windows", "{report}");
    }
    fs::write(folder.path().join(".transom.yaml"), "failOn: deny\n").unwrap();
    let run = transom(folder.path(), &["check"]);
    assert_eq!(run.status, 2);
    assert!(run.err.contains("list paths in .transom.yaml"), "{}", run.err);
}

#[test]
fn a_bad_file_ends_with_status_2_and_every_line() {
    let folder = files(&[
        (
            ".transom.yaml",
            "failOn: wraning\nrules:\n  run-as-usr: Warn\nexcludes: []\n",
        ),
        ("web.yaml", &bad_pod("name: web")),
    ]);
    let run = transom(folder.path(), &["check", "web.yaml"]);
    assert_eq!((run.status, run.out.as_str()), (2, ""));
    for line in [
        ".transom.yaml:1: failOn: unknown value \"wraning\"; did you mean warning?",
        ".transom.yaml:4: unknown field \"excludes\"; did you mean exclude?",
    ] {
        assert!(run.err.contains(line), "{}", run.err);
    }
    let run = transom(folder.path(), &["check", "--config", "nowhere.yaml", "web.yaml"]);
    assert_eq!(run.status, 2);
    assert!(
        run.err
            .contains("cannot read the configuration file nowhere.yaml: "),
        "{}",
        run.err
    );
}

/// The commands whose reports have a schema.
const REPORTS: [&str; 14] = [
    "knowledge",
    "check",
    "scan",
    "plan",
    "drain",
    "preflight",
    "audit-log",
    "fix",
    "image",
    "image-pulls",
    "rules",
    "explain",
    "test-report",
    "version",
];

/// Every field has a description that a reader of JSON understands.
fn assert_described(report: &str, schema: &Value) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, property) in properties {
            let described = property.get("description").and_then(Value::as_str);
            // The names of a JSON Patch are those of its standard.
            let description = described.unwrap_or(if name == "op" { name } else { "" });
            assert!(!description.is_empty(), "{report}: {name} has no description");
            for unknown in ["`None`", "`Some`", "[`", "::"] {
                assert!(!description.contains(unknown), "{report}: {name}: {description}");
            }
        }
    }
    match schema {
        Value::Array(all) => all.iter().for_each(|part| assert_described(report, part)),
        Value::Object(object) => object.values().for_each(|part| assert_described(report, part)),
        _ => {}
    }
}

#[test]
fn the_schemas_are_what_the_types_say() {
    for (what, file, schema) in [
        (
            "config",
            "docs/reference/transom.schema.json",
            CheckConfig::schema(),
        ),
        (
            "test",
            "docs/reference/transom-test.schema.json",
            PolicyTest::schema(),
        ),
    ] {
        let printed = transom(Path::new("."), &["generate", "schema", what]);
        assert_eq!(serde_json::from_str::<Value>(&printed.out).unwrap(), schema);
        is_up_to_date(file, &printed.out, "offline config::");
    }
    for report in REPORTS {
        let printed = transom(Path::new("."), &["generate", "schema", report]);
        let schema: Value = serde_json::from_str(&printed.out).unwrap();
        assert_described(report, &schema);
        let file = format!("docs/reference/schemas/{report}.schema.json");
        is_up_to_date(file, &printed.out, "offline config::");
    }
    let of_config = CheckConfig::schema();
    let rules = of_config
        .pointer("/properties/rules/items/properties/name/oneOf")
        .unwrap();
    assert_eq!(
        rules.as_array().unwrap().len(),
        transom::rules::catalogue().count()
    );
    assert_eq!(of_config["additionalProperties"], false);
}

#[test]
fn the_examples_of_the_page_do_what_it_says() {
    let blocks = page_blocks("docs/reference/configuration.md");
    let yaml: Vec<&str> = (blocks.iter().filter(|block| block.language == "yaml"))
        .map(|block| block.text.as_str())
        .collect();
    let [config, _, comment, annotation] = yaml[..] else {
        panic!("the page has {} examples", yaml.len());
    };
    let policy = "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: p}\nspec: {mode: Enforce}\n";
    let folder = files(&[
        (".transom.yaml", config),
        ("policies/shop.yaml", policy),
        (
            "cluster/nodes.yaml",
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n",
        ),
        ("manifests/comment.yaml", comment),
        ("manifests/annotation.yaml", annotation),
    ]);
    let report = transom(folder.path(), &["check", "-o", "json"]).json();
    let summary = |field: &str| report["summary"][field].as_u64().unwrap();
    assert_eq!(
        (summary("objects"), summary("denied"), summary("suppressed")),
        (2, 0, 3),
        "{report:#}"
    );
    assert_eq!(report["notes"], serde_json::json!([]));
    let without = transom(
        folder.path(),
        &["check", "--no-config", "-o", "json", "manifests"],
    )
    .json();
    assert_eq!(without["summary"]["suppressed"], 3);
}

#[test]
fn a_key_that_is_given_twice_is_an_error_in_what_is_only_for_transom() {
    let folder = files(&[
        (".transom.yaml", "failOn: never\nfailOn: deny\n"),
        (
            "baseline.json",
            "{\"schema\": \"transom.dev/baseline/v1\", \"schema\": \"a\", \"entries\": []}",
        ),
        ("pod.yaml", &bad_pod("name: a")),
    ]);
    let run = transom(folder.path(), &["check", "pod.yaml"]);
    assert_eq!(run.status, 2);
    assert!(
        run.err.contains(".transom.yaml:2: the key failOn is given twice"),
        "{}",
        run.err
    );
    let run = transom(
        folder.path(),
        &["check", "--no-config", "--baseline", "baseline.json", "pod.yaml"],
    );
    assert_eq!(run.status, 2);
    assert!(
        run.err.contains("baseline.json:1: the key schema is given twice"),
        "{}",
        run.err
    );
}
