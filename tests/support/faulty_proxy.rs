//! A proxy before an API server, as an administrator, that delays requests, answers them itself, or loses their answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::control_plane::{ControlPlane, kubeconfig};
use super::http::{self, HttpBody, serve_on};

/// What happens to a request.
pub enum Fault {
    /// It is passed on.
    None,
    /// It is passed on later.
    Delay(Duration),
    /// It is answered with this status, after this time, and not passed on. A `Retry-After` if it is not zero.
    Answer(u16, Duration, u64),
    /// It is passed on, and answered 504 after this time.
    LoseAnswer(Duration),
}

type Rule = Box<dyn FnMut(&str, &str) -> Fault + Send>;

/// A running proxy. Its thread ends with the test binary.
pub struct FaultyProxy {
    port: u16,
    rule: Arc<Mutex<Rule>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FaultyProxy {
    /// Before this API server; passes everything on.
    pub fn before(cluster: &ControlPlane) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = runtime.unwrap();
        let mut config = runtime.block_on(cluster.config());
        config.default_retry = false;
        config.read_timeout = None;
        let client = runtime.block_on(async { Client::try_from(config).unwrap() });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let rule: Arc<Mutex<Rule>> = Arc::new(Mutex::new(Box::new(|_, _| Fault::None)));
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (of_requests, seen) = (Arc::clone(&rule), Arc::clone(&requests));
        let answer = move |request: Request<Incoming>| {
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            let mut rule = of_requests.lock().unwrap();
            let fault = (*rule)(&method, &path);
            drop(rule);
            seen.lock().unwrap().push(format!("{method} {path}"));
            pass(client.clone(), request, fault)
        };
        std::thread::spawn(move || runtime.block_on(serve_on(listener, None, answer)));
        FaultyProxy { port, rule, requests }
    }

    /// Decides by method and path what happens to requests from now on.
    pub fn fault(&self, rule: impl FnMut(&str, &str) -> Fault + Send + 'static) {
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    /// The requests so far: method and path.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// A kubeconfig that leads here.
    pub fn kubeconfig(&self, cluster: &ControlPlane) -> String {
        let path = cluster.path(&format!("proxy-{}.kubeconfig", self.port));
        let config = kubeconfig(&format!("http://127.0.0.1:{}", self.port));
        std::fs::write(&path, config.to_string()).unwrap();
        path.display().to_string()
    }
}

async fn pass(client: Client, request: Request<Incoming>, fault: Fault) -> Response<HttpBody> {
    let status = |code: u16, reason: &str| {
        let status: Value = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason,
            "message": format!("the proxy answers {code}")});
        http::json(code, &status)
    };
    match fault {
        Fault::None => forward(client, request).await,
        Fault::Delay(time) => {
            tokio::time::sleep(time).await;
            forward(client, request).await
        }
        Fault::Answer(code, after, retry_after) => {
            tokio::time::sleep(after).await;
            let mut response = status(code, "Injected");
            if retry_after > 0 {
                response.headers_mut().insert("retry-after", retry_after.into());
            }
            response
        }
        Fault::LoseAnswer(after) => {
            forward(client, request).await;
            tokio::time::sleep(after).await;
            status(504, "Timeout")
        }
    }
}

async fn forward(client: Client, request: Request<Incoming>) -> Response<HttpBody> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let path = head.uri.path_and_query().unwrap().as_str();
    head.uri = path.parse().unwrap();
    head.headers.remove("host");
    head.headers.remove("accept-encoding");
    head.version = hyper::Version::HTTP_11;
    let answer = client
        .send(Request::from_parts(head, Body::from(body.to_vec())))
        .await;
    let Ok(answer) = answer else {
        return http::json(502, &json!({"message": "the proxy cannot reach the API server"}));
    };
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut response = http::text("application/json", body);
    *response.status_mut() = head.status;
    if let Some(kind) = head.headers.get("content-type") {
        response.headers_mut().insert("content-type", kind.clone());
    }
    response
}
