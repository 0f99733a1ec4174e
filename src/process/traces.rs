//! Tracing: OpenTelemetry spans of reviews with their parents, which the SDK exports in the background by OTLP/HTTP.
//!
//! A review never waits for its span: the queue of the SDK's batch processor drops a span that does not fit.

mod args;
mod otel_env;
mod receiver;
mod settings;

use std::time::Duration;

use hyper::header::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, TracerProvider as _};
use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, Span, SpanLimits,
    TracerProviderBuilder,
};
use tokio::task::spawn_blocking;

pub use self::args::TracingArgs;
pub use self::settings::{TracingError, TracingSettings};

use self::receiver::ReceiverClient;

/// The maximum number of spans in the queue and in one request: OpenTelemetry's defaults.
const QUEUE: usize = 2048;
const BATCH: usize = 512;
/// How often spans are exported, if no batch is full before.
const LINGER: Duration = Duration::from_secs(1);
/// The timeout of a request, and of an export with its retries: OpenTelemetry's default.
const EXPORT: Duration = Duration::from_secs(10);
/// The longest header that is read as a trace context: the W3C requires every program to propagate a `tracestate` of
/// this length. It bounds the memory of the queue.
const LONGEST: usize = 512;

/// Creates spans and queues them; clones share one queue.
#[derive(Clone, Debug)]
pub struct Tracer(SdkTracer);

/// The export in the background.
#[derive(Debug)]
pub struct Exporter(SdkTracerProvider);

/// Starts to export in the background. Must be called in a tokio runtime.
///
/// # Errors
/// If the receiver's CA cannot be read.
pub fn start(settings: TracingSettings) -> Result<(Tracer, Exporter), TracingError> {
    // Retries after one and two seconds. A longer outage loses the batch; later spans wait in the queue.
    let tries = RetryPolicy::recommended()
        .with_max_retries(2)
        .with_initial_delay(Duration::from_secs(1))
        .with_max_delay(Duration::from_secs(2));
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(ReceiverClient::new(&settings)?)
        .with_endpoint(settings.url.to_string())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(EXPORT)
        .with_retry_policy(tries)
        .build()?;
    // Sets every value, because the SDK would read the others from environment variables.
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(LINGER)
        .build();
    let batches = BatchSpanProcessor::new(exporter, batches);
    tracing::info!(url = %settings.url, ratio = settings.ratio, "reviews are traced");
    let provider = provider(settings.ratio)
        .with_resource(settings.resource)
        .with_span_processor(batches)
        .build();
    Ok((Tracer::new(&provider), Exporter(provider)))
}

/// Samples a span as its parent, or without a parent by `ratio`.
fn provider(ratio: f64) -> TracerProviderBuilder {
    // Sets the limits, because the SDK would read them from environment variables.
    SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))))
        .with_span_limits(SpanLimits::default())
}

impl Tracer {
    fn new(provider: &SdkTracerProvider) -> Self {
        let scope =
            InstrumentationScope::builder(env!("CARGO_PKG_NAME")).with_version(env!("CARGO_PKG_VERSION"));
        Self(provider.tracer_with_scope(scope.build()))
    }

    /// Starts a span for a request with these headers, if it is sampled. Dropping the span ends and queues it.
    pub fn begin(&self, name: &'static str, headers: &HeaderMap) -> Option<Span> {
        let headers = TraceHeaders(HeaderExtractor(headers));
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
        let span = SpanBuilder::from_name(name).with_kind(SpanKind::Server);
        let span = span.start_with_context(&self.0, &parent);
        span.is_recording().then_some(span)
    }
}

impl Exporter {
    /// Exports the remaining spans, for at most `limit`.
    pub async fn finish(self, limit: Duration) {
        // It waits on its thread for the thread of the SDK.
        let ended = spawn_blocking(move || self.0.shutdown_with_timeout(limit)).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("dropped the last spans, which the OTLP receiver did not accept within {limit:?}");
        }
    }
}

/// The headers of a request that are not too long.
struct TraceHeaders<'h>(HeaderExtractor<'h>);

impl Extractor for TraceHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).filter(|value| value.len() <= LONGEST)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys()
    }
}

/// A tracer that samples root spans by `ratio`, and the spans that it recorded.
#[cfg(test)]
pub(crate) fn watched(ratio: f64) -> (Tracer, impl FnMut() -> Option<opentelemetry_sdk::trace::SpanData>) {
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::SpanData;

    #[derive(Debug)]
    struct Watcher(std::sync::mpsc::Sender<SpanData>);

    impl opentelemetry_sdk::trace::SpanExporter for Watcher {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            for span in batch {
                self.0.send(span).ok();
            }
            Ok(())
        }
    }

    let (sender, spans) = std::sync::mpsc::channel();
    let provider = provider(ratio).with_simple_exporter(Watcher(sender)).build();
    (Tracer::new(&provider), move || spans.try_recv().ok())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use opentelemetry::trace::{SpanId, TraceFlags};
    use opentelemetry_sdk::Resource;
    use tokio::net::TcpListener;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn headers(flags: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let parent = format!("00-{TRACE}-{SPAN}-{flags}");
        headers.insert("traceparent", parent.parse().unwrap());
        headers.append("tracestate", "a=1,b=2".parse().unwrap());
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
        assert!(root.span_context.is_valid() && root.span_context.is_sampled());
        let (tracer, _) = watched(0.5);
        let half = (0..2_000)
            .filter(|_| tracer.begin("a review", &none).is_some())
            .count();
        assert!((800..1_200).contains(&half), "{half} of 2000");
    }

    #[test]
    fn a_state_that_is_too_long_is_not_handed_on() {
        let (tracer, mut recorded) = watched(0.0);
        let value = "x".repeat(250);
        for (last, expected) in [("c=1234", LONGEST), ("c=12345", 0)] {
            let mut headers = headers("01");
            let state = format!("a={value},b={value},{last}");
            headers.insert("tracestate", state.parse().unwrap());
            drop(tracer.begin("a review", &headers).unwrap());
            let state = recorded().unwrap().span_context.trace_state().header();
            assert_eq!(state.len(), expected, "{last}");
        }
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

    #[tokio::test(flavor = "multi_thread")]
    async fn neither_a_review_nor_the_end_waits_for_a_receiver_that_never_answers() {
        // The kernel accepts connections for it, but no answer ever arrives.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (tracer, exporter) = start(settings(silent.local_addr().unwrap())).unwrap();
        let start = Instant::now();
        for _ in 0..QUEUE + BATCH + 100 {
            drop(tracer.begin("a review", &HeaderMap::new()).unwrap());
        }
        exporter.finish(Duration::from_millis(50)).await;
        assert!(start.elapsed() < EXPORT / 2, "{:?}", start.elapsed());
        // A tracer may outlive the exporter.
        assert!(tracer.begin("a review", &HeaderMap::new()).is_none());
    }
}
