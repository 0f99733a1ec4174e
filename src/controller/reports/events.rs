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
use crate::controller::events::{NewEvent, of_workload};
use crate::scan::{FindingOutcome, OwnerResult};

/// How many rules are named.
const NAMED: usize = 5;

/// The reason of an Event about findings.
pub const FINDINGS: &str = "WindowsFindings";

/// An Event on an owner.
pub fn owner_event(reason: &'static str, note: &str, owner: ObjectReference, now: Timestamp) -> Event {
    let event = NewEvent {
        is_warning: true,
        action: "EvaluateStored",
        reason,
        note,
        regarding: owner,
    };
    event.at(now)
}

/// The Event for an evaluated owner; `None` if there is only advice and what admission fixes.
pub fn event_on(owner_result: &OwnerResult, now: Timestamp) -> Option<Event> {
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
    let regarding = of_workload(&owner_result.workload(), &owner_result.api_version);
    Some(owner_event(FINDINGS, &message, regarding, now))
}

/// Publishes an Event on an owner.
pub async fn publish(client: Client, event: Event) {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client, namespace);
    match answered(api.create(&PostParams::default(), &event)).await {
        // The Event exists already.
        Ok(_) | Err(ApiError::Conflict) => (),
        Err(failure) => tracing::debug!(
            namespace,
            "cannot write the Event {}: {failure}",
            event.metadata.name.as_deref().unwrap_or_default()
        ),
    }
}
