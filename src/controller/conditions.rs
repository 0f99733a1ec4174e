//! Conditions in the status of a policy, and the Events for their changes; the same for every resource. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::{Event, EventType};

use crate::model::syntax::text::cut;

/// The longest message of a condition, in bytes. The API server accepts at most 32768 characters.
pub const LONGEST_MESSAGE: usize = 16 * 1024;
/// The reporting controller of our Events: `events.k8s.io/v1` requires a domain and a path.
pub const REPORTER: &str = "transom.dev/controller";
/// The longest note of an Event, in bytes. The API server rejects 1024 or more.
pub const LONGEST_NOTE: usize = 1000;

/// Whether Transom can use the stored version of a policy, completely (`Accepted`) or without some parts
/// (`PartiallyInvalid`).
pub const ACCEPTED: &str = "Accepted";
/// Whether what the policy needs is written: in the webhook configurations, or to nodes and RuntimeClasses. A policy for
/// which nothing is written has no such condition.
pub const PROGRAMMED: &str = "Programmed";
/// Whether the policy is in effect as its author wants: it is accepted, and programmed.
pub const READY: &str = "Ready";
/// Whether another policy of the same priority selects some of the same namespaces or nodes, so that the names decide.
pub const OVERLAPPING: &str = "Overlapping";
/// The condition [`ACCEPTED`] of a policy that applies as it is stored.
pub const AS_STORED: (&str, &str) = (ACCEPTED, "the policy applies as it is stored");

/// A condition before it has a transition time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConditionUpdate {
    /// Its type.
    pub kind: &'static str,
    /// Whether its status is `True`.
    pub holds: bool,
    /// Whether the user has to act.
    pub is_bad: bool,
    pub reason: &'static str,
    pub message: String,
    /// A shorter message, for Events and for one line of the status.
    pub brief: String,
    /// Which changes of the condition are reported by an Event.
    pub events: EventPolicy,
    /// Whether its status should be `False`: the status of a policy then has it only while it is `True`.
    pub is_abnormal: bool,
}

/// Which changes of a condition are reported by an Event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventPolicy {
    Never,
    /// It becomes bad, or is no longer bad.
    Turns,
    /// Also: it is bad for another reason.
    Reasons,
    /// Also: it is bad and its message changes.
    Words,
}

impl ConditionUpdate {
    /// A condition that should be `True`. `unmet`: reason and message if it is not; `met`: reason and message if it
    /// is.
    pub fn expect_true(
        kind: &'static str,
        unmet: Option<(&'static str, String)>,
        met: (&'static str, &str),
    ) -> Self {
        let is_bad = unmet.is_some();
        let (reason, message) = unmet.unwrap_or_else(|| (met.0, met.1.to_owned()));
        ConditionUpdate {
            kind,
            holds: !is_bad,
            is_bad,
            reason,
            brief: message.clone(),
            message,
            events: EventPolicy::Never,
            is_abnormal: false,
        }
    }

    /// A condition that should be `False`. `unmet`: reason and message if it is not; `met`: reason and message if it
    /// is.
    pub fn expect_false(
        kind: &'static str,
        unmet: Option<(&'static str, String)>,
        met: (&'static str, &str),
    ) -> Self {
        let update = ConditionUpdate::expect_true(kind, unmet, met);
        ConditionUpdate {
            holds: update.is_bad,
            is_abnormal: true,
            ..update
        }
    }

    /// A condition that informs, and requires nothing of the user. `told`: reason and message, if there is something to tell.
    pub fn notice(kind: &'static str, told: Option<(&'static str, String)>) -> Self {
        ConditionUpdate {
            is_bad: false,
            ..ConditionUpdate::expect_false(kind, told, ("", ""))
        }
    }

    /// The condition [`READY`]. `met`: its reason and message if the other two hold.
    pub fn ready(accepted: &Self, programmed: Option<&Self>, met: (&'static str, &str)) -> Self {
        let mut needed = [Some(accepted), programmed].into_iter().flatten();
        let unmet = needed.find(|update| !update.holds).map(|update| {
            let message = format!("the condition {} is False: {}", update.kind, update.message);
            (update.reason, message)
        });
        ConditionUpdate::expect_true(READY, unmet, met)
    }

    /// The condition [`ACCEPTED`] of a policy of which some parts are ignored.
    pub fn partially_invalid(message: String) -> Self {
        ConditionUpdate {
            holds: true,
            ..ConditionUpdate::expect_true(ACCEPTED, Some(("PartiallyInvalid", message)), AS_STORED)
        }
    }

    /// The condition [`OVERLAPPING`]. `message`: what decides, if policies overlap.
    pub fn overlapping(message: Option<String>) -> Self {
        let unmet = message.map(|message| (OVERLAPPING, message));
        let met = (
            "NotOverlapping",
            "no other policy of the same priority selects the same namespaces or nodes",
        );
        ConditionUpdate::expect_false(OVERLAPPING, unmet, met)
    }

    /// The same condition with another Event policy.
    #[must_use]
    pub fn with_events(self, events: EventPolicy) -> Self {
        ConditionUpdate { events, ..self }
    }

    /// Whether an Event should report this condition, given the conditions in the stored status.
    pub fn is_news(&self, before: &[Condition]) -> bool {
        if self.events == EventPolicy::Never {
            return false;
        }
        match before.iter().find(|condition| condition.type_ == self.kind) {
            None => self.is_bad,
            Some(before) if before.status != status(self.holds) => true,
            Some(before) => {
                self.is_bad
                    && match self.events {
                        EventPolicy::Never | EventPolicy::Turns => false,
                        EventPolicy::Reasons => before.reason != self.reason,
                        EventPolicy::Words => before.message != self.message,
                    }
            }
        }
    }

    /// The Event for this condition. `action`: what the controller was doing.
    pub fn event(&self, action: &str) -> Event {
        Event {
            type_: if self.is_bad {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: self.reason.to_owned(),
            note: Some(cut(&self.brief, LONGEST_NOTE).into_owned()),
            action: action.to_owned(),
            secondary: None,
        }
    }
}

fn status(holds: bool) -> &'static str {
    if holds { "True" } else { "False" }
}

/// The conditions of a status, in the order of the updates. A condition keeps its transition time if its status is
/// unchanged, and conditions of other writers stay. An abnormal condition that does not hold is removed. `retired`: types that
/// are removed if no update names them.
pub fn conditions(
    updates: Vec<ConditionUpdate>,
    retired: &[&str],
    before: &[Condition],
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    // Kubernetes writes timestamps with second precision.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let (absent, shown): (Vec<_>, Vec<_>) =
        (updates.into_iter()).partition(|update| update.is_abnormal && !update.holds);
    let ours = shown.into_iter().map(|update| {
        let status = status(update.holds);
        let same = before
            .iter()
            .find(|old| old.type_ == update.kind && old.status == status);
        Condition {
            type_: update.kind.to_owned(),
            status: status.to_owned(),
            reason: update.reason.to_owned(),
            message: cut(&update.message, LONGEST_MESSAGE).into_owned(),
            observed_generation: Some(generation),
            last_transition_time: same.map_or(Time(now), |old| old.last_transition_time.clone()),
        }
    });
    let mut all: Vec<Condition> = ours.collect();
    let is_ours = |kind: &str| {
        retired.contains(&kind)
            || absent.iter().any(|update| update.kind == kind)
            || all.iter().any(|ours| ours.type_ == kind)
    };
    let others = before.iter().filter(|old| !is_ours(&old.type_));
    let others: Vec<Condition> = others.cloned().collect();
    all.extend(others);
    all
}
