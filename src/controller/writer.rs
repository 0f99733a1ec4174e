//! The writes of the leader: rate-limited, only while this replica leads, and each with the resourceVersion that it was
//! decided on.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::{Event, Recorder, Reporter};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::conditions::REPORTER;
use super::events::CLUSTER_EVENTS;
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::lease::Leadership;
use crate::cluster::rate_limit::RateLimiter;

/// The field manager that the API server records for these writes.
const FIELD_MANAGER: &str = "transom";
/// Writes per second, Events included.
pub const WRITES_PER_SECOND: u32 = 50;

/// One write, as data.
#[derive(Clone, PartialEq, Debug)]
pub enum Write<K> {
    Create(K),
    /// Merges a patch, which contains the resourceVersion, into an object.
    Patch {
        /// The name of the object.
        name: String,
        patch: Value,
    },
    /// The same for its status.
    PatchStatus {
        /// The name of the object.
        name: String,
        patch: Value,
    },
    Delete {
        name: String,
        /// Its uid; `None`: any.
        uid: Option<String>,
        /// Its resourceVersion; `None`: any.
        version: Option<String>,
    },
}

/// A write, and what it does, as in `delete the ControllerRevision transom-system/policy-1`.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedWrite<K> {
    pub task: String,
    pub write: Write<K>,
}

/// Writes at one rate; clones share it.
#[derive(Clone)]
pub struct Writer {
    pub client: Client,
    /// Checked before every write; `None` if a user runs the cleanup.
    leadership: Option<Leadership>,
    recorder: Recorder,
    rate_limiter: Arc<RateLimiter>,
}

impl Writer {
    /// A writer with this rate of writes per second.
    pub fn new(client: Client, leadership: Option<Leadership>, per_second: u32) -> Self {
        let reporter = Reporter {
            controller: REPORTER.into(),
            instance: None,
        };
        Writer {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            leadership,
            rate_limiter: Arc::new(RateLimiter::per_second(per_second)),
        }
    }

    /// Makes a request within the rate limit.
    ///
    /// # Errors
    /// The error of the API server, or that this replica no longer leads.
    pub async fn send<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ApiError> {
        self.rate_limiter.turn().await;
        if self.leadership.as_ref().is_some_and(|leader| !leader.holds()) {
            return Err(ApiError::Other("leadership was lost".to_owned()));
        }
        answered(request).await
    }

    /// Makes a write; returns the object as it is stored now, or `None` if it was deleted.
    ///
    /// # Errors
    /// As [`Writer::send`].
    pub async fn write<K>(&self, api: &Api<K>, write: &Write<K>) -> Result<Option<K>, ApiError>
    where
        K: Serialize + DeserializeOwned + Clone + Debug,
    {
        let post = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match write {
            Write::Create(object) => self.send(api.create(&post, object)).await.map(Some),
            Write::Patch { name, patch } => {
                let patch = Patch::Merge(patch);
                (self.send(api.patch(name, &patching(), &patch)).await).map(Some)
            }
            Write::PatchStatus { name, patch } => {
                let patch = Patch::Merge(patch);
                (self.send(api.patch_status(name, &patching(), &patch)).await).map(Some)
            }
            Write::Delete { name, uid, version } => {
                let params = DeleteParams::default().preconditions(Preconditions {
                    resource_version: version.clone(),
                    uid: uid.clone(),
                });
                (self.send(api.delete(name, &params)).await).map(|_| None)
            }
        }
    }

    /// Publishes an Event. If that fails, the failure is logged.
    pub async fn announce(&self, event: &Event, about: &ObjectReference) {
        if let Err(error) = self.send(self.recorder.publish(event, about)).await {
            log_unwritten(about, &event.reason, event.note.as_deref(), &error);
        }
    }

    /// Creates an Event, unless one of that name exists. Returns whether it was created.
    ///
    /// # Errors
    /// As [`Writer::send`].
    pub async fn create_event(&self, event: &events::v1::Event) -> Result<bool, ApiError> {
        let api: Api<events::v1::Event> = Api::namespaced(self.client.clone(), CLUSTER_EVENTS);
        match self.send(api.create(&PostParams::default(), event)).await {
            Ok(_) => Ok(true),
            Err(ApiError::Conflict) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The same. If that fails, the failure is logged.
    pub async fn announce_once(&self, event: &events::v1::Event) {
        if let Err(error) = self.create_event(event).await {
            let about = event.regarding.clone().unwrap_or_default();
            let reason = event.reason.as_deref().unwrap_or_default();
            log_unwritten(&about, reason, event.note.as_deref(), &error);
        }
    }
}

/// Logs that an Event could not be written.
fn log_unwritten(about: &ObjectReference, reason: &str, note: Option<&str>, error: &ApiError) {
    tracing::warn!(name = ?about.name, reason, note, error = %error, "no Event could be written");
}

/// The parameters of every patch.
pub fn patching() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
