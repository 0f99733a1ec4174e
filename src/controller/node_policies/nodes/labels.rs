//! The labels that Transom keeps on nodes, one row each. To keep another one, add a row, and the field of the policy that
//! wants it.

use crate::api::{KubeletLabel, Management, NodeLabels};
use crate::cluster::node::NodeView;
use crate::model::node::{BUILD_LABEL, NodeSigns as _, RESTRICTED_BUILD_LABEL};
use crate::model::text::{cut, one_line};

/// A label that is kept on Windows nodes.
pub struct KeptLabel {
    /// Its key.
    pub key: &'static str,
    /// Whether a policy wants it.
    pub is_wanted: fn(&NodeLabels) -> bool,
    /// The value that it is to have on a node, or why that is not known: then the label is left as it is.
    pub value: fn(&NodeView) -> Result<String, String>,
    /// Whether it is taken away where no policy wants it any more.
    pub is_taken_back: bool,
    /// Whether an Event tells that it was written for the first time; one tells of every correction.
    pub is_announced: bool,
}

/// Every label that is kept, and no other is ever written.
pub static LABELS: [KeptLabel; 2] = [
    KeptLabel {
        key: BUILD_LABEL,
        is_wanted: |labels| labels.kubelet == KubeletLabel::Correct,
        value: build,
        // The kubelet would not write it again before a restart: it stays, and is Transom's no longer.
        is_taken_back: false,
        is_announced: true,
    },
    KeptLabel {
        key: RESTRICTED_BUILD_LABEL,
        is_wanted: |labels| labels.node_restriction == Management::Managed,
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
}

/// The build of the kernel. What other labels say is no proof: a kubelet wrote them, or this table did.
fn build(node: &NodeView) -> Result<String, String> {
    node.kernel_build().map(|build| build.to_string()).ok_or_else(|| {
        format!(
            "its status.nodeInfo.kernelVersion \"{}\" tells no Windows build: its build label is left as it is",
            cut(&one_line(&node.kernel_version), 80)
        )
    })
}
