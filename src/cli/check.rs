//! `transom check`: reads files, folders and standard input, and reports what admission would do.

mod images;

use std::fs;
use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use super::image_evidence::{note_names_only, with_registries};
use super::manifest_inputs::{ManifestArgs, ManifestGroup, ReadOptions};
use super::options::{
    DocumentationArgs, ExcludedNamespacesArgs, FailOn, OutputArgs, OutputTarget, RuleArgs, has_open,
};
use super::registry::LookupArgs;
use super::{exit_status, is_quiet};
use crate::check::{
    Baseline, BaselineWriter, CheckNote, CheckOutcome, Checked, ConfigFailOn, ImageCounts, Manifests,
    Repository, SourceRole, SuppressedBy,
};
use crate::engine::policy_set::PolicySet;
use crate::model::facts::Facts;
use crate::model::object::ReviewStage;
use crate::model::severity::Severity;
use crate::registration::names::non_empty_items;
use crate::render::{
    CheckSummary, Json, NotEvaluated, TextReport, check_github, check_gitlab, check_junit, check_sarif,
};

/// Check manifests as admission would: files, folders, standard input
///
/// Reads YAML and JSON: single objects, several documents in one file, Lists, dumps of kubectl get -o yaml. Nodes,
/// CSINodes, RuntimeClasses, Namespaces, StorageClasses, PersistentVolumeClaims and EndpointSlices among the inputs
/// describe the cluster. Without --policy, the built-in policy applies: errors deny, placement is applied, ignored fields
/// deny. WindowsPodPolicies among the inputs are validated but do not apply, and a note names them. A Pod,
/// ReplicaSet or Job with an owner is evaluated as if that owner's controller had created it.
///
/// Settings come from the nearest file .transom.yaml in the folder of each path or above it; arguments replace them.
///
/// Exit status: 0 if nothing matches --fail-on; 1 if something does; 2 for bad usage, or input that cannot be read (the rest is
/// still checked).
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom check deployment.yaml
  helm template web ./chart -n shop | transom check -n shop -
  transom check -o sarif=transom.sarif -o text --fail-on warning manifests/
  transom check --policy policy.yaml --kubernetes-version 1.36 manifests/")]
#[allow(clippy::struct_excessive_bools)] // independent flags
pub struct CheckArgs {
    #[command(flatten)]
    output: OutputArgs<CheckFormat>,
    /// Skip documents that are not Kubernetes objects in named files too; in folders, they are always skipped
    #[arg(long)]
    skip_non_kubernetes: bool,
    /// What ends in exit status 1: deny is an object that would be denied; a severity adds open findings of that
    /// severity and above; unset: deny
    #[arg(long, value_name = "WHAT",
          value_parser = FailOn::among(["never", "deny", "error", "warning", "advice"]))]
    fail_on: Option<FailOn>,
    /// Suppress the findings of this file, which --write-baseline wrote
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the open findings to this file, for --baseline. Findings then do not affect the exit status
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// Show suppressed findings in the text output
    #[arg(long)]
    show_suppressed: bool,
    #[command(flatten)]
    documentation: DocumentationArgs,
    #[command(flatten)]
    rules: RuleArgs,
    /// Print how many findings each rule has, instead of the findings (text output)
    #[arg(long)]
    statistics: bool,
    #[command(flatten)]
    excluded: ExcludedNamespacesArgs,
    /// Hide advice that neither denies nor warns from the text output
    #[arg(long)]
    no_advice: bool,
    #[command(flatten)]
    inputs: ManifestArgs,
    /// Look up the images of Windows pods, and of pods whose operating system is not known, in their registries, with
    /// the credentials of docker; the registries see which images the manifests name
    #[arg(long, help_heading = "Registries")]
    registry: bool,
    #[command(flatten)]
    look_ups: LookupArgs,
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
    let by_severity = |least| summary.denied > 0 || has_open(&summary.open, least);
    match fail_on {
        FailOn::Error => by_severity(Severity::Error),
        FailOn::Warning => by_severity(Severity::Warning),
        FailOn::Advice => by_severity(Severity::Advice),
        FailOn::Deny | FailOn::WouldDeny => summary.denied > 0,
        FailOn::Never | FailOn::Patch | FailOn::Unanswered | FailOn::Blocked => false,
    }
}

/// The inputs with the same configuration, and what they are checked with.
struct CheckGroup {
    /// The configuration file.
    config: Option<PathBuf>,
    manifests: Manifests,
    facts: Facts,
    policies: PolicySet,
    fail_on: FailOn,
    /// Whether its images are looked up.
    asks_registries: bool,
    /// Notes about images that are not known.
    image_notes: Vec<CheckNote>,
}

impl CheckGroup {
    fn load(args: &CheckArgs, keep_text: bool) -> anyhow::Result<Vec<CheckGroup>> {
        let baseline = args.baseline.as_deref().map(Baseline::read).transpose()?;
        let groups = args.inputs.read(ReadOptions {
            command: "transom check",
            keep_text,
            role: if args.skip_non_kubernetes {
                SourceRole::Found
            } else {
                SourceRole::Named
            },
            once: false,
            excluded: non_empty_items(args.excluded.exclude_namespace.clone()).collect(),
            baseline: baseline.map(Arc::new),
            stdin: None,
            os: None,
            config: None,
        })?;
        Ok(groups
            .into_iter()
            .map(|group| CheckGroup::of(args, group))
            .collect())
    }

    fn of(args: &CheckArgs, group: ManifestGroup) -> CheckGroup {
        let ManifestGroup {
            file,
            config,
            manifests,
            facts,
            policies,
        } = group;
        let asks_registries = args.registry || config.registry;
        let policies = if asks_registries {
            with_registries(&policies)
        } else {
            policies
        };
        let configured = config.fail_on.map(|fail_on| match fail_on {
            ConfigFailOn::Never => FailOn::Never,
            ConfigFailOn::Deny => FailOn::Deny,
            ConfigFailOn::Error => FailOn::Error,
            ConfigFailOn::Warning => FailOn::Warning,
            ConfigFailOn::Advice => FailOn::Advice,
        });
        CheckGroup {
            config: file,
            manifests,
            facts,
            policies,
            fail_on: args.fail_on.or(configured).unwrap_or(FailOn::Deny),
            asks_registries,
            image_notes: Vec::new(),
        }
    }

    /// Collects the facts of the cluster from the objects; before, the images have been looked up.
    fn learn(&mut self) {
        self.manifests.learn(&mut self.facts, &self.policies);
    }
}

pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let targets = args.output.targets()?;
    // Excerpts of lines, and the edits of `transom fix`.
    let has = |format| targets.iter().any(|target| target.format == format);
    let (shows_text, shows_fixes) = (has(CheckFormat::Text), has(CheckFormat::Sarif));
    if args.statistics && !shows_text {
        bail!("only the text output has statistics: add -o text, or remove --statistics");
    }
    let mut groups = CheckGroup::load(args, shows_text || shows_fixes)?;
    let images = images::look_up(args, &mut groups)?;
    let by_names = groups.iter().filter(|group| !group.asks_registries);
    note_names_only(by_names.map(|group| &group.policies), Some("add --registry"));
    groups.iter_mut().for_each(CheckGroup::learn);
    if let Some(file) = &args.write_baseline {
        write_baseline(args, &groups, file)?;
    }
    let mut totals = CheckTotals::default();
    let mut collected = None;
    for target in &targets {
        let objects = groups.iter().map(|group| group.manifests.len()).sum();
        let progress = progress(objects, target);
        let pass = CheckPass {
            args,
            groups: &groups,
            images,
            progress: &progress,
            shows_fixes,
        };
        target.write(|out| pass.report(target, &mut collected, &mut totals, out))?;
    }
    let CheckTotals { summaries, errors } = totals;
    let mut with_summary = groups.iter().zip(&summaries);
    let is_incomplete = errors > 0;
    let is_named = |(group, summary): (&CheckGroup, &CheckSummary)| {
        let of_text = matches!(group.fail_on, FailOn::Warning | FailOn::Advice);
        is_in(group.fail_on, summary) || of_text && group.manifests.has_warnings()
    };
    let fails = args.write_baseline.is_none() && with_summary.any(is_named);
    Ok(exit_status(is_incomplete, fails))
}

/// Writes the open findings of all groups, and those that the current baseline suppresses.
fn write_baseline(args: &CheckArgs, groups: &[CheckGroup], file: &PathBuf) -> anyhow::Result<()> {
    let mut baseline = BaselineWriter::default();
    for group in groups {
        check_group(args, group, |checked| {
            let suppressed = checked
                .suppressed
                .iter()
                .filter(|it| it.by == SuppressedBy::Baseline);
            let suppressed = suppressed.map(|it| &it.finding);
            let open = checked.evaluation.findings.iter().chain(suppressed);
            baseline.add(&checked, open.filter(|finding| finding.is_open()));
        });
    }
    let count = baseline.len();
    let text = baseline.finish()?;
    let written = fs::write(file, text);
    written.with_context(|| format!("cannot write {} (--write-baseline)", file.display()))?;
    if !is_quiet() {
        anstream::eprintln!("{count} findings written to {}", file.display());
    }
    Ok(())
}

/// Checks the objects of a group that the arguments select.
fn check_group(args: &CheckArgs, group: &CheckGroup, mut each: impl FnMut(Checked<'_>)) -> CheckOutcome {
    let (facts, policies) = (&group.facts, &group.policies);
    let mut outcome = (group.manifests).run(facts, policies, ReviewStage::Written, |mut checked| {
        if args.inputs.selects(&checked) {
            if !args.rules.is_everything() {
                checked.keep_rules(|rule| args.rules.selects(rule.id));
            }
            each(checked);
        }
    });
    outcome.notes.extend(group.image_notes.iter().cloned());
    outcome
}

/// One pass over the manifests, for one output.
struct CheckPass<'a> {
    args: &'a CheckArgs,
    groups: &'a [CheckGroup],
    /// How many images were looked up, if any were.
    images: Option<ImageCounts>,
    progress: &'a ProgressBar,
    shows_fixes: bool,
}

/// What all formats for machines are written from: the objects are checked once for them.
type Collected = (Json, Vec<CheckSummary>, CheckOutcome);

/// What decides the exit status.
#[derive(Default)]
struct CheckTotals {
    /// The totals of each group.
    summaries: Vec<CheckSummary>,
    /// The number of parts of the input that could not be read.
    errors: usize,
}

impl CheckPass<'_> {
    /// Writes one output. Sets the totals before it writes: the exit status is the same if the reader of the output has
    /// closed it.
    fn report(
        &self,
        target: &OutputTarget<CheckFormat>,
        collected: &mut Option<Collected>,
        totals: &mut CheckTotals,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut unjudged = NotEvaluated::default();
        for group in self.groups {
            unjudged.add(NotEvaluated::of(&group.manifests));
        }
        match target.format {
            CheckFormat::Json
            | CheckFormat::Sarif
            | CheckFormat::Junit
            | CheckFormat::Github
            | CheckFormat::Gitlab => {
                let (json, summaries, outcome) = collected.get_or_insert_with(|| {
                    let mut json = if self.shows_fixes {
                        Json::with_fixes()
                    } else {
                        Json::default()
                    };
                    json.images = self.images;
                    json.repository = Repository::of_current_folder();
                    let (summaries, outcome) = self.check(|checked| json.add(&checked));
                    (json, summaries, outcome)
                });
                *totals = CheckTotals {
                    summaries: summaries.clone(),
                    errors: outcome.errors.len(),
                };
                match target.format {
                    CheckFormat::Sarif => {
                        let documentation = self.args.documentation.documentation_url.as_ref();
                        check_sarif(json, outcome, documentation, out)
                    }
                    CheckFormat::Junit => check_junit(json, outcome, out),
                    CheckFormat::Github => check_github(json, outcome, out),
                    CheckFormat::Gitlab => check_gitlab(json, outcome, out),
                    CheckFormat::Json | CheckFormat::Text => json.write(outcome, &unjudged, out),
                }
            }
            CheckFormat::Text => {
                let configurations = self.groups.iter().filter_map(|group| group.config.as_ref());
                let mut text = TextReport::new(out, !self.args.no_advice)
                    .wrapped(target.terminal_width())
                    .showing_suppressed(self.args.show_suppressed)
                    .only_statistics(self.args.statistics)
                    .with_images(self.images)
                    .configured_by(configurations.map(|file| file.display().to_string()).collect());
                let mut written = Ok(());
                let (summaries, outcome) = self.check(|checked: Checked<'_>| {
                    if written.is_ok() {
                        written = self.progress.suspend(|| text.add(&checked));
                    }
                });
                *totals = CheckTotals {
                    summaries,
                    errors: outcome.errors.len(),
                };
                written?;
                text.finish(&outcome, &unjudged).map(drop)
            }
        }
    }

    /// Checks the objects that the arguments select.
    fn check(&self, mut each: impl FnMut(Checked<'_>)) -> (Vec<CheckSummary>, CheckOutcome) {
        let (mut summaries, mut all) = (Vec::new(), CheckOutcome::default());
        for group in self.groups {
            let mut summary = CheckSummary::default();
            let outcome = check_group(self.args, group, |checked| {
                self.progress.inc(1);
                summary.count(&checked);
                each(checked);
            });
            summaries.push(summary);
            all.errors.extend(outcome.errors);
            all.notes.extend(outcome.notes);
        }
        self.progress.finish_and_clear();
        (summaries, all)
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
