//! When the update revision (UBR) of an image or a node matters, as data. Microsoft documents that it never does since
//! Server 2019; these are the cases in which it did.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::build::Build;

/// A Windows version, as an image's `os.version` states it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OsVersion {
    pub build: Build,
    /// The update revision (UBR), if stated.
    pub revision: Option<u32>,
}

impl OsVersion {
    /// Reads `10.0.20348.2700` or `10.0.20348`.
    pub fn parse(text: &str) -> Option<Self> {
        let (build, revision) = Build::parse_kernel_version(text)?;
        Some(OsVersion { build, revision })
    }
}

impl TryFrom<String> for OsVersion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        OsVersion::parse(&text).ok_or_else(|| format!("{text:?} is not a version as in 10.0.20348.2700"))
    }
}

impl From<OsVersion> for String {
    fn from(version: OsVersion) -> String {
        version.to_string()
    }
}

/// As an image states it.
impl fmt::Display for OsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.build)?;
        match self.revision {
            Some(revision) => write!(f, ".{revision}"),
            None => Ok(()),
        }
    }
}

/// The Windows versions that an image exists for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImageVersions {
    /// The versions, ascending; of each build the highest revision.
    pub versions: Vec<OsVersion>,
    /// Whether there is an entry for Windows without `os.version`: containerd since 1.6.18 treats it as one that matches
    /// any host, and older releases never pull it.
    pub has_unversioned: bool,
}

impl ImageVersions {
    /// Adds an entry for Windows.
    pub fn add(&mut self, version: Option<OsVersion>) {
        let Some(version) = version else {
            self.has_unversioned = true;
            return;
        };
        match self
            .versions
            .binary_search_by_key(&version.build, |known| known.build)
        {
            Ok(at) => {
                if let Some(known) = self.versions.get_mut(at) {
                    known.revision = known.revision.max(version.revision);
                }
            }
            Err(at) => self.versions.insert(at, version),
        }
    }

    /// The builds, ascending.
    pub fn builds(&self) -> impl Iterator<Item = Build> {
        self.versions.iter().map(|version| version.build)
    }

    /// The revision of the image for a build.
    pub fn revision_of(&self, build: Build) -> Option<u32> {
        let mut versions = self.versions.iter();
        versions.find(|version| version.build == build)?.revision
    }
}

impl FromIterator<Option<OsVersion>> for ImageVersions {
    fn from_iter<I: IntoIterator<Item = Option<OsVersion>>>(entries: I) -> Self {
        let mut all = ImageVersions::default();
        entries.into_iter().for_each(|version| all.add(version));
        all
    }
}

impl FromIterator<Build> for ImageVersions {
    fn from_iter<I: IntoIterator<Item = Build>>(builds: I) -> Self {
        let mut all = ImageVersions::default();
        for build in builds {
            all.add(Some(OsVersion {
                build,
                revision: None,
            }));
        }
        all
    }
}

/// A revision from which images do not start on a node of the same build with a lower one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RevisionBarrier {
    /// The build of both.
    pub build: Build,
    /// The revision that both need.
    pub revision: u32,
    /// Whether reports name both revisions; otherwise users only report that old nodes failed.
    pub is_certain: bool,
    /// The page that documents it.
    pub source: &'static str,
}

/// The known barriers. With process isolation the container fails with 0xc0370106.
static BARRIERS: &[RevisionBarrier] = &[
    // KB5051987: image 26100.3194 on host 26100.2894.
    RevisionBarrier {
        build: Build::new(26100),
        revision: 3194,
        is_certain: true,
        source: "https://github.com/actions/runner-images/issues/11582",
    },
    // KB5058411.
    RevisionBarrier {
        build: Build::new(26100),
        revision: 4061,
        is_certain: true,
        source: "https://github.com/microsoft/Windows-Containers/issues/591",
    },
    // Images of April and May 2025 failed on nodes without recent updates, and ran on 17763.7314.
    RevisionBarrier {
        build: Build::new(17763),
        revision: 7314,
        is_certain: false,
        source: "https://github.com/microsoft/Windows-Containers/issues/591",
    },
];

/// The highest barrier between an image and a node of the same build, if there is one.
pub fn barrier(build: Build, image: u32, node: u32) -> Option<&'static RevisionBarrier> {
    let between = |barrier: &&RevisionBarrier| {
        barrier.build == build && image >= barrier.revision && node < barrier.revision
    };
    BARRIERS.iter().rev().find(between)
}

/// A revision of base images with a known fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultyImage {
    pub version: OsVersion,
    /// What happens: lower case, no full stop.
    pub symptom: &'static str,
    /// What to do: lower case, no full stop.
    pub remedy: &'static str,
    /// The page that documents it.
    pub source: &'static str,
}

/// The known faulty base images.
static FAULTY_IMAGES: &[FaultyImage] = &[FaultyImage {
    version: OsVersion {
        build: Build::new(17763),
        revision: Some(4851),
    },
    symptom: "containers of the ltsc2019 images of September 2023 resolve no names",
    remedy: "use an image of October 2023 or later, such as the tag ltsc2019",
    source: "https://github.com/microsoft/Windows-Containers/issues/420",
}];

/// The fault of base images of a version, if one is known.
pub fn faulty_image(build: Build, revision: u32) -> Option<&'static FaultyImage> {
    let version = OsVersion {
        build,
        revision: Some(revision),
    };
    FAULTY_IMAGES.iter().find(|image| image.version == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_is_between_an_image_and_an_older_node_of_its_build() {
        let between = |build, image, node| barrier(Build::new(build), image, node).map(|it| it.revision);
        assert_eq!(between(26100, 3194, 2894), Some(3194));
        assert_eq!(between(26100, 4061, 2894), Some(4061));
        assert_eq!(between(26100, 4061, 3194), Some(4061));
        assert_eq!(between(26100, 4061, 4061), None);
        assert_eq!(between(26100, 2894, 1742), None);
        assert_eq!(between(26100, 3194, 4061), None);
        assert_eq!(between(17763, 7314, 6893), Some(7314));
        assert_eq!(between(20348, 4297, 1), None);
    }

    #[test]
    fn of_each_build_the_highest_revision_is_kept() {
        let mut image = ImageVersions::default();
        let version = |build, revision| {
            Some(OsVersion {
                build: Build::new(build),
                revision,
            })
        };
        image.add(version(20348, Some(1)));
        image.add(version(17763, None));
        image.add(version(20348, Some(2700)));
        assert!(!image.has_unversioned);
        image.add(None);
        assert!(image.has_unversioned);
        assert_eq!(
            image.builds().map(Build::number).collect::<Vec<_>>(),
            [17763, 20348]
        );
        assert_eq!(image.revision_of(Build::new(20348)), Some(2700));
    }
}
