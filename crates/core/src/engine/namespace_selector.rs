//! Which default node selectors of namespaces are in effect: by what the API server is, what stored pods show, and what
//! the policy says.

use std::sync::Arc;

use super::os_inference::infer_os;
use super::policy_set::PolicySet;
use crate::model::cluster::config::{ClusterConfig, PodNodeSelector};
use crate::model::cluster::facts::{Facts, NamespaceFacts};
use crate::model::cluster::policy::{ImageEvidence, LinuxPods, Policy};
use crate::model::nodes::namespace_selector::{NodeSelector, is_only_placed, is_placed, parse};
use crate::model::objects::managed_fields::ManagedFields;
use crate::model::objects::object::{Body, FieldOwners as _, Object};
use crate::model::syntax::path::Path;
use crate::model::windows::os::{Os, Verdict};

/// Records the default node selector of every namespace in the facts. Call it whenever namespaces or policies change.
pub fn resolve(facts: &mut Facts, policies: &PolicySet) {
    let config = Arc::clone(&facts.config);
    let openshift = facts.has_scc.then(|| facts.default_node_selector.clone());
    let resolved = |namespace: &NamespaceFacts| {
        let policy = policies.policy_of(&namespace.labels);
        let mut selector = of_plugin(namespace, &config, policy).unwrap_or_default();
        if let Some(default) = &openshift {
            selector.extend(of_openshift(namespace, default).unwrap_or_default());
        }
        selector
    };
    let changed: Vec<(String, NodeSelector)> = (facts.namespaces.iter())
        .map(|(name, namespace)| (name, namespace, resolved(namespace)))
        .filter(|(_, namespace, selector)| namespace.node_selector != *selector)
        .map(|(name, _, selector)| (name.clone(), selector))
        .collect();
    if changed.is_empty() {
        return;
    }
    let namespaces = Arc::make_mut(&mut facts.namespaces);
    for (name, selector) in changed {
        if let Some(namespace) = namespaces.get_mut(&name) {
            namespace.node_selector = selector;
        }
    }
}

/// What PodNodeSelector adds. It adds the selector of its configuration file only in namespaces without the annotation.
fn of_plugin(namespace: &NamespaceFacts, config: &ClusterConfig, policy: &Policy) -> Option<NodeSelector> {
    let default = &config.default_node_selector;
    match (&namespace.stated_selectors.plugin, config.pod_node_selector) {
        (_, PodNodeSelector::Disabled) => None,
        (None, _) => Some(default.clone()),
        (Some(stated), PodNodeSelector::Enabled) => parse(stated),
        (Some(stated), PodNodeSelector::Detected) => {
            let selector = parse(stated)?;
            let is_shown = || namespace.shows_selector && !may_be_placed(&selector, policy);
            (!default.is_empty() || is_shown()).then_some(selector)
        }
    }
}

/// Whether placement, and not the plug-in, may have added the selector to a pod without a sign: by what a registry reports,
/// by the namespace's default, or to keep it off Windows nodes.
fn may_be_placed(selector: &NodeSelector, policy: &Policy) -> bool {
    is_only_placed(selector)
        && (policy.image_evidence == ImageEvidence::Registry
            || policy.default_os == Some(Os::Windows)
            || policy.linux_pods == LinuxPods::Apply)
}

/// What OpenShift adds: the annotation, else the default of the cluster. It leaves namespaces with the annotation of
/// PodNodeSelector to that plug-in.
///
/// Source: openshift/apiserver-library-go, `scheduler/nodeenv`.
fn of_openshift(namespace: &NamespaceFacts, default: &str) -> Option<NodeSelector> {
    let stated = &namespace.stated_selectors;
    if stated.plugin.is_some() {
        return None;
    }
    parse(stated.openshift.as_deref().unwrap_or(default))
}

/// Whether a stored pod shows that admission adds a selector: it has all of it, and no field manager owns it, because
/// what admission adds has no author.
///
/// The scheduling of a RuntimeClass is added in the same way, and so are the labels of placement: the first proves nothing,
/// the second only if nothing else in the pod is evidence of an operating system.
pub fn is_added_to(pod: &Object<'_>, selector: &NodeSelector, facts: &Facts) -> bool {
    let Some(spec) = pod.pod() else { return false };
    let has =
        |(key, value): (&String, &String)| spec.node_selector.get(key).is_some_and(|it| **it == **value);
    if selector.is_empty() || spec.runtime_class_name.is_some() || !selector.iter().all(has) {
        return false;
    }
    let owners = ManagedFields::of(pod.meta.managed_fields);
    let is_unowned = |path: Path| !owners.owns(&path);
    let only_placed = is_only_placed(selector);
    let mut keys = selector.keys().filter(|key| only_placed || !is_placed(key));
    keys.any(|key| is_unowned(Path::of(&["spec", "nodeSelector"]).key(key.as_str())))
        && (!only_placed || !may_be_for_windows(pod, selector, is_unowned, facts))
}

/// Whether a pod may be for Windows without the selector and the `spec.os` that placement adds to it.
fn may_be_for_windows(
    pod: &Object<'_>,
    selector: &NodeSelector,
    is_unowned: impl Fn(Path) -> bool,
    facts: &Facts,
) -> bool {
    let mut without = pod.clone();
    if let Body::Pod(template) = &mut without.body {
        let spec = &mut template.spec;
        for key in selector.keys() {
            spec.node_selector.remove(key);
        }
        if is_unowned(Path::of(&["spec", "os", "name"])) {
            spec.os = None;
        }
        // Labels that mean Windows may be configured.
        if !spec.node_selector.is_empty() || spec.required_node_affinity().is_some() {
            return true;
        }
    }
    let verdict = infer_os(&without, facts, &Policy::cluster_default()).verdict;
    matches!(verdict, Verdict::Windows | Verdict::Conflicting)
}

#[cfg(test)]
mod tests;
