//! A client for unit tests, whose requests a function answers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// How a request is answered.
pub(crate) enum Reply {
    Json(u16, Value),
    /// JSON that may end in the middle.
    Text(u16, String),
    /// The request is never answered.
    Never,
    /// A watch, which sends these pieces.
    Stream(BoxStream<'static, Bytes>),
}

/// A client whose requests get the reply of a function: from method, URI, body, and how many requests with the same
/// method and URI came before.
pub(crate) fn serving(reply: impl Fn(&Method, &Uri, &str, usize) -> Reply + Send + Sync + 'static) -> Client {
    let state = Arc::new((reply, Mutex::new(HashMap::<_, usize>::new())));
    let service = tower::service_fn(move |request: Request<Body>| {
        let state = Arc::clone(&state);
        async move {
            let (reply, counts) = &*state;
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let before = {
                let mut counts = counts.lock().unwrap();
                let count = counts.entry((head.method.clone(), head.uri.clone())).or_default();
                *count += 1;
                *count - 1
            };
            let whole = |text: String| Full::from(text).boxed_unsync();
            let (status, body): (u16, UnsyncBoxBody<Bytes, Infallible>) =
                match reply(&head.method, &head.uri, &String::from_utf8_lossy(&body), before) {
                    Reply::Json(status, json) => (status, whole(json.to_string())),
                    Reply::Text(status, text) => (status, whole(text)),
                    Reply::Never => return std::future::pending().await,
                    Reply::Stream(pieces) => {
                        let frames = pieces.map(|piece| Ok(Frame::data(piece)));
                        (200, StreamBody::new(frames).boxed_unsync())
                    }
                };
            Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
        }
    });
    Client::new(service, "default")
}

/// The same with JSON only: from method, URI and body to status code and JSON.
pub(crate) fn answering(
    answer: impl Fn(&Method, &Uri, &str) -> (u16, Value) + Send + Sync + 'static,
) -> Client {
    serving(move |method, uri, body, _| {
        let (status, json) = answer(method, uri, body);
        Reply::Json(status, json)
    })
}
