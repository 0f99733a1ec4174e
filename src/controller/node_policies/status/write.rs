//! Writes the status of a node policy if it changed, and the Events for the change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, Resource as _};
use serde_json::json;
use tokio::time::Instant;

use super::{PolicyFacts, news_of, status_of};
use crate::api::WindowsNodePolicy;
use crate::cluster::cache::is_older;
use crate::cluster::errors::ApiError;
use crate::controller::node_policies::node_state::NodesOfPolicy;
use crate::controller::node_policies::policies::NodePolicy;
use crate::controller::node_policies::writer::{Writer, patching};
use crate::process::metrics::Reconcile;

/// Writes the statuses of node policies, each at most once per interval.
pub struct Statuses {
    writer: Writer,
    every: Duration,
    reconcile: Reconcile,
    /// Policies as of their last status write, and the time of that write.
    written: HashMap<String, (Instant, Option<Arc<WindowsNodePolicy>>)>,
}

impl Statuses {
    /// A writer without any state.
    pub fn new(writer: Writer, every: Duration, reconcile: Reconcile) -> Self {
        Statuses {
            writer,
            every,
            reconcile,
            written: HashMap::new(),
        }
    }

    /// Writes the status of a policy if it changed; returns when to try again.
    pub async fn write(
        &mut self,
        policy: &NodePolicy,
        nodes: &NodesOfPolicy,
        known: &PolicyFacts,
    ) -> Option<Instant> {
        let last = self.written.get(&policy.name).map(|(at, _)| *at);
        let stored = self.as_stored(policy);
        let status = status_of(policy, nodes, known, stored.status.as_ref(), Timestamp::now());
        if stored.status.as_ref() == Some(&status) {
            return None;
        }
        let now = Instant::now();
        let earliest = last.map_or(now, |last| last + self.every);
        if now < earliest {
            return Some(earliest);
        }
        let patch = json!({"metadata": {"resourceVersion": version(&stored)}, "status": status});
        let policies: Api<WindowsNodePolicy> = Api::all(self.writer.client.clone());
        let (params, patch) = (patching(), Patch::Merge(patch));
        let request = policies.patch_status(&policy.name, &params, &patch);
        let (ours, again) = match self.writer.write(request).await {
            Ok(written) => {
                let mut about = written.object_ref(&());
                // A resourceVersion would keep Events about the same change apart.
                about.resource_version = None;
                for event in news_of(policy, nodes, known, stored.status.as_ref()) {
                    self.writer.announce(&event, &about).await;
                }
                (Some(Arc::new(written)), None)
            }
            Err(ApiError::NotFound) => return None,
            Err(error) => {
                self.reconcile.failed();
                tracing::warn!(policy = policy.name, error = %error, "status not written");
                (None, Some(now + self.every))
            }
        };
        self.written.insert(policy.name.clone(), (now, ours));
        again
    }

    /// The stored policy: as Transom last wrote it, if the watch does not show that version yet.
    fn as_stored(&self, policy: &NodePolicy) -> Arc<WindowsNodePolicy> {
        let ours = self.written.get(&policy.name).and_then(|(_, ours)| ours.as_ref());
        let newer = ours.filter(|ours| is_older(version(&policy.stored), version(ours)));
        Arc::clone(newer.unwrap_or(&policy.stored))
    }
}

fn version(policy: &WindowsNodePolicy) -> &str {
    policy.metadata.resource_version.as_deref().unwrap_or_default()
}
