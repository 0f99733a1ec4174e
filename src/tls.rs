//! TLS: identities and their sources, the serving certificate, issuing. Independent of Kubernetes and HTTP.

pub(crate) mod args;
pub(crate) mod cert_resolver;
pub(crate) mod client_auth;
pub mod files;
pub(crate) mod identity;
pub(crate) mod issue;
pub(crate) mod self_signed;
pub mod source;
