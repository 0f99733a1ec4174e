//! Node groups without nodes: the ConfigMap `kube-system/cluster-autoscaler-status`, and resources that
//! create nodes.

use serde_json::Value;

use super::ClusterInput;
use crate::cluster::environment::NodeGroupResource;
use crate::manifest;

/// A node group, as the status of the cluster autoscaler reports it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AutoscalerGroup {
    /// Its name in the cloud.
    pub name: String,
    /// How many of its nodes are ready.
    pub ready: u64,
    /// The minimum number of nodes.
    pub min: u64,
    /// The maximum number of nodes.
    pub max: u64,
}

impl AutoscalerGroup {
    /// Reads a group of the status.
    fn read(group: &Value) -> Self {
        let number = |field: &str| group.pointer(field).and_then(Value::as_u64).unwrap_or_default();
        AutoscalerGroup {
            name: group["name"].as_str().unwrap_or_default().to_owned(),
            ready: number("/health/nodeCounts/registered/ready"),
            min: number("/health/minSize"),
            max: number("/health/maxSize"),
        }
    }

    /// Whether its name indicates Windows; the status has no field for that.
    pub fn sounds_like_windows(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        let word = |part: &str| part.starts_with("win") && !part.starts_with("wing");
        // AKS names the VM scale sets of Windows pools `aks` plus the pool name, without a separator.
        name.split(|c: char| !c.is_ascii_alphanumeric())
            .any(|part| word(part) || part.strip_prefix("aks").is_some_and(word))
    }
}

/// Its node groups; `None` if the text does not have the format of the autoscaler since 1.30. Before, it was free text.
///
/// Source: `cluster-autoscaler/clusterstate/api/types.go`.
pub fn groups(text: &str) -> Option<Vec<AutoscalerGroup>> {
    let parsed = manifest::parse(text.as_bytes().to_vec());
    if !parsed.errors.is_empty() {
        return None;
    }
    let status: Value = serde_json::from_str(parsed.documents.first()?.json()).ok()?;
    status.get("autoscalerStatus")?;
    match status.get("nodeGroups") {
        None => Some(Vec::new()),
        Some(groups) => Some(groups.as_array()?.iter().map(AutoscalerGroup::read).collect()),
    }
}

/// The resources that create Windows nodes, and whether each has zero nodes now.
pub fn scaled(input: ClusterInput<'_>) -> impl Iterator<Item = (&NodeGroupResource, bool)> {
    let has_node = move |pool: &NodeGroupResource| {
        let mut nodes = input.environment.nodes.iter();
        let mut is_there = || nodes.any(|node| node.labels.get("karpenter.sh/nodepool") == Some(&pool.name));
        pool.replicas.map_or_else(&mut is_there, |replicas| replicas > 0)
    };
    let windows = input.environment.scaled.iter().filter(|pool| pool.is_windows);
    windows.map(move |pool| (pool, !has_node(pool)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const STATUS: &str = "\
time: 2026-11-20 04:28:19.546750398 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 5
        ready: 5
        notStarted: 0
      longUnregistered: 0
      unregistered: 0
    lastProbeTime: \"2026-11-20T04:28:19.546750398Z\"
    lastTransitionTime: \"2026-11-20T04:27:59.546750398Z\"
  scaleUp:
    status: NoActivity
nodeGroups:
- name: aks-nodepool1-123-vmss
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 5
        ready: 5
        notStarted: 0
        beingDeleted: 0
        unready: {}
      longUnregistered: 0
      unregistered: 0
    cloudProviderTarget: 5
    minSize: 1
    maxSize: 5
- name: akswin22
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 0
        ready: 0
        notStarted: 0
    cloudProviderTarget: 0
    minSize: 0
    maxSize: 3
";

    #[test]
    fn groups_are_read_as_the_autoscaler_writes_them_since_1_30() {
        let group = |name: &str, ready, min, max| AutoscalerGroup {
            name: name.into(),
            ready,
            min,
            max,
        };
        let expected = [
            group("aks-nodepool1-123-vmss", 5, 1, 5),
            group("akswin22", 0, 0, 3),
        ];
        assert_eq!(groups(STATUS).unwrap(), expected);
        let old = "Cluster-autoscaler status at 2023-01-01 00:00:00 +0000 UTC:\nCluster-wide:\n  Health:      Healthy (ready=5 unready=0)\n\nNodeGroups:\n  Name:        aks-nodepool1-123-vmss\n  Health:      Healthy (ready=5 unready=0 (resourceUnready=0) notStarted=0 registered=5 longUnregistered=0 cloudProviderTarget=5 (minSize=1, maxSize=5))\n  ScaleUp:     NoActivity (ready=5 cloudProviderTarget=5)\n\n  Name:        akswin22\n  Health:      Healthy (ready=0 unready=0 notStarted=0 registered=0 longUnregistered=0 cloudProviderTarget=0 (minSize=0, maxSize=3))\n";
        assert_eq!(groups(old), None);
        assert_eq!(groups("a: ["), None);
        assert_eq!(groups("autoscalerStatus: Running\nnodeGroups: 5"), None);
        assert_eq!(groups("autoscalerStatus: Running"), Some(Vec::new()));
    }

    #[test]
    fn a_name_is_only_a_hint_and_no_word_of_another_meaning() {
        let sounds = |name: &str| {
            AutoscalerGroup {
                name: name.into(),
                ..AutoscalerGroup::default()
            }
            .sounds_like_windows()
        };
        for name in [
            "akswin22",
            "eks-windows-2022-abc",
            "https://x/zones/a/instanceGroups/gke-c-win-pool-grp",
        ] {
            assert!(sounds(name), "{name}");
        }
        for name in ["aks-nodepool1-1-vmss", "darwin", "wings", "twins"] {
            assert!(!sounds(name), "{name}");
        }
    }
}
