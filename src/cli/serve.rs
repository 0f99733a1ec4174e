//! `transom serve`: the webhook, in a cluster, beside one, or without any.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::cluster::ClusterArgs;
use crate::process::logs::LogArgs;
use crate::process::metrics::Metrics;
use crate::process::readiness::Readiness;
use crate::process::room::Room;
use crate::process::today;
use crate::process::traces::{self, TracingArgs};
use crate::serve::cluster::{self, InClusterArgs};
use crate::serve::reviewer::Reviewer;
use crate::serve::standalone::{self, Files};
use crate::tls::args::TlsArgs;
use crate::webhook::{Config, LimitArgs, ListenArgs, Server};

/// Serve the admission webhook
///
/// In a cluster, or beside one with --kubeconfig, policies and facts come from the API server, and the leader among
/// the replicas keeps the Windows nodes, the RuntimeClasses and the certificates true. With --standalone it needs no
/// cluster: the policy is built in or comes from a file, what is known of the cluster comes from files, and the
/// certificate is issued at start or comes from files. POST /mutate and POST /validate take an AdmissionReview
/// (admission.k8s.io/v1) as the API server sends it.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Run without a cluster
    #[arg(long, env = "TRANSOM_STANDALONE", conflicts_with_all = ["kubeconfig", "webhook_url", "certificates", "ca_bundle"])]
    standalone: bool,
    /// With --standalone, a file of WindowsPodPolicy objects; read again when it changes. Without it the built-in policy
    /// counts: errors deny, placement is applied, repair is off
    #[arg(long, env = "TRANSOM_POLICY", value_name = "FILE", requires = "standalone")]
    policy: Option<PathBuf>,
    /// With --standalone, files or folders with Nodes, RuntimeClasses and Namespaces as YAML or JSON: what is known of
    /// the cluster; read again when they change
    #[arg(long, env = "TRANSOM_FACTS", value_name = "FILE", num_args = 1.., value_delimiter = ',', requires = "standalone")]
    facts: Vec<PathBuf>,
    #[command(flatten)]
    in_cluster: InClusterArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    logs: LogArgs,
    #[command(flatten)]
    tracing: TracingArgs,
}

/// How long the last spans may take to reach their collector, after the last review.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// How long threads may take to end that wait for the system, such as for a name server.
const LAST_THREADS: Duration = Duration::from_secs(1);

pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let ServeArgs {
        standalone,
        policy,
        facts,
        in_cluster,
        cluster,
        listen,
        tls,
        limits,
        logs,
        tracing,
    } = args;
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), option_env!("TRANSOM_REVISION"));
    // Dropped last: what the end of the process says is written too.
    let _logs = logs.start(&metrics)?;
    let tracing = tracing.settings()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the server")?;
    let readiness = Readiness::default();
    let base = cluster.facts(today());
    let mut config = Config {
        listen,
        limits: limits.within(Room::take()),
        certificate: tls.into(),
        metrics,
        readiness,
        tracer: None,
    };
    let ended = runtime.block_on(async {
        let shutdown = shutdown()?;
        let mut exporter = None;
        if let Some(settings) = tracing {
            let started = config
                .metrics
                .register(|registry| traces::start(settings, registry))?;
            config.tracer = Some(started.0);
            exporter = Some(started.1);
        }
        let ended = if standalone {
            serve_standalone(Files { policy, facts, base }, config, shutdown).await
        } else {
            cluster::run(in_cluster, base, config, shutdown).await
        };
        if let Some(exporter) = exporter {
            exporter.finish(LAST_SPANS).await;
        }
        ended
    });
    runtime.shutdown_timeout(LAST_THREADS);
    ended.map(|()| ExitCode::SUCCESS)
}

/// Serves by files, until `shutdown` and the draining after it.
async fn serve_standalone(
    files: Files,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let (show, latest) = watch::channel(Arc::new(files.load()?));
    let metrics = config.metrics.clone();
    let server = Server::bind(config).await?;
    let reviewer = Arc::new(Reviewer::of_files(latest));
    tokio::select! {
        ended = server.serve(reviewer, shutdown) => ended.map_err(anyhow::Error::from),
        () = standalone::follow(files, show, metrics) => {
            bail!("the task that follows the policy and facts files ended")
        }
    }
}

/// Comes to pass when the process is asked to end, by SIGTERM or SIGINT.
fn shutdown() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () }
    })
}
