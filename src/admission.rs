//! The review codec: an AdmissionReview in, an AdmissionReview out, bytes to bytes. No HTTP here, and no judgement of its own.

mod annotations;
mod audit_record;
mod decision;
mod managed_fields;
mod message;
pub mod probe;
mod request;
mod response;
mod review;
mod simulate;
mod too_large;

pub use self::audit_record::{AuditRecord, Phase, ReviewLabels};
pub use self::request::{MalformedReview, Request, ReviewHead, decode, read_head};
pub use self::review::{AdmissionContext, review_request};
pub use self::simulate::{Simulation, simulate_create};
pub use self::too_large::{Oversize, review_head};

/// The answer to a review: the bytes for the API server, and what there is to log and count.
#[derive(Clone, Debug)]
pub struct ReviewAnswer {
    /// An AdmissionReview in JSON.
    pub body: Vec<u8>,
    /// What happened.
    pub record: AuditRecord,
}

/// Answers one AdmissionReview (`admission.k8s.io/v1`).
///
/// Whatever stands in the object, the review is answered with its uid.
///
/// # Errors
/// The bytes are no AdmissionReview, or carry no request with a uid: there is no question to answer.
pub fn review(
    phase: Phase,
    body: &[u8],
    context: &AdmissionContext<'_>,
) -> Result<ReviewAnswer, MalformedReview> {
    Ok(review_request(phase, decode(body)?, context))
}
