//! The kinds that Transom knows, and the path of the pod template in each.

pub mod configured;
pub mod custom;

use self::configured::ConfiguredKind;
use self::custom::{CustomWorkload, PodLayout};

/// Defines the kinds of Kubernetes and of well-known custom resources, with their names.
macro_rules! kinds {
    ($($variant:ident = $text:literal,)*) => {
        /// A kind of object that rules check.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs)] // the names are Kubernetes', or those of the custom resource
        pub enum Kind {
            $($variant,)*
            /// A custom resource that a policy or the configuration of `check` adds.
            Configured(ConfiguredKind),
        }

        impl Kind {
            /// Every built-in kind.
            pub const ALL: [Kind; [$($text),*].len()] = [$(Kind::$variant),*];

            /// The kind in every output. Two kinds of different groups may have the same name, as in Kubernetes.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Kind::$variant => $text,)*
                    Kind::Configured(configured) => configured.kind(),
                }
            }
        }
    };
}

kinds! {
    Pod = "Pod",
    Deployment = "Deployment",
    ReplicaSet = "ReplicaSet",
    StatefulSet = "StatefulSet",
    DaemonSet = "DaemonSet",
    Job = "Job",
    CronJob = "CronJob",
    ReplicationController = "ReplicationController",
    PodTemplate = "PodTemplate",
    Service = "Service",
    EndpointSlice = "EndpointSlice",
    NetworkPolicy = "NetworkPolicy",
    PersistentVolumeClaim = "PersistentVolumeClaim",
    PersistentVolume = "PersistentVolume",
    StorageClass = "StorageClass",
    CsiNode = "CSINode",
    Node = "Node",
    RuntimeClass = "RuntimeClass",
    HorizontalPodAutoscaler = "HorizontalPodAutoscaler",
    Rollout = "Rollout",
    KnativeService = "Service",
    ScaledJob = "ScaledJob",
    CloneSet = "CloneSet",
    AdvancedDaemonSet = "DaemonSet",
    Workflow = "Workflow",
    WorkflowTemplate = "WorkflowTemplate",
    CronWorkflow = "CronWorkflow",
    Task = "Task",
    TaskRun = "TaskRun",
    Pipeline = "Pipeline",
    PipelineRun = "PipelineRun",
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Kind {
    /// The API group of the kind; the core group is empty.
    pub fn group(self) -> &'static str {
        match self {
            Kind::Configured(configured) => configured.group(),
            Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::DaemonSet => "apps",
            Kind::Job | Kind::CronJob => "batch",
            Kind::EndpointSlice => "discovery.k8s.io",
            Kind::NetworkPolicy => "networking.k8s.io",
            Kind::RuntimeClass => "node.k8s.io",
            Kind::StorageClass | Kind::CsiNode => "storage.k8s.io",
            Kind::HorizontalPodAutoscaler => "autoscaling",
            kind => kind.custom().map_or("", |custom| custom.group),
        }
    }

    /// The built-in kind of an object by its API group and kind, including old groups (`extensions`).
    pub fn of(group: &str, kind: &str) -> Option<Kind> {
        let group = if group == "extensions" { "apps" } else { group };
        let is_it = |known: &Kind| known.as_str() == kind && known.group() == group;
        Kind::ALL.into_iter().find(is_it)
    }

    /// The custom resource, if it is a built-in one.
    pub fn custom(self) -> Option<&'static CustomWorkload> {
        custom::of(self)
    }

    /// Whether it is a custom resource, whose pods are found by [`Kind::layout`].
    pub const fn is_custom(self) -> bool {
        matches!(
            self,
            Kind::Rollout
                | Kind::KnativeService
                | Kind::ScaledJob
                | Kind::CloneSet
                | Kind::AdvancedDaemonSet
                | Kind::Workflow
                | Kind::WorkflowTemplate
                | Kind::CronWorkflow
                | Kind::Task
                | Kind::TaskRun
                | Kind::Pipeline
                | Kind::PipelineRun
                | Kind::Configured(_)
        )
    }

    /// The location of the pods of a custom resource.
    pub fn layout(self) -> Option<PodLayout> {
        match self {
            Kind::Configured(configured) => Some(PodLayout::Configured(configured.path())),
            kind if kind.is_custom() => kind.custom().map(|custom| custom.layout),
            _ => None,
        }
    }

    /// Whether its author can set `spec.os` of the pod. Argo Workflows, Tekton and Knative have no such field.
    pub fn has_pod_os(self) -> bool {
        self != Kind::KnativeService
            && matches!(
                self.layout(),
                None | Some(PodLayout::Template(_) | PodLayout::Configured(_))
            )
    }

    /// Whether the object decides on which nodes its pods run. A Task, a Pipeline and a WorkflowTemplate leave that to what
    /// runs them.
    pub fn selects_nodes(self) -> bool {
        !matches!(self, Kind::Task | Kind::Pipeline | Kind::WorkflowTemplate)
    }

    /// Whether its controller selects the nodes of its pods from the template, so that placement of the pods is too
    /// late.
    pub const fn is_daemon_set(self) -> bool {
        matches!(self, Kind::DaemonSet | Kind::AdvancedDaemonSet)
    }

    /// The kind by an object's `apiVersion` and `kind`.
    pub fn of_api_version(api_version: &str, kind: &str) -> Option<Kind> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        Kind::of(group, kind)
    }

    /// The path of the pod template (with its metadata and spec); `None` for kinds without one. Rules address the pods of
    /// every custom resource at this path; [`super::object`] knows where they are.
    pub const fn template(self) -> Option<&'static [&'static str]> {
        match self {
            Kind::Pod => Some(&[]),
            Kind::PodTemplate => Some(&["template"]),
            Kind::CronJob => Some(&["spec", "jobTemplate", "spec", "template"]),
            Kind::Deployment
            | Kind::ReplicaSet
            | Kind::StatefulSet
            | Kind::DaemonSet
            | Kind::Job
            | Kind::ReplicationController => Some(&["spec", "template"]),
            custom if custom.is_custom() => Some(&["spec", "template"]),
            _ => None,
        }
    }

    /// Whether objects of this kind are namespaced.
    pub fn is_namespaced(self) -> bool {
        !matches!(
            self,
            Kind::CsiNode | Kind::Node | Kind::PersistentVolume | Kind::RuntimeClass | Kind::StorageClass
        )
    }

    /// Whether objects of this kind have a pod template.
    pub const fn has_pod(self) -> bool {
        self.template().is_some()
    }

    /// The kind that this kind's controller creates from the evaluated template. Deployments create no pods, and
    /// objects that other controllers create have no owner that is evaluated.
    pub fn makes(self) -> Option<Kind> {
        match self {
            Kind::ReplicaSet
            | Kind::StatefulSet
            | Kind::DaemonSet
            | Kind::Job
            | Kind::ReplicationController => Some(Kind::Pod),
            Kind::Deployment => Some(Kind::ReplicaSet),
            Kind::CronJob => Some(Kind::Job),
            kind => kind.custom().and_then(|custom| custom.makes),
        }
    }

    /// The kind of a controlling owner, if it is evaluated.
    pub fn of_owner(api_version: &str, kind: &str) -> Option<Kind> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        Kind::of(group, kind)
    }

    /// Whether the template of a stored object can no longer be changed (`spec.template` of a Job).
    pub fn has_immutable_template(self) -> bool {
        self == Kind::Job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_known_by_its_group_too() {
        assert_eq!(
            Kind::of_api_version("apps/v1", "Deployment"),
            Some(Kind::Deployment)
        );
        assert_eq!(
            Kind::of_api_version("extensions/v1beta1", "Deployment"),
            Some(Kind::Deployment)
        );
        assert_eq!(Kind::of_api_version("v1", "Pod"), Some(Kind::Pod));
        assert_eq!(
            Kind::of_api_version("serving.knative.dev/v1", "Service"),
            Some(Kind::KnativeService)
        );
        assert_eq!(
            Kind::of_api_version("apps.kruise.io/v1beta1", "DaemonSet"),
            Some(Kind::AdvancedDaemonSet)
        );
        assert_eq!(Kind::of_api_version("v1", "Service"), Some(Kind::Service));
        assert_eq!(Kind::of_api_version("example.com/v1", "Service"), None);
        assert_eq!(Kind::of_api_version("v1", "Deployment"), None);
    }

    #[test]
    fn custom_resources_are_those_of_the_table() {
        for kind in Kind::ALL {
            assert_eq!(kind.is_custom(), kind.custom().is_some(), "{kind:?}");
            assert_eq!(Kind::of(kind.group(), kind.as_str()), Some(kind), "{kind:?}");
        }
    }
}
