//! What became of a workload that was denied, or would have been.

/// How a workload is now.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CurrentState {
    /// It is there, and its next create would be refused, or would be if `validation` were Deny: for these rules.
    Open(Vec<String>),
    /// That is not known: why.
    Unknown(String),
    /// It is there, and nothing in it would be refused.
    Fixed,
    /// It is not there any more, or has ended.
    Gone,
}

impl CurrentState {
    /// In one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            CurrentState::Open(_) => "open",
            CurrentState::Unknown(_) => "unknown",
            CurrentState::Fixed => "fixed",
            CurrentState::Gone => "gone",
        }
    }

    /// Whether it may have to be fixed.
    pub fn is_open(&self) -> bool {
        matches!(self, CurrentState::Open(_) | CurrentState::Unknown(_))
    }
}
