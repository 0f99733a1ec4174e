//! Decoding: the relevant parts of an AdmissionRequest, borrowed; a created object is parsed in the same pass. Of a review
//! that is too large, the same decoder reads what its first bytes contain.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::model::objects::object::{Object, ObjectSeed, ReviewStage};
use crate::model::objects::workload::Kind;
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::syntax::json::at;
use crate::model::syntax::json_types::{Flag, List, Str};
use crate::model::syntax::strict_json;
use crate::model::syntax::text::cut;

/// The size of a review that is too large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Oversize {
    /// Its size in bytes; `None` if the client did not declare it.
    pub bytes: Option<usize>,
    /// The size limit of reviews, in bytes.
    pub bound: usize,
}

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
    /// The whole AdmissionReview, or its head if it is too large.
    pub(super) body: &'a str,
    /// Set if the review is too large to be read; then it has no objects.
    pub(super) oversize: Option<Oversize>,
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

    /// Whether the request changes an existing object.
    pub(super) fn is_update(&self) -> bool {
        &*self.operation == "UPDATE"
    }

    /// Whether the request can only add debug containers.
    pub(super) fn adds_debugger(&self) -> bool {
        &*self.sub_resource == "ephemeralcontainers"
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

/// A review while it is decoded, member by member: after an error, the members before it are known.
#[derive(Debug, Default)]
struct PartialReview<'a> {
    api_version: Str<'a>,
    kind: Str<'a>,
    request: Option<Request<'a>>,
}

/// Decodes an AdmissionReview into `review`.
struct ReviewSeed<'r, 'a> {
    review: &'r mut PartialReview<'a>,
    /// Whether a created object is parsed in the same pass.
    in_place: bool,
}

/// Decodes an AdmissionRequest, or `null`.
struct RequestSeed<'r, 'a> {
    request: &'r mut Option<Request<'a>>,
    in_place: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum ReviewMember {
    ApiVersion,
    Kind,
    Request,
    #[serde(other)]
    Other,
}

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

impl<'de> DeserializeSeed<'de> for ReviewSeed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReviewSeed<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AdmissionReview")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let ReviewSeed { review, in_place } = self;
        while let Some(member) = members.next_key()? {
            match member {
                ReviewMember::ApiVersion => review.api_version = members.next_value()?,
                ReviewMember::Kind => review.kind = members.next_value()?,
                ReviewMember::Request if review.request.is_some() => return Err(duplicate()),
                ReviewMember::Request => members.next_value_seed(RequestSeed {
                    request: &mut review.request,
                    in_place,
                })?,
                ReviewMember::Other => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for RequestSeed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for RequestSeed<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AdmissionRequest")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let request = self.request.insert(Request::default());
        let mut seen = 0_u32;
        while let Some(member) = members.next_key::<RequestMember>()? {
            let bit = 1 << member as u32;
            if !matches!(member, RequestMember::Other) && seen & bit != 0 {
                return Err(duplicate());
            }
            seen |= bit;
            request.read_member(member, &mut members, self.in_place)?;
        }
        Ok(())
    }
}

fn duplicate<E: Error>() -> E {
    E::custom("the request has a duplicate field")
}

impl<'a> Request<'a> {
    /// Decodes the value of a member.
    fn read_member<A: MapAccess<'a>>(
        &mut self,
        member: RequestMember,
        members: &mut A,
        in_place: bool,
    ) -> Result<(), A::Error> {
        match member {
            RequestMember::Uid => self.uid = members.next_value()?,
            RequestMember::Kind => self.kind = members.next_value()?,
            RequestMember::SubResource => self.sub_resource = members.next_value()?,
            RequestMember::Name => self.name = members.next_value()?,
            RequestMember::Namespace => self.namespace = members.next_value()?,
            RequestMember::Operation => self.operation = members.next_value()?,
            RequestMember::UserInfo => self.user_info = members.next_value()?,
            RequestMember::Object => {
                self.object = match self.next_object().filter(|_| in_place) {
                    Some(kind) => members.next_value_seed(ObjectOrNull(kind))?,
                    None => members.next_value::<Option<_>>()?.map(RequestObject::Raw),
                };
            }
            RequestMember::OldObject => self.old_object = members.next_value()?,
            RequestMember::DryRun => self.dry_run = members.next_value()?,
            RequestMember::Other => _ = members.next_value::<IgnoredAny>()?,
        }
        Ok(())
    }
}

/// An object of this kind that is parsed in place, or `null`.
struct ObjectOrNull(Kind);

impl<'de> DeserializeSeed<'de> for ObjectOrNull {
    type Value = Option<RequestObject<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for ObjectOrNull {
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
        let seed = ObjectSeed {
            kind: self.0,
            stage: ReviewStage::Written,
        };
        Ok(Some(RequestObject::Read(Box::new(
            seed.deserialize(deserializer)?,
        ))))
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
    let mut review = PartialReview::default();
    if read_review(body, &mut review, true).is_ok() {
        return review.into_request(body);
    }
    // Either this is not a review, or its object cannot be parsed: then the answer still has its uid.
    review = PartialReview::default();
    read_review(body, &mut review, false).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        MalformedReview(format!("{} at line {line} column {column}", strict_json::reason(&error)).into())
    })?;
    review.into_request(body)
}

/// Reads as much of the request of an AdmissionReview as its first bytes contain: the API server encodes the objects after
/// everything else.
///
/// # Errors
/// The bytes are not those of an AdmissionReview whose request has a uid.
pub fn decode_head(bytes: &[u8], oversize: Oversize) -> Result<Request<'_>, MalformedReview> {
    let head = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let mut review = PartialReview::default();
    // It fails where the bytes end.
    let _ = read_review(head, &mut review, false);
    let request = review.into_request(head)?;
    Ok(Request {
        oversize: Some(oversize),
        object: None,
        old_object: None,
        ..request
    })
}

fn read_review<'a>(
    body: &'a str,
    review: &mut PartialReview<'a>,
    in_place: bool,
) -> Result<(), serde_json::Error> {
    strict_json::read(body, ReviewSeed { review, in_place })
}

impl<'a> PartialReview<'a> {
    fn into_request(self, body: &'a str) -> Result<Request<'a>, MalformedReview> {
        if &*self.kind != "AdmissionReview" || &*self.api_version != "admission.k8s.io/v1" {
            let what = format!("{} {}", self.api_version, self.kind);
            let what = cut(what.trim(), 80);
            return Err(MalformedReview(
                format!("expected admission.k8s.io/v1 AdmissionReview, got \"{what}\"").into(),
            ));
        }
        let request = self.request.ok_or(MalformedReview("it has no request".into()))?;
        if request.uid.is_empty() {
            return Err(MalformedReview("its request has no uid".into()));
        }
        Ok(Request { body, ..request })
    }
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
    deletion_timestamp: crate::model::syntax::json_types::IsPresent,
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

    /// A review as the API server encodes it.
    const UPDATE: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1",
        "kind":{"group":"apps","version":"v1","kind":"Deployment"},
        "resource":{"group":"apps","version":"v1","resource":"deployments"},
        "requestKind":{"group":"apps","version":"v1","kind":"Deployment"},
        "requestResource":{"group":"apps","version":"v1","resource":"deployments"},
        "name":"web","namespace":"shop","operation":"UPDATE",
        "userInfo":{"username":"alice","groups":["team-a","system:authenticated"]},
        "object":{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"o-1",
        "creationTimestamp":"2026-11-20T16:30:41Z","labels":{"a":"b"}},"spec":{"replicas":1}},"oldObject":null}}"#;

    const OVERSIZE: Oversize = Oversize {
        bytes: None,
        bound: 20 << 20,
    };

    #[test]
    fn whatever_precedes_the_cut_is_read() {
        let before = |text: &str| {
            let head = UPDATE.split_once(text).unwrap().0;
            decode_head(head.as_bytes(), OVERSIZE).unwrap()
        };
        let request = before("\"b\"");
        assert_eq!((&*request.uid, &*request.kind.kind), ("u-1", "Deployment"));
        assert_eq!((&*request.name, &*request.namespace), ("web", "shop"));
        assert_eq!(
            (&*request.operation, &*request.user_info.username),
            ("UPDATE", "alice")
        );
        assert_eq!(request.user_info.groups.len(), 2);
        assert_eq!(before("\"userInfo\"").operation, "UPDATE".into());
        assert_eq!(before("shop").operation, "".into());
        assert_eq!(before("\"kind\":{").uid, "u-1".into());
        let whole = decode_head(UPDATE.as_bytes(), OVERSIZE).unwrap();
        assert!(whole.object.is_none(), "it is answered from its head");
    }

    #[test]
    fn what_is_no_review_has_no_head() {
        for bytes in [
            &b""[..],
            b"{",
            b"[1",
            b"\xff\xfe",
            br#"{"kind":"Pod","apiVersion":"v1","request":{"uid":"u"}}"#,
            br#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":""#,
            br#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}"#,
        ] {
            let head = decode_head(bytes, OVERSIZE);
            assert!(head.is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_cut_at_any_byte_is_read_without_a_panic() {
        let review = UPDATE.replace("alice", "älice");
        for end in 0..review.len() {
            let uid = decode_head(&review.as_bytes()[..end], OVERSIZE).map(|head| head.uid.to_string());
            assert!(uid.is_err() || uid == Ok("u-1".to_owned()), "{end}");
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
