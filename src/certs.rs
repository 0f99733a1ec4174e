//! Certificates of the webhook in a cluster: which there should be (pure), issuing them, storing them, publishing them.
//!
//! There is one CA, in one Secret. The leader issues it and the serving certificate, and publishes the CA as the
//! `caBundle` of both webhook configurations; every replica serves what stands in the Secret.
//!
//! ```text
//!            Secret                          both configurations          replicas
//!  ca.crt    every CA that is to be trusted ──► caBundle of every entry
//!  ca.key    the key of the CA that signs
//!  next-ca.key  that of the one that signs next
//!  tls.crt, tls.key ──────────────────────────────────────────────────► serve it, once the bundle carries its CA
//! ```
//!
//! A new CA is trusted before anything is signed by it, and an old one for as long as a replica may still show what it
//! signed. Which CA plays which part is told by the keys: whatever else stands in `ca.crt` is trusted for a while more.
//! To get new keys at once, delete the Secret: the old CA stays trusted until every replica has changed over.

mod bootstrap;
mod bundles;
mod ca;
mod ca_bundle_conflict;
mod ca_injector;
mod issue;
mod rotation;
mod secret;
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

/// Who applies the `caBundle`s, and writes the Secret; nothing else is written under this name.
pub const FIELD_MANAGER: &str = "transom-certificates";

/// Who makes the certificate, and who tells the API server which CA to trust.
#[derive(Clone, Debug)]
pub enum CertificateMode {
    /// Transom: its leader keeps the Secret and the `caBundle`.
    SelfManaged,
    /// cert-manager: the files are those of its Secret, mounted, and its CA injector keeps the `caBundle`.
    CertManager(CertificateFiles),
    /// You: the files are yours.
    Provided {
        /// The certificate and its key.
        files: CertificateFiles,
        /// A file of CA certificates in PEM, which the leader publishes as the `caBundle`; without it that is yours to do.
        ca_bundle: Option<PathBuf>,
    },
}

impl CertificateMode {
    /// The certificate and its key, where they come from files.
    fn files(&self) -> Option<&CertificateFiles> {
        match self {
            CertificateMode::SelfManaged => None,
            CertificateMode::CertManager(files) | CertificateMode::Provided { files, .. } => Some(files),
        }
    }

    /// Whether the files are of use, where there are any; no cluster is asked.
    ///
    /// # Errors
    /// When one cannot be read, or does not hold what it should; it names the file and the flag.
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

/// The CAs of a file.
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

/// What is kept, and where.
#[derive(Clone, Debug)]
pub struct CertificateConfig {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// The name of both webhook configurations.
    pub configuration: String,
    /// The DNS names and addresses that the certificate must have: those by which the API server calls the webhook, and
    /// with a self-managed one, all that it is issued for.
    pub names: Vec<String>,
    /// How long things last.
    pub lifetimes: Lifetimes,
}

/// How long certificates last, and how long is waited between the steps of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetimes {
    /// A CA; the next one is made when two thirds of it are over.
    pub ca: Duration,
    /// A serving certificate; the next one is issued when two thirds of it are over.
    pub leaf: Duration,
    /// How long before it is made a certificate is valid already, for clocks that are behind.
    pub backdate: Duration,
    /// How long a bundle has been published before a replica shows what only it makes valid: API servers read
    /// configurations from a cache.
    pub settle: Duration,
    /// How long a CA that signs nothing any more stays trusted: replicas read the Secret from a watch. More than twice
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

/// Why certificates cannot be kept: nothing that trying again at once would fix.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// The task that renews the lease has ended.
    #[error("cannot keep certificates: the task that renews the lease has ended")]
    Leadership,
    /// A watch that should go on for ever has ended.
    #[error("cannot keep certificates: the watch of the {0} has ended")]
    Watch(String),
    /// A name cannot stand in a certificate, or the key generator failed.
    #[error("cannot issue a certificate for {names}: {source}")]
    Issue {
        /// The names it was to have.
        names: String,
        /// What went wrong.
        source: rcgen::Error,
    },
    /// A certificate was issued that no client would accept.
    #[error(
        "cannot issue a certificate for {0}: clients would not accept it; look at the names, and at the CA"
    )]
    Useless(String),
    /// The files of the certificate are of no use at start.
    #[error(transparent)]
    Files(#[from] CertificateError),
    /// The file of CAs that are to be published is of no use.
    #[error("cannot use the CA bundle {path} (--ca-bundle): {why}", path = path.display())]
    CaBundle {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What was issued cannot be served.
    #[error("cannot serve the certificate that was just issued: {0}")]
    Issued(IdentityError),
}
