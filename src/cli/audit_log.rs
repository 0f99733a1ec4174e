//! `transom audit-log`: reads the API server's audit logs, and reports which requests were denied or changed,
//! or would have been.

mod live;

use std::process::ExitCode;

use clap::Args;
use indicatif::ProgressBar;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use super::options::{FailOn, ListLimitArgs, NamespaceArgs, OutputArgs, ReportFormat};
use super::progress::bar;
use super::{block_on, exit_status};
use crate::audit_log::inputs::{self, LogFile};
use crate::audit_log::{
    AuditReport, CurrentState, Filter, LogReader, OutcomeCounts, RequestOutcome, WebhookNames, WorkloadRow,
};
use crate::cluster::client::ConnectArgs;
use crate::render::audit_log as render;

/// Read audit logs of API servers: who was denied or changed, or would be
///
/// Reads what the API server writes (JSON lines), plain or gzip, rotated sets and folders in any order, and what log
/// stores wrap it in: Azure Monitor, CloudWatch, Cloud Logging, Elasticsearch, Loki, Splunk, lists and objects over several
/// lines. An event that is in two files counts once. Lines that cannot be read are counted, reported and skipped.
///
/// Exit status: 0 if nothing matches --fail-on; 1 if something does; 2 for bad usage, or an input that cannot be read to its end or
/// holds no audit event (the rest is still reported).
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom audit-log /var/log/kubernetes/audit/
  transom audit-log --by rule --since 7d audit.log
  transom audit-log -n shop -o json=audit.json -o text east=east.log west=west.log
  transom audit-log --check-cluster --context production audit.log")]
pub struct AuditLogArgs {
    /// Files and folders; - is standard input. NAME=FILE names the cluster it is from
    #[arg(value_name = "[NAME=]PATH")]
    paths: Vec<String>,
    /// A file or folder, as in kubectl apply -f. Repeatable
    #[arg(long, short, value_name = "[NAME=]PATH")]
    filename: Vec<String>,
    #[command(flatten)]
    output: OutputArgs<ReportFormat>,
    /// What a row of the text output is for
    #[arg(long, value_enum, value_name = "WHAT", default_value = "workload")]
    by: render::AuditGroupBy,
    #[command(flatten)]
    limit: ListLimitArgs,
    /// Only requests since then: 2026-11-21T10:00:00Z, or how long ago, as in 36h or 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// Only requests before then
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
    #[command(flatten)]
    namespaces: NamespaceArgs,
    /// What ends in exit status 1: deny is a request that was denied; would-deny adds requests that would have been;
    /// patch adds objects that were changed or would have been; unanswered adds requests that Transom did not answer
    #[arg(long, value_name = "WHAT", default_value = "would-deny",
          value_parser = FailOn::among([FailOn::Never, FailOn::Deny, FailOn::WouldDeny, FailOn::Patch, FailOn::Unanswered]))]
    fail_on: FailOn,
    /// A webhook of Transom that is registered under another name, or the end of that name. May be repeated
    #[arg(long, value_name = "NAME")]
    webhook: Vec<String>,
    /// Also read from the cluster which of the workloads that were denied or would have been are fixed; --fail-on
    /// then counts only those that are not. Needs to get pods and workloads, and to read nodes, namespaces, policies
    /// and webhook configurations
    #[arg(long)]
    check_cluster: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

fn is_in(fail_on: FailOn, report: &AuditReport) -> bool {
    let counts = &report.counts;
    let was_checked = report.rows.iter().any(|row| row.current.is_some());
    let is_open = |row: &WorkloadRow| row.current.as_ref().is_some_and(CurrentState::is_open);
    let number: fn(&OutcomeCounts) -> u64 = match fail_on {
        FailOn::Deny => |counts| counts.of(RequestOutcome::Denied),
        _ => OutcomeCounts::denials,
    };
    // Workloads without a row were not checked.
    let is_unlisted = report
        .clusters
        .iter()
        .any(|cluster| number(&cluster.unlisted) > 0);
    let denies = if was_checked {
        let mut rows = report.rows.iter();
        is_unlisted || rows.any(|row| number(&row.counts) > 0 && is_open(row))
    } else {
        number(counts) > 0
    };
    let changes = counts.changes() > 0;
    match fail_on {
        FailOn::Deny | FailOn::WouldDeny => denies,
        FailOn::Patch => denies || changes,
        FailOn::Unanswered => denies || changes || counts.unanswered() > 0,
        FailOn::Never | FailOn::Error | FailOn::Warning | FailOn::Advice | FailOn::Blocked => false,
    }
}

pub fn run(args: AuditLogArgs) -> anyhow::Result<ExitCode> {
    let AuditLogArgs {
        mut paths,
        filename,
        output,
        by,
        limit,
        since,
        until,
        namespaces,
        fail_on,
        webhook,
        check_cluster,
        connect,
    } = args;
    output.targets()?;
    paths.extend(filename);
    if paths.is_empty() {
        anyhow::bail!("nothing to read: name files or folders, or - for standard input (see --help)");
    }
    if since.is_some() && until.is_some() && since >= until {
        anyhow::bail!("--since is not before --until");
    }
    let filter = Filter {
        since,
        until,
        namespaces: namespaces.namespace,
    };
    let mut report = read(&paths, LogReader::new(WebhookNames::new(&webhook), filter));
    if check_cluster {
        block_on(live::check_workloads(&connect, &mut report))?;
    }
    let shown = render::AuditLogView {
        by,
        most: limit.rows(),
    };
    output.report(&report, |out| render::text(&report, shown, out))?;
    let is_incomplete = report.inputs.iter().any(|input| input.error.is_some());
    let fails = is_in(fail_on, &report);
    Ok(exit_status(is_incomplete, fails))
}

fn read(arguments: &[String], mut reader: LogReader) -> AuditReport {
    let mut files: Vec<LogFile> = Vec::new();
    for argument in arguments {
        match inputs::files(argument) {
            Ok(found) => files.extend(found),
            Err(why) => reader.failed(argument, why),
        }
    }
    let progress = progress(&files);
    for file in &files {
        let name = file.path.display().to_string();
        match inputs::open(file, |bytes| progress.inc(bytes)) {
            Ok(bytes) => reader.read(&name, &file.cluster, bytes),
            Err(error) => reader.failed(&name, error.to_string()),
        }
    }
    progress.finish_and_clear();
    let mut report = reader.finish();
    blame_those_without_events(&mut report, &files);
    report
}

/// An input without audit events is probably the wrong file. A file of a rotated set may be empty, and other
/// files in a folder were not named by the user.
fn blame_those_without_events(report: &mut AuditReport, files: &[LogFile]) {
    let has_any = report.inputs.iter().any(|input| input.has_events);
    for input in &mut report.inputs {
        if input.has_events || input.error.is_some() {
            continue;
        }
        let mut named = files.iter().filter(|file| file.is_named);
        let is_named = named.any(|file| file.path.display().to_string() == input.name);
        let why = if input.lines == 0 && !has_any {
            "there is nothing in it; did the command before it fail?"
        } else if input.lines > 0 && (is_named || !has_any) {
            "there is no audit event in it; is it an audit log of an API server?"
        } else {
            continue;
        };
        input.error = Some(why.to_owned());
    }
}

/// A progress bar for long logs.
fn progress(files: &[LogFile]) -> ProgressBar {
    const LARGE: u64 = 64 << 20;
    let size: u64 = files.iter().map(|file| file.size).sum();
    if files.iter().any(|file| file.path.as_os_str() == "-") {
        return bar(None, "reading {bytes}, {bytes_per_sec}, {elapsed}");
    }
    if size < LARGE {
        return ProgressBar::hidden();
    }
    bar(
        Some(size),
        "reading {bar:40} {bytes}/{total_bytes}, {bytes_per_sec}, {eta}",
    )
}

/// Parses `2026-11-21T10:00:00Z`, or `7d`: a time relative to now.
fn moment(text: &str) -> Result<Timestamp, String> {
    let ago = text.parse::<Span>().ok().filter(|ago| !ago.is_negative());
    let since = |ago| Timestamp::now().to_zoned(TimeZone::UTC).checked_sub(ago).ok();
    let time = match ago {
        Some(ago) => since(ago).map(|time| time.timestamp()),
        None => text.parse().ok(),
    };
    time.ok_or_else(|| "write a time as in 2026-11-21T10:00:00Z, or how long ago as in 36h or 7d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit_log::ClusterRecord;

    #[test]
    fn a_denial_that_is_in_no_row_is_open_whatever_was_looked_at() {
        let mut beyond = OutcomeCounts::default();
        let row = WorkloadRow {
            current: Some(CurrentState::Fixed),
            ..WorkloadRow::default()
        };
        let mut report = AuditReport {
            clusters: vec![ClusterRecord::default()],
            rows: vec![row],
            ..AuditReport::default()
        };
        assert!(!is_in(FailOn::WouldDeny, &report));
        beyond.count([RequestOutcome::Denied].into_iter());
        report.clusters[0].unlisted = beyond;
        assert!(is_in(FailOn::WouldDeny, &report));
        assert!(!is_in(FailOn::Never, &report));
    }
}
