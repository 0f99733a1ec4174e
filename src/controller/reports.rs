//! Reports: the leader evaluates stored objects as the watches deliver them, and publishes the findings as reports,
//! metrics and Events. It streams objects and keeps none in memory; facts and policies come from the snapshot.

mod controller;
mod evaluator;
mod events;
mod finding_counts;
mod garbage_collection;
mod health;
mod invalidation;
mod metrics;
mod owner_index;
mod report;
mod report_api;
mod report_watch;
mod representatives;
mod requests;
mod state;
mod stored_images;
#[cfg(test)]
mod stream_tests;
mod stuck_pods;
#[cfg(test)]
mod tests;
mod untolerating;
mod write_queue;

use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::timeout;

pub use self::garbage_collection::{GarbageCollection, count, sweep};
pub use self::health::ReportingState;
pub use self::metrics::StoredFindingMetrics;
pub use self::owner_index::ByPolicy;
pub use self::report_api::ReportApi;

use self::controller::ReportsController;
use crate::cluster::lease::Leadership;
use crate::cluster::snapshot::SnapshotReceiver;
use crate::process::metrics::Reconcile;
use crate::registry::service::ImageService;

/// Rates and intervals of reports.
#[derive(Clone, Copy, Debug)]
pub struct ReportSettings {
    /// How often the API server is asked which kind of report it serves. A write that finds no such kind triggers the
    /// same question.
    pub ask: Duration,
    pub writes_per_second: u32,
    /// How long changes are collected that affect other objects, for example those of policies.
    pub gather: Duration,
    /// How long after a failed write it is tried again; longer after each further failure.
    pub retry: Duration,
}

impl Default for ReportSettings {
    fn default() -> Self {
        ReportSettings {
            ask: Duration::from_secs(10),
            writes_per_second: 10,
            gather: Duration::from_secs(2),
            retry: Duration::from_secs(10),
        }
    }
}

/// What would be denied next although it is stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NextDenials {
    /// Custom resources that would be denied, and whose controllers are not listed: their next rollout. As in
    /// `Rollout.argoproj.io shop/web`.
    pub rollouts: ByPolicy,
    /// Workloads that would be denied and are for Windows only by their RuntimeClass, which may be newer than they are. As in
    /// `Deployment shop/web (RuntimeClass windows)`.
    pub of_classes: ByPolicy,
    /// DaemonSets that do not tolerate a taint that their node policy requires and nodes lack, by node policy: once all nodes
    /// have it. Each with the taints.
    pub daemon_sets: ByPolicy,
}

/// What is needed to evaluate stored objects.
#[derive(Clone)]
pub struct ReportContext {
    pub client: Client,
    /// Whether this replica may write.
    pub leadership: Leadership,
    pub latest: SnapshotReceiver,
    /// Facts of images, if registries are asked.
    pub images: Option<ImageService>,
    pub gauges: StoredFindingMetrics,
    /// The state of the reports, for policy statuses.
    pub reporting: watch::Sender<ReportingState>,
    /// What would be denied next, for policy statuses.
    pub next_denials: watch::Sender<NextDenials>,
    pub settings: ReportSettings,
    /// Counts writes and failed requests.
    pub reconcile: Reconcile,
}

impl ReportContext {
    /// Publishes the state of reporting, if it has changed.
    fn publish(&self, state: ReportingState) {
        send_if_different(&self.reporting, state);
    }
}

fn send_if_different<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|before| {
        let differs = *before != value;
        *before = value;
        differs
    });
}

/// How long what is known of stored objects is kept after leadership is lost. An API server under load makes a leader renew
/// its Lease a few seconds late, again and again: if each time began with the first object, the last would never be reported.
const KEPT: Duration = Duration::from_secs(60);

/// Evaluates stored objects while this replica leads. Returns when the snapshot channel or the leader election ends.
pub async fn run(context: ReportContext) {
    let (mut leadership, mut latest) = (context.leadership.clone(), context.latest.clone());
    while leadership.switched(false).await.is_ok()
        && latest.wait_for(|snapshot| snapshot.is_known()).await.is_ok()
    {
        let mut term = Box::pin(ReportsController::run(&context));
        loop {
            let ended = tokio::select! {
                () = &mut term => true,
                _ = leadership.switched(true) => false,
            };
            context.gauges.show(None);
            context.reporting.send_replace(ReportingState::Unknown);
            context.next_denials.send_replace(NextDenials::default());
            // Nothing runs meanwhile. What another leader writes until then arrives by the watch of reports, as what anybody
            // else writes does.
            if ended || !matches!(timeout(KEPT, leadership.switched(false)).await, Ok(Ok(()))) {
                break;
            }
        }
    }
}
