//! What judges reviews in a running server: the state of the moment, and one log line for each review.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hyper::StatusCode;

use crate::admission::{self, Context, Phase};
use crate::cli::audit;
use crate::cli::logs::LogFormat;
use crate::engine::effective::PolicySet;
use crate::model::facts::Facts;
use crate::webhook::{Reply, Review, ReviewLabels};

/// What reviews are judged by, as one thing that is swapped.
pub struct State {
    pub facts: Facts,
    pub policies: Arc<PolicySet>,
}

/// Judges reviews by the state of the moment, and leaves one log line for each.
pub struct Reviewer {
    pub state: Arc<ArcSwap<State>>,
    pub format: LogFormat,
}

impl Review for Reviewer {
    fn review(&self, phase: Phase, body: &[u8]) -> Reply {
        let state = self.state.load();
        match admission::review(
            phase,
            body,
            &Context {
                facts: &state.facts,
                policies: &state.policies,
            },
        ) {
            Ok(answer) => {
                audit::log(self.format, name(phase), &answer.record);
                Reply {
                    status: StatusCode::OK,
                    body: answer.body,
                    labels: Some(ReviewLabels {
                        phase: name(phase),
                        operation: answer.record.operation,
                        kind: answer.record.kind,
                        decision: answer.record.decision,
                        dry_run: answer.record.dry_run,
                    }),
                    rules: answer.record.rules,
                }
            }
            Err(error) => {
                tracing::warn!(phase = name(phase), bytes = body.len(), "{error}");
                Reply {
                    status: StatusCode::BAD_REQUEST,
                    body: format!("{error}\n").into_bytes(),
                    labels: None,
                    rules: Vec::new(),
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
