//! Field ownership, from `managedFields`. A field that no manager owns was added in admission by another webhook.

use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::object::{FieldOwners, Object};
use crate::model::syntax::json::write_string;
use crate::model::syntax::json_types::Map;
use crate::model::syntax::path::{Path, Segment};

/// The OpenShift annotation with the name of the SecurityContextConstraints that added defaults to a pod.
pub const SCC_ANNOTATION: &str = "openshift.io/scc";

/// The owners of the fields of an object. They are parsed when the first field is looked up, because that takes time and
/// few reviews need them.
#[derive(Debug)]
pub struct ManagedFields<'a> {
    json: Option<&'a RawValue>,
    managers: OnceLock<Vec<ManagedFieldsEntry<'a>>>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct ManagedFieldsEntry<'a> {
    #[serde(default, borrow)]
    fields_v1: FieldTree<'a>,
}

/// A tree of `fieldsV1`: objects only, and an empty one is a leaf.
#[derive(Deserialize, Default, Debug)]
#[serde(transparent)]
struct FieldTree<'a>(#[serde(borrow)] Map<'a, FieldTree<'a>>);

impl<'a> ManagedFields<'a> {
    /// `json`: `metadata.managedFields`. An object without them, or with unparseable ones, is treated as written by its
    /// author.
    pub fn of(json: Option<&'a RawValue>) -> Self {
        ManagedFields {
            json,
            managers: OnceLock::new(),
        }
    }
}

impl FieldOwners for ManagedFields<'_> {
    /// Whether a field manager owns the field, or an ancestor of it as a whole.
    fn owns(&self, path: &Path) -> bool {
        let parse = || self.json.and_then(|json| serde_json::from_str(json.get()).ok());
        let managers = self.managers.get_or_init(|| parse().unwrap_or_default());
        let owns = |entry: &ManagedFieldsEntry<'_>| entry.fields_v1.covers(path.segments());
        managers.is_empty() || managers.iter().any(owns)
    }
}

impl FieldTree<'_> {
    /// Whether the tree contains a path. A leaf owns everything below it, except for [`STRUCTS`]. Items that are not
    /// identified by a name (but by `mountPath`, `containerPort`) are owned with their list.
    fn covers(&self, path: &[Segment]) -> bool {
        let Some((segment, rest)) = path.split_first() else {
            return true;
        };
        if self.0.is_empty() {
            return true;
        }
        let next = match segment {
            Segment::Field(name) => self.find(|key| key.strip_prefix("f:") == Some(name)),
            Segment::Key(name) | Segment::Unknown(name) => {
                self.find(|key| key.strip_prefix("f:") == Some(name))
            }
            Segment::Item(_, Some(name)) => {
                const BY_NAME: &str = "k:{\"name\":";
                if self.find(|key| key.starts_with(BY_NAME)).is_none() {
                    return true;
                }
                let mut of_item = BY_NAME.to_owned();
                write_string(&mut of_item, name);
                of_item.push('}');
                self.find(|key| key == of_item)
            }
            Segment::Item(_, None) => return true,
        };
        let is_struct = matches!(segment, Segment::Field(name) if STRUCTS.contains(name));
        let is_empty_struct = |next: &Self| next.0.is_empty() && is_struct && !rest.is_empty();
        next.is_some_and(|next| !is_empty_struct(next) && next.covers(rest))
    }

    fn find(&self, is: impl Fn(&str) -> bool) -> Option<&Self> {
        let mut members = self.0.iter().rev();
        members.find(|(key, _)| is(key)).map(|(_, below)| below)
    }
}

/// Structs that a manager owns as a leaf if it wrote them empty (`securityContext: {}`, which the API server adds to
/// each pod): each field below has its own owner.
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

/// The well-known injector whose signature the pod has, if any.
pub fn injector(subject: &Object<'_>) -> Option<&'static str> {
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

    fn entries(fields: &str) -> Box<RawValue> {
        RawValue::from_string(format!(r#"[{{"manager": "kubectl", "fieldsV1": {fields}}}]"#)).unwrap()
    }

    #[test]
    fn a_field_is_owned_by_the_manager_that_applied_it() {
        let entries = entries(
            r#"{"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:securityContext": {"f:runAsUser": {}}}}, "f:tolerations": {}}}"#,
        );
        let owner = ManagedFields::of(Some(&entries));
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
        assert!(ManagedFields::of(None).owns(&field("anything")));
    }

    #[test]
    fn an_empty_object_of_the_author_does_not_own_what_others_put_into_it() {
        let entries = entries(
            r#"{"f:spec": {"f:securityContext": {}, "f:nodeSelector": {}, "f:containers":
                {"k:{\"name\":\"web\"}": {".": {}, "f:resources": {}, "f:securityContext":
                    {".": {}, "f:capabilities": {}}}}}}"#,
        );
        let owner = ManagedFields::of(Some(&entries));
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
            // A list or an object that a manager wrote as a whole.
            (of_web(&["securityContext", "capabilities", "drop"]), true),
        ] {
            assert_eq!(owner.owns(&path), owned, "{path}");
        }
    }
}
