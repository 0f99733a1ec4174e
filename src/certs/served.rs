//! What this replica serves, and what it served until shortly before: other replicas may still serve that.

use std::time::Duration;

use tokio::time::Instant;

use crate::tls::identity::Identity;

/// How many former certificates are kept. Fewer are issued within the grace period.
const MOST_FORMER: usize = 4;

/// The served certificate and those before it.
#[derive(Debug, Default)]
pub(super) struct ServedIdentities {
    /// The current one; `None` if it is a placeholder.
    pub(super) current: Option<Identity>,
    /// The former ones, the oldest first.
    pub(super) former: Vec<FormerIdentity>,
}

/// A certificate that this replica no longer serves.
#[derive(Debug)]
pub(super) struct FormerIdentity {
    pub(super) identity: Identity,
    /// When this replica stopped serving it.
    replaced: Instant,
}

impl ServedIdentities {
    /// Records that `identity` is served now.
    pub(super) fn replace(&mut self, identity: Identity, now: Instant) {
        let Some(before) = self.current.replace(identity) else {
            return;
        };
        self.former.push(FormerIdentity {
            identity: before,
            replaced: now,
        });
        if self.former.len() > MOST_FORMER {
            self.former.remove(0);
        }
    }

    /// Forgets certificates that were replaced at least `grace` ago: no replica serves them any more.
    pub(super) fn forget(&mut self, grace: Duration, now: Instant) {
        self.former
            .retain(|former| now.saturating_duration_since(former.replaced) < grace);
    }
}
