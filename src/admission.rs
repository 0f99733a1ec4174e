//! The review codec: an AdmissionReview in, an AdmissionReview out, bytes to bytes. No HTTP here, and no judgement of its own.

mod annotations;
mod judge;
mod message;
mod ownership;
mod request;
mod response;

pub use self::judge::{Context, Record};
pub use self::request::MalformedReview;

/// Which of the two endpoints was called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// `POST /mutate`, called by the MutatingWebhookConfiguration.
    Mutate,
    /// `POST /validate`, called by the ValidatingWebhookConfiguration.
    Validate,
}

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
/// The bytes are no AdmissionReview, or carry no request with a uid: there is nobody to answer.
pub fn review(phase: Phase, body: &[u8], context: &Context<'_>) -> Result<Answer, MalformedReview> {
    let request = request::decode(body)?;
    let (verdict, mut record) = judge::judge(phase, &request, context);
    let body = response::encode(&request.uid, &verdict);
    record.annotations = verdict.annotations;
    Ok(Answer { body, record })
}

/// The name of an operation, kind or other word of the API, from a closed set, for metric labels.
fn closed(word: &str, known: &[&'static str]) -> &'static str {
    known.iter().find(|k| **k == word).copied().unwrap_or("other")
}
