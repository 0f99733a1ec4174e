//! `transom fix`: its settings (files, arguments), and what it writes.

use std::fs;
use std::path::Path;

use crate::support::command::{files, transom, transom_with};

/// A pod with a field that Windows ignores: `runAsUser`.
fn pod(metadata: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{{metadata}}}\nspec:\n  nodeSelector: {{kubernetes.io/os: windows}}\n  \
         securityContext:\n    runAsUser: 1000\n    windowsOptions: {{runAsUserName: ContainerUser}}\n  containers:\n  \
         - name: web\n    image: mcr.microsoft.com/windows/nanoserver:ltsc2022\n"
    )
}

#[test]
fn the_configuration_file_of_check_applies_to_fix_too() {
    let server = "apiVersion: example.com/v1\nkind: GameServer\nmetadata: {name: game}\nspec:\n  template:\n    spec:\n      \
                  nodeSelector: {kubernetes.io/os: windows}\n      hostPID: true\n      securityContext: {runAsUser: 1}\n      \
                  containers: [{name: a, image: a}]\n";
    let folder = files(&[
        (
            ".transom.yaml",
            "rules: [{name: run-as-user, action: Disabled}]\nexclude: [vendor]\ncluster: {podTemplates: [{group: example.com, kind: GameServer, path: \
             spec.template}]}\npaths: [app]\n",
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
    let facts = "podTemplates: [{group: example.com, kind: GameServer, path: spec.template}]\n";
    std::fs::write(folder.path().join("facts.yaml"), facts).unwrap();
    let run = transom(
        folder.path(),
        &[
            "fix",
            "--no-config",
            "--cluster-config",
            "facts.yaml",
            "app/game.yaml",
        ],
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
