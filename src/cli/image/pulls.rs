//! `transom image pulls`, and `transom generate image-pulls`: what new nodes pull, and what pulls it ahead of workloads.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::cli::options::OutputArgs;
use crate::cli::plan::source::{PlanSourceArgs, Planning};
use crate::cli::registry::{LookupArgs, RegistryArgs};
use crate::cli::{exit_status, write_errors};
use crate::model::syntax::text::{list, shown};
use crate::model::windows::image::ImageRef;
use crate::plan::{ImagePulls, PULLS_SCHEMA, PlanOptions, PlannedChange, Planner, PoolPulls, TargetBuild};
use crate::registry::{Detail, Registries};
use crate::render::{image_pulls_text, pull_daemon_sets, pull_jobs, pull_list, write_json, yaml_documents};

/// List what a new Windows node of each pool pulls: images, in the order worth pulling, and their sizes
///
/// Without a PATH it reads a cluster and changes nothing; with a PATH, files as transom plan does. Asks the registries of
/// the images for sizes, with the credentials of docker; the registries see which images the cluster runs. Sizes are
/// compressed, and layers that images share count once. Registries do not know the sizes on disk.
///
/// Exit status: 0 everything could be read; 2 bad usage, or a part of the input could not be read, or a registry did not
/// answer.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom image pulls
  transom image pulls --pool win22 --to ltsc2025 -o json
  kubectl get nodes,runtimeclasses,deployments,daemonsets,pods -A -o yaml | transom image pulls -")]
pub struct ImagePullsArgs {
    #[command(flatten)]
    new_nodes: NewNodesArgs,
    #[command(flatten)]
    output: OutputArgs<PullsFormat>,
    #[command(flatten)]
    source: PlanSourceArgs,
    #[command(flatten)]
    registries: RegistryArgs,
}

/// Generate what pulls the images of workloads on new Windows nodes before the workloads are there
///
/// transom image pulls shows the same images with their sizes. Only images that a DaemonSet runs are left to the kubelet,
/// except in the list.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate image-pulls | kubectl apply -n kruise-jobs -f -
  transom generate image-pulls -o daemonset --pool win22 | kubectl apply -n image-pulls -f -
  transom generate image-pulls -o list --to ltsc2025 > images.txt")]
pub struct GenerateImagePullsArgs {
    #[command(flatten)]
    new_nodes: NewNodesArgs,
    /// Look up the builds and operating systems of images in their registries, with the credentials of docker; the
    /// registries see which images the cluster runs
    #[arg(long, help_heading = "Registries")]
    registry: bool,
    #[command(flatten)]
    output: OutputArgs<ObjectsFormat>,
    #[command(flatten)]
    source: PlanSourceArgs,
    #[command(flatten)]
    look_ups: LookupArgs,
}

/// Which new nodes are meant.
#[derive(Args, Debug)]
struct NewNodesArgs {
    /// Only these pools, by name, release or build; unset: every pool of Windows nodes. Repeatable
    #[arg(long, value_name = "POOL", value_delimiter = ',')]
    pool: Vec<String>,
    /// Assume that new nodes have this build: a release as in ltsc2025, or a build as in 10.0.26100; unset: that of their
    /// pool
    #[arg(long, value_name = "RELEASE", value_parser = TargetBuild::parse)]
    to: Option<TargetBuild>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PullsFormat {
    /// For people
    Text,
    /// Schema transom.dev/image-pulls/v1
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ObjectsFormat {
    /// One ImagePullJob of OpenKruise per image and pool
    #[value(name = "imagepulljob")]
    ImagePullJob,
    /// One DaemonSet per pool
    #[value(name = "daemonset")]
    DaemonSet,
    /// One image per line, for the build of a node image
    List,
}

impl NewNodesArgs {
    fn planning(&self, registries: Option<Registries>) -> Planning {
        Planning {
            options: PlanOptions::new(PlannedChange::MoreNodes {
                to: self.to.map(|to| to.0),
                pools: self.pool.clone(),
            }),
            registries,
        }
    }
}

pub fn run(args: &ImagePullsArgs) -> anyhow::Result<ExitCode> {
    let targets = args.output.targets()?;
    let registries = args.registries.registries(Detail::Configurations)?;
    let finish = |planner: &Planner<'_>, registries: Option<&Registries>| {
        let mut answers = registries
            .into_iter()
            .flat_map(|registries| registries.answers().values());
        let is_silent = answers.any(|answer| answer.facts.is_err());
        let notes = registries.into_iter().flat_map(Registries::notes);
        let pulls = ImagePulls {
            schema: PULLS_SCHEMA,
            to: args.new_nodes.to,
            pools: planner.image_pulls()?,
            notes: notes.collect(),
        };
        Ok((pulls, is_silent))
    };
    let planning = args.new_nodes.planning(Some(registries));
    let ((pulls, is_silent), errors) = args.source.read(planning, finish)?;
    write_errors(&errors);
    for target in targets {
        let width = target.terminal_width();
        target.write(|out| match target.format {
            PullsFormat::Text => image_pulls_text(&pulls, width, out),
            PullsFormat::Json => write_json(&pulls, out),
        })?;
    }
    Ok(exit_status(is_silent || !errors.is_empty(), false))
}

/// Writes the objects.
pub fn generate(args: &GenerateImagePullsArgs) -> anyhow::Result<ExitCode> {
    args.output.targets()?;
    let registries = args.look_ups.registries_if(args.registry, Detail::Platforms)?;
    let finish = |planner: &Planner<'_>, _: Option<&Registries>| Ok(planner.image_pulls()?);
    let planning = args.new_nodes.planning(registries);
    let (mut pools, mut errors): (Vec<PoolPulls>, Vec<String>) = args.source.read(planning, finish)?;
    errors.extend(without_invalid(&mut pools));
    write_errors(&errors);
    args.output.write(|format, out| match format {
        ObjectsFormat::ImagePullJob => write!(out, "{}", yaml_documents(&pull_jobs(&pools))),
        ObjectsFormat::DaemonSet => write!(out, "{}", yaml_documents(&pull_daemon_sets(&pools))),
        ObjectsFormat::List => pull_list(&pools)
            .into_iter()
            .try_for_each(|image| writeln!(out, "{image}")),
    })?;
    Ok(exit_status(!errors.is_empty(), false))
}

/// How many workloads of an image are named.
const WORKLOADS: usize = 3;

/// Omits what is no image reference: an author can write any text, and tools read the output line by line. Returns what was
/// omitted.
fn without_invalid(pools: &mut [PoolPulls]) -> BTreeSet<String> {
    let mut omitted = BTreeSet::new();
    for pool in pools {
        pool.images.retain(|pull| match ImageRef::parse(&pull.image) {
            Ok(_) => true,
            Err(error) => {
                let workloads = list(&pull.workloads, WORKLOADS);
                omitted.insert(format!(
                    "{workloads}: image {}: {error}; omitted",
                    shown(&pull.image)
                ));
                false
            }
        });
    }
    omitted
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::{ImagePull, PullTotal};

    #[test]
    fn what_is_no_image_reference_is_omitted_and_named_on_one_line() {
        let pull = |image: &str| ImagePull {
            image: image.to_owned(),
            workloads: vec!["Deployment shop/web".to_owned()],
            ..ImagePull::default()
        };
        let images = [
            "app:1",
            "app:1\nevil.example/app:1",
            "\u{1b}[2Japp:1",
            "app:1 -o x",
        ]
        .map(pull);
        let mut pools = [PoolPulls {
            pool: "p".to_owned(),
            build: None,
            nodes: 1,
            selector: BTreeMap::new(),
            images: images.to_vec(),
            total: PullTotal::default(),
        }];
        let omitted = without_invalid(&mut pools);
        assert_eq!(pools[0].images, [pull("app:1")]);
        assert_eq!(omitted.len(), 3);
        assert!(
            omitted.iter().all(|text| !text.contains(char::is_control)),
            "{omitted:?}"
        );
    }
}
