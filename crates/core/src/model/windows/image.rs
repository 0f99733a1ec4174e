//! Image references: their parts, and what their text alone shows about operating system and Windows build. What a
//! registry reports about an image, and which builds run where, is in other modules.

use std::fmt;

use super::registry_patterns::{DOCKER_HUB, DOCKER_HUB_ALIASES};
use crate::model::syntax::dns::is_label;
use inference::{glued, release_after, tokens};

mod inference;
mod linux;
#[cfg(test)]
mod named;
mod windows;

pub use inference::{BuildHint, OsHint, build_hint, end_of_support, is_certainly_linux, os_hint, retagged};

/// An image reference, `[registry[:port]/]path[:tag][@digest]`, borrowed from its text.
///
/// Follows `ParseNormalizedNamed` of github.com/distribution/reference, which the kubelet and containerd use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImageRef<'a> {
    /// The registry's host and port as written; `docker.io` if none is written, and for its other hosts,
    /// `index.docker.io` and `registry-1.docker.io`.
    pub registry: &'a str,
    /// The path in the registry. Docker Hub's official images have no `library/` prefix here: `nginx` and
    /// `docker.io/library/nginx` are the same. See [`ImageRef::is_official`].
    pub repository: &'a str,
    /// The tag as written: a missing tag is not replaced with `latest`.
    pub tag: Option<&'a str>,
    /// The digest with its algorithm, `sha256:…`. If it is set, it alone determines the pulled image.
    pub digest: Option<&'a str>,
}

/// Why a text is not an image reference. The kubelet fails such a container with `InvalidImageName`.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ImageError {
    /// The text is empty.
    #[error("the image reference is empty")]
    Empty,
    /// 64 hexadecimal digits: an image ID, which no registry can look up.
    #[error("an image ID of 64 hexadecimal digits is not an image reference")]
    ImageId,
    /// The part before the first slash is not a host name, address or port.
    #[error("the registry of the image is not a host name with an optional port")]
    Registry,
    /// The repository contains upper-case letters.
    #[error("the repository of the image must be lower case")]
    UpperCase,
    /// The repository does not consist of lower-case letters and digits, separated by `.`, `_`, `__`, `-` and `/`.
    #[error("the repository of the image has an invalid form")]
    Repository,
    /// The repository is longer than 255 characters.
    #[error("the repository of the image is longer than 255 characters")]
    TooLong,
    /// The tag is empty, longer than 128 characters, or contains an invalid character.
    #[error("the tag of the image has an invalid form")]
    Tag,
    /// The digest is not sha256, sha384 or sha512 in lower-case hexadecimal digits.
    #[error("the digest of the image has an invalid form")]
    Digest,
}

const MCR: &str = "mcr.microsoft.com";

/// The Windows-only repositories of Docker Hub's `microsoft/…`, and the new locations of those that Kubernetes' own
/// examples used.
static DOCKER_HUB_WINDOWS: &[(&str, Option<&str>)] = &[
    (
        "microsoft/windowsservercore",
        Some("mcr.microsoft.com/windows/servercore"),
    ),
    (
        "microsoft/nanoserver",
        Some("mcr.microsoft.com/windows/nanoserver"),
    ),
    ("microsoft/iis", Some("mcr.microsoft.com/windows/servercore/iis")),
    (
        "microsoft/aspnet",
        Some("mcr.microsoft.com/dotnet/framework/aspnet"),
    ),
    (
        "microsoft/dotnet-framework",
        Some("mcr.microsoft.com/dotnet/framework/runtime"),
    ),
    ("microsoft/dotnet-framework-build", None),
    ("microsoft/dotnet-framework-samples", None),
    ("microsoft/mssql-server-windows", None),
    ("microsoft/mssql-server-windows-developer", None),
    ("microsoft/mssql-server-windows-express", None),
    ("microsoft/nanoserver-insider", None),
    ("microsoft/wcf", None),
    ("microsoft/windowsservercore-insider", None),
];

impl<'a> ImageRef<'a> {
    /// Parses a container's `image`.
    ///
    /// # Errors
    ///
    /// The part of the text that the kubelet would not accept either.
    pub fn parse(text: &'a str) -> Result<ImageRef<'a>, ImageError> {
        if text.is_empty() {
            return Err(ImageError::Empty);
        }
        if text.len() == 64 && is_lower_hex(text) {
            return Err(ImageError::ImageId);
        }
        let (registry, rest) = split_registry(text);
        if !is_registry(registry) {
            return Err(ImageError::Registry);
        }
        let (rest, digest) = split_optional(rest, '@');
        let (path, tag) = split_optional(rest, ':');
        if !path.split('/').all(is_path_element) {
            let upper = path.bytes().any(|b| b.is_ascii_uppercase());
            return Err(if upper {
                ImageError::UpperCase
            } else {
                ImageError::Repository
            });
        }
        // The `library/` before the name of Docker Hub's own images counts toward the length.
        let implied = if registry == DOCKER_HUB && !path.contains('/') {
            "library/".len()
        } else {
            0
        };
        if path.len() + implied > 255 {
            return Err(ImageError::TooLong);
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(ImageError::Tag);
        }
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(ImageError::Digest);
        }
        let official = path
            .strip_prefix("library/")
            .filter(|name| registry == DOCKER_HUB && !name.contains('/'));
        Ok(ImageRef {
            registry,
            repository: official.unwrap_or(path),
            tag,
            digest,
        })
    }

    /// Registry and repository as authors write them: without the name of Docker Hub.
    pub fn familiar_name(&self) -> String {
        if self.registry == DOCKER_HUB {
            self.repository.to_owned()
        } else {
            format!("{}/{}", self.registry, self.repository)
        }
    }

    /// Whether it is one of Docker Hub's official images, whose full path starts with `library/`.
    pub fn is_official(&self) -> bool {
        self.registry == DOCKER_HUB && !self.repository.contains('/')
    }

    /// Whether Microsoft publishes the repository: all of `mcr.microsoft.com`, and Docker Hub's old `microsoft/…`. Many
    /// of these are Linux images.
    pub fn is_microsoft(&self) -> bool {
        self.is_on_mcr() || self.is_docker_hub_microsoft()
    }

    /// Whether it is in Docker Hub's `microsoft/…`, which moved to `mcr.microsoft.com`.
    pub fn is_docker_hub_microsoft(&self) -> bool {
        self.registry == DOCKER_HUB && self.repository.starts_with("microsoft/")
    }

    /// The repository that replaced one of Docker Hub's `microsoft/{windowsservercore, nanoserver, iis, aspnet,
    /// dotnet-framework}`; `None` for every other image.
    pub fn mcr_equivalent(&self) -> Option<&'static str> {
        self.docker_hub_windows().and_then(|(_, equivalent)| *equivalent)
    }

    /// Whether the repository contains Windows images only: `mcr.microsoft.com/windows`, `businesscentral`,
    /// `dynamicsnav`, `dotnet/framework` and everything below them, the Windows repositories of Docker Hub's
    /// `microsoft/…`, and a list of other publishers' repositories. A copy in another registry is not recognized.
    pub fn is_windows_only_repository(&self) -> bool {
        let on_mcr = || {
            ["windows", "businesscentral", "dynamicsnav", "dotnet/framework"]
                .iter()
                .any(|root| is_or_under(self.repository, root))
        };
        (self.is_on_mcr() && on_mcr())
            || self.docker_hub_windows().is_some()
            || windows::is_windows_only(self)
    }

    /// Whether the image, according to its name, starts IIS through `ServiceMonitor.exe`: IIS, ASP.NET and WCF. It does
    /// not start as ContainerUser: `Failed to stop or query status of service 'w3svc' error [80070005]`.
    ///
    /// Source: <https://github.com/microsoft/IIS.ServiceMonitor/issues/77>
    pub fn runs_service_monitor(&self) -> bool {
        let name = self.repository.rsplit('/').next();
        let of_framework = self.is_dotnet_framework() && matches!(name, Some("aspnet" | "wcf"));
        let of_iis = self.is_on_mcr() && is_or_under(self.repository, "windows/servercore/iis");
        let on_docker_hub = self.is_docker_hub_microsoft() && matches!(name, Some("iis" | "aspnet" | "wcf"));
        of_framework || of_iis || on_docker_hub
    }

    /// Whether it is one of Microsoft's Windows base images: `mcr.microsoft.com/windows`, and `servercore`,
    /// `nanoserver` and `server` directly under it. They have had no `latest` tag since 2019-04-16.
    pub fn is_windows_base(&self) -> bool {
        self.is_on_mcr()
            && matches!(
                self.repository,
                "windows" | "windows/servercore" | "windows/nanoserver" | "windows/server"
            )
    }

    /// Whether the image is, or according to its name is based on, a Server Core, Server or Windows base image: those
    /// run as ContainerAdministrator unless another user is set.
    pub fn is_servercore_or_server_base(&self) -> bool {
        let on_mcr = self.is_on_mcr()
            && (is_or_under(self.repository, "windows/servercore")
                || matches!(self.repository, "windows" | "windows/server"));
        let on_docker_hub = self.docker_hub_windows().is_some() && !self.repository.contains("nanoserver");
        on_mcr || on_docker_hub || self.is_dotnet_framework() || self.has_servercore_token()
    }

    /// Whether the image is, or according to its name is based on, Nano Server.
    pub fn is_nano_server(&self) -> bool {
        let repository = self.repository;
        (self.is_on_mcr() && is_or_under(repository, "windows/nanoserver"))
            || (self.is_docker_hub_microsoft() && repository.contains("nanoserver"))
            || self.tag.is_some_and(|tag| {
                tag.split('-').any(|token| {
                    let word = glued(token).map_or(token, |(word, _)| word);
                    word.eq_ignore_ascii_case("nanoserver")
                })
            })
    }

    /// Whether Microsoft's image is known to contain neither `powershell.exe` nor `pwsh.exe`: Nano Server, and .NET images
    /// on it. `dotnet/sdk` and `powershell` contain `pwsh.exe`.
    pub fn has_no_powershell(&self) -> bool {
        /// dotnet/dotnet-docker: only src/sdk/*/nanoserver-*/*/Dockerfile installs PowerShell.
        const DOTNET: [&str; 8] = [
            "dotnet/aspnet",
            "dotnet/core/aspnet",
            "dotnet/core/runtime",
            "dotnet/monitor",
            "dotnet/nightly/aspnet",
            "dotnet/nightly/monitor",
            "dotnet/nightly/runtime",
            "dotnet/runtime",
        ];
        let is_base = is_or_under(self.repository, "windows/nanoserver");
        self.is_on_mcr() && self.is_nano_server() && (is_base || DOTNET.contains(&self.repository))
    }

    /// Whether the Windows variants of the image contain busybox, with Unix tools such as `cat` and `sleep`.
    pub fn has_busybox(&self) -> bool {
        linux::has_busybox(self)
    }

    /// Whether the pulled image can change over time: no tag and no digest, or `latest` without a digest.
    pub fn is_untagged_or_latest(&self) -> bool {
        self.digest.is_none() && self.tag.is_none_or(|tag| tag == "latest")
    }

    /// Whether it is on Microsoft's registry.
    pub fn is_on_mcr(&self) -> bool {
        is_on(self.registry, MCR)
    }

    /// Checks only the path, in any registry: this identifies the base image of a Windows pod, but is not evidence of
    /// the operating system.
    fn is_dotnet_framework(&self) -> bool {
        self.repository.starts_with("dotnet/framework/") || self.repository.contains("/dotnet/framework/")
    }

    fn docker_hub_windows(&self) -> Option<&'static (&'static str, Option<&'static str>)> {
        let here = self.registry == DOCKER_HUB;
        DOCKER_HUB_WINDOWS
            .iter()
            .find(|(repository, _)| here && *repository == self.repository)
    }

    fn has_servercore_token(&self) -> bool {
        tokens(self.tag).any(|(before, token)| {
            token.eq_ignore_ascii_case("windowsservercore")
                || (before.eq_ignore_ascii_case("servercore") && release_after(token).is_some())
                || glued(token).is_some_and(|(word, _)| word.to_ascii_lowercase().ends_with("servercore"))
        })
    }
}

impl ImageRef<'_> {
    /// The registry in lower case and without the default port, so that equal registries have equal names.
    pub fn canonical_registry(&self) -> String {
        let registry = self.registry.to_ascii_lowercase();
        match registry.strip_suffix(":443") {
            Some(host) => host.to_owned(),
            None => registry,
        }
    }

    /// The full form, as in `docker.io/library/nginx:latest`: the same for references that mean the same. A tag is dropped if
    /// there is a digest.
    pub fn canonical(&self) -> String {
        let registry = self.canonical_registry();
        let tag = self.digest.is_none().then(|| self.tag.unwrap_or("latest"));
        let full = ImageRef {
            registry: &registry,
            tag,
            ..*self
        };
        full.to_string()
    }
}

impl fmt::Display for ImageRef<'_> {
    /// The full form, with registry and `library/`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let library = if self.is_official() { "library/" } else { "" };
        write!(f, "{}/{library}{}", self.registry, self.repository)?;
        if let Some(tag) = self.tag {
            write!(f, ":{tag}")?;
        }
        self.digest.map_or(Ok(()), |digest| write!(f, "@{digest}"))
    }
}

/// Splits off the registry as distribution does: the first path element is a registry if it has a dot or a colon, is
/// `localhost`, or has upper-case letters (which a repository cannot have).
fn split_registry(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        Some((alias, rest)) if DOCKER_HUB_ALIASES.contains(&alias) => (DOCKER_HUB, rest),
        Some((first, rest))
            if first == "localhost"
                || first.contains(['.', ':'])
                || first.chars().any(char::is_uppercase) =>
        {
            (first, rest)
        }
        _ => (DOCKER_HUB, text),
    }
}

fn split_optional(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// Whether a registry as written is this one: hosts are not case-sensitive, and the default port is 443.
fn is_on(registry: &str, host: &str) -> bool {
    let written = registry.strip_suffix(":443").unwrap_or(registry);
    written.eq_ignore_ascii_case(host)
}

fn is_or_under(repository: &str, root: &str) -> bool {
    repository
        .strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// A host name or a bracketed IPv6 address, optionally with a port.
fn is_registry(text: &str) -> bool {
    let (host_ok, port) = if let Some((address, port)) =
        text.strip_prefix('[').and_then(|t| t.split_once(']'))
    {
        let address_ok = !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        let Some(port) = port.strip_prefix(':') else {
            return address_ok && port.is_empty();
        };
        (address_ok, Some(port))
    } else {
        let (host, port) = split_optional(text, ':');
        (host.split('.').all(is_label), port)
    };
    host_ok && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// Lower-case letters and digits, separated by one `.`, one or two `_`, or any number of `-`.
fn is_path_element(element: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    element.starts_with(is_alphanumeric)
        && element.ends_with(is_alphanumeric)
        && element
            .split(is_alphanumeric)
            .all(|gap| matches!(gap, "" | "." | "_" | "__") || gap.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=128).contains(&tag.len())
        && tag
            .bytes()
            .enumerate()
            .all(|(at, b)| word(b) || (at > 0 && matches!(b, b'.' | b'-')))
}

/// Whether it is the digest of a content: `sha256:…`, `sha384:…` or `sha512:…` in lower-case hexadecimal digits.
pub fn is_digest(digest: &str) -> bool {
    let (algorithm, hex) = split_optional(digest, ':');
    let digits = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.is_some_and(|hex| hex.len() == digits && is_lower_hex(hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sha256:` and 64 digits.
    const D: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    /// Parses, with `@D` as a placeholder for a digest.
    pub(super) fn on<T>(text: &str, visit: impl FnOnce(&ImageRef<'_>) -> T) -> T {
        let text = text.replace("@D", &format!("@{D}"));
        visit(&ImageRef::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}")))
    }

    /// The rows of a table, `image => expected`; a line that starts with `#` is a comment.
    pub(super) fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
        let lines = table.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        lines.map(|line| {
            line.split_once("=>")
                .map(|(text, expected)| (text.trim(), expected.trim()))
                .expect("=>")
        })
    }

    #[test]
    fn a_reference_has_the_parts_that_distribution_finds() {
        // Registry, repository, tag, digest.
        let table = "\
            nginx => docker.io nginx - -
            nginx:1.27 => docker.io nginx 1.27 -
            library/nginx => docker.io nginx - -
            docker.io/nginx => docker.io nginx - -
            docker.io/library/nginx:1 => docker.io nginx 1 -
            index.docker.io/nginx => docker.io nginx - -
            index.docker.io/a/b:c => docker.io a/b c -
            registry-1.docker.io/library/nginx => docker.io nginx - -
            library/a/b => docker.io library/a/b - -
            quay.io/library/nginx => quay.io library/nginx - -
            microsoft/iis => docker.io microsoft/iis - -
            grafana/agent:v0.40 => docker.io grafana/agent v0.40 -
            localhost/x => localhost x - -
            localhost:5000/x => localhost:5000 x - -
            localhost:5000/a/b:1.0 => localhost:5000 a/b 1.0 -
            localhost:5000 => docker.io localhost 5000 -
            127.0.0.1/x:y => 127.0.0.1 x y -
            [::1]:5000/x => [::1]:5000 x - -
            [2001:db8::1]/a/b:c => [2001:db8::1] a/b c -
            registry:5000/x => registry:5000 x - -
            registry/x => docker.io registry/x - -
            Registry/x => Registry x - -
            xn--7o8h.com/x => xn--7o8h.com x - -
            a.b.c:1/d__e/f-g.h_i/j---k => a.b.c:1 d__e/f-g.h_i/j---k - -
            x:_A.b-C => docker.io x _A.b-C -
            x@D => docker.io x - @D
            x:1@D => docker.io x 1 @D
            h.io:5/x:1@D => h.io:5 x 1 @D
            mcr.microsoft.com/windows:1809 => mcr.microsoft.com windows 1809 -";
        for (text, expected) in rows(table) {
            on(text, |image| {
                let digest = image
                    .digest
                    .map_or("-", |digest| if digest == D { "@D" } else { digest });
                let tag = image.tag.unwrap_or("-");
                assert_eq!(
                    format!("{} {} {tag} {digest}", image.registry, image.repository),
                    expected,
                    "{text}"
                );
                assert_eq!(ImageRef::parse(&image.to_string()), Ok(*image), "{text}");
            });
        }
    }

    #[test]
    fn a_reference_is_shown_in_full() {
        let full = |text: &str| on(text, |image| format!("{image}"));
        assert_eq!(full("nginx"), "docker.io/library/nginx");
        assert_eq!(full("index.docker.io/a/b:c"), "docker.io/a/b:c");
        assert_eq!(full("h.io:5/x:1@D"), format!("h.io:5/x:1@{D}"));
    }

    #[test]
    fn what_the_kubelet_refuses_is_refused_by_name() {
        let long = |n: usize| "a".repeat(n);
        let rows = [
            (String::new(), ImageError::Empty),
            (long(64), ImageError::ImageId),
            ("example..com/x".into(), ImageError::Registry),
            ("-a.b/x".into(), ImageError::Registry),
            ("a.b:port/x".into(), ImageError::Registry),
            ("a.b:/x".into(), ImageError::Registry),
            (":/x".into(), ImageError::Registry),
            ("[]:1/x".into(), ImageError::Registry),
            ("[::1/x".into(), ImageError::Registry),
            ("[::1]x/y".into(), ImageError::Registry),
            ("https://a.b/x".into(), ImageError::Registry),
            ("münchen.de/x".into(), ImageError::Registry),
            ("x:y@z/a".into(), ImageError::Registry),
            ("Nginx".into(), ImageError::UpperCase),
            ("a.b/Nginx:1".into(), ImageError::UpperCase),
            ("team/App".into(), ImageError::UpperCase),
            (":".into(), ImageError::Repository),
            ("@@@".into(), ImageError::Repository),
            ("/x".into(), ImageError::Repository),
            ("a.b/".into(), ImageError::Repository),
            ("a//b".into(), ImageError::Repository),
            (" nginx".into(), ImageError::Repository),
            ("x_".into(), ImageError::Repository),
            ("x___y".into(), ImageError::Repository),
            ("x..y".into(), ImageError::Repository),
            ("x._y".into(), ImageError::Repository),
            ("größe".into(), ImageError::Repository),
            ("${IMAGE}".replace("IMAGE", "image"), ImageError::Repository),
            (format!("a/{}", long(4096)), ImageError::TooLong),
            (long(248), ImageError::TooLong),
            ("a:b:c".into(), ImageError::Tag),
            ("x:".into(), ImageError::Tag),
            ("x:-y".into(), ImageError::Tag),
            ("x:1 ".into(), ImageError::Tag),
            ("x:é".into(), ImageError::Tag),
            (format!("x:{}", long(129)), ImageError::Tag),
            ("x@".into(), ImageError::Digest),
            ("x@sha256:abc".into(), ImageError::Digest),
            (format!("x@{}", D.replace('a', "A")), ImageError::Digest),
            (format!("x@{}", D.replace("sha256", "md5")), ImageError::Digest),
            (format!("x@{D}@{D}"), ImageError::Digest),
        ];
        for (text, expected) in rows {
            assert_eq!(ImageRef::parse(&text), Err(expected), "{text:?}");
            let message = expected.to_string();
            assert!(
                message.starts_with(char::is_lowercase) && !message.ends_with('.'),
                "{message}"
            );
        }
        assert!(ImageRef::parse(&format!("x:{}", long(128))).is_ok());
        assert!(ImageRef::parse(&long(247)).is_ok());
    }

    #[test]
    fn no_text_makes_it_panic() {
        // Every string of up to four of these, and the hints of those that parse.
        let letters = [
            "a", "A", "8", ".", ":", "/", "@", "-", "_", "[", "]", "é", "ltsc", "\u{0}",
        ];
        let mut texts = vec![String::new()];
        for _ in 0..4 {
            for text in std::mem::take(&mut texts) {
                texts.extend(letters.iter().map(|letter| format!("{text}{letter}")));
            }
            for text in &texts {
                if let Ok(image) = ImageRef::parse(text) {
                    assert_eq!(ImageRef::parse(&image.to_string()), Ok(image), "{text:?}");
                    let _ = (
                        os_hint(&image),
                        build_hint(&image),
                        image.is_servercore_or_server_base(),
                    );
                }
            }
        }
        for letter in letters {
            let _ = ImageRef::parse(&letter.repeat(4096));
        }
        // The fields are public, so the hints must handle values that the parser rejects.
        let odd = ImageRef {
            registry: "",
            repository: "é",
            tag: Some("ltsé-éééé-nanoserver-"),
            digest: None,
        };
        assert_eq!(
            (os_hint(&odd), build_hint(&odd)),
            (OsHint::WindowsTagToken("nanoserver"), None)
        );
    }

    #[test]
    fn each_family_of_repositories_is_known_by_its_name() {
        // b: Windows base; a: runs as ContainerAdministrator; n: Nano Server; m: Microsoft's; h: Docker Hub's
        // microsoft/; w: Windows only; l: untagged or latest; s: IIS by ServiceMonitor.
        let table = "\
            mcr.microsoft.com/windows => bamwl
            mcr.microsoft.com/windows/servercore:latest => bamwl
            mcr.microsoft.com/windows/servercore:ltsc2022 => bamw
            mcr.microsoft.com/windows/server:ltsc2022 => bamw
            mcr.microsoft.com/windows/nanoserver:ltsc2022 => bnmw
            mcr.microsoft.com/windows/nanoserver@D => bnmw
            mcr.microsoft.com/windows/nanoserver:latest@D => bnmw
            mcr.microsoft.com/windows/nanoserver/insider:1 => nmw
            mcr.microsoft.com/windows/servercore/iis => amwls
            mcr.microsoft.com/windows/servercoreish:1 => mw
            mcr.microsoft.com/dotnet/framework/aspnet:4.8 => amws
            mcr.microsoft.com/dotnet/framework/runtime:4.8 => amw
            corp.example/dotnet/framework/wcf:4.8 => as
            calico/windows:v3.24.5 => w
            mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-1809 => nm
            mcr.microsoft.com/dotnet/aspnet:8.0-windowsservercore-ltsc2022 => am
            mcr.microsoft.com/dotnet/aspnet:8.0 => m
            microsoft/windowsservercore => amhwl
            microsoft/nanoserver:1709 => nmhw
            microsoft/iis:latest => amhwls
            microsoft/azure-cli:2 => mh
            golang:1.22-windowsservercore => a
            golang:1.22-nanoserver => n
            corp.example/x:servercore-1809 => a
            corp.example/x:servercore => -
            corp.example/windows/servercore:1 => -
            corp.example:5000/x => l";
        for (text, expected) in rows(table) {
            let got: String = on(text, |image| {
                [
                    ('b', image.is_windows_base()),
                    ('a', image.is_servercore_or_server_base()),
                    ('n', image.is_nano_server()),
                    ('m', image.is_microsoft()),
                    ('h', image.is_docker_hub_microsoft()),
                    ('w', image.is_windows_only_repository()),
                    ('l', image.is_untagged_or_latest()),
                    ('s', image.runs_service_monitor()),
                ]
                .into_iter()
                .filter_map(|(letter, holds)| holds.then_some(letter))
                .collect()
            });
            assert_eq!(got, expected.trim_matches('-'), "{text}");
        }
    }

    #[test]
    fn docker_hubs_old_windows_images_have_a_new_home() {
        let table = "\
            microsoft/windowsservercore:1803 => mcr.microsoft.com/windows/servercore
            docker.io/microsoft/nanoserver => mcr.microsoft.com/windows/nanoserver
            microsoft/iis => mcr.microsoft.com/windows/servercore/iis
            registry-1.docker.io/microsoft/aspnet => mcr.microsoft.com/dotnet/framework/aspnet
            index.docker.io/microsoft/aspnet => mcr.microsoft.com/dotnet/framework/aspnet
            microsoft/dotnet-framework => mcr.microsoft.com/dotnet/framework/runtime
            microsoft/wcf => -
            microsoft/dotnet => -
            quay.io/microsoft/iis => -
            iis => -";
        for (text, expected) in rows(table) {
            let got = on(text, |image| image.mcr_equivalent().unwrap_or("-"));
            assert_eq!(got, expected, "{text}");
        }
    }
}
