//! The current state of a workload that was denied, or would have been.

/// The current state of a workload.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CurrentState {
    /// It exists, and would be denied if it were created again, or with `validation.action: Deny`: for these
    /// rules.
    Open(Vec<String>),
    /// The state is unknown: the reason.
    Unknown(String),
    /// It exists, and nothing in it would be denied.
    Fixed,
    /// It does not exist any more, or has finished.
    Gone,
}

impl CurrentState {
    /// The state as one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            CurrentState::Open(_) => "open",
            CurrentState::Unknown(_) => "unknown",
            CurrentState::Fixed => "fixed",
            CurrentState::Gone => "gone",
        }
    }

    /// Whether it may still have to be fixed.
    pub fn is_open(&self) -> bool {
        matches!(self, CurrentState::Open(_) | CurrentState::Unknown(_))
    }
}
