//! Events about changed nodes: one for each policy and cause, regardless of the number of nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kube::runtime::events::{Event, EventType};
use tokio::time::Instant;

use super::nodes::labels::KeptLabel;
use super::nodes::plan::NodeChange;
use super::policies::NodePolicies;
use super::writer::Writer;
use crate::cluster::node::NodeView;
use crate::controller::conditions::LONGEST_NOTE;
use crate::model::text::{cut, list};

/// How long changes are collected while more nodes are being written.
const GATHER: Duration = Duration::from_secs(30);
/// How many nodes an Event names.
const NAMED: usize = 10;

/// Changes that are not reported yet.
#[derive(Debug, Default)]
pub struct NodeEvents {
    since: Option<Instant>,
    /// By policy and change.
    changes: BTreeMap<(String, String), NodeChangeEvent>,
}

/// A change, and the nodes that it was made on, with their uids.
#[derive(Debug)]
struct NodeChangeEvent {
    change: NodeChange,
    nodes: Vec<(String, String)>,
}

impl NodeEvents {
    /// Records the changes of a node for a policy; the policy's name is empty if there is none any longer.
    pub fn add(&mut self, policy: &str, node: &NodeView, changes: Vec<NodeChange>, now: Instant) {
        for change in changes {
            tracing::debug!(node = node.name, %change, "node changed");
            self.since.get_or_insert(now);
            let cause = (policy.to_owned(), change.to_string());
            let note_text = self.changes.entry(cause).or_insert(NodeChangeEvent {
                change,
                nodes: Vec::new(),
            });
            note_text.nodes.push((node.name.clone(), node.uid.clone()));
        }
    }

    /// When to report even though more nodes are still being written.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + GATHER)
    }

    /// Reports all changes in the log and as Events: on the node if it is one, otherwise on the policy.
    pub async fn flush(&mut self, policies: &NodePolicies, writer: &Writer) {
        self.since = None;
        for ((policy, described), NodeChangeEvent { change, nodes }) in std::mem::take(&mut self.changes) {
            let names = list(nodes.iter().map(|(name, _)| name), NAMED);
            tracing::info!(policy, nodes = nodes.len(), names, "nodes changed: {described}");
            let policy = policies.get(&policy).filter(|_| nodes.len() > 1);
            let about = policy.map(|policy| {
                let mut about = policy.stored.object_ref(&());
                // A resourceVersion would keep Events about the same change apart.
                about.resource_version = None;
                about
            });
            let first = nodes.first().map(|(name, uid)| of_node(name, uid));
            let note_text = if nodes.len() > 1 {
                format!("{} nodes ({names}): {described}", nodes.len())
            } else {
                described
            };
            if let (Some(event), Some(about)) = (event_of(&change, &note_text), about.or(first)) {
                writer.announce(&event, &about).await;
            }
        }
    }
}

fn of_node(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()),
        ..ObjectReference::default()
    }
}

/// The Event for a change. A removed label is not reported.
fn event_of(change: &NodeChange, note_text: &str) -> Option<Event> {
    let (type_, reason, action) = match change {
        NodeChange::Label {
            key,
            from,
            to: Some(_),
        } if from.is_some() || KeptLabel::of(key).is_some_and(|row| row.is_announced) => {
            (EventType::Normal, "LabelCorrected", "CorrectLabel")
        }
        NodeChange::Label { .. } => return None,
        NodeChange::TaintSet(_) => (EventType::Normal, "TaintSet", "SetTaint"),
        NodeChange::TaintTaken(_) => (EventType::Normal, "TaintRemoved", "RemoveTaint"),
        NodeChange::AnnotationLost(_) => (EventType::Warning, "OwnerAnnotationLost", "RestoreAnnotation"),
    };
    Some(Event {
        type_,
        reason: reason.to_owned(),
        // The API server rejects longer notes.
        note: Some(cut(note_text, LONGEST_NOTE).into_owned()),
        action: action.to_owned(),
        secondary: None,
    })
}
