//! Taking back everything at once, without a view: what `transom cleanup` does, and what may be done twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::ListParams;
use kube::{Api, Client};

use super::plan::{Keep, NodePlan, plan_to_take_back};
use super::read::view_of;
use super::write::{Pace, Writer};
use crate::cluster::errors::answered;
use crate::cluster::survey::PAGE;
use crate::cluster::view::NodeView;
use crate::controller::node_policies::classes::write::{self as classes, Done, Users};
use crate::controller::node_policies::classes::{OwnedClass, Step};

/// What stays in the cluster. What stays is nobody's afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Labels of nodes (the mirror of the build label; the build label itself always stays).
    pub keep_node_labels: bool,
    /// Taints of nodes.
    pub keep_taints: bool,
    /// RuntimeClasses.
    pub keep_runtime_classes: bool,
}

/// What was taken back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The nodes that were changed.
    pub nodes: Vec<String>,
    /// The RuntimeClasses that were deleted.
    pub runtime_classes: Vec<String>,
    /// What had to stay, and why: RuntimeClasses that something still names.
    pub kept: Vec<String>,
    /// What failed, and why. Everything else was taken back all the same.
    pub failures: Vec<String>,
}

impl Report {
    /// Whether nothing of ours is left, but what was to be kept.
    pub fn is_complete(&self) -> bool {
        self.kept.is_empty() && self.failures.is_empty()
    }
}

/// Takes everything of ours back from all nodes, and deletes our RuntimeClasses that nothing names. Works without a
/// controller, and any number of times; goes on where something is refused, and reports it.
///
/// No controller must run meanwhile, or it would write everything again.
pub async fn take_back_everything(client: &Client, options: Options) -> Report {
    let pace = Arc::new(Pace::per_second(
        super::super::Settings::default().writes_per_second,
    ));
    let mut report = Report::default();
    nodes(client, options, Arc::clone(&pace), &mut report).await;
    if !options.keep_runtime_classes {
        runtime_classes(client, pace, &mut report).await;
    }
    report
}

async fn nodes(client: &Client, options: Options, pace: Arc<Pace>, report: &mut Report) {
    let keep = Keep {
        labels: options.keep_node_labels,
        taints: options.keep_taints,
    };
    let decide = move |node: &NodeView| -> NodePlan { plan_to_take_back(node, keep) };
    let writer = Writer::new(client.clone(), None, None, pace);
    let api: Api<Node> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let list = match answered(api.list(&params)).await {
            Ok(list) => list,
            Err(error) => return report.failures.push(format!("cannot list nodes: {error}")),
        };
        for node in list.items.iter().map(view_of).filter(NodeView::is_marked) {
            let name = node.name.clone();
            let outcome = writer.bring_about(Arc::new(node), &decide).await;
            if let Some(error) = outcome.error {
                report.failures.push(format!("node {name}: {error}"));
            } else if outcome.wrote {
                report.nodes.push(name);
            }
        }
        match list.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => params.continue_token = Some(more),
            None => return,
        }
    }
}

async fn runtime_classes(client: &Client, pace: Arc<Pace>, report: &mut Report) {
    let api: Api<RuntimeClass> = Api::all(client.clone());
    let list = match answered(api.list(&ListParams::default())).await {
        Ok(list) => list.items,
        Err(error) => {
            return report
                .failures
                .push(format!("cannot list RuntimeClasses: {error}"));
        }
    };
    let ours: Vec<Step> = (list.into_iter())
        .filter_map(|class| {
            Some(Step::Delete {
                policy: OwnedClass::of(&class)?.policy,
                class: Arc::new(class),
                why: "everything is taken back",
            })
        })
        .collect();
    if ours.is_empty() {
        return;
    }
    let names: BTreeSet<String> = ours.iter().map(|step| step.name().to_owned()).collect();
    let users: Users = match classes::users(client, &names).await {
        Ok(users) => users,
        Err(error) => {
            let what = "no RuntimeClass is deleted, because it is not known who names it";
            return report.failures.push(format!("{what}: {error}"));
        }
    };
    let writer = classes::Writer::new(client.clone(), None, pace);
    for step in &ours {
        match writer.carry_out(step, &users).await {
            Done::Yes => report.runtime_classes.push(step.name().to_owned()),
            Done::Later => {
                let why = "it was changed meanwhile; do it once more";
                report
                    .failures
                    .push(format!("RuntimeClass {}: {why}", step.name()));
            }
            Done::InUse(why) => report.kept.push(why),
            Done::Failed(why) => report.failures.push(why),
        }
    }
}
