//! Parses the head of an AdmissionReview whose rest is missing: who requests what, and whether the object is being
//! deleted.
//!
//! The API server encodes Go structs in the order of their fields. In a request, the uid, kind, names, operation and
//! userInfo precede the object. In the object's metadata, `deletionTimestamp` precedes everything that an author can
//! make long.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};

use super::{MalformedReview, Request, RequestMember, UserInfo};
use crate::model::json_types::{IsPresent, Str};

/// The content of the head of a review.
#[derive(Debug, Default)]
pub struct ReviewHead<'a> {
    /// The request, without its objects.
    pub request: Request<'a>,
    /// Whether the object is being deleted.
    pub being_deleted: BeingDeleted,
}

/// Whether an object is being deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BeingDeleted {
    /// Unknown: the head ends before it.
    #[default]
    Unknown,
    /// Its metadata has no `deletionTimestamp`.
    No,
    /// Its metadata has one.
    Yes,
}

/// Parses as much of a review as its first bytes contain.
///
/// # Errors
/// They are not those of an AdmissionReview whose request has a uid.
pub fn read_head(bytes: &[u8]) -> Result<ReviewHead<'_>, MalformedReview> {
    let mut read = HeadSeed::default();
    // The bytes end in the middle of a value. The members before it are kept.
    let _ = OfReview(&mut read).deserialize(&mut serde_json::Deserializer::from_slice(bytes));
    let HeadSeed {
        kind,
        api_version,
        head,
    } = read;
    let is_review = &*kind == "AdmissionReview" && &*api_version == "admission.k8s.io/v1";
    if is_review && !head.request.uid.is_empty() {
        return Ok(head);
    }
    Err(MalformedReview(
        "it is too large, and its first bytes are not those of an admission.k8s.io/v1 AdmissionReview with a uid".into(),
    ))
}

#[derive(Default)]
struct HeadSeed<'a> {
    kind: Str<'a>,
    api_version: Str<'a>,
    head: ReviewHead<'a>,
}

/// Parses an object member by member into its target, so that an error keeps the members before it.
macro_rules! object {
    ($name:ident($target:ty), |$read:ident, $key:ident, $map:ident| $member:block, $end:block) => {
        struct $name<'r, 'a>(&'r mut $target);

        impl<'de: 'a, 'a> DeserializeSeed<'de> for $name<'_, 'a> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_any(self)
            }
        }

        impl<'de: 'a, 'a> Visitor<'de> for $name<'_, 'a> {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_unit<E>(self) -> Result<(), E> {
                Ok(())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut $map: A) -> Result<(), A::Error> {
                let $read = self.0;
                while let Some($key) = $map.next_key()? {
                    $member
                }
                $end
                Ok(())
            }
        }
    };
}

object!(
    OfReview(HeadSeed<'a>),
    |read, key, map| {
        let key: Str<'_> = key;
        match &*key {
            "kind" => read.kind = map.next_value()?,
            "apiVersion" => read.api_version = map.next_value()?,
            "request" => map.next_value_seed(OfRequest(&mut read.head))?,
            _ => _ = map.next_value::<IgnoredAny>()?,
        }
    },
    {}
);

object!(
    OfRequest(ReviewHead<'a>),
    |head, member, map| {
        let member: RequestMember = member;
        let request = &mut head.request;
        match member {
            RequestMember::Uid => request.uid = map.next_value()?,
            RequestMember::Kind => request.kind = map.next_value()?,
            RequestMember::SubResource => request.sub_resource = map.next_value()?,
            RequestMember::Name => request.name = map.next_value()?,
            RequestMember::Namespace => request.namespace = map.next_value()?,
            RequestMember::Operation => request.operation = map.next_value()?,
            RequestMember::UserInfo => map.next_value_seed(OfUser(&mut request.user_info))?,
            RequestMember::Object => map.next_value_seed(OfObject(&mut *head))?,
            RequestMember::DryRun => request.dry_run = map.next_value()?,
            RequestMember::OldObject | RequestMember::Other => _ = map.next_value::<IgnoredAny>()?,
        }
    },
    {}
);

object!(
    OfUser(UserInfo<'a>),
    |user, key, map| {
        let key: Str<'_> = key;
        match &*key {
            "username" => user.username = map.next_value()?,
            "groups" => user.groups = map.next_value()?,
            _ => _ = map.next_value::<IgnoredAny>()?,
        }
    },
    {}
);

object!(
    OfObject(ReviewHead<'a>),
    |head, key, map| {
        let key: Str<'_> = key;
        match &*key {
            "metadata" => map.next_value_seed(OfMetadata(&mut *head))?,
            _ => _ = map.next_value::<IgnoredAny>()?,
        }
    },
    {}
);

object!(
    OfMetadata(ReviewHead<'a>),
    |head, key, map| {
        let key: Str<'_> = key;
        match &*key {
            "deletionTimestamp" => {
                if map.next_value::<IsPresent>()?.0 {
                    head.being_deleted = BeingDeleted::Yes;
                }
            }
            // The fields of ObjectMeta that follow it.
            "deletionGracePeriodSeconds"
            | "labels"
            | "annotations"
            | "ownerReferences"
            | "finalizers"
            | "managedFields" => {
                head.settle();
                map.next_value::<IgnoredAny>()?;
            }
            _ => _ = map.next_value::<IgnoredAny>()?,
        }
    },
    {
        head.settle();
    }
);

impl ReviewHead<'_> {
    /// A later field was read, so `deletionTimestamp` is missing unless it was read.
    fn settle(&mut self) {
        if self.being_deleted == BeingDeleted::Unknown {
            self.being_deleted = BeingDeleted::No;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// The head up to a text.
    fn before(text: &str) -> ReviewHead<'static> {
        read_head(UPDATE.split_once(text).unwrap().0.as_bytes()).unwrap()
    }

    #[test]
    fn whatever_precedes_the_cut_is_read() {
        let head = before("\"b\"");
        let request = &head.request;
        assert_eq!((&*request.uid, &*request.kind.kind), ("u-1", "Deployment"));
        assert_eq!((&*request.name, &*request.namespace), ("web", "shop"));
        assert_eq!(
            (&*request.operation, &*request.user_info.username),
            ("UPDATE", "alice")
        );
        assert_eq!(request.user_info.groups.len(), 2);
        assert_eq!(head.being_deleted, BeingDeleted::No);
        assert_eq!(before("metadata").being_deleted, BeingDeleted::Unknown);
        assert_eq!(before("2026").being_deleted, BeingDeleted::Unknown);
        assert_eq!(
            before("system:authenticated").request.user_info.username,
            "alice".into()
        );
        assert_eq!(before("shop").request.operation, "".into());
        assert_eq!(before("\"kind\":{").request.uid, "u-1".into());
        let whole = read_head(UPDATE.as_bytes()).unwrap();
        assert_eq!(
            (whole.being_deleted, &*whole.request.operation),
            (BeingDeleted::No, "UPDATE")
        );
    }

    #[test]
    fn an_object_that_is_being_deleted_says_so_before_anything_long() {
        let deleted = UPDATE.replace(
            "\"labels\"",
            "\"deletionTimestamp\":\"2026-11-21T00:00:00Z\",\"deletionGracePeriodSeconds\":0,\"labels\"",
        );
        let cut = deleted.split_once("\"b\"").unwrap().0;
        assert_eq!(
            read_head(cut.as_bytes()).unwrap().being_deleted,
            BeingDeleted::Yes
        );
        let null = UPDATE.replace("\"labels\"", "\"deletionTimestamp\":null,\"labels\"");
        assert_eq!(
            read_head(null.as_bytes()).unwrap().being_deleted,
            BeingDeleted::No
        );
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
            assert!(read_head(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_cut_at_any_byte_is_read_without_a_panic() {
        for end in 0..UPDATE.len() {
            let uid = read_head(&UPDATE.as_bytes()[..end]).map(|head| head.request.uid.to_string());
            assert!(uid.is_err() || uid == Ok("u-1".to_owned()), "{end}");
        }
    }
}
