//! Rate limits and back-offs: a steady rate of writes, growing delays if another writer reverts them, and growing
//! intervals between surveys.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::errors::ApiError;
use crate::model::doubling_pause::DoublingPause;

/// A steady rate, shared by all writers of a controller.
#[derive(Debug)]
pub struct RateLimiter {
    gap: Duration,
    next: Mutex<Instant>,
}

impl RateLimiter {
    /// A limit of `turns` per second.
    pub fn per_second(turns: u32) -> Self {
        RateLimiter {
            gap: Duration::from_secs(1) / turns.max(1),
            next: Mutex::new(Instant::now()),
        }
    }

    /// Waits until the next request is allowed.
    pub async fn turn(&self) {
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = (*next).max(Instant::now());
            *next = at + self.gap;
            at
        };
        tokio::time::sleep_until(at).await;
    }
}

/// The delays between attempts of a watch that fails: they double up to eight seconds, or two if the API server does not have
/// the kind, minus a random part of up to a quarter, so that replicas do not retry in step.
///
/// kube's default, taken from client-go, grows to a minute: a replica would miss policies for that long after their
/// CustomResourceDefinition was deleted and created again.
///
/// A complete list resets the delay, and no other event does: kube's watcher sends the event `Init` before each list, also
/// before one that fails. A watch whose version has expired is listed again immediately, because the API server works: after a
/// CustomResourceDefinition is created again, that happens twice, once with the old version, and once before its cache is
/// filled. Such lists have delays of their own, which only a time without them resets.
#[derive(Debug, Default)]
pub struct WatchBackoff {
    failures: Attempts,
    expired: Attempts,
}

#[derive(Debug, Default)]
struct Attempts {
    count: u32,
    /// When the last delay ends.
    until: Option<Instant>,
}

impl WatchBackoff {
    const FIRST: Duration = Duration::from_millis(500);
    const LONGEST: Duration = Duration::from_secs(8);
    const LONGEST_WITHOUT_KIND: Duration = Duration::from_secs(2);
    /// The time without a failure after which the delay starts again with the first one.
    const FORGET: Duration = Duration::from_secs(60);

    /// A list is complete.
    pub fn listed(&mut self) {
        self.failures = Attempts::default();
    }

    /// The delay after a failure.
    pub fn after(&mut self, error: &ApiError) -> Duration {
        match error {
            ApiError::Expired(_) => self.expired.next(Self::LONGEST),
            ApiError::NotFound => self.failures.next(Self::LONGEST_WITHOUT_KIND),
            _ => self.failures.next(Self::LONGEST),
        }
    }
}

impl Attempts {
    fn next(&mut self, longest: Duration) -> Duration {
        let now = Instant::now();
        if self
            .until
            .is_some_and(|until| now >= until + WatchBackoff::FORGET)
        {
            self.count = 0;
        }
        let pauses = DoublingPause {
            first: WatchBackoff::FIRST,
            longest,
        };
        let pause = pauses.after(self.count);
        self.count = self.count.saturating_add(1);
        // A keyed hash of nothing is random, because every instance has another key.
        let random = RandomState::new().hash_one(()) % 1_024;
        let off = pause / 4 * u32::try_from(random).unwrap_or_default() / 1_024;
        let pause = pause.saturating_sub(off);
        self.until = Some(now + pause);
        pause
    }
}

/// When an object may be written again: the delay grows with the number of writes, because another writer reverts
/// them.
#[derive(Debug)]
pub struct WriteBackoff {
    pauses: DoublingPause,
    written: HashMap<String, WriteHistory>,
}

#[derive(Clone, Copy, Debug)]
struct WriteHistory {
    times: u32,
    last: Instant,
    next: Instant,
}

impl WriteBackoff {
    const MOST: Duration = Duration::from_secs(300);
    /// The time without a write after which the back-off resets.
    const FORGET: Duration = Duration::from_secs(900);
    /// The number of writes after which another writer is assumed to revert them.
    const RESTLESS: u32 = 5;

    /// Delays of `first`, twice that, and so on.
    pub fn new(first: Duration) -> Self {
        WriteBackoff {
            pauses: DoublingPause {
                first,
                longest: Self::MOST,
            },
            written: HashMap::new(),
        }
    }

    /// When an object may be written; `None`: now.
    pub fn until(&self, key: &str, now: Instant) -> Option<Instant> {
        let next = self.written.get(key)?.next;
        (next > now).then_some(next)
    }

    /// Records a write, or a failed one.
    pub fn wrote(&mut self, key: &str, now: Instant) {
        let before = (self.written.get(key)).filter(|written| now < written.last + Self::FORGET);
        let times = before.map_or(0, |written| written.times);
        let written = WriteHistory {
            times: times.saturating_add(1),
            last: now,
            next: now + self.pauses.after(times),
        };
        self.written.insert(key.to_owned(), written);
    }

    /// Whether an object is written repeatedly because another writer reverts it.
    pub fn is_restless(&self, key: &str) -> bool {
        self.written
            .get(key)
            .is_some_and(|written| written.times >= Self::RESTLESS)
    }

    /// Drops objects that were not written for long.
    pub fn forget_quiet(&mut self, now: Instant) {
        self.written
            .retain(|_, written| now < written.last + Self::FORGET);
    }
}

/// The interval until the next survey after `in_vain` surveys without a change: doubled each time, up to fifteen
/// times `every`. The cause may persist for months.
pub fn backoff_interval(every: Duration, in_vain: u32) -> Duration {
    let pauses = DoublingPause {
        first: every,
        longest: every.saturating_mul(15),
    };
    pauses.after(in_vain.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable() -> ApiError {
        ApiError::Unavailable("503".to_owned())
    }

    #[test]
    fn a_watch_that_is_refused_is_tried_again_within_eight_seconds() {
        for (error, doublings) in [
            (unavailable(), 4),
            (ApiError::Expired(None), 4),
            (ApiError::NotFound, 2),
        ] {
            let mut backoff = WatchBackoff::default();
            let pauses: Vec<Duration> = (0..100).map(|_| backoff.after(&error)).collect();
            for (attempt, pause) in pauses.iter().enumerate() {
                let whole = WatchBackoff::FIRST * (1 << attempt.min(doublings));
                assert!(*pause <= whole && *pause >= whole * 3 / 4, "{attempt}: {pause:?}");
            }
            assert!(pauses[4..].iter().any(|pause| pause != &pauses[4]), "{pauses:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_or_a_while_without_failure_resets_the_delay_and_lists_alone_do_not_hurry_expired_watches()
    {
        let mut backoff = WatchBackoff::default();
        let fail =
            |backoff: &mut WatchBackoff, error: &ApiError| (0..10).map(|_| backoff.after(error)).last();
        assert!(fail(&mut backoff, &unavailable()) > Some(WatchBackoff::LONGEST / 2));
        backoff.listed();
        assert!(backoff.after(&unavailable()) <= WatchBackoff::FIRST);
        assert!(fail(&mut backoff, &unavailable()) > Some(WatchBackoff::LONGEST / 2));
        tokio::time::sleep(WatchBackoff::FORGET * 2).await;
        assert!(backoff.after(&unavailable()) <= WatchBackoff::FIRST);
        let expired = ApiError::Expired(None);
        for _ in 0..10 {
            backoff.listed();
            backoff.after(&expired);
        }
        assert!(backoff.after(&expired) > WatchBackoff::LONGEST / 2);
    }

    #[test]
    fn what_is_undone_again_and_again_is_written_ever_later() {
        let start = Instant::now();
        let mut back_off = WriteBackoff::new(Duration::from_secs(1));
        let (mut now, mut writes) = (start, 0);
        while now < start + Duration::from_secs(3600) {
            back_off.wrote("w1", now);
            writes += 1;
            now = back_off.until("w1", now).unwrap();
        }
        assert!((10..30).contains(&writes), "{writes} writes in an hour");
        assert!(back_off.is_restless("w1") && !back_off.is_restless("w2"));
        back_off.forget_quiet(now + WriteBackoff::FORGET);
        assert!(!back_off.is_restless("w1"));
    }

    #[tokio::test]
    async fn turns_come_no_faster_than_the_pace() {
        let rate_limiter = RateLimiter::per_second(1000);
        let start = Instant::now();
        for _ in 0..101 {
            rate_limiter.turn().await;
        }
        assert!(start.elapsed() >= Duration::from_millis(100));
    }

    #[test]
    fn a_guard_that_says_no_is_queried_ever_later_up_to_a_quarter_of_an_hour() {
        let minutes: Vec<u64> = (1..=6)
            .chain([u32::MAX])
            .map(|refusals| backoff_interval(Duration::from_secs(60), refusals).as_secs() / 60)
            .collect();
        assert_eq!(minutes, [1, 2, 4, 8, 15, 15, 15]);
    }
}
