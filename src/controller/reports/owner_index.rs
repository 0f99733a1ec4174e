//! State of the top-level owners that have findings: counts, and a hash of the content of each report, as it should be
//! and as it is stored. The objects themselves are not kept. Without IO: from what is known and what is stored it plans
//! the writes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::evaluator::ObjectEvaluation;
use super::finding_counts::{FindingCounts, OwnerFindings, Series, findings_of};
use super::report::content;
use super::representatives::{Representatives, Represents};
use super::write_queue::{ObservationSource, WriteQueue};
use crate::cluster::rate_limit::backoff_interval;
use crate::cluster::stored::ObjectHeadMeta;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::scan::{DedupKey, OwnerResult};

/// The maximum number of owners. Findings of further owners are neither counted nor reported.
pub const MOST_OWNERS: usize = 50_000;
/// The hash of a report that another client has edited: unlike any desired one.
const EDITED: u64 = 0;
/// The maximum number of owners with an unlisted controller, or denied by their RuntimeClass, that are kept by name.
const MOST_UNLISTED: usize = 1_000;
/// The maximum number of unreadable objects that are kept by name.
const MOST_UNREADABLE: usize = 1_000;

/// An owner with findings, or with a report that is not deleted yet.
#[derive(Debug)]
struct OwnerEntry {
    kind: Kind,
    namespace: Arc<str>,
    name: Box<str>,
    /// The hash of the desired report; `None`: no report.
    wanted: Option<u64>,
    /// The hash of the stored report; `None`: there is none.
    written: Option<u64>,
    /// The resourceVersion of its report, if known.
    version: Option<u64>,
    /// The hash of the findings last announced without a report.
    notified: Option<u64>,
    /// In which queue it waits, if in one. A write in progress is a change.
    queued: Option<ObservationSource>,
    /// How many writes failed in a row.
    failures: u32,
    /// Findings by rule and action.
    counts: OwnerFindings,
    /// The last pass that saw it, or the first one after a change.
    pass: u64,
}

impl OwnerEntry {
    fn new(kind: Kind, namespace: Arc<str>, name: &str) -> Self {
        OwnerEntry {
            kind,
            namespace,
            name: name.into(),
            wanted: None,
            written: None,
            version: None,
            notified: None,
            queued: None,
            failures: 0,
            counts: Box::default(),
            pass: 0,
        }
    }
}

/// A report as stored, as far as it is compared.
#[derive(Clone, Debug)]
pub struct WrittenReport {
    /// The kind of its owner.
    pub kind: Kind,
    /// Its owner, with its uid; in the namespace of the report.
    pub owner: WorkloadName,
    /// The hash of its content; 0 if it cannot be read.
    pub content_hash: u64,
    /// Its resourceVersion, if it is a number.
    pub version: Option<u64>,
}

/// What follows from the evaluation of an object, besides a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recorded {
    /// It is a top-level owner, and the one that is evaluated among similar ones.
    pub is_representative: bool,
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
    Write(u64),
    Delete,
    /// The cluster serves no reports: only the Event on the owner.
    Announce(u64),
}

/// An object that cannot be read, its display name, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableObject {
    pub kind: Kind,
    /// For example `shop/web`.
    pub name: String,
    pub why: String,
}

/// The state that is kept between two evaluations of an object.
#[derive(Debug, Default)]
pub struct OwnerIndex {
    owners: HashMap<Box<str>, OwnerEntry>,
    unreadable: BTreeMap<Box<str>, (UnreadableObject, u64)>,
    queue: WriteQueue,
    /// Whether the cluster serves a kind of report.
    has_reports: bool,
    /// The number of the current pass, by kind.
    passes: HashMap<Kind, u64>,
    /// The kinds of which every object was read once.
    listed: HashSet<Kind>,
    findings: FindingCounts,
    names: HashSet<Arc<str>>,
    representatives: Representatives,
    /// The last pass in which owners were omitted because there were too many, by kind.
    full: HashMap<Kind, u64>,
    /// Owners that would be denied and whose controllers are not listed.
    unlisted: NamedOwners,
    /// Owners that would be denied and are for Windows only by their RuntimeClass.
    by_class: NamedOwners,
}

/// The policy and the title of owners, by their uids.
type NamedOwners = BTreeMap<Box<str>, (String, String)>;

/// Names of objects, by the policy that they are about.
pub type ByPolicy = BTreeMap<String, BTreeSet<String>>;

fn by_policy(owners: &NamedOwners) -> ByPolicy {
    let mut by_policy = ByPolicy::new();
    for (policy, title) in owners.values() {
        by_policy.entry(policy.clone()).or_default().insert(title.clone());
    }
    by_policy
}

impl OwnerIndex {
    /// Records a stored report, written by an earlier leader, by this one, or edited by another client. One that is not as
    /// it should be is written again.
    pub fn found(&mut self, report: &WrittenReport) {
        let uid = &*report.owner.uid;
        let Some(entry) = self.owners.get_mut(uid) else {
            return self.adopt(report);
        };
        if *entry.namespace != *report.owner.namespace {
            // Somebody wrote it: an owner and its report are in one namespace.
            return;
        }
        if entry.version.is_some() && report.version < entry.version {
            // This replica has written it since.
            return;
        }
        // If the stored content was not the desired one before either, a write is already in progress.
        let is_written = entry.wanted.is_some() && entry.written == entry.wanted;
        // An edit may keep the annotation with the hash: another version is another client's.
        let is_other = entry.version.is_some() && report.version != entry.version;
        let is_edited = is_written && (is_other || entry.wanted != Some(report.content_hash));
        entry.written = Some(if is_edited { EDITED } else { report.content_hash });
        entry.version = report.version;
        if is_edited {
            self.enqueue(uid, ObservationSource::Watch);
        }
    }

    /// Records the report of an owner that is not known: the list of its kind decides about it, or, after that list, the
    /// owner itself.
    fn adopt(&mut self, report: &WrittenReport) {
        if self.owners.len() >= MOST_OWNERS {
            return;
        }
        let owner = &report.owner;
        let namespace = self.shared(&owner.namespace);
        let entry = OwnerEntry {
            written: Some(report.content_hash),
            version: report.version,
            ..OwnerEntry::new(report.kind, namespace, &owner.name)
        };
        self.owners.insert(owner.uid.clone(), entry);
        if self.listed.contains(&report.kind) {
            self.enqueue(&owner.uid, ObservationSource::Watch);
        }
    }

    /// Records that a stored report is gone.
    pub fn missing(&mut self, report: &WrittenReport) {
        let owner = &report.owner;
        let entry = self.owners.get(&owner.uid);
        if entry.is_some_and(|entry| *entry.namespace == *owner.namespace) {
            self.is_stored(&owner.uid, None, None);
        }
    }

    /// Records the evaluation of an object.
    pub fn record(
        &mut self,
        kind: Kind,
        object: &ObjectHeadMeta<'_>,
        evaluation: &ObjectEvaluation,
        source: ObservationSource,
    ) -> Recorded {
        let uid = object.uid.as_str();
        let mut recorded = Recorded::default();
        match evaluation {
            ObjectEvaluation::Owned | ObjectEvaluation::Skipped => self.is_clean(uid, source),
            ObjectEvaluation::Unreadable(why) => {
                self.drop_report(uid, source);
                let object = UnreadableObject {
                    kind,
                    name: format!("{}/{}", object.namespace, object.name),
                    why: why.clone(),
                };
                recorded.is_newly_unreadable = self.unreadable(uid, object);
            }
            ObjectEvaluation::Owner(owner, key, _) => {
                let represents = self.represents(*key, kind, owner);
                recorded.is_representative = represents.is_representative;
                recorded.has_freed = represents.has_freed;
                if represents.is_representative {
                    self.record_result(owner, source);
                } else {
                    self.is_clean(uid, source);
                }
            }
        }
        recorded
    }

    fn represents(&mut self, key: DedupKey, kind: Kind, owner: &OwnerResult) -> Represents {
        let like = match key {
            DedupKey::Of(like) => like,
            DedupKey::None => return Represents::of(true, false),
            DedupKey::AtZero => return Represents::of(false, self.representatives.remove(&owner.uid)),
        };
        let (namespace, pass) = (self.shared(&owner.namespace), self.pass(kind));
        self.representatives
            .record(like, kind, &namespace, &owner.uid, pass)
    }

    /// Records the evaluation of an owner.
    pub fn record_result(&mut self, owner_result: &OwnerResult, source: ObservationSource) {
        let uid = owner_result.uid.as_str();
        self.unreadable.remove(uid);
        let Some(wanted) = content(owner_result) else {
            return self.is_clean(uid, source);
        };
        let pass = self.pass(owner_result.kind);
        if !self.owners.contains_key(uid) && self.owners.len() >= MOST_OWNERS {
            self.full.insert(owner_result.kind, pass);
            return;
        }
        let namespace = self.shared(&owner_result.namespace);
        let before = self.remove(uid).filter(|before| before.namespace == namespace);
        let new = || OwnerEntry::new(owner_result.kind, namespace, &owner_result.name);
        let entry = OwnerEntry {
            wanted: Some(wanted),
            counts: findings_of(owner_result),
            pass,
            ..before.unwrap_or_else(new)
        };
        self.findings.add(&entry.namespace, &entry.counts);
        self.owners.insert(uid.into(), entry);
        let OwnerResult {
            policy,
            namespace,
            name,
            ..
        } = owner_result;
        let unlisted = owner_result.unlisted_controller.as_ref();
        let unlisted = unlisted.map(|kind| format!("{kind} {namespace}/{name}"));
        let class = owner_result.denied_by_class.as_ref();
        let by_class = class.map(|class| format!("{} (RuntimeClass {class})", owner_result.title()));
        for (named, title) in [(&mut self.unlisted, unlisted), (&mut self.by_class, by_class)] {
            let title = title.filter(|_| named.len() < MOST_UNLISTED);
            named.extend(title.map(|title| (uid.into(), (policy.clone(), title))));
        }
        self.enqueue(uid, source);
    }

    /// The owners that would be denied and whose controllers are not listed.
    pub fn unlisted_controllers(&self) -> ByPolicy {
        by_policy(&self.unlisted)
    }

    /// The owners that would be denied and are for Windows only by their RuntimeClass.
    pub fn denied_by_class(&self) -> ByPolicy {
        by_policy(&self.by_class)
    }

    /// Records that an object has no findings: its report is deleted.
    pub fn is_clean(&mut self, uid: &str, source: ObservationSource) {
        self.unreadable.remove(uid);
        self.drop_report(uid, source);
    }

    fn drop_report(&mut self, uid: &str, source: ObservationSource) {
        let Some(before) = self.remove(uid) else { return };
        if before.written.is_some() {
            let entry = OwnerEntry {
                wanted: None,
                counts: Box::default(),
                ..before
            };
            self.owners.insert(uid.into(), entry);
            self.enqueue(uid, source);
        }
    }

    /// Records that an object is gone; its report is garbage-collected. Returns whether it represented others.
    pub fn gone(&mut self, uid: &str) -> bool {
        self.unreadable.remove(uid);
        self.remove(uid);
        self.representatives.remove(uid)
    }

    /// Records that an object could not be read; returns whether this is new.
    pub fn unreadable(&mut self, uid: &str, which: UnreadableObject) -> bool {
        let pass = self.pass(which.kind);
        let known = self.unreadable.get(uid).map(|(before, _)| *before == which);
        if known.is_some() || self.unreadable.len() < MOST_UNREADABLE {
            self.unreadable.insert(uid.into(), (which, pass));
        }
        known != Some(true)
    }

    /// What to do about the report of an owner.
    pub fn plan(&self, uid: &str) -> ReportAction {
        let Some(entry) = self.owners.get(uid) else {
            return ReportAction::Nothing;
        };
        match (entry.wanted, self.has_reports) {
            (Some(wanted), true) if entry.written != Some(wanted) => ReportAction::Write(wanted),
            (Some(wanted), false) if entry.notified != Some(wanted) => ReportAction::Announce(wanted),
            (None, true) if entry.written.is_some() => ReportAction::Delete,
            _ => ReportAction::Nothing,
        }
    }

    /// The next owner with something to do; [`finished`](Self::finished), [`written`](Self::written) or
    /// [`failed`](Self::failed) ends it.
    pub fn next_write(&mut self, now: Instant) -> Option<(Kind, WorkloadName)> {
        loop {
            let uid = self.queue.pop(now)?;
            let Some(entry) = self.owners.get_mut(&uid) else {
                continue;
            };
            entry.queued = Some(ObservationSource::Watch);
            let owner = WorkloadName::of(entry.kind, &entry.namespace, &entry.name).with_uid(&uid);
            let kind = entry.kind;
            if self.plan(&uid) == ReportAction::Nothing {
                self.finished(&uid);
                continue;
            }
            return Some((kind, owner));
        }
    }

    fn enqueue(&mut self, uid: &str, source: ObservationSource) {
        if self.plan(uid) == ReportAction::Nothing {
            return;
        }
        if let Some(entry) = self.owners.get_mut(uid)
            && entry.queued < Some(source)
        {
            entry.queued = Some(source);
            self.queue.push(uid, source);
        }
    }

    /// Nothing more is to be done for an owner.
    pub fn finished(&mut self, uid: &str) {
        if let Some(entry) = self.owners.get_mut(uid) {
            entry.queued = None;
        }
    }

    /// A write has failed: again after `first`, and ever later.
    pub fn failed(&mut self, uid: &str, now: Instant, first: Duration) {
        if let Some(entry) = self.owners.get_mut(uid) {
            entry.queued = None;
            entry.failures = entry.failures.saturating_add(1);
            let due = now + backoff_interval(first, entry.failures);
            self.queue.push_later(uid, due);
        }
    }

    /// Records that the Event on an owner was published without a report.
    pub fn announced(&mut self, uid: &str, content: u64) {
        if let Some(entry) = self.owners.get_mut(uid) {
            (entry.notified, entry.queued) = (Some(content), None);
        }
    }

    /// This replica has written a report, or deleted it (`content_hash` is `None`).
    pub fn written(&mut self, uid: &str, content_hash: Option<u64>, version: Option<u64>) {
        let Some(entry) = self.owners.get_mut(uid) else {
            return;
        };
        (entry.failures, entry.queued) = (0, None);
        if version.is_some() && version < entry.version {
            // Another client has edited it since.
            let version = entry.version;
            self.is_stored(uid, Some(EDITED), version);
        } else {
            self.is_stored(uid, content_hash, version);
        }
    }

    /// Records what is stored. If it is not what it should be, its report is written or deleted.
    fn is_stored(&mut self, uid: &str, content_hash: Option<u64>, version: Option<u64>) {
        let Some(entry) = self.owners.get_mut(uid) else {
            return;
        };
        (entry.written, entry.version) = (content_hash, version);
        if entry.wanted.is_none() && content_hash.is_none() {
            self.remove(uid);
        } else {
            self.enqueue(uid, ObservationSource::Watch);
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

    /// Compares with the complete list of stored reports: those that are not there are written again.
    pub fn without_report(&mut self, is_there: impl Fn(&str) -> bool) {
        let lost = (self.owners.iter()).filter(|(uid, entry)| entry.written.is_some() && !is_there(uid));
        let lost: Vec<Box<str>> = lost.map(|(uid, _)| uid.clone()).collect();
        for uid in lost {
            self.is_stored(&uid, None, None);
        }
    }

    /// Drops all stored reports: the resource definition was created or deleted, or another report API is used.
    pub fn forget_reports(&mut self, has_reports: bool) {
        self.has_reports = has_reports;
        self.owners.retain(|_, entry| {
            entry.written = None;
            entry.version = None;
            entry.wanted.is_some()
        });
        let all: Vec<Box<str>> = self.owners.keys().cloned().collect();
        for uid in all {
            self.enqueue(&uid, ObservationSource::List);
        }
    }

    /// A sweep of all objects of a kind begins.
    pub fn begin_pass(&mut self, kind: Kind) {
        *self.passes.entry(kind).or_default() += 1;
    }

    /// The number of the current pass of a kind; 0 before the first.
    pub fn pass(&self, kind: Kind) -> u64 {
        self.passes.get(&kind).copied().unwrap_or_default()
    }

    /// A pass of a kind has read everything: objects that it did not see are gone, or never had findings. Returns the
    /// namespaces of objects that are gone and represented others.
    pub fn end_pass(&mut self, kind: Kind) -> BTreeSet<String> {
        let pass = self.pass(kind);
        self.listed.insert(kind);
        let unseen = self.owners.iter();
        let unseen = unseen.filter(|(_, entry)| entry.kind == kind && entry.pass < pass);
        let unseen: Vec<Box<str>> = unseen.map(|(uid, _)| uid.clone()).collect();
        for uid in unseen {
            self.is_clean(&uid, ObservationSource::List);
        }
        self.unreadable
            .retain(|_, (which, seen)| which.kind != kind || *seen >= pass);
        if self.full.get(&kind).is_some_and(|omitted| *omitted < pass) {
            self.full.remove(&kind);
        }
        self.representatives.end_pass(kind, pass)
    }

    /// Whether every object of a kind was read once.
    pub fn is_listed(&self, kind: Kind) -> bool {
        self.listed.contains(&kind)
    }

    /// Findings by namespace, rule and action.
    pub fn series(&self) -> impl Iterator<Item = (&Series, u64)> {
        self.findings.series()
    }

    /// The objects that cannot be read.
    pub fn all_unreadable(&self) -> impl ExactSizeIterator<Item = &UnreadableObject> {
        self.unreadable.values().map(|(which, _)| which)
    }

    /// Whether there are more owners with findings than the maximum.
    pub fn is_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Whether there is room again for omitted owners, which must then be listed again. True once.
    pub fn takes_room_again(&mut self) -> bool {
        let has_room = self.is_full() && self.owners.len() < MOST_OWNERS - MOST_OWNERS / 10;
        if has_room {
            self.full.clear();
        }
        has_room
    }

    /// How many reports are still to be written or deleted.
    pub fn behind(&self) -> usize {
        self.owners
            .values()
            .filter(|entry| entry.wanted != entry.written)
            .count()
    }

    fn remove(&mut self, uid: &str) -> Option<OwnerEntry> {
        self.unlisted.remove(uid);
        self.by_class.remove(uid);
        let entry = self.owners.remove(uid)?;
        self.findings.remove(&entry.namespace, &entry.counts);
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
