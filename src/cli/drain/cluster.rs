//! The requests of a drain: lists, cordons and evictions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cli::READ_RIGHTS;
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::list::{Listing, NODES_PATH, for_each};
use crate::drain::{DrainInventory, DrainPod, EvictionAnswer, PodName};
use crate::model::objects::object::ObjectError;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::json::at;

/// Windows nodes; their kubelets write the label.
const WINDOWS: &str = "kubernetes.io/os=windows";
const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";
const VOLUMES: &str = "/api/v1/persistentvolumes";
/// Pods, and the workloads with replicas.
const KINDS: [Kind; 6] = [
    Kind::Deployment,
    Kind::ReplicaSet,
    Kind::StatefulSet,
    Kind::ReplicationController,
    Kind::Job,
    Kind::Pod,
];
/// How many lists are read at a time.
const AT_A_TIME: usize = 8;

/// The API server, as a drain uses it.
pub struct DrainCluster {
    /// Sends each request once.
    client: Client,
    grace_period: Option<u32>,
    /// The paths of custom resources that can be scaled, by API version and kind; `None` if they cannot.
    scaled: Mutex<BTreeMap<(String, String), Option<String>>>,
}

/// What an eviction came to.
///
/// # Errors
/// If the right to evict is missing.
fn answer_of(error: Option<ApiError>) -> Result<EvictionAnswer, ApiError> {
    let Some(error) = error else {
        return Ok(EvictionAnswer::Accepted);
    };
    let text = error.to_string();
    Ok(match error {
        ApiError::NotFound
        | ApiError::Conflict
        | ApiError::NamespaceNotFound(_)
        | ApiError::NamespaceTerminating(_) => EvictionAnswer::Gone,
        ApiError::TooManyRequests { .. } => EvictionAnswer::NotNow(text),
        ApiError::Timeout(_) | ApiError::Unavailable(_) => EvictionAnswer::Unknown(text),
        // Admission webhooks, and the API server itself, also answer 403.
        ApiError::Forbidden(_) if text.contains("cannot create resource \"pods/eviction\"") => {
            return Err(error);
        }
        _ => EvictionAnswer::Failed(text),
    })
}

/// A right, and the same in words.
fn right(verb: &str, group: &str, resource: &str, namespace: Option<&str>) -> (ResourceAttributes, String) {
    let (kind, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(kind.to_owned()),
        subresource: Some(subresource.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let place = namespace.map_or_else(String::new, |namespace| format!(" in the namespace {namespace}"));
    (attributes, format!("{verb} {resource}{place}"))
}

/// What a scale subresource says.
enum ScaleAnswer {
    Replicas(u64),
    /// The kind has none.
    None,
    /// There is no such object.
    Gone,
}

/// What is listed of each namespace; `None` for PodDisruptionBudgets.
fn listings() -> impl Iterator<Item = (Option<Kind>, Listing)> {
    let kinds = KINDS.into_iter();
    let kinds = kinds.filter_map(|kind| Some((Some(kind), Listing::of_pod_carrier(kind)?)));
    kinds.chain([(None, Listing::new(BUDGETS))])
}

fn visit(inventory: &mut DrainInventory, kind: Option<Kind>, json: &str) -> Result<(), ObjectError> {
    match kind {
        Some(kind) => inventory.visit(kind, json),
        None => inventory.visit_budget(json),
    }
}

fn unreadable(resource: &str, error: &ObjectError) -> anyhow::Error {
    anyhow::anyhow!("cannot read one of the {resource}: {error}")
}

impl DrainCluster {
    /// With the grace period of evictions, if it is not that of each pod.
    pub fn new(client: Client, grace_period: Option<u32>) -> Self {
        DrainCluster {
            client,
            grace_period,
            scaled: Mutex::default(),
        }
    }

    /// Lists everything that a drain decides by, in all namespaces. Without the replicas of custom resources.
    ///
    /// # Errors
    /// If something cannot be listed or read.
    pub async fn read(&self) -> anyhow::Result<DrainInventory> {
        let mut inventory = self.nodes().await?;
        let volumes = Listing::new(VOLUMES);
        self.list(&mut inventory, Some(Kind::PersistentVolume), volumes)
            .await?;
        for (kind, listing) in listings() {
            self.list(&mut inventory, kind, listing).await?;
        }
        Ok(inventory)
    }

    /// Lists what a drain decides by in one namespace, all at a time. `known`: with what is known of owners.
    ///
    /// # Errors
    /// If something cannot be listed or read.
    pub async fn read_namespace(
        &self,
        mut known: DrainInventory,
        namespace: &str,
    ) -> anyhow::Result<DrainInventory> {
        let lists = listings().map(|(kind, listing)| async move {
            let listing = listing.in_namespace(namespace);
            let (resource, mut objects) = (listing.resource().to_owned(), Vec::new());
            self.each(listing, |json| objects.push(json.to_owned())).await?;
            Ok::<_, anyhow::Error>((kind, resource, objects))
        });
        for (kind, resource, objects) in futures::future::try_join_all(lists).await? {
            for json in objects {
                visit(&mut known, kind, &json).map_err(|error| unreadable(&resource, &error))?;
            }
        }
        Ok(known)
    }

    /// Reads how many replicas these owners should have. What is gone has none.
    ///
    /// # Errors
    /// If the right is missing, or the API server does not answer.
    pub async fn read_scales(
        &self,
        inventory: &mut DrainInventory,
        owners: Vec<(WorkloadName, String)>,
    ) -> anyhow::Result<()> {
        let answers = owners.into_iter().map(|(owner, version)| async move {
            let scale = self.scale(&owner, &version).await;
            scale.map(|scale| (owner, scale))
        });
        let answers = futures::stream::iter(answers).buffer_unordered(AT_A_TIME);
        for (owner, scale) in answers.try_collect::<Vec<_>>().await? {
            match scale {
                ScaleAnswer::Replicas(replicas) => inventory.scaled(&owner, Some(replicas)),
                ScaleAnswer::None => inventory.scaled(&owner, None),
                ScaleAnswer::Gone => {}
            }
        }
        Ok(())
    }

    async fn scale(&self, owner: &WorkloadName, version: &str) -> anyhow::Result<ScaleAnswer> {
        let what = || format!("cannot read how many replicas {owner} should have (its scale subresource)");
        let Some(path) = self.scale_path(version, &owner.kind).await.with_context(what)? else {
            return Ok(ScaleAnswer::None);
        };
        let listing = Listing::new(path).in_namespace(&owner.namespace);
        match listing.get(&self.client, &format!("{}/scale", owner.name)).await {
            Ok(json) => {
                let replicas = at(&json, &["spec", "replicas"]).and_then(|replicas| replicas.parse().ok());
                Ok(ScaleAnswer::Replicas(replicas.unwrap_or_default()))
            }
            Err(ApiError::NotFound) => Ok(ScaleAnswer::Gone),
            Err(error) => Err(anyhow::Error::new(error).context(what())),
        }
    }

    /// The path of the objects of a kind; `None` if it has no scale subresource.
    async fn scale_path(&self, version: &str, kind: &str) -> Result<Option<String>, ApiError> {
        let key = (version.to_owned(), kind.to_owned());
        let known = self
            .scaled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let served = match answered(self.client.list_api_group_resources(version)).await {
            Ok(served) => served.resources,
            Err(ApiError::NotFound) => Vec::new(),
            Err(error) => return Err(error),
        };
        let of_kind = served
            .iter()
            .find(|it| it.kind == kind && it.namespaced && !it.name.contains('/'));
        let path = of_kind.and_then(|it| {
            let scale = format!("{}/scale", it.name);
            let mut all = served.iter();
            all.any(|it| it.name == scale)
                .then(|| format!("/apis/{version}/{}", it.name))
        });
        let mut scaled = self.scaled.lock().unwrap_or_else(PoisonError::into_inner);
        scaled.insert(key, path.clone());
        Ok(path)
    }

    /// The namespaces with pods on these nodes.
    ///
    /// # Errors
    /// If the pods cannot be listed.
    pub async fn namespaces_on(&self, nodes: &[String]) -> anyhow::Result<BTreeSet<String>> {
        let lists = nodes.iter().map(|node| async move {
            let mut namespaces = BTreeSet::new();
            let pods = Listing::new("/api/v1/pods").with_fields(&format!("spec.nodeName={node}"));
            let note = |json: &str| {
                let namespace = at(json, &["metadata", "namespace"]).unwrap_or_default();
                namespaces.insert(namespace.trim_matches('"').to_owned());
            };
            self.each(pods.metadata_only(), note).await?;
            Ok::<_, anyhow::Error>(namespaces)
        });
        let lists = futures::stream::iter(lists).buffer_unordered(AT_A_TIME);
        let all: Vec<_> = lists.try_collect().await?;
        Ok(all.into_iter().flatten().collect())
    }

    /// Lists the Windows nodes.
    ///
    /// # Errors
    /// If they cannot be listed or read.
    pub async fn nodes(&self) -> anyhow::Result<DrainInventory> {
        let mut inventory = DrainInventory::default();
        let nodes = Listing::new(NODES_PATH).with_labels(WINDOWS);
        self.list(&mut inventory, Some(Kind::Node), nodes).await?;
        Ok(inventory)
    }

    /// Reads a list into an inventory. `kind`: `None` for PodDisruptionBudgets.
    async fn list(
        &self,
        inventory: &mut DrainInventory,
        kind: Option<Kind>,
        listing: Listing,
    ) -> anyhow::Result<()> {
        let resource = listing.resource().to_owned();
        let mut failed = None;
        let visit = |json: &str| {
            if let Err(error) = visit(inventory, kind, json) {
                failed.get_or_insert(error);
            }
        };
        self.each(listing, visit).await?;
        failed.map_or(Ok(()), |error| Err(unreadable(&resource, &error)))
    }

    /// Hands every object of a list to `visit`, as JSON.
    async fn each(&self, listing: Listing, visit: impl FnMut(&str) + Send) -> anyhow::Result<()> {
        let resource = listing.resource().to_owned();
        let Err(error) = for_each(&self.client, listing, visit).await else {
            return Ok(());
        };
        let rights = match &error.why {
            ApiError::Forbidden(_) => format!("; {READ_RIGHTS}"),
            _ => String::new(),
        };
        Err(anyhow::Error::new(error.why).context(format!("cannot list {resource}{rights}")))
    }

    /// The rights that a drain needs and the user lacks, as in `patch nodes`. `namespaces`: those in which it evicts; `lock`: that
    /// of its Lease.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn missing_rights(
        &self,
        namespaces: &BTreeSet<String>,
        lock: &str,
    ) -> anyhow::Result<Vec<String>> {
        let leases =
            ["get", "create", "update"].map(|verb| right(verb, "coordination.k8s.io", "leases", Some(lock)));
        let evictions = namespaces
            .iter()
            .map(|namespace| right("create", "", "pods/eviction", Some(namespace)));
        let wanted = evictions.chain(leases).chain([right("patch", "", "nodes", None)]);
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answers = wanted.map(|(attributes, shown)| {
            let reviews = &reviews;
            async move {
                let review = SelfSubjectAccessReview {
                    spec: SelfSubjectAccessReviewSpec {
                        resource_attributes: Some(attributes),
                        ..SelfSubjectAccessReviewSpec::default()
                    },
                    ..SelfSubjectAccessReview::default()
                };
                let params = PostParams::default();
                let answer = answered(reviews.create(&params, &review)).await;
                let allowed = answer.context("cannot ask which rights this account has")?.status;
                let is_missing = !allowed.is_some_and(|status| status.allowed);
                Ok::<_, anyhow::Error>(is_missing.then_some(shown))
            }
        });
        let answers = futures::stream::iter(answers).buffered(AT_A_TIME);
        Ok(answers
            .try_collect::<Vec<_>>()
            .await?
            .into_iter()
            .flatten()
            .collect())
    }

    /// Cordons or uncordons a node.
    ///
    /// # Errors
    /// If the API server refuses it, or does not answer.
    pub async fn set_cordoned(&self, node: &str, is_cordoned: bool) -> Result<(), ApiError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"unschedulable": is_cordoned.then_some(true)}}));
        answered(nodes.patch(node, &PatchParams::default(), &patch)).await?;
        Ok(())
    }

    /// Evicts a pod, unless another one has its name by now. Without kube's `Api::evict`, whose field `delete_options` is none
    /// that the API server knows, so that the UID would be ignored.
    ///
    /// # Errors
    /// If the right to evict is missing.
    pub async fn evict(&self, pod: &DrainPod) -> anyhow::Result<EvictionAnswer> {
        let PodName { namespace, name } = &pod.name;
        let mut options = json!({"preconditions": {"uid": pod.uid}});
        if let Some(seconds) = self.grace_period {
            options["gracePeriodSeconds"] = seconds.into();
        }
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name}, "deleteOptions": options});
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        let request = hyper::Request::post(path)
            .header(hyper::header::CONTENT_TYPE, "application/json")
            .body(eviction.to_string().into_bytes())
            .context("cannot write the eviction")?;
        let answer = answered(self.client.request::<Value>(request)).await;
        answer_of(answer.err()).with_context(|| format!("cannot evict {}", pod.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eviction_that_failed_says_whether_the_pod_may_end_and_only_a_missing_right_is_an_error() {
        let text = || "m".to_owned();
        let forbidden = |why: &str| ApiError::Forbidden(why.to_owned());
        let denied = "admission webhook \"a.b\" denied the request";
        for (error, answer) in [
            (None, EvictionAnswer::Accepted),
            (Some(ApiError::NotFound), EvictionAnswer::Gone),
            (Some(ApiError::Conflict), EvictionAnswer::Gone),
            (
                Some(ApiError::Unavailable(text())),
                EvictionAnswer::Unknown(text()),
            ),
            (Some(ApiError::Other(text())), EvictionAnswer::Failed(text())),
            (Some(forbidden(denied)), EvictionAnswer::Failed(denied.to_owned())),
            (
                Some(ApiError::TooManyRequests {
                    message: text(),
                    retry_after: None,
                }),
                EvictionAnswer::NotNow(text()),
            ),
        ] {
            assert_eq!(answer_of(error), Ok(answer));
        }
        let timeout = answer_of(Some(ApiError::Timeout(std::time::Duration::from_secs(15))));
        assert!(matches!(timeout, Ok(EvictionAnswer::Unknown(_))), "{timeout:?}");
        let missing = forbidden(
            "pods \"web-1\" is forbidden: User \"a\" cannot create resource \"pods/eviction\" in API group \"\"",
        );
        assert_eq!(answer_of(Some(missing.clone())), Err(missing));
    }
}
