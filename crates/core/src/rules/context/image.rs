//! What is known about the image of a container: from its registry, else from its name and from what Microsoft publishes.

use std::slice;

use crate::model::cluster::facts::Facts;
use crate::model::objects::pod::{Container, PodSpec};
use crate::model::windows::build::{Build, Compatibility, ContainerIsolation, compatibility};
use crate::model::windows::image::{ImageRef, build_hint, os_hint};
use crate::model::windows::image_facts::{ImageContents, ImageFacts};
use crate::model::windows::os::Os;
use crate::model::windows::windows_updates::{ImageVersions, OsVersion};

/// What is known about a container's image. What its registry reports takes precedence over its name.
#[derive(Clone, Debug)]
pub struct Image<'c> {
    /// The reference as written.
    pub text: &'c str,
    pub reference: ImageRef<'c>,
    /// What its registry reports, if it was asked.
    pub facts: Option<&'c ImageFacts>,
    /// The Windows versions that it exists for; `None` if they are unknown or it has none.
    pub versions: Option<KnownVersions>,
}

/// The Windows versions of an image, and their source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KnownVersions {
    /// A tag names one.
    Tag {
        version: OsVersion,
        /// Whether Microsoft wrote the tag, and the reference has no digest.
        is_certain: bool,
    },
    /// The variants that a registry lists for the architectures of the Windows nodes; at least one.
    Registry(ImageVersions),
    /// The builds for which Microsoft publishes a tag that names none. It can change what the tag contains.
    Published(ImageVersions),
}

impl<'c> Image<'c> {
    /// The images of a pod's containers; `None` for a missing image, or one that the kubelet would not accept.
    pub fn of_pod(pod: &'c PodSpec<'c>, facts: &'c Facts) -> Vec<Option<Image<'c>>> {
        let read = |container: &'c Container<'c>| {
            let text = &**container.image.as_ref()?;
            let reference = ImageRef::parse(text).ok()?;
            let known = facts.image_of(container);
            Some(Image {
                text,
                versions: KnownVersions::of(&reference, known, facts),
                reference,
                facts: known,
            })
        };
        pod.visit_containers()
            .map(|(_, _, container)| read(container))
            .collect()
    }

    /// What its registry lists, if the registry has the image.
    pub fn contents(&self) -> Option<&'c ImageContents> {
        self.facts?.contents()
    }

    /// The operating system that its name indicates.
    pub fn os_of_name(&self) -> Option<Os> {
        os_hint(&self.reference).os()
    }

    /// The build in its name, if its registry lists the image for other builds only.
    pub fn contradicted_build(&self) -> Option<Build> {
        let Some(KnownVersions::Registry(known)) = &self.versions else {
            return None;
        };
        let named = build_hint(&self.reference)?.build;
        (!known.has_unversioned && known.builds().all(|build| build != named)).then_some(named)
    }

    /// The user that it sets, as the kubelet reads it, if its configuration was read; empty if it sets none.
    pub fn user(&self) -> Option<&'c str> {
        let user = self.contents()?.user()?;
        // containerd reads what follows a colon as a group.
        Some(user.split_once(':').map_or(user, |(user, _)| user))
    }
}

/// The architectures of the Windows nodes. Windows Server nodes are amd64 if none is known.
fn node_architectures(facts: &Facts) -> Vec<&str> {
    let known = facts.architectures();
    if known.is_empty() { vec!["amd64"] } else { known }
}

impl KnownVersions {
    /// The versions of an image by its reference as written; `None` if that is not an image reference, or nothing is known.
    pub fn of_image(text: &str, facts: &Facts) -> Option<KnownVersions> {
        let reference = ImageRef::parse(text).ok()?;
        let known = facts.images.get(text).map(|known| &**known);
        KnownVersions::of(&reference, known, facts)
    }

    /// From what the registry reports, else from the tag.
    fn of(reference: &ImageRef<'_>, known: Option<&ImageFacts>, facts: &Facts) -> Option<KnownVersions> {
        match known.and_then(ImageFacts::contents) {
            Some(contents) => KnownVersions::of_registry(contents, &node_architectures(facts)),
            None => KnownVersions::of_tag(reference).or_else(|| {
                let builds = facts.knowledge.shared_builds(reference)?;
                Some(KnownVersions::Published(builds.into_iter().collect()))
            }),
        }
    }

    fn of_tag(reference: &ImageRef<'_>) -> Option<KnownVersions> {
        let hint = build_hint(reference)?;
        Some(KnownVersions::Tag {
            version: OsVersion {
                build: hint.build,
                revision: hint.revision(),
            },
            is_certain: hint.certain,
        })
    }

    fn of_registry(contents: &ImageContents, architectures: &[&str]) -> Option<KnownVersions> {
        /// More than there are releases. Of an image with more, nothing is excluded; the bound keeps the work of rules
        /// in proportion to the pod.
        const MOST: usize = 32;
        let mut known = contents.windows_versions_for(architectures);
        if known.versions.len() > MOST {
            known.versions.truncate(MOST);
            known.has_unversioned = true;
        }
        let is_any = known.has_unversioned || !known.versions.is_empty();
        is_any.then_some(KnownVersions::Registry(known))
    }

    /// The versions, ascending; of each build one.
    pub fn all(&self) -> &[OsVersion] {
        match self {
            KnownVersions::Tag { version, .. } => slice::from_ref(version),
            KnownVersions::Registry(known) | KnownVersions::Published(known) => &known.versions,
        }
    }

    /// Their builds, ascending.
    pub fn builds(&self) -> impl Iterator<Item = Build> {
        self.all().iter().map(|version| version.build)
    }

    /// Whether the registry lists a Windows variant without a version, which containerd pulls on any host.
    pub fn has_unversioned(&self) -> bool {
        matches!(self, KnownVersions::Registry(known) if known.has_unversioned)
    }

    /// Whether they are certain: from a registry, or from a tag of Microsoft's repositories.
    pub fn is_certain(&self) -> bool {
        !matches!(
            self,
            KnownVersions::Published(_)
                | KnownVersions::Tag {
                    is_certain: false,
                    ..
                }
        )
    }

    /// The revision of the version for a build, if known.
    pub fn revision_of(&self, build: Build) -> Option<u32> {
        let mut all = self.all().iter();
        all.find(|version| version.build == build)?.revision
    }

    /// Whether a host runs one of the versions. Nothing is known of one without a version: containerd pulls it on any
    /// host, and only the host shows whether it starts.
    pub fn compatibility(&self, host: Build, isolation: ContainerIsolation) -> Compatibility {
        let mut best = if self.has_unversioned() {
            Compatibility::Unknown
        } else {
            Compatibility::Fails
        };
        for build in self.builds() {
            match (compatibility(build, host, isolation), best) {
                (Compatibility::Runs, _) => return Compatibility::Runs,
                (Compatibility::Unknown, _) => best = Compatibility::Unknown,
                (Compatibility::Disputed, Compatibility::Fails) => best = Compatibility::Disputed,
                _ => {}
            }
        }
        best
    }

    /// Whether no version runs on a host.
    pub fn fail_on(&self, host: Build, isolation: ContainerIsolation) -> bool {
        self.compatibility(host, isolation) == Compatibility::Fails
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(builds: &[u32], has_unversioned: bool) -> KnownVersions {
        let builds = builds.iter().copied().map(Build::new);
        KnownVersions::Registry(ImageVersions {
            has_unversioned,
            ..builds.collect()
        })
    }

    #[test]
    fn an_image_of_several_builds_runs_where_one_of_them_does() {
        use Compatibility::{Disputed, Fails, Runs, Unknown};
        let process = ContainerIsolation::Process;
        for (builds, has_unversioned, host, expected) in [
            (&[17763, 20348][..], false, 17763, Runs),
            (&[17763, 20348], false, 26100, Runs),
            (&[17763, 26100], false, 20348, Fails),
            (&[17763, 20348], false, 26200, Disputed),
            (&[17763, 20348], false, 10240, Unknown),
            (&[17763], true, 20348, Unknown),
            (&[17763], true, 17763, Runs),
            (&[], true, 26100, Unknown),
        ] {
            let got = known(builds, has_unversioned).compatibility(Build::new(host), process);
            assert_eq!(got, expected, "{builds:?} {has_unversioned} on {host}");
        }
    }
}
