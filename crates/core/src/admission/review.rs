//! The evaluation of one request: which objects are evaluated, which policy applies, and what is recorded.

use std::borrow::Cow;

use super::annotations;
use super::audit_record::{AuditRecord, Phase};
use super::decision::EvaluatedReview;
use super::request::{Request, RequestObject, changes_nothing};
use super::response::{Denial, ReviewDecision};
use super::review_input::{AdmissionContext, ReviewInput, policy_for};
use super::{ReviewAnswer, too_large};
use crate::engine::Decision;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Action, IgnoredFields, PlacementMode, Policy};
use crate::model::objects::managed_fields::ManagedFields;
use crate::model::objects::object::{Object, ObjectError, ReviewStage};
use crate::model::objects::workload::Kind;
use crate::model::syntax::text::one_line;
use crate::rules::documentation::DocumentationUrl;

/// One review: a request, and the policy that applies to it.
#[derive(Debug)]
pub struct Review<'r, 'c> {
    pub(super) request: Request<'r>,
    /// The kind of the object and its policy, if this operation on such an object is evaluated.
    pub(super) applied: Option<(Kind, Cow<'c, Policy>)>,
    /// Where the rules of a denial are documented.
    documentation: Option<&'c DocumentationUrl>,
}

impl<'r, 'c> Review<'r, 'c> {
    /// Selects the policy for a request.
    pub fn new(request: Request<'r>, context: &AdmissionContext<'c>) -> Self {
        let applied = applied(&request, context);
        Review {
            request,
            applied,
            documentation: None,
        }
    }

    /// The same, with links to this documentation in a denial.
    #[must_use]
    pub fn documented(self, documentation: Option<&'c DocumentationUrl>) -> Self {
        Review {
            documentation,
            ..self
        }
    }

    /// Evaluates the request with these facts, and answers it.
    pub fn answer(self, phase: Phase, facts: &Facts) -> ReviewAnswer {
        let Review {
            mut request,
            applied,
            documentation,
        } = self;
        let mut record = AuditRecord::of(phase, &request);
        if let Some(oversize) = request.oversize {
            let policy = applied.as_ref().map(|(_, policy)| &**policy);
            return too_large::review_head(record, &request, oversize, policy, facts);
        }
        let object = request.object.take();
        let Some((kind, policy)) = applied else {
            return ReviewAnswer::encode(&request, ReviewDecision::default(), record);
        };
        record.set_policy(&policy.name);
        let is_unchanged = |object| is_unchanged(&request, object);
        if does_nothing(&policy) || object.as_ref().is_some_and(is_unchanged) {
            return ReviewAnswer::encode(&request, ReviewDecision::default(), record);
        }
        let review = ReviewInput {
            phase,
            request: &request,
            facts,
            policy: &policy,
            documentation,
        };
        match object.map(|object| read_object(kind, object)) {
            Some(Ok(read)) => review.answer(*read, record),
            Some(Err(error)) => review.reject_unreadable(kind, &error.to_string(), record),
            None => review.reject_unreadable(kind, "the request has no object", record),
        }
    }
}

/// The kind of the object and the policy that applies, if this operation on such an object is evaluated.
fn applied<'c>(request: &Request<'_>, context: &AdmissionContext<'c>) -> Option<(Kind, Cow<'c, Policy>)> {
    if !request.is_reviewed() {
        return None;
    }
    let policy = policy_for(request, context);
    let configured = || request.configured_kind(&context.facts.config.pod_templates);
    let kind = request.known_kind().or_else(configured)?;
    Some((kind, policy))
}

/// Whether an evaluation with this policy has no effect.
pub(super) fn does_nothing(policy: &Policy) -> bool {
    policy.validation == Action::Disabled
        && policy.placement == PlacementMode::Disabled
        && matches!(policy.ignored_fields, IgnoredFields::Deny | IgnoredFields::Warn)
}

/// Whether the request is an update that introduces nothing.
pub(super) fn is_unchanged(request: &Request<'_>, object: &RequestObject<'_>) -> bool {
    matches!(object, RequestObject::Raw(object)
        if request.is_update() && changes_nothing(object, request.old_object))
}

/// Parses the object of a request, unless that was done in the same pass as the request.
pub(super) fn read_object(kind: Kind, object: RequestObject<'_>) -> Result<Box<Object<'_>>, ObjectError> {
    match object {
        RequestObject::Read(object) => Ok(object),
        RequestObject::Raw(text) => Object::parse(kind, text.get(), ReviewStage::Stored).map(Box::new),
    }
}

impl ReviewInput<'_> {
    /// Evaluates the object of the request.
    fn answer(self, read: Object<'_>, mut record: AuditRecord) -> ReviewAnswer {
        let owners = ManagedFields::of(read.meta.managed_fields);
        let editable = self.editable(read.kind);
        let subject = self.in_context(read, editable, &owners);
        let evaluation = self.evaluate(&subject);
        let evaluated = EvaluatedReview {
            review: self,
            subject: &subject,
            evaluation: &evaluation,
        };
        let mut ruling = evaluated.decide();
        if !ruling.annotations.is_empty() {
            (ruling.annotations).extend(annotations::of_images(&subject, self.facts, self.policy));
        }
        record.set_name(subject.meta.display_name());
        record.labels.decision = ruling.decision().as_str();
        record.warned = !ruling.warnings.is_empty();
        record.verdict = Some(evaluation.inference.verdict);
        let reported = annotations::reported(&evaluation);
        record.rules = reported.map(|finding| finding.rule.name).collect();
        ReviewAnswer::encode(self.request, ruling, record)
    }

    /// An object that the API server could parse and Transom cannot. Only a policy that denies rejects it.
    fn reject_unreadable(&self, kind: Kind, why: &str, mut record: AuditRecord) -> ReviewAnswer {
        // The API server does not validate the pods of custom resources, and their controllers may supply what is
        // missing. A controller that cannot read the object either creates nothing from it. The pods of others are
        // evaluated when they are created; if `controllers` names the controller, only for what cannot run.
        let denies = self.policy.validation == Action::Deny && !kind.is_custom();
        let decision = if denies { Decision::Deny } else { Decision::Allow };
        let why_not = format!("unreadable: {why}");
        let ruling = ReviewDecision {
            denial: denies
                .then(|| Denial::Unreadable(format!("transom cannot read this {kind}: {}", one_line(why)))),
            annotations: annotations::of_unevaluated(decision, &why_not, Some(self.policy)),
            ..ReviewDecision::default()
        };
        record.labels.decision = decision.as_str();
        ReviewAnswer::encode(self.request, ruling, record)
    }
}

#[cfg(test)]
mod tests;
