//! The fields of an object that its type does not have, each with the field that was probably meant.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{ApiField, ApiTypes};
use crate::model::syntax::path::{Path, Segment};
use crate::model::syntax::suggest::nearest_within;

/// A field that its type does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownField {
    pub path: Path,
    /// The type that does not have it, as in `PodSpec`.
    pub of: &'static str,
    /// The field that was probably meant; `None` if no field of a similar name, and none of the same name nearby, exists.
    pub meant: Option<MeantField>,
    /// Whether it is written like a field of the API, so that a newer Kubernetes may have it.
    pub is_like_a_field: bool,
}

/// The field that an author probably meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeantField {
    pub path: Path,
    /// Whether it decides for which operating system, or for which nodes, the pods are.
    pub selects_nodes: bool,
}

/// How many unknown fields of one object are searched for.
const MOST: usize = 200;
/// How many characters may differ between two names of the same field.
const MOST_EDITS: usize = 2;
/// How far below a type a field of the same name is searched for.
const DEEPEST: usize = 4;

/// The fields that decide for which operating system, or for which nodes, pods are: by their type, or in any type of which
/// the name ends like this.
const SELECTS_NODES: &[(&str, &[&str])] = &[
    ("CronJobSpec", &["jobTemplate"]),
    ("JobTemplateSpec", &["spec"]),
    ("PodTemplateSpec", &["spec"]),
    (
        "PodSpec",
        &[
            "affinity",
            "containers",
            "initContainers",
            "nodeSelector",
            "os",
            "runtimeClassName",
            "tolerations",
        ],
    ),
    ("PodOS", &["name"]),
    ("Affinity", &["nodeAffinity"]),
    (
        "NodeAffinity",
        &["requiredDuringSchedulingIgnoredDuringExecution"],
    ),
    ("NodeSelector", &["nodeSelectorTerms"]),
    ("NodeSelectorTerm", &["matchExpressions", "matchFields"]),
    ("NodeSelectorRequirement", &["key", "operator", "values"]),
    ("Toleration", &["effect", "key", "operator", "value"]),
    ("Container", &["image"]),
    ("WindowsSecurityContextOptions", &["hostProcess"]),
];

/// The fields that decide it if `hostProcess` is in them.
const MAY_HAVE_HOST_PROCESS: [&str; 2] = ["securityContext", "windowsOptions"];

/// The fields of an object, in the order of its text, that its type does not have. None for an object of another kind than
/// those of the table. The text must be valid JSON.
pub fn unknown_fields(api_version: &str, kind: &str, json: &str) -> Vec<UnknownField> {
    let types = ApiTypes::get();
    let Some(&root) = types.kinds.get(&(api_version, kind)) else {
        return Vec::new();
    };
    let mut search = FieldSearch {
        types,
        steps: Vec::new(),
        parents: vec![root],
        found: Vec::new(),
    };
    let visit = FieldVisit {
        search: &mut search,
        of: root,
    };
    // The text was read before, so that it is valid.
    let _ = visit.deserialize(&mut serde_json::Deserializer::from_str(json));
    let mut found = search.found;
    if !found.is_empty() {
        let object: Value = serde_json::from_str(json).unwrap_or_default();
        for field in &mut found {
            name_items(&mut field.path, &object);
            if let Some(meant) = &mut field.meant {
                name_items(&mut meant.path, &object);
            }
        }
    }
    found
}

/// Adds the names of list items to a path.
fn name_items(path: &mut Path, object: &Value) {
    let mut named = Path::ROOT;
    for segment in path.segments() {
        let item = match segment {
            Segment::Item(index, _) => {
                let item = named.clone().item(*index);
                let name = item.get(object).and_then(|item| item.get("name")?.as_str());
                name.map(|name| (*index, name))
            }
            _ => None,
        };
        named = match item {
            Some((index, name)) => named.named_item(index, name),
            None => named.join(std::slice::from_ref(segment)),
        };
    }
    *path = named;
}

/// Walks an object together with its types.
struct FieldSearch {
    types: &'static ApiTypes,
    /// The path of the value that is visited.
    steps: Vec<Segment>,
    /// The types of the objects on this path, of the root first. An item of a list has that of its list.
    parents: Vec<usize>,
    found: Vec<UnknownField>,
}

impl FieldSearch {
    /// Records an unknown field of the object that is visited.
    fn add(&mut self, name: &str, value: &str) {
        let here = Path::ROOT.join(&self.steps);
        let of = self.parents.last().copied().unwrap_or_default();
        let is_like_a_field = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric());
        self.found.push(UnknownField {
            path: here.clone().unknown_field(name),
            of: self.types.name(of).rsplit('.').next().unwrap_or_default(),
            meant: self.meant(name, value),
            is_like_a_field,
        });
    }

    /// The field that is probably meant: one whose name differs by case or by one character; else one of this name below
    /// or above; else one whose name differs by two.
    fn meant(&self, name: &str, value: &str) -> Option<MeantField> {
        let of = *self.parents.last()?;
        let near = |most: usize| {
            let names = self.types.fields(of).iter().map(|field| field.name);
            let name = nearest_within(name, names, most.min(name.chars().count() / 3))?;
            Some((Path::ROOT.join(&self.steps).field(name), of, name))
        };
        let found = near(1)
            .or_else(|| self.below(of, name))
            .or_else(|| self.above(name));
        let (path, of, field) = found.or_else(|| near(MOST_EDITS))?;
        Some(MeantField {
            path,
            selects_nodes: self.selects_nodes(of, field, value),
        })
    }

    /// The nearest field of this name below a type, without lists.
    fn below(&self, of: usize, name: &str) -> Option<(Path, usize, &'static str)> {
        let mut queue = VecDeque::from([(Vec::new(), of)]);
        while let Some((way, of)) = queue.pop_front() {
            if let Some(found) = self.types.field(of, name).filter(|_| !way.is_empty()) {
                let path = Path::ROOT.join(&self.steps).fields(&way).field(found.name);
                return Some((path, of, found.name));
            }
            if way.len() == DEEPEST {
                continue;
            }
            let is_object = |field: &&ApiField| !field.is_list && field.name != "status";
            for field in self.types.fields(of).iter().filter(is_object) {
                if let Some(of) = field.of {
                    let way = way.iter().copied().chain([field.name]).collect();
                    queue.push_back((way, of));
                }
            }
        }
        None
    }

    /// The nearest field of this name above the object that is visited.
    fn above(&self, name: &str) -> Option<(Path, usize, &'static str)> {
        let mut steps = self.steps.as_slice();
        for of in self.parents.iter().rev().skip(1) {
            // The last field on the way, with the index of its item.
            let field = steps
                .iter()
                .rposition(|step| !matches!(step, Segment::Item(..)))?;
            steps = steps.get(..field)?;
            if let Some(found) = self.types.field(*of, name) {
                return Some((Path::ROOT.join(steps).field(found.name), *of, found.name));
            }
        }
        None
    }

    /// Whether a field decides for which operating system, or for which nodes, pods are. `value`: the JSON of its value.
    fn selects_nodes(&self, of: usize, field: &str, value: &str) -> bool {
        let name = self.types.name(of);
        let is_template = field == "template"
            && self.types.field(of, field).is_some_and(|field| {
                field
                    .of
                    .is_some_and(|of| self.types.name(of) == "PodTemplateSpec")
            });
        let is_spec = field == "spec" && self.parents.first() == Some(&of);
        let has_host_process =
            || MAY_HAVE_HOST_PROCESS.contains(&field) && value.to_lowercase().contains("\"hostprocess\"");
        is_template
            || is_spec
            || SELECTS_NODES
                .iter()
                .any(|(known, fields)| *known == name && fields.contains(&field))
            || has_host_process()
    }
}

/// Visits a value of a type.
struct FieldVisit<'s> {
    search: &'s mut FieldSearch,
    of: usize,
}

impl<'de> DeserializeSeed<'de> for FieldVisit<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Values that are neither objects nor lists.
macro_rules! ignored {
    ($($method:ident: $type:ty,)*) => {$(
        fn $method<E: serde::de::Error>(self, _: $type) -> Result<(), E> {
            Ok(())
        }
    )*};
}

impl<'de> Visitor<'de> for FieldVisit<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    ignored! {
        visit_bool: bool,
        visit_i64: i64,
        visit_u64: u64,
        visit_f64: f64,
        visit_str: &str,
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let FieldVisit { search, of } = self;
        while let Some(FieldName(name)) = map.next_key()? {
            match search.types.field(of, &name) {
                Some(ApiField {
                    name, of: Some(of), ..
                }) => {
                    search.steps.push(Segment::Field(name));
                    search.parents.push(of);
                    map.next_value_seed(FieldVisit {
                        search: &mut *search,
                        of,
                    })?;
                    search.parents.pop();
                    search.steps.pop();
                }
                None if search.found.len() < MOST => {
                    let value: &RawValue = map.next_value()?;
                    search.add(&name, value.get());
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let FieldVisit { search, of } = self;
        let mut index = 0;
        loop {
            search.steps.push(Segment::Item(index, None));
            let item = items.next_element_seed(FieldVisit {
                search: &mut *search,
                of,
            })?;
            search.steps.pop();
            if item.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }
}

/// The name of a field; borrowed unless it has escapes.
#[derive(Deserialize)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    /// The unknown fields of an object, each with what is meant; `!`: it selects nodes, `+`: a newer Kubernetes may have it.
    fn unknown(api_version: &str, kind: &str, json: &Value) -> Vec<String> {
        let found = unknown_fields(api_version, kind, &json.to_string());
        let line = |field: &UnknownField| match &field.meant {
            Some(meant) => {
                let mark = if meant.selects_nodes { "!" } else { "" };
                format!("{} -> {}{mark}", field.path.named(), meant.path.named())
            }
            None if field.is_like_a_field => format!("{} +", field.path.named()),
            None => field.path.named(),
        };
        found.iter().map(line).collect()
    }

    #[test]
    fn a_field_that_differs_by_case_or_a_character_is_meant_or_one_of_this_name_nearby() {
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "label": {}}, "spec": {
            "nodeSelectors": {"kubernetes.io/os": "windows"}, "nodeSelector": {"any.key/of.a-map": "x"},
            "securityContext": {"windowsOptions": {"runAsUsername": "a", "hostprocess": true}, "hostProcess": true},
            "tolerations": [{"key": "os", "Effect": "NoSchedule"}],
            "priorityRank": 3, "Priority Rank": 3,
            "containers": [
                {"name": "a", "image": "a", "port": [], "runAsUserName": "b", "windowsOptions": {"hostProcess": true}},
                {"name": "b", "windowsOptions": {"runAsUserName": "c"}, "tolerations": [], "env": [{"nmae": "A", "values": "b"}],
                 "resources": {"limits": {"Memory": "1Gi"}}, "requests": {"cpu": "1"}},
            ],
        }});
        assert_eq!(
            unknown("v1", "Pod", &pod),
            [
                "metadata.label -> metadata.labels",
                "spec.nodeSelectors -> spec.nodeSelector!",
                "spec.securityContext.windowsOptions.runAsUsername -> spec.securityContext.windowsOptions.runAsUserName",
                "spec.securityContext.windowsOptions.hostprocess -> spec.securityContext.windowsOptions.hostProcess!",
                "spec.securityContext.hostProcess -> spec.securityContext.windowsOptions.hostProcess!",
                "spec.tolerations[0].Effect -> spec.tolerations[0].effect!",
                "spec.priorityRank +",
                "spec.Priority Rank",
                "spec.containers[a].port -> spec.containers[a].ports",
                "spec.containers[a].runAsUserName -> spec.containers[a].securityContext.windowsOptions.runAsUserName",
                "spec.containers[a].windowsOptions -> spec.containers[a].securityContext.windowsOptions!",
                "spec.containers[b].windowsOptions -> spec.containers[b].securityContext.windowsOptions",
                "spec.containers[b].tolerations -> spec.tolerations!",
                "spec.containers[b].env[0].nmae -> spec.containers[b].env[0].name",
                "spec.containers[b].env[0].values -> spec.containers[b].env[0].value",
                "spec.containers[b].requests -> spec.containers[b].resources.requests",
            ]
        );
    }

    #[test]
    fn a_template_is_searched_from_above_and_other_kinds_are_not_read() {
        let deployment = serde_json::json!({"Spec": {}, "spec": {"nodeSelector": {}, "templates": {}, "template": {"spec": {
            "replicas": 1, "containers": [null, 1, "x", {"envs": [[{"a": 1}]]}]}}}});
        assert_eq!(
            unknown("apps/v1", "Deployment", &deployment),
            [
                "Spec -> spec!",
                "spec.nodeSelector -> spec.template.spec.nodeSelector!",
                "spec.templates -> spec.template!",
                "spec.template.spec.replicas -> spec.replicas",
                "spec.template.spec.containers[3].envs -> spec.template.spec.containers[3].env",
            ]
        );
        for (api_version, kind) in [
            ("extensions/v1beta1", "Deployment"),
            ("v1", "ConfigMap"),
            ("v1", "Deployment"),
        ] {
            assert_eq!(unknown(api_version, kind, &deployment), [""; 0]);
        }
    }

    #[test]
    fn an_object_with_any_number_of_unknown_fields_is_searched_for_the_first_ones() {
        let fields: serde_json::Map<String, Value> =
            (0..100_000).map(|n| (format!("f{n}"), Value::Null)).collect();
        assert_eq!(unknown("v1", "Pod", &Value::Object(fields)).len(), MOST);
    }

    #[test]
    fn the_table_has_the_types_and_fields_that_select_nodes() {
        let types = ApiTypes::get();
        for (name, fields) in SELECTS_NODES {
            let of = types.types.iter().position(|known| known.name == *name).unwrap();
            for field in *fields {
                assert!(types.field(of, field).is_some(), "{name} {field}");
            }
        }
        for known in &types.types {
            assert!(
                known.fields.is_sorted_by_key(|field| field.name),
                "{}",
                known.name
            );
        }
    }
}
