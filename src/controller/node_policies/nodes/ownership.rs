//! The owner annotation of a node: what on it is Transom's, and how often another writer removed it. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::labels::{KeptLabel, LABELS};
use crate::cluster::node::{NodeView, PROOF_LABEL};
use crate::model::node::Taint;
use crate::model::text::digest_hex;

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

/// How many hexadecimal digits of the SHA-256 the proof has: enough that other taints with the same proof cannot be
/// found.
const PROOF_DIGITS: usize = 40;

/// The longest annotation that is read, in bytes: far more than sixteen taints need.
const LONGEST: usize = 64 * 1024;

impl NodeOwnership {
    /// Reads the annotation; without one, nothing is owned.
    ///
    /// # Errors
    /// Why it cannot be read. Then nothing is owned: Transom never removes anything on a guess.
    pub fn parse(annotation: Option<&str>) -> Result<Self, String> {
        let Some(text) = annotation else {
            return Ok(NodeOwnership::default());
        };
        if text.len() > LONGEST {
            return Err(format!("it has {} bytes", text.len()));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Reads the annotation of a node. Its taints are only trusted if the label [`PROOF_LABEL`] matches: a kubelet
    /// can write annotations of its node, but neither this label nor taints.
    ///
    /// # Errors
    /// Why it cannot be read, or is not trusted.
    pub fn of(node: &NodeView) -> Result<Self, String> {
        let owned = NodeOwnership::parse(node.owned.as_deref())?;
        let proof = owned.proof();
        if proof.is_some() && node.labels.get(PROOF_LABEL) != proof.as_ref() {
            return Err(format!(
                "it names taints that the label {PROOF_LABEL} does not prove, so Transom did not write it"
            ));
        }
        Ok(owned)
    }

    /// What must be Transom's regardless of the annotation: a label that no kubelet can write, with the value that
    /// Transom writes. It stays Transom's even if a kubelet has overwritten the annotation.
    pub fn unmistakable(node: &NodeView) -> Self {
        let labels = LABELS.iter().filter(|row| row.is_taken_back).filter_map(|row| {
            let value = node.labels.get(row.key)?;
            let is_ours = (row.value)(node).is_ok_and(|ours| ours == *value);
            is_ours.then(|| (row.key.to_owned(), value.clone()))
        });
        NodeOwnership {
            labels: labels.collect(),
            ..NodeOwnership::default()
        }
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

    /// Whether Transom may remove a label: Transom wrote it with this value, and it is a label that Transom removes.
    /// Other keys in the annotation are ignored, because a kubelet can write annotations of its node.
    pub fn may_take_label(&self, key: &str, value: &str) -> bool {
        KeptLabel::of(key).is_some_and(|row| row.is_taken_back)
            && self.labels.get(key).is_some_and(|ours| ours == value)
    }

    /// Whether Transom may remove a taint.
    pub fn may_take_taint(&self, taint: &Taint) -> bool {
        !is_protected(taint) && self.taints.contains(taint)
    }
}

/// Whether a taint belongs to Kubernetes, a cloud or an autoscaler: Transom neither sets nor removes these,
/// regardless of policies and annotations.
pub fn is_protected(taint: &Taint) -> bool {
    const PREFIXES: [&str; 4] = [
        "node.kubernetes.io/",
        "node.cloudprovider.kubernetes.io/",
        "node-role.kubernetes.io/",
        "karpenter.sh/",
    ];
    const KEYS: [&str; 2] = [
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
    ];
    let key = taint.key.as_str();
    key != "node.kubernetes.io/os"
        && (PREFIXES.iter().any(|prefix| key.starts_with(prefix)) || KEYS.contains(&key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node::RESTRICTED_BUILD_LABEL;

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
        assert_eq!(NodeOwnership::parse(Some(&text)), Ok(owned));
        assert_eq!(NodeOwnership::default().to_annotation(), None);
    }

    #[test]
    fn an_annotation_that_cannot_be_read_owns_nothing() {
        assert_eq!(NodeOwnership::parse(None), Ok(NodeOwnership::default()));
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
            assert!(NodeOwnership::parse(Some(text)).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn a_forged_annotation_takes_away_no_label_of_the_kubelet_and_no_taint_of_kubernetes() {
        let not_ready = Taint::no_schedule("node.kubernetes.io/not-ready", "");
        let os = Taint::no_schedule("node.kubernetes.io/os", "windows");
        let owned = NodeOwnership {
            labels: [("kubernetes.io/os".to_owned(), "windows".to_owned())].into(),
            taints: vec![not_ready.clone(), os.clone()],
            ..NodeOwnership::default()
        };
        assert!(!owned.may_take_label("kubernetes.io/os", "windows"));
        assert!(!owned.may_take_taint(&not_ready));
        assert!(owned.may_take_taint(&os));
    }
}
