//! A certificate with its key: what it is, and why there may be none to serve.

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
    /// The file of the clients' CAs is of no use.
    #[error("cannot read the CA of client certificates {} (--client-ca): {why}", path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
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
    pub(super) certified: Arc<CertifiedKey>,
    validity: Validity,
}

/// From when to when a certificate is valid, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// When it begins.
    pub from: SystemTime,
    /// When it ends.
    pub until: SystemTime,
}

impl Validity {
    /// That of a certificate; what was before 1970 is as long over as 1970.
    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let validity = certificate.validity();
        Validity {
            from: at(validity.not_before.timestamp()),
            until: at(validity.not_after.timestamp()),
        }
    }

    /// Whether `now` is in it.
    pub fn holds(&self, now: SystemTime) -> bool {
        (self.from..=self.until).contains(&now)
    }
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
            // A key that cannot tell its public half is tried in the handshake.
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => return Err(IdentityError::Mismatch),
            Err(error) => return Err(IdentityError::Certificate(error.to_string())),
        }
        Ok(Self {
            certified: Arc::new(certified),
            validity,
        })
    }

    /// The server's own certificate's.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Whether no CA issued it but it itself.
    pub(crate) fn is_self_signed(&self) -> bool {
        self.chain().first().is_none_or(|own| {
            X509Certificate::from_der(own)
                .is_ok_and(|(_, certificate)| certificate.issuer() == certificate.subject())
        })
    }

    /// The certificates as they are shown, the server's own first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }
}
