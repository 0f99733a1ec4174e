//! Conditions in the status of a policy, and the Events that go with their changes: said in one way for every resource. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::{Event, EventType};

use crate::model::text::cut;

/// The longest message of a condition, in bytes: the API server takes no more than 32768 characters.
pub const LONGEST_MESSAGE: usize = 16 * 1024;
/// By this name Events say who reports them, as `events.k8s.io/v1` wants it: a domain and a path.
pub const REPORTER: &str = "transom.dev/controller";
/// The longest note of an Event, in bytes: one of 1024 or more is refused.
pub const LONGEST_NOTE: usize = 1000;

/// What a condition says now, before it has a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConditionUpdate {
    /// Its type.
    pub kind: &'static str,
    /// Whether its status is `True`.
    pub holds: bool,
    /// Whether a person has to do something.
    pub is_bad: bool,
    /// Its reason.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
    /// The message for an Event and for one line of the status, where there is less room.
    pub brief: String,
    /// Which of its changes an Event tells.
    pub events: EventPolicy,
}

/// Which changes of a condition an Event tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventPolicy {
    /// None.
    Never,
    /// That it has become bad, and that this is over.
    Turns,
    /// And that it is bad for another reason.
    Reasons,
    /// And that it is bad in other words.
    Words,
}

impl ConditionUpdate {
    /// A condition that is to be `True`. `unmet`: reason and message of why it is not; `met`: those where nothing is.
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
        }
    }

    /// A condition that is to be `False`. `unmet`: reason and message of why it is not; `met`: those where nothing is.
    pub fn expect_false(
        kind: &'static str,
        unmet: Option<(&'static str, String)>,
        met: (&'static str, &str),
    ) -> Self {
        let statement = ConditionUpdate::expect_true(kind, unmet, met);
        ConditionUpdate {
            holds: statement.is_bad,
            ..statement
        }
    }

    /// The same, told where so much of it changes.
    #[must_use]
    pub fn with_events(self, events: EventPolicy) -> Self {
        ConditionUpdate { events, ..self }
    }

    /// Whether an Event is to tell it, given the conditions that stand in the status.
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

    /// The Event that tells it. `action` says what the controller was doing.
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

/// The conditions of a status, in the order of the statements: times are kept where the status is the same, and
/// conditions of other writers stay. `retired`: the types that go where nothing is said of them.
pub fn conditions(
    statements: Vec<ConditionUpdate>,
    retired: &[&str],
    before: &[Condition],
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    // Kubernetes writes times by the second.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let ours = statements.into_iter().map(|statement| {
        let status = status(statement.holds);
        let same = before
            .iter()
            .find(|old| old.type_ == statement.kind && old.status == status);
        Condition {
            type_: statement.kind.to_owned(),
            status: status.to_owned(),
            reason: statement.reason.to_owned(),
            message: cut(&statement.message, LONGEST_MESSAGE).into_owned(),
            observed_generation: Some(generation),
            last_transition_time: same.map_or(Time(now), |old| old.last_transition_time.clone()),
        }
    });
    let mut all: Vec<Condition> = ours.collect();
    let others = before
        .iter()
        .filter(|old| !retired.contains(&&*old.type_) && !all.iter().any(|ours| ours.type_ == old.type_));
    let others: Vec<Condition> = others.cloned().collect();
    all.extend(others);
    all
}
