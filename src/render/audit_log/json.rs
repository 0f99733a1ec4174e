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
    summary: Sums,
    dry_runs: Sums,
    first_seen: Option<Timestamp>,
    last_seen: Option<Timestamp>,
    clusters: Vec<OneCluster<'r>>,
    workloads: Vec<OneRow<'r>>,
    inputs: Vec<OneInput<'r>>,
    counted_once: bool,
}

#[derive(Serialize)]
struct Sums {
    requests: u64,
    #[serde(flatten)]
    outcomes: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneCluster<'r> {
    name: Option<&'r str>,
    summary: Sums,
    dry_runs: Sums,
    beyond: Sums,
    first_seen: Option<Timestamp>,
    last_seen: Option<Timestamp>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneRow<'r> {
    cluster: Option<&'r str>,
    namespace: &'r str,
    workload: &'r str,
    user: &'r str,
    summary: Sums,
    first_seen: Option<Timestamp>,
    last_seen: Option<Timestamp>,
    rules: Vec<OneRule<'r>>,
    now: Option<OneNow<'r>>,
}

/// The current state of a workload.
#[derive(Serialize)]
struct OneNow<'r> {
    state: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rules: &'r [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'r str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneRule<'r> {
    rule: &'r str,
    denied: u64,
    would_deny: u64,
    first_seen: Option<Timestamp>,
    last_seen: Option<Timestamp>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneInput<'r> {
    source: &'r str,
    cluster: Option<&'r str>,
    lines: u64,
    broken: u64,
    too_long: u64,
    unfinished: bool,
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
        counted_once: !report.forgets,
    };
    write_json(&document, out)
}

fn sums(counts: &OutcomeCounts) -> Sums {
    let outcomes = RequestOutcome::ALL.into_iter();
    Sums {
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

fn cluster(cluster: &ClusterRecord) -> OneCluster<'_> {
    let (first_seen, last_seen) = ends(&cluster.span);
    OneCluster {
        name: named(&cluster.name),
        summary: sums(&cluster.counts),
        dry_runs: sums(&cluster.dry_runs),
        beyond: sums(&cluster.beyond),
        first_seen,
        last_seen,
    }
}

fn workload(row: &WorkloadRow) -> OneRow<'_> {
    let (first_seen, last_seen) = ends(&row.span);
    OneRow {
        cluster: named(&row.cluster),
        namespace: &row.namespace,
        workload: &row.workload,
        user: &row.user,
        summary: sums(&row.counts),
        first_seen,
        last_seen,
        rules: row.rules.iter().map(|(name, found)| rule(name, found)).collect(),
        now: row.now.as_ref().map(now),
    }
}

fn now(now: &CurrentState) -> OneNow<'_> {
    let (rules, why) = match now {
        CurrentState::Open(rules) => (rules.as_slice(), None),
        CurrentState::Unknown(why) => (&[][..], Some(why.as_str())),
        CurrentState::Fixed | CurrentState::Gone => (&[][..], None),
    };
    OneNow {
        state: now.as_str(),
        rules,
        why,
    }
}

fn rule<'r>(name: &'r str, rule: &RuleCount) -> OneRule<'r> {
    let (first_seen, last_seen) = ends(&rule.span);
    OneRule {
        rule: name,
        denied: rule.denied,
        would_deny: rule.would_deny,
        first_seen,
        last_seen,
    }
}

fn input(input: &InputResult) -> OneInput<'_> {
    let (first_seen, last_seen) = ends(&input.span);
    OneInput {
        source: &input.name,
        cluster: named(&input.cluster),
        lines: input.lines,
        broken: input.broken,
        too_long: input.too_long,
        unfinished: input.unfinished,
        error: input.error.as_deref(),
        first_seen,
        last_seen,
    }
}
