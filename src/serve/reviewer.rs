//! What judges reviews in a running server: the state of the moment, and one log line for each review.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hyper::StatusCode;
use tokio::sync::watch;

use crate::admission::{self, Context, Phase};
use crate::engine::effective::PolicySet;
use crate::model::facts::Facts;
use crate::model::policy::Policy;
use crate::process::logs::LogFormat;
use crate::serve::audit;
use crate::webhook::{News, Reply, Review, ReviewLabels};

/// What reviews are judged by, as one thing that is swapped.
pub struct State {
    pub facts: Facts,
    pub policies: Arc<PolicySet>,
}

/// Judges reviews by the state of the moment, and leaves one log line for each.
pub struct Reviewer {
    pub state: Arc<ArcSwap<State>>,
    pub format: LogFormat,
    /// Where state comes from the watches of a cluster.
    pub watched: Option<Watched>,
}

/// What a reviewer knows of the watches that its state comes from.
pub struct Watched {
    /// Says that the state is a new one.
    news: watch::Receiver<()>,
    /// For a namespace that no watch has shown: which policy is for it, and what it allows its pods, cannot be told.
    cautious: PolicySet,
}

impl Watched {
    pub fn new(news: watch::Receiver<()>) -> Self {
        Watched {
            news,
            cautious: PolicySet::new(Vec::new(), Policy::cluster_default()),
        }
    }
}

impl Review for Reviewer {
    fn review(&self, phase: Phase, body: &[u8]) -> Reply {
        let state = self.state.load();
        let judged = judge(phase, body, &state.facts, &state.policies);
        let judged = match (&self.watched, unknown_namespace(&judged, &state)) {
            (Some(watched), Some(_)) => judge(phase, body, &state.facts, &watched.cautious),
            _ => judged,
        };
        self.reply(phase, body, judged)
    }

    /// Waits for a namespace that is a moment old: `kubectl apply` makes it and its pods in one breath, and the watch is
    /// not there yet.
    fn review_or_wait(&self, phase: Phase, body: &[u8]) -> Result<Reply, News> {
        let state = self.state.load();
        let judged = judge(phase, body, &state.facts, &state.policies);
        if let (Some(watched), Some(namespace)) = (&self.watched, unknown_namespace(&judged, &state)) {
            let (namespace, state) = (namespace.to_owned(), Arc::clone(&self.state));
            let mut news = watched.news.clone();
            return Err(Box::pin(async move {
                while !state.load().facts.namespaces.contains_key(&namespace) {
                    if news.changed().await.is_err() {
                        return;
                    }
                }
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
fn unknown_namespace<'j>(judged: &'j Judged, state: &State) -> Option<&'j str> {
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
