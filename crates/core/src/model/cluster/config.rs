//! What administrators state about their cluster because its API does not show it.

use serde::{Deserialize, Serialize};

use crate::model::nodes::namespace_selector::NodeSelector;
use crate::model::nodes::node::NodeLabel;
use crate::model::objects::pod::Toleration;
use crate::model::objects::requester::ListedController;
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::syntax::string_enum::string_enum;

string_enum! {
    /// Whether the API server's plug-in PodNodeSelector is on, which the API does not show.
    #[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum PodNodeSelector {
        /// In a namespace in which stored pods show it.
        #[default]
        Detected = "Detected",
        /// It is on.
        Enabled = "Enabled",
        /// It is off.
        Disabled = "Disabled",
    }
}

/// What administrators state about their cluster: the same for every namespace, whatever policy applies there.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClusterConfig {
    /// Users that are controllers, in addition to those of Kubernetes.
    pub controllers: Vec<ListedController>,
    /// Custom resources that describe pods, in addition to the built-in ones.
    pub pod_templates: Vec<ConfiguredKind>,
    /// Node labels that mean Windows, in addition to those of platforms.
    pub node_labels: Vec<NodeLabel>,
    /// Whether the plug-in PodNodeSelector is on.
    pub pod_node_selector: PodNodeSelector,
    /// What the configuration file of PodNodeSelector adds in namespaces without its annotation.
    pub default_node_selector: NodeSelector,
    /// The tolerations that PodTolerationRestriction allows in namespaces without a whitelist of their own; empty: all.
    pub allowed_tolerations: Vec<Toleration<'static>>,
}

impl ClusterConfig {
    /// Whether templates without any evidence may get an operating system from the default node selector of their namespace,
    /// so that the API server must send them.
    pub fn has_default_node_selectors(&self) -> bool {
        match self.pod_node_selector {
            PodNodeSelector::Enabled => true,
            PodNodeSelector::Detected => !self.default_node_selector.is_empty(),
            PodNodeSelector::Disabled => false,
        }
    }
}
