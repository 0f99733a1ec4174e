//! Lists and watches of the stored objects that contain pods. Each object is raw JSON and is dropped after use.

use std::borrow::Cow;
use std::time::Duration;

use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use kube::Client;
use kube::api::WatchParams;
use kube::core::{Request, Status};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::{ApiError, answered_within};
use super::list::{Listing, POD_CARRIERS, Pages, finished_pods_excluded};
use crate::model::json_types::Str;
use crate::model::workload::Kind;

/// How long the API server may take to begin a watch.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The buffer of a watch shrinks to this size after a longer line.
const MAX_KEPT_BUFFER: usize = 64 << 10;

/// Objects of one kind in the whole cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectList {
    /// The kind.
    pub kind: Kind,
    /// The path of its list.
    pub path: Cow<'static, str>,
}

impl ObjectList {
    /// Every kind that contains pods, including these custom resources.
    pub fn all(custom: &[(Kind, String)]) -> Vec<ObjectList> {
        let of = |kind, path| ObjectList { kind, path };
        let custom = custom
            .iter()
            .map(|(kind, path)| of(*kind, Cow::Owned(path.clone())));
        let own = POD_CARRIERS
            .iter()
            .map(|(kind, path)| of(*kind, Cow::Borrowed(*path)));
        custom.chain(own).collect()
    }
}

impl ObjectList {
    /// The current resourceVersion: a watch from it contains every change after a list that starts now.
    ///
    /// # Errors
    /// The API server refuses, or does not answer with a list.
    pub async fn version(&self, client: &Client) -> Result<String, ApiError> {
        self.listing().resource_version(client).await
    }

    /// All objects, or those of one namespace, by pages.
    pub fn pages(&self, namespace: Option<&str>) -> Pages {
        let listing = self.listing();
        Pages::of(match namespace {
            Some(namespace) => listing.in_namespace(namespace),
            None => listing,
        })
    }

    fn listing(&self) -> Listing {
        Listing::of(self.kind, &self.path)
    }

    /// A watch of the changes after a version.
    ///
    /// # Errors
    /// The API server refuses, or does not answer in time.
    pub async fn changes(
        &self,
        client: &Client,
        version: &str,
    ) -> Result<ObjectWatch<impl AsyncBufRead + use<>>, ApiError> {
        let params = WatchParams {
            bookmarks: true,
            field_selector: finished_pods_excluded(self.kind).map(str::to_owned),
            ..WatchParams::default()
        };
        let answer = async {
            let request = Request::new(&*self.path).watch(&params, version);
            let request = request.map_err(kube::Error::BuildRequest)?;
            client.request_stream(request).await
        };
        let lines = answered_within(TIMEOUT, answer).await?;
        Ok(ObjectWatch {
            lines,
            line: Vec::new(),
            is_read: false,
        })
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectHead<'h> {
    #[serde(borrow)]
    metadata: ObjectHeadMeta<'h>,
}

/// The metadata that identifies a stored object, read without its spec.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ObjectHeadMeta<'h> {
    /// Its uid.
    #[serde(borrow)]
    pub uid: Str<'h>,
    /// Its namespace.
    #[serde(borrow)]
    pub namespace: Str<'h>,
    /// Its name.
    #[serde(borrow)]
    pub name: Str<'h>,
}

impl<'h> ObjectHeadMeta<'h> {
    /// The metadata of an object; empty if it does not parse.
    pub fn of(json: &'h str) -> Self {
        let head: ObjectHead<'h> = serde_json::from_str(json).unwrap_or_default();
        head.metadata
    }
}

/// One change of an object.
#[derive(PartialEq, Eq, Debug)]
pub enum ObjectChange<'c> {
    /// It was created or changed.
    Seen(&'c str),
    /// It was deleted; its last state.
    Gone(&'c str),
}

/// Why a watch ended.
#[derive(PartialEq, Eq, Debug)]
pub enum WatchEnded {
    /// The API server closed it after the usual time: continue from the last version.
    InTime,
    /// The API server no longer has the changes after the last version: list again.
    Expired,
    /// Another error.
    Broken(String),
}

/// An open watch.
#[derive(Debug)]
pub struct ObjectWatch<R> {
    lines: R,
    line: Vec<u8>,
    /// Whether `line` is complete. If not, the next call continues it.
    is_read: bool,
}

#[derive(Deserialize)]
struct RawWatchEvent<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Versioned {
    metadata: VersionedMeta,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct VersionedMeta {
    resource_version: Option<String>,
}

impl<R: AsyncBufRead + Unpin> ObjectWatch<R> {
    /// The next change that is not a bookmark; updates `version` with every event. Cancel safe.
    ///
    /// # Errors
    /// Why the watch ended.
    pub async fn next(&mut self, version: &mut String) -> Result<ObjectChange<'_>, WatchEnded> {
        loop {
            if std::mem::take(&mut self.is_read) {
                self.line.clear();
                self.line.shrink_to(MAX_KEPT_BUFFER);
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

/// Whether a line is a bookmark; its version is then stored in `version`.
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
        Ok(status) => match ApiError::from(status) {
            ApiError::Expired(_) => WatchEnded::Expired,
            error => WatchEnded::Broken(error.to_string()),
        },
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
    async fn a_watch_reports_changes_and_keeps_the_last_version() {
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
}
