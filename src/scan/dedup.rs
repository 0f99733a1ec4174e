//! Objects that an owner of a kind that is not judged has made, as an Argo Rollout its ReplicaSets: of those that are alike one
//! is judged. Pure.

use std::hash::{BuildHasher, RandomState};

use serde::Deserialize;

use crate::model::object::Object;
use crate::model::workload::Kind;

/// How an object stands among those that its owner has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DedupKey {
    /// It is judged by itself: it has no such owner, or is of a kind of which an owner makes several that differ.
    None,
    /// It is kept for a rollback, and makes no pod.
    AtZero,
    /// It is like every other one of this number.
    Of(u64),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ScaledObject {
    spec: ReplicaCount,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReplicaCount {
    replicas: Option<u64>,
}

/// Which objects this one is like: those of the same owner with the same images and the same node selector.
pub fn dedup_key(subject: &Object<'_>, json: &str, hashes: &RandomState) -> DedupKey {
    let (Some(owner), None) = (subject.meta.controller(), subject.owner_kind()) else {
        return DedupKey::None;
    };
    let pod = subject.pod();
    let Some(pod) = pod.filter(|_| matches!(subject.kind, Kind::Pod | Kind::ReplicaSet)) else {
        // One owner may make several of other kinds, each with a template of its own.
        return DedupKey::None;
    };
    if is_at_zero(subject.kind, json) {
        return DedupKey::AtZero;
    }
    let images = pod
        .visit_containers()
        .map(|(_, _, container)| container.image.as_deref());
    let images: Vec<Option<&str>> = images.collect();
    let selected = pod.node_selector.iter().map(|(key, value)| (&**key, &**value));
    let selected: Vec<(&str, &str)> = selected.collect();
    let of = (&*owner.api_version, &*owner.kind, &*owner.name);
    DedupKey::Of(hashes.hash_one((subject.kind, &*subject.namespace, of, images, selected)))
}

/// Whether a ReplicaSet asks for no pod: one that is kept for a rollback.
pub fn is_at_zero(kind: Kind, json: &str) -> bool {
    kind == Kind::ReplicaSet
        && serde_json::from_str(json).is_ok_and(|scaled: ScaledObject| scaled.spec.replicas == Some(0))
}
