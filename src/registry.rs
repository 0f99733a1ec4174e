//! Asks image registries what an image is: a bounded number of requests, each bounded in time and size. Treats all
//! responses as untrusted data.
//!
//! This is not a general client. `oci-client` 0.17 reads whole bodies of any size, has no hook between name resolution
//! and connection and none for redirects, and brings reqwest and a second provider of cryptography (aws-lc-rs). What
//! is needed here is one GET with a bound, over the hyper and rustls that kube already needs.

mod auth;
mod batch;
mod client;
mod connection_error;
mod digest;
mod disk_cache;
mod endpoint;
mod keychain;
mod manifest;
pub(crate) mod service;
mod session;
#[cfg(test)]
mod test_server;
mod transport;

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::batch::{CacheUse, ImageAnswer, Registries};
pub use self::client::RegistryClient;
pub use self::disk_cache::DiskCache;
pub use self::keychain::{Keychain, KeychainError};
pub use self::transport::NoClient;
use crate::model::windows::image_facts::{ImageContents, ImageFacts};
use crate::model::windows::registry_patterns::RegistryPatterns;
use crate::process::files::Accept;

/// Which registries may be asked, and how they are reached.
#[derive(Default, Clone, Debug)]
pub struct RegistryConfig {
    /// The registries that may be asked; `None`: any, as a command may whose user names the images.
    pub allowed: Option<RegistryPatterns>,
    /// Hosts, with their port if they have one, that are asked by plain HTTP. This machine always may be.
    pub plain_http: Vec<String>,
    /// Files of PEM certificates: CAs in addition to those of the machine.
    pub ca_files: Vec<PathBuf>,
    /// Which file types `ca_files` may be.
    pub accept: Accept,
    /// A registry, and its mirror as `HOST[:PORT][/PATH]`. The mirror is asked first, and then the registry itself.
    pub mirrors: Vec<(String, String)>,
}

/// How much is requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Detail {
    /// The platforms that an image exists for.
    Platforms,
    /// Also the size, the layers and the configuration of its Windows variants, of the newest eight at most.
    Configurations,
}

impl Detail {
    /// Whether facts of this detail are enough for another one.
    fn includes(self, needed: Detail) -> bool {
        self == Detail::Configurations || needed == Detail::Platforms
    }
}

/// What an earlier look-up of an image found.
#[derive(Clone, Copy, Debug)]
pub struct KnownImage<'k> {
    /// What it found.
    pub contents: &'k ImageContents,
    /// Whether configurations that could not be read are requested again, even if the content is unchanged.
    pub completes: bool,
}

/// The answer to a look-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImageChange {
    /// The reference still leads to the known content, as of this time.
    Unchanged(Timestamp),
    /// The new facts, or the first ones.
    Changed(ImageFacts),
}

/// What an error affects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookupScope {
    /// Every image of the registry.
    Registry,
    /// This image.
    Image,
}

/// Why there is no answer about an image.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{message}")]
pub struct LookupError {
    /// What it affects.
    pub scope: LookupScope,
    /// The reason, for users: one line of bounded length, without secrets.
    pub message: String,
    /// The time after which the registry accepts another request.
    pub retry_after: Option<Duration>,
    /// Whether the registry refused the credentials, or a request without any: what an earlier look-up saw is not for
    /// them any more.
    pub is_refused: bool,
}

/// The maximum length of a message, in characters: parts of it come from a registry.
const MESSAGE: usize = 400;

impl LookupError {
    fn new(scope: LookupScope, message: impl AsRef<str>) -> Self {
        let printable = |letter: char| if letter.is_control() { ' ' } else { letter };
        LookupError {
            scope,
            message: message.as_ref().chars().take(MESSAGE).map(printable).collect(),
            retry_after: None,
            is_refused: false,
        }
    }

    fn image(message: impl AsRef<str>) -> Self {
        LookupError::new(LookupScope::Image, message)
    }

    fn registry(message: impl AsRef<str>) -> Self {
        LookupError::new(LookupScope::Registry, message)
    }

    /// A refusal of the credentials, or of a request without any.
    fn refused(message: impl AsRef<str>) -> Self {
        LookupError {
            is_refused: true,
            ..LookupError::image(message)
        }
    }

    /// The error with another reason.
    fn with(self, reason: &str) -> Self {
        let message = format!("{}; {reason}", self.message);
        LookupError {
            retry_after: self.retry_after,
            is_refused: self.is_refused,
            ..LookupError::new(self.scope, message)
        }
    }
}
