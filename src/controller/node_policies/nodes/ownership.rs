//! The owner annotation of a node: what on it is Transom's, and how often another writer removed it. Pure.

use std::borrow::Cow;

use super::labels::{KeptLabel, LABELS};
use crate::cluster::node::{NodeView, PROOF_LABEL};
use crate::cluster::node_ownership::NOTHING_OWNED;
pub use crate::cluster::node_ownership::NodeOwnership;
use crate::model::nodes::node::Taint;
use crate::model::syntax::text::digest_hex;

/// How many hexadecimal digits of the SHA-256 the proof has: enough that other taints with the same proof cannot be
/// found.
const PROOF_DIGITS: usize = 40;

impl NodeOwnership {
    /// What the annotation of a node says, if it is trusted. Its taints only are if the label [`PROOF_LABEL`] matches: a
    /// kubelet can write annotations of its node, but neither this label nor taints.
    ///
    /// # Errors
    /// Why it cannot be read, or is not trusted.
    pub fn of(node: &NodeView) -> Result<&Self, String> {
        let Some(annotation) = &node.owned else {
            return Ok(&NOTHING_OWNED);
        };
        let owned = annotation.read.as_ref().map_err(Clone::clone)?;
        // The API server, which searches for this text, would refuse to remove the taint.
        let is_missing = |text: &String| !annotation.text.contains(text);
        if let Some(text) = owned.taints.iter().map(text_of).find(is_missing) {
            return Err(format!("it does not contain {text}, so Transom did not write it"));
        }
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
        !taint.is_protected() && self.taints.contains(taint)
    }
}

/// A node, with what Transom owned on it before the plan.
pub(super) struct OwnedNode<'n> {
    pub(super) node: &'n NodeView,
    pub(super) before: Cow<'n, NodeOwnership>,
    /// Why its annotation is not trusted.
    pub(super) distrusted: Option<String>,
}

impl<'n> OwnedNode<'n> {
    pub(super) fn of(node: &'n NodeView) -> Self {
        let (before, distrusted) = match NodeOwnership::of(node) {
            Ok(owned) => (Cow::Borrowed(owned), None),
            Err(why) => (Cow::Owned(NodeOwnership::unmistakable(node)), Some(why)),
        };
        OwnedNode {
            node,
            before,
            distrusted,
        }
    }
}

/// The text of a taint in the annotation. The admission policies of the chart, which cannot parse JSON, search for it.
fn text_of(taint: &Taint) -> String {
    serde_json::to_string(taint).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::node_ownership::OwnerAnnotation;
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
            let node = NodeView {
                labels: std::sync::Arc::new([(PROOF_LABEL.to_owned(), owned.proof().unwrap())].into()),
                owned: Some(annotation.to_owned().into()),
                ..NodeView::default()
            };
            NodeOwnership::of(&node).cloned()
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
