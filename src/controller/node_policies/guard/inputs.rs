//! What decides which workloads taints keep off nodes, other than the workloads and the nodes: whether placement applies to their
//! pods.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::cluster::snapshot::Snapshot;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::{NamespaceFacts, RuntimeClassFacts};
use crate::registration::configurations::Configurations;

/// What decides about placement in a cluster.
pub(super) struct PlacementInputs {
    policies: Arc<PolicySet>,
    registered: Option<Arc<Configurations>>,
    namespaces: Arc<HashMap<String, NamespaceFacts>>,
    runtime_classes: BTreeMap<String, RuntimeClassFacts>,
}

impl PlacementInputs {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        PlacementInputs {
            policies: Arc::clone(&snapshot.policies),
            registered: snapshot.registered.clone(),
            namespaces: Arc::clone(&snapshot.facts.namespaces),
            runtime_classes: snapshot.facts.runtime_classes.clone(),
        }
    }

    /// Whether nothing has changed. A new namespace has no workload that was evaluated before.
    pub(super) fn is_same(&self, now: &PlacementInputs) -> bool {
        let is_same_namespace = |(name, before): (&String, &NamespaceFacts)| {
            now.namespaces.get(name).is_none_or(|now| now == before)
        };
        (Arc::ptr_eq(&self.policies, &now.policies) || self.policies == now.policies)
            && self.registered == now.registered
            && (Arc::ptr_eq(&self.namespaces, &now.namespaces)
                || self.namespaces.iter().all(is_same_namespace))
            && self.runtime_classes == now.runtime_classes
    }
}
