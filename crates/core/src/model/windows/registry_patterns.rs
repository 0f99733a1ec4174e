//! The registries that Transom may ask about images: an allow-list of host names with wildcards.
//!
//! The syntax is that of `matchImages` in the kubelet's `CredentialProviderConfig`, without paths and with wildcards for
//! whole labels only: a wildcard can be wider than intended, and every listed registry affects placement.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use crate::model::syntax::dns::is_label;

/// The maximum number of patterns in a list. The match conditions compare each image with all of them.
pub const MOST_REGISTRY_PATTERNS: usize = 64;

/// The maximum length of all patterns of a list together, in characters, for the same reason.
pub const LONGEST_REGISTRY_LIST: usize = 4_096;

/// The maximum length of a host name, in characters (RFC 1035).
const LONGEST_HOST: usize = 253;
/// The maximum length of a registry as written, with a port.
pub const LONGEST_REGISTRY: usize = LONGEST_HOST + ":65535".len();

/// The registry of references without one.
pub const DOCKER_HUB: &str = "docker.io";

/// Its other hosts: image references with them are on Docker Hub too.
pub const DOCKER_HUB_ALIASES: [&str; 2] = ["index.docker.io", "registry-1.docker.io"];

/// The host by which image references name the registry: `docker.io` for its other hosts.
fn reference_host(host: &str) -> &str {
    let is_alias = DOCKER_HUB_ALIASES
        .iter()
        .any(|alias| host.eq_ignore_ascii_case(alias));
    if is_alias { DOCKER_HUB } else { host }
}
const DEFAULT_PORT: &str = "443";

/// One item of the list, as in `mcr.microsoft.com`, `*.azurecr.io` or `registry.corp:5000`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegistryPattern {
    /// In lower case; each `*` is one label.
    host: String,
    /// `None` for the default port, 443.
    port: Option<String>,
}

/// Why an item is not a pattern, or a list is not valid.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum RegistryPatternError {
    /// The text is empty.
    #[error("a registry is empty; write its host name, as in mcr.microsoft.com")]
    Empty,
    /// The text begins with a scheme.
    #[error("\"{0}\" begins with a scheme; write only the host, as in mcr.microsoft.com")]
    Scheme(String),
    /// The text has a path, a tag or credentials.
    #[error(
        "\"{0}\" is more than a registry; write only the host and its port, as in registry.example.com:5000"
    )]
    Path(String),
    /// The port is not a number between 1 and 65535.
    #[error("\"{0}\" has an invalid port; write a number from 1 to 65535, as in registry.example.com:5000")]
    Port(String),
    /// A `*` is next to other characters.
    #[error("\"{0}\" has a * next to other characters; a * replaces one whole label, as in *.azurecr.io")]
    PartOfLabel(String),
    /// The last label is a wildcard, or the only one.
    #[error("\"{0}\" ends with a *; write at least the last label, as in *.azurecr.io")]
    LastLabel(String),
    /// A wildcard in an address or before `localhost`.
    #[error("\"{0}\" has a * in an address; list each address, as in 10.0.0.5:5000 or localhost:5000")]
    Address(String),
    /// The host is neither a host name nor an address.
    #[error("\"{}\" is not a host name or an address; write it as in registry.example.com, 10.0.0.5:5000 or [fd00::5]:5000", start(.0))]
    Host(String),
    /// Kubernetes takes the name for a part of a Docker Hub repository.
    #[error(
        "\"{0}\" has no dot and no port, and image references with it are on docker.io; write docker.io, or the port, as in {0}:5000"
    )]
    DockerHub(String),
    /// The list has too many items.
    #[error(
        "there are {0} registries, and the maximum is {MOST_REGISTRY_PATTERNS}; replace several with one that has a *, as in *.azurecr.io"
    )]
    TooMany(usize),
    /// The list is too long.
    #[error(
        "the registries have {0} characters together, and the maximum is {LONGEST_REGISTRY_LIST}; replace several with one that has a *, as in *.azurecr.io"
    )]
    TooLong(usize),
}

/// The beginning of a text that may be long.
fn start(text: &str) -> String {
    let mut start: String = text.chars().take(LONGEST_REGISTRY).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}

impl FromStr for RegistryPattern {
    type Err = RegistryPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.is_empty() {
            return Err(RegistryPatternError::Empty);
        }
        let invalid = |error: fn(String) -> RegistryPatternError| Err(error(start(text)));
        if text.contains("://") {
            return invalid(RegistryPatternError::Scheme);
        }
        if text.contains(['/', '@']) {
            return invalid(RegistryPatternError::Path);
        }
        let (host, port) = split_port(text);
        if port.is_some_and(|port| port.contains(':')) {
            return invalid(RegistryPatternError::Host);
        }
        let is_port = |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && !port.starts_with('0');
        if port.is_some_and(|port| !is_port(port) || port.parse::<u16>().is_err()) {
            return invalid(RegistryPatternError::Port);
        }
        let host = host.to_ascii_lowercase();
        if let Some(error) = host_error(&host) {
            return invalid(error);
        }
        // What image references call the registry, not where it is reached.
        let host = reference_host(&host).to_owned();
        if port.is_none() && host != "localhost" && !host.contains(['.', ':']) {
            return invalid(RegistryPatternError::DockerHub);
        }
        let port = port.filter(|port| *port != DEFAULT_PORT).map(str::to_owned);
        Ok(RegistryPattern { host, port })
    }
}

fn host_error(host: &str) -> Option<fn(String) -> RegistryPatternError> {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let is_address = address.parse::<Ipv6Addr>().is_ok();
        return (!is_address).then_some(if address.contains('*') {
            RegistryPatternError::Address
        } else {
            RegistryPatternError::Host
        });
    }
    let labels = || host.split('.');
    if labels().any(|label| label != "*" && label.contains('*')) {
        return Some(RegistryPatternError::PartOfLabel);
    }
    let last = labels().next_back().unwrap_or_default();
    if last == "*" {
        return Some(RegistryPatternError::LastLabel);
    }
    let is_number = last.bytes().all(|b| b.is_ascii_digit());
    if host.contains('*') && (is_number || last == "localhost") {
        return Some(RegistryPatternError::Address);
    }
    let is_host = host.len() <= LONGEST_HOST
        && labels().all(|label| label == "*" || (is_label(label) && label.len() <= 63))
        && (!is_number || host.parse::<Ipv4Addr>().is_ok());
    (!is_host).then_some(RegistryPatternError::Host)
}

/// Host and port of a registry as written. A bracketed address contains colons.
pub fn split_port(registry: &str) -> (&str, Option<&str>) {
    let after_address = registry.rfind(']').map_or(0, |at| at + 1);
    let colon = registry.get(after_address..).and_then(|rest| rest.find(':'));
    match colon.and_then(|at| registry.split_at_checked(after_address + at)) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => (registry, None),
    }
}

impl RegistryPattern {
    /// The host in lower case. Each `*` is exactly one label.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; `None` for 443, which references may also write.
    pub fn port(&self) -> Option<&str> {
        self.port.as_deref()
    }

    /// Whether a registry as written in an image reference matches: hosts are not case-sensitive, and the default port
    /// equals none.
    pub fn matches(&self, registry: &str) -> bool {
        if registry.len() > LONGEST_REGISTRY {
            return false;
        }
        let (host, port) = split_port(registry);
        let host = reference_host(host);
        let port = port.filter(|port| *port != DEFAULT_PORT);
        let mut labels = host.split('.');
        port == self.port()
            && self.host.split('.').all(|pattern| {
                labels.next().is_some_and(|label| {
                    if pattern == "*" {
                        is_label(label)
                    } else {
                        label.eq_ignore_ascii_case(pattern)
                    }
                })
            })
            && labels.next().is_none()
    }
}

impl fmt::Display for RegistryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        self.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// The registries that may be asked. An empty list matches none. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RegistryPatterns(Arc<[RegistryPattern]>);

impl RegistryPatterns {
    /// A list without duplicates, in the order as written.
    ///
    /// # Errors
    /// If there are more than [`MOST_REGISTRY_PATTERNS`], or they are longer than [`LONGEST_REGISTRY_LIST`] together.
    pub fn new(
        patterns: impl IntoIterator<Item = RegistryPattern>,
    ) -> Result<RegistryPatterns, RegistryPatternError> {
        let mut list: Vec<RegistryPattern> = Vec::new();
        for pattern in patterns {
            if !list.contains(&pattern) {
                list.push(pattern);
            }
        }
        if list.len() > MOST_REGISTRY_PATTERNS {
            return Err(RegistryPatternError::TooMany(list.len()));
        }
        let length = list.iter().map(|pattern| pattern.host.len()).sum();
        if length > LONGEST_REGISTRY_LIST {
            return Err(RegistryPatternError::TooLong(length));
        }
        Ok(RegistryPatterns(list.into()))
    }

    /// Parses a list.
    ///
    /// # Errors
    /// The first item that is not a pattern, or too many items.
    pub fn parse<'t>(items: impl IntoIterator<Item = &'t str>) -> Result<Self, RegistryPatternError> {
        let patterns: Result<Vec<RegistryPattern>, _> = items.into_iter().map(str::parse).collect();
        RegistryPatterns::new(patterns?)
    }

    /// Whether a registry as in [`ImageRef::registry`](super::image::ImageRef) may be asked.
    pub fn matches(&self, registry: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(registry))
    }

    /// Whether no registry may be asked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patterns in the order as written.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &RegistryPattern> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::windows::image::ImageRef;

    fn pattern(text: &str) -> RegistryPattern {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_wildcard_is_exactly_one_label() {
        for (text, registry, expected) in [
            ("*.azurecr.io", "shop.azurecr.io", true),
            ("*.azurecr.io", "azurecr.io", false),
            ("*.azurecr.io", ".azurecr.io", false),
            ("*.azurecr.io", "a.b.azurecr.io", false),
            ("*.azurecr.io", "shop.azurecr.io.evil.example", false),
            ("*.azurecr.io", "evil-azurecr.io", false),
            (
                "*.dkr.ecr.*.amazonaws.com",
                "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
                true,
            ),
            (
                "*.dkr.ecr.*.amazonaws.com",
                "123456789012.dkr.ecr.amazonaws.com",
                false,
            ),
            ("registry.*.corp", "registry.shop.corp", true),
            ("mcr.microsoft.com", "mcr.microsoft.com", true),
            ("mcr.microsoft.com", "mcr.microsoft.com.evil.example", false),
            ("mcr.microsoft.com", "microsoft.com", false),
        ] {
            assert_eq!(pattern(text).matches(registry), expected, "{text} and {registry}");
        }
    }

    #[test]
    fn hosts_ignore_case_and_the_default_port_is_443() {
        for (text, registry, expected) in [
            ("mcr.microsoft.com", "MCR.Microsoft.com", true),
            ("MCR.Microsoft.com", "mcr.microsoft.com", true),
            ("mcr.microsoft.com", "mcr.microsoft.com:443", true),
            ("mcr.microsoft.com:443", "mcr.microsoft.com", true),
            ("mcr.microsoft.com", "mcr.microsoft.com:5000", false),
            ("registry.corp:5000", "registry.corp:5000", true),
            ("registry.corp:5000", "registry.corp", false),
            ("registry:5000", "registry:5000", true),
            ("*.corp:5000", "registry.corp:5000", true),
            ("*.corp:5000", "registry.corp", false),
        ] {
            assert_eq!(pattern(text).matches(registry), expected, "{text} and {registry}");
        }
    }

    #[test]
    fn docker_io_is_every_reference_without_a_registry() {
        for hub in [
            "docker.io",
            "index.docker.io",
            "Index.Docker.io:443",
            "registry-1.docker.io",
        ] {
            let hub = pattern(hub);
            for image in [
                "nginx",
                "shop/web:1",
                "docker.io/library/nginx",
                "index.docker.io/library/nginx",
                "registry-1.docker.io/library/nginx",
                "registry-1.docker.io:443/library/nginx",
                "docker.io:443/library/nginx",
            ] {
                let registry = ImageRef::parse(image).unwrap().registry;
                assert!(hub.matches(registry), "{image}");
            }
            assert!(!hub.matches("registry.hub.docker.com"));
        }
    }

    #[test]
    fn this_machine_and_addresses_are_listed_one_by_one() {
        for (text, registry) in [
            ("localhost", "localhost"),
            ("localhost:5000", "localhost:5000"),
            ("10.0.0.5:5000", "10.0.0.5:5000"),
            ("[fd00::5]:5000", "[fd00::5]:5000"),
            ("[fd00::5]", "[FD00::5]:443"),
        ] {
            assert!(pattern(text).matches(registry), "{text} and {registry}");
        }
        for (text, registry) in [
            ("*.corp", "localhost"),
            ("*.0.0.5.example", "10.0.0.5"),
            ("localhost", "localhost:5000"),
        ] {
            assert!(!pattern(text).matches(registry), "{text} and {registry}");
        }
        for text in ["*.0.0.1", "127.0.*.1", "*.localhost", "[fd00::*]"] {
            let refused = text.parse::<RegistryPattern>().unwrap_err();
            assert_eq!(refused, RegistryPatternError::Address(text.to_owned()));
        }
    }

    #[test]
    fn what_is_not_a_registry_is_refused_with_the_item_and_the_cure() {
        let long = format!("{}.example", "a".repeat(400));
        for (text, remedy) in [
            ("", "write its host name"),
            ("https://mcr.microsoft.com", "write only the host"),
            ("quay.io/shop", "write only the host and its port"),
            ("user@quay.io", "write only the host and its port"),
            ("registry.corp:", "a number from 1 to 65535"),
            ("registry.corp:0443", "a number from 1 to 65535"),
            ("registry.corp:65536", "a number from 1 to 65535"),
            ("registry.corp:*", "a number from 1 to 65535"),
            ("app*.azurecr.io", "one whole label"),
            ("**.azurecr.io", "one whole label"),
            ("*", "at least the last label"),
            ("mcr.*", "at least the last label"),
            ("shop_1.example.com", "is not a host name or an address"),
            ("a..example", "is not a host name or an address"),
            ("example.com.", "is not a host name or an address"),
            ("10.0.0.256", "is not a host name or an address"),
            ("fd00::5", "[fd00::5]:5000"),
            ("[fd00::g]", "is not a host name or an address"),
            ("registry", "write docker.io, or the port, as in registry:5000"),
            (&long, "is not a host name or an address"),
        ] {
            let refused = RegistryPatterns::parse(["quay.io", text])
                .unwrap_err()
                .to_string();
            assert!(refused.contains(remedy), "{text}: {refused}");
            let shown: String = text.chars().take(100).collect();
            assert!(refused.contains(&shown), "{text}: {refused}");
            assert!(refused.len() < 500, "{refused}");
        }
    }

    #[test]
    fn a_list_is_bounded_and_has_no_duplicates() {
        let many: Vec<String> = (0..=MOST_REGISTRY_PATTERNS)
            .map(|n| format!("{n}.example.com"))
            .collect();
        let parse = |items: &[String]| RegistryPatterns::parse(items.iter().map(String::as_str));
        assert_eq!(parse(&many[1..]).unwrap().iter().len(), MOST_REGISTRY_PATTERNS);
        let refused = parse(&many).unwrap_err().to_string();
        assert!(
            refused.contains("there are 65 registries, and the maximum is 64"),
            "{refused}"
        );

        let label = "a".repeat(60);
        let long: Vec<String> = (10..27)
            .map(|n| format!("{n}.{label}.{label}.{label}.{label}"))
            .collect();
        assert!(parse(&long[1..]).is_ok());
        let refused = parse(&long).unwrap_err().to_string();
        assert!(
            refused.contains("have 4182 characters together, and the maximum is 4096"),
            "{refused}"
        );

        let list = RegistryPatterns::parse(["*.azurecr.io", "docker.io", "index.docker.io:443"]).unwrap();
        let shown: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["*.azurecr.io", "docker.io"]);
        assert!(list.matches("shop.azurecr.io") && list.matches("docker.io"));
        assert!(!list.matches("quay.io"));
        assert!(RegistryPatterns::default().is_empty() && !RegistryPatterns::default().matches("docker.io"));
    }
}
