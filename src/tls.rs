//! TLS: identities and their sources, the serving certificate, issuing. Independent of Kubernetes and HTTP.

pub mod args;
pub mod cert_resolver;
pub mod client_auth;
pub mod files;
pub mod identity;
pub mod issue;
pub mod self_signed;
pub mod source;
