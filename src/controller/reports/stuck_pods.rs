//! Stuck pods: if a pod waits long for a node, terminates past its grace period, or fails on a Windows node, and Transom
//! can explain why, an Event reports it on its top-level owner.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use tokio::time::Instant;

use super::evaluator::StuckPod;
use super::events::owner_event;
use super::stored_images::KnownFacts;
use crate::cluster::list::Listing;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored::ObjectList;
use crate::controller::events::of_workload;
use crate::model::objects::object::{Object, ReviewStage};
use crate::model::objects::resources::MetaOnly;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::registry::service::ImageService;
use crate::scan::EvalContext;
use crate::scan::pods::{PodContext, trouble};

/// The maximum number of pods that are followed.
const MOST: usize = 1_000;
/// The delay until a pod is checked again.
const AGAIN: Duration = Duration::from_secs(600);
/// How many pods are checked at a time.
const AT_ONCE: usize = 10;
/// The longest owner chain above a pod: a ReplicaSet's Deployment, a Job's CronJob.
const STEPS: usize = 3;

/// The pods that may be stuck, by uid.
#[derive(Debug, Default)]
pub struct StuckPods(HashMap<Box<str>, StuckPod>);

impl StuckPods {
    /// Records whether a pod may be stuck. A pod that is known to be keeps its time.
    pub fn record(&mut self, uid: &str, stuck: Option<StuckPod>) {
        match stuck {
            None => drop(self.0.remove(uid)),
            Some(stuck) if self.0.len() < MOST => {
                self.0.entry(uid.into()).or_insert(stuck);
            }
            Some(_) => {}
        }
    }

    /// Some of the pods that are due for a check, with their uids; their next one is scheduled.
    pub fn due(&mut self, now: Instant) -> Vec<(Box<str>, StuckPod)> {
        let due = self.0.iter_mut().filter(|(_, pod)| pod.due <= now);
        let due = due.take(AT_ONCE).map(|(uid, pod)| {
            pod.due = now + AGAIN;
            (uid.clone(), pod.clone())
        });
        due.collect()
    }
}

/// What pods that may be stuck show.
#[derive(Debug, Default)]
pub struct Explained {
    /// The pods that are gone: their deletion may have been missed between two watches.
    pub gone: Vec<Box<str>>,
    /// The Events on the owners of those that are stuck for a known reason.
    pub events: Vec<Event>,
}

/// Explains why pods are stuck, by Events on their owners.
pub struct StuckPodsCheck {
    pub client: Client,
    /// The nodes, facts and policies.
    pub snapshot: Arc<Snapshot>,
    /// What is known of images.
    pub images: Option<ImageService>,
    pub pods: ObjectList,
}

impl StuckPodsCheck {
    /// Reads these pods, and explains those that are still stuck.
    pub async fn run(self, due: Vec<(Box<str>, StuckPod)>) -> Explained {
        let mut explained = Explained::default();
        for (uid, pod) in due {
            let stored = self.pods.get(&self.client, &pod.namespace, &pod.name, &uid);
            match stored.await {
                Ok(None) => explained.gone.push(uid),
                Ok(Some(stored)) => {
                    let reason = self.reason(stored.json());
                    // While a large one is kept, no other one can be read.
                    drop(stored);
                    if let Some(reason) = reason {
                        explained.events.push(self.explain(&uid, &pod, reason).await);
                    }
                }
                Err(_) => {}
            }
        }
        explained
    }

    /// The Event for a pod that is stuck for this reason.
    async fn explain(&self, uid: &str, pod: &StuckPod, (reason, message): (&'static str, String)) -> Event {
        let mut owner = WorkloadName::of(Kind::Pod, &pod.namespace, &pod.name).with_uid(uid);
        let mut api_version = "v1".to_owned();
        for _ in 0..STEPS {
            match self.controller_of(&owner).await {
                Some(controller) => (owner, api_version) = controller,
                None => break,
            }
        }
        owner_event(
            reason,
            &message,
            of_workload(&owner, &api_version),
            Timestamp::now(),
        )
    }

    /// Why a pod is stuck: the reason of an Event, and its message. `None` if it is not, or if Transom cannot explain why.
    fn reason(&self, json: &str) -> Option<(&'static str, String)> {
        let object = Object::parse(Kind::Pod, json, ReviewStage::Stored).ok()?;
        let eval_context = EvalContext::of(&self.snapshot);
        let service = self.images.as_ref();
        let known = service.and_then(|service| KnownFacts::of(service, &eval_context, &object));
        let facts = known.map(|known| known.added_to(eval_context.facts));
        let eval_context = eval_context.with_facts(facts.as_ref().unwrap_or(eval_context.facts));
        let context = PodContext {
            eval_context: &eval_context,
            nodes: Some(&self.snapshot.cache.nodes),
            is_other: &|_| false,
            knows_classes: true,
        };
        let trouble = trouble(&object, json, None, &context, Timestamp::now())?;
        let (message, remedy) = (trouble.message, trouble.remedy);
        Some(match trouble.node {
            None => (
                "WindowsPodPending",
                format!("a pod of this waits for a node: {message}; {remedy}"),
            ),
            Some(_) => ("WindowsPodProblem", format!("a pod of this: {message}; {remedy}")),
        })
    }

    /// The owner that controls an object, and its API version.
    async fn controller_of(&self, owned: &WorkloadName) -> Option<(WorkloadName, String)> {
        let listing = Listing::of_pod_carrier(owned.known_kind()?)?;
        let listing = listing.in_namespace(&owned.namespace).metadata_only();
        let json = listing.get(&self.client, &owned.name).await.ok()?;
        let MetaOnly { metadata } = serde_json::from_str(&json).ok()?;
        let owner = metadata.controller()?;
        let name = WorkloadName::owner_of(&metadata, &owned.namespace)?.with_uid(&owner.uid);
        Some((name, owner.api_version.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::json;

    use super::*;
    use crate::cluster::test_client::answering;
    use crate::engine::policy_set::PolicySet;
    use crate::model::cluster::facts::Facts;
    use crate::model::cluster::policy::Policy;

    fn pod(name: &str, due: Instant) -> StuckPod {
        StuckPod {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            due,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_due_once_and_again_after_a_while_until_it_has_a_node() {
        let (mut pods, start) = (StuckPods::default(), Instant::now());
        pods.record("a", Some(pod("a", start + Duration::from_secs(120))));
        assert_eq!(pods.due(start), []);
        let later = start + Duration::from_secs(60);
        pods.record("a", Some(pod("a", later + Duration::from_secs(120))));
        let names = |pods: &mut StuckPods, now| -> Vec<String> {
            pods.due(now).into_iter().map(|(_, pod)| pod.name).collect()
        };
        let due = start + Duration::from_secs(120);
        assert_eq!(names(&mut pods, due), ["a"], "it waits since it was first seen");
        assert!(names(&mut pods, due).is_empty());
        assert!(names(&mut pods, due + AGAIN - Duration::from_secs(1)).is_empty());
        assert_eq!(names(&mut pods, due + AGAIN), ["a"]);
        pods.record("a", None);
        assert!(names(&mut pods, due + AGAIN * 2).is_empty());
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
        let check = StuckPodsCheck {
            client,
            snapshot: Arc::new(Snapshot::of_files(
                Facts::new(Facts::KUBERNETES, date(2026, 6, 1)),
                PolicySet::new(Vec::new(), Policy::cluster_default()),
            )),
            images: None,
            pods: ObjectList::all(&[]).pop().unwrap(),
        };
        let now = Instant::now();
        let due = ["there", "again", "gone", "unknown"].map(|name| (name.into(), pod(name, now)));
        let explained = check.run(due.to_vec()).await;
        let gone: Vec<&str> = explained.gone.iter().map(AsRef::as_ref).collect();
        assert_eq!(gone, ["again", "gone"]);
        assert_eq!(explained.events, [], "it is not stuck");
    }

    #[tokio::test(start_paused = true)]
    async fn few_are_checked_at_a_time_and_the_number_is_bounded() {
        let (mut pods, now) = (StuckPods::default(), Instant::now());
        for number in 0..=MOST {
            pods.record(&number.to_string(), Some(pod("web", now)));
        }
        assert_eq!(pods.0.len(), MOST);
        assert_eq!(pods.due(now).len(), AT_ONCE);
        assert_eq!(pods.due(now).len(), AT_ONCE, "the next ones");
    }
}
