//! The platform of a cluster, detected from its nodes and API groups, and what the chart's values file for it
//! sets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cluster::environment::{AnyNode, ClusterEnvironment};
use crate::model::platform_support::NodePlatform;

/// A platform and the evidence for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Platform {
    /// The name of its values file, without `.yaml`.
    pub name: &'static str,
    /// Its display name.
    pub title: &'static str,
    /// The evidence.
    pub evidence_texts: Vec<String>,
}

/// A platform and its signs. The most specific platform comes first, because Rancher's nodes also run in
/// clouds.
struct PlatformSigns {
    name: &'static str,
    title: &'static str,
    groups: &'static [&'static str],
    /// The platform of its nodes, with the labels that they have.
    of_nodes: NodePlatform,
    /// Prefixes of `spec.providerID`.
    providers: &'static [&'static str],
}

static PLATFORMS: [PlatformSigns; 5] = [
    PlatformSigns {
        name: "openshift",
        title: "OpenShift",
        groups: &["config.openshift.io", "security.openshift.io"],
        of_nodes: NodePlatform::OpenShift,
        providers: &[],
    },
    PlatformSigns {
        name: "aks",
        title: "AKS",
        groups: &[],
        of_nodes: NodePlatform::Aks,
        providers: &[],
    },
    PlatformSigns {
        name: "eks",
        title: "EKS",
        groups: &["vpcresources.k8s.aws", "crd.k8s.amazonaws.com"],
        of_nodes: NodePlatform::Eks,
        providers: &[],
    },
    PlatformSigns {
        name: "gke",
        title: "GKE",
        groups: &["networking.gke.io"],
        of_nodes: NodePlatform::Gke,
        providers: &[],
    },
    PlatformSigns {
        name: "rancher",
        title: "Rancher (RKE2)",
        groups: &["helm.cattle.io", "k3s.cattle.io"],
        of_nodes: NodePlatform::Rancher,
        providers: &["rke2://"],
    },
];

impl Platform {
    /// Detects the platform. Without evidence for another one it is bare metal: the operator's own nodes.
    pub fn of(environment: &ClusterEnvironment) -> Self {
        for signs in &PLATFORMS {
            let evidence_texts = signs.evidence(environment);
            if !evidence_texts.is_empty() {
                return Platform {
                    name: signs.name,
                    title: signs.title,
                    evidence_texts,
                };
            }
        }
        Platform {
            name: "bare-metal",
            title: "not recognized: bare metal, or your own nodes in a cloud",
            evidence_texts: Vec::new(),
        }
    }

    /// The same platform, as nodes show it; `None` for bare metal.
    pub fn of_nodes(&self) -> Option<NodePlatform> {
        let mut platforms = PLATFORMS.iter();
        platforms
            .find(|signs| signs.name == self.name)
            .map(|signs| signs.of_nodes)
    }

    /// A list field in the chart's values file for the platform: `toleratedTaints` of the pod policy, `pools`
    /// and `poolLabels` of the node policy. Helm replaces lists, so a later file must repeat the complete
    /// list.
    pub fn list(&self, field: &str) -> Vec<Value> {
        let taint = |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
        let all: Value = match self.name {
            "aks" => json!({
                "toleratedTaints": [taint("os", "windows")],
                "pools": [
                    {"name": "win22", "build": "10.0.20348", "labels": {"kubernetes.azure.com/os-sku": "Windows2022"}},
                    {"name": "win25", "build": "10.0.26100", "labels": {"kubernetes.azure.com/os-sku": "Windows2025"}}],
            }),
            "eks" => json!({
                "poolLabels": [{"key": "eks.amazonaws.com/nodegroup", "valuePrefix": "windows"}],
                "toleratedTaints": [taint("os", "windows")],
                "pools": [{"name": "windows-2022", "build": "10.0.20348"}, {"name": "windows-2025", "build": "10.0.26100"}],
            }),
            "gke" => json!({
                "toleratedTaints": [taint("node.kubernetes.io/os", "windows")],
                "pools": [{"name": "windows-ltsc2022", "build": "10.0.20348",
                    "labels": {"cloud.google.com/gke-os-distribution": "windows_ltsc"},
                    "taints": [taint("node.kubernetes.io/os", "windows")]}],
            }),
            "openshift" => json!({"toleratedTaints": [taint("os", "Windows")]}),
            "rancher" => {
                json!({"toleratedTaints": [taint("cattle.io/os", "windows"), taint("os", "windows")]})
            }
            // The default of the policy.
            _ => json!({"toleratedTaints": [taint("os", "windows")]}),
        };
        let list = all.get(field).and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    }
}

impl PlatformSigns {
    fn evidence(&self, environment: &ClusterEnvironment) -> Vec<String> {
        let mut evidence: BTreeMap<String, String> = BTreeMap::new();
        for group in self.groups {
            if environment.groups.contains_key(*group) {
                evidence.insert((*group).to_owned(), format!("API group {group}"));
            }
        }
        for node in &environment.nodes {
            if let Some((what, reason)) = self.of_node(node) {
                evidence.entry(what).or_insert(reason);
            }
        }
        evidence.into_values().collect()
    }

    fn of_node(&self, node: &AnyNode) -> Option<(String, String)> {
        let begins = |text: &str, beginnings: &[&str]| beginnings.iter().any(|begin| text.starts_with(begin));
        if begins(&node.provider_id, self.providers) {
            let reason = format!("spec.providerID {} of node {}", node.provider_id, node.name);
            return Some(("providerID".to_owned(), reason));
        }
        let label = node
            .labels
            .keys()
            .find(|key| begins(key, self.of_nodes.label_prefixes()))?;
        Some((label.clone(), format!("label {label} of node {}", node.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(groups: &[&str], label: &str, provider: &str) -> ClusterEnvironment {
        ClusterEnvironment {
            groups: groups
                .iter()
                .map(|group| ((*group).to_owned(), "v1".to_owned()))
                .collect(),
            nodes: vec![AnyNode {
                name: "n1".into(),
                labels: [(label.to_owned(), "x".to_owned())].into(),
                provider_id: provider.into(),
                ..AnyNode::default()
            }],
            ..ClusterEnvironment::default()
        }
    }

    #[test]
    fn a_platform_is_recognised_by_its_nodes_and_its_groups() {
        for (groups, label, provider, name) in [
            (
                &[][..],
                "kubernetes.azure.com/cluster",
                "azure:///subscriptions/x",
                "aks",
            ),
            (&[], "eks.amazonaws.com/nodegroup", "aws:///eu-1/i-1", "eks"),
            (&["vpcresources.k8s.aws"], "a", "aws:///eu-1/i-1", "eks"),
            (&[], "cloud.google.com/gke-nodepool", "gce://p/z/n", "gke"),
            (&["config.openshift.io"], "a", "aws:///x", "openshift"),
            (&[], "a", "rke2://n1", "rancher"),
            (&["helm.cattle.io"], "a", "", "rancher"),
            // Nodes of a cloud with the operator's own control plane.
            (&[], "a", "aws:///eu-1/i-1", "bare-metal"),
            (&[], "kubernetes.io/os", "", "bare-metal"),
        ] {
            let platform = Platform::of(&environment(groups, label, provider));
            assert_eq!(platform.name, name, "{groups:?} {label} {provider}");
            assert_eq!(
                platform.evidence_texts.is_empty(),
                name == "bare-metal",
                "{platform:?}"
            );
        }
    }

    #[test]
    fn the_lists_of_a_platform_are_those_of_its_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/transom/platforms");
        let mut files = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let signs = PLATFORMS.iter().map(|signs| signs.name).chain(["bare-metal"]);
            let name = { signs }
                .find(|known| *known == name)
                .unwrap_or_else(|| panic!("{name} is unknown"));
            let parsed = crate::manifest::parse(std::fs::read(&path).unwrap());
            let file: Value = serde_json::from_str(parsed.documents[0].json()).unwrap();
            let platform = Platform {
                name,
                title: "",
                evidence_texts: Vec::new(),
            };
            let of_nodes = &file["nodePolicy"]["spec"];
            let lists = [
                (
                    "toleratedTaints",
                    &file["policy"]["spec"]["placement"]["toleratedTaints"],
                ),
                ("pools", &of_nodes["pools"]),
                ("poolLabels", &of_nodes["poolLabels"]),
            ];
            for (field, written) in lists {
                let default = field == "toleratedTaints" && written.is_null();
                if !default {
                    let written = written.as_array().cloned().unwrap_or_default();
                    assert_eq!(platform.list(field), written, "{name} {field}");
                }
            }
            files += 1;
        }
        assert_eq!(files, PLATFORMS.len() + 1);
    }
}
