//! What a removal would remove, without removing anything.

use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::other_installations::Installation;
use super::start_gate::still_set;
use super::{
    Cleanup, CleanupOptions, CleanupReport, DEFINITIONS, HOOKS, NAMED, helm_hooks, other_installations,
};
use crate::cluster::errors::{ApiError, answered};
use crate::controller::node_policies::nodes::plan::KeepOptions;
use crate::controller::node_policies::pod_references::{PodReferences, ReferencesError};
use crate::controller::node_policies::revert::{OurNodes, dangling, our_classes, references};
use crate::controller::reports::{ReportApi, count};
use crate::model::text::list;
use crate::registration::configuration_name;

/// What would be removed, what would stay, and what this user cannot see.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CleanupPreview {
    /// What would be removed, one line each.
    pub removed: Vec<String>,
    /// What would stay, and why.
    pub stays: Vec<String>,
    /// What cannot be read, and why.
    pub unseen: Vec<String>,
}

/// Finds out what [`super::run`] would remove.
pub async fn preview(client: &Client, options: &CleanupOptions) -> CleanupPreview {
    let cleanup = Cleanup {
        client,
        options,
        report: CleanupReport::default(),
    };
    let mut preview = CleanupPreview::default();
    cleanup.preview(&mut preview).await;
    preview
}

impl Cleanup<'_> {
    async fn preview(&self, preview: &mut CleanupPreview) {
        let options = self.options;
        let configuration = configuration_name(&options.name);
        if let Some(other) = self.other_namespace(&configuration).await {
            return preview.unseen.push(other);
        }
        self.preview_webhooks(&configuration, preview).await;
        let scaled = "scaled to 0";
        preview
            .record(&self.own::<Deployment>(), &options.name, scaled)
            .await;
        let others = other_installations::others(self.client, &configuration).await;
        let others = others.unwrap_or_else(|why| {
            preview.unseen.push(why);
            Vec::new()
        });
        if others.is_empty() {
            self.preview_reverted(preview).await;
            self.preview_node_pools(preview).await;
            self.preview_reports(preview).await;
        } else {
            let what = "the labels and taints of nodes, RuntimeClasses, node pools, and reports";
            preview.stays.push(other_installations::kept(&others, what));
        }
        self.preview_own_namespace(&others, preview).await;
        self.preview_hooks(preview).await;
        self.preview_definitions(&others, preview).await;
    }

    async fn preview_webhooks(&self, configuration: &str, preview: &mut CleanupPreview) {
        if self.options.keep_webhooks {
            return preview.stays.push("the webhook configurations".to_owned());
        }
        let api = self.cluster::<MutatingWebhookConfiguration>();
        preview.record(&api, configuration, "").await;
        let api = self.cluster::<ValidatingWebhookConfiguration>();
        preview.record(&api, configuration, "").await;
    }

    async fn preview_own_namespace(&self, others: &[Installation], preview: &mut CleanupPreview) {
        let options = self.options;
        let secrets = self.own::<Secret>();
        preview.record(&secrets, &options.certificate_secret, "").await;
        if !others.iter().any(|other| other.is_in(&options.namespace)) {
            self.preview_revisions(preview).await;
            match self.pullers().await {
                Ok(pods) if pods.is_empty() => {}
                Ok(pods) => preview
                    .removed
                    .push(format!("pods that pull images: {}", pods.len())),
                Err(why) => preview.unseen.push(format!("pods: {why}")),
            }
        }
        preview.record(&self.own::<Lease>(), &options.lease, "").await;
    }

    /// What hooks of the chart and its test left.
    async fn preview_hooks(&self, preview: &mut CleanupPreview) {
        let options = self.options;
        for hook in HOOKS {
            let name = format!("{}-{hook}", options.name);
            let jobs = self.own::<Job>();
            preview
                .record(&jobs, &name, "with its account and permissions")
                .await;
        }
        if let Some(namespace) = &options.test_namespace {
            let bindings = Api::<RoleBinding>::namespaced(self.client.clone(), namespace);
            let how = "with the other objects of a failed helm test";
            preview
                .record(&bindings, &helm_hooks::test_name(options), how)
                .await;
        }
    }

    async fn preview_definitions(&self, others: &[Installation], preview: &mut CleanupPreview) {
        if !self.options.crds {
            let stays = "the policies and their CustomResourceDefinitions (--crds removes them)";
            return preview.stays.push(stays.to_owned());
        }
        if !others.is_empty() {
            let what = "the CustomResourceDefinitions and the policies";
            return preview.stays.push(other_installations::kept(others, what));
        }
        let api = self.cluster::<CustomResourceDefinition>();
        for name in DEFINITIONS {
            preview.record(&api, name, "with every object of its kind").await;
        }
    }

    async fn preview_revisions(&self, preview: &mut CleanupPreview) {
        match self.revisions().await {
            Ok(revisions) if revisions.is_empty() => {}
            Ok(revisions) => preview.removed.push(format!(
                "ControllerRevisions with earlier versions of policies: {}",
                revisions.len()
            )),
            Err(why) => preview.unseen.push(format!("controllerrevisions: {why}")),
        }
    }

    /// What is reverted on nodes, and the RuntimeClasses, with the objects that still name them.
    async fn preview_reverted(&self, preview: &mut CleanupPreview) {
        let options = self.options.revert;
        let nodes = OurNodes::read(self.client).await;
        preview.unseen.extend(nodes.failures.iter().cloned());
        let classes = if options.keep_runtime_classes {
            preview.stays.push("the RuntimeClasses".to_owned());
            Vec::new()
        } else {
            our_classes(self.client).await.unwrap_or_else(|why| {
                preview.unseen.push(format!("RuntimeClasses: {why}"));
                Vec::new()
            })
        };
        preview.removed.extend(marked(&nodes, options.on_nodes));
        let still_set = still_set(self.client, nodes.gated_pools.clone()).await;
        preview.stays.extend(still_set);
        let removes_labels = !options.on_nodes.labels && nodes.have_mirror_label();
        if !removes_labels && classes.is_empty() {
            return;
        }
        let references = references(self.client).await;
        if removes_labels {
            preview.removed.extend(dangling(&references));
        }
        preview.runtime_classes(&classes, references);
    }

    async fn preview_reports(&self, preview: &mut CleanupPreview) {
        for report_api in ReportApi::ALL {
            match count(self.client, report_api).await {
                Ok(0) | Err(ApiError::NotFound) => {}
                Ok(reports) => preview
                    .removed
                    .push(format!("{reports} {} of {report_api}", report_api.plural())),
                Err(why) => preview
                    .unseen
                    .push(format!("{} of {report_api}: {why}", report_api.plural())),
            }
        }
    }
}

/// What is removed from the nodes; `None` if they carry nothing of Transom's.
fn marked(nodes: &OurNodes, keep: KeepOptions) -> Option<String> {
    let what = match (keep.labels, keep.taints) {
        (false, false) => "labels and taints",
        (true, false) => "taints",
        (false, true) => "labels",
        (true, true) => "the annotation",
    };
    let marked = &nodes.marked;
    let names = list(marked.iter().map(|node| &node.name), NAMED);
    (!marked.is_empty()).then(|| format!("{what} of Transom on nodes: {} ({names})", marked.len()))
}

impl CleanupPreview {
    /// Notes the RuntimeClasses that nothing names, and those that stay.
    fn runtime_classes(
        &mut self,
        classes: &[RuntimeClass],
        references: Result<PodReferences, ReferencesError>,
    ) {
        let names = classes.iter().filter_map(|class| class.metadata.name.as_deref());
        let references = references.unwrap_or_else(|error| {
            if !classes.is_empty() {
                self.unseen.push(format!("what names RuntimeClasses: {error}"));
            }
            PodReferences::none()
        });
        let (used, unused): (Vec<&str>, Vec<&str>) =
            names.partition(|name| references.classes.contains_key(*name));
        if !unused.is_empty() {
            self.removed.push(format!(
                "RuntimeClasses that nothing names: {} ({})",
                unused.len(),
                list(&unused, NAMED)
            ));
        }
        for name in used {
            let users = references.classes.get(name).map(ToString::to_string);
            self.stays.push(format!(
                "RuntimeClass {name}, which is used by {}: remove runtimeClassName there",
                users.unwrap_or_default()
            ));
        }
    }

    /// Notes an object if it exists.
    async fn record<K>(&mut self, api: &Api<K>, name: &str, how: &str)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        let kind = K::kind(&());
        let how = if how.is_empty() {
            String::new()
        } else {
            format!(", {how}")
        };
        match answered(api.get_metadata(name)).await {
            Ok(_) => self.removed.push(format!("{kind} {name}{how}")),
            Err(ApiError::NotFound) => {}
            Err(why) => self.unseen.push(format!("{kind} {name}: {why}")),
        }
    }
}
