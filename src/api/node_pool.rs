//! `WindowsNodePool`: a pool of Windows nodes that may be at zero nodes, declared by a user or seen by the leader.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field_error::{FieldError, place};
use super::pod_policy::PoolTaint;
use super::schema;
use crate::model::nodes::extended_resources::OfferedResources;
use crate::model::nodes::node::{Host, LABELS_OF_EVERY_NODE, Taint};
use crate::model::windows::build::Build;

/// Which nodes belong to the pool, and the node that an autoscaler would add to it.
#[derive(CustomResource, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[kube(
    group = "transom.dev",
    version = "v1alpha1",
    kind = "WindowsNodePool",
    plural = "windowsnodepools",
    shortname = "wnpool",
    category = "transom",
    status = "WindowsNodePoolStatus",
    derive = "PartialEq",
    doc = "A pool of Windows nodes, which placement and plans consider while it has no nodes. Pools are inventory and never \
           evidence that a pod is for Windows. Transom creates one, with the label transom.dev/owned, \
           for each value of a pool label that it sees on Windows nodes, and deletes it 90 days after its last node; \
           remove the label to take it over, and delete the object to forget the pool."
)]
#[kube(printcolumn = r#"{"name": "Build", "type": "string", "jsonPath": ".spec.template.build"}"#)]
#[kube(printcolumn = r#"{"name": "Nodes", "type": "integer", "jsonPath": ".status.nodeCount"}"#)]
#[kube(printcolumn = r#"{"name": "Last-Seen", "type": "date", "jsonPath": ".status.lastSeenTime"}"#)]
#[kube(
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"}"#
)]
#[kube(
    printcolumn = r#"{"name": "Origin", "type": "string", "description": "The tool that created it: transom for a pool that was seen in the cluster", "jsonPath": ".metadata.labels.app\\.kubernetes\\.io/managed-by"}"#
)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.template) || !has(self.template.labels) || self.nodeSelector.matchLabels.all(key, \
             !(key in self.template.labels) || self.template.labels[key] == self.nodeSelector.matchLabels[key])",
    "message": schema::TEMPLATE_LABELS,
    "fieldPath": ".template.labels",
}]))]
pub struct WindowsNodePoolSpec {
    /// Selects the nodes of the pool.
    pub node_selector: PoolSelector,
    /// The node that an autoscaler would add to the pool.
    #[serde(default)]
    pub template: PoolTemplate,
}

/// The labels of a pool's nodes.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolSelector {
    /// Labels that all nodes of the pool have, and that an autoscaler knows before a node exists: usually the label with
    /// the name of the pool. For all nodes of a build: node.kubernetes.io/windows-build.
    #[schemars(schema_with = "schema::selector_labels")]
    pub match_labels: BTreeMap<String, String>,
}

/// The node that an autoscaler would add to the pool.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PoolTemplate {
    /// Its build, such as 10.0.20348.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::build")]
    pub build: Option<String>,
    /// More of its labels that the autoscaler knows before the node exists. If the build label is not among them,
    /// placement also lets pods select nodes by the labels of the pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "value", "effect"])
    )]
    pub taints: Vec<PoolTaint>,
    /// Extended resources that it offers each pod, such as vpc.amazonaws.com/PrivateIPv4Address on EKS.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(min = 1, max = 316), regex(pattern = schema::EXTENDED_RESOURCE)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub extended_resources: Vec<String>,
}

/// What Transom sees of the pool. It is written at most once a minute.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowsNodePoolStatus {
    /// The metadata.generation that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions, by type: Accepted and Ready.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// How many Windows nodes it has now.
    pub node_count: i32,
    /// The builds of its nodes, the oldest first. One that none of them runs any more stays for 7 days, or for as long as the
    /// pool has no nodes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub builds: Vec<PoolBuild>,
    /// When a node of it was last seen. While it has nodes, this is at most about an hour old.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_seen_time: Option<Time>,
}

/// A build of a pool's nodes.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolBuild {
    /// The build, such as 10.0.20348.
    pub build: String,
    /// Its release, such as ltsc2022.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// How many nodes run it now.
    pub node_count: i32,
    /// When a node with it was last seen. While there is one, this is at most about an hour old.
    #[schemars(schema_with = "schema::time")]
    pub last_seen_time: Time,
}

impl WindowsNodePoolSpec {
    /// The pool as a host that may be at zero, without what of it cannot be used, which is named.
    pub fn host(&self, name: &str) -> (Host, Vec<FieldError>) {
        let template = &self.template;
        let (written, mut problems) = (template.build.as_deref(), Vec::new());
        let build = written.and_then(Build::parse_label);
        if let (Some(text), None) = (written, build) {
            let path = place(&["spec", "template", "build"]);
            let message = format!("\"{text}\" is not a build; write it as in 10.0.20348");
            problems.push(FieldError::at(path, &message));
        }
        let selected = &self.node_selector.match_labels;
        if selected.is_empty() {
            let path = place(&["spec", "nodeSelector", "matchLabels"]);
            problems.push(FieldError::at(
                path,
                "name at least one label of the pool's nodes",
            ));
        }
        let differs =
            |(key, value): (&String, &String)| template.labels.get(key).is_some_and(|is| is != value);
        if selected.iter().any(differs) {
            let path = place(&["spec", "template", "labels"]);
            problems.push(FieldError::at(path, schema::TEMPLATE_LABELS));
        }
        let mut labels = template.labels.clone();
        // Every kubelet sets the others: they say nothing of what an autoscaler knows.
        let known = selected
            .iter()
            .filter(|(key, _)| !LABELS_OF_EVERY_NODE.contains(&key.as_str()));
        labels.extend(known.map(|(key, value)| (key.clone(), value.clone())));
        let host = Host {
            name: name.to_owned(),
            build,
            taints: template.taints.iter().map(Taint::from).collect(),
            labels: labels.into(),
            offered: OfferedResources::of_pool(template.extended_resources.iter().map(String::as_str)),
            may_be_at_zero: true,
            ..Host::default()
        };
        (host, problems)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::nodes::node::PRIVATE_IPV4_RESOURCE;

    fn host(spec: serde_json::Value) -> (Host, Vec<String>) {
        let spec: WindowsNodePoolSpec = serde_json::from_value(spec).unwrap();
        let (host, problems) = spec.host("win");
        (
            host,
            problems.into_iter().map(|problem| problem.message).collect(),
        )
    }

    #[test]
    fn a_pool_is_a_host_with_the_labels_of_selector_and_template() {
        let (host, problems) = host(json!({
            "nodeSelector": {"matchLabels": {"agentpool": "win"}},
            "template": {"build": "10.0.20348", "labels": {"team": "a"}, "taints": [{"key": "os", "value": "windows"}],
                "extendedResources": [PRIVATE_IPV4_RESOURCE]},
        }));
        assert!(problems.is_empty(), "{problems:?}");
        let labels: Vec<_> = host.labels.iter().collect();
        assert_eq!(labels, [("agentpool", "win"), ("team", "a")]);
        assert_eq!((host.build, host.may_be_at_zero), (Some(Build::new(20348)), true));
        assert_eq!(host.taints, [Taint::no_schedule("os", "windows")]);
        assert!(host.offered.contains(PRIVATE_IPV4_RESOURCE));
    }

    #[test]
    fn a_label_that_every_kubelet_sets_selects_nodes_and_is_not_what_an_autoscaler_knows() {
        let build = json!({"node.kubernetes.io/windows-build": "10.0.20348"});
        let template = json!({"build": "10.0.20348"});
        let (pool, _) = host(json!({"nodeSelector": {"matchLabels": build}, "template": template}));
        assert_eq!(pool.labels.iter().count(), 0);
        let template = json!({"build": "10.0.20348", "labels": build});
        let (pool, _) = host(json!({"nodeSelector": {"matchLabels": build}, "template": template}));
        assert_eq!(
            pool.labels.iter().count(),
            1,
            "the author says that the autoscaler knows it"
        );
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_place() {
        let (host, problems) = host(json!({
            "nodeSelector": {"matchLabels": {"agentpool": "win"}},
            "template": {"build": "ltsc2022", "labels": {"agentpool": "other"}},
        }));
        assert_eq!(
            problems,
            [
                "spec.template.build: \"ltsc2022\" is not a build; write it as in 10.0.20348",
                "spec.template.labels: a label differs from the one in nodeSelector.matchLabels, so the pool would not select its \
                 own nodes",
            ]
        );
        assert_eq!((host.build, host.labels.get("agentpool")), (None, Some("win")));
    }
}
