//! Every write to nodes and RuntimeClasses: rate-limited, and only while this replica leads.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events;
use kube::api::{PatchParams, PostParams};
use kube::runtime::events::{Event, Recorder};
use kube::{Api, Client};

use crate::cluster::errors::{ApiError, answered};
use crate::cluster::lease::Leadership;
use crate::cluster::rate_limit::RateLimiter;
use crate::controller::events::CLUSTER_EVENTS;

/// The field manager that the API server records for these writes.
pub const FIELD_MANAGER: &str = "transom";

/// Writes at the rate of the controller.
#[derive(Clone)]
pub struct Writer {
    /// The API client.
    pub client: Client,
    /// Checked before every write; `None` if a user runs the cleanup.
    leadership: Option<Leadership>,
    /// Publishes Events about changes; `None` if a user runs the cleanup, and sees its output.
    recorder: Option<Recorder>,
    rate_limiter: Arc<RateLimiter>,
}

impl Writer {
    /// A writer with this rate of writes per second.
    pub fn new(
        client: Client,
        leadership: Option<Leadership>,
        recorder: Option<Recorder>,
        per_second: u32,
    ) -> Self {
        Writer {
            client,
            leadership,
            recorder,
            rate_limiter: Arc::new(RateLimiter::per_second(per_second)),
        }
    }

    /// Makes a request within the rate limit.
    ///
    /// # Errors
    /// The error of the API server, or that this replica no longer leads.
    pub async fn write<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ApiError> {
        self.rate_limiter.turn().await;
        if self.leadership.as_ref().is_some_and(|leader| !leader.holds()) {
            return Err(ApiError::Other("leadership was lost".to_owned()));
        }
        answered(request).await
    }

    /// Publishes an Event within the rate limit. If that fails, the failure is logged.
    pub async fn announce(&self, event: &Event, about: &ObjectReference) {
        let Some(recorder) = &self.recorder else { return };
        if let Err(error) = self.write(recorder.publish(event, about)).await {
            log_unwritten(about, &event.reason, event.note.as_deref(), &error);
        }
    }

    /// Creates an Event within the rate limit, unless one of that name exists. If that fails, the failure is logged.
    pub async fn create_event(&self, event: &events::v1::Event) {
        let api: Api<events::v1::Event> = Api::namespaced(self.client.clone(), CLUSTER_EVENTS);
        let params = PostParams::default();
        match self.write(api.create(&params, event)).await {
            Ok(_) | Err(ApiError::Conflict) => (),
            Err(error) => {
                let about = event.regarding.clone().unwrap_or_default();
                let reason = event.reason.as_deref().unwrap_or_default();
                log_unwritten(&about, reason, event.note.as_deref(), &error);
            }
        }
    }
}

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
