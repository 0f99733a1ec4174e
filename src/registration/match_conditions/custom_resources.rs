//! The match condition of custom resources: where their pods are, and their containers, which may have any type.

use super::{PoolSelectors, quoted};
use crate::model::objects::workload::CUSTOM_WORKLOADS;
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::objects::workload::custom::PodLayout;

impl PoolSelectors {
    /// [`sign`](PoolSelectors::sign) for every pod spec, or part of one, of a custom resource. These are few, so the expression may be long.
    pub(super) fn custom_resources(&self, pod_templates: &[ConfiguredKind]) -> String {
        let sign = self.sign_of(&custom_meta(), &custom_containers(), CUSTOM_TEXT);
        let pods = custom_pods(pod_templates);
        format!("[\n  {pods}\n].exists(ps, ps.exists(s,\n  {sign}\n)) && {CUSTOM_CHANGED}")
    }
}

/// The metadata of a pod template, at the first of its places that the object has.
fn custom_meta() -> String {
    let mut places: Vec<&[&str]> = (CUSTOM_WORKLOADS.iter())
        .filter_map(|custom| match custom.layout {
            PodLayout::Template(path) => Some(path),
            _ => None,
        })
        .collect();
    places.sort_by_key(|path| path.len());
    places.dedup();
    let otherwise = "{}".to_owned();
    (places.iter()).fold(otherwise, |otherwise, path| {
        optional(path, ".?metadata", &otherwise)
    })
}

/// The containers of a pod spec, of a template of a Workflow, and of a Task.
///
/// Nothing validates the pods of a custom resource without a schema: a field that its controller does not know may have
/// any type. Such a field must not hide the containers in other fields, because one error would make the whole list one.
fn custom_containers() -> String {
    let typed = |field: &str, kind: &str| format!("has({field}) && type({field}) == {kind}");
    let list = |field: &str| format!("({} ? {field} : [])", typed(field, "list"));
    let one = |field: &str| format!("(has({field}) ? [{field}] : [])");
    let of_pod = ["s.initContainers", "s.containers", "s.ephemeralContainers"].map(list);
    let set = format!(
        "({} ? {} : [])",
        typed("s.containerSet", "map"),
        list("s.containerSet.containers")
    );
    let of_both = [list("s.sidecars"), set]
        .into_iter()
        .chain(["s.container", "s.script", "s.stepTemplate"].map(one));
    // The steps of a Workflow's template are lists.
    let steps = list("s.steps");
    let of_group = |condition: &str, containers: &str| {
        format!("(request.resource.group {condition}\n    ? {containers}\n    : [])")
    };
    let plus = "\n    + ";
    [
        of_pod.join(plus),
        of_group(
            "in ['argoproj.io', 'tekton.dev']",
            &of_both.collect::<Vec<_>>().join(plus),
        ),
        of_group("== 'tekton.dev'", &steps),
    ]
    .join(plus)
}

/// [`super::TEXT`] of containers that may have any type.
const CUSTOM_TEXT: &str = "\
type(c) != map ? ''
      : has(c.securityContext) && type(c.securityContext) == map && has(c.securityContext.windowsOptions) ? OPTIONS
      : has(c.image) && type(c.image) == string ? c.image : ''";

/// As [`super::CHANGED`]; a custom resource may change other fields than those of its pods, which costs a call.
const CUSTOM_CHANGED: &str = "\
(request.operation != 'UPDATE' || !has(object.metadata.deletionTimestamp) && (
  object.?spec.orValue({}) != oldObject.?spec.orValue({})
  || object.?template.orValue({}) != oldObject.?template.orValue({})
))";

/// The parts of a custom resource that are a pod spec, or a part of one: the places of `model::objects::object::custom_pods`.
fn custom_pods(configured: &[ConfiguredKind]) -> String {
    let configured = configured.iter().copied().map(configured_pods);
    let custom = CUSTOM_WORKLOADS.iter().filter_map(|custom| {
        let pods = match custom.layout {
            PodLayout::Template(["spec", "template"]) | PodLayout::Configured(_) => return None,
            PodLayout::Template(path) => format!("[{}]", optional(path, ".?spec", "{}")),
            PodLayout::Workflow(path) => {
                let defaults = optional(path, ".?templateDefaults", "{}");
                let templates = optional(path, ".?templates", "[]");
                format!("[{}, {defaults}] + {templates}", optional(path, "", "{}"))
            }
            PodLayout::Task(path) => format!("[{}]", optional(path, "", "{}")),
            PodLayout::TaskRun => {
                let task = optional(&["spec", "taskSpec"], "", "{}");
                format!("[{}, {task}]", optional(&["spec", "podTemplate"], "", "{}"))
            }
            PodLayout::Pipeline(path) => pipeline_tasks(path),
            PodLayout::PipelineRun => {
                let of_run = optional(&["spec", "taskRunTemplate", "podTemplate"], "", "{}");
                let runs = optional(&["spec", "taskRunSpecs"], "", "[]");
                let tasks = pipeline_tasks(&["spec", "pipelineSpec"]);
                format!("[{of_run}] + {runs}.map(t, t.?podTemplate.orValue({{}})) + {tasks}")
            }
        };
        Some(format!(
            "request.resource.group == {} && request.resource.resource == {}\n    ? {pods}\n    : ",
            quoted(custom.group),
            quoted(custom.resource)
        ))
    });
    let template = optional(&["spec", "template"], ".?spec", "{}");
    let [custom, configured]: [String; 2] = [custom.collect(), configured.collect()];
    format!("{custom}{configured}[{template}]")
}

/// The pods of a configured kind, as one branch of the condition.
fn configured_pods(kind: ConfiguredKind) -> String {
    let path = optional_fields(kind.path());
    format!(
        "request.resource.group == {} && request.resource.resource == {}\n    \
         ? [object{path}.orValue({{}}), object{path}.?spec.orValue({{}})]\n    : ",
        quoted(kind.group()),
        quoted(kind.resource())
    )
}

/// A field of the object, or what stands for it if it is absent.
fn optional(path: &[&str], below: &str, otherwise: &str) -> String {
    let path = optional_fields(path);
    format!("object{path}{below}.orValue({otherwise})")
}

/// Fields that may be absent, as in `.?spec.?template`.
fn optional_fields(path: &[&str]) -> String {
    path.iter().flat_map(|field| [".?", *field]).collect()
}

/// The Tasks in a Pipeline.
fn pipeline_tasks(pipeline: &[&str]) -> String {
    let tasks = optional(pipeline, ".?tasks", "[]");
    let last = optional(pipeline, ".?finally", "[]");
    format!("({tasks} + {last}).map(t, t.?taskSpec.orValue({{}}))")
}
