//! Objects that carry pods, as the API server has them: read page by page, and followed by a watch, each as raw JSON that
//! is dropped at once.

use std::time::Duration;

use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::{ApiError, answered_within, words};
use super::survey::{LISTS, PAGE};
use crate::model::workload::Kind;

/// How long one page may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// So often the place in a list may expire while it is read.
const MOST_EXPIRED: u32 = 100;
const EXPIRED: &str = "the list expired again and again while it was read";
/// A page of more bytes is followed by a shorter one: a page is held in one piece.
const LARGE: usize = 1 << 20;
/// A line of a watch that is longer leaves no buffer of its size behind.
const LONG: usize = 64 << 10;

/// Objects of one kind, wherever in the cluster they are.
#[derive(Clone, Copy, Debug)]
pub struct ObjectList {
    /// The kind.
    pub kind: Kind,
    /// The path of its list.
    pub path: &'static str,
}

impl ObjectList {
    /// Every kind that carries a pod.
    pub fn all() -> impl Iterator<Item = ObjectList> {
        LISTS.iter().map(|(kind, path)| ObjectList { kind: *kind, path })
    }

    /// What is left out: pods that have ended never run again.
    fn fields(self) -> Option<String> {
        (self.kind == Kind::Pod).then(|| "status.phase!=Succeeded,status.phase!=Failed".to_owned())
    }
}

#[derive(Deserialize)]
struct StoredPage<'a> {
    #[serde(default)]
    metadata: StoredPageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct StoredPageMeta {
    #[serde(rename = "continue")]
    more: Option<String>,
    resource_version: Option<String>,
}

impl ObjectList {
    /// The version from which a watch misses nothing that a list shows from now on.
    ///
    /// # Errors
    /// The API server refuses, or answers no list.
    pub async fn version(self, client: &Client) -> Result<String, ApiError> {
        let body = list(client, self.path, &ListParams::default().limit(1)).await?;
        let page = StoredPage::read(&body, self.path)?;
        Ok(page.metadata.resource_version.unwrap_or_default())
    }

    /// Everything there is, or in one namespace, by pages. Without a resourceVersion: with `resourceVersion=0` the API server
    /// ignores the limit and answers with everything at once.
    pub fn pages(self, namespace: Option<&str>) -> ListPages {
        ListPages {
            path: self.path_in(namespace),
            params: ListParams {
                field_selector: self.fields(),
                ..ListParams::default().limit(PAGE)
            },
            is_over: false,
            expired: 0,
        }
    }

    /// Everything that changes from a version on.
    ///
    /// # Errors
    /// The API server refuses, or does not answer in time.
    pub async fn changes(
        self,
        client: &Client,
        version: &str,
    ) -> Result<ObjectWatch<impl AsyncBufRead + use<>>, ApiError> {
        let params = WatchParams {
            bookmarks: true,
            field_selector: self.fields(),
            ..WatchParams::default()
        };
        let answer = async {
            let request = Request::new(self.path).watch(&params, version);
            let request = request.map_err(kube::Error::BuildRequest)?;
            client.request_stream(request).await
        };
        let lines = answered_within(PATIENCE, answer).await?;
        Ok(ObjectWatch {
            lines,
            line: Vec::new(),
            is_read: false,
        })
    }

    fn path_in(self, namespace: Option<&str>) -> String {
        match (namespace, self.path.rsplit_once('/')) {
            (Some(namespace), Some((before, resource))) => {
                format!("{before}/namespaces/{namespace}/{resource}")
            }
            _ => self.path.to_owned(),
        }
    }
}

impl<'a> StoredPage<'a> {
    fn read(body: &'a str, path: &str) -> Result<Self, ApiError> {
        serde_json::from_str(body)
            .map_err(|error| ApiError::Other(format!("cannot read the list of {path}: {error}")))
    }
}

async fn list(client: &Client, path: &str, params: &ListParams) -> Result<String, ApiError> {
    match listed(client, path, params).await? {
        ListResponse::Page(body) => Ok(body),
        ListResponse::Expired(_) => Err(ApiError::Other(EXPIRED.to_owned())),
    }
}

/// What the API server answers where a page is asked for.
enum ListResponse {
    Page(String),
    /// The place in the list has expired; the API server may give another one, in what is stored now.
    Expired(Option<String>),
}

async fn listed(client: &Client, path: &str, params: &ListParams) -> Result<ListResponse, ApiError> {
    let answer = async {
        let request = Request::new(path).list(params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        match client.request_text(request).await {
            Err(kube::Error::Api(status)) if status.code == 410 => {
                let more = status.metadata.and_then(|list| list.continue_);
                Ok(ListResponse::Expired(more.filter(|more| !more.is_empty())))
            }
            answer => answer.map(ListResponse::Page),
        }
    };
    answered_within(PATIENCE, answer).await
}

/// What is left of a list that is read page by page.
#[derive(Debug)]
pub struct ListPages {
    path: String,
    params: ListParams,
    is_over: bool,
    /// How often its place has expired.
    expired: u32,
}

impl ListPages {
    /// Hands every object of the next page to `visit`; says whether there is another page.
    ///
    /// # Errors
    /// The page cannot be read. Where the place in the list has expired it goes on in what is stored now: what has changed
    /// meanwhile a watch tells.
    pub async fn next(&mut self, client: &Client, mut visit: impl FnMut(&str)) -> Result<bool, ApiError> {
        if self.is_over {
            return Ok(false);
        }
        let body = self.body(client).await?;
        let page = StoredPage::read(&body, &self.path)?;
        for item in page.items.iter().flatten() {
            visit(item.get());
        }
        let asked = self.params.limit.unwrap_or(PAGE);
        self.params.limit = Some(next_limit(asked, body.len()));
        self.params.continue_token = page.metadata.more.filter(|more| !more.is_empty());
        self.is_over = self.params.continue_token.is_none();
        Ok(!self.is_over)
    }

    async fn body(&mut self, client: &Client) -> Result<String, ApiError> {
        loop {
            match listed(client, &self.path, &self.params).await? {
                ListResponse::Page(body) => return Ok(body),
                ListResponse::Expired(more) if self.expired < MOST_EXPIRED => {
                    // Without a place it begins anew.
                    self.expired += 1;
                    self.params.continue_token = more;
                }
                ListResponse::Expired(_) => return Err(ApiError::Other(EXPIRED.to_owned())),
            }
        }
    }
}

/// How many objects to ask for after a page of so many had so many bytes.
fn next_limit(asked: u32, bytes: usize) -> u32 {
    let fitting = LARGE.saturating_mul(asked as usize) / bytes.max(1);
    u32::try_from(fitting).unwrap_or(PAGE).clamp(1, PAGE)
}

/// One change of an object.
#[derive(PartialEq, Eq, Debug)]
pub enum ObjectChange<'c> {
    /// It was made or changed.
    Seen(&'c str),
    /// It was deleted: as it was then.
    Gone(&'c str),
}

/// Why a watch ended.
#[derive(PartialEq, Eq, Debug)]
pub enum WatchEnded {
    /// In its time: it goes on from the last version.
    InTime,
    /// What happened after its last version is not known any more.
    Expired,
    /// Something else, in words.
    Broken(String),
}

/// A watch that is under way.
#[derive(Debug)]
pub struct ObjectWatch<R> {
    lines: R,
    line: Vec<u8>,
    /// Whether the line was read to its end: what is not goes on with the next call.
    is_read: bool,
}

#[derive(Deserialize)]
struct RawWatchEvent<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize, Default)]
struct Versioned {
    #[serde(default)]
    metadata: StoredPageMeta,
}

impl<R: AsyncBufRead + Unpin> ObjectWatch<R> {
    /// The next change that is no bookmark; `version` follows everything that was read. Nothing is lost where this is not
    /// waited for to its end.
    ///
    /// # Errors
    /// The watch has ended, and how.
    pub async fn next(&mut self, version: &mut String) -> Result<ObjectChange<'_>, WatchEnded> {
        loop {
            if std::mem::take(&mut self.is_read) {
                self.line.clear();
                self.line.shrink_to(LONG);
            }
            match self.lines.read_until(b'\n', &mut self.line).await {
                Ok(0) if self.line.is_empty() => return Err(WatchEnded::InTime),
                Ok(_) => self.is_read = true,
                Err(error) => return Err(WatchEnded::Broken(error.to_string())),
            }
            if !is_bookmark(&self.line, version)? {
                break;
            }
        }
        read(&self.line, version)
    }
}

/// Whether a line only tells a version, which is then noted.
fn is_bookmark(line: &[u8], version: &mut String) -> Result<bool, WatchEnded> {
    let event = event(line)?;
    if event.r#type == "BOOKMARK" {
        note(event.object.get(), version);
        return Ok(true);
    }
    Ok(false)
}

fn read<'l>(line: &'l [u8], version: &mut String) -> Result<ObjectChange<'l>, WatchEnded> {
    let event = event(line)?;
    let object = event.object.get();
    match event.r#type {
        "ADDED" | "MODIFIED" => {
            note(object, version);
            Ok(ObjectChange::Seen(object))
        }
        "DELETED" => {
            note(object, version);
            Ok(ObjectChange::Gone(object))
        }
        _ => Err(refused(object)),
    }
}

fn event(line: &[u8]) -> Result<RawWatchEvent<'_>, WatchEnded> {
    let text = std::str::from_utf8(line).map_err(|error| WatchEnded::Broken(error.to_string()))?;
    serde_json::from_str(text)
        .map_err(|error| WatchEnded::Broken(format!("cannot read a watch event: {error}")))
}

fn note(object: &str, version: &mut String) {
    let versioned: Versioned = serde_json::from_str(object).unwrap_or_default();
    if let Some(seen) = versioned.metadata.resource_version {
        *version = seen;
    }
}

fn refused(status: &str) -> WatchEnded {
    match serde_json::from_str::<Status>(status) {
        Ok(status) if status.code == 410 => WatchEnded::Expired,
        Ok(status) => WatchEnded::Broken(words(&kube::Error::Api(Box::new(status)))),
        Err(error) => WatchEnded::Broken(format!("cannot read a watch event: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(text: &str) -> (Vec<String>, WatchEnded, String) {
        let mut changes = ObjectWatch {
            lines: futures::io::Cursor::new(text.as_bytes()),
            line: Vec::new(),
            is_read: false,
        };
        let (mut version, mut seen) = ("1".to_owned(), Vec::new());
        loop {
            match changes.next(&mut version).await {
                Ok(change) => seen.push(format!("{change:?}")),
                Err(ended) => return (seen, ended, version),
            }
        }
    }

    #[tokio::test]
    async fn a_watch_tells_changes_and_keeps_the_last_version() {
        let text = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"2\"}}}\n\
                    {\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}\n\
                    {\"type\":\"DELETED\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}\n";
        let (seen, ended, version) = read_all(text).await;
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(
            seen[0].starts_with("Seen") && seen[1].starts_with("Gone"),
            "{seen:?}"
        );
        assert_eq!((ended, version.as_str()), (WatchEnded::InTime, "9"));
    }

    #[tokio::test]
    async fn a_watch_window_that_has_expired_is_known_from_other_ends() {
        let error = |code: u16| {
            format!(
                "{{\"type\":\"ERROR\",\"object\":{{\"kind\":\"Status\",\"message\":\"m\",\"code\":{code}}}}}\n"
            )
        };
        assert_eq!(read_all(&error(410)).await.1, WatchEnded::Expired);
        assert_eq!(read_all(&error(500)).await.1, WatchEnded::Broken("m".to_owned()));
        assert!(matches!(
            read_all("{\"type\":\"AD").await.1,
            WatchEnded::Broken(_)
        ));
    }

    #[test]
    fn a_namespace_has_a_list_of_its_own() {
        let jobs = ObjectList {
            kind: Kind::Job,
            path: "/apis/batch/v1/jobs",
        };
        assert_eq!(jobs.path_in(Some("shop")), "/apis/batch/v1/namespaces/shop/jobs");
        assert_eq!(jobs.path_in(None), "/apis/batch/v1/jobs");
    }

    #[test]
    fn large_objects_come_in_shorter_pages() {
        assert_eq!(next_limit(100, 100), 100);
        assert_eq!(next_limit(100, 10 * LARGE), 10);
        assert_eq!(next_limit(10, LARGE / 10), 100);
        assert_eq!(next_limit(100, usize::MAX), 1);
    }
}
