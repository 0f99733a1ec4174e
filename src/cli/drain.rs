//! `transom drain`: moves the pods of Windows nodes to other nodes without an outage.

mod cluster;
mod follow;
mod lock;
mod preparation;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use kube::Client;

use self::cluster::DrainCluster;
use self::follow::{DrainEnd, DrainJournal, DrainRun, patiently};
use self::lock::{DrainLease, DrainLock, OtherDrain};
use self::preparation::Preparation;
use super::options::{OutputArgs, OutputTarget, selector};
use super::plan::source::{ClusterSourceArgs, Planning};
use super::registry::LookupArgs;
use super::{block_on, exit_status, write_errors};
use crate::cluster::lease::LEASE;
use crate::drain::{
    DRAIN_SCHEMA, DrainAction, DrainEventKind, DrainPod, DrainReport, DrainResult, DrainRules, DrainState,
    PodClass, StopCause, classify, next, outages,
};
use crate::model::objects::label_selector::LabelSelector;
use crate::model::syntax::text::{list, shell_word};
use crate::plan::{PlanOptions, Planner, TargetBuild};
use crate::process::arg_parsers::{count, duration, positive};
use crate::process::today;
use crate::registry::{Detail, Registries};
use crate::render::{drain_end, drain_text, write_json};

/// How long pods that are not Ready may recover: a service that they depend on may be away for a moment.
const RECOVERY: Duration = Duration::from_secs(180);

/// Drain Windows nodes without an outage: evict a replica only while the others are available
///
/// Cordons all nodes, then evicts their pods in the order of transom plan, through the Eviction API, so that PodDisruptionBudgets
/// hold. Stops before it begins if a workload has an outage whatever it does: one replica, a budget of zero, a volume on the node, no
/// controller, or an image that the other nodes do not run. One drain works at a time. Run it again to continue. Pods without a controller,
/// with emptyDir volumes, static pods and those of DaemonSets are treated as by kubectl drain.
///
/// Exit status: 0 everything was moved and is Ready; 1 the drain stopped or was interrupted; 2 for bad usage, or a cluster that
/// cannot be read before the first change.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom drain --pool win22 --to ltsc2025 --ignore-daemonsets --delete-emptydir-data --dry-run
  transom drain --pool win22 --to ltsc2025 --ignore-daemonsets --delete-emptydir-data --wait-for-images
  transom drain win-1 win-2 --ignore-daemonsets --max-unavailable 2
  transom drain --pool win22 --uncordon")]
#[allow(clippy::struct_excessive_bools)] // independent flags
pub struct DrainArgs {
    /// The nodes to drain
    #[arg(value_name = "NODE", required_unless_present = "pool")]
    nodes: Vec<String>,
    /// The pools to drain, by name, release or build. Repeatable
    #[arg(long, value_name = "POOL", value_delimiter = ',')]
    pool: Vec<String>,
    /// The build of the nodes that pods move to: a release as in ltsc2025, or a build as in 10.0.26100; unset: any other Windows
    /// node
    #[arg(long, value_name = "RELEASE", value_parser = TargetBuild::parse)]
    to: Option<TargetBuild>,
    /// Print what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Make the nodes schedulable again instead of draining them
    #[arg(long, conflicts_with_all = ["dry_run", "to", "wait_for_images"])]
    uncordon: bool,
    /// Drain although workloads have an outage
    #[arg(long)]
    allow_outage: bool,
    /// How many replicas of a workload without a PodDisruptionBudget may be unavailable
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    max_unavailable: usize,
    /// How long a replica must be Ready to be available, if its workload has no minReadySeconds
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    min_ready: Duration,
    /// Wait before the first eviction until the other nodes have the images of the pods
    #[arg(long)]
    wait_for_images: bool,
    /// Stop after this time, as in 2h; unset, or 0s: as long as something improves
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// Stop if the scheduler finds no node for a pod for this time
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = positive)]
    pending_timeout: Duration,
    /// Stop if nothing improves for this time: no pod leaves its node, no replica becomes Ready, and no node gets an image
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = positive)]
    progress_timeout: Duration,
    /// Leave pods of DaemonSets on their nodes, as in kubectl drain
    #[arg(long)]
    ignore_daemonsets: bool,
    /// Evict pods with emptyDir volumes, whose data is then deleted, as in kubectl drain
    #[arg(long)]
    delete_emptydir_data: bool,
    /// Evict pods without a controller, as in kubectl drain; they have an outage, so this also needs --allow-outage
    #[arg(long)]
    force: bool,
    /// The seconds that each pod has to end; unset: those of the pod
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<u32>,
    /// Evict only pods with these labels, as in app=web,tier!=test
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    pod_selector: Option<LabelSelector>,
    /// Ask the registries for the sizes of images, and for those with unknown builds, with the credentials of docker; the
    /// registries see which images the cluster runs
    #[arg(long, help_heading = "Registries")]
    registry: bool,
    /// The namespace of the Lease transom-drain, which allows one drain at a time
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    lock_namespace: String,
    /// Take the Lease from another drain, which then stops, and begin 10 s later
    #[arg(long)]
    force_lock: bool,
    #[command(flatten)]
    output: OutputArgs<DrainFormat>,
    #[command(flatten)]
    source: ClusterSourceArgs,
    #[command(flatten)]
    look_ups: LookupArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum DrainFormat {
    /// One line per event, as it happens
    Text,
    /// Schema transom.dev/drain/v1, at the end
    Json,
}

pub fn run(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let targets = args.output.targets()?;
    targets.iter().try_for_each(OutputTarget::check_writable)?;
    let is_live =
        |target: &OutputTarget<DrainFormat>| target.format == DrainFormat::Text && target.file.is_none();
    let mut journal = DrainJournal::new(targets.iter().any(is_live));
    let report = block_on(drain(args, &mut journal))?;
    for target in targets.iter().filter(|target| !is_live(target)) {
        target.write(|out| match target.format {
            DrainFormat::Text => {
                drain_text(&report, out)?;
                let mut events = report.events.iter();
                events.try_for_each(|event| writeln!(out, "{}", DrainJournal::line(event)))?;
                args.end(&report, out)
            }
            DrainFormat::Json => write_json(&report, out),
        })?;
    }
    let is_complete = matches!(report.result, DrainResult::Done | DrainResult::Planned);
    Ok(exit_status(false, !is_complete))
}

async fn drain(args: &DrainArgs, journal: &mut DrainJournal) -> anyhow::Result<DrainReport> {
    let mut planning = args.planning()?;
    let connected = args.source.connect_once().await?;
    let client = &connected.0.client;
    let cluster = DrainCluster::new(client.clone(), args.grace_period);
    journal.show("reading the cluster");
    let finish =
        |planner: &Planner<'_>, _: Option<&Registries>| Preparation::of(planner, &args.nodes, args.to);
    let (preparation, errors) = args
        .source
        .read(&connected, today(), &mut planning, finish)
        .await?;
    write_errors(&errors);
    if args.uncordon {
        return args.uncordoned(&cluster, &preparation, journal).await;
    }
    let rules = args.rules();
    let mut run = DrainRun::new(&cluster, &preparation, &rules, journal);
    let (state, inventory) = patiently(async || run.first_state().await).await?;
    let mut report = args.report(&preparation, &state, &rules);
    report.lacking_images = preparation.lacking(&inventory, &state, &rules);
    let waits = args.wait_for_images && preparation.has_gated(&inventory);
    let missing_target = preparation.missing_target(&inventory).filter(|_| !waits);
    let hindrance = args.hindrance(missing_target, &state, &rules);
    run.journal.text(|out| drain_text(&report, out));
    let rights = async || {
        cluster
            .missing_rights(run.namespaces(), &args.lock_namespace)
            .await
    };
    let missing = patiently(rights).await?;
    if !missing.is_empty() {
        bail!(
            "nothing was changed, because rights are missing: {}",
            missing.join(", ")
        );
    }
    let end = match hindrance {
        Some(reason) => DrainEnd::stopped(reason),
        None => match patiently(async || args.lock(client, run.journal).await).await? {
            Err(at_work) => DrainEnd::stopped(at_work),
            Ok(None) => DrainEnd::of(DrainResult::Planned),
            Ok(Some(lock)) => run.run(lock, args.wait_for_images.then_some(&state)).await?,
        },
    };
    (report.result, report.reason) = (end.result, end.reason);
    report.events = run.journal.take();
    run.journal.text(|out| args.end(&report, out));
    Ok(report)
}

impl DrainArgs {
    fn planning(&self) -> anyhow::Result<Planning> {
        let registries = self
            .look_ups
            .registries_if(self.registry, Detail::Configurations)?;
        let options = PlanOptions {
            from: self.pool.iter().chain(&self.nodes).cloned().collect(),
            ..(self.to).map_or_else(PlanOptions::more_nodes, |to| PlanOptions::upgrade(to.0, &[]))
        };
        Ok(Planning { options, registries })
    }

    fn rules(&self) -> DrainRules {
        DrainRules {
            ignore_daemonsets: self.ignore_daemonsets,
            delete_emptydir_data: self.delete_emptydir_data,
            force: self.force,
            pod_selector: self.pod_selector.clone(),
            allow_outage: self.allow_outage,
            max_unavailable: self.max_unavailable as u64,
            min_ready: self.min_ready,
            timeout: self.timeout.filter(|timeout| !timeout.is_zero()),
            pending_timeout: self.pending_timeout,
            progress_timeout: self.progress_timeout,
            recovery_timeout: RECOVERY.min(self.progress_timeout / 2),
        }
    }

    fn report(&self, preparation: &Preparation, state: &DrainState, rules: &DrainRules) -> DrainReport {
        let pods = preparation.pods_to_move(state, rules);
        let nodes = preparation.names();
        let stays = |pod: &&DrainPod| {
            let is_there = pod.node.as_ref().is_some_and(|node| nodes.contains(node));
            is_there && classify(pod, rules) == PodClass::Ignore
        };
        DrainReport {
            schema: DRAIN_SCHEMA,
            to: self.to,
            nodes: preparation.nodes.clone(),
            ignored: state.pods.iter().filter(stays).count(),
            pods,
            outages: outages(state, rules),
            lacking_images: Vec::new(),
            nodes_to_add: preparation.nodes_to_add,
            notes: Self::notes(state, rules),
            events: Vec::new(),
            result: DrainResult::Planned,
            reason: None,
        }
    }

    /// What to know before it begins.
    fn notes(state: &DrainState, rules: &DrainRules) -> Vec<String> {
        let mut notes = Vec::new();
        let loses = |pod: &&DrainPod| pod.has_empty_dir && !pod.has_ended;
        let losing = state.to_move(rules).filter(loses).map(|pod| pod.name.to_string());
        let losing: Vec<String> = losing.collect();
        if !losing.is_empty() {
            notes.push(format!(
                "the emptyDir volumes of {} are deleted",
                list(&losing, 5)
            ));
        }
        notes.extend(state.low_budgets(rules));
        notes.extend(state.used_up_budgets(rules));
        let never = state.never_evicted(rules);
        if rules.allow_outage && !never.is_empty() {
            notes.push(format!(
                "the drain stops in the end: {}",
                StopCause::NeverEvicted(never)
            ));
        }
        let cordoned = state.nodes.iter().filter(|node| node.is_cordoned);
        let cordoned: Vec<String> = cordoned.map(|node| node.name.clone()).collect();
        if !cordoned.is_empty() {
            notes.push(format!("already cordoned: {}", cordoned.join(", ")));
        }
        notes
    }

    /// Why the drain does not begin.
    fn hindrance(
        &self,
        missing_target: Option<String>,
        state: &DrainState,
        rules: &DrainRules,
    ) -> Option<String> {
        match next(state, rules) {
            DrainAction::Stop(why @ (StopCause::Refused(..) | StopCause::Outage(_))) => Some(why.to_string()),
            _ if self.allow_outage || state.to_move(rules).next().is_none() => None,
            _ => missing_target,
        }
    }

    /// The Lease of this drain, or who is at work; `None` for a dry run, which only looks.
    async fn lock(
        &self,
        client: &Client,
        journal: &mut DrainJournal,
    ) -> anyhow::Result<Result<Option<DrainLock>, String>> {
        let lease = DrainLease::new(client, &self.lock_namespace);
        let mut takes = |other: &OtherDrain| {
            let seconds = LEASE.as_secs();
            let about =
                format!("{other}; --force-lock stops it, and this drain begins {seconds} s after that");
            journal.note(DrainEventKind::Waiting, about);
        };
        let locked = match (self.dry_run, self.force_lock) {
            (false, false) => lease.acquire().await?.map(Some),
            (false, true) => lease.force(takes).await?.map(Some),
            (true, false) => lease.other().await?.map_or(Ok(None), Err),
            (true, true) => {
                lease.other().await?.iter().for_each(&mut takes);
                Ok(None)
            }
        };
        Ok(locked
            .map_err(|other| format!("{other}. Wait until it ends, or add --force-lock, which stops it")))
    }

    async fn uncordoned(
        &self,
        cluster: &DrainCluster,
        preparation: &Preparation,
        journal: &mut DrainJournal,
    ) -> anyhow::Result<DrainReport> {
        for node in &preparation.nodes {
            let cannot = || format!("cannot uncordon {}", node.name);
            cluster
                .set_cordoned(&node.name, false)
                .await
                .with_context(cannot)?;
            journal.note(DrainEventKind::Uncordoned, node.name.clone());
        }
        let mut report = self.report(preparation, &DrainState::default(), &self.rules());
        report.result = DrainResult::Done;
        report.events = journal.take();
        Ok(report)
    }

    /// Writes the end, with the commands that continue and go back.
    fn end(&self, report: &DrainReport, out: &mut dyn Write) -> io::Result<()> {
        let words: Vec<String> = std::env::args().skip(1).map(|word| shell_word(&word)).collect();
        let again = format!("transom {}", words.join(" "));
        drain_end(report, &again, self.back(report).as_deref(), out)
    }

    /// The command that uncordons what the drain has cordoned; `None` if that is nothing.
    fn back(&self, report: &DrainReport) -> Option<String> {
        let events = report.events.iter();
        let cordoned = events.filter(|event| event.event == DrainEventKind::Cordoned);
        let cordoned: BTreeSet<&str> = cordoned.map(|event| event.about.as_str()).collect();
        if cordoned.is_empty() {
            return None;
        }
        let connection = self.source.connection();
        let words = ["transom", "drain", "--uncordon"].into_iter();
        let words = words.chain(connection.iter().map(String::as_str)).chain(cordoned);
        Some(words.map(shell_word).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use jiff::Timestamp;

    use super::*;
    use crate::drain::DrainEvent;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: DrainArgs,
    }

    #[test]
    fn going_back_uncordons_in_the_same_cluster_what_the_drain_has_cordoned() {
        let words = "drain --pool old --kubeconfig /k/a.yaml --context prod --as me --timeout 2h".split(' ');
        let args = Command::try_parse_from(words).unwrap().args;
        let preparation = Preparation::default();
        let mut report = args.report(&preparation, &DrainState::default(), &args.rules());
        assert_eq!(args.back(&report), None);
        for (event, about) in [
            (DrainEventKind::Cordoned, "old-2"),
            (DrainEventKind::Cordoned, "old 1"),
            (DrainEventKind::Evicted, "shop/web from old-2"),
            (DrainEventKind::Cordoned, "old-2"),
        ] {
            report.events.push(DrainEvent {
                time: Timestamp::UNIX_EPOCH,
                event,
                about: about.to_owned(),
            });
        }
        assert_eq!(
            args.back(&report).unwrap(),
            "transom drain --uncordon --kubeconfig /k/a.yaml --context prod --as me 'old 1' old-2"
        );
    }
}
