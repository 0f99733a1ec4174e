//! Stuck pods: if a pod waits long for a node, terminates past its grace period, or fails on a Windows node, and Transom
//! can explain why, an Event reports it on its top-level owner.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::api::PartialObjectMeta;
use tokio::time::{Instant, sleep};

use super::evaluator::StuckPod;
use super::events::{EventOwner, EventPublisher, OwnerEvent};
use super::stored_images::StoredImages;
use crate::cluster::errors::ApiError;
use crate::cluster::list::Listing;
use crate::cluster::snapshot::SnapshotReceiver;
use crate::cluster::stored::ObjectHeadMeta;
use crate::model::object::{Object, ReviewStage};
use crate::model::workload::Kind;
use crate::scan::EvalContext;
use crate::scan::pods::{PodContext, trouble};

/// The maximum number of pods that are followed.
const MOST: usize = 1_000;
/// The delay until a pod is checked again.
const AGAIN: Duration = Duration::from_secs(600);
/// How often the due pods are determined.
const LOOK: Duration = Duration::from_secs(10);
/// How many pods are checked at a time.
const AT_ONCE: usize = 10;
/// The longest owner chain above a pod: a ReplicaSet's Deployment, a Job's CronJob.
const STEPS: usize = 3;

/// The pods that may be stuck, by uid.
#[derive(Debug, Default)]
pub struct StuckPods(Mutex<HashMap<Box<str>, StuckPod>>);

impl StuckPods {
    /// Records whether a pod may be stuck. A pod that is known to be keeps its time.
    pub fn record(&self, uid: &str, stuck: Option<StuckPod>) {
        let mut pods = self.pods();
        match stuck {
            None => drop(pods.remove(uid)),
            Some(stuck) if pods.len() < MOST => {
                pods.entry(uid.into()).or_insert(stuck);
            }
            Some(_) => {}
        }
    }

    /// Some of the pods that are due for a check, with their uids; their next one is scheduled.
    fn due(&self, now: Instant) -> Vec<(Box<str>, StuckPod)> {
        let mut pods = self.pods();
        let due = pods.iter_mut().filter(|(_, pod)| pod.due <= now);
        let due = due.take(AT_ONCE).map(|(uid, pod)| {
            pod.due = now + AGAIN;
            (uid.clone(), pod.clone())
        });
        due.collect()
    }

    /// The pod as it is stored now. One that is gone is forgotten: its deletion may have been missed between two watches.
    async fn read(&self, client: &Client, uid: &str, pod: &StuckPod) -> Option<String> {
        let listing = Listing::of_pod_carrier(Kind::Pod)?.in_namespace(&pod.namespace);
        match listing.get(client, &pod.name).await {
            Ok(json) if *ObjectHeadMeta::of(&json).uid == *uid => Some(json),
            // If there is a pod, it is another one of that name.
            Ok(_) | Err(ApiError::NotFound) => {
                self.record(uid, None);
                None
            }
            Err(_) => None,
        }
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<Box<str>, StuckPod>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Explains stuck pods, by Events on their owners.
pub struct StuckPodsTask<'c> {
    /// The API client.
    pub client: &'c Client,
    /// The nodes, facts and policies.
    pub latest: &'c SnapshotReceiver,
    /// The pods that may be stuck.
    pub stuck: &'c StuckPods,
    /// What is known of images.
    pub images: &'c StoredImages,
    /// Publishes the Events.
    pub events: EventPublisher<'c>,
}

impl StuckPodsTask<'_> {
    /// Runs forever.
    pub async fn run(mut self) {
        loop {
            sleep(LOOK).await;
            for (uid, pod) in self.stuck.due(Instant::now()) {
                if let Some(event) = self.explain(&uid, &pod).await {
                    self.events.publish(&event).await;
                }
            }
        }
    }

    /// The Event for a pod; `None` if it is not stuck, or Transom cannot explain why.
    async fn explain(&self, uid: &str, pod: &StuckPod) -> Option<OwnerEvent> {
        let json = self.stuck.read(self.client, uid, pod).await?;
        let snapshot = self.latest.borrow().clone();
        let (reason, message) = {
            let object = Object::parse(Kind::Pod, &json, ReviewStage::Stored).ok()?;
            let eval_context = EvalContext::of(&snapshot);
            let known = self.images.known(&eval_context, &object);
            let facts = known.map(|known| known.added_to(eval_context.facts));
            let eval_context = eval_context.with_facts(facts.as_ref().unwrap_or(eval_context.facts));
            let context = PodContext {
                eval_context: &eval_context,
                nodes: Some(&snapshot.view.nodes),
                is_other: &|_| false,
                knows_classes: true,
            };
            let trouble = trouble(&object, &json, None, &context, Timestamp::now())?;
            let (message, remedy) = (trouble.message, trouble.remedy);
            match trouble.node {
                None => (
                    "WindowsPodPending",
                    format!("a pod of this waits for a node: {message}; {remedy}"),
                ),
                Some(_) => ("WindowsPodProblem", format!("a pod of this: {message}; {remedy}")),
            }
        };
        let mut owner = EventOwner {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: uid.to_owned(),
        };
        for _ in 0..STEPS {
            match self.controller_of(&owner).await {
                Some(controller) => owner = controller,
                None => break,
            }
        }
        Some(OwnerEvent {
            reason,
            message,
            owner,
        })
    }

    async fn controller_of(&self, owned: &EventOwner) -> Option<EventOwner> {
        let (group, _) = owned.api_version.split_once('/').unwrap_or_default();
        let listing = Listing::of_pod_carrier(Kind::of(group, &owned.kind)?)?;
        let listing = listing.in_namespace(&owned.namespace).metadata_only();
        let json = listing.get(self.client, &owned.name).await.ok()?;
        let found: PartialObjectMeta = serde_json::from_str(&json).ok()?;
        let mut references = found.metadata.owner_references.into_iter().flatten();
        let controller = references.find(|reference| reference.controller == Some(true))?;
        Some(EventOwner {
            api_version: controller.api_version,
            kind: controller.kind,
            namespace: owned.namespace.clone(),
            name: controller.name,
            uid: controller.uid,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::test_client::answering;

    fn pod(name: &str, due: Instant) -> StuckPod {
        StuckPod {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            due,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_due_once_and_again_after_a_while_until_it_has_a_node() {
        let (pods, start) = (StuckPods::default(), Instant::now());
        pods.record("a", Some(pod("a", start + Duration::from_secs(120))));
        assert_eq!(pods.due(start), []);
        let later = start + Duration::from_secs(60);
        pods.record("a", Some(pod("a", later + Duration::from_secs(120))));
        let names = |now| -> Vec<String> { pods.due(now).into_iter().map(|(_, pod)| pod.name).collect() };
        let due = start + Duration::from_secs(120);
        assert_eq!(names(due), ["a"], "it waits since it was first seen");
        assert!(names(due).is_empty());
        assert!(names(due + AGAIN - Duration::from_secs(1)).is_empty());
        assert_eq!(names(due + AGAIN), ["a"]);
        pods.record("a", None);
        assert!(names(due + AGAIN * 2).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_whose_deletion_was_missed_is_forgotten() {
        let client = answering(|_, uri, _| {
            let pod = |uid: &str| (200, json!({"kind": "Pod", "metadata": {"uid": uid}}));
            let code = match uri.path().rsplit('/').next().unwrap() {
                "there" => return pod("there"),
                "again" => return pod("new"),
                "gone" => 404,
                _ => 503,
            };
            (code, json!({"kind": "Status", "code": code, "message": "no"}))
        });
        let (pods, now) = (StuckPods::default(), Instant::now());
        for name in ["there", "again", "gone", "unknown"] {
            pods.record(name, Some(pod(name, now)));
        }
        let mut read = Vec::new();
        for (uid, pod) in pods.due(now) {
            if pods.read(&client, &uid, &pod).await.is_some() {
                read.push(pod.name);
            }
        }
        assert_eq!(read, ["there"]);
        let mut left: Vec<String> = pods.pods().keys().map(ToString::to_string).collect();
        left.sort();
        assert_eq!(left, ["there", "unknown"]);
    }

    #[tokio::test(start_paused = true)]
    async fn few_are_checked_at_a_time_and_the_number_is_bounded() {
        let (pods, now) = (StuckPods::default(), Instant::now());
        for number in 0..=MOST {
            pods.record(&number.to_string(), Some(pod("web", now)));
        }
        assert_eq!(pods.pods().len(), MOST);
        assert_eq!(pods.due(now).len(), AT_ONCE);
        assert_eq!(pods.due(now).len(), AT_ONCE, "the next ones");
    }
}
