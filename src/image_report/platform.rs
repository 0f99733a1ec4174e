//! The platform of `--platform`.

use std::fmt;
use std::str::FromStr;

use crate::model::syntax::text::shown;
use crate::model::windows::build::{Build, RELEASES, Release};
use crate::model::windows::image_facts::ImageVariant;
use crate::model::windows::windows_updates::OsVersion;

/// A platform, `os[/architecture[/variant]][:version]`: what is not named matches everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlatformFilter {
    text: String,
    os: String,
    architecture: Option<String>,
    variant: Option<String>,
    version: Option<(Build, Option<u32>)>,
}

impl FromStr for PlatformFilter {
    type Err = String;

    /// Parses `windows/amd64:10.0.20348`, and `windows(10.0.20348)/amd64` as containerd prints it.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || not_a_platform(text);
        let (plain, version) = match text.split_once('(') {
            Some((os, rest)) => {
                let (version, rest) = rest.split_once(')').ok_or_else(form)?;
                (format!("{os}{rest}"), Some(version))
            }
            None => match text.split_once(':') {
                Some((plain, version)) => (plain.to_owned(), Some(version)),
                None => (text.to_owned(), None),
            },
        };
        let mut parts = plain.split('/');
        let mut part = || parts.next().map(str::to_ascii_lowercase);
        let (os, architecture, variant) = (part().unwrap_or_default(), part(), part());
        let is_word = |word: &str| {
            !word.is_empty()
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let words = [Some(&os), architecture.as_ref(), variant.as_ref()];
        let is_known = matches!(&*os, "windows" | "linux") && release_in(&plain).is_none();
        if !is_known || part().is_some() || !words.into_iter().flatten().all(|word| is_word(word)) {
            return Err(form());
        }
        let version = match version {
            Some(version) => Some(Build::parse_kernel_version(version).ok_or_else(form)?),
            None => None,
        };
        Ok(PlatformFilter {
            text: text.to_owned(),
            os,
            architecture,
            variant,
            version,
        })
    }
}

/// The Windows release whose name is a part of a text, such as `ltsc2022`: an operating system version in its place.
fn release_in(text: &str) -> Option<&'static Release> {
    let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.find_map(|word| {
        RELEASES
            .iter()
            .find(|release| release.name.eq_ignore_ascii_case(word))
    })
}

fn not_a_platform(text: &str) -> String {
    let shown = format!("\"{}\"", shown(text));
    match release_in(text) {
        Some(release) => format!(
            "{shown} is not a platform; write windows/amd64, or windows/amd64:{} for {}",
            release.build, release.name
        ),
        None => {
            format!(
                "{shown} is not a platform; write windows/amd64, windows/amd64:10.0.20348 or linux/arm64/v8"
            )
        }
    }
}

impl PlatformFilter {
    /// Whether it is for Windows.
    pub fn is_windows(&self) -> bool {
        self.os == "windows"
    }

    /// Whether a variant is for this platform; one without an architecture is for each.
    pub fn matches(&self, variant: &ImageVariant) -> bool {
        let is_version = |(build, revision): (Build, Option<u32>)| {
            let of_variant = variant.os_version.filter(|version| version.build == build);
            of_variant.is_some_and(|version| revision.is_none() || version.revision == revision)
        };
        variant.os == self.os
            && (self.architecture.as_ref())
                .is_none_or(|named| variant.architecture.is_empty() || *named == variant.architecture)
            && (self.variant.as_ref()).is_none_or(|named| Some(named) == variant.variant.as_ref())
            && self.version.is_none_or(is_version)
    }
}

impl fmt::Display for PlatformFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some((build, revision)) => {
                write!(f, "{}({})", self.os, OsVersion { build, revision })?;
                let rest = [&self.architecture, &self.variant];
                rest.into_iter()
                    .flatten()
                    .try_for_each(|part| write!(f, "/{part}"))
            }
            None => f.write_str(&self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_is_written_as_docker_or_containerd_write_it() {
        let variant = ImageVariant::new("windows", "amd64", "10.0.20348.2700");
        let linux = ImageVariant {
            variant: Some("v8".to_owned()),
            ..ImageVariant::new("linux", "arm64", "")
        };
        for (text, windows, other) in [
            ("windows", true, false),
            ("windows/amd64", true, false),
            ("Windows/AMD64", true, false),
            ("windows/arm64", false, false),
            ("windows/amd64:10.0.20348", true, false),
            ("windows(10.0.20348.2700)/amd64", true, false),
            ("windows:10.0.20348.2701", false, false),
            ("windows/amd64:10.0.17763", false, false),
            ("linux", false, true),
            ("linux/arm64/v8", false, true),
            ("linux/arm64/v7", false, false),
        ] {
            let platform: PlatformFilter = text.parse().unwrap();
            assert_eq!(platform.matches(&variant), windows, "{text}");
            assert_eq!(platform.matches(&linux), other, "{text}");
        }
        for bad in [
            "",
            "/amd64",
            "windows/",
            "a/b/c/d",
            "windows/amd64:",
            "windows/amd64:ltsc2022",
            "windows(10.0",
            "win dows",
            "freebsd/amd64",
        ] {
            assert!(bad.parse::<PlatformFilter>().is_err(), "{bad}");
        }
        for (release, build) in [
            ("ltsc2022", "10.0.20348"),
            ("windows/LTSC2019", "10.0.17763"),
            ("windows/amd64:23H2", "10.0.25398"),
        ] {
            let error = release.parse::<PlatformFilter>().unwrap_err();
            assert!(
                error.contains(&format!("write windows/amd64, or windows/amd64:{build} for ")),
                "{error}"
            );
        }
        let shown = "windows/amd64:10.0.20348"
            .parse::<PlatformFilter>()
            .unwrap()
            .to_string();
        assert_eq!(shown, "windows(10.0.20348)/amd64");
    }
}
