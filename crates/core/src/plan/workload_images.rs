//! What the new build means for the images of a workload, according to the compatibility tables.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::plan_finding::{BlockedBy, FindingSource, PlanFinding, Proposal, RegistryCheck, UpgradeClass};
use crate::model::knowledge::{Knowledge, PublishedTag};
use crate::model::syntax::text::{cut_middle, one_line, shown};
use crate::model::windows::build::{Build, Compatibility, ContainerIsolation, Release, compatibility};
use crate::model::windows::image::{ImageRef, OsHint, build_hint, os_hint, retagged};
use crate::model::windows::image_facts::{ImageContents, ImageFacts};
use crate::model::windows::os::Os;
use crate::model::windows::windows_updates::{ImageVersions, OsVersion, barrier};
use crate::rules;

const VERSIONS: &str =
    "https://learn.microsoft.com/virtualization/windowscontainers/deploy-containers/version-compatibility";
const HOST_PROCESS: &str = "https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/";
const PAUSE: &str = "https://github.com/kubernetes/kubernetes/blob/master/build/pause/CHANGELOG.md";
const TAGS: &str =
    "https://learn.microsoft.com/virtualization/windowscontainers/manage-containers/container-base-images";

const NO_VERSION: &str = "https://github.com/containerd/containerd/pull/8101";

/// A container's image and its field path.
#[derive(Clone, Debug)]
pub(super) struct ImageUse {
    pub path: String,
    pub image: Arc<str>,
}

/// How the containers of a workload are isolated from the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WorkloadIsolation {
    Known(ContainerIsolation),
    /// It names an unknown RuntimeClass: process or Hyper-V isolation.
    InDoubt,
}

/// What is known of images in addition to their names.
pub(super) struct ImageKnowledge<'k> {
    pub target: Build,
    /// Which images Microsoft publishes.
    pub published: &'k Knowledge,
    /// What registries report, by reference as written.
    pub images: &'k HashMap<String, Arc<ImageFacts>>,
    /// Why registries gave no facts about images, by reference as written; `None` if registries are not asked.
    pub unanswered: Option<&'k BTreeMap<String, String>>,
    /// The lowest update revision of the existing nodes of the target build, and such a node.
    pub oldest_node: Option<(u32, &'k str)>,
    /// A RuntimeClass of the cluster with Hyper-V isolation.
    pub hyper_v_class: Option<&'k str>,
}

/// The builds of an image, and their source.
struct KnownBuilds {
    known: ImageVersions,
    how: &'static str,
    source: &'static str,
}

impl KnownBuilds {
    /// An image and one of its builds, for messages.
    fn shown(&self, image: &str, build: Build) -> String {
        let has_several = self.known.builds().nth(1).is_some();
        let is_for = if has_several {
            "has a variant for"
        } else {
            "is for"
        };
        format!(
            "{} {is_for} {}, {}",
            shown_image(image),
            build.with_product(),
            self.how
        )
    }
}

impl ImageKnowledge<'_> {
    /// The finding for one image.
    pub(super) fn state(&self, used: &ImageUse, kernel: WorkloadIsolation) -> PlanFinding {
        let text = &*used.image;
        if kernel == WorkloadIsolation::Known(ContainerIsolation::HostProcess) {
            let name = format!("HostProcess: any image on {} host", self.target);
            let message = format!(
                "{} is in a HostProcess container, whose image need not match its node",
                shown_image(text)
            );
            return PlanFinding::new(
                UpgradeClass::Unchanged,
                &*used.path,
                message,
                FindingSource::row(name, HOST_PROCESS),
            );
        }
        let Ok(image) = ImageRef::parse(text) else {
            let message = format!("\"{}\" is not an image reference", shown(text));
            return PlanFinding::new(
                UpgradeClass::Unknown,
                &*used.path,
                message,
                FindingSource::row("the form of an image reference", TAGS),
            )
            .remedy("correct the image reference");
        };
        if (self.images.get(text)).is_some_and(|known| known.found.is_none()) {
            let message = format!("the registry has no {}", shown_image(text));
            let finding_source = FindingSource::row("an image that does not exist", TAGS);
            return PlanFinding::new(UpgradeClass::Unknown, &*used.path, message, finding_source)
                .remedy("correct the tag, or push the image");
        }
        match self.builds(&image, text) {
            Some(known) => self.unversioned(used, &known).unwrap_or_else(|| {
                self.with_revision(self.of_builds(used, &image, &known, kernel), &known, kernel)
            }),
            None => self.of_name(used, &image),
        }
    }

    fn builds(&self, image: &ImageRef<'_>, text: &str) -> Option<KnownBuilds> {
        let known = |known, how, source| Some(KnownBuilds { known, how, source });
        let one = |build, revision| {
            let mut image = ImageVersions::default();
            image.add(Some(OsVersion { build, revision }));
            image
        };
        if let Some(found) = self.images.get(text).and_then(|facts| facts.found.as_ref()) {
            return known(found.windows_versions(), "by the registry", VERSIONS);
        }
        if let Some(hint) = build_hint(image) {
            let how = if hint.certain {
                "by its tag"
            } else {
                "from its tag"
            };
            return known(one(hint.build, hint.revision()), how, VERSIONS);
        }
        if let Some(builds) = self.published.shared_builds(image) {
            return known(builds.into_iter().collect(), "by Microsoft's list of tags", TAGS);
        }
        let pause = pause(image)?;
        known(pause.into_iter().collect(), "by the list of Kubernetes", PAUSE)
    }

    /// The best of the builds of an image on the target, and how it runs: the newest compatible build, which a pull selects.
    fn best(&self, known: &KnownBuilds, isolation: ContainerIsolation) -> Option<(Compatibility, Build)> {
        let builds = known.known.builds();
        builds
            .map(|build| (compatibility(build, self.target, isolation), build))
            .max()
    }

    fn of_builds(
        &self,
        used: &ImageUse,
        image: &ImageRef<'_>,
        known: &KnownBuilds,
        kernel: WorkloadIsolation,
    ) -> PlanFinding {
        let process = self.best(known, ContainerIsolation::Process);
        let Some((process, build)) = process else {
            let message = format!("{} has no Windows build, {}", shown_image(&used.image), known.how);
            let source = FindingSource::rule(&rules::LINUX_IMAGE_ON_WINDOWS_POD);
            return self.propose(self.new_image(used, message, source), image);
        };
        let hyper_v = self.best(known, ContainerIsolation::HyperV);
        let (hyper_v, isolated) = hyper_v.unwrap_or((process, build));
        let row = |how: &str, build: Build| {
            let name = format!("{how}: {build} image on {} host", self.target);
            FindingSource::row(name, known.source)
        };
        if kernel == WorkloadIsolation::Known(ContainerIsolation::HyperV) {
            let (message, source) = (
                known.shown(&used.image, isolated),
                row("Hyper-V isolation", isolated),
            );
            if hyper_v != Compatibility::Runs {
                return self.propose(self.new_image(used, message, source), image);
            }
            let finding = PlanFinding::new(UpgradeClass::Unchanged, &*used.path, message, source);
            return if process == Compatibility::Runs {
                finding
            } else {
                only_isolated(finding)
            };
        }
        let (message, source) = (known.shown(&used.image, build), row("process isolation", build));
        if process != Compatibility::Fails {
            return self.of_process(used, process, message, source);
        }
        if kernel == WorkloadIsolation::InDoubt && hyper_v == Compatibility::Runs {
            let message =
                format!("{message}, and its RuntimeClass is not known: only Hyper-V isolation runs that");
            return self
                .unknown(used, message, source)
                .remedy("include the RuntimeClass in the input");
        }
        let finding = self.propose(self.new_image(used, message, source), image);
        self.or_hyper_v(finding, hyper_v, image)
    }

    /// The finding for an image that runs with process isolation, or may.
    fn of_process(
        &self,
        used: &ImageUse,
        process: Compatibility,
        message: String,
        source: FindingSource,
    ) -> PlanFinding {
        match process {
            Compatibility::Runs => PlanFinding::new(UpgradeClass::Unchanged, &*used.path, message, source),
            Compatibility::Disputed => {
                let message = format!("{message}; containerd runs that there, and hcsshim may not");
                self.unknown(used, message, source).remedy("try it on one node")
            }
            Compatibility::Unknown | Compatibility::Fails => {
                let message = format!("{message}, and no table documents whether that runs");
                self.unknown(used, message, source)
            }
        }
    }

    /// The finding for an image with an entry without `os.version`, if none of its other entries runs on the target.
    fn unversioned(&self, used: &ImageUse, known: &KnownBuilds) -> Option<PlanFinding> {
        let runs =
            |build| compatibility(build, self.target, ContainerIsolation::Process) == Compatibility::Runs;
        if !known.known.has_unversioned || known.known.builds().any(runs) {
            return None;
        }
        let message = format!(
            "{} has an entry for Windows without os.version, which containerd 1.6.18 and later pulls on every node: its build is not known",
            shown_image(&used.image)
        );
        let finding_source = FindingSource::row("an index entry without os.version", NO_VERSION);
        Some(self.unknown(used, message, finding_source))
    }

    /// The finding for an image that runs unchanged, or a blocking one if an existing node of the target build is known to
    /// be too old for the image's revision.
    fn with_revision(
        &self,
        found: PlanFinding,
        known: &KnownBuilds,
        kernel: WorkloadIsolation,
    ) -> PlanFinding {
        let is_process = kernel == WorkloadIsolation::Known(ContainerIsolation::Process);
        let pair = self.oldest_node.zip(known.known.revision_of(self.target));
        let Some(((of_node, node), image)) =
            pair.filter(|_| is_process && found.class == UpgradeClass::Unchanged)
        else {
            return found;
        };
        let target = self.target;
        let Some(barrier) = barrier(target, image, of_node).filter(|barrier| barrier.is_certain) else {
            return found;
        };
        let needed = barrier.revision;
        let message = format!(
            "{}; such images need nodes of {target}.{needed}, and {node} is {target}.{of_node}",
            found.message
        );
        let finding_source =
            FindingSource::row("a newer revision than the node (0xc0370106)", barrier.source);
        PlanFinding::new(UpgradeClass::Blocked, found.path, message, finding_source).remedy(format!(
            "install the update to {target}.{needed} on these nodes first"
        ))
    }

    fn new_image(&self, used: &ImageUse, message: String, finding_source: FindingSource) -> PlanFinding {
        let finding = PlanFinding::new(UpgradeClass::NewImage, &*used.path, message, finding_source);
        finding.remedy(format!("use an image for {}", self.target.with_product()))
    }

    /// No image for the new build is known: the remaining option is to run the existing one in a Hyper-V
    /// virtual machine.
    fn hyper_v_only(&self, finding: PlanFinding) -> PlanFinding {
        let class = self.hyper_v_class.map_or_else(
            || "a RuntimeClass with the handler runhcs-wcow-hypervisor".to_owned(),
            |name| format!("the RuntimeClass {name}"),
        );
        PlanFinding {
            class: UpgradeClass::HyperVOnly,
            ..finding
        }
        .caused_by(BlockedBy::RuntimeClass)
        .remedy(format!(
            "name {class}, or build the image for {}",
            self.target.with_product()
        ))
    }

    /// Adds Hyper-V isolation, if it runs the image: as another remedy, or as the only one if no image for the new build is known.
    fn or_hyper_v(&self, finding: PlanFinding, hyper_v: Compatibility, image: &ImageRef<'_>) -> PlanFinding {
        if hyper_v != Compatibility::Runs {
            return finding;
        }
        let proposed = finding.proposed.as_ref();
        let may_exist = match proposed {
            Some(proposed) => proposed.verified != RegistryCheck::Missing,
            // Nobody could be asked about an author's own image.
            None => !self.published.lists(image) && self.candidate(image).is_some(),
        };
        if !may_exist {
            return self.hyper_v_only(finding);
        }
        let or = match self.hyper_v_class {
            Some(name) => format!("Hyper-V isolation (RuntimeClass {name})"),
            None => "Hyper-V isolation (a RuntimeClass with the handler runhcs-wcow-hypervisor)".to_owned(),
        };
        let remedy = finding.remedy.clone().unwrap_or_default();
        finding.remedy(format!("{remedy}, or {or}"))
    }

    /// The image that a registry may have for the target's release, following the pattern of this image's tag.
    fn candidate(&self, image: &ImageRef<'_>) -> Option<String> {
        let release = Release::newest_for(self.target, ContainerIsolation::Process)?;
        retagged(image, release).or_else(|| dotnet(image, release))
    }

    /// The images to ask a registry about, so that they can be proposed in place of this one.
    pub(super) fn candidates(&self, used: &ImageUse) -> impl Iterator<Item = String> {
        let image = ImageRef::parse(&used.image).ok();
        let published = image
            .and_then(|image| self.published(&image))
            .map(|tag| tag.image);
        let by_pattern = || image.and_then(|image| self.candidate(&image));
        published.or_else(by_pattern).into_iter()
    }

    /// The image that Microsoft publishes for the target, in place of one of its images.
    fn published(&self, image: &ImageRef<'_>) -> Option<PublishedTag> {
        let of_row = self
            .published
            .published_for(image, self.target, ContainerIsolation::Process);
        let by_pattern = || {
            let candidate = self.candidate(image)?;
            self.published.published(&ImageRef::parse(&candidate).ok()?)
        };
        of_row.or_else(by_pattern)
    }

    /// Adds an image that exists for the target, or that its registry was asked about.
    fn propose(&self, finding: PlanFinding, image: &ImageRef<'_>) -> PlanFinding {
        let published = self.published(image);
        let by_list = published.as_ref().map(|tag| tag.image.clone());
        let Some(proposed) = by_list.or_else(|| self.candidate(image)) else {
            return finding;
        };
        let verified = match (self.images.get(&proposed), &published) {
            (Some(facts), _) => self.registry_check(facts),
            (None, Some(_)) => RegistryCheck::Published,
            (None, None) if self.unanswered.is_none() => {
                let target = self.target.with_product();
                return finding.remedy(format!(
                    "use an image for {target}; with --registry, the plan looks for one by the pattern of this tag"
                ));
            }
            (None, None) => return finding,
        };
        let remedy = match verified {
            RegistryCheck::Missing => format!(
                "build the image for {}: {} would be its name, and the registry has no such image",
                self.target.with_product(),
                shown_image(&proposed)
            ),
            RegistryCheck::Exists => format!("use {proposed} (the registry has it)"),
            RegistryCheck::Published => {
                let state = match published.and_then(|tag| tag.last_build) {
                    Some(day) => format!("Microsoft has not built it since {day}"),
                    None => "Microsoft publishes it".to_owned(),
                };
                format!("use {proposed} ({state})")
            }
        };
        PlanFinding {
            proposed: Some(Proposal {
                image: proposed,
                verified,
            }),
            ..finding.remedy(remedy)
        }
    }

    /// Whether a proposed image exists for the target, by its registry.
    fn registry_check(&self, facts: &ImageFacts) -> RegistryCheck {
        let runs = |build: Build| {
            compatibility(build, self.target, ContainerIsolation::Process) == Compatibility::Runs
        };
        let found = facts.found.as_ref();
        let versions = found.map(ImageContents::windows_versions).unwrap_or_default();
        if versions.builds().any(runs) || versions.has_unversioned {
            RegistryCheck::Exists
        } else {
            RegistryCheck::Missing
        }
    }

    /// The finding for an image whose name does not contain its build.
    fn of_name(&self, used: &ImageUse, image: &ImageRef<'_>) -> PlanFinding {
        let text = shown_image(&used.image);
        match os_hint(image) {
            OsHint::DotnetLinuxOnly => {
                let message = format!("{text} has no Windows variant since .NET 8");
                self.propose(
                    self.new_image(used, message, FindingSource::rule(&rules::DOTNET_TAG_LINUX_ONLY)),
                    image,
                )
            }
            OsHint::LinuxTag(_) | OsHint::LinuxOnlyRepository => {
                let message =
                    format!("{text} is for Linux by its name: it does not run on the current nodes either");
                self.unknown(
                    used,
                    message,
                    FindingSource::rule(&rules::LINUX_IMAGE_ON_WINDOWS_POD),
                )
                .remedy("use an image for Windows, or run it in a pod of its own on Linux nodes")
            }
            _ => {
                let finding_source = if image.is_untagged_or_latest() {
                    FindingSource::rule(&rules::IMAGE_UNTAGGED_OR_LATEST)
                } else {
                    FindingSource::row("the build of an image by its name", TAGS)
                };
                let message = match self.why_unanswered(used) {
                    Some(why) => {
                        format!("the build of {text} is not known from its name or its registry: {why}")
                    }
                    None => {
                        format!("the build of {text} is not known from its name: it may exist for several")
                    }
                };
                self.unknown(used, message, finding_source)
            }
        }
    }

    /// Why the registry gave no facts about an image, if it was asked.
    fn why_unanswered(&self, used: &ImageUse) -> Option<&str> {
        self.unanswered?.get(&*used.image).map(String::as_str)
    }

    fn unknown(&self, used: &ImageUse, message: String, finding_source: FindingSource) -> PlanFinding {
        const TRY: &str = "try it on one node of the new build";
        let image = &*used.image;
        let remedy = if self.why_unanswered(used).is_some() {
            let registry = ImageRef::parse(image).map_or("", |image| image.registry);
            format!("docker login {registry} if it needs credentials, or {TRY}")
        } else if self.unanswered.is_some() || self.images.contains_key(image) {
            TRY.to_owned()
        } else {
            format!(
                "run the plan with --registry, or: transom image {}",
                shown_image(image)
            )
        };
        PlanFinding::new(UpgradeClass::Unknown, &*used.path, message, finding_source).remedy(remedy)
    }
}

/// Whether the name of an image says that it is for Linux.
pub(super) fn names_linux(image: &str) -> bool {
    ImageRef::parse(image).is_ok_and(|image| os_hint(&image).os() == Some(Os::Linux))
}

/// A workload that runs on the new build because it is isolated by Hyper-V.
fn only_isolated(finding: PlanFinding) -> PlanFinding {
    PlanFinding {
        class: UpgradeClass::HyperVOnly,
        ..finding
    }
    .remedy("make sure that these nodes have the handler of its RuntimeClass")
    .note()
}

/// The Windows tag of a .NET image, derived from the tag without a Windows variant.
fn dotnet(image: &ImageRef<'_>, release: &Release) -> Option<String> {
    let of_dotnet = os_hint(image) == OsHint::DotnetLinuxOnly;
    let tag = image.tag.filter(|tag| of_dotnet && *tag != "latest")?;
    Some(format!(
        "{}:{tag}-nanoserver-{}",
        image.familiar_name(),
        release.base_tag(true)?
    ))
}

/// The builds of Kubernetes' pause image, of which one tag contains several.
fn pause(image: &ImageRef<'_>) -> Option<Vec<Build>> {
    let is_pause = matches!(
        (image.registry, image.repository),
        ("registry.k8s.io" | "k8s.gcr.io", "pause") | ("mcr.microsoft.com", "oss/kubernetes/pause")
    );
    let mut numbers = image.tag.filter(|_| is_pause)?.trim_start_matches('v').split('.');
    let mut number = || numbers.next().map_or(Some(0), |part| part.parse::<u32>().ok());
    let version = (number()?, number()?, number()?);
    let builds: &[u32] = match version {
        (3, 4..=5, _) => &[17763],
        (3, 6..=9, _) | (3, 10, 0..=1) => &[17763, 20348],
        _ if version >= (3, 10, 2) => &[17763, 20348, 26100],
        _ => return None,
    };
    Some(builds.iter().copied().map(Build::new).collect())
}

/// An image reference for messages. The middle of a long one is cut, because the tag at its end matters.
pub(super) fn shown_image(text: &str) -> String {
    const LONGEST: usize = 120;
    one_line(&cut_middle(text, LONGEST, 80)).into_owned()
}
