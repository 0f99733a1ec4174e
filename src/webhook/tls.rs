//! The certificate that is served: what it is, where it comes from, and when it ends; new handshakes see a new one at once.

pub(super) mod files;
pub(super) mod self_signed;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};
use tokio::sync::Notify;
use tokio::time::timeout;
use x509_parser::prelude::{FromDer, X509Certificate};

use self::files::CertificateFiles;
use super::health::Readiness;
use super::metrics::Metrics;

/// When a certificate that still lasts is worth a warning.
const NEAR: Duration = Duration::from_secs(7 * 24 * 3_600);

/// How often the end of the certificate is looked at while it stays the same.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// Issued in the process, from a CA that lives as long as it does.
    SelfSigned {
        /// DNS names and addresses beside localhost, the loopback addresses and the address listened on.
        names: Vec<String>,
        /// Where the CA goes in PEM.
        write_ca: Option<PathBuf>,
    },
    /// Read from two files, and again when their content changes.
    Files(CertificateFiles),
    /// Replaced by whoever made it: the controller that keeps the Secret.
    Provided(Arc<ServingCert>),
}

impl From<super::args::TlsArgs> for CertificateSource {
    fn from(args: super::args::TlsArgs) -> Self {
        let super::args::TlsArgs {
            tls_cert,
            tls_key,
            tls_poll,
            write_ca,
            tls_name,
        } = args;
        match (tls_cert, tls_key) {
            (Some(certificate), Some(key)) => Self::Files(CertificateFiles {
                certificate,
                key,
                poll: tls_poll,
            }),
            // clap lets neither come alone.
            _ => Self::SelfSigned {
                names: tls_name,
                write_ca,
            },
        }
    }
}

/// Why there is no certificate to serve.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The certificate file is of no use.
    #[error("cannot read the TLS certificate {} (--tls-cert): {why}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The key file is of no use.
    #[error("cannot read the TLS key {} (--tls-key): {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Both files are fine, and do not belong together.
    #[error(
        "the TLS key {} (--tls-key) does not belong to the certificate {} (--tls-cert)",
        key.display(),
        certificate.display()
    )]
    Mismatch {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// A name of `--tls-name` cannot stand in a certificate, or the key generator failed.
    #[error("cannot issue a certificate for {names} (--tls-name): {source}")]
    Issue {
        /// The names it was to have.
        names: String,
        /// What went wrong.
        source: rcgen::Error,
    },
    /// What was issued cannot be served.
    #[error("cannot serve the certificate that was just issued: {0}")]
    Issued(IdentityError),
    /// The CA cannot be written.
    #[error("cannot write the CA to {} (--write-ca): {source}", path.display())]
    WriteCa {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// TLS itself cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Setup(#[from] rustls::Error),
}

/// What is wrong with a certificate or its key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityError {
    /// The certificate chain is of no use.
    #[error("bad certificate: {0}")]
    Certificate(String),
    /// The private key is of no use.
    #[error("bad private key: {0}")]
    Key(String),
    /// They do not belong together.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
}

/// A certificate chain with its private key, known to belong together.
#[derive(Clone, Debug)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Identity {
    /// Reads a chain, the server's own certificate first, and its key: PKCS#8, SEC1 or RSA (PKCS#1), all in PEM.
    ///
    /// # Errors
    /// When either is missing or broken, or when they do not belong together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|error| IdentityError::Certificate(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
            IdentityError::Key(match error {
                rustls::pki_types::pem::Error::NoItemsFound => "no private key in it".to_owned(),
                other => other.to_string(),
            })
        })?;
        Self::from_der(chain, key)
    }

    fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, IdentityError> {
        let leaf = chain
            .first()
            .ok_or_else(|| IdentityError::Certificate("no certificate in it".to_owned()))?;
        let (_, parsed) =
            X509Certificate::from_der(leaf).map_err(|error| IdentityError::Certificate(error.to_string()))?;
        let validity = parsed.validity();
        let (not_before, not_after) = (
            at(validity.not_before.timestamp()),
            at(validity.not_after.timestamp()),
        );

        let key = ring::default_provider()
            .key_provider
            .load_private_key(key)
            .map_err(|error| IdentityError::Key(error.to_string()))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            // A key that cannot tell its public half is tried in the handshake.
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => return Err(IdentityError::Mismatch),
            Err(error) => return Err(IdentityError::Certificate(error.to_string())),
        }
        Ok(Self {
            certified: Arc::new(certified),
            not_before,
            not_after,
        })
    }

    /// When the server's own certificate ends.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// The certificates as they are shown, the server's own first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }
}

/// Seconds since 1970 as a time; what was before is as long over as 1970.
fn at(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// The certificate of every new handshake. Connections keep the one that they began with.
pub struct ServingCert {
    current: ArcSwap<Identity>,
    replaced: Notify,
}

impl ServingCert {
    /// Serves `identity` until it is replaced.
    pub fn new(identity: Identity) -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwap::from_pointee(identity),
            replaced: Notify::new(),
        })
    }

    /// Serves `identity` from the next handshake on.
    pub fn replace(&self, identity: Identity) {
        self.current.store(Arc::new(identity));
        self.replaced.notify_one();
    }

    /// What is served now.
    pub fn identity(&self) -> Arc<Identity> {
        self.current.load_full()
    }

    /// When the served certificate ends.
    pub fn not_after(&self) -> SystemTime {
        self.current.load().not_after
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

/// TLS 1.2 and 1.3 with ring, HTTP/2 and HTTP/1.1, and whatever `certificate` is at the time.
pub(super) fn server_config(certificate: Arc<ServingCert>) -> Result<Arc<ServerConfig>, CertificateError> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Watches the end of the certificate: keeps the gauge, warns, and is not ready with one that is over, for ever.
pub(super) async fn watch_expiry(certificate: Arc<ServingCert>, metrics: Metrics, readiness: Readiness) {
    let mut known = None;
    loop {
        let now = Expiry::of(&certificate.current.load(), SystemTime::now());
        metrics.certificate_expires(certificate.not_after());
        if known != Some(now) {
            match now {
                Expiry::Far => readiness.release("certificate"),
                Expiry::Near => {
                    readiness.release("certificate");
                    tracing::warn!("the serving certificate ends within a week");
                }
                Expiry::Over => {
                    readiness.hold("certificate", "the serving certificate has expired");
                    tracing::error!("the serving certificate has expired: API servers will refuse it");
                }
                Expiry::Early => {
                    readiness.hold("certificate", "the serving certificate is not valid yet");
                    tracing::error!("the serving certificate is not valid yet: API servers will refuse it");
                }
            }
            known = Some(now);
        }
        // Whether it was replaced or a minute has passed: look again.
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
        match identity.not_after.duration_since(now) {
            _ if now < identity.not_before => Self::Early,
            Err(_) => Self::Over,
            Ok(left) if left < NEAR => Self::Near,
            Ok(_) => Self::Far,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::self_signed::Authority;
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
