//! A running server: what is assembled, what judges reviews, and the line that each review leaves in the log.

mod audit_line;
mod certificates;
mod cluster_metrics;
pub(crate) mod in_cluster;
mod review_handler;
pub(crate) mod standalone;

use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::Handle;

use self::in_cluster::InClusterArgs;
use self::standalone::StandaloneFiles;
use crate::model::facts::Facts;
use crate::process::traces;
use crate::webhook::WebhookConfig;

/// How long the last spans may take to reach their collector, after the last review.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// How long threads may take to end that wait for the system, such as for a name server.
const LAST_THREADS: Duration = Duration::from_secs(1);

/// What a server is made of.
pub struct ServeSettings {
    /// Where policies and facts come from.
    pub source: PolicySource,
    /// Where spans go; none are made without.
    pub tracing: Option<traces::TracingSettings>,
    /// The webhook; its tracer is made here.
    pub webhook: WebhookConfig,
}

/// Where policies and facts come from.
pub enum PolicySource {
    /// From files, without a cluster.
    Files(StandaloneFiles),
    /// From the watches of a cluster, and from what the arguments say of it.
    Cluster(Box<InClusterArgs>, Facts),
}

/// Serves until the process is asked to end, and through the draining after that.
///
/// # Errors
/// What kept the server from starting, or ended it before its time; in words for a person.
pub fn run(settings: ServeSettings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the server")?;
    // Watches, snapshots and controllers: what they compute holds up no review.
    let behind = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("behind")
        .enable_all()
        .build()
        .context("cannot start the thread behind the server")?;
    let ended = runtime.block_on(serve(settings, behind.handle().clone()));
    runtime.shutdown_timeout(LAST_THREADS);
    behind.shutdown_timeout(LAST_THREADS);
    ended
}

async fn serve(settings: ServeSettings, behind: Handle) -> anyhow::Result<()> {
    let ServeSettings {
        source,
        tracing,
        mut webhook,
    } = settings;
    let shutdown = shutdown()?;
    let mut exporter = None;
    if let Some(settings) = tracing {
        let start = |registry: &mut _| traces::start(settings, registry);
        let (tracer, started) = webhook.metrics.register(start)?;
        webhook.tracer = Some(tracer);
        exporter = Some(started);
    }
    let ended = match source {
        PolicySource::Files(files) => standalone::run(files, webhook, shutdown).await,
        PolicySource::Cluster(args, base) => in_cluster::run(*args, base, webhook, behind, shutdown).await,
    };
    if let Some(exporter) = exporter {
        exporter.finish(LAST_SPANS).await;
    }
    ended
}

/// Comes to pass when the process is asked to end, by SIGTERM or SIGINT.
#[cfg(unix)]
fn shutdown() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () }
    })
}

/// Comes to pass when the process is asked to end, by Ctrl-C.
#[cfg(windows)]
fn shutdown() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = tokio::signal::windows::ctrl_c().context("cannot listen for Ctrl-C")?;
    Ok(async move { _ = interrupt.recv().await })
}
