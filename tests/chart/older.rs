//! A chart of an older version: a package that was kept (`fixtures/`), with a field less in a definition.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::engine::Engine;

/// The package; `fixtures/README.md` says what it is.
const PACKAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/chart/fixtures/transom-0.1.0-2cb11a0c.tgz"
);

/// The field that its WindowsPodPolicy does not know. The default policy does not use it.
const FIELD: &str = "exemptions";

/// The chart before, and an engine for it; the folder goes with the first.
pub fn engine() -> (TempDir, Engine) {
    let folder = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar")
        .args(["--extract", "--file", PACKAGE, "--directory"])
        .arg(folder.path())
        .status();
    assert!(unpacked.unwrap().success(), "cannot unpack {PACKAGE}");
    let older = folder.path().join("transom");
    let rewrite = |file: &str, change: &dyn Fn(&str) -> String| {
        let text = fs::read_to_string(older.join(file)).unwrap();
        let changed = change(&text);
        assert_ne!(changed, text, "{file} is as it was");
        fs::write(older.join(file), changed).unwrap();
    };
    rewrite("Chart.yaml", &|text| {
        let lines = text.lines().map(|line| match line.strip_prefix("version: ") {
            Some(_) => "version: 0.0.9\n".to_owned(),
            None => format!("{line}\n"),
        });
        lines.collect()
    });
    rewrite("crds/windowspodpolicies.yaml", &|text| {
        definition(text).to_string()
    });
    let engine = Engine::of(&older).unwrap();
    (folder, engine)
}

/// The definition of WindowsPodPolicy without the field.
pub fn definition(text: &str) -> Value {
    let parsed = transom::manifest::parse(text.as_bytes().to_vec());
    let mut definition: Value = serde_json::from_str(parsed.documents[0].json()).unwrap();
    let fields = definition
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties")
        .and_then(Value::as_object_mut)
        .unwrap();
    assert!(fields.remove(FIELD).is_some(), "{FIELD} is no field any more");
    definition
}

/// Whether a definition, as it is in a cluster, knows the field.
pub fn knows_it(definition: &Value) -> bool {
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        .get(FIELD)
        .is_some()
}
