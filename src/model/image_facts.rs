//! What a registry reports about an image, as plain data.

use jiff::Timestamp;

use super::build::Build;
use super::os::Os;
use super::revisions::{ImageVersions, OsVersion};

/// The answer of a registry about one image reference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageFacts {
    /// When the registry answered.
    pub looked_up: Timestamp,
    /// What exists there; `None` if the registry has no such image for the credentials that were used.
    pub found: Option<ImageContents>,
}

/// The content behind a digest: an index of variants, or a single image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImageContents {
    /// The digest of the index or of the manifest, such as `sha256:…`.
    pub digest: String,
    /// The variants that a node may pull, in the order of the index: without attestations and entries without a platform.
    pub variants: Vec<ImageVariant>,
}

/// One image of an index, or the only one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImageVariant {
    /// The operating system in Go's words: `windows`, `linux`.
    pub os: String,
    /// The architecture in Go's words: `amd64`, `arm64`; empty if it is not stated.
    pub architecture: String,
    /// The variant of the architecture, such as `v8`.
    pub variant: Option<String>,
    /// The Windows version; `None` for other systems, and if it is missing or not one of Windows. containerd since
    /// 1.6.18 treats a missing version as one that matches any host.
    pub os_version: Option<OsVersion>,
    /// The digest of its manifest.
    pub digest: String,
    /// The sum of the compressed sizes of its layers, in bytes, if its manifest was read.
    pub size: Option<u64>,
    /// Its configuration, if it was read.
    pub config: Option<ImageConfig>,
}

/// What the configuration of an image sets for its containers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImageConfig {
    /// The user; empty if it is not set.
    pub user: String,
    /// The paths of its volumes, ascending.
    pub volumes: Vec<String>,
    /// What runs: the entrypoint, followed by the arguments.
    pub command: Vec<String>,
}

impl ImageVariant {
    /// A variant for an operating system, with its `os.version` if that is one of Windows.
    pub fn new(os: &str, architecture: &str, os_version: &str) -> Self {
        let version = Build::parse_kernel_version(os_version).filter(|_| os == "windows");
        ImageVariant {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            os_version: version.map(|(build, revision)| OsVersion { build, revision }),
            ..ImageVariant::default()
        }
    }

    /// Whether it is for Windows.
    pub fn is_windows(&self) -> bool {
        self.os == "windows"
    }
}

impl ImageContents {
    /// The variants for Windows.
    pub fn windows(&self) -> impl Iterator<Item = &ImageVariant> {
        self.variants.iter().filter(|variant| variant.is_windows())
    }

    /// The only operating system that the image exists for; `None` if there are several, none, or another one than
    /// Windows and Linux.
    pub fn only_os(&self) -> Option<Os> {
        let all =
            |os: &str| !self.variants.is_empty() && self.variants.iter().all(|variant| variant.os == os);
        if all("windows") {
            Some(Os::Windows)
        } else if all("linux") {
            Some(Os::Linux)
        } else {
            None
        }
    }

    /// The Windows versions that the image exists for; empty if it does not exist for Windows.
    pub fn windows_versions(&self) -> ImageVersions {
        let mut versions = ImageVersions::default();
        for variant in self.windows() {
            versions.add(variant.os_version);
        }
        versions
    }
}

impl ImageFacts {
    /// An image that exists with these variants.
    pub fn of(variants: Vec<ImageVariant>, looked_up: Timestamp) -> Self {
        let contents = ImageContents {
            variants,
            ..ImageContents::default()
        };
        ImageFacts {
            looked_up,
            found: Some(contents),
        }
    }

    /// The only operating system of an image that exists; see [`ImageContents::only_os`].
    pub fn only_os(&self) -> Option<Os> {
        self.found.as_ref()?.only_os()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(variants: &[(&str, &str)]) -> ImageContents {
        let variant = |(os, version): &(&str, &str)| ImageVariant::new(os, "amd64", version);
        ImageContents {
            variants: variants.iter().map(variant).collect(),
            ..ImageContents::default()
        }
    }

    #[test]
    fn only_variants_of_one_system_decide() {
        let both = contents(&[("windows", "10.0.20348.2700"), ("linux", "")]);
        assert_eq!(both.only_os(), None);
        assert_eq!(contents(&[]).only_os(), None);
        assert_eq!(contents(&[("freebsd", "")]).only_os(), None);
        assert_eq!(
            contents(&[("linux", ""), ("linux", "")]).only_os(),
            Some(Os::Linux)
        );
        assert_eq!(
            contents(&[("windows", "10.0.20348.2700")]).only_os(),
            Some(Os::Windows)
        );
        assert_eq!(both.windows_versions().revision_of(Build::new(20348)), Some(2700));
        assert!(contents(&[("windows", "")]).windows_versions().has_unversioned);
    }
}
