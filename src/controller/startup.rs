//! The start gate: removes the startup taint from new nodes, immediately if no policy with `startup` selects them, else when
//! their images are there or the timeout is over. It never sets the taint.
//!
//! ```text
//! cache ─ controller ─┬─ survey    what the workloads of the cluster pull on the nodes, in a task of its own
//!                     ├─ memory    what was seen on each node: images, failures, and how it ended
//!                     ├─ pulls     the pods that pull, as they are stored
//!                     ├─ gate      plan: which nodes are released, and which pods created and deleted (pure)
//!                     ├─ puller    the shape of these pods; puller_pods: lists, creates and deletes them
//!                     └─ news      Events of nodes, and metrics; startup_states: what the status of policies shows
//! ```

use std::time::Duration;

pub use self::controller::{StartupController, StartupParts};
pub use self::news::StartupMetrics;

mod controller;
mod gate;
mod memory;
mod news;
mod puller;
mod puller_pods;
pub(crate) mod pulls;
mod survey;
#[cfg(test)]
mod tests;

/// Intervals of the controller.
#[derive(Clone, Copy, Debug)]
pub struct StartupSettings {
    /// How often pods that pull are read while nodes wait.
    pub poll: Duration,
    /// How long changes are collected before a pass.
    pub settle: Duration,
    /// How often the workloads are read while nodes wait.
    pub survey_every: Duration,
    /// The same if nodes joined since.
    pub survey_again: Duration,
    /// Concurrent writes.
    pub in_flight: usize,
}

impl Default for StartupSettings {
    fn default() -> Self {
        StartupSettings {
            poll: Duration::from_secs(5),
            settle: Duration::from_millis(200),
            survey_every: Duration::from_secs(60),
            survey_again: Duration::from_secs(10),
            in_flight: 8,
        }
    }
}

/// Transom's own namespace, and the account of the pods that pull.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PullerAccount {
    pub namespace: String,
    /// The name of the ServiceAccount, which has no rights; `None`: no pod is created.
    pub name: Option<String>,
}
