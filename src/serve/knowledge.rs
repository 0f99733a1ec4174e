//! The known faults of a server: the rows of this version, with those of a file that is read again when it changes. If the file
//! cannot be used, the rows of this version apply.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

use crate::check::read_knowledge;
use crate::model::knowledge::Knowledge;
use crate::process::files::{self, Accept};
use crate::process::metrics::{MetricLabels, Metrics};
use crate::process::tasks::Tasks;
use crate::process::today;

/// How often the file is checked for changes. The kubelet updates the files of a ConfigMap about once a minute.
const POLL: Duration = Duration::from_secs(30);

/// Where a server reads rows from, and what it reports of them.
#[derive(Clone, Debug, Default)]
pub struct ServedKnowledge {
    file: Option<PathBuf>,
    dates: Family<MetricLabels, Gauge>,
}

impl ServedKnowledge {
    /// The rows of this version and of a file, with a metric.
    pub fn new(file: Option<PathBuf>, metrics: &Metrics) -> Self {
        ServedKnowledge {
            file,
            dates: metrics.add(
                "knowledge_timestamp_seconds",
                "The day of the newest known fault or date of support, in seconds since 1970, by source; 0 for a file that cannot be \
                 used",
            ),
        }
    }

    /// The file that is followed, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the rows. Why the file cannot be used, and that the rows are old, is logged.
    pub fn load(&self) -> Arc<Knowledge> {
        let built_in = Knowledge::built_in();
        self.set_date("built-in", built_in.date());
        let known = match self.file().map(|file| read_knowledge(file, Accept::Regular)) {
            None => built_in,
            Some(Ok(file)) => {
                self.set_date("file", Some(file.date));
                Arc::new(built_in.with(file))
            }
            Some(Err(error)) => {
                self.set_date("file", None);
                tracing::error!("{error}; the rows of this version apply (transom knowledge check)");
                built_in
            }
        };
        if let Some(advice) = known.advice(today()) {
            tracing::warn!("{advice}");
        }
        known
    }

    /// Starts to follow the file.
    pub fn start(self, tasks: &mut Tasks) -> watch::Receiver<Arc<Knowledge>> {
        let (publish, known) = watch::channel(self.load());
        tasks.spawn("knowledge", self.follow(publish));
        known
    }

    /// Publishes the rows again whenever the file changes. Never ends.
    async fn follow(self, publish: watch::Sender<Arc<Knowledge>>) {
        files::follow(self.file.clone(), POLL, files::POLICY_BYTES, || {
            publish.send_replace(self.load());
        })
        .await;
    }

    fn set_date(&self, source: &'static str, date: Option<Date>) {
        let start = date.and_then(|date| date.to_zoned(TimeZone::UTC).ok());
        let seconds = start.map_or(0, |start| start.timestamp().as_second());
        self.dates.get_or_create(&[("source", source)]).set(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_again_and_a_broken_one_leaves_the_rows_of_this_version() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("knowledge.yaml");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        write("schema: transom.dev/knowledge/v1\nsource: Example\ndate: 2027-03-01\n");
        let metrics = Metrics::new("1", None);
        let served = ServedKnowledge::new(Some(file.clone()), &metrics);
        let (publish, mut known) = watch::channel(served.load());
        let sources = |known: &Arc<Knowledge>| known.sources.len();
        assert_eq!(sources(&known.borrow_and_update()), 2);
        let line =
            |seconds: i64| format!("transom_knowledge_timestamp_seconds{{source=\"file\"}} {seconds}\n");
        assert!(
            metrics.expose().contains(&line(1_803_859_200)),
            "{}",
            metrics.expose()
        );
        let following = tokio::spawn(served.follow(publish));
        tokio::task::yield_now().await;
        for (text, expected) in [
            ("schema: transom.dev/knowledge/v2\n", 1),
            (
                "schema: transom.dev/knowledge/v1\nsource: Example\ndate: 2027-03-02\n",
                2,
            ),
        ] {
            // The follower has read the earlier content before it sleeps.
            tokio::time::sleep(POLL * 2).await;
            write(text);
            known.changed().await.unwrap();
            assert_eq!(sources(&known.borrow_and_update()), expected, "{text}");
            assert_eq!(metrics.expose().contains(&line(0)), expected == 1);
        }
        following.abort();
    }
}
