//! The images of stored workloads: looked up before their next pod is created. Every replica does this for itself, which
//! also gives all replicas the same facts.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster::errors::ApiError;
use crate::cluster::snapshot::{Snapshot, SnapshotReceiver};
use crate::cluster::stored::{KindEvent, ObjectHeadMeta, ObjectList, StoredObjects};
use crate::cluster::watch_problems::WatchProblems;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::NamespaceFacts;
use crate::model::cluster::policy::{ImageEvidence, Policy};
use crate::model::doubling_pause::DoublingPause;
use crate::model::objects::object::{Object, ReviewStage};
use crate::model::objects::pod_images::PodImages;
use crate::model::objects::workload::Kind;
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
/// The pauses after lists of which look-ups were dropped.
const RELIST_AFTER_DROPS: DoublingPause = DoublingPause {
    first: Duration::from_secs(60),
    longest: RELIST,
};
/// How long a list waits for room in the queue, in all: not as long as the API server keeps the version of a list.
const ROOM: Duration = Duration::from_secs(120);
/// The pause before what was dropped is queued again.
const RETRY: Duration = Duration::from_secs(1);

/// Queues look-ups for stored workloads.
pub struct ImageFeed {
    latest: SnapshotReceiver,
    images: ImageService,
    recoveries: watch::Receiver<u64>,
    objects: StoredObjects,
    /// The namespaces whose policy uses registries.
    wanted: BTreeSet<String>,
    wanted_by: Option<WantedBy>,
    /// When everything is listed again; `None` while it is listed.
    relist: Option<Instant>,
    /// How many lists in a row dropped look-ups.
    drops: u32,
    has_dropped: bool,
    /// How long this list may still wait for room in the queue.
    room: Duration,
    problems: WatchProblems,
}

impl ImageFeed {
    /// A feed for the namespaces whose policies use registries.
    pub fn new(client: &Client, latest: SnapshotReceiver, images: ImageService) -> Self {
        let mut lists = ObjectList::all(&[]);
        lists.retain(|list| KINDS.contains(&list.kind));
        ImageFeed {
            recoveries: images.recoveries(),
            objects: StoredObjects::new(client, lists),
            latest,
            images,
            wanted: BTreeSet::new(),
            wanted_by: None,
            relist: None,
            drops: 0,
            has_dropped: false,
            room: ROOM,
            problems: WatchProblems::default(),
        }
    }

    /// Follows the workloads, until the snapshot channel ends.
    pub async fn run(mut self) {
        self.update_wanted();
        loop {
            // Nothing is watched before a policy needs it.
            let is_used = !self.wanted.is_empty();
            let due = self.relist;
            tokio::select! {
                event = self.objects.next(), if is_used => self.take(event).await,
                changed = self.latest.changed() => match changed {
                    Ok(()) if self.update_wanted() => self.list_again(),
                    Ok(()) => {}
                    Err(_) => return,
                },
                Ok(()) = self.recoveries.changed() => self.list_again(),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.list_again(),
            }
        }
    }

    /// Updates the namespaces whose policy uses registries; returns whether they have changed.
    fn update_wanted(&mut self) -> bool {
        let snapshot = self.latest.borrow_and_update();
        let now = WantedBy::of(&snapshot);
        if self.wanted_by.as_ref().is_some_and(|before| before.is_same(&now)) {
            return false;
        }
        self.wanted_by = Some(now);
        let wanted = wanted(&snapshot);
        let differs = self.wanted != wanted;
        self.wanted = wanted;
        differs
    }

    fn list_again(&mut self) {
        for kind in KINDS {
            self.objects.list_again(kind);
        }
        (self.relist, self.has_dropped, self.room) = (None, false, ROOM);
    }

    async fn take(&mut self, (kind, event): KindEvent) {
        match event {
            Ok(Event::InitApply(object)) => {
                let images = images_of(kind, object.json(), &self.wanted);
                // It may be a large one, and no other one is read meanwhile.
                drop(object);
                if let Some(images) = images {
                    self.prepare(images).await;
                }
            }
            Ok(Event::Apply(object)) => {
                if let Some(images) = images_of(kind, object.json(), &self.wanted) {
                    self.images.prepare(&images);
                }
            }
            Ok(Event::InitDone) => self.problems.works(kind.as_str()),
            Ok(Event::Init | Event::Delete(_)) | Err(ApiError::Expired(_)) => {}
            Err(error) => {
                let why = error.to_string();
                if self.problems.fails(kind.as_str(), why, Instant::now()) {
                    tracing::warn!(
                        "images of stored workloads: cannot watch objects of kind {kind}: {error}"
                    );
                }
            }
        }
        if self.relist.is_none() && self.objects.is_listed() {
            self.listed();
        }
    }

    /// Queues the look-ups for a listed object; waits for room.
    async fn prepare(&mut self, images: PodImages) {
        while !self.images.prepare(&images) {
            if self.room.is_zero() {
                self.has_dropped = true;
                return;
            }
            sleep(RETRY).await;
            self.room = self.room.saturating_sub(RETRY);
        }
    }

    /// Every kind is listed: decides when to list again.
    fn listed(&mut self) {
        let pause = if self.has_dropped {
            let pause = RELIST_AFTER_DROPS.after(self.drops);
            self.drops = self.drops.saturating_add(1);
            pause
        } else {
            self.drops = 0;
            RELIST
        };
        self.relist = Some(Instant::now() + pause);
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
    use crate::model::cluster::facts::Facts;
    use crate::model::objects::label_selector::LabelSelector;

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
