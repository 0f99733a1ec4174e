//! The namespaces that the webhooks skip: by name, and by label.

use std::collections::BTreeMap;

use super::namespace_labels::IGNORE_LABEL;

/// Namespaces that are always excluded, in addition to Transom's own: a cluster cannot start without them.
pub const NEVER: [&str; 3] = ["kube-system", "kube-node-lease", "kube-public"];

/// Namespaces that are excluded by default: network plugins and policy engines that nodes depend on.
pub const BY_DEFAULT: [&str; 3] = ["calico-system", "tigera-operator", "gatekeeper-system"];

/// The label of namespaces that AKS manages.
const MANAGED_BY: &str = "kubernetes.azure.com/managedby";

/// The labels that exclude a namespace, with their values.
pub const LEFT_OUT: [(&str, &str); 2] = [
    // AKS excludes it from every webhook. Its other label, `control-plane`, is in the values file for AKS only, because
    // kubebuilder puts it on ordinary namespaces.
    (MANAGED_BY, "aks"),
    (IGNORE_LABEL, "true"),
];

/// Why the API server does not send the objects of a namespace for review.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotReviewed {
    /// The namespace is excluded by name.
    ByName,
    /// A label excludes the namespace.
    ByLabel(&'static str),
    /// No webhook is registered for the namespace.
    NotRegistered,
}

impl NotReviewed {
    /// The reason as text, to follow "admission does not review it:".
    pub fn words(&self, namespace: &str) -> String {
        match self {
            NotReviewed::ByName => format!("the namespace {namespace} is excluded by name"),
            NotReviewed::ByLabel(label) => format!("the label {label} excludes the namespace {namespace}"),
            NotReviewed::NotRegistered => {
                format!("no webhook of Transom is registered for the namespace {namespace}")
            }
        }
    }
}

/// Why the webhooks skip a namespace; `None` if they do not.
pub fn left_out(
    namespace: &str,
    labels: &BTreeMap<String, String>,
    excluded: &[String],
) -> Option<NotReviewed> {
    if is_left_out_by_name(namespace, excluded) {
        return Some(NotReviewed::ByName);
    }
    left_out_by(labels).next().map(NotReviewed::ByLabel)
}

/// Whether the webhooks skip a namespace: by its name, by an entry of `excluded` (which contains Transom's
/// own), or by a label. Equals the `namespaceSelector` of every entry, which options may narrow further.
pub fn is_left_out(namespace: &str, labels: &BTreeMap<String, String>, excluded: &[String]) -> bool {
    left_out(namespace, labels, excluded).is_some()
}

/// Whether the webhooks skip a namespace regardless of its labels.
pub fn is_left_out_by_name(namespace: &str, excluded: &[String]) -> bool {
    NEVER.contains(&namespace) || excluded.iter().any(|other| other == namespace)
}

/// The namespaces that the chart excludes by name, and Transom's own.
pub fn excluded_by_default(own: &str) -> Vec<String> {
    BY_DEFAULT.into_iter().chain([own]).map(str::to_owned).collect()
}

/// Those of these labels that exclude their namespace.
pub fn left_out_by(labels: &BTreeMap<String, String>) -> impl Iterator<Item = &'static str> {
    let stands = |(label, value): &(&str, &str)| labels.get(*label).is_some_and(|stands| stands == value);
    LEFT_OUT.into_iter().filter(stands).map(|(label, _)| label)
}

/// Every label that can exclude a namespace.
pub fn leaving_out() -> impl Iterator<Item = &'static str> {
    LEFT_OUT.into_iter().map(|(label, _)| label)
}
