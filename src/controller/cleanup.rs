//! Removes Transom from a cluster: first its webhook configurations, so that the API server no longer waits for it,
//! then everything that it created. It works whether or not Transom is running, and can be repeated. A preview is the
//! same walk without its writes.

mod chart;
mod helm_hooks;
mod node_pools;
mod other_installations;
mod reports;
mod start_gate;
mod stop_leader;

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PartialObjectMeta, Preconditions};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

pub use self::chart::of_the_chart;
pub use self::helm_hooks::HOOKS;
use self::stop_leader::LeaderState;
use super::node_policies::revert::{RevertOptions, RevertReport, revert};
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::list::{Listing, collect};
use crate::cluster::revisions::POLICY_UID_LABEL;
use crate::model::text::list;
use crate::registration::configuration_name;

/// The label of everything that belongs to Transom's installation.
const OURS: &str = "app.kubernetes.io/name=transom";

/// The CustomResourceDefinitions.
const DEFINITIONS: [&str; 3] = [
    "windowspodpolicies.transom.dev",
    "windowsnodepolicies.transom.dev",
    "windowsnodepools.transom.dev",
];

/// How many nodes are named.
const NAMED: usize = 10;

/// The label of a Secret that the leader created.
const MADE_BY_LEADER: &str = "app.kubernetes.io/managed-by=transom";

/// What to remove.
#[derive(Clone, Debug)]
pub struct CleanupOptions {
    /// Transom's namespace.
    pub namespace: String,
    /// The name of the installation: both webhook configurations are named after it.
    pub name: String,
    /// The Lease of the leader.
    pub lease: String,
    /// The Secret of a self-managed certificate.
    pub certificate_secret: String,
    /// Keep the webhook configurations.
    pub keep_webhooks: bool,
    /// What stays on nodes, and whether RuntimeClasses stay.
    pub revert: RevertOptions,
    /// Delete the CustomResourceDefinitions too, and with them every policy.
    pub crds: bool,
    /// The namespace of `helm test`; `None`: what a failed test left is not deleted.
    pub test_namespace: Option<String>,
    /// The hook of the chart that this process runs as, one of [`HOOKS`]: its own objects stay.
    pub hook: Option<String>,
}

/// What was removed, and what could not be; in a preview, what would be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CleanupReport {
    /// What was removed, one line each.
    pub done: Vec<String>,
    /// What stays because something still uses it, and what to do.
    pub kept: Vec<String>,
    /// What still exists and may not be Transom's, with the command that removes it.
    pub left: Vec<String>,
    /// Requests that failed, and why.
    pub failures: Vec<String>,
    /// Whether the CustomResourceDefinitions stay, and with them every policy.
    pub keeps_definitions: bool,
}

/// Removes everything, in an order in which the API server never waits for a webhook that is gone. Continues after a
/// failed request. `report_progress` reports what the cleanup waits for.
pub async fn run(
    client: &Client,
    options: &CleanupOptions,
    report_progress: &dyn Fn(String),
) -> CleanupReport {
    Cleanup::new(client, options, false)
        .everything(report_progress)
        .await
}

/// Finds out what [`run`] would remove, without removing anything.
pub async fn preview(client: &Client, options: &CleanupOptions) -> CleanupReport {
    Cleanup::new(client, options, true).everything(&|_| ()).await
}

/// A cleanup in progress.
struct Cleanup<'a> {
    client: &'a Client,
    options: &'a CleanupOptions,
    /// Reads what exists, and writes nothing.
    is_preview: bool,
    report: CleanupReport,
}

impl<'a> Cleanup<'a> {
    fn new(client: &'a Client, options: &'a CleanupOptions, is_preview: bool) -> Self {
        Cleanup {
            client,
            options,
            is_preview,
            report: CleanupReport::default(),
        }
    }

    async fn everything(mut self, report_progress: &dyn Fn(String)) -> CleanupReport {
        self.steps(report_progress).await;
        self.report
    }

    async fn steps(&mut self, report_progress: &dyn Fn(String)) {
        let configuration = configuration_name(&self.options.name);
        if let Some(other) = self.other_namespace(&configuration).await {
            return self.report.failures.push(other);
        }
        if !self.options.keep_webhooks {
            let api = self.cluster::<MutatingWebhookConfiguration>();
            self.delete(&api, &configuration).await;
            let api = self.cluster::<ValidatingWebhookConfiguration>();
            self.delete(&api, &configuration).await;
        }
        match self.stop_controllers(report_progress).await {
            LeaderState::Gone => {}
            LeaderState::Unknown(why) => self.report.failures.push(why),
            // The leader would create again what the cleanup removes.
            LeaderState::Acts(why) => return self.report.failures.push(why),
        }
        let others = other_installations::others(self.client, &configuration).await;
        let others = others.unwrap_or_else(|why| {
            self.report.failures.push(why);
            Vec::new()
        });
        if others.is_empty() {
            report_progress(
                "removes Transom's labels and taints from nodes, and its RuntimeClasses".to_owned(),
            );
            self.stop_startup_taint().await;
            self.revert().await;
            self.delete_node_pools().await;
            reports::remove_reports(self.client, self.is_preview, &mut self.report).await;
        } else {
            let what = "the labels and taints of nodes, RuntimeClasses, node pools, and reports";
            self.report.kept.push(other_installations::kept(&others, what));
        }
        self.delete_in_namespace(&others).await;
        self.delete_left_by_hooks().await;
        self.delete_left_by_test().await;
        if !self.options.crds {
            self.report.keeps_definitions = self.has_definitions().await;
            return;
        }
        if !others.is_empty() {
            let what = "the CustomResourceDefinitions and the policies";
            return self.report.kept.push(other_installations::kept(&others, what));
        }
        let (api, before) = (self.cluster::<CustomResourceDefinition>(), self.report.done.len());
        for name in DEFINITIONS {
            self.delete(&api, name).await;
        }
        if self.is_preview && self.report.done.len() > before {
            self.report.done.push("every policy and node pool".to_owned());
        }
    }

    /// Whether one of the CustomResourceDefinitions exists; `true` in a removal by an account that may not read them. Those of the
    /// chart's Jobs may not.
    async fn has_definitions(&mut self) -> bool {
        if self.options.hook.is_some() {
            return true;
        }
        let api = self.cluster::<CustomResourceDefinition>();
        for name in DEFINITIONS {
            match answered(api.get_metadata(name)).await {
                Err(ApiError::NotFound) => {}
                Err(why) if self.is_preview => {
                    self.failed::<CustomResourceDefinition>(name, &why);
                    return false;
                }
                Ok(_) | Err(_) => return true,
            }
        }
        false
    }

    /// The problem if this installation is registered for a Service in another namespace: its leader would not be
    /// found in this one.
    async fn other_namespace(&self, configuration: &str) -> Option<String> {
        let api = self.cluster::<MutatingWebhookConfiguration>();
        let found = answered(api.get(configuration)).await.ok()?;
        let mut clients = found
            .webhooks
            .into_iter()
            .flatten()
            .map(|webhook| webhook.client_config);
        let namespace = clients.find_map(|client| client.service)?.namespace;
        let own = &self.options.namespace;
        (namespace != *own).then(|| {
            format!(
                "{configuration} belongs to Transom in the namespace {namespace}, not {own}: run this with --transom-namespace \
                 {namespace}"
            )
        })
    }

    /// Reverts the changes of the controllers on nodes, and deletes their RuntimeClasses.
    async fn revert(&mut self) {
        let RevertReport {
            nodes,
            runtime_classes,
            kept,
            dangling,
            left,
            gated_pools,
            failures,
        } = revert(self.client, self.options.revert, self.is_preview).await;
        let still_set = start_gate::still_set(self.client, gated_pools).await;
        self.report.left.extend(still_set);
        let removed = if self.is_preview { "" } else { " were removed" };
        let nodes = match nodes.as_slice() {
            [] => None,
            [name] => Some(format!("Node {name}: Transom's labels and taints{removed}")),
            nodes => Some(format!(
                "{} Nodes ({}): Transom's labels and taints{removed}",
                nodes.len(),
                list(nodes, NAMED)
            )),
        };
        let (classes, deleted) = (runtime_classes.into_iter(), self.deleted());
        let classes = classes.map(|name| format!("RuntimeClass {name}{deleted}"));
        let done = nodes.into_iter().chain(classes).chain(dangling);
        self.report.done.extend(done);
        self.report.kept.extend(kept);
        self.report.left.extend(left);
        self.report.failures.extend(failures);
    }

    /// Deletes what the controllers created in Transom's own namespace.
    async fn delete_in_namespace(&mut self, others: &[other_installations::Installation]) {
        let options = self.options;
        let secrets = self.own::<Secret>();
        self.delete(&secrets, &options.certificate_secret).await;
        // An older Secret may exist if the certificate now comes from another source; it contains the key of a CA.
        let by_default = format!("{}-certificates", options.name);
        if by_default != options.certificate_secret {
            self.delete_labelled(&secrets, &by_default, MADE_BY_LEADER).await;
        }
        // Every installation in the namespace shares these objects.
        if !others.iter().any(|other| other.is_in(&options.namespace)) {
            self.delete_revisions().await;
            self.delete_pullers().await;
        }
        self.delete(&self.own::<Lease>(), &options.lease).await;
    }

    /// Deletes the stored versions of policies.
    async fn delete_revisions(&mut self) {
        match self.revisions().await {
            Ok(revisions) if self.is_preview && !revisions.is_empty() => self.report.done.push(format!(
                "ControllerRevisions with earlier versions of policies: {}",
                revisions.len()
            )),
            Ok(revisions) => {
                let api = self.own::<ControllerRevision>();
                for name in revisions.into_iter().filter_map(|it| it.metadata.name) {
                    self.delete(&api, &name).await;
                }
            }
            Err(why) => self.failed::<ControllerRevision>("list", &why),
        }
    }

    /// The stored versions of policies.
    async fn revisions(&self) -> Result<Vec<PartialObjectMeta<ControllerRevision>>, ApiError> {
        let listing = Listing::new(self.own::<ControllerRevision>().resource_url());
        let listing = listing.with_labels(POLICY_UID_LABEL).metadata_only();
        collect(self.client, listing).await
    }

    fn cluster<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    fn own<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.options.namespace)
    }

    async fn delete<K>(&mut self, api: &Api<K>, name: &str)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        self.delete_with(api, name, &DeleteParams::default()).await;
    }

    /// Deletes an object only if it carries this label (`key=value`): another object of that name is not Transom's.
    async fn delete_labelled<K>(&mut self, api: &Api<K>, name: &str, label: &str)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        let found = match answered(api.get_metadata(name)).await {
            Ok(found) => found.metadata,
            Err(ApiError::NotFound) => return,
            Err(why) => return self.failed::<K>(name, &why),
        };
        let labels = found.labels.unwrap_or_default();
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        if labels.get(key).is_some_and(|is| is == value) {
            let seen = Preconditions {
                uid: found.uid,
                ..Preconditions::default()
            };
            // Background propagation, so that the pods of a Job are deleted too.
            let params = DeleteParams::background().preconditions(seen);
            self.delete_with(api, name, &params).await;
        }
    }

    async fn delete_with<K>(&mut self, api: &Api<K>, name: &str, params: &DeleteParams)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        let result = if self.is_preview {
            answered(api.get_metadata(name)).await.map(drop)
        } else {
            answered(api.delete(name, params)).await.map(drop)
        };
        let deleted = self.deleted();
        match result {
            Ok(()) => (self.report.done).push(format!("{} {name}{deleted}", K::kind(&()))),
            Err(ApiError::NotFound) => {}
            Err(why) => self.failed::<K>(name, &why),
        }
    }

    /// The end of a line about a deleted object: a preview deletes none.
    fn deleted(&self) -> &'static str {
        if self.is_preview { "" } else { " deleted" }
    }

    fn failed<K: Resource<DynamicType = ()>>(&mut self, name: &str, why: &ApiError) {
        self.report
            .failures
            .push(format!("{} {name}: {why}", K::kind(&())));
    }
}

#[cfg(test)]
mod tests {
    use hyper::Method;
    use serde_json::json;

    use super::*;
    use crate::cluster::test_client::answering;

    /// Everything of an installation with this name, except the definitions.
    pub(super) fn installation(name: &str) -> CleanupOptions {
        CleanupOptions {
            namespace: "transom-system".to_owned(),
            name: name.to_owned(),
            lease: name.to_owned(),
            certificate_secret: format!("{name}-certificates"),
            keep_webhooks: false,
            revert: RevertOptions::default(),
            crds: false,
            test_namespace: None,
            hook: None,
        }
    }

    #[tokio::test]
    async fn a_preview_names_what_exists_and_only_reads() {
        let client = answering(|method, uri, _| {
            assert_eq!(method, Method::GET, "{uri}");
            let labels =
                json!({"app.kubernetes.io/name": "transom", "app.kubernetes.io/managed-by": "transom"});
            let metadata =
                json!({"name": "x", "namespace": "n", "uid": "u", "resourceVersion": "1", "labels": labels});
            let items = json!([{"metadata": metadata, "spec": {}}]);
            (
                200,
                json!({"metadata": metadata, "spec": {"replicas": 1}, "items": items}),
            )
        });
        let mut options = installation("transom");
        options.certificate_secret = "other".to_owned();
        options.crds = true;
        options.test_namespace = Some("default".to_owned());
        let report = preview(&client, &options).await;
        assert_eq!((&report.failures, &report.left), (&Vec::new(), &Vec::new()));
        for line in [
            "MutatingWebhookConfiguration zz-transom",
            "Deployment transom scaled to 0",
            "1 WindowsNodePools (x)",
            "ControllerRevisions with earlier versions of policies: 1",
            "Secret transom-certificates",
            "Job transom-pre-upgrade",
            "RoleBinding transom-test",
            "CustomResourceDefinition windowspodpolicies.transom.dev",
            "every policy and node pool",
        ] {
            assert!(report.done.iter().any(|it| it == line), "{line}\n{report:#?}");
        }
        assert!(!report.keeps_definitions);
    }

    #[tokio::test]
    async fn the_definitions_are_kept_only_if_they_exist() {
        for (code, are_kept, failures) in [(200, true, 0), (403, false, 1), (404, false, 0)] {
            let client = answering(move |_, uri, _| {
                let code = if uri.path().contains("customresourcedefinitions") {
                    code
                } else {
                    404
                };
                (
                    code,
                    json!({"kind": "Status", "code": code, "metadata": {"name": "x"}}),
                )
            });
            let report = preview(&client, &installation("transom")).await;
            let unseen = report.failures.iter();
            let unseen = unseen.filter(|it| it.starts_with("CustomResourceDefinition "));
            assert_eq!(
                (report.keeps_definitions, unseen.count()),
                (are_kept, failures),
                "{code}"
            );
        }
    }
}
