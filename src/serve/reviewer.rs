//! What judges reviews in a running server: the snapshot of the moment, and one log line for each review.

use std::sync::Arc;

use hyper::StatusCode;

use crate::admission::{self, Context, Phase};
use crate::cluster::snapshot::{Latest, Snapshot};
use crate::engine::effective::PolicySet;
use crate::model::facts::Facts;
use crate::model::policy::Policy;
use crate::process::logs::LogFormat;
use crate::serve::audit;
use crate::webhook::{News, Reply, Review, ReviewLabels};

/// Judges reviews by the snapshot of the moment, and leaves one log line for each.
pub struct Reviewer {
    latest: Latest,
    format: LogFormat,
    /// Where snapshots come from the watches of a cluster: for a namespace that no watch has shown. Which policy is for
    /// it, and what it allows its pods, cannot be told.
    cautious: Option<PolicySet>,
}

impl Reviewer {
    /// A reviewer whose snapshots come from files: a namespace that they do not have is one without labels.
    pub fn of_files(latest: Latest, format: LogFormat) -> Self {
        Reviewer {
            latest,
            format,
            cautious: None,
        }
    }

    /// A reviewer whose snapshots come from watches: a namespace that they do not have is a moment old.
    pub fn watching(latest: Latest, format: LogFormat) -> Self {
        Reviewer {
            latest,
            format,
            cautious: Some(PolicySet::new(Vec::new(), Policy::cluster_default())),
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.latest.borrow())
    }
}

impl Review for Reviewer {
    fn review(&self, phase: Phase, body: &[u8]) -> Reply {
        let state = self.snapshot();
        let judged = judge(phase, body, &state.facts, &state.policies);
        let judged = match (&self.cautious, unknown_namespace(&judged, &state)) {
            (Some(cautious), Some(_)) => judge(phase, body, &state.facts, cautious),
            _ => judged,
        };
        self.reply(phase, body, judged)
    }

    /// Waits for a namespace that is a moment old: `kubectl apply` makes it and its pods in one breath, and the watch is
    /// not there yet.
    fn review_or_wait(&self, phase: Phase, body: &[u8]) -> Result<Reply, News> {
        let state = self.snapshot();
        let judged = judge(phase, body, &state.facts, &state.policies);
        if let (Some(_), Some(namespace)) = (&self.cautious, unknown_namespace(&judged, &state)) {
            let namespace = namespace.to_owned();
            let mut latest = self.latest.clone();
            return Err(Box::pin(async move {
                let shown = latest.wait_for(|now| now.facts.namespaces.contains_key(&namespace));
                let _ = shown.await;
            }));
        }
        Ok(self.reply(phase, body, judged))
    }
}

type Judged = Result<admission::Answer, admission::MalformedReview>;

fn judge(phase: Phase, body: &[u8], facts: &Facts, policies: &PolicySet) -> Judged {
    admission::review(phase, body, &Context { facts, policies })
}

/// The namespace of a review that was looked at, where it is none of those that are known.
fn unknown_namespace<'j>(judged: &'j Judged, state: &Snapshot) -> Option<&'j str> {
    let record = &judged.as_ref().ok()?.record;
    let was_looked_at = !record.policy.is_empty();
    let is_known = record.namespace.is_empty() || state.facts.namespaces.contains_key(&record.namespace);
    (was_looked_at && !is_known).then_some(&record.namespace)
}

impl Reviewer {
    fn reply(&self, phase: Phase, body: &[u8], judged: Judged) -> Reply {
        match judged {
            Ok(answer) => {
                let mut record = answer.record;
                audit::log(self.format, name(phase), &record);
                Reply {
                    status: StatusCode::OK,
                    body: answer.body,
                    labels: Some(ReviewLabels {
                        phase: name(phase),
                        operation: record.operation,
                        kind: record.kind,
                        decision: record.decision,
                        dry_run: record.dry_run,
                    }),
                    rules: std::mem::take(&mut record.rules),
                    record: Some(record),
                }
            }
            Err(error) => {
                tracing::warn!(phase = name(phase), bytes = body.len(), "{error}");
                Reply {
                    status: StatusCode::BAD_REQUEST,
                    body: format!("{error}\n").into_bytes(),
                    labels: None,
                    rules: Vec::new(),
                    record: None,
                }
            }
        }
    }
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Mutate => "mutate",
        Phase::Validate => "validate",
    }
}
