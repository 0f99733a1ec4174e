//! `serve` in a cluster: evaluates reviews against snapshots built from the watches, and runs the
//! controllers.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use kube::Client;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::certificates::CertificateArgs;
use super::cluster_config::ServedClusterConfig;
use super::cluster_metrics::ClusterMetrics;
use super::image_args::ImageSettings;
use super::image_feed::ImageFeed;
use super::image_look_ups::ImageLookups;
use super::knowledge::ServedKnowledge;
use super::review_handler::Reviewer;
use crate::certs;
use crate::cluster::client::{Connected, NamesArgs, NoCluster, ServerConnectArgs};
use crate::cluster::lease::{Election, Leadership};
use crate::cluster::snapshot::{SnapshotBuilder, SnapshotReceiver};
use crate::cluster::snapshot_task::SnapshotTask;
use crate::cluster::watch_staleness::WatchStaleness;
use crate::cluster::webhook_configurations::WebhookConfigurations;
use crate::controller::keep_policy_revisions::PolicyRevisionController;
use crate::controller::leader_loop::{Controller, LeaderLoop};
use crate::controller::node_policies::{NodeController, NodeControllerSettings};
use crate::controller::node_pools::NodePoolController;
use crate::controller::pod_policies::{PolicyStatusController, StatusSources};
use crate::controller::reports;
use crate::controller::reports::{NextDenials, ReportingState};
use crate::controller::startup::{
    PullerAccount, StartupController, StartupMetrics, StartupParts, StartupSettings,
};
use crate::controller::startup_states::StartupStates;
use crate::controller::webhook_probe::{ProbeController, ProbeResult};
use crate::controller::writer::{WRITES_PER_SECOND, Writer};
use crate::model::cluster::facts::Facts;
use crate::process::metrics::{Metrics, Reconciles};
use crate::process::tasks::Tasks;
use crate::registration;
use crate::rules::documentation::DocumentationUrl;
use crate::tls::source::CertificateSource;
use crate::webhook::{self, Listening, Server, WebhookConfig};

/// Which cluster, and by which names Transom is known there.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "In a cluster")]
pub struct InClusterArgs {
    /// The name of this replica in the leader election; default: the name of the pod, else of the machine
    #[arg(long, env = "TRANSOM_IDENTITY", value_name = "NAME")]
    identity: Option<String>,
    /// Namespaces that the webhooks exclude, instead of the default ones; an empty value excludes none. kube-system,
    /// kube-node-lease, kube-public and Transom's own are always excluded. Pods get no toleration there, so Transom does
    /// not set a taint before their Windows pods tolerate it
    #[arg(
        long,
        env = "TRANSOM_EXCLUDE_NAMESPACE",
        value_name = "NAME",
        value_delimiter = ',',
        default_values_t = registration::BY_DEFAULT.map(str::to_owned)
    )]
    exclude_namespace: Vec<String>,
    /// A namespace in which the leader creates a pod as a dry run once a minute, to check that calls of the API
    /// server arrive. The webhooks must select it, and the ServiceAccount must be allowed to create pods in it.
    /// Empty: no probe
    #[arg(
        long,
        env = "TRANSOM_PROBE_NAMESPACE",
        value_name = "NAME",
        default_value = ""
    )]
    probe_namespace: String,
    /// Evaluate stored objects whenever they change: reports, metrics and Events show what would happen to them at
    /// their next create. Needs permission to watch all pods and workloads, and to write reports and Events in all
    /// namespaces
    #[arg(long, env = "TRANSOM_REPORTS")]
    reports: bool,
    /// The ServiceAccount, in Transom's namespace and without rights, of the pods that pull images on new nodes. Unset:
    /// `puller: Pods` of a WindowsNodePolicy is refused
    #[arg(long, env = "TRANSOM_IMAGE_PULLER_SERVICE_ACCOUNT", value_name = "NAME")]
    image_puller_service_account: Option<String>,
    #[command(flatten)]
    connect: ServerConnectArgs,
    #[command(flatten)]
    names: NamesArgs,
    #[command(flatten)]
    certificates: CertificateArgs,
}

/// How long shutdown may take after the server has drained; it includes releasing the lease.
const LEASE_RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Serves in a cluster until the process is told to stop.
pub async fn run(
    args: InClusterArgs,
    (base, stated, knowledge): (Facts, ServedClusterConfig, ServedKnowledge),
    (images, documentation): (Option<ImageSettings>, Option<DocumentationUrl>),
    mut config: WebhookConfig,
    background: Handle,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    // Invalid arguments are rejected before the first request to the API server.
    let mode = args.certificates.mode(&config.certificate)?;
    mode.check_files().await?;
    let listening = Listening::bind(&config.listen)?;
    let (connected, namespace) = connect(&args.connect).await?;

    let (end, ended) = watch::channel(false);
    let mut election = Tasks::default();
    let mut cluster = ClusterTasks {
        leadership: run_for_election(&mut election, &connected.client, &namespace, &args, ended),
        tasks: Tasks::on(background),
        client: connected.client,
        installation: format!("{namespace}/{}", args.names.installation.name).into(),
        namespace,
        staleness: WatchStaleness::new(&config.metrics),
        metrics: config.metrics.clone(),
        reconciles: Reconciles::new(&config.metrics),
    };
    let gauges = cluster.start_gauges();
    let kept = (args.certificates).config(&args.names, &cluster.namespace, &config.certificate);
    let configurations = cluster.start_configuration_watches(&kept.configuration);
    let excluded = registration::names::non_empty_items(args.exclude_namespace.clone());
    let asked = images.as_ref().map(|images| images.registries.clone());
    let snapshot_task = SnapshotTask {
        snapshots: SnapshotBuilder::new(base, excluded.chain([cluster.namespace.clone()]))
            .with_image_registries(asked.unwrap_or_default()),
        knowledge: knowledge.start(&mut cluster.tasks),
        stated: stated.start(&mut cluster.tasks),
        registered: configurations.registered,
        readiness: config.readiness.clone(),
        staleness: cluster.staleness.clone(),
    };
    let latest = snapshot_task.start(&mut cluster.tasks, &cluster.client, &cluster.namespace);
    let images = images.map(|settings| cluster.start_image_lookups(&latest, &settings));
    let images = images.transpose()?;
    let leader_tasks = LeaderTasks {
        cluster: &mut cluster,
        latest: &latest,
        images: images.as_ref(),
    };
    let contested = leader_tasks.start(&args, gauges);

    let serving = certs::first(&cluster.client, &mode, &kept, &config.readiness).await?;
    serving.follow(cluster.staleness.server_clock().clone());
    config.certificate = CertificateSource::Provided(Arc::clone(&serving));
    let certificates = certs::CertificateTask {
        client: cluster.client,
        mode,
        config: kept,
        leadership: cluster.leadership,
        serving,
        readiness: config.readiness.clone(),
        metrics: cluster.metrics,
        staleness: cluster.staleness,
        reconcile: cluster.reconciles.of("certificates"),
        contested,
    };
    let mut tasks = cluster.tasks;
    tasks.spawn_reporting("certificates", certificates.run(configurations.stored));

    let server = Server::on(listening, config).await?;
    let reviewer = Reviewer::watching(latest, images, cluster.installation).documented(documentation);
    let outcome = outlive(
        server.serve(Arc::new(reviewer), shutdown),
        &mut tasks,
        &mut election,
    )
    .await;
    shut_down(tasks, &mut election, &end).await;
    outcome
}

/// Connects to the cluster.
async fn connect(args: &ServerConnectArgs) -> anyhow::Result<(Connected, String)> {
    let connected = args.connect().await;
    connected.map_err(|error| match error.downcast_ref::<NoCluster>() {
        Some(none) => anyhow::anyhow!("{none} (and to serve without a cluster, use --standalone)"),
        None => error,
    })
}

/// Ends the controllers before the lease is released; the resourceVersion protects writes that are still in flight.
async fn shut_down(tasks: Tasks, election: &mut Tasks, end: &watch::Sender<bool>) {
    tasks.shutdown().await;
    end.send_replace(true);
    let _ = timeout(LEASE_RELEASE_TIMEOUT, election.ended()).await;
}

/// Takes part in leader election until `ended` is true.
fn run_for_election(
    election: &mut Tasks,
    client: &Client,
    namespace: &str,
    args: &InClusterArgs,
    mut ended: watch::Receiver<bool>,
) -> Leadership {
    let (lead, until) = watch::channel(None);
    let shutdown_requested = async move {
        let _ = ended.wait_for(|ended| *ended).await;
    };
    let replica = Election {
        client: client.clone(),
        namespace: namespace.to_owned(),
        name: args.names.lease.clone(),
        identity: identity(args.identity.clone()),
        until: lead,
    };
    election.spawn("lease", replica.run(shutdown_requested));
    Leadership::new(until)
}

/// The tasks that run beside the server, with what they share.
struct ClusterTasks {
    tasks: Tasks,
    client: Client,
    /// Transom's own.
    namespace: String,
    /// `NAMESPACE/NAME`.
    installation: Arc<str>,
    leadership: Leadership,
    staleness: WatchStaleness,
    metrics: Metrics,
    reconciles: Reconciles,
}

impl ClusterTasks {
    fn start_gauges(&mut self) -> ClusterMetrics {
        let gauges = ClusterMetrics::new(&self.metrics);
        let leadership = gauges.clone().follow(self.leadership.clone());
        self.tasks.spawn("leadership", leadership);
        self.tasks
            .spawn("staleness", self.staleness.clone().log_changes());
        gauges
    }

    fn start_configuration_watches(&mut self, name: &str) -> WebhookConfigurations {
        let ClusterTasks {
            tasks,
            client,
            staleness,
            metrics,
            ..
        } = self;
        WebhookConfigurations::start(tasks, client, staleness, name, metrics)
    }

    /// Starts the look-ups of images for reviews and for stored workloads.
    fn start_image_lookups(
        &mut self,
        latest: &SnapshotReceiver,
        settings: &ImageSettings,
    ) -> anyhow::Result<ImageLookups> {
        let ClusterTasks {
            tasks,
            client,
            namespace,
            metrics,
            ..
        } = self;
        let lookups = ImageLookups::start_in(client, namespace, settings, metrics, tasks)?;
        let feed = ImageFeed::new(client, latest.clone(), lookups.service().clone());
        tasks.spawn("images of stored workloads", feed.run());
        Ok(lookups)
    }

    fn writer(&self) -> Writer {
        Writer::new(
            self.client.clone(),
            Some(self.leadership.clone()),
            WRITES_PER_SECOND,
        )
    }
}

/// Starts what only the leader runs.
struct LeaderTasks<'a> {
    cluster: &'a mut ClusterTasks,
    latest: &'a SnapshotReceiver,
    images: Option<&'a ImageLookups>,
}

impl LeaderTasks<'_> {
    /// Starts all that the arguments ask for. The result: where the task of certificates says whether another installation
    /// writes the same CA.
    fn start(mut self, args: &InClusterArgs, gauges: ClusterMetrics) -> watch::Sender<Option<String>> {
        let (publish_contested, contested) = watch::channel(None);
        let (publish_probe, probe) = watch::channel(None);
        let (publish_reporting, reporting) = watch::channel(ReportingState::at_start(args.reports));
        let (publish_denials, next_denials) = watch::channel(NextDenials::default());
        let (publish_startup, startup) = watch::channel(Arc::default());
        let followed = gauges.follow_snapshots(self.latest.clone(), probe.clone());
        self.cluster.tasks.spawn("gauges", followed);
        let sources = StatusSources {
            reporting,
            next_denials,
            probe,
            registries: self.images.map(ImageLookups::unreachable),
            contested,
        };
        self.start_policies(startup, sources);
        self.start_gate(args.image_puller_service_account.clone(), publish_startup);
        if args.reports {
            self.start_reports(publish_reporting, publish_denials);
        }
        if !args.probe_namespace.is_empty() {
            self.start_probe(&args.probe_namespace, publish_probe);
        }
        publish_contested
    }

    /// Runs a controller while this replica leads. `name`: in metrics; `task`: if it ends.
    fn control(
        &mut self,
        name: &'static str,
        task: &'static str,
        controller: impl Controller + Send + 'static,
    ) {
        let leader_loop = LeaderLoop {
            latest: self.latest.clone(),
            leadership: self.cluster.leadership.clone(),
            reconcile: self.cluster.reconciles.of(name),
        };
        self.cluster.tasks.spawn(task, leader_loop.run(controller));
    }

    /// Starts the controllers of node pools, and of policies for pods and nodes.
    fn start_policies(&mut self, startup: watch::Receiver<Arc<StartupStates>>, sources: StatusSources) {
        let writer = self.cluster.writer();
        let revisions = PolicyRevisionController {
            writer: writer.clone(),
            namespace: self.cluster.namespace.clone(),
        };
        self.control("policy_revisions", "revisions of policies", revisions);
        let pools = NodePoolController::new(writer.clone());
        self.control("node_pools", "node pools", pools);
        let next_denials = sources.next_denials.clone();
        let statuses = PolicyStatusController::new(writer.clone(), sources);
        self.control("pod_policies", "pod policies", statuses);
        let nodes = NodeController::new(writer, NodeControllerSettings::default())
            .with_startup(startup)
            .with_next_denials(next_denials);
        self.control("node_policies", "node policies", nodes);
    }

    /// Starts the controller of new nodes. `puller`: the ServiceAccount of the pods that pull images.
    fn start_gate(&mut self, puller: Option<String>, publish: watch::Sender<Arc<StartupStates>>) {
        let startup = StartupController::new(StartupParts {
            settings: StartupSettings::default(),
            account: PullerAccount {
                namespace: self.cluster.namespace.clone(),
                name: puller.filter(|name| !name.is_empty()),
            },
            // Nodes must not wait for the writes of other controllers.
            writer: self.cluster.writer(),
            clock: self.cluster.staleness.server_clock().clone(),
            images: self.images.map(|images| images.service().clone()),
            metrics: StartupMetrics::new(&self.cluster.metrics),
            publish,
        });
        self.control("startup", "startup", startup);
    }

    fn start_reports(
        &mut self,
        reporting: watch::Sender<ReportingState>,
        next_denials: watch::Sender<NextDenials>,
    ) {
        let stored_findings = reports::StoredFindingMetrics::default();
        self.cluster.metrics.add_collector(stored_findings.clone());
        let context = reports::ReportContext {
            client: self.cluster.client.clone(),
            leadership: self.cluster.leadership.clone(),
            latest: self.latest.clone(),
            images: self.images.map(|images| images.service().clone()),
            gauges: stored_findings,
            reporting,
            next_denials,
            settings: reports::ReportSettings::default(),
            reconcile: self.cluster.reconciles.of("reports"),
        };
        self.cluster.tasks.spawn("reports", reports::run(context));
    }

    fn start_probe(&mut self, namespace: &str, publish: watch::Sender<Option<Arc<ProbeResult>>>) {
        let ClusterTasks {
            client, installation, ..
        } = &*self.cluster;
        let probe = ProbeController::new(client.clone(), namespace, Arc::clone(installation), publish);
        self.control("webhook_probe", "probe", probe);
    }
}

/// Serves until the server has drained. If a background task ends earlier, the process ends: otherwise its
/// work would stop unnoticed.
async fn outlive(
    server: impl Future<Output = Result<(), webhook::ServerError>>,
    tasks: &mut Tasks,
    election: &mut Tasks,
) -> anyhow::Result<()> {
    tokio::select! {
        end = server => Ok(end?),
        ended = tasks.ended() => Err(ended.into()),
        ended = election.ended() => Err(ended.into()),
    }
}

/// An identity that no other process has, including this pod's next one.
fn identity(named: Option<String>) -> String {
    let host = || {
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .map(|name| name.trim().to_owned())
    };
    let name = named.or_else(host).unwrap_or_else(|| "transom".to_owned());
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    format!("{name}_{:x}", since.as_nanos())
}

#[cfg(test)]
mod tests;
