//! `transom serve`: the webhook, in a cluster, outside one, or without any.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::cluster::{ClusterArgs, ClusterConfigArgs};
use super::knowledge::KnowledgeArgs;
use crate::process::logs::LogArgs;
use crate::process::metrics::Metrics;
use crate::process::readiness::Readiness;
use crate::process::resource_limits::ResourceLimits;
use crate::process::today;
use crate::process::traces::TracingArgs;
use crate::rules::documentation::DocumentationUrl;
use crate::serve::in_cluster::InClusterArgs;
use crate::serve::standalone::StandaloneFiles;
use crate::serve::{self, ImageArgs, PolicySource, ServeSettings, ServedClusterConfig, ServedKnowledge};
use crate::tls::args::{ClientArgs, TlsArgs};
use crate::webhook::{LimitArgs, ListenArgs, WebhookConfig};

/// Serve the admission webhook
///
/// In a cluster, or outside of one with --kubeconfig, policies and facts come from the API server, and the leader
/// among the replicas reconciles Windows nodes, RuntimeClasses and certificates. With --standalone it needs no
/// cluster: the policy is built in or comes from a file, what is known of the cluster comes from files, and the
/// certificate is issued at start or comes from files. POST /mutate and POST /validate take an AdmissionReview
/// (admission.k8s.io/v1) as the API server sends it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom serve --standalone --policy policy.yaml --write-ca ca.pem
  transom serve --kubeconfig ~/.kube/config --webhook-url https://192.0.2.7:8443")]
pub struct ServeArgs {
    /// Run without a cluster
    #[arg(long, env = "TRANSOM_STANDALONE", conflicts_with_all = ["kubeconfig", "webhook_url", "certificates", "ca_bundle"])]
    standalone: bool,
    /// With --standalone, a file of WindowsPodPolicy objects; read again when it changes. Without it the built-in
    /// policy applies: errors deny, placement is applied, ignored fields deny
    #[arg(long, env = "TRANSOM_POLICY", value_name = "FILE", requires = "standalone")]
    policy: Option<PathBuf>,
    /// With --standalone, files or folders with Nodes, RuntimeClasses and Namespaces as YAML or JSON: what is known of
    /// the cluster; read again when they change
    #[arg(long, env = "TRANSOM_FACTS", value_name = "FILE", num_args = 1.., value_delimiter = ',', requires = "standalone")]
    facts: Vec<PathBuf>,
    #[command(flatten)]
    in_cluster: InClusterArgs,
    #[command(flatten)]
    images: ImageArgs,
    /// The URL where docs/ is published: denials then contain links to the documentation of their rules
    #[arg(
        long,
        env = "TRANSOM_DOCUMENTATION_BASE_URL",
        value_name = "URL",
        value_parser = DocumentationUrl::parse
    )]
    documentation_base_url: Option<DocumentationUrl>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    cluster_config: ClusterConfigArgs,
    #[command(flatten)]
    knowledge: KnowledgeArgs,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    clients: ClientArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    logs: LogArgs,
    #[command(flatten)]
    tracing: TracingArgs,
}

pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let ServeArgs {
        standalone,
        policy,
        facts,
        in_cluster,
        images,
        documentation_base_url,
        cluster,
        cluster_config,
        knowledge,
        listen,
        tls,
        clients,
        limits,
        logs,
        tracing,
    } = args;
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), option_env!("TRANSOM_REVISION"));
    // Dropped last, so that the final log lines are written too.
    let _logs = logs.start(&metrics)?;
    let base = cluster.facts(today());
    let stated = ServedClusterConfig::new(cluster_config.cluster_config, &metrics);
    let knowledge = ServedKnowledge::new(knowledge.knowledge, &metrics);
    serve::run(ServeSettings {
        source: if standalone {
            PolicySource::Files(StandaloneFiles {
                policy,
                facts,
                base,
                knowledge,
                stated,
            })
        } else {
            PolicySource::Cluster(Box::new(in_cluster), base, stated, knowledge)
        },
        tracing: tracing.settings()?,
        images: images.settings()?,
        documentation: documentation_base_url,
        webhook: WebhookConfig {
            listen,
            limits: limits.within(ResourceLimits::take()),
            certificate: tls.into(),
            clients: clients.into(),
            metrics,
            readiness: Readiness::default(),
            tracer: None,
        },
    })?;
    Ok(ExitCode::SUCCESS)
}
