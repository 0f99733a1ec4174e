//! What became of a workload that was denied, or would have been.

/// How a workload is now.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Now {
    /// It is there, and its next create would be refused, or would be if `validation` were Deny: for these rules.
    Unmended(Vec<String>),
    /// That is not known: why.
    Unknown(String),
    /// It is there, and nothing in it would be refused.
    Mended,
    /// It is not there any more, or has ended.
    Gone,
}

impl Now {
    /// In one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Now::Unmended(_) => "unmended",
            Now::Unknown(_) => "unknown",
            Now::Mended => "mended",
            Now::Gone => "gone",
        }
    }

    /// Whether it may have to be mended.
    pub fn is_open(&self) -> bool {
        matches!(self, Now::Unmended(_) | Now::Unknown(_))
    }
}
