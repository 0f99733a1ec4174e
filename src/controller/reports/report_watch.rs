//! Watches the stored reports: reports of an earlier leader are known before anything is written, and reports that
//! others delete or edit are restored. Only their metadata is read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt as _;
use kube::Client;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher;
use kube::runtime::watcher::{Config, Error, Event};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::health::ReportHealth;
use super::invalidation::Invalidation;
use super::owner_index::{MOST_OWNERS, SharedIndex, WrittenReport};
use super::report::{CONTENT, LABEL, name};
use super::report_api::{DiscoveredApi, ReportApi};
use super::reread_queue::RereadQueue;
use crate::cluster::errors::ApiError;
use crate::cluster::rate_limit::RestartBackoff;
use crate::model::workload::Kind;

/// Reports per page of a list: metadata is small.
const PAGE: u32 = 500;
/// The log message if the stored reports cannot be read.
const WATCHING: &str = "cannot watch the reports";

/// Whether the stored reports were taken over from an earlier leader, and whether objects are being listed already.
#[derive(Debug, Default)]
pub struct Adoption {
    is_done: watch::Sender<bool>,
    lists: AtomicBool,
}

impl Adoption {
    /// Waits until the stored reports are known.
    pub async fn wait(&self) {
        let mut is_done = self.is_done.subscribe();
        let _ = is_done.wait_for(|is_done| *is_done).await;
    }

    /// Sets whether the stored reports are known.
    pub fn set(&self, is_done: bool) {
        self.is_done.send_replace(is_done);
    }

    /// Records that objects are being listed.
    pub fn lists_begin(&self) {
        self.lists.store(true, Ordering::Relaxed);
    }
}

/// Watches the stored reports, and records them in the index.
pub struct ReportWatch<'c> {
    /// The API client.
    pub client: &'c Client,
    /// The report API to watch.
    pub api: &'c DiscoveredApi,
    /// Where the reports are recorded.
    pub index: &'c SharedIndex,
    /// Takes the namespaces in which reports are missing.
    pub rereads: &'c RereadQueue,
    /// Takes problems.
    pub health: &'c ReportHealth,
    /// Whether the stored reports are known.
    pub adoption: &'c Adoption,
}

fn read(report: &PartialObjectMeta<DynamicObject>) -> Option<WrittenReport> {
    let meta = &report.metadata;
    let owner = meta.owner_references.iter().flatten().next()?;
    let kind = Kind::of_api_version(&owner.api_version, &owner.kind)?;
    if meta.name.as_ref() != Some(&name(kind, &owner.uid)) {
        // Somebody wrote it with Transom's label.
        return None;
    }
    let content_hash = meta.annotations.iter().flatten().find(|(key, _)| *key == CONTENT);
    Some(WrittenReport {
        kind,
        namespace: meta.namespace.clone()?,
        uid: owner.uid.clone(),
        // A report with another content is written again.
        content_hash: content_hash.map_or(0, |(_, content_hash)| {
            u64::from_str_radix(content_hash, 16).unwrap_or_default()
        }),
        version: meta.resource_version.as_deref().and_then(|it| it.parse().ok()),
    })
}

impl ReportWatch<'_> {
    /// Follows the stored reports of the report API that the cluster serves.
    pub async fn run(self) {
        let mut served = self.api.follow();
        let mut backoff = RestartBackoff::default();
        loop {
            let api = *served.borrow_and_update();
            let began = Instant::now();
            let follow = async {
                match api {
                    Some(api) => self.follow(api).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = follow => sleep(backoff.after(began.elapsed())).await,
                changed = served.changed() => {
                    self.health.works(WATCHING);
                    if changed.is_err() { return }
                }
            }
        }
    }

    /// Follows them until a failure.
    async fn follow(&self, api: ReportApi) {
        let reports: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.client.clone(), &api.resource());
        let config = Config::default()
            .labels(&format!("{}={}", LABEL.0, LABEL.1))
            .page_size(PAGE);
        let mut events = std::pin::pin!(watcher(reports, config));
        let mut listed = HashMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(report)) => {
                    let found = read(&report).filter(|_| listed.len() < MOST_OWNERS);
                    listed.extend(found.map(|found| (found.uid.clone(), found)));
                }
                Ok(Event::InitDone) => {
                    self.health.works(WATCHING);
                    self.adopt(&listed);
                    listed.clear();
                }
                Ok(Event::Apply(report)) => {
                    let found = read(&report);
                    if let Some(found) = found.filter(|found| self.index.lock().found(found)) {
                        self.rereads.defer(Invalidation::None.with(found.namespace));
                    }
                }
                Ok(Event::Delete(report)) => {
                    if let Some(found) = read(&report) {
                        self.is_missing(&found);
                    }
                }
                Err(error) => return self.is_broken(error),
            }
        }
    }

    /// Takes over the complete list of stored reports.
    fn adopt(&self, listed: &HashMap<String, WrittenReport>) {
        let mut missing = Invalidation::None;
        {
            let mut index = self.index.lock();
            let found = listed.values().filter(|found| index.found(found));
            let found: Vec<&WrittenReport> = found.collect();
            // Before the first list of objects this is not needed: that list takes these reports into account.
            if self.adoption.lists.load(Ordering::Relaxed) {
                let namespaces = found.iter().map(|found| found.namespace.clone());
                missing = namespaces.fold(missing, Invalidation::with);
            }
            let deleted = index.without_report(|uid| listed.contains_key(uid));
            missing = deleted.into_iter().fold(missing, Invalidation::with);
        }
        self.rereads.defer(missing);
        self.adoption.set(true);
    }

    fn is_missing(&self, report: &WrittenReport) {
        let mut index = self.index.lock();
        index.written(&report.uid, None, None);
        if index.has_findings(&report.uid) {
            drop(index);
            self.rereads
                .defer(Invalidation::None.with(report.namespace.clone()));
        }
    }

    fn is_broken(&self, error: Error) {
        match ApiError::from(error) {
            ApiError::NotFound => self.api.rediscover(),
            // The watcher lists them again.
            ApiError::Expired(_) => tracing::debug!("{WATCHING}: the version of the watch has expired"),
            error => self.health.fails(WATCHING, &error.to_string()),
        }
    }
}
