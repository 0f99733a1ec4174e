//! Reconciles nodes and RuntimeClasses with the node policies: writes only Transom's own labels and taints.
//!
//! ```text
//! cache ─ reconcile ─┬─ policies         stored policies, and which one applies to a node
//!                    ├─ node_state       the nodes of each policy, and which need a write
//!                    │    └─ nodes/      plan (one node, pure), labels (one row each), ownership, apply
//!                    ├─ guard            which workloads a taint would affect, evaluated by the engine
//!                    │    └─ guard/      cache (when to survey again), survey, affected (whether they changed)
//!                    ├─ pod_references   what templates and pods name, so that it is not removed
//!                    ├─ runtime_classes  RuntimeClasses: desired, plan, write
//!                    ├─ events           what was changed, one Event per policy and cause
//!                    └─ status           conditions of a policy; write
//! revert         reverts everything without a cache, for `transom uninstall`
//! writer         every write: rate-limited, only while this replica leads
//! ```

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::Recorder;
use tokio::time::{Instant, timeout};

use self::reconcile::NodeController;
use crate::cluster::lease::Leadership;
use crate::cluster::snapshot::SnapshotReceiver;
use crate::process::metrics::Reconcile;

mod events;
pub mod guard;
pub mod node_state;
pub mod nodes;
pub mod pod_references;
pub mod policies;
mod reconcile;
pub mod revert;
pub mod runtime_classes;
pub mod status;
pub mod writer;

/// Write rates and intervals of the node controller.
#[derive(Clone, Copy, Debug)]
pub struct NodeControllerSettings {
    /// Writes per second, including Events and RuntimeClasses.
    pub writes_per_second: u32,
    /// Concurrent writes.
    pub in_flight: usize,
    /// How many nodes a pass writes before it reads the cache again.
    pub at_once: usize,
    /// Back-off of a node after its first write; doubled after each further write, up to five minutes.
    pub back_off: Duration,
    /// Delay before the guard runs again after it refused a taint; doubled after each further refusal, up to fifteen
    /// times.
    pub guard_every: Duration,
    /// How often the affected workloads are read. If one of them has changed, the guard runs again.
    pub affected_every: Duration,
    /// The least time between two status writes of a policy.
    pub status_every: Duration,
    /// How long changes are collected before a pass.
    pub settle: Duration,
    /// How long the start waits for the content of the webhook configurations.
    pub know_registered: Duration,
}

impl Default for NodeControllerSettings {
    fn default() -> Self {
        NodeControllerSettings {
            writes_per_second: 50,
            in_flight: 4,
            at_once: 250,
            back_off: Duration::from_secs(1),
            guard_every: Duration::from_secs(60),
            affected_every: Duration::from_secs(60),
            status_every: Duration::from_secs(5),
            settle: Duration::from_millis(200),
            know_registered: Duration::from_secs(10),
        }
    }
}

/// What the node controller works with.
#[derive(Clone)]
pub struct NodeControllerContext {
    /// The API client.
    pub client: Client,
    /// Checked before every write.
    pub leadership: Leadership,
    /// Publishes Events about changes.
    pub recorder: Recorder,
    /// Rates and intervals.
    pub settings: NodeControllerSettings,
    /// Counts passes and failed requests.
    pub reconcile: Reconcile,
}

/// Why the node controller ended; the process should end too.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeControllerError {
    /// The task that builds snapshots has ended.
    #[error("the watches have ended")]
    Snapshots,
    /// The task that renews the lease has ended.
    #[error("the renewal of the lease has ended")]
    Leadership,
}

/// Reconciles nodes and RuntimeClasses with the node policies while this replica leads, and does nothing otherwise.
///
/// The cache in a snapshot must be complete, because a missing policy is treated as deleted: snapshots are only built
/// after every watch has listed its objects, and a snapshot without a cache is not used. Before the controller
/// reverts anything for a deleted policy it asks the API server whether the policy is really gone.
///
/// # Errors
/// Never while the watches and the lease are alive.
pub async fn run(
    context: NodeControllerContext,
    mut latest: SnapshotReceiver,
) -> Result<(), NodeControllerError> {
    // The guard depends on whether placement applies, which needs registered webhooks.
    let registered = latest.wait_for(|snapshot| snapshot.registered.is_some());
    let _ = timeout(context.settings.know_registered, registered).await;
    let mut leadership = context.leadership.clone();
    let settle = context.settings.settle;
    // State from an earlier leadership may be stale: a new leadership starts with a new controller.
    let mut controller = None;
    loop {
        let mut next = None;
        let leads = leadership.holds();
        if leads {
            let controller = controller.get_or_insert_with(|| NodeController::new(context.clone()));
            let snapshot = Arc::clone(&latest.borrow_and_update());
            if snapshot.is_known() {
                // Boxed because the future of a pass is large and would become part of the caller's future.
                let began = Instant::now();
                next = Box::pin(controller.pass(&snapshot)).await;
                context.reconcile.took(began.elapsed());
            }
        } else {
            controller = None;
        }
        wait(&mut latest, &mut leadership, leads, next).await?;
        tokio::time::sleep(settle).await;
    }
}

/// Waits for a new snapshot, for the requested time, or for a change of leadership.
async fn wait(
    latest: &mut SnapshotReceiver,
    leadership: &mut Leadership,
    led: bool,
    next: Option<Instant>,
) -> Result<(), NodeControllerError> {
    let alarm = async {
        match next {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        changed = latest.changed(), if led => changed.map_err(|_| NodeControllerError::Snapshots),
        switched = leadership.switched(led) => switched.map_err(|_| NodeControllerError::Leadership),
        () = alarm => Ok(()),
    }
}
