//! The circuit breaker of one registry: after repeated failures it is asked by one look-up at a time, with growing
//! pauses. A pure value that is given the time.

use std::time::Duration;

use tokio::time::Instant;

/// After how many failures in a row new look-ups are refused.
const MOST_FAILURES: u32 = 3;
/// The pause after the first failure; doubled after each further one.
const FIRST: Duration = Duration::from_secs(5);
/// The longest pause, unless the registry asks for another one.
const LONGEST: Duration = Duration::from_secs(120);
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

    /// It did not answer, or asks to be left alone for `retry_after`.
    pub fn failed(&mut self, message: String, retry_after: Option<Duration>, now: Instant) {
        let before = self.failing.take();
        let times = before
            .as_ref()
            .map_or(0, |failing| failing.times)
            .saturating_add(1);
        let wait = FIRST.saturating_mul(1 << (times - 1).min(16)).min(LONGEST);
        let requested_wait = retry_after.map(|requested| requested.min(LONGEST_RETRY_AFTER));
        self.failing = Some(Failing {
            since: before.as_ref().map_or(now, |failing| failing.since),
            times,
            retry: now + requested_wait.map_or(wait, |requested| requested.max(wait)),
            is_open: times >= MOST_FAILURES
                || requested_wait.is_some()
                || before.is_some_and(|it| it.is_open),
            message,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(breaker: &mut Breaker, now: Instant) -> Duration {
        breaker.failed("no route".to_owned(), None, now);
        breaker.retry().unwrap() - now
    }

    #[test]
    fn a_registry_that_fails_is_queried_ever_later_and_one_answer_closes_the_circuit() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        let waits: Vec<u64> = (0..7).map(|_| fail(&mut breaker, now).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 120, 120]);
        assert!(breaker.is_open() && !breaker.has_answered());
        assert_eq!(breaker.failing(), Some((now, "no route")));
        assert!(breaker.succeeded(), "it was open");
        assert!(!breaker.is_open() && breaker.has_answered() && breaker.retry().is_none());
        assert_eq!(fail(&mut breaker, now), FIRST);
        assert!(!breaker.is_open(), "one failure is not enough");
        assert!(!breaker.succeeded());
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
