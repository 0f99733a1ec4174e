//! Deduplicates the children of owners that are not evaluated, such as the pods of an Argo Workflow: one of each group of equal children is evaluated. Pure.

use std::hash::{BuildHasher, RandomState};

use crate::model::objects::object::Object;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;

/// How an object compares with the other children of its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DedupKey {
    /// It is evaluated on its own: it has no such owner, or its kind is one of which an owner creates several
    /// different objects.
    None,
    /// It is kept for a rollback, and creates no pods.
    AtZero,
    /// It equals every other object with this hash.
    Of(u64),
}

/// The group of this object, if its owner is not evaluated.
pub fn dedup_key(subject: &Object<'_>, hashes: &RandomState) -> DedupKey {
    // A custom resource may not be listed, so what its controller makes may be evaluated.
    let evaluated_owner = subject.owner_kind().filter(|kind| !kind.is_custom());
    if evaluated_owner.is_some() {
        return DedupKey::None;
    }
    dedup_key_of_owned(subject, hashes)
}

/// The group of this object, whatever its owner is: objects of the same owner with the same images and the same node
/// selector.
pub fn dedup_key_of_owned(subject: &Object<'_>, hashes: &RandomState) -> DedupKey {
    let Some(owner) = WorkloadName::owner_of(&subject.meta, &subject.namespace) else {
        return DedupKey::None;
    };
    let pod = subject.pod();
    let Some(pod) = pod.filter(|_| matches!(subject.kind, Kind::Pod | Kind::ReplicaSet)) else {
        // One owner may create several objects of other kinds, each with a different template.
        return DedupKey::None;
    };
    if is_at_zero(subject) {
        return DedupKey::AtZero;
    }
    let images = pod
        .visit_containers()
        .map(|(_, _, container)| container.image.as_deref());
    let images: Vec<Option<&str>> = images.collect();
    let selected = pod.node_selector.iter().map(|(key, value)| (&**key, &**value));
    let selected: Vec<(&str, &str)> = selected.collect();
    DedupKey::Of(hashes.hash_one((subject.kind, owner, images, selected)))
}

/// Whether a ReplicaSet requests zero pods: one that is kept for a rollback.
pub fn is_at_zero(subject: &Object<'_>) -> bool {
    let replicas = subject.template().and_then(|template| template.replicas);
    subject.kind == Kind::ReplicaSet && replicas == Some(0)
}
