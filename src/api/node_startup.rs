//! `startup` of a `WindowsNodePolicy`: when a new node is ready for its work, and what its status says about it.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use crate::model::syntax::json_types::Quantity;

/// Which images a new node must have before Transom removes its startup taint.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.imageSource != 'Listed' || (has(self.images) && size(self.images) > 0)",
    "message": "imageSource: Listed needs at least one image in images",
    "fieldPath": ".images",
}]))]
pub struct NodeStartup {
    /// Workloads: the images of the workloads whose pods can run on the node, and those in images. Listed: those in images.
    pub image_source: StartupImageSource,
    /// Images to wait for, as workloads write them; they come first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 512), regex(pattern = "^[!-~]+$")),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub images: Vec<String>,
    /// The most compressed bytes of images of workloads, such as 20Gi, as far as registries report sizes; the rest is not
    /// waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub max_image_size: Option<IntOrString>,
    /// How long after its creation a node gets pods in any case. The cluster autoscaler gives a node up after 15 minutes.
    #[schemars(range(min = 10, max = 86400))]
    pub timeout_seconds: i32,
    /// How many nodes of the policy pull at a time if puller is Pods.
    #[schemars(range(min = 1, max = 5000))]
    pub max_concurrent_nodes: i32,
    /// What pulls the images: Pods are created by Transom in its own namespace; None waits for images that something else
    /// pulls.
    pub puller: ImagePuller,
    /// Secrets in Transom's own namespace that the pods pull with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pull_secrets: Vec<PullSecretName>,
}

impl Default for NodeStartup {
    fn default() -> Self {
        NodeStartup {
            image_source: StartupImageSource::default(),
            images: Vec::new(),
            max_image_size: None,
            timeout_seconds: 780,
            max_concurrent_nodes: 10,
            puller: ImagePuller::default(),
            pull_secrets: Vec::new(),
        }
    }
}

impl NodeStartup {
    /// How long after its creation a node is released in any case.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.timeout_seconds).unwrap_or_default())
    }

    /// How many nodes pull at a time.
    pub fn slots(&self) -> usize {
        usize::try_from(self.max_concurrent_nodes).unwrap_or_default()
    }

    /// Whether a node waits for the images of workloads.
    pub fn waits_for_workloads(&self) -> bool {
        self.image_source == StartupImageSource::Workloads
    }

    /// The most compressed bytes; `None` if the policy sets no limit.
    pub fn byte_limit(&self) -> Option<u64> {
        match self.max_image_size.as_ref()? {
            IntOrString::Int(bytes) => u64::try_from(*bytes).ok(),
            IntOrString::String(quantity) => bytes_of(quantity),
        }
    }
}

/// The bytes of a quantity; `None` if it is not a quantity.
pub fn bytes_of(quantity: &str) -> Option<u64> {
    let millis = Quantity(quantity.into()).millis()?;
    u64::try_from(millis / 1000).ok()
}

/// Which images a new node waits for.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default, JsonSchema)]
#[schemars(inline)]
pub enum StartupImageSource {
    /// Those of the workloads whose pods can run on the node, and those listed.
    #[default]
    Workloads,
    /// Those listed.
    Listed,
}

/// What pulls the images of a new node.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default, JsonSchema)]
#[schemars(inline)]
pub enum ImagePuller {
    /// Pods that Transom creates; none of their containers ever runs.
    Pods,
    /// Something else than Transom.
    #[default]
    None,
}

/// A Secret to pull images with.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
pub struct PullSecretName {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The new nodes of a policy.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StartupStatus {
    /// How many nodes wait for images.
    pub starting: i32,
    /// How many nodes got their images in time, since this leader began to lead or the policy was changed.
    pub warm: i32,
    /// How many nodes got pods without some of their images, since then.
    pub late: i32,
    /// Images that could not be pulled on these nodes, 20 at most.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub failed: Vec<FailedImage>,
}

impl StartupStatus {
    /// How many failed images are named.
    pub const MOST_FAILED: usize = 20;
}

/// An image that could not be pulled.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedImage {
    /// The node.
    pub node: String,
    /// The image, as workloads write it.
    pub image: String,
    /// What the kubelet reports.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_startup_waits_for_the_images_of_workloads_and_creates_no_pod() {
        let startup: NodeStartup = serde_json::from_str("{}").unwrap();
        assert_eq!(startup, NodeStartup::default());
        assert_eq!(
            (startup.image_source, startup.puller),
            (StartupImageSource::Workloads, ImagePuller::None)
        );
        assert_eq!(
            (startup.timeout(), startup.slots()),
            (Duration::from_secs(780), 10)
        );
    }

    #[test]
    fn a_limit_is_a_quantity_in_bytes() {
        let limit = |max: &str| {
            let max_image_size = Some(IntOrString::String(max.to_owned()));
            let startup = NodeStartup {
                max_image_size,
                ..NodeStartup::default()
            };
            startup.byte_limit()
        };
        assert_eq!(limit("1Ki"), Some(1024));
        assert_eq!(limit("1.5G"), Some(1_500_000_000));
        assert_eq!(limit("many"), None);
    }
}
