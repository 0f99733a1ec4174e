//! Pod policies: what each policy's status says of what became of it, and the Events that go with that.
//!
//! What is to be written is a pure function of the snapshot ([`reports`]); [`run`] carries it out.

mod build_labels;
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
use tokio::time::Instant;

pub use self::namespace_events::{EventDeduper, NamespaceEvent};
pub use self::status::{StatusUpdate, reports};

use crate::api::WindowsPodPolicy;
use crate::cluster::lease::Leadership;
use crate::cluster::snapshot::SnapshotReceiver;
use crate::process::metrics::Reconcile;

/// How often statuses are looked at when nothing changes in the cluster: exemptions expire by the day.
const LOOK: Duration = Duration::from_secs(60);
/// The pause after each look, so that a busy cluster, or one that refuses our writes, is not kept busier.
const PAUSE: Duration = Duration::from_secs(1);
/// So many names are listed in one message of a status.
const MOST_NAMES: usize = 10;
/// The name that our writes carry in managedFields.
const FIELD_MANAGER: &str = "transom-policies";

/// Writes statuses and Events while this replica leads. Ends with the snapshots.
pub async fn run(
    client: Client,
    mut latest: SnapshotReceiver,
    leadership: Leadership,
    recorder: Recorder,
    reconcile: Reconcile,
) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &WindowsPodPolicy::api_resource());
    let mut deduper = EventDeduper::default();
    // What the API server said last to the write of each status: a refusal that stays is logged once.
    let mut refused: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let snapshot = Arc::clone(&latest.borrow_and_update());
        let (began, led) = (Instant::now(), leadership.holds());
        for report in reports(&snapshot, Timestamp::now()) {
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
        // Not kept in memory until there is news.
        drop(snapshot);
        tokio::time::sleep(PAUSE).await;
        if more {
            continue;
        }
        tokio::select! {
            changed = latest.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK) => (),
        }
    }
}

/// Writes one status, then its Events. A policy that has changed or gone meanwhile is left for the next look. An
/// Event that is refused is only logged.
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
