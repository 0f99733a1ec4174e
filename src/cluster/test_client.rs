//! A client for unit tests, whose requests a function answers.

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::{Method, Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// A client whose requests get the answer of a function: from method, URI and body to status code and JSON.
pub(crate) fn answering(
    answer: impl Fn(&Method, &Uri, &str) -> (u16, Value) + Send + Sync + 'static,
) -> Client {
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = Arc::clone(&answer);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body = String::from_utf8_lossy(&body);
            let (status, json) = answer(&head.method, &head.uri, &body);
            let response = Response::builder().status(status);
            Ok::<_, Infallible>(response.body(Body::from(json.to_string().into_bytes())).unwrap())
        }
    });
    Client::new(service, "default")
}
