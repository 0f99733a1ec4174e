//! The judgement of one request: which objects are looked at, by which policy, and what is recorded of it.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::annotations;
use super::ownership::Ownership;
use super::record::{Phase, Record};
use super::request::{Request, changes_nothing};
use super::response::{Ruling, unreadable};
use super::ruling::Case;
use crate::engine::effective::{Asker, PolicySet};
use crate::engine::{Inspection, inspect, ratchet};
use crate::model::facts::Facts;
use crate::model::owner::MadeBy;
use crate::model::path::Path;
use crate::model::policy::{Action, Policy, Repair, Switch};
use crate::model::severity::Class;
use crate::model::subject::{Editable, Stage, Subject, SubjectError};
use crate::model::text::one_line;
use crate::model::workload::Kind;

/// What a review is judged by.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    /// What is known of the cluster and the day.
    pub facts: &'c Facts,
    /// The policies.
    pub policies: &'c PolicySet,
}

/// Judges one request.
pub fn judge(phase: Phase, request: &Request<'_>, context: &Context<'_>) -> (Ruling, Record) {
    let mut record = Record::of(phase, request);
    let Some(kind) = request.looked_at() else {
        return (Ruling::default(), record);
    };
    let policy = policy_for(request, context);
    record.set_policy(&policy.name);
    if does_nothing(&policy) {
        return (Ruling::default(), record);
    }
    let Some(object) = request.object else {
        return refuse_unreadable(kind, "the request carries no object", &policy, record);
    };
    if &*request.operation == "UPDATE" && changes_nothing(object, request.old_object) {
        return (Ruling::default(), record);
    }
    match parse(phase, kind, request, object) {
        Err(error) => refuse_unreadable(kind, &error.to_string(), &policy, record),
        Ok(mut subject) => {
            let user = &request.user_info.username;
            subject.made_by = MadeBy::requester(subject.owner_kind(), user, &policy.controllers);
            let inspection = inspect_as_written(&mut subject, phase, request, context.facts, &policy);
            let ruling = Case {
                phase,
                request,
                object,
                subject: &subject,
                inspection: &inspection,
                policy: &policy,
            }
            .ruling();
            record.set_name(subject.meta.display_name());
            record.labels.decision = ruling.decision();
            record.warned = !ruling.warnings.is_empty();
            record.verdict = Some(inspection.inference.verdict);
            record.rules = annotations::reported(&inspection)
                .map(|finding| finding.rule.name)
                .collect();
            (ruling, record)
        }
    }
}

/// The policy that counts for a request.
fn policy_for<'c>(request: &Request<'_>, context: &Context<'c>) -> Cow<'c, Policy> {
    let namespace = context.facts.namespaces.get(&*request.namespace);
    context.policies.effective(&Asker {
        namespace: &request.namespace,
        labels: namespace.map(|namespace| &namespace.labels),
        user: &request.user_info.username,
        groups: &request.user_info.groups,
        today: context.facts.today,
    })
}

/// Whether nothing would come of a judgement by this policy.
fn does_nothing(policy: &Policy) -> bool {
    policy.validation == Action::Off && policy.placement == Switch::Off && policy.repair == Repair::Off
}

/// An object that the API server could read and we cannot. Only a policy that denies at all refuses it.
fn refuse_unreadable(kind: Kind, why: &str, policy: &Policy, mut record: Record) -> (Ruling, Record) {
    let message = format!("transom cannot read this {kind}: {}", one_line(why));
    let mut ruling = Ruling {
        annotations: vec![("decision", "unreadable".to_owned())],
        ..Ruling::default()
    };
    if policy.validation == Action::Deny {
        ruling.denial = Some(unreadable(message));
    }
    record.labels.decision = ruling.decision();
    (ruling, record)
}

fn parse<'a>(
    phase: Phase,
    kind: Kind,
    request: &Request<'a>,
    object: &'a RawValue,
) -> Result<Subject<'a>, SubjectError> {
    let stage = if phase == Phase::Mutate {
        Stage::Written
    } else {
        Stage::Stored
    };
    let mut subject = Subject::parse(kind, object.get(), stage)?;
    if !request.namespace.is_empty() {
        subject.namespace = request.namespace.clone();
    }
    subject.editable = match (phase, &*request.operation, &*request.sub_resource) {
        (Phase::Mutate, "CREATE", "") if kind == Kind::Pod => Editable::Pod,
        (Phase::Mutate, "UPDATE", "ephemeralcontainers") => Editable::EphemeralContainers,
        _ => Editable::Nothing,
    };
    Ok(subject)
}

/// Inspects an object; where we stand in the way of the other webhooks, as if our `spec.os.name` were not there.
fn inspect_as_written(
    subject: &mut Subject<'_>,
    phase: Phase,
    request: &Request<'_>,
    facts: &Facts,
    policy: &Policy,
) -> Inspection {
    let inspection = inspect_against_old(subject, phase, request, facts, policy);
    if !stands_in_the_way_of_others(subject, &inspection, policy) {
        return inspection;
    }
    subject.os_is_added = true;
    inspect_against_old(subject, phase, request, facts, policy)
}

/// Inspects an object; on UPDATE, what its old self had as well cannot deny.
fn inspect_against_old(
    subject: &Subject<'_>,
    phase: Phase,
    request: &Request<'_>,
    facts: &Facts,
    policy: &Policy,
) -> Inspection {
    let mut inspection = inspect(subject, facts, policy);
    if &*request.operation == "UPDATE" && !inspection.findings.is_empty() {
        let old = request
            .old_object
            .and_then(|old| parse(phase, subject.kind, request, old).ok());
        if let Some(mut old) = old {
            old.editable = Editable::Nothing;
            ratchet::lower_known(subject.kind, &mut inspection, &inspect(&old, facts, policy));
        }
    }
    inspection
}

/// Whether a pod would be refused for `spec.os.name`, which no author wrote: most likely we did, before another webhook
/// added what the API server then refuses. Who wrote it takes time to tell, so that is asked last.
fn stands_in_the_way_of_others(subject: &Subject<'_>, inspection: &Inspection, policy: &Policy) -> bool {
    let says_windows = subject.pod().is_some_and(|pod| pod.os_name() == Some("windows"));
    let is_refused = || {
        // A rule that is off does not tell.
        !policy.actions.is_empty()
            || inspection
                .findings
                .iter()
                .any(|finding| finding.rule.class == Class::Api)
    };
    subject.editable == Editable::Pod
        && says_windows
        && is_refused()
        && !Ownership::of(subject.meta.managed_fields).owns(&Path::of(&["spec", "os", "name"]))
}

#[cfg(test)]
mod tests;
