//! Builds the report from the objects of a cluster, one at a time. Pure. Its memory grows with the number of
//! results and of owners of running pods, not with the number of pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;

use super::dedup::is_at_zero;
use super::evaluate::{Evaluated, evaluate_object};
use super::network_objects::NetworkObjects;
use super::pods::{PodContext, trouble};
use super::report::{
    NamespaceReport, PodFinding, PodProblem, SCHEMA, ScanGap, ScanReport, ScanSummary, ScannedCluster,
    ScannedNode,
};
use super::required_taints::RequiredTaints;
use super::result::OwnerResult;
use super::stored_evaluations::{StoredEvaluations, UnreadableObjects};
use crate::engine::NodeFinding;
use crate::model::cluster::facts::{LINUX_CLASSES, WindowsWorkload};
use crate::model::nodes::node::Taint;
use crate::model::objects::object::{Object, ReviewStage};
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::text::{count, list, object_title, shown};
use crate::model::windows::os::Verdict;
use crate::rules::MISSING_WINDOWS_TOLERATION;

/// How many owners are kept at most; the rest are only counted.
pub const MOST_OWNERS: usize = 20_000;
/// How many DaemonSets that do not tolerate a taint are named, or workloads of a missing RuntimeClass.
const MOST_UNTOLERATING: usize = 20;
/// How many RuntimeClasses that do not exist are named.
const MOST_CLASSES: usize = 100;
/// How many pods with problems are kept at most; the rest are only counted.
const MOST_PODS: usize = 10_000;

/// Whether an object with these labels is selected.
type ObjectFilter<'s> = dyn Fn(&BTreeMap<String, String>) -> bool + Sync + 's;

/// A scan in progress.
pub struct Scan<'s> {
    pod_context: &'s PodContext<'s>,
    now: Timestamp,
    summary: ScanSummary,
    owners: Vec<OwnerResult>,
    pods: Vec<PodFinding>,
    gaps: Vec<ScanGap>,
    /// The owners of ReplicaSets and Jobs that may have pods, by the ReplicaSet or Job.
    made_by: HashMap<WorkloadName, WorkloadName>,
    stored: StoredEvaluations,
    unreadable: UnreadableObjects,
    left_out: SkippedObjects,
    /// Selects objects by their labels; `None` selects every object.
    is_meant: Option<&'s ObjectFilter<'s>>,
    /// What NetworkPolicies are evaluated with.
    network: NetworkObjects,
    /// The nodes that lack taints that node policies require.
    required: RequiredTaints<'s>,
    /// The DaemonSets that do not tolerate these, by taint.
    untolerating: BTreeMap<Taint, Vec<String>>,
    /// The workloads that name a RuntimeClass which does not exist, by its name. Nothing says what they are for.
    of_missing_classes: BTreeMap<String, Vec<String>>,
}

/// What is counted but not kept.
#[derive(Default)]
struct SkippedObjects {
    owners: usize,
    pods: usize,
}

/// The parts of the report that do not come from the objects.
pub struct ReportHeader {
    pub cluster: ScannedCluster,
    /// The policy settings that replaced the stored ones.
    pub assumed: Vec<String>,
    /// The options that limited the scan.
    pub limited_to: Vec<String>,
    /// The Windows nodes.
    pub nodes: Vec<ScannedNode>,
    /// What the rules report of them.
    pub node_findings: Vec<NodeFinding>,
    /// The images of which registries report nothing, with the reason.
    pub notes: Vec<String>,
}

impl<'s> Scan<'s> {
    /// A scan without any objects yet.
    pub fn new(pod_context: &'s PodContext<'s>, now: Timestamp) -> Self {
        Scan {
            pod_context,
            now,
            summary: ScanSummary::default(),
            owners: Vec::new(),
            pods: Vec::new(),
            gaps: Vec::new(),
            made_by: HashMap::new(),
            stored: StoredEvaluations::default(),
            unreadable: UnreadableObjects::default(),
            left_out: SkippedObjects::default(),
            is_meant: None,
            network: NetworkObjects::default(),
            required: RequiredTaints::default(),
            untolerating: BTreeMap::new(),
            of_missing_classes: BTreeMap::new(),
        }
    }

    /// Notes the DaemonSets that do not tolerate the taints that these nodes lack.
    pub fn require(&mut self, required: RequiredTaints<'s>) {
        self.required = required;
    }

    /// Limits the report to objects whose labels are selected.
    pub fn only(&mut self, is_meant: &'s ObjectFilter<'s>) {
        self.is_meant = Some(is_meant);
    }

    /// How many objects were read.
    pub fn objects(&self) -> usize {
        self.summary.objects
    }

    /// Records something that could not be read.
    pub fn gap(&mut self, gap: ScanGap) {
        self.gaps.push(gap);
    }

    /// Whether NetworkPolicies can have a finding: there are Windows pods, and nothing enforces NetworkPolicies for them.
    pub fn needs_network_policies(&mut self) -> bool {
        self.network
            .added_to(self.pod_context.eval_context.facts)
            .is_some()
    }

    /// Adds one object, given as JSON. Owners must come before their children, and NetworkPolicies after everything else.
    pub fn visit(&mut self, kind: Kind, json: &str) {
        self.summary.objects += 1;
        let subject = match Object::parse(kind, json, ReviewStage::Stored) {
            Ok(subject) => subject,
            Err(error) => return self.unreadable.add(kind, json, &error),
        };
        if kind == Kind::NetworkPolicy {
            return self.network_policy(&subject, json);
        }
        let owner = self.owner(&subject);
        let is_meant = self
            .is_meant
            .is_none_or(|is_meant| is_meant(&subject.meta.labels.to_owned_map()));
        let eval_context = self.pod_context.eval_context;
        // Owners come first, whether they are meant or not.
        self.stored.record(eval_context, &subject);
        let mut workload = None;
        if is_meant {
            match self.stored.evaluate(eval_context, &subject, json) {
                Ok(owner_result) => {
                    if let Some(owner_result) = owner_result {
                        let is_windows = owner_result.verdict == Verdict::Windows;
                        workload = is_windows.then(|| WindowsWorkload::of(&subject)).flatten();
                        if owner_result.verdict == Verdict::Unknown {
                            self.missing_class(&subject);
                        }
                        self.add_result(owner_result);
                    }
                    let lacking = self.required.untolerated(eval_context, &subject);
                    for taint in lacking.into_values().flatten().collect::<BTreeSet<Taint>>() {
                        let title = object_title(kind.as_str(), &subject.namespace, &subject.meta.name);
                        self.untolerating.entry(taint).or_default().push(title);
                    }
                }
                Err(error) => return self.unreadable.add(kind, json, &error),
            }
        }
        self.network
            .record(kind, &subject.namespace, &subject.meta.name, workload, 0);
        if kind == Kind::Pod
            && is_meant
            && let Some(trouble) = trouble(&subject, json, owner.clone(), self.pod_context, self.now)
        {
            self.pod(trouble);
        } else if matches!(kind, Kind::ReplicaSet | Kind::Job)
            && let Some(owner) = owner
            && !is_at_zero(&subject)
        {
            let place = WorkloadName::of(kind, &subject.namespace, &subject.meta.name);
            self.made_by.insert(place, owner);
        }
    }

    /// Notes the RuntimeClass of a template, if it does not exist and its name is not that of a class for Linux.
    fn missing_class(&mut self, subject: &Object<'_>) {
        let class = subject.pod().and_then(|pod| pod.runtime_class_name.as_deref());
        let known = &self.pod_context.eval_context.facts.runtime_classes;
        let is_missing = |name: &&str| !known.contains_key(*name) && !LINUX_CLASSES.contains(name);
        let Some(name) = class.filter(is_missing) else {
            return;
        };
        if !self.pod_context.knows_classes
            || (self.of_missing_classes.len() >= MOST_CLASSES && !self.of_missing_classes.contains_key(name))
        {
            return;
        }
        let title = object_title(subject.kind.as_str(), &subject.namespace, &subject.meta.name);
        let named = self.of_missing_classes.entry(name.to_owned()).or_default();
        named.push(title);
    }

    /// Adds a NetworkPolicy, which is listed if it has a finding.
    fn network_policy(&mut self, subject: &Object<'_>, json: &str) {
        let is_meant = self
            .is_meant
            .is_none_or(|is_meant| is_meant(&subject.meta.labels.to_owned_map()));
        if !is_meant {
            return;
        }
        let eval_context = self.pod_context.eval_context;
        let Some(facts) = self.network.added_to(eval_context.facts) else {
            return;
        };
        let evaluated = evaluate_object(&eval_context.with_facts(facts), subject, json);
        match evaluated {
            Ok(Evaluated::Owner(owner_result)) => self.add_result(*owner_result),
            Ok(Evaluated::Owned(..) | Evaluated::Passed(_)) => {}
            Err(error) => self.unreadable.add(Kind::NetworkPolicy, json, &error),
        }
    }

    /// The top owner of an object.
    fn owner(&self, subject: &Object<'_>) -> Option<WorkloadName> {
        let (meta, namespace) = (&subject.meta, &subject.namespace);
        let owner = WorkloadName::owner_of(meta, namespace)?;
        let listed = subject.owner_kind().and_then(|_| self.made_by.get(&owner));
        // Without the right to list ReplicaSets, their names show their Deployments.
        let today = self.pod_context.eval_context.facts.today;
        let above = || WorkloadName::owner_above(subject.kind, meta, namespace, today);
        Some(listed.cloned().or_else(above).unwrap_or(owner))
    }

    fn add_result(&mut self, owner_result: OwnerResult) {
        self.summary.count(&owner_result);
        if owner_result.is_clean() && owner_result.verdict != Verdict::Windows {
            return;
        }
        if self.owners.len() < MOST_OWNERS {
            self.owners.push(owner_result);
        } else {
            self.left_out.owners += 1;
        }
    }

    fn pod(&mut self, trouble: PodFinding) {
        if trouble.problem == PodProblem::Terminating {
            self.summary.terminating += 1;
        } else if trouble.problem.is_misplaced() {
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

    /// Finishes the report.
    pub fn report(mut self, frame: ReportHeader) -> ScanReport {
        self.summary.unreadable = self.unreadable.count();
        let gaps = self.gaps();
        let key = |owner_result: &OwnerResult| {
            (
                owner_result.namespace.clone(),
                owner_result.kind.as_str(),
                owner_result.name.clone(),
            )
        };
        self.owners.sort_by_cached_key(key);
        self.pods
            .sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let namespaces = self.namespaces();
        let facts = self.pod_context.eval_context.facts;
        ScanReport {
            schema: SCHEMA,
            created_at: self.now,
            today: facts.today,
            knowledge: facts.knowledge.report(facts.today),
            cluster: frame.cluster,
            assumed: frame.assumed,
            limited_to: frame.limited_to,
            changes: None,
            summary: self.summary,
            nodes: frame.nodes,
            node_findings: frame.node_findings,
            namespaces,
            owners: self.owners,
            pods: self.pods,
            gaps,
            notes: { self.untolerating.iter() }
                .map(|(taint, daemon_sets)| untolerating(taint, daemon_sets))
                .chain({ self.of_missing_classes.iter() }.map(|(name, users)| missing_class(name, users)))
                .chain(frame.notes)
                .collect(),
        }
    }

    /// What could not be read, and what is counted but not listed.
    fn gaps(&mut self) -> Vec<ScanGap> {
        let mut gaps = std::mem::take(&mut self.unreadable).into_gaps();
        gaps.append(&mut self.gaps);
        let counts = [
            (self.left_out.owners, "owners"),
            (self.left_out.pods, "pods in trouble"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        gaps.extend(counts.map(|(count, what)| ScanGap {
            resource: format!("{count} more {what}"),
            reason: "the report does not list more; they are included in its counts".to_owned(),
            remedy: Some("scan one namespace at a time with --namespace".to_owned()),
        }));
        gaps
    }

    fn namespaces(&self) -> Vec<NamespaceReport> {
        let eval_context = self.pod_context.eval_context;
        let of_owners = self.owners.iter().map(|owner_result| &owner_result.namespace);
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
                    not_reviewed: eval_context.not_reviewed(name).map(|why| why.words(name)),
                }
            });
        }
        all.into_values().collect()
    }
}

/// What is not known of the users of a RuntimeClass that does not exist.
fn missing_class(name: &str, users: &[String]) -> String {
    format!(
        "there is no RuntimeClass {}, so the fields of {} that name it are not checked, and no pod of them is created: {}; if the \
         class is for Windows, correct them before you create it, else create it or remove its name",
        shown(name),
        count(users.len(), "workload"),
        list(users, MOST_UNTOLERATING)
    )
}

/// What becomes of DaemonSets once all nodes have a taint that a node policy requires.
pub fn untolerating(taint: &Taint, daemon_sets: &[String]) -> String {
    format!(
        "once all nodes have the taint {taint}, which a WindowsNodePolicy requires, {} would be denied ({}) and get no pods: \
         {}; add the toleration {} to the templates",
        count(daemon_sets.len(), "DaemonSet"),
        MISSING_WINDOWS_TOLERATION.id,
        list(daemon_sets, MOST_UNTOLERATING),
        taint.toleration_yaml()
    )
}

#[cfg(test)]
pub(super) mod tests;
