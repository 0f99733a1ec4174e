//! A client for kube's watcher, which holds a page of a list, and each event of a watch, in one piece, for every kind at the same
//! time. In its answers a large object is replaced by its name, and its reader reads it alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::stream::{self, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::json_items::{PREFIX, Sequence};
use super::list::{FIRST_PAGE, next_limit};
use super::object_stream::{ObjectStream, StreamedObject};
use crate::model::syntax::json::at;

/// The field of an object of which only the name is known.
pub const NAME_ONLY: &str = "$nameOnly";
/// Objects of more bytes are replaced. Nothing here waits for other readers of large objects: a watch is not polled while its
/// reader waits for one.
const MOST: usize = PREFIX;
/// The most bytes of a page. After them, objects of more bytes than [`MOST_IN_FULL_PAGE`] are replaced.
const PAGE_BYTES: usize = 2 << 20;
const MOST_IN_FULL_PAGE: usize = 8 << 10;

type ShortBody = UnsyncBoxBody<Bytes, kube::Error>;

/// A client for the watcher of one kind.
pub fn names_of_large(client: &Client) -> Client {
    let (client, limit) = (client.clone(), Arc::new(AtomicU32::new(FIRST_PAGE)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, limit) = (client.clone(), Arc::clone(&limit));
        async move { shortened(&client, request, &limit).await }
    });
    Client::new(service, "default")
}

async fn shortened(
    client: &Client,
    mut request: Request<Body>,
    limit: &AtomicU32,
) -> Result<Response<ShortBody>, kube::Error> {
    let is_watch = request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch=true"));
    let requested = limit.load(Ordering::Relaxed);
    if !is_watch {
        let shorter = with_limit(request.uri(), requested);
        *request.uri_mut() = shorter;
    }
    let response = client.send(request).await?;
    if !response.status().is_success() {
        return Ok(response.map(BodyExt::boxed_unsync));
    }
    let (mut head, body) = response.into_parts();
    head.headers.remove("content-length");
    let body = if is_watch {
        watch(ObjectStream::of(body, Sequence::Values, MOST))
    } else {
        let (page, bytes) = list(ObjectStream::of(body, Sequence::List, MOST)).await?;
        limit.store(next_limit(requested, bytes), Ordering::Relaxed);
        Full::new(page).map_err(|never| match never {}).boxed_unsync()
    };
    Ok(Response::from_parts(head, body))
}

/// The same address with another limit, if it has one.
fn with_limit(uri: &Uri, limit: u32) -> Uri {
    let parts = uri.query().unwrap_or_default().split('&').map(|part| {
        if part.starts_with("limit=") {
            format!("limit={limit}")
        } else {
            part.to_owned()
        }
    });
    let query = parts.collect::<Vec<_>>().join("&");
    format!("{}?{query}", uri.path())
        .parse()
        .unwrap_or_else(|_| uri.clone())
}

/// A page, and how many bytes the API server sent.
async fn list(mut objects: ObjectStream) -> Result<(Bytes, usize), kube::Error> {
    let mut page = br#"{"items":["#.to_vec();
    let mut count = 0;
    while let Some(object) = objects.next().await? {
        let most = if page.len() < PAGE_BYTES {
            MOST
        } else {
            MOST_IN_FULL_PAGE
        };
        if count > 0 {
            page.push(b',');
        }
        count += 1;
        match object {
            StreamedObject::Whole(json) if json.len() <= most => page.extend_from_slice(json.as_bytes()),
            StreamedObject::Whole(json) => page.extend_from_slice(name_only(&json).to_string().as_bytes()),
            StreamedObject::TooLarge(json) => page.extend_from_slice(name_only(&json).to_string().as_bytes()),
        }
    }
    page.push(b']');
    let around: Value = serde_json::from_slice(objects.around()).map_err(kube::Error::SerdeError)?;
    for (key, value) in around
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != "items")
    {
        page.extend_from_slice(format!(",{}:{value}", Value::from(key.as_str())).as_bytes());
    }
    page.push(b'}');
    Ok((page.into(), objects.bytes()))
}

/// The events, each on a line.
fn watch(objects: ObjectStream) -> ShortBody {
    let events = stream::unfold(Some(objects), |objects| async {
        let mut objects = objects?;
        match objects.next().await {
            Ok(None) => None,
            Ok(Some(object)) => Some((Ok(Frame::data(line(object))), Some(objects))),
            Err(error) => Some((Err(error), None)),
        }
    });
    StreamBody::new(events.boxed()).boxed_unsync()
}

fn line(object: StreamedObject) -> Bytes {
    let mut line = match object {
        StreamedObject::Whole(event) => event.into_parts().0,
        StreamedObject::TooLarge(event) => short_event(&event),
    };
    line.push('\n');
    line.into()
}

/// An event, or its beginning, with the name of its object only.
fn short_event(event: &str) -> String {
    let kind = at(event, &["type"]).unwrap_or("null");
    let object = name_only(at(event, &["object"]).unwrap_or_default());
    format!(r#"{{"type":{kind},"object":{object}}}"#)
}

/// What identifies an object, of which all or the beginning is known.
fn name_only(json: &str) -> Value {
    let of = |key| {
        let text = at(json, &["metadata", key]).and_then(|text| serde_json::from_str::<String>(text).ok());
        text.unwrap_or_default()
    };
    let keys = ["name", "namespace", "uid", "resourceVersion"];
    let metadata: serde_json::Map<String, Value> = keys
        .into_iter()
        .map(|key| (key.to_owned(), of(key).into()))
        .collect();
    json!({"metadata": metadata, NAME_ONLY: true})
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::cluster::test_client::{Reply, serving};

    #[tokio::test]
    async fn of_large_objects_the_watcher_sees_only_the_name() {
        let object = |name: &str, bytes: usize| json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"}, "text": "<".repeat(bytes)});
        let limits = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&limits);
        let client = names_of_large(&serving(move |_, uri, _, _| {
            let query = uri.query().unwrap().to_owned();
            let is_watch = query.contains("watch=true");
            seen.lock().unwrap().push(query);
            if is_watch {
                let event = |object: Value| format!("{}\n", json!({"type": "MODIFIED", "object": object}));
                return Reply::Text(200, event(object("c", 10)) + &event(object("d", 2 * MOST)));
            }
            let items = [object("a", 10), object("b", 2 * MOST)];
            Reply::Json(
                200,
                json!({"kind": "PodList", "metadata": {"continue": "x"}, "items": items}),
            )
        }));
        let request = |query: &str| {
            Request::get(format!("/api/v1/pods?{query}"))
                .body(Vec::new())
                .unwrap()
        };
        let short = |name: &str| {
            let metadata = json!({"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"});
            json!({"metadata": metadata, NAME_ONLY: true})
        };
        let page: Value = client
            .request(request("limit=100&fieldSelector=a"))
            .await
            .unwrap();
        let expected =
            json!({"kind": "PodList", "metadata": {"continue": "x"}, "items": [object("a", 10), short("b")]});
        assert_eq!(page, expected);
        let _: Value = client.request(request("limit=100")).await.unwrap();
        let events = client.request_text(request("watch=true")).await.unwrap();
        let events: Vec<Value> = events
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(events[0]["object"], object("c", 10));
        assert_eq!(events[1], json!({"type": "MODIFIED", "object": short("d")}));
        let expected = ["limit=10&fieldSelector=a", "limit=19", "watch=true"];
        assert_eq!(*limits.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn a_page_of_many_middle_sized_objects_is_bounded() {
        let client = names_of_large(&serving(move |_, _, _, _| {
            let items: Vec<Value> = (0..100)
                .map(|at| json!({"metadata": {"name": at.to_string()}, "text": "x".repeat(MOST / 2)}))
                .collect();
            Reply::Json(200, json!({"items": items}))
        }));
        let request = Request::get("/api/v1/pods?limit=100").body(Vec::new()).unwrap();
        let page = client.request_text(request).await.unwrap();
        assert!(
            page.len() < PAGE_BYTES + MOST + 100 * MOST_IN_FULL_PAGE,
            "{}",
            page.len()
        );
        let page: Value = serde_json::from_str(&page).unwrap();
        assert_eq!(page["items"].as_array().unwrap().len(), 100);
    }
}
