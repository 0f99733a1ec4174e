//! Leader election without a clock or a network: what to do next, given what was read of the Lease and when.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::{ACT, LEASE, RENEW, RETRY};

/// The longest wait for another replica's Lease, regardless of the duration it specifies.
const LONGEST: Duration = Duration::from_secs(60);

/// The holder of a Lease that was deleted before this replica read it; no pod can have this name.
const UNKNOWN: &str = "(unknown)";

/// The Lease as last read.
#[derive(Clone, PartialEq, Debug)]
struct LeaseView {
    spec: LeaseSpec,
    /// When this replica first read this state; monotonic time.
    since: Instant,
    /// Whether it still exists. A deleted Lease was not released: its holder may not know yet.
    exists: bool,
}

impl LeaseView {
    fn holder(&self) -> Option<&str> {
        self.spec
            .holder_identity
            .as_deref()
            .filter(|holder| !holder.is_empty())
    }

    /// When it may be acquired from its holder: its last change plus the longer of its own duration and ours.
    fn ends(&self) -> Instant {
        let reported = self
            .spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        self.since + reported.map_or(LEASE, Duration::from_secs).clamp(LEASE, LONGEST)
    }
}

/// What to do about a Lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeaseAction {
    /// This replica holds it: renew it.
    Renew,
    /// It has no holder, or its holder let it expire: acquire it.
    Acquire,
    /// Another replica holds it; wait.
    Wait {
        /// When it expires, unless it is renewed.
        until: Instant,
    },
}

/// What the replica `me` does about a Lease; `None` if it has never read one.
///
/// A replica that has never read a Lease acquires it immediately, so that a new installation does not wait ten
/// seconds. If a user deletes a Lease with a holder before `me` first reads it, both replicas lead briefly; then only
/// the resourceVersions prevent conflicting writes.
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
    /// Sleep until this time.
    Sleep(Instant),
    Read,
    /// Create it if it has no resourceVersion; otherwise replace it.
    Write(Box<Lease>),
}

/// One replica in the election.
#[derive(Debug)]
pub(super) struct Elector {
    name: String,
    me: String,
    view: Option<LeaseView>,
    /// The metadata of the Lease as last read.
    metadata: ObjectMeta,
    /// Whether the last read is recent enough for a decision.
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

    /// Until when it may act as leader.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// The holder of the Lease, as far as is known.
    pub(super) fn holder(&self) -> Option<&str> {
        self.view.as_ref().and_then(LeaseView::holder)
    }

    /// What to do now. `wall` is only written into the Lease, for users to read.
    pub(super) fn next(&mut self, now: Instant, wall: Timestamp) -> ElectionStep {
        if let Some(wake) = self.wake.filter(|wake| now < *wake) {
            return ElectionStep::Sleep(wake);
        }
        if !self.known {
            return ElectionStep::Read;
        }
        match decide(self.view.as_ref(), &self.me, now) {
            LeaseAction::Wait { until } => {
                // One decision per read: what was read before a sleep is no longer used.
                self.known = false;
                let wake = until.min(now + RENEW);
                self.wake = Some(wake);
                ElectionStep::Sleep(wake)
            }
            LeaseAction::Renew => ElectionStep::Write(Box::new(self.claim(wall, false))),
            LeaseAction::Acquire => ElectionStep::Write(Box::new(self.claim(wall, true))),
        }
    }

    /// Records the result of a read.
    pub(super) fn read(&mut self, now: Instant, lease: Result<Option<Lease>, ()>) {
        match lease {
            Ok(lease) => {
                self.known = true;
                self.see(now, lease);
            }
            Err(()) => self.wake = Some(now + RETRY),
        }
    }

    /// Records the result of a write that was sent at `started`.
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

    /// The Lease without a holder, if this replica holds it; this replica no longer acts as leader from now on.
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
                    // Its last holder may still act as leader, and this replica does not know which one it was.
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

    /// The Lease with this replica as its holder, replacing the version that was read.
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
