//! Evaluates the stored workloads one at a time: what would be denied and changed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::capacity::Capacity;
use super::controllers::Controllers;
use super::daemon_sets::DaemonSets;
use super::gmsa::Gmsa;
use super::nodes::windows;
use super::recommendations;
use super::{ClusterInput, MOST, PreflightFinding, PreflightSummary};
use crate::cluster::custom_lists::CustomLists;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::network_policy_engine::NetworkSigns;
use crate::model::cluster::policy::{IgnoredFields, Policy};
use crate::model::nodes::node::{BUILD_LABELS, OS_LABEL};
use crate::model::objects::object::{Object, ObjectError, ReviewStage};
use crate::model::objects::pod::PodSpec;
use crate::model::objects::workload::Kind;
use crate::model::syntax::text::{count, list, object_title};
use crate::model::windows::os::Verdict;
use crate::rules::WINDOWS_NODES_ONLY;
use crate::scan::{
    EvalContext, Evaluated, MOST_OWNERS, OwnerOutcome, OwnerResult, PodDifference, StoredEvaluations,
    UnreadableObjects, evaluate_object, evaluate_owned_pod, evaluate_stored,
};

/// How many labels that no node has are kept.
const MOST_MISSING: usize = 200;

/// How many names of objects that select a label are kept.
const MOST_SELECTING: usize = 20;

/// A workload that would be denied.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeniedWorkload {
    /// Its namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The rules that deny it.
    pub rules: Vec<&'static str>,
    /// Whether `validation.ignoredFields: Warn` would allow it with a warning.
    #[serde(rename = "onlyIgnoredFields")]
    pub is_only_ignored_fields: bool,
}

/// The findings about workloads, collected one object at a time.
#[derive(Debug)]
pub struct WorkloadFindings<'w> {
    input: ClusterInput<'w>,
    /// The findings about DaemonSets.
    pub daemon_sets: DaemonSets<'w>,
    /// The use of Windows nodes.
    pub capacity: Capacity<'w>,
    /// The credential specs that pods name.
    pub gmsa: Gmsa,
    /// The controllers of custom resources.
    pub controllers: Controllers,
    deny: EvalContext<'w>,
    warn: EvalContext<'w>,
    /// Pool labels that only Windows nodes have, and that are not evidence by default.
    candidates: BTreeSet<(String, String)>,
    /// How many objects were visited.
    pub objects: usize,
    /// How many top owners are for Windows.
    pub windows: usize,
    /// Windows top owners by namespace.
    pub in_namespaces: BTreeMap<String, usize>,
    /// The workloads that would be denied, up to a maximum; the rest are only counted.
    pub denied: Vec<DeniedWorkload>,
    more_denied: usize,
    /// How many denied workloads would only get a warning with `validation.ignoredFields: Warn`.
    pub denied_only_for_ignored_fields: usize,
    softened_patched: usize,
    stored: StoredEvaluations,
    /// The workload kinds that could not be listed, as in `deployments`.
    pub not_listed: BTreeSet<String>,
    /// How many workloads would have their pods patched.
    pub patched: usize,
    /// Pod fields that would be patched, with the number of owners.
    fields: BTreeMap<String, usize>,
    /// Labels that Windows pods select and no node has, with the objects that select them.
    pub missing: BTreeMap<(String, String), Vec<String>>,
    /// The candidates that are selected, with the objects that select them.
    pub marking: BTreeMap<(String, String), Vec<String>>,
    /// The workloads of which nothing says that they are for Windows, but that only Windows nodes can run, up to a maximum.
    pub only_on_windows: Vec<String>,
    /// The DaemonSets of network plugins and engines, and the plugins of Windows nodes.
    pub network: NetworkSigns,
    /// The objects that could not be read.
    pub unreadable: UnreadableObjects,
}

impl<'w> WorkloadFindings<'w> {
    /// No object visited yet. `facts` is [`super::facts`]. `excluded` are the namespaces that the webhooks
    /// would exclude by name.
    pub fn new(input: ClusterInput<'w>, facts: &'w Facts, excluded: &'w [String]) -> Self {
        let candidates = recommendations::candidates(input);
        let policy = recommendations::policy(input);
        let context = |ignored_fields: IgnoredFields| EvalContext {
            facts,
            policies: Cow::Owned(PolicySet::new(
                Vec::new(),
                Policy {
                    ignored_fields,
                    ..policy.clone()
                },
            )),
            excluded,
            registered: None,
            custom: &[],
        };
        WorkloadFindings {
            input,
            daemon_sets: DaemonSets::new(input),
            capacity: Capacity::new(input),
            gmsa: Gmsa::default(),
            controllers: Controllers::default(),
            deny: context(IgnoredFields::Deny),
            warn: context(IgnoredFields::Warn),
            candidates,
            objects: 0,
            windows: 0,
            in_namespaces: BTreeMap::new(),
            denied: Vec::new(),
            more_denied: 0,
            denied_only_for_ignored_fields: 0,
            softened_patched: 0,
            stored: StoredEvaluations::default(),
            not_listed: BTreeSet::new(),
            patched: 0,
            fields: BTreeMap::new(),
            missing: BTreeMap::new(),
            marking: BTreeMap::new(),
            only_on_windows: Vec::new(),
            network: input.snapshot.facts.network.clone(),
            unreadable: UnreadableObjects::default(),
        }
    }

    /// The same in a cluster that serves these custom resources, which are visited too.
    #[must_use]
    pub fn listing(mut self, custom: &'w CustomLists) -> Self {
        self.deny = self.deny.listing(&custom.kinds);
        self.warn = self.warn.listing(&custom.kinds);
        self.controllers.serve(custom);
        self
    }

    /// Evaluates a stored object, and records its part in every section.
    pub fn visit(&mut self, kind: Kind, json: &str) {
        self.objects += 1;
        if let Err(error) = self.evaluate(kind, json) {
            self.unreadable.add(kind, json, &error);
        }
    }

    fn evaluate(&mut self, kind: Kind, json: &str) -> Result<(), ObjectError> {
        let subject = Object::parse(kind, json, ReviewStage::Stored)?;
        self.stored.record(&self.deny, &subject);
        self.capacity.visit_pod(&subject);
        self.controllers.visit_object(&subject, json);
        if let Some(owner_result) = self.stored.evaluate(&self.deny, &subject, json)? {
            self.record_result(&subject, json, &owner_result);
        }
        Ok(())
    }

    /// The counts of the report.
    pub fn summary(&self) -> PreflightSummary {
        PreflightSummary {
            objects: self.objects,
            windows: self.windows,
            denied: self.denied_count(),
            denied_only_for_ignored_fields: self.denied_only_for_ignored_fields,
            patched: self.patched,
            windows_nodes: windows(self.input.snapshot).count(),
            unreadable: self.unreadable.count(),
            not_listed: self.not_listed.iter().cloned().collect(),
        }
    }

    /// How many workloads that would be allowed would have their pods patched.
    pub fn all_patched(&self) -> usize {
        self.patched + self.softened_patched
    }

    /// How many workloads would be denied.
    pub fn denied_count(&self) -> usize {
        self.denied.len() + self.more_denied
    }

    /// Why further objects might be denied in addition to the listed ones; `None` if everything is known.
    pub fn not_known(&self) -> Option<String> {
        let evaluated_with = ["nodes", "runtimeclasses", "namespaces"];
        let not_listed = self.not_listed.iter().map(String::as_str);
        let all: Vec<&str> = not_listed.chain(self.input.unread(&evaluated_with)).collect();
        if !all.is_empty() {
            return Some(format!("{} could not be listed", list(&all, 2 * MOST)));
        }
        let objects = self.unreadable.count();
        (objects > 0).then(|| format!("{} could not be read", count(objects, "object")))
    }

    /// The findings about DaemonSets.
    pub fn daemon_set_findings(&self) -> Vec<PreflightFinding> {
        let is_whole = !self.not_listed.contains("daemonsets") && self.input.could_list("nodes");
        self.daemon_sets.findings(is_whole)
    }

    fn record_result(&mut self, subject: &Object<'_>, json: &str, owner_result: &OwnerResult) {
        let is_windows = owner_result.verdict == Verdict::Windows;
        if is_windows {
            self.windows += 1;
            let namespace = owner_result.namespace.clone();
            *self.in_namespaces.entry(namespace).or_default() += 1;
        }
        if owner_result.outcome == OwnerOutcome::Denied {
            self.record_denied(subject, json, owner_result);
        } else if is_windows && owner_result.outcome != OwnerOutcome::NotReviewed {
            let patches = patches_of_pods(&self.deny, subject.kind, json, owner_result);
            self.patched += usize::from(!patches.is_empty());
            let fields: BTreeSet<String> = patches.iter().filter_map(|path| field(path)).collect();
            for field in fields {
                *self.fields.entry(field).or_default() += 1;
            }
        }
        let mut found = owner_result.findings.iter();
        if self.only_on_windows.len() < MOST_SELECTING && found.any(|it| it.rule == WINDOWS_NODES_ONLY.name) {
            self.only_on_windows.push(owner_result.title());
        }
        self.controllers.visit(owner_result, is_windows);
        if let Some(pod) = subject.pod() {
            self.selected(owner_result, pod);
            self.capacity.visit(owner_result, subject, pod);
            self.gmsa.visit(owner_result, subject, json, pod);
            if subject.kind == Kind::DaemonSet {
                self.network
                    .add_daemon_set(&owner_result.namespace, &owner_result.name);
                self.daemon_sets.visit(owner_result, subject, pod);
            }
        }
    }

    fn record_denied(&mut self, subject: &Object<'_>, json: &str, owner_result: &OwnerResult) {
        let is_only_ignored_fields = self.passes_with_warning(subject, json, owner_result);
        self.denied_only_for_ignored_fields += usize::from(is_only_ignored_fields);
        if self.denied.len() >= MOST_OWNERS {
            self.more_denied += 1;
            return;
        }
        // A pod that represents its owner is named by it: that is what must be fixed.
        let for_owner = owner_result.owner_of_different_pod().and_then(|owner| {
            let kind = Kind::of_api_version(&owner.api_version, &owner.kind)?;
            Some((kind, &owner.name))
        });
        let (kind, name) = for_owner.unwrap_or((subject.kind, &owner_result.name));
        self.denied.push(DeniedWorkload {
            namespace: owner_result.namespace.clone(),
            kind: kind.as_str(),
            name: name.clone(),
            rules: owner_result.denied_by(),
            is_only_ignored_fields,
        });
    }

    /// Whether a denied workload would pass with `validation.ignoredFields: Warn`; counts those of which the pods would be
    /// patched then.
    fn passes_with_warning(&mut self, subject: &Object<'_>, json: &str, denied: &OwnerResult) -> bool {
        let warned = if denied.owner_of_different_pod().is_some() {
            evaluate_owned_pod(&self.warn, subject, json, &PodDifference::Evidence)
        } else {
            evaluate_object(&self.warn, subject, json)
        };
        let Ok(Evaluated::Owner(warned)) = warned else {
            return false;
        };
        if warned.outcome == OwnerOutcome::Denied {
            return false;
        }
        let patches = patches_of_pods(&self.warn, subject.kind, json, &warned);
        self.softened_patched += usize::from(!patches.is_empty());
        true
    }

    /// Records the node labels that it selects.
    fn selected(&mut self, owner_result: &OwnerResult, pod: &PodSpec<'_>) {
        for (key, value) in &pod.node_selector {
            let label = (key.to_string(), value.to_string());
            if self.candidates.contains(&label) {
                note(&mut self.marking, label, owner_result);
                continue;
            }
            let is_common = label.0 == OS_LABEL || BUILD_LABELS.contains(&label.0.as_str());
            if owner_result.verdict != Verdict::Windows || is_common {
                continue;
            }
            let mut nodes = self.input.environment.nodes.iter();
            let is_kept = self.missing.len() < MOST_MISSING || self.missing.contains_key(&label);
            let is_known = self.input.could_list("nodes");
            if is_kept && is_known && !nodes.any(|node| node.labels.get(&label.0) == Some(&label.1)) {
                note(&mut self.missing, label, owner_result);
            }
        }
    }

    /// The findings about all workloads.
    pub fn findings(&self) -> Vec<PreflightFinding> {
        let mut all = Vec::new();
        if !self.not_listed.is_empty() {
            let text = format!("not known (not read): {}", list(&self.not_listed, 2 * MOST));
            let remedy = "run this again with an account that may list them, before anything is enforced";
            all.push(PreflightFinding::act(text, remedy));
        }
        if !self.only_on_windows.is_empty() {
            let text = "workloads that only Windows nodes can run do not say that they are for Windows, so Transom does not \
                        check their fields";
            let finding = PreflightFinding::act(
                text,
                format!(
                    "add nodeSelector kubernetes.io/os: windows to them (transom explain {})",
                    WINDOWS_NODES_ONLY.name
                ),
            );
            all.push(finding.by(self.only_on_windows.iter().cloned()));
        }
        if self.windows == 0 && self.denied.is_empty() {
            all.push(PreflightFinding::fine(format!(
                "none of {} {}is for Windows",
                count(self.objects, "object"),
                if self.not_listed.is_empty() {
                    ""
                } else {
                    "that could be read "
                }
            )));
            return all;
        }
        all.push(self.windows_finding());
        if !self.denied.is_empty() {
            all.push(self.denials());
        }
        all.extend(self.only_ignored_fields());
        if self.patched > 0 {
            let fields = self
                .fields
                .iter()
                .map(|(field, count)| format!("{field} in {count}"));
            let text = format!(
                "placement would change the pods of {} more that would pass",
                self.patched
            );
            all.push(PreflightFinding::fine(text).by(fields));
        }
        all
    }

    fn windows_finding(&self) -> PreflightFinding {
        let in_namespaces = self.in_namespaces.iter();
        let in_namespaces = in_namespaces.map(|(namespace, count)| format!("{namespace} {count}"));
        PreflightFinding::fine(format!(
            "{} of {} objects are workloads for Windows, in {}",
            self.windows,
            self.objects,
            count(self.in_namespaces.len(), "namespace")
        ))
        .by(in_namespaces)
    }

    fn only_ignored_fields(&self) -> Option<PreflightFinding> {
        let number = self.denied_only_for_ignored_fields;
        let owners = self.denied.iter().filter(|owner| owner.is_only_ignored_fields);
        (number > 0).then(|| {
            PreflightFinding::act(
                format!("{number} of them only for fields that Windows ignores"),
                "validation.ignoredFields: Warn lets them pass with a warning, ignoredFields: Remove removes the fields from their \
                 pods",
            )
            .by(owners.map(DeniedWorkload::title))
        })
    }

    fn denials(&self) -> PreflightFinding {
        let rules = most(self.denied.iter().flat_map(|owner| owner.rules.iter().copied()));
        let namespaces = most(self.denied.iter().map(|owner| owner.namespace.as_str()));
        let finding = PreflightFinding::act(
            format!(
                "{} would be denied at the next create by the chart's defaults; by rule: {}; by namespace: {}",
                self.denied_count(),
                list(rules, 2 * MOST),
                list(namespaces, 2 * MOST)
            ),
            "install with mode: Audit, fix them (transom explain RULE), then set mode: Enforce",
        )
        .by(self.denied.iter().map(DeniedWorkload::title));
        PreflightFinding {
            lists_denied: true,
            ..finding
        }
    }
}

impl DeniedWorkload {
    /// Its kind, namespace and name.
    pub fn title(&self) -> String {
        object_title(self.kind, &self.namespace, &self.name)
    }
}

/// The number of occurrences of each name, the most frequent first, as in `host-pid 3`.
fn most<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    { counts.iter() }
        .map(|(name, count)| format!("{name} {count}"))
        .collect()
}

fn note(
    labels: &mut BTreeMap<(String, String), Vec<String>>,
    label: (String, String),
    owner_result: &OwnerResult,
) {
    let by = labels.entry(label).or_default();
    if by.len() < MOST_SELECTING {
        by.push(owner_result.title());
    }
}

/// What admission would change in the pods of a workload. The workload itself is never changed, so one of its
/// pods is synthesized and evaluated.
fn patches_of_pods(
    context: &EvalContext<'_>,
    kind: Kind,
    json: &str,
    owner_result: &OwnerResult,
) -> Vec<String> {
    match kind {
        Kind::Pod => owner_result.patches.clone(),
        // Its controller reads the template, and placement does not change where its pods go.
        Kind::DaemonSet => Vec::new(),
        _ => match pod_of(kind, json, owner_result).map(|pod| evaluate_stored(context, Kind::Pod, &pod)) {
            Some(Ok(Evaluated::Owner(pod))) => pod.patches,
            _ => Vec::new(),
        },
    }
}

/// The field of the pod spec that contains a path.
fn field(path: &str) -> Option<String> {
    let below = path.strip_prefix("spec.")?;
    let end = below.find(['.', '[']).unwrap_or(below.len());
    below.get(..end).map(str::to_owned)
}

/// A pod as the workload's controller would create it.
fn pod_of(kind: Kind, json: &str, owner_result: &OwnerResult) -> Option<String> {
    let pointer = format!("/{}", kind.template()?.join("/"));
    let object: Value = serde_json::from_str(json).ok()?;
    let template = object.pointer(&pointer)?;
    let mut metadata = template.get("metadata").filter(|it| it.is_object()).cloned();
    let metadata = metadata.get_or_insert_with(|| json!({}));
    metadata["name"] = Value::from(owner_result.name.as_str());
    metadata["namespace"] = Value::from(owner_result.namespace.as_str());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec")?});
    Some(pod.to_string())
}
