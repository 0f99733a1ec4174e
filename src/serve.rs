//! A running server: assembles its parts, evaluates reviews, and logs an audit line for each review.

mod audit_line;
mod certificates;
mod cluster_config;
mod cluster_metrics;
mod image_args;
mod image_credentials;
mod image_feed;
mod image_look_ups;
pub(crate) mod in_cluster;
mod knowledge;
mod review_handler;
pub(crate) mod standalone;

use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::Handle;

use self::in_cluster::InClusterArgs;

pub use self::cluster_config::ServedClusterConfig;
pub use self::image_args::{ImageArgs, ImageSettings};
pub use self::knowledge::ServedKnowledge;
use self::standalone::StandaloneFiles;
use crate::model::cluster::facts::Facts;
use crate::process::traces;
use crate::rules::documentation::DocumentationUrl;
use crate::webhook::WebhookConfig;

/// How long exporting the last spans may take after the last review.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// How long to wait for blocking threads, such as for a DNS lookup.
const LAST_THREADS: Duration = Duration::from_secs(1);

/// The parts of a server.
pub struct ServeSettings {
    /// The source of policies and facts.
    pub source: PolicySource,
    /// The trace exporter settings; without them, no spans are created.
    pub tracing: Option<traces::TracingSettings>,
    /// Which registries are asked about images; without them, none is.
    pub images: Option<ImageSettings>,
    /// Where the rules of a denial are documented.
    pub documentation: Option<DocumentationUrl>,
    /// The webhook settings, without the tracer, which is created here.
    pub webhook: WebhookConfig,
}

/// The source of policies and facts.
pub enum PolicySource {
    /// Files, without a cluster.
    Files(StandaloneFiles),
    /// The watches of a cluster, the facts from the arguments, those that administrators state, and the known faults.
    Cluster(Box<InClusterArgs>, Facts, ServedClusterConfig, ServedKnowledge),
}

/// Serves until the process is asked to stop, then drains.
///
/// # Errors
/// Why the server did not start or stopped early, as a message for people.
pub fn run(settings: ServeSettings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the server")?;
    // A separate runtime for watches, snapshots and controllers, so that their computations do not delay
    // reviews.
    let background = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("background")
        .enable_all()
        .build()
        .context("cannot start the background threads")?;
    let ended = runtime.block_on(serve(settings, background.handle().clone()));
    runtime.shutdown_timeout(LAST_THREADS);
    background.shutdown_timeout(LAST_THREADS);
    ended
}

async fn serve(settings: ServeSettings, background: Handle) -> anyhow::Result<()> {
    let ServeSettings {
        source,
        tracing,
        images,
        documentation,
        mut webhook,
    } = settings;
    let shutdown = shutdown()?;
    let mut exporter = None;
    if let Some(settings) = tracing {
        let (tracer, started) = traces::start(settings)?;
        webhook.tracer = Some(tracer);
        exporter = Some(started);
    }
    let reviews = (images, documentation);
    let ended = match source {
        PolicySource::Files(files) => standalone::run(files, reviews, webhook, background, shutdown).await,
        PolicySource::Cluster(args, base, stated, knowledge) => {
            let known = (base, stated, knowledge);
            in_cluster::run(*args, known, reviews, webhook, background, shutdown).await
        }
    };
    if let Some(exporter) = exporter {
        exporter.finish(LAST_SPANS).await;
    }
    ended
}

/// Resolves when the process receives SIGTERM or SIGINT.
#[cfg(unix)]
pub(crate) fn shutdown() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () }
    })
}

/// Resolves when the process receives Ctrl-C.
#[cfg(windows)]
pub(crate) fn shutdown() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = tokio::signal::windows::ctrl_c().context("cannot listen for Ctrl-C")?;
    Ok(async move { _ = interrupt.recv().await })
}
