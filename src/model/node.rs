//! What a node is: whether it runs Windows, of which build, and with which taints. Said here once, for `check`, reviews,
//! metrics and the controllers alike.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::build::Build;
use super::field::Str;
use super::object::Node;
use super::pod::Toleration;

/// The label that says a node's build: `10.0.20348`.
pub const BUILD_LABEL: &str = "node.kubernetes.io/windows-build";
/// Its mirror, which a kubelet may not write.
pub const TRUSTED_BUILD_LABEL: &str = "node-restriction.kubernetes.io/windows-build";
/// Both of them.
pub const BUILD_LABELS: [&str; 2] = [BUILD_LABEL, TRUSTED_BUILD_LABEL];
/// The label that says a node's operating system.
pub const OS_LABEL: &str = "kubernetes.io/os";
/// Its deprecated form (since 1.14).
pub const BETA_OS_LABEL: &str = "beta.kubernetes.io/os";
/// The label that says a node's architecture.
pub const ARCH_LABEL: &str = "kubernetes.io/arch";
/// Its deprecated form.
pub const BETA_ARCH_LABEL: &str = "beta.kubernetes.io/arch";
/// The label by which AKS says which Windows its nodes run.
pub const OS_SKU_LABEL: &str = "kubernetes.azure.com/os-sku";
/// The label that says a node's own name, or another name of its host.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// Labels that say to which pool a node belongs, on the platforms that have such; the first that a node has counts.
pub const POOL_LABELS: [&str; 6] = [
    "kubernetes.azure.com/agentpool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "karpenter.sh/nodepool",
    "agentpool",
];
/// What Windows nodes of EKS offer: an address of the VPC for each pod.
pub const PRIVATE_IPV4_RESOURCE: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// What a kubelet reports of its operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportedOs {
    /// Windows.
    Windows,
    /// Another one.
    Other,
    /// Nothing yet.
    Silent,
}

/// What of a Node is read to tell what it is, however the Node is held; the provided methods tell it.
pub trait NodeSigns {
    /// Its name.
    fn name(&self) -> &str;
    /// The value of one of its labels.
    fn label(&self, key: &str) -> Option<&str>;
    /// Its taints.
    fn taints(&self) -> Vec<Taint>;
    /// `status.nodeInfo.operatingSystem`; empty where the kubelet has not reported.
    fn operating_system(&self) -> &str;
    /// `status.nodeInfo.kernelVersion`.
    fn kernel_version(&self) -> &str;
    /// `status.nodeInfo.containerRuntimeVersion`.
    fn container_runtime(&self) -> &str;
    /// Whether `status.allocatable` or `status.capacity` names [`PRIVATE_IPV4_RESOURCE`].
    fn offers_private_ipv4(&self) -> bool;

    /// What its kubelet reports of its operating system.
    fn reported_os(&self) -> ReportedOs {
        match self.operating_system() {
            "" => ReportedOs::Silent,
            os if is_windows(os) => ReportedOs::Windows,
            _ => ReportedOs::Other,
        }
    }

    /// Whether a label says that it is a Windows node; the deprecated one counts too.
    fn is_labelled_windows(&self) -> bool {
        let mut said = [OS_LABEL, BETA_OS_LABEL]
            .into_iter()
            .filter_map(|key| self.label(key));
        said.any(is_windows)
    }

    /// Whether it is a Windows node: by its kubelet, and by a label as long as the kubelet has not reported.
    fn is_windows(&self) -> bool {
        match self.reported_os() {
            ReportedOs::Windows => true,
            ReportedOs::Other => false,
            ReportedOs::Silent => self.is_labelled_windows(),
        }
    }

    /// The build that its kernel has.
    fn kernel_build(&self) -> Option<Build> {
        Build::parse_kernel_version(self.kernel_version()).map(|(build, _)| build)
    }

    /// Its build: that of its kernel, and that of a label as long as the kubelet reports none. The label that a kubelet
    /// cannot write is believed first.
    fn build(&self) -> Option<Build> {
        let of_label = |key| self.label(key).and_then(Build::parse_label);
        self.kernel_build()
            .or_else(|| of_label(TRUSTED_BUILD_LABEL))
            .or_else(|| of_label(BUILD_LABEL))
    }
}

fn is_windows(os: &str) -> bool {
    os.eq_ignore_ascii_case("windows")
}

impl NodeSigns for Node<'_> {
    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.get(key).map(|value| &**value)
    }

    fn taints(&self) -> Vec<Taint> {
        let taints = self.spec.taints.iter().map(|taint| Taint {
            key: taint.key.to_string(),
            value: taint.value.to_string(),
            effect: taint.effect.to_string(),
        });
        taints.collect()
    }

    fn operating_system(&self) -> &str {
        &self.status.node_info.operating_system
    }

    fn kernel_version(&self) -> &str {
        &self.status.node_info.kernel_version
    }

    fn container_runtime(&self) -> &str {
        &self.status.node_info.container_runtime_version
    }

    fn offers_private_ipv4(&self) -> bool {
        let offered = [&self.status.allocatable, &self.status.capacity];
        (offered.into_iter()).any(|of| of.get(PRIVATE_IPV4_RESOURCE).is_some())
    }
}

/// A node taint.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are Kubernetes'
pub struct Taint {
    pub key: String,
    #[serde(default)]
    pub value: String,
    pub effect: String,
}

impl Taint {
    /// A taint with effect `NoSchedule`.
    pub fn no_schedule(key: &str, value: &str) -> Self {
        Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: "NoSchedule".to_owned(),
        }
    }

    /// Whether the taint keeps Linux pods off Windows nodes and says nothing else, so that every Windows pod may
    /// tolerate it: a key that the field uses for this, a value that says Windows, effect `NoSchedule`.
    ///
    /// Maintenance, pressure, spot, tenant and lifecycle taints are never such.
    pub fn marks_windows(&self) -> bool {
        const KEYS: [&str; 5] = [
            "os",
            "windows",
            "sku",
            "node.kubernetes.io/os",
            "kubernetes.io/os",
        ];
        let value = self.value.to_ascii_lowercase();
        let says_windows = value.starts_with("win")
            || (value == "true" && matches!(self.key.as_str(), "windows" | "os" | "sku"));
        self.effect == "NoSchedule" && KEYS.contains(&self.key.as_str()) && says_windows
    }

    /// Whether the taint stays as long as the node does: not those by which controllers and autoscalers say for a while
    /// that a node is new, in trouble, or about to go. What they keep off comes when they are gone.
    pub fn lasts(&self) -> bool {
        const PASSING: [&str; 15] = [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
            "node.kubernetes.io/unschedulable",
            "node.kubernetes.io/memory-pressure",
            "node.kubernetes.io/disk-pressure",
            "node.kubernetes.io/pid-pressure",
            "node.kubernetes.io/network-unavailable",
            "node.kubernetes.io/out-of-service",
            "node.cloudprovider.kubernetes.io/uninitialized",
            "node.cloudprovider.kubernetes.io/shutdown",
            "ToBeDeletedByClusterAutoscaler",
            "DeletionCandidateOfClusterAutoscaler",
            "karpenter.sh/disrupted",
            "karpenter.sh/disruption",
            "karpenter.sh/unregistered",
        ];
        // Cluster API and the cluster autoscaler take theirs off once a node has started.
        let of_start = [
            "startup-taint.cluster-autoscaler.kubernetes.io/",
            "ignore-taint.cluster-autoscaler.kubernetes.io/",
        ];
        !PASSING.contains(&self.key.as_str())
            && self.key != "node.cluster.x-k8s.io/uninitialized"
            && !of_start.iter().any(|start| self.key.starts_with(start))
    }

    /// Whether a toleration tolerates this taint.
    ///
    /// Source: `k8s.io/component-helpers/scheduling/corev1`, `ToleratesTaint`.
    pub fn is_tolerated_by(&self, toleration: &Toleration<'_>) -> bool {
        let (key, effect) = (text(toleration.key.as_ref()), text(toleration.effect.as_ref()));
        if (!effect.is_empty() && effect != self.effect) || (!key.is_empty() && key != self.key) {
            return false;
        }
        match text(toleration.operator.as_ref()) {
            "Exists" => true,
            "" | "Equal" => !key.is_empty() && text(toleration.value.as_ref()) == self.value,
            _ => false,
        }
    }
}

fn text<'t>(field: Option<&'t Str<'_>>) -> &'t str {
    field.map(|text| &**text).unwrap_or_default()
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}:{}", self.key, self.effect)
        } else {
            write!(f, "{}={}:{}", self.key, self.value, self.effect)
        }
    }
}

/// A Windows node, or a pool that may be at zero nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// The name of the node or pool.
    pub name: String,
    /// Its build, where known.
    pub build: Option<Build>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// The containerd version that it reports, major and minor.
    pub containerd: Option<(u32, u32)>,
    /// For a pool that may be at zero: labels that an autoscaler knows its nodes will have. Empty for a node, and
    /// where that is not known.
    pub template: BTreeMap<String, String>,
    /// The value of [`HOSTNAME_LABEL`]; empty where there is none, and for a pool.
    pub hostname: String,
    /// The labels of the build that do not say its build: not there, or stale. Empty for a pool at zero, whose kubelets
    /// write theirs when they register, and where Transom is about to write them.
    pub unlabelled: Vec<&'static str>,
    /// Whether it offers [`PRIVATE_IPV4_RESOURCE`], or did when it was seen last.
    pub offers_private_ipv4: bool,
    /// Whether it is a pool that may be at zero nodes, and no node.
    pub may_be_at_zero: bool,
}

impl Host {
    /// Whether this is a pool whose nodes an autoscaler knows by some label, but not by this one: it would never bring
    /// a node for a pod that requires the label.
    pub fn is_template_without(&self, label: &str) -> bool {
        !self.template.is_empty() && !self.template.contains_key(label)
    }

    /// Reads a Node; `None` unless it is a Windows node.
    pub fn of_node(node: &impl NodeSigns) -> Option<Host> {
        let build = node.build();
        let says_build =
            |label: &&str| build.is_some() && node.label(label).and_then(Build::parse_label) == build;
        // A node without any label of its kubelet's was written down by a person, in short.
        let is_labelled = [OS_LABEL, BETA_OS_LABEL, ARCH_LABEL, HOSTNAME_LABEL]
            .iter()
            .chain(&BUILD_LABELS)
            .any(|label| node.label(label).is_some());
        node.is_windows().then(|| Host {
            name: node.name().to_owned(),
            build,
            taints: node.taints(),
            containerd: (node.container_runtime().strip_prefix("containerd://")).and_then(major_minor),
            template: BTreeMap::new(),
            hostname: node.label(HOSTNAME_LABEL).unwrap_or_default().to_owned(),
            unlabelled: (BUILD_LABELS.into_iter())
                .filter(|label| is_labelled && !says_build(label))
                .collect(),
            offers_private_ipv4: node.offers_private_ipv4(),
            may_be_at_zero: false,
        })
    }
}

/// The build of the Windows nodes that AKS calls so.
///
/// Source: <https://learn.microsoft.com/azure/aks/upgrade-windows-os>
pub fn build_of_sku(os_sku: &str) -> Option<Build> {
    let number = match os_sku.to_ascii_lowercase().as_str() {
        "windows2019" => 17763,
        "windows2022" => 20348,
        "windows2025" => 26100,
        _ => return None,
    };
    Some(Build::new(number))
}

/// Reads `1.36`, `v1.36.2` or `1.7.20+x` as (1, 36) and so on.
pub fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_is_believed_before_labels_and_its_kernel_before_both_builds() {
        let node = |labels: &str, info: &str| {
            let json = format!(r#"{{"metadata": {{"labels": {labels}}}, "status": {{"nodeInfo": {info}}}}}"#);
            let node: Node<'_> = serde_json::from_str(&json).unwrap();
            (
                node.reported_os(),
                node.is_windows(),
                node.build().map(|build| build.to_string()),
            )
        };
        let said = |os, windows, build: &str| (os, windows, (!build.is_empty()).then(|| build.to_owned()));
        let labels = format!(
            r#"{{"kubernetes.io/os": "windows", "{BUILD_LABEL}": "10.0.17763", "{TRUSTED_BUILD_LABEL}": "10.0.26100"}}"#
        );
        let kernel = r#"{"operatingSystem": "Windows", "kernelVersion": "10.0.20348.1"}"#;
        let linux = r#"{"operatingSystem": "linux", "kernelVersion": "6.1.0"}"#;
        assert_eq!(
            node(&labels, kernel),
            said(ReportedOs::Windows, true, "10.0.20348")
        );
        assert_eq!(node(&labels, "{}"), said(ReportedOs::Silent, true, "10.0.26100"));
        assert_eq!(node(&labels, linux), said(ReportedOs::Other, false, "10.0.26100"));
        let beta = format!(r#"{{"{BETA_OS_LABEL}": "windows", "{BUILD_LABEL}": "10.0.17763"}}"#);
        assert_eq!(node(&beta, "{}"), said(ReportedOs::Silent, true, "10.0.17763"));
        assert_eq!(node("{}", "{}"), said(ReportedOs::Silent, false, ""));
    }

    #[test]
    fn only_taints_that_say_windows_and_nothing_else_are_learned() {
        for (key, value) in [
            ("os", "windows"),
            ("os", "Windows"),
            ("os", "Win2019"),
            ("node.kubernetes.io/os", "windows"),
            ("node.kubernetes.io/os", "Windows"),
            ("node.kubernetes.io/os", "win1809"),
            ("kubernetes.io/os", "windows"),
            ("sku", "windows"),
            ("windows", "true"),
        ] {
            assert!(Taint::no_schedule(key, value).marks_windows(), "{key}={value}");
        }
        for (key, value) in [
            ("cattle.io/os", "linux"),
            ("os", "linux"),
            ("sku", "gpu"),
            ("team", "windows"),
            ("node.kubernetes.io/unschedulable", ""),
            ("kubernetes.azure.com/scalesetpriority", "spot"),
        ] {
            assert!(!Taint::no_schedule(key, value).marks_windows(), "{key}={value}");
        }
        let evicting = Taint {
            effect: "NoExecute".into(),
            ..Taint::no_schedule("os", "windows")
        };
        assert!(!evicting.marks_windows());
    }

    #[test]
    fn tolerations_match_as_the_scheduler_does_it() {
        let taint = Taint::no_schedule("os", "windows");
        let tolerates = |json: &str| taint.is_tolerated_by(&serde_json::from_str(json).unwrap());
        assert!(tolerates(
            r#"{"key": "os", "value": "windows", "effect": "NoSchedule"}"#
        ));
        assert!(tolerates(
            r#"{"key": "os", "operator": "Equal", "value": "windows"}"#
        ));
        assert!(tolerates(r#"{"key": "os", "operator": "Exists"}"#));
        assert!(tolerates(r#"{"operator": "Exists"}"#));
        assert!(!tolerates(r#"{"key": "os", "value": "Windows"}"#));
        assert!(!tolerates(
            r#"{"key": "os", "operator": "Exists", "effect": "NoExecute"}"#
        ));
        assert!(!tolerates("{}"));
    }
}
