//! The report of one top-level owner: its content, its name, and whether it has changed. Pure.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::report_api::ReportApi;
use crate::cluster::node::{MANAGED_BY, OWNED_LABEL};
use crate::model::cluster::severity::Severity;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::text::cut;
use crate::rules::FAMILIES;
use crate::scan::{FindingOutcome, FindingResult, OwnerOutcome, OwnerResult};

/// How many results a report lists; the summary counts all.
pub const MOST_RESULTS: usize = 50;
/// The longest text of a result, in bytes: names in a message may be long.
const LONGEST: usize = 512;
/// The `source` of every report.
const SOURCE: &str = "transom";
/// The annotation with a hash of the content without its times: an unchanged report is not written again.
pub const CONTENT: &str = "transom.dev/content";
/// The annotation with the number of results that are omitted.
const MORE: &str = "transom.dev/more-results";

/// The name of an object's report; it does not change while the object exists.
pub fn name(owner: &WorkloadName) -> String {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let uid: String = (owner.uid)
        .to_lowercase()
        .chars()
        .map(|c| if legal(c) { c } else { '-' })
        .collect();
    let kind = owner.kind.to_lowercase();
    let mut name = format!("transom-{kind}-{}", uid.trim_matches('-'));
    name.truncate(253);
    name
}

/// The findings that a report lists: without those that admission fixes, and none if the webhooks are not called.
pub fn reported(owner_result: &OwnerResult) -> impl Iterator<Item = &FindingResult> {
    let is_reviewed = owner_result.outcome != OwnerOutcome::NotReviewed;
    let findings = owner_result.findings.iter().filter(move |_| is_reviewed);
    findings.filter(|found| !matches!(found.outcome, FindingOutcome::Fixed | FindingOutcome::NotReviewed))
}

/// A hash of the content, equal for the same findings under the same policy. `None`: nothing to report.
pub fn content(owner_result: &OwnerResult) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut is_clean = true;
    (owner_result.policy.as_str(), owner_result.name.as_str()).hash(&mut hasher);
    for found in reported(owner_result) {
        is_clean = false;
        (found.rule, found.severity, found.outcome, found.would_deny).hash(&mut hasher);
        (&found.path, &found.message, &found.remedy, &found.outcome_reason).hash(&mut hasher);
    }
    (!is_clean).then(|| hasher.finish())
}

/// The report, as it is applied.
pub fn report(owner_result: &OwnerResult, content: u64, api: ReportApi, now: Timestamp) -> Value {
    let mut all: Vec<&FindingResult> = reported(owner_result).collect();
    // Findings that deny the object come first; the rest keep the order in which a user would fix them.
    all.sort_by_key(|found| (found.outcome != FindingOutcome::Denied, !found.would_deny));
    let mut annotations = json!({CONTENT: spelled(content)});
    if let Some(more) = all.len().checked_sub(MOST_RESULTS).filter(|more| *more > 0) {
        annotations[MORE] = json!(more.to_string());
    }
    let count = |result: &str| all.iter().filter(|found| verdict(found) == result).count();
    let results = all.iter().take(MOST_RESULTS);
    let results: Vec<Value> = results.map(|found| result(owner_result, found, now)).collect();
    let mut report = json!({
        "apiVersion": api.api_version(),
        "kind": api.kind(),
        "metadata": {
            "name": name(&owner_result.workload()),
            "namespace": owner_result.namespace,
            "labels": {OWNED_LABEL.0: OWNED_LABEL.1, MANAGED_BY.0: MANAGED_BY.1},
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": owner_result.api_version, "kind": owner_result.kind.as_str(), "name": owner_result.name, "uid": owner_result.uid,
            }],
        },
        "scope": {
            "apiVersion": owner_result.api_version, "kind": owner_result.kind.as_str(), "namespace": owner_result.namespace,
            "name": owner_result.name, "uid": owner_result.uid,
        },
        "summary": {"pass": 0, "fail": count("fail"), "warn": count("warn"), "error": 0, "skip": count("skip")},
        "results": results,
    });
    if api == ReportApi::OpenReports {
        report["source"] = json!(SOURCE);
    }
    report
}

/// The annotation value of a hash.
pub fn spelled(content: u64) -> String {
    format!("{content:016x}")
}

/// One finding; both report APIs use the same format.
fn result(owner_result: &OwnerResult, found: &FindingResult, now: Timestamp) -> Value {
    let mut result = json!({
        "source": SOURCE,
        "policy": owner_result.policy,
        "rule": found.rule,
        "category": category(found.id),
        "severity": severity(found.severity),
        "result": verdict(found),
        "scored": true,
        "message": short(&found.message),
        "timestamp": {"seconds": now.as_second(), "nanos": 0},
        "properties": {
            "id": found.id,
            "field": short(&found.path),
            "remedy": short(&found.remedy),
            "outcome": short(&outcome(found)),
        },
    });
    if let Some(owner) = owner_result.owner_of_different_pod() {
        result["properties"]["owner"] = json!(short(&format!("{} {}", owner.kind, owner.name)));
    }
    result
}

fn short(text: &str) -> Cow<'_, str> {
    cut(text, LONGEST)
}

/// The family of a rule.
fn category(id: &str) -> &'static str {
    let is_in = |rules: &[&crate::rules::Rule]| rules.iter().any(|rule| rule.id == id);
    let family = FAMILIES.iter().find(|family| is_in(family.rules));
    family.map_or("Windows", |family| family.title)
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "high",
        Severity::Warning => "medium",
        Severity::Advice => "info",
    }
}

/// The result, one of the five values that reports define.
fn verdict(found: &FindingResult) -> &'static str {
    match found.outcome {
        FindingOutcome::Exempted => "skip",
        _ if found.would_deny => "fail",
        _ => "warn",
    }
}

/// What this finding would cause for the object.
pub fn outcome(found: &FindingResult) -> String {
    let mut text = match found.outcome {
        FindingOutcome::Denied => "denied at its next create; an update that leaves it as it is passes",
        FindingOutcome::Warned => "the author is warned when it is applied",
        FindingOutcome::Audited => "recorded in the audit log",
        FindingOutcome::Reported => "reported here; admission does not review objects of this kind",
        FindingOutcome::Fixed => "fixed at its next create",
        FindingOutcome::Fixable => "fixed if placement and the removal of ignored fields were not in dry run",
        FindingOutcome::Exempted => "covered by an exemption",
        FindingOutcome::NotReviewed => "admission is not called",
    }
    .to_owned();
    if found.would_deny && found.outcome != FindingOutcome::Denied {
        text.push_str("; would be denied with validation.action: Deny");
    }
    if let Some(reason) = &found.outcome_reason {
        let _ = write!(text, " ({reason})");
    }
    text
}
