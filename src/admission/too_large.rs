//! The answer to a review above the size limit: decided from its head, because the object is not parsed.

use super::ReviewAnswer;
use super::annotations::{self, AuditAnnotations};
use super::audit_record::{AuditRecord, Phase};
use super::request::{BeingDeleted, Request, ReviewHead};
use super::response::{Denial, ReviewDecision, encode};
use super::review::{AdmissionContext, policy_for};
use crate::engine::Decision;
use crate::model::policy::{Action, Policy};
use crate::model::requester::Origin;
use crate::model::workload::Kind;

/// The size of a review, and the webhook entry that sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Oversize {
    /// Its size in bytes; `None` if the client did not declare it.
    pub bytes: Option<usize>,
    /// The size limit of reviews, in bytes.
    pub bound: usize,
    /// Whether the entry selects only objects with evidence of Windows.
    pub has_sign: bool,
}

/// The answer to a review that is too large, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OversizeDecision {
    /// The policy denies, and nothing requires that the object is admitted.
    Denied,
    /// The policy of the namespace does not deny.
    Policy,
    /// The entry also selects objects without evidence of Windows.
    NoSign,
    /// A controller created the object from a template that was evaluated.
    Controller,
    /// The object is being deleted, or its head does not show that it is not.
    Deletion,
    /// Transom does not evaluate this kind, operation or subresource.
    NotEvaluated,
}

impl OversizeDecision {
    fn as_str(self) -> &'static str {
        match self {
            OversizeDecision::Denied => "denied",
            OversizeDecision::Policy => "allowed: the policy does not deny",
            OversizeDecision::NoSign => "allowed: the entry also selects objects without evidence of Windows",
            OversizeDecision::Controller => "allowed: the requester is a controller",
            OversizeDecision::Deletion => {
                "allowed: the update may remove a finalizer of an object that is being deleted"
            }
            OversizeDecision::NotEvaluated => "allowed: Transom does not evaluate such requests",
        }
    }
}

/// Answers a review from its head.
pub fn review_head(
    phase: Phase,
    head: &ReviewHead<'_>,
    oversize: Oversize,
    context: &AdmissionContext<'_>,
) -> ReviewAnswer {
    let request = &head.request;
    let mut record = AuditRecord::of(phase, request);
    let Some(kind) = request.reviewed_kind() else {
        let annotations = noted(oversize, OversizeDecision::NotEvaluated, Decision::Skip, None);
        return answer(
            request,
            ReviewDecision {
                annotations,
                ..ReviewDecision::default()
            },
            record,
        );
    };
    let policy = policy_for(request, context);
    record.set_policy(&policy.name);
    let outcome = outcome(kind, head, oversize, &policy);
    let decision = match outcome {
        OversizeDecision::Denied => Decision::Deny,
        _ => Decision::Allow,
    };
    let ruling = ReviewDecision {
        denial: (outcome == OversizeDecision::Denied).then(|| Denial::TooLarge(denial(kind, oversize))),
        warnings: warning(kind, oversize, outcome, &policy).into_iter().collect(),
        annotations: noted(oversize, outcome, decision, Some(&policy)),
        ..ReviewDecision::default()
    };
    record.labels.decision = decision.as_str();
    record.warned = !ruling.warnings.is_empty();
    answer(request, ruling, record)
}

fn answer(request: &Request<'_>, ruling: ReviewDecision<'_>, mut record: AuditRecord) -> ReviewAnswer {
    let body = encode(&request.uid, &ruling);
    record.annotations = ruling.annotations;
    ReviewAnswer { body, record }
}

fn outcome(kind: Kind, head: &ReviewHead<'_>, oversize: Oversize, policy: &Policy) -> OversizeDecision {
    let ReviewHead {
        request,
        being_deleted,
    } = head;
    if policy.validation != Action::Deny {
        OversizeDecision::Policy
    } else if !oversize.has_sign {
        OversizeDecision::NoSign
    } else if Origin::may_be_controller(kind, &request.user_info.username, &policy.controllers) {
        OversizeDecision::Controller
    } else if &*request.operation == "UPDATE" && *being_deleted != BeingDeleted::No {
        OversizeDecision::Deletion
    } else {
        OversizeDecision::Denied
    }
}

/// The audit annotations, which are also logged.
fn noted(
    oversize: Oversize,
    outcome: OversizeDecision,
    decision: Decision,
    policy: Option<&Policy>,
) -> AuditAnnotations {
    let why = format!("too large: {}; {}", size(oversize), outcome.as_str());
    annotations::of_unevaluated(decision, &why, policy)
}

fn denial(kind: Kind, oversize: Oversize) -> String {
    format!(
        "transom cannot evaluate this {kind}: its admission review has {}, and Transom reads at most {}; shorten the longest \
         values of the object, such as annotations and environment variables (an update contains the object twice, and each \
         <, > or & takes six bytes)",
        size(oversize),
        mebibytes(oversize.bound)
    )
}

/// The warning about an admitted object; `None` if the policy does not validate, or would not have denied anything.
fn warning(kind: Kind, oversize: Oversize, outcome: OversizeDecision, policy: &Policy) -> Option<String> {
    let is_reported =
        outcome == OversizeDecision::Policy && policy.validation != Action::Disabled && oversize.has_sign;
    is_reported.then(|| {
        format!(
            "transom did not evaluate this {kind}: its admission review has {}, and Transom reads at most {}; shorten the \
             longest values of the object",
            size(oversize),
            mebibytes(oversize.bound)
        )
    })
}

fn size(oversize: Oversize) -> String {
    (oversize.bytes).map_or_else(|| format!("more than {}", mebibytes(oversize.bound)), mebibytes)
}

/// Bytes in MiB, rounded up to a tenth.
fn mebibytes(bytes: usize) -> String {
    let tenths = bytes.saturating_mul(10).div_ceil(1 << 20);
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} MiB"),
        (whole, tenth) => format!("{whole}.{tenth} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::Value;

    use super::super::request::read_head;
    use super::*;
    use crate::engine::policy_set::PolicySet;
    use crate::model::facts::Facts;

    const SIZE: Oversize = Oversize {
        bytes: Some(26_500_000),
        bound: 20 << 20,
        has_sign: true,
    };

    /// The head of a review, up to the middle of an annotation.
    fn head(kind: &str, operation: &str, user: &str, metadata: &str) -> String {
        format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"u-1",
            "kind":{{"group":"{}","version":"v1","kind":"{kind}"}},"namespace":"shop","operation":"{operation}",
            "userInfo":{{"username":"{user}"}},"object":{{"metadata":{{"name":"web"{metadata},"annotations":{{"a":"\u003c"#,
            if kind == "Pod" { "" } else { "apps" }
        )
    }

    fn record_and_answer(review: &str, oversize: Oversize, validation: Action) -> (AuditRecord, Value) {
        let policy = Policy {
            name: "shop".to_owned(),
            validation,
            controllers: vec!["platform:workloads".to_owned()],
            ..Policy::standalone()
        };
        let policies = PolicySet::new(Vec::new(), policy);
        let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        let context = AdmissionContext {
            facts: &facts,
            policies: &policies,
        };
        let head = read_head(review.as_bytes()).unwrap();
        let answer = review_head(Phase::Validate, &head, oversize, &context);
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["response"]["uid"], "u-1");
        (answer.record, body["response"].clone())
    }

    #[test]
    fn under_deny_the_message_names_the_size_the_bound_and_the_cure() {
        for (kind, operation) in [
            ("Pod", "CREATE"),
            ("Deployment", "CREATE"),
            ("Deployment", "UPDATE"),
        ] {
            let (record, answer) = record_and_answer(&head(kind, operation, "alice", ""), SIZE, Action::Deny);
            assert_eq!(answer["allowed"], false, "{kind} {operation}");
            assert_eq!(answer["status"]["code"], 403);
            let message = answer["status"]["message"].as_str().unwrap();
            let start = format!(
                "transom cannot evaluate this {kind}: its admission review has 25.3 MiB, and Transom reads at most 20 MiB; shorten"
            );
            assert!(message.starts_with(&start), "{message}");
            assert_eq!(
                answer["auditAnnotations"]["not-evaluated"],
                "too large: 25.3 MiB; denied"
            );
            assert_eq!(record.labels.decision, "deny");
            assert!(record.is_noteworthy());
        }
        let unknown = Oversize { bytes: None, ..SIZE };
        let (_, answer) = record_and_answer(&head("Pod", "CREATE", "alice", ""), unknown, Action::Deny);
        assert_eq!(
            answer["auditAnnotations"]["not-evaluated"],
            "too large: more than 20 MiB; denied"
        );
    }

    #[test]
    fn what_must_pass_passes_under_deny_and_is_recorded() {
        let no_sign = Oversize {
            has_sign: false,
            ..SIZE
        };
        let deleted = ",\"deletionTimestamp\":\"2026-11-21T00:00:00Z\"";
        let controller = "system:serviceaccount:kube-system:replicaset-controller";
        let cut = head("Deployment", "UPDATE", "alice", "");
        let cut = cut.split_once("\"metadata\"").unwrap().0.to_owned();
        for (review, oversize, why) in [
            (
                head("Pod", "CREATE", "alice", ""),
                no_sign,
                OversizeDecision::NoSign,
            ),
            (
                head("Pod", "CREATE", controller, ""),
                SIZE,
                OversizeDecision::Controller,
            ),
            (
                head("Pod", "CREATE", "platform:workloads", ""),
                SIZE,
                OversizeDecision::Controller,
            ),
            (
                head("Deployment", "UPDATE", "alice", deleted),
                SIZE,
                OversizeDecision::Deletion,
            ),
            (cut, SIZE, OversizeDecision::Deletion),
            (
                head("Pod", "DELETE", "alice", ""),
                SIZE,
                OversizeDecision::NotEvaluated,
            ),
            (
                head("Node", "UPDATE", "alice", ""),
                SIZE,
                OversizeDecision::NotEvaluated,
            ),
        ] {
            let (record, answer) = record_and_answer(&review, oversize, Action::Deny);
            let why = why.as_str();
            assert_eq!(answer["allowed"], true, "{why}");
            assert_eq!(
                answer["auditAnnotations"]["not-evaluated"],
                format!("too large: 25.3 MiB; {why}")
            );
            assert!(record.is_noteworthy(), "{why}");
        }
        let (_, answer) =
            record_and_answer(&head("Deployment", "CREATE", controller, ""), SIZE, Action::Deny);
        assert_eq!(answer["allowed"], false, "no controller makes Deployments");
    }

    #[test]
    fn under_other_policies_a_person_is_warned_and_it_is_recorded() {
        for (validation, warned) in [
            (Action::Warn, true),
            (Action::Audit, true),
            (Action::Disabled, false),
        ] {
            let (record, answer) = record_and_answer(&head("Pod", "CREATE", "alice", ""), SIZE, validation);
            assert_eq!(
                (answer["allowed"].clone(), record.labels.decision),
                (true.into(), "allow")
            );
            assert_eq!(record.warned, warned);
            let warning = answer["warnings"][0].as_str().unwrap_or_default();
            assert_eq!(warning.contains("25.3 MiB"), warned, "{warning}");
            assert!(warning.len() <= 250, "{warning}");
            assert_eq!(answer["auditAnnotations"]["decision"], "allow");
            assert!(record.is_noteworthy());
        }
    }
}
