//! The settings of tracing, and the errors that prevent it from starting.

use std::path::PathBuf;

use hyper::Uri;
use hyper::header::HeaderMap;
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::Resource;

/// The settings of tracing.
#[derive(Clone, Debug)]
pub struct TracingSettings {
    /// The URL that spans are posted to.
    pub url: Uri,
    /// The CA certificates to trust; without it, those of the system.
    pub ca: Option<PathBuf>,
    /// The headers of the requests.
    pub headers: HeaderMap,
    /// The fraction of reviews without a parent that are traced, from 0 to 1.
    pub ratio: f64,
    /// The resource attributes of all spans.
    pub resource: Resource,
}

/// Why tracing cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TracingError {
    /// The value of a flag or its variable is invalid.
    #[error("cannot trace to the URL {value:?} ({flag}): {why}")]
    Url {
        /// The value; empty if it may contain a secret.
        value: String,
        /// The flag and the variable.
        flag: &'static str,
        /// What to set instead.
        why: &'static str,
    },
    /// An entry of a list is invalid. It may be a secret, and is not shown.
    #[error("cannot read entry {entry} of {flag}: write key=value,key=value with percent-encoded values")]
    List {
        /// The number of the entry, from 1.
        entry: usize,
        /// The flag and the variable.
        flag: &'static str,
    },
    #[error("cannot trace with {value:?} ({flag}): {why}")]
    Value {
        value: String,
        /// The flag or the variable.
        flag: &'static str,
        /// What to set instead.
        why: &'static str,
    },
    /// The CA certificates cannot be used.
    #[error("cannot read the CA {} (--otlp-ca, OTEL_EXPORTER_OTLP_CERTIFICATE): {why}", path.display())]
    Ca { path: PathBuf, why: String },
    /// TLS itself cannot be set up.
    #[error("cannot set up TLS for the OTLP receiver: {0}")]
    Tls(#[from] rustls::Error),
    /// The exporter cannot be set up.
    #[error("cannot set up the export of spans: {0}")]
    Exporter(#[from] ExporterBuildError),
}
