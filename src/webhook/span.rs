//! The span of a review: one wide span from the head of its request to its answer, and the names of its
//! attributes.

use hyper::header::{HOST, USER_AGENT};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{Method, StatusCode, Version};

use opentelemetry::trace::{Span as _, Status};
use opentelemetry::{Array, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::Span;

use crate::admission::{AuditRecord, Phase, ReviewLabels};
use crate::model::syntax::text::cut;
use crate::model::windows::os::Verdict;
use crate::process::traces::Tracer;

/// The longest text attribute, in bytes: it bounds the memory of the queue for any review.
const LONGEST: usize = 1024;

/// The error of a request that was dropped without an answer.
const UNHEARD: &str = "the client went away before the answer";

/// The span of a request to one of the two endpoints, if it is sampled. It ends with the answer, or when it
/// is dropped.
#[derive(Debug)]
pub(super) struct ReviewSpan(Option<Box<Span>>);

impl ReviewSpan {
    /// Starts a span by OpenTelemetry's conventions for HTTP servers. Without a tracer it costs one branch.
    pub fn begin(tracer: Option<&Tracer>, head: &Parts) -> Self {
        Self(tracer.and_then(|tracer| begin(tracer, head)).map(Box::new))
    }

    /// The body is complete.
    pub fn read(&mut self, bytes: usize) {
        if let Some(span) = &mut self.0 {
            set(
                span,
                "http.request.body.size",
                i64::try_from(bytes).unwrap_or(i64::MAX),
            );
        }
    }

    /// The review was evaluated: records the fields of the audit line except the requester.
    pub fn set_review(&mut self, record: &AuditRecord) {
        let Some(span) = &mut self.0 else { return };
        let AuditRecord {
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
        // The type was recorded at the start.
        let ReviewLabels {
            r#type: _,
            operation,
            kind,
            decision,
            dry_run,
        } = labels;
        set(span, "transom.review.uid", text(uid));
        set(span, "transom.operation", *operation);
        set(span, "transom.object.kind", *kind);
        for (key, value) in [
            ("transom.object.subresource", subresource.as_str()),
            ("transom.object.namespace", namespace),
            ("transom.object.name", name),
            ("transom.policy", policy),
            (
                "transom.would_deny",
                record.annotation("would-deny").unwrap_or_default(),
            ),
        ] {
            if !value.is_empty() {
                set(span, key, text(value));
            }
        }
        set(span, "transom.dry_run", *dry_run);
        set(span, "transom.decision", *decision);
        set(span, "transom.patched", *decision == "patch");
        if let Some(verdict) = verdict {
            set(span, "transom.verdict", Verdict::as_str(*verdict));
        }
        let mut distinct: Vec<StringValue> = Vec::new();
        for rule in rules {
            if !distinct.iter().any(|known| known.as_str() == *rule) {
                distinct.push((*rule).into());
            }
        }
        set(span, "transom.rules", Value::Array(Array::String(distinct)));
    }

    /// The request is answered; `error` is the reason if there was no review.
    ///
    /// The conventions let a server decide whether a 4xx is an error. The API server sends only reviews, so a
    /// request that is not a review is an error here; a denial is not.
    pub fn answered(&mut self, status: StatusCode, error: Option<&'static str>) {
        let Some(mut span) = self.0.take() else { return };
        set(&mut span, "http.response.status_code", i64::from(status.as_u16()));
        if let Some(error) = error {
            set(&mut span, "error.type", text(status.as_str()));
            span.set_status(Status::error(error));
        }
    }
}

impl Drop for ReviewSpan {
    fn drop(&mut self) {
        if let Some(span) = &mut self.0 {
            span.set_status(Status::error(UNHEARD));
        }
    }
}

fn set(span: &mut Span, key: &'static str, value: impl Into<Value>) {
    span.set_attribute(KeyValue::new(key, value));
}

/// An external text, truncated if it is too long.
fn text(text: &str) -> Value {
    cut(text, LONGEST).into_owned().into()
}

fn begin(tracer: &Tracer, head: &Parts) -> Option<Span> {
    let (name, phase, path) = match head.uri.path() {
        "/mutate" => ("POST /mutate", Phase::Mutate, "/mutate"),
        "/validate" => ("POST /validate", Phase::Validate, "/validate"),
        _ => return None,
    };
    if head.method != Method::POST {
        return None;
    }
    let mut span = tracer.begin(name, &head.headers)?;
    set(&mut span, "http.request.method", "POST");
    set(&mut span, "http.route", path);
    set(&mut span, "url.path", path);
    set(&mut span, "url.scheme", "https");
    let version = if head.version == Version::HTTP_2 {
        "2"
    } else {
        "1.1"
    };
    set(&mut span, "network.protocol.version", version);
    if let Some(host) = host(head) {
        set(&mut span, "server.address", text(host.host()));
        if let Some(port) = host.port_u16() {
            set(&mut span, "server.port", i64::from(port));
        }
    }
    if let Some(agent) = head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()) {
        set(&mut span, "user_agent.original", text(agent));
    }
    set(&mut span, "transom.webhook.type", phase.as_str());
    Some(span)
}

/// The server name that the client used.
fn host(head: &Parts) -> Option<Authority> {
    let named = || head.headers.get(HOST)?.to_str().ok()?.parse().ok();
    head.uri.authority().cloned().or_else(named)
}
