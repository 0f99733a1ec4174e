//! Tracing: OpenTelemetry spans with their parents, and their export in the background. Independent of
//! reviews.
//!
//! ```text
//! headers ─ propagation ─ the SDK: ids, sampling ─ span ─ bounded queue ─ exporter ─ collector, by OTLP/HTTP
//! ```
//!
//! A review never waits for its span: a span that does not fit into the queue is counted and dropped. The
//! SDK's batch processor is not used, because its separate thread cannot run a tokio client, and it does not
//! apply drops.

mod args;
mod collector;
mod exporter;
mod otel_env;
mod propagation;
mod settings;

use hyper::header::HeaderMap;
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, TraceContextExt as _, TracerProvider as _};
use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span, SpanLimits};

pub use self::args::TracingArgs;
pub use self::exporter::Exporter;
pub use self::settings::{TracingError, TracingSettings};

use self::exporter::SpanQueue;
use super::metrics::Metrics;

/// Creates spans and queues them; clones share one queue.
#[derive(Clone, Debug)]
pub struct Tracer(SdkTracer);

/// Starts to export in the background, with these metrics. Must be called in a tokio runtime.
///
/// # Errors
/// If the collector's CA cannot be read.
pub fn start(settings: TracingSettings, metrics: &Metrics) -> Result<(Tracer, Exporter), TracingError> {
    let ratio = settings.ratio;
    let (queue, exporter) = exporter::start(settings, metrics)?;
    Ok((Tracer::new(queue, ratio), exporter))
}

impl Tracer {
    fn new(queue: SpanQueue, ratio: f64) -> Self {
        // Sets the resource and limits explicitly, because the SDK would read them from environment variables
        // that Transom does not support. The exporter sets the resource of an export.
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))))
            .with_span_limits(SpanLimits::default())
            .with_resource(Resource::builder_empty().build())
            .with_span_processor(queue)
            .build();
        let scope =
            InstrumentationScope::builder(env!("CARGO_PKG_NAME")).with_version(env!("CARGO_PKG_VERSION"));
        Self(provider.tracer_with_scope(scope.build()))
    }

    /// Starts a span for a request with these headers, if it is sampled: as its parent is, or without a
    /// parent by the ratio. Dropping the span ends and queues it.
    pub fn begin(&self, name: &'static str, headers: &HeaderMap) -> Option<Span> {
        let mut context = Context::new();
        if let Some(parent) = propagation::of(headers) {
            context = context.with_remote_span_context(parent);
        }
        let span = SpanBuilder::from_name(name).with_kind(SpanKind::Server);
        let span = span.start_with_context(&self.0, &context);
        span.is_recording().then_some(span)
    }
}

/// A tracer that samples root spans by `ratio`, and the spans that it recorded.
#[cfg(test)]
pub(crate) fn watched(ratio: f64) -> (Tracer, impl FnMut() -> Option<opentelemetry_sdk::trace::SpanData>) {
    let (queue, mut spans) = SpanQueue::watched();
    (Tracer::new(queue, ratio), move || spans.try_recv().ok())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use opentelemetry::trace::{SpanId, TraceFlags};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn headers(flags: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let parent = format!("00-{TRACE}-{SPAN}-{flags}");
        headers.insert("traceparent", parent.parse().unwrap());
        headers.append("tracestate", "a=1".parse().unwrap());
        headers.append("tracestate", "b=2".parse().unwrap());
        headers
    }

    #[test]
    fn a_sampled_parent_is_sampled_whatever_the_ratio() {
        let (tracer, mut recorded) = watched(0.0);
        drop(tracer.begin("a review", &headers("01")).unwrap());
        let span = recorded().unwrap();
        let context = &span.span_context;
        assert_eq!(context.trace_id().to_string(), TRACE);
        assert_eq!(span.parent_span_id.to_string(), SPAN);
        assert_eq!(context.trace_flags(), TraceFlags::SAMPLED);
        assert_eq!(context.trace_state().header(), "a=1,b=2");
        assert_ne!(context.span_id(), span.parent_span_id);
    }

    #[test]
    fn a_parent_that_is_not_sampled_is_never_sampled() {
        let (tracer, _) = watched(1.0);
        for flags in ["00", "02", "fe"] {
            assert!(tracer.begin("a review", &headers(flags)).is_none(), "{flags}");
        }
    }

    #[test]
    fn without_a_parent_the_ratio_decides() {
        let none = HeaderMap::new();
        assert!(watched(0.0).0.begin("a review", &none).is_none());
        let (tracer, mut recorded) = watched(1.0);
        drop(tracer.begin("a review", &none).unwrap());
        let root = recorded().unwrap();
        assert_eq!(root.parent_span_id, SpanId::INVALID);
        // Sampled, and the trace id is random.
        assert_eq!(root.span_context.trace_flags(), TraceFlags::new(0b11));
        assert!(root.span_context.is_valid());
        let (tracer, _) = watched(0.5);
        let half = (0..2_000)
            .filter(|_| tracer.begin("a review", &none).is_some())
            .count();
        assert!((800..1_200).contains(&half), "{half} of 2000");
    }

    fn settings(address: SocketAddr) -> TracingSettings {
        TracingSettings {
            url: format!("http://{address}/v1/traces").parse().unwrap(),
            ca: None,
            headers: HeaderMap::new(),
            ratio: 1.0,
            resource: Resource::builder_empty().build(),
        }
    }

    #[track_caller]
    fn assert_dropped(metrics: &Metrics, reason: &str, count: usize) {
        let text = metrics.expose();
        let line = format!("transom_spans_dropped_total{{reason=\"{reason}\"}} {count}\n");
        assert!(text.contains(&line), "{text}");
    }

    /// In the runtime's own time, which passes only while everything waits.
    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_into_the_queue_is_counted_and_no_review_waits() {
        // The kernel accepts connections for it, but no answer ever arrives.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let metrics = Metrics::new("0", None);
        let (tracer, exporter) = start(settings(silent.local_addr().unwrap()), &metrics).unwrap();
        let more = 100;
        for _ in 0..exporter::QUEUE + more {
            drop(tracer.begin("a review", &HeaderMap::new()).unwrap());
        }
        assert_dropped(&metrics, "queue_full", more);
        assert_dropped(&metrics, "export_failed", 0);

        let start = Instant::now();
        exporter.finish(Duration::from_millis(50)).await;
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        // A tracer may outlive the exporter.
        drop(tracer.begin("a review", &HeaderMap::new()).unwrap());
        assert_dropped(&metrics, "queue_full", more + 1);
    }

    #[tokio::test]
    async fn the_end_waits_for_no_further_try() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let hangs_up = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                drop(connection);
            }
        });
        let metrics = Metrics::new("0", None);
        let (tracer, exporter) = start(settings(address), &metrics).unwrap();
        let all = exporter::QUEUE;
        for _ in 0..all {
            drop(tracer.begin("a review", &HeaderMap::new()).unwrap());
        }
        exporter.finish(Duration::from_secs(60)).await;
        assert_dropped(&metrics, "export_failed", all);
        assert_eq!(
            tries.load(Ordering::Relaxed),
            all / exporter::BATCH,
            "one for each batch"
        );
        hangs_up.abort();
    }
}
