//! The pods of Argo Workflows.

use serde_json::{Value, json};

use super::pod_draft::{Located, PathMap, PodDraft, bounded};
use super::{MOST_CONTAINERS, is_empty, without_parameters};
use crate::model::syntax::path::Path;

/// The fields that decide the type of a template, of which it has one. Argo looks for them in this order.
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

/// The pods of a Workflow with its spec at this path: one for each template with containers.
pub(super) fn workflow(mut object: Value, path: &[&'static str]) -> Vec<PodDraft> {
    let spec = path
        .iter()
        .try_fold(&mut object, |value, field| value.get_mut(*field));
    let mut spec = spec.map(Value::take).unwrap_or_default();
    let mut take = |field| spec.get_mut(field).map(Value::take).unwrap_or_default();
    let (templates, defaults) = (take("templates"), take("templateDefaults"));
    without_parameters(&mut spec, "{{");
    let path = Path::of(path);
    let workflow = Located {
        value: &spec,
        path: path.clone(),
    };
    let templates = Located {
        value: &templates,
        path: path.clone().field("templates"),
    };
    let defaults = Located {
        value: &defaults,
        path: path.field("templateDefaults"),
    };
    let pods = templates.items(&[]).filter_map(|template| {
        let mut of_defaults = PathMap::default();
        let mut merged = merge_template(&template, &defaults, &mut of_defaults);
        // After the merge: a default does not replace a parameter.
        without_parameters(&mut merged, "{{");
        let template = Located {
            value: &merged,
            path: template.path,
        };
        let pod = template_pod(&workflow, &template)?;
        Some(PodDraft {
            defaults: of_defaults,
            ..pod
        })
    });
    bounded(pods)
}

/// The pod of one template of a Workflow; `None` if it has none, or if a patch changes it.
fn template_pod(workflow: &Located<'_>, template: &Located<'_>) -> Option<PodDraft> {
    if [template, workflow]
        .iter()
        .any(|it| it.get(&["podSpecPatch"]).is_some())
    {
        return None;
    }
    let mut draft = PodDraft::new(workflow.path.clone(), template.path.clone().field("metadata"));
    for name in ["container", "script"] {
        if let Some(container) = template.value.get(name) {
            let mut container = container.clone();
            if let Some(container) = container.as_object_mut() {
                container.insert("name".to_owned(), "main".into());
            }
            draft.append("containers", container, template.path.clone().field(name));
        }
    }
    draft.append_all("containers", template, &["containerSet", "containers"]);
    if !draft.spec.contains_key("containers") {
        return None;
    }
    draft.append_all("containers", template, &["sidecars"]);
    draft.append_all("initContainers", template, &["initContainers"]);
    for name in ["nodeSelector", "affinity", "tolerations", "securityContext"] {
        draft.take(name, [template, workflow]);
    }
    for name in ["hostNetwork", "dnsPolicy", "dnsConfig"] {
        draft.take(name, [workflow]);
    }
    for from in [template, workflow] {
        draft.append_all("volumes", from, &["volumes"]);
    }
    for claim in workflow.items(&["volumeClaimTemplates"]) {
        let name = &claim.value["metadata"]["name"];
        let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": ""}});
        draft.append("volumes", volume, claim.path);
    }
    draft.metadata = template.value.get("metadata").cloned().unwrap_or_default();
    Some(draft)
}

/// A template as Argo's controller merges the defaults into it: a strategic merge patch of the template on the defaults, in
/// which only the type of the template remains. `of_defaults`: what comes from the defaults, and where it is.
///
/// Source: `workflow/controller/operator.go`, `mergedTemplateDefaultsInto`; `Template.SetType`.
fn merge_template(template: &Located<'_>, defaults: &Located<'_>, of_defaults: &mut PathMap) -> Value {
    let mut merged = template.value.clone();
    let Some(fields) = merged.as_object_mut() else {
        return merged;
    };
    let own_type = TYPES.into_iter().find(|name| fields.contains_key(*name));
    for (name, value) in defaults.value.as_object().into_iter().flatten() {
        let is_other_type = TYPES.contains(&name.as_str()) && own_type.is_some_and(|own| own != name);
        if !is_other_type && name != "name" {
            let at = step(&template.path, name);
            let default = Located {
                value,
                path: step(&defaults.path, name),
            };
            let value = merge(fields.remove(name), at, &default, name, of_defaults);
            fields.insert(name.clone(), value);
        }
    }
    merged
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
    #[rustfmt::skip]
    const FIELDS: [&str; 26] = [
        "affinity", "allowPrivilegeEscalation", "capabilities", "container", "containerSet",
        "containers", "env", "image", "initContainers", "metadata", "nodeSelector", "ports",
        "privileged", "resources", "runAsGroup", "runAsNonRoot", "runAsUser", "script",
        "seLinuxOptions", "seccompProfile", "securityContext", "sidecars", "tolerations",
        "volumeMounts", "volumes", "windowsOptions",
    ];
    let field = FIELDS.into_iter().find(|field| *field == name);
    let path = path.clone();
    match field {
        Some(field) => path.field(field),
        None => path.key(name),
    }
}

/// A value merged over its default. Fields that are empty are not set: Go omits them. `at`: the path of the value. `name`:
/// that of the field.
fn merge(
    value: Option<Value>,
    at: Path,
    default: &Located<'_>,
    name: &str,
    of_defaults: &mut PathMap,
) -> Value {
    match (value.filter(|value| !is_empty(value)), default.value) {
        (None, value) => {
            of_defaults.add(at, default.path.clone());
            value.clone()
        }
        (Some(Value::Object(mut fields)), Value::Object(defaults)) => {
            for (key, value) in defaults {
                let default = Located {
                    value,
                    path: step(&default.path, key),
                };
                let merged = merge(fields.remove(key), step(&at, key), &default, key, of_defaults);
                fields.insert(key.clone(), merged);
            }
            Value::Object(fields)
        }
        (Some(Value::Array(mut items)), Value::Array(defaults)) => {
            if let Some(key) = merge_key(name) {
                merge_items(&mut items, &at, (defaults, &default.path), key, of_defaults);
            }
            Value::Array(items)
        }
        (Some(value), _) => value,
    }
}

/// Merges the items of a list over the defaults with the same value of `key`.
fn merge_items(
    items: &mut Vec<Value>,
    at: &Path,
    (defaults, of_list): (&[Value], &Path),
    key: &str,
    of_defaults: &mut PathMap,
) {
    let written = items.len();
    for (index, value) in defaults.iter().enumerate().take(MOST_CONTAINERS) {
        let default = Located {
            value,
            path: of_list.clone().item(index),
        };
        let mut own = items.iter_mut().take(written).enumerate();
        if let Some((found, item)) = own.find(|(_, item)| item.get(key) == value.get(key)) {
            *item = merge(
                Some(item.take()),
                at.clone().item(found),
                &default,
                "",
                of_defaults,
            );
        } else {
            of_defaults.add(at.clone().item(items.len()), default.path);
            items.push(value.clone());
        }
    }
}
