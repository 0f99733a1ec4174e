//! What a removal would remove, without removing anything.

use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::{Cleanup, CleanupOptions, CleanupReport, HOOKS, NAMED, helm_hooks, other_installations};
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::list::{Listing, NODES_PATH, collect, for_each_as};
use crate::cluster::node::{NodeView, WatchedNode};
use crate::cluster::pool_history::NODE_POOLS_CONFIG_MAP;
use crate::controller::node_policies::runtime_classes::OwnedClass;
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
        if options.keep_webhooks {
            preview.stays.push("the webhook configurations".to_owned());
        } else {
            let api = self.cluster::<MutatingWebhookConfiguration>();
            preview.record(&api, &configuration, "").await;
            let api = self.cluster::<ValidatingWebhookConfiguration>();
            preview.record(&api, &configuration, "").await;
        }
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
            self.preview_nodes(preview).await;
            self.preview_runtime_classes(preview).await;
            self.preview_reports(preview).await;
        } else {
            let what = "the labels and taints of nodes, RuntimeClasses, and reports";
            preview.stays.push(other_installations::kept(&others, what));
        }
        preview
            .record(&self.own::<Secret>(), &options.certificate_secret, "")
            .await;
        if !others.iter().any(|other| other.is_in(&options.namespace)) {
            preview
                .record(&self.own::<ConfigMap>(), NODE_POOLS_CONFIG_MAP, "")
                .await;
            self.preview_revisions(preview).await;
        }
        preview.record(&self.own::<Lease>(), &options.lease, "").await;
        for hook in HOOKS {
            let name = format!("{}-{hook}", options.name);
            preview
                .record(&self.own::<Job>(), &name, "with its account and permissions")
                .await;
        }
        if let Some(namespace) = &options.test_namespace {
            let bindings = Api::<RoleBinding>::namespaced(self.client.clone(), namespace);
            let how = "with the other objects of a failed helm test";
            preview
                .record(&bindings, &helm_hooks::test_name(options), how)
                .await;
        }
        if !options.crds {
            preview
                .stays
                .push("the policies and their CustomResourceDefinitions (--crds removes them)".to_owned());
        } else if others.is_empty() {
            let api = self.cluster::<CustomResourceDefinition>();
            for name in [
                "windowspodpolicies.transom.dev",
                "windowsnodepolicies.transom.dev",
            ] {
                preview.record(&api, name, "with every policy").await;
            }
        } else {
            let what = "the CustomResourceDefinitions and the policies";
            preview.stays.push(other_installations::kept(&others, what));
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

    async fn preview_nodes(&self, preview: &mut CleanupPreview) {
        let keep = self.options.revert.on_nodes;
        let mut marked = Vec::new();
        let read = |node: WatchedNode, _: &str| {
            let node = NodeView::from(node);
            marked.extend(node.is_marked().then_some(node.name));
        };
        let mut unreadable = Vec::new();
        let note = |name: &str, error: &serde_json::Error| unreadable.push(format!("node {name}: {error}"));
        let listed = for_each_as(self.client, Listing::new(NODES_PATH), read, note).await;
        preview.unseen.append(&mut unreadable);
        if let Err(error) = listed {
            preview.unseen.push(format!("nodes: {}", error.why));
        }
        if marked.is_empty() {
            return;
        }
        let what = match (keep.labels, keep.taints) {
            (false, false) => "labels and taints",
            (true, false) => "taints",
            (false, true) => "labels",
            (true, true) => "the annotation",
        };
        preview.removed.push(format!(
            "{what} of Transom on nodes: {} ({})",
            marked.len(),
            list(&marked, NAMED)
        ));
    }

    async fn preview_runtime_classes(&self, preview: &mut CleanupPreview) {
        if self.options.revert.keep_runtime_classes {
            return preview.stays.push("the RuntimeClasses".to_owned());
        }
        let listing = Listing::new(self.cluster::<RuntimeClass>().resource_url());
        match collect::<RuntimeClass>(self.client, listing).await {
            Ok(classes) => {
                let ours = (classes.into_iter()).filter(|class| OwnedClass::of(class).is_some());
                let names: Vec<String> = ours.filter_map(|class| class.metadata.name).collect();
                if !names.is_empty() {
                    preview.removed.push(format!(
                        "RuntimeClasses that nothing names: {} ({})",
                        names.len(),
                        list(&names, NAMED)
                    ));
                }
            }
            Err(why) => preview.unseen.push(format!("RuntimeClasses: {why}")),
        }
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

impl CleanupPreview {
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
