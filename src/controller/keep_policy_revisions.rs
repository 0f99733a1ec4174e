//! Stores the last valid versions of policies: the leader writes a ControllerRevision for each and deletes the
//! oldest.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::Api;

use super::leader_loop::{Controller, PassResult};
use super::writer::{PlannedWrite, Write, Writer};
use crate::cluster::policy_revisions::{name_of, revision_of, surplus};
use crate::cluster::policy_store::{PolicyState, generation, text};
use crate::cluster::snapshot::Snapshot;

/// A controller that stores the revisions in Transom's own namespace.
pub struct PolicyRevisionController {
    pub writer: Writer,
    /// Transom's own namespace.
    pub namespace: String,
}

impl Controller for PolicyRevisionController {
    const EVERY: Duration = Duration::from_secs(60);

    async fn pass(&mut self, snapshot: &Snapshot) -> PassResult {
        let mut result = PassResult::with_pause(Duration::from_secs(1));
        let api: Api<ControllerRevision> = Api::namespaced(self.writer.client.clone(), &self.namespace);
        for PlannedWrite { task, write } in plan(snapshot, &self.namespace) {
            let written = self.writer.write(&api, &write).await;
            result.record(|| task, written);
        }
        result
    }
}

/// The missing revision of each policy, and the surplus ones.
fn plan(snapshot: &Snapshot, namespace: &str) -> Vec<PlannedWrite<ControllerRevision>> {
    let revisions = &snapshot.cache.policy_revisions;
    let mut writes = Vec::new();
    for (policy, outcome) in snapshot.outcomes.iter() {
        let Some(stored) = snapshot.cache.pod_policies.get(policy) else {
            continue;
        };
        let uid = text(stored, "/metadata/uid");
        let name = name_of(uid, generation(stored));
        let is_going = stored.pointer("/metadata/deletionTimestamp").is_some();
        if matches!(outcome, PolicyState::InForce(_)) && !is_going && !revisions.contains_key(&name) {
            writes.push(PlannedWrite {
                task: format!("store the ControllerRevision {namespace}/{name}"),
                write: Write::Create(revision_of(namespace, stored)),
            });
        }
        writes.extend(surplus(revisions, uid).map(|name| PlannedWrite {
            task: format!("delete the ControllerRevision {namespace}/{name}"),
            write: Write::Delete {
                name: name.to_owned(),
                uid: None,
                version: None,
            },
        }));
    }
    writes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use jiff::civil::date;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::cache::ClusterCache;
    use crate::cluster::policy_revisions::PolicyRevision;
    use crate::cluster::snapshot::SnapshotBuilder;
    use crate::model::cluster::facts::Facts;

    /// The planned tasks for a policy of this generation and mode, of which these generations are stored.
    fn tasks(generation: i64, mode: &str, stored: &[i64]) -> Vec<String> {
        let policy = |generation: i64, mode: &str| -> Value {
            json!({"metadata": {"name": "p", "uid": "u", "generation": generation}, "spec": {"mode": mode}})
        };
        let revision = |generation: &i64| {
            let revision = PolicyRevision::of(revision_of("own", &policy(*generation, "Warn"))).unwrap();
            (name_of("u", *generation), Arc::new(revision))
        };
        let cache = ClusterCache {
            pod_policies: [("p".to_owned(), Arc::new(policy(generation, mode)))].into(),
            policy_revisions: stored.iter().map(revision).collect(),
            ..ClusterCache::default()
        };
        let mut snapshots = SnapshotBuilder::new(Facts::new(36, date(2026, 1, 1)), []);
        let snapshot = snapshots.take(&Arc::new(cache), None, Timestamp::UNIX_EPOCH);
        let planned = plan(&snapshot, "own").into_iter();
        planned.map(|planned| planned.task).collect()
    }

    #[test]
    fn each_valid_version_is_stored_once_and_the_two_newest_are_kept() {
        let store = "store the ControllerRevision own/policy-u-3".to_owned();
        let delete = "delete the ControllerRevision own/policy-u-1".to_owned();
        assert_eq!(tasks(3, "Enforce", &[2]), [store]);
        assert!(tasks(3, "Enforce", &[2, 3]).is_empty());
        assert_eq!(tasks(3, "Enforce", &[1, 2, 3]), [delete]);
        assert!(
            tasks(3, "Enforced", &[2]).is_empty(),
            "this version cannot be used"
        );
    }
}
