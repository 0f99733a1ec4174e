//! The pods of custom resources. Each becomes a pod spec at the path of a workload's template, with the paths at which
//! its author finds the fields.
//!
//! What depends on another object, on a parameter or on a patch is left out: a finding must be about what will run.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ObjectError, Template};
use crate::model::json_types::List;
use crate::model::path::Path;
use crate::model::resources::{Meta, NamedClaimTemplate};
use crate::model::strict_json::{self, Strict};
use crate::model::workload::Kind;
use crate::model::workload::custom::PodLayout;

/// The most pods, containers and JSON values that are evaluated of one object with several pods: the API server does not
/// bound them, and fields of the object count for each pod. The pods themselves are evaluated when they are created.
const MOST_PODS: usize = 100;
const MOST_CONTAINERS: usize = 300;
const MOST_VALUES: usize = 20_000;

/// Where rules address the pod template of a custom resource.
const TEMPLATE: &[&str] = &["spec", "template"];

/// A pod that a custom resource describes.
#[derive(Clone, Debug)]
pub struct CustomPod {
    /// Its template, at [`TEMPLATE`] for rules.
    pub template: Box<Template<'static>>,
    places: Arc<Places>,
}

impl CustomPod {
    /// The path at which the author finds the field that rules address with this path.
    pub fn place(&self, path: &Path) -> Path {
        self.places.of(path)
    }
}

/// Where the fields of a pod are in the object.
#[derive(Clone, Debug)]
struct Places {
    /// The pod spec.
    spec: Path,
    /// The metadata of the pod.
    metadata: Path,
    /// Fields that are elsewhere, with their paths below the pod spec.
    fields: Vec<(Path, Path)>,
}

impl Places {
    fn of(&self, path: &Path) -> Path {
        let template = Path::of(TEMPLATE);
        if let Some(below) = path.below(&template.clone().field("metadata")) {
            return self.metadata.clone().join(below);
        }
        let Some(below) = path.below(&template.field("spec")) else {
            return path.clone();
        };
        let field = Path::ROOT.join(below);
        let nearest = self
            .fields
            .iter()
            .filter_map(|(at, place)| Some((at, place, field.below(at)?)))
            .max_by_key(|(at, ..)| at.segments().len());
        match nearest {
            Some((_, place, below)) => place.clone().join(below),
            None => self.spec.clone().join(below),
        }
    }

    /// The place of a field, given as serde writes it below the pod spec: `containers[0].name`.
    fn spell(&self, below: &str) -> String {
        let of = |(at, place): &(Path, Path)| {
            let rest = below.strip_prefix(at.to_string().as_str())?;
            let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
            is_whole.then(|| (rest.len(), format!("{place}{rest}")))
        };
        let nearest = self.fields.iter().filter_map(of).min();
        nearest.map_or_else(|| spell(&self.spec, below), |(_, place)| place)
    }
}

/// A path with fields below it as serde writes them.
fn spell(path: &Path, below: &str) -> String {
    match below {
        "." => path.to_string(),
        below if below.starts_with('[') => format!("{path}{below}"),
        below => format!("{path}.{below}"),
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
    let mut object: Value =
        strict_json::from_str(json).map_err(|error| ObjectError::of(".".to_owned(), &error))?;
    let mut shared = None;
    match layout {
        PodLayout::Workflow(path) => {
            shared = Some(SharedTemplates::taken_from(&mut object, path));
            without_parameters(&mut object, "{{");
        }
        PodLayout::Task(_) | PodLayout::TaskRun | PodLayout::Pipeline(_) | PodLayout::PipelineRun => {
            without_parameters(&mut object, "$(");
        }
        PodLayout::Template(_) | PodLayout::Configured(_) => {}
    }
    let drafts = match layout {
        PodLayout::Template(path) => template(&object, path).into_iter().collect(),
        PodLayout::Configured(path) => vec![configured(kind, &object, path)?],
        PodLayout::Workflow(path) => {
            let shared = shared.iter();
            shared
                .flat_map(|shared| workflow(&object, path, shared))
                .collect()
        }
        PodLayout::Task(path) => task(&object, Path::of(path), &[]).into_iter().collect(),
        PodLayout::TaskRun => {
            let pod_template = Path::of(&["spec", "podTemplate"]);
            task(&object, Path::of(&["spec", "taskSpec"]), &[pod_template])
                .into_iter()
                .collect()
        }
        PodLayout::Pipeline(path) => pipeline(&object, &Path::of(path), false),
        PodLayout::PipelineRun => pipeline(&object, &Path::of(&["spec", "pipelineSpec"]), true),
    };
    let pods: Result<Vec<CustomPod>, ObjectError> = drafts.into_iter().map(PodDraft::finish).collect();
    let claims = if kind == Kind::CloneSet {
        let path = Path::of(&["spec", "volumeClaimTemplates"]);
        let claims = path.get(&object).cloned().unwrap_or_default();
        let claims: List<NamedClaimTemplate<'static>> = typed(claims, |below| spell(&path, below))?;
        claims.0
    } else {
        Vec::new()
    };
    Ok((pods?, claims))
}

/// The first pods of an object, as many as the bounds allow, and at least one.
fn bounded(drafts: impl Iterator<Item = PodDraft>) -> Vec<PodDraft> {
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

/// A pod while it is composed.
struct PodDraft {
    spec: Map<String, Value>,
    metadata: Value,
    places: Places,
}

impl PodDraft {
    fn new(spec: Path, metadata: Path) -> Self {
        PodDraft {
            spec: Map::new(),
            metadata: Value::Null,
            places: Places {
                spec,
                metadata,
                fields: Vec::new(),
            },
        }
    }

    /// Takes a field from the first of these objects that has it.
    fn take(&mut self, object: &Value, name: &'static str, from: &[Path]) {
        for path in from {
            let place = path.clone().field(name);
            if let Some(value) = place.get(object).filter(|value| !is_empty(value)) {
                self.spec.insert(name.to_owned(), value.clone());
                self.places.fields.push((Path::of(&[name]), place));
                return;
            }
        }
    }

    /// Appends items to a list, with their places.
    fn append(&mut self, list: &'static str, value: Value, place: Path) -> Path {
        let items = self.spec.entry(list).or_insert_with(|| Value::Array(Vec::new()));
        let Value::Array(items) = items else {
            return Path::ROOT;
        };
        let at = Path::of(&[list]).item(items.len());
        items.push(value);
        self.places.fields.push((at.clone(), place));
        at
    }

    /// Appends every item of a list of the object.
    fn append_all(&mut self, list: &'static str, object: &Value, from: &Path) {
        let most = if list == "volumes" {
            MOST_VALUES
        } else {
            MOST_CONTAINERS
        };
        for (index, item) in items(object, from).take(most) {
            self.append(list, item.clone(), item_at(from, index, item));
        }
    }

    fn finish(self) -> Result<CustomPod, ObjectError> {
        let PodDraft {
            spec,
            mut metadata,
            places,
        } = self;
        if let Some(metadata) = metadata.as_object_mut() {
            // The view borrows it as text, and a template has none.
            metadata.remove("managedFields");
        }
        let meta: Option<Meta<'static>> = typed(metadata, |below| spell(&places.metadata, below))?;
        let spec = typed(Value::Object(spec), |below| places.spell(below))?;
        Ok(CustomPod {
            template: Box::new(Template {
                meta: Arc::new(meta.unwrap_or_default()),
                spec,
                has_spec: true,
                claim_templates: Vec::new(),
                replicas: None,
            }),
            places: Arc::new(places),
        })
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

/// The items of a list of the object, with their indexes.
fn items<'v>(object: &'v Value, path: &Path) -> impl Iterator<Item = (usize, &'v Value)> {
    let list = path.get(object).and_then(Value::as_array);
    list.into_iter().flatten().enumerate()
}

/// The path of an item of a list, with its name if it has one.
fn item_at(list: &Path, index: usize, item: &Value) -> Path {
    let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
    list.clone().named_item(index, name)
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
    let error = |reason: String| ObjectError {
        path: at.to_string(),
        reason: format!(
            "{reason}; correct the path of {kind}.{} in podTemplates",
            kind.group()
        ),
    };
    let found = at.get(object).filter(|found| !found.is_null());
    let found = found.ok_or_else(|| error("this field does not exist".to_owned()))?;
    let has_containers = |spec: &Value| spec.get("containers").is_some_and(Value::is_array);
    if has_containers(found) {
        let mut draft = PodDraft::new(at.clone(), at.clone().field("metadata"));
        draft.spec = found.as_object().cloned().unwrap_or_default();
        return Ok(draft);
    }
    match template(object, path) {
        Some(draft) if found.get("spec").is_some_and(has_containers) => Ok(draft),
        _ => Err(error(
            "this is neither a pod template nor a pod spec: it has no containers and no spec.containers"
                .to_owned(),
        )),
    }
}

/// The pods of an Argo Workflow without parameters: one for each template with containers. `shared`: its templates and their
/// defaults, with parameters.
fn workflow(object: &Value, path: &'static [&'static str], shared: &SharedTemplates) -> Vec<PodDraft> {
    let workflow = Path::of(path);
    let templates = workflow.clone().field("templates");
    let list = shared.templates.as_array().into_iter().flatten().enumerate();
    let pods = list.filter_map(|(index, template)| {
        let mut merged = MergedTemplate::of(template, &shared.defaults);
        // After the merge: a default does not replace a parameter.
        without_parameters(&mut merged.template, "{{");
        workflow_pod(object, &workflow, &item_at(&templates, index, template), &merged)
    });
    bounded(pods)
}

/// The templates of a Workflow, and their defaults.
struct SharedTemplates {
    templates: Value,
    defaults: Value,
}

impl SharedTemplates {
    /// Takes them out of an object.
    fn taken_from(object: &mut Value, path: &[&str]) -> Self {
        let spec = path.iter().try_fold(object, |value, field| value.get_mut(*field));
        let mut spec = spec.and_then(Value::as_object_mut);
        let mut take = |name| {
            spec.as_mut()
                .and_then(|spec| spec.remove(name))
                .unwrap_or_default()
        };
        SharedTemplates {
            templates: take("templates"),
            defaults: take("templateDefaults"),
        }
    }
}

/// A template as Argo's controller merges the defaults into it: a strategic merge patch of the template on the defaults, in
/// which only the type of the template remains.
///
/// Source: `workflow/controller/operator.go`, `mergedTemplateDefaultsInto`; `Template.SetType`.
struct MergedTemplate {
    template: Value,
    /// What comes from the defaults: the path in the template, and that in the defaults.
    of_defaults: Vec<(Path, Path)>,
}

impl MergedTemplate {
    fn of(template: &Value, defaults: &Value) -> Self {
        const TYPES: [&str; 10] = [
            "steps",
            "dag",
            "container",
            "script",
            "containerSet",
            "resource",
            "data",
            "suspend",
            "http",
            "plugin",
        ];
        let mut merged = MergedTemplate {
            template: template.clone(),
            of_defaults: Vec::new(),
        };
        let mut own = TYPES.into_iter().filter(|name| template.get(name).is_some());
        let own_type = own.next();
        for (name, default) in defaults.as_object().into_iter().flatten() {
            let is_other_type = TYPES.contains(&name.as_str()) && own_type.is_some_and(|own| own != name);
            if is_other_type || name == "name" || !merged.template.is_object() {
                continue;
            }
            let at = step(&Path::ROOT, name);
            let value = merged.template.get_mut(name.as_str()).map(Value::take);
            let value = merge(value, default, (&at, &at), name, &mut merged.of_defaults);
            if let Some(fields) = merged.template.as_object_mut() {
                fields.insert(name.clone(), value);
            }
        }
        merged
    }

    /// Replaces the places of fields that come from the defaults.
    fn place(&self, draft: &mut PodDraft, template: &Path, defaults: &Path) {
        let mut more = Vec::new();
        for (at, place) in &mut draft.places.fields {
            let Some(below) = place.below(template).map(|below| Path::ROOT.join(below)) else {
                continue;
            };
            for (own, default) in &self.of_defaults {
                if let Some(rest) = below.below(own) {
                    *place = defaults.clone().join(default.segments()).join(rest);
                    break;
                }
                if let Some(rest) = own.below(&below) {
                    more.push((at.clone().join(rest), defaults.clone().join(default.segments())));
                }
            }
        }
        draft.places.fields.append(&mut more);
    }
}

/// The key by which a strategic merge patch finds equal items of a list; `None` for lists that are replaced as a whole.
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "volumes" | "initContainers" | "sidecars" | "env" | "imagePullSecrets" => Some("name"),
        "tolerations" => Some("key"),
        "ports" => Some("containerPort"),
        "volumeMounts" => Some("mountPath"),
        "volumeDevices" => Some("devicePath"),
        "hostAliases" => Some("ip"),
        _ => None,
    }
}

/// The path of a field of a template, or of a key of a map in it.
fn step(path: &Path, name: &str) -> Path {
    const FIELDS: [&str; 26] = [
        "affinity",
        "allowPrivilegeEscalation",
        "capabilities",
        "container",
        "containerSet",
        "containers",
        "env",
        "image",
        "initContainers",
        "metadata",
        "nodeSelector",
        "ports",
        "privileged",
        "resources",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "script",
        "seLinuxOptions",
        "seccompProfile",
        "securityContext",
        "sidecars",
        "tolerations",
        "volumeMounts",
        "volumes",
        "windowsOptions",
    ];
    let field = FIELDS.into_iter().find(|field| *field == name);
    let path = path.clone();
    field.map_or_else(|| path.clone().key(name), |field| path.clone().field(field))
}

/// A value merged over its default. Fields that are empty are not set: Go omits them. `at`: their paths. `name`: that of the
/// field.
fn merge(
    value: Option<Value>,
    default: &Value,
    (at, of): (&Path, &Path),
    name: &str,
    of_defaults: &mut Vec<(Path, Path)>,
) -> Value {
    let Some(value) = value.filter(|value| !is_empty(value)) else {
        of_defaults.push((at.clone(), of.clone()));
        return default.clone();
    };
    match (value, default) {
        (Value::Object(mut fields), Value::Object(defaults)) => {
            for (key, default) in defaults {
                let paths = (&step(at, key), &step(of, key));
                let merged = merge(fields.remove(key), default, paths, key, of_defaults);
                fields.insert(key.clone(), merged);
            }
            Value::Object(fields)
        }
        (Value::Array(mut items), Value::Array(defaults)) => {
            let Some(merge_key) = merge_key(name) else {
                return Value::Array(items);
            };
            let written = items.len();
            for (index, default) in defaults.iter().enumerate().take(MOST_CONTAINERS) {
                let of = of.clone().item(index);
                let same = |item: &Value| item.get(merge_key) == default.get(merge_key);
                let found = items.iter().take(written).position(same);
                if let Some((found, item)) = found.and_then(|found| Some((found, items.get_mut(found)?))) {
                    let at = at.clone().item(found);
                    *item = merge(Some(item.take()), default, (&at, &of), "", of_defaults);
                } else {
                    of_defaults.push((at.clone().item(items.len()), of));
                    items.push(default.clone());
                }
            }
            Value::Array(items)
        }
        (value, _) => value,
    }
}

/// The pod of one template of a Workflow; `None` if it has none, or if a patch changes it.
fn workflow_pod(
    object: &Value,
    workflow: &Path,
    template: &Path,
    merged: &MergedTemplate,
) -> Option<PodDraft> {
    let is_set = |value: Option<&Value>| value.is_some_and(|value| !is_empty(value));
    let own = |name: &str| merged.template.get(name);
    let patch_of_workflow = workflow.clone().field("podSpecPatch");
    if is_set(own("podSpecPatch")) || is_set(patch_of_workflow.get(object)) {
        return None;
    }
    let mut draft = PodDraft::new(workflow.clone(), template.clone().field("metadata"));
    for name in ["container", "script"] {
        if let Some(container) = own(name) {
            let mut container = container.clone();
            if let Some(container) = container.as_object_mut() {
                container.insert("name".to_owned(), "main".into());
            }
            draft.append("containers", container, template.clone().field(name));
        }
    }
    // Of the template, as merged.
    let append_own = |draft: &mut PodDraft, list: &'static str, from: &'static [&'static str]| {
        let items = Path::of(from);
        let place = template.clone().fields(from);
        for (index, item) in self::items(&merged.template, &items).take(MOST_CONTAINERS) {
            draft.append(list, item.clone(), item_at(&place, index, item));
        }
    };
    append_own(&mut draft, "containers", &["containerSet", "containers"]);
    if !draft.spec.contains_key("containers") {
        return None;
    }
    append_own(&mut draft, "containers", &["sidecars"]);
    append_own(&mut draft, "initContainers", &["initContainers"]);
    for name in ["nodeSelector", "affinity", "tolerations", "securityContext"] {
        if let Some(value) = own(name).filter(|value| !is_empty(value)) {
            draft.spec.insert(name.to_owned(), value.clone());
            let place = template.clone().field(name);
            draft.places.fields.push((Path::of(&[name]), place));
        } else {
            draft.take(object, name, std::slice::from_ref(workflow));
        }
    }
    for name in ["hostNetwork", "dnsPolicy", "dnsConfig"] {
        draft.take(object, name, std::slice::from_ref(workflow));
    }
    append_own(&mut draft, "volumes", &["volumes"]);
    draft.append_all("volumes", object, &workflow.clone().field("volumes"));
    let claims = workflow.clone().field("volumeClaimTemplates");
    for (index, claim) in items(object, &claims) {
        let volume = json!({"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": ""}});
        draft.append("volumes", volume, claims.clone().item(index));
    }
    draft.metadata = own("metadata").cloned().unwrap_or_default();
    merged.place(&mut draft, template, &workflow.clone().field("templateDefaults"));
    Some(draft)
}

/// The pod of a Tekton Task, with the pod templates of its run, of which the first has precedence. `object` has no
/// parameters.
fn task(object: &Value, task: Path, pod_templates: &[Path]) -> Option<PodDraft> {
    let is_there = |path: &Path| path.get(object).is_some_and(|value| !is_empty(value));
    if !is_there(&task) && !pod_templates.iter().any(is_there) {
        return None;
    }
    let base = pod_templates.first().unwrap_or(&task).clone();
    let mut draft = PodDraft::new(base, task.clone().field("metadata"));
    let steps = task.clone().field("steps");
    let defaults = task.clone().field("stepTemplate");
    for (index, step) in items(object, &steps).take(MOST_CONTAINERS) {
        let place = item_at(&steps, index, step);
        let first_field = draft.places.fields.len();
        let mut step = step.clone();
        // The name of the field since v1.
        let resources = step.get("computeResources").cloned();
        if let (Some(resources), Some(step)) = (resources, step.as_object_mut()) {
            step.insert("resources".to_owned(), resources);
        }
        let at = draft.append("containers", step.clone(), place.clone());
        if step
            .get("resources")
            .is_none_or(|_| step.get("computeResources").is_some())
        {
            let field = (at.clone().field("resources"), place.field("computeResources"));
            draft.places.fields.push(field);
        }
        let default_fields = defaults.get(object).and_then(Value::as_object);
        for name in ["image", "command", "securityContext", "workingDir", "resources"] {
            let field = if name == "resources" {
                "computeResources"
            } else {
                name
            };
            let default = default_fields.and_then(|fields| fields.get(field));
            if let Some(default) = default.filter(|_| step.get(name).is_none_or(is_empty))
                && let Some(Value::Array(containers)) = draft.spec.get_mut("containers")
                && let Some(Value::Object(container)) = containers.last_mut()
            {
                container.insert(name.to_owned(), default.clone());
                // Only the fields of this step: a search of all would take too long for many steps.
                let mut of_step = draft.places.fields.split_off(first_field);
                let default_of = at.clone().field(name);
                of_step.retain(|(known, _)| *known != default_of);
                draft.places.fields.append(&mut of_step);
                let field = (default_of, defaults.clone().field(field));
                draft.places.fields.push(field);
            }
        }
    }
    draft.append_all("containers", object, &task.clone().field("sidecars"));
    draft.append_all("volumes", object, &task.field("volumes"));
    for path in pod_templates {
        draft.append_all("volumes", object, &path.clone().field("volumes"));
    }
    for name in [
        "nodeSelector",
        "affinity",
        "tolerations",
        "securityContext",
        "runtimeClassName",
        "hostNetwork",
        "dnsPolicy",
        "dnsConfig",
    ] {
        draft.take(object, name, pod_templates);
    }
    Some(draft)
}

/// The pods of a Tekton Pipeline: one for each task with a Task of its own. In a run, each has the pod templates of the run,
/// which are a pod of their own if there is no such task.
///
/// `object` has no parameters.
fn pipeline(object: &Value, pipeline: &Path, is_run: bool) -> Vec<PodDraft> {
    let of_run = Path::of(&["spec", "taskRunTemplate", "podTemplate"]);
    let runs = Path::of(&["spec", "taskRunSpecs"]);
    let lists = ["tasks", "finally"].map(|list| pipeline.clone().field(list));
    let tasks = lists
        .iter()
        .flat_map(|list| items(object, list).map(move |(index, item)| (list, index, item)));
    let drafts = tasks.filter_map(|(list, index, of_pipeline)| {
        let name = of_pipeline
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let place = list.clone().named_item(index, name).field("taskSpec");
        if place.get(object).is_none_or(is_empty) {
            return None;
        }
        let mut pod_templates = Vec::new();
        if is_run {
            let own = items(object, &runs)
                .find(|(_, run)| run.get("pipelineTaskName").and_then(Value::as_str) == Some(name))
                .map(|(index, _)| runs.clone().named_item(index, name).field("podTemplate"));
            pod_templates.extend(own);
            pod_templates.push(of_run.clone());
        }
        task(object, place, &pod_templates)
    });
    let mut pods = bounded(drafts);
    if is_run && pods.is_empty() {
        // A Pipeline has no such field: the pod has no containers, only what the run says of it.
        pods.extend(task(object, pipeline.clone().field("taskSpec"), &[of_run]));
    }
    pods
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(kind: Kind, object: &Value) -> Vec<CustomPod> {
        let layout = kind.custom().unwrap().layout;
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
            assert_eq!(main.place(&path).to_string(), place, "{path}");
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
