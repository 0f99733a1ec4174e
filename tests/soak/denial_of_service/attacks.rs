//! The attackers: each opens what it can, waits until the server has enough of it, and comes back.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::netns::ADDRESSES;
use crate::support::install;

/// How long an attacker takes to come back.
const AGAIN: Duration = Duration::from_millis(200);

/// How long one waits for the server to hang up.
const STUBBORN: Duration = Duration::from_secs(15);

/// The attacks, and how many attackers each has against each replica.
const ATTACKS: [(Attack, usize); 9] = [
    (Attack::SilentProbe, 100),
    (Attack::UnreadScrape, 40),
    (Attack::SilentSocket, 100),
    (Attack::HalfHandshake, 30),
    (Attack::EndlessHead, 60),
    (Attack::EndlessBodies, 2),
    (Attack::LargeBody, 2),
    (Attack::LongNames, 1),
    (Attack::ManyImages, 1),
];

/// What one attacker does, again and again.
#[derive(Clone, Copy, Debug)]
enum Attack {
    /// Opens the health port and says nothing.
    SilentProbe,
    /// Asks for metrics and does not read them.
    UnreadScrape,
    /// Opens the webhook's port and says nothing.
    SilentSocket,
    /// Begins a handshake of 16 KiB and stops.
    HalfHandshake,
    /// Sends 15 KiB of a head that does not end.
    EndlessHead,
    /// Sends a byte each of a hundred bodies on one connection of HTTP/2.
    EndlessBodies,
    /// Sends 6.9 MB of a body of 7.
    LargeBody,
    /// Sends whole reviews with names of a megabyte, for the log.
    LongNames,
    /// Sends whole reviews with 300 different images, each in a container with findings that no exemption matches: five times
    /// the steps after which no further finding is exempt.
    ManyImages,
}

/// The policy with the most exemptions and the longest patterns that the API server stores, 256 times 64 characters: an
/// attacker may write a policy too.
pub fn policies() -> String {
    let exemption = |n: usize| {
        format!(
            "  - {{name: e{n}, owner: a, reason: b, expiresOn: 2999-12-31, rules: ['*'], \
             images: ['*r*e*g*i*s*t*r*y*.*e*x*a*m*p*l*e*.*c*o*m*/*a*p*p*:{n:014}']}}\n"
        )
    };
    let exemptions: String = (0..256).map(exemption).collect();
    let enforce = "spec: {mode: Enforce}\n";
    let largest = format!("spec:\n  mode: Enforce\n  exemptions:\n{exemptions}");
    assert!(install::POLICIES.contains(enforce));
    install::POLICIES.replace(enforce, &largest)
}

/// Those who attack, until they are stopped.
pub struct Attackers {
    tasks: JoinSet<()>,
    begun: Arc<[AtomicUsize; ATTACKS.len()]>,
}

impl Attackers {
    /// Lets them loose on the first so many replicas.
    pub fn start(runtime: &Handle, replicas: usize) -> Self {
        let begun: Arc<[AtomicUsize; ATTACKS.len()]> = Arc::default();
        let mut tasks = JoinSet::new();
        for address in &ADDRESSES[..replicas] {
            for (number, (attack, attackers)) in ATTACKS.into_iter().enumerate() {
                for _ in 0..attackers {
                    let begun = Arc::clone(&begun);
                    tasks.spawn_on(
                        async move {
                            loop {
                                begun[number].fetch_add(1, Ordering::Relaxed);
                                // That it comes to nothing is what the server is for.
                                let _ = timeout(STUBBORN, attack.once(address)).await;
                                sleep(AGAIN).await;
                            }
                        },
                        runtime,
                    );
                }
            }
        }
        Attackers { tasks, begun }
    }

    /// Stops them; says how often each attack was begun.
    pub fn stop(mut self, runtime: &Runtime) -> Vec<(String, usize)> {
        runtime.block_on(self.tasks.shutdown());
        let begun = self.begun.iter().map(|begun| begun.load(Ordering::Relaxed));
        ATTACKS
            .iter()
            .map(|(attack, _)| format!("{attack:?}"))
            .zip(begun)
            .collect()
    }
}

impl Attack {
    async fn once(self, address: &str) -> std::io::Result<()> {
        let head = |length: usize| {
            format!(
                "POST /mutate HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            )
        };
        match self {
            Attack::SilentProbe => until_closed(TcpStream::connect((address, 8080)).await?).await,
            Attack::SilentSocket => until_closed(TcpStream::connect((address, 8443)).await?).await,
            Attack::UnreadScrape => {
                let mut scrape = TcpStream::connect((address, 8080)).await?;
                scrape
                    .write_all(
                        b"GET /metrics HTTP/1.1\r\nhost: t\r\n\r\nGET /metrics HTTP/1.1\r\nhost: t\r\n",
                    )
                    .await?;
                sleep(Duration::from_secs(5)).await;
                Ok(())
            }
            Attack::HalfHandshake => {
                let mut socket = TcpStream::connect((address, 8443)).await?;
                socket.write_all(&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc]).await?;
                socket.write_all(&vec![0; 16_000]).await?;
                until_closed(socket).await
            }
            Attack::EndlessHead => {
                let mut tls = connect(address, "http/1.1").await?;
                tls.write_all(b"POST /validate HTTP/1.1\r\nhost: t\r\nx-long: ")
                    .await?;
                tls.write_all(&vec![b'x'; 15 << 10]).await?;
                let _ = tls.read(&mut [0; 64]).await;
                Ok(())
            }
            Attack::EndlessBodies => {
                let tls = connect(address, "h2").await?;
                let begun = http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await;
                let (sender, connection) = begun.map_err(std::io::Error::other)?;
                let mut bodies = JoinSet::new();
                for _ in 0..100 {
                    let mut sender = sender.clone();
                    bodies.spawn(async move {
                        let request =
                            Request::post("https://t/mutate").header("content-type", "application/json");
                        let _ = sender.send_request(request.body(OneByte(true)).unwrap()).await;
                    });
                }
                drop(sender);
                let _ = timeout(STUBBORN, connection).await;
                Ok(())
            }
            Attack::LargeBody => {
                let mut tls = connect(address, "http/1.1").await?;
                tls.write_all(head(7_000_000).as_bytes()).await?;
                tls.write_all(&vec![b' '; 6_900_000]).await?;
                let _ = tls.read(&mut [0; 64]).await;
                Ok(())
            }
            Attack::LongNames => {
                let name = "n".repeat(1 << 20);
                send(address, &review(&name, &json!([]))).await
            }
            Attack::ManyImages => {
                let containers: Vec<Value> = (0..300)
                    .map(|n| {
                        let image = format!("registry.example.com/{}/app-{n}", "a".repeat(200));
                        json!({"name": format!("c{n}"), "image": image, "securityContext": {"privileged": true, "runAsUser": 1}})
                    })
                    .collect();
                send(address, &review("shop", &json!(containers))).await
            }
        }
    }
}

/// A review of a bad pod, with this name everywhere.
fn review(name: &str, containers: &Value) -> String {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": name, "operation": "CREATE", "namespace": name, "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "userInfo": {"username": name},
            "object": {"apiVersion": "v1", "kind": "Pod", "spec": {"os": {"name": "windows"}, "hostPID": true, "containers": containers}},
        },
    })
    .to_string()
}

/// Sends a whole review, and reads the answer.
async fn send(address: &str, review: &str) -> std::io::Result<()> {
    let tls = connect(address, "h2").await?;
    let begun = http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await;
    let (mut sender, connection) = begun.map_err(std::io::Error::other)?;
    let driven = tokio::spawn(connection);
    let request = Request::post("https://t/validate").header("content-type", "application/json");
    let body = Full::new(Bytes::from(review.to_owned()));
    let _ = sender.send_request(request.body(body).unwrap()).await;
    driven.abort();
    Ok(())
}

/// Waits until the server closes it.
async fn until_closed(mut socket: TcpStream) -> std::io::Result<()> {
    let _ = socket.read(&mut [0; 64]).await;
    Ok(())
}

/// A body that sends one byte and never ends.
struct OneByte(bool);

impl Body for OneByte {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if std::mem::take(&mut self.0) {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"{")))))
        } else {
            Poll::Pending
        }
    }
}

/// An attacker asks for no certificate that it knows.
#[derive(Debug)]
struct AnyCertificate(rustls::crypto::CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

async fn connect(address: &str, protocol: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = rustls::crypto::ring::default_provider();
    let verifier = Arc::new(AnyCertificate(provider.clone()));
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect((address, 8443)).await?;
    let name = ServerName::try_from("transom.transom-system.svc").map_err(std::io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}
