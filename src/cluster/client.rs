//! Which cluster a command talks to.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Transom's namespace where nothing says another.
const NAMESPACE: &str = "transom-system";

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);

/// After how long without a byte a connection is given up: the other end may be gone without a word. A watch is never
/// silent for so long; API servers send bookmarks about every minute, and end it after less than five.
const SILENCE: Duration = Duration::from_secs(300);

/// Which cluster, as whom, and where in it Transom is.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster to talk to")]
pub struct ConnectArgs {
    /// The cluster of this kubeconfig. Without it: the ServiceAccount of the pod, else $KUBECONFIG or ~/.kube/config
    #[arg(long, env = "TRANSOM_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; without it, its current one
    #[arg(long, env = "TRANSOM_CONTEXT", value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// Transom's own namespace, where its Lease, its certificates and what it remembers are. Without it: that of the
    /// pod, else transom-system
    #[arg(long, env = "TRANSOM_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,
}

impl ConnectArgs {
    /// The cluster of a kubeconfig, and nothing of Transom's own.
    pub fn of(kubeconfig: PathBuf, context: Option<String>) -> Self {
        ConnectArgs {
            kubeconfig: Some(kubeconfig),
            context,
            namespace: None,
        }
    }

    /// A client for the API server, and Transom's namespace.
    ///
    /// # Errors
    /// When there is no cluster, or the kubeconfig is of no use; it says what to do.
    pub async fn connect(&self) -> anyhow::Result<(Client, String)> {
        let (mut config, of_pod) = self.config().await?;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(SILENCE);
        let client = Client::try_from(config).context("cannot set up a client for the API server")?;
        let namespace = self.namespace.clone().or(of_pod);
        Ok((client, namespace.unwrap_or_else(|| NAMESPACE.to_owned())))
    }

    /// How to reach the API server, and the namespace of the pod where this runs in one.
    async fn config(&self) -> anyhow::Result<(kube::Config, Option<String>)> {
        if let Some(path) = &self.kubeconfig {
            let shown = path.display();
            let read = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {shown} (--kubeconfig)"))?;
            let options = KubeConfigOptions {
                context: self.context.clone(),
                ..KubeConfigOptions::default()
            };
            let config = kube::Config::from_custom_kubeconfig(read, &options)
                .await
                .with_context(|| format!("cannot use the kubeconfig {shown} (--kubeconfig, --context)"))?;
            return Ok((config, None));
        }
        if let Ok(config) = kube::Config::incluster() {
            let namespace = config.default_namespace.clone();
            return Ok((config, Some(namespace)));
        }
        match kube::Config::infer().await {
            Ok(config) => Ok((config, None)),
            Err(error) => bail!(
                "there is no cluster: no ServiceAccount of a pod, and no kubeconfig ({error}); name one with --kubeconfig \
                 (and to serve without a cluster, use --standalone)"
            ),
        }
    }
}

/// By which names an installation is known in its cluster.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Names in the cluster")]
pub struct NamesArgs {
    /// The name of the installation, as in transom generate webhooks --name: both webhook configurations are named zz-
    /// and this
    #[arg(long, env = "TRANSOM_NAME", value_name = "NAME", default_value = "transom")]
    pub name: String,
    /// The Lease by which the leader is elected
    #[arg(long, env = "TRANSOM_LEASE", value_name = "NAME", default_value = "transom")]
    pub lease: String,
    /// The Secret in Transom's namespace that a self-managed certificate is kept in
    #[arg(
        long,
        env = "TRANSOM_CERTIFICATE_SECRET",
        value_name = "NAME",
        default_value = "transom-certificates"
    )]
    pub certificate_secret: String,
}
