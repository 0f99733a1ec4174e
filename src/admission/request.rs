//! Decoding: the relevant parts of an AdmissionRequest, borrowed; a created object is parsed in the same pass.

mod head;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::model::json::at;
use crate::model::json_types::{Flag, List, Str};
use crate::model::object::{Object, ObjectSeed, ReviewStage};
use crate::model::strict_json;
use crate::model::text::cut;
use crate::model::workload::Kind;
use crate::model::workload::configured::ConfiguredKind;

pub use self::head::{BeingDeleted, ReviewHead, read_head};

/// `admission.k8s.io/v1.AdmissionRequest`.
#[derive(Debug, Default)]
pub struct Request<'a> {
    pub(super) uid: Str<'a>,
    pub(super) kind: GroupVersionKind<'a>,
    pub(super) sub_resource: Str<'a>,
    pub(super) name: Str<'a>,
    pub(super) namespace: Str<'a>,
    pub(super) operation: Str<'a>,
    pub(super) user_info: UserInfo<'a>,
    pub(super) object: Option<RequestObject<'a>>,
    pub(super) old_object: Option<&'a RawValue>,
    pub(super) dry_run: Flag,
    /// The whole AdmissionReview.
    pub(super) body: &'a str,
}

/// The object of a request.
#[derive(Debug)]
pub(super) enum RequestObject<'a> {
    /// As text: if the kind or the operation was unknown when it was reached, if it is compared with the old object, or
    /// if it cannot be parsed.
    Raw(&'a RawValue),
    /// Parsed in place, in the same pass as the request.
    Read(Box<Object<'a>>),
}

impl<'a> Request<'a> {
    /// The namespace whose policy applies to the request; `None` if the object has none, or is not evaluated.
    pub fn policy_namespace(&self) -> Option<&str> {
        self.reviewed_kind()?;
        Some(&*self.namespace).filter(|namespace| !namespace.is_empty())
    }

    /// The kind of the object, if it has pods.
    pub(super) fn known_kind(&self) -> Option<Kind> {
        Kind::of(&self.kind.group, &self.kind.kind).filter(|kind| kind.has_pod())
    }

    /// The kind of the object, if this operation on it is evaluated.
    pub(super) fn reviewed_kind(&self) -> Option<Kind> {
        self.known_kind().filter(|_| self.is_reviewed())
    }

    /// Whether this operation is evaluated for the kinds that have pods.
    pub(super) fn is_reviewed(&self) -> bool {
        matches!(&*self.operation, "CREATE" | "UPDATE")
            && matches!(&*self.sub_resource, "" | "ephemeralcontainers" | "resize")
    }

    /// The kind of the object, if it is one of those that a policy adds.
    pub(super) fn configured_kind(&self, configured: &[ConfiguredKind]) -> Option<Kind> {
        let mut configured = configured.iter();
        configured
            .find(|known| known.is(&self.kind.group, &self.kind.kind))
            .map(|known| Kind::Configured(*known))
    }

    /// The kind of the next object if it can be parsed immediately; for an update, and for a custom resource, the text is
    /// needed first.
    fn next_object(&self) -> Option<Kind> {
        let is_immediate = |kind: &Kind| &*self.operation == "CREATE" && !kind.is_custom();
        self.reviewed_kind().filter(is_immediate)
    }

    /// The text of the object; empty if there is none.
    pub(super) fn object_text(&self) -> &'a str {
        at(self.body, &["request", "object"]).unwrap_or_default()
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

/// A body that is not an AdmissionReview.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("cannot read the AdmissionReview: {0}")]
pub struct MalformedReview(Cow<'static, str>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Review<'a, const IN_PLACE: bool> {
    #[serde(default)]
    api_version: Str<'a>,
    #[serde(default)]
    kind: Str<'a>,
    request: Option<RequestMembers<'a, IN_PLACE>>,
}

/// A request while it is parsed; `IN_PLACE` parses its object in the same pass.
struct RequestMembers<'a, const IN_PLACE: bool>(Request<'a>);

#[derive(Deserialize, Clone, Copy)]
#[serde(field_identifier, rename_all = "camelCase")]
enum RequestMember {
    Uid,
    Kind,
    SubResource,
    Name,
    Namespace,
    Operation,
    UserInfo,
    Object,
    OldObject,
    DryRun,
    #[serde(other)]
    Other,
}

impl<'de: 'a, 'a, const IN_PLACE: bool> Deserialize<'de> for RequestMembers<'a, IN_PLACE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfRequest<'a, const IN_PLACE: bool>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a, const IN_PLACE: bool> Visitor<'de> for OfRequest<'a, IN_PLACE> {
            type Value = RequestMembers<'a, IN_PLACE>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("struct Request")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let (mut request, mut seen) = (Request::default(), 0_u32);
                while let Some(member) = members.next_key::<RequestMember>()? {
                    if !matches!(member, RequestMember::Other) && seen & 1 << member as u32 != 0 {
                        return Err(Error::custom("the request has a duplicate field"));
                    }
                    seen |= 1 << member as u32;
                    match member {
                        RequestMember::Uid => request.uid = members.next_value()?,
                        RequestMember::Kind => request.kind = members.next_value()?,
                        RequestMember::SubResource => request.sub_resource = members.next_value()?,
                        RequestMember::Name => request.name = members.next_value()?,
                        RequestMember::Namespace => request.namespace = members.next_value()?,
                        RequestMember::Operation => request.operation = members.next_value()?,
                        RequestMember::UserInfo => request.user_info = members.next_value()?,
                        RequestMember::Object => {
                            request.object = match request.next_object().filter(|_| IN_PLACE) {
                                Some(kind) => members.next_value_seed(Nullable(ObjectSeed {
                                    kind,
                                    stage: ReviewStage::Written,
                                }))?,
                                None => members.next_value::<Option<_>>()?.map(RequestObject::Raw),
                            };
                        }
                        RequestMember::OldObject => request.old_object = members.next_value()?,
                        RequestMember::DryRun => request.dry_run = members.next_value()?,
                        RequestMember::Other => {
                            members.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(RequestMembers(request))
            }
        }
        deserializer.deserialize_map(OfRequest(PhantomData))
    }
}

/// An object that is parsed in place, or `null`.
struct Nullable(ObjectSeed);

impl<'de> DeserializeSeed<'de> for Nullable {
    type Value = Option<RequestObject<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Nullable {
    type Value = Option<RequestObject<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let subject = self.0.deserialize(deserializer)?;
        Ok(Some(RequestObject::Read(Box::new(subject))))
    }
}

/// Reads the request of an AdmissionReview.
///
/// # Errors
/// The bytes are not an AdmissionReview, or have no request with a uid.
pub fn decode(body: &[u8]) -> Result<Request<'_>, MalformedReview> {
    if body.is_empty() {
        return Err(MalformedReview("the body is empty".into()));
    }
    // Checked once here, so that no string needs its own check.
    let body = std::str::from_utf8(body).map_err(|error| {
        MalformedReview(format!("it is not UTF-8 from byte {}", error.valid_up_to()).into())
    })?;
    if let Ok(review) = strict_json::from_str::<Review<'_, true>>(body) {
        return request_of(review, body);
    }
    // Either this is not a review, or its object cannot be parsed: then the answer still has its uid.
    let review: Review<'_, false> = strict_json::from_str(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        MalformedReview(format!("{} at line {line} column {column}", strict_json::reason(&error)).into())
    })?;
    request_of(review, body)
}

fn request_of<'a, const IN_PLACE: bool>(
    review: Review<'a, IN_PLACE>,
    body: &'a str,
) -> Result<Request<'a>, MalformedReview> {
    if &*review.kind != "AdmissionReview" || &*review.api_version != "admission.k8s.io/v1" {
        let what = format!("{} {}", review.api_version, review.kind);
        let what = cut(what.trim(), 80);
        return Err(MalformedReview(
            format!("expected admission.k8s.io/v1 AdmissionReview, got \"{what}\"").into(),
        ));
    }
    let RequestMembers(request) = review
        .request
        .ok_or(MalformedReview("it has no request".into()))?;
    if request.uid.is_empty() {
        return Err(MalformedReview("its request has no uid".into()));
    }
    Ok(Request { body, ..request })
}

/// The parts of an object that distinguish an update without a spec change from one with it.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectParts<'a> {
    #[serde(borrow)]
    spec: Option<BTreeMap<Str<'a>, &'a RawValue>>,
    #[serde(borrow)]
    template: Option<&'a RawValue>,
    metadata: Lifetime,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Lifetime {
    deletion_timestamp: crate::model::json_types::IsPresent,
}

impl ObjectParts<'_> {
    /// The fields of the spec that an update may not change, as text.
    fn fixed(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.spec.iter().flatten();
        let fields = fields.map(|(key, value)| (key.as_str(), value.get()));
        fields.filter(|(key, _)| *key != "replicas")
    }
}

/// Whether an update cannot introduce anything: the object is being deleted, or its spec is unchanged.
///
/// Fields are compared as bytes: both specs come from one encoder in one request. Only `replicas` may differ (scaling).
pub fn changes_nothing(object: &RawValue, old: Option<&RawValue>) -> bool {
    let Ok(new) = serde_json::from_str::<ObjectParts<'_>>(object.get()) else {
        return false;
    };
    if new.metadata.deletion_timestamp.0 {
        return true;
    }
    let Some(Ok(old)) = old.map(|old| serde_json::from_str::<ObjectParts<'_>>(old.get())) else {
        return false;
    };
    new.template.map(RawValue::get) == old.template.map(RawValue::get)
        && new.spec.is_some() == old.spec.is_some()
        && new.fixed().eq(old.fixed())
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
    fn what_is_created_is_read_in_place_and_the_rest_stays_text() {
        for (operation, is_read) in [("CREATE", true), ("UPDATE", false), ("DELETE", false)] {
            let body = format!(
                r#"{{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {{"uid": "u",
                "kind": {{"kind": "Pod"}}, "operation": "{operation}", "object": {{"spec": {{}}}}, "object2": 1}}}}"#
            );
            let request = decode(body.as_bytes()).unwrap();
            assert_eq!(
                matches!(request.object, Some(RequestObject::Read(_))),
                is_read,
                "{operation}"
            );
            assert_eq!(request.object_text(), r#"{"spec": {}}"#);
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
        for changed in [
            r#"{"metadata": {}, "spec": {"replicas": 1, "template": {"spec": {"hostIPC": true}}}}"#,
            r#"{"metadata": {}, "spec": {"template": {"spec": {"hostPID": true}}, "paused": true}}"#,
            r#"{"metadata": {}, "spec": {}}"#,
            r#"{"metadata": {}, "spec": []}"#,
            r#"{"metadata": {}}"#,
        ] {
            assert!(!same(changed), "{changed}");
        }
    }
}
