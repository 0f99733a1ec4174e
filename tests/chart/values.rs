//! Values that break an installation in one way or another: each is refused by name, or does what it says.

use serde_json::{Value, json};

use super::engine::engine;
use super::generated::{self, MAY_BE_NULL};
use super::{read, refusal};

/// Every value of the chart by its path; those that hold others stand before them.
fn paths(values: &Value, path: &str, out: &mut Vec<String>) {
    for (name, value) in values.as_object().into_iter().flatten() {
        // Below these stands what Kubernetes or a policy names, not the chart.
        let free = [
            "nodePolicy.spec",
            "nodeSelector",
            "podSecurityContext",
            "securityContext",
        ];
        let below = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let leaf =
            free.contains(&below.as_str()) || below.starts_with("resources.") || below.ends_with("labels");
        out.push(below.clone());
        if !leaf {
            paths(value, &below, out);
        }
    }
}

/// These values alone: `a.b` with a value.
fn only(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |inner, name| json!({ name: inner }))
}

#[test]
fn null_is_refused_by_name_or_takes_a_value_away() {
    let Some(engine) = engine() else { return };
    let mut all = Vec::new();
    paths(&generated::values(&read("values.yaml")), "", &mut all);
    assert!(all.len() > 100, "{all:?}");
    for path in &all {
        let values = only(path, Value::Null);
        if MAY_BE_NULL.contains(&path.as_str()) {
            engine.ask("validate", json!({"values": values})).unwrap();
            engine.render(&values).unwrap();
            continue;
        }
        let name = path.rsplit('.').next().unwrap();
        let refusal = refusal(engine, &values);
        assert!(
            refusal.contains("missing propert") && refusal.contains(&format!("'{name}'")),
            "{path}: {refusal}"
        );
    }
}
