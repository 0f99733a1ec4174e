//! `transom plan`: reads a cluster, or files, and says what an upgrade of its Windows nodes takes.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::{Args, ValueEnum};
use jiff::Timestamp;

use super::block_on;
use super::cluster::ClusterArgs;
use super::options::{FailOn, OutputArgs, PathArgs, PolicyArgs};
use crate::check::files::{policies, read};
use crate::check::{Manifests, Scope};
use crate::cluster::client::{ConnectArgs, InstallationArgs, NoCluster};
use crate::cluster::list::{NODES, for_each_of};
use crate::cluster::once;
use crate::cluster::snapshot::SnapshotBuilder;
use crate::cluster::walk::{ListItem, walk};
use crate::engine::policy_set::PolicySet;
use crate::model::facts::Facts;
use crate::model::policy::Policy;
use crate::model::text::one_line;
use crate::model::workload::Kind;
use crate::plan::{PlanOptions, Planner, RegistryAnswer, TargetBuild, UpgradePlan};
use crate::process::today;
use crate::registry::{Registries, RegistryImage};
use crate::render::{plan_text, write_json};

/// Plan an upgrade of Windows nodes: which workloads run on the new build, which do not, and why
///
/// Without a PATH it reads a cluster and changes nothing: nodes, RuntimeClasses, policies, workloads and pods. With a
/// PATH it reads files as transom check does, such as a dump of kubectl get nodes,runtimeclasses,deployments,pods -A -o
/// yaml. Without --registry, images are known by their names, and tags for the new build are proposed, not verified.
///
/// Exit status: 0 nothing that --fail-on names; 1 there is; 2 bad usage, or input or lists that cannot be read (the rest
/// is still planned).
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
    /// Ask the registries of the images, anonymously and over HTTPS, for the builds of images and for proposed tags; the
    /// registries see which images the cluster runs
    #[arg(long)]
    registry: bool,
    /// What ends in exit status 1: blocked is a workload on the replaced pools that cannot move as it is, or of which
    /// that is not known
    #[arg(long, value_name = "WHAT", default_value = "blocked",
          value_parser = FailOn::among(["never", "blocked"]))]
    fail_on: FailOn,
    #[command(flatten)]
    output: OutputArgs<PlanFormat>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    installation: InstallationArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// What is said to do where a right is missing.
const RIGHTS: &str = "docs/how-to/plan.md has the rights that it takes";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PlanFormat {
    Text,
    Json,
}

pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    args.output.targets()?;
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
    Ok(
        match (errors.is_empty(), is_blocked && args.fail_on == FailOn::Blocked) {
            (true, false) => ExitCode::SUCCESS,
            (true, true) => ExitCode::from(1),
            (false, _) => ExitCode::from(2),
        },
    )
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
    let of_file = policies(args.policy.policy.as_deref(), Policy::standalone())?;
    let mut facts = args.cluster.facts(today());
    of_file.declare(&mut facts);
    let mut counting = of_file.set;
    let mut manifests = Manifests::new(false).within(Scope::default());
    for path in args.paths.all() {
        let before = (manifests.len(), manifests.errors().len());
        read(path, &mut manifests);
        if path.as_os_str() == "-" && before == (manifests.len(), manifests.errors().len()) {
            bail!("there is nothing on standard input; did the command before this one fail?");
        }
    }
    let among_the_inputs = manifests.policies(args.policy.policy.is_none());
    if args.policy.policy.is_none() {
        counting = PolicySet::new(among_the_inputs, Policy::standalone());
    }
    manifests.learn(&mut facts, &counting);
    let mut planner = Planner::new(&facts, &counting, args.plan_options());
    let mut unreadable = manifests.errors().to_vec();
    for pass in 0..Planner::PASSES {
        let errors = manifests.visit(|kind, json| {
            if Planner::pass(kind) == Some(pass) {
                planner.visit(kind, json).map_err(|error| error.to_string())
            } else {
                Ok(())
            }
        });
        // What is no object at all is so in every pass.
        unreadable.extend(
            errors
                .into_iter()
                .filter(|error| pass == 0 || !error.message.contains("not a Kubernetes object")),
        );
    }
    let errors = unreadable.into_iter().map(|error| match error.line {
        0 => format!("{}: {}", error.source, error.message),
        line => format!("{}:{line}: {}", error.source, error.message),
    });
    Ok((block_on(planned(planner, args))?, errors.collect()))
}

async fn of_cluster(args: &PlanArgs) -> anyhow::Result<Planned> {
    let connected = args.connect.connect().await;
    let (connected, namespace) = connected.map_err(|error| match error.downcast_ref::<NoCluster>() {
        Some(none) => anyhow::anyhow!("{none}, or give files"),
        None => error,
    })?;
    let client = &connected.client;
    let once = once::read(client, &namespace, &args.installation.name)
        .await
        .map_err(anyhow::Error::msg)?;
    // Without Transom's own resources there are no policies of its, and that is all.
    let unread = once.unread.iter().filter(|part| !part.is_unknown);
    let mut errors: Vec<String> = unread
        // The planner reads these for itself.
        .filter(|part| !matches!(part.resource.as_str(), "nodes" | "runtimeclasses"))
        .map(|part| format!("cannot read {}: {}; {RIGHTS}", part.resource, part.why))
        .collect();
    let day = today();
    let mut snapshots = SnapshotBuilder::new(Facts::new(Facts::KUBERNETES, day), []);
    let mut snapshot = snapshots.take(
        &Arc::new(once.view),
        once.registered.map(Arc::new),
        Timestamp::now(),
    );
    let counting = match &args.policy.policy {
        Some(path) => {
            let of_file = policies(Some(path), Policy::standalone())?;
            of_file.declare(&mut snapshot.facts);
            of_file.set
        }
        None => (*snapshot.policies).clone(),
    };
    let mut planner = Planner::new(&snapshot.facts, &counting, args.plan_options());
    let mut visit = |kind: Kind, json: &str| {
        if let Err(error) = planner.visit(kind, json) {
            errors.push(format!("cannot read a {kind}: {error}"));
        }
    };
    let mut lost = Vec::new();
    for list in NODES {
        let seen = for_each_of(client, &[list], &mut visit).await;
        lost.extend(seen.err().map(|error| format!("{error}; {RIGHTS}")));
    }
    let unlisted = walk(client, &[], |met| {
        if let ListItem::Object(kind, json) = met {
            visit(kind, json);
        }
    });
    lost.extend(unlisted.await.into_iter().map(|list| {
        let cure = if list.is_forbidden {
            format!("; {RIGHTS}")
        } else {
            String::new()
        };
        format!("cannot list {}: {}{cure}", list.resource, list.why)
    }));
    errors.append(&mut lost);
    Ok((planned(planner, args).await?, errors))
}

/// The plan, by what registries say of images where they may be asked.
async fn planned(mut planner: Planner<'_>, args: &PlanArgs) -> anyhow::Result<UpgradePlan> {
    if !args.registry {
        return Ok(planner.plan()?);
    }
    let mut registries = Registries::new()?;
    // Images of which the builds become known may have others proposed for them.
    for _ in 0..2 {
        for (image, found) in registries.ask(planner.open_images()).await {
            match found {
                RegistryImage::Builds(builds) => planner.learn(image, RegistryAnswer::Builds(builds)),
                RegistryImage::Missing => planner.learn(image, RegistryAnswer::Missing),
                RegistryImage::Unknown(_) => {}
            }
        }
    }
    let mut plan = planner.plan()?;
    plan.notes.extend(registries.notes());
    Ok(plan)
}
