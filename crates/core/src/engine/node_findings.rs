//! What the rules report of nodes and RuntimeClasses. `check` prints it for files; `preflight`, `scan`, the status of a node policy
//! and the metrics print the same for those of a cluster.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::{evaluate, infer_os};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::Policy;
use crate::model::cluster::severity::Severity;
use crate::model::nodes::node::NodeSigns;
use crate::model::objects::object::{Object, ReviewStage};
use crate::model::objects::workload::Kind;
use crate::rules::{self, Cx, Finding};

/// A finding of a rule on nodes, in the words of the rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFinding {
    /// The rule's id.
    pub id: &'static str,
    /// The rule's name.
    pub rule: &'static str,
    /// How severe it is.
    pub severity: Severity,
    /// The message.
    pub message: String,
    /// The remedy.
    pub remedy: String,
    /// The nodes that have it, by name.
    pub nodes: Vec<String>,
}

impl NodeFinding {
    /// The id and the name of its rule, as in the answers of admission: `[TSM904 node-missing-taint]`.
    pub fn source(&self) -> String {
        format!("[{} {}]", self.id, self.rule)
    }

    /// Whether it is a known fault of a version that the nodes run, or a possible one.
    pub fn is_known_fault(&self) -> bool {
        self.id == rules::NODE_KNOWN_FAULT.id
    }

    /// Whether the versions of the nodes may have a fault: that depends on the workloads, or on something that nodes do not report,
    /// so there is nothing to do yet.
    pub fn is_possible_fault(&self) -> bool {
        self.is_known_fault() && self.severity == Severity::Advice
    }

    /// Whether Kubernetes does not support the build of the nodes.
    pub fn is_unsupported_build(&self) -> bool {
        self.id == rules::NODE_BUILD_UNSUPPORTED.id
    }
}

impl fmt::Display for NodeFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} {}", self.message, self.remedy, self.source())
    }
}

/// The findings of these nodes, the worst first, then by rule. Nodes with the same finding share it. The policies for pods apply to
/// no node, so every rule has its own severity.
pub fn node_findings(nodes: impl IntoIterator<Item = Arc<dyn NodeSigns>>, facts: &Facts) -> Vec<NodeFinding> {
    let policy = Policy::standalone();
    let mut all: BTreeMap<_, NodeFinding> = BTreeMap::new();
    // The rules read the node from their context.
    let Ok(subject) = Object::parse(Kind::Node, "{}", ReviewStage::Stored) else {
        return Vec::new();
    };
    let inference = infer_os(&subject, facts, &policy);
    for node in nodes.into_iter().filter(|node| node.has_windows()) {
        let cx = Cx::new(&subject, &inference, facts, &policy, &[]).with_node(&*node);
        let mut findings = Vec::new();
        for rule in rules::applicable(&cx) {
            rule.run(&cx, None, &mut findings);
        }
        let name = node.name();
        for found in findings {
            let (message, remedy) = (found.message.into_owned(), found.remedy.into_owned());
            let key = (
                Reverse(found.severity),
                found.rule.id,
                message.clone(),
                remedy.clone(),
            );
            let known = all.entry(key).or_insert_with(|| NodeFinding {
                id: found.rule.id,
                rule: found.rule.name,
                severity: found.severity,
                message,
                remedy,
                nodes: Vec::new(),
            });
            known.nodes.push(name.to_owned());
        }
    }
    all.into_values().collect()
}

/// The findings of a RuntimeClass, from its JSON.
pub fn runtime_class_findings(json: &str, facts: &Facts) -> Vec<Finding> {
    let Ok(class) = Object::parse(Kind::RuntimeClass, json, ReviewStage::Stored) else {
        return Vec::new();
    };
    evaluate(&class, facts, &Policy::standalone()).findings
}
