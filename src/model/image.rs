//! Image references: their parts, and what their text alone tells of operating system and Windows build. What
//! a registry says of an image, and which builds run where, is not here.

use std::fmt;

use jiff::civil::Date;

use super::build::{Build, Release};
use super::dns::is_label;

mod linux;

/// An image reference, `[registry[:port]/]path[:tag][@digest]`, borrowed from the text it was read from.
///
/// Follows `ParseNormalizedNamed` of github.com/distribution/reference, which the kubelet and containerd use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImageRef<'a> {
    /// The registry's host and port as written; `docker.io` where none is, and for `index.docker.io`.
    pub registry: &'a str,
    /// The path in the registry. Docker Hub's official images are without the `library/` that stands before
    /// them there: `nginx` and `docker.io/library/nginx` are the same. See [`ImageRef::is_official`].
    pub repository: &'a str,
    /// The tag, where one is written: `latest` is never filled in.
    pub tag: Option<&'a str>,
    /// The digest with its algorithm, `sha256:…`. Where there is one, it alone decides what is pulled.
    pub digest: Option<&'a str>,
}

/// Why a text is no image reference. The kubelet fails such a container with `InvalidImageName`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ImageError {
    /// Nothing at all.
    Empty,
    /// 64 hexadecimal digits: an image id, which no registry can look up.
    ImageId,
    /// The part before the first slash is no host name, address or port.
    Registry,
    /// The repository holds upper-case letters.
    UpperCase,
    /// The repository is not made of lower-case letters and digits, parted by `.`, `_`, `__`, `-` and `/`.
    Repository,
    /// The repository is longer than 255 characters.
    TooLong,
    /// The tag is empty, longer than 128 characters, or holds a character that tags do not have.
    Tag,
    /// The digest is no sha256, sha384 or sha512 in lower-case hexadecimal digits.
    Digest,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImageError::Empty => "the image reference is empty",
            ImageError::ImageId => "an image id of 64 hexadecimal digits is no image reference",
            ImageError::Registry => "the registry of the image is no host name with an optional port",
            ImageError::UpperCase => "the repository of the image must be lower case",
            ImageError::Repository => "the repository of the image has an invalid form",
            ImageError::TooLong => "the repository of the image is longer than 255 characters",
            ImageError::Tag => "the tag of the image has an invalid form",
            ImageError::Digest => "the digest of the image has an invalid form",
        })
    }
}

impl std::error::Error for ImageError {}

const DOCKER_HUB: &str = "docker.io";
const MCR: &str = "mcr.microsoft.com";

/// The Windows-only repositories of Docker Hub's `microsoft/…`, and where those that Kubernetes' own examples
/// used are now.
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
    /// Reads a container's `image`.
    ///
    /// # Errors
    ///
    /// Which part of the text has a form that the kubelet would not accept either.
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
        // Docker Hub's own images have `library/` before their name, and that counts.
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

    /// Whether it is one of Docker Hub's official images, whose full path begins with `library/`.
    pub fn is_official(&self) -> bool {
        self.registry == DOCKER_HUB && !self.repository.contains('/')
    }

    /// Whether Microsoft publishes the repository: all of `mcr.microsoft.com`, and Docker Hub's old
    /// `microsoft/…`. Of those many are Linux images.
    pub fn is_microsoft(&self) -> bool {
        self.is_on_mcr() || self.is_docker_hub_microsoft()
    }

    /// Whether it is in Docker Hub's `microsoft/…`, which moved to `mcr.microsoft.com`.
    pub fn is_docker_hub_microsoft(&self) -> bool {
        self.registry == DOCKER_HUB && self.repository.starts_with("microsoft/")
    }

    /// The repository that took the place of one of Docker Hub's `microsoft/{windowsservercore, nanoserver,
    /// iis, aspnet, dotnet-framework}`; `None` for every other image.
    pub fn mcr_equivalent(&self) -> Option<&'static str> {
        self.docker_hub_windows().and_then(|(_, equivalent)| *equivalent)
    }

    /// Whether the repository has never held anything but Windows images: `mcr.microsoft.com/windows`,
    /// `businesscentral`, `dynamicsnav` and what is under them, any registry's `…/dotnet/framework/…`, and the Windows
    /// ones of Docker Hub's `microsoft/…`.
    pub fn is_windows_only_repository(&self) -> bool {
        let on_mcr = || {
            ["windows", "businesscentral", "dynamicsnav"]
                .iter()
                .any(|root| is_or_under(self.repository, root))
        };
        (self.is_on_mcr() && on_mcr()) || self.is_dotnet_framework() || self.docker_hub_windows().is_some()
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

    /// Whether the image is, or by its name stands on, a Server Core, Server or Windows base image: those
    /// run as ContainerAdministrator where nothing else is said.
    pub fn is_servercore_or_server_base(&self) -> bool {
        let on_mcr = self.is_on_mcr()
            && (is_or_under(self.repository, "windows/servercore")
                || matches!(self.repository, "windows" | "windows/server"));
        let on_docker_hub = self.docker_hub_windows().is_some() && !self.repository.contains("nanoserver");
        on_mcr || on_docker_hub || self.is_dotnet_framework() || self.has_servercore_token()
    }

    /// Whether the image is, or by its name stands on, Nano Server.
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

    /// Whether what is pulled changes with time: no tag and no digest, or `latest` without a digest.
    pub fn is_untagged_or_latest(&self) -> bool {
        self.digest.is_none() && self.tag.is_none_or(|tag| tag == "latest")
    }

    fn is_on_mcr(&self) -> bool {
        is_on(self.registry, MCR)
    }

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

/// What the text of a reference tells of the operating system. It is weak evidence: a tag can say anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OsHint<'a> {
    /// The repository holds Windows images only; see [`ImageRef::is_windows_only_repository`].
    WindowsOnlyRepository,
    /// This token of the tag names a Windows base image.
    WindowsTagToken(&'a str),
    /// This token of the tag names a Linux distribution. Good for a warning, never for a denial.
    LinuxTag(&'a str),
    /// The repository holds Linux images only, as far as is known. Good for a warning, never for a denial.
    LinuxOnlyRepository,
    /// A tag of Microsoft's .NET images, 8.0 or later, that names no Windows base: those have no Windows
    /// variant. Never said of a reference with a digest, which need not be what the tag is.
    DotnetLinuxOnly,
    /// Nothing.
    None,
}

/// A Windows build read from a tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BuildHint<'a> {
    /// The build that the tag names.
    pub build: Build,
    /// The token of the tag that names it: `ltsc2022`, `1809`, `10.0.20348.2700`.
    pub token: &'a str,
    /// Whether Microsoft itself gave the tag, and the tag decides what is pulled (no digest beside it). Only
    /// then may a mismatch be denied; other hints place and warn.
    pub certain: bool,
}

/// What the reference's text tells of the operating system: a Windows repository first, then Windows words of the tag,
/// then Linux words, then a Linux repository. Words count as whole dash-separated tokens, in any case of letters; the
/// word `windows` itself proves nothing, yet silences what speaks of Linux (`1.0-linux-windows` is both).
pub fn os_hint<'a>(image: &ImageRef<'a>) -> OsHint<'a> {
    if image.is_windows_only_repository() {
        return OsHint::WindowsOnlyRepository;
    }
    let dotnet = image.is_on_mcr() && image.repository.starts_with("dotnet/") && image.digest.is_none();
    let of_repository = || {
        if linux::is_linux_only(image) {
            OsHint::LinuxOnlyRepository
        } else {
            OsHint::None
        }
    };
    let Some(tag) = image.tag.filter(|tag| *tag != "latest") else {
        // `latest` has been .NET 8 or newer since 2023.
        return if dotnet {
            OsHint::DotnetLinuxOnly
        } else {
            of_repository()
        };
    };
    if let Some((_, token)) = tokens(image.tag).find(|(before, token)| is_windows_token(before, token)) {
        return OsHint::WindowsTagToken(token);
    }
    // Other authors' `windows-2022` says a build of a pod that is for Windows, and does not make it one: the word
    // `windows` proves nothing.
    if let Some(hint) = build_hint(image).filter(|_| image.is_microsoft()) {
        return OsHint::WindowsTagToken(hint.token);
    }
    if tag
        .split('-')
        .any(|token| is_windows_word(token) || glued(token).is_some())
    {
        return OsHint::None;
    }
    if let Some(token) = tag.split('-').find(|token| linux::is_linux_token(token)) {
        return OsHint::LinuxTag(token);
    }
    if dotnet && dotnet_major(tag).is_some_and(|major| major >= 8) {
        return OsHint::DotnetLinuxOnly;
    }
    of_repository()
}

/// The build that the reference's tag names.
///
/// `ltsc20xx` counts anywhere, and so does a release after `nanoserver`, `windowsservercore`, `servercore`, `windows` or
/// `win`, with a dash between them or without: vendors write `servercore21H2`, `windows-2022`, `winltsc2022` and
/// `windows-ltsc-2022`. Other versions (`1809`, `20H2`, `10.0.20348.2700`) count only where Microsoft publishes the
/// image and it is a Windows one by its repository or by another word of the tag; an author's own `1809` is a
/// version of theirs. All of them are whole dash-separated tokens (`v1809` is none). A tag that names two
/// builds names none.
pub fn build_hint<'a>(image: &ImageRef<'a>) -> Option<BuildHint<'a>> {
    let tag = image.tag?;
    let microsoft = image.is_microsoft();
    let bare = microsoft && (image.is_windows_only_repository() || tag.split('-').any(is_windows_word));
    let mut found: Option<(Build, &'a str)> = None;
    for (before, token) in tokens(image.tag) {
        let build = if let Some((_, build)) = glued(token) {
            Some(build)
        } else if is_ltsc(token) {
            build_of(token)
        } else if is_windows_word(before) || before.eq_ignore_ascii_case("ltsc") {
            release_after(token)
        } else if bare {
            build_of(token)
        } else {
            None
        };
        match (build, found) {
            (Some(build), None) => found = Some((build, token)),
            (Some(build), Some((known, _))) if build != known => return None,
            _ => {}
        }
    }
    found.map(|(build, token)| BuildHint {
        build,
        token,
        certain: microsoft && image.digest.is_none(),
    })
}

/// The last day on which an image of this build is serviced; for Nano Server that can be before the end of
/// its release. `None` where it is not documented. The build comes from [`build_hint`] or from a registry.
pub fn end_of_support(image: &ImageRef<'_>, build: Build) -> Option<Date> {
    let release = build.release()?;
    release
        .nano_server_end
        .filter(|_| image.is_nano_server())
        .or_else(|| release.end_of_support())
}

/// The dash-separated tokens of a tag, each with the one before it (empty before the first).
fn tokens(tag: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let split = || tag.into_iter().flat_map(|tag| tag.split('-'));
    std::iter::once("").chain(split()).zip(split())
}

/// The build that a token means where it is known to mean one.
fn build_of(token: &str) -> Option<Build> {
    if let Some(release) = Release::from_tag(token) {
        return Some(release.build);
    }
    match Build::parse_kernel_version(token)? {
        (build, Some(_)) => build.release().map(|release| release.build),
        (_, None) => None, // no tag is a build without its revision
    }
}

/// Names of releases that Microsoft's own tags do not use, and other vendors' do after a word for Windows.
static VENDORS_NAMES: &[(&str, u32)] = &[
    ("2016", 14393),
    ("2019", 17763),
    ("2022", 20348),
    ("21H2", 20348),
    ("2025", 26100),
    ("24H2", 26100),
];

/// The build that a token means after a word for Windows.
fn release_after(token: &str) -> Option<Build> {
    build_of(token).or_else(|| {
        let known = VENDORS_NAMES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(token));
        known.map(|(_, build)| Build::new(*build))
    })
}

/// A word for Windows and a release in one token: `servercore21H2`, `winltsc2022`.
fn glued(token: &str) -> Option<(&str, Build)> {
    // The longer ones first: one begins with the other.
    const WORDS: [&str; 5] = ["windowsservercore", "servercore", "nanoserver", "windows", "win"];
    WORDS.iter().find_map(|word| {
        let (start, release) = token.split_at_checked(word.len())?;
        let is = start.eq_ignore_ascii_case(word);
        Some((start, is.then(|| release_after(release))??))
    })
}

fn is_one_of(token: &str, words: &[&str]) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(token))
}

/// A word after which a version is that of Windows.
fn is_base_word(token: &str) -> bool {
    is_one_of(token, &["nanoserver", "windowsservercore", "servercore"])
}

/// A word that makes a tag of Microsoft's speak of Windows.
fn is_windows_word(token: &str) -> bool {
    is_base_word(token) || is_one_of(token, &["windows", "win"])
}

/// `ltsc` and a year of this century, so that releases to come are known for Windows.
fn is_ltsc(token: &str) -> bool {
    let (Some(word), Some(year)) = (token.get(..4), token.get(4..)) else {
        return false;
    };
    word.eq_ignore_ascii_case("ltsc")
        && year.len() == 4
        && year.starts_with("20")
        && year.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a token, after the one before it, names a Windows base image in any author's tag. `servercore` alone
/// could be the core of a server.
fn is_windows_token(before: &str, token: &str) -> bool {
    is_ltsc(token)
        || is_one_of(token, &["nanoserver", "windowsservercore"])
        || (is_base_word(before) && release_after(token).is_some())
        || glued(token)
            .is_some_and(|(word, _)| is_base_word(word) || token.get(word.len()..).is_some_and(is_ltsc))
}

/// The major version of a .NET tag: 8 of `8.0`, `8.0.4-amd64`, `8`. A date is none.
fn dotnet_major(tag: &str) -> Option<u8> {
    let version = tag.split('-').next()?;
    let major = version.split('.').next()?;
    let numeric = version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if numeric { major.parse().ok() } else { None }
}

/// Splits the registry off as distribution does: the first path element is one where it has a dot or a colon,
/// is `localhost`, or has upper-case letters (which a repository cannot have).
fn split_registry(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        Some(("index.docker.io", rest)) => (DOCKER_HUB, rest),
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

/// Whether a registry as written is this one: hosts have no case, and 443 is the port where none is written.
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

/// A host name or a bracketed IPv6 address, and perhaps a port.
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

/// Lower-case letters and digits, parted by one `.`, one or two `_`, or any number of `-`.
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

fn is_digest(digest: &str) -> bool {
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

    /// Parses, with `@D` standing for a digest.
    fn on<T>(text: &str, look: impl FnOnce(&ImageRef<'_>) -> T) -> T {
        let text = text.replace("@D", &format!("@{D}"));
        look(&ImageRef::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}")))
    }

    /// The rows of a table, `image => expected`; a line of `#` is a remark.
    fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
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
        // The fields are public, so the hints must stand what no parser lets through.
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
    fn a_build_is_read_from_tags_that_can_only_mean_one() {
        // Text: build, token, and `!` where it is certain; `-` where nothing is told.
        let table = "\
            # Microsoft's base images.
            mcr.microsoft.com/windows/servercore:ltsc2016 => 14393 ltsc2016 !
            mcr.microsoft.com/windows/servercore:1607 => 14393 1607 !
            mcr.microsoft.com/windows/nanoserver:sac2016 => 14393 sac2016 !
            mcr.microsoft.com/windows/servercore:1709 => 16299 1709 !
            mcr.microsoft.com/windows/servercore:1803 => 17134 1803 !
            mcr.microsoft.com/windows/servercore:ltsc2019 => 17763 ltsc2019 !
            mcr.microsoft.com/windows/servercore:ltsc2019-amd64 => 17763 ltsc2019 !
            mcr.microsoft.com/windows/nanoserver:1809 => 17763 1809 !
            mcr.microsoft.com/windows:1809 => 17763 1809 !
            mcr.microsoft.com/windows/nanoserver:1903 => 18362 1903 !
            mcr.microsoft.com/windows/nanoserver:1909-amd64 => 18363 1909 !
            mcr.microsoft.com/windows/nanoserver:2004 => 19041 2004 !
            mcr.microsoft.com/windows/nanoserver:20H2 => 19042 20H2 !
            mcr.microsoft.com/windows/nanoserver:20h2 => 19042 20h2 !
            mcr.microsoft.com/windows/server:ltsc2022 => 20348 ltsc2022 !
            mcr.microsoft.com/windows/servercore:LTSC2025 => 26100 LTSC2025 !
            mcr.microsoft.com/windows/servercore:1809-KB4471332 => 17763 1809 !
            mcr.microsoft.com/windows/servercore:10.0.17763.1518 => 17763 10.0.17763.1518 !
            mcr.microsoft.com/windows/servercore:10.0.20348.2700-amd64 => 20348 10.0.20348.2700 !
            MCR.Microsoft.com:443/windows/servercore:ltsc2022 => 20348 ltsc2022 !
            microsoft/nanoserver:10.0.14393.2125 => 14393 10.0.14393.2125 !
            microsoft/windowsservercore:1803 => 17134 1803 !
            microsoft/iis:windowsservercore-1709 => 16299 1709 !
            docker.io/microsoft/aspnet:4.7.2-windowsservercore-1803 => 17134 1803 !
            # Images on top of them.
            mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022 => 20348 ltsc2022 !
            mcr.microsoft.com/dotnet/framework/aspnet:4.8-windowsservercore-ltsc2019 => 17763 ltsc2019 !
            mcr.microsoft.com/dotnet/framework/sdk:4.8-20240109-windowsservercore-2004 => 19041 2004 !
            mcr.microsoft.com/dotnet/sdk:8.0-nanoserver-1809 => 17763 1809 !
            mcr.microsoft.com/powershell:nanoserver-ltsc2022 => 20348 ltsc2022 !
            mcr.microsoft.com/oss/kubernetes/pause:3.6-windows-1809-amd64 => 17763 1809 !
            # Other people's: a hint.
            golang:1.22-windowsservercore-ltsc2022 => 20348 ltsc2022 ?
            golang:1.9-nanoserver-sac2016 => 14393 sac2016 ?
            traefik:v2.10-windowsservercore-1809 => 17763 1809 ?
            openjdk:nanoserver-10.0.17763.1-x => 17763 10.0.17763.1 ?
            corp.example:5000/web:2.3.1-ltsc2025 => 26100 ltsc2025 ?
            corp.example/base/servercore:ltsc2019 => 17763 ltsc2019 ?
            corp.example/app:ServerCore-20H2 => 19042 20H2 ?
            corp.example/dotnet/framework/aspnet:4.8-windowsservercore-ltsc2016 => 14393 ltsc2016 ?
            corp.example/app:ltsc2022-nanoserver-ltsc2022 => 20348 ltsc2022 ?
            # As vendors write it.
            registry.gitlab.com/gitlab-org/gitlab-runner/gitlab-runner-helper:x86_64-v16.11.0-servercore21H2 => 20348 servercore21H2 ?
            corp.example/helper:x86_64-nanoserver1809 => 17763 nanoserver1809 ?
            corp.example/app:1-windowsservercore21H2 => 20348 windowsservercore21H2 ?
            corp.example/app:1-nanoserver-21h2 => 20348 21h2 ?
            corp.example/app:windows-2022-amd64 => 20348 2022 ?
            corp.example/app:v1-windows-1809-amd64 => 17763 1809 ?
            corp.example/app:v1-windows2019 => 17763 windows2019 ?
            corp.example/app:1.0-winltsc2022 => 20348 winltsc2022 ?
            corp.example/app:windowsltsc2022-amd64 => 20348 windowsltsc2022 ?
            corp.example/app:1.0-windows-ltsc-2022 => 20348 2022 ?
            corp.example/app:1.0-servercore24H2 => 26100 servercore24H2 ?
            corp.example/app:1.0-win-2025 => 26100 2025 ?
            mcr.microsoft.com/businesscentral:10.0.20348.2582 => 20348 10.0.20348.2582 !
            mcr.microsoft.com/businesscentral:10.0.19041.1415 => 19041 10.0.19041.1415 !
            mcr.microsoft.com/businesscentral/onprem:14.11.41204.0-de-ltsc2019 => 17763 ltsc2019 !
            mcr.microsoft.com/dynamicsnav:10.0.17763.1040-generic => 17763 10.0.17763.1040 !
            # A digest beside a tag is what is pulled.
            mcr.microsoft.com/windows/servercore:ltsc2022@D => 20348 ltsc2022 ?
            mcr.microsoft.com/windows/servercore@D => -
            # Not a build.
            mcr.microsoft.com/windows/servercore => -
            mcr.microsoft.com/windows/servercore:latest => -
            mcr.microsoft.com/windows/servercore:10.0.20348 => -
            mcr.microsoft.com/windows/servercore/insider:10.0.26080.1 => -
            mcr.microsoft.com/windows/servercore:v1809 => -
            mcr.microsoft.com/windows/servercore:2.1809 => -
            mcr.microsoft.com/windows/servercore:ltsc2028 => -
            mcr.microsoft.com/windows/servercore:23h2 => -
            mcr.microsoft.com/dotnet/sdk:8.0 => -
            mcr.microsoft.com/mssql/server:2019-latest => -
            mcr.microsoft.com/some/linux:2004 => -
            microsoft/azure-cli:2004 => -
            corp.example/windows/servercore:1809 => -
            corp.example/nanoserver:1809 => -
            corp.example/app:1809 => -
            corp.example/app:v1809 => -
            corp.example/app:2.1809 => -
            corp.example/app:1.0-2004 => -
            corp.example/app:10.0.17763.1 => -
            corp.example/app:nanoserver => -
            corp.example/app:nanoserver-1.2 => -
            corp.example/app:nanoserver_ltsc2022 => -
            corp.example/app:xltsc2022 => -
            corp.example/app:ltsc2022x => -
            corp.example/app:1809-nanoserver => -
            corp.example/app:2022-windows => -
            corp.example/app:2022 => -
            corp.example/app:21H2 => -
            corp.example/app:winter2022 => -
            corp.example/app:windows2022.1 => -
            corp.example/app:windows-2022-servercore-2019 => -
            mcr.microsoft.com/mssql/server:2022-latest => -
            corp.example/app:ltsc2019-ltsc2022 => -
            corp.example/app-ltsc2022:1.0 => -
            docker.io/library/microsoft:1809 => -
            ltsc2022 => -";
        for (text, expected) in rows(table) {
            let got = on(text, |image| {
                build_hint(image).map_or("-".to_owned(), |hint| {
                    let mark = if hint.certain { '!' } else { '?' };
                    format!("{} {} {mark}", hint.build.number(), hint.token)
                })
            });
            assert_eq!(got, expected, "{text}");
        }
    }

    #[test]
    fn every_tag_of_every_release_is_read_on_microsofts_base_images() {
        for release in super::super::build::RELEASES {
            for tag in release.tags {
                for text in [
                    format!("mcr.microsoft.com/windows/servercore:{tag}"),
                    format!("corp.example/x:1-nanoserver-{tag}"),
                    format!("corp.example/x:windowsservercore-{tag}"),
                    format!("corp.example/x:servercore-{tag}-2"),
                ] {
                    assert_eq!(
                        on(&text, |i| build_hint(i).map(|h| h.build)),
                        Some(release.build),
                        "{text}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_operating_system_is_told_by_well_known_names_only() {
        let table = "\
            mcr.microsoft.com/windows => WindowsOnlyRepository
            mcr.microsoft.com/windows/nanoserver@D => WindowsOnlyRepository
            mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022 => WindowsOnlyRepository
            mcr.microsoft.com/dotnet/framework/aspnet:4.8 => WindowsOnlyRepository
            corp.example/mirror/dotnet/framework/runtime:4.8 => WindowsOnlyRepository
            corp.example/dotnet/framework/sdk:4.8 => WindowsOnlyRepository
            microsoft/nanoserver => WindowsOnlyRepository
            microsoft/wcf:4.7.2 => WindowsOnlyRepository
            golang:nanoserver => WindowsTagToken nanoserver
            golang:1.22-windowsservercore => WindowsTagToken windowsservercore
            golang:1.22-WindowsServerCore-1809 => WindowsTagToken WindowsServerCore
            corp.example/x:servercore-1809 => WindowsTagToken 1809
            corp.example/x:1.0-ltsc2028 => WindowsTagToken ltsc2028
            corp.example/x:x86_64-servercore21H2 => WindowsTagToken servercore21H2
            corp.example/x:nanoserver1809 => WindowsTagToken nanoserver1809
            corp.example/x:1.0-winltsc2022 => WindowsTagToken winltsc2022
            mcr.microsoft.com/businesscentral:10.0.20348.2582 => WindowsOnlyRepository
            # A build for a pod that is for Windows, and no word for whether it is.
            corp.example/x:windows-2022-amd64 => None
            corp.example/x:1.0-windows-ltsc-2022 => None
            corp.example/x:1.0-alpine-windows2022 => None
            corp.example/x:1.0-alpine-ltsc2022 => WindowsTagToken ltsc2022
            mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-ltsc2022 => WindowsTagToken nanoserver
            mcr.microsoft.com/oss/kubernetes/pause:3.6-windows-1809-amd64 => WindowsTagToken 1809
            nginx:1.27-alpine => LinuxTag alpine
            nginx:1.27-alpine3.20-perl => LinuxTag alpine3.20
            python:3.12-slim-bookworm => LinuxTag bookworm
            corp.example/x:AmazonLinux2 => LinuxTag AmazonLinux2
            corp.example/x:linu => None
            node:22-Bullseye => LinuxTag Bullseye
            corp.example/x:2-ubi9 => LinuxTag ubi9
            corp.example/x:distroless => LinuxTag distroless
            corp.example/x:1.0-linux-amd64 => LinuxTag linux
            mcr.microsoft.com/dotnet/aspnet:8.0-jammy-chiseled => LinuxTag jammy
            mcr.microsoft.com/dotnet/sdk:9.0-azurelinux3.0 => LinuxTag azurelinux3.0
            mcr.microsoft.com/dotnet/runtime:6.0-focal => LinuxTag focal
            mcr.microsoft.com/dotnet/aspnet:8.0 => DotnetLinuxOnly
            mcr.microsoft.com/dotnet/runtime:8.0.4-amd64 => DotnetLinuxOnly
            mcr.microsoft.com/dotnet/sdk:10.0 => DotnetLinuxOnly
            mcr.microsoft.com/dotnet/sdk:10.0.100-preview.1 => DotnetLinuxOnly
            mcr.microsoft.com/dotnet/nightly/runtime-deps:9.0-preview => DotnetLinuxOnly
            mcr.microsoft.com/dotnet/monitor:8 => DotnetLinuxOnly
            mcr.microsoft.com/dotnet/aspnet:8.0@D => None
            mcr.microsoft.com/dotnet/aspnet:7.0 => None
            mcr.microsoft.com/dotnet/aspnet:6.0.36 => None
            mcr.microsoft.com/dotnet/aspnet:latest => DotnetLinuxOnly
            mcr.microsoft.com/dotnet/aspnet => DotnetLinuxOnly
            mcr.microsoft.com/dotnet/samples:aspnetapp => None
            mcr.microsoft.com/dotnet/sdk:20240101 => None
            mcr.microsoft.com/dotnet/sdk:8.0-windows => None
            mcr.microsoft.com/dotnet-buildtools/prereqs:8.0 => None
            corp.example/dotnet/aspnet:8.0 => None
            corp.example/dotnet/framework:4.8 => None
            corp.example/mydotnet/framework/x:4.8 => None
            corp.example/windows/servercore:1809 => None
            mcr.microsoft.com/windowsadmin/x:1 => None
            microsoft/dotnet:2.1-sdk => None
            microsoft/mssql-server-linux => None
            quay.io/microsoft/nanoserver:1 => None
            grafana/windows-exporter:0.25 => None
            prometheuscommunity/windows-exporter:windows-1.0 => None
            corp.example/x:1.0-linux-windows => None
            corp.example/x:servercore => None
            corp.example/x:servercore-1.2 => None
            corp.example/x:alpinerc => None
            corp.example/x:1.0-slim => None
            corp.example/alpine:1.0 => None
            # Linux only by the repository.
            nginx => LinuxOnlyRepository
            nginx:1.27 => LinuxOnlyRepository
            ubuntu:22.04 => LinuxOnlyRepository
            docker.io/library/redis:7.2@D => LinuxOnlyRepository
            public.ecr.aws/docker/library/postgres:16 => LinuxOnlyRepository
            mirror.gcr.io/library/node:22 => LinuxOnlyRepository
            docker.io/istio/proxyv2:1.27.1 => LinuxOnlyRepository
            gcr.io/istio-release/proxyv2:1.27.1 => LinuxOnlyRepository
            cr.l5d.io/linkerd/proxy:edge-26.1.1 => LinuxOnlyRepository
            hashicorp/vault:1.20.0 => LinuxOnlyRepository
            quay.io/prometheus/node-exporter:v1.8.0 => LinuxOnlyRepository
            registry.k8s.io:443/ingress-nginx/controller:v1.12.0@D => LinuxOnlyRepository
            gcr.io/distroless/static:nonroot => LinuxOnlyRepository
            MCR.microsoft.com/mssql/server:2019-latest => LinuxOnlyRepository
            mcr.microsoft.com/azurelinux/base/core:3.0 => LinuxOnlyRepository
            redis:7-bookworm => LinuxTag bookworm
            mcr.microsoft.com/dotnet/aspnet:8.0-chiselled => LinuxTag chiselled
            # These have Windows variants, or another author.
            golang:1.22 => None
            python:3.12 => None
            mongo:7 => None
            traefik:v3 => None
            redis:3.2-nanoserver => WindowsTagToken nanoserver
            nginx:1.27-windows => None
            hashicorp/vault-windows:1 => None
            envoyproxy/envoy-windows:v1.24 => None
            corp.example/nginx:1.27 => None
            corp.example/istio/proxyv2:1.27.1 => None
            quay.io/library/nginx:1.27 => None";
        for (text, expected) in rows(table) {
            let got = on(text, |image| match os_hint(image) {
                OsHint::WindowsTagToken(token) => format!("WindowsTagToken {token}"),
                OsHint::LinuxTag(token) => format!("LinuxTag {token}"),
                other => format!("{other:?}"),
            });
            assert_eq!(got, expected, "{text}");
        }
    }

    #[test]
    fn each_family_of_repositories_is_known_by_its_name() {
        // b: Windows base; a: runs as ContainerAdministrator; n: Nano Server; m: Microsoft's; h: Docker Hub's
        // microsoft/; w: Windows only; l: untagged or latest.
        let table = "\
            mcr.microsoft.com/windows => bamwl
            mcr.microsoft.com/windows/servercore:latest => bamwl
            mcr.microsoft.com/windows/servercore:ltsc2022 => bamw
            mcr.microsoft.com/windows/server:ltsc2022 => bamw
            mcr.microsoft.com/windows/nanoserver:ltsc2022 => bnmw
            mcr.microsoft.com/windows/nanoserver@D => bnmw
            mcr.microsoft.com/windows/nanoserver:latest@D => bnmw
            mcr.microsoft.com/windows/nanoserver/insider:1 => nmw
            mcr.microsoft.com/windows/servercore/iis => amwl
            mcr.microsoft.com/windows/servercoreish:1 => mw
            mcr.microsoft.com/dotnet/framework/aspnet:4.8 => amw
            mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-1809 => nm
            mcr.microsoft.com/dotnet/aspnet:8.0-windowsservercore-ltsc2022 => am
            mcr.microsoft.com/dotnet/aspnet:8.0 => m
            microsoft/windowsservercore => amhwl
            microsoft/nanoserver:1709 => nmhw
            microsoft/iis:latest => amhwl
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

    #[test]
    fn nano_server_2016_ended_before_its_release() {
        let table = "\
            mcr.microsoft.com/windows/nanoserver:sac2016 => 2018-10-09
            golang:1.9-nanoserver-sac2016 => 2018-10-09
            mcr.microsoft.com/windows/servercore:ltsc2016 => 2027-01-11
            mcr.microsoft.com/windows/nanoserver:1809 => 2029-01-09
            mcr.microsoft.com/windows/nanoserver:20H2 => 2022-08-09";
        for (text, expected) in rows(table) {
            let end = on(text, |image| end_of_support(image, build_hint(image)?.build));
            assert_eq!(
                end.map(|end| end.to_string()).as_deref(),
                Some(expected),
                "{text}"
            );
        }
        assert_eq!(
            on("corp.example/x", |image| end_of_support(image, Build::new(22621))),
            None
        );
    }
}
