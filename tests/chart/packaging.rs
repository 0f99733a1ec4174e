//! What a release is made of agrees with itself: the chart's metadata, the licence, the oldest Kubernetes that it is for,
//! what the image is built from, and the examples.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use transom::api::read_policies;

use super::engine::engine;
use super::generated;
use super::read;
use super::rendered::copy;
use crate::support::command::transom;
use crate::support::control_plane::{self, ControlPlane};
use crate::support::http;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_chart_says_of_itself_what_is_so() {
    let metadata = generated::values(&read("Chart.yaml"));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        (&metadata["version"], &metadata["appVersion"]),
        (&json!(version), &json!(version))
    );
    let image = generated::values(&read("values.yaml"))["image"].clone();
    let [registry, repository] = ["registry", "repository"].map(|it| image[it].as_str().unwrap());
    let images = metadata["annotations"]["artifacthub.io/images"].as_str().unwrap();
    let line = format!("image: {registry}/{repository}:{version}\n");
    assert!(images.contains(&line), "{images}");
    let definitions = metadata["annotations"]["artifacthub.io/crds"].as_str().unwrap();
    for name in ["windowspodpolicies", "windowsnodepolicies", "windowsnodepools"] {
        let definition = generated::values(&read(&format!("crds/{name}.yaml")));
        let name = format!("name: {}\n", definition["metadata"]["name"].as_str().unwrap());
        assert!(definitions.contains(&name), "{definitions}");
    }
    let examples = metadata["annotations"]["artifacthub.io/crdsExamples"]
        .as_str()
        .unwrap();
    let examples = generated::values(&format!("items:\n{examples}"));
    let examples = examples["items"].as_array().unwrap();
    assert_eq!(examples.len(), 3);
    let file: Vec<String> = examples.iter().map(Value::to_string).collect();
    let file = file.join("\n---\n");
    read_policies(file.clone().into_bytes()).unwrap_or_else(|error| panic!("{file}: {error:?}"));
    let licence = fs::read_to_string(root().join("LICENSE")).unwrap();
    assert!(
        read("LICENSE") == licence,
        "charts/transom/LICENSE is not LICENSE"
    );
}

#[test]
fn the_image_contains_the_licences_of_what_is_linked_into_the_program() {
    let text = fs::read_to_string(root().join("THIRD-PARTY-LICENSES")).unwrap();
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for name in [
        "axum",
        "kube",
        "k8s-openapi",
        "rustls",
        "ring",
        "tokio",
        "serde_json",
        "json-patch",
        "tracing",
        "libmimalloc-sys",
    ] {
        let entry = format!("[[package]]\nname = \"{name}\"\nversion = \"");
        let mut versions = lock
            .split(&*entry)
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap());
        assert!(
            versions.any(|version| text.contains(&format!("\n{name} {version}: "))),
            "THIRD-PARTY-LICENSES lacks {name} of Cargo.lock; .ci/third-party-licences writes it again"
        );
    }
    assert!(text.contains("Permission is hereby granted") && text.contains("Apache License"));
    let dockerfile = fs::read_to_string(root().join("Dockerfile")).unwrap();
    assert!(dockerfile.contains("\nCOPY LICENSE THIRD-PARTY-LICENSES /\n"));
}

#[test]
fn a_released_chart_names_its_image_by_digest_and_has_the_licences() {
    if engine().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let digest = format!("sha256:{}", "0f".repeat(32));
    let version = env!("CARGO_PKG_VERSION");
    let packaged = Command::new(root().join(".ci/release-chart"))
        .args([version, "ghcr.io", "example/transom", &digest])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(packaged.status.success(), "{packaged:?}");
    let unpacked = Command::new("tar")
        .args(["--extract", "--directory"])
        .arg(folder.path())
        .arg("--file")
        .arg(folder.path().join(format!("transom-{version}.tgz")))
        .status();
    assert!(unpacked.unwrap().success());
    let file = |name: &str| fs::read_to_string(folder.path().join("transom").join(name)).unwrap();
    let image = generated::values(&file("values.yaml"))["image"].clone();
    assert_eq!(
        (&image["registry"], &image["repository"], &image["digest"]),
        (&json!("ghcr.io"), &json!("example/transom"), &json!(digest))
    );
    let licences = fs::read_to_string(root().join("THIRD-PARTY-LICENSES")).unwrap();
    assert!(
        file("THIRD-PARTY-LICENSES") == licences,
        "the package has other licences"
    );
    assert!(
        !file("Chart.yaml").contains("registry.example.com"),
        "{}",
        file("Chart.yaml")
    );
}

/// The kubeconfig of a double that answers what Helm requests before it renders: this version of Kubernetes, without kinds.
fn kubernetes(version: &'static str, folder: &Path) -> String {
    let address = http::serve(move |request| {
        let (status, body) = match request.uri().path() {
            "/version" => (200, json!({"major": "1", "minor": "29", "gitVersion": version})),
            "/api" => (200, json!({"kind": "APIVersions", "versions": ["v1"]})),
            "/apis" => (
                200,
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
            ),
            "/api/v1" => (
                200,
                json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": []}),
            ),
            _ => (
                404,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}),
            ),
        };
        Some(http::json(status, &body))
    });
    let file = folder.join(version);
    let config = control_plane::kubeconfig(&format!("http://{address}"));
    fs::write(&file, config.to_string()).unwrap();
    file.display().to_string()
}

#[test]
fn a_kubernetes_without_mutating_admission_policies_gets_no_startup_taint() {
    let Some(engine) = engine() else { return };
    let folder = tempfile::tempdir().unwrap();
    let values = json!({"podPolicies": {"default": {"create": false}}, "nodePolicies": {"default": {"create": false}},
                        "nodeStartup": {"admissionPolicy": {"enabled": true}}, "webhooks": {"allowSecondRelease": true}});
    for (version, fits) in [("v1.35.4", false), ("v1.36.2", true)] {
        let cluster = kubernetes(version, folder.path());
        let request = json!({"cluster": cluster, "name": "transom", "namespace": "transom-system",
                             "values": values, "dry_run": "server"});
        let error = engine.request("install", request).err().unwrap_or_default();
        let refused = "nodeStartup.admissionPolicy.enabled: it needs Kubernetes 1.36 or later";
        assert_eq!(error.contains(refused), !fits, "{version}: {error}");
    }
}

#[test]
fn a_kubernetes_without_match_conditions_is_refused() {
    let Some(engine) = engine() else { return };
    let folder = tempfile::tempdir().unwrap();
    // With policies the templates would ask for the definitions, and for other releases.
    let values = json!({"podPolicies": {"default": {"create": false}}, "nodePolicies": {"default": {"create": false}},
                        "webhooks": {"allowSecondRelease": true}});
    for (version, fits) in [
        ("v1.29.14", false),
        ("v1.29.14-eks-1a2b3c", false),
        ("v1.30.0", true),
        ("v1.30.0-gke.12", true),
        ("v1.36.2+k3s1", true),
    ] {
        let cluster = kubernetes(version, folder.path());
        let request = json!({"cluster": cluster, "name": "transom", "namespace": "transom-system",
                             "values": values, "dry_run": "server"});
        let error = engine.request("install", request).err().unwrap_or_default();
        let refused =
            format!("chart requires kubeVersion: >=1.30.0-0 which is incompatible with Kubernetes {version}");
        assert_eq!(error.contains(&refused), !fits, "{version}: {error}");
        // It stops later, at what this Kubernetes does not have.
        assert!(
            !fits || error.contains("unable to build kubernetes objects"),
            "{version}: {error}"
        );
    }
}

#[test]
fn the_image_is_built_from_what_the_dockerignore_lets_through() {
    let folder = tempfile::tempdir().unwrap();
    let ignore = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let rules: Vec<&str> = ignore
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert_eq!(rules[0], "*", "everything is left out first");
    for rule in &rules[1..] {
        let path = rule.strip_prefix('!').unwrap_or_else(|| panic!("{rule}"));
        let (from, to) = (root().join(path), folder.path().join(path));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }
    let dockerfile = fs::read_to_string(root().join("Dockerfile")).unwrap();
    for line in dockerfile
        .lines()
        .filter(|line| line.starts_with("COPY ") && !line.contains("--from="))
    {
        let from = line.split_whitespace().nth(1).unwrap();
        assert!(
            folder.path().join(from).exists(),
            "{line}: .dockerignore leaves it out"
        );
    }
    // What Cargo does first, as the Dockerfile has it: every package of the workspace and every target must be there.
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--locked",
            "--offline",
            "--format-version=1",
            "--filter-platform=x86_64-unknown-linux-gnu",
        ])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = found["packages"].as_array().unwrap();
    let ours = packages.iter().find(|it| it["name"] == "transom").unwrap();
    for target in ours["targets"].as_array().unwrap() {
        let source = Path::new(target["src_path"].as_str().unwrap());
        assert!(source.exists(), "{}", source.display());
    }
    // The templates of the page are found by it.
    assert!(
        folder.path().join("askama.toml").exists(),
        "askama.toml stays outside"
    );
    // Nothing in the sources includes a file that stays outside.
    let mut folders = vec![folder.path().join("src")];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let (strings, bytes) = (text.split("include_str!(\""), text.split("include_bytes!(\""));
            for part in strings.skip(1).chain(bytes.skip(1)) {
                let Some(included) = part.split('"').next().filter(|it| it.starts_with("..")) else {
                    continue;
                };
                assert!(
                    path.parent().unwrap().join(included).exists(),
                    "{}: {included}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn the_examples_are_taken_by_an_api_server_to_the_last_field() {
    let Some(cluster) = ControlPlane::start_or_skip("the examples of policies") else {
        return;
    };
    let manifest = |name: &str| root().join("manifests").join(name).display().to_string();
    let apply = |file: &str, more: &[&str]| {
        let file = manifest(file);
        let arguments = [
            &["apply", "--server-side", "--validate=strict", "-f", &file],
            more,
        ]
        .concat();
        let printed = cluster.kubectl(&arguments).succeeded();
        assert_eq!(printed.err, "", "{file}");
    };
    apply("crds.yaml", &[]);
    cluster.wait_for_definitions();
    let break_glass = transom(root(), &["generate", "break-glass"]).out;
    let arguments = ["apply", "--server-side", "--validate=strict", "-f", "-"];
    cluster.kubectl_with(&arguments, &break_glass).succeeded();
    let mut applied = Vec::new();
    for entry in fs::read_dir(root().join("manifests/examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.contains("policy") || name.contains("pool") {
            apply(&format!("examples/{name}"), &[]);
            applied.push(name);
        }
    }
    applied.sort();
    assert_eq!(
        applied,
        [
            "node-policy.yaml",
            "node-pool.yaml",
            "policy-audit.yaml",
            "policy-enforce.yaml",
            "policy.yaml"
        ]
    );
    // Every field of the examples is there afterwards: nothing was dropped, and every field has its example.
    for (kind, file, definition) in [
        ("wpp", "examples/policy.yaml", "windowspodpolicies"),
        ("wnp", "examples/node-policy.yaml", "windowsnodepolicies"),
        ("wnpool", "examples/node-pool.yaml", "windowsnodepools"),
    ] {
        let stored = cluster
            .kubectl(&["get", kind, "example", "-o", "json"])
            .succeeded()
            .object();
        let written = generated::values(&fs::read_to_string(manifest(file)).unwrap());
        let schema = generated::values(&read(&format!("crds/{definition}.yaml")));
        let schema =
            &schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        for field in schema.as_object().unwrap().keys() {
            assert!(written["spec"].get(field).is_some(), "{file} has no {field}");
            assert!(stored["spec"].get(field).is_some(), "{kind} lost {field}");
        }
    }
}
