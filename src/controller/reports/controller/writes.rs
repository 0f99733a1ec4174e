//! Writes reports, one at a time: reads the owner again, evaluates it, and applies or deletes its report. A report is
//! written with the resourceVersion that it was planned with.

use std::sync::Arc;

use futures::future::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use tokio::time::Instant;

use super::super::events::{FINDINGS, event_on, publish};
use super::super::owner_index::ReportAction;
use super::super::report;
use super::super::requests::{Answer, WriteResult, apply, delete};
use super::super::write_queue::ObservationSource;
use super::ReportsController;
use crate::cluster::errors::ApiError;
use crate::cluster::rate_limit::RateLimiter;
use crate::cluster::stored::StoredObject;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::process::token_bucket::TokenBucket;

/// Rate limit of Events on owners with findings: per second, and burst.
const FINDING_EVENTS: (u32, u32) = (2, 50);
/// Rate limit of Events on owners of stuck pods: per second, and burst.
const STUCK_EVENTS: (u32, u32) = (1, 20);

/// The rates of writes, and whether one is in progress.
pub struct Writes {
    rate_limiter: Arc<RateLimiter>,
    findings: TokenBucket,
    stuck: TokenBucket,
    is_writing: bool,
}

impl Writes {
    /// At most so many reports in a second.
    pub fn new(per_second: u32) -> Self {
        Writes {
            rate_limiter: Arc::new(RateLimiter::per_second(per_second)),
            findings: TokenBucket::new(FINDING_EVENTS.0, FINDING_EVENTS.1),
            stuck: TokenBucket::new(STUCK_EVENTS.0, STUCK_EVENTS.1),
            is_writing: false,
        }
    }
}

impl ReportsController {
    /// Starts the next write, if none is in progress: reads its owner.
    pub fn start_write(&mut self) {
        if self.writes.is_writing || !self.is_ready() || !self.context.leadership.holds() {
            return;
        }
        let Some((kind, owner)) = self.state.index.next_write(Instant::now()) else {
            return;
        };
        let Some(list) = self.objects.list(kind).cloned() else {
            return self.state.index.finished(&owner.uid);
        };
        let (client, rate_limiter) = (self.context.client.clone(), Arc::clone(&self.writes.rate_limiter));
        self.writes.is_writing = true;
        let read = async move {
            rate_limiter.turn().await;
            let read = list.get(&client, &owner.namespace, &owner.name, &owner.uid).await;
            Answer::Read(kind, owner, read)
        };
        self.requests.push(read.boxed());
    }

    /// Continues the write that is in progress: an owner was read. It is evaluated as it is stored now.
    pub fn owner_read(
        &mut self,
        kind: Kind,
        owner: WorkloadName,
        read: Result<Option<StoredObject>, ApiError>,
    ) {
        self.writes.is_writing = false;
        let object = match read {
            Ok(object) => object,
            Err(failure) => return self.write_failed(&owner, "written", &failure),
        };
        let (snapshot, source) = (self.snapshot(), ObservationSource::Watch);
        let evaluated = object
            .as_ref()
            .and_then(|object| self.state.observe(&snapshot, kind, object, source));
        let index = &mut self.state.index;
        if object.is_none() {
            index.is_clean(&owner.uid, source);
        }
        let (client, version) = (self.context.client.clone(), index.version(&owner.uid));
        let request = match (index.plan(&owner.uid), self.api, evaluated) {
            (ReportAction::Write(_), Some(api), Some(evaluated)) => {
                apply(client, api, owner, version, evaluated).boxed()
            }
            (ReportAction::Delete, Some(api), _) => delete(client, api, owner, version).boxed(),
            (ReportAction::Announce(content), None, Some(evaluated)) => {
                index.announced(&owner.uid, content);
                return self.publish(event_on(&evaluated, Timestamp::now()));
            }
            _ => return index.finished(&owner.uid),
        };
        self.writes.is_writing = true;
        self.requests.push(request);
    }

    /// Ends the write that is in progress.
    pub fn wrote(&mut self, write: WriteResult) {
        self.writes.is_writing = false;
        self.context.reconcile.took(write.took);
        match write.result {
            Ok(version) => {
                let uid = &write.owner.uid;
                self.state.index.written(uid, write.content, version);
                self.publish(write.event);
            }
            Err(failure) => {
                let participle = if write.content.is_some() {
                    "written"
                } else {
                    "deleted"
                };
                self.write_failed(&write.owner, participle, &failure);
            }
        }
    }

    /// Publishes an Event on an owner, unless the rate limit of its reason is exceeded or another replica leads.
    pub fn publish(&mut self, event: Option<Event>) {
        let Some(event) = event.filter(|_| self.context.leadership.holds()) else {
            return;
        };
        let bucket = if event.reason.as_deref() == Some(FINDINGS) {
            &mut self.writes.findings
        } else {
            &mut self.writes.stuck
        };
        if bucket.take(Instant::now()).is_ok() {
            let published = publish(self.context.client.clone(), event);
            self.requests.push(published.map(|()| Answer::Published).boxed());
        }
    }

    fn write_failed(&mut self, owner: &WorkloadName, participle: &str, failure: &ApiError) {
        let (uid, index) = (&*owner.uid, &mut self.state.index);
        match failure {
            // The namespace is being deleted with everything in it, including reports.
            ApiError::NamespaceTerminating(_) | ApiError::NamespaceNotFound(_) => return index.finished(uid),
            ApiError::Conflict => index.forget_version(uid),
            ApiError::NotFound => self.discover_at = Instant::now(),
            failure => {
                self.context.reconcile.failed();
                let (namespace, name) = (&owner.namespace, report::name(owner));
                let text = format!("the report cannot be {participle}: {namespace}/{name}: {failure}");
                self.state.health.write_failed(uid, text);
            }
        }
        index.failed(uid, Instant::now(), self.context.settings.retry);
    }
}
