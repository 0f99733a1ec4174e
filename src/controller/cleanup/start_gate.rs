//! The start gate: what sets the startup taint on new nodes, and the pods that pull images.

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::Resource as _;
use kube::api::{DeleteParams, PartialObjectMeta};

use super::{ADMISSION, Cleanup, NAMED};
use crate::cluster::environment::pools_with_startup_taint;
use crate::cluster::errors::ApiError;
use crate::cluster::list::{Listing, collect};
use crate::controller::startup::pulls::PULLER_SELECTOR;
use crate::model::nodes::node::Taint;
use crate::model::syntax::text::list;

/// The kinds of the objects of the chart that set the startup taint, the binding first.
const STARTUP_POLICY: [&str; 2] = ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"];

/// Pools that set the startup taint on new nodes, so that these never get pods after Transom is gone. What cannot be read is
/// omitted: the accounts of the chart may not read it.
pub async fn still_set(client: &Client, seen: impl IntoIterator<Item = String>) -> Option<String> {
    let mut pools = pools_with_startup_taint(client).await;
    pools.extend(seen);
    (!pools.is_empty()).then(|| {
        format!(
            "the startup taint {} of new nodes, if these pools still set it: {}; remove it from startupTaints of Karpenter, or from \
             --register-with-taints of the kubelet, because nothing removes it from new nodes any longer",
            Taint::STARTUP_KEY,
            list(&pools, NAMED)
        )
    })
}

impl Cleanup<'_> {
    /// Deletes what sets the startup taint, before it is removed from nodes.
    pub(super) async fn stop_startup_taint(&mut self) {
        let name = format!("{}-startup-taint", self.options.name);
        for kind in STARTUP_POLICY {
            let target = self.cluster((ADMISSION, kind));
            let result = self.try_delete(&target, &name).await;
            // Kubernetes before 1.36 does not serve the kind, and a chart without the right does not create it.
            if !matches!(result, Err(ApiError::Forbidden(_))) {
                self.record(&target, &name, result);
            }
        }
    }

    /// Deletes the pods that pull images.
    pub(super) async fn delete_pullers(&mut self) {
        match self.pullers().await {
            Ok(names) => {
                let pods = self.own(("", "Pod"));
                for name in names {
                    let result = self.delete_found(&pods, &name, &DeleteParams::default()).await;
                    self.record(&pods, &name, result);
                }
            }
            Err(why) => self.failed("Pod", "list", &why),
        }
    }

    /// The pods that pull images, by name.
    pub(super) async fn pullers(&self) -> Result<Vec<String>, ApiError> {
        let listing = Listing::new(Pod::url_path(&(), Some(&self.options.namespace)));
        let listing = listing.with_labels(PULLER_SELECTOR).metadata_only();
        let pods = collect::<PartialObjectMeta<Pod>>(self.client, listing).await?;
        Ok(pods.into_iter().filter_map(|pod| pod.metadata.name).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::test_client::answering;
    use crate::controller::cleanup::tests::installation;

    #[tokio::test]
    async fn what_sets_the_taint_and_the_pods_are_deleted_and_pools_that_set_it_are_named() {
        let client = answering(|_, uri, _| {
            let missing = json!({"kind": "Status", "code": 404, "message": "not found"});
            let pool = |name: &str, taint: &str| json!({"metadata": {"name": name}, "spec": {"template": {"spec": {"startupTaints": [{"key": taint}]}}}});
            let version = json!({"groupVersion": "karpenter.sh/v1", "version": "v1"});
            match uri.path() {
                "/apis" => (
                    200,
                    json!({"kind": "APIGroupList", "groups": [
                    {"name": "karpenter.sh", "versions": [version], "preferredVersion": version}]}),
                ),
                "/apis/karpenter.sh/v1/nodepools" => (
                    200,
                    json!({"metadata": {}, "items": [
                    pool("ours", Taint::STARTUP_KEY), pool("other", "cilium")]}),
                ),
                "/api/v1/namespaces/transom-system/pods" => (
                    200,
                    json!({"metadata": {}, "items": [{"metadata": {"name": "transom-pull-1"}}]}),
                ),
                path if path.ends_with("bindings/transom-startup-taint")
                    || path.ends_with("/pods/transom-pull-1") =>
                {
                    (200, json!({"kind": "Status", "status": "Success"}))
                }
                _ => (404, missing),
            }
        });
        let options = installation("transom");
        let mut cleanup = Cleanup::new(&client, &options, false);
        cleanup.stop_startup_taint().await;
        cleanup.delete_pullers().await;
        let report = cleanup.report;
        assert_eq!(
            report.done,
            [
                "MutatingAdmissionPolicyBinding transom-startup-taint deleted",
                "Pod transom-pull-1 deleted"
            ]
        );
        assert!(report.failures.is_empty(), "{report:?}");
        let named = still_set(&client, ["agentpool=win".to_owned()]).await.unwrap();
        assert!(named.contains(": NodePool ours, agentpool=win;"), "{named}");
        assert!(!named.contains("NodePool other"), "{named}");
    }

    #[tokio::test]
    async fn pods_that_must_not_be_listed_are_a_failure() {
        let client = answering(|_, _, _| {
            let message = "pods is forbidden";
            (403, json!({"kind": "Status", "code": 403, "message": message}))
        });
        let options = installation("transom");
        let mut cleanup = Cleanup::new(&client, &options, false);
        cleanup.delete_pullers().await;
        let failures = cleanup.report.failures;
        assert!(failures[0].contains("pods is forbidden"), "{failures:?}");
    }
}
