//! Which stored objects to list again: because policies or facts have changed, because an object that represented
//! others is gone, or because reports are missing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::invalidation::Invalidation;
use crate::cluster::rate_limit::backoff_interval;
use crate::cluster::stored::ObjectList;
use crate::model::workload::Kind;

/// The objects to list again, by kind. The feed of a kind takes them.
#[derive(Debug)]
pub struct RereadQueue {
    kinds: HashMap<Kind, KindQueue>,
    deferred: Mutex<DeferredRereads>,
}

#[derive(Debug, Default)]
struct KindQueue {
    wanted: Mutex<Invalidation>,
    added: Notify,
}

impl KindQueue {
    fn add(&self, more: Invalidation) {
        if more == Invalidation::None {
            return;
        }
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        *wanted = std::mem::take(&mut *wanted).and(more);
        self.added.notify_one();
    }

    fn take(&self) -> Invalidation {
        std::mem::take(&mut *self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RereadQueue {
    /// Nothing to list again, of these lists.
    pub fn new(lists: &[ObjectList], now: Instant) -> Self {
        RereadQueue {
            kinds: (lists.iter())
                .map(|list| (list.kind, KindQueue::default()))
                .collect(),
            deferred: Mutex::new(DeferredRereads::new(now)),
        }
    }

    /// Adds objects of all kinds.
    pub fn add_all(&self, more: &Invalidation) {
        for kind in self.kinds.values() {
            kind.add(more.clone());
        }
    }

    /// Adds objects of one kind.
    pub fn add(&self, kind: Kind, more: Invalidation) {
        if let Some(queue) = self.kinds.get(&kind) {
            queue.add(more);
        }
    }

    /// Takes everything that was requested for a kind until now.
    pub fn take(&self, kind: Kind) -> Invalidation {
        self.kinds.get(&kind).map(KindQueue::take).unwrap_or_default()
    }

    /// Waits for a request for a kind.
    pub async fn next(&self, kind: Kind) -> Invalidation {
        let Some(queue) = self.kinds.get(&kind) else {
            return std::future::pending().await;
        };
        loop {
            let wanted = queue.take();
            if wanted != Invalidation::None {
                return wanted;
            }
            queue.added.notified().await;
        }
    }

    /// Reports are missing in these namespaces, and only another list restores them. It waits until it is due.
    pub fn defer(&self, more: Invalidation) {
        let mut deferred = self.deferred();
        deferred.wanted = std::mem::take(&mut deferred.wanted).and(more);
    }

    /// Adds what was deferred and is due. `retry`: the first delay between two attempts. `is_idle`: whether nothing
    /// waits to be written.
    pub fn add_due(&self, now: Instant, retry: Duration, is_idle: bool) {
        let due = self.deferred().due(now, retry, is_idle);
        self.add_all(&due);
    }

    fn deferred(&self) -> MutexGuard<'_, DeferredRereads> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What to list again with back-off, for as long as listing does not help. Pure.
#[derive(Debug)]
struct DeferredRereads {
    wanted: Invalidation,
    last: Instant,
    /// How many lists in a row did not help.
    attempts: u32,
}

impl DeferredRereads {
    fn new(now: Instant) -> Self {
        DeferredRereads {
            wanted: Invalidation::None,
            last: now,
            attempts: 0,
        }
    }

    fn due(&mut self, now: Instant, retry: Duration, is_idle: bool) -> Invalidation {
        let wait = backoff_interval(retry, self.attempts);
        let elapsed = now.duration_since(self.last);
        if self.wanted == Invalidation::None {
            if elapsed >= wait * 2 {
                self.attempts = 0;
            }
            return Invalidation::None;
        }
        if elapsed < wait || !is_idle {
            return Invalidation::None;
        }
        self.last = now;
        self.attempts = self.attempts.saturating_add(1);
        std::mem::take(&mut self.wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_secs(10);

    fn shop() -> Invalidation {
        Invalidation::None.with("shop".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_help_is_listed_ever_more_seldom_and_soon_again_after_a_quiet_time() {
        let mut now = Instant::now();
        let mut deferred = DeferredRereads::new(now);
        let mut waits = Vec::new();
        for _ in 0..4 {
            deferred.wanted = shop();
            let before = now;
            while deferred.due(now, RETRY, true) == Invalidation::None {
                now += Duration::from_secs(1);
            }
            waits.push(now - before);
        }
        assert_eq!(waits[0], RETRY);
        assert!(waits.is_sorted() && waits[3] > waits[0], "{waits:?}");
        now += waits[3] * 8;
        assert_eq!(deferred.due(now, RETRY, true), Invalidation::None);
        deferred.wanted = shop();
        now += RETRY;
        assert_eq!(deferred.due(now, RETRY, true), shop());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_listed_again_while_reports_wait_to_be_written() {
        let queue = RereadQueue::new(&ObjectList::all(&[]), Instant::now());
        queue.defer(shop());
        queue.defer(Invalidation::None.with("web".to_owned()));
        let late = Instant::now() + RETRY * 2;
        let lists = ObjectList::all(&[]);
        queue.add_due(late, RETRY, false);
        assert_eq!(queue.take(lists[0].kind), Invalidation::None);
        queue.add_due(late, RETRY, true);
        for list in lists {
            let both = Invalidation::In(["shop".to_owned(), "web".to_owned()].into());
            assert_eq!(queue.take(list.kind), both, "{}", list.path);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_come_before_they_are_taken_are_taken_together() {
        let queue = RereadQueue::new(&ObjectList::all(&[]), Instant::now());
        let (deployments, jobs) = (Kind::Deployment, Kind::Job);
        queue.add(deployments, shop());
        queue.add(deployments, Invalidation::All);
        queue.add(jobs, Invalidation::None);
        assert_eq!(queue.next(deployments).await, Invalidation::All);
        let nothing = tokio::time::timeout(Duration::from_secs(1), queue.next(jobs));
        assert!(nothing.await.is_err());
    }
}
