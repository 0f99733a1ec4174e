//! Events that need no recorder: the same note about the same object always has the same name, so the API server rejects a
//! duplicate from any replica, and after a restart.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::conditions::{LONGEST_NOTE, REPORTER};
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::text::{cut, digest_hex};

/// The namespace of Events about objects without a namespace.
pub const CLUSTER_EVENTS: &str = "default";
/// How many hexadecimal digits of the SHA-256 distinguish two Events of an object.
const DIGITS: usize = 16;
/// How many bytes of an object's name are used in the name of an Event.
const LONGEST_NAME: usize = 200;

/// The name of an Event about an object. The same `problem`, which should contain the uid of the object, always has the
/// same name.
fn event_name(object: &str, problem: &str) -> String {
    let mut name: String = object.chars().take(LONGEST_NAME).collect();
    name.truncate(name.trim_end_matches(['.', '-']).len());
    name.push('.');
    name.push_str(&digest_hex(problem.as_bytes(), DIGITS));
    name
}

/// An object without a namespace, for Events about it.
pub fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()),
        ..ObjectReference::default()
    }
}

/// A workload, for Events about it.
pub fn of_workload(workload: &WorkloadName, api_version: &str) -> ObjectReference {
    ObjectReference {
        namespace: Some(workload.namespace.clone()),
        ..reference(api_version, &workload.kind, &workload.name, &workload.uid)
    }
}

/// A node, for Events about it.
pub fn of_node(name: &str, uid: &str) -> ObjectReference {
    reference("v1", "Node", name, uid)
}

/// What an Event reports.
pub struct NewEvent<'n> {
    /// Whether something is wrong.
    pub is_warning: bool,
    pub action: &'static str,
    pub reason: &'static str,
    /// What happened; for a problem, also what to do.
    pub note: &'n str,
    pub regarding: ObjectReference,
}

impl NewEvent<'_> {
    /// The Event. Its name is derived from the object, the reason and the note.
    pub fn at(self, now: Timestamp) -> Event {
        let (about, reason, note) = (self.regarding, self.reason, self.note);
        let identity = format!("{}\n{reason}\n{note}", about.uid.as_deref().unwrap_or_default());
        let namespace = about.namespace.as_deref().unwrap_or(CLUSTER_EVENTS);
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(about.name.as_deref().unwrap_or_default(), &identity)),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            action: Some(self.action.to_owned()),
            reason: Some(reason.to_owned()),
            note: Some(cut(note, LONGEST_NOTE).into_owned()),
            type_: Some(if self.is_warning { "Warning" } else { "Normal" }.to_owned()),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some("transom".to_owned()),
            regarding: Some(about),
            ..Event::default()
        }
    }
}
