//! Facts of images for reviews: the image service with the registries and credentials of the flags.

use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

use super::image_args::ImageSettings;
use super::image_credentials::{ClusterCredentials, PullSecret};
use crate::admission::{PodImages, ReviewImages};
use crate::process::metrics::Metrics;
use crate::process::tasks::Tasks;
use crate::registry::service::{
    Access, CredentialSource, ImageRequest, ImageService, KnownImages, NoCredentials, ServiceLimits,
    UnreachableRegistry,
};
use crate::registry::{RegistryClient, RegistryConfig};

/// The maximum number of imagePullSecrets of a pod that are read.
const PULL_SECRETS: usize = 8;

/// The image service, and the namespaces whose pull secrets it may use.
#[derive(Clone)]
pub struct ImageLookups {
    service: ImageService,
    pull_secrets_of: Arc<[String]>,
}

impl ImageLookups {
    /// Starts the look-ups of a server without a cluster: registries are asked anonymously.
    ///
    /// # Errors
    /// The settings of TLS are not usable.
    pub fn start(settings: &ImageSettings, metrics: &Metrics, tasks: &mut Tasks) -> anyhow::Result<Self> {
        if settings.pull_secret.is_some() || !settings.pull_secrets_of.is_empty() {
            anyhow::bail!(
                "--image-pull-secret and --image-pull-secrets-of name Secrets of a cluster; remove them, or serve without --standalone"
            );
        }
        ImageLookups::with(settings, NoCredentials, metrics, tasks)
    }

    /// Starts the look-ups of a server in a cluster: with its Secrets.
    ///
    /// # Errors
    /// The settings of TLS are not usable.
    pub fn start_in(
        client: &Client,
        namespace: &str,
        settings: &ImageSettings,
        metrics: &Metrics,
        tasks: &mut Tasks,
    ) -> anyhow::Result<Self> {
        let pull_secret = settings.pull_secret.clone().map(|name| PullSecret {
            namespace: namespace.to_owned(),
            name,
        });
        let credentials = Arc::new(ClusterCredentials::new(client.clone(), pull_secret));
        let lookups = ImageLookups::with(settings, Arc::clone(&credentials), metrics, tasks)?;
        let service = lookups.service.clone();
        tasks.spawn("image pull secret", async move {
            credentials.follow(|| service.credentials_changed()).await;
        });
        Ok(lookups)
    }

    fn with(
        settings: &ImageSettings,
        credentials: impl CredentialSource,
        metrics: &Metrics,
        tasks: &mut Tasks,
    ) -> anyhow::Result<Self> {
        let ImageSettings {
            registries,
            pull_secret: _,
            pull_secrets_of,
            ca_files,
            plain_http,
        } = settings;
        let config = RegistryConfig {
            allowed: Some(registries.clone()),
            plain_http: plain_http.clone(),
            ca_files: ca_files.clone(),
            ..RegistryConfig::default()
        };
        let client = RegistryClient::new(config)?;
        let limits = ServiceLimits::default();
        let service = ImageService::new(client, registries.clone(), credentials, limits, metrics);
        tasks.spawn("look-ups of images", service.clone().run());
        Ok(ImageLookups {
            service,
            pull_secrets_of: pull_secrets_of.as_slice().into(),
        })
    }

    /// What is known now of the images of a review; the rest is queued. Never waits.
    pub fn known(&self, images: &ReviewImages) -> KnownImages {
        let mut request = self.request(&images.pod);
        let mut known = self.service.known(&request);
        request.references = &images.previous;
        for (reference, facts) in self.service.recalled(&request) {
            known.images.entry(reference).or_insert(facts);
        }
        known
    }

    /// A review denied an object with what is known of its images; see [`ImageService::doubt`].
    pub fn doubt(&self, images: &ReviewImages) {
        self.service.doubt(&self.request(&images.pod));
    }

    /// Queues the look-ups for a stored workload. Returns whether all its images are known or queued.
    pub fn prepare(&self, images: &PodImages) -> bool {
        self.service.prepare(&self.request(images))
    }

    fn request<'r>(&self, images: &'r PodImages) -> ImageRequest<'r> {
        ImageRequest {
            references: &images.references,
            namespace: &images.namespace,
            access: self.access(&images.namespace, &images.pull_secrets),
        }
    }

    /// Records facts as if they had been looked up now.
    #[cfg(test)]
    pub fn learn(&self, reference: &str, facts: crate::model::image_facts::ImageFacts) {
        self.service.learn(reference, facts);
    }

    /// The listed registries that cannot be reached.
    pub fn unreachable(&self) -> watch::Receiver<Vec<UnreachableRegistry>> {
        self.service.unreachable()
    }

    /// Changes when a registry answers again.
    pub fn recoveries(&self) -> watch::Receiver<u64> {
        self.service.recoveries()
    }

    /// The API server copies the imagePullSecrets of a ServiceAccount into its pods, so those of the pod are all.
    fn access(&self, namespace: &str, pull_secrets: &[String]) -> Access {
        let is_allowed = self.pull_secrets_of.iter().any(|allowed| allowed == namespace);
        let secrets: Vec<String> = (pull_secrets.iter())
            .filter(|name| is_allowed && !name.is_empty())
            .take(PULL_SECRETS)
            .cloned()
            .collect();
        if secrets.is_empty() {
            return Access::Shared;
        }
        Access::Own {
            namespace: namespace.into(),
            secrets: secrets.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::registry_patterns::RegistryPatterns;

    fn settings(pull_secrets_of: &[&str]) -> ImageSettings {
        ImageSettings {
            registries: RegistryPatterns::parse(["registry.corp"]).unwrap(),
            pull_secret: None,
            pull_secrets_of: pull_secrets_of.iter().map(|&name| name.to_owned()).collect(),
            ca_files: Vec::new(),
            plain_http: Vec::new(),
        }
    }

    #[tokio::test]
    async fn pull_secrets_of_pods_are_used_only_in_namespaces_that_allow_it() {
        let metrics = Metrics::new("0.0.0", None);
        let lookups = ImageLookups::with(
            &settings(&["shop"]),
            NoCredentials,
            &metrics,
            &mut Tasks::default(),
        )
        .unwrap();
        let secrets = ["pull".to_owned(), String::new()];
        let own = Access::Own {
            namespace: "shop".into(),
            secrets: vec!["pull".to_owned()].into(),
        };
        assert_eq!(lookups.access("shop", &secrets), own);
        assert_eq!(lookups.access("shop", &[]), Access::Shared);
        assert_eq!(lookups.access("billing", &secrets), Access::Shared);
        let many: Vec<String> = (0..100).map(|number| format!("pull-{number}")).collect();
        let Access::Own { secrets, .. } = lookups.access("shop", &many) else {
            panic!("shop allows it");
        };
        assert_eq!(secrets.len(), PULL_SECRETS);
    }

    #[tokio::test]
    async fn secrets_need_a_cluster() {
        let metrics = Metrics::new("0.0.0", None);
        let refused = ImageLookups::start(&settings(&["shop"]), &metrics, &mut Tasks::default());
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains("or serve without --standalone"), "{refused}");
    }
}
