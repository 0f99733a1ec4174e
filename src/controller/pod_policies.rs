//! Pod policies: the status of each policy, and the Events for its changes.
//!
//! [`reports`] computes the writes from the snapshot (pure); [`PolicyStatusController`] carries them out.

mod build_labels;
mod image_registries;
mod namespace_events;
mod programmed;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::CustomResourceExt as _;
use kube::api::{Api, DynamicObject};
use tokio::sync::watch;

pub use self::namespace_events::EventDeduper;
pub use self::status::{StatusUpdate, reports};

use super::leader_loop::{Controller, PassResult};
use super::writer::Writer;
use crate::api::WindowsPodPolicy;
use crate::cluster::snapshot::Snapshot;
use crate::controller::reports::{NextDenials, ReportingState};
use crate::controller::webhook_probe::ProbeResult;
use crate::registration::configurations::CoverageGap;
use crate::registry::service::UnreachableRegistry;

/// The pause after each pass, so that Transom adds little load to a busy cluster or one that rejects its writes.
const PAUSE: Duration = Duration::from_secs(1);
/// How many names a message in the status lists.
const MOST_NAMES: usize = 10;

/// What other controllers of the leader have found out, for the conditions that show it.
#[derive(Clone, Copy, Debug)]
pub struct ControllerStates<'s> {
    /// The state of the reports on stored objects.
    pub reporting: &'s ReportingState,
    /// What would be denied next although it is stored.
    pub next_denials: &'s NextDenials,
    /// What is wrong with the calls of the API server, if anything.
    pub unreached: Option<&'s CoverageGap>,
    /// The message if another writer repeatedly overwrites the `caBundle` of the webhooks.
    pub contested: Option<&'s str>,
    /// The listed registries that cannot be reached; `None` if none is listed.
    pub registries: Option<&'s [UnreachableRegistry]>,
}

/// The states of other controllers.
#[derive(Clone, Debug)]
pub struct StatusSources {
    /// The state of the reports on stored objects.
    pub reporting: watch::Receiver<ReportingState>,
    /// What would be denied next.
    pub next_denials: watch::Receiver<NextDenials>,
    /// The result of the last probe of the webhooks.
    pub probe: watch::Receiver<Option<Arc<ProbeResult>>>,
    /// The listed registries that cannot be reached; `None` if none is listed.
    pub registries: Option<watch::Receiver<Vec<UnreachableRegistry>>>,
    /// The message if another writer repeatedly overwrites the `caBundle` of the webhooks.
    pub contested: watch::Receiver<Option<String>>,
}

impl StatusSources {
    /// Sources without any news: reports are disabled, and the webhooks are not probed.
    pub fn none() -> Self {
        StatusSources {
            reporting: watch::channel(ReportingState::Off).1,
            next_denials: watch::channel(NextDenials::default()).1,
            probe: watch::channel(None).1,
            registries: None,
            contested: watch::channel(None).1,
        }
    }

    /// Waits for news. A controller that has ended leaves its last state.
    async fn changed(&mut self) {
        // Destructured, so that no source can be forgotten.
        let StatusSources {
            reporting,
            next_denials,
            probe,
            registries,
            contested,
        } = self;
        let registries = async {
            match registries {
                Some(registries) => registries.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Ok(()) = registries => (),
            Ok(()) = reporting.changed() => (),
            Ok(()) = next_denials.changed() => (),
            Ok(()) = probe.changed() => (),
            Ok(()) = contested.changed() => (),
            else => std::future::pending().await,
        }
    }
}

/// Writes statuses and Events.
pub struct PolicyStatusController {
    api: Api<DynamicObject>,
    writer: Writer,
    sources: StatusSources,
    deduper: EventDeduper,
}

impl PolicyStatusController {
    /// A controller that has written nothing yet.
    pub fn new(writer: Writer, sources: StatusSources) -> Self {
        PolicyStatusController {
            api: Api::all_with(writer.client.clone(), &WindowsPodPolicy::api_resource()),
            writer,
            sources,
            deduper: EventDeduper::default(),
        }
    }

    /// The statuses that differ from what is stored.
    fn due(&mut self, snapshot: &Snapshot) -> Vec<StatusUpdate> {
        let sources = &mut self.sources;
        let reporting = sources.reporting.borrow_and_update().clone();
        let next_denials = sources.next_denials.borrow_and_update().clone();
        let unreached = (sources.probe.borrow_and_update().as_deref()).and_then(ProbeResult::problem);
        let registries =
            (sources.registries.as_mut()).map(|registries| registries.borrow_and_update().clone());
        let contested = sources.contested.borrow_and_update().clone();
        let states = ControllerStates {
            reporting: &reporting,
            next_denials: &next_denials,
            unreached: unreached.as_ref(),
            contested: contested.as_deref(),
            registries: registries.as_deref(),
        };
        reports(snapshot, states, Timestamp::now()).collect()
    }
}

impl Controller for PolicyStatusController {
    /// Exemptions expire by date.
    const EVERY: Duration = Duration::from_secs(60);

    async fn changed(&mut self) {
        self.sources.changed().await;
    }

    async fn pass(&mut self, snapshot: &Snapshot) -> PassResult {
        let mut result = PassResult::with_pause(PAUSE);
        for update in self.due(snapshot) {
            let written = self.writer.write(&self.api, &update.to_write()).await;
            let task = || format!("write the status of WindowsPodPolicy {}", update.name);
            if result.record(task, written).is_some() {
                let about = update.reference();
                for event in &update.news {
                    self.writer.announce(&event.event("EvaluatePolicy"), &about).await;
                }
            }
        }
        (self.deduper).write(&self.writer, snapshot, &mut result).await;
        result
    }
}
