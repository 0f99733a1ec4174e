//! Preflight: what Transom would do in a cluster that does not have it, and the Helm values to install it
//! with. Does no I/O.

mod autoscaler;
mod capacity;
mod controllers;
mod daemon_sets;
mod gmsa;
mod helm_values;
mod install;
mod nodes;
pub(crate) mod other_engines;
mod outlook;
mod platform;
mod pools;
mod recommendations;
mod taints;
pub(crate) mod text;
mod workloads;

use std::collections::BTreeSet;
use std::fmt::Display;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::environment::{ClusterEnvironment, NodeGroupResource};
use crate::cluster::snapshot::Snapshot;
use crate::model::cluster::network_policy_engine::Enforcement;
use crate::model::knowledge::KnowledgeReport;
use crate::model::nodes::node::major_minor;
use crate::model::syntax::string_enum::string_enum;
use crate::model::syntax::text::list;
use crate::model::windows::build::{Release, supported_on};
use crate::plan::UpgradePlan;
use crate::render::can_move;
use crate::scan::report::ScanGap;

pub use self::helm_values::{HelmValues, ValuesEntry};
pub use self::platform::Platform;
pub use self::recommendations::facts;
pub use self::workloads::{DeniedWorkload, WorkloadFindings};

/// The version of the report's JSON.
pub const SCHEMA: &str = "transom.dev/preflight/v1";

/// The maximum number of names in a line of evidence.
const MOST: usize = 5;

/// The oldest minor release of Kubernetes that Transom runs on.
const OLDEST: u32 = 30;

/// What was read of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterInput<'s> {
    /// Nodes, RuntimeClasses and namespaces, and the facts derived from them.
    pub snapshot: &'s Snapshot,
    /// The rest of the cluster: platform, API groups, other engines.
    pub environment: &'s ClusterEnvironment,
    pub platform: &'s Platform,
    /// The resources that could not be listed, as in `nodes`; without the workloads.
    pub unread: &'s BTreeSet<String>,
}

impl ClusterInput<'_> {
    /// Those of these resources that could not be listed.
    fn unread<'r>(&self, resources: &'r [&'r str]) -> impl Iterator<Item = &'r str> {
        let resources = resources.iter().copied();
        resources.filter(|resource| self.unread.contains(*resource))
    }

    /// Whether new Windows nodes have the startup taint, or a policy waits for it.
    fn gates_nodes(&self) -> bool {
        let cache = &self.snapshot.cache;
        cache
            .node_policies
            .values()
            .any(|policy| policy.spec.startup.is_some())
            || cache.nodes.values().any(|node| node.is_gated())
            || (self.environment.scaled.iter()).any(NodeGroupResource::sets_startup_taint)
    }

    /// Whether a resource could be listed.
    fn could_list(&self, resource: &str) -> bool {
        !self.unread.contains(resource)
    }
}

/// What Transom would do in a cluster that does not have it, and the Helm values to install it with.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Report of transom preflight -o json")]
pub struct Preflight {
    /// The name and the version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// When the report was created.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created_at: Timestamp,
    /// The Kubernetes release, as the API server reports it.
    pub kubernetes: String,
    /// The name of the platform, which is also the name of its values file.
    pub platform: &'static str,
    /// The totals.
    pub summary: PreflightSummary,
    /// The known faults and dates of support that were used.
    pub knowledge: KnowledgeReport,
    /// The findings, by subject.
    pub sections: Vec<PreflightSection>,
    /// The workloads that would be denied, by namespace, kind and name.
    pub denied: Vec<DeniedWorkload>,
    /// The values to install with.
    pub values: HelmValues,
    /// What could not be read or evaluated.
    pub gaps: Vec<ScanGap>,
    /// Whether everything that decides what would be denied could be read.
    #[serde(skip)]
    pub is_known: bool,
}

/// Counts of workloads, nodes and objects.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreflightSummary {
    /// Objects that were read.
    pub objects: usize,
    /// Top owners for Windows.
    pub windows: usize,
    /// Top owners of any operating system that would be denied if they were created again.
    pub denied: usize,
    /// Denied top owners that would only get a warning with `validation.ignoredFields: Warn`.
    pub denied_only_for_ignored_fields: usize,
    /// Top owners whose pods would be patched.
    pub patched: usize,
    /// Windows nodes.
    pub windows_nodes: usize,
    /// Objects that could not be read.
    pub unreadable: usize,
    /// Workload kinds that could not be listed, as in `deployments`: whether their objects would be denied is
    /// unknown.
    pub not_listed: Vec<String>,
}

/// The findings for one subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreflightSection {
    /// Its title.
    pub title: &'static str,
    /// The findings.
    pub findings: Vec<PreflightFinding>,
}

string_enum! {
    /// Whether a finding needs an action.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum FindingStatus {
        /// It needs none.
        Ok = "ok",
        /// It needs an action of the person who installs Transom.
        ActionRequired = "action-required",
    }
}

/// One finding, with its evidence and remedy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreflightFinding {
    /// Whether an action is needed.
    pub status: FindingStatus,
    /// The message: lower case, no full stop.
    pub message: String,
    /// The objects that are the evidence.
    pub evidence: Vec<String>,
    /// The remedy; absent if nothing needs to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Whether it counts the denied workloads, which the text lists after it.
    #[serde(skip)]
    pub lists_denied: bool,
}

impl PreflightFinding {
    /// A finding that needs no action.
    fn fine(message: impl Into<String>) -> Self {
        PreflightFinding {
            status: FindingStatus::Ok,
            message: message.into(),
            evidence: Vec::new(),
            remedy: None,
            lists_denied: false,
        }
    }

    /// A finding that needs an action, with its remedy.
    fn act(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        PreflightFinding {
            status: FindingStatus::ActionRequired,
            remedy: Some(remedy.into()),
            ..PreflightFinding::fine(message)
        }
    }

    /// The last finding of a section: what could not be read; otherwise, if there is no finding yet, that nothing is wrong.
    fn ending<'n>(all: &[Self], unread: impl Iterator<Item = &'n str>, nothing: &str) -> Option<Self> {
        let unread: Vec<&str> = unread.collect();
        if !unread.is_empty() {
            return Some(Self::fine(format!("not known (not read): {}", unread.join(", "))));
        }
        all.is_empty().then(|| Self::fine(nothing))
    }

    /// Adds these nodes as the evidence.
    fn on_nodes<N: Display>(self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.by(nodes.into_iter().map(|name| format!("node {name}")))
    }

    fn by<N: AsRef<str>>(mut self, evidence: impl IntoIterator<Item = N>) -> Self {
        let evidence: Vec<String> = evidence
            .into_iter()
            .map(|name| name.as_ref().to_owned())
            .collect();
        let more = evidence.len().saturating_sub(MOST);
        self.evidence = evidence.into_iter().take(MOST).collect();
        if more > 0 {
            self.evidence.push(format!("{more} more"));
        }
        self
    }
}

impl Preflight {
    /// The report of a cluster after its workloads were evaluated. `gaps` is what could not be read. `plan`
    /// is the upgrade plan for the [newest build](newest), if one was created.
    pub fn new(
        input: ClusterInput<'_>,
        workloads: WorkloadFindings<'_>,
        plan: Option<&UpgradePlan>,
        mut gaps: Vec<ScanGap>,
        at: Timestamp,
    ) -> Self {
        let mut wanted = install::values(input, &workloads);
        workloads.controllers.add_to(&mut wanted);
        let is_known = workloads.not_known().is_none();
        let section = |title, findings| PreflightSection { title, findings };
        let sections = vec![
            section("Platform", platform_findings(input, &workloads)),
            section(
                "Nodes",
                nodes::findings(input, plan, taints::findings(input), &mut wanted),
            ),
            section("Support of nodes", outlook::findings(input)),
            section("Pools at zero nodes", pools::findings(input, &workloads)),
            section("RuntimeClasses", nodes::classes(input)),
            section("Workloads", workloads.findings()),
            section("DaemonSets", workloads.daemon_set_findings()),
            section(
                "Controllers of custom resources",
                workloads.controllers.findings(input, &workloads.not_listed),
            ),
            section(
                "Capacity of Windows nodes",
                workloads.capacity.findings(input, &workloads.not_listed),
            ),
            section(
                "Group-managed service accounts",
                workloads.gmsa.findings(input, &workloads.not_listed),
            ),
            section("Other engines", other_engines::findings(input, &workloads)),
        ];
        let facts = &input.snapshot.facts;
        let summary = workloads.summary();
        let mut denied = workloads.denied;
        denied.sort();
        gaps.extend(workloads.unreadable.into_gaps());
        Preflight {
            schema: SCHEMA,
            created_at: at,
            kubernetes: input.environment.version.clone(),
            platform: input.platform.name,
            summary,
            knowledge: facts.knowledge.report(facts.today),
            sections,
            denied,
            values: wanted,
            gaps,
            is_known,
        }
    }
}

impl Preflight {
    /// Whether the values let admission deny.
    fn enforces(&self) -> bool {
        let mut entries = self.values.entries.iter();
        entries.any(|entry| entry.path == ["mode"] && entry.value == "Enforce")
    }
}

fn platform_findings(input: ClusterInput<'_>, workloads: &WorkloadFindings<'_>) -> Vec<PreflightFinding> {
    let mut all = vec![release_finding(&input.environment.version)];
    let file = input.platform.file();
    if input.platform.evidence_texts.is_empty() && !input.could_list("nodes") {
        all.push(PreflightFinding::act(
            "not known (not read): the platform, which is detected mostly from nodes",
            format!("choose its file in charts/transom/platforms yourself; the values below are for {file}"),
        ));
    } else {
        let text = format!(
            "the platform is {}; its file of values is {file}",
            input.platform.title
        );
        all.push(PreflightFinding::fine(text).by(&input.platform.evidence_texts));
    }
    if !input.could_list("API groups") {
        all.push(PreflightFinding::fine(
            "not known (not read): API groups, and so whether Transom is installed",
        ));
    } else if input.snapshot.cache.pod_policies.is_empty()
        && !input.environment.groups.contains_key("transom.dev")
    {
        all.push(PreflightFinding::fine("Transom is not installed"));
    } else {
        all.push(
            PreflightFinding::act(
                "Transom's CustomResourceDefinitions exist already: it is installed, or was",
                "if it is installed, transom scan shows how it evaluates stored objects",
            )
            .by(["API group transom.dev"]),
        );
    }
    all.extend(network_of_eks(input, workloads));
    all.extend(network_policies(input, workloads));
    all
}

/// Whether something enforces NetworkPolicies for Windows pods, if the cluster shows it.
fn network_policies(input: ClusterInput<'_>, workloads: &WorkloadFindings<'_>) -> Option<PreflightFinding> {
    if workloads.not_listed.contains("daemonsets") {
        return None;
    }
    let (network, today) = (&workloads.network, input.snapshot.facts.today);
    let finding = match network.enforcement(input.platform.of_nodes, today) {
        Enforcement::Enforced(engine) => {
            PreflightFinding::fine(format!("{engine} enforces NetworkPolicies for Windows pods"))
        }
        Enforcement::NotEnforced { why, source } => PreflightFinding {
            remedy: Some("transom scan lists the NetworkPolicies that select Windows pods".to_owned()),
            ..PreflightFinding::fine(format!(
                "nothing enforces NetworkPolicies for Windows pods: {why} ({source})"
            ))
        },
        Enforcement::Unknown => return None,
    };
    let has_windows = workloads.windows > 0 || nodes::windows(input.snapshot).next().is_some();
    let daemon_sets = network.daemon_sets.iter().map(|name| format!("DaemonSet {name}"));
    let plugins = network
        .plugins
        .iter()
        .map(|plugin| format!("annotation of {plugin} on Windows nodes"));
    has_windows.then(|| finding.by(daemon_sets.chain(plugins)))
}

fn release_finding(version: &str) -> PreflightFinding {
    let finding = match major_minor(version) {
        Some((1, minor)) if minor < OLDEST => PreflightFinding::act(
            format!("Kubernetes is {version}; Transom needs 1.{OLDEST} or later"),
            format!("upgrade the control plane to 1.{OLDEST} or later first"),
        ),
        _ => PreflightFinding::fine(format!("Kubernetes is {version}")),
    };
    finding.by(["the API server"])
}

/// Another network than that of the VPC, in which the control plane of EKS may not reach pods.
fn network_of_eks(input: ClusterInput<'_>, workloads: &WorkloadFindings<'_>) -> Option<PreflightFinding> {
    let network = &workloads.network;
    let named = |name| network.named(name).map(|name| format!("DaemonSet {name}"));
    let others: Vec<String> = named("calico-node").chain(named("cilium")).collect();
    if input.platform.name != "eks" || named("aws-node").next().is_some() || others.is_empty() {
        return None;
    }
    let finding = PreflightFinding::act(
        "the pods' network is not that of the VPC, so the control plane of EKS may not reach pods",
        "put Transom on the host network: hostNetwork: true, ports.webhook: 10260, ports.health: 10261; \
         let the API server reach port 10260 of the nodes, and label Transom's namespace \
         pod-security.kubernetes.io/enforce=privileged",
    );
    Some(finding.by(others))
}

/// The newest build that the cluster's Kubernetes supports, if the cluster has Windows nodes of older builds.
pub fn newest(snapshot: &Snapshot) -> Option<&'static Release> {
    let support = supported_on(snapshot.facts.kubernetes)?;
    let newest = *support.builds.last()?;
    let has_older = snapshot.facts.builds().iter().any(|build| *build < newest);
    newest.release().filter(|_| has_older)
}

/// The command that plans a move to the newest build, and a summary of that plan.
fn plan_hint(input: ClusterInput<'_>, plan: Option<&UpgradePlan>) -> Option<PreflightFinding> {
    let facts = &input.snapshot.facts;
    let target = newest(input.snapshot)?;
    let older = facts.builds().iter().filter(|build| **build < target.build);
    let older: Vec<String> = older.map(|build| nodes::build_text(*build)).collect();
    let in_short = plan.map_or_else(String::new, |plan| {
        format!("; {} (assumed placement: {})", can_move(plan), plan.placement)
    });
    Some(PreflightFinding {
        remedy: Some(format!(
            "transom plan --to {} shows what a move to {} needs",
            target.name, target.product
        )),
        ..PreflightFinding::fine(format!(
            "there is a newer build than {} that Kubernetes 1.{} supports: {} ({}){in_short}",
            list(&older, MOST),
            facts.kubernetes,
            target.build,
            target.product
        ))
    })
}

#[cfg(test)]
mod tests;
