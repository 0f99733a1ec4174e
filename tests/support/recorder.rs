//! A webhook that allows everything and records its calls by the last segment of their path. It can patch the
//! objects, as an injector does.

use std::sync::{Arc, Mutex};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Request, Response};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::http::{self, HttpBody, serve_on};

/// One call.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Call {
    /// The last segment of the path.
    pub entry: String,
    pub namespace: String,
    pub kind: String,
    pub name: String,
    pub operation: String,
    pub subresource: String,
    /// The size of the review, in bytes.
    pub size: usize,
}

/// The server; it stops with the runtime that it was started on.
pub struct Recorder {
    /// `https://127.0.0.1:port`
    pub url: String,
    /// Its certificate, which is also its CA.
    pub ca: Vec<u8>,
    calls: Arc<Mutex<Vec<Call>>>,
}

/// Maps the last segment of the path and a request to a JSON patch, or to nothing.
pub type Patch = fn(&str, &Value) -> Option<Value>;

impl Recorder {
    pub async fn start() -> Self {
        Self::start_with(|_, _| None).await
    }

    /// A recorder that patches the objects.
    pub async fn start_with(patch: Patch) -> Self {
        let (acceptor, ca) = self_signed();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&calls);
        let answer = move |request| answer(request, Arc::clone(&recorded), patch);
        tokio::spawn(serve_on(listener, Some(acceptor), answer));
        Recorder {
            url,
            ca: ca.into_bytes(),
            calls,
        }
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls_after(0)
    }

    /// The calls after the first `first` ones.
    pub fn calls_after(&self, first: usize) -> Vec<Call> {
        self.calls.lock().unwrap()[first..].to_vec()
    }

    /// The number of calls so far.
    pub fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

/// TLS with a certificate of its own for 127.0.0.1, and that certificate in PEM.
pub fn self_signed() -> (TlsAcceptor, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), certificate.pem())
}

async fn answer(
    request: Request<Incoming>,
    calls: Arc<Mutex<Vec<Call>>>,
    patch: Patch,
) -> Response<HttpBody> {
    let entry = request
        .uri()
        .path()
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let requested = &review["request"];
    let text = |field: &str| requested[field].as_str().unwrap_or_default().to_owned();
    let patch = patch(&entry, requested);
    calls.lock().unwrap().push(Call {
        entry,
        namespace: text("namespace"),
        kind: requested["kind"]["kind"].as_str().unwrap_or_default().to_owned(),
        name: text("name"),
        operation: text("operation"),
        subresource: text("subResource"),
        size: body.len(),
    });
    let mut answer = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": requested["uid"], "allowed": true},
    });
    if let Some(patch) = patch {
        use base64::Engine as _;
        answer["response"]["patchType"] = "JSONPatch".into();
        answer["response"]["patch"] = base64::prelude::BASE64_STANDARD.encode(patch.to_string()).into();
    }
    http::json(200, &answer)
}
