//! Node groups without nodes: the ConfigMap `kube-system/cluster-autoscaler-status`, and resources that
//! create nodes.

use serde_json::Value;

use super::ClusterInput;
use crate::cluster::environment::NodeGroupResource;
use crate::manifest;

/// One node group.
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
    /// Reads the format of the status since release 1.30.
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

/// Its node groups; `None` if the text has neither format of the autoscaler.
///
/// Source: `cluster-autoscaler/clusterstate/api/types.go`; before 1.30 the status was free text.
pub fn groups(text: &str) -> Option<Vec<AutoscalerGroup>> {
    if text.trim_start().starts_with("Cluster-autoscaler status") {
        return Some(of_text(text));
    }
    let parsed = manifest::parse(text.as_bytes().to_vec());
    if !parsed.errors.is_empty() {
        return None;
    }
    let status: Value = serde_json::from_str(parsed.documents.first()?.json()).ok()?;
    match status.as_object()?.get("nodeGroups") {
        None => Some(Vec::new()),
        Some(groups) => Some(groups.as_array()?.iter().map(AutoscalerGroup::read).collect()),
    }
}

/// Parses `Name: x`, followed by `Health: Healthy (ready=0 … cloudProviderTarget=0 (minSize=0, maxSize=5))`.
fn of_text(text: &str) -> Vec<AutoscalerGroup> {
    let mut groups: Vec<AutoscalerGroup> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("Name:") {
            groups.push(AutoscalerGroup {
                name: name.trim().to_owned(),
                ..AutoscalerGroup::default()
            });
        } else if let (Some(health), Some(group)) = (line.strip_prefix("Health:"), groups.last_mut()) {
            let number = |key: &str| {
                let mut words = health.split(|c: char| c.is_whitespace() || "(),".contains(c));
                let word = words.find_map(|word| word.strip_prefix(key));
                word.and_then(|number| number.parse().ok()).unwrap_or_default()
            };
            group.ready = number("ready=");
            group.min = number("minSize=");
            group.max = number("maxSize=");
        }
    }
    groups
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
    fn groups_are_read_as_the_autoscaler_writes_them_now_and_wrote_them_once() {
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
        assert_eq!(groups(old).unwrap(), expected);
        assert_eq!(groups("a: [").map(|_| ()), None);
        assert_eq!(groups("nodeGroups: 5"), None);
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
