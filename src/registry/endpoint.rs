//! Which URL an image is queried at, and which URLs are allowed at all: image references come from a cluster,
//! and redirects from a registry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hyper::Uri;

use super::RegistryConfig;
use crate::model::windows::image::ImageRef;
use crate::model::windows::registry_patterns::split_port;

/// The location of an image in its registry, or in a mirror of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RegistryEndpoint {
    /// The registry as in the image reference, or the mirror, for messages and credentials.
    pub registry: String,
    /// The host, and the port if there is one, to connect to.
    pub authority: String,
    /// The path of the repository in the registry.
    pub repository: String,
    /// The digest, or the tag.
    pub reference: String,
    /// The registry that it is a mirror of.
    mirror_of: Option<String>,
    /// Whether the configuration names it, so that it may have an address that others may not have.
    is_listed: bool,
    /// Hosts, with their port, that are asked without TLS.
    plain_http: Vec<String>,
    /// Whether a registry on this machine requires TLS.
    is_secure: bool,
}

impl RegistryEndpoint {
    /// The endpoint of an image; the reference is `latest` if it names neither tag nor digest.
    pub fn of(image: &ImageRef<'_>, config: &RegistryConfig) -> RegistryEndpoint {
        let is_docker_hub = image.registry == "docker.io";
        let repository = if is_docker_hub && !image.repository.contains('/') {
            format!("library/{}", image.repository)
        } else {
            image.repository.to_owned()
        };
        let authority = if is_docker_hub {
            "registry-1.docker.io"
        } else {
            image.registry
        };
        RegistryEndpoint {
            registry: image.registry.to_owned(),
            authority: authority.to_owned(),
            repository,
            reference: image.digest.or(image.tag).unwrap_or("latest").to_owned(),
            mirror_of: None,
            is_listed: config.allowed.is_some(),
            plain_http: config.plain_http.clone(),
            is_secure: false,
        }
    }

    /// The mirrors of its registry, in the order of the configuration.
    pub fn mirrors(&self, config: &RegistryConfig) -> Vec<RegistryEndpoint> {
        let mirrors = config
            .mirrors
            .iter()
            .filter(|(registry, _)| *registry == self.registry);
        let endpoint = |mirror: &String| {
            let (host, path) = mirror.split_once('/').unwrap_or((mirror, ""));
            let path = path.trim_matches('/');
            let repository = if path.is_empty() {
                self.repository.clone()
            } else {
                format!("{path}/{}", self.repository)
            };
            RegistryEndpoint {
                registry: host.to_owned(),
                authority: host.to_owned(),
                repository,
                mirror_of: Some(self.registry.clone()),
                is_listed: true,
                ..self.clone()
            }
        };
        mirrors.map(|(_, mirror)| endpoint(mirror)).collect()
    }

    /// The URL of a resource in the repository. Without TLS only on this machine, and if the configuration says so.
    pub fn uri(&self, kind: &str, reference: &str) -> Result<Uri, String> {
        let is_plain = self.is_plain(&self.authority) && !self.is_secure;
        let scheme = if is_plain { "http" } else { "https" };
        // As containerd does it, for mirrors of several registries.
        let query = self.mirror_of.as_ref();
        let query = query.map_or_else(String::new, |registry| format!("?ns={registry}"));
        let text = format!(
            "{scheme}://{}/v2/{}/{kind}/{reference}{query}",
            self.authority, self.repository
        );
        let uri: Uri = text
            .parse()
            .map_err(|_| "its name is not a host and port".to_owned())?;
        self.allow(&uri)?;
        Ok(uri)
    }

    /// The endpoint with TLS, if it is one without by being on this machine only.
    pub fn with_tls(&self) -> Option<RegistryEndpoint> {
        let is_by_default =
            !self.is_secure && is_here(self.host()) && !self.plain_http.contains(&self.authority);
        is_by_default.then(|| RegistryEndpoint {
            is_secure: true,
            ..self.clone()
        })
    }

    /// The host without the port.
    pub fn host(&self) -> &str {
        split_port(&self.authority).0
    }

    /// Whether a host is queried without TLS.
    fn is_plain(&self, authority: &str) -> bool {
        let (host, _) = split_port(authority);
        let is_local = host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" || host == "[::1]";
        is_local
            || self
                .plain_http
                .iter()
                .any(|plain| plain.eq_ignore_ascii_case(authority))
    }

    /// Whether a URL may be requested on behalf of this registry: only over TLS, on this machine, or at a host that
    /// is configured to have no TLS; this machine only if the registry is on it; and an address at which cloud
    /// machines obtain credentials only if it is the listed address of the registry.
    pub fn allow(&self, uri: &Uri) -> Result<(), String> {
        let Some(authority) = uri.authority().filter(|it| !it.as_str().contains('@')) else {
            return Err("it names an address without a host".to_owned());
        };
        let host = authority.host();
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if self.is_plain(authority.as_str()) => {}
            _ => return Err(format!("{authority} would be called without TLS")),
        }
        if is_metadata(host) && !(self.is_listed && host == self.host()) {
            return Err(format!("{authority} is an address that Transom never calls"));
        }
        if is_here(host) && !is_here(self.host()) {
            return Err("it points at this machine".to_owned());
        }
        Ok(())
    }
}

/// Whether a host is this machine.
pub(super) fn is_here(host: &str) -> bool {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || ip(host).is_some_and(is_here_ip)
}

/// Of the resolved addresses of a host name, those that may be connected to: none at which clouds provide
/// credentials, and none of this machine unless the name is `localhost`.
///
/// # Errors
/// If none remains.
pub(super) fn connectable(name: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
    let here = is_here(name);
    let may = |address: &SocketAddr| {
        let ip = canonical(address.ip());
        !is_metadata_ip(ip) && (here || !is_here_ip(ip))
    };
    let known = found.len();
    let left: Vec<SocketAddr> = found.into_iter().filter(may).collect();
    if left.is_empty() && known > 0 {
        return Err(format!("{name} has an address that Transom never calls"));
    }
    Ok(left)
}

fn is_metadata(host: &str) -> bool {
    ip(host).is_some_and(is_metadata_ip)
}

/// Link-local addresses, which clouds use for metadata, and other addresses at which they provide
/// credentials: Azure's wire server, Alibaba, Oracle, and EC2 and Google over IPv6.
fn is_metadata_ip(ip: IpAddr) -> bool {
    const OTHERS: [IpAddr; 6] = [
        IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
        IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
        IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
        // EKS Pod Identity.
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
        IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    ];
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    is_link_local || OTHERS.contains(&ip)
}

fn is_here_ip(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

/// The IPv4 address in an IPv6 address: mapped, or by NAT64 (RFC 6052).
fn canonical(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(ip) if ip.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
            let [.., a, b, c, d] = ip.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        ip => ip.to_canonical(),
    }
}

fn ip(host: &str) -> Option<IpAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let ip: IpAddr = bare.trim_end_matches('.').parse().ok()?;
    Some(canonical(ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(image: &str) -> RegistryEndpoint {
        RegistryEndpoint::of(&ImageRef::parse(image).unwrap(), &RegistryConfig::default())
    }

    #[test]
    fn an_image_is_looked_for_where_containerd_looks_for_it() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let of_digest = format!("registry.example:5000/shop/web:1@{digest}");
        let cases = [
            (
                "nginx",
                "https://registry-1.docker.io/v2/library/nginx/manifests/latest",
            ),
            (
                "shop/web:1",
                "https://registry-1.docker.io/v2/shop/web/manifests/1",
            ),
            (
                "mcr.microsoft.com/windows/nanoserver:ltsc2022",
                "https://mcr.microsoft.com/v2/windows/nanoserver/manifests/ltsc2022",
            ),
            ("localhost:5000/app:1", "http://localhost:5000/v2/app/manifests/1"),
            ("127.0.0.1/app:1", "http://127.0.0.1/v2/app/manifests/1"),
            ("[::1]:5000/app:1", "http://[::1]:5000/v2/app/manifests/1"),
            ("10.0.0.5:5000/app:1", "https://10.0.0.5:5000/v2/app/manifests/1"),
        ];
        for (image, address) in cases {
            let endpoint = of(image);
            let uri = endpoint.uri("manifests", &endpoint.reference);
            assert_eq!(uri.map(|uri| uri.to_string()).as_deref(), Ok(address), "{image}");
        }
        assert_eq!(of(&of_digest).reference, digest);
    }

    #[test]
    fn the_metadata_of_a_cloud_is_never_asked() {
        for image in [
            "169.254.169.254/latest:1",
            "169.254.170.2:80/app:1",
            "[fd00:ec2::254]/app:1",
            "[fd00:ec2::23]/app:1",
            "[fe80::1]:5000/app:1",
            "[::ffff:169.254.169.254]/app:1",
            "[64:ff9b::169.254.169.254]/app:1",
            "168.63.129.16/app:1",
            "100.100.100.200/app:1",
        ] {
            // An invalid reference is not queried either.
            let Ok(image) = ImageRef::parse(image) else {
                continue;
            };
            let refused = RegistryEndpoint::of(&image, &RegistryConfig::default())
                .uri("manifests", "1")
                .unwrap_err();
            assert!(refused.contains("never calls"), "{image}: {refused}");
        }
        assert!(ImageRef::parse("169.254.169.254/app:1").is_ok());
    }

    #[test]
    fn a_name_is_connected_to_by_no_address_that_is_never_asked() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            let addresses = texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0));
            addresses.collect()
        };
        for address in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fe80::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "168.63.129.16",
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "0.0.0.0",
        ] {
            let refused = connectable("registry.example", addresses(&[address])).unwrap_err();
            assert_eq!(
                refused, "registry.example has an address that Transom never calls",
                "{address}"
            );
            // The other addresses of the name are used.
            let left = connectable("registry.example", addresses(&[address, "192.0.2.1"]));
            assert_eq!(left, Ok(addresses(&["192.0.2.1"])), "{address}");
        }
        let here = addresses(&["127.0.0.1", "::1"]);
        assert_eq!(connectable("localhost", here.clone()), Ok(here));
        assert!(connectable("localhost", addresses(&["169.254.169.254"])).is_err());
    }

    #[test]
    fn a_registry_elsewhere_points_neither_at_this_machine_nor_away_from_tls() {
        let far = of("registry.example/app:1");
        for address in [
            "http://localhost:8080/x",
            "https://127.0.0.1/x",
            "https://127.8.8.8/x",
            "https://db.localhost/x",
            "https://[::1]:1/x",
            "http://blobs.example/x",
            "https://169.254.169.254/x",
            "https://user:word@blobs.example/x",
            "/x",
        ] {
            assert!(far.allow(&address.parse().unwrap()).is_err(), "{address}");
        }
        assert_eq!(far.allow(&"https://blobs.example/x".parse().unwrap()), Ok(()));
        let near = of("localhost:5000/app:1");
        assert_eq!(near.allow(&"http://127.0.0.1:5001/x".parse().unwrap()), Ok(()));
    }
}
