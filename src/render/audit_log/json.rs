//! The report of audit logs for machines, schema `transom.dev/audit-log/v1`.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::super::plain::write_json;
use crate::audit_log::{AuditReport, ClusterRecord, InputResult, OutcomeCounts, TimeSpan, WorkloadRow};
use crate::model::report_schema::of_report;

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
    summary: OutcomeCounts,
    /// The requests with `--dry-run`.
    dry_runs: OutcomeCounts,
    #[serde(flatten)]
    span: TimeSpan,
    /// The clusters, by name.
    clusters: &'r [ClusterRecord],
    /// The workloads that Transom denied or changed, or would have, by user.
    workloads: &'r [WorkloadRow],
    /// The logs that were read.
    inputs: &'r [InputResult],
    /// Whether every event was counted once. Above a number of events, those that several logs contain count again.
    deduplicated: bool,
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
    let document = AuditDocument {
        schema: SCHEMA,
        summary: report.counts(),
        dry_runs: report.dry_runs(),
        span: report.span(),
        clusters: &report.clusters,
        workloads: &report.rows,
        inputs: &report.inputs,
        deduplicated: !report.may_count_twice,
    };
    write_json(&document, out)
}
