//! Facts of images for reviews: the image service with the registries and credentials of the flags.

use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

use super::image_args::ImageSettings;
use super::image_credentials::{ClusterCredentials, PullSecret};
use crate::admission::ReviewImages;
use crate::model::objects::pod_images::PodImages;
use crate::process::metrics::Metrics;
use crate::process::tasks::Tasks;
use crate::registry::service::{
    CredentialSource, ImageService, KnownImages, NoCredentials, UnreachableRegistry,
};
use crate::registry::{RegistryClient, RegistryConfig};

/// The image service, as reviews use it.
#[derive(Clone)]
pub struct ImageLookups {
    service: ImageService,
}

impl ImageLookups {
    /// Starts the look-ups of a server without a cluster: registries are asked anonymously.
    ///
    /// # Errors
    /// The settings of TLS are not usable.
    pub fn start(settings: &ImageSettings, metrics: &Metrics, tasks: &mut Tasks) -> anyhow::Result<Self> {
        if settings.pull_secret.is_some() || !settings.pull_secret_namespaces.is_empty() {
            anyhow::bail!(
                "--image-pull-secret and --image-pull-secret-namespace name Secrets of a cluster; remove them, or serve without --standalone"
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
        let pull_secret_namespaces = settings.pull_secret_namespaces.clone();
        let credentials = ClusterCredentials::new(client.clone(), pull_secret, pull_secret_namespaces);
        let credentials = Arc::new(credentials);
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
            pull_secret_namespaces: _,
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
        let service = ImageService::new(client, registries.clone(), credentials, metrics);
        tasks.spawn("look-ups of images", service.clone().run());
        Ok(ImageLookups { service })
    }

    /// The service that answers from its cache and queues look-ups.
    pub fn service(&self) -> &ImageService {
        &self.service
    }

    /// What is known now of the images of a review; the rest is queued. Never waits.
    pub fn known(&self, images: &ReviewImages) -> KnownImages {
        let mut known = self.service.known(&images.pod);
        if images.previous.is_empty() {
            return known;
        }
        let previous = PodImages {
            references: images.previous.clone(),
            ..images.pod.clone()
        };
        for (reference, facts) in self.service.recalled(&previous) {
            known.images.entry(reference).or_insert(facts);
        }
        known
    }

    /// Looks the tags of a denied object up again; see [`ImageService::refresh_tags`].
    pub fn refresh_tags(&self, images: &ReviewImages) {
        self.service.refresh_tags(&images.pod);
    }

    /// Records facts as if they had been looked up now.
    #[cfg(test)]
    pub fn learn(&self, reference: &str, facts: crate::model::windows::image_facts::ImageFacts) {
        self.service.learn(reference, facts);
    }

    /// The listed registries that cannot be reached.
    pub fn unreachable(&self) -> watch::Receiver<Vec<UnreachableRegistry>> {
        self.service.unreachable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::windows::registry_patterns::RegistryPatterns;

    fn settings(pull_secret_namespaces: &[&str]) -> ImageSettings {
        ImageSettings {
            registries: RegistryPatterns::parse(["registry.corp"]).unwrap(),
            pull_secret: None,
            pull_secret_namespaces: pull_secret_namespaces
                .iter()
                .map(|&name| name.to_owned())
                .collect(),
            ca_files: Vec::new(),
            plain_http: Vec::new(),
        }
    }

    #[tokio::test]
    async fn secrets_need_a_cluster() {
        let metrics = Metrics::new("0.0.0", None);
        let refused = ImageLookups::start(&settings(&["shop"]), &metrics, &mut Tasks::default());
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains("or serve without --standalone"), "{refused}");
    }
}
