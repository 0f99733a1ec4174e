//! A certificate with its key, and the errors of loading or issuing one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::InconsistentKeys;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why there is no certificate to serve.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The certificate file is invalid.
    #[error("cannot read the TLS certificate {} (--tls-cert): {why}", path.display())]
    Certificate { path: PathBuf, why: String },
    /// The key file is invalid.
    #[error("cannot read the TLS key {} (--tls-key): {why}", path.display())]
    Key { path: PathBuf, why: String },
    /// Both files are valid, but do not match.
    #[error(
        "the TLS key {} (--tls-key) does not belong to the certificate {} (--tls-cert)",
        key.display(),
        certificate.display()
    )]
    Mismatch { certificate: PathBuf, key: PathBuf },
    /// A name of `--tls-name` is not valid in a certificate, or key generation failed.
    #[error("cannot issue a certificate for {names} (--tls-name): {source}")]
    Issue { names: String, source: rcgen::Error },
    /// The issued certificate cannot be served.
    #[error("cannot serve the certificate that was just issued: {0}")]
    Issued(IdentityError),
    /// The CA cannot be written.
    #[error("cannot write the CA to {} (--write-ca): {source}", path.display())]
    WriteCa {
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file of the client CAs is invalid.
    #[error("cannot read the CA of client certificates {} (--client-ca): {why}", path.display())]
    ClientCa { path: PathBuf, why: String },
    /// TLS itself cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Setup(#[from] rustls::Error),
}

/// Why a certificate or its key is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityError {
    /// The certificate chain is invalid.
    #[error("bad certificate: {0}")]
    Certificate(String),
    /// The private key is invalid.
    #[error("bad private key: {0}")]
    Key(String),
    /// They do not match.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
}

/// A certificate chain with its matching private key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(super) certified: Arc<CertifiedKey>,
    validity: Validity,
}

/// The validity period of a certificate, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    pub from: SystemTime,
    pub until: SystemTime,
}

impl Validity {
    /// The validity of a certificate; times before 1970 are treated as 1970.
    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let validity = certificate.validity();
        Validity {
            from: at(validity.not_before.timestamp()),
            until: at(validity.not_after.timestamp()),
        }
    }

    /// Whether `now` is within the period.
    pub fn holds(&self, now: SystemTime) -> bool {
        (self.from..=self.until).contains(&now)
    }
}

impl Identity {
    /// Parses a chain, with the server's own certificate first, and its key: PKCS#8, SEC1 or RSA (PKCS#1),
    /// all in PEM.
    ///
    /// # Errors
    /// If either is missing or invalid, or if they do not match.
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

    pub(super) fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, IdentityError> {
        let leaf = chain
            .first()
            .ok_or_else(|| IdentityError::Certificate("no certificate in it".to_owned()))?;
        let (_, parsed) =
            X509Certificate::from_der(leaf).map_err(|error| IdentityError::Certificate(error.to_string()))?;
        let validity = Validity::of(&parsed);
        let key = ring::default_provider()
            .key_provider
            .load_private_key(key)
            .map_err(|error| IdentityError::Key(error.to_string()))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            // A key whose public half is unknown is only checked by the handshake.
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => return Err(IdentityError::Mismatch),
            Err(error) => return Err(IdentityError::Certificate(error.to_string())),
        }
        Ok(Self {
            certified: Arc::new(certified),
            validity,
        })
    }

    /// The validity of the server's own certificate.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Whether the certificate is its own issuer.
    pub(crate) fn is_self_signed(&self) -> bool {
        self.chain().first().is_none_or(|own| {
            X509Certificate::from_der(own)
                .is_ok_and(|(_, certificate)| certificate.issuer() == certificate.subject())
        })
    }

    /// The certificates in the order of the handshake, the server's own first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }
}
