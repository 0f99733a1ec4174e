//! A trace collector: OTLP/HTTP, parsed with OpenTelemetry's own definitions; it can also reject requests or
//! never answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::http::serve_on;
use super::recorder::self_signed;

/// How the collector responds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    Takes,
    /// Answers with this status.
    Answers(u16),
    /// Answers 503 to the first request.
    IsBusyAtFirst,
    /// Never answers.
    Hangs,
}

/// One span in a readable form.
#[derive(Clone, Debug)]
pub struct Span {
    /// Ids in hexadecimal digits; an empty text means no parent.
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub state: String,
    pub name: String,
    pub is_server: bool,
    pub flags: u32,
    pub start: u64,
    pub end: u64,
    pub attributes: BTreeMap<String, Value>,
    pub resource: BTreeMap<String, Value>,
    /// The message of its error.
    pub error: Option<String>,
}

/// One export request.
#[derive(Clone, Debug)]
pub struct Export {
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

#[derive(Default)]
struct Received {
    exports: Vec<Export>,
    spans: Vec<Span>,
}

/// The server, on separate threads; it stops when this is dropped.
pub struct Collector {
    pub address: SocketAddr,
    received: Arc<Mutex<Received>>,
    _runtime: Runtime,
}

impl Collector {
    /// Starts a collector with plain HTTP.
    pub fn start(mood: Mood) -> Self {
        Self::start_with(mood, None)
    }

    /// Starts a collector with TLS, and writes its own certificate to a file.
    pub fn start_tls(ca: &Path) -> Self {
        let (tls, certificate) = self_signed();
        std::fs::write(ca, certificate).unwrap();
        Self::start_with(Mood::Takes, Some(tls))
    }

    fn start_with(mood: Mood, tls: Option<TlsAcceptor>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Received::default()));
        let kept = Arc::clone(&received);
        let answer = move |request| answer(request, mood, Arc::clone(&kept));
        runtime.spawn(serve_on(listener, tls, answer));
        Collector {
            address,
            received,
            _runtime: runtime,
        }
    }

    /// The spans received so far.
    pub fn spans(&self) -> Vec<Span> {
        self.received.lock().unwrap().spans.clone()
    }

    /// The requests received so far.
    pub fn exports(&self) -> Vec<Export> {
        self.received.lock().unwrap().exports.clone()
    }

    /// Waits until this many spans match, and returns them.
    #[track_caller]
    pub fn wait_for(&self, count: usize, is_one: impl Fn(&Span) -> bool) -> Vec<Span> {
        let start = Instant::now();
        loop {
            let mut spans = self.spans();
            spans.retain(&is_one);
            if spans.len() >= count {
                return spans;
            }
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{} of {count} spans came: {spans:#?}",
                spans.len()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    mood: Mood,
    received: Arc<Mutex<Received>>,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let headers = head.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    let export = Export {
        path: head.uri.to_string(),
        headers: headers.collect(),
    };
    let body = body.collect().await.unwrap().to_bytes();
    let is_first = {
        let mut received = received.lock().unwrap();
        received.exports.push(export);
        received.exports.len() == 1
    };
    let status = match mood {
        Mood::IsBusyAtFirst if is_first => 503,
        Mood::Takes | Mood::IsBusyAtFirst => {
            received.lock().unwrap().spans.extend(read(&body));
            200
        }
        Mood::Answers(status) => status,
        Mood::Hangs => std::future::pending().await,
    };
    let response = Response::builder().status(status);
    response.body(Full::default()).unwrap()
}

fn read(body: &[u8]) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body).expect("what comes is OTLP");
    let mut spans = Vec::new();
    for resource_spans in request.resource_spans {
        let resource = attributes(&resource_spans.resource.unwrap().attributes);
        for scope_spans in resource_spans.scope_spans {
            assert_eq!(scope_spans.scope.unwrap().name, "transom");
            spans.extend(scope_spans.spans.into_iter().map(|span| Span {
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                is_server: span.kind() == SpanKind::Server,
                state: span.trace_state,
                name: span.name,
                flags: span.flags,
                start: span.start_time_unix_nano,
                end: span.end_time_unix_nano,
                attributes: attributes(&span.attributes),
                resource: resource.clone(),
                error: span.status.and_then(|status| match status.code() {
                    StatusCode::Unset => None,
                    code => {
                        assert_eq!(code, StatusCode::Error);
                        Some(status.message)
                    }
                }),
            }));
        }
    }
    spans
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, Value> {
    let read: BTreeMap<String, Value> = (pairs.iter())
        .map(|pair| (pair.key.clone(), plain(pair.value.as_ref().unwrap())))
        .collect();
    assert_eq!(read.len(), pairs.len(), "each key stands there once: {pairs:?}");
    read
}

fn plain(value: &AnyValue) -> Value {
    match value.value.as_ref().unwrap() {
        Any::StringValue(text) => json!(text),
        Any::BoolValue(flag) => json!(flag),
        Any::IntValue(number) => json!(number),
        Any::ArrayValue(array) => array.values.iter().map(plain).collect(),
        other => panic!("transom sends no {other:?}"),
    }
}
