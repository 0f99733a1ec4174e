//! Encoding: the AdmissionResponse that a judgement becomes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use json_patch::Patch;
use serde::Serialize;

/// What is answered.
#[derive(Debug, Default)]
pub struct Ruling {
    /// The refusal; none: allowed.
    pub denial: Option<Denial>,
    /// What is changed; empty: nothing.
    pub patch: Patch,
    /// Warnings for the user, one line each.
    pub warnings: Vec<String>,
    /// Audit annotations; the API server puts the webhook's name before each key.
    pub annotations: Vec<(&'static str, String)>,
}

impl Ruling {
    /// `deny`, `would-deny`, `patch` or `allow`: the first of these that it is.
    pub fn decision(&self) -> &'static str {
        let would_deny = || self.annotations.iter().any(|(key, _)| *key == "would-deny");
        match self {
            Ruling { denial: Some(_), .. } => "deny",
            Ruling { .. } if would_deny() => "would-deny",
            Ruling { patch, .. } if !patch.is_empty() => "patch",
            Ruling { .. } => "allow",
        }
    }
}

/// A refusal.
#[derive(Debug)]
pub struct Denial {
    /// The HTTP status code: 403, or 400 for an object that cannot be read.
    pub code: u16,
    /// `Forbidden` or `BadRequest`.
    pub reason: &'static str,
    /// What the user sees.
    pub message: String,
    /// The findings, for machines.
    pub causes: Vec<Cause>,
}

/// `metav1.StatusCause`.
#[derive(Serialize, Debug)]
pub struct Cause {
    /// `FieldValueForbidden` or `FieldValueInvalid`.
    pub reason: &'static str,
    /// What is wrong and what to do.
    pub message: String,
    /// The field, as the API server writes it.
    pub field: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'r> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'r>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'r> {
    uid: &'r str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'r>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'r [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "as_map")]
    audit_annotations: &'r [(&'static str, String)],
}

#[derive(Serialize)]
struct Status<'r> {
    #[serde(rename = "status")]
    outcome: &'static str,
    code: u16,
    reason: &'static str,
    message: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details<'r>>,
}

#[derive(Serialize)]
struct Details<'r> {
    causes: &'r [Cause],
}

fn as_map<S: serde::Serializer>(pairs: &&[(&'static str, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}

/// The AdmissionReview that carries the answer.
pub fn encode(uid: &str, ruling: &Ruling) -> Vec<u8> {
    let patch = (!ruling.patch.is_empty() && ruling.denial.is_none())
        .then(|| BASE64_STANDARD.encode(serde_json::to_vec(&ruling.patch).unwrap_or_default()));
    let review = Review {
        api_version: "admission.k8s.io/v1",
        kind: "AdmissionReview",
        response: Response {
            uid,
            allowed: ruling.denial.is_none(),
            status: ruling.denial.as_ref().map(|denial| Status {
                outcome: "Failure",
                code: denial.code,
                reason: denial.reason,
                message: &denial.message,
                details: (!denial.causes.is_empty()).then_some(Details {
                    causes: &denial.causes,
                }),
            }),
            patch_type: patch.is_some().then_some("JSONPatch"),
            patch,
            warnings: &ruling.warnings,
            audit_annotations: &ruling.annotations,
        },
    };
    let mut body = Vec::with_capacity(1024);
    // Cannot fail: there is nothing in it but strings, numbers and maps with string keys, and memory takes them all.
    let _ = serde_json::to_writer(&mut body, &review);
    body
}

/// A refusal of what cannot be read at all.
pub fn unreadable(message: String) -> Denial {
    Denial {
        code: 400,
        reason: "BadRequest",
        message,
        causes: Vec::new(),
    }
}
