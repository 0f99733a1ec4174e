//! Applies a plan: one merge patch with a resourceVersion; after a conflict the node is read and planned again.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::Patch;

use super::plan::{NodeChange, NodePlan};
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::node::{NodeView, WatchedNode};
use crate::controller::writer::{Writer, patching};
use crate::model::doubling_pause::DoublingPause;

/// How many attempts are made if other writers keep changing the node.
const ATTEMPTS: u32 = 6;

/// The result for one node.
#[derive(Debug)]
pub enum ApplyResult {
    /// It matches the desired state and was not written.
    Stands(Arc<NodeView>),
    /// It was written: the new version, and the changes.
    Wrote(Arc<NodeView>, Vec<NodeChange>),
    Gone,
    /// It could not be brought to the desired state, and why.
    Failed(ApiError),
}

/// Brings a node to its desired state. `decide` is called again for every version of the node.
pub async fn apply(
    writer: &Writer,
    node: Arc<NodeView>,
    decide: &(dyn Fn(&NodeView) -> NodePlan + Send + Sync),
) -> ApplyResult {
    let nodes: Api<WatchedNode> = Api::all(writer.client.clone());
    let mut node = node;
    for attempt in 0..ATTEMPTS {
        let plan = decide(&node);
        let Some(patch) = plan.patch(&node) else {
            return ApplyResult::Stands(node);
        };
        // Without a resourceVersion the write would be unconditional.
        if !node.resource_version.is_empty() {
            let patch = Patch::Merge(&patch);
            match writer.send(nodes.patch(&node.name, &patching(), &patch)).await {
                Ok(written) => return ApplyResult::Wrote(Arc::new(written.into()), plan.changes),
                Err(ApiError::NotFound) => return ApplyResult::Gone,
                Err(ApiError::Conflict) => tokio::time::sleep(jitter(attempt)).await,
                Err(error) => return ApplyResult::Failed(error),
            }
        }
        match answered(nodes.get(&node.name)).await {
            Ok(assumed) => node = Arc::new(assumed.into()),
            Err(ApiError::NotFound) => return ApplyResult::Gone,
            Err(ApiError::Conflict) => {}
            Err(error) => return ApplyResult::Failed(error),
        }
    }
    let why = format!("another client changed it first {ATTEMPTS} times in a row");
    ApplyResult::Failed(ApiError::Other(why))
}

/// The pauses between attempts.
const PAUSE: DoublingPause = DoublingPause {
    first: Duration::from_millis(20),
    longest: Duration::from_millis(20 << 6),
};

/// A random, growing delay, so that two colliding writers do not retry in step.
fn jitter(attempt: u32) -> Duration {
    use std::hash::{BuildHasher as _, RandomState};
    let most = PAUSE.after(attempt);
    // Between half of it and one and a half times.
    let random = u32::try_from(RandomState::new().hash_one(attempt) % 1_024).unwrap_or_default();
    most / 2 + most * random / 1_024
}
