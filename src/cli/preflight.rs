//! `transom preflight`: evaluates a cluster without Transom, and prints what Transom would do there and the values to
//! install it with.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use jiff::civil::Date;
use kube::Client;

use super::cluster::ClusterConfigArgs;
use super::knowledge::KnowledgeArgs;
use super::options::{FailOn, OutputArgs, date};
use super::scan::of_discovery;
use super::{READ_RIGHTS, block_on, exit_status};
use crate::cluster::client::{ConnectArgs, Connected};
use crate::cluster::custom_lists::CustomLists;
use crate::cluster::environment::{self, AnyNode};
use crate::cluster::list::UnreadPart;
use crate::cluster::offline::{self, OfflineCluster, OfflineOptions};
use crate::cluster::walk::{ListItem, walk};
use crate::model::objects::workload::Kind;
use crate::plan::{NodeInventory, PlanOptions, Planner};
use crate::preflight::{
    ClusterInput, Platform, Preflight, WorkloadFindings, facts, newest, other_engines, text,
};
use crate::process::today;
use crate::registration::excluded_by_default;
use crate::render::write_json;
use crate::scan::report::ScanGap;

/// Inspect a cluster before Transom is installed: what would be denied and changed, and the values to install with
///
/// Reads nodes, workloads, RuntimeClasses, namespaces, webhook configurations, autoscalers and the marks of other
/// engines, and writes nothing to the cluster. The values are for helm install, after the chart's file for the
/// platform. Missing permissions are reported; the rest continues.
///
/// Exit status: 0 if nothing matches --fail-on; 1 if something does; 2 for bad usage, or something cannot be read. The report names
/// what is missing. If workloads could not be read, the printed values do not enforce anything.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom preflight -o values=transom-values.yaml -o text
  transom preflight --context production -o json=preflight.json
  transom preflight -o values | helm install transom charts/transom --values -")]
pub struct PreflightArgs {
    #[command(flatten)]
    output: OutputArgs<PreflightFormat>,
    /// What ends in exit status 1: would-deny is a workload that mode Enforce would deny, as in transom scan
    #[arg(long, value_name = "WHAT", default_value = "never", value_parser = FailOn::among([FailOn::Never, FailOn::WouldDeny]))]
    fail_on: FailOn,
    /// The day to check for, as in 2026-12-31; unset: today in UTC
    #[arg(long, value_name = "DATE", value_parser = date)]
    today: Option<Date>,
    #[command(flatten)]
    cluster_config: ClusterConfigArgs,
    #[command(flatten)]
    knowledge: KnowledgeArgs,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PreflightFormat {
    Text,
    Json,
    /// Values for helm install
    Values,
}

pub fn run(args: &PreflightArgs) -> anyhow::Result<ExitCode> {
    args.output.targets()?;
    let report = block_on(async {
        let (connected, namespace) = args.connect.connect().await?;
        read_cluster(args, &connected, &namespace).await
    })?;
    args.output.write(|format, out| match format {
        PreflightFormat::Text => text::write(&report, out),
        PreflightFormat::Json => write_json(&report, out),
        PreflightFormat::Values => out.write_all(report.values.yaml().as_bytes()),
    })?;
    let is_incomplete = !report.gaps.is_empty();
    let fails = args.fail_on == FailOn::WouldDeny && report.summary.denied > 0;
    Ok(exit_status(is_incomplete, fails))
}

/// Reads the cluster, and makes the report.
async fn read_cluster(
    args: &PreflightArgs,
    connected: &Connected,
    namespace: &str,
) -> anyhow::Result<Preflight> {
    let client = &connected.client;
    let excluded = excluded_by_default(namespace);
    let stated = args.cluster_config.load()?;
    let options = OfflineOptions {
        namespace,
        installation: "transom",
        excluded: &excluded,
        namespaces: &[],
        stated: stated.as_ref(),
    };
    let (mut nodes, mut plan_nodes) = (Vec::new(), NodeInventory::default());
    let mut visit = |kind, json: &str| {
        nodes.extend((kind == Kind::Node).then(|| AnyNode::read(json)).flatten());
        // An object that is not what its kind says is a gap already.
        let _ = plan_nodes.visit(kind, json);
    };
    let mut cluster = offline::open(connected, options, &mut visit).await?;
    // It is evaluated as if Transom were not installed yet.
    cluster.snapshot.registered = None;
    cluster.snapshot.facts.today = args.today.unwrap_or_else(today);
    args.knowledge.apply(&mut cluster.snapshot.facts);
    let environment = environment::read(client, &cluster, nodes, other_engines::objects()).await;
    let unread = || environment.unread.iter().chain(cluster.gaps());
    let input = ClusterInput {
        snapshot: &cluster.snapshot,
        environment: &environment,
        platform: &Platform::of(&environment),
        unread: &unread().map(|part| part.resource.clone()).collect(),
    };
    let facts = facts(input);
    let custom = CustomLists::read(client, &facts.config.pod_templates).await;
    let mut workloads = WorkloadFindings::new(input, &facts, &excluded).listing(&custom);
    let mut planner = planner(&cluster, plan_nodes);
    let unlisted = visit_objects(client, &custom, &mut workloads, planner.as_mut()).await;
    let accounts = workloads.controllers.questions();
    let asked = accounts.iter().map(|((account, _), kind)| (account, *kind));
    let (may_create, unasked) = environment::may_create(client, asked).await;
    workloads
        .controllers
        .answer(may_create, unasked.as_ref().map(|part| part.resource.clone()));
    let (may_use, unanswered) = environment::may_use(client, workloads.gmsa.uses.keys()).await;
    workloads.gmsa.may_use = may_use;
    workloads.gmsa.unread = unanswered.as_ref().map(|part| part.resource.clone());
    let planner = planner.filter(|_| unlisted.is_empty());
    let plan = planner.and_then(|planner| planner.plan().ok().flatten());
    let mut gaps: Vec<ScanGap> = { unread().chain(&unanswered).chain(&unasked) }
        .map(gap)
        .chain(unlisted.iter().map(of_list))
        .chain(custom.unknown.iter().map(of_discovery))
        .collect();
    gaps.sort();
    gaps.dedup();
    Ok(Preflight::new(
        input,
        workloads,
        plan.as_ref(),
        gaps,
        Timestamp::now(),
    ))
}

/// The planner of a move to the newest build, by the policies of the cluster, as `transom plan` has it.
fn planner(cluster: &OfflineCluster, nodes: NodeInventory) -> Option<Planner<'_>> {
    let snapshot = &cluster.snapshot;
    let knows_nodes = cluster.could_read("nodes") && cluster.could_read("runtimeclasses");
    let release = newest(snapshot).filter(|_| knows_nodes)?;
    let plan_options = PlanOptions::upgrade(release.build, &[]);
    Some(Planner::new(&snapshot.facts, &snapshot.policies, plan_options).with_nodes(nodes))
}

/// Visits the objects that carry pods; returns the lists that could not be read.
async fn visit_objects(
    client: &Client,
    custom: &CustomLists,
    workloads: &mut WorkloadFindings<'_>,
    mut planner: Option<&mut Planner<'_>>,
) -> Vec<UnreadPart> {
    let unlisted = walk(client, &[], &custom.kinds, |met| {
        let ListItem::Object(kind, json) = met else { return };
        workloads.visit(kind, json);
        if let Some(planner) = &mut planner {
            // Objects that do not parse are reported above.
            let _ = planner.visit(kind, json);
        }
    });
    let unlisted = unlisted.await;
    let discovery = custom
        .unknown
        .iter()
        .map(|unknown| of_discovery(unknown).resource);
    let resources = unlisted.iter().map(|list| list.resource.clone()).chain(discovery);
    workloads.not_listed.extend(resources);
    unlisted
}

fn of_list(list: &UnreadPart) -> ScanGap {
    ScanGap {
        resource: list.resource.clone(),
        reason: list.reason(),
        remedy: Some(if list.is_forbidden {
            READ_RIGHTS.to_owned()
        } else {
            "run this again".to_owned()
        }),
    }
}

fn gap(unread: &UnreadPart) -> ScanGap {
    ScanGap {
        resource: unread.resource.clone(),
        reason: unread.why.clone(),
        remedy: Some(READ_RIGHTS.to_owned()),
    }
}
