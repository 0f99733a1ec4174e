//! The stored valid versions of policies; pure.
//!
//! Transom's namespace has one ControllerRevision for each valid generation of a policy. Its data is immutable, and a
//! user who may write the status of a policy may not write it. The two newest of each policy are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::core::ObjectMeta;
use serde_json::Value;

use super::node::MANAGED_BY;
use crate::api::{API_VERSION, POD_POLICY};

/// The label of Transom's revisions, with the uid of the policy.
pub const POLICY_UID_LABEL: &str = "transom.dev/policy-uid";
/// How many revisions of a policy are kept.
const KEPT: usize = 2;

/// A valid generation of a policy, as a ControllerRevision stores it.
#[derive(Clone, PartialEq, Debug)]
pub struct PolicyRevision {
    /// The uid of its policy.
    pub policy_uid: String,
    /// The generation of the policy.
    pub generation: i64,
    /// The spec of that generation, as JSON text: it is read only if a later version cannot be used, and parsed it
    /// takes several times the memory.
    pub spec: Box<str>,
}

impl PolicyRevision {
    /// Reads a stored revision; `None` if it is not Transom's.
    pub fn of(revision: ControllerRevision) -> Option<Self> {
        let labels = revision.metadata.labels?;
        let owners = revision.metadata.owner_references.unwrap_or_default();
        let policy_uid = labels.get(POLICY_UID_LABEL)?.clone();
        let is_owned = |owner: &OwnerReference| owner.kind == POD_POLICY && owner.uid == policy_uid;
        if !owners.iter().any(is_owned) {
            return None;
        }
        Some(PolicyRevision {
            policy_uid,
            generation: revision.revision?,
            spec: revision.data.0.to_string().into(),
        })
    }
}

/// The revisions of a policy, the newest first.
pub fn of_policy<'r>(
    revisions: &'r BTreeMap<String, Arc<PolicyRevision>>,
    uid: &str,
) -> Vec<(&'r str, &'r PolicyRevision)> {
    let mut found: Vec<(&str, &PolicyRevision)> = (revisions.iter())
        .filter(|(_, revision)| revision.policy_uid == uid)
        .map(|(name, revision)| (name.as_str(), &**revision))
        .collect();
    found.sort_by_key(|(_, revision)| std::cmp::Reverse(revision.generation));
    found
}

/// The revisions of a policy that are no longer kept.
pub fn surplus<'r>(
    revisions: &'r BTreeMap<String, Arc<PolicyRevision>>,
    uid: &str,
) -> impl Iterator<Item = &'r str> {
    of_policy(revisions, uid)
        .into_iter()
        .skip(KEPT)
        .map(|(name, _)| name)
}

/// The name of the revision of a generation.
pub fn name_of(uid: &str, generation: i64) -> String {
    format!("policy-{uid}-{generation}")
}

/// The revision of the stored version of a policy.
pub fn revision_of(namespace: &str, policy: &Value) -> ControllerRevision {
    let owned = |pointer: &str| text(policy, pointer).to_owned();
    let (name, uid) = (owned("/metadata/name"), owned("/metadata/uid"));
    let generation = generation(policy);
    let labels = [MANAGED_BY, (POLICY_UID_LABEL, uid.as_str())];
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name_of(&uid, generation)),
            namespace: Some(namespace.to_owned()),
            labels: Some(
                labels
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            owner_references: Some(vec![OwnerReference {
                api_version: API_VERSION.to_owned(),
                kind: POD_POLICY.to_owned(),
                name,
                uid,
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        revision: Some(generation),
        data: RawExtension(policy.get("spec").cloned().unwrap_or_default()),
    }
}

/// A string field of a stored object; empty if it is missing.
pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The generation of a stored object.
pub fn generation(object: &Value) -> i64 {
    object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(uid: &str, generation: i64) -> Value {
        json!({"metadata": {"name": "p", "uid": uid, "generation": generation}, "spec": {"mode": "Warn"}})
    }

    fn stored(all: &[(&str, i64)]) -> BTreeMap<String, Arc<PolicyRevision>> {
        let revisions = all.iter().map(|(uid, generation)| {
            let revision = revision_of("transom-system", &policy(uid, *generation));
            let name = revision.metadata.name.clone().unwrap();
            (name, Arc::new(PolicyRevision::of(revision).unwrap()))
        });
        revisions.collect()
    }

    #[test]
    fn the_two_newest_revisions_of_a_policy_are_kept() {
        // Compared as numbers: as strings, 10 would come before 9.
        let revisions = stored(&[("a", 8), ("a", 9), ("a", 10), ("b", 1)]);
        let generations: Vec<i64> = (of_policy(&revisions, "a").iter())
            .map(|(_, revision)| revision.generation)
            .collect();
        assert_eq!(generations, [10, 9, 8]);
        assert_eq!(surplus(&revisions, "a").collect::<Vec<_>>(), ["policy-a-8"]);
        assert_eq!(surplus(&revisions, "b").count(), 0);
    }

    #[test]
    fn a_revision_that_the_policy_does_not_own_is_none_of_ours() {
        let ours = revision_of("transom-system", &policy("a", 1));
        assert_eq!(
            &*PolicyRevision::of(ours.clone()).unwrap().spec,
            r#"{"mode":"Warn"}"#
        );
        let mut of_another = ours.clone();
        of_another.metadata.owner_references.as_mut().unwrap()[0].uid = "b".to_owned();
        assert_eq!(PolicyRevision::of(of_another), None);
        let mut unlabelled = ours;
        unlabelled.metadata.labels = None;
        assert_eq!(PolicyRevision::of(unlabelled), None);
    }
}
