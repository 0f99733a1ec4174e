//! Reports: the leader judges what is stored, as the watches show it, and says in reports, metrics and Events what would
//! become of it. It streams objects and keeps none; facts and policies are the snapshot's.

mod basis;
mod desk;
mod dialect;
mod feed;
mod gauges;
mod ledger;
mod minder;
mod report;
mod session;
mod standing;
#[cfg(test)]
mod stream_tests;
mod sweep;
mod tell;
#[cfg(test)]
mod tests;
mod waiting;
mod writer;

use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub use self::dialect::ReportApi;
pub use self::gauges::StoredFindingMetrics;
pub use self::sweep::{GarbageCollection, count, sweep};

use self::session::ReportsController;
use crate::cluster::lease::Leadership;
use crate::cluster::snapshot::{ReportingState, SnapshotReceiver};
use crate::process::metrics::Reconcile;

/// How often it is looked whether this replica still leads.
const LOOK: Duration = Duration::from_secs(1);

/// How fast all of it goes.
#[derive(Clone, Copy, Debug)]
pub struct ReportSettings {
    /// How often it is asked which kind of report there is; besides, whenever a write finds none.
    pub ask: Duration,
    /// How many reports are written in a second.
    pub writes_per_second: u32,
    /// How long is rested after each page of a list.
    pub rest: Duration,
    /// How long changes of what is judged by are gathered, and how long is rested after a reading of everything.
    pub gather: Duration,
    /// How long after a write that failed everything is read anew.
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

/// What it takes to judge what is stored.
#[derive(Clone)]
pub struct ReportContext {
    /// The API server.
    pub client: Client,
    /// Whether this replica may write.
    pub leadership: Leadership,
    /// Facts and policies.
    pub latest: SnapshotReceiver,
    /// The metrics.
    pub gauges: StoredFindingMetrics,
    /// How the reports stand.
    pub reporting: watch::Sender<ReportingState>,
    /// How fast all of it goes.
    pub settings: ReportSettings,
    /// Where writes and failed requests are counted.
    pub reconcile: Reconcile,
}

/// Judges what is stored while this replica leads. Ends with the snapshots, or with the election.
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

/// Waits until this replica leads and knows the cluster; says whether that can still be.
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

/// Waits until this replica leads no more.
async fn lost(context: &ReportContext) {
    let mut leadership = context.leadership.clone();
    while leadership.holds() {
        if matches!(timeout(LOOK, leadership.changed()).await, Ok(Err(_))) {
            return;
        }
    }
}
