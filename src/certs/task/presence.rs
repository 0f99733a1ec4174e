//! Whether the webhook configurations are there, and what stands in them: for the log, the metrics, and the
//! statuses of policies.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

use super::super::publish::Published;
use crate::process::metrics::Metrics;
use crate::registration::configurations::{Configuration, Configurations};

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Phase {
    phase: &'static str,
}

/// The values of the label, in the order of the two configurations.
const PHASES: [&str; 2] = ["mutating", "validating"];

/// What was seen last of both configurations.
pub(super) struct Presence {
    gauge: Family<Phase, Gauge>,
    seen: [Option<Configuration>; 2],
    tell: watch::Sender<Option<Arc<Configurations>>>,
}

impl Presence {
    /// Nothing was seen yet.
    pub fn new(metrics: &Metrics, tell: watch::Sender<Option<Arc<Configurations>>>) -> Self {
        let gauge = Family::<Phase, Gauge>::default();
        metrics.register(|registry| {
            registry.register(
                "webhook_configurations",
                "Whether a webhook configuration is there and has entries",
                gauge.clone(),
            );
        });
        Presence {
            gauge,
            seen: [None, None],
            tell,
        }
    }

    /// Takes in one of the two configurations, as it is now.
    pub fn see(&mut self, which: usize, title: &str, published: Option<&Published>) {
        // `which` is 0 or 1: there are two configurations, and of these lists there are two of each.
        let (phase, seen) = (PHASES[which], &mut self.seen[which]);
        let entries = published.map(|published| published.entries.clone());
        let gone = if entries.is_some() {
            "has no entries"
        } else {
            "is not there"
        };
        let now = Configuration {
            title: title.to_owned(),
            entries: entries.unwrap_or_default(),
        };
        let is_there = !now.entries.is_empty();
        self.gauge
            .get_or_create(&Phase { phase })
            .set(i64::from(is_there));
        let was_there = seen.as_ref().map(|before| !before.entries.is_empty());
        match (was_there, is_there) {
            (Some(true), false) => tracing::warn!(
                configuration = title,
                "the webhook configuration {gone} any more: the API server no longer calls Transom; put it back with helm \
                 upgrade, or with transom generate webhooks"
            ),
            (None, false) => tracing::info!(
                configuration = title,
                "the webhook configuration {gone} yet: the API server does not call Transom; it comes with the chart, or \
                 from transom generate webhooks"
            ),
            (Some(false), true) => tracing::info!(
                configuration = title,
                "the webhook configuration is there: the API server calls Transom"
            ),
            (Some(true) | None, true) | (Some(false), false) => {}
        }
        *seen = Some(now);
        if let [Some(mutating), Some(validating)] = &self.seen {
            let registered = Configurations {
                mutating: mutating.clone(),
                validating: validating.clone(),
            };
            self.tell.send_if_modified(|told| {
                let differs = told.as_deref() != Some(&registered);
                if differs {
                    *told = Some(Arc::new(registered));
                }
                differs
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Mutex, PoisonError};

    use serde_json::json;

    use super::*;

    /// What is logged while it is alive.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(text)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Log {
        fn levels(&self) -> Vec<String> {
            let text = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            let text = String::from_utf8(text).unwrap();
            text.lines()
                .map(|line| line.split_whitespace().next().unwrap().to_owned())
                .collect()
        }
    }

    #[test]
    fn a_configuration_that_goes_and_comes_back_is_told_once_each_time_and_shown_as_a_gauge() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let (metrics, (tell, told)) = (Metrics::new("0", None), watch::channel(None));
        let mut presence = Presence::new(&metrics, tell);
        let gauge = |phase: &str| {
            let text = metrics.expose();
            let start = format!("transom_webhook_configurations{{phase=\"{phase}\"}} ");
            text.lines()
                .find_map(|line| line.strip_prefix(&start).map(str::to_owned))
        };
        let published = |entries: serde_json::Value| {
            let object = json!({"metadata": {"name": "zz-transom"}, "webhooks": entries});
            Published::read(&serde_json::from_value(object).unwrap())
        };
        let there = published(json!([{"name": "strong.mutate.transom.dev"}]));
        let empty = published(json!([]));

        assert_eq!(gauge("mutating"), None);
        presence.see(0, "m", Some(&there));
        assert!(told.borrow().is_none(), "the other one is not known yet");
        presence.see(1, "v", None);
        assert_eq!(
            (gauge("mutating").as_deref(), gauge("validating").as_deref()),
            (Some("1"), Some("0"))
        );
        assert_eq!(log.levels(), ["INFO"], "it is not there yet");
        assert_eq!(told.borrow().as_ref().unwrap().mutating.entries.len(), 1);

        presence.see(0, "m", None);
        presence.see(0, "m", None);
        presence.see(0, "m", Some(&empty));
        assert_eq!(log.levels(), ["WARN"]);
        assert_eq!(gauge("mutating").as_deref(), Some("0"));
        presence.see(0, "m", Some(&there));
        presence.see(0, "m", Some(&there));
        assert_eq!(log.levels(), ["INFO"]);
        presence.see(0, "m", Some(&empty));
        assert_eq!(log.levels(), ["WARN"]);
        assert!(told.borrow().as_ref().unwrap().mutating.entries.is_empty());
    }
}
