//! The images of stored workloads: looked up before their next pod is created. Every replica does this for itself, which
//! also gives all replicas the same facts.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use crate::cluster::follow::{ActivityProblems, ObjectFollower, follow};
use crate::cluster::snapshot::{Snapshot, SnapshotReceiver};
use crate::cluster::stored::{ObjectHeadMeta, ObjectList};
use crate::engine::policy_set::PolicySet;
use crate::model::facts::NamespaceFacts;
use crate::model::object::{Object, ReviewStage};
use crate::model::pod_images::PodImages;
use crate::model::policy::{ImageEvidence, Policy};
use crate::model::workload::Kind;
use crate::registration::configurations::Configurations;
use crate::registry::service::ImageService;

/// The kinds that are followed: what people write. ReplicaSets and pods have the images of their owners.
const KINDS: [Kind; 5] = [
    Kind::Deployment,
    Kind::StatefulSet,
    Kind::DaemonSet,
    Kind::Job,
    Kind::CronJob,
];
/// How often all workloads are listed again: what is known must be renewed before it is dropped.
const RELIST: Duration = Duration::from_secs(60 * 60);
/// The first pause after a list of which look-ups were dropped; doubled up to [`RELIST`].
const RELIST_AFTER_DROPS: Duration = Duration::from_secs(60);
/// The pause between pages.
const REST: Duration = Duration::from_millis(100);
/// How long a list waits for room in the queue, in all.
const ROOM: Duration = Duration::from_secs(120);
/// The pause before what was dropped is queued again.
const RETRY: Duration = Duration::from_secs(1);

/// Queues look-ups for stored workloads.
pub struct ImageFeed {
    client: Client,
    latest: SnapshotReceiver,
    images: ImageService,
    /// The namespaces whose policy uses registries.
    wanted: watch::Sender<Arc<BTreeSet<String>>>,
    /// Limits memory to one page at a time, over all kinds.
    pages: Semaphore,
    /// The current problems, by activity: each is logged once.
    problems: Mutex<ActivityProblems>,
}

impl ImageFeed {
    /// A feed for the namespaces whose policies use registries.
    pub fn new(client: Client, latest: SnapshotReceiver, images: ImageService) -> Self {
        ImageFeed {
            client,
            latest,
            images,
            wanted: watch::channel(Arc::default()).0,
            pages: Semaphore::new(1),
            problems: Mutex::default(),
        }
    }

    /// Follows the workloads, forever.
    pub async fn run(self) {
        let lists: Vec<ObjectList> = (ObjectList::all(&[]).into_iter())
            .filter(|list| KINDS.contains(&list.kind))
            .collect();
        let following = async {
            // Nothing is watched before a policy needs it.
            let _ = self
                .wanted
                .subscribe()
                .wait_for(|wanted| !wanted.is_empty())
                .await;
            let all = lists.iter().map(|list| follow(&self.client, list, &self));
            join_all(all).await
        };
        tokio::join!(self.follow_policies(), following);
    }

    /// Keeps the set of namespaces whose policy uses registries.
    async fn follow_policies(&self) {
        let mut latest = self.latest.clone();
        let mut seen = None;
        loop {
            {
                let snapshot = latest.borrow_and_update();
                let now = WantedBy::of(&snapshot);
                if !seen.as_ref().is_some_and(|seen: &WantedBy| seen.is_same(&now)) {
                    let wanted = wanted(&snapshot);
                    self.wanted.send_if_modified(|current| {
                        let differs = **current != wanted;
                        if differs {
                            *current = Arc::new(wanted);
                        }
                        differs
                    });
                    seen = Some(now);
                }
            }
            if latest.changed().await.is_err() {
                return;
            }
        }
    }

    /// Lists a kind once. Returns whether everything is known or queued.
    async fn read(&self, stored: &ObjectList) -> Result<bool, String> {
        let mut pages = stored.pages(None);
        let (mut is_complete, mut room) = (true, ROOM);
        loop {
            let mut dropped = Vec::new();
            // The semaphore is never closed, so this cannot fail.
            let permit = self.pages.acquire().await;
            let wanted = Arc::clone(&self.wanted.borrow());
            let next = pages.next(&self.client, |json| {
                let images = images_of(stored.kind, json, &wanted);
                dropped.extend(images.filter(|images| !self.images.prepare(images)));
            });
            let more = next.await.map_err(|failure| failure.to_string())?;
            drop(permit);
            while !dropped.is_empty() && !room.is_zero() {
                sleep(RETRY).await;
                room = room.saturating_sub(RETRY);
                dropped.retain(|images| !self.images.prepare(images));
            }
            is_complete &= dropped.is_empty();
            if !more {
                return Ok(is_complete);
            }
            sleep(REST).await;
        }
    }

    fn problems(&self) -> MutexGuard<'_, ActivityProblems> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectFollower for ImageFeed {
    async fn read_for_ever(&self, stored: &ObjectList) -> Infallible {
        let listing = format!("cannot list {}", stored.path);
        let mut wanted = self.wanted.subscribe();
        let mut recoveries = self.images.recoveries();
        let mut after_drops = RELIST_AFTER_DROPS;
        loop {
            wanted.mark_unchanged();
            recoveries.mark_unchanged();
            let pause = match self.read(stored).await {
                Ok(is_complete) => {
                    self.works(&listing);
                    if is_complete {
                        after_drops = RELIST_AFTER_DROPS;
                        RELIST
                    } else {
                        let pause = after_drops;
                        after_drops = (after_drops * 2).min(RELIST);
                        pause
                    }
                }
                Err(why) => {
                    self.fails(&listing, &why);
                    RELIST_AFTER_DROPS
                }
            };
            tokio::select! {
                () = sleep(pause) => (),
                Ok(()) = wanted.changed() => (),
                Ok(()) = recoveries.changed() => (),
            }
        }
    }

    fn seen(&self, stored: &ObjectList, json: &str) {
        let wanted = Arc::clone(&self.wanted.borrow());
        if let Some(images) = images_of(stored.kind, json, &wanted) {
            self.images.prepare(&images);
        }
    }

    fn gone(&self, _: &ObjectList, _: &str) {}

    fn works(&self, activity: &str) {
        self.problems().works(activity);
    }

    fn fails(&self, activity: &str, why: &str) {
        if self.problems().fails(activity, why) {
            tracing::warn!("images of stored workloads: {activity}: {why}");
        }
    }
}

/// What [`wanted`] reads of a snapshot.
struct WantedBy {
    policies: Arc<PolicySet>,
    namespaces: Arc<HashMap<String, NamespaceFacts>>,
    registered: Option<Arc<Configurations>>,
}

impl WantedBy {
    fn of(snapshot: &Snapshot) -> Self {
        WantedBy {
            policies: Arc::clone(&snapshot.policies),
            namespaces: Arc::clone(&snapshot.facts.namespaces),
            registered: snapshot.registered.clone(),
        }
    }

    /// Whether both share the same parts: a changed part is always replaced.
    fn is_same(&self, other: &WantedBy) -> bool {
        let registered = match (&self.registered, &other.registered) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        registered
            && Arc::ptr_eq(&self.policies, &other.policies)
            && Arc::ptr_eq(&self.namespaces, &other.namespaces)
    }
}

/// The namespaces whose policy uses registries, and for which the webhooks are called.
fn wanted(snapshot: &Snapshot) -> BTreeSet<String> {
    let uses = |policy: &Policy| policy.image_evidence == ImageEvidence::Registry;
    if !snapshot
        .policies
        .stored()
        .iter()
        .any(|stored| uses(&stored.policy))
    {
        return BTreeSet::new();
    }
    let namespaces = snapshot.facts.namespaces.iter().filter(|(name, facts)| {
        uses(&snapshot.policies.in_namespace(name, &snapshot.facts))
            && snapshot.is_reviewed_in(name, &facts.labels)
    });
    namespaces.map(|(name, _)| name.clone()).collect()
}

/// The images of a stored object, if its namespace is wanted. An object that cannot be read has none.
fn images_of(kind: Kind, json: &str, wanted: &BTreeSet<String>) -> Option<PodImages> {
    // No namespace has the empty name, which an object has that does not parse.
    let namespace = wanted.get(&*ObjectHeadMeta::of(json).namespace)?;
    let object = Object::parse(kind, json, ReviewStage::Stored).ok()?;
    Some(PodImages::of(object.pod()?, namespace))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::json;

    use super::*;
    use crate::engine::policy_set::StoredPolicy;
    use crate::model::facts::Facts;
    use crate::model::label_selector::LabelSelector;

    fn snapshot(evidence: ImageEvidence) -> Snapshot {
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 6, 1));
        let namespace = |name: &str, labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            let facts = NamespaceFacts {
                labels: labels.collect(),
                ..NamespaceFacts::default()
            };
            (name.to_owned(), facts)
        };
        facts.namespaces = Arc::new(
            [
                namespace("shop", &[("team", "shop")]),
                namespace("out", &[("team", "shop"), ("transom.dev/ignore", "true")]),
                namespace("billing", &[]),
                namespace("kube-system", &[("team", "shop")]),
            ]
            .into(),
        );
        let mut stored = StoredPolicy::for_all(Policy {
            image_evidence: evidence,
            ..Policy::cluster_default()
        });
        stored.namespace_selector = LabelSelector {
            match_labels: [("team".to_owned(), "shop".to_owned())].into(),
            ..LabelSelector::default()
        };
        Snapshot::of_files(facts, PolicySet::new(vec![stored], Policy::cluster_default()))
    }

    #[test]
    fn only_namespaces_whose_policy_uses_registries_are_wanted() {
        assert_eq!(wanted(&snapshot(ImageEvidence::Names)), BTreeSet::new());
        let registry = wanted(&snapshot(ImageEvidence::Registry));
        assert_eq!(registry, BTreeSet::from(["shop".to_owned()]));
    }

    #[test]
    fn the_images_and_pull_secrets_of_a_workload_are_read_from_its_template() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"template": {"spec": {
                "imagePullSecrets": [{"name": "pull"}],
                "initContainers": [{"name": "init", "image": "registry.corp/init:1"}],
                "containers": [{"name": "web", "image": "registry.corp/web:1"}, {"name": "none"}],
            }}},
        });
        let read = |json: &str, namespace: &str| {
            images_of(Kind::Deployment, json, &BTreeSet::from([namespace.to_owned()]))
        };
        let images = read(&deployment.to_string(), "shop").unwrap();
        assert_eq!(images.references, ["registry.corp/init:1", "registry.corp/web:1"]);
        assert_eq!(images.pull_secrets, ["pull"]);
        assert_eq!(read(&deployment.to_string(), "billing"), None);
        assert_eq!(read("{\"metadata\": 1}", "shop"), None);
        assert_eq!(
            read("{\"metadata\": {\"namespace\": \"shop\"}, \"spec\": 1}", "shop"),
            None
        );
    }
}
