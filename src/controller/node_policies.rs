//! Reconciles nodes and RuntimeClasses with the node policies: writes only Transom's own labels and taints.
//!
//! ```text
//! cache ─ reconcile ─┬─ node_state       the nodes of each policy, and which need a write
//!                    │    └─ nodes/      plan (one node, pure), labels (one row each), ownership, apply
//!                    ├─ guard            which workloads a taint would affect, evaluated by the engine
//!                    │    └─ guard/      cache (when to survey again), survey, affected (whether they changed)
//!                    ├─ pod_references   what templates and pods name, so that it is not removed
//!                    ├─ runtime_classes  RuntimeClasses: desired, plan, write
//!                    ├─ events           what was changed, one Event per policy and cause
//!                    └─ status           conditions of a policy; write
//! revert         reverts everything without a cache, for `transom uninstall`
//! ```

use std::time::Duration;

pub use self::reconcile::NodeController;

mod events;
pub(crate) mod guard;
pub mod node_state;
pub mod nodes;
pub(crate) mod pod_references;
mod reconcile;
pub mod revert;
pub(crate) mod runtime_classes;
pub(crate) mod status;

/// How many times as long as a survey of workloads took the next one waits at least: a large cluster changes all the time.
const SURVEY_REST: u32 = 10;

/// Intervals and limits of the node controller.
#[derive(Clone, Copy, Debug)]
pub struct NodeControllerSettings {
    /// Concurrent writes.
    pub in_flight: usize,
    /// How many nodes a pass writes before it reads the cache again: each heartbeat of a node since then costs the write of
    /// that node a conflict.
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
            in_flight: 4,
            at_once: 150,
            back_off: Duration::from_secs(1),
            guard_every: Duration::from_secs(60),
            affected_every: Duration::from_secs(60),
            status_every: Duration::from_secs(5),
            settle: Duration::from_millis(200),
            know_registered: Duration::from_secs(10),
        }
    }
}
