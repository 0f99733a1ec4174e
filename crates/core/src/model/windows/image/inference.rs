//! What the text of an image reference alone shows about its operating system and its Windows build.

use jiff::civil::Date;

use super::{ImageRef, linux, windows};
use crate::model::windows::build::{Build, Release};
use crate::model::windows::os::Os;

/// What the text of a reference shows about the operating system. It is weak evidence: authors choose tags freely.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OsHint<'a> {
    /// The repository contains Windows images only; see [`ImageRef::is_windows_only_repository`].
    WindowsOnlyRepository,
    /// This token of the tag indicates Windows: a base image, a release after a word for Windows, HostProcess, or a word that
    /// means Windows in this repository.
    WindowsTagToken(&'a str),
    /// This token of the tag indicates Linux or a distribution. [`is_certainly_linux`] decides whether it may deny.
    LinuxTag(&'a str),
    /// The repository contains Linux images only, as far as known: enough for a warning, never for a denial.
    LinuxOnlyRepository,
    /// A tag of Microsoft's .NET images, 8.0 or later, without a Windows base: those have no Windows variant. Never
    /// used for a reference with a digest, which may differ from the tag.
    DotnetLinuxOnly,
    /// No evidence, or evidence of both systems.
    None,
}

impl OsHint<'_> {
    /// The operating system that it is evidence of.
    pub fn os(self) -> Option<Os> {
        match self {
            OsHint::WindowsOnlyRepository | OsHint::WindowsTagToken(_) => Some(Os::Windows),
            OsHint::LinuxTag(_) | OsHint::LinuxOnlyRepository | OsHint::DotnetLinuxOnly => Some(Os::Linux),
            OsHint::None => None,
        }
    }
}

/// A Windows build from a tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BuildHint<'a> {
    /// The build in the tag.
    pub build: Build,
    /// The token of the tag: `ltsc2022`, `1809`, `10.0.20348.2700`.
    pub token: &'a str,
    /// Whether Microsoft wrote the tag, and the tag determines the pulled image (the reference has no digest). Only
    /// then may a mismatch be denied; other hints are for placement and warnings.
    pub certain: bool,
}

impl BuildHint<'_> {
    /// The update revision (UBR), if the token states it.
    pub fn revision(&self) -> Option<u32> {
        Build::parse_kernel_version(self.token)?.1
    }
}

/// What the reference's text shows about the operating system. `docs/explanation/inference.md` documents the grammar
/// for users.
///
/// A Windows-only repository decides. Otherwise the tag is split at its dashes and each token is compared as a whole,
/// in any letter case. A few repositories have words of their own. Tokens of both systems in one tag prove nothing.
/// Otherwise a token of either system decides,
/// then a Linux-only repository. The word `windows` alone is not evidence (cross compilers have it in their tags), but
/// a tag with it is not a Linux tag either.
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
    match (windows_token(image), linux_token(tag)) {
        (Some(_), Some(_)) => return OsHint::None,
        (Some(token), None) => return OsHint::WindowsTagToken(token),
        _ if tag
            .split('-')
            .any(|token| is_windows_word(token) || glued(token).is_some()) =>
        {
            return OsHint::None;
        }
        // `linux-amd64` is the variant for Linux.
        (None, Some(token)) if linux::has_windows_variants(image) && !token.eq_ignore_ascii_case("linux") => {
            return OsHint::None;
        }
        (None, Some(token)) => return OsHint::LinuxTag(token),
        (None, None) => {}
    }
    if dotnet && dotnet_major(tag).is_some_and(|major| major >= 8) {
        return OsHint::DotnetLinuxOnly;
    }
    of_repository()
}

/// The token of the tag that makes the image a Windows image, regardless of the rest of the tag.
fn windows_token<'a>(image: &ImageRef<'a>) -> Option<&'a str> {
    let by_any_author = tokens(image.tag).find(|(before, token)| is_windows_token(before, token));
    if let Some((_, token)) = by_any_author {
        return Some(token);
    }
    let of_publisher = || tokens(image.tag).find(|(_, token)| windows::is_tag_word(image, token));
    if let Some((_, token)) = of_publisher() {
        return Some(token);
    }
    // Microsoft publishes no cross compilers: in its tags the word itself is evidence (`ciprod:win-3.1.25`), and so is
    // a release.
    let of_microsoft = || tokens(image.tag).find(|(_, token)| image.is_on_mcr() && is_windows_word(token));
    if let Some((_, token)) = of_microsoft() {
        return Some(token);
    }
    let release = || build_tokens(image).find(|(_, _, build)| build.is_some());
    image.is_microsoft().then(release)?.map(|(_, token, _)| token)
}

/// The first token of a tag that indicates Linux.
fn linux_token(tag: &str) -> Option<&str> {
    tag.split('-').find(|token| linux::is_linux_token(token))
}

/// Whether the name proves that the image is for Linux, so that it may deny a Windows pod.
///
/// This needs a Linux token in the tag, and a reason to trust it: the repository contains Linux images only
/// (`nginx:1.29-alpine`), Microsoft wrote the tag, or the token is `linux` itself (`linux-1.0`, `1.0-linux-amd64`). A
/// distribution in the tag of another author's repository (`corp.example/app:1.0-alpine`) is only weak evidence. A
/// digest next to the tag determines the pulled image: then only the repository is used.
pub fn is_certainly_linux(image: &ImageRef<'_>) -> bool {
    let OsHint::LinuxTag(token) = os_hint(image) else {
        return false;
    };
    let by_tag = || image.is_microsoft() || token.eq_ignore_ascii_case("linux");
    linux::is_linux_only(image) || (image.digest.is_none() && by_tag())
}

/// The build in the reference's tag.
///
/// `ltsc20xx` is used anywhere, and so is a release after `nanoserver`, `windowsservercore`, `servercore`, `windows` or
/// `win`, with a dash between them or without: vendors write `servercore21H2`, `windows-2022`, `winltsc2022`,
/// `windows-ltsc-2022` and `windows-amd64-1809`. Other versions (`1809`, `20H2`, `10.0.20348.2700`) are used only if
/// Microsoft publishes the image and its repository or another word of the tag shows that it is a Windows image; an
/// author's own `1809` may be the version of the application. All of them are whole dash-separated tokens (`v1809` is
/// not). In the image of a product whose versions are years, such as SQL Server, a year is none. A tag with two builds
/// has none, and so does one that also indicates Linux.
pub fn build_hint<'a>(image: &ImageRef<'a>) -> Option<BuildHint<'a>> {
    if image.tag.is_some_and(|tag| linux_token(tag).is_some()) {
        return None;
    }
    let mut found: Option<(Build, &'a str)> = None;
    for (_, token, build) in build_tokens(image) {
        match (build, found) {
            (Some(build), None) => found = Some((build, token)),
            (Some(build), Some((known, _))) if build != known => return None,
            _ => {}
        }
    }
    found.map(|(build, token)| BuildHint {
        build,
        token,
        certain: image.is_microsoft() && image.digest.is_none(),
    })
}

/// The dash-separated tokens of the reference's tag, each with the one before it and its build in that position.
fn build_tokens<'a>(image: &ImageRef<'a>) -> impl Iterator<Item = (&'a str, &'a str, Option<Build>)> {
    let words = || image.tag.into_iter().flat_map(|tag| tag.split('-'));
    let bare = image.is_microsoft() && (image.is_windows_only_repository() || words().any(is_windows_word));
    let has_years = windows::is_product_with_years(image);
    tokens(image.tag).map(move |(before, token)| {
        let is_year = || VENDORS_NAMES.iter().any(|(name, _)| token.ends_with(name));
        let build = if has_years && !is_ltsc(token) && is_year() {
            None
        } else if let Some((_, build)) = glued(token) {
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
        (before, token, build)
    })
}

/// The reference that the same author's image for another release would have according to the pattern of this tag: each
/// word for a build is replaced with that of the release, in the same spelling if the release has one. The image may
/// not exist.
///
/// `None` if the tag has no build, or the release has no base image.
pub fn retagged(image: &ImageRef<'_>, release: &Release) -> Option<String> {
    build_hint(image)?;
    let nano_server = image.is_nano_server();
    let words: Vec<String> = build_tokens(image)
        .filter(|(_, token, _)| !is_knowledge_base(token))
        .map(|(before, token, build)| match build {
            Some(_) => respelled(before, token, release, nano_server),
            None => Some(token.to_owned()),
        })
        .collect::<Option<_>>()?;
    let repository = image
        .mcr_equivalent()
        .map_or_else(|| image.familiar_name(), str::to_owned);
    Some(format!("{repository}:{}", words.join("-")))
}

/// A word of a tag for another release, in the spelling of the word that it replaces.
fn respelled(before: &str, token: &str, release: &Release, nano_server: bool) -> Option<String> {
    let own = release.base_tag(nano_server)?;
    // Vendors use years and half-years for long-term releases; for others, use Microsoft's own name.
    let vendors = |likeness: fn(&str) -> bool| {
        let mut names = VENDORS_NAMES.iter();
        names
            .find(|(name, build)| Build::new(*build) == release.build && likeness(name))
            .map_or(own, |(name, _)| *name)
    };
    let alike = |text: &str| match text {
        year if year.len() == 4
            && year.starts_with("20")
            && year.bytes().all(|b| b.is_ascii_digit())
            && year != "2004" =>
        {
            vendors(|name| !name.contains('H'))
        }
        "21H2" | "21h2" | "24H2" | "24h2" => vendors(|name| name.contains('H')),
        _ => own,
    };
    let of_ltsc = before.eq_ignore_ascii_case("ltsc");
    Some(match glued(token) {
        Some((word, _)) => format!("{word}{}", alike(token.get(word.len()..)?)),
        None if of_ltsc => own.strip_prefix("ltsc")?.to_owned(),
        None => alike(token).to_owned(),
    })
}

/// `KB5005039`: an update of one release.
fn is_knowledge_base(token: &str) -> bool {
    let number = token.strip_prefix("KB").or_else(|| token.strip_prefix("kb"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The last day of support for an image of this build; for Nano Server that can be before the end of its release.
/// `None` if undocumented. The build comes from [`build_hint`] or from a registry.
pub fn end_of_support(image: &ImageRef<'_>, build: Build) -> Option<Date> {
    let release = build.release()?;
    release
        .nano_server_end
        .filter(|_| image.is_nano_server())
        .or_else(|| release.end_of_support())
}

/// The dash-separated tokens of a tag, each with the one before it (empty before the first). An architecture after a
/// word for Windows is skipped: the release of `windows-amd64-1809` comes after `windows`.
pub(super) fn tokens(tag: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let mut before = "";
    let split = tag.into_iter().flat_map(|tag| tag.split('-'));
    split.map(move |token| {
        let pair = (before, token);
        if !(is_windows_word(before) && is_one_of(token, &["amd64", "arm64", "x64"])) {
            before = token;
        }
        pair
    })
}

/// The build of a token that always means one.
fn build_of(token: &str) -> Option<Build> {
    if let Some(release) = Release::from_tag(token) {
        return Some(release.build);
    }
    match Build::parse_kernel_version(token)? {
        (build, Some(_)) => build.release().map(|release| release.build),
        (_, None) => None, // no tag is a build without its revision
    }
}

/// Names of releases that Microsoft's own tags do not use, but other vendors use after a word for Windows.
static VENDORS_NAMES: &[(&str, u32)] = &[
    ("2016", 14393),
    ("2019", 17763),
    ("2022", 20348),
    ("21H2", 20348),
    ("2025", 26100),
    ("24H2", 26100),
];

/// The build of a token after a word for Windows.
pub(super) fn release_after(token: &str) -> Option<Build> {
    build_of(token).or_else(|| {
        let known = VENDORS_NAMES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(token));
        known.map(|(_, build)| Build::new(*build))
    })
}

/// A word for Windows and a release in one token: `servercore21H2`, `winltsc2022`.
pub(super) fn glued(token: &str) -> Option<(&str, Build)> {
    // Longer words first, because some are prefixes of others.
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

/// A word before a Windows version.
fn is_base_word(token: &str) -> bool {
    is_one_of(token, &["nanoserver", "windowsservercore", "servercore"])
}

/// A word that indicates Windows in a tag of Microsoft's.
fn is_windows_word(token: &str) -> bool {
    is_base_word(token) || is_one_of(token, &["windows", "win"])
}

/// `ltsc` and a year of this century, so that future releases are recognized as Windows.
fn is_ltsc(token: &str) -> bool {
    let (Some(word), Some(year)) = (token.get(..4), token.get(4..)) else {
        return false;
    };
    word.eq_ignore_ascii_case("ltsc")
        && year.len() == 4
        && year.starts_with("20")
        && year.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a token, after the one before it, is evidence of Windows in any author's tag: a base image, a release after
/// a word for Windows, or HostProcess, which exists only on Windows. `servercore` alone could be the core of a server.
fn is_windows_token(before: &str, token: &str) -> bool {
    let after_a_word = is_windows_word(before) || before.eq_ignore_ascii_case("ltsc");
    is_ltsc(token)
        || is_one_of(token, &["nanoserver", "windowsservercore", "hostprocess"])
        || (after_a_word && release_after(token).is_some())
        || glued(token).is_some()
        || (before.eq_ignore_ascii_case("windows") && token.eq_ignore_ascii_case("hp"))
}

/// The major version of a .NET tag: 8 of `8.0`, `8.0.4-amd64`, `8`. A date is not a version.
fn dotnet_major(tag: &str) -> Option<u8> {
    let version = tag.split('-').next()?;
    let major = version.split('.').next()?;
    let numeric = version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if numeric { major.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::windows::build::RELEASES;
    use crate::model::windows::image::tests::{on, rows};

    #[test]
    #[allow(clippy::too_many_lines)] // one table
    fn a_build_is_read_from_tags_that_can_only_mean_one() {
        // Text: build, token, and `!` if it is certain; `-` if there is none.
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
            corp.example/app:1-windows-arm64-2025 => 26100 2025 ?
            corp.example/mssql:windows-2016 => -
            corp.example/mssql/server:windows-2019 => -
            corp.example/mssql/tools/server:windows-2019 => 17763 2019 ?
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
            corp.example/app:amd64-1809 => -
            corp.example/app:1.0-alpine-ltsc2022 => -
            corp.example/app:1.0-linux-amd64-ltsc2022 => -
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
            corp.example/sqlserver:windows-2019 => -
            corp.example/sqlserver:windows2019 => -
            corp.example/mssql-server:2019-windows-2019 => -
            corp.example/sqlserver:2019-ltsc2022 => 20348 ltsc2022 ?
            corp.example/sqlserver:2019-windowsservercore-1809 => 17763 1809 ?
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
    fn the_tag_of_another_release_keeps_the_pattern_of_this_one() {
        // Image, release, proposal; `-` if there is none.
        let table = "\
            mcr.microsoft.com/windows/servercore:ltsc2022 ltsc2025 => mcr.microsoft.com/windows/servercore:ltsc2025
            mcr.microsoft.com/windows/nanoserver:1809 ltsc2025 => mcr.microsoft.com/windows/nanoserver:ltsc2025
            mcr.microsoft.com/windows/nanoserver:ltsc2025 ltsc2019 => mcr.microsoft.com/windows/nanoserver:1809
            mcr.microsoft.com/windows/nanoserver:ltsc2025 ltsc2016 => mcr.microsoft.com/windows/nanoserver:sac2016
            mcr.microsoft.com/windows/nanoserver:1809-KB4551853 ltsc2022 => mcr.microsoft.com/windows/nanoserver:ltsc2022
            mcr.microsoft.com/windows/nanoserver:20H2-amd64 ltsc2022 => mcr.microsoft.com/windows/nanoserver:ltsc2022-amd64
            mcr.microsoft.com/windows/servercore:10.0.20348.2700 ltsc2025 => mcr.microsoft.com/windows/servercore:ltsc2025
            mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-1809 ltsc2025 => mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-ltsc2025
            mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-1809@D ltsc2025 => mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-ltsc2025
            corp.example:5000/web:1.4-ltsc2019 ltsc2025 => corp.example:5000/web:1.4-ltsc2025
            golang:1.22-windowsservercore-1809 ltsc2022 => golang:1.22-windowsservercore-ltsc2022
            shop/web:1.4-windows-2019 ltsc2025 => shop/web:1.4-windows-2025
            shop/web:1.4-windows-ltsc-2019 ltsc2025 => shop/web:1.4-windows-ltsc-2025
            shop/web:1.4-winltsc2022 ltsc2025 => shop/web:1.4-winltsc2025
            shop/web:servercore21H2 ltsc2025 => shop/web:servercore24H2
            microsoft/iis:windowsservercore-1709 ltsc2022 => mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022
            mcr.microsoft.com/windows/servercore:ltsc2022 23H2 => -
            shop/web:1.4 ltsc2025 => -
            shop/web:1.4-ltsc2019-ltsc2022 ltsc2025 => -";
        for (text, expected) in rows(table) {
            let (image, name) = text.split_once(' ').unwrap();
            let release = RELEASES.iter().find(|release| release.name == name).unwrap();
            let got = on(image, |image| retagged(image, release));
            assert_eq!(got.as_deref().unwrap_or("-"), expected, "{text}");
        }
    }

    #[test]
    fn every_tag_of_every_release_is_read_on_microsofts_base_images() {
        for release in RELEASES {
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
    #[allow(clippy::too_many_lines)] // one table
    fn the_operating_system_is_recognised_by_well_known_names_only() {
        let table = "\
            mcr.microsoft.com/windows => WindowsOnlyRepository
            mcr.microsoft.com/windows/nanoserver@D => WindowsOnlyRepository
            mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022 => WindowsOnlyRepository
            mcr.microsoft.com/dotnet/framework/aspnet:4.8 => WindowsOnlyRepository
            # Only Microsoft's own path is a sign.
            corp.example/mirror/dotnet/framework/runtime:4.8 => None
            corp.example/dotnet/framework/sdk:4.8 => None
            corp.example/dotnet/framework/sdk:4.8-windowsservercore-ltsc2022 => WindowsTagToken windowsservercore
            mcr.microsoft.com/dotnet/framework => WindowsOnlyRepository
            calico/windows:v3.24.5 => WindowsOnlyRepository
            quay.io/calico/node-windows:v3.28.1@D => WindowsOnlyRepository
            corp.example/calico/windows:v3.24.5 => None
            docker.io/calico/windows-upgrade:v3 => None
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
            # Only Windows images have a release of Windows.
            corp.example/x:windows-2022-amd64 => WindowsTagToken 2022
            fluent/fluent-bit:windows-2022-3.0.4 => WindowsTagToken 2022
            otel/opentelemetry-collector-contrib:0.110.0-windows-2022-amd64 => WindowsTagToken 2022
            corp.example/x:1.0-windows-ltsc-2022 => WindowsTagToken 2022
            corp.example/x:v1-windows-amd64-1809 => WindowsTagToken 1809
            corp.example/x:1.0-Win2019 => WindowsTagToken Win2019
            sigwindowstools/kube-proxy:v1.32.13-calico-hostprocess => WindowsTagToken hostprocess
            registry.k8s.io/sig-storage/smbplugin:v1.20.3-windows-hp => WindowsTagToken hp
            corp.example/x:1.0-hp => None
            # The word alone is a sign on Microsoft's registry only: cross compilers have it too.
            mcr.microsoft.com/azuremonitor/containerinsights/ciprod:win-3.1.25 => WindowsTagToken win
            corp.example/ciprod:win-3.1.25 => None
            rustembedded/cross:x86_64-pc-windows-gnu => None
            corp.example/x:1.0-windows-amd64 => None
            # Signs of both systems.
            corp.example/x:1.0-alpine-windows2022 => None
            corp.example/x:1.0-alpine-ltsc2022 => None
            mcr.microsoft.com/x:1.0-linux-win => None
            gcr.io/k8s-staging-e2e-test-images/windows-servercore-cache:1.0-linux-amd64-ltsc2022 => None
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
            # Words that mean Windows in some repositories.
            gcr.io/datadoghq/agent:7-servercore => WindowsTagToken servercore
            datadog/agent:latest-servercore => WindowsTagToken servercore
            public.ecr.aws/datadog/agent:7-servercore-jmx => WindowsTagToken servercore
            datadog/agent:7 => None
            corp.example/agent:7-servercore => None
            grafana/agent:v0.44.2-windows => WindowsTagToken windows
            grafana/agent:v0.44.2-linux-windows => None
            corp.example/agent:v0.44.2-windows => None
            quay.io/signalfx/splunk-otel-collector-windows:0.138.0 => WindowsOnlyRepository
            corp.example/sqlserver:windows-2019 => WindowsTagToken 2019
            # The same tag is for both systems.
            k8sprow.azurecr.io/kubernetes-e2e-test-images/nginx:1.14-alpine => None
            registry.k8s.io/e2e-test-images/nginx:1.14-alpine => None
            registry.k8s.io/e2e-test-images/agnhost:2.40-linux-amd64 => LinuxTag linux
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
            mcr.microsoft.com/dotnet/sdk:8.0-windows => WindowsTagToken windows
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
    fn a_linux_name_is_certain_if_its_publisher_is_known_or_it_says_linux() {
        let table = "\
            nginx:1.29-alpine => yes
            nginx:1.29-alpine@D => yes
            docker.io/bitnami/redis:7.2.4-debian-12-r9 => yes
            mcr.microsoft.com/dotnet/aspnet:8.0-jammy => yes
            corp.example/app:linux-1.0 => yes
            corp.example/app:1.0-Linux-amd64 => yes
            # Another author's tag, or one next to a digest, can say anything.
            corp.example/app:1.0-alpine => no
            corp.example/bitnami/redis:7.2.4-debian-12-r9 => no
            corp.example/app:1.0-amazonlinux2 => no
            corp.example/app:1.0-linux@D => no
            # One sign alone.
            nginx:1.29 => no
            docker.io/istio/proxyv2:1.27.1 => no
            mcr.microsoft.com/dotnet/aspnet:8.0 => no
            # Signs of both.
            nginx:1.29-alpine-ltsc2022 => no
            corp.example/app:1.0-linux-windows => no
            mcr.microsoft.com/windows/nanoserver:linux => no";
        for (text, expected) in rows(table) {
            let got = if on(text, is_certainly_linux) { "yes" } else { "no" };
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
