//! The source of the certificate, as set by the flags.

use std::path::PathBuf;
use std::sync::Arc;

use super::args::TlsArgs;
use super::cert_resolver::ServingCert;
use super::files::CertificateFiles;

/// The source of the certificate.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// Issued in the process, from a CA that exists only in memory.
    SelfSigned {
        /// DNS names and addresses in addition to localhost, the loopback addresses and the listen address.
        names: Vec<String>,
        /// The file to write the CA to, in PEM.
        write_ca: Option<PathBuf>,
    },
    /// Read from two files, and reloaded when their content changes.
    Files(CertificateFiles),
    /// Replaced by the task that manages the Secret.
    Provided(Arc<ServingCert>),
}

impl From<TlsArgs> for CertificateSource {
    fn from(args: TlsArgs) -> Self {
        let TlsArgs {
            tls_cert,
            tls_key,
            tls_poll,
            write_ca,
            tls_name,
        } = args;
        match (tls_cert, tls_key) {
            (Some(certificate), Some(key)) => Self::Files(CertificateFiles {
                certificate,
                key,
                poll: tls_poll,
            }),
            // clap requires both or neither.
            _ => Self::SelfSigned {
                names: tls_name,
                write_ca,
            },
        }
    }
}
