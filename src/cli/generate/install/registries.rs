//! What an installation that looks up images in registries has in addition, as the chart with `imageLookups.registries`.

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::model::windows::registry_patterns::RegistryPatterns;
use crate::registration::{RegistrationOptions, configuration_name, mutating, validating};

/// The name of the installation, and of its objects.
const NAME: &str = "transom";

/// Changes the objects of an installation: the environment of its Deployment, its rights and its webhook entries.
///
/// # Errors
/// If an object that must change is missing.
pub(super) fn add(
    objects: &mut [Value],
    registries: &RegistryPatterns,
    pull_secret: Option<&str>,
) -> anyhow::Result<()> {
    let patterns: Vec<String> = registries.iter().map(ToString::to_string).collect();
    let containers = "/spec/template/spec/containers/0/env";
    let environment = list(objects, "Deployment", NAME, containers)?;
    environment.push(json!({"name": "TRANSOM_IMAGE_REGISTRY", "value": patterns.join(",")}));
    environment
        .extend(pull_secret.map(|secret| json!({"name": "TRANSOM_IMAGE_PULL_SECRET", "value": secret})));
    // Workloads whose images are looked up before their first pod.
    list(objects, "ClusterRole", NAME, "/rules")?.extend([
        json!({"apiGroups": ["apps"], "resources": ["deployments", "statefulsets", "daemonsets"], "verbs": ["list", "watch"]}),
        json!({"apiGroups": ["batch"], "resources": ["jobs", "cronjobs"], "verbs": ["list", "watch"]}),
    ]);
    let of_secret = |secret| json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]});
    list(objects, "Role", NAME, "/rules")?.extend(pull_secret.map(of_secret));
    let options = RegistrationOptions {
        image_registries: registries.clone(),
        ..RegistrationOptions::default()
    };
    let name = configuration_name(NAME);
    let written = "cannot write the webhook entries";
    for (kind, configuration) in [
        (
            "MutatingWebhookConfiguration",
            serde_json::to_value(mutating(&options)).context(written)?,
        ),
        (
            "ValidatingWebhookConfiguration",
            serde_json::to_value(validating(&options)).context(written)?,
        ),
    ] {
        let entries = list(objects, kind, &name, "/webhooks")?;
        let all = configuration.get("webhooks").and_then(Value::as_array);
        for (at, entry) in all.into_iter().flatten().enumerate() {
            if !entries.iter().any(|known| known.get("name") == entry.get("name")) {
                entries.insert(at.min(entries.len()), entry.clone());
            }
        }
    }
    Ok(())
}

/// A list in an object.
fn list<'o>(
    objects: &'o mut [Value],
    kind: &str,
    name: &str,
    pointer: &str,
) -> anyhow::Result<&'o mut Vec<Value>> {
    let mut of_kind = objects.iter_mut().filter(|object| {
        let is = |pointer: &str, text: &str| object.pointer(pointer).and_then(Value::as_str) == Some(text);
        is("/kind", kind) && is("/metadata/name", name)
    });
    let found = of_kind
        .next()
        .and_then(|object| object.pointer_mut(pointer)?.as_array_mut());
    found.with_context(|| format!("the manifests of this build have no {pointer} in the {kind} {name}"))
}
