//! The rule on Windows builds: whether the images of a pod run on the nodes that it requires, and all of them on one
//! node.

use super::{Imaged, VERSIONS, images, named, tag_for};
use crate::model::build::{Build, Compatibility, ContainerIsolation, RELEASES, compatibility};
use crate::model::field_set::FieldSet;
use crate::model::severity::{Class, Severity};
use crate::rules::context::PodCx;
use crate::rules::rule::{Check, Reporter, Rule};

pub(super) static IMAGE_BUILD_MISMATCH: Rule = Rule {
    id: "TSM601",
    name: "image-build-mismatch",
    severities: "error; warning when the build is read from the tag of another repository than Microsoft's",
    severity: Severity::Error,
    class: Class::Run,
    summary: "the image's Windows build does not run on the nodes that the pod requires",
    docs: "A Windows container shares the kernel of its node, so their builds must be compatible: nodes before Windows \
           Server 2022 run images of their own build only; Windows Server 2022 images also run on newer nodes. \
           Otherwise the node cannot pull the image (`no match for platform in manifest`) or the container does not \
           start (`The operating system of the container does not match the operating system of the host`, \
           0xc0370101). With Hyper-V isolation, the container has its own kernel, and the node runs every build up to \
           its own. HostProcess containers run on any build. Transom compares the build of an image with the builds \
           that the pod's nodeSelector, RuntimeClass or required node affinity allows. If the pod is bound to a node, \
           it uses the build of that node too. It also compares the builds of a pod's containers with each other. \
           Transom reads the build of an image from its tag and does not contact the registry. A build from the tag of \
           the author's own repository only gives a warning, and so do builds on which containerd and hcsshim \
           disagree. An unknown build gives no finding.",
    remedy: "use an image for the build of the nodes",
    see: &[
        VERSIONS,
        "https://kubernetes.io/docs/concepts/windows/intro/#windows-os-version-support",
        "containerd: platforms/platform_windows_compat.go, checkWindowsHostAndContainerCompat",
        "hcsshim: osversion/platform_compat_windows.go, CheckHostAndContainerCompat",
    ],
    bad: &[
        "{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}",
        "{nodeSelector: {node.kubernetes.io/windows-build: 10.0.17763}, initContainers: [{name: init, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}",
        "{nodeSelector: {transom.dev.node-restriction.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-1809'}]}",
        // A tag of the author's own repository: a warning.
        "{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'registry.example.com/app:1.0-windowsservercore-ltsc2019'}]}",
        // containerd and hcsshim disagree: a warning.
        "{nodeSelector: {node.kubernetes.io/windows-build: 10.0.26200}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}",
        r"
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: node.kubernetes.io/windows-build, operator: In, values: [10.0.20348]}]},
  {matchExpressions: [{key: node.kubernetes.io/windows-build, operator: In, values: [10.0.26100]}]}]}}}
containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]",
        // Selected by the RuntimeClass.
        r"
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2022}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, runtimeClassName: windows-2022, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}}",
        // Hyper-V isolation does not run a newer build.
        r"
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: hyperv}, handler: runhcs-wcow-hypervisor}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, runtimeClassName: hyperv, nodeSelector: {node.kubernetes.io/windows-build: 10.0.17763}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}}",
        // Bound to a node.
        r"
{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, nodeName: win-1, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}}",
        // Pinned to a node, as DaemonSet pods are.
        r"
{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [win-1]}]}]}}}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}}",
        // Two containers that no node runs together.
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: log, image: 'mcr.microsoft.com/windows/nanoserver:1809'}]",
        r"
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: node.kubernetes.io/windows-build, operator: In, values: [10.0.17763, 10.0.20348]}]}]}}}
containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: log, image: 'mcr.microsoft.com/windows/nanoserver:1809'}]",
    ],
    good: &[
        "{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}",
        "{nodeSelector: {node.kubernetes.io/windows-build: 10.0.26100}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: log, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2025'}]",
        "containers: [{name: app, image: 'registry.example.com/app:1.0-ltsc2022'}, {name: log, image: 'registry.example.com/log:1.0-nanoserver-1809'}]",
        // The build of the image, or the required build, is unknown.
        "{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'registry.example.com/app:1809'}]}",
        "{nodeSelector: {node.kubernetes.io/windows-build: '2022'}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}",
        r"
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: node.kubernetes.io/windows-build, operator: In, values: [10.0.17763, 10.0.20348]}]}]}}}
containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]",
        r"
{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}},
 containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:1809'}, {name: other, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}",
        r"
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: hyperv}, handler: runhcs-wcow-hypervisor}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, runtimeClassName: hyperv, nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}}",
        // An unknown RuntimeClass may use Hyper-V isolation.
        "{runtimeClassName: unknown, nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}",
        r"
{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.1}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, nodeName: win-1, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}}",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(check),
    ..Rule::BASE
};

/// No author names more builds than exist; the limit keeps the work in proportion to the pod.
const MOST_BUILDS: usize = 64;

fn check(cx: &PodCx<'_>, out: &mut Reporter<'_>) {
    let kernel = HostKernel::of(cx);
    if kernel.isolation == ContainerIsolation::HostProcess {
        return;
    }
    let required = cx.selected_builds();
    if required.len() > MOST_BUILDS {
        return;
    }
    let bound = bound_build(cx);
    let mut newest: Option<(Imaged<'_>, Build)> = None;
    for imaged in images(cx) {
        let Some((build, certain)) = imaged.build else {
            continue;
        };
        let (node, on_node) = bound.as_ref().map_or(("", &[][..]), |(name, build)| {
            (*name, std::slice::from_ref(build))
        });
        if let Some(disputed) = kernel.runs_on_none(build, &required) {
            let nodes = format!("the pod requires {}", any_of(&required));
            kernel.report(out, &imaged, build, certain && !disputed, &required, &nodes);
        } else if let Some(disputed) = kernel.runs_on_none(build, on_node) {
            let nodes = format!("its node {node} is {}", any_of(on_node));
            kernel.report(out, &imaged, build, certain && !disputed, on_node, &nodes);
        } else if certain && kernel.has_host(build, build, &required) {
            match &newest {
                Some((other, newest)) if !kernel.has_host(build, *newest, &required) => {
                    report_pair(out, &imaged, build, other, *newest, required.is_empty());
                }
                Some((_, newest)) if build <= *newest => {}
                // Of two images' builds, the newest runs on the fewest hosts: a host that runs it also runs the others.
                _ => newest = Some((imaged, build)),
            }
        }
    }
}

/// Which kernel the pod's containers run on.
struct HostKernel {
    isolation: ContainerIsolation,
    /// Whether the pod names an unknown RuntimeClass, which may use Hyper-V isolation.
    in_doubt: bool,
}

impl HostKernel {
    fn of(cx: &PodCx<'_>) -> HostKernel {
        let names_class = cx
            .spec
            .runtime_class_name
            .as_deref()
            .is_some_and(|name| !name.is_empty());
        HostKernel {
            isolation: cx.isolation(),
            in_doubt: names_class && cx.runtime_class().is_none(),
        }
    }

    fn compatibility(&self, container: Build, host: Build) -> Compatibility {
        let known = compatibility(container, host, self.isolation);
        if self.in_doubt && compatibility(container, host, ContainerIsolation::HyperV) != known {
            return Compatibility::Unknown;
        }
        known
    }

    /// Whether any host is disputed; `None` if `hosts` is empty or some host may run the build.
    fn runs_on_none(&self, container: Build, hosts: &[Build]) -> Option<bool> {
        let mut disputed = false;
        for host in hosts {
            match self.compatibility(container, *host) {
                Compatibility::Runs | Compatibility::Unknown => return None,
                Compatibility::Disputed => disputed = true,
                Compatibility::Fails => {}
            }
        }
        (!hosts.is_empty()).then_some(disputed)
    }

    /// Whether one of these hosts may run both builds; without hosts, a host of any release.
    fn has_host(&self, one: Build, other: Build, hosts: &[Build]) -> bool {
        let may_run = |host: Build| {
            self.compatibility(one, host) != Compatibility::Fails
                && self.compatibility(other, host) != Compatibility::Fails
        };
        if hosts.is_empty() {
            RELEASES.iter().any(|release| may_run(release.build))
        } else {
            hosts.iter().any(|host| may_run(*host))
        }
    }

    fn report(
        &self,
        out: &mut Reporter<'_>,
        imaged: &Imaged<'_>,
        build: Build,
        sure: bool,
        hosts: &[Build],
        nodes: &str,
    ) {
        let nano_server = imaged.image.is_nano_server();
        let mut remedy = match hosts
            .iter()
            .find_map(|host| tag_for(*host, self.isolation, nano_server))
        {
            Some(tag) => format!("use a tag for {tag}"),
            None => "use an image for the build of the nodes".to_owned(),
        };
        let isolated =
            |host: &Build| compatibility(build, *host, ContainerIsolation::HyperV) == Compatibility::Runs;
        if self.isolation == ContainerIsolation::Process && hosts.iter().any(isolated) {
            remedy.push_str(", or Hyper-V isolation (RuntimeClass handler runhcs-wcow-hypervisor)");
        }
        let disputed = hosts
            .iter()
            .any(|host| self.compatibility(build, *host) == Compatibility::Disputed);
        let doubt = if disputed {
            "; containerd runs it there, but hcsshim may not"
        } else {
            ""
        };
        let finding = out.report(imaged.container.at(&["image"]));
        finding
            .says(format!(
                "{} is for {}, but {nodes}{doubt}",
                imaged.shown(),
                named(build)
            ))
            .remedy(remedy);
        if !sure {
            finding.severity(Severity::Warning);
        }
    }
}

fn report_pair(
    out: &mut Reporter<'_>,
    imaged: &Imaged<'_>,
    build: Build,
    other: &Imaged<'_>,
    other_build: Build,
    anywhere: bool,
) {
    let no_host = if anywhere {
        "no Windows release"
    } else {
        "no node that the pod requires"
    };
    out.report(imaged.container.at(&["image"]))
        .says(format!(
            "{no_host} runs both this image (for {}) and {} (for {})",
            named(build),
            other.shown(),
            named(other_build)
        ))
        .remedy("base all images of a pod on the same Windows release, or split the pod");
}

/// The node that the pod is bound to, or pinned to like DaemonSet pods, and its build, if both are known.
fn bound_build<'c>(cx: &PodCx<'c>) -> Option<(&'c str, Build)> {
    let bound = cx.spec.node_name.as_deref().filter(|name| !name.is_empty());
    let name = bound.or_else(|| {
        let mut pinned = cx.spec.required_terms().iter().map(|term| {
            let field = term
                .match_fields
                .iter()
                .find(|field| &*field.key == "metadata.name")?;
            (&*field.operator == "In" && field.values.len() == 1).then(|| field.values.first())?
        });
        let first = pinned.next()??;
        pinned.all(|name| name == Some(first)).then_some(&**first)
    })?;
    let host = cx.facts.hosts().iter().find(|host| host.name == name)?;
    Some((name, host.build?))
}

/// Builds for messages, joined with `or`; only the first few of many.
fn any_of(builds: &[Build]) -> String {
    const SHOWN: usize = 3;
    let mut text = String::new();
    for (i, build) in builds.iter().take(SHOWN).enumerate() {
        if i > 0 {
            text.push_str(" or ");
        }
        text.push_str(&named(*build));
    }
    if builds.len() > SHOWN {
        text.push_str(" or another");
    }
    text
}
