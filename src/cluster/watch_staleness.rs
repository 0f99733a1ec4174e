//! How stale each watch is: the time since the API server last answered it. Stale facts are better than none, so this
//! is only used for metrics and the log, never for readiness.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::BodyExt as _;
use kube::Client;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

use crate::process::metrics::Metrics;
use crate::process::server_clock::ServerClock;

/// The age at which a watch is logged as stale. An API server need not send anything on a watch of objects that do not
/// change. But it ends each watch after two minutes (`WATCH_SECONDS`), and then answers the next request.
const STALE: Duration = Duration::from_secs(180);
/// How often staleness is checked.
const LOOK: Duration = Duration::from_secs(15);

/// When each watch was last answered. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct WatchStaleness {
    watches: Arc<Mutex<BTreeMap<&'static str, WatchContact>>>,
    server_clock: ServerClock,
}

#[derive(Clone, Copy, Debug)]
struct WatchContact {
    /// The last byte of a successful answer; before the first one, the start.
    last_contact: Instant,
    /// Whether its staleness was logged.
    is_logged: bool,
}

impl WatchStaleness {
    /// Nothing is watched yet. Exported as `transom_watch_last_contact_timestamp_seconds`.
    pub fn new(metrics: &Metrics) -> Self {
        let staleness = WatchStaleness::default();
        let contacts = LastContactCollector(staleness.clone());
        metrics.add_collector(contacts);
        staleness
    }

    /// The clock of the API server, as its answers to the watches show it.
    pub fn server_clock(&self) -> &ServerClock {
        &self.server_clock
    }

    /// A client for the watch of one resource only: every byte of a successful answer shows that the watch works,
    /// including bookmarks, which are not delivered as events.
    pub fn client(&self, client: &Client, resource: &'static str) -> Client {
        self.record_contact(resource);
        let (staleness, client) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request| {
            let (staleness, client) = (staleness.clone(), client.clone());
            async move {
                let response = client.send(request).await?;
                let is_good = response.status().is_success();
                if is_good {
                    staleness.server_clock.observe(response.headers());
                    staleness.record_contact(resource);
                }
                Ok::<_, kube::Error>(response.map(|body| {
                    body.map_frame(move |frame| {
                        if is_good {
                            staleness.record_contact(resource);
                        }
                        frame
                    })
                }))
            }
        });
        Client::new(service, "default")
    }

    /// Logs when a watch becomes stale, and when it recovers; runs forever.
    pub async fn log_changes(self) {
        loop {
            tokio::time::sleep(LOOK).await;
            for (resource, watch) in self.watches().iter_mut() {
                let age = watch.last_contact.elapsed();
                if std::mem::replace(&mut watch.is_logged, age >= STALE) == watch.is_logged {
                    continue;
                }
                if watch.is_logged {
                    tracing::error!(
                        resource,
                        "the API server has not answered the watch for {} s: the data on {resource} is as old, and reviews and \
                         the leader continue to use it; look for \"the watch has broken\" above, and check the permissions of Transom's ServiceAccount and the connection to the API server",
                        age.as_secs()
                    );
                } else {
                    tracing::info!(resource, "the API server answers the watch again");
                }
            }
        }
    }

    fn record_contact(&self, resource: &'static str) {
        let last_contact = Instant::now();
        let mut watches = self.watches();
        let watch = watches.entry(resource).or_insert(WatchContact {
            last_contact,
            is_logged: false,
        });
        watch.last_contact = last_contact;
    }

    fn watches(&self) -> MutexGuard<'_, BTreeMap<&'static str, WatchContact>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The metric, computed at each scrape.
#[derive(Debug)]
struct LastContactCollector(WatchStaleness);

impl Collector for LastContactCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let watches = self.0.watches().clone();
        if watches.is_empty() {
            return Ok(());
        }
        let none = ConstGauge::new(0.0_f64);
        let mut family = encoder.encode_descriptor(
            "watch_last_contact_timestamp_seconds",
            "When the API server last answered a watch, in seconds since 1970",
            None,
            none.metric_type(),
        )?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for (resource, watch) in watches {
            // Elapsed time is monotonic, so setting the clock does not change it.
            let at = now.saturating_sub(watch.last_contact.elapsed());
            ConstGauge::new(at.as_secs_f64()).encode(family.encode_family(&[("resource", resource)])?)?;
        }
        Ok(())
    }
}
