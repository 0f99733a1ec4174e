//! What `transom fix` writes for Kustomize, applied by Kustomize itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use transom::manifest::parse;

use crate::support::command::{files, path_with_program, transom};
use crate::support::skipped::skipped;

const WORKLOADS: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web.v1}\nspec:\n  selector: \
    {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      nodeSelector:\n        \
    beta.kubernetes.io/os: windows\n      containers:\n      - name: web\n        image: \
    mcr.microsoft.com/windows/nanoserver:ltsc2022\n        securityContext: {runAsUser: 1000}\n---\napiVersion: \
    v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n  nodeSelector: {kubernetes.io/os: windows}\n  \
    securityContext: {runAsUser: 1, windowsOptions: {runAsUserName: ContainerUser}}\n  containers: [{name: a, image: \
    a}]\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: other}\nspec:\n  containers: [{name: a, image: \
    a, securityContext: {runAsUser: 1}}]\n";

/// `kustomize build`, or `kubectl kustomize`, which has no `--enable-exec`.
fn kustomize(folder: &Path, arguments: &[&str], may_be_kubectl: bool) -> Option<Output> {
    let assets =
        std::env::var_os("KUBEBUILDER_ASSETS").unwrap_or_else(|| "/usr/local/kubebuilder/bin".into());
    let kubectl = PathBuf::from(assets).join("kubectl");
    let commands = [(PathBuf::from("kustomize"), "build"), (kubectl, "kustomize")];
    for (program, command) in commands {
        if command == "kustomize" && !may_be_kubectl {
            continue;
        }
        let run = Command::new(program)
            .arg(command)
            .args(arguments)
            .current_dir(folder)
            .env("PATH", path_with_program())
            .output();
        if let Ok(output) = run {
            return Some(output);
        }
    }
    skipped(
        "SKIPPED: Kustomize does not apply what fix writes: there is no kustomize (for functions) and no kubectl",
    );
    None
}

/// The objects of a text in the order of kind, namespace and name.
fn objects(text: &[u8]) -> Vec<Value> {
    let parsed = parse(text.to_vec());
    assert_eq!(parsed.errors, [], "{}", String::from_utf8_lossy(text));
    let documents = parsed.documents.iter();
    let mut all: Vec<Value> = documents
        .map(|document| serde_json::from_str(document.json()).unwrap())
        .collect();
    all.sort_by_key(|object| format!("{} {}", object["kind"], object["metadata"]));
    all
}

fn fixed(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    fs::write(folder.join("fixed.yaml"), WORKLOADS).unwrap();
    let run = transom(
        folder,
        &[&["fix", "--write"], arguments, &["fixed.yaml"]].concat(),
    );
    assert_eq!(run.status, 0, "{}", run.err);
    objects(&fs::read(folder.join("fixed.yaml")).unwrap())
}

fn succeeded(output: &Output) -> Vec<Value> {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    objects(&output.stdout)
}

#[test]
fn the_component_changes_what_fix_changes() {
    let folder = files(&[
        ("app.yaml", WORKLOADS),
        (
            "kustomization.yaml",
            "resources: [app.yaml]\ncomponents: [windows]\n",
        ),
    ]);
    fs::create_dir(folder.path().join("windows")).unwrap();
    let component = "kustomize=windows/kustomization.yaml";
    let run = transom(
        folder.path(),
        &["fix", "--placement", "-o", component, "app.yaml"],
    );
    assert_eq!(run.status, 1, "{}", run.err);
    let Some(output) = kustomize(folder.path(), &["."], true) else {
        return;
    };
    let expected = fixed(folder.path(), &["--placement"]);
    assert_ne!(expected, objects(WORKLOADS.as_bytes()));
    assert_eq!(succeeded(&output), expected);
}

#[test]
fn a_function_fixes_what_fix_fixes_with_its_settings() {
    let function = |settings: &str| {
        format!(
            "apiVersion: transom.dev/v1alpha1\nkind: Fix\nmetadata:\n  name: fix\n  annotations:\n    \
             config.kubernetes.io/function: |\n      exec:\n        path: transom\n        args: [fix, \"-\"]\n{settings}"
        )
    };
    let folder = files(&[
        ("app.yaml", WORKLOADS),
        ("fix.yaml", &function("spec: {placement: true}\n")),
        (
            "kustomization.yaml",
            "resources: [app.yaml]\ntransformers: [fix.yaml]\n",
        ),
    ]);
    let arguments = ["--enable-alpha-plugins", "--enable-exec", "."];
    let Some(output) = kustomize(folder.path(), &arguments, false) else {
        return;
    };
    assert_eq!(succeeded(&output), fixed(folder.path(), &["--placement"]));
    fs::write(
        folder.path().join("fix.yaml"),
        function("spec: {placment: true}\n"),
    )
    .unwrap();
    let output = kustomize(folder.path(), &arguments, false).unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{message}");
    assert!(message.contains("did you mean placement?"), "{message}");
}
