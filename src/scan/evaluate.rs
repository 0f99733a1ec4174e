//! The evaluation of one stored object. Top owners are evaluated as if they were created again; children of a
//! known controller are reported on their owner.

use serde::Deserialize;

use super::context::EvalContext;
use super::owner_templates::PodDifference;
use super::result::{FindingOutcome, FindingResult, ForeignOwner, OwnerOutcome, OwnerResult};
use crate::admission::{AdmissionContext, Simulation, simulate_create};
use crate::engine::{Decision, infer_os};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Action, IgnoredFields, ImageEvidence, PlacementMode, Policy};
use crate::model::objects::object::{Object, ObjectError, ReviewStage};
use crate::model::objects::object_status::ObjectStatus;
use crate::model::objects::pod::PodSpec;
use crate::model::objects::requester::qualified;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::edit::Edit;
use crate::model::syntax::json::at;
use crate::model::windows::build::Build;
use crate::model::windows::os::{Evidence, EvidenceKind, Inference, Verdict};
use crate::registration::NotReviewed;
use crate::rules::{Finding, Image, KnownVersions, Resolver};

/// The result for a stored object.
#[derive(Debug)]
pub enum Evaluated {
    Owner(Box<OwnerResult>),
    /// A controller created it for an owner, which is evaluated instead: kind and name of that owner.
    Owned(Kind, String),
    /// There is nothing to evaluate.
    Passed(SkipReason),
}

/// Why a stored object is not evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SkipReason {
    /// It is being deleted.
    Deleted,
    /// A Job or pod that has finished and never runs again.
    Finished,
    /// The mirror of a static pod, whose manifest is a file on the node.
    Mirror,
    /// It carries no pod.
    NoPod,
}

/// The fields of the spec of a stored object that the model does not read.
#[derive(Deserialize, Default)]
#[serde(default)]
struct StoredObjectSpec {
    replicas: Option<u64>,
    parallelism: Option<u64>,
}

impl StoredObjectSpec {
    fn of(json: &str) -> Self {
        let spec = at(json, &["spec"]).and_then(|spec| serde_json::from_str(spec).ok());
        spec.unwrap_or_default()
    }
}

/// Evaluates one stored object, given as JSON.
///
/// # Errors
/// If the object does not match its kind.
pub fn evaluate_stored(
    eval_context: &EvalContext<'_>,
    kind: Kind,
    json: &str,
) -> Result<Evaluated, ObjectError> {
    evaluate_object(
        eval_context,
        &Object::parse(kind, json, ReviewStage::Stored)?,
        json,
    )
}

/// Evaluates one stored object that is parsed already.
///
/// # Errors
/// As [`evaluate_stored`].
pub fn evaluate_object(
    eval_context: &EvalContext<'_>,
    subject: &Object<'_>,
    json: &str,
) -> Result<Evaluated, ObjectError> {
    if subject.kind == Kind::NetworkPolicy {
        return evaluate_network_policy(eval_context, subject, json);
    }
    if let Some(evaluated) = unless_top_owner(eval_context, subject, json) {
        return Ok(evaluated);
    }
    evaluate_itself(eval_context, subject, json)
}

/// Evaluates a pod that differs from the template of its owner ([`OwnerTemplates`](super::OwnerTemplates)), instead of that
/// owner: as if its author had written what the pod has. Of a pod with other errors only these are kept.
///
/// # Errors
/// As [`evaluate_stored`].
pub fn evaluate_owned_pod(
    eval_context: &EvalContext<'_>,
    subject: &Object<'_>,
    json: &str,
    difference: &PodDifference,
) -> Result<Evaluated, ObjectError> {
    let reason = unless_alive(eval_context, subject);
    if let Some(reason) = reason.or_else(|| unless_running(subject, json)) {
        return Ok(Evaluated::Passed(reason));
    }
    let mut evaluated = evaluate_itself(eval_context, subject, json)?;
    if let Evaluated::Owner(result) = &mut evaluated {
        match difference {
            PodDifference::Evidence => result.is_added_evidence = true,
            PodDifference::Errors(errors) => {
                result.differs_from_template = true;
                let is_error = |found: &FindingResult| {
                    (errors.iter()).any(|(id, path)| *id == found.id && *path == found.path)
                };
                result.findings.retain(is_error);
            }
        }
        let (namespace, today) = (&subject.namespace, eval_context.facts.today);
        if let Some(above) = WorkloadName::owner_above(subject.kind, &subject.meta, namespace, today) {
            result.owner = Some(ForeignOwner {
                api_version: format!("{}/v1", above.group),
                kind: above.kind,
                name: above.name,
            });
        }
    }
    Ok(evaluated)
}

/// Evaluates a NetworkPolicy, with facts of [`NetworkObjects`](super::NetworkObjects). Admission does not review it, so its
/// findings deny and warn nobody.
fn evaluate_network_policy(
    eval_context: &EvalContext<'_>,
    subject: &Object<'_>,
    json: &str,
) -> Result<Evaluated, ObjectError> {
    let mut evaluated = evaluate_itself(eval_context, subject, json)?;
    if let Evaluated::Owner(result) = &mut evaluated
        && result.not_reviewed.is_none()
    {
        (result.outcome, result.decision) = (OwnerOutcome::Passes, Decision::Allow);
        for found in &mut result.findings {
            found.would_deny = false;
            if found.outcome != FindingOutcome::Exempted {
                found.outcome = FindingOutcome::Reported;
            }
        }
    }
    Ok(evaluated)
}

fn evaluate_itself(
    eval_context: &EvalContext<'_>,
    subject: &Object<'_>,
    json: &str,
) -> Result<Evaluated, ObjectError> {
    let context = AdmissionContext {
        facts: eval_context.facts,
        policies: &eval_context.policies,
    };
    let simulation = simulate_create(subject.kind, json, &context)?;
    let not_reviewed = eval_context.not_reviewed(&subject.namespace);
    Ok(Evaluated::Owner(Box::new(owner_result(
        subject,
        json,
        &simulation,
        not_reviewed.as_ref(),
        eval_context,
    ))))
}

/// The references of the images whose registries can add to the evaluation of a stored object. Empty if the object is not
/// evaluated, if admission does not review it, if its policy does not use registries, or if its pods are certainly for
/// Linux.
pub fn images_of_stored(eval_context: &EvalContext<'_>, subject: &Object<'_>, json: &str) -> Vec<String> {
    let namespace = &subject.namespace;
    let policy = eval_context.policy_in(namespace);
    if policy.image_evidence != ImageEvidence::Registry
        || eval_context.not_reviewed(namespace).is_some()
        || unless_top_owner(eval_context, subject, json).is_some()
    {
        return Vec::new();
    }
    let mut images = Vec::new();
    subject.for_each_pod(|object| {
        let inference = infer_os(object, eval_context.facts, &policy);
        if inference.verdict != Verdict::Linux || inference.is_weak() {
            let pod = object.pod().into_iter();
            images.extend(pod.flat_map(PodSpec::images).map(str::to_owned));
        }
    });
    images
}

/// What an object is if it is not a top owner to evaluate; `None` if it is one.
fn unless_top_owner(eval_context: &EvalContext<'_>, subject: &Object<'_>, json: &str) -> Option<Evaluated> {
    if let Some(reason) = unless_alive(eval_context, subject) {
        return Some(Evaluated::Passed(reason));
    }
    if let (Some(owner), Some(kind)) = (subject.meta.controller(), subject.owner_kind())
        && eval_context.evaluates(kind)
    {
        return Some(Evaluated::Owned(kind, owner.name.to_string()));
    }
    unless_running(subject, json).map(Evaluated::Passed)
}

/// Why an object is not evaluated, whoever created it.
fn unless_alive(eval_context: &EvalContext<'_>, subject: &Object<'_>) -> Option<SkipReason> {
    if !subject.kind.has_pod() {
        return Some(SkipReason::NoPod);
    }
    if subject.meta.deletion_timestamp.0 {
        return Some(SkipReason::Deleted);
    }
    (eval_context.facts.is_stored_mirror(subject)).then_some(SkipReason::Mirror)
}

/// Why an object is not evaluated itself although nothing else is evaluated for it.
fn unless_running(subject: &Object<'_>, json: &str) -> Option<SkipReason> {
    let has_ended = ObjectStatus::of(json).has_ended(subject.kind);
    has_ended.then_some(SkipReason::Finished)
}

fn owner_result(
    subject: &Object<'_>,
    json: &str,
    simulation: &Simulation<'_>,
    not_reviewed: Option<&NotReviewed>,
    eval_context: &EvalContext<'_>,
) -> OwnerResult {
    let inference = &simulation.evaluation.inference;
    let (image_builds, has_unknown_images) = builds(subject, inference.verdict, eval_context);
    let words = not_reviewed.map(|why| why.words(&subject.namespace));
    let (outcome, decision) = outcomes(simulation, words.is_some());
    let paths_if = |is_patched: bool, edits| if is_patched { paths(edits) } else { Vec::new() };
    let spec = StoredObjectSpec::of(json);
    OwnerResult {
        api_version: api_version(subject.kind, json),
        kind: subject.kind,
        namespace: subject.namespace.to_string(),
        name: subject.meta.name.to_string(),
        uid: subject.meta.uid.to_string(),
        owner: subject.meta.controller().map(|owner| ForeignOwner {
            api_version: owner.api_version.to_string(),
            kind: owner.kind.to_string(),
            name: owner.name.to_string(),
        }),
        is_added_evidence: false,
        differs_from_template: false,
        unlisted_controller: unlisted_controller(subject.kind, decision, eval_context.facts),
        denied_by_class: denied_by_class(subject, decision, inference),
        verdict: inference.verdict,
        evidence: inference.evidence.iter().map(ToString::to_string).collect(),
        policy: simulation.policy.name.clone(),
        outcome,
        decision,
        image_builds,
        has_unknown_images,
        replicas: spec.replicas.or(spec.parallelism),
        patches: paths_if(
            words.is_none() && outcome != OwnerOutcome::Denied,
            &simulation.edits,
        ),
        would_patch: paths_if(words.is_none(), &simulation.would_edit),
        findings: findings(simulation, words.as_deref()),
        not_reviewed: words,
    }
}

/// The kind, if the object would be denied, its controller creates objects for it, and the administrator does not list that
/// controller: it is never known otherwise.
fn unlisted_controller(kind: Kind, decision: Decision, facts: &Facts) -> Option<String> {
    let is_denied = matches!(decision, Decision::Deny | Decision::WouldDeny);
    let is_listed = || {
        facts
            .config
            .controllers
            .iter()
            .any(|listed| listed.controls(kind))
    };
    (is_denied && kind.is_custom() && kind.creates().is_some() && !is_listed()).then(|| qualified(kind))
}

/// The RuntimeClass of a template that would be denied, if that is the only evidence.
fn denied_by_class(subject: &Object<'_>, decision: Decision, inference: &Inference) -> Option<String> {
    let is_denied = matches!(decision, Decision::Deny | Decision::WouldDeny);
    let by_class = |evidence: &Evidence| evidence.kind == EvidenceKind::RuntimeClass;
    if !is_denied || subject.kind == Kind::Pod || !inference.evidence.iter().all(by_class) {
        return None;
    }
    let class = subject.pod()?.runtime_class_name.as_ref();
    class.map(ToString::to_string)
}

/// The outcome, and the same as an admission decision.
fn outcomes(simulation: &Simulation<'_>, is_not_reviewed: bool) -> (OwnerOutcome, Decision) {
    if is_not_reviewed {
        return (OwnerOutcome::NotReviewed, Decision::Skip);
    }
    if simulation.denied_in.is_some() {
        return (OwnerOutcome::Denied, Decision::Deny);
    }
    let (outcome, decision) = if simulation.edits.is_empty() {
        (OwnerOutcome::Passes, Decision::Allow)
    } else {
        (OwnerOutcome::Patched, Decision::Patch)
    };
    let would_deny = simulation.evaluation.would_deny().next().is_some();
    (outcome, if would_deny { Decision::WouldDeny } else { decision })
}

/// The findings, each with its outcome.
fn findings(simulation: &Simulation<'_>, not_reviewed: Option<&str>) -> Vec<FindingResult> {
    let evaluation = &simulation.evaluation;
    let mut all: Vec<FindingResult> = (evaluation.findings.iter().zip(&simulation.action_reasons))
        .filter(|(finding, _)| finding.enforced_action > Action::Disabled)
        .map(|(finding, outcome_reason)| {
            found(
                finding,
                outcome(finding, &simulation.policy),
                outcome_reason.clone(),
            )
        })
        .collect();
    all.extend(
        (simulation.fixed.iter()).map(|finding| found(finding, outcome(finding, &simulation.policy), None)),
    );
    for (note, lifted) in &evaluation.exempted {
        let lifted = lifted.iter();
        all.extend(lifted.map(|finding| found(finding, FindingOutcome::Exempted, Some(note.clone()))));
    }
    if let Some(words) = not_reviewed {
        for found in &mut all {
            found.outcome = FindingOutcome::NotReviewed;
            found.outcome_reason = Some(words.to_owned());
            found.would_deny = false;
        }
    }
    all
}

fn outcome(finding: &Finding, policy: &Policy) -> FindingOutcome {
    match (finding.resolved_by, finding.action) {
        (Some(Resolver::Placement), _) if policy.placement == PlacementMode::Apply => FindingOutcome::Fixed,
        (Some(Resolver::Removal), _) if policy.ignored_fields == IgnoredFields::Remove => {
            FindingOutcome::Fixed
        }
        (Some(_), _) => FindingOutcome::Fixable,
        (None, Action::Deny) => FindingOutcome::Denied,
        (None, Action::Warn) => FindingOutcome::Warned,
        (None, Action::Audit | Action::Disabled) => FindingOutcome::Audited,
    }
}

fn found(finding: &Finding, outcome: FindingOutcome, outcome_reason: Option<String>) -> FindingResult {
    FindingResult {
        id: finding.rule.id,
        rule: finding.rule.name,
        severity: finding.severity,
        class: finding.class,
        path: finding.path.named(),
        message: finding.message.to_string(),
        remedy: finding.remedy.to_string(),
        would_deny: outcome != FindingOutcome::Exempted
            && finding.is_open()
            && finding.enforced_action == Action::Deny,
        outcome,
        outcome_reason,
    }
}

/// The builds of the images of a Windows pod, lowest first, and whether the build of any image is unknown.
fn builds(subject: &Object<'_>, verdict: Verdict, eval_context: &EvalContext<'_>) -> (Vec<Build>, bool) {
    let Some(pod) = subject.pod().filter(|_| verdict == Verdict::Windows) else {
        return (Vec::new(), false);
    };
    let images = Image::of_pod(pod, eval_context.facts);
    let versions = || images.iter().map(|image| image.as_ref()?.versions.as_ref());
    let mut known: Vec<Build> = versions().flatten().flat_map(KnownVersions::builds).collect();
    known.sort_unstable();
    known.dedup();
    let is_unknown = |known: Option<&KnownVersions>| known.is_none_or(KnownVersions::has_unversioned);
    (known, versions().any(is_unknown))
}

/// The fields that edits change, without duplicates.
fn paths(edits: &[Edit]) -> Vec<String> {
    let mut paths: Vec<String> = edits.iter().map(|edit| edit.path().named()).collect();
    paths.dedup();
    paths
}

/// The `apiVersion` of an object. The API server omits it from the items of a list, except for custom resources.
fn api_version(kind: Kind, json: &str) -> String {
    let written = at(json, &["apiVersion"]).filter(|_| kind.is_custom());
    let written = written.and_then(|text| serde_json::from_str(text).ok());
    written.unwrap_or_else(|| match kind.group() {
        "" => "v1".to_owned(),
        group => format!("{group}/v1"),
    })
}
