//! The rule on Windows builds: whether the images of a pod run on the nodes that it requires, and all of them on one
//! node.

use super::{Imaged, VERSIONS, any_of, images, tag_for};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::knowledge::Knowledge;
use crate::model::windows::build::{Build, Compatibility, ContainerIsolation, RELEASES};
use crate::rules::context::{KnownVersions, PodCx};
use crate::rules::rule::{Check, Reporter, Rule};

pub(super) static IMAGE_BUILD_MISMATCH: Rule = Rule {
    id: "TSM601",
    name: "image-build-mismatch",
    severities: "error; warning when the build is read from the tag of another repository than Microsoft's or from a list of Microsoft's tags, or is that of a pool",
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
           it uses the build of that node too; if the pod selects a pool, the build of all its known nodes, as a \
           warning, because the pool may get other nodes. It also compares the builds of a pod's containers with each other. \
           Transom reads the builds of an image from its registry if it asked the registry, else from its tag. A build \
           from the tag of the author's own repository only gives a warning, and so do builds on which containerd and \
           hcsshim disagree. For Microsoft's tags that name no build, such as `4.8`, Microsoft's lists of tags give a \
           warning (`transom knowledge list`), also without a required build. An unknown build gives no finding, and nor does an image with a Windows variant without \
           `os.version`: containerd pulls that variant on every build. If the registry contradicts the tag, the \
           finding says so.",
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
        // A floating tag of Microsoft's, on the required nodes or on the known ones: a warning.
        "{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'mcr.microsoft.com/dotnet/framework/aspnet'}]}",
        r"
{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'mcr.microsoft.com/dotnet/framework/aspnet:4.8'}]}}",
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
        // The known nodes of its pool: a warning.
        r"
{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows, agentpool: win}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-2, labels: {kubernetes.io/os: windows, agentpool: other}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows, agentpool: win}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}}",
        // As the registry lists it, regardless of its name; and an own image, whose tag alone would be a warning.
        "# image mcr.microsoft.com/windows/servercore:ltsc2022: windows/amd64 10.0.17763.6532\n{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}",
        "# image registry.example.com/app:1.0: linux/amd64, windows/amd64 10.0.17763.6532, windows/amd64 10.0.26100.1\n{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}",
        // Three images, of which any two run together.
        "# image registry.example.com/a:1: windows/amd64 10.0.17763.1, windows/amd64 10.0.19042.1\n# image registry.example.com/b:1: windows/amd64 10.0.19042.1, windows/amd64 10.0.20348.1\n# image registry.example.com/c:1: windows/amd64 10.0.17763.1, windows/amd64 10.0.20348.1\ncontainers: [{name: a, image: 'registry.example.com/a:1'}, {name: b, image: 'registry.example.com/b:1'}, {name: c, image: 'registry.example.com/c:1'}]",
        // Two containers that no node runs together.
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: log, image: 'mcr.microsoft.com/windows/nanoserver:1809'}]",
        r"
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: node.kubernetes.io/windows-build, operator: In, values: [10.0.17763, 10.0.20348]}]}]}}}
containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: log, image: 'mcr.microsoft.com/windows/nanoserver:1809'}]",
    ],
    good: &[
        // A floating tag with a variant for one of the nodes, without a known node, and that its registry has for the node.
        r"
{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'mcr.microsoft.com/dotnet/framework/aspnet:4.8.1'}]}}",
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/framework/aspnet:4.8'}]",
        r"# image mcr.microsoft.com/dotnet/framework/aspnet:4.8: windows/amd64 10.0.20348.2700
{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'mcr.microsoft.com/dotnet/framework/aspnet:4.8'}]}}",
        "{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}",
        "{nodeSelector: {node.kubernetes.io/windows-build: 10.0.26100}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}, {name: log, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2025'}]",
        "containers: [{name: app, image: 'registry.example.com/app:1.0-ltsc2022'}, {name: log, image: 'registry.example.com/log:1.0-nanoserver-1809'}]",
        // One of the variants runs; a variant without a version may.
        "# image registry.example.com/app:1.0-ltsc2019: windows/amd64 10.0.17763.6532, windows/amd64 10.0.20348.2700\n{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'registry.example.com/app:1.0-ltsc2019'}]}",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.17763.6532, windows/amd64\n{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}",
        // A pool with nodes of two builds.
        r"
{apiVersion: v1, kind: Node, metadata: {name: win-1, labels: {kubernetes.io/os: windows, agentpool: win}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-2, labels: {kubernetes.io/os: windows, agentpool: win}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows, agentpool: win}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}}",
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
    let is_of_pool = cx.selects_builds_by_pool();
    let bound = bound_build(cx);
    let mut certain = Vec::new();
    for imaged in images(cx) {
        let Some(versions) = &imaged.versions else {
            continue;
        };
        let (node, on_node) = bound.as_ref().map_or(("", &[][..]), |(name, build)| {
            (*name, std::slice::from_ref(build))
        });
        if let Some(disputed) = kernel.runs_on_none(versions, &required) {
            let subject = if is_of_pool {
                "the known nodes of its pool are"
            } else {
                "the pod requires"
            };
            let nodes = format!("{subject} {}", any_of(required.iter().copied()));
            kernel.report(out, &imaged, versions, disputed || is_of_pool, &required, &nodes);
        } else if let Some(disputed) = kernel.runs_on_none(versions, on_node) {
            let nodes = format!("its node {node} is {}", any_of(on_node.iter().copied()));
            kernel.report(out, &imaged, versions, disputed, on_node, &nodes);
        } else if versions.is_certain() {
            certain.push(imaged);
        } else if matches!(versions, KnownVersions::Published(_)) && required.is_empty() {
            // Placement adds no guess, so no other rule reports it.
            let known = cx.host_builds();
            if let Some(disputed) = kernel.runs_on_none(versions, &known) {
                let nodes = format!("the known Windows nodes are {}", any_of(known.iter().copied()));
                kernel.report(out, &imaged, versions, disputed, &known, &nodes);
            }
        }
    }
    if certain.len() > 1 {
        let mut together = Together::new(if is_of_pool { &[] } else { &required });
        for imaged in certain {
            together.add(&kernel, imaged, out);
        }
    }
}

/// The images of a pod so far whose builds are certain, and the hosts that may run all of them.
struct Together<'c> {
    /// Those that leave fewer hosts: at most one for each host.
    images: Vec<Imaged<'c>>,
    hosts: Vec<Build>,
    /// The builds that the pod requires; of every release if it requires none.
    candidates: Vec<Build>,
    is_anywhere: bool,
}

impl<'c> Together<'c> {
    fn new(required: &[Build]) -> Self {
        let releases = RELEASES.iter().map(|release| release.build);
        let candidates: Vec<Build> = if required.is_empty() {
            releases.collect()
        } else {
            required.to_vec()
        };
        Together {
            images: Vec::new(),
            hosts: candidates.clone(),
            candidates,
            is_anywhere: required.is_empty(),
        }
    }

    /// Adds an image, or reports it if no host runs it and the others.
    fn add(&mut self, kernel: &HostKernel<'_>, imaged: Imaged<'c>, out: &mut Reporter<'_>) {
        let may_run = |host: &Build| kernel.may_run(&imaged, *host);
        if self.hosts.iter().any(may_run) {
            let before = self.hosts.len();
            self.hosts.retain(may_run);
            if self.hosts.len() < before {
                self.images.push(imaged);
            }
            return;
        }
        if !self.candidates.iter().any(may_run) {
            return;
        }
        let excludes = |other: &&Imaged<'_>| {
            let mut hosts = self.candidates.iter().filter(|host| may_run(host));
            !hosts.any(|host| kernel.may_run(other, *host))
        };
        // If no other image alone excludes it, several do together; the message names one of them.
        if let Some(other) = self.images.iter().find(excludes).or(self.images.last()) {
            report_pair(out, &imaged, other, self.is_anywhere);
        }
    }
}

/// Which kernel the pod's containers run on.
struct HostKernel<'c> {
    isolation: ContainerIsolation,
    published: &'c Knowledge,
    /// Whether the pod names an unknown RuntimeClass, which may use Hyper-V isolation.
    in_doubt: bool,
}

impl<'c> HostKernel<'c> {
    fn of(cx: &PodCx<'c>) -> HostKernel<'c> {
        HostKernel {
            isolation: cx.isolation(),
            published: &cx.facts.knowledge,
            in_doubt: cx.has_unknown_runtime_class(),
        }
    }

    fn compatibility(&self, image: &KnownVersions, host: Build) -> Compatibility {
        let known = image.compatibility(host, self.isolation);
        if self.in_doubt && image.compatibility(host, ContainerIsolation::HyperV) != known {
            return Compatibility::Unknown;
        }
        known
    }

    /// Whether any host is disputed; `None` if `hosts` is empty or some host may run the image.
    fn runs_on_none(&self, image: &KnownVersions, hosts: &[Build]) -> Option<bool> {
        let mut disputed = false;
        for host in hosts {
            match self.compatibility(image, *host) {
                Compatibility::Runs | Compatibility::Unknown => return None,
                Compatibility::Disputed => disputed = true,
                Compatibility::Fails => {}
            }
        }
        (!hosts.is_empty()).then_some(disputed)
    }

    /// Whether a host may run an image.
    fn may_run(&self, imaged: &Imaged<'_>, host: Build) -> bool {
        let fails = |known| self.compatibility(known, host) == Compatibility::Fails;
        !imaged.versions.as_ref().is_some_and(fails)
    }

    fn report(
        &self,
        out: &mut Reporter<'_>,
        imaged: &Imaged<'_>,
        versions: &KnownVersions,
        warns: bool,
        hosts: &[Build],
        nodes: &str,
    ) {
        let reference = &imaged.reference;
        let nano_server = reference.is_nano_server();
        let published = |host: &Build| self.published.published_for(reference, *host, self.isolation);
        let tag = || {
            hosts
                .iter()
                .find_map(|host| tag_for(*host, self.isolation, nano_server))
        };
        let mut remedy = match hosts.iter().find_map(published) {
            Some(published) => format!("use {}", published.image),
            None => tag().map_or_else(
                || "use an image for the build of the nodes".to_owned(),
                |tag| format!("use a tag for {tag}"),
            ),
        };
        let isolated =
            |host: &Build| versions.compatibility(*host, ContainerIsolation::HyperV) == Compatibility::Runs;
        if self.isolation == ContainerIsolation::Process && hosts.iter().any(isolated) {
            remedy.push_str(", or Hyper-V isolation (RuntimeClass handler runhcs-wcow-hypervisor)");
        }
        let is_disputed = |host: &Build| self.compatibility(versions, *host) == Compatibility::Disputed;
        let caveat = if hosts.iter().any(is_disputed) {
            "; containerd runs it there, but hcsshim may not"
        } else {
            ""
        };
        let finding = out.report(imaged.container.at(&["image"]));
        finding
            .message(format!(
                "{} is for {}{}, but {nodes}{caveat}",
                imaged.shown(),
                any_of(versions.builds()),
                imaged.source()
            ))
            .remedy(remedy);
        if warns || !versions.is_certain() {
            finding.severity(Severity::Warning);
        }
    }
}

fn report_pair(out: &mut Reporter<'_>, imaged: &Imaged<'_>, other: &Imaged<'_>, is_anywhere: bool) {
    let no_host = if is_anywhere {
        "no Windows release"
    } else {
        "no node that the pod requires"
    };
    let builds = |of: &Imaged<'_>| {
        of.versions
            .as_ref()
            .map_or_else(String::new, |known| any_of(known.builds()))
    };
    out.report(imaged.container.at(&["image"]))
        .message(format!(
            "{no_host} runs both this image (for {}{}) and {} (for {}{})",
            builds(imaged),
            imaged.source(),
            other.shown(),
            builds(other),
            other.source()
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
