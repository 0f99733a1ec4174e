//! Walking through every object of a cluster, or of some namespaces, that carries a pod, for commands that say what they could
//! not read and go on. Where one unread list makes the whole of no use, `survey` reads.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::words;
use super::survey::{LISTS, PAGE};
use crate::model::json::at;
use crate::model::workload::Kind;

/// How long one page may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a page is asked for that fails for a reason that may pass.
const TRIES: u32 = 3;
/// How long it rests between.
const REST: Duration = Duration::from_secs(1);
/// How often a list is begun anew whose place has expired, before it is given up.
const RESTARTS: u32 = 5;

/// A list that could not be read to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListFailure {
    /// The resource, as in `jobs`.
    pub resource: String,
    /// The namespace, where only that one was asked for.
    pub namespace: Option<String>,
    /// Why, in words.
    pub why: String,
    /// Whether the right to list it is missing.
    pub is_forbidden: bool,
    /// How many objects of it were read until then.
    pub read: usize,
}

/// What is met on the way.
#[derive(Clone, Copy, Debug)]
pub enum ListItem<'m> {
    /// A list begins, or goes on: the resource, and how many objects of it are left after this page, where the API server
    /// tells.
    List(&'m str, Option<u64>),
    /// An object, as JSON.
    Object(Kind, &'m str),
}

#[derive(Deserialize)]
struct WalkPage<'a> {
    #[serde(default)]
    metadata: WalkPageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WalkPageMeta {
    #[serde(rename = "continue")]
    more: Option<String>,
    remaining_item_count: Option<u64>,
}

/// Why a page did not come.
enum PageError {
    /// The place in the list has expired; the API server may give another one, in what is stored now.
    Expired(Option<String>),
    Failed {
        why: String,
        is_forbidden: bool,
        may_pass: bool,
    },
}

impl From<kube::Error> for PageError {
    fn from(error: kube::Error) -> Self {
        let code = match &error {
            kube::Error::Api(status) => status.code,
            _ => 0,
        };
        match error {
            kube::Error::Api(status) if code == 410 => {
                let more = status.metadata.and_then(|list| list.continue_);
                PageError::Expired(more.filter(|more| !more.is_empty()))
            }
            error => PageError::Failed {
                why: words(&error),
                is_forbidden: code == 403,
                may_pass: matches!(code, 0 | 429 | 500..),
            },
        }
    }
}

/// Hands every object that carries a pod to `meet`, owners before what they own, page by page; finished pods are left out.
/// `namespaces`: those that are looked at, each listed by itself; empty: all of them, together.
///
/// No more than a page is held, and of each object of the list that is being read a number. An object is met once, however
/// often its list is begun anew.
pub async fn walk(
    client: &Client,
    namespaces: &[String],
    mut meet: impl FnMut(ListItem<'_>) + Send,
) -> Vec<ListFailure> {
    let mut unlisted = Vec::new();
    for (kind, path) in LISTS {
        let (group, resource) = path.rsplit_once('/').unwrap_or((path, ""));
        if namespaces.is_empty() {
            let list = ListWalk::new(client, kind, resource, path.to_owned(), None);
            unlisted.extend(list.run(&mut meet).await);
        }
        for namespace in namespaces {
            let path = format!("{group}/namespaces/{namespace}/{resource}");
            let list = ListWalk::new(client, kind, resource, path, Some(namespace));
            unlisted.extend(list.run(&mut meet).await);
        }
    }
    unlisted
}

/// One list on its way.
struct ListWalk<'w> {
    client: &'w Client,
    kind: Kind,
    resource: &'w str,
    path: String,
    namespace: Option<&'w str>,
    /// Of each object that was met its uid, as a number: an object of a list that is begun anew is known by it.
    met: HashSet<u64>,
    hashes: RandomState,
}

impl<'w> ListWalk<'w> {
    fn new(
        client: &'w Client,
        kind: Kind,
        resource: &'w str,
        path: String,
        namespace: Option<&'w String>,
    ) -> Self {
        ListWalk {
            client,
            kind,
            resource,
            path,
            namespace: namespace.map(String::as_str),
            met: HashSet::new(),
            hashes: RandomState::new(),
        }
    }

    async fn run(mut self, meet: &mut (impl FnMut(ListItem<'_>) + Send)) -> Option<ListFailure> {
        let mut params = ListParams::default().limit(PAGE);
        if self.kind == Kind::Pod {
            params = params.fields("status.phase!=Succeeded,status.phase!=Failed");
        }
        let mut restarts = 0;
        loop {
            let body = match self.page(&params).await {
                Ok(body) => body,
                Err(PageError::Expired(more)) if restarts < RESTARTS => {
                    restarts += 1;
                    params.continue_token = more;
                    continue;
                }
                Err(PageError::Expired(_)) => {
                    let why = "the list expired again and again while it was read: the cluster changes faster than it answers";
                    return Some(self.unlisted(why.to_owned(), false));
                }
                Err(PageError::Failed {
                    why, is_forbidden, ..
                }) => {
                    return Some(self.unlisted(why, is_forbidden));
                }
            };
            let page: WalkPage<'_> = match serde_json::from_str(&body) {
                Ok(page) => page,
                Err(error) => {
                    let why = format!("the API server answered with something else than a list: {error}");
                    return Some(self.unlisted(why, false));
                }
            };
            meet(ListItem::List(self.resource, page.metadata.remaining_item_count));
            for item in page.items.iter().flatten() {
                if self.is_new(item.get()) {
                    meet(ListItem::Object(self.kind, item.get()));
                }
            }
            match page.metadata.more.filter(|more| !more.is_empty()) {
                Some(more) => params.continue_token = Some(more),
                None => return None,
            }
        }
    }

    fn is_new(&mut self, json: &str) -> bool {
        let uid = at(json, &["metadata", "uid"]);
        uid.is_none_or(|uid| self.met.insert(self.hashes.hash_one(uid)))
    }

    fn unlisted(&self, why: String, is_forbidden: bool) -> ListFailure {
        ListFailure {
            resource: self.resource.to_owned(),
            namespace: self.namespace.map(str::to_owned),
            why,
            is_forbidden,
            read: self.met.len(),
        }
    }

    async fn page(&self, params: &ListParams) -> Result<String, PageError> {
        let mut tries = 1;
        loop {
            match self.ask(params).await {
                Err(PageError::Failed { may_pass: true, .. }) if tries < TRIES => tries += 1,
                answer => return answer,
            }
            tokio::time::sleep(REST).await;
        }
    }

    async fn ask(&self, params: &ListParams) -> Result<String, PageError> {
        let request = kube::core::Request::new(&self.path).list(params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        match tokio::time::timeout(PATIENCE, self.client.request_text(request)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(PageError::Failed {
                why: format!("no answer from the API server within {PATIENCE:?}"),
                is_forbidden: false,
                may_pass: true,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
