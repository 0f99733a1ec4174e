//! Lists of the API server, read page by page and object by object. Nothing else in the crate knows limits, continue tokens,
//! expired tokens (410), retries and timeouts of a list.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use kube::Client;
use kube::api::{GetParams, ListParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::errors::{ApiError, answered_within};
use super::json_items::Sequence;
use super::object_stream::{LARGEST, ObjectStream, ObjectText, StreamedObject, TIMEOUT, name_in};
use crate::model::objects::workload::Kind;
use crate::model::syntax::json::at;

/// The kinds that carry pods, with the paths of their lists: owners before what they own, so that the owner of a pod is
/// known by then.
pub const POD_CARRIERS: [(Kind, &str); 9] = [
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

/// The path of the list of nodes.
pub const NODES_PATH: &str = "/api/v1/nodes";

/// The objects of the first page: an object may have megabytes, and the API server holds a page in one piece.
pub(super) const FIRST_PAGE: u32 = 10;
/// The most objects of a page.
pub(super) const LONGEST_PAGE: u32 = 100;
/// A page of more bytes is followed by a shorter one.
const LARGE: usize = 1 << 20;
/// How often a page is requested, in all, if the error is one that may pass.
const ATTEMPTS: u32 = 3;
/// The pause before another attempt, unless the API server asks for another one.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause that the API server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often a list may continue after its token has expired, before it is given up: the cluster changes faster than
/// it is read.
const MOST_CONTINUED: u32 = 100;
/// How often it may start again, because the API server gives no token to continue with.
pub(super) const MOST_RESTARTS: u32 = 5;

/// The objects that a list request selects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    path: String,
    field_selector: Option<String>,
    label_selector: Option<String>,
    is_metadata_only: bool,
}

impl Listing {
    /// Everything at a path, as in `/api/v1/nodes`.
    pub fn new(path: impl Into<String>) -> Self {
        Listing {
            path: path.into(),
            field_selector: None,
            label_selector: None,
            is_metadata_only: false,
        }
    }

    /// The objects of a kind at its path, without the pods that have ended: they never run again.
    pub fn of(kind: Kind, path: &str) -> Self {
        Listing {
            field_selector: finished_pods_excluded(kind).map(str::to_owned),
            ..Listing::new(path)
        }
    }

    /// The objects of a kind that carries pods, including the pods that have ended; `None` for other kinds.
    pub fn of_pod_carrier(kind: Kind) -> Option<Self> {
        let (_, path) = POD_CARRIERS.iter().find(|(listed, _)| *listed == kind)?;
        Some(Listing::new(*path))
    }

    /// Only the objects of one namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        let path = match self.path.rsplit_once('/') {
            Some((group, resource)) => format!("{group}/namespaces/{namespace}/{resource}"),
            None => self.path,
        };
        Listing { path, ..self }
    }

    /// Only the objects with these labels, as in `team=a`.
    #[must_use]
    pub fn with_labels(self, selector: &str) -> Self {
        Listing {
            label_selector: Some(selector.to_owned()),
            ..self
        }
    }

    /// Only the objects with these fields, as in `spec.nodeName=a`.
    #[must_use]
    pub fn with_fields(self, selector: &str) -> Self {
        Listing {
            field_selector: Some(selector.to_owned()),
            ..self
        }
    }

    /// Only the metadata of each object.
    #[must_use]
    pub fn metadata_only(self) -> Self {
        Listing {
            is_metadata_only: true,
            ..self
        }
    }

    /// The resource, as in `pods`.
    pub fn resource(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// One of the objects, as JSON.
    ///
    /// # Errors
    /// The API server refuses, or does not answer; [`ApiError::NotFound`] if there is no such object.
    pub async fn get(&self, client: &Client, name: &str) -> Result<ObjectText, ApiError> {
        let (request, params) = (Request::new(&self.path), GetParams::default());
        let request = if self.is_metadata_only {
            request.get_metadata(name, &params)
        } else {
            request.get(name, &params)
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let read = async {
            let mut objects = ObjectStream::open(client, request, Sequence::Values).await?;
            objects.next().await
        };
        match answered_within(TIMEOUT, read).await? {
            Some(StreamedObject::Whole(object)) => Ok(object),
            Some(StreamedObject::TooLarge(beginning)) => Err(too_large(&beginning)),
            None => Err(ApiError::Unavailable("the answer is not an object".to_owned())),
        }
    }

    /// Hands at most so many of the objects to `visit`, as JSON: the first ones, on one page.
    ///
    /// # Errors
    /// The API server refuses, or does not answer with a list.
    pub async fn first(
        &self,
        client: &Client,
        most: u32,
        visit: impl FnMut(&str) + Send,
    ) -> Result<(), ApiError> {
        let mut pages = Pages::of(self.clone());
        pages.params.limit = Some(most);
        pages.next(client, visit).await.map(drop)
    }
}

/// The field selector that excludes finished pods from lists and watches.
pub fn finished_pods_excluded(kind: Kind) -> Option<&'static str> {
    (kind == Kind::Pod).then_some("status.phase!=Succeeded,status.phase!=Failed")
}

/// A list that could not be read to its end.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("cannot list {path}: {why}")]
pub struct ListError {
    /// What was being listed.
    pub path: String,
    /// How many objects were read until then.
    pub read: usize,
    pub why: ApiError,
}

/// A part of the cluster that could not be read, or not to its end; what was read is complete without it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadPart {
    /// The resource, as in `jobs`.
    pub resource: String,
    /// The namespace, if only that one was listed.
    pub namespace: Option<String>,
    pub why: String,
    /// Whether the right to read it is missing.
    pub is_forbidden: bool,
    /// Whether the API server does not know the resource: Transom's own ones before it is installed.
    pub is_unknown: bool,
    /// Whether it is a custom resource that describes pods.
    pub is_custom: bool,
    /// How many objects of it were read until then.
    pub read: usize,
}

impl UnreadPart {
    /// A resource that could not be read at all.
    pub fn new(resource: impl Into<String>, why: &ApiError) -> Self {
        UnreadPart {
            resource: resource.into(),
            namespace: None,
            why: why.to_string(),
            is_forbidden: matches!(why, ApiError::Forbidden(_)),
            is_unknown: *why == ApiError::NotFound,
            is_custom: false,
            read: 0,
        }
    }

    /// Why, and how many objects were read until then.
    pub fn reason(&self) -> String {
        match self.read {
            0 => self.why.clone(),
            read => format!("{}; {read} of them were read", self.why),
        }
    }
}

/// Hands every object of a list to `visit`, as JSON. Returns how many there were.
///
/// # Errors
/// The list cannot be read to its end.
pub async fn for_each(
    client: &Client,
    listing: Listing,
    mut visit: impl FnMut(&str) + Send,
) -> Result<usize, ListError> {
    let mut pages = Pages::of(listing);
    loop {
        match pages.next(client, &mut visit).await {
            Ok(true) => {}
            Ok(false) => return Ok(pages.read),
            Err(why) => return Err(pages.error(why)),
        }
    }
}

/// Hands every object of a list to `visit`, and those that are not what their kind says to `unreadable`, by name.
///
/// # Errors
/// The list cannot be read to its end.
pub async fn for_each_as<T: DeserializeOwned>(
    client: &Client,
    listing: Listing,
    mut visit: impl FnMut(T, &str) + Send,
    mut unreadable: impl FnMut(&str, &serde_json::Error) + Send,
) -> Result<usize, ListError> {
    for_each(client, listing, |json| match serde_json::from_str(json) {
        Ok(object) => visit(object, json),
        Err(error) => {
            // As JSON, in quotes; a name of Kubernetes needs no escape.
            let name = at(json, &["metadata", "name"]).unwrap_or_default();
            unreadable(name.trim_matches('"'), &error);
        }
    })
    .await
}

/// Every object of a list.
///
/// # Errors
/// The list cannot be read to its end, or one of its objects is not what its kind says.
pub async fn collect<T: DeserializeOwned + Send>(
    client: &Client,
    listing: Listing,
) -> Result<Vec<T>, ApiError> {
    let (mut all, mut unreadable) = (Vec::new(), None);
    let note = |name: &str, error: &serde_json::Error| {
        unreadable.get_or_insert_with(|| ApiError::Other(format!("{name} does not parse: {error}")));
    };
    let listed = for_each_as(client, listing, |object, _| all.push(object), note).await;
    listed.map_err(|error| error.why)?;
    unreadable.map_or(Ok(all), Err)
}

/// A list that is read page by page, as fast as its reader asks for them. Its reader sees each object once, also if a page is
/// requested again.
#[derive(Debug)]
pub struct Pages {
    listing: Listing,
    params: ListParams,
    is_over: bool,
    /// How often it continued with another token.
    continued: u32,
    /// How often it started again.
    restarts: u32,
    /// How many objects were visited.
    read: usize,
    /// How many follow the last page, if the API server reports it.
    remaining: Option<u64>,
    /// The uids of the objects that were visited, as numbers.
    visited: HashSet<u64>,
    hashes: RandomState,
    /// The first object that is too large to be read.
    too_large: Option<ApiError>,
}

/// A list without its objects.
#[derive(Deserialize)]
struct ListEnvelope {
    #[serde(default)]
    metadata: PageMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    #[serde(rename = "continue")]
    continue_token: Option<String>,
    remaining_item_count: Option<u64>,
}

impl Pages {
    /// A list at its beginning. Without a resourceVersion: with `resourceVersion=0` the API server ignores the limit
    /// and answers with everything, which for pods of a large cluster are hundreds of megabytes.
    pub fn of(listing: Listing) -> Self {
        let params = ListParams {
            field_selector: listing.field_selector.clone(),
            label_selector: listing.label_selector.clone(),
            ..ListParams::default().limit(FIRST_PAGE)
        };
        Pages {
            listing,
            params,
            is_over: false,
            continued: 0,
            restarts: 0,
            read: 0,
            remaining: None,
            visited: HashSet::new(),
            hashes: RandomState::new(),
            too_large: None,
        }
    }

    /// How many objects follow the last page, if the API server reports it.
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// The list, as an error for this reason.
    pub fn error(&self, why: ApiError) -> ListError {
        ListError {
            path: self.listing.path.clone(),
            read: self.read,
            why,
        }
    }

    /// Hands every object of the next page to `visit`. Returns whether there is another page.
    ///
    /// # Errors
    /// The page cannot be read. A continue token that has expired is not an error: the list continues, or starts again, in
    /// what is stored now. After the last page: [`ApiError::ObjectTooLarge`] if an object could not be visited for its size.
    pub async fn next(&mut self, client: &Client, mut visit: impl FnMut(&str)) -> Result<bool, ApiError> {
        if self.is_over {
            return Ok(false);
        }
        self.page(client, &mut visit).await?;
        match self.too_large.take_if(|_| self.is_over) {
            Some(error) => Err(error),
            None => Ok(!self.is_over),
        }
    }

    fn is_new(&mut self, json: &str) -> bool {
        let uid = at(json, &["metadata", "uid"]);
        uid.is_none_or(|uid| self.visited.insert(self.hashes.hash_one(uid)))
    }

    /// Reads the next page. Tries again after errors that may pass, and after an expired token.
    async fn page(&mut self, client: &Client, visit: &mut impl FnMut(&str)) -> Result<(), ApiError> {
        let mut attempts = 1;
        loop {
            let Err(error) = self.request(client, visit).await else {
                return Ok(());
            };
            match error {
                ApiError::Expired(Some(token)) if self.continued < MOST_CONTINUED => {
                    self.continued += 1;
                    self.params.continue_token = Some(token);
                }
                ApiError::Expired(None) if self.restarts < MOST_RESTARTS => {
                    self.restarts += 1;
                    self.params.continue_token = None;
                }
                ApiError::Expired(_) => {
                    let why = "the list expired repeatedly while it was read: the cluster changes faster than it answers";
                    return Err(ApiError::Other(why.to_owned()));
                }
                error if attempts < ATTEMPTS && error.is_transient() => {
                    attempts += 1;
                    let pause = error.retry_after().unwrap_or(PAUSE);
                    tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
                }
                error => return Err(error),
            }
        }
    }

    async fn request(&mut self, client: &Client, visit: &mut impl FnMut(&str)) -> Result<(), ApiError> {
        let request = Request::new(&self.listing.path);
        let request = if self.listing.is_metadata_only {
            request.list_metadata(&self.params)
        } else {
            request.list(&self.params)
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let opened = ObjectStream::open(client, request, Sequence::List);
        let mut objects = answered_within(TIMEOUT, opened).await?;
        while let Some(object) = objects.next().await? {
            match object {
                StreamedObject::Whole(json) if self.is_new(&json) => {
                    self.read += 1;
                    visit(&json);
                }
                StreamedObject::Whole(_) => {}
                StreamedObject::TooLarge(beginning) => {
                    self.too_large.get_or_insert_with(|| too_large(&beginning));
                }
            }
        }
        let not_a_list = |error| {
            let path = &self.listing.path;
            ApiError::Unavailable(format!("the answer is not a list of {path}: {error}"))
        };
        let ListEnvelope { metadata } = serde_json::from_slice(objects.around()).map_err(not_a_list)?;
        self.remaining = metadata.remaining_item_count;
        let requested = self.params.limit.unwrap_or(FIRST_PAGE);
        self.params.limit = Some(next_limit(requested, objects.bytes()));
        self.params.continue_token = metadata.continue_token.filter(|token| !token.is_empty());
        self.is_over = self.params.continue_token.is_none();
        Ok(())
    }
}

fn too_large(beginning: &str) -> ApiError {
    let (name, most) = (name_in(beginning), LARGEST >> 20);
    ApiError::ObjectTooLarge(format!("{name} has more than {most} MiB and was not read"))
}

/// How many objects to request after a page of so many had so many bytes: pages become longer while objects are small.
pub(super) fn next_limit(requested: u32, bytes: usize) -> u32 {
    let fitting = LARGE.saturating_mul(requested as usize) / bytes.max(1);
    let longest = requested.saturating_mul(2).clamp(1, LONGEST_PAGE);
    u32::try_from(fitting).unwrap_or(longest).clamp(1, longest)
}

#[cfg(test)]
pub(crate) mod tests;
