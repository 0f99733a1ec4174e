//! Delivers objects for evaluation: a watch of each kind, and paginated lists of all objects. No object is kept in
//! memory.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::ReportSettings;
use super::evaluator::{Evaluator, ObjectEvaluation};
use super::events::event_on;
use super::health::ReportHealth;
use super::invalidation::Invalidation;
use super::owner_index::{ObservationSource, SharedIndex};
use super::report;
use super::report_api::DiscoveredApi;
use super::report_watch::Adoption;
use super::reread_queue::RereadQueue;
use super::stored_images::StoredImages;
use super::stuck_pods::StuckPods;
use super::write_queue::{ReportWrite, WriteQueue};
use crate::cluster::follow::{ObjectFollower, follow};
use crate::cluster::snapshot::{Snapshot, SnapshotReceiver};
use crate::cluster::stored::{ObjectHeadMeta, ObjectList};
use crate::model::workload::Kind;
use crate::scan::EvalContext;

/// How long to wait for the list of stored reports.
const ADOPTION: Duration = Duration::from_secs(10);

/// Evaluates all stored objects, records them in the index, and queues the reports to write.
pub struct ObjectFeed<'c> {
    /// The API client.
    pub client: &'c Client,
    /// Facts and policies.
    pub latest: &'c SnapshotReceiver,
    /// What to list and watch.
    pub lists: &'c [ObjectList],
    /// The custom resources among the lists, with their paths.
    pub custom: &'c [(Kind, String)],
    /// Pauses.
    pub settings: ReportSettings,
    /// Evaluates each object.
    pub evaluator: Evaluator,
    /// What is known of images.
    pub images: &'c StoredImages,
    /// Where each owner is recorded.
    pub index: &'c SharedIndex,
    /// Where pods that wait for a node are recorded.
    pub stuck: &'c StuckPods,
    /// Takes the reports to write.
    pub queue: &'c WriteQueue,
    /// What to list again.
    pub rereads: &'c RereadQueue,
    /// Takes problems.
    pub health: &'c ReportHealth,
    /// The report API of new reports.
    pub api: &'c DiscoveredApi,
    /// Whether the stored reports are known.
    pub adoption: &'c Adoption,
    /// The number of the last pass that began.
    pub passes: AtomicU64,
    /// Limits memory to one page at a time, over all kinds.
    pub pages: Semaphore,
}

impl ObjectFeed<'_> {
    /// Follows the objects of every kind, forever.
    pub async fn run(self) {
        join_all(self.lists.iter().map(|list| self.follow(list))).await;
    }

    /// Follows the objects of one kind, forever. A change is evaluated immediately, and an older version from the list is
    /// then ignored.
    async fn follow(&self, stored: &ObjectList) {
        // Findings are counted and reported even if the stored reports cannot be read.
        let _ = timeout(ADOPTION, self.adoption.wait()).await;
        self.adoption.lists_begin();
        match follow(self.client, stored, self).await {}
    }

    /// Evaluates one object; returns what to write. `pass`: the pass that delivers it, or the last one. An object
    /// from a list is ignored if a watch event for it arrived meanwhile.
    fn evaluate(
        &self,
        context: &EvalContext<'_>,
        kind: Kind,
        json: &str,
        pass: u64,
        source: ObservationSource,
    ) -> Option<ReportWrite> {
        let object = ObjectHeadMeta::of(json);
        if source == ObservationSource::List && self.index.lock().is_touched(kind, &object.uid) {
            return None;
        }
        let (evaluation, stuck) = self.evaluator.evaluate(context, self.images, kind, json);
        self.rereads.add(Kind::Pod, self.evaluator.take_rereads());
        if kind == Kind::Pod {
            self.stuck.record(&object.uid, stuck);
        }
        let recorded = self.index.lock().record(kind, &object, &evaluation, pass, source);
        if recorded.has_freed {
            self.rereads
                .add(kind, Invalidation::None.with(object.namespace.to_string()));
        }
        if recorded.is_newly_unreadable
            && let ObjectEvaluation::Unreadable(why) = &evaluation
        {
            let ObjectHeadMeta { namespace, name, .. } = &object;
            tracing::warn!("cannot read the stored {kind} {namespace}/{name}, which is skipped: {why}");
        }
        let (Some(content), ObjectEvaluation::Owner(owner, _)) = (recorded.write, evaluation) else {
            return None;
        };
        let api = self.api.get();
        Some(ReportWrite {
            uid: owner.uid.as_str().into(),
            namespace: owner.namespace.as_str().into(),
            content,
            api,
            body: api.map_or(Value::Null, |api| {
                report::report(&owner, content, api, Timestamp::now())
            }),
            event: event_on(&owner),
        })
    }

    /// Lists the objects of a kind, with pauses.
    async fn read(&self, stored: &ObjectList, wanted: Invalidation) {
        let listing = format!("cannot list {}", stored.path);
        let pass = self.passes.fetch_add(1, Ordering::Relaxed) + 1;
        self.index.lock().begins(stored.kind);
        let scopes = match &wanted {
            Invalidation::None => Vec::new(),
            Invalidation::All => vec![None],
            Invalidation::In(namespaces) => namespaces.iter().map(|name| Some(name.as_str())).collect(),
        };
        for scope in scopes {
            if let Err(failure) = self.read_pages(stored, scope, pass).await {
                self.index.lock().breaks_off(stored.kind);
                self.health.fails(&listing, &failure);
                sleep(self.settings.retry).await;
                self.rereads.add(stored.kind, wanted);
                return;
            }
        }
        self.health.works(&listing);
        if wanted == Invalidation::All {
            let freed = self.index.lock().ends(stored.kind, pass).into_iter();
            let freed = freed.fold(Invalidation::None, Invalidation::with);
            self.rereads.add(stored.kind, freed);
        } else {
            self.index.lock().breaks_off(stored.kind);
        }
        sleep(self.settings.gather).await;
    }

    async fn read_pages(
        &self,
        stored: &ObjectList,
        namespace: Option<&str>,
        pass: u64,
    ) -> Result<(), String> {
        let mut pages = stored.pages(namespace);
        loop {
            let began = Instant::now();
            let mut writes = Vec::new();
            // The semaphore is never closed, so this cannot fail.
            let permit = self.pages.acquire().await;
            let snapshot = self.snapshot();
            let context = EvalContext::of(&snapshot).listing(self.custom);
            let next = pages.next(self.client, |json| {
                writes.extend(self.evaluate(&context, stored.kind, json, pass, ObservationSource::List));
            });
            let more = next.await.map_err(|failure| failure.to_string())?;
            drop(context);
            drop((snapshot, permit));
            // Each write holds a report in memory, so the next page is only read after these are written. If the
            // continue token expires meanwhile, the API server returns a new one.
            for write in writes {
                self.queue.push_rescan(write).await;
            }
            if !more {
                return Ok(());
            }
            sleep(self.settings.rest.max(began.elapsed())).await;
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.latest.borrow().clone()
    }
}

impl ObjectFollower for ObjectFeed<'_> {
    /// Lists everything, and then what is requested.
    async fn read_for_ever(&self, stored: &ObjectList) -> Infallible {
        // The list includes everything that was requested until now.
        self.rereads.take(stored.kind);
        let mut wanted = Invalidation::All;
        loop {
            self.read(stored, wanted).await;
            wanted = self.rereads.next(stored.kind).await;
        }
    }

    fn seen(&self, stored: &ObjectList, json: &str) {
        let snapshot = self.snapshot();
        let pass = self.passes.load(Ordering::Relaxed);
        let context = EvalContext::of(&snapshot).listing(self.custom);
        let Some(write) = self.evaluate(&context, stored.kind, json, pass, ObservationSource::Watch) else {
            return;
        };
        let namespace = write.namespace.to_string();
        if !self.queue.push_change(write) {
            self.rereads.defer(Invalidation::None.with(namespace));
        }
    }

    fn gone(&self, stored: &ObjectList, json: &str) {
        let object = ObjectHeadMeta::of(json);
        self.stuck.record(&object.uid, None);
        self.evaluator
            .forget(stored.kind, &object.namespace, &object.name);
        if self.index.lock().gone(stored.kind, &object.uid) {
            self.rereads
                .add(stored.kind, Invalidation::None.with(object.namespace.to_string()));
        }
    }

    fn works(&self, activity: &str) {
        self.health.works(activity);
    }

    fn fails(&self, activity: &str, why: &str) {
        self.health.fails(activity, why);
    }
}
