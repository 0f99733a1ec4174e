//! Mirror pods: decides whether a Pod is the kubelet's copy of a static pod.
//!
//! An author of any object can write the annotation, so the annotation alone proves nothing. A mirror pod is a Pod with
//! a `nodeName`, its Node is its controlling owner, and either the requester is that node's kubelet or, for a stored
//! pod, the owner has the uid of the node.

use super::resources::Meta;
use super::workload::Kind;
use crate::model::syntax::json_types::Str;

/// The annotation that the kubelet writes (`kubetypes.ConfigMirrorAnnotationKey`).
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// The prefix of kubelets' user names; the node's name follows.
const NODE_USER: &str = "system:node:";
/// The group of kubelets.
const NODES: &str = "system:nodes";

/// The evidence that distinguishes a mirror pod from an object whose author wrote the annotation.
#[derive(Clone, Copy)]
pub enum Witness<'w> {
    /// The requester of the object: it must be the kubelet of its node.
    Requester { user: &'w str, groups: &'w [Str<'w>] },
    /// The object is stored: its owner must have the uid of its node. `None` for a node whose uid is unknown.
    Stored(&'w dyn Fn(&str) -> Option<&'w str>),
}

/// Whether an object is a mirror pod. Workloads never are.
pub fn is_mirror(kind: Kind, meta: &Meta<'_>, node_name: Option<&str>, witness: &Witness<'_>) -> bool {
    if kind != Kind::Pod || meta.annotations.get(MIRROR_ANNOTATION).is_none() {
        return false;
    }
    let (Some(node), Some(owner)) = (node_name.filter(|name| !name.is_empty()), meta.controller()) else {
        return false;
    };
    let is_of_node = &*owner.api_version == "v1" && &*owner.kind == "Node" && *owner.name == *node;
    is_of_node
        && match witness {
            Witness::Requester { user, groups } => {
                user.strip_prefix(NODE_USER) == Some(node) && groups.iter().any(|group| **group == *NODES)
            }
            Witness::Stored(uid_of) => uid_of(node).is_none_or(|uid| *owner.uid == *uid),
        }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn meta(owner: &Value) -> String {
        json!({"annotations": {MIRROR_ANNOTATION: "hash"}, "ownerReferences": [owner]}).to_string()
    }

    fn owned_by_node() -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "name": "win-1", "uid": "u1", "controller": true})
    }

    fn by(meta: &str, kind: Kind, node: Option<&str>, user: &str, group: &str) -> bool {
        let meta: Meta<'_> = serde_json::from_str(meta).unwrap();
        let groups = [Str::from("system:authenticated"), Str::from(group)];
        let witness = Witness::Requester {
            user,
            groups: &groups,
        };
        is_mirror(kind, &meta, node, &witness)
    }

    #[test]
    fn only_the_kubelet_of_its_node_makes_a_mirror_pod() {
        let good = meta(&owned_by_node());
        let (node, user) = (Some("win-1"), "system:node:win-1");
        assert!(by(&good, Kind::Pod, node, user, NODES));
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Pod) {
            assert!(!by(&good, kind, node, user, NODES), "{kind}");
        }
        for node in [None, Some(""), Some("win-2")] {
            assert!(!by(&good, Kind::Pod, node, user, NODES), "{node:?}");
        }
        for (user, group) in [
            ("system:node:win-2", NODES),
            ("system:node:", NODES),
            ("win-1", NODES),
            ("alice", "system:masters"),
            ("system:node:win-1", "system:masters"),
            ("", ""),
        ] {
            assert!(!by(&good, Kind::Pod, node, user, group), "{user} {group}");
        }
        let forged = |field: &str, value: Value| {
            let mut owner = owned_by_node();
            owner[field] = value;
            meta(&owner)
        };
        for forged in [
            forged("kind", "ReplicaSet".into()),
            forged("apiVersion", "example.com/v1".into()),
            forged("name", "win-2".into()),
            forged("controller", false.into()),
            forged("controller", Value::Null),
            json!({"annotations": {MIRROR_ANNOTATION: "hash"}}).to_string(),
            json!({"ownerReferences": [owned_by_node()]}).to_string(),
        ] {
            assert!(!by(&forged, Kind::Pod, node, user, NODES), "{forged}");
        }
    }

    #[test]
    fn a_stored_mirror_pod_has_the_uid_of_its_node_where_that_is_known() {
        let json = meta(&owned_by_node());
        let meta: Meta<'_> = serde_json::from_str(&json).unwrap();
        for (uid, expected) in [(None, true), (Some("u1"), true), (Some("u2"), false)] {
            let uid_of = move |_: &str| uid;
            let stored = |node| is_mirror(Kind::Pod, &meta, node, &Witness::Stored(&uid_of));
            assert_eq!(stored(Some("win-1")), expected, "{uid:?}");
            assert!(!stored(Some("win-2")) && !stored(None), "{uid:?}");
        }
        let stored = Witness::Stored(&|_| Some("u1"));
        assert!(!is_mirror(Kind::Deployment, &meta, Some("win-1"), &stored));
    }
}
