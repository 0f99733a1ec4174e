//! The rules on Linux images: a Linux image in a Windows pod, and a Linux image next to a Windows image.

use super::{INTRO, Imaged, images};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::windows::image::{OsHint, is_certainly_linux, os_hint};
use crate::model::windows::os::Os;
use crate::rules::context::PodCx;
use crate::rules::rule::{Check, Finding, Rule};

/// The operating system of an image, and how it was determined.
enum ImageTarget<'i> {
    Windows,
    /// With the reason, for messages.
    Linux(LinuxReason<'i>),
}

enum LinuxReason<'i> {
    Tag(&'i str),
    Repository,
}

impl<'i> ImageTarget<'i> {
    /// From a well-known name, unless the registry knows better: `image-has-no-windows-variant` reports an image that
    /// the registry has for Linux only, and one for both systems says nothing.
    fn of(imaged: &Imaged<'i>) -> Option<ImageTarget<'i>> {
        if let Some(contents) = imaged.contents() {
            return (contents.only_os() == Some(Os::Windows)).then_some(ImageTarget::Windows);
        }
        match os_hint(&imaged.image.reference) {
            OsHint::WindowsOnlyRepository | OsHint::WindowsTagToken(_) => Some(ImageTarget::Windows),
            OsHint::LinuxTag(word) => Some(ImageTarget::Linux(LinuxReason::Tag(word))),
            OsHint::LinuxOnlyRepository => Some(ImageTarget::Linux(LinuxReason::Repository)),
            // `dotnet-tag-linux-only` reports these.
            OsHint::DotnetLinuxOnly | OsHint::None => None,
        }
    }

    fn is_windows(&self) -> bool {
        matches!(self, ImageTarget::Windows)
    }
}

impl std::fmt::Display for LinuxReason<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinuxReason::Tag(word) => write!(f, "its tag says {word}"),
            LinuxReason::Repository => f.write_str("its repository has Linux images only"),
        }
    }
}

/// A Linux image in a Windows pod is an error if both are certain: the image from its name ([`is_certainly_linux`]), the
/// pod from more than an image or a default.
fn weigh(finding: &mut Finding, imaged: &Imaged<'_>, cx: &PodCx<'_>) {
    if !is_certainly_linux(&imaged.reference) || cx.inference.is_weak() {
        finding.severity(Severity::Warning);
    }
}

/// The Linux images of a pod, and whether the pod also has a Windows image.
fn linux_images<'c>(cx: &PodCx<'c>) -> (Vec<(Imaged<'c>, LinuxReason<'c>)>, bool) {
    let mut linux = Vec::new();
    let mut beside_windows = false;
    for imaged in images(cx) {
        match ImageTarget::of(&imaged) {
            Some(ImageTarget::Linux(reason)) => linux.push((imaged, reason)),
            other => beside_windows |= other.is_some_and(|os| os.is_windows()),
        }
    }
    (linux, beside_windows)
}

pub(super) static MIXED_OS_IMAGES: Rule = Rule {
    id: "TSM604",
    name: "mixed-os-images",
    severities: "error; warning when only a tag says Linux, or only an image says Windows",
    severity: Severity::Error,
    class: Class::Run,
    is_first: true,
    summary: "the pod has both Linux and Windows images, but a pod runs on one operating system",
    docs: "All containers of a pod run on one node, and a Windows node runs Windows images only. The node cannot pull \
           the Linux image (`no match for platform in manifest`), or its container does not start. Transom reads \
           well-known names. Windows names are Microsoft's Windows repositories and tag words such as `nanoserver`. \
           Linux names are the names of Linux distributions as words of a tag, and the repositories of \
           `linux-image-on-windows-pod`. That rule also describes when the finding is an error and when a warning. If \
           Transom asked the registry, the name of that image does not matter: `image-has-no-windows-variant` reports \
           an image without a Windows variant.",
    remedy: "use a Windows image here, or run the Linux container in a separate pod",
    see: &[INTRO],
    bad: &[
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: proxy, image: 'nginx:1.27-alpine'}]",
        "{initContainers: [{name: init, image: 'busybox:1.36-musl'}], containers: [{name: app, image: 'golang:1.22-nanoserver-ltsc2022'}]}",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: proxy, image: 'docker.io/istio/proxyv2:1.27.1'}]",
    ],
    good: &[
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: other, image: 'registry.example.com/other:1.0'}]",
        // The registry knows better: the first has a Windows variant, and another rule reports the second.
        "# image nginx:1.27-alpine: linux/amd64, windows/amd64 10.0.20348.2700\ncontainers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: proxy, image: 'nginx:1.27-alpine'}]",
        "# image nginx:1.27-alpine: linux/amd64\ncontainers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: proxy, image: 'nginx:1.27-alpine'}]",
        // `linux-image-on-windows-pod` reports a pod without Windows images.
        "containers: [{name: app, image: 'nginx:1.27-alpine'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: other, image: 'registry.example.com/other:1.0-linux-windows'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: other, image: 'registry.example.com/alpine:1.0'}]",
    ],
    needs: FieldSet::SEVERAL_CONTAINERS,
    check: Check::Pod(|cx, out| {
        let (linux, beside_windows) = linux_images(cx);
        for (imaged, reason) in linux.iter().filter(|_| beside_windows) {
            let finding = out.report(imaged.container.at(&["image"]));
            finding.message(format!(
                "{} is a Linux image ({reason}), but the pod also has a Windows image",
                imaged.shown()
            ));
            weigh(finding, imaged, cx);
        }
    }),
    ..Rule::BASE
};

/// Images that are for Linux by their names.
pub static LINUX_IMAGE_ON_WINDOWS_POD: Rule = Rule {
    id: "TSM608",
    name: "linux-image-on-windows-pod",
    severities: "error; warning when only a tag says Linux, or only an image says Windows",
    severity: Severity::Error,
    class: Class::Run,
    is_first: true,
    summary: "a Linux image in a pod for Windows nodes",
    docs: "A Windows node runs Windows images only. For any other image it reports `no match for platform in \
           manifest`, and the pod stays in ImagePullBackOff. Transom reads the name of the image: a word of the tag \
           that is the name of a Linux distribution (`1.27-alpine`, `7-bookworm`, `8.0-jammy-chiseled`), or a known \
           Linux-only repository. These repositories are Docker Hub's official \
           images without Windows variants (`nginx`, `redis`, `postgres`, `node`, `ubuntu`, …), distroless, the \
           repositories of distributions, and common sidecars and agents: Istio's and Linkerd's proxies, Vault, \
           node-exporter, ingress-nginx. Transom does not recognize copies in other registries. The finding is an \
           error if the pod is certainly for Windows (not only because of an image or a default) and the image is \
           certainly for Linux. The image is certainly for Linux if such a repository and a word of the tag agree \
           (`nginx:1.29-alpine`, Bitnami's `-debian-12-`); if Microsoft wrote the tag; or if a word of the tag is \
           `linux` itself. Otherwise the finding is a warning, because authors choose their \
           tags freely. If the pod also has a Windows image, `mixed-os-images` reports the Linux image instead. If \
           Transom asked the registry, `image-has-no-windows-variant` reports what the registry lists.",
    remedy: "use an image for Windows (its tag often contains nanoserver or windowsservercore), or select Linux nodes for the pod",
    see: &[
        INTRO,
        "https://github.com/docker-library/official-images/tree/master/library",
        "https://github.com/istio/istio/issues/27893",
    ],
    bad: &[
        "containers: [{name: app, image: 'nginx:alpine'}]",
        "containers: [{name: app, image: 'redis:7-bookworm'}]",
        "containers: [{name: app, image: 'ubuntu:22.04'}]",
        "containers: [{name: app, image: 'gcr.io/distroless/static-debian12:nonroot'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/aspnet:8.0-jammy-chiseled'}]",
        "containers: [{name: app, image: 'registry.example.com/app:1.0'}, {name: istio-proxy, image: 'docker.io/istio/proxyv2:1.27.1'}]",
        "initContainers: [{name: linkerd-init, image: 'cr.l5d.io/linkerd/proxy-init:v2.4.2'}]",
        "ephemeralContainers: [{name: debugger, image: busybox}]",
        "containers: [{name: app, image: 'hashicorp/vault:1.20'}]",
        "containers: [{name: app, image: 'quay.io/prometheus/node-exporter:v1.8.0'}]",
        "containers: [{name: app, image: 'registry.k8s.io/ingress-nginx/controller:v1.12.0'}]",
        "{hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: agent, image: 'registry.example.com/agent:2-debian12'}]}",
    ],
    good: &[
        "containers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        // Copies, and images of other authors with the same name.
        "containers: [{name: app, image: 'registry.example.com/nginx:1.27'}]",
        // These have Windows variants under the same tag.
        "containers: [{name: app, image: 'golang:1.22'}, {name: db, image: 'mongo:7'}]",
        "containers: [{name: app, image: 'registry.example.com/app:1.0-alpine-windows'}]",
        // Other rules report these.
        "# image nginx:alpine: linux/amd64\ncontainers: [{name: app, image: 'nginx:alpine'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/aspnet:8.0'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: proxy, image: 'nginx:1.27-alpine'}]",
        // A Linux pod.
        "{os: null, nodeSelector: {kubernetes.io/os: linux}, containers: [{name: app, image: 'nginx:alpine'}]}",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        let (linux, beside_windows) = linux_images(cx);
        for (imaged, reason) in linux.iter().filter(|_| !beside_windows) {
            let finding = out.report(imaged.container.at(&["image"]));
            finding.message(format!(
                "{} is a Linux image ({reason}), but Windows nodes run Windows images only",
                imaged.shown()
            ));
            weigh(finding, imaged, cx);
        }
    }),
    ..Rule::BASE
};
