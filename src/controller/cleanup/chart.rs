//! The chart's objects that are left after Transom removed what it created. They are for Helm or kubectl to delete,
//! except those of a release whose namespace is gone: what Helm knows of a release is in its namespace.

use std::fmt;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::{Api, Client};

use super::{Cleanup, CleanupOptions, OURS, Target};
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::list::{Listing, collect};
use crate::model::syntax::text::list;

/// The API group of Transom's own kinds.
const TRANSOM: &str = "transom.dev";

/// The API group of roles and their bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// The kinds of the chart's objects. Those of admission policies come first: a binding without its policy is an error of every
/// request.
const KINDS: [(&str, &str); 14] = [
    (super::ADMISSION, "ValidatingAdmissionPolicyBinding"),
    (super::ADMISSION, "ValidatingAdmissionPolicy"),
    ("apps", "Deployment"),
    ("", "Service"),
    ("policy", "PodDisruptionBudget"),
    ("", "ConfigMap"),
    (RBAC, "RoleBinding"),
    (RBAC, "Role"),
    (RBAC, "ClusterRoleBinding"),
    (RBAC, "ClusterRole"),
    ("", "ServiceAccount"),
    (TRANSOM, "WindowsPodPolicy"),
    (TRANSOM, "WindowsNodePolicy"),
    (TRANSOM, "WindowsNodePool"),
];

/// The label with the name of the release.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// The annotations with the name of the Helm release and its namespace.
const RELEASE: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// How many objects are named.
const NAMED: usize = 8;

/// An object of the chart's.
struct ChartObject {
    group_and_kind: (&'static str, &'static str),
    metadata: ObjectMeta,
}

impl ChartObject {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }
}

impl fmt::Display for ChartObject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ", self.group_and_kind.1)?;
        if let Some(namespace) = &self.metadata.namespace {
            write!(out, "{namespace}/")?;
        }
        out.write_str(self.name())
    }
}

/// The objects of the release `instance` in the cluster, whatever their namespace. A kind may be unknown, and what this user
/// cannot list, Helm or kubectl will find.
async fn objects_of(client: &Client, instance: &str) -> Vec<ChartObject> {
    let labels = format!("{OURS},{INSTANCE}={instance}");
    let mut objects = Vec::new();
    for group_and_kind in KINDS {
        let target = Target::new(client, group_and_kind, None);
        let listing = Listing::new(target.api.resource_url())
            .with_labels(&labels)
            .metadata_only();
        if let Ok(found) = collect::<PartialObjectMeta<DynamicObject>>(client, listing).await {
            objects.extend(found.into_iter().map(|object| ChartObject {
                group_and_kind,
                metadata: object.metadata,
            }));
        }
    }
    objects
}

/// What is left, and the command that removes it; empty if nothing is.
pub async fn of_the_chart(client: &Client, options: &CleanupOptions) -> Vec<String> {
    let deployment = deployment(client, options).await.unwrap_or_default();
    // The name of the release, which is not always that of its objects.
    let instance = deployment.labels.as_ref().and_then(|it| it.get(INSTANCE));
    let objects = objects_of(client, instance.unwrap_or(&options.name)).await;
    let Some(first) = objects.first() else {
        return Vec::new();
    };
    let namespace = &options.namespace;
    let release = match (first.annotation(RELEASE), first.annotation(RELEASE_NAMESPACE)) {
        (Some(release), of) => {
            let namespace = of.unwrap_or(namespace);
            format!("for Helm: helm uninstall {release} --namespace {namespace}")
        }
        (None, _) => "for kubectl: kubectl delete -f with the manifests of the installation".to_owned(),
    };
    let left: Vec<String> = objects.iter().map(ToString::to_string).collect();
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

impl Cleanup<'_> {
    /// Deletes what a release of Helm's left in other namespaces and in the cluster if its namespace is gone. `is_shared`:
    /// another installation uses the policies and pools.
    pub(super) async fn delete_orphans_of_the_chart(&mut self, is_shared: bool) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = &self.options.namespace;
        match answered(namespaces.get_metadata(namespace)).await {
            Err(ApiError::NotFound | ApiError::NamespaceNotFound(_)) => {}
            Ok(_) | Err(_) => return,
        }
        for object in objects_of(self.client, &self.options.name).await {
            let is_orphan = object.annotation(RELEASE_NAMESPACE) == Some(namespace);
            let stays = is_shared && object.group_and_kind.0 == TRANSOM;
            if is_orphan && !stays {
                let of = object.metadata.namespace.as_deref();
                let target = Target::new(self.client, object.group_and_kind, of);
                self.delete(&target, object.name()).await;
            }
        }
    }
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
                "namespace": "transom-system",
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
                "of the installation is left: Deployment transom-system/second-transom",
                "that is for Helm: helm uninstall second --namespace transom-system",
            ]
        );
    }
}
