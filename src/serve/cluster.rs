//! `serve` in a cluster: what reviews are judged by comes from watches, and the controllers run beside the server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use clap::Args;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use tokio::sync::watch;
use tokio::time::timeout;

use super::certificates::CertificateArgs;
use super::gauges::Gauges;
use super::reviewer::{Reviewer, State, Watched};
use crate::certs;
use crate::cluster::client::{ConnectArgs, NamesArgs};
use crate::cluster::lease::Leadership;
use crate::cluster::pools::Memory;
use crate::cluster::view::ClusterView;
use crate::cluster::{facts, lease, watches};
use crate::controller::pod_policies::{self, Policies};
use crate::controller::{node_policies as nodes, remember_pools as remember};
use crate::engine::effective::{Asker, PolicySet};
use crate::model::facts::Facts;
use crate::model::policy::{Policy, Switch};
use crate::process::logs::LogFormat;
use crate::process::readiness::Readiness;
use crate::process::tasks::Tasks;
use crate::process::today;
use crate::registration::{self, registered::Registered};
use crate::tls::source::CertificateSource;
use crate::webhook::{self, Config, Listening, Server};

/// Which cluster, and by which names Transom is known there.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "In a cluster")]
pub struct InClusterArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// The name of this replica in the election of the leader; the name of the pod, else that of the machine
    #[arg(long, env = "TRANSOM_IDENTITY", value_name = "NAME")]
    identity: Option<String>,
    #[command(flatten)]
    names: NamesArgs,
    /// Namespaces that the webhooks leave out besides kube-system, kube-node-lease, kube-public and Transom's own: no
    /// pod gets a toleration there, so a taint is not set before their Windows pods have it. Empty: none
    #[arg(
        long,
        env = "TRANSOM_EXCLUDE_NAMESPACE",
        value_name = "NAME",
        value_delimiter = ',',
        default_values_t = registration::BY_DEFAULT.map(str::to_owned)
    )]
    exclude_namespace: Vec<String>,
    #[command(flatten)]
    certificates: CertificateArgs,
}

/// The name under which readiness is held until reviews are judged by what is really there.
const FACTS: &str = "facts";

/// How long shutting down may take after the server has drained: the lease is given up in that time.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How long the controller of nodes waits for the webhook configurations to be read before it begins.
const KNOW_REGISTERED: Duration = Duration::from_secs(10);

pub async fn run(
    args: InClusterArgs,
    base: Facts,
    mut config: Config,
    format: LogFormat,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    // What can be refused without a cluster is refused before anybody is asked anything.
    let mode = args.certificates.mode(&config.certificate)?;
    mode.check_files().await?;
    let listening = Listening::bind(&config.listen).await?;
    let (client, namespace) = args.connect.connect().await?;
    let nothing_yet = State {
        facts: base.clone(),
        policies: Arc::new(PolicySet::new(Vec::new(), Policy::cluster_default())),
    };
    let state = Arc::new(ArcSwap::from_pointee(nothing_yet));

    let (publish, views) = watch::channel(None);
    let (learn, learned) = watch::channel(());
    let (lead, until) = watch::channel(None);
    let (end, ended) = watch::channel(false);
    let (tell_registered, registered) = watch::channel(None);
    let mut election = Tasks::default();
    election.spawn(
        "lease",
        lease::run(
            client.clone(),
            namespace.clone(),
            args.names.lease.clone(),
            identity(args.identity),
            lead,
            until_true(ended),
        ),
    );
    let leadership = Leadership::new(until);
    let mut tasks = Tasks::default();
    {
        let (client, namespace, readiness) = (client.clone(), namespace.clone(), config.readiness.clone());
        tasks.spawn_saying("watches", async move {
            watches::run(client, &namespace, readiness, publish).await
        });
    }
    let controllers = Controllers {
        client: client.clone(),
        namespace: namespace.clone(),
        base,
        state: Arc::clone(&state),
        learn,
        leadership: leadership.clone(),
        readiness: config.readiness.clone(),
        gauges: Gauges::new(&config.metrics),
        registered,
        excluded: registration::names::named_namespaces(args.exclude_namespace)
            .chain([namespace.clone()])
            .collect(),
    };
    // Until the first view reviews are judged by the built-in policy, which changes and denies nothing.
    config.readiness.hold(FACTS, "not known yet");
    tasks.spawn_saying("controllers", controllers.run(views));

    let kept = args
        .certificates
        .kept(&args.names, &namespace, &config.certificate);
    let serving = certs::first(&client, &mode, &kept, &config.readiness).await?;
    config.certificate = CertificateSource::Provided(Arc::clone(&serving));
    let keeper = certs::Keeper {
        client: client.clone(),
        mode,
        config: kept,
        leadership: leadership.clone(),
        serving,
        readiness: config.readiness.clone(),
        metrics: config.metrics.clone(),
        registered: tell_registered,
    };
    tasks.spawn_saying("certificates", keeper.run());

    let server = Server::on(listening, config).await?;
    let reviewer = Arc::new(Reviewer {
        state,
        format,
        watched: Some(Watched::new(learned)),
    });
    let outcome = outlive(server.serve(reviewer, shutdown), &mut tasks, &mut election).await;
    // The controllers end before the lease is given up; what is on its way then is held by its resourceVersion.
    tasks.shutdown().await;
    end.send_replace(true);
    let _ = timeout(LAST_WORDS, election.ended()).await;
    outcome
}

/// Serves until the server has drained. A background task that ends before that ends the process: nobody would do its
/// work any more, and nobody would notice.
async fn outlive(
    server: impl Future<Output = Result<(), webhook::Error>>,
    tasks: &mut Tasks,
    election: &mut Tasks,
) -> anyhow::Result<()> {
    tokio::select! {
        end = server => Ok(end?),
        ended = tasks.ended() => Err(ended.into()),
        ended = election.ended() => Err(ended.into()),
    }
}

async fn until_true(mut flag: watch::Receiver<bool>) {
    let _ = flag.wait_for(|on| *on).await;
}

/// A name that no other process has, not even this pod's next one.
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

/// Everything that begins with the first view of the cluster.
struct Controllers {
    client: Client,
    namespace: String,
    base: Facts,
    state: Arc<ArcSwap<State>>,
    learn: watch::Sender<()>,
    leadership: Leadership,
    readiness: Readiness,
    gauges: Gauges,
    registered: watch::Receiver<Option<Arc<Registered>>>,
    excluded: Vec<String>,
}

impl Controllers {
    /// Runs until one of them ends, and says which.
    async fn run(self, mut first: watches::Views) -> String {
        let Ok(view) = first
            .wait_for(Option::is_some)
            .await
            .map(|view| view.clone().unwrap_or_default())
        else {
            return "view".to_owned();
        };
        let (publish, views) = watch::channel(view);
        let policies = Arc::new(Mutex::new(Policies::default()));
        let Controllers {
            client,
            namespace,
            base,
            state,
            learn,
            leadership,
            readiness,
            gauges,
            registered,
            excluded,
        } = self;
        let recorder = || {
            Recorder::new(
                client.clone(),
                Reporter {
                    controller: "transom".into(),
                    instance: None,
                },
            )
        };
        let mut tasks = Tasks::default();
        let judge = Judge {
            base,
            policies: Arc::clone(&policies),
            state: Arc::clone(&state),
            learn,
            readiness,
            gauges: gauges.clone(),
        };
        tasks.spawn("leadership", gauges.follow(leadership.clone()));
        tasks.spawn("facts", judge.run(views.clone()));
        let remember = remember::run(
            client.clone(),
            namespace,
            views.clone(),
            leadership.clone(),
            today,
        );
        tasks.spawn("memory of pools", remember);
        let statuses = pod_policies::run(
            client.clone(),
            views.clone(),
            registered.clone(),
            policies,
            leadership.clone(),
            recorder(),
        );
        tasks.spawn("policies", statuses);
        let nodes = nodes::Context {
            client: client.clone(),
            leadership,
            recorder: recorder(),
            policy_of: policy_of(state, registered.clone(), excluded),
            settings: nodes::Settings::default(),
        };
        tasks.spawn_saying("nodes", async move {
            // The guard asks whether pods are placed. The keeper of the certificates looks that up first of all.
            let mut registered = registered;
            let _ = timeout(KNOW_REGISTERED, registered.wait_for(Option::is_some)).await;
            match nodes::run(nodes, views).await {
                Ok(()) => "it has nothing to do".to_owned(),
                Err(ended) => ended.to_string(),
            }
        });
        tasks.spawn("view", forward(first, publish));
        tasks.ended().await.to_string()
    }
}

/// What counts in a namespace. Where the webhooks are not called nothing is placed, and no pod is taken for a Windows pod
/// only because it says nothing.
fn policy_of(
    state: Arc<ArcSwap<State>>,
    registered: watch::Receiver<Option<Arc<Registered>>>,
    excluded: Vec<String>,
) -> nodes::PolicyOf {
    let unlabelled = BTreeMap::new();
    Arc::new(move |namespace| {
        let registered = registered.borrow().clone();
        let state = state.load();
        let labels = state
            .facts
            .namespaces
            .get(namespace)
            .map(|namespace| &namespace.labels);
        // A namespace that asks to be left out is, whatever the selectors of the moment say.
        let labelled = labels.unwrap_or(&unlabelled);
        let is_left_out = registration::is_left_out(namespace, labelled, &excluded)
            || !registered.is_some_and(|registered| registered.mutates_in(labelled));
        let asker = Asker {
            namespace,
            labels,
            user: "",
            groups: &[],
            today: state.facts.today,
        };
        let mut policy = state.policies.effective(&asker).into_owned();
        if is_left_out {
            policy.namespace_default_os = None;
        }
        nodes::Counts {
            places: !is_left_out && policy.placement == Switch::Apply && policy.parts.tolerations,
            policy,
        }
    })
}

/// Hands every view on, once there is a first one.
async fn forward(mut from: watches::Views, to: watch::Sender<Arc<ClusterView>>) {
    while from.changed().await.is_ok() {
        if let Some(view) = from.borrow_and_update().clone() {
            to.send_replace(view);
        }
    }
}

/// Keeps the state that reviews are judged by: every view, and every day, makes a new one.
struct Judge {
    base: Facts,
    policies: Arc<Mutex<Policies>>,
    state: Arc<ArcSwap<State>>,
    /// Tells reviews that wait that there is a new state.
    learn: watch::Sender<()>,
    readiness: Readiness,
    gauges: Gauges,
}

impl Judge {
    async fn run(mut self, mut views: watch::Receiver<Arc<ClusterView>>) {
        /// How often the day is looked at.
        const LOOK: Duration = Duration::from_secs(30);
        loop {
            let view = views.borrow_and_update().clone();
            self.base.today = today();
            self.learn(&view);
            self.readiness.release(FACTS);
            loop {
                match timeout(LOOK, views.changed()).await {
                    Ok(Ok(())) => break,
                    Ok(Err(_)) => return,
                    Err(_) if today() != self.base.today => break,
                    Err(_) => {}
                }
            }
        }
    }

    fn learn(&self, view: &ClusterView) {
        let facts = facts::of(view, &Memory::of(&view.seen), &self.base);
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let set = policies.update(view);
        self.gauges.show(view, &policies);
        self.state.store(Arc::new(State { facts, policies: set }));
        self.learn.send_replace(());
    }
}

#[cfg(test)]
mod tests;
