//! CA certificates: read from PEM, and checked whether a client that trusts them accepts what is served.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{KeyPair, PublicKeyData as _};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::tls::identity::{Identity, Validity};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CaCertificate {
    der: CertificateDer<'static>,
    public_key: Vec<u8>,
    validity: Validity,
}

impl CaCertificate {
    /// Reads one certificate; `None` if it is not readable or not a CA.
    pub(super) fn from_der(der: CertificateDer<'static>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        if !certificate.is_ca() {
            return None;
        }
        let public_key = certificate.public_key().subject_public_key.data.to_vec();
        let validity = Validity::of(&certificate);
        Some(CaCertificate {
            der,
            public_key,
            validity,
        })
    }

    /// Every CA in a PEM text, without duplicates, in order; other sections are skipped.
    pub(super) fn all(pem: &[u8]) -> Vec<Self> {
        let mut all = Vec::new();
        // The reader continues after an invalid section, and ends at the end of the text.
        for der in CertificateDer::pem_slice_iter(pem).flatten() {
            all.extend(CaCertificate::from_der(der).filter(|ca| !all.contains(ca)));
        }
        all
    }

    /// The CAs as one PEM text: a `caBundle`.
    pub(super) fn bundle(cas: &[CaCertificate]) -> String {
        cas.iter().map(|ca| pem(&ca.der)).collect()
    }

    pub(super) fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    pub(super) fn validity(&self) -> Validity {
        self.validity
    }

    /// Whether this CA signs with the key.
    pub(super) fn is_of(&self, key: &KeyPair) -> bool {
        self.public_key == key.der_bytes()
    }

    /// Whether a client that trusts only this CA accepts `served` for every one of `names` at this time.
    ///
    /// Like Go's verifier, and unlike rustls', this requires that the CA itself is valid.
    pub(super) fn vouches_for(&self, served: &Identity, names: &[String], now: SystemTime) -> bool {
        let Some((own, intermediates)) = served.chain().split_first() else {
            return false;
        };
        if !self.validity.holds(now) || !served.validity().holds(now) {
            return false;
        }
        let mut roots = RootCertStore::empty();
        if roots.add(self.der.clone()).is_err() {
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
                let verified = verifier.verify_server_cert(own, intermediates, &name, &[], time);
                verified.is_ok()
            })
        })
    }
}

/// A certificate as a PEM section.
fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII: every index is a character boundary.
        let (line, more) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem + "-----END CERTIFICATE-----\n"
}
