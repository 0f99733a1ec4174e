//! Reverts everything in one pass, without a cache: what `transom uninstall` does. It may run twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Client, Resource as _};

use super::nodes::apply::{ApplyResult, apply};
use super::nodes::plan::{KeepOptions, NodePlan, plan_revert};
use super::pod_references::{PodReferences, ReferencesError};
use super::runtime_classes::write::{ClassWriteResult, carry_out, in_use};
use super::runtime_classes::{ClassChange, OwnedClass};
use crate::cluster::errors::ApiError;
use crate::cluster::list::{Listing, NODES_PATH, collect, for_each_as};
use crate::cluster::node::{NodeView, OWNED_ANNOTATION, WatchedNode};
use crate::controller::writer::{WRITES_PER_SECOND, Writer};
use crate::model::nodes::node::{BUILD_LABEL, NodeSigns as _, RESTRICTED_BUILD_LABEL, Taint};
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::syntax::text::list;

/// So many nodes are named.
const NAMED: usize = 10;

/// What stays in the cluster, and is Transom's no longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RevertOptions {
    /// What stays on nodes; the build label always does.
    pub on_nodes: KeepOptions,
    pub keep_runtime_classes: bool,
}

/// What was removed from nodes and RuntimeClasses, and what had to stay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RevertReport {
    /// The nodes that were changed.
    pub nodes: Vec<String>,
    /// The RuntimeClasses that were deleted.
    pub runtime_classes: Vec<String>,
    /// What had to stay, and why: RuntimeClasses that something still names.
    pub kept: Vec<String>,
    /// What still selects nodes by a label that was removed.
    pub dangling: Vec<String>,
    /// What is still on nodes, and that nothing proves to be Transom's; one line for each kind, with the nodes.
    pub left: Vec<String>,
    /// Pools of nodes that carried the startup taint.
    pub gated_pools: BTreeSet<String>,
    /// What failed, and why. Everything else was reverted.
    pub failures: Vec<String>,
}

/// Takes everything of ours back from all nodes, and deletes our RuntimeClasses that nothing names. Works without a
/// controller, and any number of times; continues if a write is rejected, and reports it.
///
/// No controller must run meanwhile, or it would write everything again.
///
/// `configured`: the custom resources that the installation evaluates in addition to the built-in ones. `is_preview`: it reports what would be reverted, and writes nothing.
pub async fn revert(
    client: &Client,
    options: RevertOptions,
    configured: &[ConfiguredKind],
    is_preview: bool,
) -> RevertReport {
    let writer = Writer::new(client.clone(), None, WRITES_PER_SECOND);
    let mut report = RevertReport::default();
    let nodes = OurNodes::read(client).await;
    report.failures.extend(nodes.failures.iter().cloned());
    let classes = if options.keep_runtime_classes {
        Vec::new()
    } else {
        our_classes(client).await.unwrap_or_else(|error| {
            report
                .failures
                .push(format!("cannot list RuntimeClasses: {error}"));
            Vec::new()
        })
    };
    report.gated_pools.clone_from(&nodes.gated_pools);
    let removes_labels = !options.on_nodes.labels && nodes.have_mirror_label();
    let references = if removes_labels || !classes.is_empty() {
        PodReferences::read(client, configured).await
    } else {
        Ok(PodReferences::default())
    };
    if removes_labels {
        report.dangling.extend(dangling(&references));
    }
    if is_preview {
        report.nodes = nodes.marked.into_iter().map(|node| node.name).collect();
        report.left = nodes.left.lines(options.on_nodes);
    } else {
        revert_nodes(&writer, nodes, options, &mut report).await;
    }
    let writer = (!is_preview).then_some(&writer);
    delete_classes(writer, &classes, &references, &mut report).await;
    report
}

/// What selects nodes by the mirror of the build label, which is removed all the same.
fn dangling(references: &Result<PodReferences, ReferencesError>) -> Option<String> {
    match references {
        Ok(known) if known.mirror_label.is_empty() => None,
        Ok(known) => Some(format!(
            "{} select nodes by the label {RESTRICTED_BUILD_LABEL}, which uninstalling removes: select nodes by {BUILD_LABEL} \
             there",
            known.mirror_label
        )),
        Err(error) => Some(format!(
            "it is unknown which templates select nodes by the label {RESTRICTED_BUILD_LABEL}, which uninstalling removes: {error}"
        )),
    }
}

/// The RuntimeClasses that Transom created.
///
/// # Errors
/// They cannot be listed.
async fn our_classes(client: &Client) -> Result<Vec<RuntimeClass>, ApiError> {
    let listing = Listing::new(RuntimeClass::url_path(&(), None));
    let mut classes: Vec<RuntimeClass> = collect(client, listing).await?;
    classes.retain(|class| OwnedClass::of(class).is_some());
    Ok(classes)
}

/// The nodes of a cluster.
#[derive(Default)]
struct OurNodes {
    /// Those that carry something of Transom's, or the startup taint.
    marked: Vec<NodeView>,
    /// Pools of nodes that carry the startup taint, as in `agentpool=win`.
    gated_pools: BTreeSet<String>,
    /// What looks like Transom's on the others.
    left: RemainingObjects,
    /// What could not be read.
    failures: Vec<String>,
}

impl OurNodes {
    /// Lists all nodes. What cannot be read is reported; the rest is there all the same.
    async fn read(client: &Client) -> Self {
        let mut nodes = OurNodes::default();
        let mut failures = Vec::new();
        let read = |node: WatchedNode, _: &str| {
            let node = NodeView::from(node);
            if node.is_gated()
                && let Some((label, pool)) = node.pool()
            {
                nodes.gated_pools.insert(format!("{label}={pool}"));
            }
            if node.is_marked() || node.is_gated() {
                nodes.marked.push(node);
            } else {
                nodes.left.note(&node, false);
            }
        };
        let unreadable = |name: &str, error: &serde_json::Error| {
            failures.push(format!("node {name}: it does not parse: {error}"));
        };
        let listed = for_each_as(client, Listing::new(NODES_PATH), read, unreadable).await;
        let listed = listed
            .err()
            .map(|error| format!("cannot list nodes: {}", error.why));
        failures.extend(listed);
        OurNodes { failures, ..nodes }
    }

    /// Whether one of them carries the mirror of the build label.
    fn have_mirror_label(&self) -> bool {
        let mut marked = self.marked.iter();
        marked.any(|node| node.labels.contains_key(RESTRICTED_BUILD_LABEL))
    }
}

async fn revert_nodes(writer: &Writer, nodes: OurNodes, options: RevertOptions, report: &mut RevertReport) {
    let decide = move |node: &NodeView| -> NodePlan { plan_revert(node, options.on_nodes) };
    let OurNodes { marked, mut left, .. } = nodes;
    for node in marked {
        let (name, is_disputed) = (
            node.name.clone(),
            node.is_marked() && (node.ownership().is_err() || node.owned.is_none()),
        );
        match apply(writer, Arc::new(node), &decide).await {
            ApplyResult::Wrote(node, _) => {
                left.note(&node, is_disputed);
                report.nodes.push(name);
            }
            ApplyResult::Failed(why) => report.failures.push(format!("node {name}: {why}")),
            ApplyResult::Stands(node) => left.note(&node, is_disputed),
            ApplyResult::Gone => {}
        }
    }
    report.left = left.lines(options.on_nodes);
}

/// What looks like Transom's and stays, with the nodes.
#[derive(Default)]
struct RemainingObjects {
    mirrors: Vec<String>,
    taints: BTreeMap<String, Vec<String>>,
}

impl RemainingObjects {
    /// Looks at a node from which everything that is ours was taken. `is_disputed`: its annotation had been spoiled.
    fn note(&mut self, node: &NodeView, is_disputed: bool) {
        if node.labels.contains_key(RESTRICTED_BUILD_LABEL) {
            self.mirrors.push(node.name.clone());
        }
        if is_disputed {
            let marks = node.taints().into_iter().filter(Taint::marks_windows);
            for taint in marks {
                let nodes = self.taints.entry(taint.to_string()).or_default();
                nodes.push(node.name.clone());
            }
        }
    }

    /// One line for each kind, without what was to be kept.
    fn lines(&self, keep: KeepOptions) -> Vec<String> {
        let of = |nodes: &[String]| format!("{} ({})", nodes.len(), list(nodes, NAMED));
        let mirrors = (!keep.labels && !self.mirrors.is_empty()).then(|| {
            format!(
                "label {RESTRICTED_BUILD_LABEL} on nodes: {}, and nothing proves that Transom wrote it; kubectl label node NAME \
                 {RESTRICTED_BUILD_LABEL}-",
                of(&self.mirrors)
            )
        });
        let taints = self.taints.iter().filter(|_| !keep.taints);
        let taints = taints.map(|(taint, nodes)| {
            format!(
                "taint {taint} on nodes: {}, whose annotation {OWNED_ANNOTATION} is invalid, so nothing proves that Transom \
                 set it; kubectl taint node NAME {taint}-",
                of(nodes)
            )
        });
        mirrors.into_iter().chain(taints).collect()
    }
}

/// Without a `writer`, it reports what it would delete.
async fn delete_classes(
    writer: Option<&Writer>,
    classes: &[RuntimeClass],
    references: &Result<PodReferences, ReferencesError>,
    report: &mut RevertReport,
) {
    let references = match references {
        _ if classes.is_empty() => return,
        Ok(references) => references,
        Err(error) => {
            let what = "no RuntimeClass is deleted: Transom could not determine which objects use it";
            return report.failures.push(format!("{what}: {error}"));
        }
    };
    for class in classes {
        let change = ClassChange::delete(class, String::new(), "Transom is being uninstalled");
        let result = match writer {
            Some(writer) => carry_out(writer, &change, references).await,
            None => in_use(&change, references).map_or(ClassWriteResult::Yes, ClassWriteResult::InUse),
        };
        match result {
            ClassWriteResult::Yes => report.runtime_classes.push(change.name),
            ClassWriteResult::Later => {
                let why = "it was changed meanwhile; run this again";
                report
                    .failures
                    .push(format!("RuntimeClass {}: {why}", change.name));
            }
            ClassWriteResult::InUse(why) => report.kept.push(why),
            ClassWriteResult::Failed(why) => {
                (report.failures).push(format!("cannot delete {}: {why}", change.name));
            }
        }
    }
}
