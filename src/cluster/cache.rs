//! The view: what the watches have seen of the cluster, trimmed to what is read of it, as one value that is replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::node::v1::RuntimeClass;

use super::node::NodeView;
use super::revisions::StoredRevision;
use crate::api::WindowsNodePolicy;

/// Set on a node policy in a view, and nowhere else: why its spec cannot be read, as after a rollback to this version.
/// Then nothing of it is set, and nothing taken back.
pub const UNREADABLE_ANNOTATION: &str = "transom.dev/unreadable";

/// A namespace: its labels, and the annotations that placement must respect.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CachedNamespace {
    /// Its uid, for Events about it.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The value of `scheduler.alpha.kubernetes.io/tolerationsWhitelist`.
    pub tolerations_whitelist: Option<String>,
    /// The labels that take it out, with who wrote each of them.
    pub left_out_by: Vec<LabelAuthor>,
    /// The annotations by which an injector takes all its pods.
    pub injections: BTreeMap<String, String>,
}

/// The writer of a label, as the API server's managedFields have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelAuthor {
    /// The label's key.
    pub label: &'static str,
    /// The field manager, as in `kubectl-label`; empty where the API server knows none.
    pub manager: String,
    /// When this manager last wrote to the namespace.
    pub at: Option<Timestamp>,
}

/// What is remembered of pools of nodes, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolHistoryObject {
    /// The version that the next write must name.
    pub resource_version: String,
    /// The pools, as [`PoolHistory`](super::pool_history::PoolHistory) spells them.
    pub pools: String,
}

/// Everything that the watches have seen. Cloning shares the entries.
#[derive(Clone, Debug, Default)]
pub struct ClusterCache {
    /// The minor version of Kubernetes (`36` for 1.36).
    pub kubernetes: u32,
    /// Whether the API server has OpenShift's SecurityContextConstraints.
    pub has_scc: bool,
    /// Whether the API server has GMSACredentialSpecs; `None` if it did not answer which groups it has.
    pub has_gmsa: Option<bool>,
    /// The nodes that are for Windows by their kubelet or by a label, and the nodes that carry anything of ours; no others.
    pub nodes: BTreeMap<String, Arc<NodeView>>,
    /// RuntimeClasses by name, without managedFields.
    pub runtime_classes: BTreeMap<String, Arc<RuntimeClass>>,
    /// The names of the CSI drivers of each node, Linux nodes too: a CSINode does not say what its node is.
    pub csi_nodes: BTreeMap<String, Arc<Vec<String>>>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<String, Arc<CachedNamespace>>,
    /// Stored node policies by name, without managedFields.
    pub node_policies: BTreeMap<String, Arc<WindowsNodePolicy>>,
    /// Stored pod policies by name, as JSON: what of them can be read is not the watch's business.
    pub pod_policies: BTreeMap<String, Arc<serde_json::Value>>,
    /// The versions of pod policies that could be used, by the names of their ControllerRevisions.
    pub revisions: BTreeMap<String, Arc<StoredRevision>>,
    /// What is remembered of pools, under the name of its ConfigMap; nothing where there is none yet.
    pub seen: BTreeMap<String, Arc<PoolHistoryObject>>,
}

impl ClusterCache {
    /// Whether nothing has changed: the same entries, not only equal ones, because entries are only replaced by others.
    pub fn is_same(&self, other: &ClusterCache) -> bool {
        self.kubernetes == other.kubernetes
            && self.has_scc == other.has_scc
            && self.has_gmsa == other.has_gmsa
            && same(&self.nodes, &other.nodes)
            && same(&self.runtime_classes, &other.runtime_classes)
            && same(&self.csi_nodes, &other.csi_nodes)
            && same(&self.namespaces, &other.namespaces)
            && same(&self.node_policies, &other.node_policies)
            && same(&self.pod_policies, &other.pod_policies)
            && same(&self.revisions, &other.revisions)
            && same(&self.seen, &other.seen)
    }
}

/// Whether two parts of views have the same entries.
pub fn same<T>(one: &BTreeMap<String, Arc<T>>, other: &BTreeMap<String, Arc<T>>) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.all(|((a, x), (b, y))| a == b && Arc::ptr_eq(x, y))
}

/// Whether a version is older than another one. Since Kubernetes 1.35 versions are comparable as numbers by contract;
/// they have been for as long as etcd makes them.
pub fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u128>(), than.parse::<u128>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_older("9", "10"));
        assert!(!is_older("10", "10"));
        assert!(!is_older("a", "10"));
    }
}
