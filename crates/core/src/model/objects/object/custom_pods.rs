//! The pods of custom resources. Each becomes a pod spec at the path of a workload's template, with the paths at which
//! its author finds the fields.
//!
//! What depends on another object, on a parameter or on a patch is excluded: a finding must be about what will run.

mod argo;
mod pod_draft;
mod tekton;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use self::pod_draft::{PathMap, PodDraft};
use super::{ObjectError, Template};
use crate::model::objects::resources::NamedClaimTemplate;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload::custom::PodLayout;
use crate::model::syntax::json_types::List;
use crate::model::syntax::path::Path;
use crate::model::syntax::strict_json::{self, Strict};

/// The most pods, containers and JSON values that are evaluated of one object with several pods: the API server does not
/// bound them, and fields of the object count for each pod. The pods themselves are evaluated when they are created.
const MOST_PODS: usize = 100;
const MOST_CONTAINERS: usize = 300;
const MOST_VALUES: usize = 20_000;

/// The path at which rules address the pod template of a custom resource.
const TEMPLATE: &[&str] = &["spec", "template"];

/// A pod that a custom resource describes.
#[derive(Clone, Debug)]
pub struct CustomPod {
    /// Its template, at [`TEMPLATE`] for rules.
    pub template: Box<Template<'static>>,
    /// From the paths of rules to those of the object, one map after the other.
    paths: Arc<[PathMap; 2]>,
}

impl CustomPod {
    /// The path at which the author finds the field that rules address with this path.
    pub fn path_in_object(&self, path: &Path) -> Path {
        let maps = self.paths.iter();
        maps.fold(path.clone(), |path, map| map.map(&path).unwrap_or(path))
    }
}

/// The pods of an object, and the claims that its controller makes for each.
///
/// # Errors
/// A field has the wrong type, or the configured path leads to nothing.
pub(super) fn read(
    kind: Kind,
    layout: PodLayout,
    json: &str,
) -> Result<(Vec<CustomPod>, Vec<NamedClaimTemplate<'static>>), ObjectError> {
    let object: Value =
        strict_json::from_str(json).map_err(|error| ObjectError::of(".".to_owned(), &error))?;
    let claims = if kind == Kind::CloneSet {
        let path = Path::of(&["spec", "volumeClaimTemplates"]);
        let claims = path.get(&object).cloned().unwrap_or_default();
        let claims: List<NamedClaimTemplate<'static>> = typed(claims, |below| spell(&path, below))?;
        claims.0
    } else {
        Vec::new()
    };
    let drafts = match layout {
        PodLayout::Template(path) => template(&object, path).into_iter().collect(),
        PodLayout::Configured(path) => vec![configured(kind, &object, path)?],
        PodLayout::Workflow(path) => argo::workflow(object, path),
        _ => tekton::pods(object, layout),
    };
    let pods: Result<Vec<CustomPod>, ObjectError> = drafts.into_iter().map(PodDraft::finish).collect();
    Ok((pods?, claims))
}

/// A path with fields below it as serde writes them.
fn spell(path: &Path, below: &str) -> String {
    match below {
        "." => path.to_string(),
        below if below.starts_with('[') => format!("{path}{below}"),
        below => format!("{path}.{below}"),
    }
}

/// A value as a type, with the path of what does not fit.
fn typed<T: Deserialize<'static>>(value: Value, at: impl Fn(&str) -> String) -> Result<T, ObjectError> {
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    T::deserialize(Strict(tracked)).map_err(|error| ObjectError::of(at(&track.path().to_string()), &error))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Removes fields whose value is a parameter (`{{inputs.parameters.os}}`, `$(params.os)`): it is known only when the pod
/// is created. Lists of texts, such as arguments, stay.
fn without_parameters(value: &mut Value, mark: &str) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.as_str().is_some_and(|text| text.contains(mark)));
            for value in fields.values_mut() {
                without_parameters(value, mark);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| without_parameters(item, mark)),
        _ => {}
    }
}

/// A pod template at a path; `None` if there is none.
fn template(object: &Value, path: &'static [&'static str]) -> Option<PodDraft> {
    let path = Path::of(path);
    let template = path.get(object).filter(|template| !template.is_null())?;
    let mut draft = PodDraft::new(path.clone().field("spec"), path.field("metadata"));
    draft.metadata = template.get("metadata").cloned().unwrap_or_default();
    draft.spec = template
        .get("spec")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    Some(draft)
}

/// The pod template or the pod spec at the path of a configured kind.
fn configured(kind: Kind, object: &Value, path: &'static [&'static str]) -> Result<PodDraft, ObjectError> {
    let at = Path::of(path);
    let error = |reason: &str| ObjectError {
        path: at.to_string(),
        reason: format!(
            "{reason}; correct the path of {kind}.{} in podTemplates",
            kind.group()
        ),
    };
    let found = at.get(object).filter(|found| !found.is_null());
    let found = found.ok_or_else(|| error("this field does not exist"))?;
    let has_containers = |spec: &Value| spec.get("containers").is_some_and(Value::is_array);
    if has_containers(found) {
        let mut draft = PodDraft::new(at.clone(), at.clone().field("metadata"));
        draft.spec = found.as_object().cloned().unwrap_or_default();
        return Ok(draft);
    }
    match template(object, path) {
        Some(draft) if found.get("spec").is_some_and(has_containers) => Ok(draft),
        _ => Err(error(
            "this is neither a pod template nor a pod spec: it has no containers and no spec.containers",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods(kind: Kind, object: &Value) -> Vec<CustomPod> {
        let layout = kind.layout().unwrap();
        read(kind, layout, &object.to_string()).unwrap().0
    }

    /// 46 KB of these took gigabytes before the number of pods had a bound.
    #[test]
    fn a_workflow_with_many_templates_and_volumes_has_few_pods() {
        let spec = json!({
            "templates": vec![json!({"container": {}}); 2_000],
            "volumes": vec![json!({}); 4_000],
        });
        let pods = pods(Kind::Workflow, &json!({"spec": spec}));
        let volumes: usize = pods.iter().map(|pod| pod.template.spec.volumes.len()).sum();
        assert!(
            !pods.is_empty() && volumes <= MOST_VALUES + 4_000,
            "{} {volumes}",
            pods.len()
        );
    }

    #[test]
    fn the_defaults_of_templates_are_merged_as_argo_merges_them() {
        let object = json!({"spec": {
            "nodeSelector": {"of": "workflow"},
            "templateDefaults": {
                "nodeSelector": {"kubernetes.io/os": "windows", "disk": "hdd"},
                "tolerations": [{"key": "os", "value": "windows"}, {"key": "team", "value": "a"}],
                "container": {"image": "default", "env": [{"name": "A", "value": "1"}],
                    "securityContext": {"runAsUser": 1}},
                "sidecars": [{"name": "log", "image": "log"}],
            },
            "templates": [
                {"name": "main", "nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "team", "value": "b"}],
                    "container": {"image": "own", "env": [{"name": "B"}]}},
                {"name": "script", "script": {"image": "own"}},
                {"name": "steps", "steps": [[{"name": "a", "template": "main"}]]},
                {"name": "by-parameter", "nodeSelector": {"kubernetes.io/os": "{{inputs.parameters.os}}"},
                    "container": {"image": "own"}},
            ],
        }});
        let pods = pods(Kind::Workflow, &object);
        let [main, script, by_parameter] = pods.as_slice() else {
            panic!("the template of steps has no pod: {}", pods.len());
        };
        let spec = &main.template.spec;
        let labels = spec.node_selector.to_owned_map();
        let labels: Vec<(&str, &str)> = (labels.iter())
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(labels, [("disk", "ssd"), ("kubernetes.io/os", "windows")]);
        let tolerations = spec.tolerations.iter();
        let tolerations = tolerations.map(|it| it.value.as_deref().unwrap().to_owned());
        assert_eq!(tolerations.collect::<Vec<_>>(), ["b", "windows"]);
        let container = &spec.containers[0];
        assert_eq!(container.image.as_deref(), Some("own"));
        let env: Vec<&str> = container.env.iter().map(|variable| &*variable.name).collect();
        assert_eq!(env, ["B", "A"]);
        assert_eq!(spec.containers.len(), 2);
        let at = |fields: &[&'static str]| Path::of(TEMPLATE).field("spec").fields(fields);
        let first = at(&["containers"]).item(0);
        for (path, place) in [
            (first.clone().field("image"), "spec.templates[0].container.image"),
            (
                first.fields(&["securityContext", "runAsUser"]),
                "spec.templateDefaults.container.securityContext.runAsUser",
            ),
            (
                at(&["nodeSelector"]).key("disk"),
                "spec.templates[0].nodeSelector[disk]",
            ),
            (
                at(&["nodeSelector"]).key("kubernetes.io/os"),
                "spec.templateDefaults.nodeSelector[kubernetes.io/os]",
            ),
            (
                at(&["containers"]).item(1).field("image"),
                "spec.templateDefaults.sidecars[0].image",
            ),
        ] {
            assert_eq!(main.path_in_object(&path).to_string(), place, "{path}");
        }
        // Only the type of the template remains.
        let images = script
            .template
            .spec
            .containers
            .iter()
            .map(|it| it.image.as_deref().unwrap());
        assert_eq!(images.collect::<Vec<_>>(), ["own", "log"]);
        assert_eq!(
            by_parameter.template.spec.node_selector.get("kubernetes.io/os"),
            None
        );
    }

    #[test]
    fn pods_and_containers_are_bounded_and_what_real_objects_have_is_whole() {
        let template =
            json!({"name": "t", "container": {"image": "app", "env": [{"name": "a", "value": "b"}]}});
        let workflow = |count| json!({"spec": {"templates": vec![template.clone(); count]}});
        assert_eq!(pods(Kind::Workflow, &workflow(60)).len(), 60);
        assert_eq!(pods(Kind::Workflow, &workflow(1_000)).len(), MOST_PODS);
        let task = json!({"name": "t", "taskSpec": {"steps": [{"image": "app"}]}});
        let pipeline = |count| json!({"spec": {"tasks": vec![task.clone(); count]}});
        assert_eq!(pods(Kind::Pipeline, &pipeline(60)).len(), 60);
        assert_eq!(pods(Kind::Pipeline, &pipeline(2_000)).len(), MOST_PODS);
        let steps = json!({"spec": {"steps": vec![json!({"image": "app"}); 5_000], "stepTemplate": {"command": ["a"]}}});
        let task = &pods(Kind::Task, &steps)[0];
        assert_eq!(task.template.spec.containers.len(), MOST_CONTAINERS);
    }
}
