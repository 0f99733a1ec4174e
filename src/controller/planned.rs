//! A controller that is one pure function: which writes a snapshot requires.

use std::fmt::Debug;
use std::time::Duration;

use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::leader_loop::{Controller, PassResult};
use super::writer::{Write, Writer};
use crate::cluster::snapshot::Snapshot;

/// A write, and what it does, as in `delete the ControllerRevision transom-system/policy-1`.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedWrite<K> {
    /// What it does.
    pub task: String,
    /// The write.
    pub write: Write<K>,
}

/// Writes objects in Transom's own namespace as a pure function plans them.
pub struct PlannedController<K> {
    /// Plans the writes for a snapshot, in this namespace.
    pub plan: fn(&Snapshot, &str) -> Vec<PlannedWrite<K>>,
    /// The least time between two passes that write.
    pub pause: Duration,
    /// Transom's own namespace.
    pub namespace: String,
    /// Makes the writes.
    pub writer: Writer,
}

impl<K> Controller for PlannedController<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync,
{
    const EVERY: Duration = Duration::from_secs(60);

    async fn pass(&mut self, snapshot: &Snapshot) -> PassResult {
        let planned = (self.plan)(snapshot, &self.namespace);
        if planned.is_empty() {
            return PassResult::default();
        }
        let mut result = PassResult::with_pause(self.pause);
        let api: Api<K> = Api::namespaced(self.writer.client.clone(), &self.namespace);
        for PlannedWrite { task, write } in planned {
            let written = self.writer.write(&api, &write).await;
            result.record(|| task, written);
        }
        result
    }
}
