//! The cache: what the watches have seen of the cluster, trimmed to the fields that are used, as one immutable value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::node::v1::RuntimeClass;

use super::node::NodeView;
use super::policy_revisions::PolicyRevision;
use crate::api::{WindowsNodePolicy, WindowsNodePool};
use crate::model::nodes::namespace_selector::StatedSelectors;
use crate::model::nodes::node::OtherNodes;

/// An annotation that exists only in the cache: why the spec of a node policy cannot be read, for example after a
/// rollback to this version. Transom then neither sets nor reverts anything for that policy.
pub const UNREADABLE_ANNOTATION: &str = "transom.dev/unreadable";

/// A namespace: its labels, and the annotations that placement must respect.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CachedNamespace {
    /// Its uid, for Events about it.
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    /// The value of `scheduler.alpha.kubernetes.io/tolerationsWhitelist`.
    pub tolerations_whitelist: Option<String>,
    /// What its annotations state about its default node selector.
    pub stated_selectors: StatedSelectors,
    /// The labels that exclude it, with the writer of each.
    pub left_out_by: Vec<LabelAuthor>,
    /// The annotations with which an injector selects all its pods.
    pub injections: BTreeMap<String, String>,
}

/// The writer of a label, from managedFields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelAuthor {
    /// The label's key.
    pub label: &'static str,
    /// The field manager, for example `kubectl-label`; empty if the API server knows none.
    pub manager: String,
    /// When this manager last wrote to the namespace.
    pub at: Option<Timestamp>,
}

/// Everything that the watches have seen. Cloning shares the entries.
#[derive(Clone, Debug, Default)]
pub struct ClusterCache {
    /// The minor version of Kubernetes (`36` for 1.36).
    pub kubernetes: u32,
    /// Whether the API server has OpenShift's SecurityContextConstraints.
    pub has_scc: bool,
    /// The default node selector of OpenShift's Scheduler; empty if there is none, or it cannot be read.
    pub default_node_selector: String,
    /// Whether the API server has GMSACredentialSpecs; `None` if it did not answer.
    pub has_gmsa: Option<bool>,
    /// The API groups of injectors that the API server has.
    pub injector_groups: BTreeSet<String>,
    /// Only the nodes that are for Windows by their kubelet or by a label, and the nodes that carry anything of
    /// Transom's.
    pub nodes: BTreeMap<String, Arc<NodeView>>,
    /// The nodes that are not Windows nodes, with little of each.
    pub other_nodes: Arc<OtherNodes>,
    /// Whether the nodes could not be read; never in a server, which waits for them.
    pub nodes_are_unread: bool,
    /// RuntimeClasses by name, without managedFields.
    pub runtime_classes: BTreeMap<String, Arc<RuntimeClass>>,
    /// The names of the CSI drivers of each node, including Linux nodes: a CSINode does not specify the operating
    /// system.
    pub csi_nodes: BTreeMap<String, Arc<Vec<String>>>,
    pub namespaces: BTreeMap<String, Arc<CachedNamespace>>,
    /// The namespaces in which stored pods show that the API server adds the selector of
    /// [`StatedSelectors::plugin`], with that annotation.
    pub shown_selectors: Arc<BTreeMap<String, String>>,
    /// Stored node policies by name, without managedFields.
    pub node_policies: BTreeMap<String, Arc<WindowsNodePolicy>>,
    /// Stored pod policies by name, as JSON: they are parsed elsewhere.
    pub pod_policies: BTreeMap<String, Arc<serde_json::Value>>,
    /// The valid versions of pod policies, by the names of their ControllerRevisions.
    pub policy_revisions: BTreeMap<String, Arc<PolicyRevision>>,
    /// Stored node pools by name, without managedFields and annotations.
    pub node_pools: BTreeMap<String, Arc<WindowsNodePool>>,
}

/// Whether two parts of caches share the same entries.
pub fn same<T>(one: &BTreeMap<String, Arc<T>>, other: &BTreeMap<String, Arc<T>>) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.all(|((a, x), (b, y))| a == b && Arc::ptr_eq(x, y))
}

/// Whether two parts of caches have equal entries; most of them are shared.
pub fn equal<T: PartialEq>(one: &BTreeMap<String, Arc<T>>, other: &BTreeMap<String, Arc<T>>) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.all(|((a, x), (b, y))| a == b && (Arc::ptr_eq(x, y) || x == y))
}

/// Whether a resourceVersion is older than another one. Since Kubernetes 1.35 they are officially comparable as
/// numbers; with etcd they always have been.
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
