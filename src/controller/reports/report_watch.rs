//! Watches the stored reports: reports of an earlier leader are known before anything is written, and reports that
//! others delete or edit are restored. Only their metadata is read.

use std::collections::HashMap;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use kube::Client;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{Config, Event};

use super::owner_index::{MOST_OWNERS, WrittenReport};
use super::report::{CONTENT, name};
use super::report_api::ReportApi;
use crate::cluster::errors::ApiError;
use crate::cluster::node::OWNED_LABEL;
use crate::cluster::watch::watch_events;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;

/// Reports per page of a list: metadata is small.
const PAGE: u32 = 500;

type ReportMeta = PartialObjectMeta<DynamicObject>;

/// What is known of stored reports.
#[derive(Debug)]
pub enum ReportChange {
    /// All of them, by the uid of their owners.
    Listed(HashMap<Box<str>, WrittenReport>),
    Written(WrittenReport),
    Deleted(WrittenReport),
    /// They cannot be read.
    Failed(ApiError),
}

/// Watches the stored reports of one report API.
pub struct ReportWatch {
    events: BoxStream<'static, Result<Event<ReportMeta>, ApiError>>,
    /// The pages of a list so far.
    listed: HashMap<Box<str>, WrittenReport>,
}

impl ReportWatch {
    /// Watches the reports of this API; without one nothing happens.
    pub fn new(client: &Client, api: Option<ReportApi>) -> Self {
        let events = match api {
            Some(api) => {
                let reports: Api<ReportMeta> = Api::all_with(client.clone(), &api.resource());
                let config = Config::default().labels(OWNED_LABEL.0);
                watch_events(reports, config.page_size(PAGE)).boxed()
            }
            None => stream::pending().boxed(),
        };
        ReportWatch {
            events,
            listed: HashMap::new(),
        }
    }

    /// The next change. Cancel safe.
    pub async fn next(&mut self) -> ReportChange {
        loop {
            let Some(event) = self.events.next().await else {
                return std::future::pending().await;
            };
            match event {
                Ok(Event::Init) => self.listed.clear(),
                Ok(Event::InitApply(report)) => {
                    let found = read(&report).filter(|_| self.listed.len() < MOST_OWNERS);
                    self.listed
                        .extend(found.map(|found| (found.owner.uid.clone(), found)));
                }
                Ok(Event::InitDone) => return ReportChange::Listed(std::mem::take(&mut self.listed)),
                Ok(Event::Apply(report)) => {
                    if let Some(found) = read(&report) {
                        return ReportChange::Written(found);
                    }
                }
                Ok(Event::Delete(report)) => {
                    if let Some(found) = read(&report) {
                        return ReportChange::Deleted(found);
                    }
                }
                Err(error) => return ReportChange::Failed(error),
            }
        }
    }
}

fn read(report: &PartialObjectMeta<DynamicObject>) -> Option<WrittenReport> {
    let meta = &report.metadata;
    let owner = meta.owner_references.iter().flatten().next()?;
    let kind = Kind::of_api_version(&owner.api_version, &owner.kind)?;
    let namespace = meta.namespace.as_deref()?;
    let owner = WorkloadName::of(kind, namespace, &owner.name).with_uid(&owner.uid);
    if meta.name.as_ref() != Some(&name(&owner)) {
        // Somebody wrote it with Transom's label.
        return None;
    }
    let content_hash = meta.annotations.iter().flatten().find(|(key, _)| *key == CONTENT);
    Some(WrittenReport {
        kind,
        owner,
        // A report with another content is written again.
        content_hash: content_hash.map_or(0, |(_, content_hash)| {
            u64::from_str_radix(content_hash, 16).unwrap_or_default()
        }),
        version: meta.resource_version.as_deref().and_then(|it| it.parse().ok()),
    })
}
