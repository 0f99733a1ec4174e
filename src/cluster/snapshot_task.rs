//! Builds a snapshot from each state of the cache, and publishes it. Nothing else builds snapshots while a server runs.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::facts;
use super::snapshot::{Snapshot, SnapshotBuilder, SnapshotReceiver, StatedCluster};
use super::watch_staleness::WatchStaleness;
use super::watches::{self, CacheReceiver};
use crate::model::knowledge::Knowledge;
use crate::process::day_of;
use crate::process::readiness::Readiness;
use crate::process::tasks::Tasks;
use crate::registration::configurations::Configurations;

/// The readiness check that fails until reviews are evaluated against the state of the cluster.
const FACTS: &str = "facts";
/// The readiness check that fails while this replica cannot use a policy that another replica uses.
const POLICIES: &str = "policies";

/// What is needed to build a snapshot from each state of the cache.
#[derive(Debug)]
pub struct SnapshotTask {
    pub snapshots: SnapshotBuilder,
    /// The known faults and dates of support.
    pub knowledge: watch::Receiver<Arc<Knowledge>>,
    /// What administrators state about the cluster.
    pub stated: watch::Receiver<StatedCluster>,
    /// The content of the webhook configurations, once known.
    pub registered: watch::Receiver<Option<Arc<Configurations>>>,
    /// Held until the first snapshot, and while this replica lacks a policy that another one has.
    pub readiness: Readiness,
    /// Records the answers of the watches.
    pub staleness: WatchStaleness,
}

impl SnapshotTask {
    /// Starts the watches, and follows their cache.
    pub fn start(self, tasks: &mut Tasks, client: &Client, namespace: &str) -> SnapshotReceiver {
        let (publish, caches) = watch::channel(None);
        let (client, namespace, readiness) = (client.clone(), namespace.to_owned(), self.readiness.clone());
        let staleness = self.staleness.clone();
        tasks.spawn_reporting("watches", async move {
            watches::run(client, &namespace, readiness, &staleness, publish).await
        });
        // Until the first cache, reviews are evaluated with the built-in policy, which changes and denies
        // nothing.
        self.readiness.hold(FACTS, "not known yet");
        let (show, latest) = watch::channel(Arc::new(self.snapshots.unknown()));
        tasks.spawn("snapshots", self.run(caches, show));
        latest
    }

    /// Builds a snapshot when the cache or the webhook configurations change, when the date changes, and when
    /// a node becomes settled.
    async fn run(mut self, mut caches: CacheReceiver, show: watch::Sender<Arc<Snapshot>>) {
        /// How often the clock is checked.
        const LOOK: Duration = Duration::from_secs(30);
        let mut starts = true;
        loop {
            let cache = caches.borrow_and_update().clone();
            let registered = self.registered.borrow_and_update().clone();
            let knowledge = Arc::clone(&self.knowledge.borrow_and_update());
            let stated = self.stated.borrow_and_update().clone();
            let now = Timestamp::now();
            let mut change_at = None;
            if let Some(cache) = cache {
                let began = Instant::now();
                self.snapshots.set_knowledge(knowledge);
                self.snapshots.set_stated(stated);
                let snapshot = Arc::new(self.snapshots.take(&cache, registered, now));
                change_at = facts::change_at(&cache, now);
                // Only at startup: a replica that is ready stays ready.
                starts = starts && self.lacks_a_policy(&snapshot);
                show.send_replace(snapshot);
                self.readiness.release(FACTS);
                sleep(rest_after(began.elapsed())).await;
            }
            loop {
                tokio::select! {
                    changed = caches.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                    // If the sending task has ended, its last value remains.
                    Ok(()) = self.registered.changed() => break,
                    Ok(()) = self.knowledge.changed() => break,
                    Ok(()) = self.stated.changed() => break,
                    () = sleep(LOOK) => {
                        let then = Timestamp::now();
                        if day_of(then) != day_of(now) || change_at.is_some_and(|at| at <= then) { break }
                    },
                }
            }
        }
    }
}

/// The pause after building a snapshot, based on the time that took: building uses at most a fifth of a core,
/// however often the cluster changes. A pod in a namespace that was just created waits for the next snapshot.
fn rest_after(took: Duration) -> Duration {
    /// The maximum age of a snapshot, in a cluster of any size.
    const MOST: Duration = Duration::from_secs(2);
    took.saturating_mul(4).min(MOST)
}

impl SnapshotTask {
    /// Whether this replica would enforce less than another one. It is then not ready, so that a rollout
    /// stops and the other replica stays. This ends when the other replica loses the lease: the next leader
    /// writes its own status.
    fn lacks_a_policy(&self, snapshot: &Snapshot) -> bool {
        let lacking = snapshot.lacking();
        if lacking.is_empty() {
            self.readiness.release(POLICIES);
            return false;
        }
        let names = lacking.join(", ");
        let why = format!(
            "another replica uses a version of WindowsPodPolicy {names} that this one does not have and cannot read; \
             correct what is stored, or return to the version of Transom that reads it (kubectl describe wpp)"
        );
        self.readiness.hold(POLICIES, why);
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::cache::ClusterCache;
    use crate::model::cluster::facts::Facts;

    /// A cache with a policy that cannot be used, and with this status.
    fn with_a_broken_policy(generation: i64, status: &serde_json::Value) -> Arc<ClusterCache> {
        let policy = json!({
            "metadata": {"name": "p", "uid": "u", "generation": generation}, "spec": {"validation": "Enforce"}, "status": status,
        });
        Arc::new(ClusterCache {
            kubernetes: 36,
            pod_policies: [("p".to_owned(), Arc::new(policy))].into(),
            ..ClusterCache::default()
        })
    }

    #[tokio::test]
    async fn a_replica_that_would_enforce_less_than_another_is_not_ready_at_its_start() {
        let accepted = |status: &str, reason: &str| json!({"conditions": [{"type": "Accepted", "status": status, "reason": reason}]});
        let readiness = Readiness::default();
        let (_publish, registered) = watch::channel(None);
        let (_known, knowledge) = watch::channel(Knowledge::built_in());
        let (_stated, stated) = watch::channel(StatedCluster::default());
        let task = SnapshotTask {
            snapshots: SnapshotBuilder::new(Facts::new(Facts::KUBERNETES, day_of(Timestamp::now())), []),
            knowledge,
            stated,
            registered,
            readiness: readiness.clone(),
            staleness: WatchStaleness::default(),
        };
        let (publish, caches) = watch::channel(None);
        let (show, mut latest) = watch::channel(Arc::new(task.snapshots.unknown()));
        let running = tokio::spawn(task.run(caches, show));
        let mut shown = async |generation: i64, status: serde_json::Value| {
            publish.send_replace(Some(with_a_broken_policy(generation, &status)));
            let is_it = |snapshot: &Arc<Snapshot>| {
                let policy = snapshot.cache.pod_policies.get("p");
                policy.is_some_and(|policy| policy["metadata"]["generation"] == generation)
            };
            latest.wait_for(is_it).await.unwrap();
            // The snapshot is published before readiness changes.
            tokio::task::yield_now().await;
            readiness.reasons()
        };
        let reasons = shown(1, accepted("True", "Accepted")).await;
        assert!(
            reasons.len() == 1
                && reasons[0].starts_with("policies: another replica uses a version of WindowsPodPolicy p"),
            "{reasons:?}"
        );
        assert_eq!(shown(2, accepted("False", "UsingLastValid")).await.len(), 1);
        // The other replica is gone, and the next leader has updated the status, as in a cluster that starts with
        // a broken policy.
        assert!(shown(3, accepted("False", "Invalid")).await.is_empty());
        // A replica that is ready stays ready.
        assert!(shown(4, accepted("True", "Accepted")).await.is_empty());
        running.abort();
    }

    #[test]
    fn snapshots_take_a_fifth_of_a_core_at_most_and_are_never_late_for_long() {
        for (took, rest) in [(0, 0), (1, 4), (70, 280), (400, 1_600), (5_000, 2_000)] {
            assert_eq!(
                rest_after(Duration::from_millis(took)),
                Duration::from_millis(rest)
            );
        }
    }
}
