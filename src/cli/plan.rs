//! `transom plan`: reads a cluster, or files, and says what an upgrade of its Windows nodes takes.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use jiff::civil::Date;
use kube::Client;

use super::cluster::ClusterArgs;
use super::options::{FailOn, OutputArgs, PathArgs, PolicyArgs, date};
use super::registry::{LookupArgs, look_up};
use super::{READ_RIGHTS, block_on, exit_status};
use crate::check::files::{policies, read};
use crate::check::{Manifests, Scope};
use crate::cluster::client::{ConnectArgs, InstallationArgs, NoCluster};
use crate::cluster::offline::{self, ObjectsInFiles, OfflineOptions};
use crate::cluster::snapshot::Snapshot;
use crate::cluster::walk::{ListItem, walk};
use crate::engine::namespace_selector;
use crate::model::policy::Policy;
use crate::model::text::one_line;
use crate::plan::{NodeInventory, PlanOptions, Planner, TargetBuild, UpgradePlan};
use crate::process::today;
use crate::registry::{Detail, Registries};
use crate::render::{plan_text, write_json};

/// Plan an upgrade of Windows nodes: which workloads run on the new build, which do not, and why
///
/// Without a PATH it reads a cluster and changes nothing: nodes, RuntimeClasses, policies, workloads and pods. With a
/// PATH it reads files as transom check does, such as a dump of kubectl get nodes,runtimeclasses,deployments,pods -A -o
/// yaml. Without --registry, images are known by their names, and tags for the new build are proposed, not verified.
///
/// Exit status: 0 if nothing matches --fail-on; 1 if something does; 2 for bad usage, or input or lists that cannot be read (the
/// rest is still planned).
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom plan --to ltsc2025
  transom plan --to ltsc2025 --from pool-2019 --registry -o json=plan.json -o text
  kubectl get nodes,runtimeclasses,deployments,pods -A -o yaml | transom plan --to 26100 -")]
pub struct PlanArgs {
    #[command(flatten)]
    paths: PathArgs,
    /// The build to upgrade to: a release as in ltsc2025, or a build as in 10.0.26100
    #[arg(long, value_name = "RELEASE", value_parser = TargetBuild::parse)]
    to: TargetBuild,
    /// The pools to replace, by name, release or build; unset: every Windows pool of an older build. Repeatable
    #[arg(long, value_name = "POOL", value_delimiter = ',')]
    from: Vec<String>,
    /// The new nodes may read the passwords of the group-managed service accounts, so these block nothing
    #[arg(long)]
    gmsa_ready: bool,
    /// Look up the builds and operating systems of images, and the proposed tags, in their registries, with the
    /// credentials of docker; the registries see which images the cluster runs
    #[arg(long, help_heading = "Registries")]
    registry: bool,
    /// What ends in exit status 1: blocked is a workload on the replaced pools that cannot move as it is, or for which
    /// this is not known
    #[arg(long, value_name = "WHAT", default_value = "blocked",
          value_parser = FailOn::among(["never", "blocked"]))]
    fail_on: FailOn,
    #[command(flatten)]
    output: OutputArgs<PlanFormat>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// The day to plan for, as in 2026-12-31; unset: today in UTC
    #[arg(long, value_name = "DATE", value_parser = date)]
    today: Option<Date>,
    #[command(flatten)]
    installation: InstallationArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    look_ups: LookupArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PlanFormat {
    Text,
    Json,
}

pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    args.output.targets()?;
    if !args.registry {
        args.look_ups.without_look_ups()?;
    }
    let (plan, errors) = if args.paths.is_empty() {
        block_on(of_cluster(args))?
    } else {
        of_files(args)?
    };
    for error in &errors {
        anstream::eprintln!("transom: {}", one_line(error));
    }
    args.output.write(|format, out| match format {
        PlanFormat::Text => plan_text(&plan, out),
        PlanFormat::Json => write_json(&plan, out),
    })?;
    let is_blocked = plan.summary.can_move != plan.summary.affected;
    let is_incomplete = !errors.is_empty();
    let fails = is_blocked && args.fail_on == FailOn::Blocked;
    Ok(exit_status(is_incomplete, fails))
}

impl PlanArgs {
    fn plan_options(&self) -> PlanOptions {
        PlanOptions {
            to: self.to.0,
            from: self.from.clone(),
            gmsa_ready: self.gmsa_ready,
        }
    }
}

/// The plan, and what could not be read.
type Planned = (UpgradePlan, Vec<String>);

fn of_files(args: &PlanArgs) -> anyhow::Result<Planned> {
    let mut manifests = Manifests::new(false).within(Scope::default());
    for path in args.paths.all() {
        let before = (manifests.len(), manifests.errors().len());
        read(path, &mut manifests);
        if path.as_os_str() == "-" && before == (manifests.len(), manifests.errors().len()) {
            bail!("there is nothing on standard input; did the command before this one fail?");
        }
    }
    // Reports those that are invalid, with their positions.
    manifests.policies_after(0, args.policy.policy.is_none());
    let mut objects = ObjectsInFiles::new(args.connect.namespace_of_files());
    let unreadable = manifests.visit_cluster(|kind, json| objects.visit(kind, json));
    let mut snapshot = objects.snapshot(args.cluster.facts(args.today.unwrap_or_else(today)));
    let visit = async |planner: &mut Planner<'_>| visit_files(&manifests, planner);
    let nodes = NodeInventory::default();
    let (plan, mut errors) = block_on(of_snapshot(args, &mut snapshot, &nodes, visit))?;
    errors.extend(unreadable.iter().map(ToString::to_string));
    Ok((plan, errors))
}

/// The plan for a snapshot and what is visited: the same for a cluster and for files.
async fn of_snapshot(
    args: &PlanArgs,
    snapshot: &mut Snapshot,
    nodes: &NodeInventory,
    visit: impl AsyncFn(&mut Planner<'_>) -> Vec<String>,
) -> anyhow::Result<Planned> {
    snapshot.facts.today = args.today.unwrap_or_else(today);
    let policies = match &args.policy.policy {
        Some(path) => {
            let of_file = policies(Some(path), Policy::standalone())?;
            of_file.declare(&mut snapshot.facts);
            namespace_selector::resolve(&mut snapshot.facts, &of_file.set);
            of_file.set
        }
        None => (*snapshot.policies).clone(),
    };
    let facts = &snapshot.facts;
    let new = || Planner::new(facts, &policies, args.plan_options()).with_nodes(nodes.clone());
    planned(args, new, visit).await
}

/// Visits the objects of files; returns what could not be read.
fn visit_files(manifests: &Manifests, planner: &mut Planner<'_>) -> Vec<String> {
    let mut unreadable = manifests.unreadable();
    for pass in 0..Planner::PASSES {
        unreadable.extend(manifests.visit(|kind, json| {
            if Planner::pass(kind) == Some(pass) {
                planner.visit(kind, json).map_err(|error| error.to_string())
            } else {
                Ok(())
            }
        }));
    }
    unreadable.iter().map(ToString::to_string).collect()
}

async fn of_cluster(args: &PlanArgs) -> anyhow::Result<Planned> {
    let connected = args.connect.connect().await;
    let (connected, namespace) = connected.map_err(|error| match error.downcast_ref::<NoCluster>() {
        Some(none) => anyhow::anyhow!("{none}, or give files"),
        None => error,
    })?;
    let client = &connected.client;
    let options = OfflineOptions {
        namespace: &namespace,
        installation: &args.installation.name,
        excluded: &[],
        namespaces: &[],
    };
    let mut nodes = NodeInventory::default();
    let mut errors = Vec::new();
    let mut visit = |kind, json: &str| {
        if let Err(error) = nodes.visit(kind, json) {
            errors.push(format!("cannot read a {kind}: {error}"));
        }
    };
    let cluster = offline::open(client, options, &mut visit).await;
    let mut cluster = cluster.map_err(anyhow::Error::msg)?;
    let unread = cluster.gaps();
    errors.extend(unread.map(|part| format!("cannot read {}: {}; {READ_RIGHTS}", part.resource, part.why)));
    let visit = async |planner: &mut Planner<'_>| visit_cluster(client, planner).await;
    let (plan, unlisted) = of_snapshot(args, &mut cluster.snapshot, &nodes, visit).await?;
    errors.extend(unlisted);
    Ok((plan, errors))
}

/// Visits the workloads and pods of a cluster; returns what could not be read.
async fn visit_cluster(client: &Client, planner: &mut Planner<'_>) -> Vec<String> {
    let mut errors = Vec::new();
    let unlisted = walk(client, &[], &[], |met| {
        if let ListItem::Object(kind, json) = met
            && let Err(error) = planner.visit(kind, json)
        {
            errors.push(format!("cannot read a {kind}: {error}"));
        }
    });
    let unlisted = unlisted.await;
    errors.extend(unlisted.into_iter().map(|list| {
        let remedy = if list.is_forbidden {
            format!("; {READ_RIGHTS}")
        } else {
            String::new()
        };
        format!("cannot list {}: {}{remedy}", list.resource, list.why)
    }));
    errors
}

/// The plan of what is visited, by what registries report of images if `--registry` is set.
async fn planned<'f>(
    args: &PlanArgs,
    new: impl Fn() -> Planner<'f>,
    visit: impl AsyncFn(&mut Planner<'_>) -> Vec<String>,
) -> anyhow::Result<Planned> {
    if !args.registry {
        let mut planner = new();
        let errors = visit(&mut planner).await;
        return Ok((planner.plan()?, errors));
    }
    let mut registries = args.look_ups.registries.registries(Detail::Platforms)?;
    let mut planner = new().with_registries();
    let mut errors = visit(&mut planner).await;
    // The number of images is limited: those of known Windows workloads come first.
    look_up_open(&mut registries, &mut planner).await;
    look_up(&mut registries, planner.undecided_images()).await;
    learn(&mut planner, &registries);
    if planner.must_visit_again() {
        planner = new();
        planner.learn(registries.facts());
        errors = visit(&mut planner).await;
        look_up_open(&mut registries, &mut planner).await;
    }
    Ok((plan_with_notes(&planner, &registries)?, errors))
}

/// The plan of what has been visited, by what registries report of the images whose builds it needs, if they may be asked.
pub(super) async fn plan_with_registries(
    mut planner: Planner<'_>,
    registries: Option<&mut Registries>,
) -> anyhow::Result<UpgradePlan> {
    let Some(registries) = registries else {
        return Ok(planner.plan()?);
    };
    look_up_open(registries, &mut planner).await;
    plan_with_notes(&planner, registries)
}

/// The plan, with the images of which registries report nothing.
fn plan_with_notes(planner: &Planner<'_>, registries: &Registries) -> anyhow::Result<UpgradePlan> {
    let mut plan = planner.plan()?;
    plan.notes.extend(registries.notes());
    Ok(plan)
}

/// Looks up the images whose builds the plan needs.
async fn look_up_open(registries: &mut Registries, planner: &mut Planner<'_>) {
    // Images of which the builds become known may have others proposed for them.
    for _ in 0..2 {
        look_up(registries, planner.open_images()).await;
        learn(planner, registries);
    }
}

fn learn(planner: &mut Planner<'_>, registries: &Registries) {
    planner.learn(registries.facts());
    let answers = registries.answers().iter();
    let unanswered =
        answers.filter_map(|(image, answer)| Some((image.clone(), answer.facts.as_ref().err()?.clone())));
    planner.learn_unanswered(unanswered.collect());
}
