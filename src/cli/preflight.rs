//! `transom preflight`: looks at a cluster without Transom, and says what Transom would do there and what to install it with.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::Client;

use super::block_on;
use crate::cluster::client::ConnectArgs;
use crate::cluster::once::Unread;
use crate::cluster::snapshot::Snapshots;
use crate::cluster::survey::{visit_list, visit_readable_pod_carriers};
use crate::cluster::{around, once};
use crate::engine::effective::PolicySet;
use crate::model::build::Release;
use crate::model::facts::Facts;
use crate::model::policy::Policy;
use crate::model::text::plain_json;
use crate::model::workload::Kind;
use crate::plan::{Planner, Question};
use crate::preflight::{Platform, Preflight, Sight, Workloads, excluded, newest, text};
use crate::process::today;
use crate::scan::report::Gap;

/// Look at a cluster before Transom is installed: what would be denied and changed, and the values to install with
///
/// Reads nodes, workloads, RuntimeClasses, namespaces, webhook configurations, autoscalers and the marks of other engines, and
/// writes nothing to the cluster. The values are for helm install, after the chart's file for the platform. What must not be
/// read is told, and the rest goes on.
///
/// Exit status: 0 nothing would be denied; 1 something would; 2 bad usage, or something could not be read (the report is
/// whole without it).
#[derive(Args, Debug)]
pub struct PreflightArgs {
    #[command(flatten)]
    connect: ConnectArgs,
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
        let (client, namespace) = args.connect.connect().await?;
        look(&client, &namespace).await.map_err(anyhow::Error::msg)
    })?;
    let only_values = args.values.as_ref().is_some_and(|file| file.as_os_str() == "-");
    if let Some(file) = args.values.as_ref().filter(|_| !only_values) {
        std::fs::write(file, report.values.yaml())
            .with_context(|| format!("cannot write {} (--values)", file.display()))?;
    }
    let mut out = BufWriter::new(anstream::stdout().lock());
    let printed = if only_values {
        out.write_all(report.values.yaml().as_bytes())
    } else if args.format == Format::Json {
        let json = serde_json::to_string_pretty(&report).context("cannot write the report as JSON")?;
        writeln!(out, "{}", plain_json(&json))
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
    let snapshot = snapshots.take(&Arc::new(once.view), None, today);
    let platform = Platform::of(&around);
    let sight = Sight {
        snapshot: &snapshot,
        around: &around,
        platform: &platform,
    };
    let mut workloads = Workloads::new(sight, &excluded);
    let policies = PolicySet::new(Vec::new(), Policy::standalone());
    let mut planner = match newest(&snapshot) {
        Some(release) => planner(client, &snapshot.facts, &policies, release).await,
        None => None,
    };
    let unread = visit_readable_pod_carriers(client, |kind, json| {
        workloads.look(kind, json);
        if let Some(planner) = &mut planner {
            // What is not what its kind says is told of above.
            let _ = planner.look(kind, json);
        }
    })
    .await;
    workloads.finish();
    let plan = planner
        .filter(|_| unread.is_empty())
        .and_then(|planner| planner.plan().ok());
    // Transom's own kinds are unknown before it is installed.
    let of_view = once.unread.iter().filter(|unread| !unread.is_unknown);
    let mut gaps: Vec<Gap> = around.unread.iter().chain(of_view).map(gap).collect();
    gaps.extend(unread.iter().map(|error| Gap {
        what: "workloads".to_owned(),
        why: error.to_string(),
        cure: Some("docs/preflight.md has the rights that it takes".to_owned()),
    }));
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

fn gap(unread: &Unread) -> Gap {
    Gap {
        what: unread.resource.clone(),
        why: unread.why.clone(),
        cure: Some("docs/preflight.md has the rights that it takes".to_owned()),
    }
}
