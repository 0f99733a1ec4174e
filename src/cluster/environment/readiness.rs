//! `NodeReadinessRules` of node-readiness-controller: they keep a taint on nodes until the nodes report conditions.

use serde_json::Value;

use super::{items, text};
use crate::model::objects::label_selector::LabelSelector;

/// A `NodeReadinessRule`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadinessRule {
    pub name: String,
    /// The nodes that it is for; `None` if its selector cannot be read.
    pub selector: Option<LabelSelector>,
    /// The key of its taint.
    pub taint: String,
    /// The conditions that remove the taint.
    pub conditions: Vec<String>,
}

impl ReadinessRule {
    /// Reads a rule. Source: kubernetes-sigs/node-readiness-controller, `api/v1alpha1/nodereadinessrule_types.go`.
    pub(super) fn read(object: &Value) -> Self {
        let selector = object
            .pointer("/spec/nodeSelector")
            .cloned()
            .unwrap_or(Value::Null);
        let selector: Option<Option<LabelSelector>> = serde_json::from_value(selector).ok();
        ReadinessRule {
            name: text(object, "/metadata/name"),
            selector: selector.map(Option::unwrap_or_default),
            taint: text(object, "/spec/taint/key"),
            conditions: items(object, "/spec/conditions")
                .map(|condition| text(condition, "/type"))
                .collect(),
        }
    }
}
