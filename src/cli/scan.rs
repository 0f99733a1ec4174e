//! `transom scan`: reads a cluster, and says what admission would do with what is stored there.

mod reading;
mod words;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};

use super::block_on;
use crate::cluster::client::KubeconfigArgs;
use crate::model::severity::Severity;
use crate::plan::{Plan, Target};
use crate::registration::BY_DEFAULT;
use crate::render::{page, plan_section, sarif, scan_json, scan_text};
use crate::scan::Overrides;
use crate::scan::report::{Report, Summary};

/// Judge what is stored in a cluster as admission would at its next create; changes nothing
///
/// Reads policies, namespaces, nodes, RuntimeClasses, the webhook configurations and every object that carries a pod, and
/// judges each top owner once, by the judgement of reviews: what would be denied at its next create, what changed, what
/// passes and why. Names pods on a node of the wrong operating system or build, and those that wait for one. Needs the
/// right to list these, and no other; what may not be read is named, and the rest is judged.
///
/// Exit status: 0 nothing would be denied; 1 something would, or there is what --fail-on names; 2 bad usage, no cluster, or
/// a part of the cluster that could not be read (the report is printed all the same).
#[derive(Args, Debug)]
pub struct ScanArgs {
    /// Look at this namespace only; may be repeated. With rights in namespaces only, name them all
    #[arg(long, short, value_name = "NAME")]
    namespace: Vec<String>,
    /// Judge as if every policy said this, as in validation=Deny,placement=Apply: what to look at before Deny is turned on
    #[arg(long = "as", value_name = "KEY=VALUE", value_delimiter = ',')]
    judged_as: Vec<String>,
    /// Judge by the WindowsPodPolicy objects of this file, and not by those that are stored
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// How to print what was found
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Write it to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Put the plan of an upgrade to this release or build into the page, as in ltsc2025; with --format html (for text and
    /// JSON see transom plan)
    #[arg(long, value_name = "RELEASE", value_parser = Target::parse)]
    plan_to: Option<Target>,
    /// What makes the exit status 1: deny (what would be denied), would-deny (what would be if validation were Deny),
    /// findings of this severity and above that nothing mends or lifts, or nothing (never)
    #[arg(long, value_enum, value_name = "WHAT", default_value = "deny")]
    fail_on: FailOn,
    /// Namespaces that the webhooks leave out besides kube-system, kube-node-lease, kube-public and Transom's own. Empty:
    /// none
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', default_values_t = BY_DEFAULT.map(str::to_owned))]
    exclude_namespace: Vec<String>,
    #[command(flatten)]
    connect: KubeconfigArgs,
    /// Transom's own namespace, where it keeps what it remembers of pools. Without it: that of the pod, else
    /// transom-system
    #[arg(long, env = "TRANSOM_NAMESPACE", value_name = "NAME")]
    transom_namespace: Option<String>,
    /// The name of the installation: both webhook configurations are named zz- and this
    #[arg(long, env = "TRANSOM_NAME", value_name = "NAME", default_value = "transom")]
    name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
    Html,
    Sarif,
}

/// What ends a run with status 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FailOn {
    Deny,
    WouldDeny,
    Error,
    Warning,
    Advice,
    Never,
}

impl FailOn {
    fn is_in(self, summary: &Summary) -> bool {
        let by_severity = |least: Severity| {
            let of = |severity: &Severity| *severity >= least && summary.open[*severity as usize] > 0;
            summary.denied > 0 || Severity::ALL.iter().any(of)
        };
        match self {
            FailOn::Deny => summary.denied > 0,
            FailOn::WouldDeny => summary.would_be_denied > 0,
            FailOn::Error => by_severity(Severity::Error),
            FailOn::Warning => by_severity(Severity::Warning),
            FailOn::Advice => by_severity(Severity::Advice),
            FailOn::Never => false,
        }
    }
}

pub fn run(args: &ScanArgs) -> anyhow::Result<ExitCode> {
    let overrides = words::overrides(&args.judged_as)?;
    if args.plan_to.is_some() && args.format != Format::Html {
        bail!("--plan-to puts a plan into the page: write --format html too, or ask transom plan --to");
    }
    let (report, plan) = block_on(reading::scan(args, &overrides))?;
    match write(args, &report, plan.as_ref()) {
        // The reader of our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => {
            let to = args.output.as_deref().unwrap_or(Path::new("standard output"));
            written.with_context(|| format!("cannot write the report to {}", to.display()))?;
        }
    }
    Ok(
        match (report.gaps.is_empty(), args.fail_on.is_in(&report.summary)) {
            (true, false) => ExitCode::SUCCESS,
            (true, true) => ExitCode::from(1),
            (false, _) => ExitCode::from(2),
        },
    )
}

fn write(args: &ScanArgs, report: &Report, plan: Option<&Plan>) -> io::Result<()> {
    match &args.output {
        Some(file) => {
            let file = anstream::StripStream::new(File::create(file)?);
            print(args.format, report, plan, BufWriter::new(file))
        }
        None => print(
            args.format,
            report,
            plan,
            BufWriter::new(anstream::stdout().lock()),
        ),
    }
}

fn print(format: Format, report: &Report, plan: Option<&Plan>, mut out: impl Write) -> io::Result<()> {
    match format {
        Format::Text => scan_text(report, &mut out)?,
        Format::Json => scan_json(report, &mut out)?,
        Format::Html => page(report, plan.map(plan_section).as_ref(), &mut out)?,
        Format::Sarif => sarif(report, &mut out)?,
    }
    out.flush()
}

/// What was said with `--as`, for the report.
fn said(overrides: Overrides) -> Vec<String> {
    let Overrides { mode, ignored_fields } = overrides;
    let said = [
        mode.map(|mode| format!("mode={mode}")),
        ignored_fields.map(|word| format!("ignoredFields={word}")),
    ];
    said.into_iter().flatten().collect()
}
