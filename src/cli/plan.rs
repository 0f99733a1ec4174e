//! `transom plan`: reads a cluster, or files, and says what an upgrade of its Windows nodes takes.

pub(super) mod source;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use self::source::{PlanSourceArgs, Planning, look_up_open};
use super::options::{FailOn, OutputArgs, ReportFormat};
use super::registry::LookupArgs;
use super::{exit_status, write_errors};
use crate::plan::{PlanOptions, Planner, TargetBuild, UpgradePlan};
use crate::registry::{Detail, Registries};
use crate::render::plan_text;

/// Plan an upgrade of Windows nodes: which workloads run on the new build, which do not, and why
///
/// Without a PATH it reads a cluster and changes nothing: nodes, RuntimeClasses, policies, workloads and pods. With a
/// PATH it reads files as transom check does, such as a dump of kubectl get nodes,runtimeclasses,deployments,pods -A -o
/// yaml. Without --registry, images are known by their names and by the tags that Microsoft publishes, and only such tags are
/// proposed for the new build.
///
/// Exit status: 0 if nothing matches --fail-on; 1 if something does; 2 for bad usage, or input or lists that cannot be read (the
/// rest is still planned, if the nodes of a cluster can be read).
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom plan --to ltsc2025
  transom plan --to ltsc2025 --from pool-2019 --registry -o json=plan.json -o text
  transom plan --to ltsc2025 --in-place pool-2022
  kubectl get nodes,runtimeclasses,deployments,pods -A -o yaml | transom plan --to 26100 -")]
pub struct PlanArgs {
    /// The build to upgrade to: a release as in ltsc2025, or a build as in 10.0.26100
    #[arg(long, value_name = "RELEASE", value_parser = TargetBuild::parse)]
    to: TargetBuild,
    /// The pools to replace, by name, release, build or one of their nodes; unset: every Windows pool of an older build. Repeatable
    #[arg(long, value_name = "POOL", value_delimiter = ',')]
    from: Vec<String>,
    /// Plan for nodes of these pools that get the new build and keep their names and labels, instead of for new nodes. Pools by
    /// name, release, build or one of their nodes. Repeatable
    #[arg(long, value_name = "POOL", value_delimiter = ',', conflicts_with = "from")]
    in_place: Vec<String>,
    /// The new nodes may read the passwords of the group-managed service accounts, so these block nothing
    #[arg(long)]
    gmsa_ready: bool,
    /// Look up the builds and operating systems of images, and the proposed tags, in their registries, with the
    /// credentials of docker; the registries see which images the cluster runs
    #[arg(long, help_heading = "Registries")]
    registry: bool,
    /// What ends in exit status 1: blocked is a workload on the replaced or upgraded pools that cannot run on the new nodes as
    /// it is, or for which this is not known
    #[arg(long, value_name = "WHAT", default_value = "blocked",
          value_parser = FailOn::among([FailOn::Never, FailOn::Blocked]))]
    fail_on: FailOn,
    #[command(flatten)]
    output: OutputArgs<ReportFormat>,
    #[command(flatten)]
    source: PlanSourceArgs,
    #[command(flatten)]
    look_ups: LookupArgs,
}

pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    args.output.targets()?;
    let registries = args
        .look_ups
        .registries_if(args.registry, Detail::Configurations)?;
    let planning = Planning {
        options: args.plan_options(),
        registries,
    };
    let (mut plan, errors) = args.source.read(planning, plan_with_notes)?;
    write_errors(&errors);
    plan.unread = errors;
    args.output.report(&plan, |out| plan_text(&plan, out))?;
    let is_blocked = plan.summary.can_move != plan.summary.affected;
    let is_incomplete = !plan.unread.is_empty();
    let fails = is_blocked && args.fail_on == FailOn::Blocked;
    Ok(exit_status(is_incomplete, fails))
}

impl PlanArgs {
    fn plan_options(&self) -> PlanOptions {
        let mut options = PlanOptions::upgrade(self.to.0, &self.in_place);
        // It conflicts with pools that are upgraded in place.
        options.from.extend(self.from.iter().cloned());
        options.gmsa_ready = self.gmsa_ready;
        options
    }
}

/// The plan of what has been visited, by what registries report of the images whose builds it needs, if they may be asked.
pub(super) async fn plan_with_registries(
    mut planner: Planner<'_>,
    registries: Option<&mut Registries>,
) -> anyhow::Result<UpgradePlan> {
    let Some(registries) = registries else {
        return plan_with_notes(&planner, None);
    };
    look_up_open(registries, &mut planner).await;
    plan_with_notes(&planner, Some(registries))
}

/// The plan, with the images of which registries report nothing.
fn plan_with_notes(planner: &Planner<'_>, registries: Option<&Registries>) -> anyhow::Result<UpgradePlan> {
    let mut plan = planner.plan()?.context("nothing is upgraded")?;
    plan.notes
        .extend(registries.into_iter().flat_map(Registries::notes));
    Ok(plan)
}
