//! A node with what on it is Transom's. Pure.

use std::borrow::Cow;

use super::labels::LABELS;
use crate::cluster::node::NodeView;
use crate::cluster::node_ownership::NodeOwnership;

/// A node, with what Transom owned on it before the plan.
pub(super) struct OwnedNode<'n> {
    pub(super) node: &'n NodeView,
    pub(super) before: Cow<'n, NodeOwnership>,
    /// Why its annotation is not trusted.
    pub(super) distrusted: Option<String>,
}

impl<'n> OwnedNode<'n> {
    pub(super) fn of(node: &'n NodeView) -> Self {
        let (before, distrusted) = match node.ownership() {
            Ok(owned) => (Cow::Borrowed(owned), None),
            Err(why) => (Cow::Owned(unmistakable(node)), Some(why)),
        };
        OwnedNode {
            node,
            before,
            distrusted,
        }
    }
}

/// What must be Transom's regardless of the annotation: a label that no kubelet can write, with the value that
/// Transom writes. It stays Transom's even if a kubelet has overwritten the annotation.
fn unmistakable(node: &NodeView) -> NodeOwnership {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::nodes::node::Taint;

    #[test]
    fn a_forged_annotation_takes_away_no_label_of_the_kubelet_and_no_taint_of_kubernetes() {
        let not_ready = Taint::no_schedule("node.kubernetes.io/not-ready", "");
        let os = Taint::no_schedule("node.kubernetes.io/os", "windows");
        let owned = NodeOwnership {
            labels: [("kubernetes.io/os".to_owned(), "windows".to_owned())].into(),
            taints: vec![not_ready.clone(), os.clone()],
            ..NodeOwnership::default()
        };
        assert!(!LABELS.iter().any(|row| row.may_take(&owned, "windows")));
        assert!(!owned.may_take_taint(&not_ready));
        assert!(owned.may_take_taint(&os));
    }
}
