//! Certificates as they are judged here: read from PEM, and verified as a client of the webhook would.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{KeyPair, PublicKeyData as _};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::tls::identity::{Identity, IdentityError};

/// The certificate of a CA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Authority {
    der: CertificateDer<'static>,
    public_key: Vec<u8>,
    validity: Validity,
}

/// The serving certificate with its key, known to belong together.
#[derive(Clone, Debug)]
pub struct Leaf {
    chain: Vec<CertificateDer<'static>>,
    identity: Identity,
    validity: Validity,
}

/// From when to when, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Validity {
    pub(super) from: SystemTime,
    pub(super) until: SystemTime,
}

impl Validity {
    fn of(certificate: &X509Certificate<'_>) -> Self {
        let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let validity = certificate.validity();
        Validity {
            from: at(validity.not_before.timestamp()),
            until: at(validity.not_after.timestamp()),
        }
    }

    pub(super) fn holds(&self, now: SystemTime) -> bool {
        (self.from..=self.until).contains(&now)
    }
}

impl Authority {
    /// Reads one certificate; `None` where it is none, or not that of a CA.
    pub fn from_der(der: CertificateDer<'static>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        if !certificate.is_ca() {
            return None;
        }
        let public_key = certificate.public_key().subject_public_key.data.to_vec();
        let validity = Validity::of(&certificate);
        Some(Authority {
            der,
            public_key,
            validity,
        })
    }

    /// Every CA in a PEM text, each once, in their order; what is no CA in it is passed over.
    pub fn all(pem: &[u8]) -> Vec<Self> {
        let mut all = Vec::new();
        // The reader goes on after a section that is broken, and ends for good with the text.
        for der in CertificateDer::pem_slice_iter(pem).flatten() {
            all.extend(Authority::from_der(der).filter(|authority| !all.contains(authority)));
        }
        all
    }

    /// Them as one PEM text: a `caBundle`.
    pub fn bundle(authorities: &[Authority]) -> String {
        authorities
            .iter()
            .map(|authority| pem("CERTIFICATE", &authority.der))
            .collect()
    }

    pub(super) fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Whether this is the key that it signs with.
    pub(super) fn is_of(&self, key: &KeyPair) -> bool {
        self.public_key == key.der_bytes()
    }

    /// Whether it is valid at this time.
    pub fn is_valid(&self, now: SystemTime) -> bool {
        self.validity.holds(now)
    }

    /// When it ends.
    pub fn not_after(&self) -> SystemTime {
        self.validity.until
    }

    pub(super) fn validity(&self) -> Validity {
        self.validity
    }
}

impl Leaf {
    /// Reads a certificate chain, the server's own first, and its key, both in PEM.
    ///
    /// # Errors
    /// When either is broken, or when they do not belong together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        Identity::from_pem(chain, key).and_then(Self::of)
    }

    /// What is known of a certificate that is served.
    ///
    /// # Errors
    /// When it is not one that can be read.
    pub fn of(identity: Identity) -> Result<Self, IdentityError> {
        let chain = identity.chain().to_vec();
        let broken = || IdentityError::Certificate("no certificate in it".to_owned());
        let own = chain.first().ok_or_else(broken)?;
        let (_, certificate) =
            X509Certificate::from_der(own).map_err(|error| IdentityError::Certificate(error.to_string()))?;
        let validity = Validity::of(&certificate);
        Ok(Leaf {
            chain,
            identity,
            validity,
        })
    }

    /// What to serve.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) fn validity(&self) -> Validity {
        self.validity
    }

    /// Whether nobody issued it but itself: a placeholder.
    pub(super) fn is_self_signed(&self) -> bool {
        self.chain.first().is_none_or(|own| {
            X509Certificate::from_der(own)
                .is_ok_and(|(_, certificate)| certificate.issuer() == certificate.subject())
        })
    }

    /// Whether it is the same certificate.
    pub(super) fn is(&self, other: &Leaf) -> bool {
        self.chain == other.chain
    }

    /// Whether a client that trusts only `authority` accepts it for every one of `names` at this time.
    ///
    /// As Go's verifier does, and rustls' does not, this asks that the CA itself be valid.
    pub fn is_trusted_by(&self, authority: &Authority, names: &[String], now: SystemTime) -> bool {
        let Some((own, intermediates)) = self.chain.split_first() else {
            return false;
        };
        if !authority.is_valid(now) || !self.validity.holds(now) {
            return false;
        }
        let mut roots = RootCertStore::empty();
        if roots.add(authority.der.clone()).is_err() {
            return false;
        }
        let provider = Arc::new(ring::default_provider());
        let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()
        else {
            return false;
        };
        let time = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        names.iter().all(|name| {
            ServerName::try_from(name.as_str()).is_ok_and(|name| {
                verifier
                    .verify_server_cert(own, intermediates, &name, &[], time)
                    .is_ok()
            })
        })
    }

    /// The first of `authorities` by which it is trusted.
    pub fn issuer<'a>(
        &self,
        authorities: impl IntoIterator<Item = &'a Authority>,
        names: &[String],
        now: SystemTime,
    ) -> Option<&'a Authority> {
        authorities
            .into_iter()
            .find(|authority| self.is_trusted_by(authority, names, now))
    }
}

/// A section of PEM.
fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII: every index is a boundary.
        let (line, more) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem + &format!("-----END {label}-----\n")
}
