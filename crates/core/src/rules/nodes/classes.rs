//! Rules on RuntimeClasses: handlers that containerd does not have, and classes that do not select nodes for their
//! pods.

use super::GUIDE;
use crate::model::cluster::facts::{Runtime, RuntimeClassFacts, is_windows_handler};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::nodes::node::OS_LABEL;
use crate::model::objects::object::Body;
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::model::windows::build::ContainerIsolation;
use crate::rules::rule::{Check, Rule};

const RUNTIME_CLASS: &str = "https://kubernetes.io/docs/concepts/containers/runtime-class/";

pub(super) static RUNTIME_CLASS_DOCKER_HANDLER: Rule = Rule {
    id: "TSM906",
    name: "runtime-class-docker-handler",
    severity: Severity::Error,
    class: Class::Run,
    runtime: Some(Runtime::Containerd),
    summary: "containerd has no handler named docker",
    docs: "The RuntimeClasses of the Windows guide for Kubernetes 1.20 have `handler: docker`. Only dockershim knew \
           this handler, and Kubernetes 1.24 removed dockershim. containerd answers `no runtime for \"docker\" is \
           configured`, and the pods of the class stay in ContainerCreating. The containerd handler for process \
           isolation on Windows is runhcs-wcow-process, and since 1.7 the handler for Hyper-V isolation is \
           runhcs-wcow-hypervisor. The handler of a RuntimeClass cannot be changed. If Docker is the runtime \
           (dockershim, cri-dockerd) the handler works. The rule ignores classes that select Linux nodes.",
    remedy: "delete the class and create it with handler runhcs-wcow-process (or runhcs-wcow-hypervisor for Hyper-V)",
    see: &[
        RUNTIME_CLASS,
        GUIDE,
        "https://kubernetes.io/docs/tasks/administer-cluster/migrating-from-dockershim/",
    ],
    bad: &[
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2019}, handler: docker, scheduling: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}}}",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2019}, handler: docker}",
    ],
    good: &[
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2022}, handler: runhcs-wcow-process}",
        "# --kubernetes-version 1.20 --runtime docker\n{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2019}, handler: docker}",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: linux}, handler: docker, scheduling: {nodeSelector: {kubernetes.io/os: linux}}}",
    ],
    check: Check::Object(&[Kind::RuntimeClass], |cx, out| {
        let Body::RuntimeClass(class) = &cx.subject.body else {
            return;
        };
        let selected = class
            .scheduling
            .as_ref()
            .and_then(|scheduling| scheduling.node_selector.get(OS_LABEL));
        if &*class.handler == "docker" && selected.is_none_or(|os| &**os != "linux") {
            out.report(Path::of(&["handler"]));
        }
    }),
    ..Rule::BASE
};

pub(super) static RUNTIME_CLASS_WITHOUT_OVERHEAD: Rule = Rule {
    id: "TSM914",
    name: "runtime-class-without-overhead",
    severity: Severity::Advice,
    class: Class::BestPractice,
    kubernetes: 18..=Rule::STILL,
    summary: "the RuntimeClass for Hyper-V isolation has no overhead",
    docs: "A pod with Hyper-V isolation runs in a virtual machine of its own, which takes about 500 MiB of memory in \
           addition to the pod's containers. Nothing counts this memory unless the RuntimeClass has `overhead`: the \
           scheduler then places more pods on a node than fit, and the node runs out of memory. The rule reports \
           RuntimeClasses with the handler `runhcs-wcow-hypervisor`, or one for a build, without `overhead.podFixed`.",
    remedy: "add overhead: {podFixed: {memory: 500Mi}}, and measure it with your images",
    see: &[
        "https://kubernetes.io/docs/concepts/scheduling-eviction/pod-overhead/",
        "https://github.com/kubernetes-sigs/windows-testing/issues/567",
    ],
    bad: &[
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: hyperv}, handler: runhcs-wcow-hypervisor, scheduling: {nodeSelector: {kubernetes.io/os: windows}}}",
    ],
    good: &[
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: hyperv}, handler: runhcs-wcow-hypervisor, overhead: {podFixed: {memory: 500Mi}}, scheduling: {nodeSelector: {kubernetes.io/os: windows}}}",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: process}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {kubernetes.io/os: windows}}}",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: kata}, handler: kata-hypervisor}",
    ],
    check: Check::Object(&[Kind::RuntimeClass], |cx, out| {
        let Body::RuntimeClass(class) = &cx.subject.body else {
            return;
        };
        let is_isolated = RuntimeClassFacts::of(class).isolation() == ContainerIsolation::HyperV;
        if is_windows_handler(&class.handler) && is_isolated && class.overhead.is_none() {
            out.report(Path::of(&["overhead"]));
        }
    }),
    ..Rule::BASE
};

pub(super) static RUNTIME_CLASS_WITHOUT_SCHEDULING: Rule = Rule {
    id: "TSM911",
    name: "runtime-class-without-scheduling",
    severity: Severity::Warning,
    class: Class::Run,
    summary: "the RuntimeClass is for Windows but does not send its pods to Windows nodes",
    docs: "Only containerd on Windows has the handlers `runhcs-wcow-…`. On a Linux node they fail with `no runtime for \
           \"runhcs-wcow-process\" is configured`, and the pod stays in ContainerCreating. A RuntimeClass with such a \
           handler sends its pods to Windows nodes with `scheduling.nodeSelector`; without it, each pod must select \
           Windows nodes. Transom treats a pod with such a class as a Windows pod, and placement selects the operating \
           system for it.",
    remedy: "add scheduling.nodeSelector {kubernetes.io/os: windows}",
    see: &[RUNTIME_CLASS, GUIDE, "hcsshim: cmd/containerd-shim-runhcs-v1"],
    bad: &[
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: hyperv}, handler: runhcs-wcow-hypervisor}",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: process}, handler: runhcs-wcow-process, scheduling: {tolerations: [{key: os, value: windows, effect: NoSchedule}]}}",
    ],
    good: &[
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2022}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {kubernetes.io/os: windows}}}",
        // The class selects Windows by another label, or selects something else: not checked.
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2022}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {pool: win}}}",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: gvisor}, handler: runsc}",
    ],
    check: Check::Object(&[Kind::RuntimeClass], |cx, out| {
        let Body::RuntimeClass(class) = &cx.subject.body else {
            return;
        };
        let selects = class
            .scheduling
            .as_ref()
            .is_some_and(|scheduling| !scheduling.node_selector.is_empty());
        if is_windows_handler(&class.handler) && !selects {
            out.report(Path::of(&["scheduling", "nodeSelector"]))
                .message(format!(
                    "only Windows nodes have the handler {}, but the class does not select them",
                    shown(&class.handler)
                ));
        }
    }),
    ..Rule::BASE
};
