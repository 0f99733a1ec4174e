//! The report of a scan: everything that is printed of it, in whichever format, as plain data.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;

use super::result::{FindingOutcome, OwnerOutcome, OwnerResult};
use crate::model::os::Verdict;
use crate::model::severity::Severity;
use crate::model::string_enum::string_enum;

/// The version of the report's JSON.
pub const SCHEMA: &str = "transom.dev/scan/v1";

/// A whole scan.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScanReport {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// When it was made.
    pub at: Timestamp,
    /// Which cluster, and how much of it was read.
    pub cluster: ScannedCluster,
    /// The words of the policies that counted instead of those that are stored, as in `validation=Deny`; empty: none.
    pub judged_as: Vec<String>,
    /// What it all adds up to.
    pub summary: ScanSummary,
    /// The Windows nodes, by name.
    pub nodes: Vec<NodeReport>,
    /// The namespaces that hold an object of which there is something to say, by name.
    pub namespaces: Vec<NamespaceReport>,
    /// The top owners of which there is something to say, and every one for Windows: by namespace, kind, name.
    pub owners: Vec<OwnerResult>,
    /// The pods on a wrong node, and those that wait for one: by namespace, name.
    pub pods: Vec<PodTrouble>,
    /// What could not be read or judged.
    pub gaps: Vec<ScanGap>,
}

/// The cluster that was scanned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub struct ScannedCluster {
    /// Its name in the kubeconfig, or the address of its API server.
    pub name: String,
    /// Its release, as in `1.36`.
    pub kubernetes: String,
    /// Whether Transom's webhooks are registered in it.
    pub has_webhooks: bool,
    /// The stored WindowsPodPolicies, the one that counts first at the front; empty where the built-in one counts.
    pub policies: Vec<String>,
    /// The namespaces without a policy: the built-in one counts there. Empty where no policy is stored at all.
    pub namespaces_without_policy: Vec<String>,
}

/// Counts of a scan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub struct ScanSummary {
    /// Objects that were read: owners, and what they own.
    pub objects: usize,
    /// Top owners that were judged.
    pub owners: usize,
    /// Those of them that are for Windows.
    pub windows: usize,
    /// Those that would be refused at their next create.
    pub denied: usize,
    /// Those that would be refused if `validation` were Deny.
    pub would_be_denied: usize,
    /// Those that would be changed.
    pub changed: usize,
    /// Those that would be changed if nothing were in dry run.
    pub would_be_changed: usize,
    /// Those that pass with a warning.
    pub warned: usize,
    /// Those that admission is not asked about, and of which there is something to say.
    pub not_asked: usize,
    /// Findings by what becomes of them.
    pub findings: BTreeMap<FindingOutcome, usize>,
    /// Findings that nothing fixes, lifts or passes by, by severity.
    #[serde(skip)]
    pub open: [usize; Severity::ALL.len()],
    /// Pods that run on a node of the wrong operating system or build.
    pub misplaced: usize,
    /// Pods that wait for a node, for a reason that Transom knows.
    pub pending: usize,
    /// Objects that could not be read.
    pub unreadable: usize,
}

impl ScanSummary {
    /// Counts one top owner.
    pub fn count(&mut self, judged: &OwnerResult) {
        self.owners += 1;
        self.windows += usize::from(judged.verdict == Verdict::Windows);
        self.denied += usize::from(judged.outcome == OwnerOutcome::Denied);
        self.would_be_denied += usize::from(judged.findings.iter().any(|found| found.would_deny));
        self.changed += usize::from(judged.outcome == OwnerOutcome::Changed);
        let would_change = judged.outcome == OwnerOutcome::Changed || !judged.would_change.is_empty();
        self.would_be_changed += usize::from(would_change);
        let is_warned = || {
            judged
                .findings
                .iter()
                .any(|found| found.fate == FindingOutcome::Warned)
        };
        self.warned += usize::from(judged.outcome == OwnerOutcome::Passes && is_warned());
        self.not_asked += usize::from(judged.outcome == OwnerOutcome::NotAsked && !judged.is_clean());
        for found in &judged.findings {
            *self.findings.entry(found.fate).or_default() += 1;
            if matches!(
                found.fate,
                FindingOutcome::Denied | FindingOutcome::Warned | FindingOutcome::Noted
            ) {
                self.open[found.severity as usize] += 1;
            }
        }
    }
}

/// One Windows node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// Its pool, as a platform's label names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Its build, as in `10.0.20348`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The release of that build, as in `Windows Server 2022`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<&'static str>,
    /// The first day of that release, where it is documented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<Date>,
    /// The last day on which that release is serviced, where it is documented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_of_service: Option<Date>,
    /// Its taints, as in `os=windows:NoSchedule`.
    pub taints: Vec<String>,
    /// Its container runtime, as it reports it.
    pub container_runtime: String,
    /// Whether it is a pool that is at zero nodes at the moment.
    pub is_at_zero: bool,
}

/// One namespace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceReport {
    /// Its name.
    pub name: String,
    /// The policy that counts in it.
    pub policy: String,
    /// What findings do there at most.
    pub validation: &'static str,
    /// What placement does there.
    pub placement: &'static str,
    /// Why admission is not asked there, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_asked: Option<String>,
}

string_enum! {
    /// What is wrong with where a pod is.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum PodProblem {
        /// It is on a node of another operating system.
        OperatingSystem = "operating-system",
        /// It is on a Windows node whose build does not run its image.
        Build = "build",
        /// It waits: no node has its operating system.
        WaitsForOs = "waits-for-os",
        /// It waits: no node has the build that it asks for.
        WaitsForBuild = "waits-for-build",
        /// It waits: it does not tolerate a taint of the Windows nodes.
        WaitsForToleration = "waits-for-toleration",
        /// It waits: the RuntimeClass that it names selects no node, or no node has its handler.
        WaitsForRuntimeClass = "waits-for-runtime-class",
        /// It waits: its required node affinity matches no node, whatever its labels.
        WaitsForAffinity = "waits-for-affinity",
    }
}

impl PodProblem {
    /// Whether the pod is on a node, and should be on another one.
    pub fn is_misplaced(self) -> bool {
        matches!(self, PodProblem::OperatingSystem | PodProblem::Build)
    }
}

/// One pod that is where it cannot run, or waits for a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodTrouble {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its top owner, as in `Deployment web`; none for a pod that stands alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The node that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What is wrong.
    pub wrong: PodProblem,
    /// What is wrong, in words: lower case, no full stop.
    pub message: String,
    /// What to do: lower case, no full stop.
    pub remedy: String,
    /// Since when, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Something that could not be read or judged. The rest of the report is whole without it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScanGap {
    /// What, as in `jobs` or `Deployment shop/web`.
    pub what: String,
    /// Why.
    pub why: String,
    /// What fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}
