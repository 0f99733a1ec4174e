//! What the controller of new nodes has found out, for the statuses of node policies, which another controller writes.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::FailedImage;

/// What is added about nodes of a policy for which another program pulls.
pub const NOT_PULLED_HERE: &str = "; with puller: None, Transom sees only images of pods on the node and those in status.images, by \
    default the 50 largest, so others may be there, too";

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
    /// Whether another program pulls.
    pub others_pull: bool,
    /// The reason and the message of a problem that concerns all of them.
    pub problem: Option<(&'static str, String)>,
}

/// The new nodes of each policy, by name.
pub type StartupStates = BTreeMap<String, StartupOfPolicy>;

/// The new nodes of a policy. `is_gating`: whether it has `startup`; without it, it has a state only if there is a problem.
pub fn startup_of(states: &StartupStates, policy: &str, is_gating: bool) -> Option<StartupOfPolicy> {
    let state = states.get(policy).cloned();
    let state = state.or_else(|| is_gating.then(StartupOfPolicy::default));
    state.filter(|state| is_gating || state.problem.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_without_startup_shows_problems_only() {
        let problem = StartupOfPolicy {
            problem: Some(("ReleaseFailed", "no".to_owned())),
            ..StartupOfPolicy::default()
        };
        let starting = StartupOfPolicy {
            starting: 1,
            ..StartupOfPolicy::default()
        };
        let states = [("bad".to_owned(), problem), ("was".to_owned(), starting)];
        let states: StartupStates = states.into();
        let shown = ["bad", "was", "other"];
        let shown = |is_gating: bool| shown.map(|policy| startup_of(&states, policy, is_gating).is_some());
        assert_eq!(shown(true), [true, true, true]);
        assert_eq!(shown(false), [true, false, false]);
    }
}
