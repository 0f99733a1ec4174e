//! The rules on update revisions (UBR) of images: images that are newer than the nodes, and base images with a fault.

use super::{VERSIONS, images};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::nodes::node::Host;
use crate::model::windows::build::ContainerIsolation;
use crate::model::windows::windows_updates::{barrier, faulty_image};
use crate::rules::rule::{Check, Rule};

pub(super) static IMAGE_REVISION_NEWER: Rule = Rule {
    id: "TSM609",
    name: "image-revision-newer",
    severity: Severity::Warning,
    severities: "warning; advice when only some of the nodes are too old, or the evidence is not certain",
    class: Class::Run,
    summary: "the image has a newer update revision than the nodes, and is known not to start there",
    docs: "Microsoft documents that the update revision (UBR), the fourth number of a Windows version, does not matter \
           since Windows Server 2019. In practice, some updates changed what a container needs of its node: with \
           process isolation, an image with the update does not start on a node without it (0xc0370106). That happened \
           on Windows Server 2025 with 26100.3194 (February 2025) and 26100.4061 (May 2025), and users report it for \
           images of April and May 2025 on Windows Server 2019. The rule compares only these known revisions. It reads \
           the revision of an image from its registry, or from a tag of Microsoft's such as `10.0.26100.4061`, and \
           that of a node from `status.nodeInfo.kernelVersion`. Floating tags such as `ltsc2025` contain no revision: \
           only the registry reports it.",
    remedy: "install the same update on the nodes, or use an older image",
    see: &[
        VERSIONS,
        "https://github.com/microsoft/Windows-Containers/issues/591",
        "https://github.com/actions/runner-images/issues/11582",
    ],
    bad: &[
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:10.0.26100.3194'}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.2894}}}",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.26100.4061, windows/amd64 10.0.20348.2527
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.2894}}}",
    ],
    good: &[
        // A node pulls the variant for its own build.
        "# image registry.example.com/app:1.0: windows/amd64 10.0.26100.4061, windows/amd64 10.0.20348.2527
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2527}}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:10.0.26100.3194'}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.3194}}}",
        // No update between these revisions is known to matter.
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:10.0.20348.4297'}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2527}}}",
        // The revision of the image is not known.
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2025'}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.2894}}}",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        let names_class = cx.spec.runtime_class_name.as_deref().is_some_and(|name| !name.is_empty());
        let in_doubt = names_class && cx.runtime_class().is_none();
        if cx.isolation() != ContainerIsolation::Process || in_doubt {
            return;
        }
        let mut targets = None;
        for imaged in images(cx) {
            let Some(versions) = imaged.versions.as_ref().filter(|known| known.is_certain()) else {
                continue;
            };
            if versions.all().iter().all(|version| version.revision.is_none()) {
                continue;
            }
            let targets = targets.get_or_insert_with(|| cx.targets());
            let known = || {
                let nodes = cx.cx.facts.hosts().iter().filter(|host| !host.may_be_at_zero);
                nodes.filter(|host| host.build.is_some_and(|build| targets.contains(&build)))
            };
            // A node pulls the variant for its own build.
            let too_old = |host: &&Host| {
                let (build, of_node) = host.build.zip(host.revision)?;
                let revision = versions.revision_of(build)?;
                Some((host.name.clone(), build, of_node, revision, barrier(build, revision, of_node)?))
            };
            let Some((node, build, of_node, revision, barrier)) = known().find_map(|host| too_old(&host)) else {
                continue;
            };
            let is_everywhere = known().all(|host| too_old(&host).is_some());
            let finding = out.report(imaged.container.at(&["image"]));
            finding
                .message(format!(
                    "{} is {build}.{revision}{}, but node {node} is {build}.{of_node}; such images need a node of {build}.{} ({})",
                    imaged.shown(),
                    imaged.source(),
                    barrier.revision,
                    barrier.source
                ))
                .remedy(format!("install the update to {build}.{} on the nodes, or use an older image", barrier.revision));
            if !is_everywhere || !barrier.is_certain {
                finding.severity(Severity::Advice);
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static IMAGE_KNOWN_FAULT: Rule = Rule {
    id: "TSM610",
    name: "image-known-fault",
    severity: Severity::Warning,
    class: Class::Run,
    summary: "the base image has a known fault",
    docs: "Some published base images of Windows have a fault, so that every container of them fails. The rule knows \
           them by their version, which it reads from the registry, or from a tag of Microsoft's such as \
           `10.0.17763.4851`.",
    remedy: "use a later base image",
    see: &[
        "https://github.com/microsoft/Windows-Containers/issues/420",
        "https://github.com/GoogleCloudPlatform/ops-agent/pull/1467",
    ],
    bad: &[
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:10.0.17763.4851'}]",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.17763.4851, windows/amd64 10.0.20348.1970
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.4851}}}",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.17763.4851\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
    ],
    good: &[
        // No node pulls the variant with the fault.
        "# image registry.example.com/app:1.0: windows/amd64 10.0.17763.4851, windows/amd64 10.0.20348.1970\n{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:10.0.17763.4974'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]",
        "containers: [{name: app, image: 'registry.example.com/app:10.0.17763.4851'}]",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        for imaged in images(cx) {
            let Some(known) = imaged.versions.as_ref().filter(|known| known.is_certain()) else {
                continue;
            };
            // Of several variants, only those for the builds of nodes matter.
            let is_pulled = |build| {
                let has_node = || cx.host_builds().contains(&build) && cx.targets().contains(&build);
                known.all().len() == 1 || has_node()
            };
            let faulty = (known.all().iter())
                .find_map(|version| faulty_image(version.build, version.revision?))
                .filter(|fault| is_pulled(fault.version.build));
            if let Some(fault) = faulty {
                out.report(imaged.container.at(&["image"]))
                    .message(format!(
                        "{}{}: {} ({})",
                        imaged.shown(),
                        imaged.source(),
                        fault.symptom,
                        fault.source
                    ))
                    .remedy(fault.remedy);
            }
        }
    }),
    ..Rule::BASE
};
