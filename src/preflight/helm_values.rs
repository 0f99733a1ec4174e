//! The Helm values to install with: each with the reason for it, and as a file.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::model::syntax::text::one_line;
use crate::render::yaml;

/// One value and its reason.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesEntry {
    /// Its path in the values.
    pub path: Vec<&'static str>,
    /// The value.
    pub value: Value,
    /// The reason.
    pub reason: String,
}

/// The values to install with, for a file that follows the platform's values file.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmValues {
    /// The platform's values file, which precedes this one.
    pub platform: String,
    /// The values, in output order.
    pub entries: Vec<ValuesEntry>,
}

impl HelmValues {
    /// Adds a value with the reason that its comment gives.
    pub fn add(&mut self, path: &[&'static str], value: Value, reason: impl Into<String>) {
        self.entries.push(ValuesEntry {
            path: path.to_vec(),
            value,
            reason: reason.into(),
        });
    }

    /// All values as one JSON value, as Helm reads the file.
    pub fn json(&self) -> Value {
        let mut all = Value::Object(Map::new());
        for entry in &self.entries {
            let mut at = &mut all;
            for key in &entry.path {
                at = &mut at[*key];
            }
            *at = entry.value.clone();
        }
        all
    }

    /// The file: YAML with a comment above each value.
    pub fn yaml(&self) -> String {
        let mut out = format!(
            "# Values for helm install, after those of the platform: --values {} --values THIS-FILE\n\
             # Written by transom preflight. Helm merges maps, and replaces lists, so each list is whole.\n",
            self.platform
        );
        let entries: Vec<&ValuesEntry> = self.entries.iter().collect();
        write(&mut out, &entries, 0);
        out
    }
}

/// Writes entries that share the first `depth` parts of their paths, in the order in which their keys were
/// added.
fn write(out: &mut String, entries: &[&ValuesEntry], depth: usize) {
    let indent = "  ".repeat(depth);
    let mut done: Vec<&str> = Vec::new();
    for entry in entries {
        let Some(key) = entry.path.get(depth).copied() else {
            continue;
        };
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        if entry.path.len() == depth + 1 {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{indent}# {}", one_line(&entry.reason));
            for line in yaml(&json!({key: entry.value})).lines() {
                let _ = writeln!(out, "{indent}{line}");
            }
        } else {
            let _ = writeln!(out, "{indent}{key}:");
            let below: Vec<&ValuesEntry> = (entries.iter().copied())
                .filter(|entry| entry.path.get(depth) == Some(&key))
                .collect();
            write(out, &below, depth + 1);
        }
    }
}
