//! Memory limits of pods, compared with what Windows nodes have.

use crate::model::objects::pod::{Container, PodSpec};
use crate::model::syntax::json_types::Quantity;

/// Why limits above what a node has are a problem on Windows.
///
/// Source: <https://kubernetes.io/docs/concepts/configuration/windows-resource-management/#resource-management-memory>.
pub const NO_OOM_KILLER: &str = "Windows has no OOM killer, so the node pages to its disk";

impl PodSpec<'_> {
    /// The sum of the memory limits of its containers that run together, in bytes.
    pub fn memory_limit(&self) -> u64 {
        let limit = |container: &Container<'_>| {
            let limit = container.resources.as_ref()?.limits.get("memory")?;
            u64::try_from(Quantity::millis(limit)? / 1000).ok()
        };
        let sidecars = self.init_containers.iter().filter(|init| init.is_sidecar());
        let limits = self.containers.iter().chain(sidecars).filter_map(limit);
        limits.fold(0, u64::saturating_add)
    }
}

/// The most memory that one of these nodes has, in bytes, if the limit is above it. `None` for a node that does not report its
/// memory, which may have enough.
pub fn largest_below(limit: u64, mut nodes: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    if limit == 0 {
        return None;
    }
    let is_below = |memory: &u64| *memory < limit;
    let add = |largest: Option<u64>, memory: Option<u64>| Some(largest.max(Some(memory.filter(is_below)?)));
    nodes.try_fold(None, add)?
}

/// Bytes as in `512Mi`.
pub fn mebibytes(bytes: u64) -> String {
    format!("{}Mi", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_containers_that_run_together_are_added() {
        let container = |limit: &str| format!(r#"{{"resources": {{"limits": {{"memory": "{limit}"}}}}}}"#);
        let sidecar = container("1Ki").replacen('{', r#"{"restartPolicy": "Always", "#, 1);
        let spec = format!(
            r#"{{"initContainers": [{}, {sidecar}], "containers": [{}, {}, {{}}]}}"#,
            container("1Gi"),
            container("2Ki"),
            container("1.5"),
        );
        let spec: PodSpec<'_> = serde_json::from_str(&spec).unwrap();
        assert_eq!(spec.memory_limit(), 1024 + 2048 + 1);
    }

    #[test]
    fn a_limit_is_above_the_largest_node_if_every_node_reports_less() {
        for (limit, nodes, expected) in [
            (8, &[Some(4), Some(6)][..], Some(6)),
            (6, &[Some(4), Some(6)], None),
            (8, &[Some(4), None], None),
            (8, &[], None),
            (0, &[Some(4)], None),
        ] {
            assert_eq!(
                largest_below(limit, nodes.iter().copied()),
                expected,
                "{limit} {nodes:?}"
            );
        }
    }
}
