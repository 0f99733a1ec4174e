//! Which minor releases of Kubernetes serve which API versions of the built-in kinds that Transom reads, as data.

use super::workload::Kind;

/// The releases that serve an API version of some kinds.
#[derive(Clone, Copy, Debug)]
pub struct ServedVersion {
    /// The group and version, as in `apps/v1`.
    pub api_version: &'static str,
    pub kinds: &'static [Kind],
    /// The first minor release.
    pub since: u32,
    /// The first minor release that no longer serves it.
    pub removed: Option<u32>,
}

const fn served(
    api_version: &'static str,
    kinds: &'static [Kind],
    since: u32,
    removed: Option<u32>,
) -> ServedVersion {
    ServedVersion {
        api_version,
        kinds,
        since,
        removed,
    }
}

const WORKLOADS: &[Kind] = &[
    Kind::Deployment,
    Kind::ReplicaSet,
    Kind::DaemonSet,
    Kind::StatefulSet,
];

/// Removals: <https://kubernetes.io/docs/reference/using-api/deprecation-guide/>. First releases, and removals of alpha
/// versions: the changelogs in kubernetes/kubernetes, `CHANGELOG/`; for v1 of CronJob, EndpointSlice,
/// HorizontalPodAutoscaler and RuntimeClass the same guide.
static VERSIONS: &[ServedVersion] = &[
    served("apps/v1", WORKLOADS, 9, None),
    served("apps/v1beta2", WORKLOADS, 8, Some(16)),
    served("apps/v1beta1", &[Kind::Deployment], 6, Some(16)),
    served("apps/v1beta1", &[Kind::StatefulSet], 5, Some(16)),
    served(
        "extensions/v1beta1",
        &[Kind::Deployment, Kind::ReplicaSet, Kind::DaemonSet],
        2,
        Some(16),
    ),
    served("batch/v1", &[Kind::Job], 2, None),
    served("batch/v1", &[Kind::CronJob], 21, None),
    served("batch/v1beta1", &[Kind::CronJob], 8, Some(25)),
    served("batch/v2alpha1", &[Kind::CronJob], 5, Some(21)),
    served("autoscaling/v1", &[Kind::HorizontalPodAutoscaler], 2, None),
    served("autoscaling/v2", &[Kind::HorizontalPodAutoscaler], 23, None),
    served(
        "autoscaling/v2alpha1",
        &[Kind::HorizontalPodAutoscaler],
        6,
        Some(8),
    ),
    served(
        "autoscaling/v2beta1",
        &[Kind::HorizontalPodAutoscaler],
        8,
        Some(25),
    ),
    served(
        "autoscaling/v2beta2",
        &[Kind::HorizontalPodAutoscaler],
        12,
        Some(26),
    ),
    served("node.k8s.io/v1", &[Kind::RuntimeClass], 20, None),
    served("node.k8s.io/v1beta1", &[Kind::RuntimeClass], 14, Some(25)),
    served("node.k8s.io/v1alpha1", &[Kind::RuntimeClass], 12, Some(24)),
    served("storage.k8s.io/v1", &[Kind::StorageClass], 6, None),
    served("storage.k8s.io/v1", &[Kind::CsiNode], 17, None),
    served("storage.k8s.io/v1beta1", &[Kind::StorageClass], 4, Some(22)),
    served("storage.k8s.io/v1beta1", &[Kind::CsiNode], 14, Some(22)),
    served("discovery.k8s.io/v1", &[Kind::EndpointSlice], 21, None),
    served("discovery.k8s.io/v1beta1", &[Kind::EndpointSlice], 17, Some(25)),
    served("discovery.k8s.io/v1alpha1", &[Kind::EndpointSlice], 16, Some(21)),
];

/// Why a release does not serve an API version: lower case, no full stop, with the version to write. `None` if it serves
/// it, and for kinds that are not in the table.
pub fn not_served(api_version: &str, kind: Kind, minor: u32) -> Option<(String, String)> {
    let mut of_kind = VERSIONS.iter().filter(|row| row.kinds.contains(&kind));
    let now = (of_kind.clone())
        .find(|row| row.since <= minor && row.removed.is_none_or(|removed| minor < removed))?
        .api_version;
    let row = of_kind.find(|row| row.api_version == api_version);
    let why = match row {
        Some(row) if minor < row.since => {
            format!(
                "Kubernetes 1.{minor} does not serve {api_version} {kind} yet; 1.{} does",
                row.since
            )
        }
        Some(row) => {
            let removed = row.removed.filter(|removed| minor >= *removed)?;
            format!("Kubernetes 1.{removed} and later do not serve {api_version} {kind}")
        }
        None => format!("no release of Kubernetes serves {api_version} {kind}"),
    };
    Some((
        why,
        format!("write apiVersion: {now}, and the fields as that version has them"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_served_from_its_first_release_until_its_removal() {
        let table = [
            ("extensions/v1beta1", Kind::Deployment, 15, ""),
            (
                "extensions/v1beta1",
                Kind::Deployment,
                16,
                "Kubernetes 1.16 and later do not serve",
            ),
            (
                "apps/v1beta1",
                Kind::StatefulSet,
                37,
                "Kubernetes 1.16 and later do not serve",
            ),
            ("apps/v1", Kind::Deployment, 37, ""),
            (
                "batch/v1",
                Kind::CronJob,
                20,
                "Kubernetes 1.20 does not serve batch/v1 CronJob yet; 1.21 does",
            ),
            ("batch/v1beta1", Kind::CronJob, 24, ""),
            (
                "batch/v1beta1",
                Kind::CronJob,
                25,
                "Kubernetes 1.25 and later do not serve",
            ),
            ("batch/v1", Kind::Job, 10, ""),
            (
                "autoscaling/v2beta2",
                Kind::HorizontalPodAutoscaler,
                26,
                "Kubernetes 1.26 and later",
            ),
            (
                "node.k8s.io/v1",
                Kind::RuntimeClass,
                19,
                "Kubernetes 1.19 does not serve",
            ),
            ("node.k8s.io/v1alpha1", Kind::RuntimeClass, 23, ""),
            (
                "node.k8s.io/v1alpha1",
                Kind::RuntimeClass,
                24,
                "Kubernetes 1.24 and later do not serve",
            ),
            ("storage.k8s.io/v1beta1", Kind::StorageClass, 21, ""),
            (
                "storage.k8s.io/v1beta1",
                Kind::StorageClass,
                22,
                "Kubernetes 1.22 and later do not serve",
            ),
            (
                "storage.k8s.io/v1beta1",
                Kind::CsiNode,
                37,
                "Kubernetes 1.22 and later do not serve storage.k8s.io/v1beta1 CSINode",
            ),
            (
                "discovery.k8s.io/v1beta1",
                Kind::EndpointSlice,
                25,
                "Kubernetes 1.25 and later do not serve",
            ),
            (
                "discovery.k8s.io/v1",
                Kind::EndpointSlice,
                20,
                "Kubernetes 1.20 does not serve discovery.k8s.io/v1 EndpointSlice yet; 1.21 does",
            ),
            (
                "autoscaling/v2alpha1",
                Kind::HorizontalPodAutoscaler,
                37,
                "Kubernetes 1.8 and later do not serve",
            ),
            (
                "apps/v3",
                Kind::Deployment,
                37,
                "no release of Kubernetes serves apps/v3 Deployment",
            ),
            ("v1", Kind::Pod, 37, ""),
        ];
        for (version, kind, minor, expected) in table {
            let why = not_served(version, kind, minor).map_or_else(String::new, |(why, _)| why);
            assert!(
                why.starts_with(expected) && why.is_empty() == expected.is_empty(),
                "{version} {minor}: {why}"
            );
        }
    }
}
