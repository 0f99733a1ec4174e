//! Every write to nodes and RuntimeClasses: in its turn, and only while this replica leads.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::PatchParams;
use kube::runtime::events::{Event, Recorder};

use crate::cluster::errors::{ApiError, answered};
use crate::cluster::lease::Leadership;
use crate::cluster::rate_limit::RateLimiter;

/// By this name the API server remembers who wrote a field.
pub const FIELD_MANAGER: &str = "transom";

/// Writes at the pace of the controller.
#[derive(Clone)]
pub struct Writer {
    /// The API server.
    pub client: Client,
    /// Asked before every write; `None` where a person cleans up.
    leadership: Option<Leadership>,
    /// Tells people what was changed; `None` where a person cleans up, and sees it.
    recorder: Option<Recorder>,
    rate_limiter: Arc<RateLimiter>,
}

impl Writer {
    /// A writer that makes so many writes in a second.
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

    /// Makes a request in its turn.
    ///
    /// # Errors
    /// What the API server refused, or that this replica leads no more.
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

    /// Writes an Event in its turn. Where that fails, the log has it.
    pub async fn announce(&self, event: &Event, about: &ObjectReference) {
        let Some(recorder) = &self.recorder else { return };
        if let Err(error) = self.write(recorder.publish(event, about)).await {
            let (name, reason) = (&about.name, &event.reason);
            tracing::warn!(?name, reason, note = event.note, error = %error, "no Event could be written");
        }
    }
}

/// How every patch is sent.
pub fn patching() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
