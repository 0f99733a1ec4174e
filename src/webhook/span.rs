//! The span of a review: one, wide, from the head of its request to its answer; the names of its attributes stand here.

use hyper::header::{HOST, USER_AGENT};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{Method, StatusCode, Version};

use crate::admission::{Record, ReviewLabels};
use crate::model::os::Verdict;
use crate::telemetry::{Recording, Tracer, Value};

/// What a span says of a request that was dropped: every other one is answered.
const UNHEARD: &str = "the client went away before the answer";

/// The span of a request to one of the two endpoints, where it is sampled. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct ReviewSpan(Option<Box<Recording>>);

impl ReviewSpan {
    /// Begins a span by OpenTelemetry's conventions for HTTP servers. Without a tracer this is one test.
    pub fn begin(tracer: Option<&Tracer>, head: &Parts) -> Self {
        Self(tracer.and_then(|tracer| begin(tracer, head)).map(Box::new))
    }

    /// The body is there.
    pub fn read(&mut self, bytes: usize) {
        if let Some(recording) = &mut self.0 {
            recording.set("http.request.body.size", i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// The review was judged: what the audit line says of it, but for who asked.
    pub fn judged(&mut self, record: &Record) {
        let Some(recording) = &mut self.0 else { return };
        let Record {
            labels,
            uid,
            subresource,
            namespace,
            name,
            user: _,
            verdict,
            rules,
            annotations: _,
            warned: _,
            policy,
        } = record;
        // The phase is known from the beginning.
        let ReviewLabels {
            phase: _,
            operation,
            kind,
            decision,
            dry_run,
        } = labels;
        recording.set("transom.review.uid", Value::text(uid));
        recording.set("transom.operation", *operation);
        recording.set("transom.object.kind", *kind);
        for (key, text) in [
            ("transom.object.subresource", subresource.as_str()),
            ("transom.object.namespace", namespace),
            ("transom.object.name", name),
            ("transom.policy", policy),
            (
                "transom.would_deny",
                record.annotation("would-deny").unwrap_or_default(),
            ),
        ] {
            if !text.is_empty() {
                recording.set(key, Value::text(text));
            }
        }
        recording.set("transom.dry_run", *dry_run);
        recording.set("transom.decision", *decision);
        recording.set("transom.patched", *decision == "patch");
        if let Some(verdict) = verdict {
            recording.set("transom.verdict", Verdict::as_str(*verdict));
        }
        let mut distinct: Vec<&'static str> = Vec::new();
        for rule in rules {
            if !distinct.contains(rule) {
                distinct.push(rule);
            }
        }
        recording.set("transom.rules", distinct);
    }

    /// The request is answered; `error` says why there was no review, where there was none.
    ///
    /// The conventions leave 4xx to the server: API servers send nothing but reviews, so that a request that is
    /// none is an error here, while a denial is not.
    pub fn answered(&mut self, status: StatusCode, error: Option<&'static str>) {
        let Some(recording) = &mut self.0 else { return };
        recording.set("http.response.status_code", i64::from(status.as_u16()));
        if error.is_some() {
            recording.set("error.type", Value::text(status.as_str()));
        }
        recording.failed(error);
    }
}

fn begin(tracer: &Tracer, head: &Parts) -> Option<Recording> {
    let (name, phase, path) = match head.uri.path() {
        "/mutate" => ("POST /mutate", "mutate", "/mutate"),
        "/validate" => ("POST /validate", "validate", "/validate"),
        _ => return None,
    };
    if head.method != Method::POST {
        return None;
    }
    let mut recording = tracer.begin(name, &head.headers)?;
    recording.failed(Some(UNHEARD));
    recording.set("http.request.method", "POST");
    recording.set("http.route", path);
    recording.set("url.path", path);
    recording.set("url.scheme", "https");
    let version = if head.version == Version::HTTP_2 {
        "2"
    } else {
        "1.1"
    };
    recording.set("network.protocol.version", version);
    if let Some(host) = host(head) {
        recording.set("server.address", Value::text(host.host()));
        if let Some(port) = host.port_u16() {
            recording.set("server.port", i64::from(port));
        }
    }
    if let Some(agent) = head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()) {
        recording.set("user_agent.original", Value::text(agent));
    }
    recording.set("transom.phase", phase);
    Some(recording)
}

/// Whom the client believes to talk to.
fn host(head: &Parts) -> Option<Authority> {
    let named = || head.headers.get(HOST)?.to_str().ok()?.parse().ok();
    head.uri.authority().cloned().or_else(named)
}
