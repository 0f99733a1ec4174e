//! Carrying out a plan: one merge patch that names its resourceVersion; on a conflict the node is read and planned anew.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::Patch;

use super::plan::{NodeChange, NodePlan};
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::node::{NodeView, WatchedNode};
use crate::controller::node_policies::writer::{Writer, patching};

/// How often a node is planned anew because another writer was faster.
const ATTEMPTS: u32 = 6;

/// What became of one node.
#[derive(Debug)]
pub enum ApplyResult {
    /// It is as it is to be, and was not written.
    Stands(Arc<NodeView>),
    /// It was written, and is so now; and what of it was changed.
    Wrote(Arc<NodeView>, Vec<NodeChange>),
    /// It is gone.
    Gone,
    /// It is not as it is to be, and why.
    Failed(String),
}

/// Makes a node as it is to be. `decide` is asked anew for every version of it.
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
        // Without a version the write would be unconditional.
        if !node.resource_version.text().is_empty() {
            let patch = Patch::Merge(&patch);
            match writer.write(nodes.patch(&node.name, &patching(), &patch)).await {
                Ok(written) => return ApplyResult::Wrote(Arc::new(written.into()), plan.changes),
                Err(ApiError::NotFound) => return ApplyResult::Gone,
                Err(ApiError::Conflict) => tokio::time::sleep(jitter(attempt)).await,
                Err(error) => return ApplyResult::Failed(error.to_string()),
            }
        }
        match answered(nodes.get(&node.name)).await {
            Ok(assumed) => node = Arc::new(assumed.into()),
            Err(ApiError::NotFound) => return ApplyResult::Gone,
            Err(ApiError::Conflict) => {}
            Err(error) => return ApplyResult::Failed(error.to_string()),
        }
    }
    ApplyResult::Failed(format!("another writer was faster {ATTEMPTS} times in a row"))
}

/// A wait that grows, and differs from that of the writer that collided with us.
fn jitter(attempt: u32) -> Duration {
    use std::hash::{BuildHasher as _, RandomState};
    let most = 20_u64 << attempt.min(6);
    Duration::from_millis(most / 2 + RandomState::new().hash_one(attempt) % most)
}
