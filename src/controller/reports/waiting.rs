//! Pending pods: if a pod has waited long for a reason that Transom can explain, an Event reports it on its top-level
//! owner.

use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, DynamicObject, GetParams, PartialObjectMeta};
use kube::core::{ApiResource, GroupVersionKind, Request};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::ledger::PendingPod;
use super::session::ReportsController;
use super::tell::{EventOwner, OwnerEvent};
use crate::cluster::errors::answered;
use crate::cluster::rate_limit::TokenBucket;
use crate::engine::infer_os;
use crate::model::json_types::{IsPresent, Str};
use crate::model::object::{Object, ReviewStage};
use crate::model::os::Verdict;
use crate::model::workload::Kind;
use crate::scan::EvalContext;
use crate::scan::pods::{PodContext, trouble};

/// How long a pod waits before it is checked.
const LONG: Duration = Duration::from_secs(120);
/// The delay until it is checked again.
const AGAIN: Duration = Duration::from_secs(600);
/// How often the due pods are determined.
const LOOK: Duration = Duration::from_secs(10);
/// How many pods are checked at a time.
const AT_ONCE: usize = 10;
/// Rate limit of Events: per second, and burst.
const EVENTS: (u32, u32) = (1, 20);
/// The longest owner chain above a pod: a ReplicaSet's Deployment, a Job's CronJob.
const STEPS: usize = 3;

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodSummary<'b> {
    #[serde(borrow)]
    metadata: PodSummaryMeta<'b>,
    #[serde(borrow)]
    spec: PodSummarySpec<'b>,
    #[serde(borrow)]
    status: PodSummaryStatus<'b>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PodSummaryMeta<'b> {
    #[serde(borrow)]
    uid: Str<'b>,
    #[serde(borrow)]
    namespace: Str<'b>,
    #[serde(borrow)]
    name: Str<'b>,
    deletion_timestamp: IsPresent,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PodSummarySpec<'b> {
    #[serde(borrow)]
    node_name: Str<'b>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodSummaryStatus<'b> {
    #[serde(borrow)]
    phase: Str<'b>,
}

impl ReportsController<'_> {
    /// Records whether a pod waits for a node. Only pods for Windows, or with conflicting evidence, are recorded.
    pub fn mind_pod(&self, eval_context: &EvalContext<'_>, subject: &Object<'_>, json: &str) {
        let brief: PodSummary<'_> = serde_json::from_str(json).unwrap_or_default();
        let PodSummary {
            metadata,
            spec,
            status,
        } = brief;
        let waits =
            status.phase.as_str() == "Pending" && spec.node_name.is_empty() && !metadata.deletion_timestamp.0;
        let is_ours = || {
            let policy = eval_context.policy_in(&subject.namespace);
            let verdict = infer_os(subject, eval_context.facts, &policy).verdict;
            matches!(verdict, Verdict::Windows | Verdict::Conflicting)
        };
        let is_known = waits && self.ledger().is_waiting(&metadata.uid);
        let waiting = (waits && (is_known || is_ours())).then(|| PendingPod {
            namespace: metadata.namespace.to_string(),
            name: metadata.name.to_string(),
            due: Instant::now() + LONG,
        });
        self.ledger().waits(&metadata.uid, waiting);
    }

    /// Checks the pods that have waited long, forever.
    pub async fn mind_waiting(&self) {
        let events = Mutex::new(TokenBucket::new(EVENTS.0, EVENTS.1));
        loop {
            sleep(LOOK).await;
            let due = self.ledger().waited(Instant::now(), AGAIN, AT_ONCE);
            for waiting in due {
                if let Some(note) = self.why(&waiting).await {
                    self.tell(&note, &events).await;
                }
            }
        }
    }

    /// The Event for a pending pod; `None` if Transom cannot explain why it is pending.
    async fn why(&self, waiting: &PendingPod) -> Option<OwnerEvent> {
        let path = format!("/api/v1/namespaces/{}/pods", waiting.namespace);
        let request = Request::new(path)
            .get(&waiting.name, &GetParams::default())
            .ok()?;
        let json = answered(self.client().request_text(request)).await.ok()?;
        let snapshot = self.snapshot();
        let (message, mut owner) = {
            let subject = Object::parse(Kind::Pod, &json, ReviewStage::Stored).ok()?;
            let eval_context = EvalContext::of(&snapshot);
            let ground = PodContext {
                eval_context: &eval_context,
                nodes: Some(&snapshot.view.nodes),
                is_other: &|_| false,
                knows_classes: true,
            };
            let told = trouble(&subject, &json, None, &ground, Timestamp::now())?;
            if told.wrong.is_misplaced() {
                return None;
            }
            let brief: PodSummary<'_> = serde_json::from_str(&json).ok()?;
            let owner = EventOwner {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                namespace: waiting.namespace.clone(),
                name: waiting.name.clone(),
                uid: brief.metadata.uid.to_string(),
            };
            (
                format!(
                    "a pod of this waits for a node: {}; {}",
                    told.message, told.remedy
                ),
                owner,
            )
        };
        for _ in 0..STEPS {
            match self.above(&owner).await {
                Some(above) => owner = above,
                None => break,
            }
        }
        Some(OwnerEvent {
            reason: "WindowsPodPending",
            message,
            owner,
        })
    }

    /// The controller of an object.
    async fn above(&self, owner: &EventOwner) -> Option<EventOwner> {
        let (group, version) = owner
            .api_version
            .split_once('/')
            .unwrap_or(("", &owner.api_version));
        let kind = Kind::of(group, &owner.kind).filter(|kind| !kind.is_custom())?;
        let plural = format!("{}s", kind.as_str().to_lowercase());
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &owner.kind), &plural);
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::namespaced_with(self.client().clone(), &owner.namespace, &resource);
        let found = answered(api.get_metadata(&owner.name)).await.ok()?;
        let above = found.metadata.owner_references.into_iter().flatten();
        let above = above.into_iter().find(|it| it.controller == Some(true))?;
        Some(EventOwner {
            api_version: above.api_version,
            kind: above.kind,
            namespace: owner.namespace.clone(),
            name: above.name,
            uid: above.uid,
        })
    }
}
