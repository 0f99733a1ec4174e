//! Stores the last valid versions of policies: the leader writes a ControllerRevision for each and deletes the
//! oldest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

use crate::cluster::errors::words;
use crate::cluster::lease::Leadership;
use crate::cluster::policy_store::{PolicyState, generation, text};
use crate::cluster::revisions::{name_of, revision_of, surplus};
use crate::cluster::snapshot::{Snapshot, SnapshotReceiver};
use crate::process::metrics::Reconcile;

/// The least time between two passes.
const PAUSE: Duration = Duration::from_secs(1);

/// Stores the revisions that snapshots contain while this replica leads. Returns when the snapshot channel ends.
pub async fn run(
    client: Client,
    namespace: String,
    mut latest: SnapshotReceiver,
    leadership: Leadership,
    reconcile: Reconcile,
) {
    let api: Api<ControllerRevision> = Api::namespaced(client, &namespace);
    // Also runs periodically, so that a failed write is retried.
    let mut again = tokio::time::interval(Duration::from_secs(60));
    let mut complaints: BTreeMap<String, String> = BTreeMap::new();
    loop {
        tokio::select! {
            changed = latest.changed() => if changed.is_err() { return },
            _ = again.tick() => {}
        }
        let snapshot = Arc::clone(&latest.borrow_and_update());
        if leadership.holds() {
            let began = Instant::now();
            let refused = pass(&api, &namespace, &snapshot, &leadership).await;
            reconcile.took(began.elapsed());
            for (revision, why) in &refused {
                reconcile.failed();
                if complaints.get(revision) != Some(why) {
                    tracing::warn!("cannot store the ControllerRevision {namespace}/{revision}: {why}");
                }
            }
            complaints = refused;
        }
        drop(snapshot);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Writes missing revisions and deletes surplus ones. Returns the errors of the API server by name.
async fn pass(
    api: &Api<ControllerRevision>,
    namespace: &str,
    snapshot: &Snapshot,
    leadership: &Leadership,
) -> BTreeMap<String, String> {
    let mut refused = BTreeMap::new();
    let mut note = |name: &str, written: Result<(), kube::Error>| match written {
        Ok(()) => {}
        // Another replica was faster, or the object is already gone; the next snapshot shows which.
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {}
        Err(error) => _ = refused.insert(name.to_owned(), words(&error)),
    };
    let revisions = &snapshot.view.revisions;
    for (policy, outcome) in snapshot.outcomes.iter() {
        let Some(stored) = snapshot.view.pod_policies.get(policy) else {
            continue;
        };
        if !leadership.holds() {
            break;
        }
        let uid = text(stored, "/metadata/uid");
        let name = name_of(uid, generation(stored));
        let is_going = stored.pointer("/metadata/deletionTimestamp").is_some();
        if matches!(outcome, PolicyState::InForce(_)) && !is_going && !revisions.contains_key(&name) {
            let revision = revision_of(namespace, stored);
            let written = api.create(&PostParams::default(), &revision).await;
            note(&name, written.map(drop));
        }
        for name in surplus(revisions, uid) {
            let deleted = api.delete(name, &DeleteParams::default()).await;
            note(name, deleted.map(drop));
        }
    }
    refused
}
