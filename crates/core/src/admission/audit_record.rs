//! The facts of a review for logs, metrics and traces: the audit line, the metric labels and the span use this record.

use super::request::Request;
use crate::engine::Decision;
use crate::model::objects::workload::Kind;
use crate::model::syntax::string_enum::string_enum;
use crate::model::syntax::text::{cut, one_line};
use crate::model::windows::os;

string_enum! {
    /// Which of the two endpoints was called, by the API server's name for the type of a webhook.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Phase {
        /// `POST /mutate`, called by the MutatingWebhookConfiguration.
        Mutate = "mutating",
        /// `POST /validate`, called by the ValidatingWebhookConfiguration.
        Validate = "validating",
    }
}

/// The metric labels of a review. Every field is from a closed set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ReviewLabels {
    /// `mutating` or `validating`: which webhook was called.
    pub r#type: &'static str,
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT` or `other`.
    pub operation: &'static str,
    /// A kind that Transom knows, or `other`.
    pub kind: &'static str,
    /// One of [`crate::engine::Decision`].
    pub decision: &'static str,
    /// Whether the request is a dry run.
    pub dry_run: bool,
}

/// The longest name, in bytes. The API server does not allow longer names of objects; another client may send anything.
const LONGEST: usize = 256;

fn bounded(text: &str) -> String {
    one_line(&cut(text, LONGEST)).into_owned()
}

/// Every fact of a review for the log, each of bounded size.
#[derive(Clone, Debug, Default)]
pub struct AuditRecord {
    /// Its metric labels.
    pub labels: ReviewLabels,
    /// The review's uid.
    pub uid: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The namespace of the object.
    pub namespace: String,
    /// Its name, or its `generateName`.
    pub name: String,
    pub user: String,
    /// The operating system of the object, if it was evaluated.
    pub verdict: Option<os::Verdict>,
    /// The rule names of the open findings, for metrics.
    pub rules: Vec<&'static str>,
    /// The audit annotations of the answer.
    pub annotations: Vec<(&'static str, String)>,
    /// Whether the answer warns the user.
    pub warned: bool,
    /// The applied policy; empty if the review needed none.
    pub policy: String,
}

impl AuditRecord {
    /// The facts that are known before the evaluation.
    pub(super) fn of(phase: Phase, request: &Request<'_>) -> Self {
        const OPERATIONS: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];
        let operation = OPERATIONS.into_iter().find(|known| **known == *request.operation);
        AuditRecord {
            labels: ReviewLabels {
                r#type: phase.as_str(),
                operation: operation.unwrap_or("other"),
                kind: request.known_kind().map_or("other", Kind::as_str),
                decision: Decision::Skip.as_str(),
                dry_run: request.dry_run.0,
            },
            uid: bounded(&request.uid),
            subresource: bounded(&request.sub_resource),
            namespace: bounded(&request.namespace),
            name: bounded(&request.name),
            user: bounded(&request.user_info.username),
            ..AuditRecord::default()
        }
    }

    /// Sets the name of the object, known after parsing.
    pub(super) fn set_name(&mut self, name: &str) {
        self.name = bounded(name);
    }

    /// Sets the applied policy.
    pub(super) fn set_policy(&mut self, name: &str) {
        self.policy = bounded(name);
    }

    /// The value of an audit annotation, if the answer has it.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Whether the review is more than a plain allow: a denial, a patch, a warning, something in dry run or withheld,
    /// or an object that was unreadable or too large.
    pub fn is_noteworthy(&self) -> bool {
        const PLAIN: [&str; 8] = [
            "decision", "verdict", "evidence", "rules", "policy", "owner", "schema", "images",
        ];
        matches!(self.labels.decision, "deny" | "would-deny" | "patch")
            || self.warned
            || self.annotations.iter().any(|(key, _)| !PLAIN.contains(key))
    }
}
