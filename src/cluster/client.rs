//! Which cluster a command connects to.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::process::arg_parsers::duration;
use crate::process::with_causes;

/// Transom's namespace if none is specified.
const NAMESPACE: &str = "transom-system";

/// The timeout for connecting.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a connection may receive no data before it is closed: the peer may have disappeared. A watch never pauses
/// this long; API servers send bookmarks about every minute, and end it after less than five.
const SILENCE: Duration = Duration::from_secs(300);

/// Neither a pod nor a kubeconfig specifies a cluster.
#[derive(thiserror::Error, Debug)]
#[error("there is no cluster: {why}; name one with --kubeconfig")]
pub struct NoCluster {
    why: String,
}

/// Which cluster.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster to talk to")]
struct KubeconfigArgs {
    /// The kubeconfig of the cluster; unset: $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config
    #[arg(long, env = "TRANSOM_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; unset: its current context
    #[arg(long, env = "TRANSOM_CONTEXT", value_name = "NAME")]
    context: Option<String>,
}

/// As whom a command makes its requests, and how long it waits. The names are those of kubectl.
#[derive(Args, Clone, Default, Debug)]
#[command(next_help_heading = "Cluster to talk to")]
struct RequestArgs {
    /// Impersonate this user, as in kubectl --as
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// Impersonate a user of this group; with --as. Repeatable
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,
    /// Give up on a request that is not answered within this time, as in 5s; at most 30s, which is the default
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    request_timeout: Option<Duration>,
}

/// Which cluster a command connects to, and as whom.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster to talk to")]
pub struct ClusterClientArgs {
    #[command(flatten)]
    kubeconfig: KubeconfigArgs,
    #[command(flatten)]
    request: RequestArgs,
}

/// Where Transom is in the cluster.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster to talk to")]
struct OwnNamespaceArgs {
    /// Transom's own namespace, with its Lease and certificates; unset: the namespace of the pod, else transom-system
    #[arg(long, env = "TRANSOM_NAMESPACE", value_name = "NAME")]
    transom_namespace: Option<String>,
}

/// Which cluster a command connects to, as whom, and where in it Transom is.
#[derive(Args, Clone, Debug)]
pub struct ConnectArgs {
    #[command(flatten)]
    client: ClusterClientArgs,
    #[command(flatten)]
    own: OwnNamespaceArgs,
}

/// Which cluster the server connects to, and where in it Transom is.
#[derive(Args, Clone, Debug)]
pub struct ServerConnectArgs {
    #[command(flatten)]
    kubeconfig: KubeconfigArgs,
    #[command(flatten)]
    own: OwnNamespaceArgs,
}

/// A connection to a cluster.
pub struct Connected {
    pub client: Client,
    /// The context of the kubeconfig, otherwise the address of the API server.
    pub name: String,
    /// The address of the API server.
    pub server: String,
    /// The namespace of the pod that this process runs in, if it does.
    pub of_pod: Option<String>,
}

/// As people recognize the cluster: `production (https://10.0.0.1:6443/)`.
impl fmt::Display for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connected { name, server, .. } = self;
        if name == server {
            f.write_str(server)
        } else {
            write!(f, "{name} ({server})")
        }
    }
}

impl ConnectArgs {
    /// Whether a flag or its variable names the cluster. Otherwise `connect` searches for one.
    pub fn is_named(&self) -> bool {
        self.client.is_named()
    }

    /// The flags that connect to the same cluster as the same user, as words.
    pub fn words(&self) -> Vec<String> {
        self.client.words()
    }

    /// Transom's namespace in files that were exported from a cluster.
    pub fn namespace_of_files(&self) -> &str {
        self.own.transom_namespace.as_deref().unwrap_or(NAMESPACE)
    }

    /// A client for the API server, and Transom's namespace.
    ///
    /// # Errors
    /// If no cluster is configured, or the kubeconfig cannot be used; the error says what to do.
    pub async fn connect(&self) -> anyhow::Result<(Connected, String)> {
        self.connect_as(Resend::Transient).await
    }

    /// The same, with a client that may send each request only once.
    ///
    /// # Errors
    /// As [`ConnectArgs::connect`].
    pub async fn connect_as(&self, resend: Resend) -> anyhow::Result<(Connected, String)> {
        let client = &self.client;
        let connected = client.kubeconfig.connect(&client.request, resend).await?;
        let namespace = self.own.namespace(&connected);
        Ok((connected, namespace))
    }
}

/// Whether a client sends requests again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resend {
    /// Those that the API server answers with 429, 503 or 504, with growing pauses.
    Transient,
    /// None: what was decided by an old state is not sent later.
    Never,
}

impl ServerConnectArgs {
    /// A client for the API server, and Transom's namespace.
    ///
    /// # Errors
    /// As [`ConnectArgs::connect`].
    pub async fn connect(&self) -> anyhow::Result<(Connected, String)> {
        let connected = self
            .kubeconfig
            .connect(&RequestArgs::default(), Resend::Transient)
            .await?;
        let namespace = self.own.namespace(&connected);
        Ok((connected, namespace))
    }
}

impl OwnNamespaceArgs {
    /// Transom's namespace: the given one, otherwise that of the pod, otherwise `transom-system`.
    fn namespace(&self, connected: &Connected) -> String {
        let namespace = self.transom_namespace.as_ref().or(connected.of_pod.as_ref());
        namespace.map_or_else(|| NAMESPACE.to_owned(), String::clone)
    }
}

impl ClusterClientArgs {
    /// Whether a flag or its variable names the cluster. Otherwise `connect` searches for one.
    pub fn is_named(&self) -> bool {
        self.kubeconfig.kubeconfig.is_some() || self.kubeconfig.context.is_some()
    }

    /// The flags that connect to the same cluster as the same user, as words.
    fn words(&self) -> Vec<String> {
        let ClusterClientArgs { kubeconfig, request } = self;
        let file = kubeconfig
            .kubeconfig
            .as_ref()
            .map(|file| file.display().to_string());
        let groups = request.groups.iter().map(|group| ("--as-group", group.clone()));
        let flags = [
            ("--kubeconfig", file),
            ("--context", kubeconfig.context.clone()),
            ("--as", request.user.clone()),
        ];
        let given = flags.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
        given
            .chain(groups)
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .collect()
    }

    /// A client for the API server.
    ///
    /// # Errors
    /// If no cluster is configured, or the kubeconfig cannot be used; the error says what to do.
    pub async fn connect(&self) -> anyhow::Result<Connected> {
        self.kubeconfig.connect(&self.request, Resend::Transient).await
    }
}

impl KubeconfigArgs {
    async fn connect(&self, request: &RequestArgs, resend: Resend) -> anyhow::Result<Connected> {
        let (mut config, context, of_pod) = self.config().await?;
        config.default_retry = resend == Resend::Transient;
        let timeout = request.request_timeout;
        config.connect_timeout = Some(timeout.map_or(CONNECT, |timeout| timeout.min(CONNECT)));
        config.read_timeout = Some(timeout.unwrap_or(SILENCE));
        if let Some(user) = &request.user {
            config.auth_info.impersonate = Some(user.clone());
            let groups = Some(request.groups.clone()).filter(|groups| !groups.is_empty());
            config.auth_info.impersonate_groups = groups;
        }
        let server = config.cluster_url.to_string();
        let name = context.unwrap_or_else(|| server.clone());
        let client = Client::try_from(config).context("cannot set up a client for the API server")?;
        Ok(Connected {
            client,
            name,
            server,
            of_pod,
        })
    }

    /// How to reach the API server, the context of the kubeconfig, and the namespace of the pod if this process runs
    /// in one.
    async fn config(&self) -> anyhow::Result<(kube::Config, Option<String>, Option<String>)> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        if let Some(path) = &self.kubeconfig {
            let shown = path.display();
            let read = Kubeconfig::read_from(path).map_err(|error| {
                anyhow!(
                    "cannot read the kubeconfig {shown} (--kubeconfig): {}",
                    with_causes(&error)
                )
            })?;
            let context = self.context.clone().or_else(|| read.current_context.clone());
            let config = kube::Config::from_custom_kubeconfig(read, &options)
                .await
                .map_err(|error| {
                    let why = with_causes(&error);
                    anyhow!("cannot use the kubeconfig {shown} (--kubeconfig, --context): {why}")
                })?;
            return Ok((config, context, None));
        }
        if let Some(context) = &self.context {
            let config = kube::Config::from_kubeconfig(&options).await.map_err(|error| {
                let why = with_causes(&error);
                anyhow!(
                    "cannot use the context {context} (--context) of $KUBECONFIG or ~/.kube/config: {why}"
                )
            })?;
            return Ok((config, self.context.clone(), None));
        }
        // As in controller-runtime: if a pod sets $KUBECONFIG, it means that cluster and not its own.
        let names_kubeconfig = std::env::var_os("KUBECONFIG").is_some_and(|named| !named.is_empty());
        if !names_kubeconfig && let Ok(config) = kube::Config::incluster() {
            let namespace = config.default_namespace.clone();
            return Ok((config, None, Some(namespace)));
        }
        match kube::Config::from_kubeconfig(&options).await {
            Ok(config) => {
                let context = Kubeconfig::read().ok().and_then(|read| read.current_context);
                Ok((config, context, None))
            }
            Err(error) => Err(NoCluster {
                why: no_kubeconfig(&error),
            }
            .into()),
        }
    }
}

/// Why no kubeconfig specifies a cluster.
fn no_kubeconfig(error: &kube::config::KubeconfigError) -> String {
    let named = std::env::var_os("KUBECONFIG").filter(|named| !named.is_empty());
    let paths: Vec<PathBuf> = match &named {
        Some(named) => std::env::split_paths(named).collect(),
        None => vec![PathBuf::from("~/.kube/config")],
    };
    let home = std::env::home_dir().unwrap_or_default();
    let is_there =
        |path: &PathBuf| path.exists() || (named.is_none() && home.join(".kube").join("config").exists());
    let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    if paths.iter().any(is_there) {
        return format!("{} cannot be used ({})", shown.join(", "), with_causes(error));
    }
    match named {
        Some(_) => format!("$KUBECONFIG names {}, which does not exist", shown.join(", ")),
        None => format!("not in a pod, and {} does not exist", shown.join(", ")),
    }
}

/// The name of an installation.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Names in the cluster")]
pub struct InstallationArgs {
    /// The name of the installation: both webhook configurations are named zz-NAME
    #[arg(long, env = "TRANSOM_NAME", value_name = "NAME", default_value = "transom")]
    pub name: String,
}

/// By which names an installation is known in its cluster.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Names in the cluster")]
pub struct NamesArgs {
    #[command(flatten)]
    /// What the webhook configurations are named after.
    pub installation: InstallationArgs,
    /// The Lease of the leader election
    #[arg(long, env = "TRANSOM_LEASE", value_name = "NAME", default_value = "transom")]
    pub lease: String,
    /// The Secret of a self-managed certificate, in Transom's namespace
    #[arg(
        long,
        env = "TRANSOM_CERTIFICATE_SECRET",
        value_name = "NAME",
        default_value = "transom-certificates"
    )]
    pub certificate_secret: String,
}
