//! Stores the pool history: the leader writes it when it has changed.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::cluster::errors::words;
use crate::cluster::lease::Leadership;
use crate::cluster::pool_history::{NODE_POOLS_CONFIG_MAP, PoolHistory, SEEN_KEY};
use crate::cluster::snapshot::{Snapshot, SnapshotReceiver};
use crate::process::metrics::Reconcile;

/// The least time between two writes; a pool that appears and disappears in between may be missed.
const PAUSE: Duration = Duration::from_secs(10);

/// Stores the pool history of snapshots while this replica leads. Returns when the snapshot channel ends.
pub async fn run(
    client: Client,
    namespace: String,
    mut latest: SnapshotReceiver,
    leadership: Leadership,
    reconcile: Reconcile,
) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    // Also runs periodically, so that a failed write is retried.
    let mut hourly = tokio::time::interval(Duration::from_secs(3_600));
    loop {
        tokio::select! {
            changed = latest.changed() => if changed.is_err() { return },
            _ = hourly.tick() => {}
        }
        let snapshot = Arc::clone(&latest.borrow_and_update());
        let Snapshot {
            view, pools, facts, ..
        } = &*snapshot;
        let known = view.seen.get(NODE_POOLS_CONFIG_MAP);
        let memory = pools.after(&view.nodes, facts.today);
        let text = memory.to_json();
        let nothing_yet = known.is_none() && memory == PoolHistory::default();
        if !leadership.holds() || nothing_yet || known.is_some_and(|known| known.pools == text) {
            continue;
        }
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(NODE_POOLS_CONFIG_MAP.to_owned()),
                namespace: Some(namespace.clone()),
                resource_version: known.map(|known| known.resource_version.clone()),
                labels: Some([("app.kubernetes.io/managed-by".to_owned(), "transom".to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([(SEEN_KEY.to_owned(), text)].into()),
            ..ConfigMap::default()
        };
        let began = Instant::now();
        let written = match known {
            Some(_) => {
                api.replace(NODE_POOLS_CONFIG_MAP, &PostParams::default(), &map)
                    .await
            }
            None => api.create(&PostParams::default(), &map).await,
        };
        reconcile.took(began.elapsed());
        match written {
            Ok(_) => tracing::debug!("saved the history of Windows pools"),
            // Another replica was faster; the next snapshot shows what it wrote.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => {
                reconcile.failed();
                tracing::warn!(
                    "cannot save the history of Windows pools to the ConfigMap {namespace}/{NODE_POOLS_CONFIG_MAP}: {}",
                    words(&error)
                );
            }
        }
        drop(snapshot);
        tokio::time::sleep(PAUSE).await;
    }
}
