//! Which events were counted: a rotated set may hold one twice, and copies of a log overlap.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash};

/// How many are remembered: about 80 MiB of them.
const MOST: usize = 4 << 20;

/// The events that were counted. Only those that tell something of Transom come here.
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
    /// Whether an event comes for the first time. A client may choose its audit ID itself, so that alone says nothing.
    pub fn is_new(&mut self, event: impl Hash) -> bool {
        let event = self.hasher.hash_one(event);
        if self.events.len() < self.most {
            return self.events.insert(event);
        }
        self.is_full = true;
        !self.events.contains(&event)
    }

    /// Whether there were more than are remembered: an event that comes twice later is counted twice.
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
