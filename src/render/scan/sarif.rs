//! The report of a scan as SARIF 2.1.0: a result for each finding and for each pod with a problem, and a
//! notification for each gap.
//!
//! Source: OASIS, Static Analysis Results Interchange Format 2.1.0. Stored objects have no file: each result
//! names the object as a logical location, and with a URI built from its namespace, kind and name.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::super::sarif::{message, of_rule, tool, write_log};
use crate::model::cluster::severity::Severity;
use crate::model::syntax::text::one_line;
use crate::rules::catalogue;
use crate::rules::documentation::DocumentationUrl;
use crate::scan::report::{PodFinding, PodProblem, ScanReport};
use crate::scan::{FindingOutcome, FindingResult, OwnerResult};

/// Writes the report as SARIF.
///
/// # Errors
/// The errors of the writer.
pub fn scan_sarif(
    report: &ScanReport,
    documentation: Option<&DocumentationUrl>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rules = SarifRules::of(report, documentation);
    let found = (report.owners.iter()).flat_map(|owner_result| {
        owner_result
            .findings
            .iter()
            .map(|found| rules.finding(owner_result, found))
    });
    let pods = report.pods.iter().map(|pod| rules.pod(pod));
    let results: Vec<Value> = found.chain(pods).collect();
    let notification = |level: &str, text: &str| json!({"level": level, "message": message(text)});
    let gaps = report
        .gaps
        .iter()
        .map(|gap| notification("warning", &gap.to_string()));
    let notes = report.notes.iter().map(|note| notification("note", note));
    let notifications = gaps.chain(notes);
    let run = json!({
        "tool": tool(&rules.metadata),
        "invocations": [{
            "executionSuccessful": report.gaps.is_empty(),
            "endTimeUtc": report.created_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "toolExecutionNotifications": notifications.collect::<Vec<_>>(),
        }],
        "automationDetails": {"id": format!("transom/scan/{}/", report.cluster.name)},
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {"assumed": report.assumed, "summary": report.summary},
    });
    write_log(&run, out)
}

/// The rules that have results, by id, with the index of each.
struct SarifRules {
    metadata: Vec<Value>,
    places: BTreeMap<String, usize>,
}

impl SarifRules {
    fn of(report: &ScanReport, documentation: Option<&DocumentationUrl>) -> Self {
        let mut rules = SarifRules {
            metadata: Vec::new(),
            places: BTreeMap::new(),
        };
        let findings = || {
            report
                .owners
                .iter()
                .flat_map(|owner_result| &owner_result.findings)
        };
        for rule in catalogue().filter(|rule| findings().any(|found| found.id == rule.id)) {
            rules.add(rule.id, of_rule(rule, documentation));
        }
        for wrong in PodProblem::ALL {
            if report.pods.iter().any(|pod| pod.problem == wrong) {
                rules.add(&id_of(wrong), of_wrong(wrong));
            }
        }
        rules
    }

    fn add(&mut self, id: &str, metadata: Value) {
        self.places.insert(id.to_owned(), self.metadata.len());
        self.metadata.push(metadata);
    }

    fn finding(&self, owner_result: &OwnerResult, found: &FindingResult) -> Value {
        let place = format!(
            "{}/{}/{}",
            owner_result.namespace, owner_result.kind, owner_result.name
        );
        let mut result = json!({
            "ruleId": found.id,
            "ruleIndex": self.places.get(found.id),
            "level": level_of(found),
            "message": message(&format!("{}; {}", found.message, found.remedy)),
            "locations": [location(&place, Some(&found.path))],
            "partialFingerprints": {"transom/v1": format!("{}:{place}:{}", found.id, found.path)},
            "properties": {
                "outcome": found.outcome,
                "wouldDeny": found.would_deny,
                "outcomeReason": found.outcome_reason,
                "class": found.class.as_str(),
                "policy": owner_result.policy,
            },
        });
        if let (FindingOutcome::Exempted | FindingOutcome::NotReviewed, Some(result)) =
            (found.outcome, result.as_object_mut())
        {
            let why = found.outcome_reason.as_deref().unwrap_or_default();
            let suppression =
                json!([{"kind": "external", "status": "accepted", "justification": one_line(why)}]);
            result.insert("suppressions".to_owned(), suppression);
        }
        result
    }

    fn pod(&self, pod: &PodFinding) -> Value {
        let place = format!("{}/Pod/{}", pod.namespace, pod.name);
        let id = id_of(pod.problem);
        // Pod names change, but the problem of their owner is the same.
        let of = pod.owner.as_deref().unwrap_or(&pod.name);
        json!({
            "ruleId": id,
            "ruleIndex": self.places.get(&id),
            "level": "error",
            "message": message(&format!("{}; {}", pod.message, pod.remedy)),
            "locations": [location(&place, None)],
            "partialFingerprints": {"transom/v1": format!("{id}:{}/{of}", pod.namespace)},
            "properties": {"owner": pod.owner, "node": pod.node, "since": pod.since},
        })
    }
}

fn location(place: &str, path: Option<&str>) -> Value {
    let full = path.map_or_else(|| place.to_owned(), |path| format!("{place}:{path}"));
    json!({
        "physicalLocation": {"artifactLocation": {"uri": format!("k8s:///{place}")}},
        "logicalLocations": [{"fullyQualifiedName": full, "kind": "object"}],
    })
}

fn level_of(found: &FindingResult) -> &'static str {
    match found.outcome {
        FindingOutcome::Denied => "error",
        FindingOutcome::Warned => "warning",
        // Admission does not act on it; its severity remains.
        FindingOutcome::Audited | FindingOutcome::Fixable if found.severity == Severity::Error => "warning",
        FindingOutcome::Audited
        | FindingOutcome::Reported
        | FindingOutcome::Fixable
        | FindingOutcome::Fixed
        | FindingOutcome::Exempted
        | FindingOutcome::NotReviewed => "note",
    }
}

fn id_of(wrong: PodProblem) -> String {
    format!("pod-{wrong}")
}

fn of_wrong(wrong: PodProblem) -> Value {
    let summary = match wrong {
        PodProblem::OperatingSystem => "a pod on a node of another operating system",
        PodProblem::Build => "a pod on a Windows node whose build does not run its image",
        PodProblem::WaitsForOs => "a pod that waits: no node has its operating system",
        PodProblem::WaitsForBuild => "a pod that waits: no node has the build that it requires",
        PodProblem::WaitsForToleration => {
            "a pod that waits: it does not tolerate a taint of the Windows nodes"
        }
        PodProblem::WaitsForRuntimeClass => "a pod that cannot start for its RuntimeClass",
        PodProblem::WaitsForAffinity => "a pod that waits: its required node affinity matches no node",
        PodProblem::Terminating => "a pod that terminates past its grace period",
        PodProblem::CsiProxy => "a CSI driver that does not start for want of csi-proxy",
        PodProblem::HostCompute => "a pod that fails with an error of the Host Compute Service",
        PodProblem::OsLabel => "a pod with a label for which its kubelet rejects it",
    };
    json!({
        "id": id_of(wrong),
        "name": id_of(wrong),
        "shortDescription": {"text": summary},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["kubernetes", "windows", "running-pods"]},
    })
}

#[cfg(test)]
mod tests;
