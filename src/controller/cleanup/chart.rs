//! The chart's objects that are left after Transom removed what it created: these are for Helm or kubectl to delete.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::{Api, Client};

use super::{CleanupOptions, OURS, Target};
use crate::cluster::errors::answered;
use crate::cluster::list::{Listing, collect};
use crate::model::syntax::text::list;

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

/// The label with the name of the release.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// The annotation with the name of the Helm release.
const RELEASE: &str = "meta.helm.sh/release-name";

/// How many objects are named.
const NAMED: usize = 8;

/// What is left, and the command that removes it; empty if nothing is.
pub async fn of_the_chart(client: &Client, options: &CleanupOptions) -> Vec<String> {
    let deployment = deployment(client, options).await.unwrap_or_default();
    // The name of the release, which is not always that of its objects.
    let instance = deployment.labels.as_ref().and_then(|it| it.get(INSTANCE));
    let labels = format!("{OURS},{INSTANCE}={}", instance.unwrap_or(&options.name));
    let mut left = Vec::new();
    for (group, kind, is_namespaced) in KINDS {
        let namespace = is_namespaced.then_some(&*options.namespace);
        let target = Target::new(client, (group, kind), namespace);
        // A kind may be unknown. Helm or kubectl will find what this user cannot list.
        let listing = Listing::new(target.api.resource_url())
            .with_labels(&labels)
            .metadata_only();
        if let Ok(found) = collect::<PartialObjectMeta<DynamicObject>>(client, listing).await {
            let names = found.into_iter().filter_map(|object| object.metadata.name);
            left.extend(names.map(|name| format!("{kind} {name}")));
        }
    }
    if left.is_empty() {
        return Vec::new();
    }
    let namespace = &options.namespace;
    let release = deployment.annotations.as_ref().and_then(|it| it.get(RELEASE));
    let release = match release {
        Some(release) => format!("for Helm: helm uninstall {release} --namespace {namespace}"),
        None => "for kubectl: kubectl delete -f with the manifests of the installation".to_owned(),
    };
    vec![
        format!("of the installation is left: {}", list(&left, NAMED)),
        format!("that is {release}"),
    ]
}

/// The Deployment of the installation.
async fn deployment(client: &Client, options: &CleanupOptions) -> Option<ObjectMeta> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), &options.namespace);
    let found = answered(api.get_metadata(&options.name)).await.ok()?;
    Some(found.metadata)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::test_client::answering;
    use crate::controller::cleanup::tests::installation;

    /// An API server with the Deployment `second-transom` of the release `second`, which selects by label.
    fn client() -> Client {
        answering(|_, uri, _| {
            let metadata = json!({
                "name": "second-transom",
                "labels": {"app.kubernetes.io/name": "transom", "app.kubernetes.io/instance": "second"},
                "annotations": {"meta.helm.sh/release-name": "second"},
            });
            let (path, query) = (uri.path(), uri.query().unwrap_or_default());
            let list = |items: Value| json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items});
            let answer = if path.ends_with("/deployments/second-transom") {
                json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
            } else if path.ends_with("/deployments")
                && query.contains("instance%3Dsecond")
                && !query.contains("second-transom")
            {
                list(json!([{"metadata": metadata}]))
            } else {
                list(json!([]))
            };
            (200, answer)
        })
    }

    #[tokio::test]
    async fn what_is_left_of_a_release_is_found_by_its_name_and_not_by_that_of_its_objects() {
        assert_eq!(
            of_the_chart(&client(), &installation("second-transom")).await,
            [
                "of the installation is left: Deployment second-transom",
                "that is for Helm: helm uninstall second --namespace transom-system",
            ]
        );
    }
}
