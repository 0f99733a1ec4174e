//! The background task of tracing: exports spans from the queue in batches, and counts and drops what the
//! collector does not accept.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::collector::Collector;
use super::propagation;
use super::settings::{TracingError, TracingSettings};
use crate::process::metrics::{MetricLabels, Metrics};

/// The maximum number of spans in the queue and in one request: OpenTelemetry's defaults.
pub(super) const QUEUE: usize = 2048;
pub(super) const BATCH: usize = 512;
/// How long a batch waits for further spans.
const LINGER: Duration = Duration::from_secs(1);
/// The minimum interval between log lines about failures.
const COMPLAIN: Duration = Duration::from_secs(60);

/// Counts exported and dropped spans.
#[derive(Clone, Debug)]
struct ExporterCounters {
    exported: Counter,
    /// The queue was full.
    queue_full: Counter,
    /// The collector did not accept them.
    export_failed: Counter,
}

impl ExporterCounters {
    fn new(metrics: &Metrics) -> Self {
        let exported = metrics.add("spans_exported", "Spans accepted by the OTLP receiver");
        let help = "Spans dropped before the OTLP receiver accepted them";
        let dropped: Family<MetricLabels, Counter> = metrics.add("spans_dropped", help);
        Self {
            exported,
            queue_full: dropped.get_or_create_owned(&[("reason", "queue_full")]),
            export_failed: dropped.get_or_create_owned(&[("reason", "export_failed")]),
        }
    }

    fn dropped(&self) -> u64 {
        self.queue_full.get() + self.export_failed.get()
    }
}

/// Receives spans when they end.
#[derive(Debug)]
pub(super) struct SpanQueue {
    spans: mpsc::Sender<SpanData>,
    /// Spans that did not fit.
    dropped: Counter,
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        if span.parent_span_id == SpanId::INVALID {
            span.span_context = propagation::root(&span.span_context);
        }
        if self.spans.try_send(span).is_err() {
            self.dropped.inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// [`Exporter::finish`] does that, without blocking a thread.
    fn shutdown_with_timeout(&self, _limit: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[cfg(test)]
impl SpanQueue {
    /// A queue and its receiver.
    pub fn watched() -> (Self, mpsc::Receiver<SpanData>) {
        let (spans, watched) = mpsc::channel(8);
        let dropped = Counter::default();
        (Self { spans, dropped }, watched)
    }
}

/// The task that exports.
#[derive(Debug)]
pub struct Exporter {
    task: JoinHandle<()>,
    close: watch::Sender<bool>,
}

/// Starts to export the spans of the queue. Must be called in a tokio runtime.
pub(super) fn start(
    settings: TracingSettings,
    metrics: &Metrics,
) -> Result<(SpanQueue, Exporter), TracingError> {
    let collector = Collector::new(&settings)?;
    let counters = ExporterCounters::new(metrics);
    let (spans, queue) = mpsc::channel(QUEUE);
    let (close, closing) = watch::channel(false);
    let dropped = counters.queue_full.clone();
    tracing::info!(url = %settings.url, ratio = settings.ratio, "reviews are traced");
    let task = ExporterTask {
        settings,
        collector,
        queue,
        closing,
        counters,
        spoke: None,
        is_failing: false,
        full: 0,
    };
    // Reviews do not depend on traces: if this task ended unexpectedly, spans would only be dropped and
    // counted.
    let task = tokio::spawn(task.run());
    Ok((SpanQueue { spans, dropped }, Exporter { task, close }))
}

impl Exporter {
    /// Exports the remaining spans, for at most `limit`.
    pub async fn finish(mut self, limit: Duration) {
        self.close.send_replace(true);
        if timeout(limit, &mut self.task).await.is_err() {
            self.task.abort();
            // It is suspended at an await, so the abort takes effect immediately.
            let _ = self.task.await;
            tracing::warn!("dropped the last spans, which the OTLP receiver did not accept within {limit:?}");
        }
    }
}

struct ExporterTask {
    settings: TracingSettings,
    collector: Collector,
    queue: mpsc::Receiver<SpanData>,
    closing: watch::Receiver<bool>,
    counters: ExporterCounters,
    /// When dropped spans were last logged.
    spoke: Option<Instant>,
    /// Whether the collector's failure has been logged.
    is_failing: bool,
    /// The number of spans that the queue had dropped at the last check.
    full: u64,
}

impl ExporterTask {
    async fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                more = fill(&mut self.queue, &mut batch) => if !more {
                    return;
                },
                () = closed(&mut self.closing) => {
                    // No further spans are accepted; the remaining ones are exported before the task ends.
                    self.queue.close();
                    let room = BATCH - batch.len();
                    self.queue.recv_many(&mut batch, room).await;
                    if batch.is_empty() {
                        return;
                    }
                }
            }
            self.export(std::mem::take(&mut batch)).await;
        }
    }

    async fn export(&mut self, batch: Vec<SpanData>) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let at_the_end = async {
            closed(&mut self.closing).await;
            self.collector.failed().await
        };
        let taken = tokio::select! {
            biased;
            taken = self.collector.take(batch) => taken,
            // There is no time for a retry.
            why = at_the_end => Err(why),
        };
        match taken {
            Ok(()) => {
                self.counters.exported.inc_by(count);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(url = %self.settings.url, dropped = self.counters.dropped(), "spans are exported again");
                }
                let full = self.counters.queue_full.get();
                if full > std::mem::replace(&mut self.full, full) {
                    self.complain("it accepts them more slowly than they are produced");
                }
            }
            Err(why) => {
                self.counters.export_failed.inc_by(count);
                self.is_failing |= self.complain(&why);
                // The CA may have been replaced. Its file is small, and an invalid one keeps the old client.
                if self.settings.ca.is_some()
                    && let Ok(collector) = Collector::new(&self.settings)
                {
                    self.collector = collector;
                }
            }
        }
    }

    /// Logs that spans were dropped, at most once a minute; returns whether it did.
    fn complain(&mut self, why: &str) -> bool {
        if self.spoke.is_some_and(|last| last.elapsed() < COMPLAIN) {
            return false;
        }
        self.spoke = Some(Instant::now());
        tracing::warn!(
            url = %self.settings.url,
            dropped = self.counters.dropped(),
            "the OTLP receiver does not accept all spans, and the rest are dropped: {why}"
        );
        true
    }
}

/// Fills a batch until it is full or has waited long enough; returns whether it contains anything.
async fn fill(queue: &mut mpsc::Receiver<SpanData>, batch: &mut Vec<SpanData>) -> bool {
    if queue.recv_many(batch, BATCH).await == 0 {
        return false;
    }
    let full = async {
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            if queue.recv_many(batch, room).await == 0 {
                return;
            }
        }
    };
    let _ = timeout(LINGER, full).await;
    true
}

/// Waits until no further span can arrive.
async fn closed(closing: &mut watch::Receiver<bool>) {
    // A dropped exporter is equivalent to a closing one.
    let _ = closing.wait_for(|closing| *closing).await;
}
