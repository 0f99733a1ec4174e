//! A chart as it was before: the one that is here as another version, with a field less in a definition, and with the two
//! entries that each webhook configuration then had for Windows pods.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::engine::Engine;
use super::generated::chart;

/// The field that its WindowsPodPolicy does not know. The default policy does not use it.
const FIELD: &str = "controllerUsernames";

/// The entries that it has and the chart has not, unless some pods fail closed: what they were for goes to `strong` now.
pub const GONE: [&str; 2] = ["maybe.mutate.transom.dev", "maybe.validate.transom.dev"];

/// The conditions of the two entries, as they were.
const STRONG: (&str, &str) = ("is-for-windows", include_str!("older/strong.cel"));
const MAYBE: (&str, &str) = ("may-be-for-windows", include_str!("older/maybe.cel"));

/// The chart before, and an engine for it; the folder goes with the first.
pub fn engine() -> (TempDir, Engine) {
    let folder = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(chart())
        .arg(folder.path())
        .status();
    assert!(copied.unwrap().success());
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
    rewrite("files/webhooks.json", &|text| in_two_entries(text).to_string());
    rewrite("crds/windowspodpolicies.yaml", &|text| {
        definition(text).to_string()
    });
    let engine = Engine::of(&older).unwrap();
    (folder, engine)
}

/// The webhook configurations with the two entries of then in place of those for Windows pods.
fn in_two_entries(text: &str) -> Value {
    let mut source: Value = serde_json::from_str(text).unwrap();
    for (configuration, gone) in [
        ("/mutating/webhooks", GONE[0]),
        ("/validating/Ignore/webhooks", GONE[1]),
    ] {
        let entries = source.pointer_mut(configuration).and_then(Value::as_array_mut);
        let entries = entries.unwrap();
        let entry = |name: &Value, (condition, expression): (&str, &str)| {
            let mut entry = entries[0].clone();
            entry["name"] = name.clone();
            entry["matchConditions"] = json!([{"name": condition, "expression": expression}]);
            entry
        };
        let both = [entry(&entries[0]["name"], STRONG), entry(&json!(gone), MAYBE)];
        entries.splice(..1, both);
    }
    source
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
