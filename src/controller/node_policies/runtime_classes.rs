//! RuntimeClasses: one for each release and isolation, if a node policy manages them. This module plans the changes
//! from `desired` (pure); `write` applies them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::desired::{DesiredClass, desired, model};
use super::node_state::PolicyResolver;
use crate::api::{Isolation, PartMode};
use crate::cluster::node::{NodeView, OWNED_ANNOTATION};
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored_node_policies::{NodePolicies, NodePolicy, SelectedPolicy};
use crate::controller::writer::Write;
use crate::model::nodes::node::{
    BETA_OS_LABEL, BUILD_LABEL, NodeSigns as _, OS_LABEL, RESTRICTED_BUILD_LABEL, ReportedOs, Taint,
};
use crate::model::windows::build::{Build, Compatibility, RELEASES, compatibility};

mod desired;
pub(crate) mod reconcile;
pub(crate) mod write;

/// The owner annotation of a RuntimeClass: that Transom created it, and what for.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct OwnedClass {
    /// The policy that it was created for.
    pub policy: String,
    /// The release, as in `ltsc2022`.
    pub release: String,
    pub isolation: Isolation,
}

impl OwnedClass {
    /// Reads the annotation of a class; `None` for a class that is not Transom's.
    pub fn of(class: &RuntimeClass) -> Option<Self> {
        let annotations = class.metadata.annotations.as_ref()?;
        serde_json::from_str(annotations.get(OWNED_ANNOTATION)?).ok()
    }
}

/// One change of a RuntimeClass. A class whose handler changes is deleted and created again: a handler is immutable.
#[derive(Clone, PartialEq, Debug)]
pub struct ClassChange {
    /// The name of the class.
    pub name: String,
    /// The policy that reports it if the change fails.
    pub policy: String,
    /// Why the class is deleted if no object names it, as the end of a sentence: "it is not deleted, although …". `None`: it
    /// is not deleted.
    pub why_deleted: Option<&'static str>,
    /// The write; unless it creates the class, it contains the resourceVersion that the plan is based on.
    pub write: Write<RuntimeClass>,
}

impl ClassChange {
    /// The deletion of a class that Transom owns.
    pub fn delete(class: &RuntimeClass, policy: String, why: &'static str) -> Self {
        let name = class.metadata.name.clone().unwrap_or_default();
        ClassChange {
            policy,
            why_deleted: Some(why),
            write: Write::Delete {
                name: name.clone(),
                uid: class.metadata.uid.clone(),
                version: class.metadata.resource_version.clone(),
            },
            name,
        }
    }
}

/// The RuntimeClasses of a policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassesOfPolicy {
    /// The existing classes.
    pub names: Vec<String>,
    /// Notes that are not problems.
    pub notes: Vec<String>,
    /// Classes that another policy has under the same name with another handler.
    pub conflicts: Vec<String>,
    pub problems: Vec<String>,
    /// What the API server says, if Transom lacks the right to write one.
    pub forbidden: Option<String>,
}

/// The changes, and what to report to each policy that manages classes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClassPlan {
    pub changes: Vec<ClassChange>,
    /// The classes of each policy.
    pub by_policy: BTreeMap<String, ClassesOfPolicy>,
}

/// Plans the RuntimeClasses for the nodes of a snapshot. `nodes`: with what Transom has written to them since.
pub fn plan_of(snapshot: &Snapshot, resolver: &PolicyResolver, nodes: &[Arc<NodeView>]) -> ClassPlan {
    let cache = &snapshot.cache;
    let absent = snapshot.pools.absent(&cache.nodes).into_iter();
    let absent = absent.flat_map(|pool| pool.taints).collect();
    let (policies, others_are_gone) = (&resolver.policies, resolver.others_are_gone);
    plan(&cache.runtime_classes, policies, nodes, &absent, others_are_gone)
}

/// Plans the RuntimeClasses. `absent`: the taints of pools that have no nodes now. `others_are_gone`: policies not in
/// `policies` are certainly deleted, so that their classes may be deleted.
pub fn plan(
    existing: &BTreeMap<String, Arc<RuntimeClass>>,
    policies: &NodePolicies,
    nodes: &[Arc<NodeView>],
    absent: &BTreeSet<Taint>,
    others_are_gone: bool,
) -> ClassPlan {
    let mut plan = ClassPlan::default();
    let selected = SelectedNodes::of(policies, nodes);
    let held = |policy: &str| selected.held.contains(policy);
    let mut taken: BTreeSet<String> = (existing.iter())
        .filter(|(_, class)| OwnedClass::of(class).is_some_and(|owned| held(&owned.policy)))
        .map(|(name, _)| name.clone())
        .collect();
    let mut wanted = Vec::new();
    for policy in policies.iter().filter(|policy| is_managing(policy)) {
        if held(&policy.name) {
            plan.by_policy
                .insert(policy.name.clone(), as_they_are(policy, existing));
            continue;
        }
        let none = Vec::new();
        let nodes = selected.by_policy.get(&*policy.name).unwrap_or(&none);
        let mut state = ClassesOfPolicy::default();
        let desired = desired(policy, nodes, absent, existing, &mut state);
        wanted.push((policy, desired, state));
    }
    separate(&mut wanted);
    for (policy, desired, mut state) in wanted {
        for desired in desired {
            if !taken.insert(desired.name.clone()) {
                continue;
            }
            let step = match existing.get(&desired.name) {
                None => Some(desired.change(Write::Create(desired.to_class()))),
                Some(class) => {
                    state.names.push(desired.name.clone());
                    against(class, &desired, &mut state)
                }
            };
            match step {
                Some(step) if only_audits(policy) => state.notes.push(format!(
                    "{} is missing or differs (runtimeClasses.mode is Audit)",
                    step.name
                )),
                step => plan.changes.extend(step),
            }
        }
        plan.by_policy.insert(policy.name.clone(), state);
    }
    plan.changes
        .extend(undesired_classes(existing, policies, &taken, others_are_gone));
    plan
}

/// The classes of a policy whose nodes are unknown.
fn as_they_are(policy: &NodePolicy, existing: &BTreeMap<String, Arc<RuntimeClass>>) -> ClassesOfPolicy {
    let is_owned = |class: &RuntimeClass| OwnedClass::of(class).is_some_and(|it| it.policy == policy.name);
    let owned = existing.iter().filter(|(_, class)| is_owned(class));
    let note = "they stay as they are while it is unknown which nodes the policy selects";
    ClassesOfPolicy {
        names: owned.map(|(name, _)| name.clone()).collect(),
        notes: vec![note.to_owned()],
        ..ClassesOfPolicy::default()
    }
}

/// What the policies want, in order: of two with the same name, the first policy has the class.
type WantedClasses<'p> = Vec<(&'p NodePolicy, Vec<DesiredClass>, ClassesOfPolicy)>;

/// Keeps one class of each name. If the policies want different handlers, the class selects only nodes of the policy that
/// has it, because the other nodes lack its handler.
fn separate(wanted: &mut WantedClasses<'_>) {
    for at in 1..wanted.len() {
        let (firsts, rest) = wanted.split_at_mut(at);
        let Some((_, classes, state)) = rest.first_mut() else {
            return;
        };
        classes.retain(|class| {
            let of_name = |first: &&mut (&NodePolicy, Vec<DesiredClass>, ClassesOfPolicy)| {
                first.1.iter().any(|other| other.name == class.name)
            };
            let Some((policy, others, of_first)) = firsts.iter_mut().find(of_name) else {
                return true;
            };
            let Some(other) = others.iter_mut().find(|other| other.name == class.name) else {
                return true;
            };
            if other.handler == class.handler {
                state.notes.push(format!(
                    "{} is the class of the policy {}",
                    class.name, policy.name
                ));
                return false;
            }
            state.conflicts.push(format!(
                "{} is the class of the policy {}, with the handler {} instead of {}: choose another \
                 spec.runtimeClasses.namePattern, or the same handler",
                class.name, policy.name, other.handler, class.handler
            ));
            let labels = policy.stored.spec.node_selector.match_labels.iter().flatten();
            let before = other.node_selector.len();
            for (key, value) in labels {
                other
                    .node_selector
                    .entry(key.clone())
                    .or_insert_with(|| value.clone());
            }
            let labels = policy.stored.spec.node_selector.match_labels.as_ref();
            if other.node_selector.len() == before && labels.is_none_or(BTreeMap::is_empty) {
                of_first.problems.push(format!(
                    "{}: it also selects nodes of another policy with another handler: give this policy \
                     spec.nodeSelector.matchLabels",
                    class.name
                ));
            }
            false
        });
    }
}

fn is_managing(policy: &NodePolicy) -> bool {
    policy.stored.spec.runtime_classes_mode() != PartMode::Disabled
}

fn only_audits(policy: &NodePolicy) -> bool {
    policy.stored.spec.runtime_classes_mode() == PartMode::Audit
}

/// Which Windows nodes belong to which policy.
#[derive(Default)]
struct SelectedNodes<'n> {
    by_policy: BTreeMap<&'n str, Vec<&'n NodeView>>,
    /// The policies whose nodes are unknown: those that cannot be read, and those that manage classes and wait for nodes
    /// because of them. Their classes would be planned without some of their nodes, and lose what was learned from these.
    held: BTreeSet<&'n str>,
}

impl<'n> SelectedNodes<'n> {
    fn of(policies: &'n NodePolicies, nodes: &'n [Arc<NodeView>]) -> Self {
        let mut selected = SelectedNodes::default();
        let unusable = policies.iter().filter(|policy| policy.unusable.is_some());
        selected.held.extend(unusable.map(|policy| &*policy.name));
        let windows = (nodes.iter()).filter(|node| node.reported_os() == ReportedOs::Windows);
        for node in windows.filter(|_| policies.iter().any(is_managing)) {
            match policies.choose(node) {
                SelectedPolicy::Policy(policy) => {
                    selected.by_policy.entry(&policy.name).or_default().push(node);
                }
                SelectedPolicy::Held(held) => {
                    let waiting = held.waiting.filter(|policy| is_managing(policy));
                    selected.held.extend(waiting.map(|policy| &*policy.name));
                }
                SelectedPolicy::NoPolicy => {}
            }
        }
        selected
    }
}

/// Transom's classes that no policy requests any longer.
fn undesired_classes(
    existing: &BTreeMap<String, Arc<RuntimeClass>>,
    policies: &NodePolicies,
    taken: &BTreeSet<String>,
    others_are_gone: bool,
) -> Vec<ClassChange> {
    let not_taken = existing.iter().filter(|(name, _)| !taken.contains(*name));
    let ours = not_taken.filter_map(|(_, class)| Some((class, OwnedClass::of(class)?)));
    // Nothing is changed while the policy's selector cannot be read, or while the policy may only be missing from the
    // cache.
    let certain = ours.filter(|(_, owned)| match policies.get(&owned.policy) {
        Some(policy) => policy.unusable.is_none() && !only_audits(policy),
        None => others_are_gone,
    });
    let deletions = certain
        .map(|(class, owned)| ClassChange::delete(class, owned.policy, "no policy requires it any more"));
    deletions.collect()
}

/// Whether Transom has classes for a policy that is not in `policies`.
pub fn has_orphans(existing: &BTreeMap<String, Arc<RuntimeClass>>, policies: &NodePolicies) -> bool {
    let mut owned = existing.values().filter_map(|class| OwnedClass::of(class));
    owned.any(|owned| policies.get(&owned.policy).is_none())
}

/// The changes of a class that exists.
fn against(class: &RuntimeClass, desired: &DesiredClass, state: &mut ClassesOfPolicy) -> Option<ClassChange> {
    let Some(owned) = OwnedClass::of(class) else {
        state.notes.push(format!(
            "{} was not created by Transom: it is used as it is, and never changed",
            desired.name
        ));
        state.problems.extend(misfit(class, desired));
        return None;
    };
    if class.handler != desired.handler {
        let why = "its handler changes, and a handler is immutable";
        return Some(ClassChange::delete(class, desired.owned.policy.clone(), why));
    }
    if owned == desired.owned && desired.is_scheduled(class) {
        return None;
    }
    let mut selector: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    let now = class.scheduling.as_ref().and_then(|s| s.node_selector.as_ref());
    // A merge patch removes a key that is null.
    selector.extend(now.into_iter().flatten().map(|(key, _)| (key.as_str(), None)));
    selector.extend(
        desired
            .node_selector
            .iter()
            .map(|(key, value)| (key.as_str(), Some(value.as_str()))),
    );
    Some(desired.change(Write::Patch {
        name: desired.name.clone(),
        patch: json!({
            "metadata": {
                "resourceVersion": class.metadata.resource_version,
                "annotations": {OWNED_ANNOTATION: desired.annotation()},
            },
            "scheduling": {"nodeSelector": selector, "tolerations": desired.tolerations()},
        }),
    }))
}

/// What in a class that Transom did not create does not fit the release for which it is used.
fn misfit(class: &RuntimeClass, desired: &DesiredClass) -> Option<String> {
    let selector = class.scheduling.as_ref()?.node_selector.as_ref()?;
    let selected = |key: &str| selector.get(key).map(String::as_str);
    let name = &desired.name;
    if let Some(os) = selected(OS_LABEL)
        .or(selected(BETA_OS_LABEL))
        .filter(|os| *os != "windows")
    {
        return Some(format!(
            "{name}: its scheduling.nodeSelector selects {os}, so no Windows pod can use it: rename it, or choose another \
             spec.runtimeClasses.namePattern"
        ));
    }
    let build = selected(BUILD_LABEL).or(selected(RESTRICTED_BUILD_LABEL))?;
    let release = RELEASES
        .iter()
        .find(|release| release.name == desired.owned.release)?;
    let runs = Build::parse_label(build).is_some_and(|host| {
        compatibility(release.build, host, model(desired.owned.isolation)) == Compatibility::Runs
    });
    (!runs).then(|| {
        format!(
            "{name}: its scheduling.nodeSelector selects the build {build}, which does not run {}",
            release.product
        )
    })
}

#[cfg(test)]
mod tests;
