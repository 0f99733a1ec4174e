//! The custom resources whose pods Transom evaluates, as data: what the API server calls them, where their pods are, and
//! who creates what they describe.

use super::Kind;

/// A custom resource that describes pods.
#[derive(Debug)]
pub struct CustomWorkload {
    /// The kind.
    pub kind: Kind,
    /// Its API group. Every version has the same layout.
    pub group: &'static str,
    /// The plural, as in the path of its list.
    pub resource: &'static str,
    /// The location of its pods.
    pub layout: PodLayout,
    /// What its controller creates from exactly this template: left to this object if the policy names the controller in
    /// `controllerUsernames`. `None`: its controller adds to what the object says, or creates the same from other objects, so
    /// the pods are evaluated as if their author had created them.
    pub makes: Option<Kind>,
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

const TEMPLATE: PodLayout = PodLayout::Template(&["spec", "template"]);

const fn row(kind: Kind, group: &'static str, resource: &'static str, layout: PodLayout) -> CustomWorkload {
    CustomWorkload {
        kind,
        group,
        resource,
        layout,
        makes: None,
    }
}

/// Every built-in custom resource. Sources: the CustomResourceDefinitions and installation manifests of
/// argoproj/argo-rollouts, knative/serving, kedacore/keda, openkruise/kruise, argoproj/argo-workflows, tektoncd/pipeline.
pub static CUSTOM_WORKLOADS: [CustomWorkload; 12] = [
    // Without a template, `spec.workloadRef` names a Deployment, which is evaluated itself.
    CustomWorkload {
        makes: Some(Kind::ReplicaSet),
        ..row(Kind::Rollout, "argoproj.io", "rollouts", TEMPLATE)
    },
    // Its controller creates the same Deployments for a Configuration or a Revision that nothing evaluates.
    row(Kind::KnativeService, "serving.knative.dev", "services", TEMPLATE),
    CustomWorkload {
        makes: Some(Kind::Job),
        ..row(
            Kind::ScaledJob,
            "keda.sh",
            "scaledjobs",
            PodLayout::Template(&["spec", "jobTargetRef", "template"]),
        )
    },
    CustomWorkload {
        makes: Some(Kind::Pod),
        ..row(Kind::CloneSet, "apps.kruise.io", "clonesets", TEMPLATE)
    },
    CustomWorkload {
        makes: Some(Kind::Pod),
        ..row(Kind::AdvancedDaemonSet, "apps.kruise.io", "daemonsets", TEMPLATE)
    },
    row(
        Kind::Workflow,
        "argoproj.io",
        "workflows",
        PodLayout::Workflow(&["spec"]),
    ),
    row(
        Kind::WorkflowTemplate,
        "argoproj.io",
        "workflowtemplates",
        PodLayout::Workflow(&["spec"]),
    ),
    row(
        Kind::CronWorkflow,
        "argoproj.io",
        "cronworkflows",
        PodLayout::Workflow(&["spec", "workflowSpec"]),
    ),
    row(Kind::Task, "tekton.dev", "tasks", PodLayout::Task(&["spec"])),
    row(Kind::TaskRun, "tekton.dev", "taskruns", PodLayout::TaskRun),
    row(
        Kind::Pipeline,
        "tekton.dev",
        "pipelines",
        PodLayout::Pipeline(&["spec"]),
    ),
    row(
        Kind::PipelineRun,
        "tekton.dev",
        "pipelineruns",
        PodLayout::PipelineRun,
    ),
];

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

/// The row of a kind.
pub(super) fn of(kind: Kind) -> Option<&'static CustomWorkload> {
    CUSTOM_WORKLOADS.iter().find(|custom| custom.kind == kind)
}
