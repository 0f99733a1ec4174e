//! State of one term of leadership, shared by the tasks that read, evaluate and write.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep};

use super::basis::{EvalInputs, Invalidation, changed};
use super::desk::{ReportWrite, WriteQueue, WriteReceiver, desk};
use super::dialect::ReportApi;
use super::ledger::{OwnerIndex, ReportAction, UnreadableObject};
use super::tell::note;
use super::{ReportContext, ReportSettings, lost, report};
use crate::cluster::custom_lists::CustomLists;
use crate::cluster::rate_limit::backoff_interval;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored::ObjectList;
use crate::model::json_types::Str;
use crate::model::object::{Object, ReviewStage};
use crate::model::text::cut;
use crate::model::workload::Kind;
use crate::scan::{DedupKey, EvalContext, Evaluated, OwnerResult, dedup_key, evaluate_object};

/// How often the supervisor runs.
const LOOK: Duration = Duration::from_millis(500);
/// The longest reason why an object cannot be read, in bytes.
const LONGEST_WHY: usize = 200;

/// Reports that could not be written or deleted, by the uid of their owners, until they are up to date.
pub type ReportErrors = BTreeMap<Box<str>, String>;

/// The state of a leader.
pub struct ReportsController<'s> {
    /// Clients and settings.
    pub context: &'s ReportContext,
    ledger: Arc<Mutex<OwnerIndex>>,
    dialect: watch::Sender<Option<ReportApi>>,
    ask: Notify,
    desk: WriteQueue,
    wishes: BTreeMap<Cow<'static, str>, RereadQueue>,
    /// The custom resources that the cluster serves, with the paths of their lists.
    pub custom: Vec<(Kind, String)>,
    /// The number of the last pass that began.
    pub passes: AtomicU64,
    /// Limits memory to one page at a time, over all kinds.
    pub pages: Semaphore,
    /// Whether the stored reports are known.
    pub is_adopted: watch::Sender<bool>,
    /// Whether objects are already being evaluated.
    pub has_begun: AtomicBool,
    /// Namespaces whose missing reports only another list restores.
    late: Mutex<Invalidation>,
    hashes: RandomState,
    /// Reports that could not be written or deleted.
    pub troubles: Mutex<ReportErrors>,
    /// Current problems, by activity.
    pub complaints: Mutex<BTreeMap<String, String>>,
}

/// Which objects of one kind to list again.
#[derive(Debug, Default)]
pub struct RereadQueue {
    anew: Mutex<Invalidation>,
    told: Notify,
}

impl RereadQueue {
    /// Adds objects to list again.
    pub fn add(&self, more: Invalidation) {
        if more == Invalidation::None {
            return;
        }
        let mut anew = self.anew.lock().unwrap_or_else(PoisonError::into_inner);
        *anew = std::mem::take(&mut *anew).and(more);
        self.told.notify_one();
    }

    /// Takes everything that was requested.
    pub fn take(&self) -> Invalidation {
        std::mem::take(&mut *self.anew.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for a request.
    pub async fn next(&self) -> Invalidation {
        loop {
            let anew = self.take();
            if anew != Invalidation::None {
                return anew;
            }
            self.told.notified().await;
        }
    }
}

/// The source of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectSource {
    /// A list, which may be stale by now.
    List,
    /// A watch event.
    Watch,
}

/// The metadata that every object has.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ObjectHead<'h> {
    /// Its metadata.
    #[serde(borrow)]
    pub metadata: ObjectHeadMeta<'h>,
}

/// The part of the metadata that identifies the object.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ObjectHeadMeta<'h> {
    /// Its uid.
    #[serde(borrow)]
    pub uid: Str<'h>,
    #[serde(borrow)]
    namespace: Str<'h>,
    #[serde(borrow)]
    name: Str<'h>,
}

impl ReportsController<'_> {
    /// Evaluates stored objects until this replica no longer leads.
    pub async fn run(context: &ReportContext) {
        let (desk, tray) = desk();
        // Without an answer they are found later.
        let custom = CustomLists::read(&context.client, &BTreeSet::new()).await.kinds;
        let session = ReportsController {
            context,
            ledger: Arc::default(),
            dialect: watch::Sender::new(None),
            ask: Notify::new(),
            desk,
            wishes: (ObjectList::all(&custom).into_iter())
                .map(|stored| (stored.path, RereadQueue::default()))
                .collect(),
            custom,
            passes: AtomicU64::new(0),
            pages: Semaphore::new(1),
            is_adopted: watch::Sender::new(false),
            has_begun: AtomicBool::new(false),
            late: Mutex::default(),
            hashes: RandomState::new(),
            troubles: Mutex::default(),
            complaints: Mutex::default(),
        };
        context.gauges.show(Some(Arc::clone(&session.ledger)));
        tokio::select! {
            () = session.work(tray) => (),
            () = lost(context) => (),
        }
    }

    async fn work(&self, tray: WriteReceiver) {
        let before = Arc::clone(&self.context.latest.borrow());
        while !self.find_dialect().await {
            self.say();
            sleep(self.settings().gather).await;
        }
        let lists = ObjectList::all(&self.custom);
        let feeds = lists.iter().map(|stored| self.follow(stored));
        tokio::select! {
            _ = join_all(feeds) => (),
            () = self.write_all(tray) => (),
            () = self.mind_reports() => (),
            () = self.sweep_others() => (),
            () = self.mind_waiting() => (),
            () = self.supervise(before) => (),
        }
    }

    /// Triggers what no event triggers: new evaluations, discovery of the report API, and missing reports.
    async fn supervise(&self, mut before: Arc<Snapshot>) {
        let mut latest = self.context.latest.clone();
        let (mut asked, mut caught_up, mut in_vain) = (Instant::now(), Instant::now(), 0_u32);
        let mut ground = EvalInputs::new(Arc::clone(&before), Instant::now());
        loop {
            tokio::select! {
                changed = latest.changed() => match changed {
                    Ok(()) => sleep(self.settings().gather).await,
                    Err(_) => return,
                },
                () = self.ask.notified() => asked = Instant::now().checked_sub(self.settings().ask).unwrap_or(asked),
                () = sleep(LOOK) => (),
            }
            let now = Arc::clone(&latest.borrow_and_update());
            self.wish(&changed(&before, &now));
            if ground.has_changed(&now, Instant::now()) {
                self.wish(&Invalidation::All);
            }
            before = now;
            if self.ledger().has_room_again() {
                self.is_late(Invalidation::All);
            }
            if asked.elapsed() >= self.settings().ask {
                self.find_dialect().await;
                if self.serves_others().await {
                    return;
                }
                asked = Instant::now();
            }
            let wait = backoff_interval(self.settings().retry, in_vain);
            let is_late = *self.all_late() != Invalidation::None;
            if is_late && caught_up.elapsed() >= wait && self.desk.is_empty() {
                let late = std::mem::take(&mut *self.all_late());
                self.wish(&late);
                (caught_up, in_vain) = (Instant::now(), in_vain.saturating_add(1));
            } else if !is_late && caught_up.elapsed() >= wait * 2 {
                in_vain = 0;
            }
            self.say();
        }
    }

    /// Whether the cluster serves other custom resources than at the beginning: then the session begins again.
    async fn serves_others(&self) -> bool {
        let served = CustomLists::read(self.client(), &BTreeSet::new()).await;
        served.unknown.is_empty() && served.kinds != self.custom
    }

    /// Discovers the report API; returns whether the API server answered.
    async fn find_dialect(&self) -> bool {
        const DOING: &str = "which kind of report there is";
        match ReportApi::of(self.client()).await {
            Ok(found) => {
                self.works(DOING);
                let is_new = self
                    .dialect
                    .send_if_modified(|known| std::mem::replace(known, found) != found);
                if is_new {
                    tracing::info!(
                        api = found.map(ReportApi::as_str),
                        "the kind of report on stored objects"
                    );
                    self.ledger().forget_reports();
                    self.forget_troubles();
                    self.is_adopted.send_replace(false);
                    self.wish(&Invalidation::All);
                }
                if found.is_none() {
                    // Without a report API there cannot be stored reports.
                    self.is_adopted.send_replace(true);
                }
                true
            }
            Err(failure) => {
                self.complain(DOING, &failure.to_string());
                false
            }
        }
    }

    /// Evaluates one object; returns what to write. `pass`: the pass that delivers it, or the last one. An object
    /// from a list is ignored if a watch event for it arrived meanwhile.
    pub fn judge(
        &self,
        eval_context: &EvalContext<'_>,
        kind: Kind,
        json: &str,
        pass: u64,
        from: ObjectSource,
    ) -> Option<ReportWrite> {
        let head: ObjectHead<'_> = serde_json::from_str(json).unwrap_or_default();
        let uid = head.metadata.uid.as_str();
        if from == ObjectSource::List && self.ledger().is_touched(kind, uid) {
            return None;
        }
        let subject = match Object::parse(kind, json, ReviewStage::Stored) {
            Ok(subject) => subject,
            Err(error) => {
                self.is_seen(kind, uid, from);
                self.unreadable(kind, &head, &error.to_string(), pass);
                return None;
            }
        };
        if kind == Kind::Pod {
            self.mind_pod(eval_context, &subject, json);
        }
        let judged = match evaluate_object(eval_context, &subject, json) {
            Ok(Evaluated::Judged(judged)) => judged,
            // Most pods: nothing was ever reported about them.
            Ok(Evaluated::Owned(..)) => {
                self.ledger().is_clean(uid);
                return None;
            }
            Ok(Evaluated::Passed(_)) => {
                self.is_seen(kind, uid, from);
                self.ledger().is_clean(uid);
                return None;
            }
            Err(error) => {
                self.is_seen(kind, uid, from);
                self.unreadable(kind, &head, &error.to_string(), pass);
                return None;
            }
        };
        self.is_seen(kind, uid, from);
        if !self.stands(&judged, dedup_key(&subject, json, &self.hashes), pass) {
            self.ledger().is_clean(uid);
            return None;
        }
        let ReportAction::Write(content) = self.ledger().judged(&judged, pass) else {
            return None;
        };
        let dialect = self.dialect();
        Some(ReportWrite {
            uid: uid.into(),
            namespace: judged.namespace.as_str().into(),
            content,
            dialect,
            body: dialect.map_or(serde_json::Value::Null, |dialect| {
                report::report(&judged, content, dialect, Timestamp::now())
            }),
            note: note(&judged),
        })
    }

    /// Whether to evaluate this object among similar ones. If it represented others and no longer does, those are
    /// listed again.
    fn stands(&self, judged: &OwnerResult, like: DedupKey, pass: u64) -> bool {
        let (stands, stood) = match like {
            DedupKey::None => return true,
            DedupKey::AtZero => (false, self.ledger().stands_no_more(&judged.uid)),
            DedupKey::Of(number) => {
                let mut ledger = self.ledger();
                ledger.stands_for(number, judged.kind, &judged.namespace, &judged.uid, pass)
            }
        };
        if stood {
            self.look_again(judged.kind, Invalidation::In([judged.namespace.clone()].into()));
        }
        stands
    }

    fn is_seen(&self, kind: Kind, uid: &str, from: ObjectSource) {
        if from == ObjectSource::Watch {
            self.ledger().touch(kind, uid);
        }
    }

    fn unreadable(&self, kind: Kind, head: &ObjectHead<'_>, why: &str, pass: u64) {
        let ObjectHeadMeta { uid, namespace, name } = &head.metadata;
        let which = UnreadableObject {
            kind,
            name: format!("{namespace}/{name}"),
            why: cut(why, LONGEST_WHY).into_owned(),
        };
        let mut ledger = self.ledger();
        ledger.is_clean(uid);
        if ledger.unreadable(uid, which, pass) {
            tracing::warn!("cannot read the stored {kind} {namespace}/{name}, which is passed over: {why}");
        }
    }

    /// An object is gone.
    pub fn gone(&self, kind: Kind, json: &str) {
        let ObjectHead { metadata } = serde_json::from_str(json).unwrap_or_default();
        let mut ledger = self.ledger();
        ledger.touch(kind, &metadata.uid);
        let stood = ledger.gone(&metadata.uid);
        drop(ledger);
        if stood {
            self.look_again(kind, Invalidation::In([metadata.namespace.to_string()].into()));
        }
    }

    /// Requests that objects of a kind are listed again.
    pub fn look_again(&self, kind: Kind, anew: Invalidation) {
        let lists = ObjectList::all(&self.custom);
        let stored = lists.iter().find(|stored| stored.kind == kind);
        if let Some(wish) = stored.and_then(|stored| self.wishes(stored)) {
            wish.add(anew);
        }
    }

    /// Queues a write after a change.
    pub fn news(&self, write: ReportWrite) {
        let namespace = write.namespace.to_string();
        if !self.desk.news(write) {
            self.is_late(Invalidation::In([namespace].into()));
        }
    }

    /// Queues a write of a pass.
    pub async fn rest(&self, write: ReportWrite) {
        self.desk.rest(write).await;
    }

    /// Records that reports are missing that only another list restores.
    pub fn is_late(&self, anew: Invalidation) {
        let mut late = self.all_late();
        *late = std::mem::take(&mut *late).and(anew);
    }

    fn all_late(&self) -> MutexGuard<'_, Invalidation> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue of objects of a kind to list again.
    pub fn wishes(&self, stored: &ObjectList) -> Option<&RereadQueue> {
        self.wishes.get(&stored.path)
    }

    fn wish(&self, anew: &Invalidation) {
        for wish in self.wishes.values() {
            wish.add(anew.clone());
        }
    }

    /// Requests discovery of the report API soon.
    pub fn ask_for_dialect(&self) {
        self.ask.notify_one();
    }

    /// The report API that the cluster serves.
    pub fn dialect(&self) -> Option<ReportApi> {
        *self.dialect.borrow()
    }

    /// Follows changes of the report API.
    pub fn dialects(&self) -> watch::Receiver<Option<ReportApi>> {
        self.dialect.subscribe()
    }

    /// The state of owners. The guard must not be held across an await.
    pub fn ledger(&self) -> MutexGuard<'_, OwnerIndex> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.context.latest.borrow())
    }

    /// The API client.
    pub fn client(&self) -> &Client {
        &self.context.client
    }

    /// Rates and intervals.
    pub fn settings(&self) -> ReportSettings {
        self.context.settings
    }

    /// Whether this replica may write.
    pub fn leads(&self) -> bool {
        self.context.leadership.holds()
    }
}
