//! Tests of the server from outside: this file has the reviewer, bodies and clients that the tests share.

mod admission;
mod attacks;
mod certificates;
mod clients;
mod draining;
mod inflight;
mod sockets;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::admission::ReviewLabels;
use crate::process::metrics::Metrics;
use crate::process::readiness::Readiness;
use crate::tls::cert_resolver::ServingCert;
use crate::tls::files::CertificateFiles;
use crate::tls::identity::Identity;
use crate::tls::source::CertificateSource;

/// A reviewer that answers with the length of the body, or of its head and the declared size, and panics at
/// `panic`.
struct Measure;

impl ReviewHandler for Measure {
    fn review(
        &self,
        phase: Phase,
        sent: ReviewBody<'_>,
        _: OnPending,
    ) -> Result<ReviewResponse, PendingData> {
        let (ReviewBody::Whole(body) | ReviewBody::Head { head: body, .. }) = sent;
        assert!(!body.starts_with(b"panic"), "asked to panic");
        let head = match sent {
            ReviewBody::Whole(_) => String::new(),
            ReviewBody::Head { oversize, .. } => {
                let size = oversize.bytes.map(|bytes| bytes.to_string());
                format!(",\"of\":{}", size.unwrap_or("null".to_owned()))
            }
        };
        let labels = ReviewLabels {
            r#type: phase.as_str(),
            operation: "CREATE",
            kind: "Pod",
            decision: "allow",
            dry_run: false,
        };
        Ok(ReviewResponse {
            status: StatusCode::OK,
            body: format!("{{\"length\":{}{head}}}", body.len()).into_bytes(),
            record: Some(AuditRecord {
                labels,
                rules: vec!["a-rule"],
                ..AuditRecord::default()
            }),
        })
    }
}

/// Limits with short timeouts.
fn limits() -> Limits {
    Limits {
        header_timeout: Duration::from_millis(200),
        body_timeout: Duration::from_millis(200),
        handshake_timeout: Duration::from_millis(200),
        ..Limits::default()
    }
}

/// A body that is sent in pieces, and ends when its sender is dropped.
#[derive(Debug)]
struct Fed {
    pieces: mpsc::UnboundedReceiver<Bytes>,
    length: Option<u64>,
}

fn fed(length: Option<u64>) -> (mpsc::UnboundedSender<Bytes>, Fed) {
    let (sender, pieces) = mpsc::unbounded_channel();
    (sender, Fed { pieces, length })
}

impl Body for Fed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.pieces
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

fn post<B>(path: &str, body: B) -> Request<B> {
    Request::post(path)
        .header("host", "transom")
        .header("content-type", "application/json; charset=utf-8")
        .body(body)
        .unwrap()
}

fn full(body: impl Into<Bytes>) -> Full<Bytes> {
    Full::new(body.into())
}

async fn text<B: Body>(response: Response<B>) -> String
where
    B::Error: std::fmt::Debug,
{
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// A running server, with what a test needs to call and to stop it.
struct Running {
    address: SocketAddr,
    health: SocketAddr,
    ca: String,
    metrics: Metrics,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), ServerError>>,
}

impl Running {
    /// Asks the server to stop, and returns immediately.
    fn begin_stop(&mut self) {
        let (unused, _) = oneshot::channel();
        std::mem::replace(&mut self.stop, unused).send(()).unwrap();
    }
}

fn self_signed() -> CertificateSource {
    CertificateSource::SelfSigned {
        names: Vec::new(),
        write_ca: None,
    }
}

fn config(limits: Limits, certificate: CertificateSource) -> WebhookConfig {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    WebhookConfig {
        listen: ListenArgs {
            listen: any,
            health_listen: any,
        },
        limits,
        certificate,
        clients: None,
        metrics: Metrics::new("0.0.0", None),
        readiness: Readiness::default(),
        tracer: None,
    }
}

async fn start(limits: Limits, certificate: CertificateSource) -> Running {
    run(config(limits, certificate)).await
}

async fn run(config: WebhookConfig) -> Running {
    let metrics = config.metrics.clone();
    let server = Server::bind(config).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (address, health) = (server.address(), server.health_address());
    let ca = server.ca_pem().unwrap_or_default();
    let ended = tokio::spawn(server.serve(Arc::new(Measure), async {
        stopped.await.ok();
    }));
    Running {
        address,
        health,
        ca,
        metrics,
        stop,
        ended,
    }
}

impl Running {
    async fn http1<B>(&self) -> http1::SendRequest<B>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let stream = connect(self.address, &self.ca, "http/1.1").await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    async fn http2<B>(&self) -> http2::SendRequest<B>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        let stream = connect(self.address, &self.ca, "h2").await.unwrap();
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        sender
    }

    /// Calls the health listener.
    async fn health(&self, path: &str) -> (StatusCode, String) {
        let stream = TcpStream::connect(self.health).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(path)
            .header("host", "transom")
            .body(full(""))
            .unwrap();
        let response: Response<Incoming> = sender.send_request(request).await.unwrap();
        (response.status(), text(response).await)
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.ended.await.unwrap().unwrap();
    }
}

/// A TLS connection that trusts `ca` and speaks `protocol`.
async fn connect(address: SocketAddr, ca: &str, protocol: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::from(address.ip());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
    Ok(stream)
}
