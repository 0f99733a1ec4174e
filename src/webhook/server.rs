//! Binds, accepts, and drains: runs the two listeners from startup to the last review in flight.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::accept::{Listener, accept};
use super::args::ListenArgs;
use super::connection::ServerStage;
use super::eviction::ConnectionSet;
use super::limits::{HEALTH_CONNECTIONS, Limits};
use super::router::router;
use super::{ReviewHandler, ServerError, health};
use crate::process::metrics::Metrics;
use crate::process::readiness::Readiness;
use crate::process::tasks::Tasks;
use crate::process::traces::Tracer;
use crate::tls::cert_resolver::{self, ServingCert};
use crate::tls::client_auth::{ClientCertificates, ClientVerifier};
use crate::tls::files::CertificateFiles;
use crate::tls::identity::CertificateError;
use crate::tls::self_signed;
use crate::tls::source::CertificateSource;

/// Connections that the kernel queues until they are accepted. The usual 128 overflow when a few hundred
/// clients connect at the same time; the kernel then drops packets, and a probe retries after a second, which
/// is too late.
const BACKLOG: u32 = 4_096;

/// Everything that a server needs except the reviewer.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// The addresses to listen on.
    pub listen: ListenArgs,
    pub limits: Limits,
    /// The certificate to serve.
    pub certificate: CertificateSource,
    /// Which client certificates are accepted; without it, none are requested.
    pub clients: Option<ClientCertificates>,
    /// The registry for metrics.
    pub metrics: Metrics,
    /// The state behind `/readyz`. The server itself sets `draining` and `certificate`.
    pub readiness: Readiness,
    /// Creates the spans of reviews; without it, none are created.
    pub tracer: Option<Tracer>,
}

/// Both addresses, bound; clients queue until a server accepts them.
#[derive(Debug)]
pub struct Listening {
    webhook: (TcpListener, SocketAddr),
    health: (TcpListener, SocketAddr),
}

impl Listening {
    /// Binds both addresses.
    ///
    /// # Errors
    /// If an address cannot be bound; the error names the flag.
    pub fn bind(addresses: &ListenArgs) -> Result<Self, ServerError> {
        Ok(Listening {
            webhook: bind(addresses.listen, "--listen")?,
            health: bind(addresses.health_listen, "--health-listen")?,
        })
    }
}

/// A server with bound addresses and a certificate; clients queue until it serves.
#[derive(Debug)]
pub struct Server {
    webhook: TcpListener,
    health: TcpListener,
    address: SocketAddr,
    health_address: SocketAddr,
    tls: Arc<ServerConfig>,
    serving: Arc<ServingCert>,
    renewal: CertificateRenewal,
    clients: Option<Arc<ClientVerifier>>,
    limits: Limits,
    metrics: Metrics,
    readiness: Readiness,
    tracer: Option<Tracer>,
}

/// How the certificate is replaced.
enum CertificateRenewal {
    SelfSigned(Box<self_signed::Authority>, Vec<String>),
    Files(CertificateFiles),
    Caller,
}

impl std::fmt::Debug for CertificateRenewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SelfSigned(..) => "SelfSigned",
            Self::Files(_) => "Files",
            Self::Caller => "Caller",
        })
    }
}

impl CertificateRenewal {
    /// Starts the task that keeps the certificate valid, if the server does that.
    fn start(self, tasks: &mut Tasks, serving: Arc<ServingCert>, metrics: &Metrics) {
        match self {
            Self::SelfSigned(authority, names) => {
                let keeping = self_signed::keep(*authority, names, serving, metrics.clone());
                tasks.spawn("certificate renewal", keeping);
            }
            Self::Files(files) => tasks.spawn("certificate reload", files.keep(serving, metrics.clone())),
            Self::Caller => {}
        }
    }
}

/// The certificate to serve with first, and what keeps it valid.
async fn first_certificate(
    source: CertificateSource,
    ip: IpAddr,
) -> Result<(Arc<ServingCert>, CertificateRenewal), CertificateError> {
    Ok(match source {
        CertificateSource::SelfSigned { names, write_ca } => {
            let names = self_signed::names(ip, &names);
            let authority = self_signed::Authority::new(SystemTime::now())?;
            let identity = authority.issue(&names, SystemTime::now())?;
            if let Some(path) = write_ca {
                self_signed::write_ca(&path, &authority.pem())?;
            }
            let renewal = CertificateRenewal::SelfSigned(Box::new(authority), names);
            (ServingCert::new(identity), renewal)
        }
        CertificateSource::Files(files) => {
            let serving = ServingCert::new(files.load().await?);
            (serving, CertificateRenewal::Files(files))
        }
        CertificateSource::Provided(serving) => (serving, CertificateRenewal::Caller),
    })
}

impl Server {
    /// Binds both addresses and loads the certificate.
    ///
    /// # Errors
    /// If an address cannot be bound, or if there is no certificate to serve; both errors name the flag.
    pub async fn bind(config: WebhookConfig) -> Result<Self, ServerError> {
        let listening = Listening::bind(&config.listen)?;
        Self::on(listening, config).await
    }

    /// Loads the certificate, for addresses that are bound already.
    ///
    /// # Errors
    /// If there is no certificate to serve; the error names the flag.
    pub async fn on(listening: Listening, config: WebhookConfig) -> Result<Self, ServerError> {
        let Listening {
            webhook: (webhook, address),
            health: (health, health_address),
        } = listening;
        let WebhookConfig {
            listen: _,
            limits,
            certificate,
            clients,
            metrics,
            readiness,
            tracer,
        } = config;
        let clients = match clients {
            Some(settings) => Some(ClientVerifier::load(settings).await?),
            None => None,
        };
        let (serving, renewal) = first_certificate(certificate, address.ip()).await?;
        let tls = cert_resolver::server_config(Arc::clone(&serving), clients.clone())?;
        metrics.certificate_expires(serving.not_after());
        Ok(Self {
            webhook,
            health,
            address,
            health_address,
            tls,
            serving,
            renewal,
            clients,
            limits,
            metrics,
            readiness,
            tracer,
        })
    }

    /// The webhook's address, with the actual port if 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of `/livez`, `/readyz` and `/metrics`.
    pub fn health_address(&self) -> SocketAddr {
        self.health_address
    }

    /// The CA that clients must trust, in PEM, if the server issued its own certificate.
    pub fn ca_pem(&self) -> Option<String> {
        match &self.renewal {
            CertificateRenewal::SelfSigned(authority, _) => Some(authority.pem()),
            CertificateRenewal::Files(_) | CertificateRenewal::Caller => None,
        }
    }

    /// Serves until `shutdown`. Then reports not ready, serves for `drain_delay` with one request per
    /// connection, closes the listener, and lets requests in flight finish for at most `drain_timeout`.
    ///
    /// # Errors
    /// If one of its tasks ends early.
    pub async fn serve(
        self,
        reviewer: Arc<dyn ReviewHandler>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        let Limits {
            drain_delay,
            drain_timeout,
            max_connections,
            ..
        } = self.limits;
        let (address, health_address, readiness) =
            (self.address, self.health_address, self.readiness.clone());
        let stage = StopOnDrop(watch::channel(ServerStage::Serving).0);
        // A separate stage: `/readyz` and `/metrics` answer until the last review is done.
        let health_stage = StopOnDrop(watch::channel(ServerStage::Serving).0);
        let connections = Arc::new(Semaphore::new(permits(max_connections)));
        let probes = ProbeThread::start()?;
        let mut tasks = self.start(
            reviewer,
            &connections,
            &probes,
            stage.0.subscribe(),
            health_stage.0.subscribe(),
        )?;
        tracing::info!(webhook = %address, health = %health_address, "listening");

        tokio::select! {
            () = shutdown => {}
            ended = tasks.ended() => return Err(ended.into()),
        }
        tracing::info!(delay = ?drain_delay, timeout = ?drain_timeout, "draining");
        readiness.hold("draining", "shutting down");
        stage.0.send_replace(ServerStage::Leaving);
        tokio::select! {
            () = sleep(drain_delay) => {}
            ended = tasks.ended() => return Err(ended.into()),
        }
        stage.0.send_replace(ServerStage::Draining);
        // Every connection holds a permit: once all permits are acquired, no connection is open.
        if timeout(drain_timeout, connections.acquire_many(max_connections))
            .await
            .is_ok()
        {
            tracing::info!("drained");
        } else {
            let open = permits(max_connections) - connections.available_permits();
            tracing::warn!(
                connections = open,
                "gave up on connections that did not finish in time"
            );
        }
        Ok(())
    }

    /// Starts every task, the webhook's listener last, so that everything is running when the first review
    /// arrives.
    fn start(
        self,
        reviewer: Arc<dyn ReviewHandler>,
        connections: &Arc<Semaphore>,
        probes: &ProbeThread,
        stages: watch::Receiver<ServerStage>,
        health_stages: watch::Receiver<ServerStage>,
    ) -> Result<Tasks, ServerError> {
        let Self {
            webhook,
            health: plain,
            address: _,
            health_address: _,
            tls,
            serving,
            renewal,
            clients,
            limits,
            metrics,
            readiness,
            tracer,
        } = self;
        let limits = Arc::new(limits);
        let mut tasks = Tasks::default();
        let listener = Listener {
            tls: None,
            router: health::router(readiness.clone(), metrics.clone()),
            limits: Arc::new(limits.of_health()),
            connections: Arc::new(Semaphore::new(HEALTH_CONNECTIONS)),
            connection_set: ConnectionSet::default(),
            open: Gauge::default(),
            evicted: Counter::default(),
        };
        let plain = plain.into_std().map_err(ServerError::Probes)?;
        tasks.spawn_reporting("health listener", probes.accept(plain, listener, health_stages));
        tasks.spawn(
            "certificate expiry",
            cert_resolver::watch_expiry(Arc::clone(&serving), metrics.clone(), readiness),
        );
        renewal.start(&mut tasks, serving, &metrics);
        if let Some(clients) = clients {
            tasks.spawn("client CA reload", clients.keep());
        }
        let (open, evicted) = connections_counted(&metrics);
        let listener = Listener {
            tls: Some(TlsAcceptor::from(tls)),
            connection_set: ConnectionSet::default(),
            open,
            evicted,
            router: router(reviewer, &limits, &metrics, tracer),
            limits,
            connections: Arc::clone(connections),
        };
        tasks.spawn("webhook listener", accept(webhook, listener, stages));
        Ok(tasks)
    }
}

/// The thread that answers probes and scrapes: reviews, however many and however large, keep only the others busy.
struct ProbeThread(Option<Runtime>);

impl ProbeThread {
    fn start() -> Result<Self, ServerError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("probes")
            .enable_all()
            .build();
        runtime.map(Some).map(ProbeThread).map_err(ServerError::Probes)
    }

    /// Accepts connections on the thread; returns why it stopped.
    fn accept(
        &self,
        plain: std::net::TcpListener,
        listener: Listener,
        stages: watch::Receiver<ServerStage>,
    ) -> impl Future<Output = String> + Send + use<> {
        let accepted = self.0.as_ref().map(|runtime| {
            runtime.spawn(async move {
                // Registered here: the other threads may be too busy to see that a connection arrives.
                let plain = TcpListener::from_std(plain)?;
                accept(plain, listener, stages).await;
                Ok::<(), std::io::Error>(())
            })
        });
        async move {
            match accepted {
                None => "there is no thread".to_owned(),
                Some(accepted) => match accepted.await {
                    Ok(Ok(())) => "it stopped accepting".to_owned(),
                    Ok(Err(error)) => error.to_string(),
                    Err(error) => error.to_string(),
                },
            }
        }
    }
}

impl Drop for ProbeThread {
    fn drop(&mut self) {
        // A runtime must not wait for its threads where others run.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The gauge of the webhook's connections, and the counter of evicted ones.
fn connections_counted(metrics: &Metrics) -> (Gauge, Counter) {
    let evicted = "Connections of the webhook that were closed to accept others";
    (
        metrics.add("connections_open", "Open connections of the webhook"),
        metrics.add("connections_evicted", evicted),
    )
}

/// Stops the tasks that watch the stage.
struct StopOnDrop(watch::Sender<ServerStage>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(ServerStage::Over);
    }
}

fn bind(address: SocketAddr, flag: &'static str) -> Result<(TcpListener, SocketAddr), ServerError> {
    let listen = |source| ServerError::Listen {
        address,
        flag,
        source,
    };
    let socket = if address.is_ipv6() {
        TcpSocket::new_v6()
    } else {
        TcpSocket::new_v4()
    };
    let socket = socket.map_err(listen)?;
    // After a restart, connections of the previous process may still hold the address.
    socket.set_reuseaddr(true).map_err(listen)?;
    socket.bind(address).map_err(listen)?;
    let listener = socket.listen(BACKLOG).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    Ok((listener, address))
}

fn permits(connections: u32) -> usize {
    usize::try_from(connections)
        .unwrap_or(Semaphore::MAX_PERMITS)
        .min(Semaphore::MAX_PERMITS)
}
