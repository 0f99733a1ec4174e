//! Detects another writer that repeatedly overwrites the `caBundle`, and identifies it; pure.

use std::time::Duration;

use tokio::time::Instant;

/// This many overwrites within [`WITHIN`] are not a coincidence.
const TIMES: usize = 3;
const WITHIN: Duration = Duration::from_secs(60);

/// What the leader has published in both configurations, and how often it was overwritten.
#[derive(Debug, Default)]
pub(super) struct CaBundleConflict {
    published: [Option<String>; 2],
    /// The last times that it was overwritten, at most [`TIMES`], the oldest first.
    overwritten: Vec<Instant>,
    message: String,
}

impl CaBundleConflict {
    /// The leader has published a bundle in one of the two.
    pub(super) fn published(&mut self, which: usize, bundle: &str) {
        if let Some(published) = self.published.get_mut(which) {
            *published = Some(bundle.to_owned());
        }
    }

    /// The bundle is about to be published. If it was published before, `writers` have overwritten it, in the
    /// configuration of this title.
    pub(super) fn publishes(
        &mut self,
        which: usize,
        bundle: &str,
        title: &str,
        writers: &[String],
        now: Instant,
    ) {
        if self
            .published
            .get(which)
            .is_none_or(|it| it.as_deref() != Some(bundle))
        {
            return;
        }
        // A failed write is retried, and must not be recorded as another overwrite.
        self.published[which] = None;
        if self.overwritten.len() == TIMES {
            self.overwritten.remove(0);
        }
        self.overwritten.push(now);
        let who = match writers {
            [] => "a writer without a field manager".to_owned(),
            [writer] => format!("the field manager {writer:?}"),
            writers => format!("one of the field managers {}", writers.join(", ")),
        };
        self.message = format!(
            "{who} overwrites the caBundle of the {title} repeatedly, and the leader restores it: in between the API server \
             does not trust Transom, and follows failurePolicy; remove caBundle from what it writes, and from what it restores (GitOps: ignore webhooks[].clientConfig.caBundle)"
        );
    }

    /// The message about the other writer, as long as it keeps overwriting.
    pub(super) fn message(&self, now: Instant) -> Option<String> {
        let first = self
            .overwritten
            .first()
            .filter(|_| self.overwritten.len() == TIMES)?;
        (now.duration_since(*first) < WITHIN).then(|| self.message.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_overwrites_again_and_again_is_named_until_it_stops() {
        let start = Instant::now();
        let second = |seconds: u64| start + Duration::from_secs(seconds);
        let mut contest = CaBundleConflict::default();
        let writers = ["argocd-controller".to_owned()];
        let overwrite = |contest: &mut CaBundleConflict, bundle: &str, at: u64| {
            contest.publishes(
                0,
                bundle,
                "MutatingWebhookConfiguration zz-transom",
                &writers,
                second(at),
            );
            // The write fails, and is tried again.
            contest.publishes(
                0,
                bundle,
                "MutatingWebhookConfiguration zz-transom",
                &writers,
                second(at),
            );
            contest.published(0, bundle);
            contest.message(second(at)).is_some()
        };
        for at in 0..10 {
            // A change of the CA is not another writer.
            assert!(!overwrite(&mut contest, &at.to_string(), at));
        }
        assert!(!overwrite(&mut contest, "9", 10), "once");
        assert!(!overwrite(&mut contest, "9", 300), "twice, long after");
        assert!(!overwrite(&mut contest, "9", 310));
        assert!(overwrite(&mut contest, "9", 320));
        let message = contest.message(second(321)).unwrap();
        assert!(
            message.starts_with("the field manager \"argocd-controller\" overwrites"),
            "{message}"
        );
        assert!(contest.message(second(359)).is_some());
        assert_eq!(contest.message(second(360)), None, "it has stopped");
    }
}
