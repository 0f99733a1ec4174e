//! Reports each of these once, as an Event and in the log: namespace labels without effect, labels that recently
//! excluded a namespace, and namespaces that lost their policy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use tokio::time::Instant;

use crate::cluster::cache::LabelAuthor;
use crate::cluster::snapshot::Snapshot;
use crate::controller::events::{NewEvent, reference};
use crate::controller::leader_loop::PassResult;
use crate::controller::writer::Writer;
use crate::engine::namespace_labels::IgnoredLabel;
use crate::registration;

/// The reason of Events about a label without effect.
const IGNORED: &str = "LabelIgnored";
/// The reason of Events about a label that excludes its namespace.
const LEFT_OUT: &str = "NamespaceExcluded";
/// The reason of Events about a namespace that is no longer selected by any policy.
const WITHOUT_POLICY: &str = "NamespaceWithoutPolicy";
/// The maximum age of an excluding label that is reported. The API server keeps Events for the same time by default,
/// so the name of the Event prevents a duplicate.
const LATELY: SignedDuration = SignedDuration::from_hours(1);
/// Events per write; with the pause between two passes, this is the rate per second.
const AT_ONCE: usize = 20;

/// A problem of a namespace: a label without effect, a label that excludes the namespace, or a lost policy. `note`: why, and
/// what to write instead.
fn event(reason: &'static str, namespace: &str, uid: &str, note: &str, now: Timestamp) -> Event {
    let event = NewEvent {
        is_warning: true,
        action: "EvaluateLabels",
        reason,
        note,
        regarding: reference("v1", "Namespace", namespace, uid),
    };
    event.at(now)
}

/// Which label has no effect, why, and the command that fixes it.
fn message(namespace: &str, label: &IgnoredLabel) -> String {
    let IgnoredLabel { key, value, why, .. } = label;
    let shown = if value.is_empty() { "\"\"" } else { value };
    let mut text = format!("the label {key}={shown} of namespace {namespace} has no effect: {why}");
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
            let _ = write!(text, "; remove it: kubectl label namespace {namespace} {key}-");
        }
    }
    if let Some(or_else) = &label.or_else {
        let _ = write!(text, "; or {or_else}");
    }
    text
}

/// What the label disables, who wrote it, and the command that restores it.
fn left_out(namespace: &str, author: &LabelAuthor) -> String {
    let LabelAuthor { label, manager, at } = author;
    let manager = if manager.is_empty() {
        "an unknown manager"
    } else {
        manager
    };
    let mut text = format!(
        "the label {label} excludes namespace {namespace}: the API server does not call Transom there, so Windows pods \
         are neither checked nor placed. Field manager {manager} set it"
    );
    if let Some(at) = at {
        let _ = write!(text, " at {at}");
    }
    let _ = write!(
        text,
        "; to remove it: kubectl label namespace {namespace} {label}-"
    );
    text
}

/// Every label without effect, and every label that excluded its namespace recently, by namespace.
fn notes(snapshot: &Snapshot, now: Timestamp) -> Vec<Event> {
    let lately = |author: &&LabelAuthor| author.at.is_some_and(|at| now.duration_since(at) < LATELY);
    let of_one = snapshot.cache.namespaces.iter().flat_map(|(namespace, seen)| {
        let ignored = snapshot.policies.ignored_labels(&seen.labels).into_iter();
        let ignored = ignored.map(|label| (IGNORED, message(namespace, &label)));
        // If the namespace is excluded by name, the label changes nothing.
        let by_label = !registration::is_left_out_by_name(namespace, &snapshot.excluded);
        let out = (seen.left_out_by.iter().filter(move |_| by_label)).filter(lately);
        let out = out.map(|author| (LEFT_OUT, left_out(namespace, author)));
        (ignored.chain(out))
            .map(|(reason, message)| event(reason, namespace, &seen.uid, &message, now))
            .collect::<Vec<_>>()
    });
    of_one.collect()
}

/// Which policy the namespace lost, what applies there now, and what to compare.
fn without_policy(namespace: &str, former: &str) -> String {
    format!(
        "no WindowsPodPolicy selects namespace {namespace} any more; until now {former} did. The built-in policy applies there \
         (validation Audit, placement Audit), so nothing is denied. Compare the labels of the namespace with the \
         namespaceSelector of the policies: kubectl get namespace {namespace} --show-labels"
    )
}

/// Which policy selects each namespace, and which one selected a namespace that now has none.
#[derive(Debug, Default)]
struct NamespaceSelection {
    by: BTreeMap<String, String>,
    lost: BTreeMap<String, String>,
}

impl NamespaceSelection {
    /// Updates the selection from a snapshot. Without any stored policy, no namespace has lost its policy.
    fn follow(&mut self, snapshot: &Snapshot) {
        let namespaces = &snapshot.cache.namespaces;
        self.by.retain(|name, _| namespaces.contains_key(name));
        self.lost.retain(|name, _| namespaces.contains_key(name));
        if snapshot.policies.stored().is_empty() {
            self.by.clear();
            self.lost.clear();
        }
        for (name, seen) in namespaces {
            match snapshot.policies.selecting(&seen.labels) {
                Some(stored) => {
                    self.lost.remove(name);
                    if self.by.get(name) != Some(&stored.policy.name) {
                        self.by.insert(name.clone(), stored.policy.name.clone());
                    }
                }
                None => {
                    if let Some(former) = self.by.remove(name) {
                        self.lost.insert(name.clone(), former);
                    }
                }
            }
        }
    }

    /// The namespaces that lost their policy.
    fn notes(&self, snapshot: &Snapshot, now: Timestamp) -> Vec<Event> {
        let lost = self.lost.iter().filter_map(|(name, former)| {
            let seen = snapshot.cache.namespaces.get(name)?;
            let is_reviewed = snapshot.is_reviewed_in(name, &seen.labels);
            is_reviewed.then(|| {
                let note = without_policy(name, former);
                event(WITHOUT_POLICY, name, &seen.uid, &note, now)
            })
        });
        lost.collect()
    }
}

/// Reports namespace labels, and remembers what it has reported.
#[derive(Debug, Default)]
pub struct EventDeduper {
    /// Which policy selects which namespace.
    selected: NamespaceSelection,
    /// The names of the Events that were written.
    written: BTreeSet<Option<String>>,
}

impl EventDeduper {
    /// The Events to write now, up to the limit, and whether there are more. Problems that no longer exist are
    /// forgotten.
    pub fn due(&mut self, snapshot: &Snapshot, now: Timestamp) -> (Vec<Event>, bool) {
        self.selected.follow(snapshot);
        let mut notes = notes(snapshot, now);
        notes.extend(self.selected.notes(snapshot, now));
        let there: BTreeSet<&Option<String>> = notes.iter().map(|note| &note.metadata.name).collect();
        self.written.retain(|name| there.contains(name));
        notes.retain(|note| !self.written.contains(&note.metadata.name));
        let more = notes.len() > AT_ONCE;
        notes.truncate(AT_ONCE);
        (notes, more)
    }

    /// Records that this Event was written, by this or by another replica.
    pub fn publish(&mut self, note: Event) {
        self.written.insert(note.metadata.name);
    }

    /// Writes the Events that are due. After a failure the next pass continues.
    pub(super) async fn write(&mut self, writer: &Writer, snapshot: &Snapshot, result: &mut PassResult) {
        let (due, has_more) = self.due(snapshot, Timestamp::now());
        for note in due {
            let about = note.regarding.as_ref().and_then(|about| about.name.as_deref());
            match writer.create_event(&note).await {
                Ok(true) => tracing::warn!(namespace = about, "{}", note.note.as_deref().unwrap_or_default()),
                // It was reported before this replica led.
                Ok(false) => {}
                Err(error) => {
                    let (namespace, reason) = (about.unwrap_or_default(), note.reason.unwrap_or_default());
                    let task = format!("write the Event {reason} of namespace {namespace}");
                    return result.fail(task, &error);
                }
            }
            self.publish(note);
        }
        if has_more {
            result.wake_at(Instant::now());
        }
    }
}
