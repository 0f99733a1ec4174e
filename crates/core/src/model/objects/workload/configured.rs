//! Custom resources that a policy or the configuration of `check` adds to the kinds that Transom evaluates.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Kind;
use super::custom::exclusion;
use crate::model::syntax::dns::is_subdomain;

/// A custom resource, and the path of the pod template or pod spec in it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodTemplateKind {
    /// The API group, as in example.com. Every version of it.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$")
    )]
    pub group: String,
    /// The kind, as in GameServerSet.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z][A-Za-z0-9]*$"))]
    pub kind: String,
    /// The fields that lead to the pod template (with metadata and spec) or to the pod spec, as in spec.template.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^(spec|template)(\.[A-Za-z][A-Za-z0-9]*)*$")
    )]
    pub path: String,
    /// The plural, as in the path of its list. Unset: the kind in lower case with the plural ending that the API server
    /// also guesses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z][a-z0-9]*$"))]
    pub resource: Option<String>,
}

/// Why a kind cannot be added.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum PodTemplateKindError {
    /// The text is not `GROUP/KIND=PATH`.
    #[error("\"{0}\" is not GROUP/KIND=PATH; write it as in example.com/GameServerSet=spec.template")]
    Syntax(String),
    /// The group is not a DNS name, or that of Kubernetes' own kinds.
    #[error(
        "group: \"{0}\" is not the API group of a custom resource; write it without a version, as in example.com"
    )]
    Group(String),
    /// The kind is not a name.
    #[error("kind: \"{0}\" is not a kind; write it as in its manifests, as in GameServerSet")]
    Kind(String),
    /// The path is not a list of fields.
    #[error(
        "path: \"{0}\" is not a path of fields that begins with spec or template; write it as in spec.template, without list items"
    )]
    Path(String),
    /// A match condition cannot name the field.
    #[error(
        "path: \"{0}\" has a field {1}, which is a keyword of CEL, so no match condition can name it; remove the entry"
    )]
    Keyword(String, &'static str),
    /// The plural is not the name of a resource.
    #[error("resource: \"{0}\" is not the plural of a kind; write it as in gameserversets")]
    Resource(String),
    /// The process has seen too many different entries.
    #[error("this is one of more than {MOST} different entries since the start; restart Transom")]
    TooMany,
    /// Transom evaluates the kind anyway.
    #[error("kind: Transom evaluates {0} already; remove the entry")]
    BuiltIn(String),
    /// The kind never has Windows pods.
    #[error("kind: {0} is not evaluated: {1}; remove the entry")]
    Excluded(String, &'static str),
}

/// A valid [`PodTemplateKind`], small enough to be copied like every other [`Kind`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfiguredKind(&'static InternedKind);

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct InternedKind {
    written: PodTemplateKind,
    path: Vec<&'static str>,
    resource: String,
}

impl fmt::Debug for ConfiguredKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConfiguredKind").field(&self.0.written).finish()
    }
}

impl ConfiguredKind {
    /// The API group.
    pub fn group(self) -> &'static str {
        &self.0.written.group
    }

    /// The kind.
    pub fn kind(self) -> &'static str {
        &self.0.written.kind
    }

    /// The fields that lead to the pod template or pod spec.
    pub fn path(self) -> &'static [&'static str] {
        &self.0.path
    }

    /// The plural, as in the path of its list.
    pub fn resource(self) -> &'static str {
        &self.0.resource
    }

    /// Whether it is this kind.
    pub fn is(self, group: &str, kind: &str) -> bool {
        self.group() == group && self.kind() == kind
    }
}

impl PodTemplateKind {
    /// Parses `GROUP/KIND=PATH`, as in `example.com/GameServerSet=spec.template`.
    ///
    /// # Errors
    /// The text has another form. [`PodTemplateKind::configured`] checks the parts.
    pub fn parse(text: &str) -> Result<Self, PodTemplateKindError> {
        let parts = text
            .split_once('=')
            .and_then(|(of, path)| Some((of.rsplit_once('/')?, path)));
        let ((group, kind), path) = parts.ok_or_else(|| PodTemplateKindError::Syntax(text.to_owned()))?;
        Ok(PodTemplateKind {
            group: group.to_owned(),
            kind: kind.to_owned(),
            path: path.to_owned(),
            resource: None,
        })
    }

    /// Checks the entry.
    ///
    /// # Errors
    /// What is wrong with it, with the field.
    pub fn configured(&self) -> Result<ConfiguredKind, PodTemplateKindError> {
        let PodTemplateKind {
            group,
            kind,
            path,
            resource,
        } = self;
        let is_name = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text.chars().all(|c| c.is_ascii_alphanumeric())
        };
        if !is_subdomain(group) || !group.contains('.') {
            return Err(PodTemplateKindError::Group(group.clone()));
        }
        if !is_name(kind) || kind.len() > 63 {
            return Err(PodTemplateKindError::Kind(kind.clone()));
        }
        let is_rooted = path
            .split('.')
            .next()
            .is_some_and(|root| matches!(root, "spec" | "template"));
        if path.len() > 253 || !is_rooted || !path.split('.').all(is_name) {
            return Err(PodTemplateKindError::Path(path.clone()));
        }
        if let Some(keyword) = CEL_KEYWORDS
            .iter()
            .find(|it| path.split('.').any(|field| field == **it))
        {
            return Err(PodTemplateKindError::Keyword(path.clone(), keyword));
        }
        let is_resource = |text: &String| is_name(text) && text.len() <= 63 && *text == text.to_lowercase();
        if let Some(resource) = resource.as_ref().filter(|text| !is_resource(text)) {
            return Err(PodTemplateKindError::Resource(resource.clone()));
        }
        let title = format!("{kind}.{group}");
        if let Some(why) = exclusion(group, kind) {
            return Err(PodTemplateKindError::Excluded(title, why));
        }
        if Kind::of(group, kind).is_some() {
            return Err(PodTemplateKindError::BuiltIn(title));
        }
        intern(self).ok_or(PodTemplateKindError::TooMany)
    }
}

/// The words that CEL does not take for the name of a field. The chart has them from here.
pub const CEL_KEYWORDS: [&str; 4] = ["false", "in", "null", "true"];

/// The most different entries that one process keeps.
const MOST: usize = 4_096;

/// Keeps one copy of each entry for the life of the process, so that a kind can be copied and compared like the built-in
/// ones. Entries come from policies and configuration files, which administrators write.
/// `None`: there are [`MOST`] already.
fn intern(written: &PodTemplateKind) -> Option<ConfiguredKind> {
    static KINDS: Mutex<BTreeMap<PodTemplateKind, &'static InternedKind>> = Mutex::new(BTreeMap::new());
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kinds.get(written) {
        return Some(ConfiguredKind(known));
    }
    if kinds.len() >= MOST {
        return None;
    }
    let path: &'static str = String::leak(written.path.clone());
    let kept: &'static InternedKind = Box::leak(Box::new(InternedKind {
        written: written.clone(),
        path: path.split('.').collect(),
        resource: written.resource.clone().unwrap_or_else(|| plural(&written.kind)),
    }));
    kinds.insert(written.clone(), kept);
    Some(ConfiguredKind(kept))
}

/// The plural that the API server guesses for a kind (`meta.UnsafeGuessKindToResource`).
fn plural(kind: &str) -> String {
    let singular = kind.to_lowercase();
    match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if singular.ends_with('s') => format!("{singular}es"),
        None => format!("{singular}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(text: &str) -> Result<ConfiguredKind, String> {
        let entry = PodTemplateKind::parse(text).map_err(|error| error.to_string())?;
        entry.configured().map_err(|error| error.to_string())
    }

    #[test]
    fn an_entry_is_kept_once() {
        let first = configured("example.com/GameServerSet=spec.template").unwrap();
        assert_eq!((first.group(), first.kind()), ("example.com", "GameServerSet"));
        assert_eq!(first.path(), ["spec", "template"]);
        assert_eq!(first.resource(), "gameserversets");
        assert_eq!(
            (plural("Proxy"), plural("Canvas")),
            ("proxies".to_owned(), "canvases".to_owned())
        );
        let again = configured("example.com/GameServerSet=spec.template").unwrap();
        assert!(std::ptr::eq(first.0, again.0));
        assert_ne!(
            first,
            configured("example.com/GameServerSet=spec.pod").unwrap(),
            "another path is another kind"
        );
    }

    #[test]
    fn what_is_wrong_with_an_entry_is_reported() {
        for (text, why) in [
            ("GameServerSet", "\"GameServerSet\" is not GROUP/KIND=PATH"),
            ("/GameServerSet=spec", "group: \"\" is not the API group"),
            (
                "apps/Deployment=spec.template",
                "group: \"apps\" is not the API group",
            ),
            (
                "example.com/v1/GameServerSet=spec",
                "group: \"example.com/v1\" is not the API group",
            ),
            (
                "example.com/game-servers=spec",
                "kind: \"game-servers\" is not a kind",
            ),
            ("example.com/GameServerSet=", "path: \"\" is not a path of fields"),
            (
                "example.com/GameServerSet=spec.in.template",
                "path: \"spec.in.template\" has a field in, which is a keyword of CEL",
            ),
            (
                "example.com/GameServerSet=spec..template",
                "path: \"spec..template\" is not a path",
            ),
            (
                "example.com/GameServerSet=data.pod",
                "path: \"data.pod\" is not a path of fields that begins",
            ),
            (
                "example.com/GameServerSet=spec.pods[0]",
                "path: \"spec.pods[0]\" is not a path",
            ),
            (
                "argoproj.io/Rollout=spec.template",
                "kind: Transom evaluates Rollout.argoproj.io already",
            ),
            (
                "kubevirt.io/VirtualMachine=spec.template",
                "kind: VirtualMachine.kubevirt.io is not evaluated: its pods are Linux pods",
            ),
        ] {
            let error = configured(text).unwrap_err();
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }
}
