//! What a registry reports about an image, as plain data.

use std::cmp::Reverse;
use std::fmt;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::build::{Build, Compatibility, ContainerIsolation, compatibility};
use super::os::Os;
use super::windows_updates::{ImageVersions, OsVersion};

/// The answer of a registry about one image reference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageFacts {
    /// When the registry answered.
    pub looked_up: Timestamp,
    /// What exists there; `None` if the registry has no such image for the credentials that were used.
    pub found: Option<ImageContents>,
}

/// The content behind a digest: an index of variants, or a single image.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ImageContents {
    /// The digest of the index or of the manifest, such as `sha256:…`.
    pub digest: String,
    /// The variants that a node may pull, in the order of the index: without attestations and entries without a platform.
    pub variants: Vec<ImageVariant>,
}

/// One image of an index, or the only one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
    /// Its layers, the lowest first; empty if its manifest was not read, or if they are not worth keeping.
    pub layers: Vec<ImageLayer>,
    /// Its configuration, if it was read.
    pub config: Option<ImageConfig>,
}

/// A layer. Nodes pull a layer once, whichever images have it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImageLayer {
    /// The digest of its compressed content.
    pub digest: String,
    /// Its compressed size in bytes.
    pub size: u64,
}

/// What the configuration of an image sets for its containers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ImageConfig {
    /// The user; empty if it is not set.
    pub user: String,
    /// The paths of its volumes, ascending.
    pub volumes: Vec<String>,
    /// What runs: the entrypoint, followed by the arguments.
    pub command: Vec<String>,
    /// The last layer of Windows in its history; `None` if the history has none.
    pub base: Option<WindowsBase>,
}

/// A layer of Windows in the history of an image: the base, or an update of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WindowsBase {
    /// The version that it brings.
    pub version: OsVersion,
    /// The day on which it was built, in UTC.
    pub date: Date,
}

impl WindowsBase {
    /// Reads an entry of a history: Microsoft writes `Apply image 10.0.20348.1` and `Install update 10.0.20348.5622`.
    pub fn of_history(created_by: &str, created: &str) -> Option<Self> {
        let created_by = created_by.trim();
        let version = ["Install update ", "Apply image "]
            .iter()
            .find_map(|what| created_by.strip_prefix(what))?;
        Some(WindowsBase {
            version: OsVersion::parse(version.trim())?,
            date: created.parse::<Timestamp>().ok()?.to_zoned(TimeZone::UTC).date(),
        })
    }

    /// How many days it is old; negative for a day to come.
    pub fn age(&self, today: Date) -> i32 {
        (today - self.date).get_days()
    }
}

impl ImageVariant {
    /// A variant for an operating system, with its `os.version` if that is one of Windows.
    pub fn new(os: &str, architecture: &str, os_version: &str) -> Self {
        ImageVariant {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            os_version: OsVersion::parse(os_version).filter(|_| os == "windows"),
            ..ImageVariant::default()
        }
    }

    /// Whether it is for Windows.
    pub fn is_windows(&self) -> bool {
        self.os == "windows"
    }
}

/// The variant that a node pulls, and how likely it runs there. A node pulls only variants of its architecture; a variant
/// without one matches every architecture. containerd pulls a variant without a version on every node.
pub fn best_variant<'v>(
    windows: impl IntoIterator<Item = &'v ImageVariant>,
    host: Option<Build>,
    architecture: &str,
    isolation: ContainerIsolation,
) -> Option<(Compatibility, &'v ImageVariant)> {
    let of_architecture =
        |variant: &&ImageVariant| variant.architecture.is_empty() || variant.architecture == architecture;
    let each = windows.into_iter().filter(of_architecture).map(|variant| {
        let runs = match (variant.os_version, host) {
            (Some(version), Some(host)) => compatibility(version.build, host, isolation),
            _ => Compatibility::Unknown,
        };
        (runs, variant)
    });
    each.min_by_key(|(runs, variant)| {
        let build = variant.os_version.map(|version| version.build);
        let revision = variant.os_version.and_then(|version| version.revision);
        // containerd prefers the build of the host, then the newest.
        Reverse((*runs, build.is_some() && build == host, build, revision))
    })
}

impl ImageContents {
    /// The variants for Windows.
    pub fn windows(&self) -> impl Iterator<Item = &ImageVariant> {
        self.variants.iter().filter(|variant| variant.is_windows())
    }

    /// The newest layer of Windows in its variants; `None` if no configuration shows one.
    pub fn windows_base(&self) -> Option<&WindowsBase> {
        let configs = self.windows().filter_map(|variant| variant.config.as_ref());
        configs
            .filter_map(|config| config.base.as_ref())
            .max_by_key(|base| base.date)
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
        self.windows().map(|variant| variant.os_version).collect()
    }

    /// The Windows versions that the image exists for on nodes of these architectures; a variant without an
    /// architecture applies to each.
    pub fn windows_versions_for(&self, architectures: &[&str]) -> ImageVersions {
        let is_for = |variant: &&ImageVariant| {
            variant.architecture.is_empty() || architectures.contains(&&*variant.architecture)
        };
        self.windows()
            .filter(is_for)
            .map(|variant| variant.os_version)
            .collect()
    }

    /// The user that the image sets: that of its Windows variants, if their configurations were read and agree.
    pub fn user(&self) -> Option<&str> {
        let mut users = self
            .windows()
            .filter_map(|variant| Some(&*variant.config.as_ref()?.user));
        let first = users.next()?;
        users.all(|user| user == first).then_some(first)
    }

    /// The same with the lowest layers only. All layers are most of the memory of an answer; what images share is mostly the
    /// image of Windows below them, which has one layer or two.
    #[must_use]
    pub fn with_base_layers(mut self) -> Self {
        /// Windows, and what a framework adds.
        const BASE: usize = 4;
        for variant in &mut self.variants {
            variant.layers.truncate(BASE);
            variant.layers.shrink_to_fit();
        }
        self
    }

    /// The first 12 hexadecimal digits of the digest, after its algorithm: `sha256:0123456789ab`.
    pub fn short_digest(&self) -> &str {
        short_digest(&self.digest)
    }
}

/// The first 12 hexadecimal digits of a digest, after its algorithm: `sha256:0123456789ab`.
pub fn short_digest(digest: &str) -> &str {
    const DIGITS: usize = 12;
    let algorithm = digest.find(':').map_or(0, |colon| colon + 1);
    digest.get(..algorithm + DIGITS).unwrap_or(digest)
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

    /// What the image contains, if the registry has the image and a variant that a node may pull. Without a variant the
    /// registry says nothing about operating systems.
    pub fn contents(&self) -> Option<&ImageContents> {
        self.found
            .as_ref()
            .filter(|contents| !contents.variants.is_empty())
    }

    /// The only operating system of an image that exists; see [`ImageContents::only_os`].
    pub fn only_os(&self) -> Option<Os> {
        self.found.as_ref()?.only_os()
    }
}

/// What was looked up and when, for texts: `sha256:0123456789ab, 2026-01-01T00:00Z`.
impl fmt::Display for ImageFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.found.as_ref().map_or("", ImageContents::short_digest);
        if !digest.is_empty() {
            write!(f, "{digest}, ")?;
        }
        write!(f, "{}", self.looked_up.strftime("%Y-%m-%dT%H:%MZ"))
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
    fn the_lowest_layers_are_kept_and_the_size_is_that_of_all() {
        let mut contents = contents(&[("windows", "10.0.20348.1")]);
        let variant = &mut contents.variants[0];
        let layer = |size: u64| ImageLayer {
            digest: format!("sha256:{size}"),
            size,
        };
        (variant.layers, variant.size) = ((1..=9).map(layer).collect(), Some(45));
        let kept = contents.with_base_layers().variants.remove(0);
        assert_eq!(kept.layers, (1..=4).map(layer).collect::<Vec<_>>());
        assert_eq!(kept.size, Some(45));
    }

    #[test]
    fn texts_have_a_short_digest_and_the_minute_of_the_look_up() {
        let looked_up: Timestamp = "2026-01-01T12:34:56.789Z".parse().unwrap();
        let text = |digest: &str| {
            let mut facts = ImageFacts::of(Vec::new(), looked_up);
            digest.clone_into(&mut facts.found.as_mut().unwrap().digest);
            facts.to_string()
        };
        assert_eq!(
            text("sha256:0123456789abcdef0123456789abcdef"),
            "sha256:0123456789ab, 2026-01-01T12:34Z"
        );
        assert_eq!(text("sha256:01"), "sha256:01, 2026-01-01T12:34Z");
        assert_eq!(text(""), "2026-01-01T12:34Z");
        let missing = ImageFacts {
            looked_up,
            found: None,
        };
        assert_eq!(missing.to_string(), "2026-01-01T12:34Z");
    }

    #[test]
    fn the_user_is_known_if_the_windows_variants_agree() {
        let with = |os: &str, user: Option<&str>| ImageVariant {
            config: user.map(|user| ImageConfig {
                user: user.to_owned(),
                ..ImageConfig::default()
            }),
            ..ImageVariant::new(os, "amd64", "")
        };
        let user = |variants: Vec<ImageVariant>| {
            let contents = ImageContents {
                variants,
                ..ImageContents::default()
            };
            contents.user().map(str::to_owned)
        };
        let admin = "ContainerAdministrator";
        assert_eq!(
            user(vec![with("linux", Some("root")), with("windows", Some(admin))]).as_deref(),
            Some(admin)
        );
        assert_eq!(
            user(vec![with("windows", Some(admin)), with("windows", Some(""))]),
            None
        );
        assert_eq!(user(vec![with("windows", None)]), None);
        assert_eq!(user(vec![with("windows", Some(""))]).as_deref(), Some(""));
    }

    #[test]
    fn variants_count_for_the_architectures_of_the_nodes() {
        let contents = ImageContents {
            variants: vec![
                ImageVariant::new("windows", "arm64", "10.0.26100.1"),
                ImageVariant::new("windows", "amd64", "10.0.20348.1"),
                ImageVariant::new("windows", "", "10.0.17763.1"),
            ],
            ..ImageContents::default()
        };
        let of = |architectures: &[&str]| {
            let versions = contents.windows_versions_for(architectures);
            versions.builds().map(Build::number).collect::<Vec<_>>()
        };
        assert_eq!(of(&["amd64"]), [17763, 20348]);
        assert_eq!(of(&["arm64"]), [17763, 26100]);
        assert_eq!(of(&["amd64", "arm64"]), [17763, 20348, 26100]);
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
