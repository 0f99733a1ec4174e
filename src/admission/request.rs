//! Decoding: the parts of an AdmissionRequest that matter, borrowed; the object itself stays raw until its kind is known.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::model::field::{Flag, List, Str};
use crate::model::strict;
use crate::model::text::cut;
use crate::model::workload::Kind;

/// `admission.k8s.io/v1.AdmissionRequest`.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    #[serde(borrow)]
    pub(super) uid: Str<'a>,
    #[serde(default)]
    pub(super) kind: GroupVersionKind<'a>,
    #[serde(default)]
    pub(super) sub_resource: Str<'a>,
    #[serde(default)]
    pub(super) name: Str<'a>,
    #[serde(default)]
    pub(super) namespace: Str<'a>,
    #[serde(default)]
    pub(super) operation: Str<'a>,
    #[serde(default)]
    pub(super) user_info: UserInfo<'a>,
    #[serde(default)]
    pub(super) object: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) old_object: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) dry_run: Flag,
}

impl Request<'_> {
    /// The namespace by which the request is judged; none where the object has none, or is not looked at.
    pub fn namespace_to_know(&self) -> Option<&str> {
        self.looked_at()?;
        Some(&*self.namespace).filter(|namespace| !namespace.is_empty())
    }

    /// The kind of the object, where it is one with pods.
    pub(super) fn known_kind(&self) -> Option<Kind> {
        Kind::of(&self.kind.group, &self.kind.kind).filter(|kind| kind.has_pod())
    }

    /// The kind of the object, where this operation on it is one that is looked at.
    pub(super) fn looked_at(&self) -> Option<Kind> {
        let is_looked_at = matches!(&*self.operation, "CREATE" | "UPDATE")
            && matches!(&*self.sub_resource, "" | "ephemeralcontainers" | "resize");
        self.known_kind().filter(|_| is_looked_at)
    }
}

/// `metav1.GroupVersionKind`.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub(super) struct GroupVersionKind<'a> {
    #[serde(borrow)]
    pub(super) group: Str<'a>,
    pub(super) kind: Str<'a>,
}

/// `authentication.k8s.io/v1.UserInfo`.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub(super) struct UserInfo<'a> {
    #[serde(borrow)]
    pub(super) username: Str<'a>,
    pub(super) groups: List<Str<'a>>,
}

/// A body that is no AdmissionReview.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("cannot read the AdmissionReview: {0}")]
pub struct MalformedReview(Cow<'static, str>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(default, borrow)]
    api_version: Str<'a>,
    #[serde(default)]
    kind: Str<'a>,
    request: Option<Request<'a>>,
}

/// Reads the request of an AdmissionReview.
///
/// # Errors
/// The bytes are no AdmissionReview, or carry no request with a uid.
pub fn decode(body: &[u8]) -> Result<Request<'_>, MalformedReview> {
    if body.is_empty() {
        return Err(MalformedReview("the body is empty".into()));
    }
    // Checked once here, and never again string by string.
    let body = std::str::from_utf8(body).map_err(|error| {
        MalformedReview(format!("it is not UTF-8 from byte {}", error.valid_up_to()).into())
    })?;
    let review: Review<'_> = strict::from_str(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        MalformedReview(format!("{} at line {line} column {column}", strict::reason(&error)).into())
    })?;
    if &*review.kind != "AdmissionReview" || &*review.api_version != "admission.k8s.io/v1" {
        let what = format!("{} {}", review.api_version, review.kind);
        let what = cut(what.trim(), 80);
        return Err(MalformedReview(
            format!("expected admission.k8s.io/v1 AdmissionReview, got \"{what}\"").into(),
        ));
    }
    let request = review
        .request
        .ok_or(MalformedReview("it has no request".into()))?;
    if request.uid.is_empty() {
        return Err(MalformedReview("its request has no uid".into()));
    }
    Ok(request)
}

/// The parts of an object by which an update that changes no spec is told from one that does.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Parts<'a> {
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    template: Option<&'a RawValue>,
    metadata: Lifetime,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Lifetime {
    deletion_timestamp: crate::model::field::Present,
}

/// Whether an update can introduce nothing: the object is on its way out, or its spec stays as it was.
///
/// Specs are compared as bytes: both come from one encoder in one request. `replicas` alone may differ (scaling).
pub fn changes_nothing(object: &RawValue, old: Option<&RawValue>) -> bool {
    let Ok(new) = serde_json::from_str::<Parts<'_>>(object.get()) else {
        return false;
    };
    if new.metadata.deletion_timestamp.0 {
        return true;
    }
    let Some(Ok(old)) = old.map(|old| serde_json::from_str::<Parts<'_>>(old.get())) else {
        return false;
    };
    if new.template.map(RawValue::get) != old.template.map(RawValue::get) {
        return false;
    }
    match (new.spec, old.spec) {
        (Some(new), Some(old)) => new.get() == old.get() || only_replicas_differ(new, old),
        (new, old) => new.is_none() && old.is_none(),
    }
}

fn only_replicas_differ(new: &RawValue, old: &RawValue) -> bool {
    type Fields<'a> = std::collections::BTreeMap<Str<'a>, &'a RawValue>;
    let read = |raw: &'_ RawValue| -> Option<std::collections::BTreeMap<String, String>> {
        let fields: Fields<'_> = serde_json::from_str(raw.get()).ok()?;
        let rest = fields.into_iter().filter(|(key, _)| &**key != "replicas");
        Some(
            rest.map(|(key, value)| (key.to_string(), value.get().to_owned()))
                .collect(),
        )
    };
    let (new, old) = (read(new), read(old));
    new.is_some() && new == old
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn what_is_no_review_is_refused_with_a_reason() {
        for (body, reason) in [
            ("", "the body is empty"),
            ("{", "EOF while parsing an object at line 1 column 1"),
            ("{}", "expected admission.k8s.io/v1 AdmissionReview, got \"\""),
            (
                r#"{"kind":"Pod","apiVersion":"v1"}"#,
                "expected admission.k8s.io/v1 AdmissionReview, got \"v1 Pod\"",
            ),
            (
                r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#,
                "it has no request",
            ),
            (
                r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":""}}"#,
                "its request has no uid",
            ),
        ] {
            assert_eq!(
                decode(body.as_bytes()).unwrap_err().to_string(),
                format!("cannot read the AdmissionReview: {reason}")
            );
        }
    }

    #[test]
    fn metadata_scale_and_deletion_change_nothing() {
        let old =
            raw(r#"{"metadata": {}, "spec": {"replicas": 1, "template": {"spec": {"hostPID": true}}}}"#);
        let same = |json: &str| changes_nothing(&raw(json), Some(&old));
        assert!(same(
            r#"{"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 1, "template": {"spec": {"hostPID": true}}}}"#
        ));
        assert!(same(
            r#"{"metadata": {}, "spec": {"replicas": 5, "template": {"spec": {"hostPID": true}}}}"#
        ));
        assert!(same(
            r#"{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}"#
        ));
        assert!(!same(
            r#"{"metadata": {}, "spec": {"replicas": 1, "template": {"spec": {"hostIPC": true}}}}"#
        ));
    }
}
