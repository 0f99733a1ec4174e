//! The changes of one node and their patch: only Transom's keys, and the resourceVersion that the plan is based on.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Taint as NodeTaint;
use serde_json::{Map, Value, json};

use super::ownership::OwnedNode;
use crate::cluster::node::{NodeView, OWNED_ANNOTATION, taint_of};
use crate::cluster::node_ownership::{NodeOwnership, PROOF_LABEL};
use crate::model::nodes::node::Taint;

/// Whether the labels that Transom removes may be removed from Windows nodes: the mirror of the build label.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum LabelUse {
    /// No template selects nodes by it.
    #[default]
    Unused,
    /// It stays, and why, as the end of a sentence: "it stays, because …".
    Stays(String),
}

/// One change of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeChange {
    /// A label is written, or removed (`to` is `None`).
    Label {
        key: &'static str,
        from: Option<String>,
        to: Option<String>,
    },
    TaintSet(Taint),
    /// A taint of Transom's is removed.
    TaintTaken(Taint),
    /// A taint of Transom's is removed although the policy requires it: it keeps workloads off the node.
    TaintWithdrawn(Taint),
    /// The owner annotation cannot be read or has no valid proof, and is written again or removed.
    AnnotationLost(String),
}

impl fmt::Display for NodeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |value: &Option<String>| {
            value
                .as_ref()
                .map_or_else(|| "absent".to_owned(), |value| format!("\"{value}\""))
        };
        match self {
            NodeChange::Label { key, from, to } => {
                write!(f, "label {key}: {} → {}", quoted(from), quoted(to))
            }
            NodeChange::TaintSet(taint) => write!(f, "taint {taint}: set"),
            NodeChange::TaintTaken(taint) => write!(f, "taint {taint}: removed, because Transom set it"),
            NodeChange::TaintWithdrawn(taint) => write!(
                f,
                "taint {taint}: removed, because it would keep restarted pods off the node; the condition TaintsBlocked of \
                 the policy lists their workloads"
            ),
            NodeChange::AnnotationLost(why) => write!(
                f,
                "annotation {OWNED_ANNOTATION} is not trusted ({why}): Transom no longer owns what it names"
            ),
        }
    }
}

/// What to write to a node, and what to report about it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NodePlan {
    /// The changes; empty if nothing is written, or only the annotation.
    pub changes: Vec<NodeChange>,
    /// Deviations that stay.
    pub remains: Vec<String>,
    /// Taints that the node lacks, and that wait until the guard has found that they affect no workload.
    pub waiting: Vec<Taint>,
    /// Taints that another writer has removed too often.
    pub contested: Vec<Taint>,
    /// Whether a label of Transom's stays because it is in use.
    pub keeps_label: bool,
    pub(super) labels: BTreeMap<&'static str, Option<String>>,
    pub(super) taints: Option<Vec<NodeTaint>>,
    pub(super) annotation: AnnotationChange,
}

/// Whether a label of Transom's is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Released {
    Yes,
    No,
}

/// What happens to the owner annotation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum AnnotationChange {
    #[default]
    Stays,
    Remove,
    Set(String),
}

impl NodePlan {
    /// The taints of the node after the write.
    pub fn taints_after(&self, node: &NodeView) -> Vec<Taint> {
        let taints = self.taints.as_ref().unwrap_or(&node.taints);
        taints.iter().map(taint_of).collect()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.taints.is_none() && self.annotation == AnnotationChange::Stays
    }

    /// The JSON merge patch: only Transom's keys, the whole list of taints if one of them changes, and the
    /// resourceVersion that the plan is based on. `None` if there is nothing to write.
    pub fn patch(&self, node: &NodeView) -> Option<Value> {
        if self.is_empty() {
            return None;
        }
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), json!(node.resource_version));
        if !self.labels.is_empty() {
            metadata.insert("labels".into(), json!(self.labels));
        }
        let annotation = match &self.annotation {
            AnnotationChange::Stays => None,
            AnnotationChange::Remove => Some(Value::Null),
            AnnotationChange::Set(text) => Some(json!(text)),
        };
        if let Some(annotation) = annotation {
            metadata.insert("annotations".into(), json!({ OWNED_ANNOTATION: annotation }));
        }
        let mut patch = Map::new();
        patch.insert("metadata".into(), Value::Object(metadata));
        if let Some(taints) = &self.taints {
            let taints = if taints.is_empty() {
                Value::Null
            } else {
                json!(taints)
            };
            patch.insert("spec".into(), json!({ "taints": taints }));
        }
        Some(Value::Object(patch))
    }

    /// Removes the startup taint, which Transom did not set.
    pub(super) fn remove_startup_taint(&mut self, node: &NodeView) {
        if node.is_gated() {
            let taints = self.taints.get_or_insert_with(|| node.taints.clone());
            taints.retain(|taint| taint.key != Taint::STARTUP_KEY);
        }
    }

    /// Writes or removes a label.
    pub(super) fn set_label(&mut self, node: &NodeView, key: &'static str, to: Option<String>) {
        self.changes.push(NodeChange::Label {
            key,
            from: node.labels.get(key).cloned(),
            to: to.clone(),
        });
        self.labels.insert(key, to);
    }

    /// Removes a label of Transom's, unless it is in use.
    pub(super) fn release_label(
        &mut self,
        node: &NodeView,
        key: &'static str,
        in_use: &LabelUse,
    ) -> Released {
        match in_use {
            LabelUse::Unused => {
                self.set_label(node, key, None);
                Released::Yes
            }
            LabelUse::Stays(why) => {
                self.keeps_label = true;
                self.remains.push(format!(
                    "its label {key}, which the policy does not require any longer, stays, because {why}"
                ));
                Released::No
            }
        }
    }

    /// Compares the desired ownership with the annotation and with the label that proves it.
    pub(super) fn settle_annotation(&mut self, of: &OwnedNode<'_>, owned: &NodeOwnership) {
        let node = of.node;
        let is_recorded = *of.before == *owned && (node.owned.is_none() == owned.is_empty());
        if of.distrusted.is_some() || !is_recorded {
            self.annotation = owned
                .to_annotation()
                .map_or(AnnotationChange::Remove, AnnotationChange::Set);
        }
        let proof = owned.proof();
        if node.labels.get(PROOF_LABEL) != proof.as_ref() {
            self.labels.insert(PROOF_LABEL, proof);
        }
        if let Some(why) = &of.distrusted {
            self.changes.push(NodeChange::AnnotationLost(why.clone()));
        }
    }
}
