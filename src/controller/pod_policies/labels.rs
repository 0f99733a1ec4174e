//! Labels of namespaces that do nothing: the Events and the log tell their authors, each once.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};

use crate::cluster::errors::{Failure, answered};
use crate::cluster::lease::Leadership;
use crate::cluster::snapshot::Snapshot;
use crate::controller::conditions::LONGEST_NOTE;
use crate::engine::namespace_labels::Ignored;
use crate::model::text::cut;

/// The reason of the Events.
const REASON: &str = "LabelIgnored";
/// Events in one go; with the pause between two looks that is so many in a second.
const AT_ONCE: usize = 20;
/// How many hexadecimal digits of the SHA-256 tell two problems of a namespace apart.
const DIGITS: usize = 16;
/// Where Events about objects without a namespace are kept.
const EVENTS: &str = "default";

/// A label that does nothing, as it is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelNote {
    /// The name of the Event. The same problem of the same namespace has the same name, whichever replica tells it, and when: the
    /// API server refuses the second one, so that a new leader or a restart tells nothing twice.
    pub event: String,
    /// The namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// What does nothing, why, and what to write instead.
    pub message: String,
}

impl LabelNote {
    fn of(namespace: &str, uid: &str, label: &Ignored) -> Self {
        let message = message(namespace, label);
        let mut event = format!("{namespace}.");
        let problem = format!("{uid}\n{message}");
        for byte in ring::digest::digest(&ring::digest::SHA256, problem.as_bytes())
            .as_ref()
            .iter()
            .take(DIGITS / 2)
        {
            let _ = write!(event, "{byte:02x}");
        }
        LabelNote {
            event,
            namespace: namespace.to_owned(),
            uid: uid.to_owned(),
            message,
        }
    }

    /// The Event.
    fn event(&self, now: Timestamp) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(self.event.clone()),
                namespace: Some(EVENTS.to_owned()),
                ..ObjectMeta::default()
            },
            action: Some("ReadLabels".to_owned()),
            reason: Some(REASON.to_owned()),
            note: Some(cut(&self.message, LONGEST_NOTE).into_owned()),
            type_: Some("Warning".to_owned()),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some("transom".to_owned()),
            reporting_instance: Some("transom".to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Namespace".to_owned()),
                name: Some(self.namespace.clone()),
                uid: Some(self.uid.clone()),
                ..ObjectReference::default()
            }),
            ..Event::default()
        }
    }
}

/// What does nothing, why, and the command that mends it.
fn message(namespace: &str, label: &Ignored) -> String {
    let Ignored { key, value, why, .. } = label;
    let shown = if value.is_empty() { "\"\"" } else { value };
    let mut text = format!("the label {key}={shown} of namespace {namespace} does nothing: {why}");
    match label.meant {
        Some((meant, with)) if meant == key => {
            let _ = write!(
                text,
                "; did you mean {with}? kubectl label --overwrite namespace {namespace} {meant}={with}"
            );
        }
        Some((meant, with)) => {
            let _ = write!(
                text,
                "; did you mean {meant}={with}? kubectl label namespace {namespace} {key}- {meant}={with}"
            );
        }
        None => {
            let _ = write!(text, "; take it away: kubectl label namespace {namespace} {key}-");
        }
    }
    if let Some(or_else) = &label.or_else {
        let _ = write!(text, "; or {or_else}");
    }
    text
}

/// Every label that does nothing, by namespace.
fn notes(snapshot: &Snapshot) -> Vec<LabelNote> {
    let of_one = snapshot.view.namespaces.iter().flat_map(|(namespace, seen)| {
        let ignored = snapshot.policies.ignored_labels(&seen.labels).into_iter();
        ignored.map(move |label| LabelNote::of(namespace, &seen.uid, &label))
    });
    of_one.collect()
}

/// Tells of labels that do nothing, and remembers what it has told.
#[derive(Debug, Default)]
pub struct Teller {
    /// The names of the Events that are written.
    told: BTreeSet<String>,
    /// Why the API server refused the last one: a refusal that stays is logged once.
    refused: Option<String>,
}

impl Teller {
    /// What is to be told now, some of it at a time, and whether there is more. What no longer is a problem is
    /// forgotten.
    pub fn due(&mut self, snapshot: &Snapshot) -> (Vec<LabelNote>, bool) {
        let mut notes = notes(snapshot);
        let there: BTreeSet<&str> = notes.iter().map(|note| note.event.as_str()).collect();
        self.told.retain(|event| there.contains(event.as_str()));
        notes.retain(|note| !self.told.contains(&note.event));
        let more = notes.len() > AT_ONCE;
        notes.truncate(AT_ONCE);
        (notes, more)
    }

    /// Notes that something has been told, by us or by another replica.
    pub fn tell(&mut self, note: LabelNote) {
        self.told.insert(note.event);
    }

    /// Writes the Events that are due while this replica leads; says whether there are more.
    pub(super) async fn write(
        &mut self,
        client: &Client,
        leadership: &Leadership,
        snapshot: &Snapshot,
    ) -> bool {
        let api: Api<Event> = Api::namespaced(client.clone(), EVENTS);
        let (due, more) = self.due(snapshot);
        for note in due {
            if !leadership.holds() {
                return false;
            }
            let event = note.event(Timestamp::now());
            match answered(api.create(&PostParams::default(), &event)).await {
                Ok(_) => tracing::warn!(namespace = note.namespace, "{}", note.message),
                // It was told before this replica led.
                Err(Failure::Conflict) => {}
                Err(error) => {
                    let error = error.to_string();
                    if self.refused.as_ref() != Some(&error) {
                        let namespace = &note.namespace;
                        tracing::warn!("cannot write the Event {REASON} of namespace {namespace}: {error}");
                        self.refused = Some(error);
                    }
                    // Later, with the next look.
                    return false;
                }
            }
            self.refused = None;
            self.tell(note);
        }
        more
    }
}
