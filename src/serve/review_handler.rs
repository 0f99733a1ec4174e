//! Evaluates reviews in a running server against the current snapshot, and logs one line per review.

use std::sync::Arc;

use hyper::StatusCode;

use crate::admission::{
    self, AdmissionContext, MalformedReview, Oversize, Phase, Request, ReviewHead, decode, probe, read_head,
};
use crate::cluster::snapshot::{Snapshot, SnapshotReceiver};
use crate::engine::policy_set::PolicySet;
use crate::model::policy::Policy;
use crate::serve::audit_line;
use crate::webhook::{NamespaceKnown, ReviewBody, ReviewHandler, ReviewResponse};

/// Evaluates reviews against the current snapshot, and logs one line per review.
pub struct Reviewer {
    latest: SnapshotReceiver,
    /// Set if snapshots come from watches: the policies for a namespace that no watch has delivered. Its
    /// policy, and what it allows its pods, are unknown.
    cautious: Option<PolicySet>,
}

impl Reviewer {
    /// A reviewer whose snapshots come from files: a namespace that they do not contain has no labels.
    pub fn of_files(latest: SnapshotReceiver) -> Self {
        Reviewer {
            latest,
            cautious: None,
        }
    }

    /// A reviewer whose snapshots come from watches: a namespace that they do not contain was just created.
    pub fn watching(latest: SnapshotReceiver) -> Self {
        Reviewer {
            latest,
            cautious: Some(PolicySet::new(Vec::new(), Policy::cluster_default())),
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.latest.borrow())
    }

    /// Resolves when a namespace is known, or when no more snapshots can arrive.
    fn news_of(&self, namespace: String) -> NamespaceKnown {
        let mut latest = self.latest.clone();
        Box::pin(async move {
            let shown = latest.wait_for(|now| now.facts.namespaces.contains_key(&namespace));
            let _ = shown.await;
        })
    }
}

impl ReviewHandler for Reviewer {
    fn review(&self, phase: Phase, sent: ReviewBody<'_>) -> ReviewResponse {
        let read = match DecodedReview::of(sent) {
            Ok(read) => read,
            Err(error) => return malformed(phase, sent, &error),
        };
        let snapshot = self.snapshot();
        let policies = match &self.cautious {
            Some(cautious) if unknown_namespace(read.request(), &snapshot).is_some() => cautious,
            _ => &snapshot.policies,
        };
        read.review(phase, &snapshot, policies)
    }

    /// Waits for a namespace that was just created: `kubectl apply` creates it and its pods together, before
    /// the watch delivers it.
    fn review_if_known(&self, phase: Phase, sent: ReviewBody<'_>) -> Result<ReviewResponse, NamespaceKnown> {
        let read = match DecodedReview::of(sent) {
            Ok(read) => read,
            Err(error) => return Ok(malformed(phase, sent, &error)),
        };
        let snapshot = self.snapshot();
        if self.cautious.is_some()
            && let Some(namespace) = unknown_namespace(read.request(), &snapshot)
        {
            return Err(self.news_of(namespace.to_owned()));
        }
        Ok(read.review(phase, &snapshot, &snapshot.policies))
    }
}

/// A review, as far as it can be decoded.
enum DecodedReview<'b> {
    Whole(Request<'b>),
    Head(ReviewHead<'b>, Oversize),
}

impl<'b> DecodedReview<'b> {
    fn of(sent: ReviewBody<'b>) -> Result<Self, MalformedReview> {
        match sent {
            ReviewBody::Whole(body) => Ok(DecodedReview::Whole(decode(body)?)),
            ReviewBody::Head { head, oversize } => Ok(DecodedReview::Head(read_head(head)?, oversize)),
        }
    }

    fn request(&self) -> &Request<'b> {
        match self {
            DecodedReview::Whole(request) => request,
            DecodedReview::Head(head, _) => &head.request,
        }
    }

    fn review(self, phase: Phase, snapshot: &Snapshot, policies: &PolicySet) -> ReviewResponse {
        let facts = &snapshot.facts;
        let context = AdmissionContext { facts, policies };
        let answer = match self {
            DecodedReview::Whole(request) => match probe::answer(phase, &request) {
                Some(body) => {
                    return ReviewResponse {
                        status: StatusCode::OK,
                        body,
                        record: None,
                    };
                }
                None => admission::review_request(phase, request, &context),
            },
            DecodedReview::Head(head, oversize) => admission::review_head(phase, &head, oversize, &context),
        };
        audit_line::log(&answer.record);
        ReviewResponse {
            status: StatusCode::OK,
            body: answer.body,
            record: Some(answer.record),
        }
    }
}

/// The namespace of a request, if the snapshot does not contain it.
fn unknown_namespace<'r>(request: &'r Request<'_>, snapshot: &Snapshot) -> Option<&'r str> {
    let is_unknown = |namespace: &&str| !snapshot.facts.namespaces.contains_key(*namespace);
    request.policy_namespace().filter(is_unknown)
}

fn malformed(phase: Phase, sent: ReviewBody<'_>, error: &MalformedReview) -> ReviewResponse {
    let (ReviewBody::Whole(bytes) | ReviewBody::Head { head: bytes, .. }) = sent;
    tracing::warn!(bytes = bytes.len(), "type" = phase.as_str(), "{error}");
    ReviewResponse {
        status: StatusCode::BAD_REQUEST,
        body: format!("{error}\n").into_bytes(),
        record: None,
    }
}
