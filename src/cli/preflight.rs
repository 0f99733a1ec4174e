//! `transom preflight`: looks at a cluster without Transom, and says what Transom would do there and what to install it with.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::Client;

use super::block_on;
use crate::cluster::client::{KubeconfigArgs, own_namespace};
use crate::cluster::once::Unread;
use crate::cluster::snapshot::Snapshots;
use crate::cluster::survey::visit_list;
use crate::cluster::walk::{Met, Unlisted, walk};
use crate::cluster::{around, once};
use crate::engine::effective::PolicySet;
use crate::model::build::Release;
use crate::model::facts::Facts;
use crate::model::workload::Kind;
use crate::plan::{Planner, Question};
use crate::preflight::{Platform, Preflight, Sight, Workloads, excluded, facts, newest, text};
use crate::process::today;
use crate::render::write_json;
use crate::scan::report::Gap;

/// What is said to do where a right is missing.
const RIGHTS: &str = "docs/preflight.md has the rights that it takes";

/// Look at a cluster before Transom is installed: what would be denied and changed, and the values to install with
///
/// Reads nodes, workloads, RuntimeClasses, namespaces, webhook configurations, autoscalers and the marks of other engines, and
/// writes nothing to the cluster. The values are for helm install, after the chart's file for the platform. What must not be
/// read is told, and the rest goes on.
///
/// Exit status: 0 nothing would be denied; 1 something would; 2 bad usage, or something could not be read: the
/// report names it, and where that was workloads, the values enforce nothing.
#[derive(Args, Debug)]
pub struct PreflightArgs {
    #[command(flatten)]
    connect: KubeconfigArgs,
    /// The namespace that Transom will have. Without it: that of the pod, else transom-system
    #[arg(long, env = "TRANSOM_NAMESPACE", value_name = "NAME")]
    transom_namespace: Option<String>,
    /// How to print what was found
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Write the values into this file too, for helm install --values; - is standard output, and nothing else is printed
    #[arg(long, value_name = "FILE")]
    values: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

pub fn run(args: &PreflightArgs) -> anyhow::Result<ExitCode> {
    let report = block_on(async {
        let connected = args.connect.connect().await?;
        let namespace = own_namespace(args.transom_namespace.clone(), &connected);
        look(&connected.client, &namespace)
            .await
            .map_err(anyhow::Error::msg)
    })?;
    let only_values = args.values.as_ref().is_some_and(|file| file.as_os_str() == "-");
    if let Some(file) = args.values.as_ref().filter(|_| !only_values) {
        std::fs::write(file, report.values.yaml())
            .with_context(|| format!("cannot write {} (--values)", file.display()))?;
        anstream::eprintln!("transom: the values are written to {}", file.display());
    }
    let mut out = BufWriter::new(anstream::stdout().lock());
    let printed = if only_values {
        out.write_all(report.values.yaml().as_bytes())
    } else if args.format == Format::Json {
        write_json(&report, &mut out)
    } else {
        text::write(&report, &mut out)
    };
    match printed.and_then(|()| out.flush()) {
        // The reader of our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        printed => printed.context("cannot write the report")?,
    }
    Ok(match (report.gaps.is_empty(), report.summary.denied) {
        (false, _) => ExitCode::from(2),
        (true, 0) => ExitCode::SUCCESS,
        (true, _) => ExitCode::from(1),
    })
}

/// Reads the cluster, and makes the report.
async fn look(client: &Client, namespace: &str) -> Result<Preflight, String> {
    let around = around::read(client).await?;
    let once = once::read(client, namespace, "transom").await?;
    let today = today();
    let excluded = excluded(namespace);
    let mut snapshots = Snapshots::new(Facts::new(Facts::KUBERNETES, today), excluded.clone());
    let snapshot = snapshots.take(&Arc::new(once.view), None, Timestamp::now());
    let platform = Platform::of(&around);
    // Transom's own kinds are unknown before it is installed.
    let of_view = once.unread.iter().filter(|unread| !unread.is_unknown);
    let mut gaps: Vec<Gap> = around.unread.iter().chain(of_view.clone()).map(gap).collect();
    let unread: BTreeSet<String> = (around.unread.iter().chain(of_view))
        .map(|unread| unread.resource.clone())
        .collect();
    let sight = Sight {
        snapshot: &snapshot,
        around: &around,
        platform: &platform,
        unread: &unread,
    };
    let facts = facts(sight);
    let mut workloads = Workloads::new(sight, &facts, &excluded);
    // By the policies of the cluster, as `transom plan` has it.
    let mut planner = match newest(&snapshot) {
        Some(release) => planner(client, &snapshot.facts, &snapshot.policies, release).await,
        None => None,
    };
    let unlisted = walk(client, &[], |met| {
        let Met::Object(kind, json) = met else { return };
        workloads.look(kind, json);
        if let Some(planner) = &mut planner {
            // What is not what its kind says is told of above.
            let _ = planner.look(kind, json);
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
        sight,
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
    let question = Question {
        to: to.build,
        from: Vec::new(),
        gmsa_ready: false,
    };
    let mut planner = Planner::new(facts, policies, question);
    for (kind, path) in [
        (Kind::Node, "/api/v1/nodes"),
        (Kind::RuntimeClass, "/apis/node.k8s.io/v1/runtimeclasses"),
    ] {
        let mut look = |kind, json: &str| drop(planner.look(kind, json));
        visit_list(client, kind, path, &mut look).await.ok()?;
    }
    Some(planner)
}

fn of_list(list: &Unlisted) -> Gap {
    let read = match list.read {
        0 => String::new(),
        read => format!("; {read} of them were read"),
    };
    Gap {
        what: list.resource.clone(),
        why: format!("{}{read}", list.why),
        cure: Some(if list.is_forbidden {
            RIGHTS.to_owned()
        } else {
            "run this again".to_owned()
        }),
    }
}

fn gap(unread: &Unread) -> Gap {
    Gap {
        what: unread.resource.clone(),
        why: unread.why.clone(),
        cure: Some(RIGHTS.to_owned()),
    }
}
