//! Objects that are not evaluated although they describe pods: those of kinds that Transom does not know.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use super::document_role::{DocumentRole, has_images};
use super::input::SourceRole;
use super::manifests::Manifests;
use crate::model::nodes::node::NodeLabel;
use crate::model::nodes::os_selectors::{os_of_label, os_of_terms};
use crate::model::objects::pod::NodeSelectorTerm;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload::custom::exclusion;
use crate::model::syntax::json_types::{List, Map};
use crate::model::windows::os::Os;

/// An object that selects Windows nodes, and whose pods Transom does not know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkippedForWindows {
    /// The name of the file; `-` for standard input.
    pub source: String,
    /// The first line of the object, from 1.
    pub line: usize,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The entry of `podTemplates` that evaluates its pods, as in `example.com/GameServerSet=spec.template`; ends with
    /// `=PATH` if no field of the object holds its pods.
    pub pod_template: String,
}

/// The objects with pods that are not evaluated. Admission evaluates what their controllers create.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SkippedDocuments {
    /// How many there are of each kind.
    pub kinds: BTreeMap<String, usize>,
    /// Those that select Windows nodes.
    pub for_windows: Vec<SkippedForWindows>,
}

impl Manifests {
    /// The objects with pods that are not evaluated.
    pub fn skipped(&self) -> SkippedDocuments {
        let mut skipped = SkippedDocuments::default();
        let documents = self.documents();
        for (source, document) in documents.filter(|(source, _)| source.role != SourceRole::Facts) {
            let Ok(object_type) = &document.object_type else {
                continue;
            };
            let DocumentRole::Other(kind) = &object_type.role else {
                continue;
            };
            let group = object_type.group().unwrap_or("core");
            if kind == "AdmissionReview" || exclusion(group, kind).is_some() {
                continue;
            }
            let Some(PodSigns { path, is_windows }) = PodSigns::of(document.content.json()) else {
                continue;
            };
            let is_other = Kind::ALL.iter().any(|known| known.as_str() == kind);
            let of_group = if is_other {
                format!(".{group}")
            } else {
                String::new()
            };
            *skipped.kinds.entry(format!("{kind}{of_group}")).or_default() += 1;
            // A group of Kubernetes has no dot: its objects with templates are parts of others, such as ControllerRevisions.
            if is_windows && group.contains('.') {
                skipped.for_windows.push(SkippedForWindows {
                    source: source.name.clone(),
                    line: document.content.start().line,
                    kind: kind.clone(),
                    name: name_of(document.content.json()),
                    pod_template: format!("{group}/{kind}={}", path.as_deref().unwrap_or("PATH")),
                });
            }
        }
        skipped
    }
}

fn name_of(json: &str) -> String {
    crate::model::syntax::json::at(json, &["metadata", "name"])
        .and_then(|name| serde_json::from_str(name).ok())
        .unwrap_or_default()
}

/// What an object of an unknown kind shows of its pods.
struct PodSigns {
    /// The path of the only pod template or pod spec, if no list leads to it.
    path: Option<String>,
    /// Whether it selects Windows nodes somewhere.
    is_windows: bool,
}

impl PodSigns {
    /// `None` if the object shows no pods.
    fn of(json: &str) -> Option<PodSigns> {
        let has = |field: &str| json.contains(field);
        if !has("\"containers\"") && !has("\"nodeSelector\"") && !has("\"nodeSelectorTerms\"") {
            return None;
        }
        let object: Value = serde_json::from_str(json).ok()?;
        let mut found = FoundSigns::default();
        found.visit(&object, &mut Some(Vec::new()));
        let is_windows = found.is_windows;
        if !found.has_containers && !is_windows {
            return None;
        }
        let path = match <[Option<String>; 1]>::try_from(found.pods) {
            Ok([path]) => path,
            Err(_) => None,
        };
        Some(PodSigns { path, is_windows })
    }
}

#[derive(Default)]
struct FoundSigns {
    has_containers: bool,
    is_windows: bool,
    /// The path of each pod; `None` if a list leads to it.
    pods: Vec<Option<String>>,
}

impl FoundSigns {
    /// Visits a value; `path` is `None` below a list.
    fn visit<'v>(&mut self, value: &'v Value, path: &mut Option<Vec<&'v str>>) {
        match value {
            Value::Array(items) => {
                let mut in_list = None;
                for item in items {
                    self.visit(item, &mut in_list);
                }
            }
            Value::Object(fields) => {
                if fields.get("containers").is_some_and(has_images) {
                    self.has_containers = true;
                    self.pods.push(path.as_deref().and_then(pod_template_path));
                }
                self.is_windows |= fields.get("nodeSelector").is_some_and(selects_windows)
                    || fields.get("nodeSelectorTerms").is_some_and(are_for_windows);
                for (field, value) in fields {
                    if let Some(path) = path {
                        path.push(field);
                    }
                    self.visit(value, path);
                    if let Some(path) = path {
                        path.pop();
                    }
                }
            }
            _ => {}
        }
    }
}

/// The path of the pod template of a pod spec at this path, as an entry of `podTemplates` has it.
fn pod_template_path(pod_spec: &[&str]) -> Option<String> {
    let template = match pod_spec {
        [template @ .., "spec"] if !template.is_empty() => template,
        _ => pod_spec,
    };
    let is_rooted = matches!(template.first(), Some(&("spec" | "template")));
    is_rooted.then(|| template.join("."))
}

/// Whether a node selector selects Windows nodes, by the labels of Kubernetes and of platforms.
fn selects_windows(selector: &Value) -> bool {
    let labels = NodeLabel::well_known();
    let is_windows = |(key, value): (&String, &Value)| {
        let value = value.as_str().unwrap_or_default();
        os_of_label(key, value, &labels) == Some(Os::Windows)
    };
    selector
        .as_object()
        .is_some_and(|selector| selector.iter().any(is_windows))
}

/// Whether each of these terms of a node affinity selects Windows nodes.
fn are_for_windows(terms: &Value) -> bool {
    let terms = List::<NodeSelectorTerm<'static>>::deserialize(terms.clone());
    let labels = NodeLabel::well_known();
    let os = terms
        .ok()
        .and_then(|terms| os_of_terms(&terms, &Map::default(), &labels));
    os.is_some_and(|(os, ..)| os == Os::Windows)
}
