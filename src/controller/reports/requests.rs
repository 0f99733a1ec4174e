//! The requests of the reports controller. Each owns what it needs, so that the controller continues meanwhile.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Client, core::ApiResource};
use serde_json::Value;
use tokio::time::Instant;

use super::events::event_on;
use super::report;
use super::report_api::ReportApi;
use super::stuck_pods::Explained;
use crate::cluster::custom_lists::CustomLists;
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::stored::StoredObject;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::scan::OwnerResult;

/// The field manager of reports.
const FIELD_MANAGER: &str = "transom-reports";

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// What the cluster serves.
    Discovered(Result<Option<ReportApi>, ApiError>, CustomLists),
    /// An owner as it is stored now.
    Read(Kind, WorkloadName, Result<Option<StoredObject>, ApiError>),
    /// A report was written or deleted.
    Wrote(Box<WriteResult>),
    /// Why pods are stuck.
    Explained(Explained),
    /// An Event was published, or not.
    Published,
}

/// What became of the write of a report.
#[derive(Debug)]
pub struct WriteResult {
    pub owner: WorkloadName,
    /// The hash of its content; `None`: it was to be deleted.
    pub content: Option<u64>,
    /// The Event on the owner to publish with it.
    pub event: Option<Event>,
    /// The resourceVersion of the report, if it is a number.
    pub result: Result<Option<u64>, ApiError>,
    /// How long the request took.
    pub took: Duration,
}

/// Asks the API server which report API and which custom resources it serves.
pub async fn discover(client: Client) -> (Result<Option<ReportApi>, ApiError>, CustomLists) {
    let found = ReportApi::of(&client).await;
    (found, CustomLists::read(&client, &[]).await)
}

/// Writes a report. `version`: the resourceVersion that it must still have, if known.
pub async fn apply(
    client: Client,
    api: ReportApi,
    owner: WorkloadName,
    version: Option<u64>,
    evaluated: Box<OwnerResult>,
) -> Answer {
    let (began, content) = (Instant::now(), report::content(&evaluated));
    let mut body = report::report(&evaluated, content.unwrap_or_default(), api, Timestamp::now());
    if let Some(version) = version {
        body["metadata"]["resourceVersion"] = Value::String(version.to_string());
    }
    let reports = reports(client, &api.resource(), &owner.namespace);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&body);
    let written = answered(reports.patch(&report::name(&owner), &params, &patch)).await;
    Answer::Wrote(Box::new(WriteResult {
        owner,
        content,
        event: event_on(&evaluated, Timestamp::now()),
        result: written.map(|written| written.metadata.resource_version.and_then(|it| it.parse().ok())),
        took: began.elapsed(),
    }))
}

/// Deletes a report. `version`: the resourceVersion that it must still have, if known.
pub async fn delete(client: Client, api: ReportApi, owner: WorkloadName, version: Option<u64>) -> Answer {
    let began = Instant::now();
    let reports = reports(client, &api.resource(), &owner.namespace);
    let unchanged = version.map(|version| Preconditions {
        resource_version: Some(version.to_string()),
        uid: None,
    });
    let params = DeleteParams {
        preconditions: unchanged,
        ..DeleteParams::default()
    };
    let deleted = answered(reports.delete(&report::name(&owner), &params)).await;
    Answer::Wrote(Box::new(WriteResult {
        owner,
        content: None,
        event: None,
        result: match deleted {
            Ok(_) | Err(ApiError::NotFound) => Ok(None),
            Err(failure) => Err(failure),
        },
        took: began.elapsed(),
    }))
}

fn reports(client: Client, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, resource)
}
