//! Where the certificate comes from, by the flags.

use std::path::PathBuf;
use std::sync::Arc;

use super::args::TlsArgs;
use super::cert_resolver::ServingCert;
use super::files::CertificateFiles;

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// Issued in the process, from a CA that lives as long as it does.
    SelfSigned {
        /// DNS names and addresses beside localhost, the loopback addresses and the address listened on.
        names: Vec<String>,
        /// Where the CA goes in PEM.
        write_ca: Option<PathBuf>,
    },
    /// Read from two files, and again when their content changes.
    Files(CertificateFiles),
    /// Replaced by its maker: the task that keeps the Secret.
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
            // clap lets neither come alone.
            _ => Self::SelfSigned {
                names: tls_name,
                write_ca,
            },
        }
    }
}
