//! The circuit breaker of a repository, or of a registry: after repeated failures one look-up at a time asks it, with growing
//! pauses. A pure value that is given the time.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::doubling_pause::DoublingPause;

/// After how many failures in a row new look-ups are refused.
const MOST_FAILURES: u32 = 3;
/// The longest pause, unless the registry asks for another one.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// The pauses between attempts.
const PAUSE: DoublingPause = DoublingPause {
    first: Duration::from_secs(5),
    longest: LONGEST_PAUSE,
};
/// The longest pause that a registry can ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

/// The state of a registry, from the results of its look-ups.
#[derive(Debug, Default)]
pub struct Breaker {
    failing: Option<Failing>,
    has_answered: bool,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    times: u32,
    retry: Instant,
    is_open: bool,
    message: String,
}

impl Breaker {
    /// Whether new look-ups are refused.
    pub fn is_open(&self) -> bool {
        self.failing.as_ref().is_some_and(|failing| failing.is_open)
    }

    /// Whether it has answered before.
    pub fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// When the next attempt is due, if the last one failed.
    pub fn retry(&self) -> Option<Instant> {
        self.failing.as_ref().map(|failing| failing.retry)
    }

    /// Since when it fails, and the last reason.
    pub fn failing(&self) -> Option<(Instant, &str)> {
        let failing = self.failing.as_ref()?;
        Some((failing.since, &failing.message))
    }

    /// It answered. Returns whether it had been refusing look-ups.
    pub fn succeeded(&mut self) -> bool {
        self.has_answered = true;
        self.failing.take().is_some_and(|failing| failing.is_open)
    }

    /// It did not answer, or asks to be left alone for `retry_after`. Returns when the next attempt is due. Look-ups that
    /// end during a pause began before it, and do not make it longer.
    pub fn failed(&mut self, message: String, retry_after: Option<Duration>, now: Instant) -> Instant {
        let requested = retry_after.map(|requested| now + requested.min(LONGEST_RETRY_AFTER));
        let before = self.failing.take();
        let (since, mut times, mut retry, was_open) = match before {
            Some(before) => (before.since, before.times, before.retry, before.is_open),
            None => (now, 0, now, false),
        };
        if !was_open || retry <= now {
            retry = now + PAUSE.after(times);
            times = times.saturating_add(1);
        }
        retry = requested.map_or(retry, |requested| requested.max(retry));
        self.failing = Some(Failing {
            since,
            times,
            retry,
            is_open: was_open || times >= MOST_FAILURES || requested.is_some(),
            message,
        });
        retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(breaker: &mut Breaker, now: Instant) -> Instant {
        breaker.failed("no route".to_owned(), None, now)
    }

    #[test]
    fn a_registry_that_fails_is_queried_ever_later_and_one_answer_closes_the_circuit() {
        let start = Instant::now();
        let (mut breaker, mut now) = (Breaker::default(), start);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let retry = fail(&mut breaker, now);
            assert_eq!(breaker.retry(), Some(retry));
            pauses.push((retry - now).as_secs());
            now = retry;
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 120, 120]);
        assert!(breaker.is_open() && !breaker.has_answered());
        assert_eq!(breaker.failing(), Some((start, "no route")));
        assert!(breaker.succeeded(), "it was open");
        assert!(!breaker.is_open() && breaker.has_answered() && breaker.retry().is_none());
        assert_eq!(fail(&mut breaker, now), now + PAUSE.first);
        assert!(!breaker.is_open(), "one failure is not enough");
        assert!(!breaker.succeeded());
    }

    #[test]
    fn look_ups_that_began_before_a_pause_do_not_make_it_longer() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        let retries: Vec<Instant> = (0..6).map(|_| fail(&mut breaker, now)).collect();
        assert_eq!(retries[2..], [now + 4 * PAUSE.first; 4]);
    }

    #[test]
    fn retry_after_is_respected_within_an_hour() {
        let now = Instant::now();
        for (requested, waits) in [(1, 5), (600, 600), (1_000_000, 3600)] {
            let mut breaker = Breaker::default();
            breaker.failed(
                "too many requests".to_owned(),
                Some(Duration::from_secs(requested)),
                now,
            );
            assert!(breaker.is_open(), "{requested}");
            assert_eq!(
                breaker.retry(),
                Some(now + Duration::from_secs(waits)),
                "{requested}"
            );
        }
    }
}
