//! Client certificates: verifies that clients are the API server, with CAs from a file that is reloaded.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError as Refusal, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::args::ClientArgs;
use super::identity::CertificateError;
use crate::process::{files, root_certificates};

/// Which client certificates are accepted.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    /// The CAs, in PEM.
    pub ca: PathBuf,
    /// The names of which a certificate must have one, as common name or DNS name; empty accepts any.
    pub names: Vec<String>,
    /// Whether a client without a certificate is rejected.
    pub are_required: bool,
    /// The interval between two checks of the file.
    pub poll: Duration,
}

impl From<ClientArgs> for Option<ClientCertificates> {
    fn from(args: ClientArgs) -> Self {
        let ClientArgs {
            client_ca,
            client_name,
            require_client_certificate,
            client_ca_poll,
        } = args;
        client_ca.map(|ca| ClientCertificates {
            ca,
            names: client_name,
            are_required: require_client_certificate,
            poll: client_ca_poll,
        })
    }
}

/// A verifier that checks the CA, but not the name.
type ByCa = Arc<dyn ClientCertVerifier>;

/// Verifies client certificates with the current CAs.
#[derive(Debug)]
pub struct ClientVerifier {
    settings: ClientCertificates,
    by_ca: ArcSwap<ByCa>,
}

impl ClientVerifier {
    /// Reads the CAs.
    ///
    /// # Errors
    /// If the file cannot be read, or contains no CA; the error names the flag.
    pub async fn load(settings: ClientCertificates) -> Result<Arc<Self>, CertificateError> {
        let content = read(&settings.ca).await;
        let by_ca = by_ca(&settings.ca, &content)?;
        Ok(Arc::new(Self {
            settings,
            by_ca: ArcSwap::from_pointee(by_ca),
        }))
    }

    /// Reloads the CAs when the file changes, forever. An invalid file keeps the old ones.
    pub(crate) async fn keep(self: Arc<Self>) {
        let path = &self.settings.ca;
        let mut known = None;
        loop {
            let content = files::changed(self.settings.poll, known.as_ref(), || read(path)).await;
            match by_ca(path, &content) {
                Ok(by_ca) => {
                    self.by_ca.store(Arc::new(by_ca));
                    if known.is_some() {
                        tracing::info!(file = %path.display(), "reloaded the CA of client certificates");
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "cannot reload the CA of client certificates; the old one remains in use");
                }
            }
            known = Some(content);
        }
    }

    fn is_named(&self, certificate: &CertificateDer<'_>) -> bool {
        let names = &self.settings.names;
        let is_one = |name: &str| names.iter().any(|known| known == name);
        names.is_empty()
            || X509Certificate::from_der(certificate).is_ok_and(|(_, certificate)| {
                let common = certificate.subject().iter_common_name();
                let mut common = common.filter_map(|name| name.as_str().ok());
                let alternative = certificate.subject_alternative_name().ok().flatten();
                let alternative = alternative.map(|extension| &extension.value.general_names);
                let mut alternative = alternative.into_iter().flatten();
                common.any(is_one)
                    || alternative.any(|name| matches!(name, GeneralName::DNSName(name) if is_one(name)))
            })
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    let content = files::read_async(path, files::CERTIFICATE_BYTES).await;
    content.map_err(|error| error.to_string())
}

fn by_ca(path: &Path, content: &Result<Vec<u8>, String>) -> Result<ByCa, CertificateError> {
    let refuse = |why: String| CertificateError::ClientCa {
        path: path.to_owned(),
        why,
    };
    let content = content.as_ref().map_err(|why| refuse(why.clone()))?;
    let mut roots = RootCertStore::empty();
    root_certificates::add_pem(&mut roots, content).map_err(refuse)?;
    let provider = Arc::new(ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| refuse(error.to_string()))
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.settings.are_required
    }

    /// None: the CAs may change during the connection, and the API server sends its only certificate anyway.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = (self.by_ca.load()).verify_client_cert(certificate, intermediates, now)?;
        if self.is_named(certificate) {
            Ok(verified)
        } else {
            Err(Refusal::NotValidForName.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        (self.by_ca.load()).verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        (self.by_ca.load()).verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_ca.load().supported_verify_schemes()
    }
}
