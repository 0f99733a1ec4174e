//! What an image is: its variants, and which Windows releases and nodes run it, according to the tables that the rules
//! use. Pure: it is shown what a registry answered.

mod platform;

use jiff::Timestamp;
use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

pub use self::platform::PlatformFilter;
use crate::model::nodes::node::{ARCH_LABEL, Host};
use crate::model::windows::build::{Build, Compatibility, ContainerIsolation, RELEASES};
use crate::model::windows::image_facts::{
    ImageContents, ImageFacts, ImageVariant, WindowsBase, best_variant,
};
use crate::model::windows::os::Os;
use crate::model::windows::windows_updates::{OsVersion, barrier};

/// The schema of the reports.
pub const SCHEMA: &str = "transom.dev/image/v1";

/// The architecture of Windows nodes in Kubernetes.
const AMD64: &str = "amd64";

/// What images are, and where they run.
#[derive(Serialize, Debug, JsonSchema)]
#[schemars(title = "Report of transom image -o json")]
pub struct ImageReports {
    /// The name and the version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The images, in the order of the arguments.
    pub images: Vec<ImageReport>,
}

/// Whether an image exists.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageStatus {
    /// It exists.
    Found,
    /// The registry has no such image, or no variant for the requested platform.
    Missing,
    /// The registry did not answer.
    #[default]
    Unknown,
}

/// What an image is.
#[derive(Serialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageReport {
    /// The reference as written.
    pub reference: String,
    /// Whether it exists.
    pub status: ImageStatus,
    /// Why it does not exist, or is not known; null if it exists.
    pub message: Option<String>,
    /// The digest of the index, or of the manifest; null if it is not known.
    pub digest: Option<String>,
    /// When the registry answered; null if it did not.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub looked_up: Option<Timestamp>,
    /// Whether the answer is from the cache.
    pub cached: bool,
    /// What its name shows, if the registry did not answer; then releases and nodes are those for its builds. Otherwise null.
    pub by_name: Option<NameReport>,
    /// The variants, in the order of the index.
    pub variants: Vec<VariantReport>,
    /// The Windows Server releases, ascending; empty if it has no variant for Windows.
    pub releases: Vec<ReleaseReport>,
    /// The Windows nodes, by name; null if none were requested, or if the requested platform is not Windows.
    pub nodes: Option<Vec<NodeReport>>,
    /// Whether only variants of another operating system were requested: releases and nodes are then not meant.
    #[serde(skip)]
    pub is_without_windows: bool,
}

/// What the name of an image shows, as the rules and `plan` read it.
#[derive(Serialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameReport {
    /// The operating system, as in `windows`.
    pub os: &'static str,
    /// The builds of Windows, ascending; empty if the name shows none, or another operating system.
    #[schemars(with = "Vec<String>")]
    #[serde(serialize_with = "builds_as_text")]
    pub builds: Vec<Build>,
    /// Whether they are certain, because Microsoft wrote the tag. Others may name their images as they like.
    pub is_certain: bool,
}

fn builds_as_text<S: Serializer>(builds: &[Build], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(builds.iter().map(ToString::to_string))
}

/// One variant.
#[derive(Serialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariantReport {
    /// The operating system, as in `windows`.
    pub os: String,
    /// The architecture, as in `amd64`; empty if it is not stated.
    pub architecture: String,
    /// The variant of the architecture, such as `v8`; null if it is not stated.
    pub variant: Option<String>,
    /// The Windows version: build, and revision if it is stated. Null for other operating systems, or if it is not stated.
    pub os_version: Option<String>,
    /// The digest of its manifest.
    pub digest: String,
    /// The sum of the compressed sizes of its layers, in bytes; null if its manifest was not read.
    pub size: Option<u64>,
    /// The user; empty if it is not set. Null if the configuration was not read.
    pub user: Option<String>,
    /// The paths of its volumes; null if the configuration was not read.
    pub volumes: Option<Vec<String>>,
    /// The entrypoint, followed by the arguments; null if the configuration was not read.
    pub command: Option<Vec<String>>,
    /// The last layer of Windows in its history; null if its configuration was not read or shows none.
    pub base: Option<BaseReport>,
}

/// The Windows base of an image.
#[derive(Serialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BaseReport {
    /// The version of the base or of its last update, as in `10.0.20348.5622`.
    pub os_version: String,
    /// The day on which it was built.
    #[schemars(with = "String", extend("format" = "date"))]
    pub date: Date,
    /// The tag of Microsoft's base images with the newest update of this release, as in `ltsc2022`; null if Microsoft has none.
    pub current_tag: Option<&'static str>,
}

impl BaseReport {
    fn of(base: &WindowsBase) -> Self {
        let release = base.version.build.release();
        BaseReport {
            os_version: base.version.to_string(),
            date: base.date,
            current_tag: release
                .map(|release| release.name)
                .filter(|name| name.starts_with("ltsc")),
        }
    }
}

/// Whether something runs.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Runs {
    /// It does not.
    No,
    /// No table contains the builds, or the image does not state its version.
    Unknown,
    /// The tables of containerd and hcsshim disagree.
    Disputed,
    /// It does.
    Yes,
}

/// Whether an image runs with an isolation, and which of its variants.
#[derive(Serialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IsolationReport {
    /// Whether it runs.
    pub runs: Runs,
    /// The Windows version of the best variant; null if no variant can run, or that variant does not state one.
    pub os_version: Option<String>,
}

/// Whether a Windows Server release runs the image.
#[derive(Serialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseReport {
    /// Its short name, such as `ltsc2022`.
    pub release: &'static str,
    /// Its build.
    pub build: String,
    /// Whether it belongs to the long-term servicing channel.
    #[serde(skip)]
    pub is_long_term: bool,
    /// Whether it runs the image with process isolation.
    pub process: IsolationReport,
    /// Whether it runs the image with Hyper-V isolation.
    pub hyper_v: IsolationReport,
}

/// Whether a node runs the image.
#[derive(Serialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Its name, or that of a pool that may be at zero nodes.
    pub name: String,
    /// Whether it is such a pool.
    #[serde(rename = "pool")]
    pub is_pool: bool,
    /// Its build, and its revision if it is known; null if its build is not known.
    pub build: Option<String>,
    /// Whether it runs the image with process isolation.
    pub process: IsolationReport,
    /// Whether it runs the image with Hyper-V isolation.
    pub hyper_v: IsolationReport,
    /// Why it does not run with process isolation, or may not; null if it does.
    pub reason: Option<String>,
}

/// What is added to a message about an image that was missing a moment ago: it may exist by now.
pub fn cached_note(looked_up_at: Timestamp) -> String {
    format!(
        " (from the cache, asked {} UTC; --refresh asks again)",
        looked_up_at.strftime("%H:%M:%S")
    )
}

impl ImageReport {
    /// What a registry answered about an image, of one platform or of all. `hosts`: the Windows nodes to compare.
    pub fn new(
        reference: &str,
        answer: Result<&ImageFacts, &str>,
        cached: bool,
        platform: Option<&PlatformFilter>,
        hosts: Option<&[Host]>,
    ) -> Self {
        let mut report = ImageReport {
            reference: reference.to_owned(),
            cached,
            is_without_windows: platform.is_some_and(|platform| !platform.is_windows()),
            ..ImageReport::default()
        };
        match answer {
            Err(why) => report.message = Some(why.to_owned()),
            Ok(facts) => {
                // The moment is not better known than that.
                let second = Timestamp::from_second(facts.looked_up.as_second());
                report.looked_up = Some(second.unwrap_or(facts.looked_up));
                match &facts.found {
                    None => {
                        report.status = ImageStatus::Missing;
                        report.message = Some(
                            "the registry has no such image, or the credentials may not read it".to_owned(),
                        );
                    }
                    Some(contents) => report.describe(contents, platform, hosts),
                }
            }
        }
        report
    }

    fn describe(
        &mut self,
        contents: &ImageContents,
        platform: Option<&PlatformFilter>,
        hosts: Option<&[Host]>,
    ) {
        let is_shown = |variant: &&ImageVariant| platform.is_none_or(|platform| platform.matches(variant));
        let shown: Vec<&ImageVariant> = contents.variants.iter().filter(is_shown).collect();
        self.digest = Some(contents.digest.clone());
        self.status = ImageStatus::Found;
        if contents.variants.is_empty() {
            self.status = ImageStatus::Missing;
            self.message = Some("the index lists no image".to_owned());
            return;
        }
        if let (Some(platform), true) = (platform, shown.is_empty()) {
            self.status = ImageStatus::Missing;
            let others: Vec<String> = contents.variants.iter().map(platform_of).collect();
            let others = crate::model::syntax::text::list(others, 12);
            self.message = Some(format!("it has no variant for {platform}; it has {others}"));
            return;
        }
        self.variants = shown.iter().map(|variant| VariantReport::of(variant)).collect();
        let windows: Vec<&ImageVariant> = shown.into_iter().filter(|it| it.is_windows()).collect();
        self.place(&windows, hosts);
    }

    /// Adds what the name shows, if the registry did not answer. `versions`: those of Windows, ascending.
    pub fn add_name(
        &mut self,
        os: Os,
        versions: &[OsVersion],
        is_certain: bool,
        platform: Option<&PlatformFilter>,
        hosts: Option<&[Host]>,
    ) {
        if self.status != ImageStatus::Unknown {
            return;
        }
        let variant = |version: &OsVersion| ImageVariant {
            os: os.label().to_owned(),
            os_version: Some(*version),
            ..ImageVariant::default()
        };
        let variants: Vec<ImageVariant> = versions.iter().map(variant).collect();
        let is_shown = |variant: &&ImageVariant| platform.is_none_or(|platform| platform.matches(variant));
        let windows: Vec<&ImageVariant> = variants.iter().filter(is_shown).collect();
        if !windows.is_empty() {
            self.place(&windows, hosts);
        }
        self.by_name = Some(NameReport {
            os: os.label(),
            builds: versions.iter().map(|version| version.build).collect(),
            is_certain,
        });
    }

    /// Which releases and nodes run one of the variants.
    fn place(&mut self, windows: &[&ImageVariant], hosts: Option<&[Host]>) {
        if !windows.is_empty() {
            self.releases = releases(windows);
        }
        if self.is_without_windows {
            return;
        }
        self.nodes = hosts.map(|hosts| {
            let mut nodes: Vec<NodeReport> = hosts.iter().map(|host| NodeReport::of(host, windows)).collect();
            nodes.sort_by(|a, b| a.name.cmp(&b.name));
            nodes
        });
    }
}

impl VariantReport {
    fn of(variant: &ImageVariant) -> Self {
        let config = variant.config.as_ref();
        VariantReport {
            os: variant.os.clone(),
            architecture: variant.architecture.clone(),
            variant: variant.variant.clone(),
            os_version: variant.os_version.map(|version| version.to_string()),
            digest: variant.digest.clone(),
            size: variant.size,
            user: config.map(|config| config.user.clone()),
            volumes: config.map(|config| config.volumes.clone()),
            command: config.map(|config| config.command.clone()),
            base: config.and_then(|config| config.base.as_ref()).map(BaseReport::of),
        }
    }

    /// Its platform as containerd prints it: `windows(10.0.20348.2700)/amd64`, `linux/arm64/v8`.
    pub fn platform(&self) -> String {
        platform_text(
            &self.os,
            self.os_version.as_deref(),
            &self.architecture,
            self.variant.as_deref(),
        )
    }
}

fn platform_of(variant: &ImageVariant) -> String {
    let version = variant.os_version.map(|version| version.to_string());
    platform_text(
        &variant.os,
        version.as_deref(),
        &variant.architecture,
        variant.variant.as_deref(),
    )
}

fn platform_text(os: &str, version: Option<&str>, architecture: &str, variant: Option<&str>) -> String {
    let mut text = os.to_owned();
    if let Some(version) = version {
        text = format!("{text}({version})");
    }
    for part in [Some(architecture), variant].into_iter().flatten() {
        if !part.is_empty() {
            text = format!("{text}/{part}");
        }
    }
    text
}

fn releases(windows: &[&ImageVariant]) -> Vec<ReleaseReport> {
    let report = |release: &crate::model::windows::build::Release| ReleaseReport {
        release: release.name,
        build: release.build.to_string(),
        is_long_term: release.ltsc,
        process: best(windows, Some(release.build), AMD64, ContainerIsolation::Process).report(),
        hyper_v: best(windows, Some(release.build), AMD64, ContainerIsolation::HyperV).report(),
    };
    RELEASES.iter().map(report).collect()
}

/// The variant of an image that is most likely to run on a host.
#[derive(Clone, Copy)]
struct BestVariant {
    runs: Runs,
    version: Option<OsVersion>,
}

impl BestVariant {
    fn report(self) -> IsolationReport {
        IsolationReport {
            runs: self.runs,
            os_version: self
                .version
                .filter(|_| self.runs != Runs::No)
                .map(|version| version.to_string()),
        }
    }
}

/// The best variant for a host.
fn best(
    windows: &[&ImageVariant],
    host: Option<Build>,
    architecture: &str,
    isolation: ContainerIsolation,
) -> BestVariant {
    match best_variant(windows.iter().copied(), host, architecture, isolation) {
        Some((runs, variant)) => BestVariant {
            runs: match runs {
                Compatibility::Runs => Runs::Yes,
                Compatibility::Disputed => Runs::Disputed,
                Compatibility::Unknown => Runs::Unknown,
                Compatibility::Fails => Runs::No,
            },
            version: variant.os_version,
        },
        None => BestVariant {
            runs: Runs::No,
            version: None,
        },
    }
}

impl NodeReport {
    fn of(host: &Host, windows: &[&ImageVariant]) -> Self {
        let architecture = host.labels.get(ARCH_LABEL).unwrap_or(AMD64);
        let best = |isolation| best(windows, host.build, architecture, isolation);
        let mut process = best(ContainerIsolation::Process);
        let mut reason = reason(&process, host, architecture, windows);
        if let (Runs::Yes, Some(version)) = (process.runs, process.version)
            && let (Some(image), Some(node)) = (version.revision, host.revision)
            && Some(version.build) == host.build
            && let Some(barrier) = barrier(version.build, image, node)
        {
            process.runs = if barrier.is_certain {
                Runs::No
            } else {
                Runs::Unknown
            };
            reason = Some(format!(
                "an image of revision {image} needs nodes of {}.{} or later",
                barrier.build, barrier.revision
            ));
        }
        NodeReport {
            name: host.name.clone(),
            is_pool: host.may_be_at_zero,
            build: host.build.map(|build| {
                let revision = host.revision;
                OsVersion { build, revision }.to_string()
            }),
            process: process.report(),
            hyper_v: best(ContainerIsolation::HyperV).report(),
            reason,
        }
    }
}

/// Why an image does not run on a host with process isolation, or may not.
fn reason(best: &BestVariant, host: &Host, architecture: &str, windows: &[&ImageVariant]) -> Option<String> {
    if best.runs == Runs::Yes {
        return None;
    }
    if windows.is_empty() {
        return Some("the image has no variant for Windows".to_owned());
    }
    let is_own =
        |variant: &&ImageVariant| variant.architecture.is_empty() || variant.architecture == architecture;
    if !windows.iter().copied().any(|variant| is_own(&variant)) {
        return Some(format!("the image has no Windows variant for {architecture}"));
    }
    let Some(build) = host.build else {
        return Some("the build of the node is not known".to_owned());
    };
    Some(match (best.runs, best.version) {
        (Runs::No, _) => format!("no variant of the image runs on {build} with process isolation"),
        (Runs::Disputed, Some(version)) => {
            format!("containerd runs {version} on {build}, and hcsshim may not")
        }
        (_, Some(version)) => format!("no table documents whether {version} runs on {build}"),
        (_, None) => {
            "containerd pulls a variant without a readable os.version, whose build is not known".to_owned()
        }
    })
}

#[cfg(test)]
mod tests;
