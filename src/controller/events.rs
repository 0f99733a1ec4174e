//! Events about problems, which need no recorder: the same problem of the same object always has the same name, so the API
//! server rejects a duplicate from any replica, and after a restart.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::conditions::{LONGEST_NOTE, REPORTER};
use crate::model::text::{cut, digest_hex};

/// The namespace of Events about objects without a namespace.
pub const CLUSTER_EVENTS: &str = "default";
/// How many hexadecimal digits of the SHA-256 distinguish two Events of an object.
const DIGITS: usize = 16;
/// How many bytes of an object's name are used in the name of an Event.
const LONGEST_NAME: usize = 200;

/// The name of an Event about an object. The same `problem`, which should contain the uid of the object, always has the
/// same name.
pub fn event_name(object: &str, problem: &str) -> String {
    let mut name: String = object.chars().take(LONGEST_NAME).collect();
    name.truncate(name.trim_end_matches(['.', '-']).len());
    name.push('.');
    name.push_str(&digest_hex(problem.as_bytes(), DIGITS));
    name
}

/// A node, for Events about it.
pub fn of_node(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()),
        ..ObjectReference::default()
    }
}

/// A problem of an object.
pub struct Problem<'p> {
    /// The name of the Event, derived from the object and the problem.
    pub name: String,
    /// The namespace of the Event.
    pub namespace: &'p str,
    /// What Transom did when it found the problem.
    pub action: &'static str,
    /// The reason of the Event.
    pub reason: &'static str,
    /// The problem, and what to do.
    pub message: &'p str,
    /// The object.
    pub regarding: ObjectReference,
}

impl Problem<'_> {
    /// The Event.
    pub fn event(self, now: Timestamp) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(self.name),
                namespace: Some(self.namespace.to_owned()),
                ..ObjectMeta::default()
            },
            action: Some(self.action.to_owned()),
            reason: Some(self.reason.to_owned()),
            note: Some(cut(self.message, LONGEST_NOTE).into_owned()),
            type_: Some("Warning".to_owned()),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some("transom".to_owned()),
            regarding: Some(self.regarding),
            ..Event::default()
        }
    }
}
