//! The background of tracing: spans leave the queue in batches, and what the collector does not take is counted and dropped.

use std::time::Duration;

use hyper::body::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::Tracer;
use super::otlp::{Resource, encode};
use super::settings::{Settings, TracingError};
use super::span::Span;
use super::transport::{Failure, Transport};

/// Spans that wait at most, and in one request at most: OpenTelemetry's own bounds.
const QUEUE: usize = 2048;
const BATCH: usize = 512;
/// How long a span waits for company.
const LINGER: Duration = Duration::from_secs(1);
/// How long a batch waits before each further try. A collector that is away for longer loses it: the queue is what is kept.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// How often the log speaks of failures at most.
const COMPLAIN: Duration = Duration::from_secs(60);

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// What became of spans.
#[derive(Clone, Debug)]
struct Counters {
    exported: Counter,
    /// There was no room in the queue.
    queue: Counter,
    /// The collector did not take them.
    export: Counter,
}

impl Counters {
    fn new(registry: &mut Registry) -> Self {
        let dropped = Family::<Reason, Counter>::default();
        let exported = Counter::default();
        registry.register(
            "spans_exported",
            "Spans that the collector has taken",
            exported.clone(),
        );
        registry.register("spans_dropped", "Spans that nobody will see", dropped.clone());
        Self {
            exported,
            queue: dropped.get_or_create_owned(&Reason { reason: "queue" }),
            export: dropped.get_or_create_owned(&Reason { reason: "export" }),
        }
    }

    fn dropped(&self) -> u64 {
        self.queue.get() + self.export.get()
    }
}

/// The task that exports.
#[derive(Debug)]
pub struct Exporter {
    task: JoinHandle<()>,
    close: watch::Sender<bool>,
}

/// Begins to export in the background; its metrics go to `registry`. To be called in a runtime.
///
/// # Errors
/// When the collector's CA cannot be read.
pub fn start(settings: Settings, registry: &mut Registry) -> Result<(Tracer, Exporter), TracingError> {
    let transport = Transport::new(&settings)?;
    let counters = Counters::new(registry);
    let (sender, queue) = mpsc::channel(QUEUE);
    let (close, closing) = watch::channel(false);
    let tracer = Tracer::new(sender, settings.ratio, counters.queue.clone());
    tracing::info!(url = %settings.url, ratio = ?settings.ratio, "reviews are traced");
    let task = Task {
        resource: Resource {
            attributes: settings.attributes.clone(),
        },
        settings,
        transport,
        queue,
        closing,
        counters,
        spoke: None,
        is_failing: false,
        full: 0,
    };
    // Reviews need no traces: if it ended, which it never should, spans would be dropped and counted, and no more.
    let task = tokio::spawn(task.run());
    Ok((tracer, Exporter { task, close }))
}

impl Exporter {
    /// Exports what is left, for at most `limit`.
    pub async fn finish(mut self, limit: Duration) {
        self.close.send_replace(true);
        if timeout(limit, &mut self.task).await.is_err() {
            self.task.abort();
            // It stands at a point where it waits, and is gone at once.
            let _ = self.task.await;
            tracing::warn!(
                "gave up on the last spans, which the trace collector did not take within {limit:?}"
            );
        }
    }
}

struct Task {
    resource: Resource,
    settings: Settings,
    transport: Transport,
    queue: mpsc::Receiver<Span>,
    closing: watch::Receiver<bool>,
    counters: Counters,
    /// When the log last spoke of spans that were dropped.
    spoke: Option<Instant>,
    /// Whether the log speaks of a collector that takes nothing.
    is_failing: bool,
    /// How many spans had found no room in the queue, when that was last looked at.
    full: u64,
}

impl Task {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                more = fill(&mut self.queue, &mut batch) => if !more {
                    return;
                },
                () = closed(&mut self.closing) => {
                    // No span comes any more; what is there is exported, and then nothing is.
                    self.queue.close();
                    let room = BATCH - batch.len();
                    self.queue.recv_many(&mut batch, room).await;
                    if batch.is_empty() {
                        return;
                    }
                }
            }
            self.export(&batch).await;
            batch.clear();
        }
    }

    async fn export(&mut self, batch: &[Span]) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        match self.send(Bytes::from(encode(&self.resource, batch))).await {
            Ok(()) => {
                self.counters.exported.inc_by(count);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(url = %self.settings.url, dropped = self.counters.dropped(), "spans are exported again");
                }
                let full = self.counters.queue.get();
                if full > std::mem::replace(&mut self.full, full) {
                    self.complain("it takes them more slowly than they come");
                }
            }
            Err(Failure { why, .. }) => {
                self.counters.export.inc_by(count);
                self.is_failing |= self.complain(&why);
                // The CA may be another one now. Its file is small, and a broken one leaves the old way open.
                if self.settings.ca.is_some()
                    && let Ok(transport) = Transport::new(&self.settings)
                {
                    self.transport = transport;
                }
            }
        }
    }

    /// Tries again where that may help, but not at the end.
    async fn send(&mut self, body: Bytes) -> Result<(), Failure> {
        for pause in AGAIN {
            match self.transport.send(body.clone()).await {
                Err(failure) if failure.again => {
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = closed(&mut self.closing) => return Err(failure),
                    }
                }
                done => return done,
            }
        }
        self.transport.send(body).await
    }

    /// Says that spans were dropped, once a minute; whether it did.
    fn complain(&mut self, why: &str) -> bool {
        if self.spoke.is_some_and(|last| last.elapsed() < COMPLAIN) {
            return false;
        }
        self.spoke = Some(Instant::now());
        tracing::warn!(
            url = %self.settings.url,
            dropped = self.counters.dropped(),
            "the trace collector does not take all spans, and they are dropped: {why}"
        );
        true
    }
}

/// Fills a batch until it is full or has waited; whether there is anything in it.
async fn fill(queue: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) -> bool {
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

/// Waits until no further span is to come.
async fn closed(closing: &mut watch::Receiver<bool>) {
    // An exporter that was dropped is as good as one that closes.
    let _ = closing.wait_for(|closing| *closing).await;
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderMap;
    use prometheus_client::encoding::text;
    use tokio::net::TcpListener;

    use super::super::context::Ratio;
    use super::*;

    fn settings(port: u16) -> Settings {
        Settings {
            url: format!("http://127.0.0.1:{port}/v1/traces").parse().unwrap(),
            ca: None,
            headers: HeaderMap::new(),
            ratio: Ratio::new(1.0).unwrap(),
            attributes: Vec::new(),
        }
    }

    fn exposed(registry: &Registry) -> String {
        let mut text = String::new();
        text::encode(&mut text, registry).unwrap();
        text
    }

    #[tokio::test]
    async fn what_does_not_fit_into_the_queue_is_counted_and_nobody_waits() {
        // The kernel accepts connections for it, and nobody answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut registry = Registry::default();
        let settings = settings(silent.local_addr().unwrap().port());
        let (tracer, exporter) = start(settings, &mut registry).unwrap();
        let more = 100;
        for _ in 0..QUEUE + more {
            drop(tracer.begin("a review", &HeaderMap::new()).unwrap());
        }
        let dropped =
            |reason: &str, count: usize| format!("spans_dropped_total{{reason=\"{reason}\"}} {count}\n");
        let text = exposed(&registry);
        assert!(text.contains(&dropped("queue", more)), "{text}");
        assert!(text.contains(&dropped("export", 0)), "{text}");

        let start = Instant::now();
        exporter.finish(Duration::from_millis(50)).await;
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        // Whoever still has a tracer does no harm with it.
        drop(tracer.begin("a review", &HeaderMap::new()).unwrap());
        assert!(exposed(&registry).contains(&dropped("queue", more + 1)));
    }
}
