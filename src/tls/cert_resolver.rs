//! The serving certificate and its expiry; new handshakes use a new certificate immediately.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::client_auth::ClientVerifier;
use super::identity::{CertificateError, Identity};
use crate::process::metrics::Metrics;
use crate::process::readiness::Readiness;
use crate::process::server_clock::ServerClock;

/// How long before expiry a warning is logged.
const NEAR: Duration = Duration::from_secs(7 * 24 * 3_600);

/// How often the expiry is checked if the certificate does not change.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The certificate for every new handshake. Open connections keep the certificate that they started with.
pub struct ServingCert {
    current: ArcSwap<Identity>,
    replaced: Notify,
    /// The clock of those who check it.
    clock: OnceLock<ServerClock>,
}

impl ServingCert {
    /// Serves `identity` until it is replaced.
    pub fn new(identity: Identity) -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwap::from_pointee(identity),
            replaced: Notify::new(),
            clock: OnceLock::new(),
        })
    }

    /// Expiry follows this clock from now on, instead of that of this machine. The first call counts.
    pub fn follow(&self, clock: ServerClock) {
        let _ = self.clock.set(clock);
    }

    fn now(&self) -> SystemTime {
        self.clock.get().map_or_else(SystemTime::now, ServerClock::now)
    }

    /// Serves `identity` from the next handshake.
    pub fn replace(&self, identity: Identity) {
        self.current.store(Arc::new(identity));
        self.replaced.notify_one();
    }

    /// The identity that is served now.
    pub fn identity(&self) -> Arc<Identity> {
        self.current.load_full()
    }

    /// When the current certificate expires.
    pub fn not_after(&self) -> SystemTime {
        self.current.load().validity().until
    }
}

impl fmt::Debug for ServingCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCert")
            .field("not_after", &self.not_after())
            .finish_non_exhaustive()
    }
}

impl ResolvesServerCert for ServingCert {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.load().certified))
    }
}

/// TLS 1.2 and 1.3 with ring, HTTP/2 and HTTP/1.1, with the current `certificate`, and with client
/// certificates if there is a verifier.
///
/// # Errors
/// If rustls supports none of these versions.
pub fn server_config(
    certificate: Arc<ServingCert>,
    clients: Option<Arc<ClientVerifier>>,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Monitors the expiry of the certificate: updates the gauge, warns, and is not ready once it has expired.
/// Runs forever.
pub async fn watch_expiry(certificate: Arc<ServingCert>, metrics: Metrics, readiness: Readiness) {
    let mut known = None;
    loop {
        let now = Expiry::of(&certificate.current.load(), certificate.now());
        metrics.certificate_expires(certificate.not_after());
        if known != Some(now) {
            match now {
                Expiry::Far => readiness.release("certificate"),
                Expiry::Near => {
                    readiness.release("certificate");
                    tracing::warn!("the serving certificate expires within a week");
                }
                Expiry::Over => {
                    readiness.hold("certificate", "the serving certificate has expired");
                    tracing::error!("the serving certificate has expired: API servers will reject it");
                }
                Expiry::Early => {
                    readiness.hold("certificate", "the serving certificate is not valid yet");
                    tracing::error!("the serving certificate is not valid yet: API servers will reject it");
                }
            }
            known = Some(now);
        }
        // Checks again after a replacement, and once a minute.
        let _ = timeout(LOOK_AGAIN, certificate.replaced.notified()).await;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expiry {
    Early,
    Far,
    Near,
    Over,
}

impl Expiry {
    fn of(identity: &Identity, now: SystemTime) -> Self {
        let validity = identity.validity();
        match validity.until.duration_since(now) {
            _ if now < validity.from => Self::Early,
            Err(_) => Self::Over,
            Ok(left) if left < NEAR => Self::Near,
            Ok(_) => Self::Far,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::super::self_signed::Authority;
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3_600);

    #[test]
    fn the_end_of_a_certificate_is_seen_coming() {
        let now = SystemTime::now();
        let leaf = Authority::new(now)
            .unwrap()
            .issue(&["localhost".to_owned()], now)
            .unwrap();
        let days = |days: u32| Expiry::of(&leaf, now + DAY * days);
        assert_eq!(
            [days(0), days(357), days(359), days(366)],
            [Expiry::Far, Expiry::Far, Expiry::Near, Expiry::Over]
        );
        assert_eq!(Expiry::of(&leaf, now - DAY), Expiry::Early);
    }

    #[tokio::test]
    async fn an_expired_certificate_holds_readiness_until_it_is_replaced() {
        let now = SystemTime::now();
        let names = ["localhost".to_owned()];
        let authority = Authority::new(now).unwrap();
        let serving = ServingCert::new(authority.issue(&names, now - DAY * 400).unwrap());
        let (metrics, readiness) = (Metrics::new("0", None), Readiness::default());
        let watching = tokio::spawn(watch_expiry(
            Arc::clone(&serving),
            metrics.clone(),
            readiness.clone(),
        ));
        while readiness.is_ready() {
            tokio::task::yield_now().await;
        }
        serving.replace(authority.issue(&names, now).unwrap());
        while !readiness.is_ready() {
            tokio::task::yield_now().await;
        }
        let end = serving.not_after().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(
            metrics
                .expose()
                .contains(&format!("transom_certificate_expiry_timestamp_seconds {end}"))
        );
        watching.abort();
    }
}
