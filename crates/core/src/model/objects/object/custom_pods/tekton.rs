//! The pods of Tekton's Tasks and Pipelines, and of their runs.

use std::iter;

use serde_json::Value;

use super::pod_draft::{Located, PodDraft, bounded};
use super::{MOST_CONTAINERS, is_empty, without_parameters};
use crate::model::objects::workload::custom::PodLayout;

/// What a pod template of a run sets.
const OF_POD_TEMPLATE: [&str; 8] = [
    "nodeSelector",
    "affinity",
    "tolerations",
    "securityContext",
    "runtimeClassName",
    "hostNetwork",
    "dnsPolicy",
    "dnsConfig",
];

/// The fields of a step that `stepTemplate` sets for steps without them.
const OF_STEP_TEMPLATE: [&str; 5] = ["image", "command", "securityContext", "workingDir", "resources"];

/// The pods of an object with this layout; none for the layouts of others.
pub(super) fn pods(mut object: Value, layout: PodLayout) -> Vec<PodDraft> {
    without_parameters(&mut object, "$(");
    let object = Located::root(&object);
    let run = object.at(&["spec"]);
    let task = match layout {
        PodLayout::Task(path) => task(&object.at(path), &[]),
        PodLayout::TaskRun => task(&run.at(&["taskSpec"]), &[run.at(&["podTemplate"])]),
        PodLayout::Pipeline(path) => return pipeline(&object.at(path), None),
        PodLayout::PipelineRun => return pipeline(&run.at(&["pipelineSpec"]), Some(&run)),
        PodLayout::Template(_) | PodLayout::Configured(_) | PodLayout::Workflow(_) => None,
    };
    task.into_iter().collect()
}

/// The pods of a Pipeline: one for each task with a Task of its own. In a run, each has the pod templates of the run, which
/// are a pod of their own if there is no such task.
fn pipeline(pipeline: &Located<'_>, run: Option<&Located<'_>>) -> Vec<PodDraft> {
    let of_run = run.map(|run| run.at(&["taskRunTemplate", "podTemplate"]));
    let tasks = ["tasks", "finally"]
        .iter()
        .flat_map(|list| pipeline.items(&[list]));
    let drafts = tasks.filter_map(|of_pipeline| {
        let spec = of_pipeline.get(&["taskSpec"])?;
        let name = of_pipeline.value.get("name");
        let mut of_tasks = run.into_iter().flat_map(|run| run.items(&["taskRunSpecs"]));
        let of_task = of_tasks.find(|it| it.value.get("pipelineTaskName") == name);
        let of_task = of_task.map(|it| it.at(&["podTemplate"]));
        let pod_templates: Vec<Located<'_>> = of_task.into_iter().chain(of_run.clone()).collect();
        task(&spec, &pod_templates)
    });
    let mut pods = bounded(drafts);
    if pods.is_empty()
        && let Some(of_run) = of_run
    {
        // A Pipeline has no such field: the pod has no containers, only what the run says of it.
        pods.extend(task(&pipeline.at(&["taskSpec"]), &[of_run]));
    }
    pods
}

/// The pod of a Task, with the pod templates of its run, of which the first has precedence.
fn task(task: &Located<'_>, pod_templates: &[Located<'_>]) -> Option<PodDraft> {
    if is_empty(task.value) && pod_templates.iter().all(|it| is_empty(it.value)) {
        return None;
    }
    let base = pod_templates.first().unwrap_or(task).path.clone();
    let mut draft = PodDraft::new(base, task.path.clone().field("metadata"));
    let defaults = task.at(&["stepTemplate"]);
    for step in task.items(&["steps"]).take(MOST_CONTAINERS) {
        append_step(&mut draft, &step, &defaults);
    }
    draft.append_all("containers", task, &["sidecars"]);
    for from in iter::once(task).chain(pod_templates) {
        draft.append_all("volumes", from, &["volumes"]);
    }
    for name in OF_POD_TEMPLATE {
        draft.take(name, pod_templates);
    }
    Some(draft)
}

/// Appends the container of a step.
fn append_step(draft: &mut PodDraft, step: &Located<'_>, defaults: &Located<'_>) {
    let mut container = step.value.clone();
    let mut elsewhere = Vec::new();
    for name in OF_STEP_TEMPLATE {
        // The name of the field since v1.
        let written = if name == "resources" {
            "computeResources"
        } else {
            name
        };
        let own = [written, name].iter().find_map(|name| step.get(&[name]));
        let found = own.or_else(|| defaults.get(&[written]));
        if let (Some(found), Some(fields)) = (&found, container.as_object_mut()) {
            fields.insert(name.to_owned(), found.value.clone());
        }
        let path = found.map_or_else(|| step.path.clone().field(written), |found| found.path);
        if path != step.path.clone().field(name) {
            elsewhere.push((name, path));
        }
    }
    let at = draft.append("containers", container, step.path.clone());
    for (name, path) in elsewhere {
        draft.paths.add(at.clone().field(name), path);
    }
}
