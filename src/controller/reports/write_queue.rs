//! The owners whose reports are to be written or deleted, in order: changes before rescans, and failed writes again after a
//! delay. Pure. It holds uids only: an object is read again when its report is written.

use std::collections::{BTreeSet, VecDeque};

use tokio::time::Instant;

/// The origin of an object. A change is written before a rescan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ObservationSource {
    /// A list of all objects, or of the objects of a namespace.
    List,
    /// A change, or the object itself.
    Watch,
}

/// The uids of owners, in the order of their writes.
#[derive(Debug, Default)]
pub struct WriteQueue {
    changes: VecDeque<Box<str>>,
    rescans: VecDeque<Box<str>>,
    later: BTreeSet<(Instant, Box<str>)>,
}

impl WriteQueue {
    /// Queues the report of an owner for writing.
    pub fn push(&mut self, uid: &str, source: ObservationSource) {
        match source {
            ObservationSource::List => self.rescans.push_back(uid.into()),
            ObservationSource::Watch => self.changes.push_back(uid.into()),
        }
    }

    /// Queues an owner for a later time.
    pub fn push_later(&mut self, uid: &str, due: Instant) {
        self.later.insert((due, uid.into()));
    }

    /// The owner whose report is written next.
    pub fn pop(&mut self, now: Instant) -> Option<Box<str>> {
        if let Some(uid) = self.changes.pop_front() {
            return Some(uid);
        }
        if self.later.first().is_some_and(|(due, _)| *due <= now) {
            return self.later.pop_first().map(|(_, uid)| uid);
        }
        self.rescans.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn changes_come_before_failed_writes_that_are_due_and_those_before_rescans() {
        let (mut queue, now) = (WriteQueue::default(), Instant::now());
        let later = now + Duration::from_secs(10);
        queue.push_later("failed", later);
        queue.push("rescan", ObservationSource::List);
        queue.push("another", ObservationSource::List);
        queue.push("change", ObservationSource::Watch);
        let mut pop = |now| queue.pop(now).map(String::from);
        assert_eq!(pop(now).as_deref(), Some("change"));
        assert_eq!(pop(now).as_deref(), Some("rescan"));
        assert_eq!(pop(later).as_deref(), Some("failed"));
        assert_eq!(pop(later).as_deref(), Some("another"));
        assert_eq!(pop(later), None);
    }
}
