//! The platform of a cluster, detected from its nodes and API groups, and what the chart's values file for it
//! sets.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::cluster::environment::{AnyNode, ClusterEnvironment};
use crate::manifest;
use crate::model::knowledge::NodePlatform;

/// A platform and the evidence for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Platform {
    /// The name of its values file, without `.yaml`.
    pub name: &'static str,
    pub title: &'static str,
    pub evidence_texts: Vec<String>,
    /// The same platform, as nodes show it; `None` for bare metal.
    pub of_nodes: Option<NodePlatform>,
    /// The content of its values file.
    values: Value,
}

/// A platform and its signs. The most specific platform comes first, because Rancher's nodes also run in
/// clouds.
struct PlatformSigns {
    name: &'static str,
    title: &'static str,
    /// The chart's values file for it.
    values: &'static str,
    groups: &'static [&'static str],
    /// The platform of its nodes, with the labels that they have.
    of_nodes: Option<NodePlatform>,
    /// Prefixes of `spec.providerID`.
    providers: &'static [&'static str],
}

static PLATFORMS: [PlatformSigns; 5] = [
    PlatformSigns {
        name: "openshift",
        values: include_str!("../../charts/transom/platforms/openshift.yaml"),
        title: "OpenShift",
        groups: &["config.openshift.io", "security.openshift.io"],
        of_nodes: Some(NodePlatform::OpenShift),
        providers: &[],
    },
    PlatformSigns {
        name: "aks",
        values: include_str!("../../charts/transom/platforms/aks.yaml"),
        title: "AKS",
        groups: &[],
        of_nodes: Some(NodePlatform::Aks),
        providers: &[],
    },
    PlatformSigns {
        name: "eks",
        values: include_str!("../../charts/transom/platforms/eks.yaml"),
        title: "EKS",
        groups: &["vpcresources.k8s.aws", "crd.k8s.amazonaws.com"],
        of_nodes: Some(NodePlatform::Eks),
        providers: &[],
    },
    PlatformSigns {
        name: "gke",
        values: include_str!("../../charts/transom/platforms/gke.yaml"),
        title: "GKE",
        groups: &["networking.gke.io"],
        of_nodes: Some(NodePlatform::Gke),
        providers: &[],
    },
    PlatformSigns {
        name: "rancher",
        values: include_str!("../../charts/transom/platforms/rancher.yaml"),
        title: "Rancher (RKE2)",
        groups: &["helm.cattle.io", "k3s.cattle.io"],
        of_nodes: Some(NodePlatform::Rancher),
        providers: &["rke2://"],
    },
];

static BARE_METAL: PlatformSigns = PlatformSigns {
    name: "bare-metal",
    title: "not recognized: bare metal, or your own nodes in a cloud",
    values: include_str!("../../charts/transom/platforms/bare-metal.yaml"),
    groups: &[],
    of_nodes: None,
    providers: &[],
};

impl Platform {
    /// Detects the platform. Without evidence for another one it is bare metal: the operator's own nodes.
    pub fn of(environment: &ClusterEnvironment) -> Self {
        let found = PLATFORMS.iter().find_map(|signs| {
            let evidence = signs.evidence(environment);
            (!evidence.is_empty()).then(|| Platform::new(signs, evidence))
        });
        found.unwrap_or_else(|| Platform::new(&BARE_METAL, Vec::new()))
    }

    /// The platform whose values file has this name, without evidence.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = PLATFORMS.iter().chain([&BARE_METAL]);
        let signs = all.find(|signs| signs.name == name)?;
        Some(Platform::new(signs, Vec::new()))
    }

    fn new(signs: &PlatformSigns, evidence_texts: Vec<String>) -> Self {
        let parsed = manifest::parse(signs.values.as_bytes().to_vec());
        let values = parsed.documents.first().map(manifest::Document::json);
        Platform {
            name: signs.name,
            title: signs.title,
            of_nodes: signs.of_nodes,
            evidence_texts,
            // A test reads every file.
            values: values
                .and_then(|json| serde_json::from_str(json).ok())
                .unwrap_or_default(),
        }
    }

    /// The path of its values file.
    pub fn file(&self) -> String {
        format!("charts/transom/platforms/{}.yaml", self.name)
    }

    /// A list field in the chart's values file for the platform: `toleratedTaints` of the pod policy, `nodeLabels` of the cluster,
    /// and `required` taints of the node policy. Helm replaces lists, so a later file must repeat the complete list.
    pub fn list(&self, field: &str) -> Vec<Value> {
        let written = match field {
            "toleratedTaints" => &self.values["podPolicies"]["default"]["spec"]["placement"][field],
            "nodeLabels" => &self.values["cluster"][field],
            _ => &self.values["nodePolicies"]["default"]["spec"]["taints"][field],
        };
        written.as_array().cloned().unwrap_or_default()
    }

    /// The node pools in its values file, by name.
    pub fn pools(&self) -> Map<String, Value> {
        self.values["nodePools"].as_object().cloned().unwrap_or_default()
    }

    /// Whether its values file states a taint that Windows nodes have.
    pub fn states(&self, taint: &Value) -> bool {
        ["toleratedTaints", "required"]
            .iter()
            .any(|field| self.list(field).contains(taint))
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
        let prefixes = self.of_nodes?.label_prefixes();
        let label = node.labels.keys().find(|key| begins(key, prefixes))?;
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
    fn every_file_of_the_chart_is_that_of_a_platform_and_has_lists() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/transom/platforms");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let platform = Platform::named(name).unwrap_or_else(|| panic!("{name} is unknown"));
            assert!(
                path.ends_with(platform.file()) && platform.values.is_object(),
                "{name}"
            );
            assert!(!platform.list("required").is_empty(), "{name}");
        }
        let eks = Platform::named("eks").unwrap();
        let pools = eks.pools();
        let names: Vec<&String> = pools.keys().collect();
        assert_eq!(names, ["windows-2022", "windows-2025"]);
        assert_eq!(eks.list("nodeLabels")[0]["valuePrefixes"][0], "windows");
    }
}
