//! Credentials by registry. They are matched as the kubelet does it, and never printed.

mod docker_config;
mod helper;

use std::fmt;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

use self::docker_config::CredentialStore;

/// The maximum number of credentials that are tried for one repository.
const TRIED: usize = 4;

/// Credentials by registry. Never printed. Cheap to clone.
#[derive(Clone, Default)]
pub struct Keychain {
    stores: Vec<Arc<CredentialStore>>,
}

/// Why credentials cannot be read: the source and the reason, without their content.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{origin}: {why}")]
pub struct KeychainError {
    origin: String,
    why: String,
}

/// The secret part of a credential.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Secret {
    Basic {
        user: String,
        password: String,
    },
    /// A token that is exchanged for others, by OAuth 2.0.
    Identity(String),
}

/// One credential, and where it is from.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credential {
    /// The source for messages, as in `Secret shop/pull-secret`.
    pub source: String,
    pub secret: Secret,
}

/// The credentials for one repository.
#[derive(Default, Debug)]
pub(super) struct RepositoryCredentials {
    /// In the order in which they are tried.
    pub list: Vec<Credential>,
    /// Why some credentials could not be read.
    pub trouble: Option<String>,
}

impl Keychain {
    /// A keychain without credentials, for public images.
    pub fn anonymous() -> Self {
        Keychain::default()
    }

    /// The credentials of the user: docker's `config.json` in `$DOCKER_CONFIG` or `~/.docker`, with its helpers, and
    /// podman's `auth.json`. None if there are no such files.
    ///
    /// # Errors
    /// If a file exists and cannot be read.
    pub fn of_user() -> Result<Self, KeychainError> {
        let stores = docker_config::files_of_user()
            .into_iter()
            .map(|file| CredentialStore::of_file(&file));
        let stores: Result<Vec<Option<CredentialStore>>, KeychainError> = stores.collect();
        Ok(Keychain {
            stores: stores?.into_iter().flatten().map(Arc::new).collect(),
        })
    }

    /// The credentials of a Secret of the type `kubernetes.io/dockerconfigjson`. Messages name the source, as in `Secret
    /// shop/pull-secret`. Helpers in it are ignored: a Secret does not start programs.
    ///
    /// # Errors
    /// If it is not such a file.
    pub fn of_docker_config_json(json: &[u8], source: &str) -> Result<Self, KeychainError> {
        let store = CredentialStore::parse(json, source, false)?;
        Ok(Keychain {
            stores: vec![Arc::new(store)],
        })
    }

    /// The credentials of several keychains, in this order.
    pub fn merged(keychains: impl IntoIterator<Item = Keychain>) -> Self {
        let stores = keychains.into_iter().flat_map(|keychain| keychain.stores);
        Keychain {
            stores: stores.collect(),
        }
    }

    /// The credentials for a repository of a registry as in an image reference, the most specific first. Starts helpers.
    pub(super) async fn credentials_of(&self, registry: &str, repository: &str) -> RepositoryCredentials {
        let mut found = RepositoryCredentials::default();
        for store in &self.stores {
            store.add_credentials(registry, repository, &mut found).await;
        }
        found.list.truncate(TRIED);
        found
    }

    /// Appends the credentials for a repository, secrets included; nothing if there are none. Equal credentials give
    /// equal bytes, after a restart too. Starts helpers.
    pub(super) async fn add_identity(&self, registry: &str, repository: &str, material: &mut Vec<u8>) {
        let mut add = |text: &str| {
            material.extend_from_slice(&text.len().to_be_bytes());
            material.extend_from_slice(text.as_bytes());
        };
        for credential in self.credentials_of(registry, repository).await.list {
            match &credential.secret {
                Secret::Basic { user, password } => {
                    add(user);
                    add(password);
                }
                Secret::Identity(token) => {
                    add("");
                    add(token);
                }
            }
        }
    }

    /// Whether it has this secret for another host too: then its author trusts that host with it.
    pub(super) fn has_also(&self, host: &str, secret: &Secret) -> bool {
        self.stores.iter().any(|store| store.has(host, secret))
    }
}

/// A hash that does not reveal its input: its key is random and never leaves this process.
fn keyed_hash(material: &[u8]) -> [u8; 32] {
    static KEY: LazyLock<Option<hmac::Key>> = LazyLock::new(|| {
        let random = ring::rand::SystemRandom::new();
        hmac::Key::generate(hmac::HMAC_SHA256, &random).ok()
    });
    // Without random numbers there is no TLS either, so no registry is asked.
    let sum = KEY.as_ref().map(|key| hmac::sign(key, material));
    sum.and_then(|sum| sum.as_ref().try_into().ok())
        .unwrap_or([0xff; 32])
}

impl Credential {
    /// Distinguishes it from other credentials of the same source, whose content may have changed.
    pub fn fingerprint(&self) -> [u8; 32] {
        let material = match &self.secret {
            Secret::Basic { user, password } => format!("basic {} {user}{password}", user.len()),
            Secret::Identity(token) => format!("identity {token}"),
        };
        keyed_hash(material.as_bytes())
    }

    /// The header of basic authentication; `None` for a token.
    pub fn basic(&self) -> Option<String> {
        match &self.secret {
            Secret::Basic { user, password } => {
                let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
                Some(format!("Basic {encoded}"))
            }
            Secret::Identity(_) => None,
        }
    }
}

impl fmt::Debug for Keychain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources = self.stores.iter().map(|store| &store.source);
        f.debug_list().entries(sources).finish()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests;
