//! `transom uninstall`: removes Transom from a cluster, after showing what will be removed.

use std::io::{self, BufRead as _, IsTerminal as _, Write};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::cluster::ClusterConfigArgs;
use super::{block_on, is_quiet, warn_line};
use crate::cluster::client::{ConnectArgs, Connected, NamesArgs};
use crate::cluster::offline::{PATIENCE, version};
use crate::cluster::stated_cluster::of_installation_named;
use crate::controller::cleanup::{self, CleanupOptions, CleanupReport, HOOKS};
use crate::controller::node_policies::nodes::plan::KeepOptions;
use crate::controller::node_policies::revert;
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::syntax::text::one_line;

/// Uninstall Transom from a cluster: webhook configurations first, then everything it created
///
/// Shows the cluster and what will be removed, and asks on a terminal. Deletes both webhook configurations, stops the
/// controllers, reverts what they changed on nodes (the label node.kubernetes.io/windows-build stays: the kubelet would
/// not write it again), removes the startup taint, and deletes the RuntimeClasses they created that nothing names, the
/// reports, the Secret, Lease and pods in Transom's namespace, and what failed Jobs of the chart left. It lists the
/// templates and pods that name a label or a RuntimeClass, and pools that still set the startup taint. If another
/// installation is registered in the cluster, nodes, RuntimeClasses and definitions stay for it. Works whether Transom
/// runs or not, any number of times.
///
/// Exit status: 0 everything was removed; 1 something was refused, or the answer was no; 2 bad usage, or no cluster.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom uninstall --dry-run
  transom uninstall --context production
  transom uninstall --yes --crds")]
#[allow(clippy::struct_excessive_bools)] // independent flags
pub struct UninstallArgs {
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Show what would be removed, and remove nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Keep the label transom.dev.node-restriction.kubernetes.io/windows-build on nodes
    #[arg(long)]
    keep_node_labels: bool,
    /// Keep the taints that Transom set on nodes
    #[arg(long)]
    keep_taints: bool,
    /// Keep the RuntimeClasses that Transom created
    #[arg(long)]
    keep_runtime_classes: bool,
    /// Keep the webhook configurations
    #[arg(long)]
    keep_webhooks: bool,
    /// Delete the CustomResourceDefinitions too, and with them every policy and node pool
    #[arg(long)]
    crds: bool,
    /// The namespace in which `helm test` creates a pod as a dry run: what a failed test left there is deleted [default:
    /// default, and none with --hook]
    #[arg(long, value_name = "NAMESPACE")]
    test_namespace: Option<String>,
    /// The hook of the chart that this runs as: Helm deletes its Job, account and permissions itself
    #[arg(long, value_name = "HOOK", value_parser = HOOKS)]
    hook: Option<String>,
    #[command(flatten)]
    cluster_config: ClusterConfigArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    names: NamesArgs,
}

pub fn run(args: UninstallArgs) -> anyhow::Result<ExitCode> {
    block_on(uninstall(args))
}

async fn uninstall(args: UninstallArgs) -> anyhow::Result<ExitCode> {
    let (connected, namespace) = args.connect.connect().await?;
    let (dry_run, yes) = (args.dry_run, args.yes);
    let pod_templates = pod_templates(&args, &connected).await;
    let options = args.options(namespace, pod_templates);
    if dry_run {
        let preview = preview(&connected, &options).await?;
        let mut out = anstream::stdout().lock();
        show(&connected, &options, Some(&preview), &mut out)?;
        writeln!(out, "dry run: nothing was removed")?;
        return Ok(success_if(preview.failures.is_empty()));
    }
    if yes {
        show(&connected, &options, None, &mut anstream::stderr().lock())?;
    } else if !confirmed(&connected, &options).await? {
        warn_line(format_args!("nothing was removed"));
        return Ok(ExitCode::FAILURE);
    }
    let report_progress = |text| {
        if !is_quiet() {
            warn_line(format_args!("{text}"));
        }
    };
    let report = cleanup::run(&connected.client, &options, false, &report_progress).await;
    // The hook of a release runs before Helm deletes the rest.
    let of_the_chart = match &options.hook {
        Some(_) => Vec::new(),
        None => cleanup::of_the_chart(&connected.client, &options).await,
    };
    print(&report, &options, &of_the_chart)?;
    Ok(success_if(report.failures.is_empty()))
}

/// The custom resources that the installation evaluates too: RuntimeClasses that they name stay. Without the facts about the
/// cluster, these kinds are not looked at.
async fn pod_templates(args: &UninstallArgs, connected: &Connected) -> Vec<ConfiguredKind> {
    let stated = match args.cluster_config.load() {
        Ok(Some(stated)) => Ok(Some(stated)),
        Ok(None) => {
            let name = &args.names.installation.name;
            let read = of_installation_named(&connected.client, name, PATIENCE).await;
            read.map_err(|part| format!("cannot read {}: {}", part.resource, part.why))
        }
        Err(error) => Err(format!("{error:#}")),
    };
    match stated {
        Ok(stated) => stated.map_or_else(Vec::new, |stated| stated.config.pod_templates.clone()),
        Err(error) => {
            warn_line(format_args!(
                "note: {error}; objects of the kinds that it adds are not searched for the names of RuntimeClasses"
            ));
            Vec::new()
        }
    }
}

fn success_if(is_complete: bool) -> ExitCode {
    if is_complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl UninstallArgs {
    fn options(self, namespace: String, pod_templates: Vec<ConfiguredKind>) -> CleanupOptions {
        CleanupOptions {
            namespace,
            name: self.names.installation.name,
            lease: self.names.lease,
            certificate_secret: self.names.certificate_secret,
            keep_webhooks: self.keep_webhooks,
            revert: revert::RevertOptions {
                on_nodes: KeepOptions {
                    labels: self.keep_node_labels,
                    taints: self.keep_taints,
                },
                keep_runtime_classes: self.keep_runtime_classes,
            },
            crds: self.crds,
            pod_templates,
            // A chart without a test grants its Job no rights for this.
            test_namespace: (self.test_namespace)
                .or_else(|| self.hook.is_none().then(|| "default".to_owned())),
            hook: self.hook,
        }
    }
}

/// What would be removed.
async fn preview(connected: &Connected, options: &CleanupOptions) -> anyhow::Result<CleanupReport> {
    // Otherwise each request would fail for this reason.
    version(connected).await?;
    Ok(cleanup::run(&connected.client, options, true, &|_| ()).await)
}

/// Shows what will be removed, and asks whether to remove it.
async fn confirmed(connected: &Connected, options: &CleanupOptions) -> anyhow::Result<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        bail!(
            "this is not a terminal, so Transom cannot ask for confirmation: add --yes to uninstall from {connected}, or --dry-run to see \
             what would be removed"
        );
    }
    let preview = preview(connected, options).await?;
    show(connected, options, Some(&preview), &mut anstream::stderr().lock())?;
    Ok(agrees()?)
}

/// Shows the cluster, and what will be removed.
fn show(
    connected: &Connected,
    options: &CleanupOptions,
    preview: Option<&CleanupReport>,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "cluster: {}", one_line(&connected.to_string()))?;
    writeln!(
        out,
        "installation: {} in the namespace {}",
        one_line(&options.name),
        one_line(&options.namespace)
    )?;
    let Some(preview) = preview else {
        return Ok(());
    };
    match (preview.done.is_empty(), preview.failures.is_empty()) {
        (true, true) => writeln!(out, "there is nothing to remove")?,
        (true, false) => writeln!(out, "nothing to remove was found in what could be read")?,
        (false, _) => writeln!(out, "will be removed:")?,
    }
    let mut stays = kept_by_options(options);
    if preview.keeps_definitions {
        stays.push("the policies and their CustomResourceDefinitions (--crds removes them)");
    }
    let stays: Vec<String> = stays.into_iter().map(str::to_owned).collect();
    let lines = [
        ("  ", &preview.done),
        ("stays: ", &stays),
        ("stays: ", &preview.kept),
        ("left: ", &preview.left),
        ("cannot be seen: ", &preview.failures),
    ];
    print_lines(&lines, out)
}

fn print_lines(lines: &[(&str, &Vec<String>)], out: &mut dyn Write) -> io::Result<()> {
    for (mark, lines) in lines {
        for line in *lines {
            writeln!(out, "{mark}{}", one_line(line))?;
        }
    }
    Ok(())
}

/// What stays because of a flag.
fn kept_by_options(options: &CleanupOptions) -> Vec<&'static str> {
    let stays = [
        (options.keep_webhooks, "the webhook configurations"),
        (
            options.revert.on_nodes.labels,
            "the label transom.dev.node-restriction.kubernetes.io/windows-build of nodes",
        ),
        (options.revert.on_nodes.taints, "the taints of nodes"),
        (options.revert.keep_runtime_classes, "the RuntimeClasses"),
    ];
    let stays = stays.into_iter().filter(|(stays, _)| *stays);
    stays.map(|(_, what)| what).collect()
}

fn agrees() -> io::Result<bool> {
    write!(anstream::stderr(), "Remove all of this? Type yes to continue: ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "yes" | "y"))
}

fn print(
    report: &CleanupReport,
    options: &CleanupOptions,
    of_the_chart: &Vec<String>,
) -> std::io::Result<()> {
    let mut out = anstream::stdout().lock();
    let lines = [
        ("", &report.done),
        ("kept: ", &report.kept),
        ("left: ", &report.left),
        ("FAILED: ", &report.failures),
        ("", of_the_chart),
    ];
    print_lines(&lines, &mut out)?;
    let stays = kept_by_options(options);
    for what in &stays {
        writeln!(out, "kept, and no longer managed by Transom: {what}")?;
    }
    if report.keeps_definitions {
        writeln!(
            out,
            "the policies remain, and their status is no longer updated; --crds deletes them with their definitions"
        )?;
    }
    let keeps = !stays.is_empty();
    match (report.failures.len(), report.kept.len()) {
        (0, 0) if keeps => writeln!(out, "done"),
        (0, 0) if !report.left.is_empty() => {
            writeln!(
                out,
                "done, except for what is listed above as left: find out who owns it"
            )
        }
        (0, 0) if !of_the_chart.is_empty() => {
            writeln!(
                out,
                "nothing else of Transom's is left in the cluster than these objects"
            )
        }
        (0, 0) if report.done.is_empty() => writeln!(out, "the cluster contained nothing of Transom's"),
        (0, 0) => writeln!(out, "nothing else of Transom's is left in the cluster"),
        (0, kept) => writeln!(
            out,
            "done; {kept} still in use: run transom uninstall again when nothing uses them"
        ),
        (failed, _) => writeln!(
            out,
            "{failed} could not be done: run transom uninstall again when that is fixed"
        ),
    }
}
