//! A Kustomize component with the JSON patches of objects.

use std::fmt::Write as _;

use super::inputs::FixedObject;
use crate::model::text::yaml_scalar;

/// The component, as YAML: a patch for each object that changed, and that Kustomize can select. Its texts are JSON strings,
/// which YAML reads as they are.
pub fn component(objects: &[&FixedObject]) -> String {
    let is_patched = |object: &&&FixedObject| !object.patch.is_empty() && object.unpatchable.is_none();
    let mut patched = objects.iter().filter(is_patched).peekable();
    let mut yaml = String::from("apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n");
    if patched.peek().is_none() {
        yaml.push_str("patches: []\n");
        return yaml;
    }
    yaml.push_str("patches:\n");
    for object in patched {
        let namespace = if object.names_namespace {
            &*object.namespace
        } else {
            ""
        };
        let (group, version) = object
            .api_version
            .split_once('/')
            .unwrap_or(("", &object.api_version));
        yaml.push_str("- target:\n");
        let fields = [
            ("group", group),
            ("version", version),
            ("kind", &object.kind),
            ("namespace", namespace),
        ];
        for (field, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(yaml, "    {field}: {}", yaml_scalar(value));
        }
        // Kustomize reads a name as a regular expression.
        let _ = writeln!(
            yaml,
            "    name: {}",
            yaml_scalar(&object.name.replace('.', "\\."))
        );
        yaml.push_str("  patch: |-\n");
        for operation in &object.patch.0 {
            let operation = serde_json::to_string(operation).unwrap_or_default();
            let _ = writeln!(yaml, "    - {operation}");
        }
    }
    yaml
}
