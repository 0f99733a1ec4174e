//! The CustomResourceDefinitions: what the types say, made into what the API server is to check and to fill in.

use kube::CustomResourceExt as _;
use serde_json::{Map, Value, json};

use super::schema::mode_of_break_glass;
use super::{WindowsNodePolicy, WindowsNodePool, WindowsPodPolicy};

/// The path of the schema of the only version.
const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";

/// The annotation with the version of Transom that a definition belongs to: an older version must not replace a newer
/// definition, because the API server would drop the newer fields of stored policies.
pub const VERSION_ANNOTATION: &str = "transom.dev/version";

/// The annotation by which Argo CD, which applies the definitions with the chart, keeps them when an Application is
/// deleted or no longer contains them: with a definition, every policy of its kind is deleted.
const ARGO_CD_ANNOTATION: (&str, &str) = ("argocd.argoproj.io/sync-options", "Delete=false,Prune=false");

/// The CustomResourceDefinitions, as the chart installs them.
pub fn definitions() -> [Value; 3] {
    [
        node_policy_definition(),
        node_pool_definition(),
        pod_policy_definition(),
    ]
}

/// The definition of `WindowsNodePool`.
pub fn node_pool_definition() -> Value {
    finish(json!(WindowsNodePool::crd()))
}

/// The definition of `WindowsPodPolicy`.
pub fn pod_policy_definition() -> Value {
    let mut definition = json!(WindowsPodPolicy::crd());
    if let Some(Value::Object(schema)) = definition.pointer_mut(SCHEMA) {
        schema.insert("x-kubernetes-validations".to_owned(), mode_of_break_glass());
    }
    finish(definition)
}

/// The definition of `WindowsNodePolicy`.
pub fn node_policy_definition() -> Value {
    finish(json!(WindowsNodePolicy::crd()))
}

fn finish(mut definition: Value) -> Value {
    if let Some(schema) = definition.pointer_mut(SCHEMA) {
        // What the controller has not reported is not there: a default would look like a report, and null like a value.
        if let Some(status) = schema.pointer_mut("/properties/status") {
            only_what_is_reported(status);
        }
    }
    let (argo_cd, options) = ARGO_CD_ANNOTATION;
    definition["metadata"]["annotations"] =
        json!({VERSION_ANNOTATION: env!("CARGO_PKG_VERSION"), argo_cd: options});
    sorted(definition)
}

fn only_what_is_reported(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            // A property may be called "default"; then it is a schema, and so an object with a type.
            if map.get("default").is_some_and(|it| it.get("type").is_none()) {
                map.remove("default");
            }
            map.remove("nullable");
            map.values_mut().for_each(only_what_is_reported);
        }
        Value::Array(list) => list.iter_mut().for_each(only_what_is_reported),
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
