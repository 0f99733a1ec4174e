//! Makes the steps of a drain, one after the other, and reads the cluster again between them.

use std::io::{self, Write};
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::FutureExt as _;
use jiff::Timestamp;

use super::cluster::DrainCluster;
use super::preparation::Preparation;
use crate::cli::progress::Progress;
use crate::cluster::errors::ApiError;
use crate::drain::{
    DrainAction, DrainEvent, DrainEventKind, DrainHistory, DrainInventory, DrainResult, DrainRules,
    DrainState, EvictionAnswer, ImageWait, PodName, next,
};
use crate::model::text::{count, one_line};
use crate::serve::shutdown;

/// The pause between two rounds of lists. A round that takes longer is followed by a longer pause.
const PAUSE: Duration = Duration::from_secs(2);

/// The end of a drain.
pub struct DrainEnd {
    /// How it ended.
    pub result: DrainResult,
    /// Why before everything was moved.
    pub reason: Option<String>,
}

impl DrainEnd {
    /// Without a reason.
    pub fn of(result: DrainResult) -> Self {
        DrainEnd { result, reason: None }
    }

    /// For this reason.
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
            self.progress
                .suspend(|| anstream::println!("{}", Self::line(&event)));
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

/// A drain.
pub struct DrainRun<'d> {
    cluster: &'d DrainCluster,
    preparation: &'d Preparation,
    nodes: Vec<String>,
    rules: &'d DrainRules,
    history: DrainHistory,
    started: Instant,
    /// What happened.
    pub journal: &'d mut DrainJournal,
    /// The last state of everything, for what is not listed in every round.
    whole: DrainState,
}

type Signal<'s> = Pin<&'s mut (dyn Future<Output = ()> + 's)>;

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
            whole: DrainState::default(),
        }
    }

    /// The state before the drain, from everything, and what was listed.
    ///
    /// # Errors
    /// If the cluster cannot be read.
    pub async fn first_state(&mut self) -> anyhow::Result<(DrainState, DrainInventory)> {
        let inventory = self.cluster.read(None).await?;
        let state = self.state_of(inventory.clone());
        self.whole = state.clone();
        Ok((state, inventory))
    }

    fn state_of(&mut self, inventory: DrainInventory) -> DrainState {
        let now = self.started.elapsed();
        let mut state = self.history.state(inventory, &self.nodes, self.rules, now);
        state.cannot_move.clone_from(&self.preparation.cannot_move);
        state.node_claims.extend(self.whole.node_claims.iter().cloned());
        state
    }

    /// The state now. `is_whole`: from everything; otherwise only from the namespaces of the drain.
    async fn state(&mut self, is_whole: bool) -> anyhow::Result<DrainState> {
        if is_whole {
            return Ok(self.first_state().await?.0);
        }
        let left = self
            .whole
            .to_move(self.rules)
            .map(|pod| pod.name.namespace.clone());
        let moved = self.history.namespaces().map(str::to_owned);
        let namespaces = left.chain(moved).collect();
        let inventory = self.cluster.read(Some(&namespaces)).await?;
        Ok(self.state_of(inventory))
    }

    /// Drains. `waits_for`: the state whose pods need their images on the other nodes first.
    ///
    /// # Errors
    /// If the cluster cannot be read, or a right is missing, before something was changed.
    pub async fn run(&mut self, waits_for: Option<&DrainState>) -> anyhow::Result<DrainEnd> {
        if let Some(state) = waits_for
            && let Some(end) = self.wait_for_images(state).await?
        {
            return Ok(end);
        }
        match self.follow().await {
            // What was changed is reported in any case.
            Err(error) if self.journal.has_changes() => Ok(DrainEnd::stopped(format!("{error:#}"))),
            end => end,
        }
    }

    /// Makes steps until the drain ends.
    async fn follow(&mut self) -> anyhow::Result<DrainEnd> {
        let signal = shutdown()?;
        let mut signal = std::pin::pin!(signal);
        let mut is_whole = true;
        let mut read = Instant::now();
        loop {
            let round = Instant::now();
            match self.state(is_whole).await {
                Ok(mut state) => {
                    read = Instant::now();
                    match self.round(&mut state, read, signal.as_mut()).await? {
                        // Pods may have come to the nodes in other namespaces.
                        Some(end) if end.result == DrainResult::Done && !is_whole => {
                            is_whole = true;
                            continue;
                        }
                        Some(end) => return Ok(end),
                        None => is_whole = false,
                    }
                }
                // The evictions so far are not lost, and the next list may succeed.
                Err(error) if is_transient(&error) && read.elapsed() < self.rules.progress_timeout => {
                    self.journal.note(DrainEventKind::Waiting, format!("{error:#}"));
                }
                Err(error) => return Err(error),
            }
            let pause = PAUSE.max(round.elapsed());
            if is_over_after(signal.as_mut(), pause).await {
                return Ok(DrainEnd::of(DrainResult::Interrupted));
            }
        }
    }

    /// Makes the steps that a state allows, which was listed at this time; returns the end, if it is reached.
    async fn round(
        &mut self,
        state: &mut DrainState,
        listed: Instant,
        mut signal: Signal<'_>,
    ) -> anyhow::Result<Option<DrainEnd>> {
        loop {
            if signal.as_mut().now_or_never().is_some() {
                return Ok(Some(DrainEnd::of(DrainResult::Interrupted)));
            }
            state.age = listed.elapsed();
            match next(state, self.rules) {
                DrainAction::Cordon(node) => self.cordon(state, node).await?,
                DrainAction::Evict(name) => self.evict(state, &name).await?,
                DrainAction::Wait(wait) => {
                    let left = state.progress(self.rules).pods_left;
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
                self.journal.note(DrainEventKind::Cordoned, node);
            }
            // The next list shows whether the node is there.
            Err(why) if why.is_transient() || why == ApiError::NotFound => {
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
        state.answered(name, &answer);
        self.history.keep(state);
        match answer {
            EvictionAnswer::Accepted => {
                self.journal
                    .note(DrainEventKind::Evicted, format!("{name} from {from}"));
            }
            EvictionAnswer::Gone | EvictionAnswer::NotNow(_) => {}
            EvictionAnswer::Failed(why) | EvictionAnswer::Unknown(why) => {
                self.journal
                    .note(DrainEventKind::Failed, format!("{name}: {why}"));
            }
        }
        Ok(())
    }

    /// Waits until no image is missing, and a node takes pods; returns the end, if the drain ends before that.
    async fn wait_for_images(&mut self, state: &DrainState) -> anyhow::Result<Option<DrainEnd>> {
        let signal = shutdown()?;
        let mut signal = std::pin::pin!(signal);
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
                        self.history = DrainHistory::default();
                        return Ok(None);
                    };
                    self.journal.show(&what);
                    self.journal.note(DrainEventKind::Waiting, what);
                }
                Err(error) if is_transient(&error) => {
                    self.journal.note(DrainEventKind::Waiting, format!("{error:#}"));
                }
                Err(error) => return Err(error),
            }
            if let Some(why) = wait.end(self.rules, self.started.elapsed()) {
                return Ok(Some(DrainEnd::stopped(why)));
            }
            if is_over_after(signal.as_mut(), PAUSE).await {
                return Ok(Some(DrainEnd::of(DrainResult::Interrupted)));
            }
        }
    }
}

/// Pauses; returns whether a signal ends the drain.
async fn is_over_after(signal: Signal<'_>, pause: Duration) -> bool {
    tokio::select! {
        () = signal => true,
        () = tokio::time::sleep(pause) => false,
    }
}

fn is_transient(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<ApiError>()
        .is_some_and(ApiError::is_transient)
}

#[cfg(test)]
mod tests {
    use super::*;

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
