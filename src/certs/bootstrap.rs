//! What is served first, before anything is known of the cluster.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use super::store::SecretStore;
use super::{CertificateConfig, CertificateMode, CertsError};
use crate::cluster::errors::answered_within;
use crate::process::readiness::Readiness;
use crate::tls::cert_resolver::ServingCert;
use crate::tls::identity::Identity;

/// Why Transom is not ready while the API server cannot be expected to trust what is served.
pub(super) const REASON: &str = "certificate-chain";

/// How long the first look at the Secret may take; after it there is a placeholder.
const FIRST: Duration = Duration::from_secs(5);

/// What to serve at start: what stands in the Secret or in the files, or a placeholder that no client accepts until
/// there is something. Transom is not ready before [`CertificateTask::run`](super::CertificateTask::run) says so.
///
/// # Errors
/// When the files are of no use, or when no certificate can have these names.
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

/// A certificate that no client trusts, for the time until there is one.
fn placeholder(names: &[String]) -> Result<Identity, CertsError> {
    let made = rcgen::generate_simple_self_signed(names).map_err(|source| CertsError::Issue {
        names: names.join(", "),
        source,
    })?;
    let key = made.signing_key.serialize_pem();
    Identity::from_pem(made.cert.pem().as_bytes(), key.as_bytes()).map_err(CertsError::Issued)
}
