//! The name of a workload: API group, kind, namespace, name and, where two of them may follow each other, uid.

use std::fmt;

use super::resources::OwnerReference;
use super::workload::Kind;
use crate::model::syntax::text::object_title;

/// A workload. Kinds of different API groups may have the same name, for example the StatefulSet of OpenKruise.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkloadName {
    /// Its namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The API group of its kind; empty for the core group.
    pub group: Box<str>,
    /// Its uid; empty if it is not compared, because files have none.
    pub uid: Box<str>,
}

impl WorkloadName {
    /// From its parts, without a uid. A group that a kind of Kubernetes has left is replaced by the present one.
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        WorkloadName {
            namespace: namespace.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            group: Kind::of(group, kind).map_or(Box::from(group), |kind| Box::from(kind.group())),
            uid: Box::default(),
        }
    }

    /// An object of this kind, without its uid.
    pub fn of(kind: Kind, namespace: &str, name: &str) -> Self {
        WorkloadName::new(kind.group(), kind.as_str(), namespace, name)
    }

    /// The owner of an object in this namespace, without its uid.
    pub fn of_owner(owner: &OwnerReference<'_>, namespace: &str) -> Self {
        let group = owner.api_version.rsplit_once('/');
        let group = group.map(|(group, _)| group).unwrap_or_default();
        WorkloadName::new(group, &owner.kind, namespace, &owner.name)
    }

    /// The same object with its uid.
    #[must_use]
    pub fn with_uid(self, uid: &str) -> Self {
        WorkloadName {
            uid: uid.into(),
            ..self
        }
    }

    /// The kind; `None` if Transom does not know it.
    pub fn known_kind(&self) -> Option<Kind> {
        Kind::of(&self.group, &self.kind)
    }
}

/// As in `Deployment shop/web`; a kind of another group as kubectl shows it, as in `CloneSet.apps.kruise.io shop/web`.
impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = Some(&self.group).filter(|group| group.contains('.'));
        let kind = group.map_or_else(|| self.kind.clone(), |group| format!("{}.{group}", self.kind));
        f.write_str(&object_title(&kind, &self.namespace, &self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_kubernetes_is_named_without_its_group() {
        for (group, kind, text) in [
            ("apps", "DaemonSet", "DaemonSet shop/agent"),
            ("", "Pod", "Pod shop/agent"),
            (
                "apps.kruise.io",
                "DaemonSet",
                "DaemonSet.apps.kruise.io shop/agent",
            ),
        ] {
            assert_eq!(WorkloadName::new(group, kind, "shop", "agent").to_string(), text);
        }
    }
}
