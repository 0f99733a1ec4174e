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
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::events::Recorder;
use kube::{Client, CustomResourceExt as _};
use serde_json::json;
use tokio::sync::watch;

pub use self::namespace_events::{EventDeduper, NamespaceEvent};
pub use self::status::{StatusUpdate, reports};

use super::leader_loop::{PassResult, SnapshotController};
use crate::api::WindowsPodPolicy;
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::lease::Leadership;
use crate::cluster::snapshot::Snapshot;
use crate::controller::reports::ReportingState;
use crate::controller::webhook_probe::ProbeResult;
use crate::registry::service::UnreachableRegistry;

/// The pause after each pass, so that Transom adds little load to a busy cluster or one that rejects its writes.
const PAUSE: Duration = Duration::from_secs(1);
/// How many names a message in the status lists.
const MOST_NAMES: usize = 10;
/// The field manager of these writes in managedFields.
const FIELD_MANAGER: &str = "transom-policies";

/// What other controllers of the leader have found out, for the conditions that show it.
#[derive(Clone, Copy, Debug)]
pub struct ControllerStates<'s> {
    /// The state of the reports on stored objects.
    pub reporting: &'s ReportingState,
    /// The message if calls of the API server do not arrive.
    pub unreached: Option<&'s str>,
    /// The message if another writer repeatedly overwrites the `caBundle` of the webhooks.
    pub contested: Option<&'s str>,
    /// The listed registries that cannot be reached; `None` if none is listed.
    pub registries: Option<&'s [UnreachableRegistry]>,
}

/// Where the states of other controllers come from.
#[derive(Clone, Debug)]
pub struct StatusSources {
    /// The state of the reports on stored objects.
    pub reporting: watch::Receiver<ReportingState>,
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
            Ok(()) = probe.changed() => (),
            Ok(()) = contested.changed() => (),
            else => std::future::pending().await,
        }
    }
}

/// Writes statuses and Events.
pub struct PolicyStatusController {
    api: Api<DynamicObject>,
    client: Client,
    sources: StatusSources,
    recorder: Recorder,
    deduper: EventDeduper,
}

impl PolicyStatusController {
    /// A controller that has written nothing yet.
    pub fn new(client: Client, sources: StatusSources, recorder: Recorder) -> Self {
        PolicyStatusController {
            api: Api::all_with(client.clone(), &WindowsPodPolicy::api_resource()),
            client,
            sources,
            recorder,
            deduper: EventDeduper::default(),
        }
    }

    /// The statuses that differ from what is stored.
    fn due(&mut self, snapshot: &Snapshot) -> Vec<StatusUpdate> {
        let sources = &mut self.sources;
        let reporting = sources.reporting.borrow_and_update().clone();
        let unreached = (sources.probe.borrow_and_update().as_deref()).and_then(ProbeResult::trouble);
        let registries =
            (sources.registries.as_mut()).map(|registries| registries.borrow_and_update().clone());
        let contested = sources.contested.borrow_and_update().clone();
        let states = ControllerStates {
            reporting: &reporting,
            unreached: unreached.as_deref(),
            contested: contested.as_deref(),
            registries: registries.as_deref(),
        };
        reports(snapshot, states, Timestamp::now()).collect()
    }
}

impl SnapshotController for PolicyStatusController {
    /// Exemptions expire by date.
    const EVERY: Duration = Duration::from_secs(60);

    async fn changed(&mut self) {
        self.sources.changed().await;
    }

    async fn pass(&mut self, snapshot: &Snapshot, leadership: &Leadership) -> PassResult {
        let mut result = PassResult::with_pause(PAUSE);
        for report in self.due(snapshot) {
            if !leadership.holds() {
                return result;
            }
            let written = write(&self.api, &self.recorder, &report).await;
            let name = &report.name;
            result.record(|| format!("write the status of WindowsPodPolicy {name}"), written);
        }
        let deduper = &mut self.deduper;
        (deduper.write(&self.client, leadership, snapshot, &mut result)).await;
        result
    }
}

/// Writes one status, then its Events. An Event that the API server rejects is only logged.
async fn write(api: &Api<DynamicObject>, recorder: &Recorder, report: &StatusUpdate) -> Result<(), ApiError> {
    let patch = Patch::Merge(
        json!({"metadata": {"resourceVersion": report.resource_version}, "status": report.status}),
    );
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    answered(api.patch_status(&report.name, &params, &patch)).await?;
    for event in &report.news {
        if let Err(error) = (recorder.publish(&event.event("EvaluatePolicy"), &report.reference())).await {
            let (name, reason) = (&report.name, event.reason);
            tracing::warn!("cannot write the Event {reason} of WindowsPodPolicy {name}: {error}");
        }
    }
    Ok(())
}
