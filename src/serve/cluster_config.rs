//! The facts that administrators state about the cluster of a server: from a file that is read again when it changes. A version
//! that cannot be used leaves the one before it in force.

use std::path::{Path, PathBuf};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

use crate::cluster::snapshot::StatedCluster;
use crate::cluster::stated_cluster;
use crate::process::files::{self, Accept};
use crate::process::metrics::Metrics;
use crate::process::tasks::Tasks;

/// How often the file is checked for changes. The kubelet updates the files of a ConfigMap about once a minute.
const POLL: Duration = Duration::from_secs(30);

/// Where a server reads the facts from, and what it reports of them.
#[derive(Clone, Debug, Default)]
pub struct ServedClusterConfig {
    file: Option<PathBuf>,
    valid: Gauge,
}

impl ServedClusterConfig {
    /// The facts of a file, with a metric.
    pub fn new(file: Option<PathBuf>, metrics: &Metrics) -> Self {
        ServedClusterConfig {
            file,
            valid: metrics.add(
                "cluster_config_valid",
                "Whether the file of facts about the cluster can be used as it is now, or there is none",
            ),
        }
    }

    /// The file that is followed, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the facts; of a file that cannot be used, those that were in force before. Why it cannot be used is logged.
    pub fn load(&self, before: &StatedCluster) -> StatedCluster {
        let Some(file) = &self.file else {
            self.valid.set(1);
            return StatedCluster::default();
        };
        let name = file.display().to_string();
        let read = files::read(file, Accept::Regular, files::POLICY_BYTES)
            .map_err(|error| format!("cannot read {name}: {error}"))
            .and_then(|bytes| stated_cluster::read(&name, bytes));
        self.valid.set(i64::from(read.is_ok()));
        match read {
            Ok(stated) => stated,
            Err(problem) => {
                let instead = match &before.hash {
                    Some(_) => "its last valid version applies",
                    None => "Transom knows no facts about the cluster beyond its API",
                };
                let problem = format!(
                    "the facts about the cluster (--cluster-config) cannot be used: {problem}; {instead}"
                );
                tracing::error!("{problem}");
                StatedCluster {
                    problem: Some(problem.into()),
                    ..before.clone()
                }
            }
        }
    }

    /// Starts to follow the file.
    pub fn start(self, tasks: &mut Tasks) -> watch::Receiver<StatedCluster> {
        let (publish, stated) = watch::channel(self.load(&StatedCluster::default()));
        tasks.spawn("cluster config", self.follow(publish));
        stated
    }

    /// Publishes the facts again whenever the file changes. Never ends.
    async fn follow(self, publish: watch::Sender<StatedCluster>) {
        files::follow(self.file.clone(), POLL, files::POLICY_BYTES, || {
            let before = publish.borrow().clone();
            publish.send_replace(self.load(&before));
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_again_and_a_broken_one_leaves_what_applied_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.yaml");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        write("nodeLabels: [{key: pool}]\n");
        let metrics = Metrics::new("1", None);
        let served = ServedClusterConfig::new(Some(file.clone()), &metrics);
        let valid = || metrics.expose().contains("transom_cluster_config_valid 1\n");
        let (publish, mut stated) = watch::channel(served.load(&StatedCluster::default()));
        let first = stated.borrow_and_update().clone();
        let problem = first.problem.unwrap();
        assert!(
            problem.contains("cluster.yaml:1: nodeLabels[0]: name at least one of values or valuePrefixes; Transom knows no facts"),
            "{problem}"
        );
        assert_eq!((first.hash, valid()), (None, false));
        let following = tokio::spawn(served.follow(publish));
        tokio::task::yield_now().await;
        let mut last = None;
        for (text, labels, is_valid) in [
            ("nodeLabels: [{key: pool, values: [win]}]\n", 1, true),
            ("nodeLabels: [\n", 1, false),
            ("{}\n", 0, true),
        ] {
            // The follower has read the earlier content before it sleeps.
            tokio::time::sleep(POLL * 2).await;
            write(text);
            stated.changed().await.unwrap();
            let now = stated.borrow_and_update().clone();
            assert_eq!(now.config.node_labels.len(), labels, "{text}");
            assert_eq!((now.problem.is_none(), valid()), (is_valid, is_valid), "{text}");
            assert_eq!(now.hash == last, !is_valid, "{text}");
            last = now.hash;
        }
        following.abort();
    }
}
