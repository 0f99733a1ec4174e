//! `transom check`: reads files, folders and standard input, and reports what admission would do.

mod manifest_look_ups;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;

use super::image_evidence::{note_names_only, with_registries};
use super::manifest_inputs::{ManifestArgs, ManifestGroup, ReadOptions};
use super::options::{DocumentationArgs, ExcludedNamespacesArgs, FailOn, OutputArgs, OutputTarget, RuleArgs};
use super::progress::bar;
use super::registry::LookupArgs;
use super::{exit_status, is_quiet, warn_line};
use crate::check::{
    BaselineWriter, CheckNote, ConfigFailOn, ManifestObjects, Repository, SourceRole, SuppressedBy,
    read_baseline,
};
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::Facts;
use crate::model::objects::object::ReviewStage;
use crate::registration::names::non_empty_items;
use crate::render::{
    CheckReport, CheckSummary, CheckTextOptions, check_github, check_gitlab, check_json, check_junit,
    check_sarif, check_text,
};

/// Check manifests as admission would: files, folders, standard input
///
/// Reads YAML and JSON: single objects, several documents in one file, Lists, dumps of kubectl get -o yaml. Nodes,
/// CSINodes, RuntimeClasses, Namespaces, StorageClasses, PersistentVolumeClaims, EndpointSlices and the DaemonSets of
/// network engines among the inputs describe the cluster. Without --policy, the built-in policy applies: errors deny, placement is applied, ignored fields
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
          value_parser = FailOn::among([FailOn::Never, FailOn::Deny, FailOn::Error, FailOn::Warning, FailOn::Advice]))]
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
    (fail_on != FailOn::Never && summary.denied > 0) || fail_on.is_open_in(&summary.open)
}

/// The inputs with the same configuration, and what they are checked with.
struct CheckGroup<'m> {
    input: &'m ManifestGroup,
    objects: ManifestObjects<'m>,
    facts: Facts,
    policies: PolicySet,
    fail_on: FailOn,
    /// Whether its images are looked up.
    asks_registries: bool,
    /// Notes about images that are not known.
    image_notes: Vec<CheckNote>,
}

impl<'m> CheckGroup<'m> {
    fn of(args: &CheckArgs, input: &'m ManifestGroup) -> Self {
        let asks_registries = args.registry || input.config.registry;
        let configured = input.config.fail_on.map(|fail_on| match fail_on {
            ConfigFailOn::Never => FailOn::Never,
            ConfigFailOn::Deny => FailOn::Deny,
            ConfigFailOn::Error => FailOn::Error,
            ConfigFailOn::Warning => FailOn::Warning,
            ConfigFailOn::Advice => FailOn::Advice,
        });
        let policies = if asks_registries {
            with_registries(&input.policies)
        } else {
            input.policies.clone()
        };
        let objects = input.manifests.objects(ReviewStage::Written);
        let mut facts = input.facts.clone();
        objects.learn_cluster(&mut facts, &policies);
        CheckGroup {
            input,
            objects,
            facts,
            policies,
            fail_on: args.fail_on.or(configured).unwrap_or(FailOn::Deny),
            asks_registries,
            image_notes: Vec::new(),
        }
    }

    /// Evaluates the objects that the arguments select, and adds them to the report. Returns whether they fail the command.
    fn check(self, args: &CheckArgs, report: &mut CheckReport<'m>, progress: &ProgressBar) -> bool {
        let before = report.objects.len();
        let outcome = self.objects.run(&self.facts, &self.policies, |mut checked| {
            if args.inputs.selects(&checked) {
                if !args.rules.is_everything() {
                    checked.keep_rules(|rule| args.rules.selects(rule.id));
                }
                report.objects.push(checked);
            }
            progress.inc(1);
        });
        report.outcome.errors.extend(outcome.errors);
        report.outcome.notes.extend(outcome.notes);
        report.outcome.notes.extend(self.image_notes);
        report.not_evaluated.add(&self.input.manifests);
        let file = self.input.file.as_ref();
        report
            .configurations
            .extend(file.map(|file| file.display().to_string()));
        let summary = CheckSummary::of(report.objects.iter().skip(before));
        let of_text = matches!(self.fail_on, FailOn::Warning | FailOn::Advice);
        is_in(self.fail_on, &summary) || of_text && self.input.manifests.has_warnings()
    }
}

pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let targets = args.output.targets()?;
    let has = |format| targets.iter().any(|target| target.format == format);
    if args.statistics && !has(CheckFormat::Text) {
        bail!("only the text output has statistics: add -o text, or remove --statistics");
    }
    // For excerpts of lines.
    let inputs = read(args, has(CheckFormat::Text))?;
    let mut groups: Vec<CheckGroup<'_>> = inputs.iter().map(|input| CheckGroup::of(args, input)).collect();
    let namespaces = || {
        groups
            .iter()
            .flat_map(|group| group.objects.namespaces())
            .collect()
    };
    let names_namespaces = args.inputs.require_namespaces(namespaces);
    let mut report = CheckReport {
        images: manifest_look_ups::look_up(args, &mut groups)?,
        repository: Repository::of_current_folder(),
        ..CheckReport::default()
    };
    let by_names = groups.iter().filter(|group| !group.asks_registries);
    note_names_only(by_names.map(|group| &group.policies), Some("add --registry"));
    let progress = progress(inputs.iter().map(|input| input.manifests.len()).sum());
    let mut fails = false;
    for mut group in groups {
        group.objects.learn_workloads(&mut group.facts, &group.policies);
        fails |= group.check(args, &mut report, &progress);
    }
    report.summary = CheckSummary::of(&report.objects);
    progress.finish_and_clear();
    if let Some(file) = &args.write_baseline {
        write_baseline(&report, file)?;
        fails = false;
    }
    for target in &targets {
        target.write(|out| print(args, &report, target, out))?;
    }
    names_namespaces?;
    Ok(exit_status(!report.outcome.errors.is_empty(), fails))
}

fn read(args: &CheckArgs, keep_text: bool) -> anyhow::Result<Vec<ManifestGroup>> {
    let baseline = args.baseline.as_deref().map(read_baseline).transpose()?;
    args.inputs.read(ReadOptions {
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
    })
}

/// Writes the open findings, and those that the current baseline suppresses.
fn write_baseline(report: &CheckReport<'_>, file: &Path) -> anyhow::Result<()> {
    let mut baseline = BaselineWriter::default();
    for checked in &report.objects {
        let suppressed = checked.suppressed.iter();
        let suppressed = suppressed.filter(|it| it.by == SuppressedBy::Baseline);
        let suppressed = suppressed.map(|it| &it.finding);
        let findings = checked.evaluation.findings.iter().chain(suppressed);
        baseline.add(checked, findings.filter(|finding| finding.is_open()));
    }
    let count = baseline.len();
    let text = baseline.finish()?;
    let written = fs::write(file, text);
    written.with_context(|| format!("cannot write {} (--write-baseline)", file.display()))?;
    if !is_quiet() {
        warn_line(format_args!("{count} findings written to {}", file.display()));
    }
    Ok(())
}

/// Prints the report in one format.
fn print(
    args: &CheckArgs,
    report: &CheckReport<'_>,
    target: &OutputTarget<CheckFormat>,
    out: &mut dyn Write,
) -> io::Result<()> {
    match target.format {
        CheckFormat::Text => {
            let options = CheckTextOptions {
                advice: !args.no_advice,
                suppressed: args.show_suppressed,
                statistics: args.statistics,
                width: target.terminal_width(),
            };
            check_text(report, &options, out)
        }
        CheckFormat::Json => check_json(report, out),
        CheckFormat::Sarif => check_sarif(report, args.documentation.documentation_base_url.as_ref(), out),
        CheckFormat::Junit => check_junit(report, out),
        CheckFormat::Github => check_github(report, out),
        CheckFormat::Gitlab => check_gitlab(report, out),
    }
}

/// A progress bar for long runs.
fn progress(objects: usize) -> ProgressBar {
    const LONG: usize = 2000;
    if objects < LONG {
        return ProgressBar::hidden();
    }
    bar(
        Some(objects as u64),
        "checking {bar:40} {pos}/{len} objects, {elapsed}",
    )
}
