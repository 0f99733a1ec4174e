//! A pause that doubles with each failure.

use std::time::Duration;

/// The pauses between attempts of which each fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DoublingPause {
    /// The pause after the first failure.
    pub first: Duration,
    pub longest: Duration,
}

impl DoublingPause {
    /// The pause after another failure, of which there were so many before.
    pub fn after(self, failures: u32) -> Duration {
        // More doublings than this are longer than any longest pause.
        self.first.saturating_mul(1 << failures.min(16)).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_the_longest_one_after_any_number_of_failures() {
        let pause = DoublingPause {
            first: Duration::from_millis(50),
            longest: Duration::from_secs(1),
        };
        let pauses = [0, 1, 2, 3, 4, 5, 6, u32::MAX].map(|failures| pause.after(failures).as_millis());
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
    }
}
