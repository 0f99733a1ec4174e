//! The network plugin of a node, as far as the node shows it.

use std::fmt;

/// The network plugin of a node, from its annotations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NetworkPlugin {
    /// Calico.
    Calico,
    /// Flannel.
    Flannel,
    /// Antrea.
    Antrea,
    /// OVN-Kubernetes.
    OvnKubernetes,
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

impl fmt::Display for NetworkPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NetworkPlugin::Calico => "Calico",
            NetworkPlugin::Flannel => "Flannel",
            NetworkPlugin::Antrea => "Antrea",
            NetworkPlugin::OvnKubernetes => "OVN-Kubernetes",
        })
    }
}
