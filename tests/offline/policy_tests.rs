//! `transom test`: what meets an expectation, what a failure shows, and what is wrong with a test.

use std::path::Path;

use crate::support::command::{bad_pod, files, junit_cases, page_blocks, transom};

const POLICY: &str = "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: ours}\n\
                      spec:\n  mode: Enforce\n  validation: {rules: [{name: run-as-user, action: Warn}]}\n";
const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata:\n  name: win\n  labels: {kubernetes.io/os: windows}\nspec:\n  \
                    taints: [{key: os, value: windows, effect: NoSchedule}]\n";
const PLAIN: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: plain, namespace: shop}\nspec:\n  \
                     nodeSelector: {kubernetes.io/os: windows}\n  containers: [{name: a, image: a}]\n";

fn with_test(test: &str) -> tempfile::TempDir {
    files(&[
        ("tests/shop/transom-test.yaml", test),
        (
            "tests/shop/pods.yaml",
            &format!("{}---\n{PLAIN}", bad_pod("name: web, namespace: shop")),
        ),
        ("tests/shop/node.yaml", NODE),
        ("tests/policy.yaml", POLICY),
        ("tests/.hidden/transom-test.yaml", "nonsense: true\n"),
    ])
}

const HEAD: &str =
    "name: shop\npolicies: [../policy.yaml]\nresources: [pods.yaml]\nfacts: [node.yaml]\ntoday: 2026-11-22\n";

#[test]
fn expectations_that_are_met_pass() {
    let test = format!(
        "{HEAD}expectations:\n- object: Pod shop/web\n  outcome: warned\n  rules: [run-as-user]\n\
         - object: Pod shop/plain\n  outcome: admitted\n  rules: []\n  patched: [spec.tolerations, spec.os]\n"
    );
    let folder = with_test(&test);
    for path in ["tests", "tests/shop/transom-test.yaml"] {
        let run = transom(folder.path(), &["test", path]);
        assert_eq!(run.status, 0, "{}{}", run.out, run.err);
        for line in [
            "shop (tests/shop/transom-test.yaml)\n",
            "  ok    Pod shop/web is warned\n",
            "\n1 test file, 2 expectations: 0 failed\n",
        ] {
            assert!(run.out.contains(line), "{}", run.out);
        }
    }
    // Suppressions are for check only.
    let pods = bad_pod("name: web, namespace: shop")
        .replace("  containers:", "  containers: # transom:suppress run-as-user");
    std::fs::write(
        folder.path().join("tests/shop/pods.yaml"),
        format!("{pods}---\n{PLAIN}"),
    )
    .unwrap();
    assert_eq!(transom(folder.path(), &["test", "tests"]).status, 0);
}

#[test]
fn custom_resources_that_administrators_add_are_tested() {
    let cluster =
        "cluster: {podTemplates: [{group: example.com, kind: GameServerSet, path: spec.template}]}\n";
    let test =
        format!("{HEAD}{cluster}expectations:\n- object: GameServerSet shop/games\n  outcome: denied\n");
    let folder = with_test(&test);
    let set = "apiVersion: example.com/v1\nkind: GameServerSet\nmetadata: {name: games, namespace: shop}\nspec:\n  template:\n    \
               spec:\n      hostPID: true\n      nodeSelector: {kubernetes.io/os: windows}\n      \
               containers: [{name: a, image: a}]\n";
    for (file, text) in [("tests/policy.yaml", POLICY), ("tests/shop/pods.yaml", set)] {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    let run = transom(folder.path(), &["test", "tests"]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    assert!(
        run.out.contains("  ok    GameServerSet shop/games is denied\n"),
        "{}",
        run.out
    );
}

#[test]
fn a_node_pool_alone_is_tested_with_the_built_in_policy() {
    let test = "policies: [nodes.yaml]\nresources: [pods.yaml]\nexpectations:\n- object: Pod shop/plain\n  outcome: \
                admitted\n  patched: [spec.tolerations, spec.os]\n";
    let folder = with_test(test);
    let policy = "apiVersion: transom.dev/v1alpha1\nkind: WindowsNodePool\nmetadata: {name: win}\nspec:\n  \
                  nodeSelector: {matchLabels: {agentpool: win}}\n  template: {build: 10.0.20348, taints: [{key: os, value: windows}]}\n";
    std::fs::write(folder.path().join("tests/shop/nodes.yaml"), policy).unwrap();
    let run = transom(folder.path(), &["test", "tests"]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
}

/// The API server converts an object before it calls admission.
#[test]
fn an_api_version_that_the_release_does_not_serve_denies_nothing_in_a_test() {
    let test = format!(
        "{HEAD}kubernetesVersion: \"1.36\"\nexpectations:\n- object: Deployment shop/old\n  outcome: admitted\n"
    );
    let folder = with_test(&test);
    let old = "apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: old, namespace: shop}\nspec:\n  \
               template:\n    spec:\n      nodeSelector: {kubernetes.io/os: windows}\n      \
               containers: [{name: a, image: a}]\n";
    std::fs::write(folder.path().join("tests/shop/pods.yaml"), old).unwrap();
    let run = transom(folder.path(), &["test", "tests"]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
}

#[test]
fn only_the_policies_of_a_test_apply() {
    let test = format!(
        "{}expectations:\n- object: Pod shop/web\n  outcome: warned\n  rules: [run-as-user]\n",
        HEAD.replace("facts: [node.yaml]", "facts: [other.yaml]")
    );
    let folder = with_test(&test);
    let other = POLICY
        .replace("name: ours", "name: a")
        .replace("mode: Enforce", "mode: Audit\n  priority: 9");
    std::fs::write(folder.path().join("tests/shop/other.yaml"), &other).unwrap();
    let run = transom(folder.path(), &["test", "tests"]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    // They are validated all the same.
    std::fs::write(
        folder.path().join("tests/shop/other.yaml"),
        other.replace("Audit", "Adit"),
    )
    .unwrap();
    assert_eq!(transom(folder.path(), &["test", "tests"]).status, 2);
}

#[test]
fn a_failure_shows_what_differs() {
    let test = format!(
        "{HEAD}expectations:\n- object: Pod shop/web\n  outcome: denied\n  rules: [host-pid]\n\
         - object: Pod shop/plain\n  outcome: admitted\n  patched: [spec.nodeSelector]\n- object: Pod shop/wbe\n  outcome: admitted\n"
    );
    let folder = with_test(&test);
    let run = transom(
        folder.path(),
        &["test", "-o", "text", "-o", "junit=tests.xml", "tests"],
    );
    assert_eq!(run.status, 1, "{}{}", run.out, run.err);
    insta::assert_snapshot!(run.out);
    let junit = std::fs::read_to_string(folder.path().join("tests.xml")).unwrap();
    insta::assert_snapshot!(junit);
    if let Some(seen) = junit_cases(folder.path(), "tests.xml") {
        assert!(seen.contains("[('failure', "), "{seen}");
    }
}

#[test]
fn a_test_that_cannot_be_run_ends_with_status_2() {
    for (test, message) in [
        (
            "resources: [pods.yaml]\nexpectations:\n- {object: Pod shop/web, outcome: deny}\n",
            "transom-test.yaml:3: expectations[0].outcome: unknown value \"deny\"; use one of admitted, warned, denied",
        ),
        (
            "resources: [pods.yaml]\nexpectations:\n- {object: Pod shop/web, outcome: denied, rules: [run-as-usr]}\n",
            "transom-test.yaml:3: expectations[0].rules[0]: there is no rule \"run-as-usr\"; did you mean run-as-user?",
        ),
        (
            "resources: [pods.yaml]\nexpectations:\n- {object: web, outcome: denied}\n",
            "transom-test.yaml:3: expectations[0].object: write kind and name, as in Deployment shop/web, not \"web\"",
        ),
        (
            "resources: [pods.yaml]\nexpectations: []\n",
            "transom-test.yaml:2: expectations: there is none, so the test can never fail",
        ),
        (
            "resource: [pods.yaml]\nexpectations:\n- {object: Pod shop/web, outcome: denied}\n",
            "transom-test.yaml:1: unknown field \"resource\"; did you mean resources?",
        ),
        (
            "today: 2026-02-30\nresources: [pods.yaml]\nexpectations:\n- {object: Pod shop/web, outcome: denied}\n",
            "transom-test.yaml:1: today: there is no such date; did you mean 2026-02-28?",
        ),
        (
            "resources: [pds.yaml]\nexpectations:\n- {object: Pod shop/web, outcome: denied}\n",
            "tests/shop/pds.yaml: No such file",
        ),
        (
            "resources: [pods.yaml]\npolicies: [node.yaml]\nexpectations:\n- {object: Pod shop/web, outcome: denied}\n",
            "there is no WindowsPodPolicy, WindowsNodePolicy or WindowsNodePool in the files of policies",
        ),
    ] {
        let folder = with_test(test);
        let run = transom(folder.path(), &["test", "tests"]);
        assert_eq!(run.status, 2, "{test}\n{}", run.out);
        assert!(run.out.contains(message), "{test}\n{}", run.out);
    }
    let folder = with_test("");
    let run = transom(&folder.path().join("tests/.hidden"), &["test", ".."]);
    assert_eq!(run.status, 2);
    let empty = tempfile::tempdir().unwrap();
    let run = transom(empty.path(), &["test", "."]);
    assert_eq!(run.status, 2);
    assert!(
        run.err.contains("there is no transom-test.yaml in . or below it"),
        "{}",
        run.err
    );
    assert!(!Path::new("transom-test.yaml").exists());
}

#[test]
fn the_page_shows_a_test_that_runs_as_it_says() {
    let blocks = page_blocks("docs/how-to/test-policies.md");
    let named: Vec<(&str, &str)> = (blocks.iter())
        .filter_map(|block| {
            let name = block.before.strip_prefix('`')?.strip_suffix("`:")?;
            (block.language == "yaml").then_some((name, block.text.as_str()))
        })
        .collect();
    assert_eq!(named.len(), 3);
    let folder = files(&named);
    let shown: Vec<&str> = (blocks.iter())
        .filter_map(|block| block.text.strip_prefix("$ transom test .\n"))
        .collect();
    assert_eq!(shown.len(), 2);
    assert_eq!(transom(folder.path(), &["test", "."]).out, shown[0]);
    let policy = named[0].1.replace(
        "    rules:\n    - name: run-as-user\n      action: Warn\n",
        "    rules: []\n",
    );
    assert_ne!(policy, named[0].1);
    std::fs::write(folder.path().join("policy.yaml"), policy).unwrap();
    assert_eq!(transom(folder.path(), &["test", "."]).out, shown[1]);
}

#[test]
fn commands_that_ask_no_registry_say_that_they_use_names() {
    const NOTE: &str = "note: policy ours uses what registries report (evidence.imageEvidence: Registry), which this command \
                        did not look up: images are evaluated by their names";
    let test = format!("{HEAD}expectations:\n- object: Pod shop/plain\n  outcome: admitted\n");
    let folder = with_test(&test);
    let policy = folder.path().join("tests/policy.yaml");
    let run = |arguments: &[&str]| transom(folder.path(), arguments).err;
    let commands: [(&[&str], &str); 3] = [
        (&["test", "tests"], "\n"),
        (
            &["check", "--policy", "tests/policy.yaml", "tests/shop/pods.yaml"],
            "; add --registry\n",
        ),
        (
            &["fix", "--policy", "tests/policy.yaml", "tests/shop/pods.yaml"],
            "\n",
        ),
    ];
    for (arguments, _) in commands {
        let err = run(arguments);
        assert!(!err.contains("registries report"), "{arguments:?}: {err}");
    }
    std::fs::write(
        &policy,
        format!("{POLICY}  evidence: {{imageEvidence: Registry}}\n"),
    )
    .unwrap();
    for (arguments, end) in commands {
        let err = run(arguments);
        assert_eq!(
            err.matches(&format!("{NOTE}{end}")).count(),
            1,
            "{arguments:?}: {err}"
        );
    }
    std::fs::write(folder.path().join(".transom.yaml"), "registry: true\n").unwrap();
    let err = run(&["fix", "tests/shop/pods.yaml"]);
    assert!(
        err.contains(".transom.yaml uses what registries report (registry: true), which"),
        "{err}"
    );
}
