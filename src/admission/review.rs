//! The evaluation of one request: which objects are evaluated, which policy applies, and what is recorded.

use std::borrow::Cow;
use std::collections::HashMap;

use super::ReviewAnswer;
use super::annotations;
use super::audit_record::{AuditRecord, Phase};
use super::decision::ReviewContext;
use super::request::{Request, RequestObject, changes_nothing};
use super::response::{Denial, ReviewDecision, encode};
use crate::engine::policy_set::{PolicyQuery, PolicySet};
use crate::engine::{Decision, Evaluation, evaluate, evaluate_as, evaluate_each, infer_os, ratchet};
use crate::model::debugger;
use crate::model::facts::{Facts, PodSecurity, SCC_ANNOTATION};
use crate::model::json_types::SharedList;
use crate::model::managed_fields::ManagedFields;
use crate::model::mirror::Witness;
use crate::model::object::{Body, Editable, Object, ObjectError, ReviewStage};
use crate::model::os::{EvidenceKind, Inference, Verdict};
use crate::model::path::Path;
use crate::model::pod::PodSpec;
use crate::model::policy::{Action, IgnoredFields, PlacementMode, Policy};
use crate::model::requester::{self, Origin};
use crate::model::severity::Class;
use crate::model::text::one_line;
use crate::model::workload::Kind;

/// The facts and policies for a review.
#[derive(Clone, Copy)]
pub struct AdmissionContext<'c> {
    /// The facts about the cluster and the date.
    pub facts: &'c Facts,
    /// The policies.
    pub policies: &'c PolicySet,
}

/// Evaluates one request.
pub fn review_request(
    phase: Phase,
    mut request: Request<'_>,
    context: &AdmissionContext<'_>,
) -> ReviewAnswer {
    let mut record = AuditRecord::of(phase, &request);
    let object = request.object.take();
    if !request.is_reviewed() {
        return answer(&request, ReviewDecision::default(), record);
    }
    let policy = policy_for(&request, context);
    let configured = || request.configured_kind(&policy.pod_templates);
    let Some(kind) = request.known_kind().or_else(configured) else {
        return answer(&request, ReviewDecision::default(), record);
    };
    record.set_policy(&policy.name);
    if does_nothing(&policy) {
        return answer(&request, ReviewDecision::default(), record);
    }
    let Some(object) = object else {
        return reject_unreadable(kind, &request, "the request has no object", &policy, record);
    };
    if let ("UPDATE", RequestObject::Raw(object)) = (&*request.operation, &object)
        && changes_nothing(object, request.old_object)
    {
        return answer(&request, ReviewDecision::default(), record);
    }
    let mut subject = match parse(phase, kind, &request, object) {
        Ok(subject) => subject,
        Err(error) => return reject_unreadable(kind, &request, &error.to_string(), &policy, record),
    };
    recognise_requester(&mut subject, &request, &policy);
    let owners = ManagedFields::of(subject.meta.managed_fields);
    let evaluation = evaluate_as_written(&mut subject, &owners, phase, &request, context.facts, &policy);
    let decide = ReviewContext {
        phase,
        request: &request,
        subject: &subject,
        evaluation: &evaluation,
        policy: &policy,
        owners: &owners,
        today: context.facts.today,
    };
    let mut ruling = decide.decide();
    if !ruling.annotations.is_empty() {
        (ruling.annotations).extend(annotations::of_images(&subject, context.facts, &policy));
    }
    record.set_name(subject.meta.display_name());
    record.labels.decision = ruling.decision().as_str();
    record.warned = !ruling.warnings.is_empty();
    record.verdict = Some(evaluation.inference.verdict);
    record.rules = annotations::reported(&evaluation)
        .map(|finding| finding.rule.name)
        .collect();
    answer(&request, ruling, record)
}

/// Determines what the requester proves about an object: that a controller created it, or that it is a mirror pod.
fn recognise_requester(subject: &mut Object<'_>, request: &Request<'_>, policy: &Policy) {
    let (user, groups) = (&*request.user_info.username, &request.user_info.groups.0);
    subject.origin = Origin::requester(subject.owner_kind(), user, &policy.controllers);
    subject.is_mirror = subject.is_mirror_by(&Witness::Requester { user, groups });
}

/// The answer to a request, with its record.
fn answer(request: &Request<'_>, ruling: ReviewDecision<'_>, mut record: AuditRecord) -> ReviewAnswer {
    let body = encode(&request.uid, &ruling);
    record.annotations = ruling.annotations;
    ReviewAnswer { body, record }
}

/// The policy that applies to a request.
pub(super) fn policy_for<'c>(request: &Request<'_>, context: &AdmissionContext<'c>) -> Cow<'c, Policy> {
    let namespace = context.facts.namespaces.get(&*request.namespace);
    context.policies.effective(&PolicyQuery {
        namespace: &request.namespace,
        labels: namespace.map(|namespace| &namespace.labels),
        user: &request.user_info.username,
        groups: &request.user_info.groups,
        today: context.facts.today,
    })
}

/// Whether an evaluation with this policy has no effect.
pub(super) fn does_nothing(policy: &Policy) -> bool {
    policy.validation == Action::Disabled
        && policy.placement == PlacementMode::Disabled
        && matches!(policy.ignored_fields, IgnoredFields::Deny | IgnoredFields::Warn)
}

/// An object that the API server could parse and Transom cannot. Only a policy that denies rejects it.
fn reject_unreadable(
    kind: Kind,
    request: &Request<'_>,
    why: &str,
    policy: &Policy,
    mut record: AuditRecord,
) -> ReviewAnswer {
    // The API server does not validate the pods of custom resources, and their controllers may supply what is missing. A
    // controller that cannot read the object either creates nothing from it. The pods of others are evaluated when they
    // are created; if `controllerUsernames` names the controller, only for what cannot run.
    let denies = policy.validation == Action::Deny && !kind.is_custom();
    let decision = if denies { Decision::Deny } else { Decision::Allow };
    let ruling = ReviewDecision {
        denial: denies
            .then(|| Denial::Unreadable(format!("transom cannot read this {kind}: {}", one_line(why)))),
        annotations: annotations::of_unevaluated(decision, &format!("unreadable: {why}"), Some(policy)),
        ..ReviewDecision::default()
    };
    record.labels.decision = decision.as_str();
    answer(request, ruling, record)
}

pub(super) fn parse<'a>(
    phase: Phase,
    kind: Kind,
    request: &Request<'a>,
    object: RequestObject<'a>,
) -> Result<Box<Object<'a>>, ObjectError> {
    let stage = if phase == Phase::Mutate {
        ReviewStage::Written
    } else {
        ReviewStage::Stored
    };
    let mut subject = match object {
        RequestObject::Read(subject) => subject,
        RequestObject::Raw(object) => Box::new(Object::parse(kind, object.get(), stage)?),
    };
    subject.stage = stage;
    if !request.namespace.is_empty() {
        subject.namespace = request.namespace.clone();
    }
    subject.editable = match (phase, &*request.operation, &*request.sub_resource) {
        (Phase::Mutate, "CREATE", "") if kind == Kind::Pod => Editable::Pod,
        (Phase::Mutate, "UPDATE", "ephemeralcontainers") => Editable::EphemeralContainers,
        _ => Editable::Nothing,
    };
    // Parsing the field owners takes time, so it is done for few pods.
    if debugger::is_labelled(&subject.meta) {
        let owners = ManagedFields::of(subject.meta.managed_fields);
        subject.find_debugger(|path| owners.owns(path));
    }
    Ok(subject)
}

/// Evaluates an object as written. If Transom's `spec.os.name` conflicts with other webhooks, it is ignored. If
/// OpenShift's defaults conflict with Transom, they are ignored.
pub(super) fn evaluate_as_written(
    subject: &mut Object<'_>,
    owners: &ManagedFields<'_>,
    phase: Phase,
    request: &Request<'_>,
    facts: &Facts,
    policy: &Policy,
) -> Evaluation {
    let evaluation = evaluate_against_old(subject, phase, request, facts, policy);
    subject.os_is_added = blocks_other_writers(subject, owners, &evaluation, policy);
    subject.added_fields = added_by_scc(subject, owners, &evaluation, facts);
    if !subject.os_is_added && subject.added_fields.is_empty() {
        return evaluation;
    }
    evaluate_against_old(subject, phase, request, facts, policy)
}

/// The fields that OpenShift's SecurityContextConstraints added to a Windows pod without `spec.os.name: windows`. They
/// run before webhooks and exempt only pods that set it.
fn added_by_scc(
    subject: &Object<'_>,
    owners: &ManagedFields<'_>,
    evaluation: &Evaluation,
    facts: &Facts,
) -> Vec<Path> {
    let Some(template) = subject.template() else {
        return Vec::new();
    };
    if subject.editable != Editable::Pod
        || evaluation.inference.verdict != Verdict::Windows
        || template.spec.os_name().is_some()
        || template.meta.annotations.get(SCC_ANNOTATION).is_none()
    {
        return Vec::new();
    }
    // This profile requires them of every pod, also of one that says Windows.
    let profile = facts.pod_security(&subject.namespace);
    if profile == PodSecurity::RestrictedForAll {
        return Vec::new();
    }
    let forbidden = evaluation
        .findings
        .iter()
        .filter(|finding| finding.is_ignored_field());
    let mut fields: Vec<Path> = forbidden
        .filter(|finding| finding.class == Class::Api && finding.edit.is_some())
        .map(|finding| finding.path.clone())
        .collect();
    // Pod Security requires it of Windows pods too if it enforces the restricted profile, and it may do so without a label.
    if profile == PodSecurity::Lower {
        fields.extend(non_root(subject, &template.spec));
    }
    fields.retain(|field| !owners.owns(field));
    fields
}

/// The paths at which a pod sets `runAsNonRoot: true`.
fn non_root(subject: &Object<'_>, pod: &PodSpec<'_>) -> Vec<Path> {
    const FIELD: &[&str] = &["securityContext", "runAsNonRoot"];
    let spec = subject.spec_path();
    let of_pod = pod
        .security_context
        .as_ref()
        .and_then(|context| context.run_as_non_root);
    let of_pod = (of_pod == Some(true)).then(|| spec.clone().fields(FIELD));
    let of_containers = pod.visit_containers().filter_map(|(list, index, container)| {
        let context = container.security_context.as_ref()?;
        let item = spec
            .clone()
            .field(list.field())
            .named_item(index, &container.name);
        (context.run_as_non_root == Some(true)).then(|| item.fields(FIELD))
    });
    of_pod.into_iter().chain(of_containers).collect()
}

/// Evaluates an object; on UPDATE, findings that the old object had too cannot deny.
fn evaluate_against_old(
    subject: &Object<'_>,
    phase: Phase,
    request: &Request<'_>,
    facts: &Facts,
    policy: &Policy,
) -> Evaluation {
    let mut evaluation = evaluate_version(subject, request, facts, policy);
    if phase == Phase::Validate && is_unplaced(subject, &evaluation, request, facts, policy) {
        ratchet::downgrade_all(&mut evaluation);
    }
    if &*request.operation == "UPDATE" && !evaluation.findings.is_empty() {
        let old = request
            .old_object
            .and_then(|old| parse(phase, subject.kind, request, RequestObject::Raw(old)).ok());
        if let Some(mut old) = old {
            old.editable = Editable::Nothing;
            recognise_requester(&mut old, request, policy);
            let old = evaluate_old(&old, &evaluation.inference, request, facts, policy);
            ratchet::downgrade_existing(subject.kind, &mut evaluation, &old);
        }
    }
    evaluation
}

/// Evaluates the old object of an update by its own evidence: what the update turns into a finding, by adding the evidence,
/// is new. `new`: what the operating system of the new object is.
///
/// Two kinds of updates add evidence to a pod whose other fields nobody can change, and must not be blocked: a debug
/// container in a running pod, and the selectors that the controller of a queue adds to a gated pod, a suspended Job or a
/// custom resource. For
/// these, the old object is evaluated with the evidence of the new one. A contradiction of the evidence is a finding of
/// the update, so it is not assumed of the old object.
fn evaluate_old(
    old: &Object<'_>,
    new: &Inference,
    request: &Request<'_>,
    facts: &Facts,
    policy: &Policy,
) -> Evaluation {
    let adds_only_evidence = || {
        let labels = old.meta.labels.iter().map(|(label, _)| &**label);
        adds_debugger(request)
            || requester::adds_selectors(&request.user_info.username, &policy.controllers, labels)
    };
    if (matches!(old.kind, Kind::Pod | Kind::Job) || old.kind.is_custom())
        && new.verdict != Verdict::Conflicting
        && adds_only_evidence()
    {
        evaluate_each(old, facts, policy, |_| new.clone())
    } else {
        evaluate_version(old, request, facts, policy)
    }
}

/// Evaluates one version of an object. In an update, a debug container is evidence only if the request may add one:
/// otherwise a debug container would make the fields of a pod without a sign known findings, and the selector that makes
/// it a Windows pod could be added in a third step.
fn evaluate_version(
    subject: &Object<'_>,
    request: &Request<'_>,
    facts: &Facts,
    policy: &Policy,
) -> Evaluation {
    let is_debugged = |pod: &PodSpec<'_>| !pod.ephemeral_containers.is_empty();
    if &*request.operation != "UPDATE" || adds_debugger(request) || !subject.pod().is_some_and(is_debugged) {
        return evaluate(subject, facts, policy);
    }
    let mut without = subject.clone();
    if let Body::Pod(template) = &mut without.body {
        template.spec.ephemeral_containers = SharedList::default();
    }
    evaluate_as(subject, infer_os(&without, facts, policy), facts, policy)
}

/// Whether a request can only add debug containers.
fn adds_debugger(request: &Request<'_>) -> bool {
    &*request.sub_resource == "ephemeralcontainers"
}

/// Whether `/mutate` cannot have known what a registry reports about this pod: otherwise it would have placed the pod, which
/// then had a selector. The look-up ended in between, and must not deny what `/mutate` would have removed or added.
fn is_unplaced(
    subject: &Object<'_>,
    evaluation: &Evaluation,
    request: &Request<'_>,
    facts: &Facts,
    policy: &Policy,
) -> bool {
    let changes_pods =
        policy.placement == PlacementMode::Apply || policy.ignored_fields == IgnoredFields::Remove;
    let is_by_image = |evaluation: &Evaluation| {
        evaluation
            .inference
            .evidence
            .first()
            .is_some_and(|it| it.kind == EvidenceKind::Image)
    };
    subject.kind == Kind::Pod
        && &*request.operation == "CREATE"
        && !facts.images.is_empty()
        && changes_pods
        && is_by_image(evaluation)
        && infer_os(subject, &facts.with_images(HashMap::new()), policy).verdict
            != evaluation.inference.verdict
}

/// Whether the API server would reject a pod because of a `spec.os.name` that no author wrote. Most likely Transom set
/// it before another webhook added a forbidden field. Parsing the field owners takes time, so that check is last.
fn blocks_other_writers(
    subject: &Object<'_>,
    owners: &ManagedFields<'_>,
    evaluation: &Evaluation,
    policy: &Policy,
) -> bool {
    let is_for_windows = subject.pod().is_some_and(|pod| pod.os_name() == Some("windows"));
    let is_refused = || {
        // A disabled rule reports nothing.
        !policy.actions.is_empty()
            || evaluation
                .findings
                .iter()
                .any(|finding| finding.rule.class == Class::Api)
    };
    subject.editable == Editable::Pod
        && is_for_windows
        && is_refused()
        && !owners.owns(&Path::of(&["spec", "os", "name"]))
}

#[cfg(test)]
mod tests;
