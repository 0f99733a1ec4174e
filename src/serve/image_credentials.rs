//! Credentials for registries from Secrets: the one of Transom, and those of pods in namespaces that allow it. Secrets
//! are only read by name.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use crate::cluster::errors::{ApiError, answered};
use crate::model::objects::pod_images::PodImages;
use crate::registry::Keychain;
use crate::registry::service::{Access, CredentialSource};

/// How often Transom's own Secret is read, and how long the Secrets of pods are kept.
const REREAD: Duration = Duration::from_secs(60);
/// The maximum number of imagePullSecrets of a pod that are read.
const PULL_SECRETS: usize = 8;
/// The maximum number of Secrets of pods that are kept.
const MOST_SECRETS: usize = 1_000;
/// The key of a Secret of type kubernetes.io/dockerconfigjson.
const KEY: &str = ".dockerconfigjson";

/// A Secret with credentials.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PullSecret {
    pub namespace: String,
    pub name: String,
}

/// Why the credentials of a Secret cannot be read.
#[derive(thiserror::Error, Debug)]
enum SecretError {
    /// The Secret does not exist.
    #[error("{0} does not exist; its credentials are not used")]
    NotFound(String),
    #[error("{0}")]
    Other(String),
}

/// Credentials from the Secrets of a cluster.
pub struct ClusterCredentials {
    client: Client,
    pull_secret: Option<PullSecret>,
    /// The namespaces whose pods' Secrets may be read.
    pull_secret_namespaces: Vec<String>,
    state: Mutex<KeychainCache>,
}

#[derive(Default)]
struct KeychainCache {
    /// Of Transom's own Secret.
    shared: Keychain,
    /// Of the Secrets of pods, with the time they were read.
    own: HashMap<PullSecret, (Instant, Keychain)>,
    /// The last problem that was logged, and when.
    logged: Option<(String, Instant)>,
}

impl ClusterCredentials {
    /// Credentials of this Secret, if any, and of pods in these namespaces.
    pub fn new(client: Client, pull_secret: Option<PullSecret>, pull_secret_namespaces: Vec<String>) -> Self {
        ClusterCredentials {
            client,
            pull_secret,
            pull_secret_namespaces,
            state: Mutex::default(),
        }
    }

    /// Reads Transom's own Secret again and again, forever.
    pub async fn follow(&self, changed: impl Fn() + Send) {
        let Some(secret) = &self.pull_secret else {
            return std::future::pending().await;
        };
        let mut last: Option<Vec<u8>> = None;
        loop {
            match self.read(secret).await {
                Ok(content) if last.as_ref() != Some(&content) => {
                    match Keychain::of_docker_config_json(&content, &source(secret)) {
                        Ok(keychain) => {
                            self.state().shared = keychain;
                            changed();
                        }
                        Err(error) => self.log(format!("{error}; the previous credentials are used")),
                    }
                    last = Some(content);
                }
                Ok(_) => (),
                Err(error) => {
                    // Whoever deletes the Secret withdraws its credentials. Any other error says nothing about them.
                    if matches!(error, SecretError::NotFound(_)) && last.take().is_some() {
                        self.state().shared = Keychain::anonymous();
                        changed();
                    }
                    self.log(error.to_string());
                }
            }
            sleep(REREAD).await;
        }
    }

    /// The content of a Secret.
    async fn read(&self, secret: &PullSecret) -> Result<Vec<u8>, SecretError> {
        let PullSecret { namespace, name } = secret;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let read = answered(api.get(name)).await.map_err(|error| match error {
            ApiError::NotFound => SecretError::NotFound(source(secret)),
            ApiError::Forbidden(why) => SecretError::Other(format!(
                "cannot read {}: {why}; grant Transom's ServiceAccount get on it",
                source(secret)
            )),
            other => SecretError::Other(format!("cannot read {}: {other}", source(secret))),
        })?;
        let content = read.data.and_then(|mut data| data.remove(KEY));
        let content = content.ok_or_else(|| {
            SecretError::Other(format!(
                "{} has no key {KEY}; it must be of type kubernetes.io/dockerconfigjson",
                source(secret)
            ))
        })?;
        Ok(content.0)
    }

    /// The credentials of a Secret of a pod; none if it cannot be read, as for the kubelet.
    async fn own(&self, secret: PullSecret) -> Keychain {
        let now = Instant::now();
        let known = self.state().own.get(&secret).cloned();
        if let Some((_, keychain)) = known.filter(|(read, _)| now.duration_since(*read) < REREAD) {
            return keychain;
        }
        let read = self.read(&secret).await;
        let keychain = read.map_err(|error| error.to_string()).and_then(|content| {
            let keychain = Keychain::of_docker_config_json(&content, &source(&secret));
            keychain.map_err(|error| error.to_string())
        });
        let keychain = keychain.unwrap_or_else(|why| {
            self.log(why);
            Keychain::anonymous()
        });
        let mut state = self.state();
        if state.own.len() >= MOST_SECRETS {
            state
                .own
                .retain(|_, (read, _)| now.duration_since(*read) < REREAD);
        }
        if state.own.len() < MOST_SECRETS {
            state.own.insert(secret, (now, keychain.clone()));
        }
        keychain
    }

    /// Logs a problem; the same one once an hour, and others once a minute.
    fn log(&self, why: String) {
        const SAME: Duration = Duration::from_secs(60 * 60);
        let now = Instant::now();
        let mut state = self.state();
        let is_quiet = state.logged.as_ref().is_some_and(|(last, at)| {
            let age = now.duration_since(*at);
            age < REREAD || (*last == why && age < SAME)
        });
        if !is_quiet {
            tracing::warn!("credentials for registries: {why}");
            state.logged = Some((why, now));
        }
    }

    fn state(&self) -> MutexGuard<'_, KeychainCache> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The secrets of a pod, if its namespace is one of those that allow it. The API server copies the imagePullSecrets of a
/// ServiceAccount into its pods, so those of the pod are all.
fn access_of(images: &PodImages, allowed: &[String]) -> Access {
    let is_allowed = allowed.contains(&images.namespace);
    let secrets: Vec<String> = (images.pull_secrets.iter())
        .filter(|name| is_allowed && !name.is_empty())
        .take(PULL_SECRETS)
        .cloned()
        .collect();
    if secrets.is_empty() {
        return Access::Shared;
    }
    Access::Own {
        namespace: images.namespace.as_str().into(),
        secrets: secrets.into(),
    }
}

impl CredentialSource for std::sync::Arc<ClusterCredentials> {
    fn access(&self, images: &PodImages) -> Access {
        access_of(images, &self.pull_secret_namespaces)
    }

    fn keychain<'s>(&'s self, access: &'s Access) -> BoxFuture<'s, Keychain> {
        Box::pin(async move {
            let mut keychains = Vec::new();
            if let Access::Own { namespace, secrets } = access {
                for name in secrets.iter() {
                    let secret = PullSecret {
                        namespace: namespace.to_string(),
                        name: name.clone(),
                    };
                    keychains.push(self.own(secret).await);
                }
            }
            keychains.push(self.state().shared.clone());
            Keychain::merged(keychains)
        })
    }
}

/// The name of a Secret in messages.
fn source(secret: &PullSecret) -> String {
    format!("Secret {}/{}", secret.namespace, secret.name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use serde_json::json;

    use super::*;
    use crate::cluster::test_client::answering;

    #[tokio::test(start_paused = true)]
    async fn the_credentials_of_a_deleted_secret_are_dropped_and_those_of_an_unreadable_one_stay() {
        let code = Arc::new(Mutex::new(200));
        let current = Arc::clone(&code);
        let client = answering(move |_, _, _| {
            let code = *current.lock().unwrap();
            if code != 200 {
                return (code, json!({"kind": "Status", "code": code, "message": "no"}));
            }
            let config =
                json!({"auths": {"registry.example": {"auth": BASE64_STANDARD.encode("user:password")}}});
            let data = json!({KEY: BASE64_STANDARD.encode(config.to_string())});
            (200, json!({"apiVersion": "v1", "kind": "Secret", "data": data}))
        });
        let secret = PullSecret {
            namespace: "own".to_owned(),
            name: "pull".to_owned(),
        };
        let credentials = Arc::new(ClusterCredentials::new(client, Some(secret), Vec::new()));
        let changes = Arc::new(AtomicUsize::new(0));
        let (followed, counted) = (Arc::clone(&credentials), Arc::clone(&changes));
        let following = tokio::spawn(async move {
            followed
                .follow(|| _ = counted.fetch_add(1, Ordering::Relaxed))
                .await;
        });
        let after = async |answer: u16| {
            *code.lock().unwrap() = answer;
            sleep(REREAD * 2).await;
            let sources = format!("{:?}", credentials.state().shared);
            (sources.contains("own/pull"), changes.load(Ordering::Relaxed))
        };
        assert_eq!(after(200).await, (true, 1));
        assert_eq!(after(403).await, (true, 1), "the Secret may still be valid");
        assert_eq!(after(404).await, (false, 2));
        assert_eq!(after(404).await, (false, 2), "announced once");
        assert_eq!(after(200).await, (true, 3));
        following.abort();
    }

    #[test]
    fn pull_secrets_of_pods_are_used_only_in_namespaces_that_allow_it() {
        let access = |namespace: &str, secrets: &[String]| {
            let images = PodImages {
                namespace: namespace.to_owned(),
                pull_secrets: secrets.to_vec(),
                ..PodImages::default()
            };
            access_of(&images, &["shop".to_owned()])
        };
        let secrets = ["pull".to_owned(), String::new()];
        let own = Access::Own {
            namespace: "shop".into(),
            secrets: vec!["pull".to_owned()].into(),
        };
        assert_eq!(access("shop", &secrets), own);
        assert_eq!(access("shop", &[]), Access::Shared);
        assert_eq!(access("billing", &secrets), Access::Shared);
        let many: Vec<String> = (0..100).map(|number| format!("pull-{number}")).collect();
        let Access::Own { secrets, .. } = access("shop", &many) else {
            panic!("shop allows it");
        };
        assert_eq!(secrets.len(), PULL_SECRETS);
    }
}
