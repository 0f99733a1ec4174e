//! What manifests do not contain: the namespace of objects without one, and the namespaces that admission
//! excludes.

use crate::model::facts::Facts;
use crate::registration::{NEVER, is_left_out};

/// Assumptions about every input.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    /// The namespace of objects without one, as with `helm template -n` and `kubectl apply -n`.
    pub namespace: Option<String>,
    /// Namespaces that the webhooks exclude, in addition to those that they always exclude.
    pub excluded: Vec<String>,
}

impl Scope {
    /// The namespace that an object without one will get.
    pub fn default_namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// Why the API server does not send objects of a namespace for review; `None` if it does.
    pub fn not_reviewed(&self, namespace: &str, facts: &Facts) -> Option<String> {
        let labels = facts.namespaces.get(namespace);
        let labels = labels.map(|known| known.labels.clone()).unwrap_or_default();
        if !is_left_out(namespace, &labels, &self.excluded) {
            return None;
        }
        let by_name = NEVER.contains(&namespace) || self.excluded.iter().any(|name| name == namespace);
        Some(if by_name {
            format!("the API server never calls admission webhooks for the namespace {namespace}")
        } else {
            format!("labels of the namespace {namespace} exclude it from admission")
        })
    }
}
