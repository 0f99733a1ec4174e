//! The report of audit logs for machines, schema `transom.dev/audit-log/v1`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::super::plain::write_json;
use crate::audit_log::{
    AuditReport, ClusterRecord, CurrentState, InputResult, OutcomeCounts, RequestOutcome, RuleCount,
    TimeSpan, WorkloadRow,
};
use crate::model::report_schema::{counts_by, of_report};

/// The schema of the report.
pub const SCHEMA: &str = "transom.dev/audit-log/v1";

/// What Transom did with the requests of audit logs.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Report of transom audit-log -o json")]
struct AuditDocument<'r> {
    /// The name and the version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// The requests by outcome, without dry runs.
    summary: CountsEntry,
    /// The requests with `--dry-run`.
    dry_runs: CountsEntry,
    /// The time of the first event; null without events.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    first_seen: Option<Timestamp>,
    /// The time of the last event; null without events.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    last_seen: Option<Timestamp>,
    /// The clusters, by name.
    clusters: Vec<ClusterEntry<'r>>,
    /// The workloads that Transom denied or changed, or would have, by user.
    workloads: Vec<WorkloadEntry<'r>>,
    /// The logs that were read.
    inputs: Vec<InputEntry<'r>>,
    /// Whether every event was counted once. Above a number of events, those that several logs contain count again.
    deduplicated: bool,
}

/// Requests, and how many of them had each outcome. A request can have several.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RequestCounts")]
struct CountsEntry {
    /// Requests that Transom reviewed, or should have reviewed.
    requests: u64,
    #[serde(flatten)]
    #[schemars(schema_with = "counts_by::<RequestOutcome>")]
    outcomes: BTreeMap<&'static str, u64>,
}

/// A cluster.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Cluster")]
struct ClusterEntry<'r> {
    /// Its name; null if neither the argument nor the log names it.
    name: Option<&'r str>,
    /// Its requests by outcome, without dry runs.
    summary: CountsEntry,
    /// Its requests with `--dry-run`.
    dry_runs: CountsEntry,
    /// The requests of workloads that are not listed, because the list has a maximum length.
    unlisted: CountsEntry,
    /// The time of its first event; null without events.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    first_seen: Option<Timestamp>,
    /// The time of its last event; null without events.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    last_seen: Option<Timestamp>,
}

/// A workload, and the requests of one user about it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Workload")]
struct WorkloadEntry<'r> {
    /// The cluster; null if neither the argument nor the log names it.
    cluster: Option<&'r str>,
    /// Its namespace.
    namespace: &'r str,
    /// Its kind and name, as in `Deployment web`.
    workload: &'r str,
    /// The user who sent the requests.
    user: &'r str,
    /// The requests by outcome.
    summary: CountsEntry,
    /// The time of the first request; null if no request has one.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    first_seen: Option<Timestamp>,
    /// The time of the last request; null if no request has one.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    last_seen: Option<Timestamp>,
    /// The rules that denied requests, or would have.
    rules: Vec<RuleCountsEntry<'r>>,
    /// Its current state; null without `--check-cluster`.
    current: Option<CurrentEntry<'r>>,
}

/// The current state of a workload.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CurrentState")]
struct CurrentEntry<'r> {
    /// `open`: it exists, and would be denied; `fixed`: it would not; `gone`: it does not exist any more, or has finished.
    #[schemars(extend("enum" = ["open", "unknown", "fixed", "gone"]))]
    state: &'static str,
    /// The rules that would deny it; absent if none would.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rules: &'r [String],
    /// Why the state is not known; absent if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
}

/// A rule that denied requests, or would have.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "RuleCounts")]
struct RuleCountsEntry<'r> {
    /// The name of the rule.
    rule: &'r str,
    /// Requests that it denied.
    denied: u64,
    /// Requests that it would have denied with `validation.action: Deny`.
    would_deny: u64,
    /// The time of the first of these requests; null if none has one.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    first_seen: Option<Timestamp>,
    /// The time of the last of these requests; null if none has one.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    last_seen: Option<Timestamp>,
}

/// A log that was read.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Input")]
struct InputEntry<'r> {
    /// Its name, as given; `-` for standard input.
    source: &'r str,
    /// Its cluster; null if the argument does not name it.
    cluster: Option<&'r str>,
    /// Lines that are not empty.
    lines: u64,
    /// Lines that are not a complete audit event.
    invalid: u64,
    /// Lines that are too long to be read.
    too_long: u64,
    /// Whether its end is cut off.
    #[serde(rename = "truncated")]
    is_truncated: bool,
    /// The error that prevented reading it to its end; null if there was none.
    error: Option<&'r str>,
    /// The time of its first event; null without events.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    first_seen: Option<Timestamp>,
    /// The time of its last event; null without events.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    last_seen: Option<Timestamp>,
}

/// The JSON schema of the report.
pub fn schema() -> Value {
    of_report::<AuditDocument<'_>>()
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

fn rule<'r>(name: &'r str, rule: &RuleCount) -> RuleCountsEntry<'r> {
    let (first_seen, last_seen) = ends(&rule.span);
    RuleCountsEntry {
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
