//! What was changed on nodes, told in one Event for each policy and cause, however many nodes it is.

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

/// How long changes are gathered while more nodes are being written.
const GATHER: Duration = Duration::from_secs(30);
/// So many nodes are named.
const NAMED: usize = 10;

/// Changes that are not told yet.
#[derive(Debug, Default)]
pub struct NodeEvents {
    since: Option<Instant>,
    /// By the policy and what is changed.
    changes: BTreeMap<(String, String), NodeChangeEvent>,
}

/// A change, and the nodes that it was made on, with their uids.
#[derive(Debug)]
struct NodeChangeEvent {
    change: NodeChange,
    nodes: Vec<(String, String)>,
}

impl NodeEvents {
    /// A node was changed for a policy; an empty name where there is none any more.
    pub fn add(&mut self, policy: &str, node: &NodeView, changes: Vec<NodeChange>, now: Instant) {
        for change in changes {
            tracing::debug!(node = node.name, %change, "node changed");
            self.since.get_or_insert(now);
            let cause = (policy.to_owned(), change.to_string());
            let told = self.changes.entry(cause).or_insert(NodeChangeEvent {
                change,
                nodes: Vec::new(),
            });
            told.nodes.push((node.name.clone(), node.uid.clone()));
        }
    }

    /// When to tell, though more nodes are still being written.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + GATHER)
    }

    /// Tells everything, in the log and by Events: about the node where it is one, else about the policy.
    pub async fn flush(&mut self, policies: &NodePolicies, writer: &Writer) {
        self.since = None;
        for ((policy, said), NodeChangeEvent { change, nodes }) in std::mem::take(&mut self.changes) {
            let names = list(nodes.iter().map(|(name, _)| name), NAMED);
            tracing::info!(policy, nodes = nodes.len(), names, "nodes changed: {said}");
            let policy = policies.get(&policy).filter(|_| nodes.len() > 1);
            let about = policy.map(|policy| {
                let mut about = policy.stored.object_ref(&());
                // It says which version was meant, and would keep Events of the same thing apart.
                about.resource_version = None;
                about
            });
            let first = nodes.first().map(|(name, uid)| of_node(name, uid));
            let told = if nodes.len() > 1 {
                format!("{} nodes ({names}): {said}", nodes.len())
            } else {
                said
            };
            if let (Some(event), Some(about)) = (event_of(&change, &told), about.or(first)) {
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

/// The Event for a change. A label that goes is no news.
fn event_of(change: &NodeChange, told: &str) -> Option<Event> {
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
        // Longer ones are refused.
        note: Some(cut(told, LONGEST_NOTE).into_owned()),
        action: action.to_owned(),
        secondary: None,
    })
}
