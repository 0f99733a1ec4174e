//! `serve --standalone`: policy and facts from files, which are read again when they change.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::cluster_config::ServedClusterConfig;
use super::image_args::ImageSettings;
use super::image_look_ups::ImageLookups;
use super::knowledge::ServedKnowledge;
use super::review_handler::Reviewer;
use crate::check::files::{policies, read};
use crate::check::{Manifests, settings};
use crate::cluster::snapshot::{Snapshot, StatedCluster};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::Policy;
use crate::model::objects::object::ReviewStage;
use crate::process::files::{self, Accept};
use crate::process::metrics::Metrics;
use crate::process::tasks::Tasks;
use crate::process::today;
use crate::rules::documentation::DocumentationUrl;
use crate::webhook::{Server, WebhookConfig};

/// How often files are checked for changes.
const POLL: Duration = Duration::from_secs(2);

/// The files that snapshots come from.
pub struct StandaloneFiles {
    pub policy: Option<PathBuf>,
    pub facts: Vec<PathBuf>,
    /// The facts from the arguments.
    pub base: Facts,
    pub knowledge: ServedKnowledge,
    pub stated: ServedClusterConfig,
}

impl StandaloneFiles {
    fn load(&self) -> anyhow::Result<Snapshot> {
        self.check_types()?;
        let policies = policies(self.policy.as_deref(), Policy::standalone())?;
        let mut facts = self.base.clone();
        facts.today = today();
        facts.knowledge = self.knowledge.load();
        policies.declare(&mut facts);
        let stated = self.stated.load(&StatedCluster::default());
        if let Some(problem) = stated.problem {
            bail!("{problem}");
        }
        facts.set_config(stated.config);
        let policies = policies.set;
        let mut manifests = Manifests::new(settings());
        for path in &self.facts {
            read(path, &mut manifests);
        }
        if let Some(error) = manifests.errors().first() {
            bail!(
                "cannot read the facts (--facts): {}:{}: {}",
                error.source,
                error.line,
                error.message
            );
        }
        let objects = manifests.objects(ReviewStage::Written);
        objects.learn(&mut facts, &policies);
        let unreadable = objects.check(&facts, &policies, |_| {});
        if let Some(error) = unreadable.first() {
            bail!(
                "cannot read the facts (--facts): {}:{}: {}",
                error.source,
                error.line,
                error.message
            );
        }
        Ok(Snapshot::of_files(facts, policies))
    }

    /// Rejects file types from which a server would never finish reading: it reads its files repeatedly.
    fn check_types(&self) -> anyhow::Result<()> {
        let flags = (self.policy.iter().map(|path| ("--policy", path.as_path())))
            .chain(self.facts.iter().map(|path| ("--facts", path.as_path())));
        for (flag, path) in flags.filter(|(_, path)| path.exists() && !path.is_dir()) {
            files::check_type(path, Accept::Regular)
                .with_context(|| format!("cannot read {} ({flag})", path.display()))?;
        }
        Ok(())
    }

    /// The bytes of every file, to detect changes; an unreadable file counts as empty.
    fn content(&self) -> Vec<Vec<u8>> {
        fn all(path: &Path, into: &mut Vec<Vec<u8>>) {
            let Ok(entries) = std::fs::read_dir(path) else {
                let content = files::read(path, Accept::Regular, files::MANIFEST_BYTES);
                return into.push(content.unwrap_or_default());
            };
            let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            paths.sort();
            paths
                .iter()
                .filter(|path| path.is_file())
                .for_each(|path| all(path, into));
        }
        let mut content = Vec::new();
        let files = self.policy.iter().chain(&self.facts).map(PathBuf::as_path);
        files
            .chain(self.knowledge.file())
            .chain(self.stated.file())
            .for_each(|path| all(path, &mut content));
        content
    }
}

/// Serves from files until `shutdown`, then drains.
pub async fn run(
    files: StandaloneFiles,
    (images, documentation): (Option<ImageSettings>, Option<DocumentationUrl>),
    config: WebhookConfig,
    background: Handle,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let snapshot = files.load()?;
    if images.is_none() {
        // In a cluster, a condition says so.
        for name in snapshot.policies.using_registries() {
            tracing::warn!(
                policy = name,
                "evidence.imageEvidence: Registry has no effect, because no registry may be asked: add --image-registry"
            );
        }
    }
    let (show, latest) = watch::channel(Arc::new(snapshot));
    let metrics = config.metrics.clone();
    let mut tasks = Tasks::on(background);
    let images = images.map(|settings| ImageLookups::start(&settings, &metrics, &mut tasks));
    let images = images.transpose()?;
    let is_looking_up = images.is_some();
    let server = Server::bind(config).await?;
    let reviewer = Arc::new(Reviewer::of_files(latest, images).documented(documentation));
    tokio::select! {
        ended = tasks.ended(), if is_looking_up => Err(ended.into()),
        ended = server.serve(reviewer, shutdown) => ended.map_err(anyhow::Error::from),
        () = follow(files, show, metrics) => {
            bail!("the task that follows the policy and facts files ended")
        }
    }
}

/// Serves with the built-in policy and these facts until `talk` ends, which gets the address and the CA.
pub async fn while_serving<T>(
    facts: Facts,
    config: WebhookConfig,
    talk: impl AsyncFnOnce(SocketAddr, &str) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let files = StandaloneFiles {
        policy: None,
        facts: Vec::new(),
        base: facts,
        knowledge: ServedKnowledge::default(),
        stated: ServedClusterConfig::default(),
    };
    let (_show, latest) = watch::channel(Arc::new(files.load()?));
    let server = Server::bind(config).await?;
    let ca = server.ca_pem().unwrap_or_default();
    let address = server.address();
    let serving = server.serve(Arc::new(Reviewer::of_files(latest, None)), std::future::pending());
    tokio::select! {
        said = talk(address, &ca) => said,
        ended = serving => match ended {
            Ok(()) => bail!("the server ended early"),
            Err(error) => Err(error.into()),
        },
    }
}

/// Publishes a new snapshot when a file or the date changes; if the files are invalid, the old one stays.
async fn follow(files: StandaloneFiles, show: watch::Sender<Arc<Snapshot>>, metrics: Metrics) {
    let files = Arc::new(files);
    let read = || {
        let files = Arc::clone(&files);
        async move {
            let content = tokio::task::spawn_blocking(move || files.content()).await;
            (content.ok(), today())
        }
    };
    let mut known = (Some(files.content()), today());
    loop {
        let now = files::changed(POLL, Some(&known), read).await;
        if now.0.is_none() {
            return;
        }
        let changed = now.0 != known.0;
        known = now;
        match files.load() {
            Ok(new) => {
                _ = show.send_replace(Arc::new(new));
                if changed {
                    metrics.policy_reloaded(true);
                    tracing::info!("policy and facts files have changed: the new content applies");
                }
            }
            Err(error) => {
                metrics.policy_reloaded(false);
                tracing::error!(
                    "policy or facts files have changed and cannot be used, so the old content still applies: {error:#}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::day_of;

    #[test]
    fn a_policy_that_uses_registries_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.yaml");
        let load = |evidence: &str| {
            let policy = format!(
                "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {{name: shop}}\nspec: {{mode: Enforce, evidence: {{imageEvidence: {evidence}}}}}\n"
            );
            std::fs::write(&file, policy).unwrap();
            let files = StandaloneFiles {
                policy: Some(file.clone()),
                facts: Vec::new(),
                base: Facts::new(Facts::KUBERNETES, day_of(jiff::Timestamp::UNIX_EPOCH)),
                knowledge: ServedKnowledge::default(),
                stated: ServedClusterConfig::default(),
            };
            let policies = files.load().unwrap().policies;
            policies.using_registries().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(load("Registry"), ["shop"]);
        assert!(load("Names").is_empty());
    }
}
