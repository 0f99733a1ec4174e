//! What manifests do not contain: the namespace of objects without one, and the namespaces that admission
//! excludes.

use std::collections::BTreeMap;

use crate::model::facts::Facts;
use crate::registration;

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
        let none = BTreeMap::new();
        let labels = (facts.namespaces.get(namespace)).map_or(&none, |known| &known.labels);
        registration::not_reviewed(namespace, labels, &self.excluded, None).map(|why| why.words(namespace))
    }
}
