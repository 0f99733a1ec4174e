//! Reading through every object of the cluster that carries a pod, page by page, as raw JSON.

use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::{ApiError, answered_within};
use crate::model::workload::Kind;

/// The kinds that are read, with their paths: owners before what they own, so that a pod's owner is known by then.
pub const LISTS: [(Kind, &str); 9] = [
    (Kind::PodTemplate, "/api/v1/podtemplates"),
    (Kind::Deployment, "/apis/apps/v1/deployments"),
    (Kind::ReplicaSet, "/apis/apps/v1/replicasets"),
    (Kind::StatefulSet, "/apis/apps/v1/statefulsets"),
    (Kind::DaemonSet, "/apis/apps/v1/daemonsets"),
    (Kind::ReplicationController, "/api/v1/replicationcontrollers"),
    (Kind::CronJob, "/apis/batch/v1/cronjobs"),
    (Kind::Job, "/apis/batch/v1/jobs"),
    (Kind::Pod, "/api/v1/pods"),
];

/// Where pods run: nodes, and what RuntimeClasses add to pods.
pub const AROUND: [(Kind, &str); 2] = [
    (Kind::Node, "/api/v1/nodes"),
    (Kind::RuntimeClass, "/apis/node.k8s.io/v1/runtimeclasses"),
];

/// How many objects are asked for at once. An object may have more than a megabyte, and a page is held in one piece.
pub const PAGE: u32 = 100;

/// How long one page may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A survey that could not be finished; nothing can be concluded from what was seen until then.
#[derive(thiserror::Error, Debug)]
pub enum SurveyError {
    /// The API server refused, or did not answer in time.
    #[error("cannot list {path}: {why}")]
    List {
        /// What was being listed.
        path: &'static str,
        /// Why.
        why: ApiError,
    },
    /// It answered with something else than a list.
    #[error("cannot read the list of {path}: {source}")]
    Read {
        /// What was being listed.
        path: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// One of the objects is not what its kind says.
    #[error("cannot read a {kind}: {reason}")]
    Object {
        /// What was being read.
        kind: Kind,
        /// Why.
        reason: String,
    },
}

#[derive(Deserialize)]
struct SurveyPage<'a> {
    #[serde(default)]
    metadata: SurveyPageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
struct SurveyPageMeta {
    #[serde(default, rename = "continue")]
    more: Option<String>,
}

/// Hands every object that carries a pod to `visit`, as JSON; finished pods are left out.
///
/// Pages of [`PAGE`] objects without a resourceVersion: with `resourceVersion=0` the API server ignores the limit and answers with
/// everything at once, which for pods of a large cluster are hundreds of megabytes.
///
/// # Errors
/// When one of the lists cannot be read to its end.
pub async fn visit_pod_carriers(
    client: &Client,
    visit: impl FnMut(Kind, &str) + Send,
) -> Result<(), SurveyError> {
    visit_lists(client, &LISTS, visit).await
}

/// Hands every node and every RuntimeClass to `visit`, as JSON.
///
/// # Errors
/// When one of the lists cannot be read to its end.
pub async fn visit_nodes(client: &Client, visit: impl FnMut(Kind, &str) + Send) -> Result<(), SurveyError> {
    visit_lists(client, &AROUND, visit).await
}

async fn visit_lists(
    client: &Client,
    lists: &[(Kind, &'static str)],
    mut visit: impl FnMut(Kind, &str) + Send,
) -> Result<(), SurveyError> {
    for (kind, path) in lists.iter().copied() {
        visit_list(client, kind, path, &mut visit).await?;
    }
    Ok(())
}

/// Hands every object of one list to `visit`, as JSON.
///
/// # Errors
/// When it cannot be read to its end.
pub async fn visit_list(
    client: &Client,
    kind: Kind,
    path: &'static str,
    visit: &mut (impl FnMut(Kind, &str) + Send),
) -> Result<(), SurveyError> {
    let mut params = ListParams::default().limit(PAGE);
    if kind == Kind::Pod {
        params = params.fields("status.phase!=Succeeded,status.phase!=Failed");
    }
    loop {
        let body = page(client, path, &params).await?;
        let page: SurveyPage<'_> =
            serde_json::from_str(&body).map_err(|source| SurveyError::Read { path, source })?;
        for item in page.items.iter().flatten() {
            visit(kind, item.get());
        }
        match page.metadata.more.filter(|more| !more.is_empty()) {
            Some(more) => params.continue_token = Some(more),
            None => return Ok(()),
        }
    }
}

async fn page(client: &Client, path: &'static str, params: &ListParams) -> Result<String, SurveyError> {
    let answer = async {
        let request = kube::core::Request::new(path).list(params);
        client
            .request_text(request.map_err(kube::Error::BuildRequest)?)
            .await
    };
    let answer = answered_within(PATIENCE, answer).await;
    answer.map_err(|why| SurveyError::List { path, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_carries_a_pod_is_read_and_pods_after_their_owners() {
        for kind in Kind::ALL.into_iter().filter(|kind| kind.has_pod()) {
            assert!(LISTS.iter().any(|(listed, _)| *listed == kind), "{kind}");
        }
        assert_eq!(LISTS.last().map(|(kind, _)| *kind), Some(Kind::Pod));
    }
}
