//! Detects events that were already counted: a rotated set of logs may contain an event twice, and copies of
//! a log overlap.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash};

/// The maximum number of remembered events: about 80 MiB.
const MOST: usize = 4 << 20;

/// The counted events. Only events about Transom are added.
pub struct EventDedup {
    events: HashSet<u64>,
    hasher: RandomState,
    most: usize,
    is_full: bool,
}

impl Default for EventDedup {
    fn default() -> Self {
        EventDedup {
            events: HashSet::new(),
            hasher: RandomState::new(),
            most: MOST,
            is_full: false,
        }
    }
}

impl EventDedup {
    /// Whether an event is new. A client can choose its audit ID, so the ID alone is not enough.
    pub fn is_new(&mut self, event: impl Hash) -> bool {
        let event = self.hasher.hash_one(event);
        if self.events.len() < self.most {
            return self.events.insert(event);
        }
        self.is_full = true;
        !self.events.contains(&event)
    }

    /// Whether the maximum is exceeded: later duplicates are counted twice.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_is_known_and_memory_has_an_end() {
        let mut seen = EventDedup {
            most: 3,
            ..EventDedup::default()
        };
        assert!(["a", "b", "c"].iter().all(|event| seen.is_new(event)));
        assert!(!seen.is_new("a"));
        assert!(seen.is_new("d") && seen.is_new("d") && seen.is_full());
        assert!(!seen.is_new("c"));
        assert_eq!(seen.events.len(), 3);
    }
}
