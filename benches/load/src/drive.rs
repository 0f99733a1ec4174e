//! The driver: connections in a closed loop, HTTP/1.1 with keep-alive over TLS, as an API server calls a webhook.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The longest sensible `timeoutSeconds` of a webhook.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where to send reviews.
#[derive(Clone)]
pub struct Target {
    address: SocketAddr,
    path: &'static str,
    tls: TlsConnector,
}

/// The answers during the measured time.
#[derive(Default, Debug)]
pub struct Outcome {
    /// Every latency in nanoseconds, sorted.
    pub latencies: Vec<u64>,
    /// Answers by status; 0 means that the connection broke, or that no answer arrived in time.
    pub statuses: BTreeMap<u16, u64>,
    /// The measured time.
    pub took: Duration,
}

impl Outcome {
    /// Answers with status 200 per second.
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    pub fn rate(&self) -> f64 {
        self.answered() as f64 / self.took.as_secs_f64()
    }

    /// Answers with status 200.
    pub fn answered(&self) -> u64 {
        self.statuses.get(&200).copied().unwrap_or(0)
    }

    /// This quantile of the latency, in microseconds.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    pub fn percentile(&self, part: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (last as f64 * part).round() as usize;
        self.latencies
            .get(at)
            .map_or(f64::NAN, |nanoseconds| *nanoseconds as f64 / 1000.0)
    }

    fn add(&mut self, other: Outcome) {
        self.latencies.extend(other.latencies);
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
    }
}

impl Target {
    /// A server at an address, with a certificate of the CA in a file.
    pub fn new(address: SocketAddr, ca: &Path, path: &'static str) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca)? {
            roots.add(certificate?)?;
        }
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Target {
            address,
            path,
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let tcp = TcpStream::connect(self.address).await.context("cannot connect")?;
        tcp.set_nodelay(true)?;
        let tls = self
            .tls
            .connect(ServerName::from(self.address.ip()), tcp)
            .await
            .context("no TLS")?;
        let (sender, connection) = handshake(TokioIo::new(tls)).await.context("no HTTP")?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn send(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let request = Request::post(self.path)
            .header("host", "transom.transom-system.svc")
            .header("user-agent", "kube-apiserver-admission")
            .header("accept", "application/json, */*")
            .header("content-type", "application/json")
            .header("accept-encoding", "gzip")
            .body(Full::new(body))?;
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    /// Sends one review on a new connection; an error unless the answer is an AdmissionReview.
    pub async fn request(&self, body: &str) -> anyhow::Result<serde_json::Value> {
        let mut sender = self.connect().await?;
        let (status, answer) = self
            .send(&mut sender, Bytes::copy_from_slice(body.as_bytes()))
            .await?;
        let review: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
        if status != StatusCode::OK || !review["response"]["allowed"].is_boolean() {
            bail!("{status}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(review)
    }

    /// Sends a review at an interval, on one connection, for a time; returns the latency of each.
    pub async fn pace(&self, every: Duration, time: Duration, body: &Bytes) -> anyhow::Result<Outcome> {
        let mut sender = self.connect().await?;
        let mut outcome = Outcome {
            took: time,
            ..Outcome::default()
        };
        let mut ticks = tokio::time::interval(every);
        let end = Instant::now() + time;
        while Instant::now() < end {
            ticks.tick().await;
            let requested = Instant::now();
            let (status, _) = timeout(PATIENCE, self.send(&mut sender, body.clone()))
                .await
                .context("no answer")??;
            let took = u64::try_from(requested.elapsed().as_nanos()).unwrap_or(u64::MAX);
            outcome.latencies.push(took);
            *outcome.statuses.entry(status.as_u16()).or_default() += 1;
        }
        outcome.latencies.sort_unstable();
        Ok(outcome)
    }

    /// Sends reviews for a time. Requests in flight at the end are not counted.
    pub async fn load(&self, connections: u16, time: Duration, bodies: &[Bytes]) -> anyhow::Result<Outcome> {
        let mut senders = Vec::new();
        for _ in 0..connections {
            senders.push(self.connect().await?);
        }
        let started = Instant::now();
        let end = started + time;
        let tasks: Vec<_> = (senders.into_iter().enumerate())
            .map(|(first, sender)| tokio::spawn(self.clone().repeat(sender, first, end, bodies.to_vec())))
            .collect();
        let mut outcome = Outcome::default();
        for task in tasks {
            outcome.add(task.await?);
        }
        outcome.took = time;
        outcome.latencies.sort_unstable();
        Ok(outcome)
    }

    async fn repeat(
        self,
        mut sender: SendRequest<Full<Bytes>>,
        first: usize,
        end: Instant,
        bodies: Vec<Bytes>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        for body in bodies.iter().cycle().skip(first % bodies.len()) {
            let requested = Instant::now();
            let answered = timeout(PATIENCE, self.send(&mut sender, body.clone())).await;
            let now = Instant::now();
            if now > end {
                break;
            }
            let status = match answered {
                Ok(Ok((status, _))) => status.as_u16(),
                Ok(Err(_)) | Err(_) => 0,
            };
            *outcome.statuses.entry(status).or_default() += 1;
            if status == 200 {
                outcome
                    .latencies
                    .push(u64::try_from((now - requested).as_nanos()).unwrap_or(u64::MAX));
                continue;
            }
            // A rejection may arrive before the whole body is sent; Go's client closes such a connection too.
            // A rejected caller does not retry immediately.
            tokio::time::sleep(Duration::from_millis(1)).await;
            match timeout(PATIENCE, self.connect()).await {
                Ok(Ok(again)) => sender = again,
                Ok(Err(_)) | Err(_) => break,
            }
        }
        outcome
    }
}
