//! What the controller of new nodes has found out, for the statuses of node policies, which another controller writes.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::FailedImage;

/// The new nodes of one policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StartupOfPolicy {
    /// How many wait.
    pub starting: usize,
    /// How many got their images in time.
    pub warm: usize,
    /// How many did not.
    pub late: usize,
    /// Images that could not be pulled.
    pub failed: BTreeSet<FailedImage>,
    /// The reason and the message of a problem that concerns all of them.
    pub problem: Option<(&'static str, String)>,
}

/// The new nodes of each policy, by name.
pub type StartupStates = BTreeMap<String, StartupOfPolicy>;
