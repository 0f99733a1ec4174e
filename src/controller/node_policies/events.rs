//! Events about changed nodes: one for each policy and cause, regardless of the number of nodes. Their names contain a
//! hash of the note. kube's recorder would count another change of the same object as a repetition of the first one, with
//! the text of the first.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::Resource as _;
use tokio::time::Instant;

use super::nodes::labels::KeptLabel;
use super::nodes::plan::NodeChange;
use crate::cluster::node::NodeView;
use crate::cluster::stored_node_policies::NodePolicies;
use crate::controller::events::{NewEvent, of_node};
use crate::controller::writer::Writer;
use crate::model::syntax::text::list;

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
            let event = self.changes.entry(cause).or_insert(NodeChangeEvent {
                change,
                nodes: Vec::new(),
            });
            event.nodes.push((node.name.clone(), node.uid.clone()));
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
            let about = policy.map(|policy| policy.stored.object_ref(&()));
            let first = nodes.first().map(|(name, uid)| of_node(name, uid));
            let note = if nodes.len() > 1 {
                format!("{} nodes ({names}): {described}", nodes.len())
            } else {
                described
            };
            let about = about.or(first);
            let event = about.and_then(|about| event_of(&change, &note, about, Timestamp::now()));
            if let Some(event) = event {
                writer.announce_once(&event).await;
            }
        }
    }
}

/// The Event for a change. A removed label is not reported.
fn event_of(change: &NodeChange, note: &str, about: ObjectReference, now: Timestamp) -> Option<Event> {
    let (is_warning, reason, action) = match change {
        NodeChange::Label {
            key,
            from,
            to: Some(_),
        } if from.is_some() || KeptLabel::of(key).is_some_and(|row| row.is_announced) => {
            (false, "LabelCorrected", "CorrectLabel")
        }
        NodeChange::Label { .. } => return None,
        NodeChange::TaintSet(_) => (false, "TaintSet", "SetTaint"),
        NodeChange::TaintWithdrawn(_) => (true, "TaintRemoved", "RemoveTaint"),
        NodeChange::TaintTaken(_) => (false, "TaintRemoved", "RemoveTaint"),
        NodeChange::AnnotationLost(_) => (true, "OwnedAnnotationLost", "RestoreAnnotation"),
    };
    let event = NewEvent {
        is_warning,
        action,
        reason,
        note,
        regarding: about,
    };
    Some(event.at(now))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::test_client::answering;
    use crate::model::nodes::node::Taint;

    #[tokio::test(start_paused = true)]
    async fn each_change_of_a_node_has_its_own_event_and_the_same_change_has_one() {
        let sent: Arc<Mutex<Vec<Value>>> = Arc::default();
        let stored = Arc::clone(&sent);
        let client = answering(move |_, uri, body| {
            assert_eq!(uri.path(), "/apis/events.k8s.io/v1/namespaces/default/events");
            let event: Value = serde_json::from_str(body).unwrap();
            let mut stored = stored.lock().unwrap();
            let name = |event: &Value| event["metadata"]["name"].clone();
            if stored.iter().any(|other| name(other) == name(&event)) {
                return (
                    409,
                    json!({"kind": "Status", "code": 409, "message": "it exists"}),
                );
            }
            stored.push(event.clone());
            (201, event)
        });
        let writer = Writer::new(client, None, 50);
        let node = NodeView {
            name: "w1".into(),
            uid: "u".into(),
            ..NodeView::default()
        };
        let set = |key: &str| NodeChange::TaintSet(Taint::no_schedule(key, "windows"));
        let mut events = NodeEvents::default();
        for changes in [vec![set("a"), set("b")], vec![set("c")], vec![set("a")]] {
            events.add("windows", &node, changes, Instant::now());
            events.flush(&NodePolicies::default(), &writer).await;
        }
        let sent = sent.lock().unwrap();
        let notes: Vec<&str> = sent.iter().filter_map(|event| event["note"].as_str()).collect();
        assert_eq!(
            notes,
            [
                "taint a=windows:NoSchedule: set",
                "taint b=windows:NoSchedule: set",
                "taint c=windows:NoSchedule: set"
            ]
        );
        let first = &sent[0];
        assert_eq!(
            (&first["type"], &first["reason"], &first["action"]),
            (&json!("Normal"), &json!("TaintSet"), &json!("SetTaint"))
        );
        assert_eq!(first["regarding"]["uid"], "u");
        assert_eq!(first["reportingController"], "transom.dev/controller");
    }
}
