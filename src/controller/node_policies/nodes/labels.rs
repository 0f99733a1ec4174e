//! The labels that Transom keeps on nodes, one row each. To keep another label, add a row and the policy field that
//! requests it.

use super::desired::DesiredLabels;
use crate::api::PartMode;
use crate::cluster::node::NodeView;
use crate::cluster::node_ownership::NodeOwnership;
use crate::model::nodes::node::{BUILD_LABEL, NodeSigns as _, RESTRICTED_BUILD_LABEL};
use crate::model::syntax::text::{cut, one_line};

/// A label that is kept on Windows nodes.
pub struct KeptLabel {
    pub key: &'static str,
    /// The field of a policy that requests it.
    pub field: &'static str,
    /// What a policy says there.
    pub mode: fn(&DesiredLabels) -> PartMode,
    /// Its value for a node, or why the value is unknown: then the label is left unchanged.
    pub value: fn(&NodeView) -> Result<String, String>,
    /// Whether it is removed when no policy requests it any longer.
    pub is_taken_back: bool,
    /// Whether an Event reports the first write; every correction is reported.
    pub is_announced: bool,
}

/// Every label that is kept. Transom writes no others, and the admission policies of the
/// chart allow no others: `files/node-writes.json` is generated from this list.
pub static LABELS: [KeptLabel; 2] = [
    KeptLabel {
        key: BUILD_LABEL,
        field: "labels.kubelet.mode",
        mode: |labels| labels.kubelet,
        value: build,
        // The kubelet would not write it again before a restart: it stays, and no longer belongs to Transom.
        is_taken_back: false,
        is_announced: true,
    },
    KeptLabel {
        key: RESTRICTED_BUILD_LABEL,
        field: "labels.nodeRestriction.mode",
        mode: |labels| labels.node_restriction,
        value: build,
        is_taken_back: true,
        is_announced: false,
    },
];

impl KeptLabel {
    /// The row of a key.
    pub fn of(key: &str) -> Option<&'static KeptLabel> {
        LABELS.iter().find(|row| row.key == key)
    }

    /// Whether Transom may remove the label: Transom wrote it with this value, and removes it at all. Other keys in the
    /// annotation are ignored, because a kubelet can write annotations of its node.
    pub fn may_take(&self, owned: &NodeOwnership, value: &str) -> bool {
        self.is_taken_back && owned.labels.get(self.key).is_some_and(|ours| ours == value)
    }

    /// How a node differs from a policy that only audits the label.
    pub fn difference(&self, now: Option<&String>, value: &str) -> String {
        let KeptLabel { key, field, .. } = self;
        match now {
            Some(now) => format!("its label {key} is \"{now}\" instead of \"{value}\" ({field} is Audit)"),
            None => format!("it lacks the label {key}={value} ({field} is Audit)"),
        }
    }
}

/// The build of the kernel. Other labels prove nothing: a kubelet or this controller wrote them.
fn build(node: &NodeView) -> Result<String, String> {
    node.kernel_build().map(|build| build.to_string()).ok_or_else(|| {
        format!(
            "its status.nodeInfo.kernelVersion \"{}\" contains no Windows build: its build label is not changed",
            cut(&one_line(&node.kernel_version), 80)
        )
    })
}
