//! The answer to a review above the size limit: decided from its head, because the object is not parsed.

use serde::de::IgnoredAny;

use super::ReviewAnswer;
use super::annotations::{self, AuditAnnotations};
use super::audit_record::AuditRecord;
use super::request::{Oversize, Request};
use super::response::{Denial, ReviewDecision};
use crate::engine::Decision;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Action, Policy};
use crate::model::objects::requester::Origin;
use crate::model::objects::workload::Kind;
use crate::model::syntax::json::at;
use crate::model::syntax::text::size_text;

/// The answer to a review that is too large, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OversizeDecision {
    /// The policy denies, and nothing requires that the object is admitted.
    Denied,
    /// The policy of the namespace does not deny.
    Policy,
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
            OversizeDecision::Controller => "allowed: the requester is a controller",
            OversizeDecision::Deletion => {
                "allowed: the update may remove a finalizer of an object that is being deleted"
            }
            OversizeDecision::NotEvaluated => "allowed: Transom does not evaluate such requests",
        }
    }
}

/// Answers a review that is too large from its head. `policy`: that of the request, if it is evaluated.
pub(super) fn review_head(
    mut record: AuditRecord,
    request: &Request<'_>,
    oversize: Oversize,
    policy: Option<&Policy>,
    facts: &Facts,
) -> ReviewAnswer {
    let (Some(kind), Some(policy)) = (request.reviewed_kind(), policy) else {
        let annotations = noted(oversize, OversizeDecision::NotEvaluated, Decision::Skip, None);
        let ruling = ReviewDecision {
            annotations,
            ..ReviewDecision::default()
        };
        return ReviewAnswer::encode(request, ruling, record);
    };
    record.set_policy(&policy.name);
    let outcome = outcome(kind, request, policy, facts);
    let is_denied = outcome == OversizeDecision::Denied;
    let decision = if is_denied {
        Decision::Deny
    } else {
        Decision::Allow
    };
    let ruling = ReviewDecision {
        denial: is_denied.then(|| Denial::TooLarge(denial(kind, oversize))),
        warnings: warning(kind, oversize, outcome, policy).into_iter().collect(),
        annotations: noted(oversize, outcome, decision, Some(policy)),
        ..ReviewDecision::default()
    };
    record.labels.decision = decision.as_str();
    record.warned = !ruling.warnings.is_empty();
    ReviewAnswer::encode(request, ruling, record)
}

fn outcome(kind: Kind, request: &Request<'_>, policy: &Policy, facts: &Facts) -> OversizeDecision {
    if policy.validation != Action::Deny {
        OversizeDecision::Policy
    } else if Origin::may_be_controller(kind, &request.user_info.username, &facts.config.controllers) {
        OversizeDecision::Controller
    } else if request.is_update() && may_be_deleted(request.body) {
        OversizeDecision::Deletion
    } else {
        OversizeDecision::Denied
    }
}

/// Whether the object of the review that begins like this may have a `deletionTimestamp`. Nothing that an author can make
/// long precedes it: the API server encodes the fields of ObjectMeta in their order.
fn may_be_deleted(head: &str) -> bool {
    const LATER: [&str; 6] = [
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    let Some(metadata) = at(head, &["request", "object", "metadata"]) else {
        return true;
    };
    if let Some(deletion) = at(metadata, &["deletionTimestamp"]) {
        return deletion != "null";
    }
    let is_complete = serde_json::from_str::<IgnoredAny>(metadata).is_ok();
    !is_complete && !LATER.iter().any(|field| at(metadata, &[field]).is_some())
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
        size_text(oversize.bound as u64)
    )
}

/// The warning about an admitted object; `None` unless the policy warns.
fn warning(kind: Kind, oversize: Oversize, outcome: OversizeDecision, policy: &Policy) -> Option<String> {
    let warns = outcome == OversizeDecision::Policy && policy.validation == Action::Warn;
    warns.then(|| {
        format!(
            "transom did not evaluate this {kind}: its admission review has {}, and Transom reads at most {}; shorten the \
             longest values of the object",
            size(oversize),
            size_text(oversize.bound as u64)
        )
    })
}

fn size(oversize: Oversize) -> String {
    let bound = size_text(oversize.bound as u64);
    // A few bytes over the bound look equal to it.
    let bytes = oversize.bytes.map(|bytes| size_text(bytes as u64));
    let bytes = bytes.filter(|bytes| *bytes != bound);
    bytes.unwrap_or_else(|| format!("more than {bound}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::civil::date;
    use serde_json::Value;

    use super::*;
    use crate::admission::{AdmissionContext, Phase, Review, decode_head};
    use crate::engine::policy_set::PolicySet;
    use crate::model::cluster::config::ClusterConfig;
    use crate::model::objects::requester::ListedController;

    const SIZE: Oversize = Oversize {
        bytes: Some(26_500_000),
        bound: 20 << 20,
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
            ..Policy::standalone()
        };
        let policies = PolicySet::new(Vec::new(), policy);
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        facts.config = Arc::new(ClusterConfig {
            controllers: vec![ListedController {
                username: "platform:workloads".to_owned(),
                kinds: vec!["ReplicaSet.apps".to_owned(), "Deployment.apps".to_owned()],
            }],
            ..ClusterConfig::default()
        });
        let context = AdmissionContext {
            facts: &facts,
            policies: &policies,
        };
        let request = decode_head(review.as_bytes(), oversize).unwrap();
        let answer = Review::new(request, &context).answer(Phase::Validate, &facts);
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["response"]["uid"], "u-1");
        (answer.record, body["response"].clone())
    }

    #[test]
    fn an_object_that_is_being_deleted_says_so_before_anything_long() {
        let stamp = "\"deletionTimestamp\":\"2026-11-21T00:00:00Z\"";
        for (metadata, expected) in [
            ("{\"name\":\"web\",\"labels\":{\"a\":\"".to_owned(), false),
            ("{\"name\":\"web\",\"labels\":{".to_owned() + stamp, false),
            ("{\"name\":\"web\"},\"spec\":{".to_owned() + stamp, false),
            (
                "{\"name\":\"web\",\"deletionTimestamp\":null,\"labels\":{".to_owned(),
                false,
            ),
            ("{\"name\":\"web\",".to_owned() + stamp + ",\"labels\":{", true),
            ("{\"name\":\"web\",".to_owned() + stamp, true),
            ("{\"name\":\"web\",\"creationTimestamp\":\"2026".to_owned(), true),
            ("{\"name\":\"web\",\"lab".to_owned(), true),
            ("{".to_owned(), true),
            (String::new(), true),
        ] {
            let head = format!("{{\"request\":{{\"object\":{{\"metadata\":{metadata}");
            assert_eq!(may_be_deleted(&head), expected, "{metadata}");
        }
        assert!(may_be_deleted("{\"request\":{\"userInfo\":{\"username\":\"a"));
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
                "transom cannot evaluate this {kind}: its admission review has 25.2 MiB, and Transom reads at most 20.0 MiB; shorten"
            );
            assert!(message.starts_with(&start), "{message}");
            assert_eq!(
                answer["auditAnnotations"]["not-evaluated"],
                "too large: 25.2 MiB; denied"
            );
            assert_eq!(record.labels.decision, "deny");
            assert!(record.is_noteworthy());
        }
        for bytes in [None, Some(SIZE.bound + 1)] {
            let size = Oversize { bytes, ..SIZE };
            let (_, answer) = record_and_answer(&head("Pod", "CREATE", "alice", ""), size, Action::Deny);
            assert_eq!(
                answer["auditAnnotations"]["not-evaluated"],
                "too large: more than 20.0 MiB; denied"
            );
        }
    }

    #[test]
    fn what_must_pass_passes_under_deny_and_is_recorded() {
        let deleted = ",\"deletionTimestamp\":\"2026-11-21T00:00:00Z\"";
        let controller = "system:serviceaccount:kube-system:replicaset-controller";
        let cut = head("Deployment", "UPDATE", "alice", "");
        let cut = cut.split_once("\"metadata\"").unwrap().0.to_owned();
        for (review, why) in [
            (
                head("Pod", "CREATE", controller, ""),
                OversizeDecision::Controller,
            ),
            (
                head("Pod", "CREATE", "platform:workloads", ""),
                OversizeDecision::Controller,
            ),
            (
                head("Deployment", "UPDATE", "alice", deleted),
                OversizeDecision::Deletion,
            ),
            (cut, OversizeDecision::Deletion),
            (head("Pod", "DELETE", "alice", ""), OversizeDecision::NotEvaluated),
            (
                head("Node", "UPDATE", "alice", ""),
                OversizeDecision::NotEvaluated,
            ),
        ] {
            let (record, answer) = record_and_answer(&review, SIZE, Action::Deny);
            let why = why.as_str();
            assert_eq!(answer["allowed"], true, "{why}");
            assert_eq!(
                answer["auditAnnotations"]["not-evaluated"],
                format!("too large: 25.2 MiB; {why}")
            );
            assert!(record.is_noteworthy(), "{why}");
        }
        let (_, answer) =
            record_and_answer(&head("Deployment", "CREATE", controller, ""), SIZE, Action::Deny);
        assert_eq!(answer["allowed"], false, "no controller makes Deployments");
    }

    #[test]
    fn under_other_policies_it_is_recorded_and_a_policy_that_warns_warns() {
        for (validation, warned) in [
            (Action::Warn, true),
            (Action::Audit, false),
            (Action::Disabled, false),
        ] {
            let (record, answer) = record_and_answer(&head("Pod", "CREATE", "alice", ""), SIZE, validation);
            assert_eq!(
                (answer["allowed"].clone(), record.labels.decision),
                (true.into(), "allow")
            );
            assert_eq!(record.warned, warned);
            let warning = answer["warnings"][0].as_str().unwrap_or_default();
            assert_eq!(warning.contains("25.2 MiB"), warned, "{warning}");
            assert!(warning.len() <= 250, "{warning}");
            assert_eq!(answer["auditAnnotations"]["decision"], "allow");
            assert!(record.is_noteworthy());
        }
    }
}
