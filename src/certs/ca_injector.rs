//! The `caBundle` of the webhook configurations: read, written by server-side apply, and released.
//!
//! A field manager that applies a field of a webhook owns a part of that webhook. If the chart then removes the
//! webhook by server-side apply, Transom's part would stay; a webhook with only that part is invalid, and the API
//! server would reject the upgrade. So Transom gives up the ownership as soon as the value is stored. A value without
//! an owner stays when other managers apply; if it is removed, Transom writes it again.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};

use super::FIELD_MANAGER;
use super::bundles::WebhookBundle;

/// One of the two webhook configurations, whether or not it exists.
#[derive(Clone, Debug)]
pub(super) struct ConfigurationStore {
    api: Api<DynamicObject>,
    resource: ApiResource,
    name: String,
}

/// A webhook configuration as last observed.
#[derive(Clone, Debug)]
pub(super) struct PublishedConfiguration {
    resource_version: String,
    /// The other field owners, if Transom owns fields.
    others: Option<Vec<ManagedFieldsEntry>>,
    /// The other field managers that own a `caBundle`, otherwise the last writer.
    pub(super) writers: Vec<String>,
    pub(super) bundles: Vec<WebhookBundle>,
}

impl ConfigurationStore {
    /// The configuration of this kind and name.
    pub(super) fn new(client: &Client, resource: ApiResource, name: &str) -> Self {
        ConfigurationStore {
            api: Api::all_with(client.clone(), &resource),
            resource,
            name: name.to_owned(),
        }
    }

    /// The display name: `MutatingWebhookConfiguration transom`.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.resource.kind, self.name)
    }

    /// Writes `bundle` into every observed webhook, and into no other: webhooks that the chart has removed are
    /// released.
    ///
    /// Because of the resourceVersion the API server rejects the write if the configuration has changed or was
    /// deleted.
    pub(super) async fn publish(
        &self,
        seen: &PublishedConfiguration,
        bundle: &str,
    ) -> Result<PublishedConfiguration, kube::Error> {
        let ca_bundle = ByteString(bundle.as_bytes().to_vec());
        let webhook =
            |seen: &WebhookBundle| json!({"name": seen.name, "clientConfig": {"caBundle": ca_bundle}});
        let webhooks: Vec<_> = seen.bundles.iter().map(webhook).collect();
        let wanted = Patch::Apply(json!({
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": self.name, "resourceVersion": seen.resource_version},
            "webhooks": webhooks,
        }));
        // Another owner of the field must not keep an untrusted value.
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = self.api.patch(&self.name, &params, &wanted).await?;
        Ok(PublishedConfiguration::read(&written))
    }

    /// Gives up Transom's ownership of the entries, so that the chart can remove them; the values stay.
    ///
    /// For the resourceVersion see [`ConfigurationStore::publish`]. If nothing is owned, nothing is written.
    pub(super) async fn release(
        &self,
        seen: &PublishedConfiguration,
    ) -> Result<PublishedConfiguration, kube::Error> {
        let Some(others) = &seen.others else {
            return Ok(seen.clone());
        };
        let wanted = Patch::Merge(json!({
            "metadata": {"resourceVersion": seen.resource_version, "managedFields": others},
        }));
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let written = self.api.patch(&self.name, &params, &wanted).await?;
        Ok(PublishedConfiguration::read(&written))
    }
}

impl PublishedConfiguration {
    /// Whether a webhook has another bundle.
    pub(super) fn differs(&self, bundle: &str) -> bool {
        !self.bundles.iter().all(|webhook| webhook.is(bundle))
    }

    /// Whether Transom owns a part of it that can be released.
    pub(super) fn is_held(&self) -> bool {
        self.others.is_some()
    }

    /// Reads a configuration; webhooks that cannot be read are skipped.
    pub(super) fn read(object: &DynamicObject) -> Self {
        let webhooks = object.data["webhooks"].as_array();
        let webhooks = webhooks.map(Vec::as_slice).unwrap_or_default();
        let bundle = |webhook: &Value| {
            let bundle = ByteString::deserialize(&webhook["clientConfig"]["caBundle"]);
            Some(WebhookBundle {
                name: webhook["name"].as_str()?.to_owned(),
                bundle: bundle.ok().map(|bundle| bundle.0),
            })
        };
        PublishedConfiguration {
            resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
            others: others(object),
            writers: writers(object),
            bundles: webhooks.iter().filter_map(bundle).collect(),
        }
    }
}

fn writers(object: &DynamicObject) -> Vec<String> {
    let owners = object.metadata.managed_fields.iter().flatten();
    let others = owners.filter(|owner| owner.manager.as_deref() != Some(FIELD_MANAGER));
    let name = |owner: &ManagedFieldsEntry| owner.manager.clone();
    let owns = |owner: &&ManagedFieldsEntry| {
        let fields = owner.fields_v1.as_ref().map(|fields| &fields.0["f:webhooks"]);
        let webhooks = fields.and_then(Value::as_object).into_iter().flatten();
        webhooks
            .filter_map(|(_, webhook)| webhook["f:clientConfig"].as_object())
            .any(|config| config.contains_key("f:caBundle"))
    };
    let mut writers: Vec<String> = others.clone().filter(owns).filter_map(name).collect();
    if writers.is_empty() {
        let last = others.max_by(|a, b| {
            a.time
                .as_ref()
                .map(|time| time.0)
                .cmp(&b.time.as_ref().map(|time| time.0))
        });
        writers.extend(last.and_then(name));
    }
    writers.sort();
    writers.dedup();
    writers
}

/// Every owner except Transom, if Transom is one.
///
/// If Transom is the only owner, it stays one: the API server treats an empty list as a missing one, and at the next
/// apply would invent an owner of everything, so that no manager could remove webhooks any longer.
fn others(object: &DynamicObject) -> Option<Vec<ManagedFieldsEntry>> {
    let owners = object.metadata.managed_fields.as_ref()?;
    let is_other = |owner: &&ManagedFieldsEntry| owner.manager.as_deref() != Some(FIELD_MANAGER);
    let others: Vec<_> = owners.iter().filter(is_other).cloned().collect();
    (!others.is_empty() && others.len() < owners.len()).then_some(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned_by(managers: &[&str]) -> PublishedConfiguration {
        let owners: Vec<_> = managers
            .iter()
            .map(|manager| json!({"manager": manager, "operation": "Apply", "fieldsV1": {}}))
            .collect();
        let object = json!({"metadata": {"name": "zz-transom", "managedFields": owners}, "webhooks": []});
        PublishedConfiguration::read(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn only_our_own_share_is_let_go() {
        let others = owned_by(&["helm", FIELD_MANAGER, "kubectl"]).others.unwrap();
        let names: Vec<_> = others
            .iter()
            .filter_map(|owner| owner.manager.as_deref())
            .collect();
        assert_eq!(names, ["helm", "kubectl"]);
    }

    #[test]
    fn where_we_own_nothing_or_all_there_is_nothing_to_let_go() {
        assert!(!owned_by(&[]).is_held());
        assert!(!owned_by(&["helm"]).is_held());
        assert!(!owned_by(&[FIELD_MANAGER]).is_held());
    }
}
