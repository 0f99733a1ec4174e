//! The clock of the API server, as its answers show it: the API server checks the validity of Transom's certificate, so
//! its clock decides, not that of this machine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use hyper::HeaderMap;
use hyper::header::DATE;
use jiff::fmt::rfc2822::DateTimeParser;
use tokio::time::Instant;

/// The `Date` of the last answer, and when it arrived. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<Mutex<Option<(SystemTime, Instant)>>>);

impl ServerClock {
    /// The time of the API server; this machine's if no answer had a `Date`. Between two answers it follows the monotonic
    /// clock, which does not jump.
    pub fn now(&self) -> SystemTime {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = seen.and_then(|(date, at)| date.checked_add(at.elapsed()));
        now.unwrap_or_else(SystemTime::now)
    }

    /// Reads the headers of an answer.
    pub(super) fn observe(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        if let Some(date) = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok()) {
            let seen = Some((date.into(), Instant::now()));
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        }
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
}
