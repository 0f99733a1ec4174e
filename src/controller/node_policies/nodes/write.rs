//! Carrying out a plan: one merge patch that names its resourceVersion; on a conflict the node is read and planned anew.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::api::Patch;
use kube::runtime::events::{Event, EventType};

use super::labels::KeptLabel;
use super::plan::{Change, NodePlan};
use crate::cluster::errors::{Failure, answered};
use crate::cluster::node::{NodeView, StoredNode};
use crate::controller::node_policies::writer::{Writer, patching};
use crate::model::text::cut;

/// How often a node is planned anew because another writer was faster.
const ATTEMPTS: u32 = 6;

/// What became of one node.
#[derive(Debug)]
pub enum Outcome {
    /// It is as it is to be, and was not written.
    Stands(Arc<NodeView>),
    /// It was written, and is so now.
    Wrote(Arc<NodeView>),
    /// It is gone.
    Gone,
    /// It is not as it is to be, and why.
    Failed(String),
}

/// Makes a node as it is to be. `decide` is asked anew for every version of it.
pub async fn bring_about(
    writer: &Writer,
    node: Arc<NodeView>,
    decide: &(dyn Fn(&NodeView) -> NodePlan + Send + Sync),
) -> Outcome {
    let nodes: Api<StoredNode> = Api::all(writer.client.clone());
    let mut node = node;
    for attempt in 0..ATTEMPTS {
        let plan = decide(&node);
        let Some(patch) = plan.patch(&node) else {
            return Outcome::Stands(node);
        };
        // Without a version the write would be unconditional.
        if !node.resource_version.is_empty() {
            let patch = Patch::Merge(&patch);
            match writer.write(nodes.patch(&node.name, &patching(), &patch)).await {
                Ok(written) => {
                    tell(writer, &node, &plan.changes).await;
                    return Outcome::Wrote(Arc::new(written.into()));
                }
                Err(Failure::Gone) => return Outcome::Gone,
                Err(Failure::Conflict) => tokio::time::sleep(jitter(attempt)).await,
                Err(Failure::Other(error)) => return Outcome::Failed(error),
            }
        }
        match answered(nodes.get(&node.name)).await {
            Ok(fresh) => node = Arc::new(fresh.into()),
            Err(Failure::Gone) => return Outcome::Gone,
            Err(Failure::Conflict) => {}
            Err(Failure::Other(error)) => return Outcome::Failed(error),
        }
    }
    Outcome::Failed(format!("another writer was faster {ATTEMPTS} times in a row"))
}

/// Tells people on the node what was changed.
async fn tell(writer: &Writer, node: &NodeView, changes: &[Change]) {
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.clone()),
        uid: Some(node.uid.clone()).filter(|uid| !uid.is_empty()),
        ..ObjectReference::default()
    };
    for change in changes {
        tracing::info!(node = node.name, %change, "node changed");
        if let Some(event) = event_of(change) {
            writer.announce(&event, &about).await;
        }
    }
}

/// The Event for a change. A label that goes is no news.
fn event_of(change: &Change) -> Option<Event> {
    let (type_, reason, action) = match change {
        Change::Label {
            key,
            from,
            to: Some(_),
        } if from.is_some() || KeptLabel::of(key).is_some_and(|row| row.is_announced) => {
            (EventType::Normal, "LabelCorrected", format!("Correct {key}"))
        }
        Change::Label { .. } => return None,
        Change::TaintSet(taint) => (EventType::Normal, "TaintSet", format!("Set {taint}")),
        Change::TaintTaken(taint) => (EventType::Normal, "TaintTakenBack", format!("Take {taint}")),
        Change::AnnotationLost(_) => (EventType::Warning, "OwnerAnnotationLost", "Mend".to_owned()),
    };
    Some(Event {
        type_,
        reason: reason.to_owned(),
        // Longer ones are refused.
        note: Some(cut(&change.to_string(), 1000).into_owned()),
        action: cut(&action, 128).into_owned(),
        secondary: None,
    })
}

/// A wait that grows, and differs from that of the writer that collided with us.
fn jitter(attempt: u32) -> Duration {
    use std::hash::{BuildHasher as _, RandomState};
    let most = 20_u64 << attempt.min(6);
    Duration::from_millis(most / 2 + RandomState::new().hash_one(attempt) % most)
}
