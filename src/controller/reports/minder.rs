//! Watches the stored reports: reports of an earlier leader are known before anything is written, and reports that
//! others delete or edit are restored. Only their metadata is read.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher;
use kube::runtime::watcher::{Config, Error, Event};
use tokio::time::{Instant, sleep};

use super::basis::Invalidation;
use super::dialect::ReportApi;
use super::ledger::{MOST_OWNERS, WrittenReport};
use super::report::{CONTENT, LABEL};
use super::session::ReportsController;
use crate::cluster::errors::words;
use crate::model::workload::Kind;

/// Reports per page of a list: metadata is small.
const PAGE: u32 = 500;
/// The first back-off after a failure; doubled after each further one.
const FIRST: Duration = Duration::from_secs(1);
/// The longest back-off after a failure.
const LONGEST: Duration = Duration::from_secs(60);
/// A watch that worked for this long resets the back-off.
const STEADY: Duration = Duration::from_secs(60);
/// The log message if the stored reports cannot be read.
const DOING: &str = "cannot watch the reports";

fn read(report: &PartialObjectMeta<DynamicObject>) -> Option<WrittenReport> {
    let meta = &report.metadata;
    let owner = meta.owner_references.iter().flatten().next()?;
    let says = meta.annotations.iter().flatten().find(|(key, _)| *key == CONTENT);
    Some(WrittenReport {
        kind: Kind::of_api_version(&owner.api_version, &owner.kind)?,
        namespace: meta.namespace.clone()?,
        uid: owner.uid.clone(),
        // A report with another content is written again.
        says: says.map_or(0, |(_, says)| u64::from_str_radix(says, 16).unwrap_or_default()),
        version: meta.resource_version.as_deref().and_then(|it| it.parse().ok()),
    })
}

impl ReportsController<'_> {
    /// Follows the stored reports of the report API that the cluster serves.
    pub async fn mind_reports(&self) {
        let mut dialects = self.dialects();
        let mut wait = FIRST;
        loop {
            let dialect = *dialects.borrow_and_update();
            let began = Instant::now();
            let follow = async {
                match dialect {
                    Some(dialect) => self.mind(dialect).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = follow => {
                    if began.elapsed() >= STEADY {
                        wait = FIRST;
                    }
                    sleep(wait).await;
                    wait = (wait * 2).min(LONGEST);
                }
                changed = dialects.changed() => {
                    self.works(DOING);
                    if changed.is_err() { return }
                }
            }
        }
    }

    /// Follows them until a failure.
    async fn mind(&self, dialect: ReportApi) {
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.client().clone(), &dialect.resource());
        let config = Config::default()
            .labels(&format!("{}={}", LABEL.0, LABEL.1))
            .page_size(PAGE);
        let mut events = std::pin::pin!(watcher(api, config));
        let mut listed = HashMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(report)) => {
                    let found = read(&report).filter(|_| listed.len() < MOST_OWNERS);
                    listed.extend(found.map(|found| (found.uid.clone(), found)));
                }
                Ok(Event::InitDone) => {
                    self.works(DOING);
                    self.adopt(&listed);
                    listed.clear();
                }
                Ok(Event::Apply(report)) => {
                    let found = read(&report);
                    if let Some(found) = found.filter(|found| self.ledger().found(found)) {
                        self.is_late(Invalidation::None.with(found.namespace));
                    }
                }
                Ok(Event::Delete(report)) => {
                    if let Some(found) = read(&report) {
                        self.is_missing(&found);
                    }
                }
                Err(error) => return self.is_broken(&error),
            }
        }
    }

    /// Takes over the complete list of stored reports.
    fn adopt(&self, listed: &HashMap<String, WrittenReport>) {
        let mut anew = Invalidation::None;
        {
            let mut ledger = self.ledger();
            let found = listed.values().filter(|found| ledger.found(found));
            let found: Vec<&WrittenReport> = found.collect();
            // Before the first list of objects this is not needed: that list takes these reports into account.
            if self.has_begun.load(Ordering::Relaxed) {
                anew = found
                    .iter()
                    .fold(anew, |anew, found| anew.with(found.namespace.clone()));
            }
            let missing = ledger.without_report(|uid| listed.contains_key(uid));
            anew = missing.into_iter().fold(anew, Invalidation::with);
        }
        if anew != Invalidation::None {
            self.is_late(anew);
        }
        self.is_adopted.send_replace(true);
    }

    fn is_missing(&self, report: &WrittenReport) {
        let mut ledger = self.ledger();
        ledger.written(&report.uid, None, None);
        if ledger.has_findings(&report.uid) {
            drop(ledger);
            self.is_late(Invalidation::None.with(report.namespace.clone()));
        }
    }

    fn is_broken(&self, error: &Error) {
        let (status, other) = match error {
            Error::InitialListFailed(kube::Error::Api(status))
            | Error::WatchStartFailed(kube::Error::Api(status))
            | Error::WatchFailed(kube::Error::Api(status))
            | Error::WatchError(status) => (Some(status), None),
            Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
                (None, Some(error))
            }
            Error::NoResourceVersion => (None, None),
        };
        match (status, other) {
            (Some(status), _) if status.code == 404 => self.ask_for_dialect(),
            // The watcher lists them again.
            (Some(status), _) if status.code == 410 => tracing::debug!("{DOING}: {}", status.message),
            (Some(status), _) => self.complain(DOING, &status.message),
            (None, Some(other)) => self.complain(DOING, &words(other)),
            (None, None) => self.complain(DOING, &error.to_string()),
        }
    }
}
