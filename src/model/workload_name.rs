//! The name of a workload: kind, namespace and name.

use std::fmt;

use super::resources::OwnerReference;
use super::text::object_title;

/// The name of a workload, as in `Deployment shop/web`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkloadName {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl WorkloadName {
    /// From its parts.
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        WorkloadName {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The owner of an object in this namespace.
    pub fn of_owner(owner: &OwnerReference<'_>, namespace: &str) -> Self {
        WorkloadName::new(&owner.kind, namespace, &owner.name)
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&object_title(&self.kind, &self.namespace, &self.name))
    }
}
