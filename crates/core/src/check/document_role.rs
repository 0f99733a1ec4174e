//! The type of a document, and its role in a check.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::manifest::Document;
use crate::model::objects::policy_kinds::{API_VERSION, NODE_POLICY, NODE_POOL, POD_POLICY};
use crate::model::objects::workload::Kind;
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::syntax::json_types::Str;
use crate::model::syntax::suggest::nearest;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct DocumentHeader<'a> {
    #[serde(borrow)]
    api_version: Option<Str<'a>>,
    kind: Option<Str<'a>>,
}

/// The type of an object as written, and what it means to a check.
pub(super) struct ObjectType {
    pub api_version: String,
    pub role: DocumentRole,
}

/// The role of a document.
pub(super) enum DocumentRole {
    /// An object of a kind that Transom reads.
    Object(Kind),
    Namespace,
    Policy,
    NodePolicy,
    /// A WindowsNodePool, which becomes a fact.
    NodePool,
    /// A kind that is not evaluated.
    Other(String),
}

impl ObjectType {
    /// The type of a document. An item of a typed list may leave it to the list.
    ///
    /// # Errors
    /// Why it is not a Kubernetes object.
    pub fn of(document: &Document) -> Result<Self, String> {
        const NOT_KUBERNETES: &str = "this is not a Kubernetes object";
        if !document.json().starts_with('{') {
            return Err(format!("{NOT_KUBERNETES}: it is not a mapping"));
        }
        let header: DocumentHeader<'_> = serde_json::from_str(document.json())
            .map_err(|_| format!("{NOT_KUBERNETES}: its apiVersion or kind is not a string"))?;
        let of_item = document.list_kind().and_then(|kind| kind.strip_suffix("List"));
        let of_item = of_item.filter(|kind| !kind.is_empty());
        let kind = header.kind.as_deref().or(of_item);
        let of_list = || document.list_api_version().filter(|_| of_item.is_some());
        let api_version = header.api_version.map(|version| version.0);
        let api_version = api_version.or_else(|| of_list().map(Cow::Borrowed));
        let (Some(kind), Some(api_version)) = (kind, api_version) else {
            let missing = if kind.is_none() { "kind" } else { "apiVersion" };
            return Err(format!("{NOT_KUBERNETES}: it has no {missing}"));
        };
        let role = DocumentRole::of(&api_version, kind);
        if matches!(role, DocumentRole::Other(_))
            && let Some(problem) = misspelt(&api_version, kind).filter(|_| carries_pod(document.json()))
        {
            return Err(problem);
        }
        Ok(ObjectType {
            role,
            api_version: api_version.into_owned(),
        })
    }

    /// Makes a custom resource that one of these kinds describes an object to check.
    pub fn recognize<'k>(&mut self, kinds: impl IntoIterator<Item = &'k ConfiguredKind>) {
        let DocumentRole::Other(kind) = &self.role else {
            return;
        };
        let group = self.group().unwrap_or_default();
        let known = kinds.into_iter().find(|known| known.is(group, kind));
        if let Some(known) = known {
            self.role = DocumentRole::Object(Kind::Configured(*known));
        }
    }

    /// The API group; `None` for the core group.
    pub fn group(&self) -> Option<&str> {
        self.api_version.rsplit_once('/').map(|(group, _)| group)
    }
}

impl DocumentRole {
    fn of(api_version: &str, kind: &str) -> Self {
        let is_ours = || api_version.split('/').next() == API_VERSION.split('/').next();
        match Kind::of_api_version(api_version, kind) {
            Some(kind) => DocumentRole::Object(kind),
            None if kind == "Namespace" && api_version == "v1" => DocumentRole::Namespace,
            None if kind == POD_POLICY && is_ours() => DocumentRole::Policy,
            None if kind == NODE_POLICY && is_ours() => DocumentRole::NodePolicy,
            None if kind == NODE_POOL && is_ours() => DocumentRole::NodePool,
            None => DocumentRole::Other(kind.to_owned()),
        }
    }
}

/// That a kind with pods is in a group of Kubernetes that has no such kind: the API server refuses the object.
fn misspelt(api_version: &str, kind: &str) -> Option<String> {
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let known = || Kind::ALL.iter().map(|kind| kind.as_str());
    // A ControllerRevision contains a template.
    if !["", "apps", "batch"].contains(&group) || known().chain(["ControllerRevision"]).any(|it| it == kind) {
        return None;
    }
    let of_group = known().filter(|known| Kind::of_api_version(api_version, known).is_some());
    let near = nearest(kind, of_group).map_or_else(String::new, |near| format!("; did you mean {near}?"));
    Some(format!("{api_version} has no kind {kind}{near}"))
}

/// Whether an object of any kind contains containers with images.
fn carries_pod(json: &str) -> bool {
    fn has_containers(value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().any(has_containers),
            Value::Object(fields) => {
                fields.get("containers").is_some_and(has_images) || fields.values().any(has_containers)
            }
            _ => false,
        }
    }
    json.contains("\"containers\"") && serde_json::from_str(json).is_ok_and(|value| has_containers(&value))
}

/// Whether it is a list in which a container has an image.
pub(super) fn has_images(list: &Value) -> bool {
    let mut items = list.as_array().into_iter().flatten();
    items.any(|item| item.get("image").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::parse;

    fn types(text: &str) -> Vec<Result<(String, String), String>> {
        let documents = parse(text.as_bytes().to_vec()).documents;
        let of = |document: &Document| {
            let ObjectType { api_version, role } = ObjectType::of(document)?;
            let role = match role {
                DocumentRole::Object(kind) => kind.to_string(),
                DocumentRole::Other(kind) => format!("other {kind}"),
                DocumentRole::Namespace => "namespace".to_owned(),
                DocumentRole::Policy => "policy".to_owned(),
                DocumentRole::NodePolicy => "node policy".to_owned(),
                DocumentRole::NodePool => "node pool".to_owned(),
            };
            Ok((api_version, role))
        };
        documents.iter().map(of).collect()
    }

    #[test]
    fn an_item_of_a_typed_list_has_the_type_of_the_list() {
        let list = "{apiVersion: v1, kind: PodList, items: [{}, {apiVersion: v1, kind: ConfigMap}]}";
        let expected = [("v1", "Pod"), ("v1", "other ConfigMap")];
        let expected = expected.map(|(version, role)| Ok((version.to_owned(), role.to_owned())));
        assert_eq!(types(list), expected);
    }

    #[test]
    fn what_is_not_an_object_has_a_reason() {
        for (text, reason) in [
            ("[1]", "it is not a mapping"),
            ("kind: Pod", "it has no apiVersion"),
            ("apiVersion: v1", "it has no kind"),
            (
                "{apiVersion: 1, kind: Pod}",
                "its apiVersion or kind is not a string",
            ),
        ] {
            let expected = Err(format!("this is not a Kubernetes object: {reason}"));
            assert_eq!(types(text), [expected], "{text}");
        }
    }

    #[test]
    fn a_misspelt_kind_with_containers_is_no_other_kind() {
        let spec = "spec: {template: {spec: {containers: [{name: a, image: a}]}}}";
        for (header, expected) in [
            (
                "{apiVersion: apps/v1, kind: Deploymnt",
                Err("apps/v1 has no kind Deploymnt; did you mean Deployment?"),
            ),
            ("{apiVersion: v1, kind: Foo", Err("v1 has no kind Foo")),
            (
                "{apiVersion: apps/v1, kind: ControllerRevision",
                Ok("other ControllerRevision"),
            ),
            (
                "{apiVersion: example.com/v1, kind: Deploymnt",
                Ok("other Deploymnt"),
            ),
        ] {
            let types = types(&format!("{header}, {spec}}}"));
            let [found] = types.as_slice() else {
                panic!("{types:?}")
            };
            let found = found
                .as_ref()
                .map(|(_, role)| role.as_str())
                .map_err(String::as_str);
            assert_eq!(found, expected, "{header}");
        }
        let without = types("{apiVersion: v1, kind: ComponentStatus}");
        assert!(without[0].is_ok(), "{without:?}");
    }

    #[test]
    fn a_list_without_a_kind_of_items_gives_no_type() {
        let missing = Err("this is not a Kubernetes object: it has no kind".to_owned());
        assert_eq!(types("{apiVersion: v1, kind: List, items: [{a: 1}]}"), [missing]);
    }
}
