//! One term of a leader: what it knows while it leads, shared by those who read, judge and write.

use std::collections::BTreeMap;
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
use crate::cluster::rate_limit::backoff_interval;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored::ObjectList;
use crate::model::json_types::Str;
use crate::model::object::{Object, ReviewStage};
use crate::model::text::cut;
use crate::model::workload::Kind;
use crate::scan::{DedupKey, EvalContext, Evaluated, OwnerResult, dedup_key, evaluate_object};

/// How often it is looked what is to be done besides.
const LOOK: Duration = Duration::from_millis(500);
/// So much is said of why an object cannot be read.
const LONGEST_WHY: usize = 200;

/// Reports that could not be written or taken away, by the uid of their owners: until they are as they are to be.
pub type ReportErrors = BTreeMap<Box<str>, String>;

/// What a leader knows.
pub struct ReportsController<'s> {
    /// What it takes.
    pub context: &'s ReportContext,
    ledger: Arc<Mutex<OwnerIndex>>,
    dialect: watch::Sender<Option<ReportApi>>,
    ask: Notify,
    desk: WriteQueue,
    wishes: BTreeMap<&'static str, RereadQueue>,
    /// The number of the last reading of everything that began.
    pub passes: AtomicU64,
    /// One page is in memory at a time, of whichever kind.
    pub pages: Semaphore,
    /// Whether the reports that are there are known.
    pub is_adopted: watch::Sender<bool>,
    /// Whether objects are judged already.
    pub has_begun: AtomicBool,
    /// Where reports are missing that only another reading brings.
    late: Mutex<Invalidation>,
    hashes: RandomState,
    /// Reports that could not be written or taken away.
    pub troubles: Mutex<ReportErrors>,
    /// What does not work, by what was being done.
    pub complaints: Mutex<BTreeMap<String, String>>,
}

/// What of one kind is to be read anew.
#[derive(Debug, Default)]
pub struct RereadQueue {
    anew: Mutex<Invalidation>,
    told: Notify,
}

impl RereadQueue {
    /// Adds to it.
    pub fn add(&self, more: Invalidation) {
        if more == Invalidation::None {
            return;
        }
        let mut anew = self.anew.lock().unwrap_or_else(PoisonError::into_inner);
        *anew = std::mem::take(&mut *anew).and(more);
        self.told.notify_one();
    }

    /// All that is wished for.
    pub fn take(&self) -> Invalidation {
        std::mem::take(&mut *self.anew.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for one.
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

/// Where an object comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectSource {
    /// A reading of everything, which may be old by now.
    List,
    /// A change.
    Watch,
}

/// What every object says of itself.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ObjectHead<'h> {
    /// Its metadata.
    #[serde(borrow)]
    pub metadata: ObjectHeadMeta<'h>,
}

/// The part of the metadata that tells which object it is.
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
    /// Judges what is stored until this replica leads no more.
    pub async fn run(context: &ReportContext) {
        let (desk, tray) = desk();
        let session = ReportsController {
            context,
            ledger: Arc::default(),
            dialect: watch::Sender::new(None),
            ask: Notify::new(),
            desk,
            wishes: ObjectList::all()
                .map(|stored| (stored.path, RereadQueue::default()))
                .collect(),
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
        let feeds = ObjectList::all().map(|stored| self.follow(stored));
        tokio::select! {
            _ = join_all(feeds) => (),
            () = self.write_all(tray) => (),
            () = self.mind_reports() => (),
            () = self.sweep_others() => (),
            () = self.mind_waiting() => (),
            () = self.supervise(before) => (),
        }
    }

    /// Asks for everything that nothing else asks for: what is judged anew, which reports there are, what is late.
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

    /// Which kind of report there is; says whether the API server has told.
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
                    // There is nothing to be known of them.
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

    /// Judges one object; what is to be written of it. `pass`: the reading that brings it, or the last one. What a reading
    /// brings does not count where a change came meanwhile.
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
            // Most pods: of these nothing was ever said.
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

    /// Whether an object is to be judged of those that are like it. Where it stood for others and does no more, these are
    /// looked at.
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

    /// Objects of a kind are to be read anew.
    pub fn look_again(&self, kind: Kind, anew: Invalidation) {
        let stored = ObjectList::all().find(|stored| stored.kind == kind);
        if let Some(wish) = stored.and_then(|stored| self.wishes(stored)) {
            wish.add(anew);
        }
    }

    /// Hands in what is due after a change.
    pub fn news(&self, write: ReportWrite) {
        let namespace = write.namespace.to_string();
        if !self.desk.news(write) {
            self.is_late(Invalidation::In([namespace].into()));
        }
    }

    /// Hands in what a pass has found.
    pub async fn rest(&self, write: ReportWrite) {
        self.desk.rest(write).await;
    }

    /// Reports are missing that only another reading brings.
    pub fn is_late(&self, anew: Invalidation) {
        let mut late = self.all_late();
        *late = std::mem::take(&mut *late).and(anew);
    }

    fn all_late(&self) -> MutexGuard<'_, Invalidation> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of a kind is to be read anew.
    pub fn wishes(&self, stored: ObjectList) -> Option<&RereadQueue> {
        self.wishes.get(stored.path)
    }

    fn wish(&self, anew: &Invalidation) {
        for wish in self.wishes.values() {
            wish.add(anew.clone());
        }
    }

    /// Asks soon which kind of report there is.
    pub fn ask_for_dialect(&self) {
        self.ask.notify_one();
    }

    /// The kind of report that there is.
    pub fn dialect(&self) -> Option<ReportApi> {
        *self.dialect.borrow()
    }

    /// Follows the kind of report that there is.
    pub fn dialects(&self) -> watch::Receiver<Option<ReportApi>> {
        self.dialect.subscribe()
    }

    /// What is known of owners. Not held over a wait.
    pub fn ledger(&self) -> MutexGuard<'_, OwnerIndex> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The snapshot of the moment.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.context.latest.borrow())
    }

    /// The API server.
    pub fn client(&self) -> &Client {
        &self.context.client
    }

    /// How fast all of it goes.
    pub fn settings(&self) -> ReportSettings {
        self.context.settings
    }

    /// Whether this replica may write.
    pub fn leads(&self) -> bool {
        self.context.leadership.holds()
    }
}
