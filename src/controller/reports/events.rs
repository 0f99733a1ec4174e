//! Events on owners: findings that would be denied or warned about, and pods that stay pending. The same problem of
//! the same owner always has the same Event name, so the API server rejects a duplicate from any replica.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, PostParams};

use super::report::reported;
use crate::cluster::errors::{ApiError, answered};
use crate::controller::events::{Problem, event_name};
use crate::scan::{FindingOutcome, OwnerResult};

/// How many rules are named.
const NAMED: usize = 5;

/// The reason of an Event about findings.
pub const FINDINGS: &str = "WindowsFindings";

/// An Event on an owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerEvent {
    /// The reason of the Event.
    pub reason: &'static str,
    /// The note of the Event.
    pub message: String,
    /// The owner.
    pub owner: EventOwner,
}

/// An owner, as the regarding object of an Event.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EventOwner {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl EventOwner {
    /// The evaluated object itself.
    pub fn of(owner_result: &OwnerResult) -> Self {
        EventOwner {
            api_version: owner_result.api_version.clone(),
            kind: owner_result.kind.as_str().to_owned(),
            namespace: owner_result.namespace.clone(),
            name: owner_result.name.clone(),
            uid: owner_result.uid.clone(),
        }
    }
}

/// The Event for an evaluated owner; `None` if there is only advice and what admission fixes.
pub fn event_on(owner_result: &OwnerResult) -> Option<OwnerEvent> {
    let is_notable = |outcome: FindingOutcome, would_deny: bool| {
        would_deny || matches!(outcome, FindingOutcome::Denied | FindingOutcome::Warned)
    };
    let findings = reported(owner_result).filter(|found| found.outcome != FindingOutcome::Exempted);
    let findings: Vec<_> = findings
        .filter(|found| is_notable(found.outcome, found.would_deny))
        .collect();
    let first = findings
        .iter()
        .find(|found| found.would_deny)
        .or(findings.first())?;
    let denied = findings
        .iter()
        .any(|found| found.outcome == FindingOutcome::Denied);
    let would_be = findings.iter().any(|found| found.would_deny);
    let becomes = match (denied, would_be) {
        (true, _) => "would be denied at its next create",
        (false, true) => "would be denied with validation.action: Deny",
        (false, false) => "causes a warning when it is applied",
    };
    let mut rules: Vec<&str> = findings.iter().map(|found| found.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    let more = rules.len().saturating_sub(NAMED);
    rules.truncate(NAMED);
    let mut message = format!("for Windows this {becomes}: {}", rules.join(", "));
    if more > 0 {
        let _ = write!(message, " and {more} more rules");
    }
    let _ = write!(message, "; {}: {}; {}", first.path, first.message, first.remedy);
    Some(OwnerEvent {
        reason: FINDINGS,
        message,
        owner: EventOwner::of(owner_result),
    })
}

impl OwnerEvent {
    /// The name of the Event.
    pub fn name(&self) -> String {
        let problem = format!("{}\n{}\n{}", self.owner.uid, self.reason, self.message);
        event_name(&self.owner.name, &problem)
    }

    /// The Event.
    pub fn event(&self, now: Timestamp) -> Event {
        let owner = &self.owner;
        let problem = Problem {
            name: self.name(),
            namespace: &owner.namespace,
            action: "EvaluateStored",
            reason: self.reason,
            message: &self.message,
            regarding: ObjectReference {
                api_version: Some(owner.api_version.clone()),
                kind: Some(owner.kind.clone()),
                namespace: Some(owner.namespace.clone()),
                name: Some(owner.name.clone()),
                uid: Some(owner.uid.clone()),
                ..ObjectReference::default()
            },
        };
        problem.event(now)
    }
}

/// Publishes an Event on an owner.
pub async fn publish(client: Client, event: OwnerEvent) {
    let api: Api<Event> = Api::namespaced(client, &event.owner.namespace);
    match answered(api.create(&PostParams::default(), &event.event(Timestamp::now()))).await {
        // The Event exists already.
        Ok(_) | Err(ApiError::Conflict) => (),
        Err(failure) => tracing::debug!(
            namespace = event.owner.namespace,
            "cannot write the Event {} of {} {}: {failure}",
            event.reason,
            event.owner.kind,
            event.owner.name
        ),
    }
}
