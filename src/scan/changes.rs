//! What is new and what is gone since an earlier report of a scan. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use super::report::{
    ChangedItems, ComparedFinding, ComparedOwner, PodFinding, PodProblem, SCHEMA, ScanChanges, ScanReport,
    ScanSummary,
};
use super::result::{FindingOutcome, FindingResult, OwnerResult};
use crate::model::objects::workload_name::WorkloadName;

/// A report that cannot be compared.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EarlierReportError {
    #[error("it is not a report of transom scan -o json: {0}")]
    NoJson(String),
    /// It is no report of this program.
    #[error("it is not a report of transom scan -o json, because it has no schema")]
    NoReport,
    /// It is a report of another command, or of another version.
    #[error(
        "its schema is {0:?}, and this version of Transom compares reports with the schema {SCHEMA:?}; scan again with -o json"
    )]
    OtherSchema(String),
    /// It has the right schema, but not its fields.
    #[error("it does not match the schema {SCHEMA}: {0}")]
    Invalid(String),
}

/// The parts of an earlier report that are compared.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EarlierReport {
    created_at: Timestamp,
    cluster: EarlierCluster,
    assumed: Vec<String>,
    #[serde(default)]
    limited_to: Vec<String>,
    owners: Vec<ComparedOwner>,
    pods: Vec<PodFinding>,
    gaps: Vec<serde::de::IgnoredAny>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
struct EarlierCluster {
    name: String,
}

impl EarlierReport {
    /// Reads the JSON of a report.
    ///
    /// # Errors
    /// If it is not a report of a scan, or one of another version.
    pub fn parse(json: &[u8]) -> Result<Self, EarlierReportError> {
        #[derive(Deserialize)]
        struct AnyReport {
            schema: Option<String>,
        }
        let any: AnyReport =
            serde_json::from_slice(json).map_err(|error| EarlierReportError::NoJson(error.to_string()))?;
        match any.schema {
            Some(schema) if schema == SCHEMA => {
                serde_json::from_slice(json).map_err(|error| EarlierReportError::Invalid(error.to_string()))
            }
            Some(schema) => Err(EarlierReportError::OtherSchema(schema)),
            None => Err(EarlierReportError::NoReport),
        }
    }

    /// What limited the scan, as in `namespace=shop`.
    pub fn limited_to(&self) -> &[String] {
        &self.limited_to
    }
}

impl From<&OwnerResult> for ComparedOwner {
    fn from(owner_result: &OwnerResult) -> Self {
        ComparedOwner {
            api_version: owner_result.api_version.clone(),
            kind: owner_result.kind.to_string(),
            namespace: owner_result.namespace.clone(),
            name: owner_result.name.clone(),
            owner: owner_result.owner.clone(),
            in_both: false,
            findings: owner_result.findings.iter().map(ComparedFinding::from).collect(),
        }
    }
}

impl From<&FindingResult> for ComparedFinding {
    fn from(found: &FindingResult) -> Self {
        ComparedFinding {
            id: found.id.to_owned(),
            rule: found.rule.to_owned(),
            severity: found.severity,
            path: found.path.clone(),
            message: found.message.clone(),
            remedy: found.remedy.clone(),
            outcome: found.outcome,
            would_deny: found.would_deny,
            former_outcome: None,
        }
    }
}

/// What identifies an object in two reports: versions of its API differ, and so do the names of pods that represent their owner.
fn identity(owner: &ComparedOwner) -> WorkloadName {
    let (api_version, kind, name) = match &owner.owner {
        Some(represented) => (&represented.api_version, &represented.kind, &represented.name),
        None => (&owner.api_version, &owner.kind, &owner.name),
    };
    WorkloadName::of_api_version(api_version, kind, &owner.namespace, name)
}

/// The findings of an object, by rule and field. Of several, the worst outcome.
type FindingsByKey<'r> = BTreeMap<(&'r str, &'r str), &'r ComparedFinding>;

/// The objects, each with its findings. Several objects may represent one owner.
fn by_key(owners: &[ComparedOwner]) -> BTreeMap<WorkloadName, (&ComparedOwner, FindingsByKey<'_>)> {
    let mut all: BTreeMap<WorkloadName, (&ComparedOwner, FindingsByKey<'_>)> = BTreeMap::new();
    for owner in owners {
        let (_, findings) = all
            .entry(identity(owner))
            .or_insert_with(|| (owner, BTreeMap::new()));
        for found in &owner.findings {
            let worst = findings.entry((&found.id, &found.path)).or_insert(found);
            if found.outcome < worst.outcome {
                *worst = found;
            }
        }
    }
    all
}

/// The objects and findings of one report that the other does not list.
fn only_in(owners: &[ComparedOwner], other: &[ComparedOwner]) -> Vec<ComparedOwner> {
    let other = by_key(other);
    let mut only = Vec::new();
    for (key, (owner, findings)) in by_key(owners) {
        let known = other.get(&key).map(|(_, findings)| findings);
        let is_only = |identity: &&(&str, &str)| known.is_none_or(|known| !known.contains_key(*identity));
        let missing: Vec<ComparedFinding> = (findings.iter())
            .filter(|(identity, _)| is_only(identity))
            .map(|(_, found)| (*found).clone())
            .collect();
        if known.is_none() || !missing.is_empty() {
            only.push(ComparedOwner {
                in_both: known.is_some(),
                findings: missing,
                ..owner.clone()
            });
        }
    }
    only
}

/// The findings of both reports whose outcome differs.
fn with_another_outcome(earlier: &[ComparedOwner], now: &[ComparedOwner]) -> Vec<ComparedOwner> {
    let earlier = by_key(earlier);
    let mut changed = Vec::new();
    for (key, (owner, findings)) in by_key(now) {
        let Some((_, before)) = earlier.get(&key) else {
            continue;
        };
        let differing = findings.iter().filter_map(|(identity, found)| {
            let former = before.get(identity)?.outcome;
            (former != found.outcome).then(|| ComparedFinding {
                former_outcome: Some(former),
                ..(*found).clone()
            })
        });
        let differing: Vec<ComparedFinding> = differing.collect();
        if !differing.is_empty() {
            changed.push(ComparedOwner {
                in_both: true,
                findings: differing,
                ..owner.clone()
            });
        }
    }
    changed
}

/// Identifies the pods of an owner that have the same problem; a pod without an owner is identified by its name.
fn pod_key(pod: &PodFinding) -> (&str, &str, PodProblem) {
    let owner = pod.owner.as_deref().unwrap_or(&pod.name);
    (&pod.namespace, owner, pod.problem)
}

/// The pods of one report that the other does not list.
fn pods_only_in(pods: &[PodFinding], other: &[PodFinding]) -> Vec<PodFinding> {
    let by_key = |pods| -> BTreeMap<_, &PodFinding> {
        let pods: &[PodFinding] = pods;
        pods.iter().rev().map(|pod| (pod_key(pod), pod)).collect()
    };
    let other = by_key(other);
    let pods = by_key(pods).into_iter();
    pods.filter(|(key, _)| !other.contains_key(key))
        .map(|(_, pod)| pod.clone())
        .collect()
}

impl ScanChanges {
    /// What changed between two reports.
    pub fn between(earlier: &EarlierReport, report: &ScanReport) -> Self {
        let now: Vec<ComparedOwner> = report.owners.iter().map(ComparedOwner::from).collect();
        let mut notes = Vec::new();
        if earlier.cluster.name != report.cluster.name {
            notes.push(format!(
                "the earlier report is of the cluster {}, this one of {}",
                earlier.cluster.name, report.cluster.name
            ));
        }
        if earlier.assumed != report.assumed {
            let words = |assumed: &[String]| match assumed {
                [] => "no --assume".to_owned(),
                words => format!("--assume {}", words.join(",")),
            };
            notes.push(format!(
                "outcomes may differ because the earlier scan had {}, and this one has {}",
                words(&earlier.assumed),
                words(&report.assumed)
            ));
        }
        if !earlier.gaps.is_empty() {
            notes.push(
                "the earlier scan could not read everything: what is new may have existed then".to_owned(),
            );
        }
        if !report.gaps.is_empty() {
            notes.push("this scan could not read everything: what is gone may still exist".to_owned());
        }
        ScanChanges {
            since: earlier.created_at,
            new: ChangedItems {
                owners: only_in(&now, &earlier.owners),
                pods: pods_only_in(&report.pods, &earlier.pods),
            },
            gone: ChangedItems {
                owners: only_in(&earlier.owners, &now),
                pods: pods_only_in(&earlier.pods, &report.pods),
            },
            changed: with_another_outcome(&earlier.owners, &now),
            notes,
        }
    }

    /// The totals of what got new findings, or findings with another outcome: what can end in exit status 1.
    pub fn summary(&self) -> ScanSummary {
        let mut summary = ScanSummary::default();
        for owner in self.new.owners.iter().chain(&self.changed) {
            let denies = |found: &ComparedFinding| found.outcome == FindingOutcome::Denied;
            summary.denied += usize::from(owner.findings.iter().any(denies));
            summary.would_be_denied += usize::from(owner.findings.iter().any(|found| found.would_deny));
            for found in owner.findings.iter().filter(|found| found.outcome.is_open()) {
                summary.open[found.severity as usize] += 1;
            }
        }
        summary
    }
}

#[cfg(test)]
mod tests;
