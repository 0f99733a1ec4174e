//! The watches and lists that fail repeatedly. One failure is normal, for example if an API server restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// How many failures in a row are a problem: with the first delays of a watch, about two seconds.
const REPEATEDLY: u32 = 3;
/// An activity that has not failed for this long works: a quiet watch reports nothing else. Longer than the longest delay
/// between two attempts and the timeout of a request.
const SETTLED: Duration = Duration::from_secs(60);

/// The current problems, by activity.
#[derive(Debug, Default)]
pub struct WatchProblems(BTreeMap<String, WatchProblem>);

#[derive(Debug)]
struct WatchProblem {
    why: String,
    failures: u32,
    last: Instant,
}

impl WatchProblem {
    fn is_current(&self, now: Instant) -> bool {
        now < self.last + SETTLED
    }
}

impl WatchProblems {
    /// An activity fails. Returns whether to log it: it failed repeatedly, and not for the same reason before.
    pub fn fails(&mut self, activity: &str, why: String, now: Instant) -> bool {
        let before = self.0.get(activity).filter(|before| before.is_current(now));
        let failures = before.map_or(1, |before| before.failures.saturating_add(1));
        let is_known = before.is_some_and(|before| before.failures >= REPEATEDLY && before.why == why);
        let problem = WatchProblem {
            why,
            failures,
            last: now,
        };
        self.0.insert(activity.to_owned(), problem);
        failures >= REPEATEDLY && !is_known
    }

    /// An activity works again: its problem ends.
    pub fn works(&mut self, activity: &str) {
        self.0.remove(activity);
    }

    /// Whether nothing has failed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first activity that fails repeatedly, and why.
    pub fn first(&self, now: Instant) -> Option<(&str, &str)> {
        let mut problems = self.0.iter();
        let (activity, problem) =
            problems.find(|(_, problem)| problem.failures >= REPEATEDLY && problem.is_current(now))?;
        Some((activity, &problem.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_what_fails_repeatedly_and_it_is_logged_once_until_its_reason_changes() {
        let (mut problems, now) = (WatchProblems::default(), Instant::now());
        let mut fails = |why: &str, now| problems.fails("cannot watch /api/v1/pods", why.to_owned(), now);
        let logged = ["no", "no", "no", "no", "still not", "still not"].map(|why| fails(why, now));
        assert_eq!(logged, [false, false, true, false, true, false]);
        assert!(!fails("no", now + SETTLED), "one failure after a quiet time");
    }

    #[test]
    fn a_problem_lasts_until_its_activity_works_or_does_not_fail_any_more() {
        let (mut problems, now) = (WatchProblems::default(), Instant::now());
        for activity in ["cannot watch a", "cannot watch b"] {
            for _ in 0..REPEATEDLY {
                problems.fails(activity, "no".to_owned(), now);
            }
        }
        assert_eq!(problems.first(now), Some(("cannot watch a", "no")));
        problems.works("cannot watch a");
        assert_eq!(problems.first(now), Some(("cannot watch b", "no")));
        assert_eq!(problems.first(now + SETTLED), None);
    }
}
