//! Stores the pool history: the leader writes it when it has changed.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};

use super::leader_loop::{PassResult, SnapshotController};
use crate::cluster::errors::answered;
use crate::cluster::lease::Leadership;
use crate::cluster::pool_history::{NODE_POOLS_CONFIG_MAP, PoolHistory};
use crate::cluster::snapshot::Snapshot;

/// The least time between two writes; a pool that appears and disappears in between may be missed.
const PAUSE: Duration = Duration::from_secs(10);

/// Stores the pool history of snapshots.
#[derive(Debug)]
pub struct PoolHistoryController {
    api: Api<ConfigMap>,
    namespace: String,
}

impl PoolHistoryController {
    /// A controller that writes to Transom's own namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        PoolHistoryController {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
        }
    }
}

impl SnapshotController for PoolHistoryController {
    const EVERY: Duration = Duration::from_secs(3_600);

    /// Writes the history if it has changed.
    async fn pass(&mut self, snapshot: &Snapshot, _: &Leadership) -> PassResult {
        let known = snapshot.view.seen.get(NODE_POOLS_CONFIG_MAP);
        let facts = &snapshot.facts;
        let labels = facts.policy_pool_labels();
        let history = (snapshot.pools).after(&snapshot.view.nodes, &labels, facts.today);
        let data = history.to_data();
        let nothing_yet = known.is_none() && history == PoolHistory::default();
        if nothing_yet || known.is_some_and(|known| known.pools == data) {
            return PassResult::default();
        }
        let namespace = &self.namespace;
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(NODE_POOLS_CONFIG_MAP.to_owned()),
                namespace: Some(namespace.clone()),
                resource_version: known.map(|known| known.resource_version.clone()),
                labels: Some([("app.kubernetes.io/managed-by".to_owned(), "transom".to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        };
        let params = PostParams::default();
        let written = match known {
            Some(_) => answered(self.api.replace(NODE_POOLS_CONFIG_MAP, &params, &map)).await,
            None => answered(self.api.create(&params, &map)).await,
        };
        let task = || {
            format!("save the history of Windows pools to the ConfigMap {namespace}/{NODE_POOLS_CONFIG_MAP}")
        };
        let mut result = PassResult::with_pause(PAUSE);
        if result.record(task, written).is_some() {
            tracing::debug!("saved the history of Windows pools");
        }
        result
    }
}
