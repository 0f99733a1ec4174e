//! Reports: the leader evaluates stored objects as the watches deliver them, and publishes the findings as reports,
//! metrics and Events. It streams objects and keeps none in memory; facts and policies come from the snapshot.

mod controller;
mod evaluator;
mod events;
mod garbage_collection;
mod health;
mod invalidation;
mod metrics;
mod object_feed;
mod owner_index;
mod report;
mod report_api;
mod report_watch;
mod report_writer;
mod reread_queue;
mod stored_images;
#[cfg(test)]
mod stream_tests;
mod stuck_pods;
#[cfg(test)]
mod tests;
mod write_queue;

use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub use self::garbage_collection::{GarbageCollection, count, sweep};
pub use self::health::ReportingState;
pub use self::metrics::StoredFindingMetrics;
pub use self::report_api::ReportApi;

use self::controller::ReportsController;
use crate::cluster::lease::Leadership;
use crate::cluster::snapshot::SnapshotReceiver;
use crate::process::metrics::Reconcile;
use crate::registry::service::ImageService;

/// How often the task checks whether this replica still leads.
const LOOK: Duration = Duration::from_secs(1);

/// Rates and intervals of the report tasks.
#[derive(Clone, Copy, Debug)]
pub struct ReportSettings {
    /// How often the API server is asked which kind of report it serves. A write that finds no such kind triggers the
    /// same question.
    pub ask: Duration,
    /// Report writes per second.
    pub writes_per_second: u32,
    /// The pause after each page of a list.
    pub rest: Duration,
    /// How long changes of policies and facts are collected, and the pause after a rescan of all objects.
    pub gather: Duration,
    /// How long after a failed write all objects are read again.
    pub retry: Duration,
}

impl Default for ReportSettings {
    fn default() -> Self {
        ReportSettings {
            ask: Duration::from_secs(10),
            writes_per_second: 10,
            rest: Duration::from_millis(20),
            gather: Duration::from_secs(2),
            retry: Duration::from_secs(10),
        }
    }
}

/// What the report tasks need to evaluate stored objects.
#[derive(Clone)]
pub struct ReportContext {
    /// The API client.
    pub client: Client,
    /// Whether this replica may write.
    pub leadership: Leadership,
    /// Facts and policies.
    pub latest: SnapshotReceiver,
    /// Facts of images, if registries are asked.
    pub images: Option<ImageService>,
    /// The metrics.
    pub gauges: StoredFindingMetrics,
    /// The state of the reports, for policy statuses.
    pub reporting: watch::Sender<ReportingState>,
    /// Rates and intervals.
    pub settings: ReportSettings,
    /// Counts writes and failed requests.
    pub reconcile: Reconcile,
}

/// Evaluates stored objects while this replica leads. Returns when the snapshot channel or the leader election ends.
pub async fn run(context: ReportContext) {
    loop {
        if !leads(&context).await {
            return;
        }
        Box::pin(ReportsController::run(&context)).await;
        context.gauges.show(None);
        context.reporting.send_replace(ReportingState::Unknown);
    }
}

/// Waits until this replica leads and has a snapshot of the cluster. Returns `false` if that can no longer happen.
async fn leads(context: &ReportContext) -> bool {
    let (mut leadership, mut latest) = (context.leadership.clone(), context.latest.clone());
    loop {
        let is_known = latest.borrow_and_update().is_known();
        if is_known && leadership.holds() {
            return true;
        }
        tokio::select! {
            changed = leadership.changed() => if changed.is_err() { return false },
            changed = latest.changed() => if changed.is_err() { return false },
            () = sleep(LOOK) => (),
        }
    }
}

/// Waits until this replica no longer leads.
async fn lost(context: &ReportContext) {
    let mut leadership = context.leadership.clone();
    while leadership.holds() {
        if matches!(timeout(LOOK, leadership.changed()).await, Ok(Err(_))) {
            return;
        }
    }
}
