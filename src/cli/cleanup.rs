//! `transom cleanup`: takes Transom out of a cluster, and says what it did.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;

use super::block_on;
use crate::cluster::client::{ConnectArgs, NamesArgs};
use crate::controller::cleanup::{self, HOOKS, Options, Report};
use crate::controller::node_policies::nodes::plan::Keep;
use crate::controller::node_policies::take_back;

/// Take Transom out of a cluster: webhook configurations first, then everything it wrote
///
/// Deletes both webhook configurations, stops the controllers, takes back what they put on nodes (the label
/// node.kubernetes.io/windows-build stays: the kubelet would not write it again), deletes the RuntimeClasses they made
/// that nothing names, the Secret, ConfigMap and Lease in Transom's namespace, and what failed Jobs of the chart left.
/// Where another installation is registered in the cluster, nodes, RuntimeClasses and definitions stay for it. Runs in a
/// pod or with a kubeconfig, whether Transom is alive or not, any number of times. Ends with status 1 where something was
/// refused.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools)] // flags that have nothing to do with one another
pub struct CleanupArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    names: NamesArgs,
    /// Keep the label node-restriction.kubernetes.io/windows-build on nodes
    #[arg(long)]
    keep_node_labels: bool,
    /// Keep the taints that Transom set on nodes
    #[arg(long)]
    keep_taints: bool,
    /// Keep the RuntimeClasses that Transom made
    #[arg(long)]
    keep_runtime_classes: bool,
    /// Keep the webhook configurations
    #[arg(long)]
    keep_webhooks: bool,
    /// Delete the CustomResourceDefinitions too, and with them every WindowsPodPolicy and WindowsNodePolicy
    #[arg(long)]
    crds: bool,
    /// The hook of the chart that this runs as: its own Job, account and rights stay: Helm deletes them
    #[arg(long, value_name = "HOOK", value_parser = HOOKS)]
    hook: Option<String>,
}

pub fn run(args: CleanupArgs) -> anyhow::Result<ExitCode> {
    let (report, options) = block_on(async {
        let (client, namespace) = args.connect.connect().await?;
        let options = Options {
            namespace,
            name: args.names.name,
            lease: args.names.lease,
            certificate_secret: args.names.certificate_secret,
            keep_webhooks: args.keep_webhooks,
            take_back: take_back::Options {
                on_nodes: Keep {
                    labels: args.keep_node_labels,
                    taints: args.keep_taints,
                },
                keep_runtime_classes: args.keep_runtime_classes,
            },
            crds: args.crds,
            hook: args.hook,
        };
        let say = |text| anstream::eprintln!("{text}");
        Ok((cleanup::run(&client, &options, &say).await, options))
    })?;
    print(&report, &options)?;
    Ok(if report.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn print(report: &Report, options: &Options) -> std::io::Result<()> {
    let mut out = anstream::stdout().lock();
    for line in &report.done {
        writeln!(out, "{line}")?;
    }
    for line in &report.kept {
        writeln!(out, "kept: {line}")?;
    }
    for line in &report.left {
        writeln!(out, "left: {line}")?;
    }
    for line in &report.failures {
        writeln!(out, "FAILED: {line}")?;
    }
    let stays = [
        (options.keep_webhooks, "the webhook configurations"),
        (
            options.take_back.on_nodes.labels,
            "the label node-restriction.kubernetes.io/windows-build of nodes",
        ),
        (options.take_back.on_nodes.taints, "the taints of nodes"),
        (options.take_back.keep_runtime_classes, "the RuntimeClasses"),
    ];
    for (_, what) in stays.iter().filter(|(stays, _)| *stays) {
        writeln!(out, "kept, and yours from now on: {what}")?;
    }
    if !options.crds {
        writeln!(
            out,
            "the policies stay, and their status is no longer true; --crds deletes them with their definitions"
        )?;
    }
    let keeps = stays.iter().any(|(stays, _)| *stays);
    match (report.failures.len(), report.kept.len()) {
        (0, 0) if keeps => writeln!(out, "done"),
        (0, 0) if !report.left.is_empty() => {
            writeln!(out, "done, but for what is left above: look whose it is")
        }
        (0, 0) if report.done.is_empty() => writeln!(out, "there was nothing of Transom's in the cluster"),
        (0, 0) => writeln!(out, "nothing else of Transom's is left in the cluster"),
        (0, kept) => writeln!(
            out,
            "done; {kept} still in use: run transom cleanup again when they are not"
        ),
        (failed, _) => writeln!(
            out,
            "{failed} could not be done: run transom cleanup again when that is mended"
        ),
    }
}
