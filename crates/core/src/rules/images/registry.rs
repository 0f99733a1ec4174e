//! The rules on what a registry reports about images: those without a Windows variant for the nodes, those that do not
//! exist, and volumes that no Windows container can have.

use std::cell::OnceCell;

use super::{INTRO, images, is_dotnet_linux_only};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::nodes::node::Host;
use crate::model::syntax::text::{cut, cut_middle, shown};
use crate::model::windows::build::{Compatibility, ContainerIsolation, compatibility};
use crate::model::windows::image_facts::{ImageContents, ImageVariant};
use crate::model::windows::os::{EvidenceKind, Os};
use crate::model::windows::windows_updates::OsVersion;
use crate::rules::context::PodCx;
use crate::rules::rule::{Check, Rule};

/// The longest image in a message whose warning has room for the remedy after it.
const LONGEST_SHOWN: usize = 60;
const IMAGE_INDEX: &str = "https://github.com/opencontainers/image-spec/blob/main/image-index.md";

pub(super) static IMAGE_HAS_NO_WINDOWS_VARIANT: Rule = Rule {
    id: "TSM611",
    name: "image-has-no-windows-variant",
    severities: "error; warning when only a default or the name of another image says Windows, or the architecture of \
                 the nodes is not known",
    severity: Severity::Error,
    class: Class::Run,
    is_first: true,
    summary: "the registry has no variant of the image for the Windows nodes",
    docs: "An image reference can stand for one image, or for an index with a variant for each platform. A Windows node \
           pulls only a variant for Windows and for its own architecture. Otherwise it reports `no match for platform \
           in manifest`, and the pod stays in ImagePullBackOff. The rule applies if Transom asked the registry. The \
           registry is right, whatever the name of the image says. The finding names the platforms that the registry \
           lists, the digest, and the time of the look-up. Transom takes the architectures from the known Windows \
           nodes; without any, it assumes amd64, and a wrong architecture is a warning.",
    remedy: "use an image for Windows, or select Linux nodes for the pod",
    see: &[
        INTRO,
        IMAGE_INDEX,
        "containerd: platforms/defaults_windows.go, windowsMatchComparer",
    ],
    bad: &[
        "# image registry.example.com/app:1.0: linux/amd64, linux/arm64\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        // The registry contradicts the name.
        "# image registry.example.com/app:1.0-ltsc2022: linux/amd64\ncontainers: [{name: app, image: 'registry.example.com/app:1.0-ltsc2022'}]",
        // Next to an image for Windows.
        "# image registry.example.com/proxy:1.0: linux/amd64\n# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700\nos: null\nnodeSelector: null\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}, {name: proxy, image: 'registry.example.com/proxy:1.0'}]",
        // No node is known, so the architecture is not known either: a warning.
        "# image registry.example.com/app:1.0: windows/arm64 10.0.26100.1\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        "# image registry.example.com/app:1.0: windows/arm64 10.0.26100.1\n{apiVersion: v1, kind: Node, metadata: {name: a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.1}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}}",
    ],
    good: &[
        "# image registry.example.com/app:1.0: linux/amd64, windows/amd64 10.0.20348.2700\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        // The registry contradicts the name.
        "# image registry.example.com/app:1.0-alpine: windows/amd64\ncontainers: [{name: app, image: 'registry.example.com/app:1.0-alpine'}]",
        "# image registry.example.com/app:1.0: windows/arm64 10.0.26100.1\n{apiVersion: v1, kind: Node, metadata: {name: a, labels: {kubernetes.io/os: windows, kubernetes.io/arch: arm64}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.1}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}}",
        // Another rule reports what does not exist.
        "# image registry.example.com/app:1.0: none\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        // Nobody asked the registry.
        "containers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        // A Linux pod.
        "# image registry.example.com/app:1.0: linux/amd64\n{os: null, nodeSelector: null, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        for imaged in images(cx) {
            let Some((facts, contents)) = imaged.facts.zip(imaged.contents()) else {
                continue;
            };
            // `dotnet-tag-linux-only` knows a better remedy.
            if imaged.versions.is_some() || is_dotnet_linux_only(&imaged) {
                continue;
            }
            let is_for_windows = contents.windows().next().is_some();
            let for_nodes = if is_for_windows {
                format!(" for {}", architectures(cx))
            } else {
                String::new()
            };
            let although = if imaged.os_of_name() == Some(Os::Windows) && !is_for_windows {
                ", although its name says Windows"
            } else {
                ""
            };
            let finding = out.report(imaged.container.at(&["image"]));
            finding.message(format!(
                "{} has no Windows variant{for_nodes}: its registry lists {} ({facts}){although}",
                imaged.shown(),
                platforms(contents)
            ));
            let is_certain = if is_for_windows {
                !cx.facts.architectures().is_empty()
            } else {
                is_certainly_windows(cx)
            };
            if !is_certain {
                finding.severity(Severity::Warning);
            }
        }
    }),
    ..Rule::BASE
};

/// Whether strong evidence says Windows, or an image that its registry has for Windows only.
fn is_certainly_windows(cx: &PodCx<'_>) -> bool {
    let by_registry = || {
        images(cx).any(|imaged| {
            imaged
                .contents()
                .is_some_and(|contents| contents.only_os() == Some(Os::Windows))
        })
    };
    let by_image = |kind| kind == EvidenceKind::Image && by_registry();
    let mut evidence = cx.inference.evidence.iter();
    evidence.any(|e| e.os == Os::Windows && (e.kind.is_strong() || by_image(e.kind)))
}

/// The architectures of the known Windows nodes, for messages.
fn architectures(cx: &PodCx<'_>) -> String {
    let known = cx.facts.architectures();
    if known.is_empty() {
        "amd64".to_owned()
    } else {
        known
            .iter()
            .map(|name| shown(name))
            .collect::<Vec<_>>()
            .join(" or ")
    }
}

/// The distinct platforms that a registry lists, without Windows versions; only the first few of many.
fn platforms(contents: &ImageContents) -> String {
    const SHOWN: usize = 4;
    let mut all: Vec<String> = Vec::new();
    for variant in &contents.variants {
        let platform = platform(variant);
        if !all.contains(&platform) {
            if all.len() == SHOWN {
                all.push("others".to_owned());
                break;
            }
            all.push(platform);
        }
    }
    all.join(", ")
}

/// `linux/arm64`.
fn platform(variant: &ImageVariant) -> String {
    /// Longer than the name of any system and architecture; a registry can write anything.
    const LONGEST: usize = 24;
    let text = if variant.architecture.is_empty() {
        variant.os.clone()
    } else {
        format!("{}/{}", variant.os, variant.architecture)
    };
    cut(&text, LONGEST).into_owned()
}

pub(super) static IMAGE_NOT_FOUND: Rule = Rule {
    id: "TSM612",
    name: "image-not-found",
    severity: Severity::Warning,
    class: Class::Run,
    summary: "the registry does not have the image",
    docs: "The node cannot pull an image that its registry does not have, and the pod stays in ImagePullBackOff. Many \
           registries give the same answer for an image that the credentials may not read: compare the credentials \
           that Transom used with the pod's. The rule applies if Transom asked the registry. It is a warning, because \
           the image may be pushed after the workload is created, and because a node may have a copy of it. If Transom \
           could not reach the registry, there is no finding.",
    remedy: "correct the tag or the credentials",
    see: &["https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff"],
    bad: &[
        "# image registry.example.com/app:1.0: none\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        "# image registry.example.com/init:1.0-ltsc2022: none\ninitContainers: [{name: init, image: 'registry.example.com/init:1.0-ltsc2022'}]",
    ],
    good: &[
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        "containers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        // Other rules report these.
        "# image mcr.microsoft.com/windows/nanoserver:latest: none\ncontainers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:latest'}]",
        "# image microsoft/iis:latest: none\ncontainers: [{name: app, image: 'microsoft/iis:latest'}]",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        for imaged in images(cx) {
            let Some(facts) = imaged.facts.filter(|facts| facts.found.is_none()) else {
                continue;
            };
            let reference = &imaged.reference;
            let has_no_latest = reference.is_windows_base() && reference.is_untagged_or_latest();
            if has_no_latest || reference.mcr_equivalent().is_some() {
                continue;
            }
            let shown = imaged.shown();
            out.report(imaged.container.at(&["image"])).message(format!(
                "its registry has no {}, or the credentials may not read it ({facts})",
                cut_middle(&shown, LONGEST_SHOWN, LONGEST_SHOWN / 2)
            ));
        }
    }),
    ..Rule::BASE
};

pub(super) static IMAGE_VOLUME_ON_DRIVE: Rule = Rule {
    id: "TSM613",
    name: "image-volume-on-drive",
    severities: "error; warning when only containerd before 2.0 fails",
    severity: Severity::Error,
    class: Class::Run,
    summary: "the image declares a volume at a path where Windows containers cannot have one",
    docs: "For every `VOLUME` of an image, containerd mounts an empty directory of the host. On Windows, a volume must \
           be a directory that does not exist or is empty, or a drive other than C:, so a volume at the root of drive \
           C: cannot work. containerd 1.x also takes a drive letter for part of a path, unless it is an upper-case C: \
           the container of an image with `VOLUME c:\\data` or `VOLUME D:` is not created (`rootpath on mountPath …: \
           The filename, directory name, or volume label syntax is incorrect.`). That is a warning if a Windows node \
           has such a containerd. The rule applies if Transom asked the registry for the configuration of the image.",
    remedy: "remove the VOLUME from the image, and mount a volume of the pod",
    see: &[
        "https://docs.docker.com/reference/dockerfile/#volume",
        "https://github.com/containerd/containerd/issues/11273",
        "https://github.com/containerd/containerd/pull/8362",
    ],
    bad: &[
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 volume=C:\\\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 volume=c:\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 volume=c:\\data\n{apiVersion: v1, kind: Node, metadata: {name: a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://1.7.20'}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}}",
    ],
    good: &[
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 volume=C:\\data\n{apiVersion: v1, kind: Node, metadata: {name: a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://1.7.20'}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}}",
        // Only nodes on which the pod does not run have the old containerd.
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 volume=D:\n{apiVersion: v1, kind: Node, metadata: {name: a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, containerRuntimeVersion: 'containerd://1.7.20'}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}}",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 volume=D:\n{apiVersion: v1, kind: Node, metadata: {name: a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://2.1.9'}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}}",
        // Of the Linux variant.
        "# image registry.example.com/app:1.0: linux/amd64 volume=/, windows/amd64 10.0.20348.2700\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        let nodes = OnceCell::new();
        for imaged in images(cx) {
            let (Some(facts), Some(contents)) = (imaged.facts, imaged.contents()) else {
                continue;
            };
            let old_nodes = || nodes.get_or_init(|| OldNodes::of(cx));
            let Some((path, trouble)) = volume_trouble(contents, old_nodes) else {
                continue;
            };
            let finding = out.report(imaged.container.at(&["image"]));
            let path = shown(path);
            match trouble {
                VolumeTrouble::RootOfC => {
                    finding.message(format!(
                        "{} declares the volume {path} ({facts}): no volume can replace the root of drive C:",
                        imaged.shown()
                    ));
                }
                VolumeTrouble::OldContainerd(node) => {
                    finding.severity(Severity::Warning).message(format!(
                        "{} declares the volume {path} ({facts}), whose drive letter containerd before 2.0 cannot read \
                         (node {})",
                        imaged.shown(),
                        node.name
                    ));
                }
            }
        }
    }),
    ..Rule::BASE
};

/// Why a volume of an image fails.
enum VolumeTrouble<'c> {
    RootOfC,
    /// On this node.
    OldContainerd(&'c Host),
}

/// The nodes whose containerd mounts no other drive than C:, of those that the pod may land on: one for each build. A pod
/// can have ten thousand containers, and a cluster as many nodes.
struct OldNodes<'c> {
    isolation: ContainerIsolation,
    nodes: Vec<&'c Host>,
}

impl<'c> OldNodes<'c> {
    fn of(cx: &PodCx<'c>) -> Self {
        let is_old = |host: &&Host| host.containerd.is_some_and(|(major, _)| major < 2);
        let mut nodes: Vec<&'c Host> = Vec::new();
        for node in cx.target_nodes().filter(is_old) {
            if nodes.iter().all(|known| known.build != node.build) {
                nodes.push(node);
            }
        }
        OldNodes {
            isolation: cx.isolation(),
            nodes,
        }
    }
}

/// The first volume of the Windows variants of an image that fails; those at the root of C: before others.
fn volume_trouble<'c, 'o>(
    contents: &'c ImageContents,
    old_nodes: impl FnOnce() -> &'o OldNodes<'c>,
) -> Option<(&'c str, VolumeTrouble<'c>)>
where
    'c: 'o,
{
    let configs = || contents.windows();
    let volumes = || {
        configs()
            .filter_map(|variant| variant.config.as_ref())
            .flat_map(|config| &config.volumes)
            .map(String::as_str)
    };
    if let Some(path) = volumes().find(|path| is_root_of_c(path)) {
        return Some((path, VolumeTrouble::RootOfC));
    }
    let OldNodes { isolation, nodes } = old_nodes();
    let unreadable = |host: &'c Host| {
        let runs = |variant: &&ImageVariant| {
            let fails =
                |image: OsVersion, host| compatibility(image.build, host, *isolation) == Compatibility::Fails;
            !variant
                .os_version
                .zip(host.build)
                .is_some_and(|(image, host)| fails(image, host))
        };
        let mut volumes = (configs().filter(runs))
            .filter_map(|variant| variant.config.as_ref())
            .flat_map(|config| &config.volumes);
        let path = volumes.find(|path| has_drive(path) && !path.starts_with('C'))?;
        Some((path.as_str(), VolumeTrouble::OldContainerd(host)))
    };
    nodes.iter().copied().find_map(unreadable)
}

fn has_drive(path: &str) -> bool {
    let mut bytes = path.bytes();
    bytes.next().is_some_and(|letter| letter.is_ascii_alphabetic()) && bytes.next() == Some(b':')
}

/// `C:`, `c:\`, `C:/`, `\` and so on.
fn is_root_of_c(path: &str) -> bool {
    let rest = match path.get(..2) {
        Some(drive) if drive.eq_ignore_ascii_case("c:") => path.get(2..).unwrap_or_default(),
        _ if path.starts_with(['\\', '/']) => path,
        _ => return false,
    };
    rest.chars().all(|c| matches!(c, '\\' | '/' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_drive_c_is_known_in_any_notation() {
        for path in ["C:", "c:", "C:\\", "c:/", "C:\\.", "\\", "/"] {
            assert!(is_root_of_c(path), "{path}");
        }
        for path in ["", "D:", "D:\\", "C:\\data", "data", "\\data", "C", "é:"] {
            assert!(!is_root_of_c(path), "{path}");
        }
    }
}
