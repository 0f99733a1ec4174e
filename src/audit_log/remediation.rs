//! What became of a workload that was denied, or would have been.

/// How a workload is now.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CurrentState {
    /// It is there, and its next create would be refused, or would be if `validation` were Deny: for these rules.
    Unmended(Vec<String>),
    /// That is not known: why.
    Unknown(String),
    /// It is there, and nothing in it would be refused.
    Mended,
    /// It is not there any more, or has ended.
    Gone,
}

impl CurrentState {
    /// In one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            CurrentState::Unmended(_) => "unmended",
            CurrentState::Unknown(_) => "unknown",
            CurrentState::Mended => "mended",
            CurrentState::Gone => "gone",
        }
    }

    /// Whether it may have to be mended.
    pub fn is_open(&self) -> bool {
        matches!(self, CurrentState::Unmended(_) | CurrentState::Unknown(_))
    }
}
