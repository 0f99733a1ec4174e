//! Ownership: who wrote a field, by `managedFields`. What no manager owns was added in admission, by another webhook.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::path::{Path, Segment};
use crate::model::subject::Subject;

/// Who owns which fields of an object.
pub struct Ownership {
    managers: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    fields_v1: Value,
}

impl Ownership {
    /// Reads `metadata.managedFields`. An object without any, or with some that do not parse, is its author's own.
    pub fn of(managed_fields: Option<&RawValue>) -> Self {
        let entries: Vec<Entry> = managed_fields
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        Ownership {
            managers: entries.into_iter().map(|entry| entry.fields_v1).collect(),
        }
    }

    /// Whether some field manager owns the field, or what it stands in as a whole.
    pub fn owns(&self, path: &Path) -> bool {
        self.managers.is_empty() || self.managers.iter().any(|fields| covers(fields, path.segments()))
    }
}

/// Whether a tree of `fieldsV1` has a path in it. A leaf owns everything below it. Items that are told apart by
/// something else than a name (`mountPath`, `containerPort`) count as owned with their list.
fn covers(fields: &Value, path: &[Segment]) -> bool {
    let Some((segment, rest)) = path.split_first() else {
        return true;
    };
    let Some(map) = fields.as_object() else {
        return true;
    };
    if map.is_empty() {
        return true;
    }
    let next = match segment {
        Segment::Field(name) => map.get(&format!("f:{name}")),
        Segment::Key(key) => map.get(&format!("f:{key}")),
        Segment::Item(_, Some(name)) => {
            let key = format!("k:{}", serde_json::json!({ "name": &**name }));
            let by_name = map.keys().any(|key| key.starts_with("k:{\"name\":"));
            if !by_name {
                return true;
            }
            map.get(&key)
        }
        Segment::Item(_, None) => return true,
    };
    next.is_some_and(|next| covers(next, rest))
}

/// The injector whose signature the pod carries, where it is one that people know.
pub fn injector(subject: &Subject<'_>) -> Option<&'static str> {
    const ANNOTATIONS: [(&str, &str); 6] = [
        ("sidecar.istio.io/status", "Istio"),
        ("linkerd.io/proxy-version", "Linkerd"),
        ("dapr.io/enabled", "Dapr"),
        ("vault.hashicorp.com/agent-inject-status", "Vault"),
        ("consul.hashicorp.com/connect-inject-status", "Consul"),
        ("policies.kyverno.io/last-applied-patches", "Kyverno"),
    ];
    const CONTAINERS: [(&str, &str); 6] = [
        ("istio-proxy", "Istio"),
        ("istio-init", "Istio"),
        ("linkerd-proxy", "Linkerd"),
        ("daprd", "Dapr"),
        ("vault-agent", "Vault"),
        ("consul-dataplane", "Consul"),
    ];
    let template = subject.template()?;
    let by_annotation = ANNOTATIONS
        .iter()
        .find(|(key, _)| template.meta.annotations.get(key).is_some());
    let by_container = || {
        CONTAINERS.iter().find(|(name, _)| {
            template
                .spec
                .visit_containers()
                .any(|(_, _, c)| *c.name == **name)
        })
    };
    by_annotation.or_else(by_container).map(|(_, injector)| *injector)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ownership(fields: &str) -> Ownership {
        let json = format!(r#"[{{"manager": "kubectl", "fieldsV1": {fields}}}]"#);
        Ownership::of(Some(&RawValue::from_string(json).unwrap()))
    }

    #[test]
    fn a_field_is_owned_by_the_manager_that_applied_it() {
        let owner = ownership(
            r#"{"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:securityContext": {"f:runAsUser": {}}}}, "f:tolerations": {}}}"#,
        );
        let containers = Path::of(&["spec", "containers"]);
        let field = |name: &str| {
            containers
                .clone()
                .named_item(0, name)
                .fields(&["securityContext", "runAsUser"])
        };
        assert!(owner.owns(&field("web")));
        assert!(!owner.owns(&field("istio-proxy")));
        assert!(
            !owner.owns(
                &containers
                    .clone()
                    .named_item(0, "web")
                    .fields(&["securityContext", "privileged"])
            )
        );
        assert!(owner.owns(&Path::of(&["spec", "tolerations"]).item(0)));
        assert!(Ownership::of(None).owns(&field("anything")));
    }
}
