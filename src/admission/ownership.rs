//! Ownership: who wrote a field, by `managedFields`. What no manager owns was added in admission, by another webhook.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::facts::SCC_ANNOTATION;
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

/// Whether a tree of `fieldsV1` has a path in it. A leaf owns everything below it, but for one of [`STRUCTS`]. Items that
/// are told apart by something else than a name (`mountPath`, `containerPort`) count as owned with their list.
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
    let is_empty_struct = |next: &Value| {
        let is_leaf = next.as_object().is_some_and(serde_json::Map::is_empty);
        let is_struct = matches!(segment, Segment::Field(name) if STRUCTS.contains(name));
        is_leaf && is_struct && !rest.is_empty()
    };
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
    next.is_some_and(|next| !is_empty_struct(next) && covers(next, rest))
}

/// What a manager owns as a leaf where it wrote it empty (`securityContext: {}`, which the API server puts into each pod by
/// itself): each field below has an owner of its own.
const STRUCTS: [&str; 8] = [
    "securityContext",
    "windowsOptions",
    "resources",
    "emptyDir",
    "lifecycle",
    "affinity",
    "nodeAffinity",
    "dnsConfig",
];

/// The injector whose signature the pod carries, where it is one that people know.
pub fn injector(subject: &Subject<'_>) -> Option<&'static str> {
    const ANNOTATIONS: [(&str, &str); 7] = [
        (SCC_ANNOTATION, "a SecurityContextConstraints of OpenShift"),
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

    #[test]
    fn an_empty_object_of_the_author_does_not_own_what_others_put_into_it() {
        let owner = ownership(
            r#"{"f:spec": {"f:securityContext": {}, "f:nodeSelector": {}, "f:containers":
                {"k:{\"name\":\"web\"}": {".": {}, "f:resources": {}, "f:securityContext":
                    {".": {}, "f:capabilities": {}}}}}}"#,
        );
        let of_pod = |fields: &[&'static str]| Path::of(&["spec"]).fields(fields);
        let of_web = |fields: &[&'static str]| of_pod(&["containers"]).named_item(0, "web").fields(fields);
        for (path, owned) in [
            (of_pod(&["securityContext"]), true),
            (of_pod(&["securityContext", "fsGroup"]), false),
            (of_pod(&["nodeSelector"]).key("disk"), true),
            (of_web(&["resources"]), true),
            (of_web(&["resources", "limits"]), false),
            (of_web(&["securityContext", "runAsUser"]), false),
            (of_web(&["securityContext", "capabilities"]), true),
            // A list or an object that is written as a whole.
            (of_web(&["securityContext", "capabilities", "drop"]), true),
        ] {
            assert_eq!(owner.owns(&path), owned, "{path}");
        }
    }
}
