//! Custom resources: the locations of the pods of those that Transom evaluates, and those that it never evaluates.

use super::Kind;

/// A custom resource that describes pods.
#[derive(Debug)]
pub struct CustomWorkload {
    pub kind: Kind,
    /// Its API group. Every version has the same layout.
    pub group: &'static str,
    /// The plural, as in the path of its list.
    pub resource: &'static str,
    /// The location of its pods.
    pub layout: PodLayout,
}

/// The location of the pods of a custom resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PodLayout {
    /// A pod template (metadata and spec) at this path.
    Template(&'static [&'static str]),
    /// A pod template or a pod spec at this path, which must exist.
    Configured(&'static [&'static str]),
    /// The spec of an Argo Workflow at this path: one pod for each template with containers.
    Workflow(&'static [&'static str]),
    /// The spec of a Tekton Task at this path: one pod.
    Task(&'static [&'static str]),
    /// A Tekton TaskRun: its own Task, and the pod template for it.
    TaskRun,
    /// The spec of a Tekton Pipeline at this path: one pod for each task with a Task of its own.
    Pipeline(&'static [&'static str]),
    /// A Tekton PipelineRun: its own Pipeline, and the pod templates for it.
    PipelineRun,
}

/// Kinds that describe containers and are never evaluated as pods, with the reason.
pub const EXCLUDED: [(&str, &str, &str); 3] = [
    ("kubevirt.io", "VirtualMachine", VIRTUAL_MACHINE),
    ("kubevirt.io", "VirtualMachineInstance", VIRTUAL_MACHINE),
    ("kubevirt.io", "VirtualMachineInstanceReplicaSet", VIRTUAL_MACHINE),
];

const VIRTUAL_MACHINE: &str = "its pods are Linux pods, whatever system the virtual machine runs";

/// Why a kind is never evaluated, if it is excluded.
pub fn exclusion(group: &str, kind: &str) -> Option<&'static str> {
    let mut rows = EXCLUDED.iter();
    rows.find(|(of_group, of_kind, _)| *of_group == group && *of_kind == kind)
        .map(|(_, _, why)| *why)
}
