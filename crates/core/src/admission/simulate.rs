//! Simulation: what admission would answer if a stored object were created again as it is, with the same evaluation as
//! reviews.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use super::audit_record::Phase;
use super::decision::EvaluatedReview;
use super::request::Request;
use super::review_input::{AdmissionContext, ReviewInput, policy_for};
use crate::engine::{Evaluation, action_reason};
use crate::model::cluster::policy::Policy;
use crate::model::objects::managed_fields::ManagedFields;
use crate::model::objects::object::{FieldOwners as _, Object, ObjectError, ReviewContext, ReviewStage};
use crate::model::objects::requester::Origin;
use crate::model::objects::workload::Kind;
use crate::model::syntax::edit::{Edit, to_json_patch};
use crate::model::syntax::json::at;
use crate::model::syntax::path::Path;
use crate::rules::Finding;

/// The result of creating an object.
#[derive(Clone, Debug)]
pub struct Simulation<'c> {
    /// The policy that applies, for a requester without exemptions.
    pub policy: Cow<'c, Policy>,
    /// The evaluation of the last phase: `/mutate` if it denies, else `/validate`.
    pub evaluation: Evaluation,
    /// Why a finding's action differs from that of its severity, in the order of the findings.
    pub action_reasons: Vec<Option<String>>,
    /// The phase that denies it, if any.
    pub denied_in: Option<Phase>,
    /// What `/mutate` changes.
    pub edits: Vec<Edit>,
    /// What `/mutate` would also change if everything in dry run were active.
    pub would_edit: Vec<Edit>,
    /// The findings that these edits of `/mutate` resolve, or would resolve.
    pub fixed: Vec<Finding>,
}

/// Evaluates a stored object as both phases would if its author created it again: without runtime changes, and for an
/// unknown requester, which may be the controller of a custom resource.
///
/// # Errors
/// The object does not match its kind.
pub fn simulate_create<'c>(
    kind: Kind,
    json: &str,
    context: &AdmissionContext<'c>,
) -> Result<Simulation<'c>, ObjectError> {
    let unbound = if kind == Kind::Pod { unbind(json) } else { None };
    let json = unbound.as_deref().unwrap_or(json);
    let namespace = namespace_of(json);
    let request = Request {
        namespace: namespace.as_str().into(),
        operation: "CREATE".into(),
        ..Request::default()
    };
    let policy = policy_for(&request, context);
    let review = |phase| ReviewInput {
        phase,
        request: &request,
        facts: context.facts,
        policy: &policy,
        documentation: None,
    };
    let written = SimulatedPhase::of(review(Phase::Mutate), kind, json)?;
    let edits = written.evaluation.edits.clone();
    let would_edit = written.evaluation.would_edit.clone();
    if written.denied {
        return Ok(Simulation {
            evaluation: written.evaluation,
            action_reasons: written.action_reasons,
            denied_in: Some(Phase::Mutate),
            edits: Vec::new(),
            would_edit,
            fixed: Vec::new(),
            policy,
        });
    }
    let patched = apply(json, &edits);
    let stored = patched.as_deref().unwrap_or(json);
    let stored = SimulatedPhase::of(review(Phase::Validate), kind, stored)?;
    Ok(Simulation {
        fixed: fixed(written.evaluation, &stored.evaluation),
        evaluation: stored.evaluation,
        action_reasons: stored.action_reasons,
        denied_in: stored.denied.then_some(Phase::Validate),
        edits,
        would_edit,
        policy,
    })
}

/// The findings that the edits resolve.
fn fixed(written: Evaluation, stored: &Evaluation) -> Vec<Finding> {
    let is_fixed = |finding: &Finding| {
        let identity = finding.identity();
        !finding.is_open() && (stored.findings.iter()).all(|other| other.identity() != identity)
    };
    written.findings.into_iter().filter(is_fixed).collect()
}

/// The result of one phase.
struct SimulatedPhase {
    evaluation: Evaluation,
    action_reasons: Vec<Option<String>>,
    denied: bool,
}

impl SimulatedPhase {
    fn of(review: ReviewInput<'_>, kind: Kind, json: &str) -> Result<Self, ObjectError> {
        let read = Object::parse(kind, json, ReviewStage::Stored)?;
        let owners = ManagedFields::of(read.meta.managed_fields);
        let read = review.in_context(read, review.editable(kind), &owners);
        let subject = Object {
            context: ReviewContext {
                is_mirror: review.facts.is_stored_mirror(&read),
                origin: Origin::again(read.creator_kind(), &review.facts.config.controllers),
                ..read.context
            },
            ..read
        };
        let evaluation = review.evaluate(&subject);
        let evaluated = EvaluatedReview {
            review,
            subject: &subject,
            evaluation: &evaluation,
        };
        let denied = evaluated.decide().denial.is_some();
        let why = |finding| action_reason(finding, &subject, review.policy, None);
        Ok(SimulatedPhase {
            action_reasons: evaluation.findings.iter().map(why).collect(),
            denied,
            evaluation,
        })
    }
}

fn namespace_of(json: &str) -> String {
    let text = at(json, &["metadata", "namespace"]).unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

/// A pod without the node that the scheduler assigned; `None` if it has no node, or if its author set the node.
fn unbind(json: &str) -> Option<String> {
    const NODE: [&str; 2] = ["spec", "nodeName"];
    at(json, &NODE)?;
    let managed = at(json, &["metadata", "managedFields"]);
    let managed: Option<&RawValue> = managed.and_then(|text| serde_json::from_str(text).ok());
    // The binding is not recorded in the managed fields; an object without managed fields is treated as written by its
    // author.
    if managed.is_some() && ManagedFields::of(managed).owns(&Path::of(&NODE)) {
        return None;
    }
    let mut pod: Value = serde_json::from_str(json).ok()?;
    pod.get_mut("spec")?.as_object_mut()?.remove("nodeName");
    Some(pod.to_string())
}

/// The object with these edits; `None` if there are none.
fn apply(json: &str, edits: &[Edit]) -> Option<String> {
    if edits.is_empty() {
        return None;
    }
    let mut object: Value = serde_json::from_str(json).ok()?;
    json_patch::patch(&mut object, &to_json_patch(edits)).ok()?;
    Some(object.to_string())
}
