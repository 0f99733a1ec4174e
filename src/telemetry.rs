//! Traces: spans, whose child they are, and their export by OTLP/HTTP in the background; what a review is stands elsewhere.
//!
//! ```text
//! headers ─ context ─ sampled? ─ Recording ─ bounded queue ─ exporter ─ otlp ─ transport ─ collector
//! ```
//!
//! Whoever records never waits: a span that finds no room in the queue is counted and dropped. OTLP is written by hand
//! because Transom sends one kind of span and nothing else: OpenTelemetry's own crates bring a second queue and a second
//! runtime, and do not say how many spans they dropped.

mod args;
mod context;
mod exporter;
mod list;
mod otlp;
mod settings;
mod span;
mod transport;

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hyper::header::HeaderMap;
use prometheus_client::metrics::counter::Counter;
use ring::rand::SystemRandom;
use tokio::sync::mpsc;

pub use self::args::TracingArgs;
pub use self::context::Ratio;
pub use self::exporter::{Exporter, start};
pub use self::settings::{Settings, TracingError};
pub use self::span::Value;

use self::context::Origin;
use self::span::Span;

/// Makes spans and hands them on; clones share one queue.
#[derive(Clone, Debug)]
pub struct Tracer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    queue: mpsc::Sender<Span>,
    ratio: Ratio,
    random: SystemRandom,
    /// Spans that found no room in the queue.
    dropped: Counter,
}

impl Tracer {
    fn new(queue: mpsc::Sender<Span>, ratio: Ratio, dropped: Counter) -> Self {
        Self(Arc::new(Inner {
            queue,
            ratio,
            random: SystemRandom::new(),
            dropped,
        }))
    }

    /// Begins a span for a request with these headers, where it is sampled: as its parent is, by the ratio without one.
    pub fn begin(&self, name: &'static str, headers: &HeaderMap) -> Option<Recording> {
        let origin = Origin::of(headers, self.0.ratio, &self.0.random)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Some(Recording {
            span: Span {
                name,
                origin,
                start,
                ..Span::default()
            },
            begun: Instant::now(),
            tracer: self.clone(),
        })
    }
}

/// A span that has not ended. It ends, and goes to the queue, when it is dropped.
#[derive(Debug)]
pub struct Recording {
    span: Span,
    begun: Instant,
    tracer: Tracer,
}

impl Recording {
    /// Adds an attribute; each key is set once.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.span.attributes.push((key, value.into()));
    }

    /// Says why what is recorded failed; `None` that it did not.
    pub fn failed(&mut self, why: Option<&'static str>) {
        self.span.error = why;
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let took = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.span.end = self.span.start.saturating_add(took);
        if self
            .tracer
            .0
            .queue
            .try_send(std::mem::take(&mut self.span))
            .is_err()
        {
            self.tracer.0.dropped.inc();
        }
    }
}

/// A tracer that samples what has no parent, and what it recorded, as text.
#[cfg(test)]
pub(crate) fn watched() -> (Tracer, impl FnMut() -> Option<String>) {
    let (sender, mut queue) = mpsc::channel(8);
    let all = Ratio::new(1.0).expect("1 is a share");
    let tracer = Tracer::new(sender, all, Counter::default());
    (tracer, move || {
        queue.try_recv().ok().map(|span| format!("{span:?}"))
    })
}
