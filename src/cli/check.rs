//! `transom check`: reads files, folders and standard input, and reports what admission would do.

use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::civil::Date;

use super::cluster::ClusterArgs;
use super::is_quiet;
use super::options::{
    ExcludedNamespacesArgs, FailOn, NamespaceArgs, OutputArgs, OutputTarget, PathArgs, PolicyArgs,
    SelectorArgs, date,
};
use crate::check::files::{policies, read_except};
use crate::check::{Checked, Manifests, Scope, UnreadableInput};
use crate::engine::policy_set::PolicySet;
use crate::model::facts::Facts;
use crate::model::object::ReviewStage;
use crate::model::policy::Policy;
use crate::model::severity::Severity;
use crate::process::today;
use crate::registration::names::named_namespaces;
use crate::render::{
    CheckSummary, Json, NotEvaluated, TextReport, check_github, check_gitlab, check_junit, check_sarif,
};

/// Check manifests as admission would: files, folders, standard input
///
/// Reads YAML and JSON: single objects, several documents in one file, Lists, dumps of kubectl get -o yaml. Nodes,
/// CSINodes, RuntimeClasses, Namespaces, StorageClasses, PersistentVolumeClaims and EndpointSlices among the inputs
/// describe the cluster. WindowsPodPolicies among the inputs apply as they would in a cluster, unless --policy names a
/// file. Without any policy, the built-in one applies: errors deny, placement is applied, ignored fields deny. A Pod,
/// ReplicaSet or Job with an owner is evaluated as if that owner's controller had created it.
///
/// Exit status: 0 nothing that --fail-on names; 1 there is; 2 bad usage, or input that cannot be read (the rest is
/// still checked).
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom check deployment.yaml
  helm template web ./chart -n shop | transom check -n shop -
  transom check -o sarif=transom.sarif -o text --fail-on warning manifests/
  transom check --policy policy.yaml --kubernetes-version 1.36 manifests/")]
pub struct CheckArgs {
    #[command(flatten)]
    paths: PathArgs,
    #[command(flatten)]
    output: OutputArgs<CheckFormat>,
    /// Exclude files and folders by path, by the part of it below the folder, or by name; * matches anything.
    /// Repeatable
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// What ends in exit status 1: deny is an object that would be denied; a severity adds open findings of that
    /// severity and above
    #[arg(long, value_name = "WHAT", default_value = "deny",
          value_parser = FailOn::among(["never", "deny", "error", "warning", "advice"]))]
    fail_on: FailOn,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    namespaces: NamespaceArgs,
    #[command(flatten)]
    selector: SelectorArgs,
    #[command(flatten)]
    excluded: ExcludedNamespacesArgs,
    /// The day to check for, as in 2026-12-31; unset: today in UTC
    #[arg(long, value_name = "DATE", value_parser = date)]
    today: Option<Date>,
    /// Hide advice that neither denies nor warns from the text output
    #[arg(long)]
    no_advice: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum CheckFormat {
    /// For people
    Text,
    /// Schema transom.dev/check/v1
    Json,
    /// SARIF 2.1.0, for code scanning and editors
    Sarif,
    /// JUnit XML: a test suite for each file, a test case for each object
    Junit,
    /// Workflow commands of GitHub Actions
    Github,
    /// A Code Quality report of GitLab
    Gitlab,
}

fn is_in(fail_on: FailOn, summary: &CheckSummary) -> bool {
    let by_severity = |least: Severity| {
        let of = |severity: &Severity| *severity >= least && summary.open[*severity as usize] > 0;
        summary.denied > 0 || Severity::ALL.iter().any(of)
    };
    match fail_on {
        FailOn::Error => by_severity(Severity::Error),
        FailOn::Warning => by_severity(Severity::Warning),
        FailOn::Advice => by_severity(Severity::Advice),
        FailOn::Deny | FailOn::WouldDeny => summary.denied > 0,
        FailOn::Never | FailOn::Patch | FailOn::Unanswered | FailOn::Blocked => false,
    }
}

pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let targets = args.output.targets()?;
    let paths = args.paths.required()?;
    let of_file = policies(args.policy.policy.as_deref(), Policy::standalone())?;
    let mut facts = args.cluster.facts(args.today.unwrap_or_else(today));
    of_file.declare(&mut facts);
    let mut policies = of_file.set;

    // Excerpts of lines, and the edits of `transom fix`.
    let has = |format| targets.iter().any(|target| target.format == format);
    let (shows_text, shows_fixes) = (has(CheckFormat::Text), has(CheckFormat::Sarif));
    let mut manifests = Manifests::new(shows_text || shows_fixes).within(Scope {
        // As in kubectl apply -n: the namespace of objects that name none.
        namespace: args.namespaces.namespace.first().cloned(),
        excluded: named_namespaces(args.excluded.exclude_namespace.clone()).collect(),
    });
    for path in paths {
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
        manifests.add_error(UnreadableInput {
            source: path.display().to_string(),
            line: 0,
            message: empty.to_owned(),
        });
    }
    let among_the_inputs = manifests.policies(args.policy.policy.is_none());
    if args.policy.policy.is_none() {
        policies = PolicySet::new(among_the_inputs, Policy::standalone());
    }
    manifests.learn(&mut facts, &policies);

    let mut checked = (CheckSummary::default(), 0);
    let mut collected = None;
    for target in &targets {
        let progress = progress(manifests.len(), target);
        let pass = CheckPass {
            args,
            manifests: &manifests,
            facts: &facts,
            policies: &policies,
            progress: &progress,
            shows_fixes,
        };
        target.write(|out| {
            checked = pass.report(target.format, &mut collected, out)?;
            Ok(())
        })?;
    }
    let (summary, errors) = checked;
    Ok(match (errors, is_in(args.fail_on, &summary)) {
        (0, false) => ExitCode::SUCCESS,
        (0, true) => ExitCode::from(1),
        _ => ExitCode::from(2),
    })
}

/// One pass over the manifests, for one output.
struct CheckPass<'a> {
    args: &'a CheckArgs,
    manifests: &'a Manifests,
    facts: &'a Facts,
    policies: &'a PolicySet,
    progress: &'a ProgressBar,
    shows_fixes: bool,
}

impl CheckPass<'_> {
    /// Writes one output. `collected` is what all formats for machines are written from: the objects are checked once for
    /// them.
    fn report(
        &self,
        format: CheckFormat,
        collected: &mut Option<(Json, Vec<UnreadableInput>)>,
        out: &mut dyn Write,
    ) -> io::Result<(CheckSummary, usize)> {
        let unjudged = NotEvaluated::of(self.manifests);
        match format {
            CheckFormat::Json
            | CheckFormat::Sarif
            | CheckFormat::Junit
            | CheckFormat::Github
            | CheckFormat::Gitlab => {
                let (json, errors) = collected.get_or_insert_with(|| {
                    let mut json = if self.shows_fixes {
                        Json::with_fixes()
                    } else {
                        Json::default()
                    };
                    let errors = self.check(|checked| json.add(&checked));
                    (json, errors)
                });
                match format {
                    CheckFormat::Sarif => check_sarif(json, errors, out)?,
                    CheckFormat::Junit => check_junit(json, errors, out)?,
                    CheckFormat::Github => check_github(json, errors, out)?,
                    CheckFormat::Gitlab => check_gitlab(json, errors, out)?,
                    CheckFormat::Json | CheckFormat::Text => json.write(errors, &unjudged, out)?,
                }
                Ok((json.summary(), errors.len()))
            }
            CheckFormat::Text => {
                let mut text = TextReport::new(out, !self.args.no_advice);
                let mut written = Ok(());
                let errors = self.check(|checked: Checked<'_>| {
                    if written.is_ok() {
                        written = self.progress.suspend(|| text.add(&checked));
                    }
                });
                written?;
                Ok((text.finish(&errors, &unjudged)?, errors.len()))
            }
        }
    }

    /// Checks the objects that the arguments select.
    fn check(&self, mut each: impl FnMut(Checked<'_>)) -> Vec<UnreadableInput> {
        let CheckArgs {
            namespaces, selector, ..
        } = self.args;
        let errors = self
            .manifests
            .check(self.facts, self.policies, ReviewStage::Written, |checked| {
                self.progress.inc(1);
                let is_meant = namespaces.selects(&checked.namespace)
                    && (selector.is_everything() || selector.selects(&checked.labels()));
                if is_meant {
                    each(checked);
                }
            });
        self.progress.finish_and_clear();
        errors
    }
}

/// A progress bar on standard error, for long runs, and only on a terminal.
fn progress(objects: usize, target: &OutputTarget<CheckFormat>) -> ProgressBar {
    const LONG: usize = 2000;
    let shown_elsewhere =
        target.file.is_some() || target.format != CheckFormat::Text || !io::stdout().is_terminal();
    if objects < LONG || is_quiet() || !io::stderr().is_terminal() || !shown_elsewhere {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(objects as u64);
    if let Ok(style) = ProgressStyle::with_template("checking {bar:40} {pos}/{len} objects, {elapsed}") {
        bar.set_style(style);
    }
    bar
}
