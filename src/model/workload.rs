//! The kinds that Transom knows, and the path of the pod template in each.

use super::string_enum::string_enum;

string_enum! {
    /// A kind of object that rules check.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[allow(missing_docs)] // the names are Kubernetes'
    pub enum Kind {
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
        PersistentVolumeClaim = "PersistentVolumeClaim",
        PersistentVolume = "PersistentVolume",
        StorageClass = "StorageClass",
        CsiNode = "CSINode",
        Node = "Node",
        RuntimeClass = "RuntimeClass",
        HorizontalPodAutoscaler = "HorizontalPodAutoscaler",
    }
}

impl Kind {
    /// The API group of the kind; the core group is empty.
    pub fn group(self) -> &'static str {
        match self {
            Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::DaemonSet => "apps",
            Kind::Job | Kind::CronJob => "batch",
            Kind::EndpointSlice => "discovery.k8s.io",
            Kind::RuntimeClass => "node.k8s.io",
            Kind::StorageClass | Kind::CsiNode => "storage.k8s.io",
            Kind::HorizontalPodAutoscaler => "autoscaling",
            _ => "",
        }
    }

    /// The kind of an object by its API group and kind, including old groups (`extensions`).
    pub fn of(group: &str, kind: &str) -> Option<Kind> {
        let found = Kind::ALL.into_iter().find(|k| k.as_str() == kind)?;
        let old = group == "extensions" && found.group() == "apps";
        (group == found.group() || old).then_some(found)
    }

    /// The kind by an object's `apiVersion` and `kind`.
    pub fn of_api_version(api_version: &str, kind: &str) -> Option<Kind> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        Kind::of(group, kind)
    }

    /// The path of the pod template (with its metadata and spec); `None` for kinds without one.
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
            _ => None,
        }
    }

    /// Whether objects of this kind are namespaced.
    pub fn is_namespaced(self) -> bool {
        !matches!(self, Kind::Node | Kind::PersistentVolume | Kind::RuntimeClass)
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
            _ => None,
        }
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
        assert_eq!(Kind::of_api_version("serving.knative.dev/v1", "Service"), None);
        assert_eq!(Kind::of_api_version("v1", "Deployment"), None);
    }
}
