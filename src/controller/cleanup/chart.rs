//! The chart's objects that are left after Transom removed what it created: these are for Helm or kubectl to delete.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};

use super::{CleanupOptions, OURS};
use crate::cluster::errors::answered;
use crate::model::text::list;

/// The kinds of the chart's objects, and whether they are namespaced.
const KINDS: [(&str, &str, bool); 9] = [
    ("apps", "Deployment", true),
    ("", "Service", true),
    ("", "ServiceAccount", true),
    ("policy", "PodDisruptionBudget", true),
    ("rbac.authorization.k8s.io", "Role", true),
    ("rbac.authorization.k8s.io", "ClusterRole", false),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", false),
    ("transom.dev", "WindowsPodPolicy", false),
    ("transom.dev", "WindowsNodePolicy", false),
];

/// How many objects are named.
const NAMED: usize = 8;

/// What is left, and the command that removes it; empty if nothing is.
pub async fn of_the_chart(client: &Client, options: &CleanupOptions) -> Vec<String> {
    let labels = format!("{OURS},app.kubernetes.io/instance={}", options.name);
    let mut left = Vec::new();
    for (group, kind, is_namespaced) in KINDS {
        let version = if group == "transom.dev" { "v1alpha1" } else { "v1" };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = if is_namespaced {
            Api::namespaced_with(client.clone(), &options.namespace, &resource)
        } else {
            Api::all_with(client.clone(), &resource)
        };
        // A kind may be unknown. Helm or kubectl will find what this user cannot list.
        if let Ok(found) = answered(api.list_metadata(&ListParams::default().labels(&labels))).await {
            let names = found.items.into_iter().filter_map(|object| object.metadata.name);
            left.extend(names.map(|name| format!("{kind} {name}")));
        }
    }
    if left.is_empty() {
        return Vec::new();
    }
    let namespace = &options.namespace;
    let release = match release(client, options).await {
        Some(release) => format!("for Helm: helm uninstall {release} --namespace {namespace}"),
        None => "for kubectl: kubectl delete -f with the manifests of the installation".to_owned(),
    };
    vec![
        format!("of the installation is left: {}", list(&left, NAMED)),
        format!("that is {release}"),
    ]
}

/// The Helm release that the Deployment belongs to.
async fn release(client: &Client, options: &CleanupOptions) -> Option<String> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), &options.namespace);
    let found = answered(api.get_metadata(&options.name)).await.ok()?;
    let mut annotations = found.metadata.annotations?;
    annotations.remove("meta.helm.sh/release-name")
}
