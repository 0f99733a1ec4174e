//! The platform of `--platform`.

use std::fmt;
use std::str::FromStr;

use super::build_text;
use crate::model::build::Build;
use crate::model::image_facts::ImageVariant;

/// A platform, `os[/architecture[/variant]][:version]`: what is not named matches everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImagePlatform {
    text: String,
    os: String,
    architecture: Option<String>,
    variant: Option<String>,
    version: Option<(Build, Option<u32>)>,
}

impl FromStr for ImagePlatform {
    type Err = String;

    /// Parses `windows/amd64:10.0.20348`, and `windows(10.0.20348)/amd64` as containerd prints it.
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "write a platform as in windows/amd64 or windows/amd64:10.0.20348";
        let form = || FORM.to_owned();
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
        if part().is_some() || !words.into_iter().flatten().all(|word| is_word(word)) {
            return Err(form());
        }
        let version = match version {
            Some(version) => Some(Build::parse_kernel_version(version).ok_or_else(form)?),
            None => None,
        };
        Ok(ImagePlatform {
            text: text.to_owned(),
            os,
            architecture,
            variant,
            version,
        })
    }
}

impl ImagePlatform {
    /// Whether a variant is for this platform.
    pub fn matches(&self, variant: &ImageVariant) -> bool {
        let is_version = |(build, revision): (Build, Option<u32>)| {
            let of_variant = variant.os_version.filter(|version| version.build == build);
            of_variant.is_some_and(|version| revision.is_none() || version.revision == revision)
        };
        variant.os == self.os
            && (self.architecture.as_ref()).is_none_or(|named| *named == variant.architecture)
            && (self.variant.as_ref()).is_none_or(|named| Some(named) == variant.variant.as_ref())
            && self.version.is_none_or(is_version)
    }
}

impl fmt::Display for ImagePlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some((build, revision)) => {
                write!(f, "{}({})", self.os, build_text(build, revision))?;
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
            let platform: ImagePlatform = text.parse().unwrap();
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
        ] {
            assert!(bad.parse::<ImagePlatform>().is_err(), "{bad}");
        }
        let shown = "windows/amd64:10.0.20348"
            .parse::<ImagePlatform>()
            .unwrap()
            .to_string();
        assert_eq!(shown, "windows(10.0.20348)/amd64");
    }
}
