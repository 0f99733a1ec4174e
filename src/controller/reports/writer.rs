//! Every write of reports and of Events on owners: rate-limited, while this replica leads, and changes before
//! rescans.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, core::ApiResource};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::basis::Invalidation;
use super::desk::{ReportWrite, WriteReceiver};
use super::dialect::ReportApi;
use super::report;
use super::session::ReportsController;
use super::tell::OwnerEvent;
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::rate_limit::{RateLimiter, TokenBucket};

/// The field manager of reports.
const FIELD_MANAGER: &str = "transom-reports";
/// Rate limit of Events: per second, and burst.
const EVENTS: (u32, u32) = (2, 50);
/// How long the writer sleeps if there is nothing to do.
const IDLE: std::time::Duration = std::time::Duration::from_millis(100);

impl ReportsController<'_> {
    /// Writes forever.
    pub async fn write_all(&self, mut tray: WriteReceiver) {
        let rate_limiter = RateLimiter::per_second(self.settings().writes_per_second);
        let events = Mutex::new(TokenBucket::new(EVENTS.0, EVENTS.1));
        loop {
            if let Ok(write) = tray.news.try_recv() {
                self.write(write, &rate_limiter, &events).await;
            } else if self.take_away_one(&rate_limiter).await {
                // One at a time, because changes take precedence.
            } else if let Ok(write) = tray.rest.try_recv() {
                self.write(write, &rate_limiter, &events).await;
            } else {
                sleep(IDLE).await;
            }
        }
    }

    async fn write(&self, write: ReportWrite, rate_limiter: &RateLimiter, events: &Mutex<TokenBucket>) {
        let ReportWrite {
            uid,
            namespace,
            content,
            dialect,
            mut body,
            note,
        } = write;
        if !self.ledger().wants(&uid, content) {
            return;
        }
        if let Some(dialect) = dialect.filter(|dialect| self.dialect() == Some(*dialect)) {
            rate_limiter.turn().await;
            if !self.leads() {
                return;
            }
            // If another writer has written the report since, the write must fail.
            let known = self.ledger().version(&uid);
            if let Some(known) = known {
                body["metadata"]["resourceVersion"] = Value::String(known.to_string());
            }
            let began = Instant::now();
            let applied = apply(self.client(), dialect, &body).await;
            self.context.reconcile.took(began.elapsed());
            match applied {
                Ok(version) => self.ledger().written(&uid, Some(content), version),
                Err(ApiError::Conflict) => {
                    self.ledger().forget_version(&uid);
                    return self.is_late(Invalidation::None.with(namespace.into_string()));
                }
                Err(failure) => return self.did_not_go(&uid, &namespace, &failure, &body),
            }
        } else if !self.ledger().is_news(&uid, content) {
            return;
        }
        if let Some(note) = note {
            self.tell(&note, events).await;
        }
    }

    /// Publishes an Event on an owner, unless the rate limit is exceeded.
    pub async fn tell(&self, note: &OwnerEvent, events: &Mutex<TokenBucket>) {
        let turn = events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(Instant::now());
        if turn.is_err() || !self.leads() {
            return;
        }
        let api: Api<Event> = Api::namespaced(self.client().clone(), &note.owner.namespace);
        let event = note.event(Timestamp::now());
        match answered(api.create(&PostParams::default(), &event)).await {
            // The Event exists already.
            Ok(_) | Err(ApiError::Conflict) => (),
            Err(failure) => tracing::debug!(
                namespace = note.owner.namespace,
                "cannot write the Event {} of {} {}: {failure}",
                note.reason,
                note.owner.kind,
                note.owner.name
            ),
        }
    }

    /// Deletes one report; returns whether there was one to delete.
    async fn take_away_one(&self, rate_limiter: &RateLimiter) -> bool {
        let Some(dialect) = self.dialect() else {
            return false;
        };
        let next = self.ledger().next_to_take_away();
        let Some((kind, namespace, uid)) = next else {
            return false;
        };
        rate_limiter.turn().await;
        if !self.leads() {
            return true;
        }
        let (name, version) = (report::name(kind, &uid), self.ledger().version(&uid));
        match delete(self.client(), dialect, &namespace, &name, version).await {
            Ok(()) => self.ledger().written(&uid, None, None),
            Err(ApiError::Conflict) => {
                self.ledger().forget_version(&uid);
                self.is_late(Invalidation::None.with(namespace.to_string()));
            }
            Err(failure) => {
                let text = format!("the report cannot be deleted: {namespace}/{name}: {failure}");
                self.trouble(&uid, &namespace, text);
            }
        }
        true
    }

    fn did_not_go(&self, uid: &str, namespace: &str, failure: &ApiError, body: &Value) {
        match failure {
            ApiError::NotFound => {
                self.is_late(Invalidation::None.with(namespace.to_owned()));
                self.ask_for_dialect();
            }
            // The namespace is being deleted with everything in it, including reports.
            ApiError::NamespaceTerminating(_) | ApiError::NamespaceNotFound(_) => {}
            failure => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let text = format!("the report cannot be written: {namespace}/{name}: {failure}");
                self.trouble(uid, namespace, text);
            }
        }
    }
}

/// Writes a report; returns its resourceVersion if it is a number.
async fn apply(client: &Client, dialect: ReportApi, body: &Value) -> Result<Option<u64>, ApiError> {
    let text = |field: &str| body["metadata"][field].as_str().unwrap_or_default();
    let api = api(client, &dialect.resource(), text("namespace"));
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(body);
    let written = answered(api.patch(text("name"), &params, &patch)).await?;
    Ok(written.metadata.resource_version.and_then(|it| it.parse().ok()))
}

async fn delete(
    client: &Client,
    dialect: ReportApi,
    namespace: &str,
    name: &str,
    version: Option<u64>,
) -> Result<(), ApiError> {
    let api = api(client, &dialect.resource(), namespace);
    let unchanged = Preconditions {
        resource_version: version.map(|version| version.to_string()),
        uid: None,
    };
    let params = DeleteParams {
        preconditions: version.is_some().then_some(unchanged),
        ..DeleteParams::default()
    };
    match answered(api.delete(name, &params)).await {
        Ok(_) | Err(ApiError::NotFound) => Ok(()),
        Err(failure) => Err(failure),
    }
}

fn api(client: &Client, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, resource)
}
