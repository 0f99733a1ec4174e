//! The requests of a drain: lists, cordons and evictions.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cli::READ_RIGHTS;
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::list::{Listing, NODES_PATH, for_each};
use crate::drain::{DrainInventory, DrainPod, EvictionAnswer, PodName};
use crate::model::workload::Kind;

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
/// Of more namespaces than these, everything is listed instead.
const MOST_NAMESPACES: usize = 8;

/// The API server, as a drain uses it.
pub struct DrainCluster {
    client: Client,
    grace_period: Option<u32>,
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

impl DrainCluster {
    /// With the grace period of evictions, if it is not that of each pod.
    pub fn new(client: Client, grace_period: Option<u32>) -> Self {
        DrainCluster { client, grace_period }
    }

    /// Lists everything that a drain decides by. `namespaces`: only the pods, workloads and budgets of these, and no volumes.
    ///
    /// # Errors
    /// If something cannot be listed or read.
    pub async fn read(&self, namespaces: Option<&BTreeSet<String>>) -> anyhow::Result<DrainInventory> {
        let mut inventory = self.nodes().await?;
        if namespaces.is_none() {
            let volumes = Listing::new(VOLUMES);
            self.list(&mut inventory, Some(Kind::PersistentVolume), volumes)
                .await?;
        }
        let few = namespaces.filter(|namespaces| namespaces.len() <= MOST_NAMESPACES);
        let kinds = KINDS
            .into_iter()
            .filter_map(|kind| Some((Some(kind), Listing::of_pod_carrier(kind)?)));
        for (kind, listing) in kinds.chain([(None, Listing::new(BUDGETS))]) {
            match few {
                None => self.list(&mut inventory, kind, listing).await?,
                Some(few) => {
                    for namespace in few {
                        let listing = listing.clone().in_namespace(namespace);
                        self.list(&mut inventory, kind, listing).await?;
                    }
                }
            }
        }
        Ok(inventory)
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

    /// Reads a list. `kind`: `None` for PodDisruptionBudgets.
    async fn list(
        &self,
        inventory: &mut DrainInventory,
        kind: Option<Kind>,
        listing: Listing,
    ) -> anyhow::Result<()> {
        let resource = listing.resource().to_owned();
        let mut unreadable = None;
        let visit = |json: &str| {
            let visited = match kind {
                Some(kind) => inventory.visit(kind, json),
                None => inventory.visit_budget(json),
            };
            if let Err(error) = visited {
                unreadable.get_or_insert(error);
            }
        };
        if let Err(error) = for_each(&self.client, listing, visit).await {
            let rights = match &error.why {
                ApiError::Forbidden(_) => format!("; {READ_RIGHTS}"),
                _ => String::new(),
            };
            return Err(anyhow::Error::new(error.why).context(format!("cannot list {resource}{rights}")));
        }
        if let Some(error) = unreadable {
            bail!("cannot read one of the {resource}: {error}");
        }
        Ok(())
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
