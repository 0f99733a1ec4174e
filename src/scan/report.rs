//! The report of a scan as plain data: everything that any output format prints.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::result::{DenialCause, FindingOutcome, ForeignOwner, OwnerOutcome, OwnerResult};
use crate::engine::NodeFinding;
use crate::model::cluster::policy::{Action, PlacementMode};
use crate::model::cluster::severity::Severity;
use crate::model::knowledge::KnowledgeReport;
use crate::model::syntax::report_schema::counts_by;
use crate::model::syntax::string_enum::string_enum;
use crate::model::windows::os::Verdict;

/// The version of the report's JSON.
pub const SCHEMA: &str = "transom.dev/scan/v1";

/// What admission would do with the stored objects of a cluster, and the pods on wrong nodes.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Report of transom scan -o json")]
pub struct ScanReport {
    /// The name and the version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// When the report was created.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created_at: Timestamp,
    /// The day that exemptions and dates of support were evaluated for.
    #[schemars(with = "String", extend("format" = "date"))]
    pub today: Date,
    /// The known faults and dates of support that were used.
    pub knowledge: KnowledgeReport,
    /// The cluster.
    pub cluster: ScannedCluster,
    /// The policy settings that replaced the stored ones, as in `mode=Enforce`; empty if none were
    /// replaced.
    pub assumed: Vec<String>,
    /// The options that limited the scan, as in `namespace=shop`. Absent if it was of the whole cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limited_to: Vec<String>,
    /// What differs from the report of `--since`. Absent without this option.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<ScanChanges>,
    /// The totals.
    pub summary: ScanSummary,
    /// The Windows nodes, by name.
    pub nodes: Vec<ScannedNode>,
    /// The findings of the rules on nodes, as `transom check` reports them; worst first. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_findings: Vec<NodeFinding>,
    /// The namespaces with an object to report, by name.
    pub namespaces: Vec<NamespaceReport>,
    /// The top owners with something to report, every Windows one, and the NetworkPolicies with a finding, whose operating
    /// system is not known; by namespace, kind, name.
    pub owners: Vec<OwnerResult>,
    /// The pods on a wrong node, and those that are pending: by namespace, name.
    pub pods: Vec<PodFinding>,
    /// What could not be read or evaluated.
    pub gaps: Vec<ScanGap>,
    /// The images of which registries report nothing, with the reason: they are evaluated by their names. Absent if there are
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl ScanReport {
    /// Whether a resource could be read, as in `windowspodpolicies`.
    pub fn could_read(&self, resource: &str) -> bool {
        self.gaps.iter().all(|gap| gap.resource != resource)
    }
}

/// The cluster that was scanned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScannedCluster {
    /// Its name in the kubeconfig, or the address of its API server.
    pub name: String,
    /// Its Kubernetes release, as in `1.36`.
    pub kubernetes: String,
    /// Whether Transom's webhooks are registered in it.
    pub has_webhooks: bool,
    /// The stored WindowsPodPolicies, the highest precedence first; empty if the built-in policy applies.
    pub policies: Vec<String>,
    /// The namespaces without a policy, in which the built-in one applies. Empty if no policy is stored.
    pub namespaces_without_policy: Vec<String>,
}

/// Counts of a scan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScanSummary {
    /// Objects that were read: owners and their children.
    pub objects: usize,
    /// Top owners that were evaluated.
    pub owners: usize,
    /// Top owners that are for Windows.
    pub windows: usize,
    /// Top owners that would be denied if they were created again.
    pub denied: usize,
    /// These by what they would be denied for.
    #[schemars(schema_with = "counts_by::<DenialCause>")]
    pub denied_for: BTreeMap<DenialCause, usize>,
    /// Top owners that would be denied with `validation.action: Deny`.
    pub would_be_denied: usize,
    /// These by what they would be denied for.
    #[schemars(schema_with = "counts_by::<DenialCause>")]
    pub would_be_denied_for: BTreeMap<DenialCause, usize>,
    /// Top owners that admission would patch.
    pub patched: usize,
    /// Top owners that admission would patch if dry run were off everywhere.
    pub would_be_patched: usize,
    /// Top owners that are allowed with a warning.
    pub warned: usize,
    /// Top owners with something to report that the API server does not send for review.
    pub not_reviewed: usize,
    /// Findings by outcome.
    #[schemars(schema_with = "counts_by::<FindingOutcome>")]
    pub findings: BTreeMap<FindingOutcome, usize>,
    /// Findings that are not fixed by placement, not exempted, and in scope of admission, by severity.
    #[serde(skip)]
    pub open: [usize; Severity::ALL.len()],
    /// Pods that run on a node of the wrong operating system or build.
    pub misplaced: usize,
    /// Pods that are pending for a reason that Transom checks.
    pub pending: usize,
    /// Pods that terminate past their grace period.
    pub terminating: usize,
    /// Objects that could not be read.
    pub unreadable: usize,
}

impl ScanSummary {
    /// Adds one top owner to the counts; of a NetworkPolicy, only its findings.
    pub fn count(&mut self, owner_result: &OwnerResult) {
        self.owners += usize::from(owner_result.kind.has_pod());
        self.windows += usize::from(owner_result.verdict == Verdict::Windows);
        let is_denied = owner_result.outcome == OwnerOutcome::Denied;
        self.denied += usize::from(is_denied);
        if let Some(cause) = owner_result.denial_cause() {
            self.would_be_denied += 1;
            *self.would_be_denied_for.entry(cause).or_default() += 1;
            if is_denied {
                *self.denied_for.entry(cause).or_default() += 1;
            }
        }
        self.patched += usize::from(owner_result.outcome == OwnerOutcome::Patched);
        let would_patch =
            owner_result.outcome == OwnerOutcome::Patched || !owner_result.would_patch.is_empty();
        self.would_be_patched += usize::from(would_patch);
        let is_warned = || {
            owner_result
                .findings
                .iter()
                .any(|found| found.outcome == FindingOutcome::Warned)
        };
        self.warned += usize::from(owner_result.outcome == OwnerOutcome::Passes && is_warned());
        self.not_reviewed +=
            usize::from(owner_result.outcome == OwnerOutcome::NotReviewed && !owner_result.is_clean());
        for found in &owner_result.findings {
            *self.findings.entry(found.outcome).or_default() += 1;
            if found.outcome.is_open() {
                self.open[found.severity as usize] += 1;
            }
        }
    }
}

/// One Windows node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScannedNode {
    /// Its name.
    pub name: String,
    /// Its pool, as named by the label of the platform. Absent without such a label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Its build, as in `10.0.20348`. Absent if it does not report one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The release of that build, as in `Windows Server 2022`. Absent if Transom does not know the build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<&'static str>,
    /// The first day of that release. Absent if it is not documented.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date"))]
    pub available: Option<Date>,
    /// The last day on which that release is serviced. Absent if it is not documented.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date"))]
    pub end_of_service: Option<Date>,
    /// The days on which support for it changes on its platform, as in `2028-06-30: end of support for Windows Server
    /// 2022 on AKS`. Absent if none is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub platform_dates: Vec<String>,
    /// The problems that it reports, with remedies. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Its taints, as in `os=windows:NoSchedule`.
    pub taints: Vec<String>,
    /// Its container runtime, as the node reports it.
    pub container_runtime: String,
    /// Whether it is a pool that has zero nodes now.
    #[serde(rename = "atZero")]
    pub is_at_zero: bool,
}

/// One namespace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceReport {
    /// Its name.
    pub name: String,
    /// The policy that applies in it.
    pub policy: String,
    /// The strongest action of findings there.
    #[schemars(with = "Action")]
    pub validation: &'static str,
    /// The placement setting there.
    #[schemars(with = "PlacementMode")]
    pub placement: &'static str,
    /// Why the API server does not send its objects for review; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_reviewed: Option<String>,
}

string_enum! {
    /// What is wrong with the placement of a pod.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum PodProblem {
        /// It is on a node with a different operating system.
        OperatingSystem = "operating-system",
        /// It is on a Windows node whose build cannot run its image.
        Build = "build",
        /// Pending: no node has its operating system.
        WaitsForOs = "waits-for-os",
        /// Pending: no node has the build that it requires.
        WaitsForBuild = "waits-for-build",
        /// Pending: it does not tolerate a taint of the Windows nodes.
        WaitsForToleration = "waits-for-toleration",
        /// Pending: its RuntimeClass selects no node, or no node has the handler.
        WaitsForRuntimeClass = "waits-for-runtime-class",
        /// Pending: its required node affinity matches no node, regardless of labels.
        WaitsForAffinity = "waits-for-affinity",
        /// It still exists after its grace period.
        Terminating = "terminating",
        /// A CSI driver that does not start, because csi-proxy is not running on its node.
        CsiProxy = "csi-proxy",
        /// Its containers fail with an error of the Host Compute Service.
        HostCompute = "host-compute",
        /// Its label kubernetes.io/os is not windows, so the kubelet rejects it when it restarts.
        OsLabel = "os-label",
    }
}

impl PodProblem {
    /// Whether the pod is on the wrong node.
    pub fn is_misplaced(self) -> bool {
        matches!(self, PodProblem::OperatingSystem | PodProblem::Build)
    }
}

/// One pod on a node that cannot run it, or a pending pod.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodFinding {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its top owner, as in `Deployment web`; absent for a pod without an owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The node that it is on; absent if it has none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What is wrong.
    pub problem: PodProblem,
    /// The problem as text: lower case, no full stop.
    pub message: String,
    /// What to do: lower case, no full stop.
    pub remedy: String,
    /// Since when; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<Timestamp>,
}

/// What differs from an earlier report. Objects are compared by kind, namespace and name, findings by rule and field, and
/// pods by owner and problem.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScanChanges {
    /// When the earlier report was created.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: Timestamp,
    /// What only this report lists.
    pub new: ChangedItems,
    /// What only the earlier report lists.
    pub gone: ChangedItems,
    /// The findings of both with another outcome than before.
    pub changed: Vec<ComparedOwner>,
    /// Why some of it may not have changed: a report is incomplete, or is of another cluster. Absent if there is no reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What only one of two reports lists.
#[derive(Clone, PartialEq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedItems {
    /// The objects that only one report lists, and those with findings that only one report lists; by namespace, kind, name.
    pub owners: Vec<ComparedOwner>,
    /// The pods with problems, one for each owner and problem; by namespace, owner.
    pub pods: Vec<PodFinding>,
}

/// An object with those of its findings that changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComparedOwner {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The owner that the object represents, by which it is compared. Absent if it represents itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ForeignOwner>,
    /// Whether both reports list it.
    #[serde(default)]
    pub in_both: bool,
    /// The findings.
    pub findings: Vec<ComparedFinding>,
}

/// A finding that changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComparedFinding {
    /// The rule's id.
    pub id: String,
    /// The rule's name.
    pub rule: String,
    /// How severe it is.
    pub severity: Severity,
    /// The field path.
    pub path: String,
    /// The message.
    pub message: String,
    /// The remedy.
    pub remedy: String,
    /// The outcome in the last report that lists it.
    pub outcome: FindingOutcome,
    /// Whether it would deny the object with `validation.action: Deny`.
    pub would_deny: bool,
    /// The outcome in the earlier report, if it differs. Otherwise absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_outcome: Option<FindingOutcome>,
}

/// Something that could not be read or evaluated. The rest of the report is complete without it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScanGap {
    /// The resource or object, as in `jobs` or `Deployment shop/web`.
    pub resource: String,
    /// The reason.
    pub reason: String,
    /// How to fix it; absent if no general remedy is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl fmt::Display for ScanGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.resource, self.reason)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}
