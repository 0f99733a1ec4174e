//! `transom check`: reads files, folders and standard input, and says what admission would say.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::civil::Date;

use super::cluster::ClusterArgs;
use crate::check::files::{policies, read};
use crate::check::{Checked, Manifests};
use crate::engine::effective::PolicySet;
use crate::model::facts::Facts;
use crate::model::policy::Policy;
use crate::model::subject::Stage;
use crate::process::today;
use crate::render::{Json, Summary, TextReport};

/// Check manifests as admission would: files, folders, standard input
///
/// Reads YAML and JSON: single objects, several documents in one file, Lists, dumps of kubectl get -o yaml. Nodes,
/// RuntimeClasses, Namespaces and PersistentVolumeClaims among the inputs are what is known of the cluster. Without a
/// policy, the built-in one counts: errors deny, placement is applied, repair is off. No requester is known: an object
/// that names a Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob or ReplicationController as its owner is
/// taken for made by that kind's controller.
///
/// Exit status: 0 nothing would be denied; 1 something would; 2 bad usage, or input that could not be read (the rest
/// is still checked).
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Files and folders (their .yaml, .yml and .json files); - is standard input
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// How to print what was found
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// A file of WindowsPodPolicy objects
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The day to check for, as in 2026-12-31 [default: today in UTC]
    #[arg(long, value_name = "DATE")]
    today: Option<Date>,
    /// Leave advice out of the text; JSON always has it
    #[arg(long)]
    no_advice: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let policies = policies(args.policy.as_deref(), Policy::standalone())?;
    let mut facts = args.cluster.facts(args.today.unwrap_or_else(today));

    let mut manifests = Manifests::new(args.format == Format::Text);
    for path in &args.paths {
        read(path, &mut manifests);
    }
    manifests.learn(&mut facts, &policies);

    let mut out = BufWriter::new(anstream::stdout().lock());
    let reported = report(args, &manifests, &facts, &policies, &mut out).and_then(|result| {
        out.flush()?;
        Ok(result)
    });
    let (summary, errors) = match reported {
        // The reader of our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        reported => reported.context("cannot write the report")?,
    };
    Ok(match (errors, summary.denied) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(1),
        _ => ExitCode::from(2),
    })
}

fn report(
    args: &CheckArgs,
    manifests: &Manifests,
    facts: &Facts,
    policies: &PolicySet,
    out: &mut dyn Write,
) -> io::Result<(Summary, usize)> {
    let progress = progress(manifests.len(), args.format);
    let (summary, errors) = match args.format {
        Format::Json => {
            let mut json = Json::default();
            let errors = manifests.check(facts, policies, Stage::Written, |checked| {
                progress.inc(1);
                json.add(&checked);
            });
            progress.finish_and_clear();
            (json.finish(&errors, &manifests.skipped(), out)?, errors)
        }
        Format::Text => {
            let mut text = TextReport::new(out, !args.no_advice);
            let mut written = Ok(());
            let errors = manifests.check(facts, policies, Stage::Written, |checked: Checked<'_>| {
                progress.inc(1);
                if written.is_ok() {
                    written = progress.suspend(|| text.add(&checked));
                }
            });
            progress.finish_and_clear();
            written?;
            (text.finish(&errors, &manifests.skipped())?, errors)
        }
    };
    Ok((summary, errors.len()))
}

/// A bar on standard error, for runs that are long enough to wonder about, on a terminal only.
fn progress(objects: usize, format: Format) -> ProgressBar {
    const LONG: usize = 2000;
    let shown_elsewhere = format == Format::Json || !io::stdout().is_terminal();
    if objects < LONG || !io::stderr().is_terminal() || !shown_elsewhere {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(objects as u64);
    if let Ok(style) = ProgressStyle::with_template("checking {bar:40} {pos}/{len} objects, {elapsed}") {
        bar.set_style(style);
    }
    bar
}
