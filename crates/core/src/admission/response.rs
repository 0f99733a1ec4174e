//! Encoding: writes the AdmissionResponse of a decision once, directly into its final bytes.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::annotations::AuditAnnotations;
use super::message::DenialMessage;
use crate::engine::Decision;
use crate::model::syntax::edit::Edit;
use crate::model::syntax::json::{Escaped, write_string};

/// The content of the answer.
#[derive(Debug, Default)]
pub struct ReviewDecision<'j> {
    /// The denial; `None`: allowed.
    pub denial: Option<Denial<'j>>,
    /// The edits; empty: unchanged.
    pub patch: &'j [Edit],
    /// Warnings for the user, one line each.
    pub warnings: Vec<String>,
    /// Audit annotations; the API server puts the webhook's name before each key.
    pub annotations: AuditAnnotations,
}

impl ReviewDecision<'_> {
    /// The first that applies of deny, would-deny, patch and allow.
    pub fn decision(&self) -> Decision {
        let would_deny = || self.annotations.iter().any(|(key, _)| *key == "would-deny");
        match self {
            ReviewDecision { denial: Some(_), .. } => Decision::Deny,
            ReviewDecision { .. } if would_deny() => Decision::WouldDeny,
            ReviewDecision { patch, .. } if !patch.is_empty() => Decision::Patch,
            ReviewDecision { .. } => Decision::Allow,
        }
    }
}

/// Why an object is denied.
#[derive(Debug)]
pub enum Denial<'j> {
    /// It cannot be parsed: 400, with this message.
    Unreadable(String),
    /// It is a probe, which is never stored: 403, with this message.
    Probe(String),
    /// Its review is too large: 403, with this message.
    TooLarge(String),
    /// Because of its findings: 403.
    Found(DenialMessage<'j>),
}

/// The AdmissionReview with the answer.
pub fn encode(uid: &str, ruling: &ReviewDecision<'_>) -> Vec<u8> {
    let mut out = String::with_capacity(if ruling.denial.is_some() { 8192 } else { 1024 });
    // Writing to a String cannot fail.
    let _ = write(&mut out, uid, ruling);
    out.into_bytes()
}

fn write(out: &mut String, uid: &str, ruling: &ReviewDecision<'_>) -> fmt::Result {
    let ReviewDecision {
        denial,
        patch,
        warnings,
        annotations,
    } = ruling;
    out.push_str(r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"#);
    write_string(out, uid);
    write!(out, r#","allowed":{}"#, denial.is_none())?;
    match denial {
        Some(denial) => write_status(out, denial)?,
        None if patch.is_empty() => {}
        None => {
            out.push_str(r#","patchType":"JSONPatch","patch":""#);
            // It contains only strings, numbers and maps with string keys.
            let patch = serde_json::to_vec(patch).unwrap_or_default();
            BASE64_STANDARD.encode_string(patch, out);
            out.push('"');
        }
    }
    if !warnings.is_empty() {
        out.push_str(r#","warnings":["#);
        for (index, warning) in warnings.iter().enumerate() {
            out.push_str(if index > 0 { "," } else { "" });
            write_string(out, warning);
        }
        out.push(']');
    }
    if !annotations.is_empty() {
        out.push_str(r#","auditAnnotations":{"#);
        for (index, (key, value)) in annotations.iter().enumerate() {
            out.push_str(if index > 0 { "," } else { "" });
            write_string(out, key);
            out.push(':');
            write_string(out, value);
        }
        out.push('}');
    }
    out.push_str("}}");
    Ok(())
}

fn write_status(out: &mut String, denial: &Denial<'_>) -> fmt::Result {
    out.push_str(r#","status":{"status":"Failure","#);
    match denial {
        Denial::Unreadable(message) => {
            out.push_str(r#""code":400,"reason":"BadRequest","message":"#);
            write_string(out, message);
        }
        Denial::Probe(message) | Denial::TooLarge(message) => {
            out.push_str(r#""code":403,"reason":"Forbidden","message":"#);
            write_string(out, message);
        }
        Denial::Found(refusal) => {
            out.push_str(r#""code":403,"reason":"Forbidden","message":""#);
            refusal.write_message(&mut Escaped::new(out))?;
            out.push_str(r#"","details":{"causes":["#);
            refusal.write_causes(out)?;
            out.push_str("]}");
        }
    }
    out.push('}');
    Ok(())
}
