//! Deletes every report of one report API: when the cluster serves a preferred one, and when Transom is uninstalled.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, PartialObjectMeta, Preconditions};
use tokio::time::sleep;

use super::report_api::ReportApi;
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::lease::Leadership;
use crate::cluster::list::{Listing, Pages, for_each};
use crate::cluster::node::OWNED_LABEL;
use crate::cluster::rate_limit::{RateLimiter, backoff_interval};

/// How many are deleted in a second.
const PER_SECOND: u32 = 50;

/// What became of the reports of one kind.
#[derive(PartialEq, Eq, Debug)]
pub enum GarbageCollection {
    /// So many are deleted, and none is left; none where the cluster has no such kind.
    All(usize),
    /// They may not be seen: why.
    Unseen(String),
}

/// Deletes those of one kind, as long as it may.
///
/// # Errors
/// The API server refuses, or does not answer.
pub async fn sweep(
    client: &Client,
    api: ReportApi,
    may_go_on: impl Fn() -> bool,
) -> Result<GarbageCollection, ApiError> {
    let rate_limiter = RateLimiter::per_second(PER_SECOND);
    let resource = api.resource();
    let mut pages = Pages::of(listing(client, api));
    let mut count = 0;
    loop {
        let mut found = Vec::new();
        let read =
            |json: &str| found.extend(serde_json::from_str::<PartialObjectMeta<DynamicObject>>(json).ok());
        let more = match pages.next(client, read).await {
            Ok(more) => more,
            Err(ApiError::NotFound) => return Ok(GarbageCollection::All(count)),
            Err(ApiError::Forbidden(why)) => return Ok(GarbageCollection::Unseen(why)),
            Err(failure) => return Err(failure),
        };
        for seen in found {
            let meta = seen.metadata;
            let (Some(name), Some(namespace)) = (meta.name, meta.namespace) else {
                continue;
            };
            rate_limiter.turn().await;
            if !may_go_on() {
                return Ok(GarbageCollection::All(count));
            }
            let reports: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
            let unchanged = Preconditions {
                uid: meta.uid,
                ..Preconditions::default()
            };
            let params = DeleteParams::default().preconditions(unchanged);
            match answered(reports.delete(&name, &params)).await {
                Ok(_) => count += 1,
                Err(ApiError::NotFound | ApiError::Conflict) => {}
                Err(failure) => return Err(failure),
            }
        }
        if !more {
            return Ok(GarbageCollection::All(count));
        }
    }
}

/// How many there are of one kind.
///
/// # Errors
/// The API server refuses, or does not answer; [`ApiError::NotFound`] if the cluster has no such kind.
pub async fn count(client: &Client, api: ReportApi) -> Result<usize, ApiError> {
    let counted = for_each(client, listing(client, api), |_| ()).await;
    counted.map_err(|error| error.why)
}

/// Every report of one kind that Transom wrote.
fn listing(client: &Client, api: ReportApi) -> Listing {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &api.resource());
    Listing::new(all.resource_url())
        .with_labels(OWNED_LABEL.0)
        .metadata_only()
}

/// Deletes the reports of the report APIs that are not `kept`, and tries again after a failure. Then it waits forever.
pub async fn keep_only(
    client: Client,
    kept: ReportApi,
    leadership: Leadership,
    retry: Duration,
) -> Infallible {
    let mut attempts = 0;
    while !sweep_all_but(&client, kept, &leadership).await {
        attempts += 1;
        sleep(backoff_interval(retry, attempts)).await;
    }
    pending().await
}

/// Deletes the reports of the report APIs that are not `kept`; returns whether none is left.
async fn sweep_all_but(client: &Client, kept: ReportApi, leadership: &Leadership) -> bool {
    let mut is_done = true;
    for other in ReportApi::ALL.into_iter().filter(|other| *other != kept) {
        match sweep(client, other, || leadership.holds()).await {
            Ok(GarbageCollection::All(0)) => {}
            Ok(GarbageCollection::All(count)) => {
                tracing::info!("{count} reports of {other} are deleted: another kind is in use");
            }
            Ok(GarbageCollection::Unseen(why)) => {
                tracing::info!("the reports of {other} were not searched for: {why}");
            }
            Err(failure) => {
                tracing::warn!("cannot delete the reports of {other}: {failure}");
                is_done = false;
            }
        }
    }
    is_done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::list::tests::{page, server};

    /// The API server sets no `remainingItemCount` for a list with a label selector.
    #[tokio::test]
    async fn reports_are_counted_on_every_page() {
        let (client, requests) = server(|uri, _| match uri {
            uri if uri.contains("continue=third") => page(&["e"], ""),
            uri if uri.contains("continue=second") => page(&["c", "d"], "third"),
            _ => page(&["a", "b"], "second"),
        });
        assert_eq!(count(&client, ReportApi::OpenReports).await, Ok(5));
        let requests = requests.lock().unwrap();
        let selects = |uri: &String| uri.contains("labelSelector") && uri.contains("owned");
        assert!(
            requests.len() == 3 && requests.iter().all(selects),
            "{requests:?}"
        );
    }
}
