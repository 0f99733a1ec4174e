//! A certificate and its key from files, reloaded when a kubelet or cert-manager changes them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::cert_resolver::ServingCert;
use super::identity::{CertificateError, Identity, IdentityError};
use crate::process::files;
use crate::process::metrics::Metrics;

/// The two files of a certificate.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The chain in PEM, the server's own certificate first.
    pub certificate: PathBuf,
    /// The private key in PEM.
    pub key: PathBuf,
    /// The interval between two checks.
    pub poll: Duration,
}

/// The content of the two files, or the error of reading them.
#[derive(Clone, PartialEq, Eq)]
struct FilesContent {
    certificate: Result<Vec<u8>, String>,
    key: Result<Vec<u8>, String>,
}

impl CertificateFiles {
    pub(crate) async fn load(&self) -> Result<Identity, CertificateError> {
        self.identity(&self.read().await)
    }

    async fn read(&self) -> FilesContent {
        let text = |read: io::Result<Vec<u8>>| read.map_err(|error| error.to_string());
        FilesContent {
            certificate: text(files::read_async(&self.certificate, files::CERTIFICATE_BYTES).await),
            key: text(files::read_async(&self.key, files::CERTIFICATE_BYTES).await),
        }
    }

    fn identity(&self, content: &FilesContent) -> Result<Identity, CertificateError> {
        let bad_certificate = |why: &str| CertificateError::Certificate {
            path: self.certificate.clone(),
            why: why.to_owned(),
        };
        let bad_key = |why: &str| CertificateError::Key {
            path: self.key.clone(),
            why: why.to_owned(),
        };
        let chain = content.certificate.as_ref().map_err(|why| bad_certificate(why))?;
        let key = content.key.as_ref().map_err(|why| bad_key(why))?;
        Identity::from_pem(chain, key).map_err(|error| match error {
            IdentityError::Certificate(why) => bad_certificate(&why),
            IdentityError::Key(why) => bad_key(&why),
            IdentityError::Mismatch => CertificateError::Mismatch {
                certificate: self.certificate.clone(),
                key: self.key.clone(),
            },
        })
    }

    /// Serves the content of the files when it changes to something valid, forever.
    ///
    /// An invalid pair is reported if it is unchanged at the next check: the files may have been read in the
    /// middle of an update, one new and the other old.
    pub(crate) async fn keep(self, serving: Arc<ServingCert>, metrics: Metrics) {
        let (mut known, mut suspect) = (None, None);
        let mut has_failed = false;
        loop {
            let content = files::changed(self.poll, known.as_ref(), || self.read()).await;
            match self.identity(&content) {
                Ok(identity) => {
                    // At startup this certificate is already served, unless it has changed since.
                    let changed = serving.identity().chain() != identity.chain();
                    serving.replace(identity);
                    if changed || has_failed {
                        metrics.certificate_reloaded(true);
                        tracing::info!(certificate = %self.certificate.display(), "reloaded the TLS certificate");
                    }
                    (known, suspect, has_failed) = (Some(content), None, false);
                }
                Err(_) if suspect.as_ref() != Some(&content) => suspect = Some(content),
                Err(error) => {
                    metrics.certificate_reloaded(false);
                    tracing::error!(%error, "cannot reload the TLS certificate; the old one remains in use");
                    (known, has_failed) = (Some(content), true);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (pair.cert.pem(), pair.signing_key.serialize_pem())
    }

    #[tokio::test]
    async fn errors_name_the_file_and_what_is_wrong_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let files = CertificateFiles {
            certificate: directory.path().join("tls.crt"),
            key: directory.path().join("tls.key"),
            poll: Duration::from_millis(5),
        };
        let ((certificate, key), (_, other)) = (pair(), pair());
        let table = [
            (None, None, "tls.crt (--tls-cert): No such file"),
            (
                Some(""),
                Some(key.as_str()),
                "tls.crt (--tls-cert): no certificate in it",
            ),
            (Some(&certificate), None, "tls.key (--tls-key): No such file"),
            (
                Some(&certificate),
                Some(&certificate),
                "tls.key (--tls-key): no private key in it",
            ),
            (
                Some(&certificate),
                Some(&other),
                "does not belong to the certificate",
            ),
        ];
        for (certificate, key, expected) in table {
            for (path, content) in [(&files.certificate, certificate), (&files.key, key)] {
                match content {
                    Some(content) => std::fs::write(path, content).unwrap(),
                    None => drop(std::fs::remove_file(path)),
                }
            }
            let error = files.load().await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        std::fs::write(&files.key, key).unwrap();
        assert!(files.load().await.is_ok());
    }
}
