//! The certificate that is served first, before the cluster is known.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use super::store::SecretStore;
use super::{CertificateConfig, CertificateMode, CertsError};
use crate::cluster::errors::answered_within;
use crate::process::readiness::Readiness;
use crate::tls::cert_resolver::ServingCert;
use crate::tls::identity::Identity;

/// The reason for not being ready while the API server may not trust what is served.
pub(super) const REASON: &str = "certificate-chain";

/// Timeout of the first read of the Secret; after it a placeholder is served.
const FIRST: Duration = Duration::from_secs(5);

/// The certificate to serve at start: from the Secret or the files, or a placeholder that no client accepts. Transom
/// is not ready before [`CertificateTask::run`](super::CertificateTask::run) reports that it is.
///
/// # Errors
/// If the files cannot be used, or if no certificate can be issued for these names.
pub async fn first(
    client: &Client,
    mode: &CertificateMode,
    config: &CertificateConfig,
    readiness: &Readiness,
) -> Result<Arc<ServingCert>, CertsError> {
    readiness.hold(
        REASON,
        "the serving certificate was not compared with the webhook configurations yet",
    );
    let identity = if let Some(files) = mode.files() {
        files.load().await?
    } else {
        let secret = SecretStore::new(client.clone(), config);
        let stored = answered_within(FIRST, secret.read()).await.ok().flatten();
        match stored.and_then(|stored| stored.state.leaf) {
            Some(leaf) => leaf,
            None => placeholder(&config.names)?,
        }
    };
    Ok(ServingCert::new(identity))
}

/// A certificate that no client trusts, until a real one exists.
fn placeholder(names: &[String]) -> Result<Identity, CertsError> {
    let made = rcgen::generate_simple_self_signed(names).map_err(|source| CertsError::Issue {
        names: names.join(", "),
        source,
    })?;
    let key = made.signing_key.serialize_pem();
    Identity::from_pem(made.cert.pem().as_bytes(), key.as_bytes()).map_err(CertsError::Issued)
}
