//! The reports that are there: those of an earlier leader are known before anything is written, and one that is taken away
//! by another hand comes back. Only their metadata is read.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{Config, Error, Event};
use kube::runtime::{WatchStreamExt as _, watcher};

use super::dialect::Dialect;
use super::ledger::MOST_OWNERS;
use super::report::{CONTENT, LABEL};
use super::session::Session;
use crate::model::workload::Kind;

/// Reports per page of a list: metadata is small.
const PAGE: u32 = 500;
/// What is said where the reports that are there cannot be read.
const DOING: &str = "cannot watch the reports";

/// A report that is there: its owner, and what it says.
struct Found {
    kind: Kind,
    namespace: String,
    uid: String,
    says: u64,
}

impl Found {
    fn read(report: &PartialObjectMeta<DynamicObject>) -> Option<Self> {
        let meta = &report.metadata;
        let owner = meta.owner_references.iter().flatten().next()?;
        let says = meta.annotations.iter().flatten().find(|(key, _)| *key == CONTENT);
        Some(Found {
            kind: Kind::of_api_version(&owner.api_version, &owner.kind)?,
            namespace: meta.namespace.clone()?,
            uid: owner.uid.clone(),
            // One that says something else is written anew.
            says: says.map_or(0, |(_, says)| u64::from_str_radix(says, 16).unwrap_or_default()),
        })
    }
}

impl Session<'_> {
    /// Follows the reports that are there, whichever kind of report there is.
    pub async fn mind_reports(&self) {
        let mut dialects = self.dialects();
        loop {
            let dialect = *dialects.borrow_and_update();
            let follow = async {
                match dialect {
                    Some(dialect) => self.mind(dialect).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = follow => (),
                changed = dialects.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn mind(&self, dialect: Dialect) {
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.client().clone(), &dialect.resource());
        let config = Config::default()
            .labels(&format!("{}={}", LABEL.0, LABEL.1))
            .page_size(PAGE);
        let mut events = std::pin::pin!(watcher(api, config).default_backoff());
        let mut listed = HashMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(report)) => {
                    let found = Found::read(&report).filter(|_| listed.len() < MOST_OWNERS);
                    listed.extend(found.map(|found| (found.uid.clone(), found)));
                }
                Ok(Event::InitDone) => {
                    self.works(DOING);
                    self.adopt(&listed);
                    listed.clear();
                }
                Ok(Event::Apply(_)) => (),
                Ok(Event::Delete(report)) => {
                    if let Some(found) = Found::read(&report) {
                        self.is_missing(&found.uid);
                    }
                }
                Err(error) => self.is_broken(&error),
            }
        }
    }

    /// Everything that is there, and nothing else, is there.
    fn adopt(&self, listed: &HashMap<String, Found>) {
        let missing = {
            let mut ledger = self.ledger();
            for found in listed.values() {
                ledger.found(found.kind, &found.namespace, &found.uid, found.says);
            }
            ledger.without_report(|uid| listed.contains_key(uid))
        };
        if missing > 0 {
            self.is_late();
        }
        self.is_adopted.store(true, Ordering::Relaxed);
    }

    fn is_missing(&self, uid: &str) {
        let mut ledger = self.ledger();
        ledger.written(uid, None);
        if ledger.has_findings(uid) {
            drop(ledger);
            self.is_late();
        }
    }

    fn is_broken(&self, error: &Error) {
        let status = match error {
            Error::InitialListFailed(kube::Error::Api(status))
            | Error::WatchStartFailed(kube::Error::Api(status))
            | Error::WatchFailed(kube::Error::Api(status))
            | Error::WatchError(status) => Some(status),
            _ => None,
        };
        match status {
            Some(status) if status.code == 404 => self.ask_for_dialect(),
            Some(status) if status.code == 403 => self.complain(DOING, &status.message),
            _ => tracing::debug!("{DOING}: {error}"),
        }
    }
}
