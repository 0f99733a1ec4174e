//! Pod policies: the status of each policy, and the Events for its changes.
//!
//! [`reports`] computes the writes from the snapshot (pure); [`run`] carries them out.

mod build_labels;
mod image_registries;
mod namespace_events;
mod programmed;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::events::Recorder;
use kube::{Client, CustomResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

pub use self::namespace_events::{EventDeduper, NamespaceEvent};
pub use self::status::{StatusUpdate, reports};

use crate::api::WindowsPodPolicy;
use crate::cluster::lease::Leadership;
use crate::cluster::snapshot::SnapshotReceiver;
use crate::controller::reports::ReportingState;
use crate::controller::webhook_probe::ProbeResult;
use crate::process::metrics::Reconcile;
use crate::registry::service::UnreachableRegistry;

/// How often statuses are computed if nothing changes in the cluster: exemptions expire by date.
const LOOK: Duration = Duration::from_secs(60);
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
        let registries = async {
            match &mut self.registries {
                Some(registries) => registries.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Ok(()) = registries => (),
            Ok(()) = self.reporting.changed() => (),
            Ok(()) = self.probe.changed() => (),
            Ok(()) = self.contested.changed() => (),
            else => std::future::pending().await,
        }
    }
}

/// Writes statuses and Events while this replica leads. Returns when the snapshot channel ends.
pub async fn run(
    client: Client,
    mut latest: SnapshotReceiver,
    mut sources: StatusSources,
    leadership: Leadership,
    recorder: Recorder,
    reconcile: Reconcile,
) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &WindowsPodPolicy::api_resource());
    let mut deduper = EventDeduper::default();
    // The last error of each status write: a persistent error is logged once.
    let mut refused: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let snapshot = Arc::clone(&latest.borrow_and_update());
        let (began, led) = (Instant::now(), leadership.holds());
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
        for report in reports(&snapshot, states, Timestamp::now()) {
            if !leadership.holds() {
                break;
            }
            let name = &report.name;
            match write(&api, &recorder, &report).await {
                Ok(()) => drop(refused.remove(name)),
                Err(error) => {
                    reconcile.failed();
                    let error = error.to_string();
                    if refused.get(name) != Some(&error) {
                        tracing::warn!("cannot write the status of WindowsPodPolicy {name}: {error}");
                        refused.insert(name.clone(), error);
                    }
                }
            }
        }
        let more = leadership.holds() && deduper.write(&client, &leadership, &snapshot).await;
        if led {
            reconcile.took(began.elapsed());
        }
        // Frees the snapshot before the wait for the next one.
        drop(snapshot);
        tokio::time::sleep(PAUSE).await;
        if more {
            continue;
        }
        tokio::select! {
            changed = latest.changed() => if changed.is_err() { return },
            () = sources.changed() => (),
            () = tokio::time::sleep(LOOK) => (),
        }
    }
}

/// Writes one status, then its Events. If the policy changed or was deleted meanwhile, the next pass handles it. An
/// Event that the API server rejects is only logged.
async fn write(
    api: &Api<DynamicObject>,
    recorder: &Recorder,
    report: &StatusUpdate,
) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {"resourceVersion": report.resource_version}, "status": report.status});
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match api
        .patch_status(&report.name, &params, &Patch::Merge(patch))
        .await
    {
        Ok(_) => (),
        Err(kube::Error::Api(refusal)) if refusal.code == 409 || refusal.code == 404 => return Ok(()),
        Err(error) => return Err(error),
    }
    for said in &report.news {
        if let Err(error) = (recorder.publish(&said.event("EvaluatePolicy"), &report.reference())).await {
            let (name, reason) = (&report.name, said.reason);
            tracing::warn!("cannot write the Event {reason} of WindowsPodPolicy {name}: {error}");
        }
    }
    Ok(())
}
