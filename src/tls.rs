//! TLS: identities and where they come from, the certificate that is served, issuing. No cluster, no HTTP.

pub mod args;
pub mod cert_resolver;
pub mod client_auth;
pub mod files;
pub mod identity;
pub mod issue;
pub mod self_signed;
pub mod source;
