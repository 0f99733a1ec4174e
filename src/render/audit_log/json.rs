//! The report of audit logs for machines, schema `transom.dev/audit-log/v1`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use jiff::Timestamp;
use serde::Serialize;

use super::super::plain::write_json;
use crate::audit_log::{
    AuditReport, ClusterRecord, CurrentState, InputResult, OutcomeCounts, RequestOutcome, RuleCount,
    TimeSpan, WorkloadRow,
};

/// The schema of the report.
pub const SCHEMA: &str = "transom.dev/audit-log/v1";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuditDocument<'r> {
    schema: &'static str,
    summary: CountsEntry,
    dry_runs: CountsEntry,
    first_seen: Option<Timestamp>,
    last_seen: Option<Timestamp>,
    clusters: Vec<ClusterEntry<'r>>,
    workloads: Vec<WorkloadEntry<'r>>,
    inputs: Vec<InputEntry<'r>>,
    deduplicated: bool,
}

#[derive(Serialize)]
struct CountsEntry {
    requests: u64,
    #[serde(flatten)]
    outcomes: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterEntry<'r> {
    name: Option<&'r str>,
    summary: CountsEntry,
    dry_runs: CountsEntry,
    unlisted: CountsEntry,
    first_seen: Option<Timestamp>,
    last_seen: Option<Timestamp>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadEntry<'r> {
    cluster: Option<&'r str>,
    namespace: &'r str,
    workload: &'r str,
    user: &'r str,
    summary: CountsEntry,
    first_seen: Option<Timestamp>,
    last_seen: Option<Timestamp>,
    rules: Vec<RuleEntry<'r>>,
    current: Option<CurrentEntry<'r>>,
}

/// The current state of a workload.
#[derive(Serialize)]
struct CurrentEntry<'r> {
    state: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rules: &'r [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleEntry<'r> {
    rule: &'r str,
    denied: u64,
    would_deny: u64,
    first_seen: Option<Timestamp>,
    last_seen: Option<Timestamp>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InputEntry<'r> {
    source: &'r str,
    cluster: Option<&'r str>,
    lines: u64,
    invalid: u64,
    too_long: u64,
    is_truncated: bool,
    error: Option<&'r str>,
    first_seen: Option<Timestamp>,
    last_seen: Option<Timestamp>,
}

/// Writes the report.
///
/// # Errors
/// The errors of `out`.
pub fn json(report: &AuditReport, out: &mut dyn Write) -> io::Result<()> {
    let (first_seen, last_seen) = ends(&report.span());
    let document = AuditDocument {
        schema: SCHEMA,
        summary: sums(&report.counts()),
        dry_runs: sums(&report.dry_runs()),
        first_seen,
        last_seen,
        clusters: report.clusters.iter().map(cluster).collect(),
        workloads: report.rows.iter().map(workload).collect(),
        inputs: report.inputs.iter().map(input).collect(),
        deduplicated: !report.may_count_twice,
    };
    write_json(&document, out)
}

fn sums(counts: &OutcomeCounts) -> CountsEntry {
    let outcomes = RequestOutcome::ALL.into_iter();
    CountsEntry {
        requests: counts.requests,
        outcomes: outcomes
            .map(|outcome| (outcome.as_str(), counts.of(outcome)))
            .collect(),
    }
}

fn ends(span: &TimeSpan) -> (Option<Timestamp>, Option<Timestamp>) {
    span.ends
        .map_or((None, None), |(first, last)| (Some(first), Some(last)))
}

fn named(name: &str) -> Option<&str> {
    (!name.is_empty()).then_some(name)
}

fn cluster(cluster: &ClusterRecord) -> ClusterEntry<'_> {
    let (first_seen, last_seen) = ends(&cluster.span);
    ClusterEntry {
        name: named(&cluster.name),
        summary: sums(&cluster.counts),
        dry_runs: sums(&cluster.dry_runs),
        unlisted: sums(&cluster.unlisted),
        first_seen,
        last_seen,
    }
}

fn workload(row: &WorkloadRow) -> WorkloadEntry<'_> {
    let (first_seen, last_seen) = ends(&row.span);
    WorkloadEntry {
        cluster: named(&row.cluster),
        namespace: &row.namespace,
        workload: &row.workload,
        user: &row.user,
        summary: sums(&row.counts),
        first_seen,
        last_seen,
        rules: row.rules.iter().map(|(name, found)| rule(name, found)).collect(),
        current: row.current.as_ref().map(now),
    }
}

fn now(now: &CurrentState) -> CurrentEntry<'_> {
    let (rules, reason) = match now {
        CurrentState::Open(rules) => (rules.as_slice(), None),
        CurrentState::Unknown(reason) => (&[][..], Some(reason.as_str())),
        CurrentState::Fixed | CurrentState::Gone => (&[][..], None),
    };
    CurrentEntry {
        state: now.as_str(),
        rules,
        reason,
    }
}

fn rule<'r>(name: &'r str, rule: &RuleCount) -> RuleEntry<'r> {
    let (first_seen, last_seen) = ends(&rule.span);
    RuleEntry {
        rule: name,
        denied: rule.denied,
        would_deny: rule.would_deny,
        first_seen,
        last_seen,
    }
}

fn input(input: &InputResult) -> InputEntry<'_> {
    let (first_seen, last_seen) = ends(&input.span);
    InputEntry {
        source: &input.name,
        cluster: named(&input.cluster),
        lines: input.lines,
        invalid: input.invalid,
        too_long: input.too_long,
        is_truncated: input.is_truncated,
        error: input.error.as_deref(),
        first_seen,
        last_seen,
    }
}
