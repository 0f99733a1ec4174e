//! The owner annotation of a node: what on it is Transom's, and how often another writer took it away. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::labels::{KeptLabel, LABELS};
use crate::cluster::node::{NodeView, PROOF_LABEL};
use crate::model::node::Taint;

/// What of a node is Transom's, as the annotation [`crate::cluster::node::OWNED_ANNOTATION`] says it.
///
/// It stands on the node itself, and is written in one request with what it speaks of: it survives a change of the
/// leader, and never disagrees with the node for longer than another writer wants it to.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeOwnership {
    /// The policy that it was written for.
    pub policy: String,
    /// Labels, with the value that was written.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints that did not stand there before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// How often another writer took a taint away, by its text (`os=windows:NoSchedule`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reversals: BTreeMap<String, u32>,
    /// The generation of the policy that the reversals were counted for; 0 where there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands out references
fn is_zero(generation: &i64) -> bool {
    *generation == 0
}

/// How many hexadecimal digits of the SHA-256 the proof has: so many that other taints with the same ones cannot be found.
const PROOF_DIGITS: usize = 40;

/// The longest annotation that is read, in bytes: far more than sixteen taints can take.
const LONGEST: usize = 64 * 1024;

impl NodeOwnership {
    /// Reads the annotation; an absent one owns nothing.
    ///
    /// # Errors
    /// Why it cannot be read. Then nothing is owned: nothing is taken back on a guess.
    pub fn parse(annotation: Option<&str>) -> Result<Self, String> {
        let Some(text) = annotation else {
            return Ok(NodeOwnership::default());
        };
        if text.len() > LONGEST {
            return Err(format!("it has {} bytes", text.len()));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Reads the annotation of a node, and believes what it says of taints only where the label [`PROOF_LABEL`] agrees:
    /// a kubelet can write annotations of its node, but neither this label nor taints.
    ///
    /// # Errors
    /// Why it cannot be read, or is not believed.
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

    /// What of a node can only be Transom's, whatever its annotation says: a label that no kubelet can write, with the value
    /// that Transom writes there. It stays Transom's when a kubelet has spoiled the annotation.
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

    /// The value of [`PROOF_LABEL`] that belongs to these taints; `None` where there are none.
    pub fn proof(&self) -> Option<String> {
        if self.taints.is_empty() {
            return None;
        }
        let text = serde_json::to_vec(&self.taints).unwrap_or_default();
        let mut proof = String::new();
        for byte in ring::digest::digest(&ring::digest::SHA256, &text).as_ref() {
            let _ = write!(proof, "{byte:02x}");
        }
        proof.truncate(PROOF_DIGITS);
        Some(proof)
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.taints.is_empty() && self.reversals.is_empty()
    }

    /// The annotation's value; `None` where there is nothing to remember.
    pub fn to_annotation(&self) -> Option<String> {
        // Strings, numbers and lists of them always have a JSON form.
        (!self.is_empty()).then(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// Whether a label may be taken away again: written by us, with this value, and one that is taken back. Whatever else
    /// the annotation names was never ours to take: a kubelet can write annotations of its node.
    pub fn may_take_label(&self, key: &str, value: &str) -> bool {
        KeptLabel::of(key).is_some_and(|row| row.is_taken_back)
            && self.labels.get(key).is_some_and(|ours| ours == value)
    }

    /// Whether a taint may be taken away again.
    pub fn may_take_taint(&self, taint: &Taint) -> bool {
        !is_protected(taint) && self.taints.contains(taint)
    }
}

/// Whether a taint belongs to Kubernetes, a cloud or an autoscaler: Transom neither sets nor takes away any of those,
/// whatever a policy or an annotation says.
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
