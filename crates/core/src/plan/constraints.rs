//! Whether a node of the new build can satisfy the requirements of a pod template without a taint that its
//! pods do not tolerate; and if not, why.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::new_nodes::Upgrade;
use super::nodes::{NodeInventory, PlannedNode};
use super::plan_finding::{BlockedBy, FindingSource, PlanFinding, UpgradeClass};
use super::requirements::{Requirement, RequirementField, Requirements, Term, least, preferences};
use crate::engine::{AdmissionStage, PodsToSchedule};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{PlacementField, PlacementMode, Policy};
use crate::model::nodes::node::{
    HOSTNAME_LABEL, Host, POOL_LABELS, RESTRICTED_BUILD_LABEL, Taint, VALUE_TO_COME, VersionLabel,
};
use crate::model::nodes::node_affinity::{KnownNodeLabels as _, LabelValue, Match};
use crate::model::nodes::os_selectors::{is_build_label, is_os_label};
use crate::model::syntax::text::shown;
use crate::model::windows::build::Build;
use crate::rules::scheduling::Constraints;
use crate::rules::{self, ContainerAt, PodCx};

const SELECTOR: &str =
    "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodeselector";
pub(super) const AFFINITY: &str =
    "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity";
const NODE_NAME: &str = "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename";
const TAINTS: &str = "https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/";
const RESOURCES: &str =
    "https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources";
const CLASS: &str = "https://kubernetes.io/docs/concepts/containers/runtime-class/#scheduling";

/// What decides on which nodes of the cluster as it will be the pods of one workload can be scheduled.
pub(super) struct SchedulingContext<'w> {
    pub nodes: &'w NodeInventory,
    pub facts: &'w Facts,
    /// The facts as they will be: placement adds what pods need then.
    pub planned: &'w Facts,
    /// The policy of the namespace.
    pub policy: &'w Policy,
    /// By the taints of a node, which of them the pods do not tolerate: many nodes have the same taints, and placement, which
    /// decides this, is the slower part.
    untolerated: RefCell<BTreeMap<Vec<Taint>, Option<usize>>>,
}

/// The nodes of the new build that a workload could be scheduled on.
pub(super) struct TargetNodes<'w> {
    scheduling: &'w SchedulingContext<'w>,
    pub target: Build,
    is_in_place: bool,
    /// The nodes of the new build, and the pools of that build that may be at zero nodes.
    pub known: &'w [Host],
    /// What is known of a new node of that build before it exists.
    to_come: Host,
}

/// One node of the new build with its relation to a workload.
struct CandidateNode<'w> {
    host: &'w Host,
    selected: Match,
    /// A lasting taint that the pods do not tolerate.
    taint: Option<&'w Taint>,
    /// An extended resource that the pods request and the node does not offer, or may not offer.
    lacks: Option<(&'w str, Match)>,
}

impl CandidateNode<'_> {
    fn lacks_resource(&self) -> bool {
        matches!(self.lacks, Some((_, Match::No)))
    }
}

impl<'w> SchedulingContext<'w> {
    pub(super) fn new(
        nodes: &'w NodeInventory,
        (facts, planned): (&'w Facts, &'w Facts),
        policy: &'w Policy,
    ) -> Self {
        SchedulingContext {
            nodes,
            facts,
            planned,
            policy,
            untolerated: RefCell::default(),
        }
    }

    /// Whether a node satisfies a requirement. Unknown labels of a future node give `Unknown`, except labels
    /// of pools: a new pool has its own name.
    fn matches(&self, requirement: &Requirement<'_>, host: &Host) -> Match {
        match requirement.matches(host) {
            Match::Unknown if self.states_version(requirement, host) => {
                requirement.matches_value_to_come(|value| self.is_past(requirement.key, value, host.build))
            }
            Match::Unknown if requirement.allows_absence() => Match::Yes,
            Match::Unknown if self.names_pool(requirement) => Match::from(requirement.allows_every_value()),
            known => known,
        }
    }

    /// Whether the pods of a template may be scheduled on a node, as far as is known.
    pub(super) fn may_land(&self, cx: &PodCx<'_>, requirements: &Requirements<'_>, host: &Host) -> bool {
        self.landing(cx, requirements, host) != Match::No
    }

    /// Whether the pods of a template can be scheduled on a node.
    pub(super) fn landing(&self, cx: &PodCx<'_>, requirements: &Requirements<'_>, host: &Host) -> Match {
        let always = least(&requirements.always, |requirement| {
            self.matches(requirement, host)
        });
        if always == Match::No {
            return Match::No;
        }
        let candidate = self.candidate(cx, requirements, host);
        match candidate.lacks {
            _ if candidate.taint.is_some() => Match::No,
            Some((_, offers)) => candidate.selected.min(offers),
            None => candidate.selected,
        }
    }

    fn candidate<'h, 'c: 'h>(
        &self,
        cx: &PodCx<'c>,
        requirements: &Requirements<'_>,
        host: &'h Host,
    ) -> CandidateNode<'h> {
        let always = least(&requirements.always, |requirement| {
            self.matches(requirement, host)
        });
        let terms = requirements.matches_terms(&|requirement| self.matches(requirement, host));
        CandidateNode {
            host,
            selected: always.min(terms),
            taint: self.untolerated(cx, host),
            lacks: Constraints::new(cx.spec, None).lacking_resource(host),
        }
    }

    /// The first lasting taint of a node that the pods do not tolerate.
    fn untolerated<'h>(&self, cx: &PodCx<'_>, host: &'h Host) -> Option<&'h Taint> {
        let taints = host.taints.as_slice();
        let known = self.untolerated.borrow().get(taints).copied();
        let index = known.unwrap_or_else(|| {
            let index = self.first_untolerated(cx, taints);
            self.untolerated.borrow_mut().insert(taints.to_vec(), index);
            index
        });
        index.and_then(|index| taints.get(index))
    }

    fn first_untolerated(&self, cx: &PodCx<'_>, taints: &[Taint]) -> Option<usize> {
        let subject = cx.subject;
        // The DaemonSet controller reads the template, before placement changes the pods.
        let admission = if subject.kind.is_daemon_set() || subject.is_daemonset_pod() {
            AdmissionStage::AsWritten
        } else {
            AdmissionStage::Placed
        };
        let pods = PodsToSchedule {
            subject,
            inference: cx.inference,
            policy: self.policy,
            admission,
        };
        let lacking = pods.untolerated(taints, self.planned);
        let first = lacking.into_iter().find(|taint| taint.lasts())?;
        taints.iter().position(|taint| taint == first)
    }

    /// Whether a requirement is on a label in which the platform states the version of a node: nodes of the pool have it.
    fn states_version(&self, requirement: &Requirement<'_>, host: &Host) -> bool {
        let is_changed = || host.labels.get(requirement.key) == Some(VALUE_TO_COME);
        let has_label = |node: &PlannedNode| node.host.labels.contains_key(requirement.key);
        VersionLabel::find(requirement.key).is_some()
            && (is_changed() || (host.may_be_at_zero && self.nodes.all().any(has_label)))
    }

    /// Whether nodes of a build certainly do not have a value of such a label: nodes of other builds have it now.
    fn is_past(&self, key: &str, value: &str, build: Option<Build>) -> bool {
        let has_value = |node: &&PlannedNode| node.host.labels.get(key) == Some(value);
        let mut nodes = self.nodes.all().filter(has_value).peekable();
        VersionLabel::find(key).is_some_and(VersionLabel::always_changes)
            && nodes.peek().is_some()
            && nodes.all(|node| node.host.build != build)
    }

    fn names_pool(&self, requirement: &Requirement<'_>) -> bool {
        let labels = &self.facts.node_labels;
        let of_policy = |value: &&str| labels.iter().any(|label| label.matches(requirement.key, value));
        POOL_LABELS.contains(&requirement.key) || requirement.values().iter().any(of_policy)
    }
}

impl<'w> TargetNodes<'w> {
    pub(super) fn new(scheduling: &'w SchedulingContext<'w>, upgrade: Upgrade, known: &'w [Host]) -> Self {
        TargetNodes {
            scheduling,
            target: upgrade.to,
            is_in_place: upgrade.is_in_place(),
            known,
            to_come: Host {
                name: "a future node".to_owned(),
                build: Some(upgrade.to),
                may_be_at_zero: true,
                ..Host::default()
            },
        }
    }

    /// The constraints that keep the pods of a template off every node of the new build. If missing labels
    /// that such nodes can be given are the only obstacle, they become notes.
    pub(super) fn obstacles(&self, cx: &PodCx<'_>, requirements: &Requirements<'_>) -> Vec<PlanFinding> {
        let hosts = if self.known.is_empty() {
            std::slice::from_ref(&self.to_come)
        } else {
            self.known
        };
        let mut best: Option<(&Host, Option<(&str, Match)>)> = None;
        let mut candidates = Vec::with_capacity(hosts.len());
        for host in hosts {
            let candidate = self.scheduling.candidate(cx, requirements, host);
            match (candidate.selected, candidate.taint, candidate.lacks) {
                (Match::Yes, None, None) => return Vec::new(),
                (Match::No, ..) | (_, Some(_), _) | (.., Some((_, Match::No))) => {}
                _ => best = best.or(Some((host, candidate.lacks))),
            }
            candidates.push(candidate);
        }
        if let Some((host, lacks)) = best {
            let mut notes = self.notes(requirements, host);
            notes.extend(lacks.map(|(resource, _)| Self::unreported(cx, resource, host)));
            return notes;
        }
        let selected = candidates.iter().filter(|it| it.selected != Match::No);
        let selected: Vec<&CandidateNode<'_>> = selected.collect();
        if let Some(first) = selected.first() {
            let offering = selected.iter().filter(|it| !it.lacks_resource());
            let offering: Vec<&CandidateNode<'_>> = offering.copied().collect();
            let lacking = first.lacks.filter(|_| offering.is_empty());
            let mut findings: Vec<PlanFinding> = lacking
                .map(|(resource, _)| self.not_offered(cx, resource))
                .into_iter()
                .collect();
            let tainted = if lacking.is_some() { &selected } else { &offering };
            findings.extend(self.tainted(cx, tainted, candidates.len()));
            return findings;
        }
        let mut findings = self.pins(requirements, hosts);
        if findings.is_empty() {
            findings.push(self.not_together());
        }
        let all: Vec<&CandidateNode<'_>> = candidates.iter().collect();
        findings.extend(self.tainted(cx, &all, all.len()));
        findings
    }

    /// A preference for nodes of the old build, which the upgraded nodes no longer meet.
    pub(super) fn lost_preference(&self, cx: &PodCx<'_>) -> Option<PlanFinding> {
        let preferences = preferences(cx);
        let changes = |key: &str| is_build_label(key) || VersionLabel::find(key).is_some();
        let is_lost = |requirement: &&Requirement<'_>| {
            let mut nodes = self.scheduling.nodes.all();
            changes(requirement.key)
                && nodes.any(|node| requirement.matches(&node.host) == Match::Yes)
                && !self.known.is_empty()
                && (self.known.iter()).all(|host| self.scheduling.matches(requirement, host) == Match::No)
        };
        let lost = preferences.iter().find(is_lost)?;
        let message = format!(
            "it prefers {}, which no node of {} has: the scheduler then prefers other nodes that have it, if there are any",
            shown(&lost.shown()),
            self.target.with_product()
        );
        let source = FindingSource::row("preferred node affinity", AFFINITY);
        let finding = PlanFinding::new(UpgradeClass::Unchanged, lost.path.as_str(), message, source);
        Some(
            finding
                .remedy("prefer the new build, or remove the preference")
                .note(),
        )
    }

    /// No node of the new build that the selectors allow offers this resource.
    fn not_offered(&self, cx: &PodCx<'_>, resource: &str) -> PlanFinding {
        let target = self.target.with_product();
        let message = format!(
            "it requests {}, and no node of {target} that it may be scheduled on offers that, or enough of it",
            shown(resource)
        );
        resource_finding(cx, UpgradeClass::Pinned, resource, message)
            .remedy("start what provides it (a device plugin or the cloud provider) on these nodes, or choose nodes that have it")
    }

    /// Whether a node offers this resource is not known: it does not report it, or it does not exist yet.
    fn unreported(cx: &PodCx<'_>, resource: &str, host: &Host) -> PlanFinding {
        let asks = shown(resource);
        if host.may_be_at_zero {
            let message = format!("it requests {asks}: the new nodes need to offer that");
            return resource_finding(cx, UpgradeClass::Unchanged, resource, message)
                .remedy(format!("choose nodes that offer {asks}"))
                .note();
        }
        let message = format!(
            "it requests {asks}, and {} does not report whether it offers that",
            host.name
        );
        resource_finding(cx, UpgradeClass::Unknown, resource, message)
            .remedy("plan with the status of the nodes, once they are Ready")
    }

    /// The requirements that no node of the new build satisfies; for the affinity, the first of each term.
    fn pins(&self, requirements: &Requirements<'_>, hosts: &[Host]) -> Vec<PlanFinding> {
        let is_met = |requirement: &Requirement<'_>| {
            hosts
                .iter()
                .any(|host| self.scheduling.matches(requirement, host) != Match::No)
        };
        let unmet = requirements
            .always
            .iter()
            .filter(|requirement| !is_met(requirement));
        let mut findings: Vec<PlanFinding> = unmet.map(|requirement| self.unmet(requirement)).collect();
        let of_terms = |host: &Host| {
            requirements.matches_terms(&|requirement| self.scheduling.matches(requirement, host))
        };
        if hosts.iter().any(|host| of_terms(host) != Match::No) {
            return findings;
        }
        let terms = requirements.terms.as_deref().unwrap_or_default();
        if terms.iter().all(|term| term.is_empty) {
            findings.push(no_term(requirements));
        }
        let first = |term: &Term<'_>| {
            let first = term.requirements.iter().find(|requirement| !is_met(requirement));
            first.map(|requirement| self.unmet(requirement))
        };
        findings.extend(terms.iter().filter_map(first));
        findings
    }

    /// The labels that a node of the new build needs so that the pods can be scheduled on it. Of the terms,
    /// uses the first one that needs only such labels.
    fn notes(&self, requirements: &Requirements<'_>, host: &Host) -> Vec<PlanFinding> {
        let open =
            |requirement: &&Requirement<'_>| self.scheduling.matches(requirement, host) == Match::Unknown;
        let mut findings: Vec<PlanFinding> = Vec::new();
        let mut note = |requirement: &Requirement<'_>| {
            let mut nodes = self.scheduling.nodes.all();
            let is_there = nodes.any(|node| requirement.matches(&node.host) == Match::Yes);
            findings.push(self.note(requirement, is_there));
        };
        requirements.always.iter().filter(open).for_each(&mut note);
        let mut terms = requirements.terms.iter().flatten();
        let of_term = |term: &Term<'_>| {
            least(&term.requirements, |requirement| {
                self.scheduling.matches(requirement, host)
            })
        };
        let is_needed = !terms
            .clone()
            .any(|term| !term.is_empty && of_term(term) == Match::Yes);
        let term = terms.find(|term| !term.is_empty && of_term(term) == Match::Unknown);
        if let Some(term) = term.filter(|_| is_needed) {
            term.requirements.iter().filter(open).for_each(&mut note);
        }
        findings
    }

    /// A taint on each of these nodes that the pods do not tolerate. `of` is the total number of nodes.
    fn tainted(&self, cx: &PodCx<'_>, candidates: &[&CandidateNode<'_>], of: usize) -> Option<PlanFinding> {
        if candidates.iter().any(|candidate| candidate.taint.is_none()) {
            return None;
        }
        let first = candidates.first()?;
        let taint = first.taint?;
        let which = if candidates.len() < of {
            " that it may be scheduled on by its selectors"
        } else {
            ""
        };
        let message = format!(
            "every node of {}{which} carries a taint that it does not tolerate, as {} does {taint}",
            self.target.with_product(),
            first.host.name
        );
        let finding_source = if taint.marks_windows() {
            FindingSource::rule(&rules::MISSING_WINDOWS_TOLERATION)
        } else {
            FindingSource::row("taints and tolerations", TAINTS)
        };
        let path = cx.at(&["tolerations"]).named();
        let finding = PlanFinding::new(UpgradeClass::Blocked, path, message, finding_source)
            .caused_by(BlockedBy::Taint);
        Some(finding.remedy(format!("add the toleration {}", taint.toleration_yaml())))
    }

    fn has_nodes(&self) -> bool {
        self.known.iter().any(|host| !host.may_be_at_zero)
    }

    /// A requirement that no node of the new build satisfies, with the reason.
    fn unmet(&self, requirement: &Requirement<'_>) -> PlanFinding {
        let key = requirement.key;
        let target = self.target.with_product();
        if self.has_nodes() {
            return self.pin(requirement, &self.why_unmet(key));
        }
        if let Some(label) = VersionLabel::find(key) {
            let why = format!("{} gives that label to nodes of another version", label.platform);
            return self.pin(requirement, &why);
        }
        if requirement.is_field() || key == HOSTNAME_LABEL {
            let why = "that names a node, and the new nodes have other names";
            return self.pin(requirement, why);
        }
        if self.scheduling.names_pool(requirement) {
            let mut nodes = self.scheduling.nodes.all();
            let Some(node) = nodes.find(|node| requirement.matches(&node.host) == Match::Yes) else {
                let finding = self.pin(
                    requirement,
                    "no node of such a pool is known, and its build is unknown",
                );
                return PlanFinding {
                    class: UpgradeClass::Unknown,
                    ..finding
                };
            };
            let of = node.host.build;
            let of = of.map_or_else(String::new, |build| format!(", of {}", build.with_product()));
            return self.pin(
                requirement,
                &format!("that is a pool of nodes that are there now{of}"),
            );
        }
        match self.to_come.label_value(key) {
            LabelValue::Is(value) => self.pin(requirement, &format!("nodes of {target} have {value}")),
            LabelValue::Absent | LabelValue::Unknown => {
                self.pin(requirement, &format!("no node of {target} has it"))
            }
        }
    }

    /// Why no existing node of the new build satisfies a requirement on a label.
    fn why_unmet(&self, key: &str) -> String {
        let target = self.target.with_product();
        let label = VersionLabel::find(key);
        let changes = self.is_in_place && (is_build_label(key) || label.is_some());
        let value = self.known.iter().find_map(|host| host.labels.get(key));
        match (value.filter(|_| changes), label) {
            (Some(VALUE_TO_COME), Some(label)) => {
                format!("{} changes that label with the image of the node", label.platform)
            }
            (Some(value), _) => format!("nodes of {target} have {value}"),
            (None, _) => format!("no node of {target} has it"),
        }
    }

    fn not_together(&self) -> PlanFinding {
        let message = format!(
            "each of its requirements is met by some node of {}, and no node meets them all",
            self.target.with_product()
        );
        PlanFinding::new(
            UpgradeClass::Pinned,
            "spec",
            message,
            FindingSource::row("node selection: all requirements together", AFFINITY),
        )
        .caused_by(BlockedBy::NodeLabel)
        .remedy("give one pool of that build all the labels, or remove requirements")
    }

    fn pin(&self, requirement: &Requirement<'_>, why: &str) -> PlanFinding {
        let asks = shown(&requirement.shown());
        let message = match requirement.field {
            RequirementField::RuntimeClass => format!("its RuntimeClass selects {asks}, and {why}"),
            _ => format!("it requires {asks}, and {why}"),
        };
        let by = self.blocked_by(requirement);
        PlanFinding::new(
            UpgradeClass::Pinned,
            requirement.path.as_str(),
            message,
            finding_source(requirement),
        )
        .caused_by(by)
        .remedy(self.remedy(by, requirement))
    }

    fn blocked_by(&self, requirement: &Requirement<'_>) -> BlockedBy {
        match requirement.field {
            RequirementField::RuntimeClass => BlockedBy::RuntimeClass,
            RequirementField::NodeName => BlockedBy::NodeName,
            _ if requirement.is_field() || requirement.key == HOSTNAME_LABEL => BlockedBy::NodeName,
            _ if requirement.key == RESTRICTED_BUILD_LABEL => BlockedBy::RestrictedBuildLabel,
            RequirementField::Selector if is_build_label(requirement.key) => BlockedBy::NodeSelector,
            RequirementField::Affinity if is_build_label(requirement.key) => BlockedBy::NodeAffinity,
            _ if VersionLabel::find(requirement.key).is_some() || self.scheduling.names_pool(requirement) => {
                BlockedBy::PoolLabel
            }
            _ => BlockedBy::NodeLabel,
        }
    }

    fn remedy(&self, by: BlockedBy, requirement: &Requirement<'_>) -> String {
        match by {
            BlockedBy::RuntimeClass => self.another_class(),
            BlockedBy::NodeSelector | BlockedBy::NodeAffinity | BlockedBy::RestrictedBuildLabel => {
                let policy = self.scheduling.policy;
                let or = if policy.placement == PlacementMode::Apply
                    && policy.places(PlacementField::WindowsBuild)
                {
                    "remove it (placement keeps pods on builds that run their images), or "
                } else {
                    ""
                };
                format!("{or}require {} when the image runs there", self.target)
            }
            BlockedBy::NodeName => "remove it: the scheduler finds a node".to_owned(),
            BlockedBy::NodeLabel if is_os_label(requirement.key) => {
                "write windows, in lower case; the kubelet writes this label".to_owned()
            }
            BlockedBy::NodeLabel => format!(
                "give the nodes of {} the label, or remove the requirement",
                self.target.with_product()
            ),
            _ if self.is_in_place => {
                "select by a label that the upgrade does not change, such as that of the pool".to_owned()
            }
            _ => "name a pool of the new nodes, or select by what both pools have".to_owned(),
        }
    }

    fn another_class(&self) -> String {
        let target = self.target.to_string();
        let of_target = self.scheduling.facts.runtime_classes.iter().find(|(_, class)| {
            (class.node_selector.iter()).any(|(key, value)| is_build_label(key) && *value == target)
        });
        of_target.map_or_else(
            || format!("name a RuntimeClass for {}", self.target.with_product()),
            |(name, _)| format!("name the RuntimeClass {name}, which selects {target}"),
        )
    }

    fn note(&self, requirement: &Requirement<'_>, is_there: bool) -> PlanFinding {
        let asks = shown(&requirement.shown());
        if let Some(label) = VersionLabel::find(requirement.key).filter(|_| self.is_in_place) {
            let why = format!(
                "the value that {} gives to that label then is not known",
                label.platform
            );
            return PlanFinding {
                class: UpgradeClass::Unknown,
                ..self.pin(requirement, &why)
            };
        }
        let now = if is_there || self.scheduling.nodes.all().next().is_none() {
            ""
        } else {
            ", which no Windows node has now"
        };
        let message = format!("it requires {asks}{now}: the new nodes need that label");
        PlanFinding::new(
            UpgradeClass::Unchanged,
            requirement.path.as_str(),
            message,
            finding_source(requirement),
        )
        .remedy(format!("give the new nodes {asks}"))
        .note()
    }
}

fn resource_finding(cx: &PodCx<'_>, class: UpgradeClass, resource: &str, message: String) -> PlanFinding {
    let requests = |container: &ContainerAt<'_>| {
        let lists = container.resources.as_ref().map(|of| [&of.limits, &of.requests]);
        lists.is_some_and(|lists| lists.iter().any(|list| list.get(resource).is_some()))
    };
    let container = cx.containers().find(requests);
    let path = container.map_or_else(
        || cx.at(&["containers"]),
        |container| container.at(&["resources"]),
    );
    let source = FindingSource::row("extended resources", RESOURCES);
    PlanFinding::new(class, path.named(), message, source).caused_by(BlockedBy::Resource)
}

/// A required affinity that matches no node.
fn no_term(requirements: &Requirements<'_>) -> PlanFinding {
    PlanFinding::new(
        UpgradeClass::Pinned,
        requirements.terms_path.as_str(),
        "its required node affinity matches no node: an empty term matches none",
        FindingSource::row("node selection: an empty nodeSelectorTerm", AFFINITY),
    )
    .caused_by(BlockedBy::NodeAffinity)
    .remedy("delete the required node affinity, or write into the term what the nodes must have")
}

fn finding_source(requirement: &Requirement<'_>) -> FindingSource {
    let (name, source) = match requirement.field {
        RequirementField::Selector => ("nodeSelector", SELECTOR),
        RequirementField::RuntimeClass => ("scheduling of the RuntimeClass", CLASS),
        RequirementField::Affinity => ("required node affinity", AFFINITY),
        RequirementField::NodeName => ("nodeName", NODE_NAME),
    };
    FindingSource::row(
        format!("node selection: {name}, {}", shown(requirement.key)),
        source,
    )
}
