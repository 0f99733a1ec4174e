//! `transom serve`: the webhook, with policy and facts from files that are read again when they change.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use arc_swap::ArcSwap;
use clap::Args;
use hyper::StatusCode;
use tokio::signal::unix::{SignalKind, signal};

use super::audit;
use super::check::{policies, read};
use super::cluster::{ClusterArgs, today};
use super::logs::{LogArgs, LogFormat};
use crate::admission::{self, Context, Phase};
use crate::check::Manifests;
use crate::engine::effective::PolicySet;
use crate::model::facts::Facts;
use crate::model::policy::Policy;
use crate::model::subject::Stage;
use crate::webhook::{
    Config, LimitArgs, ListenArgs, Metrics, Readiness, Reply, Review, ReviewLabels, Server, TlsArgs,
};

/// Serve the admission webhook
///
/// With --standalone it needs no cluster: the policy is built in or comes from a file, what is known of the cluster
/// comes from files, and the certificate is issued at start or comes from files. POST /mutate and POST /validate take
/// an AdmissionReview (admission.k8s.io/v1) as the API server sends it.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Run without a cluster
    #[arg(long, env = "TRANSOM_STANDALONE")]
    standalone: bool,
    /// A file of WindowsPodPolicy objects; read again when it changes. Without it the built-in policy counts:
    /// errors deny, placement is applied, repair is off
    #[arg(long, env = "TRANSOM_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Files or folders with Nodes, RuntimeClasses and Namespaces as YAML or JSON: what is known of the cluster;
    /// read again when they change
    #[arg(long, env = "TRANSOM_FACTS", value_name = "FILE", num_args = 1.., value_delimiter = ',')]
    facts: Vec<PathBuf>,
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
}

/// How often files are looked at for new content.
const POLL: Duration = Duration::from_secs(2);

pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let ServeArgs {
        standalone,
        policy,
        facts,
        cluster,
        listen,
        tls,
        limits,
        logs,
    } = args;
    if !standalone {
        bail!(
            "transom serve needs --standalone: this version takes policy and facts from files, not from a cluster"
        );
    }
    logs.start()?;
    let files = Files {
        policy,
        facts,
        cluster,
    };
    let state = Arc::new(ArcSwap::from_pointee(files.load()?));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the server")?;
    runtime.block_on(async {
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), option_env!("TRANSOM_REVISION"));
        let readiness = Readiness::default();
        let config =
            Config { listen, limits: limits.into(), certificate: tls.into(), metrics: metrics.clone(), readiness };
        let server = Server::bind(config).await?;
        let reviewer = Arc::new(Reviewer { state: Arc::clone(&state), format: logs.format() });
        let (terminate, interrupt) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
        let (mut terminate, mut interrupt) =
            (terminate.context("cannot listen for SIGTERM")?, interrupt.context("cannot listen for SIGINT")?);
        let shutdown = async move {
            tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () }
        };
        tokio::select! {
            ended = server.serve(reviewer, shutdown) => ended.map_err(anyhow::Error::from),
            () = follow(files, state, metrics) => bail!("the task that follows the policy and facts files ended"),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What reviews are judged by, as one thing that is swapped.
struct State {
    facts: Facts,
    policies: PolicySet,
}

/// The files that state comes from.
struct Files {
    policy: Option<PathBuf>,
    facts: Vec<PathBuf>,
    cluster: ClusterArgs,
}

impl Files {
    fn load(&self) -> anyhow::Result<State> {
        let policies = policies(self.policy.as_deref(), Policy::standalone())?;
        let mut facts = self.cluster.facts(today());
        let mut manifests = Manifests::new(false);
        for path in &self.facts {
            read(path, &mut manifests);
        }
        if let Some(error) = manifests.errors().first() {
            bail!(
                "cannot read the facts (--facts): {}:{}: {}",
                error.source,
                error.line,
                error.message
            );
        }
        manifests.learn(&mut facts, &policies);
        let unreadable = manifests.check(&facts, &policies, Stage::Written, |_| {});
        if let Some(error) = unreadable.first() {
            bail!(
                "cannot read the facts (--facts): {}:{}: {}",
                error.source,
                error.line,
                error.message
            );
        }
        Ok(State { facts, policies })
    }

    /// The bytes of every file, for telling whether something changed; what cannot be read counts as empty.
    fn content(&self) -> Vec<Vec<u8>> {
        fn all(path: &Path, into: &mut Vec<Vec<u8>>) {
            match std::fs::read_dir(path) {
                Ok(entries) => {
                    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
                    paths.sort();
                    paths
                        .iter()
                        .filter(|path| path.is_file())
                        .for_each(|path| all(path, into));
                }
                Err(_) => into.push(std::fs::read(path).unwrap_or_default()),
            }
        }
        let mut content = Vec::new();
        self.policy
            .iter()
            .chain(&self.facts)
            .for_each(|path| all(path, &mut content));
        content
    }
}

/// Puts a new state in place when a file or the day changes; a state that cannot be loaded leaves the old one.
async fn follow(files: Files, state: Arc<ArcSwap<State>>, metrics: Metrics) {
    let files = Arc::new(files);
    let mut content = files.content();
    let mut day = today();
    loop {
        tokio::time::sleep(POLL).await;
        let looking = Arc::clone(&files);
        let Ok(now) = tokio::task::spawn_blocking(move || looking.content()).await else {
            return;
        };
        if now == content && today() == day {
            continue;
        }
        let changed = now != content;
        (content, day) = (now, today());
        match files.load() {
            Ok(new) => {
                state.store(Arc::new(new));
                if changed {
                    metrics.policy_reloaded(true);
                    tracing::info!("policy and facts files have changed: the new content counts");
                }
            }
            Err(error) => {
                metrics.policy_reloaded(false);
                tracing::error!(
                    "policy or facts files have changed and cannot be used, so the old content still counts: {error:#}"
                );
            }
        }
    }
}

/// Judges reviews by the state of the moment, and leaves one log line for each.
struct Reviewer {
    state: Arc<ArcSwap<State>>,
    format: LogFormat,
}

impl Review for Reviewer {
    fn review(&self, phase: Phase, body: &[u8]) -> Reply {
        let state = self.state.load();
        match admission::review(
            phase,
            body,
            &Context {
                facts: &state.facts,
                policies: &state.policies,
            },
        ) {
            Ok(answer) => {
                audit::log(self.format, name(phase), &answer.record);
                Reply {
                    status: StatusCode::OK,
                    body: answer.body,
                    labels: Some(ReviewLabels {
                        phase: name(phase),
                        operation: answer.record.operation,
                        kind: answer.record.kind,
                        decision: answer.record.decision,
                        dry_run: answer.record.dry_run,
                    }),
                    rules: answer.record.rules,
                }
            }
            Err(error) => {
                tracing::warn!(phase = name(phase), bytes = body.len(), "{error}");
                Reply {
                    status: StatusCode::BAD_REQUEST,
                    body: format!("{error}\n").into_bytes(),
                    labels: None,
                    rules: Vec::new(),
                }
            }
        }
    }
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Mutate => "mutate",
        Phase::Validate => "validate",
    }
}
