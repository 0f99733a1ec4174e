//! The owner annotation of a node: what on it is Transom's, and how often another writer removed it. The controller
//! decides with it, and the facts of reviews read which taints the controller sets; pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::nodes::node::Taint;
use crate::model::syntax::text::digest_hex;

/// The label that proves the taints in [`crate::cluster::node::OWNED_ANNOTATION`] of a node: a hash of them. A kubelet can write
/// annotations of its own node, but no label under this prefix (the `NodeRestriction` admission plugin).
pub const PROOF_LABEL: &str = "transom.dev.node-restriction.kubernetes.io/taints";

/// How many removals of a taint by another writer make Transom stop setting it.
pub const MOST_REVERSALS: u32 = 3;

/// What Transom owns on a node, as the annotation [`crate::cluster::node::OWNED_ANNOTATION`] records it.
///
/// The annotation is stored on the node and written in the same request as the labels and taints that it describes.
/// It survives a change of leader, and only another writer can make it differ from the node.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeOwnership {
    /// The policy that it was written for.
    pub policy: String,
    /// Labels, with the value that Transom wrote.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints that Transom added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// How often another writer removed a taint, by the taint's text (`os=windows:NoSchedule`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reversals: BTreeMap<String, u32>,
    /// The generation of the policy for which the reversals were counted; 0 if there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands out references
fn is_zero(generation: &i64) -> bool {
    *generation == 0
}

/// The longest annotation that is read, in bytes: far more than sixteen taints need.
const LONGEST: usize = 64 * 1024;

/// How many hexadecimal digits of the SHA-256 the proof has: enough that other taints with the same proof cannot be
/// found.
const PROOF_DIGITS: usize = 40;

/// No annotation: nothing is owned.
pub static NOTHING_OWNED: NodeOwnership = NodeOwnership {
    policy: String::new(),
    labels: BTreeMap::new(),
    taints: Vec::new(),
    reversals: BTreeMap::new(),
    generation: 0,
};

/// The owner annotation of a node, read once, when the watch delivers the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerAnnotation {
    pub text: String,
    /// What it says, or why it cannot be read. Then nothing is owned: Transom never removes anything on a guess.
    pub read: Result<NodeOwnership, String>,
}

impl From<String> for OwnerAnnotation {
    fn from(text: String) -> Self {
        let read = if text.len() > LONGEST {
            Err(format!("it has {} bytes", text.len()))
        } else {
            serde_json::from_str(&text).map_err(|error| error.to_string())
        };
        OwnerAnnotation { text, read }
    }
}

impl OwnerAnnotation {
    /// What it says, if it is trusted. Its taints only are if `proof`, the value of [`PROOF_LABEL`], matches: a kubelet can
    /// write annotations of its node, but neither this label nor taints.
    ///
    /// # Errors
    /// Why it cannot be read, or is not trusted.
    pub fn trusted(&self, proof: Option<&String>) -> Result<&NodeOwnership, String> {
        let owned = self.read.as_ref().map_err(Clone::clone)?;
        // The API server, which searches for this text, would refuse to remove the taint.
        let is_missing = |text: &String| !self.text.contains(text);
        if let Some(text) = owned.taints.iter().map(text_of).find(is_missing) {
            return Err(format!("it does not contain {text}, so Transom did not write it"));
        }
        let expected = owned.proof();
        if expected.is_some() && proof != expected.as_ref() {
            return Err(format!(
                "it names taints that the label {PROOF_LABEL} does not prove, so Transom did not write it"
            ));
        }
        Ok(owned)
    }
}

/// What a taint that a policy requires is on one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequiredTaint {
    /// Its key belongs to Kubernetes or to an autoscaler: Transom does not set it.
    Protected,
    Present,
    /// The node carries this one of another writer instead: key and effect are unique on a node.
    Replaced(Taint),
    /// Other writers removed it so often that Transom no longer sets it for this version of the policy.
    Contested,
    /// It may be set.
    Missing,
}

impl NodeOwnership {
    /// Whether it was written for this version of a policy.
    pub fn is_of(&self, policy: &str, generation: i64) -> bool {
        self.policy == policy && self.generation == generation
    }

    /// What a taint that a version of a policy requires is on a node with these taints.
    pub fn required(&self, taint: &Taint, present: &[Taint], policy: &str, generation: i64) -> RequiredTaint {
        if taint.is_protected() {
            return RequiredTaint::Protected;
        }
        if present.contains(taint) {
            return RequiredTaint::Present;
        }
        let in_its_place = |other: &&Taint| other.key == taint.key && other.effect == taint.effect;
        let foreign = (present.iter().filter(in_its_place)).find(|other| !self.taints.contains(other));
        if let Some(other) = foreign {
            return RequiredTaint::Replaced(other.clone());
        }
        let recorded = self.reversals.get(&taint.to_string());
        let recorded = recorded.filter(|_| self.is_of(policy, generation));
        // One that was Transom's has just been removed by another writer.
        let removed_now = u32::from(self.taints.contains(taint));
        if recorded.copied().unwrap_or_default() + removed_now >= MOST_REVERSALS {
            RequiredTaint::Contested
        } else {
            RequiredTaint::Missing
        }
    }

    /// The taints of a node with these taints, once everything that a version of a policy requires of them is written.
    pub fn taints_after(
        &self,
        present: &[Taint],
        required: &[Taint],
        policy: &str,
        generation: i64,
    ) -> Vec<Taint> {
        let stays = |taint: &&Taint| required.contains(taint) || !self.may_take_taint(taint);
        let is_missing =
            |taint: &&Taint| self.required(taint, present, policy, generation) == RequiredTaint::Missing;
        let kept = present.iter().filter(stays);
        kept.chain(required.iter().filter(is_missing)).cloned().collect()
    }

    /// Whether Transom may remove a taint.
    pub fn may_take_taint(&self, taint: &Taint) -> bool {
        !taint.is_protected() && self.taints.contains(taint)
    }

    /// The value of [`PROOF_LABEL`] for these taints; `None` if there are none.
    pub fn proof(&self) -> Option<String> {
        if self.taints.is_empty() {
            return None;
        }
        let text = serde_json::to_vec(&self.taints).unwrap_or_default();
        Some(digest_hex(&text, PROOF_DIGITS))
    }

    /// Whether there is nothing to record.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.taints.is_empty() && self.reversals.is_empty()
    }

    /// The annotation's value; `None` if there is nothing to record.
    pub fn to_annotation(&self) -> Option<String> {
        // Strings, numbers and lists of them always have a JSON form.
        (!self.is_empty()).then(|| serde_json::to_string(self).unwrap_or_default())
    }
}

/// The text of a taint in the annotation. The admission policies of the chart, which cannot parse JSON, search for it.
fn text_of(taint: &Taint) -> String {
    serde_json::to_string(taint).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::nodes::node::RESTRICTED_BUILD_LABEL;

    #[test]
    fn what_is_ours_survives_the_annotation() {
        let owned = NodeOwnership {
            policy: "windows".into(),
            labels: [(RESTRICTED_BUILD_LABEL.to_owned(), "10.0.20348".to_owned())].into(),
            taints: vec![Taint::no_schedule("os", "windows")],
            ..NodeOwnership::default()
        };
        let text = owned.to_annotation().unwrap();
        assert_eq!(
            text,
            r#"{"policy":"windows","labels":{"transom.dev.node-restriction.kubernetes.io/windows-build":"10.0.20348"},"taints":[{"key":"os","value":"windows","effect":"NoSchedule"}]}"#
        );
        assert_eq!(OwnerAnnotation::from(text).read, Ok(owned));
        assert_eq!(NodeOwnership::default().to_annotation(), None);
    }

    #[test]
    fn a_taint_is_trusted_only_in_the_form_that_the_admission_policies_search_for() {
        let owned = NodeOwnership {
            taints: vec![Taint::no_schedule("os", "windows"), Taint::no_schedule("sku", "")],
            ..NodeOwnership::default()
        };
        let annotation = owned.to_annotation().unwrap();
        let taints = r#"[{"key":"os","value":"windows","effect":"NoSchedule"},{"key":"sku","value":"","effect":"NoSchedule"}]"#;
        assert_eq!(annotation, format!(r#"{{"policy":"","taints":{taints}}}"#));
        let of = |annotation: &str| {
            let annotation = OwnerAnnotation::from(annotation.to_owned());
            annotation.trusted(owned.proof().as_ref()).cloned()
        };
        assert_eq!(of(&annotation), Ok(owned.clone()));
        for other in [
            annotation.replace(",\"effect", ", \"effect"),
            annotation.replace("\"value\":\"\",", ""),
            annotation.replace("\"os\"", "\"\\u006fs\""),
        ] {
            assert!(
                OwnerAnnotation::from(other.clone()).read.as_ref() == Ok(&owned),
                "{other}"
            );
            assert!(
                of(&other).unwrap_err().contains("it does not contain {\"key\":"),
                "{other}"
            );
        }
    }

    #[test]
    fn an_annotation_that_cannot_be_read_owns_nothing() {
        assert_eq!(NOTHING_OWNED, NodeOwnership::default());
        let long = "x".repeat(70_000);
        for text in [
            "",
            "[]x",
            "null",
            "7",
            r#"{"taints":"os"}"#,
            r#"{"more":1}"#,
            &long,
        ] {
            assert!(OwnerAnnotation::from(text.to_owned()).read.is_err(), "{text:.20}");
        }
    }
}
