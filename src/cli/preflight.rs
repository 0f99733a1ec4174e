//! `transom preflight`: looks at a cluster without Transom, and says what Transom would do there and what to install it with.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use jiff::civil::Date;
use kube::Client;

use super::block_on;
use super::options::{FailOn, OutputArgs, date};
use crate::cluster::client::ConnectArgs;
use crate::cluster::list::{NODES, for_each_of};
use crate::cluster::once::UnreadPart;
use crate::cluster::snapshot::SnapshotBuilder;
use crate::cluster::walk::{ListFailure, ListItem, walk};
use crate::cluster::{around, once};
use crate::engine::policy_set::PolicySet;
use crate::model::build::Release;
use crate::model::facts::Facts;
use crate::plan::{PlanOptions, Planner};
use crate::preflight::{ClusterInput, Platform, Preflight, WorkloadFindings, excluded, facts, newest, text};
use crate::process::today;
use crate::render::write_json;
use crate::scan::report::ScanGap;

/// What is said to do where a right is missing.
const RIGHTS: &str = "docs/how-to/preflight.md has the rights that it takes";

/// Inspect a cluster before Transom is installed: what would be denied and changed, and the values to install with
///
/// Reads nodes, workloads, RuntimeClasses, namespaces, webhook configurations, autoscalers and the marks of other
/// engines, and writes nothing to the cluster. The values are for helm install, after the chart's file for the platform.
/// Missing permissions are reported; the rest continues.
///
/// Exit status: 0 nothing that --fail-on names; 1 there is; 2 bad usage, or something cannot be read: the report names
/// it, and if that was workloads, the values enforce nothing.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom preflight -o values=transom-values.yaml -o text
  transom preflight --context production -o json=preflight.json
  transom preflight -o values | helm install transom charts/transom --values -")]
pub struct PreflightArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs<PreflightFormat>,
    /// What ends in exit status 1: deny is a workload that would be denied
    #[arg(long, value_name = "WHAT", default_value = "never", value_parser = FailOn::among(["never", "deny"]))]
    fail_on: FailOn,
    /// The day to check for, as in 2026-12-31; unset: today in UTC
    #[arg(long, value_name = "DATE", value_parser = date)]
    today: Option<Date>,
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
        read_cluster(&connected.client, &namespace, args.today.unwrap_or_else(today))
            .await
            .map_err(anyhow::Error::msg)
    })?;
    args.output.write(|format, out| match format {
        PreflightFormat::Text => text::write(&report, out),
        PreflightFormat::Json => write_json(&report, out),
        PreflightFormat::Values => out.write_all(report.values.yaml().as_bytes()),
    })?;
    let fails = args.fail_on == FailOn::Deny && report.summary.denied > 0;
    Ok(match (report.gaps.is_empty(), fails) {
        (false, _) => ExitCode::from(2),
        (true, false) => ExitCode::SUCCESS,
        (true, true) => ExitCode::from(1),
    })
}

/// Reads the cluster, and makes the report.
async fn read_cluster(client: &Client, namespace: &str, today: Date) -> Result<Preflight, String> {
    let around = around::read(client).await?;
    let once = once::read(client, namespace, "transom").await?;
    let excluded = excluded(namespace);
    let mut snapshots = SnapshotBuilder::new(Facts::new(Facts::KUBERNETES, today), excluded.clone());
    let mut snapshot = snapshots.take(&Arc::new(once.view), None, Timestamp::now());
    snapshot.facts.today = today;
    let platform = Platform::of(&around);
    // Transom's own kinds are unknown before it is installed.
    let of_view = once.unread.iter().filter(|unread| !unread.is_unknown);
    let mut gaps: Vec<ScanGap> = around.unread.iter().chain(of_view.clone()).map(gap).collect();
    let unread: BTreeSet<String> = (around.unread.iter().chain(of_view))
        .map(|unread| unread.resource.clone())
        .collect();
    let input = ClusterInput {
        snapshot: &snapshot,
        around: &around,
        platform: &platform,
        unread: &unread,
    };
    let facts = facts(input);
    let mut workloads = WorkloadFindings::new(input, &facts, &excluded);
    // By the policies of the cluster, as `transom plan` has it.
    let mut planner = match newest(&snapshot) {
        Some(release) => planner(client, &snapshot.facts, &snapshot.policies, release).await,
        None => None,
    };
    let unlisted = walk(client, &[], |met| {
        let ListItem::Object(kind, json) = met else { return };
        workloads.visit(kind, json);
        if let Some(planner) = &mut planner {
            // What is not what its kind says is told of above.
            let _ = planner.visit(kind, json);
        }
    });
    let unlisted = unlisted.await;
    workloads.finish();
    workloads
        .not_listed
        .extend(unlisted.iter().map(|list| list.resource.clone()));
    let plan = planner
        .filter(|_| unlisted.is_empty())
        .and_then(|planner| planner.plan().ok());
    gaps.extend(unlisted.iter().map(of_list));
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

/// A planner for a move to a release, that has looked at the nodes; `None` where they cannot be read.
async fn planner<'f>(
    client: &Client,
    facts: &'f Facts,
    policies: &'f PolicySet,
    to: &Release,
) -> Option<Planner<'f>> {
    let plan_options = PlanOptions {
        to: to.build,
        from: Vec::new(),
        gmsa_ready: false,
    };
    let mut planner = Planner::new(facts, policies, plan_options);
    let visit = |kind, json: &str| drop(planner.visit(kind, json));
    for_each_of(client, &NODES, visit).await.ok()?;
    Some(planner)
}

fn of_list(list: &ListFailure) -> ScanGap {
    let read = match list.read {
        0 => String::new(),
        read => format!("; {read} of them were read"),
    };
    ScanGap {
        what: list.resource.clone(),
        why: format!("{}{read}", list.why),
        cure: Some(if list.is_forbidden {
            RIGHTS.to_owned()
        } else {
            "run this again".to_owned()
        }),
    }
}

fn gap(unread: &UnreadPart) -> ScanGap {
    ScanGap {
        what: unread.resource.clone(),
        why: unread.why.clone(),
        cure: Some(RIGHTS.to_owned()),
    }
}
