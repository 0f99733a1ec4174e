//! From the objects of a cluster, one after the other, to the report; pure. What it keeps grows with what there is to say, and
//! with the owners of running pods, not with the pods.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::RandomState;

use jiff::Timestamp;

use super::dedup::{DedupKey, dedup_key, is_at_zero};
use super::evaluate::{Evaluated, evaluate_object};
use super::pods::{PodContext, trouble};
use super::report::{
    NamespaceReport, NodeReport, PodTrouble, SCHEMA, ScanGap, ScanReport, ScanSummary, ScannedCluster,
};
use super::result::OwnerResult;
use crate::model::json::at;
use crate::model::object::{Object, ReviewStage};
use crate::model::os::Verdict;
use crate::model::text::cut;
use crate::model::workload::Kind;

/// How many objects that cannot be read are named.
const NAMED: usize = 20;
/// How many owners are kept at most; the rest is counted.
pub(crate) const MOST_OWNERS: usize = 20_000;
/// How many pods in trouble are kept at most; the rest is counted.
const MOST_PODS: usize = 10_000;
/// How much of a reason is kept, in bytes.
const LONGEST_REASON: usize = 300;

/// Whether an object with these labels is meant.
type ObjectFilter<'s> = dyn Fn(&BTreeMap<String, String>) -> bool + Sync + 's;

/// A scan on its way.
pub struct Scan<'s> {
    pod_context: &'s PodContext<'s>,
    now: Timestamp,
    summary: ScanSummary,
    owners: Vec<OwnerResult>,
    pods: Vec<PodTrouble>,
    gaps: Vec<ScanGap>,
    /// What made a ReplicaSet or a Job of which there may be pods: kind, namespace and name, to the owner as a person knows it.
    made_by: HashMap<(Kind, String, String), String>,
    foreign: KnownDuplicates,
    left_out: SkippedObjects,
    /// Which objects are meant, by their labels; every one if unset.
    is_meant: Option<&'s ObjectFilter<'s>>,
}

/// What is only counted.
#[derive(Default)]
struct SkippedObjects {
    owners: usize,
    pods: usize,
}

/// The owners of kinds that are not judged of which an object like the next was judged already, as numbers.
#[derive(Debug, Default)]
pub(crate) struct KnownDuplicates {
    seen: HashSet<u64>,
    hashes: RandomState,
}

impl KnownDuplicates {
    /// Whether this pod or ReplicaSet of an owner that is not judged is like one that was judged, or history.
    pub(crate) fn is_seen(&mut self, subject: &Object<'_>, json: &str) -> bool {
        match dedup_key(subject, json, &self.hashes) {
            DedupKey::None => false,
            DedupKey::AtZero => true,
            DedupKey::Of(number) => !self.seen.insert(number),
        }
    }
}

/// What frames the report.
pub struct ReportHeader {
    /// Which cluster.
    pub cluster: ScannedCluster,
    /// The words of policies that counted instead of those that are stored.
    pub judged_as: Vec<String>,
    /// The Windows nodes.
    pub nodes: Vec<NodeReport>,
}

impl<'s> Scan<'s> {
    /// A scan that has seen nothing yet.
    pub fn new(pod_context: &'s PodContext<'s>, now: Timestamp) -> Self {
        Scan {
            pod_context,
            now,
            summary: ScanSummary::default(),
            owners: Vec::new(),
            pods: Vec::new(),
            gaps: Vec::new(),
            made_by: HashMap::new(),
            foreign: KnownDuplicates::default(),
            left_out: SkippedObjects::default(),
            is_meant: None,
        }
    }

    /// Reports only objects with the labels that are meant.
    pub fn only(&mut self, is_meant: &'s ObjectFilter<'s>) {
        self.is_meant = Some(is_meant);
    }

    /// How many objects were looked at.
    pub fn objects(&self) -> usize {
        self.summary.objects
    }

    /// Notes what could not be read.
    pub fn gap(&mut self, gap: ScanGap) {
        self.gaps.push(gap);
    }

    /// Looks at one object, as JSON. Owners come before what they own.
    pub fn visit(&mut self, kind: Kind, json: &str) {
        self.summary.objects += 1;
        let subject = match Object::parse(kind, json, ReviewStage::Stored) {
            Ok(subject) => subject,
            Err(error) => return self.unreadable(kind, json, &error.to_string()),
        };
        let owner = self.owner(&subject);
        let is_meant = self.is_meant.is_none_or(|is_meant| {
            let labels = subject.meta.labels.iter();
            is_meant(
                &labels
                    .map(|(key, value)| (key.to_string(), value.to_string()))
                    .collect(),
            )
        });
        if is_meant && !self.foreign.is_seen(&subject, json) {
            match evaluate_object(self.pod_context.eval_context, &subject, json) {
                Ok(Evaluated::Judged(judged)) => self.add_result(*judged),
                Ok(Evaluated::Owned(..) | Evaluated::Passed(_)) => {}
                Err(error) => return self.unreadable(kind, json, &error.to_string()),
            }
        }
        if kind == Kind::Pod
            && is_meant
            && let Some(trouble) = trouble(&subject, json, owner.as_deref(), self.pod_context, self.now)
        {
            self.pod(trouble);
        } else if matches!(kind, Kind::ReplicaSet | Kind::Job)
            && let Some(owner) = owner
            && !is_at_zero(kind, json)
        {
            let place = (kind, subject.namespace.to_string(), subject.meta.name.to_string());
            self.made_by.insert(place, owner);
        }
    }

    /// The top owner of an object, as a person knows it.
    fn owner(&self, subject: &Object<'_>) -> Option<String> {
        let owner = subject.meta.controller()?;
        let above = subject.owner_kind().and_then(|kind| {
            let place = (kind, subject.namespace.to_string(), owner.name.to_string());
            self.made_by.get(&place).cloned()
        });
        Some(above.unwrap_or_else(|| format!("{} {}", owner.kind, owner.name)))
    }

    fn add_result(&mut self, judged: OwnerResult) {
        self.summary.count(&judged);
        if judged.is_clean() && judged.verdict != Verdict::Windows {
            return;
        }
        if self.owners.len() < MOST_OWNERS {
            self.owners.push(judged);
        } else {
            self.left_out.owners += 1;
        }
    }

    fn pod(&mut self, trouble: PodTrouble) {
        if trouble.wrong.is_misplaced() {
            self.summary.misplaced += 1;
        } else {
            self.summary.pending += 1;
        }
        if self.pods.len() < MOST_PODS {
            self.pods.push(trouble);
        } else {
            self.left_out.pods += 1;
        }
    }

    fn unreadable(&mut self, kind: Kind, json: &str, why: &str) {
        self.summary.unreadable += 1;
        if self.summary.unreadable > NAMED {
            return;
        }
        let field = |name: &str| -> String {
            let text = at(json, &["metadata", name]).unwrap_or_default();
            serde_json::from_str(text).unwrap_or_default()
        };
        self.gaps.push(ScanGap {
            what: format!("{kind} {}/{}", field("namespace"), field("name")),
            why: format!("it cannot be read: {}", cut(why, LONGEST_REASON)),
            cure: Some(format!(
                "look at it with kubectl get {} --output yaml, and write it again",
                kind.as_str().to_lowercase()
            )),
        });
    }

    /// The report.
    pub fn report(mut self, frame: ReportHeader) -> ScanReport {
        self.count_what_is_left_out();
        let key = |judged: &OwnerResult| {
            (
                judged.namespace.clone(),
                judged.kind.as_str(),
                judged.name.clone(),
            )
        };
        self.owners.sort_by_cached_key(key);
        self.pods
            .sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let namespaces = self.namespaces();
        ScanReport {
            schema: SCHEMA,
            at: self.now,
            cluster: frame.cluster,
            judged_as: frame.judged_as,
            summary: self.summary,
            nodes: frame.nodes,
            namespaces,
            owners: self.owners,
            pods: self.pods,
            gaps: self.gaps,
        }
    }

    fn count_what_is_left_out(&mut self) {
        let unnamed = self.summary.unreadable.saturating_sub(NAMED);
        let counts = [
            (unnamed, "objects", "they cannot be read either"),
            (
                self.left_out.owners,
                "owners",
                "the report holds no more; they are in its counts",
            ),
            (
                self.left_out.pods,
                "pods in trouble",
                "the report holds no more; they are in its counts",
            ),
        ];
        for (count, what, why) in counts.into_iter().filter(|(count, ..)| *count > 0) {
            self.gaps.push(ScanGap {
                what: format!("{count} more {what}"),
                why: why.to_owned(),
                cure: Some("scan one namespace after the other with --namespace".to_owned()),
            });
        }
    }

    fn namespaces(&self) -> Vec<NamespaceReport> {
        let eval_context = self.pod_context.eval_context;
        let of_owners = self.owners.iter().map(|judged| &judged.namespace);
        let of_pods = self.pods.iter().map(|pod| &pod.namespace);
        let mut all: BTreeMap<&str, NamespaceReport> = BTreeMap::new();
        for name in of_owners.chain(of_pods) {
            all.entry(name).or_insert_with(|| {
                let policy = eval_context.policy_in(name);
                NamespaceReport {
                    name: name.clone(),
                    policy: policy.name.clone(),
                    validation: policy.validation.as_str(),
                    placement: policy.placement.as_str(),
                    not_asked: eval_context.not_asked(name).map(|why| why.words(name)),
                }
            });
        }
        all.into_values().collect()
    }
}

#[cfg(test)]
mod tests;
