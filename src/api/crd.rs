//! The CustomResourceDefinitions: what the types say, made into what the API server is to check and to fill in.

use kube::CustomResourceExt as _;
use serde_json::{Map, Value, json};

use super::{WindowsNodePolicy, WindowsPodPolicy};

/// The path of the schema of the only version.
const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";

/// Both definitions.
pub fn definitions() -> [Value; 2] {
    [node_policy_definition(), pod_policy_definition()]
}

/// The definition of `WindowsPodPolicy`.
pub fn pod_policy_definition() -> Value {
    finish(json!(WindowsPodPolicy::crd()))
}

/// The definition of `WindowsNodePolicy`.
pub fn node_policy_definition() -> Value {
    let mut definition = json!(WindowsNodePolicy::crd());
    // Everything in its spec has a default, so the spec is optional; a WindowsPodPolicy must have a mode.
    if let Some(Value::Object(schema)) = definition.pointer_mut(SCHEMA) {
        schema.remove("required");
    }
    if let Some(Value::Object(spec)) = definition.pointer_mut(&format!("{SCHEMA}/properties/spec")) {
        spec.insert("default".to_owned(), json!({}));
    }
    finish(definition)
}

fn finish(mut definition: Value) -> Value {
    if let Some(schema) = definition.pointer_mut(SCHEMA) {
        // What the controller has not reported yet is not there: a default would look like a report.
        if let Some(status) = schema.pointer_mut("/properties/status") {
            remove_defaults(status);
        }
    }
    sorted(definition)
}

fn remove_defaults(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            // A property may be called "default"; then it is a schema, and so an object with a type.
            if map.get("default").is_some_and(|it| it.get("type").is_none()) {
                map.remove("default");
            }
            map.values_mut().for_each(remove_defaults);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_defaults),
        _ => (),
    }
}

/// The same with the keys of every map in order, so that the text does not depend on how it was put together.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(String, Value)> = map.into_iter().collect();
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            let sorted: Map<String, Value> = entries.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            Value::Object(sorted)
        }
        Value::Array(list) => list.into_iter().map(sorted).collect(),
        other => other,
    }
}
