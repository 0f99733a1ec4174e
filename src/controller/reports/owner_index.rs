//! State of the top-level owners that have findings: counts, and a hash of the content of each report, as it should be
//! and as it is stored. The objects themselves are not kept. Without IO: the feed records what objects are, the
//! writer and the watch on reports what is stored.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::evaluator::ObjectEvaluation;
use super::report::{content, reported};
use crate::cluster::stored::ObjectHeadMeta;
use crate::model::workload::Kind;
use crate::scan::{DedupKey, FindingOutcome, FindingResult, OwnerResult};

/// The maximum number of owners. Findings of further owners are neither counted nor reported.
pub const MOST_OWNERS: usize = 50_000;
/// The hash of a report that another client has edited: unlike any desired one.
const EDITED: u64 = 0;
/// The maximum number of unreadable objects that are kept by name.
const MOST_UNREADABLE: usize = 1_000;

/// The namespace, the rule, and the action of the finding.
pub type Series = (Arc<str>, &'static str, &'static str);

/// The value of the metric's label `action` for a finding; `None` if it is not counted.
pub fn action(found: &FindingResult) -> Option<&'static str> {
    match found.outcome {
        FindingOutcome::Denied => Some("deny"),
        FindingOutcome::Warned | FindingOutcome::Audited if found.would_deny => Some("would-deny"),
        FindingOutcome::Warned => Some("warn"),
        FindingOutcome::Audited => Some("audit"),
        FindingOutcome::Fixed
        | FindingOutcome::Fixable
        | FindingOutcome::Exempted
        | FindingOutcome::NotReviewed => None,
    }
}

/// An owner with findings, or with a report that is not deleted yet.
#[derive(Debug)]
struct OwnerEntry {
    kind: Kind,
    namespace: Arc<str>,
    /// The hash of the desired report; `None`: no report.
    wanted: Option<u64>,
    /// The hash of the stored report; `None`: there is none.
    written: Option<u64>,
    /// The resourceVersion of its report, if known.
    version: Option<u64>,
    /// The hash of the findings last announced without a report.
    notified: Option<u64>,
    /// Findings by rule and action.
    counts: Box<[(&'static str, &'static str, u32)]>,
    /// The last pass that saw it, or the first one after a change.
    pass: u64,
}

/// The one object that is evaluated for all similar ones.
#[derive(Debug)]
struct Representative {
    uid: Box<str>,
    kind: Kind,
    namespace: Arc<str>,
    /// The last pass that saw it.
    pass: u64,
}

/// A stored report.
#[derive(Clone, Debug)]
pub struct WrittenReport {
    /// The kind of its owner.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// The uid of its owner.
    pub uid: String,
    /// The hash of its content; 0 if it cannot be read.
    pub content_hash: u64,
    /// Its resourceVersion, if it is a number.
    pub version: Option<u64>,
}

/// Where an object comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObservationSource {
    /// A list, which may be stale by now.
    List,
    /// A watch event.
    Watch,
}

/// What follows from the evaluation of an object.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Recorded {
    /// The hash of its report, if that must be written.
    pub write: Option<u64>,
    /// It represented other objects and no longer does: they must be listed again.
    pub has_freed: bool,
    /// It could not be read, which is new.
    pub is_newly_unreadable: bool,
}

/// What to do about the report of an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportAction {
    /// Nothing: the report is up to date, or there is none to delete.
    Nothing,
    /// Write it.
    Write(u64),
}

/// An object that cannot be read, its display name, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableObject {
    /// Its kind.
    pub kind: Kind,
    /// For example `shop/web`.
    pub name: String,
    /// Why.
    pub why: String,
}

/// The state that is kept between two evaluations of an object.
#[derive(Debug, Default)]
pub struct OwnerIndex {
    owners: HashMap<Box<str>, OwnerEntry>,
    unreadable: BTreeMap<Box<str>, (UnreadableObject, u64)>,
    /// Objects that changed while a pass reads possibly older versions of them, by kind.
    touched: HashMap<Kind, HashSet<Box<str>>>,
    /// Reports to delete, by the uid of their owner.
    clean: HashSet<Box<str>>,
    series: BTreeMap<Series, u64>,
    names: HashSet<Arc<str>>,
    /// For owners of kinds that are not evaluated: the one object that represents all similar ones.
    standing_for: HashMap<u64, Representative>,
    /// The same, by the uid of the object.
    stands: HashMap<Box<str>, u64>,
    /// The last pass in which owners were omitted because there were too many, by kind.
    full: HashMap<Kind, u64>,
}

/// The index of a leader, as its tasks share it.
#[derive(Debug, Default)]
pub struct SharedIndex(Mutex<OwnerIndex>);

impl SharedIndex {
    /// The index. The guard must not be held across an await.
    pub fn lock(&self) -> MutexGuard<'_, OwnerIndex> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnerIndex {
    /// Records a stored report, written by an earlier leader, by this one, or edited by another client. Returns
    /// whether the owner must be evaluated again to restore it.
    pub fn found(&mut self, report: &WrittenReport) -> bool {
        let uid = report.uid.as_str();
        let Some(entry) = self.owners.get_mut(uid) else {
            if self.owners.len() < MOST_OWNERS {
                let namespace = self.shared(&report.namespace);
                let entry = OwnerEntry {
                    kind: report.kind,
                    namespace,
                    wanted: None,
                    written: Some(report.content_hash),
                    version: report.version,
                    notified: None,
                    counts: Box::default(),
                    pass: 0,
                };
                self.owners.insert(uid.into(), entry);
            }
            return true;
        };
        if *entry.namespace != *report.namespace {
            // Somebody wrote it: an owner and its report are in one namespace.
            return false;
        }
        if entry.version.is_some() && report.version < entry.version {
            // This replica has written it since.
            return false;
        }
        // If the stored content was not the desired one before either, a write is already in progress.
        let is_written = entry.wanted.is_some() && entry.written == entry.wanted;
        // An edit may keep the annotation with the hash: another version is another client's.
        let is_other = entry.version.is_some() && report.version != entry.version;
        let is_edited = is_written && (is_other || entry.wanted != Some(report.content_hash));
        entry.written = Some(if is_edited { EDITED } else { report.content_hash });
        entry.version = report.version;
        is_edited
    }

    /// Records the evaluation of an object in a pass, the current or the last one.
    pub fn record(
        &mut self,
        kind: Kind,
        object: &ObjectHeadMeta<'_>,
        evaluation: &ObjectEvaluation,
        pass: u64,
        source: ObservationSource,
    ) -> Recorded {
        let uid = object.uid.as_str();
        // Nothing was ever reported about an owned object, and most pods are owned.
        if source == ObservationSource::Watch && !matches!(evaluation, ObjectEvaluation::Owned) {
            self.touch(kind, uid);
        }
        let mut recorded = Recorded::default();
        match evaluation {
            ObjectEvaluation::Owned | ObjectEvaluation::Skipped => self.is_clean(uid),
            ObjectEvaluation::Unreadable(why) => {
                self.drop_report(uid);
                let object = UnreadableObject {
                    kind,
                    name: format!("{}/{}", object.namespace, object.name),
                    why: why.clone(),
                };
                recorded.is_newly_unreadable = self.unreadable(uid, object, pass);
            }
            ObjectEvaluation::Owner(owner, key) => {
                let (represents, freed) = match key {
                    DedupKey::None => (true, false),
                    DedupKey::AtZero => (false, self.stands_no_more(uid)),
                    DedupKey::Of(like) => self.stands_for(*like, kind, &owner.namespace, uid, pass),
                };
                recorded.has_freed = freed;
                if !represents {
                    self.is_clean(uid);
                } else if let ReportAction::Write(content) = self.record_result(owner, pass) {
                    recorded.write = Some(content);
                }
            }
        }
        recorded
    }

    /// Records the evaluation of an owner; returns what to do about its report.
    pub fn record_result(&mut self, owner_result: &OwnerResult, pass: u64) -> ReportAction {
        let uid = owner_result.uid.as_str();
        self.unreadable.remove(uid);
        let Some(wanted) = content(owner_result) else {
            self.is_clean(uid);
            return ReportAction::Nothing;
        };
        if !self.owners.contains_key(uid) && self.owners.len() >= MOST_OWNERS {
            self.full.insert(owner_result.kind, pass);
            return ReportAction::Nothing;
        }
        self.clean.remove(uid);
        let namespace = self.shared(&owner_result.namespace);
        let before = self.remove(uid).filter(|before| before.namespace == namespace);
        let (written, version, notified) = before.map_or((None, None, None), |before| {
            (before.written, before.version, before.notified)
        });
        let entry = OwnerEntry {
            kind: owner_result.kind,
            namespace,
            wanted: Some(wanted),
            written,
            version,
            notified,
            counts: counted(owner_result),
            pass,
        };
        self.add(&entry);
        self.owners.insert(uid.into(), entry);
        if written == Some(wanted) {
            ReportAction::Nothing
        } else {
            ReportAction::Write(wanted)
        }
    }

    /// Records that an object has no findings: its report is deleted.
    pub fn is_clean(&mut self, uid: &str) {
        self.unreadable.remove(uid);
        self.drop_report(uid);
    }

    fn drop_report(&mut self, uid: &str) {
        let Some(before) = self.remove(uid) else { return };
        if before.written.is_some() {
            self.clean.insert(uid.into());
            self.owners.insert(
                uid.into(),
                OwnerEntry {
                    wanted: None,
                    counts: Box::default(),
                    ..before
                },
            );
        }
    }

    /// Records that an object is gone; its report is garbage-collected. Returns whether it represented others.
    pub fn gone(&mut self, kind: Kind, uid: &str) -> bool {
        self.touch(kind, uid);
        self.unreadable.remove(uid);
        self.clean.remove(uid);
        self.remove(uid);
        self.stands_no_more(uid)
    }

    /// Records that an object could not be read; returns whether this is new.
    pub fn unreadable(&mut self, uid: &str, which: UnreadableObject, pass: u64) -> bool {
        let known = self.unreadable.get(uid).map(|(before, _)| *before == which);
        if known.is_some() || self.unreadable.len() < MOST_UNREADABLE {
            self.unreadable.insert(uid.into(), (which, pass));
        }
        known != Some(true)
    }

    /// Whether this object is the one to evaluate among similar ones, and whether it represented others before.
    pub fn stands_for(
        &mut self,
        like: u64,
        kind: Kind,
        namespace: &str,
        uid: &str,
        pass: u64,
    ) -> (bool, bool) {
        let is_other = self.stands.get(uid).is_some_and(|before| *before != like);
        let stood = is_other && self.stands_no_more(uid);
        if self.standing_for.len() >= MOST_OWNERS {
            self.standing_for.clear();
            self.stands.clear();
        }
        let namespace = self.shared(namespace);
        let one = self.standing_for.entry(like).or_insert_with(|| Representative {
            uid: uid.into(),
            kind,
            namespace,
            pass,
        });
        let is_it = &*one.uid == uid;
        if is_it {
            one.pass = pass;
            self.stands.insert(uid.into(), like);
        }
        (is_it, stood)
    }

    /// An object no longer represents others; returns whether it did.
    pub fn stands_no_more(&mut self, uid: &str) -> bool {
        let like = self.stands.remove(uid);
        like.is_some_and(|like| self.standing_for.remove(&like).is_some())
    }

    /// Whether this is still the desired content of an owner's report.
    pub fn wants(&self, uid: &str, content: u64) -> bool {
        self.owners
            .get(uid)
            .is_some_and(|entry| entry.wanted == Some(content) && entry.written != Some(content))
    }

    /// Whether these findings of an owner were not announced yet, and marks them as announced. Used if the cluster
    /// serves no report API.
    pub fn is_news(&mut self, uid: &str, content: u64) -> bool {
        let Some(entry) = self.owners.get_mut(uid) else {
            return false;
        };
        entry.notified.replace(content) != Some(content)
    }

    /// A report was written, or no longer exists (`content_hash` is `None`).
    pub fn written(&mut self, uid: &str, content_hash: Option<u64>, version: Option<u64>) {
        let Some(entry) = self.owners.get_mut(uid) else {
            return;
        };
        entry.written = content_hash;
        entry.version = version;
        if entry.wanted.is_none() && content_hash.is_some() {
            // It became clean while it was written.
            self.clean.insert(uid.into());
        }
        if entry.wanted.is_none() && content_hash.is_none() {
            self.remove(uid);
        }
    }

    /// The resourceVersion of an owner's report, if known.
    pub fn version(&self, uid: &str) -> Option<u64> {
        self.owners.get(uid)?.version
    }

    /// Drops the resourceVersion of an owner's report because another client has written it; the watch will deliver
    /// the new one.
    pub fn forget_version(&mut self, uid: &str) {
        if let Some(entry) = self.owners.get_mut(uid) {
            entry.version = None;
        }
    }

    /// Whether the report of an owner is not up to date yet.
    pub fn is_behind(&self, uid: &str) -> bool {
        let entry = self.owners.get(uid);
        entry.is_some_and(|entry| entry.wanted != entry.written)
    }

    /// The next report to delete: kind, namespace and uid of its owner.
    pub fn next_to_delete(&mut self) -> Option<(Kind, Arc<str>, Box<str>)> {
        loop {
            let uid = self.clean.iter().next()?.clone();
            self.clean.remove(&uid);
            let entry = self.owners.get(&uid);
            if let Some(entry) = entry.filter(|entry| entry.wanted.is_none() && entry.written.is_some()) {
                return Some((entry.kind, Arc::clone(&entry.namespace), uid));
            }
        }
    }

    /// Compares with the complete list of stored reports; returns the namespaces in which reports are missing.
    pub fn without_report(&mut self, is_there: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let lost = (self.owners.iter()).filter(|(uid, entry)| entry.written.is_some() && !is_there(uid));
        let lost: Vec<Box<str>> = lost.map(|(uid, _)| uid.clone()).collect();
        for uid in &lost {
            self.written(uid, None, None);
        }
        let lost = lost.iter().filter_map(|uid| self.owners.get(uid));
        let lost = lost.filter(|entry| entry.wanted.is_some());
        lost.map(|entry| entry.namespace.to_string()).collect()
    }

    /// Whether an owner has findings to report.
    pub fn has_findings(&self, uid: &str) -> bool {
        self.owners.get(uid).is_some_and(|entry| entry.wanted.is_some())
    }

    /// Drops all stored reports: the resource definition was deleted, or another report API is used.
    pub fn forget_reports(&mut self) {
        self.clean.clear();
        self.owners.retain(|_, entry| {
            entry.written = None;
            entry.version = None;
            entry.wanted.is_some()
        });
    }

    /// A pass of a kind begins: objects that change from now on are not updated from the pass.
    pub fn begins(&mut self, kind: Kind) {
        self.touched.insert(kind, HashSet::new());
    }

    /// Records that an object of a kind has changed.
    pub fn touch(&mut self, kind: Kind, uid: &str) {
        if let Some(touched) = self.touched.get_mut(&kind) {
            touched.insert(uid.into());
        }
    }

    /// Whether an object has changed since the pass of its kind began.
    pub fn is_touched(&self, kind: Kind, uid: &str) -> bool {
        self.touched
            .get(&kind)
            .is_some_and(|touched| touched.contains(uid))
    }

    /// A pass of a kind has read everything: objects that it did not see are gone, or never had findings. Returns the
    /// namespaces of objects that are gone and represented others.
    pub fn ends(&mut self, kind: Kind, pass: u64) -> BTreeSet<String> {
        let touched = self.touched.remove(&kind).unwrap_or_default();
        let unseen = self
            .owners
            .iter()
            .filter(|(uid, entry)| entry.kind == kind && entry.pass < pass && !touched.contains(*uid));
        let unseen: Vec<Box<str>> = unseen.map(|(uid, _)| uid.clone()).collect();
        for uid in unseen {
            self.is_clean(&uid);
        }
        self.unreadable
            .retain(|_, (which, seen)| which.kind != kind || *seen >= pass);
        if self.full.get(&kind).is_some_and(|left_out| *left_out < pass) {
            self.full.remove(&kind);
        }
        let gone = self
            .standing_for
            .values()
            .filter(|one| one.kind == kind && one.pass < pass && !touched.contains(&one.uid));
        let gone: Vec<(Box<str>, String)> = gone
            .map(|one| (one.uid.clone(), one.namespace.to_string()))
            .collect();
        let freed = gone.into_iter().filter(|(uid, _)| self.stands_no_more(uid));
        freed.map(|(_, namespace)| namespace).collect()
    }

    /// A pass ended before it had read everything.
    pub fn breaks_off(&mut self, kind: Kind) {
        self.touched.remove(&kind);
    }

    /// Findings by namespace, rule and action.
    pub fn series(&self) -> impl Iterator<Item = (&Series, u64)> {
        self.series.iter().map(|(series, count)| (series, *count))
    }

    /// The objects that cannot be read.
    pub fn all_unreadable(&self) -> impl ExactSizeIterator<Item = &UnreadableObject> {
        self.unreadable.values().map(|(which, _)| which)
    }

    /// Whether there are more owners with findings than the maximum.
    pub fn is_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Whether there is room again for omitted owners.
    pub fn has_room_again(&self) -> bool {
        self.is_full() && self.owners.len() < MOST_OWNERS - MOST_OWNERS / 10
    }

    /// How many reports are still to be written or deleted.
    pub fn behind(&self) -> usize {
        self.owners
            .values()
            .filter(|entry| entry.wanted != entry.written)
            .count()
    }

    fn add(&mut self, entry: &OwnerEntry) {
        for (rule, action, count) in &entry.counts {
            let series = (Arc::clone(&entry.namespace), *rule, *action);
            *self.series.entry(series).or_default() += u64::from(*count);
        }
    }

    fn remove(&mut self, uid: &str) -> Option<OwnerEntry> {
        let entry = self.owners.remove(uid)?;
        for (rule, action, count) in &entry.counts {
            let series = (Arc::clone(&entry.namespace), *rule, *action);
            if let Some(sum) = self.series.get_mut(&series) {
                *sum = sum.saturating_sub(u64::from(*count));
                if *sum == 0 {
                    self.series.remove(&series);
                }
            }
        }
        Some(entry)
    }

    /// Returns one shared copy of each namespace's name.
    fn shared(&mut self, namespace: &str) -> Arc<str> {
        if let Some(known) = self.names.get(namespace) {
            return Arc::clone(known);
        }
        if self.names.len() >= MOST_OWNERS {
            self.names.clear();
        }
        let name: Arc<str> = namespace.into();
        self.names.insert(Arc::clone(&name));
        name
    }
}

fn counted(owner_result: &OwnerResult) -> Box<[(&'static str, &'static str, u32)]> {
    let mut counts: BTreeMap<(&'static str, &'static str), u32> = BTreeMap::new();
    for found in reported(owner_result) {
        if let Some(action) = action(found) {
            *counts.entry((found.rule, action)).or_default() += 1;
        }
    }
    let counts = counts.into_iter();
    counts
        .map(|((rule, action), count)| (rule, action, count))
        .collect()
}
