//! A token bucket: a rate with a burst.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket: a steady rate with a burst. The wait for the next token is never longer than the rate requires.
#[derive(Debug)]
pub struct TokenBucket {
    gap: Duration,
    saved: Duration,
    /// When the bucket will be full.
    full: Option<Instant>,
}

impl TokenBucket {
    /// `per_second` tokens per second, with a burst of `at_once`.
    pub fn new(per_second: u32, at_once: u32) -> Self {
        let gap = Duration::from_secs(1) / per_second.max(1);
        TokenBucket {
            gap,
            saved: gap * at_once.max(1),
            full: None,
        }
    }

    /// Takes a token, or returns how long to wait for one.
    ///
    /// # Errors
    /// The time until the next token, if none is left.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let full = self.full.unwrap_or(now).max(now) + self.gap;
        match full.duration_since(now).checked_sub(self.saved) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                self.full = Some(full);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_up_is_taken_at_once_and_then_the_rate_never_starves() {
        let start = Instant::now();
        let mut allowance = TokenBucket::new(2, 30);
        let taken =
            |allowance: &mut TokenBucket, now| (0..100).filter(|_| allowance.take(now).is_ok()).count();
        assert_eq!(taken(&mut allowance, start), 30);
        assert_eq!(allowance.take(start), Err(Duration::from_millis(500)));
        // At full speed it allows two per second.
        for second in 1..=600 {
            assert_eq!(
                taken(&mut allowance, start + Duration::from_secs(second)),
                2,
                "{second}"
            );
        }
        assert_eq!(
            taken(&mut allowance, start + Duration::from_secs(3600)),
            30,
            "not more"
        );
    }
}
