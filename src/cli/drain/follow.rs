//! Makes the steps of a drain, one after the other, and reads the cluster again between them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use tokio::sync::watch;

use super::cluster::DrainCluster;
use super::lock::DrainLock;
use super::preparation::Preparation;
use crate::cli::print_line;
use crate::cli::progress::Progress;
use crate::cluster::errors::ApiError;
use crate::drain::{
    DrainAction, DrainEvent, DrainEventKind, DrainHistory, DrainInventory, DrainResult, DrainRules,
    DrainState, EvictionAnswer, ImageWait, PodName, ReadTime, foreseen_preemption, next,
};
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::text::{count, one_line};
use crate::serve::shutdown;

/// The pause between two rounds of lists. A round that takes longer is followed by a longer pause.
const PAUSE: Duration = Duration::from_secs(2);
/// How often something is tried before the drain begins.
const ATTEMPTS: usize = 3;
/// How many namespaces are read at a time.
const NAMESPACES_AT_A_TIME: usize = 4;
/// How long a request that is under way may take after a signal.
const LAST_REQUEST: Duration = Duration::from_millis(1200);

/// Whether a signal ends the drain.
type Interrupted = watch::Receiver<bool>;

/// The end of a drain.
pub struct DrainEnd {
    pub result: DrainResult,
    /// Why before everything was moved.
    pub reason: Option<String>,
}

impl DrainEnd {
    /// An end that needs no reason.
    pub fn of(result: DrainResult) -> Self {
        DrainEnd { result, reason: None }
    }

    /// A drain that stopped, and why.
    pub fn stopped(reason: String) -> Self {
        DrainEnd {
            result: DrainResult::Stopped,
            reason: Some(reason),
        }
    }
}

/// What happened: kept for the report, and printed as it happens.
pub struct DrainJournal {
    events: Vec<DrainEvent>,
    is_live: bool,
    progress: Progress,
}

impl DrainJournal {
    /// `is_live`: whether lines are printed to standard output.
    pub fn new(is_live: bool) -> Self {
        DrainJournal {
            events: Vec::new(),
            is_live,
            progress: Progress::new(),
        }
    }

    /// An event as a line.
    pub fn line(event: &DrainEvent) -> String {
        format!(
            "{} {} {}",
            event.time.strftime("%H:%M:%SZ"),
            event.event,
            one_line(&event.about)
        )
    }

    /// Records an event. What waits or fails is recorded once until something changes.
    pub fn note(&mut self, event: DrainEventKind, about: String) {
        let mut since = self.events.iter().rev().take_while(|last| !last.is_change());
        if since.any(|last| last.event == event && last.about == about) {
            return;
        }
        let event = DrainEvent {
            time: Timestamp::now(),
            event,
            about,
        };
        if self.is_live {
            self.progress.suspend(|| drop(print_line(Self::line(&event))));
        }
        self.events.push(event);
    }

    /// Shows on a terminal what happens.
    pub fn show(&self, text: &str) {
        self.progress.show(text);
    }

    /// Prints a text, without the progress.
    pub fn text(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.is_live {
            // A closed standard output does not end a drain.
            self.progress
                .suspend(|| drop(write(&mut anstream::stdout().lock())));
        }
    }

    /// Whether the drain has changed something.
    pub fn has_changes(&self) -> bool {
        self.events.iter().any(DrainEvent::is_change)
    }

    /// All events, at the end.
    pub fn take(&mut self) -> Vec<DrainEvent> {
        self.progress.end();
        std::mem::take(&mut self.events)
    }
}

/// A drain with everything that it reads and writes.
pub struct DrainRun<'d> {
    cluster: &'d DrainCluster,
    preparation: &'d Preparation,
    nodes: Vec<String>,
    rules: &'d DrainRules,
    history: DrainHistory,
    started: Instant,
    pub journal: &'d mut DrainJournal,
    /// What was listed last.
    inventory: DrainInventory,
    /// The namespaces with pods on the nodes, before the drain and whenever it seems done.
    namespaces: BTreeSet<String>,
    /// The workloads that the scheduler would preempt.
    preempted: BTreeMap<WorkloadName, String>,
    /// The Lease, once the drain may act.
    lock: Option<DrainLock>,
}

impl<'d> DrainRun<'d> {
    /// Of the nodes of a preparation.
    pub fn new(
        cluster: &'d DrainCluster,
        preparation: &'d Preparation,
        rules: &'d DrainRules,
        journal: &'d mut DrainJournal,
    ) -> Self {
        DrainRun {
            cluster,
            preparation,
            nodes: preparation.names(),
            rules,
            history: DrainHistory::default(),
            started: Instant::now(),
            journal,
            inventory: DrainInventory::default(),
            namespaces: BTreeSet::new(),
            preempted: BTreeMap::new(),
            lock: None,
        }
    }

    /// The state before the drain, from all namespaces, and what was listed.
    ///
    /// # Errors
    /// If the cluster cannot be read.
    pub async fn first_state(&mut self) -> anyhow::Result<(DrainState, DrainInventory)> {
        let started = self.started.elapsed();
        let mut inventory = self.cluster.read().await?;
        let namespaces: Vec<String> = inventory.namespaces().cloned().collect();
        for namespace in namespaces {
            let owners = inventory.scaled_owners(&namespace, &self.nodes, &BTreeSet::new());
            self.cluster.read_scales(&mut inventory, owners).await?;
        }
        let took = self.started.elapsed().saturating_sub(started);
        inventory.read_in(ReadTime { started, took });
        let now = self.started.elapsed();
        let mut state = self.history.state(&inventory, &self.nodes, self.rules, now);
        let namespaces = state.to_move(self.rules).map(|pod| pod.name.namespace.clone());
        self.namespaces = namespaces.collect();
        self.preempted = foreseen_preemption(&inventory, &state, self.rules);
        self.inventory = inventory.clone();
        self.inventory.retain(&self.namespaces);
        self.complete(&mut state);
        Ok((state, inventory))
    }

    /// The namespaces with pods on the nodes.
    pub fn namespaces(&self) -> &BTreeSet<String> {
        &self.namespaces
    }

    fn state(&mut self) -> DrainState {
        let now = self.started.elapsed();
        let mut state = self.history.state(&self.inventory, &self.nodes, self.rules, now);
        self.complete(&mut state);
        state
    }

    /// Adds what is known from before the drain, and forgets nodes that are others now.
    fn complete(&mut self, state: &mut DrainState) {
        let is_there = |name: &String| state.nodes.iter().any(|node| node.name == *name);
        for name in self.nodes.extract_if(.., |name| !is_there(name)) {
            self.journal.note(DrainEventKind::Replaced, name);
        }
        state.cannot_move.clone_from(&self.preparation.cannot_move);
        state.preempted.clone_from(&self.preempted);
    }

    /// Reads the nodes, and the namespaces of the drain. `finds`: also in which namespaces pods are on the nodes.
    async fn read(&mut self, finds: bool) -> anyhow::Result<()> {
        if finds {
            self.namespaces = self.cluster.namespaces_on(&self.nodes).await?;
        }
        let moved = self.history.moved().map(|owner| owner.namespace.clone());
        let namespaces: BTreeSet<String> = self.namespaces.iter().cloned().chain(moved).collect();
        self.inventory.retain(&namespaces);
        let reads = namespaces.iter().map(|namespace| self.listed(namespace));
        let reads = futures::stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(NAMESPACES_AT_A_TIME);
        let listed: Vec<_> = reads.try_collect().await?;
        for (namespace, listed, read) in listed {
            self.inventory.replace(&namespace, listed, read);
        }
        self.read_nodes().await
    }

    /// Reads the nodes, after what runs on them: what is not known to exist does not serve.
    async fn read_nodes(&mut self) -> anyhow::Result<()> {
        self.inventory.nodes = self.cluster.nodes().await?.nodes;
        Ok(())
    }

    /// What decides about a namespace, and when it was listed.
    async fn listed(&self, namespace: &str) -> anyhow::Result<(String, DrainInventory, ReadTime)> {
        let started = self.started.elapsed();
        let known = self.inventory.for_namespace();
        let mut listed = self.cluster.read_namespace(known, namespace).await?;
        let moved = self.history.moved().cloned().collect();
        let owners = listed.scaled_owners(namespace, &self.nodes, &moved);
        self.cluster.read_scales(&mut listed, owners).await?;
        let took = self.started.elapsed().saturating_sub(started);
        Ok((namespace.to_owned(), listed, ReadTime { started, took }))
    }

    /// Drains with this Lease, and gives it back. `waits_for`: the state whose pods need their images on the other nodes first.
    ///
    /// # Errors
    /// If the cluster cannot be read, or a right is missing, before something was changed.
    pub async fn run(&mut self, lock: DrainLock, waits_for: Option<&DrainState>) -> anyhow::Result<DrainEnd> {
        self.lock = Some(lock);
        let (interrupt, interrupted) = watch::channel(false);
        let signal = shutdown()?;
        let end = {
            let work = std::pin::pin!(self.work(waits_for, interrupted));
            until_interrupted(work, signal, shutdown, &interrupt).await
        };
        if let Some(lock) = self.lock.take() {
            lock.release().await;
        }
        match end {
            // What was changed is reported in any case.
            Err(error) if self.journal.has_changes() => Ok(DrainEnd::stopped(format!("{error:#}"))),
            end => end,
        }
    }

    async fn work(
        &mut self,
        waits_for: Option<&DrainState>,
        mut interrupted: Interrupted,
    ) -> anyhow::Result<DrainEnd> {
        if let Some(state) = waits_for
            && let Some(end) = self.wait_for_images(state, &mut interrupted).await?
        {
            return Ok(end);
        }
        self.follow(&mut interrupted).await
    }

    /// Makes steps until the drain ends.
    async fn follow(&mut self, interrupted: &mut Interrupted) -> anyhow::Result<DrainEnd> {
        let mut finds = false;
        let mut answered = Instant::now();
        loop {
            let begin = Instant::now();
            match self.round(finds, interrupted).await {
                // Pods may have come to the nodes in other namespaces.
                Ok(Some(end)) if end.result == DrainResult::Done && !finds => {
                    finds = true;
                    continue;
                }
                Ok(Some(end)) => return Ok(end),
                Ok(None) => (finds, answered) = (false, Instant::now()),
                // The evictions so far are not lost, and the next request may succeed.
                Err(error) if may_pass(&error) && answered.elapsed() < self.rules.progress_timeout => {
                    self.journal.note(DrainEventKind::Waiting, format!("{error:#}"));
                }
                Err(error) => return Err(error),
            }
            let pause = PAUSE.max(begin.elapsed());
            if is_over_after(interrupted, pause).await {
                return Ok(DrainEnd::of(DrainResult::Interrupted));
            }
        }
    }

    /// Reads the cluster, and makes the steps that its state allows; returns the end, if it is reached.
    async fn round(&mut self, finds: bool, interrupted: &Interrupted) -> anyhow::Result<Option<DrainEnd>> {
        self.read(finds).await?;
        let mut state = self.state();
        loop {
            if *interrupted.borrow() {
                return Ok(Some(DrainEnd::of(DrainResult::Interrupted)));
            }
            state.elapsed = self.started.elapsed();
            let step = next(&state, self.rules);
            let acts = !matches!(step, DrainAction::Stop(_) | DrainAction::Done);
            if let Some(lock) = self.lock.as_ref().filter(|lock| acts && !lock.holds()) {
                return match lock.taken().await {
                    Some(why) => Ok(Some(DrainEnd::stopped(why))),
                    // A request that may succeed later, like any other: not for ever.
                    None => Err(ApiError::Unavailable(lock.waits()).into()),
                };
            }
            match step {
                DrainAction::Cordon(node) => self.cordon(&mut state, node).await?,
                // After the nodes were cordoned nothing counts that was read before.
                DrainAction::Read(_) if state.read.is_empty() => {
                    self.read(false).await?;
                    state = self.state();
                }
                DrainAction::Read(namespace) => {
                    let (namespace, listed, read) = self.listed(&namespace).await?;
                    self.inventory.replace(&namespace, listed, read);
                    self.read_nodes().await?;
                    state = self.state();
                }
                DrainAction::Evict(name) => self.evict(&mut state, &name).await?,
                DrainAction::Wait(wait) => {
                    let left = state.to_move(self.rules).count();
                    let wait = wait.to_string();
                    self.journal.show(&format!("{} left; {wait}", count(left, "pod")));
                    self.journal.note(DrainEventKind::Waiting, wait);
                    return Ok(None);
                }
                DrainAction::Stop(why) => return Ok(Some(DrainEnd::stopped(why.to_string()))),
                DrainAction::Done => return Ok(Some(DrainEnd::of(DrainResult::Done))),
            }
        }
    }

    async fn cordon(&mut self, state: &mut DrainState, node: String) -> anyhow::Result<()> {
        match self.cluster.set_cordoned(&node, true).await {
            Ok(()) => {
                state.cordoned(&node);
                if let Some(listed) = self.inventory.nodes.get_mut(&node) {
                    listed.is_cordoned = true;
                }
                self.journal.note(DrainEventKind::Cordoned, node);
            }
            // The next list shows whether the node is there.
            Err(why) if is_passing(&why) || why == ApiError::NotFound => {
                state.not_cordoned(&node, &why.to_string());
            }
            Err(why) => return Err(why).with_context(|| format!("cannot cordon {node}")),
        }
        Ok(())
    }

    async fn evict(&mut self, state: &mut DrainState, name: &PodName) -> anyhow::Result<()> {
        let Some(pod) = state.pods.iter().find(|pod| pod.name == *name) else {
            return Ok(());
        };
        let from = pod.node.clone().unwrap_or_default();
        let answer = self.cluster.evict(pod).await?;
        state.elapsed = self.started.elapsed();
        self.history.answered(state, name, &answer);
        match answer {
            EvictionAnswer::Accepted => {
                self.journal
                    .note(DrainEventKind::Evicted, format!("{name} from {from}"));
            }
            EvictionAnswer::Gone => {}
            EvictionAnswer::NotNow(why) | EvictionAnswer::Failed(why) | EvictionAnswer::Unknown(why) => {
                self.journal
                    .note(DrainEventKind::Failed, format!("{name}: {why}"));
            }
        }
        Ok(())
    }

    /// Waits until no image is missing, and a node takes pods; returns the end, if the drain ends before that.
    async fn wait_for_images(
        &mut self,
        state: &DrainState,
        interrupted: &mut Interrupted,
    ) -> anyhow::Result<Option<DrainEnd>> {
        let mut wait = ImageWait::default();
        loop {
            match self.cluster.nodes().await {
                Ok(nodes) => {
                    let lacking = self.preparation.lacking(&nodes, state, self.rules);
                    let closed = self.preparation.missing_target(&nodes);
                    let closed = closed.filter(|_| !self.rules.allow_outage);
                    let now = self.started.elapsed();
                    let Some(what) = wait.next(&lacking, closed, now) else {
                        self.started = Instant::now();
                        self.history = std::mem::take(&mut self.history).restarted();
                        return Ok(None);
                    };
                    self.journal.show(&what);
                    self.journal.note(DrainEventKind::Waiting, what);
                }
                Err(error) if may_pass(&error) => {
                    self.journal.note(DrainEventKind::Waiting, format!("{error:#}"));
                }
                Err(error) => return Err(error),
            }
            if let Some(why) = wait.end(self.rules, self.started.elapsed()) {
                return Ok(Some(DrainEnd::stopped(why)));
            }
            if is_over_after(interrupted, PAUSE).await {
                return Ok(Some(DrainEnd::of(DrainResult::Interrupted)));
            }
        }
    }
}

/// Works until the end, or until a signal. What is under way then may finish, but not for long; another signal ends it.
async fn until_interrupted<Again: Future<Output = ()>>(
    mut work: Pin<&mut impl Future<Output = anyhow::Result<DrainEnd>>>,
    signal: impl Future<Output = ()>,
    next_signal: impl FnOnce() -> anyhow::Result<Again>,
    interrupt: &watch::Sender<bool>,
) -> anyhow::Result<DrainEnd> {
    tokio::select! {
        end = work.as_mut() => return end,
        () = signal => drop(interrupt.send(true)),
    }
    let again = next_signal()?;
    tokio::select! {
        end = work => end,
        () = again => Ok(DrainEnd::of(DrainResult::Interrupted)),
        () = tokio::time::sleep(LAST_REQUEST) => Ok(DrainEnd::of(DrainResult::Interrupted)),
    }
}

/// Pauses; returns whether a signal ends the drain.
async fn is_over_after(interrupted: &mut Interrupted, pause: Duration) -> bool {
    tokio::select! {
        _ = interrupted.wait_for(|interrupted| *interrupted) => true,
        () = tokio::time::sleep(pause) => false,
    }
}

/// Does something before the drain changes anything, and again if it fails for a moment.
///
/// # Errors
/// If it still fails.
pub async fn patiently<T>(mut ask: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    for _ in 1..ATTEMPTS {
        match ask().await {
            Err(error) if may_pass(&error) => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
    }
    ask().await
}

/// Whether the next request may succeed, although nothing is changed.
fn is_passing(error: &ApiError) -> bool {
    error.is_transient()
        || matches!(
            error,
            ApiError::Conflict | ApiError::Unauthorized(_) | ApiError::Expired(_)
        )
}

fn may_pass(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ApiError>().is_some_and(is_passing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_signal_ends_what_is_under_way_after_a_moment_and_a_second_one_ends_it_immediately() {
        let ended_after = async |again: Duration| {
            let (interrupt, mut interrupted) = watch::channel(false);
            let begin = tokio::time::Instant::now();
            let work = std::pin::pin!(std::future::pending());
            let next_signal = || Ok(tokio::time::sleep(again));
            let end = until_interrupted(work, async {}, next_signal, &interrupt).await;
            assert_eq!(end.unwrap().result, DrainResult::Interrupted);
            assert!(*interrupted.borrow_and_update());
            begin.elapsed()
        };
        assert_eq!(ended_after(Duration::MAX / 4).await, LAST_REQUEST);
        assert_eq!(
            ended_after(Duration::from_millis(1)).await,
            Duration::from_millis(1)
        );
    }

    #[test]
    fn what_waits_or_fails_is_recorded_once_until_something_changes() {
        let mut journal = DrainJournal::new(false);
        let note = |journal: &mut DrainJournal, event, about: &str| journal.note(event, about.to_owned());
        for _ in 0..3 {
            note(&mut journal, DrainEventKind::Failed, "shop/a: denied");
            note(&mut journal, DrainEventKind::Waiting, "shop/a");
        }
        assert!(!journal.has_changes());
        note(&mut journal, DrainEventKind::Evicted, "shop/b");
        note(&mut journal, DrainEventKind::Waiting, "shop/a");
        assert!(journal.has_changes());
        assert_eq!(journal.take().len(), 4);
    }
}
