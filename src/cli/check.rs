//! `transom check`: reads files, folders and standard input, and says what admission would say.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::civil::Date;

use super::cluster::ClusterArgs;
use crate::check::files::{policies, read_except};
use crate::check::{Checked, Manifests, Scope, Unreadable};
use crate::engine::effective::PolicySet;
use crate::model::facts::Facts;
use crate::model::policy::Policy;
use crate::model::severity::Severity;
use crate::model::subject::Stage;
use crate::process::today;
use crate::registration::BY_DEFAULT;
use crate::registration::names::named_namespaces;
use crate::render::{Json, Summary, TextReport, Unjudged};

/// Check manifests as admission would: files, folders, standard input
///
/// Reads YAML and JSON: single objects, several documents in one file, Lists, dumps of kubectl get -o yaml. Nodes,
/// CSINodes, RuntimeClasses, Namespaces, StorageClasses, PersistentVolumeClaims and EndpointSlices among the inputs are what
/// is known of the cluster, and WindowsPodPolicies are its policies, unless --policy says which count. Without a policy, the built-in one counts: errors
/// deny, placement is applied, inert fields deny. No requester is known: an object that names a Deployment, ReplicaSet,
/// StatefulSet, DaemonSet, Job, CronJob or ReplicationController as its owner is taken for made by that kind's controller.
///
/// Exit status: 0 nothing would be denied; 1 something would, or there is what --fail-on names; 2 bad usage, or input
/// that could not be read (the rest is still checked).
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Files and folders (their .yaml, .yml and .json files that hold Kubernetes objects); - is standard input
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// How to print what was found
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Leave out files and folders whose path, or part below the folder, or name is this; * stands for anything. May be
    /// repeated
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// What makes the exit status 1: deny (what would be denied), or findings of this severity and above, whatever a
    /// policy does with them
    #[arg(long, value_enum, value_name = "WHAT", default_value = "deny")]
    fail_on: FailOn,
    /// A file of WindowsPodPolicy objects; those among the inputs do not count then
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The namespace of objects that say none, as in helm template --namespace [default: default]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// Namespaces that the webhooks leave out besides kube-system, kube-node-lease and kube-public: nothing is denied there.
    /// Empty: none
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', default_values_t = BY_DEFAULT.map(str::to_owned))]
    exclude_namespace: Vec<String>,
    /// The day to check for, as in 2026-12-31 [default: today in UTC]
    #[arg(long, value_name = "DATE")]
    today: Option<Date>,
    /// Leave advice that denies or warns of nothing out of the text; JSON always has it
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

/// What ends a run with status 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FailOn {
    Deny,
    Error,
    Warning,
    Advice,
}

impl FailOn {
    fn is_in(self, summary: &Summary) -> bool {
        let by_severity = |least: Severity| {
            let of = |severity: &Severity| *severity >= least && summary.open[*severity as usize] > 0;
            Severity::ALL.iter().any(of)
        };
        summary.denied > 0
            || match self {
                FailOn::Deny => false,
                FailOn::Error => by_severity(Severity::Error),
                FailOn::Warning => by_severity(Severity::Warning),
                FailOn::Advice => by_severity(Severity::Advice),
            }
    }
}

pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let of_file = policies(args.policy.as_deref(), Policy::standalone())?;
    let mut facts = args.cluster.facts(args.today.unwrap_or_else(today));
    of_file.declare(&mut facts);
    let mut policies = of_file.set;

    let mut manifests = Manifests::new(args.format == Format::Text).within(Scope {
        namespace: args.namespace.clone(),
        excluded: named_namespaces(args.exclude_namespace.clone()).collect(),
    });
    for path in &args.paths {
        let (objects, errors) = (manifests.len(), manifests.errors().len());
        let texts = read_except(path, &args.exclude, &mut manifests);
        let empty = if texts == 0 && path.is_dir() {
            "there is no .yaml, .yml or .json file in this folder"
        } else if path.as_os_str() == "-" && (objects, errors) == (manifests.len(), manifests.errors().len())
        {
            "there is nothing in it; did the command before it fail?"
        } else {
            continue;
        };
        manifests.add_error(Unreadable {
            source: path.display().to_string(),
            line: 0,
            message: empty.to_owned(),
        });
    }
    let among_the_inputs = manifests.policies(args.policy.is_none());
    if args.policy.is_none() {
        policies = PolicySet::new(among_the_inputs, Policy::standalone());
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
    Ok(match (errors, args.fail_on.is_in(&summary)) {
        (0, false) => ExitCode::SUCCESS,
        (0, true) => ExitCode::from(1),
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
    let unjudged = Unjudged::of(manifests);
    let (summary, errors) = match args.format {
        Format::Json => {
            let mut json = Json::default();
            let errors = manifests.check(facts, policies, Stage::Written, |checked| {
                progress.inc(1);
                json.add(&checked);
            });
            progress.finish_and_clear();
            (json.finish(&errors, &unjudged, out)?, errors)
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
            (text.finish(&errors, &unjudged)?, errors)
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
