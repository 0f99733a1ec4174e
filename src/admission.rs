//! The review codec: an AdmissionReview in, an AdmissionReview out, bytes to bytes. No HTTP here, and no judgement of its own.

mod annotations;
mod foresee;
mod judge;
mod message;
mod ownership;
pub mod probe;
mod record;
mod request;
mod response;
mod ruling;
mod too_large;

pub use self::foresee::{Foresight, foresee};
pub use self::judge::{Context, judge};
pub use self::record::{Phase, Record, ReviewLabels};
pub use self::request::{Head, MalformedReview, Request, decode, read_head};
pub use self::too_large::{Oversize, judge_head};

/// The answer to a review: the bytes for the API server, and what there is to log and count.
#[derive(Clone, Debug)]
pub struct Answer {
    /// An AdmissionReview in JSON.
    pub body: Vec<u8>,
    /// What happened.
    pub record: Record,
}

/// Answers one AdmissionReview (`admission.k8s.io/v1`).
///
/// Whatever stands in the object, the review is answered with its uid.
///
/// # Errors
/// The bytes are no AdmissionReview, or carry no request with a uid: there is no question to answer.
pub fn review(phase: Phase, body: &[u8], context: &Context<'_>) -> Result<Answer, MalformedReview> {
    Ok(judge(phase, decode(body)?, context))
}
