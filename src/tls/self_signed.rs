//! A built-in CA and its certificates, for a webhook without configured ones; the CA's key never leaves the
//! process.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{CertifiedIssuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::cert_resolver::ServingCert;
use super::identity::{CertificateError, Identity};
use super::issue;
use crate::process::metrics::Metrics;

const DAY: Duration = Duration::from_secs(24 * 3_600);
const CA_LASTS: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
const LEAF_LASTS: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The tolerated difference between the clocks of client and server.
const SKEW: Duration = Duration::from_secs(3_600);

/// The interval between a failed renewal and the next attempt.
const RETRY: Duration = Duration::from_secs(3_600);

/// A CA with its key, in memory.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A new CA, valid for ten years from `now`.
    pub(crate) fn new(now: SystemTime) -> Result<Self, CertificateError> {
        let made = issue::ca(now - SKEW..now + CA_LASTS);
        made.map(Self).map_err(|source| CertificateError::Issue {
            names: "a CA".to_owned(),
            source,
        })
    }

    /// A certificate for `names`, with a new key, valid for a year from `now`.
    pub(crate) fn issue(&self, names: &[String], now: SystemTime) -> Result<Identity, CertificateError> {
        let valid = now - SKEW..now + LEAF_LASTS;
        let made = issue::leaf(&self.0, names, valid).map_err(|source| CertificateError::Issue {
            names: names.join(", "),
            source,
        })?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        Identity::from_der(vec![made.cert.der().clone()], key).map_err(CertificateError::Issued)
    }

    /// The CA certificate, for `clientConfig.caBundle`.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }
}

/// The names of a certificate: the fixed ones, then the others, without duplicates.
pub(crate) fn names(listen: std::net::IpAddr, more: &[String]) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let listen = (!listen.is_unspecified()).then(|| listen.to_string());
    for name in listen.iter().chain(more) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Writes the CA atomically. Only a regular file is replaced: a rename would replace a device or a symbolic
/// link with a regular file.
pub(crate) fn write_ca(path: &Path, pem: &str) -> Result<(), CertificateError> {
    let write = || {
        let name = path.file_name().ok_or(std::io::ErrorKind::InvalidFilename)?;
        if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                "it is not a regular file; name a file that may be replaced",
            ));
        }
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary);
        // A leftover of an earlier process with this id; never a symbolic link to another file.
        let _ = std::fs::remove_file(&temporary);
        let written = std::fs::File::create_new(&temporary)
            .and_then(|mut file| file.write_all(pem.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            // Removes the temporary file if the rename failed.
            let _ = std::fs::remove_file(&temporary);
        }
        written
    };
    write().map_err(|source| CertificateError::WriteCa {
        path: path.to_owned(),
        source,
    })
}

/// Issues a new certificate after two thirds of the old one's lifetime, forever.
pub(crate) async fn keep(
    authority: Authority,
    names: Vec<String>,
    serving: Arc<ServingCert>,
    metrics: Metrics,
) {
    loop {
        // Sleeps at most a day at a time, because timers stop while the machine is suspended.
        let renew_at = serving.not_after() - LEAF_LASTS / 3;
        match renew_at.duration_since(SystemTime::now()) {
            Ok(left) if !left.is_zero() => {
                tokio::time::sleep(left.min(DAY)).await;
                continue;
            }
            _ => {}
        }
        let issued = authority.issue(&names, SystemTime::now());
        metrics.certificate_reloaded(issued.is_ok());
        match issued {
            Ok(identity) => {
                serving.replace(identity);
                tracing::info!("renewed the self-issued certificate");
            }
            Err(error) => {
                tracing::error!(%error, "cannot renew the self-issued certificate; the old one remains in use");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_in_the_certificate_once_and_the_wildcard_address_never() {
        let more = ["transom.example".to_owned(), "localhost".to_owned()];
        assert_eq!(
            names([0, 0, 0, 0].into(), &more),
            ["localhost", "127.0.0.1", "::1", "transom.example"].map(str::to_owned)
        );
        assert!(names([10, 0, 0, 7].into(), &[]).contains(&"10.0.0.7".to_owned()));
    }

    #[test]
    fn a_name_that_no_certificate_can_have_is_an_error_that_says_so() {
        let authority = Authority::new(SystemTime::now()).unwrap();
        let error = authority
            .issue(&["bücher".to_owned()], SystemTime::now())
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot issue a certificate for bücher (--tls-name): "),
            "{error}"
        );
    }

    #[test]
    fn the_ca_is_written_whole_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.crt");
        write_ca(&path, "one").unwrap();
        write_ca(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            let link = directory.path().join("link.crt");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            for other in [link.as_path(), Path::new("/dev/null"), directory.path()] {
                let error = write_ca(other, "three").unwrap_err().to_string();
                assert!(error.contains("not a regular file"), "{error}");
            }
            assert!(link.is_symlink() && std::fs::read_to_string(&path).unwrap() == "two");
        }
        let error = write_ca(&directory.path().join("no/such/ca.crt"), "x")
            .unwrap_err()
            .to_string();
        assert!(error.contains("no/such/ca.crt (--write-ca)"), "{error}");
    }

    #[tokio::test]
    async fn a_certificate_past_two_thirds_of_its_life_is_renewed_in_the_process() {
        let now = SystemTime::now();
        let authority = Authority::new(now).unwrap();
        let list = vec!["localhost".to_owned()];
        let serving = ServingCert::new(authority.issue(&list, now - DAY * 300).unwrap());
        let old = serving.not_after();
        let keeping = tokio::spawn(keep(
            authority,
            list,
            Arc::clone(&serving),
            Metrics::new("0", None),
        ));
        while serving.not_after() == old {
            tokio::task::yield_now().await;
        }
        assert!(serving.not_after() > now + DAY * 364);
        keeping.abort();
    }
}
