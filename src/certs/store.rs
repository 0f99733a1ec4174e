//! Reads, creates and updates the Secret; each update requires the version that was observed.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::issue::SecretChanges;
use super::secret::SecretState;
use super::{CertificateConfig, FIELD_MANAGER};
use crate::cluster::node::{MANAGED_BY, OWNED_LABEL};

/// The Secret as last observed.
#[derive(Clone, Debug)]
pub(super) struct StoredSecret {
    resource_version: String,
    data: BTreeMap<String, ByteString>,
    pub(super) state: SecretState,
}

/// Equal if the data is equal, regardless of the resourceVersion.
impl PartialEq for StoredSecret {
    fn eq(&self, other: &Self) -> bool {
        self.data == other.data
    }
}

impl StoredSecret {
    pub(super) fn read(secret: Secret) -> Self {
        let data = secret.data.unwrap_or_default();
        StoredSecret {
            resource_version: secret.metadata.resource_version.unwrap_or_default(),
            state: SecretState::read(&data),
            data,
        }
    }
}

/// The Secret, whether or not it exists.
#[derive(Clone)]
pub(super) struct SecretStore {
    pub(super) api: Api<Secret>,
    pub(super) name: String,
    namespace: String,
}

impl SecretStore {
    pub(super) fn new(client: Client, config: &CertificateConfig) -> Self {
        SecretStore {
            api: Api::namespaced(client, &config.namespace),
            name: config.secret.clone(),
            namespace: config.namespace.clone(),
        }
    }

    /// The display name: `Secret transom/transom-tls`.
    pub(super) fn title(&self) -> String {
        format!("Secret {}/{}", self.namespace, self.name)
    }

    pub(super) async fn read(&self) -> Result<Option<StoredSecret>, kube::Error> {
        Ok(self.api.get_opt(&self.name).await?.map(StoredSecret::read))
    }

    /// Applies the changes to the observed Secret, or creates it if there is none; the API server rejects the write
    /// if another client changed it first. Other keys of the Secret stay.
    pub(super) async fn write(
        &self,
        seen: Option<&StoredSecret>,
        changes: &SecretChanges,
    ) -> Result<StoredSecret, kube::Error> {
        let bytes = |value: &String| ByteString(value.clone().into_bytes());
        let written = if let Some(seen) = seen {
            let data: BTreeMap<_, _> = changes
                .iter()
                .map(|(key, value)| (*key, value.as_ref().map(bytes)))
                .collect();
            let patch = json!({"metadata": {"resourceVersion": seen.resource_version}, "data": data});
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            self.api.patch(&self.name, &params, &Patch::Merge(patch)).await?
        } else {
            let labels = [OWNED_LABEL, MANAGED_BY].map(|(key, value)| (key.to_owned(), value.to_owned()));
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    namespace: Some(self.namespace.clone()),
                    labels: Some(labels.into()),
                    ..ObjectMeta::default()
                },
                // With this type the API server rejects a Secret without certificate or key.
                type_: Some("kubernetes.io/tls".to_owned()),
                data: Some(
                    changes
                        .iter()
                        .filter_map(|(key, value)| Some(((*key).to_owned(), bytes(value.as_ref()?))))
                        .collect(),
                ),
                ..Secret::default()
            };
            let params = PostParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PostParams::default()
            };
            self.api.create(&params, &secret).await?
        };
        Ok(StoredSecret::read(written))
    }
}
