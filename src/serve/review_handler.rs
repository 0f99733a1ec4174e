//! Evaluates reviews in a running server against the current snapshot, and logs one line per review.

use std::sync::Arc;

use hyper::StatusCode;

use crate::admission::{
    AdmissionContext, MalformedReview, Phase, Request, Review, ReviewImages, decode, decode_head, probe,
};
use crate::cluster::snapshot::{Snapshot, SnapshotReceiver};
use crate::engine::Decision;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::Policy;
use crate::rules::documentation::DocumentationUrl;
use crate::serve::audit_line;
use crate::serve::image_look_ups::ImageLookups;
use crate::webhook::{
    DataArrival, LONGEST_WAIT, OnPending, PendingData, ReviewBody, ReviewHandler, ReviewResponse,
};

/// Evaluates reviews against the current snapshot, and logs one line per review.
pub struct Reviewer {
    latest: SnapshotReceiver,
    /// Set if snapshots come from watches: the policies for a namespace that no watch has delivered. Its
    /// policy, and what it allows its pods, are unknown.
    cautious: Option<PolicySet>,
    /// The facts of images, if registries are asked.
    images: Option<ImageLookups>,
    /// This installation, as `NAMESPACE/NAME`.
    installation: Arc<str>,
    /// Where the rules of a denial are documented.
    documentation: Option<DocumentationUrl>,
}

impl Reviewer {
    /// A reviewer whose snapshots come from files: a namespace that they do not contain has no labels.
    pub fn of_files(latest: SnapshotReceiver, images: Option<ImageLookups>) -> Self {
        Reviewer {
            latest,
            cautious: None,
            images,
            installation: "standalone".into(),
            documentation: None,
        }
    }

    /// A reviewer whose snapshots come from watches: a namespace that they do not contain was just created.
    /// `installation`: this one, as `NAMESPACE/NAME`.
    pub fn watching(latest: SnapshotReceiver, images: Option<ImageLookups>, installation: Arc<str>) -> Self {
        Reviewer {
            latest,
            cautious: Some(PolicySet::new(Vec::new(), Policy::cluster_default())),
            images,
            installation,
            documentation: None,
        }
    }

    /// The same, with links to this documentation in denials.
    pub fn documented(self, documentation: Option<DocumentationUrl>) -> Self {
        Reviewer {
            documentation,
            ..self
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
    fn images(&self, review: &mut Review<'_, '_>, facts: &Facts) -> Option<ImagesOfReview> {
        let lookups = self.images.as_ref()?;
        let wanted = review.images()?;
        let known = lookups.known(&wanted);
        Some(ImagesOfReview {
            facts: facts.with_images(known.images),
            pending: known.pending.filter(|_| !wanted.wait.is_zero()),
            wanted,
        })
    }

    /// Evaluates a review with what is known of its images. A denial looks them up again.
    fn evaluate(
        &self,
        phase: Phase,
        review: Review<'_, '_>,
        images: Option<&ImagesOfReview>,
        facts: &Facts,
    ) -> ReviewResponse {
        let answer = review.answer(phase, images.map_or(facts, |images| &images.facts));
        audit_line::log(&answer.record);
        let is_denied = answer.record.labels.decision == Decision::Deny.as_str();
        if let (true, Some(lookups), Some(images)) = (is_denied, &self.images, images) {
            lookups.refresh_tags(&images.wanted);
        }
        ReviewResponse {
            status: StatusCode::OK,
            body: answer.body,
            record: Some(answer.record),
        }
    }
}

impl ReviewHandler for Reviewer {
    /// A review of a namespace that was just created waits for it: `kubectl apply` creates it and its pods together, before
    /// the watch delivers it. It also waits for look-ups of images if the policy allows it. The server calls this again then.
    fn review(
        &self,
        phase: Phase,
        sent: ReviewBody<'_>,
        on_pending: OnPending,
    ) -> Result<ReviewResponse, PendingData> {
        let decoded = match sent {
            ReviewBody::Whole(body) => decode(body),
            ReviewBody::Head { head, oversize } => decode_head(head, oversize),
        };
        let request = match decoded {
            Ok(request) => request,
            Err(error) => return Ok(malformed(phase, sent, &error)),
        };
        if let Some(body) = probe::answer(phase, &request, &self.installation) {
            return Ok(ReviewResponse {
                status: StatusCode::OK,
                body,
                record: None,
            });
        }
        let snapshot = self.snapshot();
        let mut context = AdmissionContext {
            facts: &snapshot.facts,
            policies: &snapshot.policies,
        };
        if let Some(cautious) = &self.cautious
            && let Some(namespace) = unknown_namespace(&request, &snapshot)
        {
            if on_pending == OnPending::Return {
                return Err(self.arrival_of(namespace.to_owned()));
            }
            context.policies = cautious;
        }
        let review = Review::new(request, &context);
        let mut review = review.documented(self.documentation.as_ref());
        let mut images = self.images(&mut review, context.facts);
        // The pod is placed in the first phase, and the second one finds what the first one waited for.
        if on_pending == OnPending::Return
            && phase == Phase::Mutate
            && let Some(images) = &mut images
            && let Some(arrival) = images.pending.take()
        {
            let at_most = images.wanted.wait;
            return Err(PendingData { arrival, at_most });
        }
        Ok(self.evaluate(phase, review, images.as_ref(), context.facts))
    }
}

/// The facts for a review whose policy uses registries.
struct ImagesOfReview {
    facts: Facts,
    /// Resolves when its images are known.
    pending: Option<DataArrival>,
    wanted: ReviewImages,
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
