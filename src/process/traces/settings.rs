//! How to trace, and why tracing cannot begin.

use std::path::PathBuf;

use hyper::Uri;
use hyper::header::HeaderMap;
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::Resource;

/// How to trace.
#[derive(Clone, Debug)]
pub struct TracingSettings {
    /// Where spans are posted to.
    pub url: Uri,
    /// The CA certificates to trust; the machine's without.
    pub ca: Option<PathBuf>,
    /// What is sent along.
    pub headers: HeaderMap,
    /// The share of reviews without a parent that are traced, from 0 to 1.
    pub ratio: f64,
    /// What is said of all spans.
    pub resource: Resource,
}

/// Why tracing cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum TracingError {
    /// A flag or its variable is of no use.
    #[error("cannot trace to the URL {value:?} ({flag}): {why}")]
    Url {
        /// What it is; empty where it may hold a secret.
        value: String,
        /// The flag and the variable.
        flag: &'static str,
        /// What to write instead.
        why: &'static str,
    },
    /// An entry of a list is of no use. It may be a secret, and is not shown.
    #[error("cannot read entry {entry} of {flag}: write key=value,key=value with percent-encoded values")]
    List {
        /// Which one, from 1.
        entry: usize,
        /// The flag and the variable.
        flag: &'static str,
    },
    /// A value is none of those that are understood.
    #[error("cannot trace with {value:?} ({flag}): {why}")]
    Value {
        /// What it is.
        value: String,
        /// The flag or the variable.
        flag: &'static str,
        /// What to write instead.
        why: &'static str,
    },
    /// The CA certificates are of no use.
    #[error("cannot read the CA {} (--otlp-ca, OTEL_EXPORTER_OTLP_CERTIFICATE): {why}", path.display())]
    Ca {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is no CA to trust.
    #[error(
        "cannot trust the certificate of any trace collector, because this machine has no CA certificates ({0}); name a \
         file with --otlp-ca, or use http://"
    )]
    NoCa(std::io::Error),
    /// TLS itself cannot be set up.
    #[error("cannot set up TLS for the trace collector: {0}")]
    Tls(#[from] rustls::Error),
    /// The exporter cannot be set up.
    #[error("cannot set up the export of spans: {0}")]
    Exporter(#[from] ExporterBuildError),
}
