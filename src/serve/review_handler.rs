//! Evaluates reviews in a running server against the current snapshot, and logs one line per review.

use std::sync::Arc;

use hyper::StatusCode;

use crate::admission::{
    self, AdmissionContext, MalformedReview, Oversize, Phase, Request, ReviewHead, ReviewImages, decode,
    probe, read_head,
};
use crate::cluster::snapshot::{Snapshot, SnapshotReceiver};
use crate::engine::Decision;
use crate::engine::policy_set::PolicySet;
use crate::model::facts::Facts;
use crate::model::policy::Policy;
use crate::serve::audit_line;
use crate::serve::images::ImageLookups;
use crate::webhook::{LONGEST_WAIT, PendingData, ReviewBody, ReviewHandler, ReviewResponse};

/// Evaluates reviews against the current snapshot, and logs one line per review.
pub struct Reviewer {
    latest: SnapshotReceiver,
    /// Set if snapshots come from watches: the policies for a namespace that no watch has delivered. Its
    /// policy, and what it allows its pods, are unknown.
    cautious: Option<PolicySet>,
    /// The facts of images, if registries are asked.
    images: Option<ImageLookups>,
}

impl Reviewer {
    /// A reviewer whose snapshots come from files: a namespace that they do not contain has no labels.
    pub fn of_files(latest: SnapshotReceiver, images: Option<ImageLookups>) -> Self {
        Reviewer {
            latest,
            cautious: None,
            images,
        }
    }

    /// A reviewer whose snapshots come from watches: a namespace that they do not contain was just created.
    pub fn watching(latest: SnapshotReceiver, images: Option<ImageLookups>) -> Self {
        Reviewer {
            latest,
            cautious: Some(PolicySet::new(Vec::new(), Policy::cluster_default())),
            images,
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.latest.borrow())
    }

    /// Resolves when a namespace is known, or when no more snapshots can arrive.
    fn arrival_of(&self, namespace: String) -> PendingData {
        let mut latest = self.latest.clone();
        let arrival = Box::pin(async move {
            let shown = latest.wait_for(|now| now.facts.namespaces.contains_key(&namespace));
            let _ = shown.await;
        });
        PendingData {
            arrival,
            at_most: LONGEST_WAIT,
        }
    }

    /// What is known of the images of a review, which parses its object.
    fn images(
        &self,
        phase: Phase,
        read: &mut DecodedReview<'_>,
        context: &AdmissionContext<'_>,
    ) -> Option<ImagesOfReview> {
        let lookups = self.images.as_ref()?;
        let DecodedReview::Whole(request) = read else {
            return None;
        };
        let wanted = admission::images_of(phase, request, context)?;
        let known = lookups.known(&wanted);
        Some(ImagesOfReview {
            facts: context.facts.with_images(known.images),
            // The pod is placed in the first phase, and the second one finds what the first one waited for.
            pending: (known.pending)
                .filter(|_| phase == Phase::Mutate && !wanted.wait.is_zero())
                .map(|arrival| PendingData {
                    arrival,
                    at_most: wanted.wait,
                }),
            wanted,
        })
    }

    /// Reviews with what is known of the images. A denial looks them up again.
    fn review_with(
        &self,
        phase: Phase,
        read: DecodedReview<'_>,
        images: Option<&ImagesOfReview>,
        context: &AdmissionContext<'_>,
    ) -> ReviewResponse {
        let facts = images.map_or(context.facts, |images| &images.facts);
        let response = read.review(phase, &AdmissionContext { facts, ..*context });
        let is_denied =
            (response.record.as_ref()).is_some_and(|it| it.labels.decision == Decision::Deny.as_str());
        if let (true, Some(lookups), Some(images)) = (is_denied, &self.images, images) {
            lookups.refresh_tags(&images.wanted);
        }
        response
    }
}

impl ReviewHandler for Reviewer {
    fn review(&self, phase: Phase, sent: ReviewBody<'_>) -> ReviewResponse {
        let mut read = match DecodedReview::of(sent) {
            Ok(read) => read,
            Err(error) => return malformed(phase, sent, &error),
        };
        let snapshot = self.snapshot();
        let policies = match &self.cautious {
            Some(cautious) if unknown_namespace(read.request(), &snapshot).is_some() => cautious,
            _ => &snapshot.policies,
        };
        let context = AdmissionContext {
            facts: &snapshot.facts,
            policies,
        };
        let images = self.images(phase, &mut read, &context);
        self.review_with(phase, read, images.as_ref(), &context)
    }

    /// Waits for a namespace that was just created: `kubectl apply` creates it and its pods together, before
    /// the watch delivers it. Waits for look-ups of images if the policy allows it.
    fn review_if_known(&self, phase: Phase, sent: ReviewBody<'_>) -> Result<ReviewResponse, PendingData> {
        let mut read = match DecodedReview::of(sent) {
            Ok(read) => read,
            Err(error) => return Ok(malformed(phase, sent, &error)),
        };
        let snapshot = self.snapshot();
        if self.cautious.is_some()
            && let Some(namespace) = unknown_namespace(read.request(), &snapshot)
        {
            return Err(self.arrival_of(namespace.to_owned()));
        }
        let context = AdmissionContext {
            facts: &snapshot.facts,
            policies: &snapshot.policies,
        };
        let mut images = self.images(phase, &mut read, &context);
        if let Some(pending) = images.as_mut().and_then(|images| images.pending.take()) {
            return Err(pending);
        }
        Ok(self.review_with(phase, read, images.as_ref(), &context))
    }
}

/// The facts for a review whose policy uses registries.
struct ImagesOfReview {
    facts: Facts,
    pending: Option<PendingData>,
    wanted: ReviewImages,
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

    fn review(self, phase: Phase, context: &AdmissionContext<'_>) -> ReviewResponse {
        let answer = match self {
            DecodedReview::Whole(request) => match probe::answer(phase, &request) {
                Some(body) => {
                    return ReviewResponse {
                        status: StatusCode::OK,
                        body,
                        record: None,
                    };
                }
                None => admission::review_request(phase, request, context),
            },
            DecodedReview::Head(head, oversize) => admission::review_head(phase, &head, oversize, context),
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

#[cfg(test)]
mod tests;
