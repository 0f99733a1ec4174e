//! Stores the last valid versions of policies: the leader writes a ControllerRevision for each and deletes the
//! oldest.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};

use super::leader_loop::{PassResult, SnapshotController};
use crate::cluster::errors::answered;
use crate::cluster::lease::Leadership;
use crate::cluster::policy_store::{PolicyState, generation, text};
use crate::cluster::revisions::{name_of, revision_of, surplus};
use crate::cluster::snapshot::Snapshot;

/// The least time between two passes.
const PAUSE: Duration = Duration::from_secs(1);

/// Stores the revisions that snapshots contain.
#[derive(Debug)]
pub struct RevisionController {
    api: Api<ControllerRevision>,
    namespace: String,
}

impl RevisionController {
    /// A controller that writes to Transom's own namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        RevisionController {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
        }
    }
}

impl SnapshotController for RevisionController {
    const EVERY: Duration = Duration::from_secs(60);

    /// Writes missing revisions and deletes surplus ones.
    async fn pass(&mut self, snapshot: &Snapshot, leadership: &Leadership) -> PassResult {
        let mut result = PassResult::with_pause(PAUSE);
        let (api, namespace) = (&self.api, &self.namespace);
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
                let created = answered(api.create(&PostParams::default(), &revision)).await;
                result.record(
                    || format!("store the ControllerRevision {namespace}/{name}"),
                    created,
                );
            }
            for name in surplus(revisions, uid) {
                let deleted = answered(api.delete(name, &DeleteParams::default())).await;
                result.record(
                    || format!("delete the ControllerRevision {namespace}/{name}"),
                    deleted,
                );
            }
        }
        result
    }
}
