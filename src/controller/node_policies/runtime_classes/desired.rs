//! Which RuntimeClasses should exist for the nodes of a policy, and their content. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::node::v1::{RuntimeClass, Scheduling};

use super::{ClassChange, ClassesOfPolicy, OwnedClass};
use crate::api::Isolation;
use crate::cluster::node::{MANAGED_BY, NodeView, OWNED_ANNOTATION};
use crate::cluster::stored_node_policies::NodePolicy;
use crate::controller::writer::Write;
use crate::model::nodes::node::{BUILD_LABEL, NodeSigns as _, OS_LABEL, Taint};
use crate::model::windows::build::{
    self, Build, Compatibility, RELEASES, Release, compatibility, compatible_hosts,
};

/// The desired state of one class.
pub(super) struct DesiredClass {
    pub(super) name: String,
    pub(super) owned: OwnedClass,
    pub(super) handler: String,
    pub(super) node_selector: BTreeMap<String, String>,
    tolerations: BTreeSet<Taint>,
}

impl DesiredClass {
    pub(super) fn annotation(&self) -> String {
        // Three strings always serialize as JSON.
        serde_json::to_string(&self.owned).unwrap_or_default()
    }

    pub(super) fn tolerations(&self) -> Vec<Toleration> {
        let tolerate = |taint: &Taint| {
            let value = Some(taint.value.clone()).filter(|value| !value.is_empty());
            Toleration {
                key: Some(taint.key.clone()),
                operator: Some(if value.is_some() { "Equal" } else { "Exists" }.to_owned()),
                value,
                effect: Some(taint.effect.clone()),
                ..Toleration::default()
            }
        };
        self.tolerations.iter().map(tolerate).collect()
    }

    pub(super) fn is_scheduled(&self, class: &RuntimeClass) -> bool {
        let scheduling = class.scheduling.clone().unwrap_or_default();
        scheduling.node_selector.unwrap_or_default() == self.node_selector
            && scheduling.tolerations.unwrap_or_default() == self.tolerations()
    }

    /// A write that creates or updates it.
    pub(super) fn change(&self, write: Write<RuntimeClass>) -> ClassChange {
        ClassChange {
            name: self.name.clone(),
            policy: self.owned.policy.clone(),
            why_deleted: None,
            write,
        }
    }

    pub(super) fn to_class(&self) -> RuntimeClass {
        let mut class = RuntimeClass {
            handler: self.handler.clone(),
            scheduling: Some(Scheduling {
                node_selector: Some(self.node_selector.clone()),
                tolerations: Some(self.tolerations()),
            }),
            ..RuntimeClass::default()
        };
        class.metadata.name = Some(self.name.clone());
        class.metadata.labels = Some([(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())].into());
        class.metadata.annotations = Some([(OWNED_ANNOTATION.to_owned(), self.annotation())].into());
        class
    }
}

/// The classes that a policy requests: those of the releases on its nodes, and those that it had before, so that a
/// pool with zero nodes keeps its class. `absent`: the taints of pools that have no nodes now, as far as they are
/// remembered.
pub(super) fn desired(
    policy: &NodePolicy,
    nodes: &[&NodeView],
    absent: &BTreeSet<Taint>,
    existing: &BTreeMap<String, Arc<RuntimeClass>>,
    state: &mut ClassesOfPolicy,
) -> Vec<DesiredClass> {
    let spec = &policy.stored.spec.runtime_classes;
    let releases = releases(policy, nodes, existing);
    let learned = nodes.iter().flat_map(|node| node.taints());
    let tolerations: BTreeSet<Taint> = learned
        .chain(absent.iter().cloned())
        .filter(Taint::marks_windows)
        .chain(policy.taints.iter().cloned())
        .collect();
    let mut all = Vec::new();
    for release in releases.iter().filter_map(|build| build.release()) {
        for isolation in spec.isolations().iter().copied().collect::<BTreeSet<_>>() {
            let name = spec.class_name(release.name, isolation);
            let mut handler = spec.handler(isolation);
            if let Some(problem) = handler_problem(&name, handler, release, isolation, nodes) {
                state.problems.push(problem);
                // An existing class keeps its handler: it is not created again with one that is not better.
                match existing.get(&name) {
                    Some(class) => handler = class.handler.as_str(),
                    None => continue,
                }
            }
            all.push(DesiredClass {
                node_selector: node_selector(release, isolation),
                owned: OwnedClass {
                    policy: policy.name.clone(),
                    release: release.name.to_owned(),
                    isolation,
                },
                handler: handler.to_owned(),
                tolerations: tolerations.clone(),
                name,
            });
        }
    }
    all
}

/// The releases, by their builds.
fn releases(
    policy: &NodePolicy,
    nodes: &[&NodeView],
    existing: &BTreeMap<String, Arc<RuntimeClass>>,
) -> BTreeSet<Build> {
    let builds: BTreeSet<Build> = nodes.iter().filter_map(|node| node.kernel_build()).collect();
    let of_nodes = builds.into_iter().filter_map(image_release);
    let had = existing.values().filter_map(|class| OwnedClass::of(class));
    let had = had.filter(|owned| owned.policy == policy.name);
    let of_name = |name: &str| RELEASES.iter().find(|release| release.name == name);
    let had = had.filter_map(|owned| Some(of_name(&owned.release)?.build));
    of_nodes.chain(had).collect()
}

/// The release whose images suit a node of this build best: its own, or the newest one for a host-only release and
/// for builds that the table does not contain.
fn image_release(host: Build) -> Option<Build> {
    let newest = RELEASES.iter().rev().filter(|release| !release.tags.is_empty());
    let mut fitting = newest.filter(|release| {
        compatibility(release.build, host, build::ContainerIsolation::Process) == Compatibility::Runs
    });
    fitting.next().map(|release| release.build)
}

pub(super) fn model(isolation: Isolation) -> build::ContainerIsolation {
    match isolation {
        Isolation::Process => build::ContainerIsolation::Process,
        Isolation::HyperV => build::ContainerIsolation::HyperV,
    }
}

/// Windows, and the build if exactly one build runs the release's images: a nodeSelector cannot express "one of
/// these".
fn node_selector(release: &Release, isolation: Isolation) -> BTreeMap<String, String> {
    let mut selector = BTreeMap::from([(OS_LABEL.to_owned(), "windows".to_owned())]);
    let mut hosts = compatible_hosts(release.build, model(isolation));
    if let (Some(only), None) = (hosts.next(), hosts.next()) {
        selector.insert(BUILD_LABEL.to_owned(), only.to_string());
    }
    selector
}

/// Why a handler cannot be used: the nodes that report handlers, and would get the pods, do not report this one.
fn handler_problem(
    name: &str,
    handler: &str,
    release: &Release,
    isolation: Isolation,
    nodes: &[&NodeView],
) -> Option<String> {
    let runs = |node: &&&NodeView| {
        (node.kernel_build())
            .is_some_and(|host| compatibility(release.build, host, model(isolation)) == Compatibility::Runs)
    };
    let reporting: Vec<&&NodeView> = (nodes.iter())
        .filter(runs)
        .filter(|node| !node.runtime_handlers.is_empty())
        .collect();
    let mut lacking = reporting
        .iter()
        .filter(|node| !node.runtime_handlers.iter().any(|h| h == handler));
    let first = lacking.next()?;
    Some(format!(
        "{name}: {} of {} nodes that report their handlers do not report {handler} (node {} reports {}); configure it in \
         containerd there, or name another one in spec.runtimeClasses.handlers",
        lacking.count() + 1,
        reporting.len(),
        first.name,
        first.runtime_handlers.join(", ")
    ))
}
