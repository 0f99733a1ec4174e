//! `transom image`: says what an image is, and where it runs.

pub(super) mod pulls;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};

use super::manifest_inputs::read_all;
use super::options::{ListLimitArgs, OutputArgs};
use super::registry::{RegistryArgs, look_up, reference_error};
use super::{block_on, exit_status, write_errors};
use crate::cluster::client::ClusterClientArgs;
use crate::cluster::list::{Listing, NODES_PATH, for_each};
use crate::engine::policy_set::PolicySet;
use crate::image_report::{ImageReport, ImageReports, ImageStatus, PlatformFilter, SCHEMA};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::Policy;
use crate::model::nodes::node::Host;
use crate::model::objects::object::{Object, ReviewStage};
use crate::model::objects::workload::Kind;
use crate::model::windows::image::{ImageRef, os_hint};
use crate::model::windows::os::Os;
use crate::process::today;
use crate::registry::Detail;
use crate::render::{image_text, write_json};
use crate::rules::KnownVersions;

/// Show what an image is: its variants, and which Windows releases and nodes run it
///
/// Asks the registries of the images, with the credentials of docker (config.json and its helpers), else anonymously.
/// Keeps the answers in the cache folder of the user: digests forever, tags for ten minutes, missing images for one
/// minute. Does not keep failures. If a registry does not answer, or with --offline, reads the builds from the name, as
/// plan does.
///
/// Exit status: 0 every image exists; 1 one does not exist, or has no variant for --platform; 2 bad usage, or a
/// registry did not answer.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:
  transom image mcr.microsoft.com/windows/servercore:ltsc2022
  transom image --platform windows/amd64 -o json golang:1.24 python:3.12
  transom image --nodes registry.example/shop/billing:1.4
  kubectl get nodes -o yaml | transom image --facts - registry.example/shop/billing:1.4")]
pub struct ImageCommandArgs {
    #[command(subcommand)]
    command: Option<ImageCommand>,
    /// An image, as in the field image of a container
    #[arg(value_name = "REF", required = true, value_parser = reference)]
    images: Vec<String>,
    #[command(flatten)]
    output: OutputArgs<ImageFormat>,
    /// Only variants of this platform, as in windows/amd64, windows/amd64:10.0.20348 or linux/arm64/v8
    #[arg(long, value_name = "PLATFORM", value_parser = platform)]
    platform: Option<PlatformFilter>,
    /// Show which Windows nodes of the cluster run the images; implied by --kubeconfig and --context
    #[arg(long)]
    nodes: bool,
    /// Show which of the Windows nodes in this file or folder run the images, such as the output of kubectl get nodes
    /// -o yaml; - is standard input. Repeatable
    #[arg(long, value_name = "PATH", conflicts_with_all = ["nodes", "kubeconfig", "context"])]
    facts: Vec<PathBuf>,
    #[command(flatten)]
    limit: ListLimitArgs,
    #[command(flatten)]
    connect: ClusterClientArgs,
    #[command(flatten)]
    registries: RegistryArgs,
}

#[derive(Subcommand, Debug)]
enum ImageCommand {
    Pulls(Box<pulls::ImagePullsArgs>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ImageFormat {
    /// For people
    Text,
    /// Schema transom.dev/image/v1
    Json,
}

pub fn run(args: &ImageCommandArgs) -> anyhow::Result<ExitCode> {
    if let Some(ImageCommand::Pulls(args)) = &args.command {
        return pulls::run(args);
    }
    args.output.targets()?;
    let (hosts, errors) = hosts(args)?;
    let mut registries = args.registries.registries(Detail::Configurations)?;
    let images: BTreeSet<String> = args.images.iter().cloned().collect();
    block_on(async {
        look_up(&mut registries, images).await;
        Ok(())
    })?;
    write_errors(&errors);
    let knowledge = Facts::new(Facts::KUBERNETES, today());
    let report = |image: &String| {
        let answer = registries.answers().get(image)?;
        let facts = answer.facts.as_deref().map_err(String::as_str);
        let (platform, hosts) = (args.platform.as_ref(), hosts.as_deref());
        let mut report = ImageReport::new(image, facts, answer.is_cached, platform, hosts);
        // With the knowledge of Microsoft's images, as plan does.
        let versions = KnownVersions::of_image(image, &knowledge);
        let of_name = || os_hint(&ImageRef::parse(image).ok()?).os();
        if let Some(os) = versions.as_ref().map(|_| Os::Windows).or_else(of_name) {
            let all = versions.as_ref().map_or(&[][..], KnownVersions::all);
            let is_certain = versions.as_ref().is_some_and(KnownVersions::is_certain);
            report.add_name(os, all, is_certain, platform, hosts);
        }
        Some(report)
    };
    let reports = ImageReports {
        schema: SCHEMA,
        images: args.images.iter().filter_map(report).collect(),
    };
    for target in args.output.targets()? {
        let width = target.terminal_width();
        target.write(|out| match target.format {
            ImageFormat::Text => image_text(&reports, args.limit.rows(), width, out),
            ImageFormat::Json => write_json(&reports, out),
        })?;
    }
    let has = |status| reports.images.iter().any(|report| report.status == status);
    let is_incomplete = has(ImageStatus::Unknown) || !errors.is_empty();
    let fails = has(ImageStatus::Missing);
    Ok(exit_status(is_incomplete, fails))
}

/// The Windows nodes to compare, if any are requested, and what could not be read of them.
fn hosts(args: &ImageCommandArgs) -> anyhow::Result<(Option<Vec<Host>>, Vec<String>)> {
    if !args.facts.is_empty() {
        let (hosts, errors) = of_files(&args.facts)?;
        if hosts.is_empty() && errors.is_empty() {
            let paths: Vec<String> = args.facts.iter().map(|path| path.display().to_string()).collect();
            bail!(
                "{} has no Windows node; is it the output of kubectl get nodes -o yaml?",
                paths.join(", ")
            );
        }
        return Ok((Some(hosts), errors));
    }
    if args.nodes || args.connect.is_named() {
        return Ok((Some(block_on(of_cluster(&args.connect))?), Vec::new()));
    }
    Ok((None, Vec::new()))
}

fn of_files(paths: &[PathBuf]) -> anyhow::Result<(Vec<Host>, Vec<String>)> {
    let manifests = read_all(paths)?;
    let mut facts = Facts::new(Facts::KUBERNETES, today());
    let objects = manifests.objects(ReviewStage::Written);
    objects.learn(&mut facts, &PolicySet::new(Vec::new(), Policy::standalone()));
    let errors = manifests.errors().iter().map(ToString::to_string);
    Ok((facts.hosts().to_vec(), errors.collect()))
}

async fn of_cluster(connect: &ClusterClientArgs) -> anyhow::Result<Vec<Host>> {
    let connected = connect.connect().await?;
    let mut facts = Facts::new(Facts::KUBERNETES, today());
    let listed = for_each(&connected.client, Listing::new(NODES_PATH), |json| {
        // A node that does not parse cannot be compared.
        if let Ok(node) = Object::parse(Kind::Node, json, ReviewStage::Stored) {
            facts.learn(&node);
        }
    });
    listed
        .await
        .with_context(|| format!("cannot list the nodes of {}", connected.name))?;
    Ok(facts.hosts().to_vec())
}

/// Parses an image reference.
fn reference(text: &str) -> Result<String, String> {
    match ImageRef::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(reference_error(text, error)),
    }
}

fn platform(text: &str) -> Result<PlatformFilter, String> {
    text.parse()
}
