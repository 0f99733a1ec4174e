//! `transom fix`: its settings (files, arguments, the functionConfig of Kustomize), what it writes, and to which objects
//! Kustomize can apply a patch.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::support::command::{CommandRun, files, transom, transom_with};

/// A pod with a field that Windows ignores: `runAsUser`.
fn pod(metadata: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{{metadata}}}\nspec:\n  nodeSelector: {{kubernetes.io/os: windows}}\n  \
         securityContext:\n    runAsUser: 1000\n    windowsOptions: {{runAsUserName: ContainerUser}}\n  containers:\n  \
         - name: web\n    image: mcr.microsoft.com/windows/nanoserver:ltsc2022\n"
    )
}

/// A ResourceList with one pod and these settings.
fn resource_list(settings: &str) -> String {
    let item = pod("name: web").lines().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "  {line}");
        text
    });
    let indented = settings.lines().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "  {line}");
        text
    });
    format!(
        "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nfunctionConfig:\n{indented}items:\n-{}",
        &item[1..]
    )
}

fn function(settings: &str) -> CommandRun {
    transom_with(Path::new("."), &["fix", "-"], resource_list(settings))
}

#[test]
fn the_configuration_file_of_check_applies_to_fix_too() {
    let server = "apiVersion: example.com/v1\nkind: GameServer\nmetadata: {name: game}\nspec:\n  template:\n    spec:\n      \
                  nodeSelector: {kubernetes.io/os: windows}\n      hostPID: true\n      securityContext: {runAsUser: 1}\n      \
                  containers: [{name: a, image: a}]\n";
    let folder = files(&[
        (
            ".transom.yaml",
            "rules: [{name: run-as-user, action: Disabled}]\nexclude: [vendor]\npodTemplates: [{group: example.com, kind: GameServer, path: \
             spec.template}]\npaths: [app]\n",
        ),
        ("app/web.yaml", &pod("name: web")),
        ("app/game.yaml", server),
        ("vendor/web.yaml", &pod("name: vendored")),
    ]);
    let run = transom(folder.path(), &["fix", "--os", "windows"]);
    assert!(!run.out.contains("-    runAsUser"), "{}", run.out);
    assert!(
        run.err.contains("GameServer game (app/game.yaml:1)"),
        "{}",
        run.err
    );
    let run = transom(folder.path(), &["fix", "vendor/web.yaml"]);
    assert_eq!((run.status, &*run.out), (0, ""), "{}", run.err);
    let run = transom(
        folder.path(),
        &["fix", "--no-config", "vendor/web.yaml", "app/game.yaml"],
    );
    assert!(run.out.contains("\n-    runAsUser: 1000\n"), "{}", run.out);
    assert!(!run.err.contains("GameServer"), "{}", run.err);
    let kind = "example.com/GameServer=spec.template";
    let run = transom(
        folder.path(),
        &["fix", "--no-config", "--pod-template", kind, "app/game.yaml"],
    );
    assert!(
        run.out.contains("-      securityContext: {runAsUser: 1}\n"),
        "{}",
        run.out
    );
    // Other paths next to standard input describe the cluster for it, with its configuration.
    let run = transom_with(folder.path(), &["fix", "-", "app"], pod("name: web"));
    assert_eq!((run.status, &*run.out), (0, &*pod("name: web")), "{}", run.err);
}

#[test]
fn a_function_config_has_the_settings_of_fix() {
    let head = "apiVersion: transom.dev/v1alpha1\nkind: Fix\nmetadata: {name: fix}\n";
    let placed = function(&format!("{head}spec: {{placement: true}}\n"));
    assert!(
        placed.out.ends_with("    os:\n      name: windows\n"),
        "{}",
        placed.out
    );
    assert!(!placed.out.contains("runAsUser:"), "{}", placed.out);
    let only = function(&format!(
        "{head}spec: {{placement: true, rules: [os-name-missing]}}\n"
    ));
    assert!(only.out.contains("runAsUser:"), "{}", only.out);
    let linux = function(&format!("{head}spec: {{os: linux}}\n"));
    assert!(linux.out.contains("runAsUser:"), "{}", linux.out);
    let disabled = function(&format!(
        "{head}spec: {{config: {{rules: [{{name: run-as-user, action: Disabled}}]}}}}\n"
    ));
    assert!(disabled.out.contains("runAsUser:"), "{}", disabled.out);
    // Kustomize needs an object of some kind, and it may have no settings.
    let plain = function("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fix}\n");
    assert!(!plain.out.contains("runAsUser:"), "{}", plain.out);
    for (settings, message) in [
        (
            "apiVersion: v1\nkind: ConfigMap\ndata: {placement: \"true\"}\n".to_owned(),
            "-:6: functionConfig: the settings of transom fix have the kind Fix and the apiVersion transom.dev/v1alpha1",
        ),
        (
            "apiVersion: transom.dev/v1\nkind: Fix\nspec: {placement: true}\n".to_owned(),
            "-:4: functionConfig: the settings of transom fix have the apiVersion transom.dev/v1alpha1, not transom.dev/v1",
        ),
        (
            format!("{head}spec: {{placement: true, placement: false}}\n"),
            "-:7: functionConfig: the key placement is given twice in one mapping, on line 7",
        ),
        (
            format!("{head}spec:\n  placment: true\n"),
            "-:8: functionConfig: spec: unknown field \"placment\"; did you mean placement?",
        ),
        (
            format!("{head}spec:\n  rules: [run-as-usr]\n"),
            "-:8: functionConfig: spec.rules[0]: there is no rule \"run-as-usr\"; did you mean run-as-user?",
        ),
        (
            format!("{head}spec:\n  config:\n    rules: [{{name: run-as-usr, action: Warn}}]\n"),
            "-:9: functionConfig: spec.config.rules[0].name: there is no rule \"run-as-usr\"; did you mean run-as-user?",
        ),
    ] {
        let run = function(&settings);
        assert_eq!((run.status, &*run.out), (2, ""), "{}", run.err);
        assert!(run.err.contains(message), "{message}\n{}", run.err);
    }
}

#[test]
fn objects_that_kustomize_cannot_select_get_a_reason_instead_of_a_patch() {
    let folder = files(&[(
        "pods.yaml",
        &[
            pod("generateName: job-"),
            pod("name: web"),
            pod("name: twice, namespace: a"),
            pod("name: twice"),
            pod("name: apart, namespace: a"),
            pod("name: apart, namespace: b"),
        ]
        .join("---\n"),
    )]);
    let run = transom(folder.path(), &["fix", "-o", "kustomize", "pods.yaml"]);
    let names: Vec<&str> = (run.out.lines())
        .filter_map(|line| line.strip_prefix("    name: "))
        .collect();
    // The target of the first `twice` names its namespace, and so selects only this object.
    assert_eq!(names, ["web", "twice", "apart", "apart"], "{}", run.out);
    assert_eq!(run.err.matches("no patch: ").count(), 2, "{}", run.err);
    assert!(!run.err.contains("not changed"), "{}", run.err);
    assert!(
        run.err
            .contains("4 objects changed, 2 without a patch; 4 findings fixed, 20 left\n"),
        "{}",
        run.err
    );
    let run_json = transom(
        folder.path(),
        &["fix", "-o", "kustomize=k.yaml", "-o", "json", "pods.yaml"],
    );
    let report: serde_json::Value = serde_json::from_str(&run_json.out).unwrap();
    assert_eq!(report["summary"]["changed"], 4, "{report:#}");
    assert_eq!(report["summary"]["failed"], 2, "{report:#}");
    let refused = report["objects"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|object| object["error"].as_str());
    assert!(
        refused.clone().all(|reason| reason.starts_with("no patch: ")),
        "{report:#}"
    );
    fs::remove_file(folder.path().join("k.yaml")).unwrap();
    for reason in [
        "no patch: it has no name (generateName), and Kustomize selects objects by name",
        "no patch: another object has the same kind and name, and the patch would select both",
    ] {
        assert!(run.err.contains(reason), "{}", run.err);
    }
    assert_eq!(run.status, 1);
    let diff = transom(folder.path(), &["fix", "pods.yaml"]);
    assert!(!diff.err.contains("no patch"), "{}", diff.err);
    let both = transom(
        folder.path(),
        &["fix", "--write", "-o", "kustomize=k.yaml", "pods.yaml"],
    );
    assert_eq!(both.status, 2);
    assert!(both.err.contains("use one of them"), "{}", both.err);
    assert!(!folder.path().join("k.yaml").exists());
}

#[test]
#[cfg(unix)]
fn a_file_is_fixed_once_under_all_of_its_names() {
    let folder = files(&[("app/web.yaml", &pod("name: web"))]);
    std::os::unix::fs::symlink("web.yaml", folder.path().join("app/link.yaml")).unwrap();
    let run = transom(folder.path(), &["fix", "--write", "app", "./app/web.yaml"]);
    assert_eq!(
        (run.status, &*run.out),
        (0, "fixed app/link.yaml\n"),
        "{}",
        run.err
    );
    assert!(
        run.err.ends_with("1 object changed; 1 finding fixed, 3 left\n"),
        "{}",
        run.err
    );
    assert!(folder.path().join("app/link.yaml").is_symlink());
    let written = fs::read_to_string(folder.path().join("app/web.yaml")).unwrap();
    assert_eq!(written, pod("name: web").replace("    runAsUser: 1000\n", ""));
}

#[test]
#[cfg(unix)]
fn what_cannot_be_written_is_not_called_fixed() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = files(&[("a.yaml", &pod("name: a")), ("b.yaml", &pod("name: b"))]);
    // Also for root, which ignores the permissions of a folder.
    fs::set_permissions(folder.path().join("b.yaml"), fs::Permissions::from_mode(0o444)).unwrap();
    let run = transom(folder.path(), &["fix", "--write", "a.yaml", "b.yaml"]);
    assert_eq!((run.status, &*run.out), (2, "fixed a.yaml\n"), "{}", run.err);
    assert!(
        run.err
            .contains("Pod b (b.yaml:1)\n  not changed: cannot write the file: it is read-only\n"),
        "{}",
        run.err
    );
    assert!(
        run.err
            .contains("1 object changed, 1 not changed; 1 finding fixed,"),
        "{}",
        run.err
    );
    let json = transom(folder.path(), &["fix", "--write", "-o", "json", "b.yaml"]).json();
    assert_eq!(json["summary"]["changed"], 0, "{json}");
    assert_eq!(
        json["objects"][0]["remaining"][0]["rule"], "run-as-user",
        "{json}"
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("b.yaml")).unwrap(),
        pod("name: b")
    );
}

#[test]
fn a_text_without_a_final_line_break_gets_no_blank_line() {
    let head = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: \
                mcr.microsoft.com/windows/nanoserver:ltsc2022\n";
    for line_break in ["\n", "\r\n"] {
        // The last lines are removed, and others are added after them.
        let text = format!("{head}  securityContext:\n    runAsUser: 1000").replace('\n', line_break);
        let run = transom_with(Path::new("."), &["fix", "--placement", "-"], &text);
        let expected =
            format!("{head}  nodeSelector:\n    kubernetes.io/os: windows\n").replace('\n', line_break);
        assert!(run.out.starts_with(&expected), "{:?}", run.out);
        assert!(run.out.ends_with("    name: windows"), "{:?}", run.out);
    }
}
