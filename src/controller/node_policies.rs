//! Nodes and RuntimeClasses, kept as the node policies want them: labels and taints of ours, and nothing else touched.
//!
//! ```text
//! a view ─ reconcile ─┬─ policies         what is stored, and which policy counts for a node
//!                     ├─ node_state       how the nodes of each policy stand, and which are to be written
//!                     │    └─ nodes/      plan (one node, pure), labels (a row each), ownership (what is ours), apply
//!                     ├─ guard            which workloads a taint would hurt, asked of the engine; cache: when to ask again; affected: whether they changed
//!                     ├─ runtime_classes  RuntimeClasses: desired, plan, write
//!                     ├─ events           what was changed, one Event for each policy and cause
//!                     └─ status           what to tell people; write
//! take_back      the same, without a view: what `transom uninstall` undoes
//! writer         every write: in its turn, while this replica leads
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
pub mod policies;
mod reconcile;
pub mod runtime_classes;
pub mod status;
pub mod take_back;
pub mod writer;

/// How fast nodes are written, and how often things are looked at.
#[derive(Clone, Copy, Debug)]
pub struct NodeControllerSettings {
    /// Writes in a second, Events and RuntimeClasses among them.
    pub writes_per_second: u32,
    /// Writes at the same time.
    pub in_flight: usize,
    /// Nodes that are written before the view is looked at again.
    pub at_once: usize,
    /// How long a node is left alone after its first write; twice that after the next, up to five minutes.
    pub back_off: Duration,
    /// How long after the guard said no it is asked again; twice that after the next no, up to fifteen times.
    pub guard_every: Duration,
    /// How often the workloads that a taint is refused for are read: after a change of one the guard is asked again.
    pub affected_every: Duration,
    /// How long after a status was written the next one is.
    pub status_every: Duration,
    /// How long changes are collected before they are looked at.
    pub settle: Duration,
    /// How long the start waits until it is known what the webhook configurations hold.
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

/// What the controller of nodes works with.
#[derive(Clone)]
pub struct NodeControllerContext {
    /// The API server.
    pub client: Client,
    /// Asked before every write.
    pub leadership: Leadership,
    /// Tells people what was changed.
    pub recorder: Recorder,
    /// How fast, and how often.
    pub settings: NodeControllerSettings,
    /// Where passes and failed requests are counted.
    pub reconcile: Reconcile,
}

/// Why the controller of nodes has ended; the process is to end with it.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeControllerError {
    /// The task that makes snapshots has ended.
    #[error("the watches have ended")]
    Snapshots,
    /// The task that renews the lease has ended.
    #[error("the renewal of the lease has ended")]
    Leadership,
}

/// Keeps nodes and RuntimeClasses as the node policies want them, for as long as this replica leads, and does nothing
/// while it does not.
///
/// The view of a snapshot must be whole: it is taken only after every watch has listed its objects, because a policy that
/// is not in it is gone. A snapshot without a view counts as not there yet, and before anything is taken back for a policy
/// that is gone the API server is asked whether it is.
///
/// # Errors
/// Never while the watches and the lease are alive.
pub async fn run(
    context: NodeControllerContext,
    mut latest: SnapshotReceiver,
) -> Result<(), NodeControllerError> {
    // The guard asks whether pods are placed, and nothing is where the webhooks are not registered.
    let registered = latest.wait_for(|snapshot| snapshot.registered.is_some());
    let _ = timeout(context.settings.know_registered, registered).await;
    let mut leadership = context.leadership.clone();
    let settle = context.settings.settle;
    // What this replica knew when it last led may be wrong by now: another leadership begins with another controller.
    let mut controller = None;
    loop {
        let mut next = None;
        let leads = leadership.holds();
        if leads {
            let controller = controller.get_or_insert_with(|| NodeController::new(context.clone()));
            let snapshot = Arc::clone(&latest.borrow_and_update());
            if snapshot.is_known() {
                // Boxed: the future of a pass is large, and this one is part of its caller's.
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

/// Waits for another snapshot, for the time that was asked for, or for a change of leadership.
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
    tokio::pin!(alarm);
    loop {
        tokio::select! {
            changed = latest.changed(), if led => return changed.map_err(|_| NodeControllerError::Snapshots),
            changed = leadership.changed() => {
                changed.map_err(|_| NodeControllerError::Leadership)?;
                // A renewal is no news.
                if leadership.holds() != led {
                    return Ok(());
                }
            }
            () = &mut alarm => return Ok(()),
        }
    }
}
