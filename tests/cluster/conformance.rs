//! The conformance suite, as others run it: a plain API server has the outcomes that are kept, and Transom catches every
//! bad object of the corpus without a wrong denial.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::control_plane::{ControlPlane, free_ports, programs, wait};
use crate::support::install::{POLICIES, Replica, prepare, register};

/// What is kept of a plain API server, for the version of the tests.
const PLAIN: &str = "tests/conformance/kube-apiserver-1.36.json";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs the suite against a cluster. Returns the output, and the file with every verdict.
fn suite(cluster: &ControlPlane, name: &str, more: &[&str]) -> (Output, PathBuf) {
    let verdicts = cluster.path(name);
    let kubectl = programs().unwrap().display().to_string();
    let path = format!("{kubectl}:{}", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("python3")
        .arg(root().join("tests/conformance/run"))
        .arg(format!(
            "--kubeconfig={}",
            cluster.path("admin.kubeconfig").display()
        ))
        .arg("--json")
        .arg(&verdicts)
        .args(more)
        .env("PATH", path)
        .output()
        .unwrap();
    (output, verdicts)
}

#[test]
fn transom_catches_every_bad_object_of_the_suite_and_denies_no_good_one() {
    let Some(cluster) = ControlPlane::start_or_skip("the conformance suite") else {
        return;
    };
    let (output, verdicts) = suite(&cluster, "plain.json", &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let found = std::fs::read_to_string(verdicts).unwrap();
    if std::env::var_os("TRANSOM_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(root().join(PLAIN), &found).unwrap();
    }
    let kept = std::fs::read_to_string(root().join(PLAIN)).unwrap();
    let differing: Vec<(&str, &str)> = kept
        .lines()
        .zip(found.lines())
        .filter(|(kept, found)| kept != found)
        .collect();
    assert!(
        kept == found,
        "{PLAIN} does not have the outcome of this API server; TRANSOM_BLESS=1 writes it: {differing:#?}"
    );
    println!("kube-apiserver alone: {}", summary(&text));

    prepare(&cluster, POLICIES);
    let [port, health] = free_ports();
    register(&cluster, port, &[]);
    let replica = Replica::start_at(&cluster, "a", port, health, &[]);
    replica.is_ready(&cluster);
    let caught = || {
        let (output, _) = suite(&cluster, "transom.json", &["--at-least", "100"]);
        output.status.success()
    };
    // The API server learns of webhooks and of their CA a moment after they are registered.
    let is_called = wait(std::time::Duration::from_secs(20), caught);
    let (output, _) = suite(&cluster, "transom.json", &["--at-least", "100"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(is_called && output.status.success(), "{text}");
    println!("with Transom: {}", summary(&text));
    assert!(
        text.contains(" 0 of ") && text.contains("(100.0%)"),
        "nothing was measured: {text}"
    );
}

/// The line with the numbers.
fn summary(text: &str) -> &str {
    text.lines()
        .find(|line| line.contains("bad ones denied"))
        .unwrap_or(text)
}
