//! The rules on Linux images: one that is in a Windows pod at all, and one beside a Windows image.

use super::{INTRO, Imaged, images};
use crate::model::field_set::FieldSet;
use crate::model::image::{OsHint, is_certainly_linux, os_hint};
use crate::model::os::Os;
use crate::model::severity::{Class, Severity};
use crate::rules::context::PodCx;
use crate::rules::rule::{Check, Finding, Rule};

/// What an image is for, and how that is known.
enum ImageTarget<'i> {
    Windows,
    /// With the reason, for people.
    Linux(LinuxReason<'i>),
}

enum LinuxReason<'i> {
    Registry,
    Tag(&'i str),
    Repository,
}

impl<'i> ImageTarget<'i> {
    /// By the registry's word, and else by a well-known name.
    fn of(imaged: &Imaged<'i>, cx: &PodCx<'_>) -> Option<ImageTarget<'i>> {
        match cx.facts.images.get(imaged.text).and_then(|facts| facts.os) {
            Some(Os::Windows) => return Some(ImageTarget::Windows),
            Some(Os::Linux) => return Some(ImageTarget::Linux(LinuxReason::Registry)),
            None => {}
        }
        match os_hint(&imaged.image) {
            OsHint::WindowsOnlyRepository | OsHint::WindowsTagToken(_) => Some(ImageTarget::Windows),
            OsHint::LinuxTag(word) => Some(ImageTarget::Linux(LinuxReason::Tag(word))),
            OsHint::LinuxOnlyRepository => Some(ImageTarget::Linux(LinuxReason::Repository)),
            // Those have a rule of their own.
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
            LinuxReason::Registry => f.write_str("says its registry"),
            LinuxReason::Tag(word) => write!(f, "its tag says {word}"),
            LinuxReason::Repository => f.write_str("its repository has Linux images only"),
        }
    }
}

/// A Linux image in a Windows pod is an error if both are beyond doubt: the image by its registry or by its name
/// ([`is_certainly_linux`]), the pod by more than the name of an image or a default.
fn weigh(finding: &mut Finding, imaged: &Imaged<'_>, reason: &LinuxReason<'_>, cx: &PodCx<'_>) {
    let certain = matches!(reason, LinuxReason::Registry) || is_certainly_linux(&imaged.image);
    if !certain || cx.inference.is_weak() {
        finding.severity(Severity::Warning);
    }
}

/// The Linux images of a pod, and whether a Windows image is beside them.
fn linux_images<'c>(cx: &PodCx<'c>) -> (Vec<(Imaged<'c>, LinuxReason<'c>)>, bool) {
    let mut linux = Vec::new();
    let mut beside_windows = false;
    for imaged in images(cx) {
        match ImageTarget::of(&imaged, cx) {
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
    summary: "a Linux image beside a Windows image; a pod runs on one operating system",
    docs: "All containers of a pod run on one node, and a Windows node runs Windows images only: the other image is not \
           pulled (`no match for platform in manifest`) or its container does not start. Transom goes by what a \
           registry says of the images, and else by well-known names: Microsoft's Windows repositories and tag words \
           such as `nanoserver` on one side; on the other the names of Linux distributions as words of a tag, and the \
           repositories of `linux-image-on-windows-pod`, which says when this is an error and when a warning.",
    remedy: "use a Windows image here, or run the Linux container in a pod of its own",
    see: &[INTRO],
    bad: &[
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: proxy, image: 'nginx:1.27-alpine'}]",
        "{initContainers: [{name: init, image: 'busybox:1.36-musl'}], containers: [{name: app, image: 'golang:1.22-nanoserver-ltsc2022'}]}",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: proxy, image: 'docker.io/istio/proxyv2:1.27.1'}]",
    ],
    good: &[
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: other, image: 'registry.example.com/other:1.0'}]",
        // A rule of its own says it of a pod without Windows images.
        "containers: [{name: app, image: 'nginx:1.27-alpine'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: other, image: 'registry.example.com/other:1.0-linux-windows'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: other, image: 'registry.example.com/alpine:1.0'}]",
    ],
    needs: FieldSet::SEVERAL_CONTAINERS,
    check: Check::Pod(|cx, out| {
        let (linux, beside_windows) = linux_images(cx);
        for (imaged, reason) in linux.iter().filter(|_| beside_windows) {
            let finding = out.report(imaged.container.at(&["image"]));
            finding.says(format!(
                "{} is a Linux image ({reason}) beside a Windows image",
                imaged.shown()
            ));
            weigh(finding, imaged, reason, cx);
        }
    }),
    ..Rule::BASE
};

pub(super) static LINUX_IMAGE_ON_WINDOWS_POD: Rule = Rule {
    id: "TSM608",
    name: "linux-image-on-windows-pod",
    severities: "error; warning when only a tag says Linux, or only an image says Windows",
    severity: Severity::Error,
    class: Class::Run,
    is_first: true,
    summary: "a Linux image in a pod for Windows nodes",
    docs: "A Windows node runs Windows images only. Of any other it says `no match for platform in manifest`, and the pod \
           stays in ImagePullBackOff. Transom goes by what a registry says of the image, and else by its name: a word of \
           the tag that names a Linux distribution (`1.27-alpine`, `7-bookworm`, `8.0-jammy-chiseled`), or a repository \
           that has never held a Windows image. Of the latter it knows Docker Hub's official images without Windows \
           variants (`nginx`, `redis`, `postgres`, `node`, `ubuntu`, …), distroless and distributions' own repositories, \
           and what is commonly run or injected beside an application: Istio's and Linkerd's proxies, Vault, \
           node-exporter, ingress-nginx. A copy in another registry is not known. It is an error if the pod is certainly for \
           Windows (not by an image or a default only) and the image certainly for Linux: its registry says so; such a \
           repository and a word of the tag agree (`nginx:1.29-alpine`, Bitnami's `-debian-12-`); Microsoft wrote the \
           tag; or a word of the tag is `linux` itself. Otherwise it is a warning, because an author's own tag can say \
           anything. If a Windows image is in the pod too, `mixed-os-images` reports it instead.",
    remedy: "use an image for Windows (its tag often says nanoserver or windowsservercore), or let the pod select Linux nodes",
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
        // Copies, and other authors' images of the same name.
        "containers: [{name: app, image: 'registry.example.com/nginx:1.27'}]",
        // These have Windows variants under the same tag.
        "containers: [{name: app, image: 'golang:1.22'}, {name: db, image: 'mongo:7'}]",
        "containers: [{name: app, image: 'registry.example.com/app:1.0-alpine-windows'}]",
        // Each of these is said by a rule of its own.
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
            finding.says(format!(
                "{} is a Linux image ({reason}), and Windows nodes run Windows images only",
                imaged.shown()
            ));
            weigh(finding, imaged, reason, cx);
        }
    }),
    ..Rule::BASE
};
