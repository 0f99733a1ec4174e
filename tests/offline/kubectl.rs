//! Manifests are read as `kubectl` reads them: odd inputs, each with the JSON that `kubectl` makes of it.

use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;
use transom::manifest::parse;

use crate::support::control_plane::programs_or_skip;

/// An input, and what `kubectl annotate --local -o json` prints for it, without the annotation.
#[derive(Deserialize)]
struct Case {
    name: String,
    yaml: String,
    json: Value,
}

fn cases() -> Vec<Case> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl/cases.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// The same value for 1 and 1.0: kubectl writes numbers of 64 bits.
fn with_floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(items) => items.iter().map(with_floats).collect(),
        Value::Object(fields) => (fields.iter())
            .map(|(key, value)| (key.clone(), with_floats(value)))
            .collect(),
        other => other.clone(),
    }
}

#[test]
fn odd_manifests_are_read_as_kubectl_reads_them() {
    let cases = cases();
    assert!(cases.len() >= 100);
    for Case { name, yaml, json } in cases {
        let parsed = parse(yaml.clone().into_bytes());
        assert_eq!(parsed.errors, [], "{name}: {yaml}");
        let read: Vec<Value> = (parsed.documents.iter())
            .map(|document| with_floats(&serde_json::from_str(document.json()).unwrap()))
            .collect();
        assert_eq!(read, [with_floats(&json)], "{name}: {yaml}");
    }
}

/// The JSON of the cases is what the installed `kubectl` prints.
#[test]
fn kubectl_reads_the_odd_manifests_as_recorded() {
    let Some(programs) = programs_or_skip("how kubectl reads manifests") else {
        return;
    };
    let cases = cases();
    let folder = tempfile::tempdir().unwrap();
    for (number, case) in cases.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number:03}.yaml")), &case.yaml).unwrap();
    }
    let output = Command::new(programs.join("kubectl"))
        .args(["annotate", "--local", "a=b", "-o", "json", "-f"])
        .arg(folder.path())
        .env("HOME", folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let printed: Vec<Value> = printed.map(Result::unwrap).collect();
    assert_eq!(printed.len(), cases.len());
    for (case, mut object) in cases.iter().zip(printed) {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("annotations").unwrap();
        assert_eq!(object, case.json, "{}", case.name);
    }
}
