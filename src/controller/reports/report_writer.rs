//! Every write of reports and of Events on owners: rate-limited, while this replica leads, and changes before
//! rescans.

use std::time::Duration;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Client, core::ApiResource};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::events::EventPublisher;
use super::health::ReportHealth;
use super::invalidation::Invalidation;
use super::owner_index::SharedIndex;
use super::report;
use super::report_api::{DiscoveredApi, ReportApi};
use super::reread_queue::RereadQueue;
use super::write_queue::{ReportWrite, WriteReceiver};
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::lease::Leadership;
use crate::cluster::rate_limit::RateLimiter;
use crate::process::metrics::Reconcile;

/// The field manager of reports.
const FIELD_MANAGER: &str = "transom-reports";
/// How long the writer sleeps if there is nothing to do.
const IDLE: Duration = Duration::from_millis(100);

/// Writes and deletes reports, and publishes the Events that go with them.
pub struct ReportWriter<'c> {
    /// The API client.
    pub client: &'c Client,
    /// Whether this replica may write.
    pub leadership: &'c Leadership,
    /// The writes.
    pub receiver: WriteReceiver,
    /// The rate of writes.
    pub rate_limiter: RateLimiter,
    /// What reports should contain, and what is stored.
    pub index: &'c SharedIndex,
    /// Takes the namespaces in which reports are missing.
    pub rereads: &'c RereadQueue,
    /// Takes problems.
    pub health: &'c ReportHealth,
    /// The report API that the cluster serves.
    pub api: &'c DiscoveredApi,
    /// Publishes Events on owners.
    pub events: EventPublisher<'c>,
    /// Counts writes and failed requests.
    pub reconcile: &'c Reconcile,
}

impl ReportWriter<'_> {
    /// Writes forever.
    pub async fn run(mut self) {
        loop {
            if let Ok(write) = self.receiver.changes.try_recv() {
                self.write(write).await;
            } else if self.delete_one().await {
                // One at a time, because changes take precedence.
            } else if let Ok(write) = self.receiver.rescans.try_recv() {
                self.write(write).await;
            } else {
                sleep(IDLE).await;
            }
        }
    }

    async fn write(&mut self, write: ReportWrite) {
        let ReportWrite {
            uid,
            namespace,
            content,
            api,
            mut body,
            event,
        } = write;
        if !self.index.lock().wants(&uid, content) {
            return;
        }
        if let Some(api) = api.filter(|api| self.api.get() == Some(*api)) {
            self.rate_limiter.turn().await;
            if !self.leadership.holds() {
                return;
            }
            // If another writer has written the report since, the write must fail.
            let known = self.index.lock().version(&uid);
            if let Some(known) = known {
                body["metadata"]["resourceVersion"] = Value::String(known.to_string());
            }
            let began = Instant::now();
            let applied = apply(self.client, api, &body).await;
            self.reconcile.took(began.elapsed());
            match applied {
                Ok(version) => self.index.lock().written(&uid, Some(content), version),
                Err(ApiError::Conflict) => return self.was_written_by_another(&uid, &namespace),
                Err(failure) => return self.write_failed(&uid, &namespace, &failure, &body),
            }
        } else if !self.index.lock().is_news(&uid, content) {
            return;
        }
        if let Some(event) = event {
            self.events.publish(&event).await;
        }
    }

    /// Deletes one report; returns whether there was one to delete.
    async fn delete_one(&self) -> bool {
        let Some(api) = self.api.get() else {
            return false;
        };
        let next = self.index.lock().next_to_delete();
        let Some((kind, namespace, uid)) = next else {
            return false;
        };
        self.rate_limiter.turn().await;
        if !self.leadership.holds() {
            return true;
        }
        let (name, version) = (report::name(kind, &uid), self.index.lock().version(&uid));
        match delete(self.client, api, &namespace, &name, version).await {
            Ok(()) => self.index.lock().written(&uid, None, None),
            Err(ApiError::Conflict) => self.was_written_by_another(&uid, &namespace),
            Err(failure) => {
                let text = format!("the report cannot be deleted: {namespace}/{name}: {failure}");
                self.failed(&uid, &namespace, text);
            }
        }
        true
    }

    fn was_written_by_another(&self, uid: &str, namespace: &str) {
        self.index.lock().forget_version(uid);
        self.rereads.defer(Invalidation::None.with(namespace.to_owned()));
    }

    fn write_failed(&self, uid: &str, namespace: &str, failure: &ApiError, body: &Value) {
        match failure {
            ApiError::NotFound => {
                self.rereads.defer(Invalidation::None.with(namespace.to_owned()));
                self.api.rediscover();
            }
            // The namespace is being deleted with everything in it, including reports.
            ApiError::NamespaceTerminating(_) | ApiError::NamespaceNotFound(_) => {}
            failure => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let text = format!("the report cannot be written: {namespace}/{name}: {failure}");
                self.failed(uid, namespace, text);
            }
        }
    }

    /// The next list of the namespace tries again.
    fn failed(&self, uid: &str, namespace: &str, text: String) {
        self.reconcile.failed();
        self.rereads.defer(Invalidation::None.with(namespace.to_owned()));
        self.health.write_failed(uid, text);
    }
}

/// Writes a report; returns its resourceVersion if it is a number.
async fn apply(client: &Client, api: ReportApi, body: &Value) -> Result<Option<u64>, ApiError> {
    let text = |field: &str| body["metadata"][field].as_str().unwrap_or_default();
    let reports = reports(client, &api.resource(), text("namespace"));
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(body);
    let written = answered(reports.patch(text("name"), &params, &patch)).await?;
    Ok(written.metadata.resource_version.and_then(|it| it.parse().ok()))
}

async fn delete(
    client: &Client,
    api: ReportApi,
    namespace: &str,
    name: &str,
    version: Option<u64>,
) -> Result<(), ApiError> {
    let reports = reports(client, &api.resource(), namespace);
    let unchanged = Preconditions {
        resource_version: version.map(|version| version.to_string()),
        uid: None,
    };
    let params = DeleteParams {
        preconditions: version.is_some().then_some(unchanged),
        ..DeleteParams::default()
    };
    match answered(reports.delete(name, &params)).await {
        Ok(_) | Err(ApiError::NotFound) => Ok(()),
        Err(failure) => Err(failure),
    }
}

fn reports(client: &Client, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, resource)
}
