//! Reverts everything in one pass, without a cache: what `transom uninstall` does. It may run twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Client, Resource as _};

use super::NodeControllerSettings;
use super::nodes::apply::{ApplyResult, apply};
use super::nodes::ownership::NodeOwnership;
use super::nodes::plan::{KeepOptions, NodePlan, plan_revert};
use super::runtime_classes::write::{ClassWriteResult, carry_out, users};
use super::runtime_classes::{ClassChange, OwnedClass};
use super::writer::Writer;
use crate::cluster::list::{Listing, NODES_PATH, collect, for_each_as};
use crate::cluster::node::{NodeView, OWNED_ANNOTATION, WatchedNode};
use crate::model::node::{NodeSigns as _, RESTRICTED_BUILD_LABEL, Taint};
use crate::model::text::list;

/// So many nodes are named.
const NAMED: usize = 10;

/// What stays in the cluster, and is Transom's no longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RevertOptions {
    /// What stays on nodes; the build label always does.
    pub on_nodes: KeepOptions,
    /// RuntimeClasses.
    pub keep_runtime_classes: bool,
}

/// What was reverted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RevertReport {
    /// The nodes that were changed.
    pub nodes: Vec<String>,
    /// The RuntimeClasses that were deleted.
    pub runtime_classes: Vec<String>,
    /// What had to stay, and why: RuntimeClasses that something still names.
    pub kept: Vec<String>,
    /// What is still on nodes, and that nothing proves to be Transom's; one line for each kind, with the nodes.
    pub left: Vec<String>,
    /// What failed, and why. Everything else was reverted.
    pub failures: Vec<String>,
}

impl RevertReport {
    /// Whether nothing of ours is left, but what was to be kept.
    pub fn is_complete(&self) -> bool {
        self.kept.is_empty() && self.failures.is_empty()
    }
}

/// Takes everything of ours back from all nodes, and deletes our RuntimeClasses that nothing names. Works without a
/// controller, and any number of times; continues if a write is rejected, and reports it.
///
/// No controller must run meanwhile, or it would write everything again.
pub async fn revert_everything(client: &Client, options: RevertOptions) -> RevertReport {
    let per_second = NodeControllerSettings::default().writes_per_second;
    let writer = Writer::new(client.clone(), None, None, per_second);
    let mut report = RevertReport::default();
    nodes(&writer, options, &mut report).await;
    if !options.keep_runtime_classes {
        runtime_classes(&writer, &mut report).await;
    }
    report
}

async fn nodes(writer: &Writer, options: RevertOptions, report: &mut RevertReport) {
    let decide = move |node: &NodeView| -> NodePlan { plan_revert(node, options.on_nodes) };
    let mut left = RemainingObjects::default();
    let mut marked = Vec::new();
    let read = |node: WatchedNode, _: &str| {
        let node = NodeView::from(node);
        if node.is_marked() {
            marked.push(node);
        } else {
            left.note(&node, false, options.on_nodes);
        }
    };
    let mut failures = Vec::new();
    let unreadable = |name: &str, error: &serde_json::Error| {
        failures.push(format!("node {name}: it does not parse: {error}"));
    };
    let listed = for_each_as(&writer.client, Listing::new(NODES_PATH), read, unreadable).await;
    report.failures.append(&mut failures);
    // What was read until then is reverted all the same.
    report.failures.extend(
        listed
            .err()
            .map(|error| format!("cannot list nodes: {}", error.why)),
    );
    for node in marked {
        let (name, is_disputed) = (
            node.name.clone(),
            NodeOwnership::of(&node).is_err() || node.owned.is_none(),
        );
        match apply(writer, Arc::new(node), &decide).await {
            ApplyResult::Wrote(node, _) => {
                left.note(&node, is_disputed, options.on_nodes);
                report.nodes.push(name);
            }
            ApplyResult::Failed(why) => report.failures.push(format!("node {name}: {why}")),
            ApplyResult::Stands(node) => left.note(&node, is_disputed, options.on_nodes),
            ApplyResult::Gone => {}
        }
    }
    report.left = left.lines();
}

/// What looks like Transom's and stays, with the nodes.
#[derive(Default)]
struct RemainingObjects {
    mirrors: Vec<String>,
    taints: BTreeMap<String, Vec<String>>,
}

impl RemainingObjects {
    /// Looks at a node from which everything that is ours was taken. `is_disputed`: its annotation had been spoiled.
    fn note(&mut self, node: &NodeView, is_disputed: bool, keep: KeepOptions) {
        if !keep.labels && node.labels.contains_key(RESTRICTED_BUILD_LABEL) {
            self.mirrors.push(node.name.clone());
        }
        if is_disputed && !keep.taints {
            let marks = node.taints().into_iter().filter(Taint::marks_windows);
            for taint in marks {
                let nodes = self.taints.entry(taint.to_string()).or_default();
                nodes.push(node.name.clone());
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        let of = |nodes: &[String]| format!("{} ({})", nodes.len(), list(nodes, NAMED));
        let mirrors = (!self.mirrors.is_empty()).then(|| {
            format!(
                "label {RESTRICTED_BUILD_LABEL} on nodes: {}, and nothing proves that Transom wrote it; kubectl label node NAME \
                 {RESTRICTED_BUILD_LABEL}-",
                of(&self.mirrors)
            )
        });
        let taints = self.taints.iter().map(|(taint, nodes)| {
            format!(
                "taint {taint} on nodes: {}, whose annotation {OWNED_ANNOTATION} is invalid, so nothing proves that Transom \
                 set it; kubectl taint node NAME {taint}-",
                of(nodes)
            )
        });
        mirrors.into_iter().chain(taints).collect()
    }
}

async fn runtime_classes(writer: &Writer, report: &mut RevertReport) {
    let listing = Listing::new(RuntimeClass::url_path(&(), None));
    let classes: Vec<RuntimeClass> = match collect(&writer.client, listing).await {
        Ok(classes) => classes,
        Err(error) => {
            return report
                .failures
                .push(format!("cannot list RuntimeClasses: {error}"));
        }
    };
    let ours: Vec<ClassChange> = (classes.into_iter())
        .filter_map(|class| {
            Some(ClassChange::Delete {
                policy: OwnedClass::of(&class)?.policy,
                class: Arc::new(class),
                why: "Transom is being uninstalled",
            })
        })
        .collect();
    if ours.is_empty() {
        return;
    }
    let names: BTreeSet<String> = ours.iter().map(|change| change.name().to_owned()).collect();
    let users = match users(&writer.client, &names).await {
        Ok(users) => users,
        Err(error) => {
            let what = "no RuntimeClass is deleted: Transom could not determine which objects use it";
            return report.failures.push(format!("{what}: {error}"));
        }
    };
    for change in &ours {
        match carry_out(writer, change, &users).await {
            ClassWriteResult::Yes => report.runtime_classes.push(change.name().to_owned()),
            ClassWriteResult::Later => {
                let why = "it was changed meanwhile; run this again";
                report
                    .failures
                    .push(format!("RuntimeClass {}: {why}", change.name()));
            }
            ClassWriteResult::InUse(why) => report.kept.push(why),
            ClassWriteResult::Failed(why) => report.failures.push(why),
        }
    }
}
