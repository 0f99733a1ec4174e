//! Stops the controllers of an installation, and waits until its leader no longer writes.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::{Api, Resource as _};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::{Cleanup, OURS};
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::lease::LEASE;
use crate::cluster::list::{Listing, collect};

/// How long to wait for a leader that does not stop.
const LEADER_STOPS: Duration = Duration::from_secs(60);

/// How long a Lease must stay unchanged before it is certain that no replica acts on it: a draining replica may
/// acquire it again.
const STANDS_STILL: Duration = Duration::from_secs(LEASE.as_secs() + 5);

/// How long to wait for the list of pods: less than [`LEADER_STOPS`], so that the Lease is seen to stand still even if the
/// list never arrives.
const PODS_ARRIVE: Duration = Duration::from_secs(10);

/// Whether a replica may still act as the leader.
pub(super) enum LeaderState {
    Gone,
    /// A replica does: its name, and what to do.
    Acts(String),
    /// This cannot be determined, and why.
    Unknown(String),
}

impl Cleanup<'_> {
    /// Scales Transom to zero and waits until no leader is active: a leader would write everything again.
    pub(super) async fn stop_controllers(&mut self, report_progress: &dyn Fn(String)) -> LeaderState {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &self.options.namespace);
        let name = &self.options.name;
        match answered(api.get(name)).await {
            Ok(deployment) if deployment.spec.replicas != Some(0) => {
                let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
                let scaled = if self.is_preview {
                    Ok(())
                } else {
                    let params = PatchParams::default();
                    answered(api.patch_scale(name, &params, &none)).await.map(drop)
                };
                match scaled {
                    Ok(()) => self.report.done.push(format!("Deployment {name} scaled to 0")),
                    Err(ApiError::NotFound) => {}
                    Err(why) => {
                        let text = format!("Deployment {name} cannot be scaled to 0: {why}");
                        self.report.failures.push(text);
                    }
                }
            }
            Ok(_) | Err(ApiError::NotFound) => {}
            Err(why) => {
                let text = format!("cannot read the Deployment {name} of Transom, to stop it: {why}");
                self.report.failures.push(text);
            }
        }
        if self.is_preview {
            return LeaderState::Gone;
        }
        self.leader_is_gone(report_progress).await
    }

    /// Waits until no replica is active: the pods are gone and the Lease is released, or unchanged for its whole
    /// duration. A draining replica may acquire a Lease that another one releases, so an empty Lease alone proves
    /// nothing. Pods on a lost machine stay forever, so pods alone prove nothing either.
    async fn leader_is_gone(&self, report_progress: &dyn Fn(String)) -> LeaderState {
        let options = self.options;
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &options.namespace);
        let started = Instant::now();
        let mut seen: Option<(String, Instant)> = None;
        let mut leader = String::new();
        while started.elapsed() < LEADER_STOPS {
            let lease = match answered(api.get(&options.lease)).await {
                Ok(lease) => lease,
                Err(ApiError::NotFound) => return LeaderState::Gone,
                Err(why) => {
                    return LeaderState::Unknown(format!(
                        "cannot determine whether a leader is still active: {why}"
                    ));
                }
            };
            let version = lease.metadata.resource_version.unwrap_or_default();
            let holder = lease.spec.and_then(|spec| spec.holder_identity);
            let holder = holder.unwrap_or_default();
            if holder.is_empty() && !self.has_pods().await {
                return LeaderState::Gone;
            }
            if !holder.is_empty() && holder != leader {
                report_progress(format!("waiting for the leader {holder} to stop"));
                leader = holder;
            }
            match &seen {
                Some((last, since)) if *last == version => {
                    if since.elapsed() > STANDS_STILL {
                        return LeaderState::Gone;
                    }
                }
                _ => seen = Some((version, Instant::now())),
            }
            sleep(Duration::from_secs(1)).await;
        }
        LeaderState::Acts(format!(
            "{leader} still renews the Lease {}/{} and would create everything again, so only the webhook \
             configurations were deleted: stop that process (a Deployment: kubectl -n {} scale deployment {} --replicas 0; \
             elsewhere: end its transom serve), then run this again",
            options.namespace, options.lease, options.namespace, options.name
        ))
    }

    /// Whether pods of the Deployment are left, including terminating ones; `true` if this cannot be determined.
    async fn has_pods(&self) -> bool {
        let listing = Listing::new(Pod::url_path(&(), Some(&self.options.namespace)))
            .with_labels(OURS)
            .metadata_only();
        let pods = collect::<PartialObjectMeta<Pod>>(self.client, listing);
        let pods = match timeout(PODS_ARRIVE, pods).await {
            Ok(Ok(pods)) => pods,
            Ok(Err(ApiError::NotFound)) => return false,
            Ok(Err(_)) | Err(_) => return true,
        };
        let prefix = format!("{}-", self.options.name);
        pods.iter().any(|pod| {
            let owners = pod.metadata.owner_references.iter().flatten();
            let mut sets = owners.filter(|owner| owner.kind == "ReplicaSet");
            sets.any(|set| set.name.starts_with(&prefix))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::test_client::{Reply, serving};
    use crate::controller::cleanup::tests::installation;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_stands_still_has_no_leader_even_if_pods_cannot_be_listed() {
        let client = serving(|_, uri, _, _| match uri.path() {
            path if path.ends_with("/pods") => Reply::Never,
            _ => Reply::Json(
                200,
                json!({"metadata": {"name": "transom", "resourceVersion": "7"}, "spec": {}}),
            ),
        });
        let options = installation("transom");
        let cleanup = Cleanup::new(&client, &options, false);
        let state = cleanup.leader_is_gone(&|_| {}).await;
        assert!(matches!(state, LeaderState::Gone));
    }
}
