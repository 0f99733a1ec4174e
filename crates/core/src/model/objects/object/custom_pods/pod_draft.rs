//! Composes a pod spec from parts of an object, and records the path of each part.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{CustomPod, MOST_CONTAINERS, MOST_PODS, MOST_VALUES, TEMPLATE, is_empty, spell, typed};
use crate::model::objects::object::{ObjectError, Template};
use crate::model::objects::resources::Meta;
use crate::model::syntax::path::Path;

/// A value of an object, with its path.
#[derive(Clone)]
pub(super) struct Located<'v> {
    pub(super) value: &'v Value,
    pub(super) path: Path,
}

impl<'v> Located<'v> {
    /// The whole object.
    pub(super) fn root(object: &'v Value) -> Self {
        Located {
            value: object,
            path: Path::ROOT,
        }
    }

    /// The value below these fields; null if it is missing.
    pub(super) fn at(&self, fields: &[&'static str]) -> Self {
        let value = fields
            .iter()
            .try_fold(self.value, |value, field| value.get(field));
        Located {
            value: value.unwrap_or(&Value::Null),
            path: self.path.clone().fields(fields),
        }
    }

    /// The value below these fields, unless it is missing or empty: Go omits empty fields.
    pub(super) fn get(&self, fields: &[&'static str]) -> Option<Self> {
        Some(self.at(fields)).filter(|found| !is_empty(found.value))
    }

    /// The items of the list below these fields, with their names.
    pub(super) fn items(&self, fields: &[&'static str]) -> impl Iterator<Item = Self> + use<'v> {
        let Located { value, path } = self.at(fields);
        let items = value.as_array().into_iter().flatten().enumerate();
        items.map(move |(index, value)| {
            let name = ["name", "pipelineTaskName"]
                .iter()
                .find_map(|name| value.get(name)?.as_str());
            let path = path.clone().named_item(index, name.unwrap_or_default());
            Located { value, path }
        })
    }
}

/// Maps paths to the fields from which their values were copied, with everything below them. The longest matching path
/// applies, and of equal paths the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct PathMap(Vec<(Path, Path)>);

impl PathMap {
    pub(super) fn add(&mut self, from: Path, to: Path) {
        self.0.push((from, to));
    }

    /// The path elsewhere; `None` if it is not below a known one.
    pub(super) fn map(&self, path: &Path) -> Option<Path> {
        let known = self
            .0
            .iter()
            .filter_map(|(from, to)| Some((to, path.below(from)?)));
        let (to, below) = known.rev().min_by_key(|(_, below)| below.len())?;
        Some(to.clone().join(below))
    }

    /// The same for a path as serde writes it: `spec.template.spec.containers[0].name`.
    fn map_text(&self, path: &str) -> Option<String> {
        let known = self.0.iter().filter_map(|(from, to)| {
            let below = path.strip_prefix(from.to_string().as_str())?;
            (below.is_empty() || below.starts_with(['.', '['])).then_some((to, below))
        });
        let (to, below) = known.rev().min_by_key(|(_, below)| below.len())?;
        Some(format!("{to}{below}"))
    }
}

/// A pod while it is composed.
pub(super) struct PodDraft {
    pub(super) spec: Map<String, Value>,
    pub(super) metadata: Value,
    /// From the paths of rules to those of the parts.
    pub(super) paths: PathMap,
    /// From the paths of parts to those of their defaults.
    pub(super) defaults: PathMap,
}

impl PodDraft {
    /// An empty pod: where its author would write other fields of its spec, and of its metadata.
    pub(super) fn new(spec: Path, metadata: Path) -> Self {
        let template = Path::of(TEMPLATE);
        let mut paths = PathMap::default();
        paths.add(template.clone().field("spec"), spec);
        paths.add(template.field("metadata"), metadata);
        PodDraft {
            spec: Map::new(),
            metadata: Value::Null,
            paths,
            defaults: PathMap::default(),
        }
    }

    /// Takes a field from the first of these objects that has it.
    pub(super) fn take<'l>(&mut self, name: &'static str, from: impl IntoIterator<Item = &'l Located<'l>>) {
        if let Some(found) = from.into_iter().find_map(|from| from.get(&[name])) {
            self.spec.insert(name.to_owned(), found.value.clone());
            self.paths.add(field(name), found.path);
        }
    }

    /// Appends an item to a list. Returns its path in the pod.
    pub(super) fn append(&mut self, list: &'static str, value: Value, path: Path) -> Path {
        let items = self.spec.entry(list).or_insert_with(|| Value::Array(Vec::new()));
        let items = items.as_array_mut();
        let at = field(list).item(items.as_ref().map_or(0, |items| items.len()));
        if let Some(items) = items {
            items.push(value);
        }
        self.paths.add(at.clone(), path);
        at
    }

    /// Appends every item of a list of an object.
    pub(super) fn append_all(&mut self, list: &'static str, from: &Located<'_>, fields: &[&'static str]) {
        let most = if list == "volumes" {
            MOST_VALUES
        } else {
            MOST_CONTAINERS
        };
        for item in from.items(fields).take(most) {
            self.append(list, item.value.clone(), item.path);
        }
    }

    pub(super) fn finish(self) -> Result<CustomPod, ObjectError> {
        let PodDraft {
            spec,
            mut metadata,
            paths,
            defaults,
        } = self;
        if let Some(metadata) = metadata.as_object_mut() {
            // The view borrows it as text, and a template has none.
            metadata.remove("managedFields");
        }
        let maps = [paths, defaults];
        let text_in_object = |part: &'static str, below: &str| {
            let text = spell(&Path::of(TEMPLATE).field(part), below);
            (maps.iter()).fold(text, |text, map| map.map_text(&text).unwrap_or(text))
        };
        let meta: Option<Meta<'static>> = typed(metadata, |below| text_in_object("metadata", below))?;
        let spec = typed(Value::Object(spec), |below| text_in_object("spec", below))?;
        Ok(CustomPod {
            template: Box::new(Template {
                meta: Arc::new(meta.unwrap_or_default()),
                spec,
                has_spec: true,
                claim_templates: Vec::new(),
                replicas: None,
            }),
            paths: Arc::new(maps),
        })
    }
}

/// The path of a field of the pod spec for rules.
fn field(name: &'static str) -> Path {
    Path::of(TEMPLATE).fields(&["spec", name])
}

/// The first pods of an object, as many as the bounds allow, and at least one.
pub(super) fn bounded(drafts: impl Iterator<Item = PodDraft>) -> Vec<PodDraft> {
    let (mut pods, mut values, mut containers) = (Vec::new(), 0, 0);
    for draft in drafts.take(MOST_PODS) {
        values += draft.spec.values().map(count_values).sum::<usize>();
        containers += ["containers", "initContainers"]
            .iter()
            .filter_map(|list| draft.spec.get(*list)?.as_array())
            .map(Vec::len)
            .sum::<usize>();
        if !pods.is_empty() && (values > MOST_VALUES || containers > MOST_CONTAINERS) {
            break;
        }
        pods.push(draft);
    }
    pods
}

fn count_values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count_values).sum(),
        Value::Object(fields) => fields.values().map(count_values).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_mapped_by_the_longest_known_path_and_the_last_of_equal_ones() {
        let mut map = PathMap::default();
        for (from, to) in [
            (field("containers"), Path::of(&["spec"]).field("sidecars")),
            (field("containers").item(0), Path::of(&["spec"]).field("script")),
            (
                field("containers").item(0),
                Path::of(&["spec"]).field("container"),
            ),
        ] {
            map.add(from, to);
        }
        for (path, expected) in [
            (
                field("containers").item(0).field("image"),
                Some("spec.container.image"),
            ),
            (field("containers").named_item(1, "log"), Some("spec.sidecars[1]")),
            (field("volumes"), None),
        ] {
            let mapped = map.map(&path).map(|path| path.to_string());
            assert_eq!(mapped.as_deref(), expected, "{path}");
            let text = map.map_text(&path.to_string());
            assert_eq!(text.as_deref(), expected, "{path}");
        }
    }
}
