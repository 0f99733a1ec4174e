//! The review codec: AdmissionReview bytes in, AdmissionReview bytes out. It contains no HTTP and no evaluation of its
//! own.

mod annotations;
mod audit_record;
mod decision;
mod images;
mod message;
pub mod probe;
mod request;
mod response;
mod review;
mod simulate;
mod too_large;

pub use self::audit_record::{AuditRecord, Phase, ReviewLabels};
pub use self::images::{ReviewImages, images_of};
pub use self::request::{MalformedReview, Request, ReviewHead, decode, read_head};
pub use self::review::{AdmissionContext, review_request};
pub use self::simulate::{Simulation, simulate_create};
pub use self::too_large::{Oversize, review_head};

/// The answer to a review: the bytes for the API server, and the record for logs and metrics.
#[derive(Clone, Debug)]
pub struct ReviewAnswer {
    /// An AdmissionReview in JSON.
    pub body: Vec<u8>,
    /// The record of the review.
    pub record: AuditRecord,
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
    Ok(review_request(phase, decode(body)?, context))
}
