//! What manifests do not contain: the namespace of objects without one, and the namespaces that admission
//! excludes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::environment::CheckEnvironment;
use crate::engine::exemption::matches;
use crate::engine::namespace_exclusion;
use crate::model::cluster::facts::Facts;
use crate::model::windows::os::Os;

/// Assumptions about every input.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    /// The namespace of objects without one, as with `helm template -n` and `kubectl apply -n`.
    pub namespace: Option<String>,
    /// Namespaces that the webhooks exclude, in addition to those that they always exclude.
    pub excluded: Vec<String>,
    /// For which operating system the pods are that do not say so themselves.
    pub systems: StatedSystems,
}

/// For which operating system the pods of each input are, as their author states it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatedSystems {
    /// For all inputs, regardless of their paths (`--os`).
    pub all: Option<Os>,
    /// By pattern of the path below `base`.
    pub by_path: BTreeMap<String, Os>,
    /// The folder of the configuration file.
    pub base: Option<PathBuf>,
}

impl StatedSystems {
    /// The operating system of an input. A pattern matches a file, or a folder above it; of several patterns, the longest
    /// applies.
    pub fn of(&self, source: &str, environment: &dyn CheckEnvironment) -> Option<Os> {
        if self.all.is_some() || self.by_path.is_empty() {
            return self.all;
        }
        let below = |base: &PathBuf| environment.relative_path(source, base);
        let path = self.base.as_ref().and_then(below);
        let path = path.unwrap_or_else(|| PathBuf::from(source));
        let names: Vec<String> = (path.ancestors())
            .map(|part| part.to_string_lossy().replace('\\', "/"))
            .filter(|part| !part.is_empty())
            .collect();
        let matching = (self.by_path.iter()).filter(|(pattern, _)| {
            names
                .iter()
                .any(|name| matches(pattern.trim_end_matches('/'), name))
        });
        matching
            .max_by_key(|(pattern, _)| pattern.len())
            .map(|(_, os)| *os)
    }
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
        namespace_exclusion::left_out(namespace, labels, &self.excluded).map(|why| why.words(namespace))
    }
}
