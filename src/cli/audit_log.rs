//! `transom audit-log`: reads the API server's audit logs, and says who was denied or changed, or would be.

mod live;

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;

use super::block_on;
use crate::audit_log::inputs::{self, File};
use crate::audit_log::{Filter, Names, Now, Reader, Report, Row};
use crate::render::audit_log as render;

/// Read audit logs of API servers: who was denied or changed, or would be
///
/// Reads what the API server writes (JSON lines), plain or gzip, rotated sets and folders in any order, and what log stores
/// wrap it in: Azure Monitor, CloudWatch, Cloud Logging, lists and objects over several lines. An event that stands in two
/// files counts once. Lines that cannot be read are counted, told of and passed over.
///
/// Exit status: 0 there is nothing that --fail-on names; 1 there is; 2 bad usage, or an input that could not be read to its
/// end or holds no audit event (the rest is still told).
#[derive(Args, Debug)]
pub struct AuditLogArgs {
    /// Files and folders; - is standard input. NAME=FILE says which cluster it is of
    #[arg(value_name = "[NAME=]FILE", required = true)]
    files: Vec<String>,
    /// How to print what was found; JSON has every workload with its users and rules
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// What a line of the text is for
    #[arg(long, value_enum, value_name = "WHAT", default_value = "workload")]
    by: By,
    /// The most lines of a table
    #[arg(long, value_name = "LINES", default_value_t = 50)]
    most: usize,
    /// Only requests since then: 2026-11-21T10:00:00Z, or how long ago, as in 36h or 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// Only requests before then
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
    /// Only requests in this namespace; may be repeated
    #[arg(long, short, value_name = "NAME")]
    namespace: Vec<String>,
    /// What makes the exit status 1: deny (something was or would be denied), change (or changed), unanswered (or Transom did
    /// not answer), never
    #[arg(long, value_enum, value_name = "WHAT", default_value = "deny")]
    fail_on: FailOn,
    /// A webhook of Transom's that was registered by another name, whole or the end of it; may be repeated
    #[arg(long, value_name = "NAME")]
    webhook: Vec<String>,
    /// Also look in the cluster of this kubeconfig for what is still unmended of what was denied or would be; nothing else
    /// makes the exit status 1 by deny then. Needs get on pods and workloads, list on nodes, runtimeclasses, csinodes,
    /// namespaces and the policies, and get on the webhook configurations and the ConfigMap transom-node-pools
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; without it, its current one
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum By {
    Namespace,
    Workload,
    User,
    Rule,
}

impl From<By> for render::By {
    fn from(by: By) -> Self {
        match by {
            By::Namespace => render::By::Namespace,
            By::Workload => render::By::Workload,
            By::User => render::By::User,
            By::Rule => render::By::Rule,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
enum FailOn {
    Never,
    Deny,
    Change,
    Unanswered,
}

impl FailOn {
    fn is_in(self, report: &Report) -> bool {
        let counts = report.counts();
        let was_looked_at = report.rows.iter().any(|row| row.now.is_some());
        let is_open = |row: &Row| row.now.as_ref().is_some_and(Now::is_open);
        // What is in no row was not looked at.
        let is_beyond = report.clusters.iter().any(|cluster| cluster.beyond.denials() > 0);
        let denies = if was_looked_at {
            is_beyond || report.rows.iter().any(is_open)
        } else {
            counts.denials() > 0
        };
        (self >= FailOn::Deny && denies)
            || (self >= FailOn::Change && counts.changes() > 0)
            || (self >= FailOn::Unanswered && counts.unanswered() > 0)
    }
}

pub fn run(args: AuditLogArgs) -> anyhow::Result<ExitCode> {
    let AuditLogArgs {
        files,
        format,
        by,
        most,
        since,
        until,
        namespace,
        fail_on,
        webhook,
        kubeconfig,
        context,
    } = args;
    if since.is_some() && until.is_some() && since >= until {
        anyhow::bail!("--since is not before --until");
    }
    let filter = Filter {
        since,
        until,
        namespaces: namespace,
    };
    let mut report = read(&files, Reader::new(Names::new(&webhook), filter));
    if let Some(kubeconfig) = kubeconfig {
        block_on(live::look(kubeconfig, context, &mut report))?;
    }
    let mut out = BufWriter::new(anstream::stdout().lock());
    let shown = render::Shown { by: by.into(), most };
    let written = match format {
        Format::Text => render::text(&report, shown, &mut out),
        Format::Json => render::json(&report, &mut out),
    };
    match written.and_then(|()| out.flush()) {
        // The reader of our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("cannot write the report")?,
    }
    Ok(if report.inputs.iter().any(|input| input.error.is_some()) {
        ExitCode::from(2)
    } else if fail_on.is_in(&report) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Reads every input.
fn read(arguments: &[String], mut reader: Reader) -> Report {
    let mut files: Vec<File> = Vec::new();
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

/// An input without an audit event was taken for another one. A file of a rotated set may be empty; what else stands in a
/// folder was not asked for.
fn blame_those_without_events(report: &mut Report, files: &[File]) {
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

/// A bar on standard error, for logs that are long enough to wonder about, on a terminal only.
fn progress(files: &[File]) -> ProgressBar {
    const LARGE: u64 = 64 << 20;
    let size: u64 = files.iter().map(|file| file.size).sum();
    let is_stdin = files.iter().any(|file| file.path.as_os_str() == "-");
    if !io::stderr().is_terminal() || (size < LARGE && !is_stdin) {
        return ProgressBar::hidden();
    }
    let (bar, style) = if is_stdin {
        (
            ProgressBar::new_spinner(),
            "reading {bytes}, {bytes_per_sec}, {elapsed}",
        )
    } else {
        (
            ProgressBar::new(size),
            "reading {bar:40} {bytes}/{total_bytes}, {bytes_per_sec}, {eta}",
        )
    };
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

/// Reads `2026-11-21T10:00:00Z`, or `7d`: so long ago.
fn moment(text: &str) -> Result<Timestamp, String> {
    let unit = text.chars().last().map_or(0, |unit| match unit {
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        'w' => 7 * 24 * 60 * 60,
        _ => 0,
    });
    let number = text.get(..text.len().saturating_sub(1)).unwrap_or_default();
    let ago = number
        .parse::<u32>()
        .ok()
        .filter(|_| unit > 0 && number.bytes().all(|byte| byte.is_ascii_digit()));
    let time = match ago {
        Some(number) => Timestamp::now()
            .checked_sub(std::time::Duration::from_secs(u64::from(number) * unit))
            .ok(),
        None => text.parse().ok(),
    };
    time.ok_or_else(|| "write a time as in 2026-11-21T10:00:00Z, or how long ago as in 36h or 7d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit_log::{Cluster, Counts, Outcome};

    #[test]
    fn a_denial_that_is_in_no_row_is_open_whatever_was_looked_at() {
        let mut beyond = Counts::default();
        let row = Row {
            now: Some(Now::Mended),
            ..Row::default()
        };
        let mut report = Report {
            clusters: vec![Cluster::default()],
            rows: vec![row],
            ..Report::default()
        };
        assert!(!FailOn::Deny.is_in(&report));
        beyond.count([Outcome::Denied].into_iter());
        report.clusters[0].beyond = beyond;
        assert!(FailOn::Deny.is_in(&report));
        assert!(!FailOn::Never.is_in(&report));
    }
}
