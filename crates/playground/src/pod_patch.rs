//! The patch of the pods of a workload. Admission does not change templates, so that GitOps sees no drift: it changes each
//! pod when a controller creates it from the template.

use json_patch::Patch;
use serde_json::{Value, json};
use transom_core::check::{CheckInput, CheckSettings, Checked, Manifests};
use transom_core::engine::policy_set::PolicySet;
use transom_core::model::cluster::facts::Facts;
use transom_core::model::objects::object::ReviewStage;
use transom_core::model::objects::workload::Kind;
use transom_core::model::syntax::edit::to_json_patch;

/// The patch of a pod that is created from the template of this object; `None` if it has no template at a path that is
/// known.
pub fn pod_patch(checked: &Checked<'_>, facts: &Facts, policies: &PolicySet) -> Option<Patch> {
    if checked.kind == Kind::Pod || checked.not_reviewed.is_some() {
        return None;
    }
    let pod = pod_of(checked)?;
    let mut manifests = Manifests::new(CheckSettings {
        for_admission: true,
        ..CheckSettings::default()
    });
    manifests.add(CheckInput {
        source: String::new(),
        bytes: pod.to_string().into_bytes(),
    });
    let mut patch = None;
    let objects = manifests.objects(ReviewStage::Written);
    objects.check(facts, policies, |pod| {
        patch = Some(to_json_patch(&pod.evaluation.edits));
    });
    patch
}

/// The pod that the controller creates.
fn pod_of(checked: &Checked<'_>) -> Option<Value> {
    let object: Value = serde_json::from_str(checked.document.json()).ok()?;
    let template = checked.kind.template()?;
    let template = template
        .iter()
        .try_fold(&object, |value, field| value.get(field))?;
    let owner = match checked.kind {
        Kind::Deployment => ("apps/v1", "ReplicaSet"),
        Kind::CronJob => ("batch/v1", "Job"),
        kind => (checked.api_version, kind.as_str()),
    };
    let mut metadata = template.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let fields = metadata.as_object_mut()?;
    fields.insert("name".to_owned(), json!(checked.name));
    if !checked.namespace.is_empty() {
        fields.insert("namespace".to_owned(), json!(checked.namespace));
    }
    let (version, kind) = owner;
    let owner =
        json!([{"apiVersion": version, "kind": kind, "name": checked.name, "uid": "0", "controller": true}]);
    fields.insert("ownerReferences".to_owned(), owner);
    Some(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec")?}))
}
