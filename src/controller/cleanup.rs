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

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PartialObjectMeta, Preconditions,
};
use kube::{Api, Client};

pub use self::chart::of_the_chart;
pub use self::helm_hooks::HOOKS;
use self::stop_leader::LeaderState;
use super::node_policies::revert::{RevertOptions, RevertReport, revert};
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::list::{Listing, collect};
use crate::cluster::node::OWNED_LABEL;
use crate::cluster::policy_revisions::POLICY_UID_LABEL;
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::syntax::text::list;
use crate::registration::configuration_name;

/// The label of everything that belongs to Transom's installation.
const OURS: &str = "app.kubernetes.io/name=transom";

/// The API group of webhook configurations and admission policies.
const ADMISSION: &str = "admissionregistration.k8s.io";
/// Stored versions of policies.
const REVISION: (&str, &str) = ("apps", "ControllerRevision");
/// The kind of [`DEFINITIONS`].
const DEFINITION: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");
/// The CustomResourceDefinitions.
const DEFINITIONS: [&str; 3] = [
    "windowspodpolicies.transom.dev",
    "windowsnodepolicies.transom.dev",
    "windowsnodepools.transom.dev",
];

/// How many nodes are named.
const NAMED: usize = 10;

/// What a cleanup removes, and what it keeps.
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
    /// The custom resources that the installation evaluates in addition to the built-in ones.
    pub pod_templates: Vec<ConfiguredKind>,
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
/// failed request. `report_progress` reports what the cleanup waits for. `is_preview`: it finds out what would be removed,
/// without removing anything.
pub async fn run(
    client: &Client,
    options: &CleanupOptions,
    is_preview: bool,
    report_progress: &dyn Fn(String),
) -> CleanupReport {
    let mut cleanup = Cleanup::new(client, options, is_preview);
    cleanup.steps(report_progress).await;
    cleanup.report
}

/// The objects of one kind, in the cluster or in a namespace.
struct Target {
    kind: &'static str,
    api: Api<DynamicObject>,
}

impl Target {
    /// `namespace`: of a namespaced kind.
    fn new(client: &Client, (group, kind): (&str, &'static str), namespace: Option<&str>) -> Self {
        let version = if group == "transom.dev" { "v1alpha1" } else { "v1" };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        Target { kind, api }
    }
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

    async fn steps(&mut self, report_progress: &dyn Fn(String)) {
        let configuration = configuration_name(&self.options.name);
        if let Some(other) = self.other_namespace(&configuration).await {
            return self.report.failures.push(other);
        }
        if !self.options.keep_webhooks {
            for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
                self.delete(&self.cluster((ADMISSION, kind)), &configuration)
                    .await;
            }
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
        if self.options.hook.is_none() {
            self.delete_orphans_of_the_chart(!others.is_empty()).await;
        }
        if !self.options.crds {
            self.report.keeps_definitions = self.has_definitions().await;
            return;
        }
        if !others.is_empty() {
            let what = "the CustomResourceDefinitions and the policies";
            return self.report.kept.push(other_installations::kept(&others, what));
        }
        let (definitions, before) = (self.cluster(DEFINITION), self.report.done.len());
        for name in DEFINITIONS {
            self.delete(&definitions, name).await;
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
        let definitions = self.cluster(DEFINITION);
        for name in DEFINITIONS {
            match answered(definitions.api.get_metadata(name)).await {
                Err(ApiError::NotFound) => {}
                Err(why) if self.is_preview => {
                    self.failed(definitions.kind, name, &why);
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
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
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
        } = revert(
            self.client,
            self.options.revert,
            &self.options.pod_templates,
            self.is_preview,
        )
        .await;
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
        let secrets = self.own(("", "Secret"));
        self.delete(&secrets, &options.certificate_secret).await;
        // An older Secret may exist if the certificate now comes from another source; it contains the key of a CA.
        let by_default = format!("{}-certificates", options.name);
        if by_default != options.certificate_secret {
            let owned = format!("{}={}", OWNED_LABEL.0, OWNED_LABEL.1);
            self.delete_labelled(&secrets, &by_default, &owned).await;
        }
        // Every installation in the namespace shares these objects.
        if !others.iter().any(|other| other.is_in(&options.namespace)) {
            self.delete_policy_revisions().await;
            self.delete_pullers().await;
        }
        let leases = self.own(("coordination.k8s.io", "Lease"));
        self.delete(&leases, &options.lease).await;
    }

    /// Deletes the stored versions of policies.
    async fn delete_policy_revisions(&mut self) {
        match self.policy_revisions().await {
            Ok(revisions) if self.is_preview && !revisions.is_empty() => self.report.done.push(format!(
                "ControllerRevisions with earlier versions of policies: {}",
                revisions.len()
            )),
            Ok(revisions) => {
                let stored = self.own(REVISION);
                for name in revisions.into_iter().filter_map(|it| it.metadata.name) {
                    self.delete(&stored, &name).await;
                }
            }
            Err(why) => self.failed(REVISION.1, "list", &why),
        }
    }

    /// The stored versions of policies.
    async fn policy_revisions(&self) -> Result<Vec<PartialObjectMeta<DynamicObject>>, ApiError> {
        let listing = Listing::new(self.own(REVISION).api.resource_url());
        let listing = listing.with_labels(POLICY_UID_LABEL).metadata_only();
        collect(self.client, listing).await
    }

    fn cluster(&self, kind: (&str, &'static str)) -> Target {
        Target::new(self.client, kind, None)
    }

    /// The objects of a kind in Transom's namespace.
    fn own(&self, kind: (&str, &'static str)) -> Target {
        Target::new(self.client, kind, Some(&self.options.namespace))
    }

    async fn delete(&mut self, target: &Target, name: &str) {
        let result = self.try_delete(target, name).await;
        self.record(target, name, result);
    }

    /// Deletes an object only if it carries this label (`key=value`): another object of that name is not Transom's.
    async fn delete_labelled(&mut self, target: &Target, name: &str, label: &str) {
        let found = match answered(target.api.get_metadata(name)).await {
            Ok(found) => found.metadata,
            Err(ApiError::NotFound) => return,
            Err(why) => return self.failed(target.kind, name, &why),
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
            let result = self.delete_found(target, name, &params).await;
            self.record(target, name, result);
        }
    }

    /// Deletes an object; in a preview, only asks whether it exists.
    async fn try_delete(&self, target: &Target, name: &str) -> Result<(), ApiError> {
        if self.is_preview {
            return answered(target.api.get_metadata(name)).await.map(drop);
        }
        self.delete_found(target, name, &DeleteParams::default()).await
    }

    /// Deletes an object that was read or listed; a preview need not ask for it again.
    async fn delete_found(&self, target: &Target, name: &str, params: &DeleteParams) -> Result<(), ApiError> {
        if self.is_preview {
            return Ok(());
        }
        answered(target.api.delete(name, params)).await.map(drop)
    }

    fn record(&mut self, target: &Target, name: &str, result: Result<(), ApiError>) {
        let deleted = self.deleted();
        match result {
            Ok(()) => (self.report.done).push(format!("{} {name}{deleted}", target.kind)),
            Err(ApiError::NotFound | ApiError::NamespaceNotFound(_)) => {}
            Err(why) => self.failed(target.kind, name, &why),
        }
    }

    /// The end of a line about a deleted object: a preview deletes none.
    fn deleted(&self) -> &'static str {
        if self.is_preview { "" } else { " deleted" }
    }

    fn failed(&mut self, kind: &str, name: &str, why: &ApiError) {
        self.report.failures.push(format!("{kind} {name}: {why}"));
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
            pod_templates: Vec::new(),
            crds: false,
            test_namespace: None,
            hook: None,
        }
    }

    #[tokio::test]
    async fn a_preview_names_what_exists_and_only_reads() {
        let client = answering(|method, uri, _| {
            assert_eq!(method, Method::GET, "{uri}");
            let labels = json!({"app.kubernetes.io/name": "transom", "transom.dev/owned": "true"});
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
        let report = run(&client, &options, true, &|_| ()).await;
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
            let report = run(&client, &installation("transom"), true, &|_| ()).await;
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
