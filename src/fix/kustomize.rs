//! A Kustomize component with the JSON patches of objects.

use std::fmt::Write as _;

use json_patch::Patch;

use crate::model::text::yaml_scalar;

/// The patch of one object.
#[derive(Clone, Debug)]
pub struct ObjectPatch {
    /// Its `apiVersion` as written.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// The namespace that it names itself; empty if it names none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The changes.
    pub patch: Patch,
}

/// The component, as YAML. Its texts are JSON strings, which YAML reads as they are.
pub fn component(patches: &[ObjectPatch]) -> String {
    let mut yaml = String::from("apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n");
    if patches.is_empty() {
        yaml.push_str("patches: []\n");
        return yaml;
    }
    yaml.push_str("patches:\n");
    for object in patches {
        let (group, version) = object
            .api_version
            .split_once('/')
            .unwrap_or(("", &object.api_version));
        yaml.push_str("- target:\n");
        let fields = [
            ("group", group),
            ("version", version),
            ("kind", &object.kind),
            ("namespace", &object.namespace),
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
