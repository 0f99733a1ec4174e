//! Images: whether the image of a container exists for Windows, runs on the nodes that the pod requires, and is still
//! supported. Text that is not an image reference is left to the API server and the kubelet.

mod base_age;
mod builds;
mod linux;
mod registry;
mod update_revisions;

pub use base_age::IMAGE_BASE_OLD;
pub use linux::LINUX_IMAGE_ON_WINDOWS_POD;

use super::context::{ContainerAt, Image, KnownVersions, PodCx};
use super::rule::{Check, Rule};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::windows::build::{Build, Compatibility, ContainerIsolation, Release, compatibility};
use crate::model::windows::image::{OsHint, end_of_support, os_hint};

/// Rules TSM601 and up.
pub static RULES: &[&Rule] = &[
    &builds::IMAGE_BUILD_MISMATCH,
    &IMAGE_UNTAGGED_OR_LATEST,
    &DOTNET_TAG_LINUX_ONLY,
    &linux::MIXED_OS_IMAGES,
    &RUN_AS_ADMINISTRATOR,
    &IMAGE_DOCKER_HUB_MICROSOFT,
    &IMAGE_EOL_BUILD,
    &LINUX_IMAGE_ON_WINDOWS_POD,
    &update_revisions::IMAGE_REVISION_NEWER,
    &update_revisions::IMAGE_KNOWN_FAULT,
    &registry::IMAGE_HAS_NO_WINDOWS_VARIANT,
    &registry::IMAGE_NOT_FOUND,
    &registry::IMAGE_VOLUME_ON_DRIVE,
    &IMAGE_BASE_OLD,
];

const VERSIONS: &str =
    "https://learn.microsoft.com/virtualization/windowscontainers/deploy-containers/version-compatibility";
const LIFECYCLE: &str =
    "https://learn.microsoft.com/virtualization/windowscontainers/deploy-containers/base-image-lifecycle";
const BASE_IMAGES: &str =
    "https://learn.microsoft.com/virtualization/windowscontainers/manage-containers/container-base-images";
const DOTNET_TAGS: &str =
    "https://learn.microsoft.com/dotnet/core/compatibility/containers/8.0/multi-platform-tags";
const RUN_AS_USER_NAME: &str =
    "https://kubernetes.io/docs/tasks/configure-pod-container/configure-runasusername/";
const INTRO: &str = "https://kubernetes.io/docs/concepts/windows/intro/";

/// The user with all rights inside a Windows container.
const ADMINISTRATOR: &str = "ContainerAdministrator";

/// A container with what is known about its image.
#[derive(Clone, Copy)]
struct Imaged<'c> {
    container: ContainerAt<'c>,
    image: &'c Image<'c>,
}

impl<'c> std::ops::Deref for Imaged<'c> {
    type Target = Image<'c>;
    fn deref(&self) -> &Image<'c> {
        self.image
    }
}

/// The containers whose `image` is an image reference.
fn images<'c>(cx: &PodCx<'c>) -> impl Iterator<Item = Imaged<'c>> + use<'c> {
    let of_pod = cx.cx;
    cx.containers().filter_map(move |container| {
        let image = of_pod.image(&container)?;
        Some(Imaged { container, image })
    })
}

impl Imaged<'_> {
    /// The image for messages: without its digest. A long one is shortened to its end, which has the tag. (A parsed
    /// reference contains no control characters.)
    fn shown(&self) -> String {
        const LONGEST: usize = 90;
        let name = self.text.split_once('@').map_or(self.text, |(name, _)| name);
        match name
            .len()
            .checked_sub(LONGEST)
            .and_then(|start| name.get(start..))
        {
            Some(end) if end.len() < name.len() => format!("…{end}"),
            _ => name.to_owned(),
        }
    }

    /// The source of what is said about its builds, if that is not the tag: ` according to its registry (…)`. Names a build
    /// in the tag that the registry contradicts.
    fn source(&self) -> String {
        if let Some(KnownVersions::Published(_)) = &self.versions {
            return " by Microsoft's list of tags".to_owned();
        }
        let Some((facts, KnownVersions::Registry(_))) = self.facts.zip(self.versions.as_ref()) else {
            return String::new();
        };
        let contradicted = self.contradicted_build();
        let although = contradicted.map_or_else(String::new, |build| {
            format!(", although its name says {}", build.with_product())
        });
        format!(" according to its registry ({facts}){although}")
    }
}

/// Builds for messages, joined with `or`; only the first few of many.
fn any_of(builds: impl Iterator<Item = Build>) -> String {
    const SHOWN: usize = 3;
    let mut text = String::new();
    for (i, build) in builds.enumerate() {
        if i == SHOWN {
            text.push_str(" or another");
            break;
        }
        if i > 0 {
            text.push_str(" or ");
        }
        text.push_str(&build.with_product());
    }
    text
}

/// The tag of Microsoft's newest base image that runs on a host.
fn tag_for(host: Build, isolation: ContainerIsolation, nano_server: bool) -> Option<&'static str> {
    Release::newest_for(host, isolation)?.base_tag(nano_server)
}

/// The tag to propose for a pod. Of the newest releases of the builds that it may land on: the one that runs on most of these
/// builds; of several, the newest.
fn proposed_tag(cx: &PodCx<'_>, nano_server: bool) -> &'static str {
    let (targets, process) = (cx.targets(), ContainerIsolation::Process);
    let runs = |image: Build, host: Build| compatibility(image, host, process) == Compatibility::Runs;
    let releases = targets
        .iter()
        .filter_map(|host| Release::newest_for(*host, process));
    let hosts = |release: &&Release| targets.iter().filter(|host| runs(release.build, **host)).count();
    let best = releases.max_by_key(|release| (hosts(release), release.build));
    best.and_then(|release| release.base_tag(nano_server))
        .unwrap_or("ltsc2022")
}

/// Images of no certain version.
pub static IMAGE_UNTAGGED_OR_LATEST: Rule = Rule {
    id: "TSM602",
    name: "image-untagged-or-latest",
    severities: "advice; error when the repository is a Windows base image",
    severity: Severity::Error,
    class: Class::Run,
    summary: "the image has no fixed tag, so its Windows build can change with every pull",
    docs: "A Windows container must match the build of its node. The image behind `latest`, or behind no tag, can \
           change from one Windows release to another between two pulls. Then the container no longer starts on the \
           nodes that ran it before. The name does not show the build of such an image either. Microsoft's base \
           images (`mcr.microsoft.com/windows`, `windows/servercore`, `windows/nanoserver` and `windows/server`) have \
           had no `latest` tag since 2019-04-16. For these the pull fails, and the finding is an error. For all others \
           it is advice.",
    remedy: "use a tag that includes the Windows build, or a digest",
    see: &[VERSIONS, "https://kubernetes.io/docs/concepts/containers/images/"],
    bad: &[
        "containers: [{name: app, image: registry.example.com/app}]",
        "containers: [{name: app, image: 'registry.example.com/app:latest'}]",
        "initContainers: [{name: init, image: mcr.microsoft.com/windows/nanoserver}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:latest'}]",
        "containers: [{name: app, image: mcr.microsoft.com/windows}]",
    ],
    good: &[
        "containers: [{name: app, image: 'registry.example.com:5000/app:1.0'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}]",
        "containers: [{name: app, image: 'https://not.an.image'}]",
        "containers: [{name: app}]",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        for imaged in images(cx).filter(|imaged| imaged.reference.is_untagged_or_latest()) {
            let finding = out.report(imaged.container.at(&["image"]));
            if !imaged.reference.is_windows_base() {
                finding.severity(Severity::Advice).class(Class::BestPractice);
                continue;
            }
            let tag = proposed_tag(cx, imaged.reference.is_nano_server());
            let repository = match (imaged.reference.repository, tag) {
                // The full Windows image has a different name since Server 2022.
                ("windows", "ltsc2022" | "ltsc2025") => "windows/server",
                (repository, _) => repository,
            };
            finding
                .message(format!(
                    "{} has had no latest tag since 2019-04-16",
                    imaged.reference.repository
                ))
                .remedy(format!(
                    "use a tag with the Windows build: {}/{repository}:{tag}",
                    imaged.reference.registry
                ));
        }
    }),
    ..Rule::BASE
};

/// Whether an image of .NET has a tag without Windows variants, and its registry does not report one nevertheless.
fn is_dotnet_linux_only(imaged: &Imaged<'_>) -> bool {
    let reference = &imaged.reference;
    let has_windows = || {
        imaged
            .contents()
            .is_some_and(|known| known.windows().next().is_some())
    };
    reference.repository.starts_with("dotnet/")
        && os_hint(reference) == OsHint::DotnetLinuxOnly
        && !has_windows()
}

/// Tags of .NET that have no Windows variant.
pub static DOTNET_TAG_LINUX_ONLY: Rule = Rule {
    id: "TSM603",
    name: "dotnet-tag-linux-only",
    severity: Severity::Error,
    class: Class::Run,
    summary: "since .NET 8, tags without an operating system are for Linux only",
    docs: "Up to .NET 7, a tag such as `7.0` of Microsoft's .NET images had both Linux and Windows variants. Since \
           .NET 8 such tags have Linux variants only, because containerd could choose a Windows variant that did not \
           match the node. On a Windows node the pull fails with `no match for platform in manifest`. Tags of Windows \
           images include their base: `-nanoserver-ltsc2022`, `-windowsservercore-ltsc2022`. Some repositories \
           (`runtime-deps`, `monitor`) no longer have Windows images.",
    remedy: "use a tag with a Windows base, such as 8.0-nanoserver-ltsc2022, of a repository that has one",
    see: &[
        DOTNET_TAGS,
        "https://github.com/dotnet/dotnet-docker/blob/main/documentation/supported-tags.md",
    ],
    bad: &[
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/aspnet:8.0'}]",
        "initContainers: [{name: init, image: 'mcr.microsoft.com/dotnet/sdk:9.0.100'}]",
        "ephemeralContainers: [{name: debugger, image: 'mcr.microsoft.com/dotnet/runtime:8.0.4-amd64'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/monitor:9'}]",
    ],
    good: &[
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-ltsc2022'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/aspnet:7.0'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/framework/aspnet:4.8'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/aspnet:8.0@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}]",
        "containers: [{name: app, image: 'registry.example.com/dotnet/aspnet:8.0'}]",
        // The registry knows better.
        "# image mcr.microsoft.com/dotnet/aspnet:8.0: linux/amd64, windows/amd64 10.0.20348.2700\ncontainers: [{name: app, image: 'mcr.microsoft.com/dotnet/aspnet:8.0'}]",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        for imaged in images(cx).filter(is_dotnet_linux_only) {
            let finding = out.report(imaged.container.at(&["image"]));
            finding.message(format!("{} exists for Linux only", imaged.shown()));
            let repository = imaged.reference.repository;
            if let (Some("aspnet" | "runtime" | "sdk"), Some(tag)) =
                (repository.rsplit('/').next(), imaged.reference.tag)
            {
                let version = ["-amd64", "-arm64v8", "-arm32v7"]
                    .iter()
                    .find_map(|architecture| tag.strip_suffix(architecture))
                    .unwrap_or(tag);
                // .NET 8 and later have images for these releases only.
                let base = match proposed_tag(cx, true) {
                    base @ ("1809" | "ltsc2025") => base,
                    _ => "ltsc2022",
                };
                finding.remedy(format!(
                    "use {}/{repository}:{version}-nanoserver-{base}, or another tag with a Windows base",
                    imaged.reference.registry
                ));
            }
        }
    }),
    ..Rule::BASE
};

static RUN_AS_ADMINISTRATOR: Rule = Rule {
    id: "TSM605",
    name: "run-as-administrator",
    severity: Severity::Advice,
    class: Class::BestPractice,
    summary: "the container runs as ContainerAdministrator",
    docs: "ContainerAdministrator has all rights inside the container, over files, services and the registry. \
           `runAsNonRoot: true` rejects this user only if the pod or the image sets it by name. Containers on Server \
           Core, Server and Windows base images run as ContainerAdministrator unless the image or `runAsUserName` sets \
           another user; Nano Server images set ContainerUser themselves. Transom sees the user that an image sets \
           only if it asked the registry for the configuration of the image. Otherwise, if your image sets one, set \
           the same user in `runAsUserName` to resolve the finding. HostProcess containers use users of the host and \
           are excluded. The images of IIS, ASP.NET and WCF are excluded too. Their `ServiceMonitor.exe` starts a \
           Windows service, which ContainerUser is not allowed to do. The container then stops with `Failed to stop or \
           query status of service 'w3svc' error [80070005]`. The same is true of images built on one of them, even if \
           their name does not show it: test the user before you set it.",
    remedy: "set windowsOptions.runAsUserName to ContainerUser, if the image can start as that user",
    see: &[
        RUN_AS_USER_NAME,
        "https://kubernetes.io/docs/concepts/security/windows-security/",
        "https://github.com/microsoft/IIS.ServiceMonitor/issues/77",
    ],
    bad: &[
        "containers: [{name: app, image: 'registry.example.com/app:1.0', securityContext: {windowsOptions: {runAsUserName: containeradministrator}}}]",
        "{securityContext: {windowsOptions: {runAsUserName: ContainerAdministrator}}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]",
        "initContainers: [{name: init, image: 'mcr.microsoft.com/dotnet/framework/runtime:4.8'}]",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 user=containeradministrator\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        "{securityContext: {windowsOptions: {runAsUserName: ContainerAdministrator}}, containers: [{name: web, image: 'mcr.microsoft.com/dotnet/framework/aspnet:4.8'}, {name: app, image: 'registry.example.com/app:1.0'}]}",
    ],
    good: &[
        // These do not start as ContainerUser.
        "containers: [{name: web, image: 'mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022'}]",
        "containers: [{name: web, image: 'mcr.microsoft.com/dotnet/framework/aspnet:4.8-windowsservercore-ltsc2022'}]",
        "containers: [{name: web, image: 'mcr.microsoft.com/dotnet/framework/wcf:4.8', securityContext: {windowsOptions: {runAsUserName: ContainerAdministrator}}}]",
        "{securityContext: {windowsOptions: {runAsUserName: ContainerAdministrator}}, containers: [{name: web, image: 'mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022'}]}",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022', securityContext: {windowsOptions: {runAsUserName: ContainerUser}}}]",
        "{securityContext: {windowsOptions: {runAsUserName: ContainerUser}}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}",
        "{securityContext: {windowsOptions: {runAsUserName: ContainerAdministrator}}, containers: [{name: app, image: 'registry.example.com/app:1.0', securityContext: {windowsOptions: {runAsUserName: ContainerUser}}}]}",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]",
        "containers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        "# image registry.example.com/servercore:1.0: windows/amd64 10.0.20348.2700 user=ContainerUser\ncontainers: [{name: app, image: 'registry.example.com/servercore:1.0'}]",
        "{hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}",
    ],
    needs: FieldSet::IMAGE.or(FieldSet::RUN_AS_USER_NAME),
    check: Check::Pod(|cx, out| {
        const FIELD: [&str; 3] = ["securityContext", "windowsOptions", "runAsUserName"];
        let mut inherited = false;
        let needs_it = |container: &ContainerAt<'_>| {
            let image = cx.image(container);
            image.is_some_and(|image| image.reference.runs_service_monitor())
        };
        for container in cx
            .containers()
            .filter(|container| !cx.spec.is_host_process(container) && !needs_it(container))
        {
            let own = container
                .windows_options()
                .and_then(|options| options.run_as_user_name.as_deref());
            match own.or_else(|| cx.spec.run_as_user_name(container.container)) {
                Some(user) if !user.eq_ignore_ascii_case(ADMINISTRATOR) => {}
                Some(_) if own.is_none() => inherited = true,
                Some(_) => {
                    out.report(container.at(&FIELD));
                }
                None => {
                    let image = cx.image(&container);
                    match image.and_then(|image| Some((image.facts?, image.user()?))) {
                        Some((facts, user)) if user.eq_ignore_ascii_case(ADMINISTRATOR) => {
                            out.report(container.at(&FIELD)).message(format!(
                                "no user is set, and the image sets ContainerAdministrator ({facts})"
                            ));
                        }
                        Some((_, user)) if !user.is_empty() => {}
                        _ if image.is_some_and(|image| image.reference.is_servercore_or_server_base()) => {
                            out.report(container.at(&FIELD)).message(
                                "no user is set, and images on this base run as ContainerAdministrator by default",
                            );
                        }
                        _ => {}
                    }
                }
            }
        }
        if inherited {
            out.report(cx.at(&FIELD))
                .message("the pod's containers run as ContainerAdministrator");
        }
    }),
    ..Rule::BASE
};

static IMAGE_DOCKER_HUB_MICROSOFT: Rule = Rule {
    id: "TSM606",
    name: "image-docker-hub-microsoft",
    severity: Severity::Error,
    class: Class::Run,
    summary: "Windows images of Microsoft are no longer on Docker Hub",
    docs: "Old examples use images such as `microsoft/windowsservercore` and `microsoft/iis`. Microsoft now publishes \
           Windows images only on its own registry, `mcr.microsoft.com`. The images on Docker Hub were for Windows \
           Server 2016 to 1803 and get no updates. No supported node runs those builds.",
    remedy: "use the corresponding image on mcr.microsoft.com",
    see: &[BASE_IMAGES, LIFECYCLE],
    bad: &[
        "containers: [{name: app, image: 'microsoft/windowsservercore:1709'}]",
        "containers: [{name: app, image: 'docker.io/microsoft/iis'}]",
        "initContainers: [{name: init, image: 'microsoft/nanoserver:latest'}]",
        "containers: [{name: app, image: 'index.docker.io/microsoft/aspnet:4.7.2'}]",
        "containers: [{name: app, image: 'microsoft/dotnet-framework:4.7.2-runtime'}]",
    ],
    good: &[
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]",
        "containers: [{name: app, image: 'quay.io/microsoft/iis:1.0'}]",
        "containers: [{name: app, image: 'microsoft/azure-cli:2.0'}]",
        "containers: [{name: app, image: 'registry.example.com/iis:1.0'}]",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        for imaged in images(cx) {
            let Some(moved) = imaged.reference.mcr_equivalent() else {
                continue;
            };
            let tag = proposed_tag(cx, imaged.reference.is_nano_server());
            let before = match (moved, tag) {
                (moved, "ltsc2025") if moved.contains("/dotnet/framework/") => "4.8.1-windowsservercore-",
                (moved, _) if moved.contains("/dotnet/framework/") => "4.8-windowsservercore-",
                (moved, _) if moved.ends_with("/iis") => "windowsservercore-",
                _ => "",
            };
            out.report(imaged.container.at(&["image"]))
                .message(format!(
                    "{} has moved to mcr.microsoft.com",
                    imaged.reference.repository
                ))
                .remedy(format!("use {moved}:{before}{tag}"));
        }
    }),
    ..Rule::BASE
};

static IMAGE_EOL_BUILD: Rule = Rule {
    id: "TSM607",
    name: "image-eol-build",
    severity: Severity::Advice,
    class: Class::BestPractice,
    summary: "the image is based on a Windows release that is out of support",
    docs: "An image contains the user mode of its Windows release, and Microsoft publishes no security updates for it \
           after the end of support. For long-term releases (LTSC) the rule uses the end of extended support; Nano \
           Server 2016 ended earlier than its release. Cloud providers no longer offer nodes of a release out of \
           support either, and most older images run on no newer node. The rule excludes HostProcess containers, \
           because they use little of their image.",
    remedy: "rebuild the image on a supported base such as ltsc2022 or ltsc2025",
    see: &[LIFECYCLE],
    bad: &[
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:20H2'}]",
        "containers: [{name: app, image: 'golang:1.16-windowsservercore-1909'}]",
        "initContainers: [{name: init, image: 'mcr.microsoft.com/windows/nanoserver:sac2016'}]",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.18363.1556, windows/amd64 10.0.19042.1889\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
    ],
    good: &[
        // One of the variants is supported.
        "# image registry.example.com/app:1.0: windows/amd64 10.0.19042.1889, windows/amd64 10.0.20348.2700\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2025'}]",
        "containers: [{name: app, image: 'registry.example.com/app:20H2'}]",
        "{hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:20H2'}]}",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        for imaged in images(cx) {
            let Some(known) = imaged.versions.as_ref().filter(|known| !known.has_unversioned()) else {
                continue;
            };
            // Of several variants, a node pulls the one for its own build: the newest shows whether any is supported.
            let ended =
                |build: Build| end_of_support(&imaged.reference, build).filter(|end| *end < cx.facts.today);
            let Some((build, Some(end))) = known.builds().map(|build| (build, ended(build))).last() else {
                continue;
            };
            if known.builds().any(|build| ended(build).is_none())
                || cx.spec.is_host_process(&imaged.container)
            {
                continue;
            }
            let nano_server = imaged.reference.is_nano_server()
                && build.release().is_some_and(|r| r.nano_server_end.is_some());
            let base = if nano_server {
                format!("Nano Server of {}", build.with_product())
            } else {
                build.with_product()
            };
            out.report(imaged.container.at(&["image"])).message(format!(
                "{} is based on {base}{}, whose support ended on {end}",
                imaged.shown(),
                imaged.source()
            ));
        }
    }),
    ..Rule::BASE
};
