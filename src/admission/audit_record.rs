//! What there is to log, count and trace of a review. The audit line, the labels of metrics and the span read it here.

use prometheus_client::encoding::EncodeLabelSet;

use super::request::Request;
use crate::engine::Decision;
use crate::model::os;
use crate::model::text::{cut, one_line};
use crate::model::workload::Kind;

/// Which of the two endpoints was called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// `POST /mutate`, called by the MutatingWebhookConfiguration.
    Mutate,
    /// `POST /validate`, called by the ValidatingWebhookConfiguration.
    Validate,
}

impl Phase {
    /// `mutating` or `validating`, as the API server names the type of a webhook.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Mutate => "mutating",
            Phase::Validate => "validating",
        }
    }
}

/// How a review is counted. Every field is one of a closed set of words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, EncodeLabelSet)]
pub struct ReviewLabels {
    /// `mutating` or `validating`: which webhook was called.
    pub r#type: &'static str,
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT` or `other`.
    pub operation: &'static str,
    /// A kind that Transom knows, or `other`.
    pub kind: &'static str,
    /// One of [`crate::engine::Decision`].
    pub decision: &'static str,
    /// Whether the API server only tries.
    pub dry_run: bool,
}

/// The longest name of anything, in bytes. The API server lets no name of an object be longer; another client may send
/// anything.
const LONGEST: usize = 256;

fn bounded(text: &str) -> String {
    one_line(&cut(text, LONGEST)).into_owned()
}

/// Every fact of a review, each of bounded size: it is logged.
#[derive(Clone, Debug, Default)]
pub struct AuditRecord {
    /// What it is counted by.
    pub labels: ReviewLabels,
    /// The review's uid.
    pub uid: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// Where the object is.
    pub namespace: String,
    /// Its name, or what it is called before it has one.
    pub name: String,
    /// Who asked.
    pub user: String,
    /// What operating system the object is for, where that was asked.
    pub verdict: Option<os::Verdict>,
    /// The slugs of the open findings, one each: for counting.
    pub rules: Vec<&'static str>,
    /// The audit annotations that went out.
    pub annotations: Vec<(&'static str, String)>,
    /// Whether the answer warns the user.
    pub warned: bool,
    /// The policy that counted; empty where none was asked for.
    pub policy: String,
}

impl AuditRecord {
    /// What is known of a review before it is judged.
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

    /// The name of the object, now that it is known.
    pub(super) fn set_name(&mut self, name: &str) {
        self.name = bounded(name);
    }

    /// The policy that counts, now that it is known.
    pub(super) fn set_policy(&mut self, name: &str) {
        self.policy = bounded(name);
    }

    /// The value of an audit annotation, where it went out.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Whether the review is more than one that was plainly allowed: a denial, a patch, a warning, something that would
    /// have come of it or was kept from it, or an object that could not be read or was too large.
    pub fn is_noteworthy(&self) -> bool {
        const PLAIN: [&str; 7] = [
            "decision", "verdict", "evidence", "rules", "policy", "owner", "schema",
        ];
        matches!(self.labels.decision, "deny" | "would-deny" | "patch")
            || self.warned
            || self.annotations.iter().any(|(key, _)| !PLAIN.contains(key))
    }
}
