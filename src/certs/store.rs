//! The Secret: what its keys mean, and what each action changes in them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rcgen::KeyPair;
use serde_json::json;

use super::decide::Action;
use super::x509::{Authority, Leaf};
use super::{Error, KeeperConfig, Lifetimes, issue};
use crate::cluster::node::OWNED_ANNOTATION;

/// Every CA that is to be trusted, in PEM: what is published as `caBundle`.
pub(super) const CA_CERTIFICATES: &str = "ca.crt";
/// The key of the CA that signs: the one of [`CA_CERTIFICATES`] that it belongs to.
pub(super) const CA_KEY: &str = "ca.key";
/// The key of the CA that signs next, while one is on its way.
pub(super) const NEXT_CA_KEY: &str = "next-ca.key";
/// The serving certificate.
pub(super) const CERTIFICATE: &str = "tls.crt";
/// Its key.
pub(super) const KEY: &str = "tls.key";

/// What is of use in the Secret. What is not readable counts as missing.
#[derive(Clone, Default, Debug)]
pub struct SecretState {
    pub(super) trusted: Vec<Authority>,
    pub(super) signs: Option<Arc<KeyPair>>,
    pub(super) signs_next: Option<Arc<KeyPair>>,
    pub(super) leaf: Option<Leaf>,
}

/// New values of the Secret's keys; `None` removes one, and those that are not named stay.
pub(super) type Changes = BTreeMap<&'static str, Option<String>>;

impl SecretState {
    /// Reads the `data` of the Secret.
    pub fn read(data: Option<&BTreeMap<String, ByteString>>) -> Self {
        let get = |key| {
            data.and_then(|data| data.get(key))
                .map_or(&[][..], |value| &value.0)
        };
        let key = |name| {
            let text = std::str::from_utf8(get(name)).ok()?;
            KeyPair::from_pem(text).ok().map(Arc::new)
        };
        SecretState {
            trusted: Authority::all(get(CA_CERTIFICATES)),
            signs: key(CA_KEY),
            signs_next: key(NEXT_CA_KEY),
            leaf: Leaf::from_pem(get(CERTIFICATE), get(KEY)).ok(),
        }
    }

    /// The serving certificate, where it and its key are of use.
    pub fn leaf(&self) -> Option<&Leaf> {
        self.leaf.as_ref()
    }

    /// The CA that signs, with its key.
    pub(super) fn signer(&self, now: SystemTime) -> Option<(&Authority, &KeyPair)> {
        self.owner(self.signs.as_deref(), now)
    }

    /// The CA that signs next, with its key.
    pub(super) fn next_signer(&self, now: SystemTime) -> Option<(&Authority, &KeyPair)> {
        self.owner(self.signs_next.as_deref(), now)
    }

    fn owner<'a>(
        &'a self,
        key: Option<&'a KeyPair>,
        now: SystemTime,
    ) -> Option<(&'a Authority, &'a KeyPair)> {
        let key = key?;
        let authority = self
            .trusted
            .iter()
            .find(|authority| authority.is_of(key) && authority.is_valid(now))?;
        Some((authority, key))
    }
}

/// The Secret as it was seen.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    resource_version: String,
    data: BTreeMap<String, ByteString>,
    pub(super) state: SecretState,
}

/// Equal when there is the same in them, whatever their version.
impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.data == other.data
    }
}

impl Stored {
    pub(super) fn read(secret: Secret) -> Self {
        Stored {
            resource_version: secret.metadata.resource_version.unwrap_or_default(),
            state: SecretState::read(secret.data.as_ref()),
            data: secret.data.unwrap_or_default(),
        }
    }
}

/// The Secret, whether it exists or not.
pub(super) struct SecretPlace {
    pub(super) api: Api<Secret>,
    pub(super) name: String,
    namespace: String,
}

impl SecretPlace {
    pub(super) fn new(client: Client, config: &KeeperConfig) -> Self {
        SecretPlace {
            api: Api::namespaced(client, &config.namespace),
            name: config.secret.clone(),
            namespace: config.namespace.clone(),
        }
    }

    /// The Secret for people: `Secret transom/transom-tls`.
    pub(super) fn title(&self) -> String {
        format!("Secret {}/{}", self.namespace, self.name)
    }

    pub(super) async fn read(&self) -> Result<Option<Stored>, kube::Error> {
        Ok(self.api.get_opt(&self.name).await?.map(Stored::read))
    }

    /// Makes the changes in the Secret that was seen, or creates it where none was; the API server refuses it where
    /// somebody else was faster. Whatever else stands in the Secret stays.
    pub(super) async fn write(
        &self,
        seen: Option<&Stored>,
        changes: &Changes,
    ) -> Result<Stored, kube::Error> {
        let bytes = |value: &String| ByteString(value.clone().into_bytes());
        let written = if let Some(seen) = seen {
            let data: BTreeMap<_, _> = changes
                .iter()
                .map(|(key, value)| (*key, value.as_ref().map(bytes)))
                .collect();
            let patch = json!({"metadata": {"resourceVersion": seen.resource_version}, "data": data});
            let params = PatchParams {
                field_manager: Some(super::FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            self.api.patch(&self.name, &params, &Patch::Merge(patch)).await?
        } else {
            let mark = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    namespace: Some(self.namespace.clone()),
                    labels: Some(mark("app.kubernetes.io/managed-by", "transom")),
                    annotations: Some(mark(OWNED_ANNOTATION, "secret")),
                    ..ObjectMeta::default()
                },
                // The API server then refuses a Secret that lacks the certificate or its key.
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
                field_manager: Some(super::FIELD_MANAGER.to_owned()),
                ..PostParams::default()
            };
            self.api.create(&params, &secret).await?
        };
        Ok(Stored::read(written))
    }
}

/// What is done, and what it changes in the Secret: the action, or a start over where what stands in the Secret cannot be
/// used for it. Whatever somebody puts there, even a CA that no library here can read, it must not end this process, and
/// the next one too. With it, why.
///
/// # Errors
/// When even a certificate of a new CA cannot be issued.
pub(super) fn changes_or_start_over(
    action: Action,
    secret: &SecretState,
    names: &[String],
    lifetimes: &Lifetimes,
    now: SystemTime,
) -> Result<(Action, Changes, Option<Error>), Error> {
    let error = match changes(&action, secret, names, lifetimes, now) {
        Ok(changes) => return Ok((action, changes, None)),
        Err(error) => error,
    };
    if matches!(action, Action::CreateSecret { .. } | Action::StartOver { .. }) {
        return Err(error);
    }
    let over = Action::StartOver {
        keep: secret.trusted.clone(),
    };
    let changes = changes(&over, secret, names, lifetimes, now)?;
    Ok((over, changes, Some(error)))
}

/// What an action changes in the Secret; nothing for an action that is not about the Secret.
///
/// # Errors
/// When a certificate cannot be issued.
pub(super) fn changes(
    action: &Action,
    secret: &SecretState,
    names: &[String],
    lifetimes: &Lifetimes,
    now: SystemTime,
) -> Result<Changes, Error> {
    let bundle = |authorities: &[Authority]| Some(Authority::bundle(authorities));
    let trusted = || secret.trusted.iter().cloned();
    let mut changes = Changes::new();
    let serve = |changes: &mut Changes, authority: &Authority, key: &KeyPair| -> Result<(), Error> {
        let leaf = issue::leaf(authority, key, names, lifetimes, now)?;
        // A CA that somebody brought may be constrained in ways that only a verifier knows.
        let made = Leaf::from_pem(leaf.certificate.as_bytes(), leaf.key.as_bytes()).map_err(Error::Issued)?;
        if !made.is_trusted_by(authority, names, now) {
            return Err(Error::Useless(names.join(", ")));
        }
        changes.insert(CERTIFICATE, Some(leaf.certificate));
        changes.insert(KEY, Some(leaf.key));
        Ok(())
    };
    match action {
        Action::Nothing { .. } | Action::PublishBundle => {}
        Action::CreateSecret { keep } | Action::StartOver { keep } => {
            let new = issue::authority(lifetimes, now)?;
            let key = KeyPair::from_pem(&new.key).map_err(|source| Error::Issue {
                names: "a CA".to_owned(),
                source,
            })?;
            serve(&mut changes, &new.authority, &key)?;
            let all: Vec<_> = std::iter::once(new.authority)
                .chain(keep.iter().cloned())
                .collect();
            changes.insert(CA_CERTIFICATES, bundle(&all));
            changes.insert(CA_KEY, Some(new.key));
            changes.insert(NEXT_CA_KEY, None);
        }
        Action::TrustAgain { authorities } => {
            let all: Vec<_> = trusted().chain(authorities.iter().cloned()).collect();
            changes.insert(CA_CERTIFICATES, bundle(&all));
        }
        Action::RenewLeaf => {
            if let Some((authority, key)) = secret.signer(now) {
                serve(&mut changes, authority, key)?;
            }
        }
        Action::AddNextCa => {
            let new = issue::authority(lifetimes, now)?;
            let all: Vec<_> = trusted().chain([new.authority]).collect();
            changes.insert(CA_CERTIFICATES, bundle(&all));
            changes.insert(NEXT_CA_KEY, Some(new.key));
        }
        Action::PromoteNextCa => {
            if let Some((authority, key)) = secret.next_signer(now) {
                serve(&mut changes, authority, key)?;
                changes.insert(CA_KEY, Some(key.serialize_pem()));
                changes.insert(NEXT_CA_KEY, None);
            }
        }
        Action::DropOldCas => {
            let keep = [secret.signer(now), secret.next_signer(now)];
            let keep: Vec<_> = keep
                .into_iter()
                .flatten()
                .map(|(authority, _)| authority.clone())
                .collect();
            changes.insert(CA_CERTIFICATES, bundle(&keep));
        }
    }
    Ok(changes)
}
