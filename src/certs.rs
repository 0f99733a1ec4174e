//! Certificates of the webhook in a cluster: deciding which are needed (pure), issuing, storing and publishing them.
//!
//! There is one CA, in one Secret. The leader issues it and the serving certificate, and publishes the CA as the
//! `caBundle` of both webhook configurations; every replica serves the certificate in the Secret.
//!
//! ```text
//!            Secret                          both configurations          replicas
//!  ca.crt    every trusted CA ─────────────────► caBundle of every entry
//!  ca.key    the key of the CA that signs
//!  next-ca.key  the key of the CA that signs next
//!  tls.crt, tls.key ──────────────────────────────────────────────────► serve it, once the bundle contains its CA
//! ```
//!
//! A new CA is trusted before it signs anything, and an old one as long as a replica may still serve a certificate
//! that it signed. The keys determine the role of each CA: any other CA in `ca.crt` stays trusted for a while. To get
//! new keys immediately, delete the Secret: the old CA stays trusted until every replica has switched over.

mod bootstrap;
mod bundles;
mod ca;
mod ca_bundle_conflict;
mod ca_injector;
mod issue;
mod rotation;
mod secret;
mod served;
mod store;
mod task;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::files;
use crate::tls::files::CertificateFiles;
use crate::tls::identity::{CertificateError, IdentityError};

pub use self::bootstrap::first;
use self::ca::CaCertificate;
pub use self::task::CertificateTask;

/// The field manager for the `caBundle`s and the Secret; used for nothing else.
pub const FIELD_MANAGER: &str = "transom-certificates";

/// Who issues the certificate, and who publishes its CA to the API server.
#[derive(Clone, Debug)]
pub enum CertificateMode {
    /// Transom: its leader maintains the Secret and the `caBundle`.
    SelfManaged,
    /// cert-manager: the files are those of its Secret, mounted, and its CA injector maintains the `caBundle`.
    CertManager(CertificateFiles),
    /// The user provides the files.
    Provided {
        /// The certificate and its key.
        files: CertificateFiles,
        /// A file of CA certificates in PEM, which the leader publishes as the `caBundle`; without it the user must
        /// do so.
        ca_bundle: Option<PathBuf>,
    },
}

impl CertificateMode {
    /// The certificate and its key, if they come from files.
    fn files(&self) -> Option<&CertificateFiles> {
        match self {
            CertificateMode::SelfManaged => None,
            CertificateMode::CertManager(files) | CertificateMode::Provided { files, .. } => Some(files),
        }
    }

    /// Checks the files, if there are any, without access to a cluster.
    ///
    /// # Errors
    /// If one cannot be read, or has the wrong content; the error names the file and the flag.
    pub async fn check_files(&self) -> Result<(), CertsError> {
        if let Some(files) = self.files() {
            files.load().await?;
        }
        if let CertificateMode::Provided {
            ca_bundle: Some(path),
            ..
        } = self
        {
            ca_file(path).await?;
        }
        Ok(())
    }
}

/// Reads the CAs of a file.
async fn ca_file(path: &Path) -> Result<Vec<CaCertificate>, CertsError> {
    let useless = |why: String| CertsError::CaBundle {
        path: path.to_owned(),
        why,
    };
    let pem = files::read_async(path, files::CERTIFICATE_BYTES).await;
    let pem = pem.map_err(|error| useless(error.to_string()))?;
    let all = CaCertificate::all(&pem);
    if all.is_empty() {
        return Err(useless("no CA certificate in it".to_owned()));
    }
    Ok(all)
}

/// Names and lifetimes of the certificates.
#[derive(Clone, Debug)]
pub struct CertificateConfig {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// The name of both webhook configurations.
    pub configuration: String,
    /// The DNS names and addresses that the certificate must have: those with which the API server calls the webhook;
    /// a self-managed certificate is issued for all of them.
    pub names: Vec<String>,
    pub lifetimes: Lifetimes,
}

/// Lifetimes of certificates, and delays between the steps of a rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetimes {
    /// A CA; the next one is created after two thirds of this time.
    pub ca: Duration,
    /// A serving certificate; the next one is issued after two thirds of this time.
    pub leaf: Duration,
    /// How far the start of validity is in the past, for clocks that are behind.
    pub backdate: Duration,
    /// How long a bundle must be published before a replica serves a certificate that depends on it: API servers read
    /// configurations from a cache.
    pub settle: Duration,
    /// How long a CA that no longer signs stays trusted: replicas read the Secret from a watch. More than twice
    /// `settle`.
    pub grace: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3_600);
        Lifetimes {
            ca: DAY * 3_650,
            leaf: DAY * 365,
            backdate: DAY,
            settle: Duration::from_secs(60),
            grace: Duration::from_secs(3_600),
        }
    }
}

/// Why certificates cannot be maintained; retrying immediately would not help.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// The task that renews the lease has ended.
    #[error("cannot keep certificates: the task that renews the lease has ended")]
    Leadership,
    /// A watch that should never end has ended.
    #[error("cannot keep certificates: the watch of the {0} has ended")]
    Watch(String),
    /// A name cannot be used in a certificate, or the key generator failed.
    #[error("cannot issue a certificate for {names}: {source}")]
    Issue {
        /// The names of the certificate.
        names: String,
        source: rcgen::Error,
    },
    /// The issued certificate would not be accepted by clients.
    #[error("cannot issue a certificate for {0}: clients would not accept it; check the names and the CA")]
    Useless(String),
    /// The certificate files cannot be used at start.
    #[error(transparent)]
    Files(#[from] CertificateError),
    /// The file of CAs to publish cannot be used.
    #[error("cannot use the CA bundle {path} (--ca-bundle): {why}", path = path.display())]
    CaBundle {
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The issued certificate cannot be served.
    #[error("cannot serve the certificate that was just issued: {0}")]
    Issued(IdentityError),
}
