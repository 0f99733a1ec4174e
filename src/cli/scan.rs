//! `transom scan`: reads a cluster, and reports what admission would do with the stored objects.

mod assume;
mod cluster_look_ups;
mod reading;
mod since;

pub(super) use self::reading::of_discovery;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use jiff::civil::Date;

use super::cluster::ClusterConfigArgs;
use super::knowledge::KnowledgeArgs;
use super::options::{
    DocumentationArgs, ExcludedNamespacesArgs, FailOn, ListLimitArgs, NamespaceArgs, OutputArgs, PolicyArgs,
    SelectorArgs, date,
};
use super::registry::LookupArgs;
use super::{block_on, exit_status};
use crate::cluster::client::{ConnectArgs, InstallationArgs};
use crate::plan::TargetBuild as PlanTarget;
use crate::render::{ScanView, page, scan_json, scan_sarif, scan_text};
use crate::scan::report::{ScanChanges, ScanSummary};

/// Scan what is stored in a cluster, as admission would evaluate it at its next create
///
/// Reads policies, namespaces, nodes, RuntimeClasses, the webhook configurations and every object that carries a pod,
/// and evaluates each top owner once: what would be denied at its next create, what would be changed, what passes and
/// why. Names pods on a node of the wrong operating system or build, and pods that wait for a node. Writes nothing to
/// the cluster. Missing permissions are reported; the rest is evaluated.
///
/// Exit status: 0 if nothing matches --fail-on; 1 if something does; 2 for bad usage, no cluster, or a part of the cluster that
/// cannot be read (the report is still printed).
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom scan
  transom scan -n shop -n bank --advice
  transom scan --registry
  transom scan --assume mode=Enforce --fail-on never
  transom scan --since yesterday.json -o text -o json=today.json
  transom scan -o html=scan.html -o sarif=scan.sarif -o text")]
pub struct ScanArgs {
    #[command(flatten)]
    namespaces: NamespaceArgs,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Evaluate as if every policy had this setting, such as mode=Enforce: shows the effect of a mode before a policy
    /// uses it
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    assume: Vec<String>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    output: OutputArgs<ScanFormat>,
    /// Include the plan of an upgrade to this release or build in the page, such as ltsc2025; needs -o html (for text
    /// and JSON see transom plan)
    #[arg(long, value_name = "RELEASE", value_parser = PlanTarget::parse)]
    plan_to: Option<PlanTarget>,
    /// Plan for nodes of these pools that get that build in place, as transom plan --in-place does. Repeatable
    #[arg(long, value_name = "POOL", value_delimiter = ',', requires = "plan_to")]
    plan_in_place: Vec<String>,
    /// What ends in exit status 1: deny is a workload that would be denied; would-deny one that mode Enforce would
    /// deny; a severity adds open findings of that severity and above
    #[arg(long, value_name = "WHAT", default_value = "deny",
          value_parser = FailOn::among([FailOn::Never, FailOn::Deny, FailOn::WouldDeny, FailOn::Error, FailOn::Warning, FailOn::Advice]))]
    fail_on: FailOn,
    /// Show only what is new and what is gone since this earlier report of transom scan -o json, in the text; the JSON gets
    /// it as changes. --fail-on then applies to new findings, and to those with another outcome
    #[arg(long, value_name = "FILE")]
    since: Option<PathBuf>,
    /// Show advice that neither denies nor warns in the text output too
    #[arg(long)]
    advice: bool,
    /// The day to scan for, as in 2026-12-31; unset: today in UTC
    #[arg(long, value_name = "DATE", value_parser = date)]
    today: Option<Date>,
    #[command(flatten)]
    cluster_config: ClusterConfigArgs,
    #[command(flatten)]
    knowledge: KnowledgeArgs,
    #[command(flatten)]
    limit: ListLimitArgs,
    #[command(flatten)]
    excluded: ExcludedNamespacesArgs,
    #[command(flatten)]
    documentation: DocumentationArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    installation: InstallationArgs,
    /// Look up the images of Windows pods, and of pods whose operating system is not known, in their registries, with
    /// the credentials of docker; the registries see which images the cluster runs. Lists the objects twice
    #[arg(long, help_heading = "Registries")]
    registry: bool,
    #[command(flatten)]
    look_ups: LookupArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ScanFormat {
    Text,
    Json,
    Html,
    Sarif,
}

impl ScanArgs {
    /// The options that limit the scan, as in `namespace=shop`.
    fn limits(&self) -> Vec<String> {
        let mut namespaces = self.namespaces.namespace.clone();
        namespaces.sort();
        namespaces.dedup();
        let namespaces = namespaces.into_iter().map(|name| format!("namespace={name}"));
        let selector = self.selector.text().map(|text| format!("selector={text}"));
        namespaces.chain(selector).collect()
    }
}

fn is_in(fail_on: FailOn, summary: &ScanSummary) -> bool {
    let denied = match fail_on {
        FailOn::Never => 0,
        FailOn::WouldDeny => summary.would_be_denied,
        _ => summary.denied,
    };
    denied > 0 || fail_on.is_open_in(&summary.open)
}

pub fn run(args: &ScanArgs) -> anyhow::Result<ExitCode> {
    if !args.registry {
        args.look_ups.without_look_ups()?;
    }
    let overrides = assume::overrides(&args.assume)?;
    let targets = args.output.targets()?;
    let writes = |formats: &[ScanFormat]| targets.iter().any(|target| formats.contains(&target.format));
    if args.plan_to.is_some() && !writes(&[ScanFormat::Html]) {
        bail!("--plan-to puts a plan into the page: add -o html=FILE, or use transom plan --to");
    }
    if args.since.is_some() && !writes(&[ScanFormat::Text, ScanFormat::Json]) {
        bail!("--since adds changes to the text and the JSON: add -o text or -o json");
    }
    let earlier = args
        .since
        .as_deref()
        .map(|file| since::read(file, &args.limits()));
    let earlier = earlier.transpose()?;
    let (mut report, plan) = block_on(reading::scan(args, &overrides))?;
    report.changes = earlier.map(|earlier| ScanChanges::between(&earlier, &report));
    let documentation = args.documentation.documentation_base_url.as_ref();
    args.output.write(|format, out| match format {
        ScanFormat::Text => {
            let shown = ScanView {
                advice: args.advice,
                rows: args.limit.rows(),
            };
            scan_text(&report, shown, out)
        }
        ScanFormat::Json => scan_json(&report, out),
        ScanFormat::Html => page(&report, plan.as_ref(), documentation, out),
        ScanFormat::Sarif => scan_sarif(&report, documentation, out),
    })?;
    let is_incomplete = !report.gaps.is_empty();
    let fails = match &report.changes {
        Some(changes) => is_in(args.fail_on, &changes.summary()),
        None => is_in(args.fail_on, &report.summary),
    };
    Ok(exit_status(is_incomplete, fails))
}
