//! The review codec: AdmissionReview bytes in, AdmissionReview bytes out. It contains no HTTP and no evaluation of its
//! own.

mod annotations;
mod audit_record;
mod decision;
mod message;
pub mod probe;
mod request;
mod response;
mod review;
mod review_input;
mod reviewed_images;
mod simulate;
mod too_large;

use self::response::ReviewDecision;

pub use self::audit_record::{AuditRecord, Phase, ReviewLabels};
pub use self::request::{MalformedReview, Oversize, Request, decode, decode_head};
pub use self::review::Review;
pub use self::review_input::AdmissionContext;
pub use self::reviewed_images::ReviewImages;
pub use self::simulate::{Simulation, simulate_create};

/// The answer to a review: the bytes for the API server, and the record for logs and metrics.
#[derive(Clone, Debug)]
pub struct ReviewAnswer {
    /// An AdmissionReview in JSON.
    pub body: Vec<u8>,
    /// The record of the review.
    pub record: AuditRecord,
}

impl ReviewAnswer {
    /// The answer to a request, with its record.
    fn encode(request: &Request<'_>, ruling: ReviewDecision<'_>, mut record: AuditRecord) -> Self {
        let body = response::encode(&request.uid, &ruling);
        record.annotations = ruling.annotations;
        ReviewAnswer { body, record }
    }
}

/// Answers one AdmissionReview (`admission.k8s.io/v1`).
///
/// The review is answered with its uid regardless of what the object contains.
///
/// # Errors
/// The bytes are not an AdmissionReview, or have no request with a uid, so there is nothing to answer.
pub fn review(
    phase: Phase,
    body: &[u8],
    context: &AdmissionContext<'_>,
) -> Result<ReviewAnswer, MalformedReview> {
    Ok(Review::new(decode(body)?, context).answer(phase, context.facts))
}
