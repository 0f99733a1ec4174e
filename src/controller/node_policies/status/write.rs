//! Writes the status of a node policy if it changed, and the Events for the change.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::{Api, Resource as _};
use serde_json::json;
use tokio::time::Instant;

use super::{PolicyFacts, news_of, status_of};
use crate::api::WindowsNodePolicy;
use crate::cluster::errors::ApiError;
use crate::cluster::stored_node_policies::NodePolicy;
use crate::controller::node_policies::node_state::NodesOfPolicy;
use crate::controller::writer::{Write, Writer};

/// Writes the statuses of node policies, each at most once per interval.
pub struct Statuses {
    writer: Writer,
    every: Duration,
    /// The earliest time of the next write, by policy.
    next: HashMap<String, Instant>,
}

impl Statuses {
    /// A writer without any state.
    pub fn new(writer: Writer, every: Duration) -> Self {
        Statuses {
            writer,
            every,
            next: HashMap::new(),
        }
    }

    /// Writes the status of a policy if it changed; returns when to try again if that is not allowed yet.
    ///
    /// # Errors
    /// Why it could not be written.
    pub async fn write(
        &mut self,
        policy: &NodePolicy,
        nodes: &NodesOfPolicy,
        known: &PolicyFacts,
    ) -> Result<Option<Instant>, ApiError> {
        let now = Instant::now();
        let name = &policy.name;
        let before = policy.stored.status.as_ref();
        let status = status_of(policy, nodes, known, before, Timestamp::now());
        if before == Some(&status) {
            return Ok(None);
        }
        if let Some(next) = self.next.get(name).filter(|next| now < **next) {
            return Ok(Some(*next));
        }
        self.next.insert(name.clone(), now + self.every);
        // If the cache does not show the last write yet, this one conflicts, and the watch ends the difference.
        let version = policy.stored.metadata.resource_version.as_deref();
        let write = Write::PatchStatus {
            name: name.clone(),
            patch: json!({"metadata": {"resourceVersion": version}, "status": status}),
        };
        let policies: Api<WindowsNodePolicy> = Api::all(self.writer.client.clone());
        if let Some(written) = self.writer.write(&policies, &write).await? {
            let mut about = written.object_ref(&());
            // A resourceVersion would keep Events about the same change apart.
            about.resource_version = None;
            for event in news_of(policy, nodes, known, before) {
                self.writer.announce(&event, &about).await;
            }
        }
        Ok(None)
    }
}
