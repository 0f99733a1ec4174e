//! The network plugin of a node, as far as the node shows it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::syntax::string_enum::string_enum;

string_enum! {
    /// The network plugin of a node, from its annotations.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
    pub enum NetworkPlugin {
        /// Calico.
        Calico = "Calico",
        /// Flannel.
        Flannel = "Flannel",
        /// Antrea.
        Antrea = "Antrea",
        /// OVN-Kubernetes.
        #[serde(rename = "OVN-Kubernetes")]
        OvnKubernetes = "OVN-Kubernetes",
    }
}

impl NetworkPlugin {
    /// The plugin that wrote one of these annotations.
    pub fn of_annotations<'a>(mut keys: impl Iterator<Item = &'a str>) -> Option<Self> {
        keys.find_map(|key| match key.split_once('/')?.0 {
            "projectcalico.org" => Some(NetworkPlugin::Calico),
            "flannel.alpha.coreos.com" => Some(NetworkPlugin::Flannel),
            "node.antrea.io" => Some(NetworkPlugin::Antrea),
            "k8s.ovn.org" => Some(NetworkPlugin::OvnKubernetes),
            _ => None,
        })
    }
}
