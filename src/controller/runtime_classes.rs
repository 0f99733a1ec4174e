//! RuntimeClasses: one for each release and isolation, where a node policy manages them. What is planned is pure; what
//! carries it out stands in `write`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::node::v1::{RuntimeClass, Scheduling};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::nodes::plan::{NodeOs, build_of, taint_of};
use super::nodes::status::Classes;
use super::nodes::want::{Choice, NodePolicies, NodePolicy};
use super::view::{NodeView, OWNED_ANNOTATION};
use crate::api::Isolation;
use crate::model::build::{self, Build, Compatibility, RELEASES, Release, compatibility, compatible_hosts};
use crate::model::facts::{BETA_OS_LABEL, BUILD_LABEL, OS_LABEL, TRUSTED_BUILD_LABEL, Taint};
use crate::model::selection::is_build_label;

pub mod keeper;
pub mod write;

/// The label by which people find what Transom made.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Its value.
pub const MANAGED_BY: &str = "transom";

/// The owner annotation of a RuntimeClass: that it is ours, and what for.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct OwnedClass {
    /// The policy that it was made for.
    pub policy: String,
    /// The release, as in `ltsc2022`.
    pub release: String,
    /// The isolation.
    pub isolation: Isolation,
}

impl OwnedClass {
    /// What the annotation of a class says; `None` for a class that is not ours.
    pub fn of(class: &RuntimeClass) -> Option<Self> {
        let annotations = class.metadata.annotations.as_ref()?;
        serde_json::from_str(annotations.get(OWNED_ANNOTATION)?).ok()
    }
}

/// One thing to do about a RuntimeClass.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Make it.
    Create(Box<RuntimeClass>),
    /// Merge this into it; it names the version that it was decided on.
    Update {
        /// Its name.
        name: String,
        /// The patch.
        patch: Value,
    },
    /// Take it away, where nothing names it. One whose handler changes is made anew afterwards: a handler is immutable.
    Delete {
        /// As it stands.
        class: Arc<RuntimeClass>,
        /// The policy that is told where it cannot go.
        policy: String,
        /// Why, in words that end a sentence: "…, as".
        why: &'static str,
    },
}

impl Step {
    /// The name of the class.
    pub fn name(&self) -> &str {
        match self {
            Step::Create(class) => name_of(class),
            Step::Update { name, .. } => name,
            Step::Delete { class, .. } => name_of(class),
        }
    }
}

/// What is to be done, and what is to be said to each policy that manages classes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClassesPlan {
    /// What is to be done.
    pub steps: Vec<Step>,
    /// How the classes of each policy stand.
    pub standings: BTreeMap<String, Classes>,
}

/// One class as it is to be.
struct Wanted {
    name: String,
    owned: OwnedClass,
    handler: String,
    node_selector: BTreeMap<String, String>,
    tolerations: BTreeSet<Taint>,
}

fn name_of(class: &RuntimeClass) -> &str {
    class.metadata.name.as_deref().unwrap_or_default()
}

/// Plans the RuntimeClasses. `others_are_gone`: policies that are not among these are certainly gone, so that what was
/// made for them may be taken away.
pub fn plan(
    existing: &BTreeMap<String, Arc<RuntimeClass>>,
    policies: &NodePolicies,
    nodes: &[Arc<NodeView>],
    others_are_gone: bool,
) -> ClassesPlan {
    let mut plan = ClassesPlan::default();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for policy in policies
        .iter()
        .filter(|policy| policy.stored.spec.runtime_classes.managed)
    {
        let mut standing = Classes::default();
        let of_policy: Vec<&NodeView> = (nodes.iter())
            .filter(|node| NodeOs::of(node) == NodeOs::Windows)
            .filter(|node| matches!(policies.choose(node), Choice::Of(chosen) if chosen.name == policy.name))
            .map(AsRef::as_ref)
            .collect();
        for wanted in wanted(policy, &of_policy, existing, &mut standing) {
            if !taken.insert(wanted.name.clone()) {
                continue;
            }
            let step = match existing.get(&wanted.name) {
                None => Some(Step::Create(Box::new(wanted.to_class()))),
                Some(class) => against(class, &wanted, &mut standing),
            };
            if existing.contains_key(&wanted.name) {
                standing.names.push(wanted.name);
            }
            plan.steps.extend(step);
        }
        plan.standings.insert(policy.name.clone(), standing);
    }
    report_contradictions(existing, &taken, &mut plan);
    for (name, class) in existing {
        let Some(owned) = OwnedClass::of(class).filter(|_| !taken.contains(name)) else {
            continue;
        };
        // Nothing is touched while its policy's selector cannot be read, or while it might just not be seen yet.
        match policies.get(&owned.policy) {
            Some(policy) if policy.unusable.is_some() => continue,
            None if !others_are_gone => continue,
            _ => {}
        }
        plan.steps.push(Step::Delete {
            class: Arc::clone(class),
            policy: owned.policy,
            why: "no policy wants it any more",
        });
    }
    plan
}

/// Whether there are classes of ours for a policy that is not among these.
pub fn has_orphans(existing: &BTreeMap<String, Arc<RuntimeClass>>, policies: &NodePolicies) -> bool {
    let mut owned = existing.values().filter_map(|class| OwnedClass::of(class));
    owned.any(|owned| policies.get(&owned.policy).is_none())
}

/// The classes that a policy wants: those of the releases on its nodes, and those that it had before, so that a pool
/// at zero nodes keeps its class.
fn wanted(
    policy: &NodePolicy,
    nodes: &[&NodeView],
    existing: &BTreeMap<String, Arc<RuntimeClass>>,
    standing: &mut Classes,
) -> Vec<Wanted> {
    let spec = &policy.stored.spec.runtime_classes;
    let builds: BTreeSet<Build> = nodes.iter().filter_map(|node| build_of(node)).collect();
    let mut releases: BTreeSet<Build> = builds.iter().filter_map(|build| image_release(*build)).collect();
    let had = existing.values().filter_map(|class| OwnedClass::of(class));
    releases.extend(
        had.filter(|owned| owned.policy == policy.name)
            .filter_map(|owned| {
                Some(
                    RELEASES
                        .iter()
                        .find(|release| release.name == owned.release)?
                        .build,
                )
            }),
    );
    let learned = nodes.iter().flat_map(|node| &node.taints).map(taint_of);
    let tolerations: BTreeSet<Taint> = learned
        .filter(Taint::marks_windows)
        .chain(policy.taints.iter().cloned())
        .collect();
    let mut all = Vec::new();
    for release in releases.iter().filter_map(|build| build.release()) {
        for isolation in spec.isolations.iter().copied().collect::<BTreeSet<_>>() {
            let name = spec.class_name(release.name, isolation);
            let mut handler = spec.handler(isolation);
            if let Some(problem) = handler_problem(&name, handler, release, isolation, nodes) {
                standing.problems.push(problem);
                // One that exists keeps the handler that it has: it is not made anew with one that is no better.
                match existing.get(&name) {
                    Some(class) => handler = class.handler.as_str(),
                    None => continue,
                }
            }
            all.push(Wanted {
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

/// The release whose images a node of this build runs best: its own, or the newest one for a host-only release and for
/// builds that the table does not know.
fn image_release(host: Build) -> Option<Build> {
    let newest = RELEASES.iter().rev().filter(|release| !release.tags.is_empty());
    let mut fitting = newest.filter(|release| {
        compatibility(release.build, host, build::Isolation::Process) == Compatibility::Runs
    });
    fitting.next().map(|release| release.build)
}

fn model(isolation: Isolation) -> build::Isolation {
    match isolation {
        Isolation::Process => build::Isolation::Process,
        Isolation::HyperV => build::Isolation::HyperV,
    }
}

/// Windows, and the build where exactly one runs the release's images: a nodeSelector cannot say "one of these".
fn node_selector(release: &Release, isolation: Isolation) -> BTreeMap<String, String> {
    let mut selector = BTreeMap::from([(OS_LABEL.to_owned(), "windows".to_owned())]);
    let mut hosts = compatible_hosts(release.build, model(isolation));
    if let (Some(only), None) = (hosts.next(), hosts.next()) {
        selector.insert(BUILD_LABEL.to_owned(), only.to_string());
    }
    selector
}

/// Why a handler cannot be used: the nodes that report handlers, and would get the pods, do not report it.
fn handler_problem(
    name: &str,
    handler: &str,
    release: &Release,
    isolation: Isolation,
    nodes: &[&NodeView],
) -> Option<String> {
    let runs = |node: &&&NodeView| {
        build_of(node)
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

/// What is to be done about a class that exists.
fn against(class: &Arc<RuntimeClass>, wanted: &Wanted, standing: &mut Classes) -> Option<Step> {
    let Some(owned) = OwnedClass::of(class) else {
        standing.notes.push(format!(
            "{} was made by somebody else: it is used as it is, and never changed",
            wanted.name
        ));
        standing.problems.extend(misfit(class, wanted));
        return None;
    };
    if class.handler != wanted.handler {
        return Some(Step::Delete {
            class: Arc::clone(class),
            policy: wanted.owned.policy.clone(),
            why: "its handler changes, and a handler is immutable",
        });
    }
    let labels = class.metadata.labels.as_ref();
    let labelled = labels
        .and_then(|l| l.get(MANAGED_BY_LABEL))
        .is_some_and(|by| by == MANAGED_BY);
    if owned == wanted.owned && labelled && wanted.is_scheduled(class) {
        return None;
    }
    let mut selector: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    let now = class.scheduling.as_ref().and_then(|s| s.node_selector.as_ref());
    // A merge patch takes a key away with null.
    selector.extend(now.into_iter().flatten().map(|(key, _)| (key.as_str(), None)));
    selector.extend(
        wanted
            .node_selector
            .iter()
            .map(|(key, value)| (key.as_str(), Some(value.as_str()))),
    );
    Some(Step::Update {
        name: wanted.name.clone(),
        patch: json!({
            "metadata": {
                "resourceVersion": class.metadata.resource_version,
                "labels": {MANAGED_BY_LABEL: MANAGED_BY},
                "annotations": {OWNED_ANNOTATION: wanted.annotation()},
            },
            "scheduling": {"nodeSelector": selector, "tolerations": wanted.tolerations()},
        }),
    })
}

/// What of somebody else's class does not fit the release that it is used for.
fn misfit(class: &RuntimeClass, wanted: &Wanted) -> Option<String> {
    let selector = class.scheduling.as_ref()?.node_selector.as_ref()?;
    let says = |key: &str| selector.get(key).map(String::as_str);
    let name = &wanted.name;
    if let Some(os) = says(OS_LABEL)
        .or(says(BETA_OS_LABEL))
        .filter(|os| *os != "windows")
    {
        return Some(format!(
            "{name}: its scheduling.nodeSelector selects {os}, so no Windows pod can use it: rename it, or choose another \
             spec.runtimeClasses.namePattern"
        ));
    }
    let build = says(BUILD_LABEL).or(says(TRUSTED_BUILD_LABEL))?;
    let release = RELEASES
        .iter()
        .find(|release| release.name == wanted.owned.release)?;
    let runs = Build::parse_label(build).is_some_and(|host| {
        compatibility(release.build, host, model(wanted.owned.isolation)) == Compatibility::Runs
    });
    (!runs).then(|| {
        format!(
            "{name}: its scheduling.nodeSelector selects the build {build}, which does not run {}",
            release.product
        )
    })
}

impl Wanted {
    fn annotation(&self) -> String {
        // Three strings always have a JSON form.
        serde_json::to_string(&self.owned).unwrap_or_default()
    }

    fn tolerations(&self) -> Vec<Toleration> {
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

    fn is_scheduled(&self, class: &RuntimeClass) -> bool {
        let scheduling = class.scheduling.clone().unwrap_or_default();
        scheduling.node_selector.unwrap_or_default() == self.node_selector
            && scheduling.tolerations.unwrap_or_default() == self.tolerations()
    }

    fn to_class(&self) -> RuntimeClass {
        let mut class = RuntimeClass {
            handler: self.handler.clone(),
            scheduling: Some(Scheduling {
                node_selector: Some(self.node_selector.clone()),
                tolerations: Some(self.tolerations()),
            }),
            ..RuntimeClass::default()
        };
        class.metadata.name = Some(self.name.clone());
        class.metadata.labels = Some([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())].into());
        class.metadata.annotations = Some([(OWNED_ANNOTATION.to_owned(), self.annotation())].into());
        class
    }
}

/// Reports classes of others whose scheduling says two things at once; to the first policy that manages classes.
fn report_contradictions(
    existing: &BTreeMap<String, Arc<RuntimeClass>>,
    taken: &BTreeSet<String>,
    plan: &mut ClassesPlan,
) {
    /// More would make the condition unreadable.
    const MOST: usize = 10;
    let Some(standing) = plan.standings.values_mut().next() else {
        return;
    };
    let foreign = existing
        .iter()
        .filter(|(name, class)| !taken.contains(*name) && OwnedClass::of(class).is_none());
    let said = foreign.filter_map(|(name, class)| {
        contradiction(class)
            .map(|what| format!("{name}, which somebody else made, contradicts itself: {what}"))
    });
    standing.notes.extend(said.take(MOST));
}

fn contradiction(class: &RuntimeClass) -> Option<String> {
    let selector = class.scheduling.as_ref()?.node_selector.as_ref()?;
    let (os, beta) = (selector.get(OS_LABEL), selector.get(BETA_OS_LABEL));
    if let (Some(os), Some(beta)) = (os, beta)
        && os != beta
    {
        return Some(format!("{OS_LABEL} is {os} and {BETA_OS_LABEL} is {beta}"));
    }
    let (label, value) = selector.iter().find(|(key, _)| is_build_label(key))?;
    if let Some(os) = os.or(beta).filter(|os| *os != "windows") {
        return Some(format!("it selects {os} and the Windows build {value}"));
    }
    Build::parse_label(value)
        .is_none()
        .then(|| format!("{label} is \"{value}\", which no node has; builds are written as 10.0.20348"))
}

#[cfg(test)]
mod tests;
