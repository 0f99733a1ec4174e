//! The clock of the API server, as its answers show it: the API server checks the validity of Transom's certificate, so
//! its clock decides, not that of this machine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hyper::HeaderMap;
use hyper::header::DATE;
use jiff::fmt::rfc2822::DateTimeParser;
use tokio::time::Instant;

/// How far a `Date` may be from the clock to count immediately.
const JUMP: Duration = Duration::from_secs(3600);
/// How long answers must agree on a jump before the clock follows: of several API servers, one may be wrong.
const SETTLED: Duration = Duration::from_secs(600);

/// A `Date`, and when it arrived.
#[derive(Clone, Copy, Debug)]
struct SeenDate {
    date: SystemTime,
    at: Instant,
}

impl SeenDate {
    fn now(self) -> Option<SystemTime> {
        self.date.checked_add(self.at.elapsed())
    }

    /// Whether a date that arrives now continues this one.
    fn is_continued_by(self, date: SystemTime) -> bool {
        let now = self.now().unwrap_or(self.date);
        let difference = date.duration_since(now).or_else(|_| now.duration_since(date));
        difference.is_ok_and(|difference| difference <= JUMP)
    }
}

#[derive(Debug, Default)]
struct SeenDates {
    last: Option<SeenDate>,
    /// The first of the dates that are far from the last one, and agree.
    jump: Option<SeenDate>,
}

/// The `Date` of the answers of the API server. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<Mutex<SeenDates>>);

impl ServerClock {
    /// The time of the API server; this machine's if no answer had a `Date`. Between two answers it follows the monotonic
    /// clock, which does not jump.
    pub fn now(&self) -> SystemTime {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).last;
        last.and_then(SeenDate::now).unwrap_or_else(SystemTime::now)
    }

    /// Reads the headers of an answer.
    pub fn observe(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok()) else {
            return;
        };
        let (date, at) = (date.into(), Instant::now());
        let seen = SeenDate { date, at };
        let mut dates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if dates.last.is_some_and(|last| !last.is_continued_by(date)) {
            let jump = *dates.jump.get_or_insert(seen);
            if !jump.is_continued_by(date) {
                dates.jump = Some(seen);
                return;
            }
            if jump.at.elapsed() < SETTLED {
                return;
            }
        }
        *dates = SeenDates {
            last: Some(seen),
            jump: None,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use hyper::header::HeaderValue;

    use super::*;

    fn dated(date: &'static str) -> HeaderMap {
        [(DATE, HeaderValue::from_static(date))].into_iter().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_is_that_of_the_last_answer_with_a_date_and_goes_on_without_this_machines() {
        let clock = ServerClock::default();
        let here = SystemTime::now();
        assert!(
            clock
                .now()
                .duration_since(here)
                .is_ok_and(|ahead| ahead < Duration::from_secs(60))
        );

        clock.observe(&dated("Sun, 06 Nov 1994 08:49:37 GMT"));
        let date = UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(clock.now(), date);
        tokio::time::advance(Duration::from_secs(90)).await;
        for nothing in [HeaderMap::new(), dated("yesterday")] {
            clock.observe(&nothing);
            assert_eq!(clock.now(), date + Duration::from_secs(90));
        }
        clock.observe(&dated("Sun, 06 Nov 1994 08:49:38 GMT"));
        assert_eq!(
            clock.now(),
            date + Duration::from_secs(1),
            "the last answer applies"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn one_wrong_api_server_of_several_does_not_move_the_clock() {
        let clock = ServerClock::default();
        let date = UNIX_EPOCH + Duration::from_secs(784_111_777);
        clock.observe(&dated("Sun, 06 Nov 1994 08:49:37 GMT"));
        for _ in 0..3 {
            clock.observe(&dated("Tue, 06 Nov 2096 08:49:37 GMT"));
            assert_eq!(clock.now(), date);
            tokio::time::advance(SETTLED).await;
            clock.observe(&dated("Sun, 06 Nov 1994 08:49:37 GMT"));
            assert_eq!(clock.now(), date, "a right answer came in between");
        }
        // All answers agree for ten minutes.
        clock.observe(&dated("Mon, 06 Nov 1995 08:49:37 GMT"));
        tokio::time::advance(SETTLED).await;
        clock.observe(&dated("Mon, 06 Nov 1995 08:59:37 GMT"));
        assert_eq!(clock.now(), date + Duration::from_secs(365 * 24 * 3600 + 600));
    }
}
