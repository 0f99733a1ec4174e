//! The kinds that Transom knows, with what is known about each.

pub mod configured;
pub mod custom;

use self::configured::ConfiguredKind;
use self::custom::{CustomWorkload, PodLayout};

/// Defines the kinds of Kubernetes and of well-known custom resources, with what is known about each.
macro_rules! kinds {
    (
        kubernetes {
            $($native:ident = $name:literal, $group:literal, $namespaced:literal, $template:expr, $creates:expr;)*
        }
        custom_resources {
            $($custom:ident = $of:literal, $kind:literal, $resource:literal, $layout:expr, $creates_of_custom:expr;)*
        }
    ) => {
        /// A kind of object that rules check.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Kind {
            $($native,)*
            $($custom,)*
            /// A custom resource that a policy or the configuration of `check` adds.
            Configured(ConfiguredKind),
        }

        /// Every built-in custom resource.
        pub static CUSTOM_WORKLOADS: [CustomWorkload; [$($kind),*].len()] = [
            $(CustomWorkload { kind: Kind::$custom, group: $of, resource: $resource, layout: $layout },)*
        ];

        impl Kind {
            /// Every kind that needs no configuration.
            pub const ALL: [Kind; [$($name,)* $($kind,)*].len()] = [$(Kind::$native,)* $(Kind::$custom,)*];

            /// The kind in every output. Two kinds of different groups may have the same name, as in Kubernetes.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Kind::$native => $name,)*
                    $(Kind::$custom => $kind,)*
                    Kind::Configured(configured) => configured.kind(),
                }
            }

            /// The API group of the kind; the core group is empty.
            pub fn group(self) -> &'static str {
                match self {
                    $(Kind::$native => $group,)*
                    $(Kind::$custom => $of,)*
                    Kind::Configured(configured) => configured.group(),
                }
            }

            /// Whether it is a custom resource, whose pods are found by [`Kind::layout`].
            pub const fn is_custom(self) -> bool {
                matches!(self, $(Kind::$custom |)* Kind::Configured(_))
            }

            /// The location of the pods of a custom resource.
            pub fn layout(self) -> Option<PodLayout> {
                match self {
                    $(Kind::$custom => Some($layout),)*
                    Kind::Configured(configured) => Some(PodLayout::Configured(configured.path())),
                    _ => None,
                }
            }

            /// The path of the pod template (with its metadata and spec); `None` for kinds without one. Rules address the
            /// pods of every custom resource at this path; [`super::object`] knows where they are.
            pub const fn template(self) -> Option<&'static [&'static str]> {
                match self {
                    $(Kind::$native => $template,)*
                    _ => TEMPLATE,
                }
            }

            /// The kind that this kind's controller creates from exactly the evaluated template. Deployments create no
            /// pods, and objects that other controllers create have no owner that is evaluated. `None` for a custom
            /// resource whose controller adds to what the object says, or creates the same from other objects.
            pub fn creates_unchanged(self) -> Option<Kind> {
                match self {
                    $(Kind::$native => $creates,)*
                    $(Kind::$custom => $creates_of_custom,)*
                    Kind::Configured(_) => None,
                }
            }

            /// Whether objects of this kind are namespaced.
            pub fn is_namespaced(self) -> bool {
                match self {
                    $(Kind::$native => $namespaced,)*
                    _ => true,
                }
            }
        }
    };
}

const TEMPLATE: Option<&[&str]> = Some(&["spec", "template"]);
const POD_TEMPLATE: PodLayout = PodLayout::Template(&["spec", "template"]);
const GAME_SERVER_TEMPLATE: PodLayout = PodLayout::Template(&["spec", "template", "spec", "template"]);

// Sources of the custom resources: the CustomResourceDefinitions and installation manifests of argoproj/argo-rollouts,
// knative/serving, kedacore/keda, openkruise/kruise, argoproj/argo-workflows, tektoncd/pipeline,
// actions/actions-runner-controller, googleforgames/agones (July 2026).
kinds! {
    // The kind, its API group, whether it is namespaced, its pod template, and what its controller makes of that.
    kubernetes {
        Pod = "Pod", "", true, Some(&[]), None;
        Deployment = "Deployment", "apps", true, TEMPLATE, Some(Kind::ReplicaSet);
        ReplicaSet = "ReplicaSet", "apps", true, TEMPLATE, Some(Kind::Pod);
        StatefulSet = "StatefulSet", "apps", true, TEMPLATE, Some(Kind::Pod);
        DaemonSet = "DaemonSet", "apps", true, TEMPLATE, Some(Kind::Pod);
        Job = "Job", "batch", true, TEMPLATE, Some(Kind::Pod);
        CronJob = "CronJob", "batch", true, Some(&["spec", "jobTemplate", "spec", "template"]), Some(Kind::Job);
        ReplicationController = "ReplicationController", "", true, TEMPLATE, Some(Kind::Pod);
        PodTemplate = "PodTemplate", "", true, Some(&["template"]), None;
        Service = "Service", "", true, None, None;
        EndpointSlice = "EndpointSlice", "discovery.k8s.io", true, None, None;
        NetworkPolicy = "NetworkPolicy", "networking.k8s.io", true, None, None;
        PersistentVolumeClaim = "PersistentVolumeClaim", "", true, None, None;
        PersistentVolume = "PersistentVolume", "", false, None, None;
        StorageClass = "StorageClass", "storage.k8s.io", false, None, None;
        CsiNode = "CSINode", "storage.k8s.io", false, None, None;
        Node = "Node", "", false, None, None;
        RuntimeClass = "RuntimeClass", "node.k8s.io", false, None, None;
        HorizontalPodAutoscaler = "HorizontalPodAutoscaler", "autoscaling", true, None, None;
    }
    // The API group, the kind, the plural as in the path of its list, its pods, and what its controller makes of them.
    custom_resources {
        // Without a template, `spec.workloadRef` names a Deployment, which is evaluated itself.
        Rollout = "argoproj.io", "Rollout", "rollouts", POD_TEMPLATE, Some(Kind::ReplicaSet);
        // Its controller creates the same Deployments for a Configuration or a Revision that nothing evaluates.
        KnativeService = "serving.knative.dev", "Service", "services", POD_TEMPLATE, None;
        ScaledJob = "keda.sh", "ScaledJob", "scaledjobs",
            PodLayout::Template(&["spec", "jobTargetRef", "template"]), Some(Kind::Job);
        CloneSet = "apps.kruise.io", "CloneSet", "clonesets", POD_TEMPLATE, Some(Kind::Pod);
        AdvancedDaemonSet = "apps.kruise.io", "DaemonSet", "daemonsets", POD_TEMPLATE, Some(Kind::Pod);
        Workflow = "argoproj.io", "Workflow", "workflows", PodLayout::Workflow(&["spec"]), None;
        WorkflowTemplate = "argoproj.io", "WorkflowTemplate", "workflowtemplates", PodLayout::Workflow(&["spec"]), None;
        CronWorkflow = "argoproj.io", "CronWorkflow", "cronworkflows", PodLayout::Workflow(&["spec", "workflowSpec"]), None;
        Task = "tekton.dev", "Task", "tasks", PodLayout::Task(&["spec"]), None;
        TaskRun = "tekton.dev", "TaskRun", "taskruns", PodLayout::TaskRun, None;
        Pipeline = "tekton.dev", "Pipeline", "pipelines", PodLayout::Pipeline(&["spec"]), None;
        PipelineRun = "tekton.dev", "PipelineRun", "pipelineruns", PodLayout::PipelineRun, None;
        // Its pods have other owners: an EphemeralRunner of an EphemeralRunnerSet.
        AutoscalingRunnerSet = "actions.github.com", "AutoscalingRunnerSet", "autoscalingrunnersets", POD_TEMPLATE, None;
        // The controller adds a sidecar of its own to the pod, which no field of the GameServer describes.
        GameServer = "agones.dev", "GameServer", "gameservers", POD_TEMPLATE, Some(Kind::Pod);
        GameServerSet = "agones.dev", "GameServerSet", "gameserversets", GAME_SERVER_TEMPLATE, Some(Kind::GameServer);
        Fleet = "agones.dev", "Fleet", "fleets", GAME_SERVER_TEMPLATE, Some(Kind::GameServerSet);
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Kind {
    /// The built-in kind of an object by its API group and kind, including old groups (`extensions`).
    pub fn of(group: &str, kind: &str) -> Option<Kind> {
        let group = if group == "extensions" { "apps" } else { group };
        let is_it = |known: &Kind| known.as_str() == kind && known.group() == group;
        Kind::ALL.into_iter().find(is_it)
    }

    /// The kind of the objects that this kind's controller creates. What the controller of a custom resource creates is
    /// left to that resource only if the policy names the controller in `controllers`; otherwise it is evaluated as if a
    /// person had created it.
    pub fn creates(self) -> Option<Kind> {
        self.creates_unchanged().or(match self {
            Kind::Workflow | Kind::TaskRun => Some(Kind::Pod),
            Kind::CronWorkflow => Some(Kind::Workflow),
            Kind::PipelineRun => Some(Kind::TaskRun),
            _ => None,
        })
    }

    /// The plural of the kind, as in the path of its list.
    pub fn resource(self) -> String {
        let mut custom = CUSTOM_WORKLOADS.iter();
        match custom.find(|custom| custom.kind == self) {
            Some(custom) => custom.resource.to_owned(),
            None => format!("{}s", self.as_str().to_lowercase()),
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

    /// Whether objects of this kind have a pod template.
    pub const fn has_pod(self) -> bool {
        self.template().is_some()
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
    fn no_two_kinds_have_the_same_name_in_one_group() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind.group(), kind.as_str()), Some(kind), "{kind:?}");
        }
    }
}
