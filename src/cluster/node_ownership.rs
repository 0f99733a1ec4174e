//! The owner annotation of a node: what on it is Transom's, and how often another writer removed it. The controller
//! decides with it, and the facts of reviews read which taints the controller sets; pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::nodes::node::Taint;

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

impl NodeOwnership {
    /// Whether another writer removed the taint so often that Transom no longer sets it for this version of a policy.
    pub fn is_contested(&self, taint: &Taint, policy: &str, generation: i64) -> bool {
        let count = self.reversals.get(&taint.to_string());
        self.policy == policy
            && self.generation == generation
            && count.is_some_and(|count| *count >= MOST_REVERSALS)
    }
}
