//! TLS: identities and where they come from, the certificate that is served, issuing. No cluster, no HTTP.

pub mod args;
pub mod clients;
pub mod files;
pub mod identity;
pub mod issue;
pub mod self_signed;
pub mod serving;
pub mod source;
