//! Node placement: builds, taints, RuntimeClasses, DaemonSets, and Linux pods that could land on Windows nodes.

pub mod reach;
mod resources;
mod windows_nodes_only;

pub use windows_nodes_only::WINDOWS_NODES_ONLY;

use self::reach::{BuildNeed, Withheld, build_need, mislabelled};
use super::context::{ContainerAt, KnownVersions, PodCx, Reached};
use super::os::{OsSelection, selects_windows, speaks_of_os, stated_selector};
use super::rule::{Check, Finding, Reporter, Rule};
use crate::model::cluster::policy::{LinuxPods, PlacementField};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::nodes::node::{ARCH_LABEL, BETA_ARCH_LABEL, BUILD_LABEL, Host, Taint};
use crate::model::nodes::node_affinity::Match;
use crate::model::nodes::os_selectors::{TermOs, is_build_label, is_os_label, os_of_term};
use crate::model::objects::pod::NodeSelectorTerm;
use crate::model::syntax::text::shown;
use crate::model::windows::build::{Build, ContainerIsolation};
use crate::model::windows::image::ImageRef;
use crate::model::windows::os::{EvidenceKind, Os, Verdict};

/// Rules TSM701 and up.
pub static RULES: &[&Rule] = &[
    &MISSING_WINDOWS_TOLERATION,
    &MISSING_BUILD_SELECTOR,
    &WINDOWS_BUILD_FORMAT,
    &WINDOWS_ARCH,
    &RUNTIME_CLASS_CONFLICT,
    &DAEMONSET_TEMPLATE_UNSELECTIVE,
    &DAEMONSET_SPANS_BUILDS,
    &HYPERV_ANNOTATION,
    &LINUX_POD_TOLERATES_WINDOWS,
    &SPREAD_OVER_WINDOWS_NODES,
    &resources::RESOURCE_NOT_OFFERED,
    &WINDOWS_NODES_ONLY,
];

const GUIDE: &str = "https://kubernetes.io/docs/concepts/windows/user-guide/";
const COMPATIBILITY: &str =
    "https://learn.microsoft.com/virtualization/windowscontainers/deploy-containers/version-compatibility";

/// A known Windows node that a Linux or Unknown pod could be scheduled on. `None` if its selectors select by operating
/// system or match no such node, or if a taint keeps it off.
pub fn stray_target<'c>(cx: &PodCx<'c>) -> Option<&'c Host> {
    if cx.spec.is_bound() || cx.subject.is_daemonset_pod() || speaks_of_os(cx) {
        return None;
    }
    let constraints = cx.reach().constraints();
    // Of a pool at zero without a label nothing shows that a Linux pod could reach it.
    let is_there = |host: &&Host| !host.may_be_at_zero || !host.labels.is_empty();
    let known = cx.facts.hosts().iter().filter(is_there);
    known
        .chain(&cx.facts.pools)
        .find(|host| constraints.matches(*host) == Match::Yes && constraints.tolerates_lasting(&host.taints))
}

/// Whether adding the Linux selector cannot exclude nodes that the pod needs: it is a Linux pod, or only taints decide
/// where it lands. A pod without evidence whose own selectors match a Windows node may be a Windows pod.
pub fn may_be_held_to_linux(cx: &PodCx<'_>) -> bool {
    cx.inference.verdict == Verdict::Linux || cx.reach().constraints().is_empty()
}

/// The taints of Windows nodes that the pod needs a toleration for, without those that the policy lists and no node
/// has.
fn missing_tolerations<'c>(cx: &PodCx<'c>) -> Vec<&'c Taint> {
    let mut needed = reach::needed_tolerations(cx);
    needed.retain(|taint| {
        let mut hosts = cx.hosts();
        taint.marks_windows() && hosts.any(|host| host.taints.contains(taint))
    });
    needed
}

/// Pods that do not tolerate the taints of Windows nodes.
pub static MISSING_WINDOWS_TOLERATION: Rule = Rule {
    id: "TSM701",
    name: "missing-windows-toleration",
    severities: "warning; error for a DaemonSet if every node and declared pool that it selects has the taint",
    class: Class::BestPractice,
    caused_by_placement: true,
    placed_by: Some(PlacementField::Tolerations),
    summary: "the cluster's Windows nodes have a taint that the pod does not tolerate",
    docs: "Windows nodes are tainted to keep Linux pods off them: os=windows:NoSchedule, \
           node.kubernetes.io/os=windows:NoSchedule and so on. A Windows pod that does not tolerate the taint stays \
           Pending. The rule checks the taints that the known Windows nodes have. Placement adds the toleration to \
           pods; the template of a DaemonSet must have it itself. If every node and every declared pool that a \
           DaemonSet selects has the taint, none of its pods could run, so the finding is an error.",
    remedy: "add the toleration",
    see: &[GUIDE],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: w}, spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Node, metadata: {name: w}, spec: {taints: [{key: os, value: Windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, tolerations: [{key: os, value: windows, effect: NoSchedule}], containers: [{name: app, image: app}]}}}}",
    ],
    good: &[
        "{}",
        "{apiVersion: v1, kind: Node, metadata: {name: w}, spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, tolerations: [{key: os, operator: Exists}], containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Node, metadata: {name: w}, spec: {taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}, {key: tenant, value: windows-team, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        if cx.spec.is_bound() || !cx.subject.kind.selects_nodes() {
            return;
        }
        let namespace = cx.facts.namespaces.get(&*cx.subject.namespace);
        let restricted = namespace.is_some_and(|namespace| namespace.tolerations_whitelist.is_some());
        let also = if restricted {
            ", and allow it in the namespace's annotation tolerationsWhitelist"
        } else {
            ""
        };
        for taint in missing_tolerations(cx) {
            let runs_nowhere = cx.subject.kind.is_daemon_set() && reach::is_everywhere(cx, taint);
            out.report(cx.at(&["tolerations"]))
                .severity(if runs_nowhere {
                    Severity::Error
                } else {
                    Severity::Warning
                })
                .message(format!(
                    "Windows nodes have the taint {taint}, which the pod does not tolerate"
                ))
                .taint(taint)
                .remedy(format!("add the toleration {}{also}", taint.toleration_yaml()));
        }
    }),
    ..Rule::BASE
};

static MISSING_BUILD_SELECTOR: Rule = Rule {
    id: "TSM702",
    name: "missing-build-selector",
    severities: "warning; advice when no Windows node is known",
    severity: Severity::Warning,
    class: Class::BestPractice,
    kubernetes: 17..=Rule::STILL,
    placed_by: Some(PlacementField::WindowsBuild),
    summary: "nothing keeps the pod off Windows nodes that cannot run its image",
    docs: "A Windows container with process isolation needs a node whose build runs its image. If the cluster has \
           nodes of several builds and the pod selects none, it may land on a wrong node and fail with 0xc0370101. \
           Placement adds the requirement to pods: the nodeSelector if only one build runs the image, else a required \
           node affinity with every build that does. If a node that runs the image does not have the label, placement \
           excludes the known wrong builds instead. Placement never requires anything that excludes a node that runs \
           the image. If no Windows node is known, placement requires no build, and the finding is advice. A \
           WindowsNodePolicy keeps the label correct.",
    remedy: "select the build with the label node.kubernetes.io/windows-build",
    see: &[GUIDE, COMPATIBILITY],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: b}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}}",
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.17763.6532, windows/amd64 10.0.20348.2700\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
    ],
    good: &[
        "{}",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.17763.6532, windows/amd64\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        "{nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}",
        "{apiVersion: v1, kind: Node, metadata: {name: a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: b}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.1}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}}",
        "{hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        let is_placed = cx.spec.is_bound() || cx.subject.is_placed_by_daemonset();
        let kind = cx.subject.kind;
        if is_placed || kind.is_daemon_set() || !kind.selects_nodes() {
            return;
        }
        match build_need(cx) {
            BuildNeed::Nothing => {}
            BuildNeed::NoHostKnown { images, runs } => {
                out.report(cx.at(&["nodeSelector"]))
                    .severity(Severity::Advice)
                    .message(format!(
                        "the image is for build {}, and nothing keeps the pod off nodes that cannot run it",
                        any_of(&images)
                    ))
                    .remedy(format!("if the cluster has several builds, {}", require(&runs)));
            }
            BuildNeed::Withheld(Withheld::Label, _) => {
                let label = cx.policy.build_label();
                out.report(cx.at(&["nodeSelector"]))
                    .message(format!(
                        "the pod can land on Windows nodes that cannot run its image, and the label {label} does not \
                         distinguish them from those that can"
                    ))
                    .remedy(format!(
                        "let a WindowsNodePolicy keep the label {label}, or select the nodes by another label that they \
                         have"
                    ));
            }
            BuildNeed::Withheld(Withheld::Domains(key), builds) => {
                out.report(cx.at(&["nodeSelector"]))
                    .message(format!(
                        "the pod can land on Windows nodes that cannot run its image, but without them its topology spread \
                         constraint over {} has fewer domains than minDomains",
                        shown(&key)
                    ))
                    .remedy(format!("lower minDomains, and {}", require(&builds)));
            }
            BuildNeed::NoneOf(builds) => {
                let builds: Vec<String> = builds.iter().map(ToString::to_string).collect();
                out.report(cx.at(&["nodeSelector"]))
                    .message("the pod can land on Windows nodes that cannot run its image")
                    .remedy(format!(
                        "require with node affinity that {} is not {}",
                        cx.policy.build_label(),
                        builds.join(" or ")
                    ));
            }
            BuildNeed::OneOf { allowed, .. } => {
                let none = !cx.host_builds().iter().any(|host| allowed.contains(host));
                let reported = if none {
                    "no known Windows node can run the pod's image, and nothing keeps it off them"
                } else {
                    "the cluster has Windows nodes that cannot run the pod's image, and nothing keeps it off them"
                };
                let finding = out.report(cx.at(&["nodeSelector"]));
                finding.message(reported).remedy(require(&allowed));
                if none {
                    finding.remedy(format!(
                        "use an image for an existing build, or {}",
                        require(&allowed)
                    ));
                }
            }
        }
        if let Some(host) = mislabelled(cx) {
            let label = cx.policy.build_label();
            let reported = host.labels.get(label).unwrap_or_default();
            let build = host.build.map(|build| build.to_string()).unwrap_or_default();
            out.report(cx.at(&["nodeSelector"]).key(label))
                .message(format!(
                    "node {} runs build {build}, which cannot run the image, but its label {label} says {}: selecting the build \
                     does not keep the pod off this node",
                    host.name,
                    shown(reported)
                ))
                .remedy(format!(
                    "let a WindowsNodePolicy correct the label {label}, or restart the kubelet of the node"
                ));
        }
        if let Some((image, host)) = selected_but_unfit(cx) {
            out.report(cx.at(&["affinity"]))
                .message(format!(
                    "the pod also selects build {host}, which cannot run its image (build {})",
                    any_of(&image.builds().collect::<Vec<_>>())
                ))
                .remedy(format!("remove {host}"));
        }
    }),
    ..Rule::BASE
};

/// The remedy that requires the label to have one of these builds: a nodeSelector has one value for a label.
fn require(builds: &[Build]) -> String {
    match builds {
        [build] => format!("set nodeSelector {BUILD_LABEL}: {build}"),
        _ => format!(
            "require with node affinity that {BUILD_LABEL} is {}",
            any_of(builds)
        ),
    }
}

/// Builds for messages.
fn any_of(builds: &[Build]) -> String {
    let builds: Vec<String> = builds.iter().map(ToString::to_string).collect();
    builds.join(" or ")
}

/// An image and a build that the pod selects among others, that a known node has, and that cannot run the image.
fn selected_but_unfit<'c>(cx: &PodCx<'c>) -> Option<(&'c KnownVersions, Build)> {
    let isolation = cx.isolation();
    if isolation == ContainerIsolation::HostProcess {
        return None;
    }
    let (named, any_other) = cx.named_builds();
    let known = cx.host_builds();
    let images = cx
        .containers()
        .filter_map(|container| cx.image_versions(&container));
    let mut pairs = images.flat_map(|image| named.iter().map(move |host| (image, *host)));
    pairs.find(|(image, host)| {
        // If every remaining build fails, the image is the problem: `image-build-mismatch` reports that.
        let some_other_runs = || any_other || !named.iter().all(|other| image.fail_on(*other, isolation));
        known.contains(host) && image.fail_on(*host, isolation) && some_other_runs()
    })
}

static WINDOWS_BUILD_FORMAT: Rule = Rule {
    id: "TSM703",
    name: "windows-build-format",
    kubernetes: 17..=Rule::STILL,
    verdicts: &[Verdict::Windows, Verdict::Conflicting],
    summary: "no node has such a build label",
    docs: "The kubelet writes `node.kubernetes.io/windows-build` as major.minor.build, for example `10.0.20348`: \
           without the revision, and not as a release name. Gt and Lt need integers and never match.",
    remedy: "write the build like 10.0.20348 (Windows Server 2022); use In for several builds",
    see: &[GUIDE, "kubernetes: pkg/kubelet/winstats/version.go"],
    bad: &[
        "nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348.2700}",
        "nodeSelector: {node.kubernetes.io/windows-build: ltsc2022}",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: node.kubernetes.io/windows-build, operator: Gt, values: ['17763']}]}]}}}",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: node.kubernetes.io/windows-build, operator: In, values: [10.0.20348, '2022']}]}]}}}",
    ],
    good: &[
        "nodeSelector: {node.kubernetes.io/windows-build: 10.0.26100}",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: node.kubernetes.io/windows-build, operator: Exists}]}]}}}",
    ],
    needs: FieldSet::SELECTS_BUILD,
    check: Check::Pod(|cx, out| {
        for (key, value) in &cx.spec.node_selector {
            if is_build_label(key) && Build::parse_label(value).is_none() {
                out.report(cx.at(&["nodeSelector"]).key(key))
                    .message(format!("no node has the build \"{}\"", shown(value)));
            }
        }
        for expression in cx.required_expressions().filter(|e| is_build_label(&e.key)) {
            match &*expression.operator {
                "Gt" | "Lt" => {
                    out.report(expression.at("operator")).message(format!(
                        "the operator {} compares integers, but a build is not an integer",
                        expression.operator
                    ));
                }
                "In" | "NotIn" => {
                    for (v, value) in expression.values.iter().enumerate() {
                        if Build::parse_label(value).is_none() {
                            out.report(expression.at("values").item(v))
                                .message(format!("no node has the build \"{}\"", shown(value)));
                        }
                    }
                }
                _ => {}
            }
        }
    }),
    ..Rule::BASE
};

static WINDOWS_ARCH: Rule = Rule {
    id: "TSM704",
    name: "windows-arch",
    summary: "Windows nodes are amd64",
    docs: "Kubernetes supports Windows nodes on amd64 only. A pod that selects another architecture stays Pending.",
    remedy: "use kubernetes.io/arch: amd64",
    see: &[GUIDE],
    bad: &[
        "nodeSelector: {kubernetes.io/arch: arm64}",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]}]}}}",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/arch, operator: NotIn, values: [amd64]}]}]}}}",
    ],
    good: &[
        "nodeSelector: {kubernetes.io/arch: amd64}",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [arm64, amd64]}]}]}}}",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/arch, operator: NotIn, values: [arm64]}]}]}}}",
    ],
    needs: FieldSet::SELECTS_ARCH,
    check: Check::Pod(|cx, out| {
        for label in [ARCH_LABEL, BETA_ARCH_LABEL] {
            if cx
                .spec
                .node_selector
                .get(label)
                .is_some_and(|arch| &**arch != "amd64")
            {
                out.report(cx.at(&["nodeSelector"]).key(label));
            }
        }
        for expression in cx.required_expressions() {
            let is_arch = &*expression.key == ARCH_LABEL || &*expression.key == BETA_ARCH_LABEL;
            let names = expression.values.iter().any(|value| &**value == "amd64");
            let leaves_out = match &*expression.operator {
                "In" => !names,
                "NotIn" => names,
                _ => false,
            };
            if is_arch && leaves_out {
                out.report(expression.at("values"));
            }
        }
    }),
    ..Rule::BASE
};

static RUNTIME_CLASS_CONFLICT: Rule = Rule {
    id: "TSM705",
    name: "runtime-class-conflict",
    class: Class::ApiAlways,
    verdicts: &[Verdict::Windows, Verdict::Conflicting],
    summary: "the nodeSelector contradicts the RuntimeClass",
    docs: "The API server merges the nodeSelector of the RuntimeClass into the pod. It rejects a pod with another \
           value for the same key with a 403. It does not check templates, so a conflict in a template appears only \
           when its pods fail.",
    remedy: "remove one of the two selectors",
    see: &[
        GUIDE,
        "kubernetes: plugin/pkg/admission/runtimeclass/admission.go",
    ],
    bad: &[
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2019}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {runtimeClassName: windows-2019, nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: app}]}}",
    ],
    good: &[
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2019}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {runtimeClassName: windows-2019, nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    needs: FieldSet::RUNTIME_CLASS,
    check: Check::Pod(|cx, out| {
        let Some(class) = cx.runtime_class() else { return };
        for (key, value) in &cx.spec.node_selector {
            if let Some(other) = class.node_selector.get(&**key).filter(|other| **other != **value) {
                out.report(cx.at(&["nodeSelector"]).key(key)).message(format!(
                    "the pod selects {}, but the RuntimeClass {} selects {}",
                    shown(value),
                    shown(cx.spec.runtime_class_name.as_deref().unwrap_or_default()),
                    shown(other)
                ));
            }
        }
    }),
    ..Rule::BASE
};

static DAEMONSET_TEMPLATE_UNSELECTIVE: Rule = Rule {
    id: "TSM706",
    name: "daemonset-template-unselective",
    severities: "error; warning when the template selects another label, a RuntimeClass selects Windows, or only an image \
                 says Windows",
    placed_by: Some(PlacementField::NodeSelector),
    summary: "nothing in the DaemonSet's template keeps its Windows pods off Linux nodes",
    docs: "The DaemonSet controller uses the template to decide where pods go, so what admission adds to the pods is \
           too late. Without a selector in the template, the controller also creates a pod for every Linux node. The \
           pod fails there, and the controller creates it again, forever. The controller does not use the scheduling \
           of a RuntimeClass either. If the template selects nodes by a label that names neither an operating system \
           nor a build, such as the name of a node group, the finding is a warning: Transom does not know which nodes \
           have the label. `cluster.nodeLabels` in \
           the values of the chart names the labels that only Windows nodes have.",
    remedy: "add nodeSelector kubernetes.io/os: windows to the template",
    see: &[
        "kubernetes: pkg/controller/daemon/daemon_controller.go, NodeShouldRunDaemonPod",
        "https://github.com/kubernetes/kubernetes/issues/111590",
    ],
    bad: &[
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {os: {name: windows}, containers: [{name: app, image: app}]}}}}",
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}}}}",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: w}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {kubernetes.io/os: windows}}}\n---\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {runtimeClassName: w, containers: [{name: app, image: app}]}}}}",
        // Another label: a warning.
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {os: {name: windows}, nodeSelector: {eks.amazonaws.com/nodegroup: win-ng}, containers: [{name: app, image: app}]}}}}",
        "# --os windows\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {containers: [{name: app, image: app}]}}}}",
    ],
    good: &[
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}}}",
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {kubernetes.azure.com/os-sku: Windows2022}, containers: [{name: app, image: app}]}}}}",
        "os: {name: windows}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        if !cx.subject.kind.is_daemon_set() || selects_windows(cx, false) != OsSelection::Nothing {
            return;
        }
        let by_class = selects_windows(cx, true) != OsSelection::Nothing;
        let guessed = cx.inference.evidence.iter().all(|sign| {
            let microsoft =
                ImageRef::parse(&sign.value).is_ok_and(|image| image.is_windows_only_repository());
            !(sign.kind.is_strong()
                || sign.kind == EvidenceKind::Stated
                || sign.kind == EvidenceKind::Image && microsoft)
        });
        let finding = out.report(cx.at(&["nodeSelector"]));
        finding.edit = stated_selector(cx);
        if by_class {
            finding
                .severity(Severity::Warning)
                .message("the DaemonSet controller ignores the scheduling of the RuntimeClass");
        } else if selects_unknown_label(cx) {
            finding
                .severity(Severity::Warning)
                .message(
                    "only labels that Transom does not know as Windows labels keep the DaemonSet's pods off Linux nodes",
                )
                .remedy(
                    "add nodeSelector kubernetes.io/os: windows to the template, or name the label in \
                     cluster.nodeLabels of the chart's values",
                );
        } else if guessed {
            finding.severity(Severity::Warning);
        }
    }),
    ..Rule::BASE
};

/// Whether a requirement that names neither an operating system nor a build may keep the pods off Linux nodes: Transom
/// knows the labels of Windows nodes only, and not those of a pool that does not exist yet.
fn selects_unknown_label(cx: &PodCx<'_>) -> bool {
    let is_unknown = |key: &str| !is_os_label(key) && !is_build_label(key);
    let keeps_off = |term: &NodeSelectorTerm<'_>| {
        !term.match_fields.is_empty()
            || term.match_expressions.iter().any(|e| is_unknown(&e.key))
            || matches!(
                os_of_term(term, &cx.facts.node_labels),
                TermOs::Is(Os::Windows, _) | TermOs::NoNode
            )
    };
    let terms = cx.spec.required_terms();
    cx.spec.node_selector.iter().any(|(key, _)| is_unknown(key))
        || (!terms.is_empty() && terms.iter().all(keeps_off))
}

/// DaemonSets on nodes of a build that does not run their images.
pub static DAEMONSET_SPANS_BUILDS: Rule = Rule {
    id: "TSM707",
    name: "daemonset-spans-builds",
    severities: "error; warning when the build is read from the tag of another repository than Microsoft's, or no such \
                 node is certain to exist",
    kubernetes: 17..=Rule::STILL,
    summary: "the DaemonSet reaches Windows nodes that cannot run its image",
    docs: "A DaemonSet creates a pod for every node that its template selects. If the cluster has Windows nodes of a \
           build that does not run the image, those pods fail with 0xc0370101. Admission cannot move them. The rule \
           ignores nodes with a lasting taint that the template does not tolerate. It gives a warning if the only such \
           nodes are those of a pool that has been at zero nodes since Transom last saw it, or of a declared pool of \
           which Transom does not know all labels that the template selects. With an unknown RuntimeClass there is no \
           finding, because the class may use Hyper-V isolation.",
    remedy: "select the build in the template and use one DaemonSet per build, or use a HostProcess container",
    see: &[GUIDE, COMPATIBILITY],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1}}}\n---\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}}}}",
        // Whether the nodes of the pool have the label is not known: a warning.
        "{apiVersion: transom.dev/v1alpha1, kind: WindowsNodePool, metadata: {name: win-2019}, spec: {nodeSelector: {matchLabels: {agentpool: win}}, template: {build: 10.0.17763}}}\n---\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows, agentpool: win}, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1}}}\n---\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}}}}",
        "{apiVersion: v1, kind: Node, metadata: {name: a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.1}}}\n---\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}}}}",
        // A lasting taint that the template does not tolerate.
        "{apiVersion: v1, kind: Node, metadata: {name: a}, spec: {taints: [{key: team, value: blue, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1}}}\n---\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}}}}",
        // An unknown RuntimeClass may use Hyper-V isolation.
        "{apiVersion: v1, kind: Node, metadata: {name: a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1}}}\n---\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {runtimeClassName: unknown, nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}}}}",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        if !cx.subject.kind.is_daemon_set() {
            return;
        }
        let isolation = cx.isolation();
        if isolation == ContainerIsolation::HostProcess || cx.has_unknown_runtime_class() {
            return;
        }
        // The controller adds tolerations itself, but none of a lasting taint.
        let constraints = cx.reach().constraints();
        let is_open = |reached: &&Reached<'_>| constraints.tolerates_lasting(&reached.host.taints);
        let reached: Vec<&Reached<'_>> = cx.reach().matched().iter().filter(is_open).collect();
        let exists = |reached: &Reached<'_>| {
            let is_there = reached.is_declared || !reached.host.may_be_at_zero;
            is_there && constraints.matches(reached.host) == Match::Yes
        };
        let mut warned = None;
        for container in cx.containers() {
            let Some(image) = cx.image_versions(&container) else {
                continue;
            };
            let fails = |host: &Host| host.build.is_some_and(|build| image.fail_on(build, isolation));
            let wrong = || reached.iter().copied().filter(|reached| fails(reached.host));
            let sure = wrong().find(|reached| exists(reached));
            let Some(found) = sure.or_else(|| wrong().next()) else {
                continue;
            };
            if sure.is_some() && image.is_certain() {
                report_wrong_node(cx, &container, image, found.host, out);
                return;
            }
            warned.get_or_insert((container, image, found.host));
        }
        if let Some((container, image, host)) = warned {
            report_wrong_node(cx, &container, image, host, out).severity(Severity::Warning);
        }
    }),
    ..Rule::BASE
};

/// Reports a node that the DaemonSet reaches and that cannot run the image of a container.
fn report_wrong_node<'o>(
    cx: &PodCx<'_>,
    container: &ContainerAt<'_>,
    image: &KnownVersions,
    host: &Host,
    out: &'o mut Reporter<'_>,
) -> &'o mut Finding {
    let build = host.build.map(|build| build.to_string()).unwrap_or_default();
    out.report(cx.at(&["nodeSelector"])).message(format!(
        "node {} has build {build}, which cannot run the image of container {} (build {})",
        host.name,
        container.name,
        any_of(&image.builds().collect::<Vec<_>>())
    ))
}

static HYPERV_ANNOTATION: Rule = Rule {
    id: "TSM708",
    name: "hyperv-annotation",
    severity: Severity::Warning,
    class: Class::Ignored,
    kubernetes: 21..=Rule::STILL,
    shows_intent: true,
    summary: "Kubernetes has ignored the annotation for Hyper-V isolation since 1.21",
    docs: "`experimental.windows.kubernetes.io/isolation-type` was alpha from 1.10 and was removed in 1.21. The pod \
           runs with process isolation. With containerd 1.7 and later, use a RuntimeClass for Hyper-V isolation.",
    remedy: "use a RuntimeClass with the handler runhcs-wcow-hypervisor",
    see: &[
        "https://kubernetes.io/docs/concepts/containers/runtime-class/",
        "https://github.com/kubernetes/kubernetes/pull/97141",
    ],
    bad: &[
        "{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {experimental.windows.kubernetes.io/isolation-type: hyperv}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    good: &[
        "# --kubernetes-version 1.20\n{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {experimental.windows.kubernetes.io/isolation-type: hyperv}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    needs: FieldSet::ANNOTATIONS,
    check: Check::Pod(|cx, out| {
        const ANNOTATION: &str = "experimental.windows.kubernetes.io/isolation-type";
        if cx.meta.annotations.get(ANNOTATION).is_some() {
            out.report(cx.meta_at("annotations").key(ANNOTATION)).removable();
        }
    }),
    ..Rule::BASE
};

static LINUX_POD_TOLERATES_WINDOWS: Rule = Rule {
    id: "TSM709",
    name: "linux-pod-tolerates-windows",
    severity: Severity::Warning,
    class: Class::BestPractice,
    verdicts: &[Verdict::Linux, Verdict::Unknown],
    placed_by: Some(PlacementField::NodeSelector),
    summary: "nothing keeps this pod off Windows nodes",
    docs: "The rule applies only if the policy sets `placement.linuxPods`. It reports a pod without evidence of \
           Windows that the scheduler could place on a Windows node. Its selectors do not select by operating system, \
           and it tolerates everything or the node has no lasting taint. With `linuxPods: Apply`, placement adds the \
           selector to such a pod. It cannot do so for the pods of a DaemonSet, whose controller uses the template; \
           the rule reports the DaemonSet instead.",
    remedy: "add nodeSelector kubernetes.io/os: linux",
    see: &[GUIDE],
    bad: &[
        "# --linux-pods Warn\n{apiVersion: v1, kind: Node, metadata: {name: w}, spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {tolerations: [{operator: Exists}], containers: [{name: app, image: app}]}}",
        "# --linux-pods Warn\n{apiVersion: v1, kind: Node, metadata: {name: w}, spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {template: {spec: {tolerations: [{operator: Exists}], containers: [{name: app, image: app}]}}}}",
        "# --linux-pods Warn\n{apiVersion: v1, kind: Node, metadata: {name: w}, spec: {taints: [{key: node.kubernetes.io/not-ready, effect: NoExecute}, {key: ToBeDeletedByClusterAutoscaler, value: '1', effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: app, image: app}]}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Node, metadata: {name: w}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {tolerations: [{operator: Exists}], containers: [{name: app, image: app}]}}",
        "# --linux-pods Warn\n{apiVersion: v1, kind: Node, metadata: {name: w}, spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: app, image: app}]}}",
        "# --linux-pods Warn\n{apiVersion: v1, kind: Node, metadata: {name: w}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: app, image: app}]}}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        if cx.policy.linux_pods == LinuxPods::Disabled {
            return;
        }
        if let Some(host) = stray_target(cx) {
            let finding = out.report(cx.at(&["nodeSelector"]));
            if cx.subject.kind.is_daemon_set() {
                finding.message(format!(
                    "nothing keeps the DaemonSet's pods off Windows nodes such as {}",
                    host.name
                ));
            } else {
                finding.message(format!(
                    "nothing keeps this pod off Windows nodes such as {}",
                    host.name
                ));
            }
        }
    }),
    ..Rule::BASE
};

static SPREAD_OVER_WINDOWS_NODES: Rule = Rule {
    id: "TSM710",
    name: "spread-over-windows-nodes",
    severity: Severity::Warning,
    class: Class::BestPractice,
    summary: "the Windows nodes have fewer domains than the topology spread constraint requires",
    docs: "For a Windows pod, the scheduler ignores domains of nodes that its selectors do not match. If there are \
           fewer domains than `minDomains`, the scheduler assumes that the emptiest domain has no pods. Then each \
           domain gets `maxSkew` pods, and the others stay Pending. With `nodeAffinityPolicy: Ignore`, the scheduler \
           also counts the domains of Linux nodes, and no Windows pod can fill them.",
    remedy: "lower minDomains to the number of domains that have Windows nodes",
    see: &["https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/"],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: w, labels: {kubernetes.io/os: windows, zone: a}}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, topologySpreadConstraints: [{maxSkew: 1, minDomains: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}], containers: [{name: app, image: app}]}}",
    ],
    good: &[
        "{}",
        "{apiVersion: v1, kind: Node, metadata: {name: w, labels: {kubernetes.io/os: windows, zone: a}}, status: {nodeInfo: {operatingSystem: windows}}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeSelector: {kubernetes.io/os: windows}, topologySpreadConstraints: [{maxSkew: 1, minDomains: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}], containers: [{name: app, image: app}]}}",
        "{topologySpreadConstraints: [{maxSkew: 1, minDomains: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}], containers: [{name: app, image: app}]}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        if cx.subject.kind.is_daemon_set() || cx.subject.is_daemonset_pod() || cx.spec.is_bound() {
            return;
        }
        for (index, constraint) in cx.spec.topology_spread_constraints.iter().enumerate() {
            let Some(least) = constraint.min_domains.filter(|_| constraint.is_required()) else {
                continue;
            };
            let domains = reach::domains(cx, &constraint.topology_key);
            if (1..least).contains(&domains) {
                out.report(cx.at(&["topologySpreadConstraints"]).item(index).field("minDomains"))
                    .message(format!(
                        "the Windows nodes that the pod can reach have {domains} of the {least} domains of {} that it requires",
                        shown(&constraint.topology_key)
                    ));
            }
        }
    }),
    ..Rule::BASE
};
