//! The election without a clock or a network: what to do next, by what was seen of the Lease and when.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::{ACT, LEASE, RENEW, RETRY};

/// The longest that a Lease of another replica is waited for, whatever it says of itself.
const LONGEST: Duration = Duration::from_secs(60);

/// Who held a Lease that was deleted before we saw who it was; no pod can have this name.
const UNKNOWN: &str = "(unknown)";

/// What was seen of the Lease.
#[derive(Clone, PartialEq, Debug)]
struct LeaseView {
    /// Its spec when it was there last.
    spec: LeaseSpec,
    /// When we first saw it like this, by our own clock that never jumps.
    since: Instant,
    /// Whether it is still there. One that was deleted was not given up: its holder may not know yet.
    exists: bool,
}

impl LeaseView {
    fn holder(&self) -> Option<&str> {
        self.spec
            .holder_identity
            .as_deref()
            .filter(|holder| !holder.is_empty())
    }

    /// When it may be taken from its holder: the longer of what it says and what we use, after it last changed.
    fn ends(&self) -> Instant {
        let says = self
            .spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        self.since + says.map_or(LEASE, Duration::from_secs).clamp(LEASE, LONGEST)
    }
}

/// What to do about a Lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeaseAction {
    /// It is ours: renew it.
    Renew,
    /// It has no holder, or its holder has let it lapse: take it.
    Acquire,
    /// It is another replica's; nothing can be done before this moment.
    Wait {
        /// When it lapses, unless it is renewed.
        until: Instant,
    },
}

/// What the replica `me` does about a Lease; `None` where it never saw one.
///
/// A replica that never saw one takes it at once, so that an installation does not begin with ten seconds of waiting. If a
/// holder was there and its Lease was deleted by hand, before `me` ever looked, both lead for a moment: their writes
/// are then kept apart by the resourceVersions alone.
fn decide(lease: Option<&LeaseView>, me: &str, now: Instant) -> LeaseAction {
    let Some(lease) = lease else {
        return LeaseAction::Acquire;
    };
    match lease.holder() {
        Some(holder) if holder == me => LeaseAction::Renew,
        Some(_) if now < lease.ends() => LeaseAction::Wait { until: lease.ends() },
        Some(_) | None => LeaseAction::Acquire,
    }
}

/// What the loop does next.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum ElectionStep {
    /// Nothing before this moment.
    Sleep(Instant),
    /// Look at the Lease.
    Read,
    /// Create it where it names no resourceVersion; else replace it.
    Write(Box<Lease>),
}

/// One replica in the election.
#[derive(Debug)]
pub(super) struct Elector {
    name: String,
    me: String,
    view: Option<LeaseView>,
    /// What of the Lease is not its spec, as it was seen last.
    metadata: ObjectMeta,
    /// Whether the view is recent enough to decide by.
    known: bool,
    until: Option<Instant>,
    wake: Option<Instant>,
}

impl Elector {
    pub(super) fn new(name: String, me: String) -> Self {
        Elector {
            name,
            me,
            view: None,
            metadata: ObjectMeta::default(),
            known: false,
            until: None,
            wake: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Until when it may act.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Who holds the Lease, as far as is known.
    pub(super) fn holder(&self) -> Option<&str> {
        self.view.as_ref().and_then(LeaseView::holder)
    }

    /// What to do now; `wall` only goes into the Lease, for people to read.
    pub(super) fn next(&mut self, now: Instant, wall: Timestamp) -> ElectionStep {
        if let Some(wake) = self.wake.filter(|wake| now < *wake) {
            return ElectionStep::Sleep(wake);
        }
        if !self.known {
            return ElectionStep::Read;
        }
        match decide(self.view.as_ref(), &self.me, now) {
            LeaseAction::Wait { until } => {
                // Decided once per look: what was seen before a sleep is no longer acted on.
                self.known = false;
                let wake = until.min(now + RENEW);
                self.wake = Some(wake);
                ElectionStep::Sleep(wake)
            }
            LeaseAction::Renew => ElectionStep::Write(Box::new(self.claim(wall, false))),
            LeaseAction::Acquire => ElectionStep::Write(Box::new(self.claim(wall, true))),
        }
    }

    /// What a look found, or that it failed.
    pub(super) fn read(&mut self, now: Instant, lease: Result<Option<Lease>, ()>) {
        match lease {
            Ok(lease) => {
                self.known = true;
                self.see(now, lease);
            }
            Err(()) => self.wake = Some(now + RETRY),
        }
    }

    /// What a write that was sent at `started` came to.
    pub(super) fn wrote(&mut self, started: Instant, now: Instant, lease: Result<Lease, ()>) {
        if let Ok(lease) = lease {
            self.see(now, Some(lease));
            self.until = Some(started + ACT);
            self.wake = Some(started + RENEW);
        } else {
            self.known = false;
            self.wake = Some(now + RETRY);
        }
    }

    /// The Lease that says that we have given it up, where it is ours; we no longer act from now on.
    pub(super) fn release(&mut self) -> Option<Lease> {
        self.until = None;
        let view = self.view.as_ref().filter(|view| view.exists)?;
        if view.holder() != Some(&self.me) {
            return None;
        }
        let mut spec = view.spec.clone();
        spec.holder_identity = Some(String::new());
        Some(Lease {
            metadata: self.metadata.clone(),
            spec: Some(spec),
        })
    }

    fn see(&mut self, now: Instant, lease: Option<Lease>) {
        let Some(lease) = lease else {
            self.metadata = ObjectMeta::default();
            let acts = self.until.is_some_and(|until| now < until);
            if let Some(view) = self.view.as_mut().filter(|view| view.exists) {
                view.exists = false;
                if !acts {
                    // Its last holder may still act on that, and we did not see which replica it was.
                    view.spec.holder_identity = Some(UNKNOWN.to_owned());
                    view.since = now;
                }
            }
            return;
        };
        self.metadata = lease.metadata;
        let spec = lease.spec.unwrap_or_default();
        let since = match &self.view {
            Some(view) if view.spec == spec => view.since,
            _ => now,
        };
        self.view = Some(LeaseView {
            spec,
            since,
            exists: true,
        });
    }

    /// The Lease with us as its holder, over the version that was seen.
    fn claim(&self, wall: Timestamp, acquire: bool) -> Lease {
        let mut spec = self
            .view
            .as_ref()
            .map(|view| view.spec.clone())
            .unwrap_or_default();
        if acquire {
            spec.acquire_time = Some(MicroTime(wall));
            let before = spec.lease_transitions;
            spec.lease_transitions = Some(before.map_or(0, |count| count.saturating_add(1)));
        }
        spec.holder_identity = Some(self.me.clone());
        spec.lease_duration_seconds = i32::try_from(LEASE.as_secs()).ok();
        spec.renew_time = Some(MicroTime(wall));
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..self.metadata.clone()
            },
            spec: Some(spec),
        }
    }
}

#[cfg(test)]
mod tests;
