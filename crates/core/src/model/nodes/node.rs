//! Nodes: what one is (`node/signs.rs`), what its taints mean (`node/taint.rs`), and Windows nodes and pools as the hosts that
//! pods can be scheduled on. `check`, reviews, metrics and the controllers all use this module.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;

use super::extended_resources::OfferedResources;
use super::node_affinity::{KnownNodeLabels, LabelValue, Match};
use crate::model::windows::build::Build;

mod labels;
mod other_nodes;
mod signs;
mod taint;
mod version_labels;
mod virtual_nodes;

pub use self::labels::Labels;
pub use self::other_nodes::{OtherNode, OtherNodes};
pub use self::signs::{NodeSigns, ReportedOs, ReservedResources};
pub use self::taint::Taint;
pub use self::version_labels::{StatedVersion, VERSION_LABELS, VersionLabel};
pub use self::virtual_nodes::{VIRTUAL_NODE_PROVIDERS, VirtualNodeProvider};

/// The label with a node's build: `10.0.20348`.
pub const BUILD_LABEL: &str = "node.kubernetes.io/windows-build";
/// Its copy under a prefix that kubelets are not allowed to write.
pub const RESTRICTED_BUILD_LABEL: &str = "transom.dev.node-restriction.kubernetes.io/windows-build";
/// Both of them.
pub const BUILD_LABELS: [&str; 2] = [BUILD_LABEL, RESTRICTED_BUILD_LABEL];
/// The label with a node's operating system.
pub const OS_LABEL: &str = "kubernetes.io/os";
/// Its deprecated form (since 1.14).
pub const BETA_OS_LABEL: &str = "beta.kubernetes.io/os";
/// The label with a node's architecture.
pub const ARCH_LABEL: &str = "kubernetes.io/arch";
/// Its deprecated form.
pub const BETA_ARCH_LABEL: &str = "beta.kubernetes.io/arch";
/// The AKS label with the Windows version of a node.
pub const OS_SKU_LABEL: &str = "kubernetes.azure.com/os-sku";
/// The same, always with the version.
///
/// Source: <https://learn.microsoft.com/azure/aks/use-labels>
pub const OS_SKU_EFFECTIVE_LABEL: &str = "kubernetes.azure.com/os-sku-effective";
/// The same, as requested for the pool.
pub const OS_SKU_REQUESTED_LABEL: &str = "kubernetes.azure.com/os-sku-requested";
/// All AKS labels with the Windows version of a node.
pub const OS_SKU_LABELS: [&str; 3] = [OS_SKU_LABEL, OS_SKU_EFFECTIVE_LABEL, OS_SKU_REQUESTED_LABEL];
/// The label with a node's own name, or another name of its host.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// The label with the machine type of a node in a cloud.
pub const INSTANCE_TYPE_LABEL: &str = "node.kubernetes.io/instance-type";
/// The labels that every Windows node has, from its kubelet or from Transom.
pub const LABELS_OF_EVERY_NODE: [&str; 6] = [
    OS_LABEL,
    BETA_OS_LABEL,
    ARCH_LABEL,
    BETA_ARCH_LABEL,
    BUILD_LABEL,
    RESTRICTED_BUILD_LABEL,
];
/// Labels with the pool of a node, on the platforms that have them; the first that a node has applies.
pub const POOL_LABELS: [&str; 6] = [
    "kubernetes.azure.com/agentpool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "karpenter.sh/nodepool",
    "agentpool",
];

/// The pool of a node whose labels `label` reads, if its platform labels pools: the label, and its value.
pub fn pool_of<'l>(label: impl Fn(&str) -> Option<&'l str>) -> Option<(&'static str, &'l str)> {
    POOL_LABELS.iter().find_map(|key| Some((*key, label(key)?)))
}
/// The value of a label that a node will have with a value that is not known yet; not a valid label value.
pub const VALUE_TO_COME: &str = "?";

/// The resource of EKS Windows nodes: an address of the VPC for each pod.
pub const PRIVATE_IPV4_RESOURCE: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// The maximum number of node labels that mean Windows, in addition to the well-known ones: the API server compares each of
/// them for every pod.
pub const MOST_NODE_LABELS: usize = 64;

/// A label that only Windows nodes have. Values are compared like in Kubernetes: case-sensitive.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeLabel {
    /// The label's key.
    pub key: String,
    /// Its value, or a prefix of it.
    pub value: NodeLabelValue,
}

/// The values of a node label that mean Windows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodeLabelValue {
    Exact(String),
    /// Every value with this prefix.
    Prefix(String),
}

impl NodeLabel {
    /// A label with this value.
    pub fn exact(key: &str, value: &str) -> Self {
        NodeLabel {
            key: key.to_owned(),
            value: NodeLabelValue::Exact(value.to_owned()),
        }
    }

    /// A label with a value prefix.
    pub fn prefix(key: &str, prefix: &str) -> Self {
        NodeLabel {
            key: key.to_owned(),
            value: NodeLabelValue::Prefix(prefix.to_owned()),
        }
    }

    /// The labels of AKS, GKE and OpenShift that mean Windows.
    pub fn well_known() -> Vec<NodeLabel> {
        vec![
            NodeLabel::prefix(OS_SKU_LABEL, "Windows"),
            NodeLabel::prefix(OS_SKU_EFFECTIVE_LABEL, "Windows"),
            NodeLabel::prefix(OS_SKU_REQUESTED_LABEL, "Windows"),
            NodeLabel::prefix("cloud.google.com/gke-os-distribution", "windows_"),
            NodeLabel::exact("node.openshift.io/os_id", "Windows"),
        ]
    }

    /// Whether a label with this key and value means Windows.
    pub fn matches(&self, key: &str, value: &str) -> bool {
        key == self.key && self.value.matches(value)
    }
}

impl NodeLabelValue {
    fn matches(&self, value: &str) -> bool {
        match self {
            NodeLabelValue::Exact(exact) => value == exact,
            NodeLabelValue::Prefix(prefix) => value.starts_with(prefix.as_str()),
        }
    }
}

/// As on the command line: a prefix ends in `*`.
impl fmt::Display for NodeLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            NodeLabelValue::Exact(value) => write!(f, "{}={value}", self.key),
            NodeLabelValue::Prefix(prefix) => write!(f, "{}={prefix}*", self.key),
        }
    }
}

/// Since when a node is Ready, according to its condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NodeReadiness {
    /// The node has no such condition: it comes from a file, or its kubelet has not reported.
    #[default]
    Unreported,
    NotReady,
    /// It has been Ready since this time; `None` if the condition has no valid time.
    Since(Option<Timestamp>),
}

impl NodeReadiness {
    /// How long a node must be Ready before its resources are trusted: device plugins and cloud controllers report the
    /// resources of a new node with a delay.
    pub const SETTLES: jiff::SignedDuration = jiff::SignedDuration::from_mins(5);

    /// Parses the status and the time of the condition `Ready`.
    pub fn of_condition(status: &str, since: Option<&str>) -> NodeReadiness {
        match status {
            "True" => NodeReadiness::Since(since.and_then(|text| text.parse().ok())),
            _ => NodeReadiness::NotReady,
        }
    }

    /// The time from which a node is settled; `None` if it never is unless it reports something else, or already is, in
    /// a file without times.
    pub fn settles_at(self) -> Option<Timestamp> {
        match self {
            NodeReadiness::Since(Some(since)) => since.checked_add(Self::SETTLES).ok(),
            _ => None,
        }
    }

    /// Whether a node has been Ready for long enough at this time. Without a time (files), a node is settled unless it
    /// reports that it is not Ready.
    pub fn is_settled(self, now: Option<Timestamp>) -> bool {
        match (self, now) {
            (NodeReadiness::NotReady, _) => false,
            (NodeReadiness::Unreported, now) => now.is_none(),
            (NodeReadiness::Since(_), None) => true,
            (NodeReadiness::Since(_), Some(now)) => self.settles_at().is_some_and(|at| at <= now),
        }
    }
}

/// A Windows node, or a pool that may be at zero nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// The name of the node or pool.
    pub name: String,
    /// Its build, if known.
    pub build: Option<Build>,
    /// Its update revision (UBR), the fourth number of its kernel version.
    pub revision: Option<u32>,
    pub taints: Vec<Taint>,
    /// Its taints once the leader has applied a node policy, if that changes them. Pods that are created before must fit
    /// the node as it is and as it will be.
    pub planned_taints: Option<Vec<Taint>>,
    /// The containerd version that it reports, major and minor.
    pub containerd: Option<(u32, u32)>,
    /// The labels of a node; for a pool that may be at zero, the labels that an autoscaler knows for its nodes.
    pub labels: Labels,
    /// Labels that a node policy would write if it did not only audit them; only predictions assume them.
    pub audited_labels: Vec<(&'static str, String)>,
    /// The extended resources that it offers to pods.
    pub offered: OfferedResources,
    /// Whether it has been Ready for [`NodeReadiness::SETTLES`], so that its resources are trusted; never true for a
    /// pool.
    pub is_settled: bool,
    /// Whether it is a pool that may be at zero nodes, rather than a node.
    pub may_be_at_zero: bool,
}

impl Host {
    /// Whether this is a pool of which an autoscaler knows some labels, but not this one: it would never add a node for
    /// a pod that requires the label.
    pub fn is_template_without(&self, label: &str) -> bool {
        self.may_be_at_zero && !self.labels.is_empty() && !self.labels.contains_key(label)
    }

    /// The label that names its pool, and the name, if its platform labels pools.
    pub fn pool(&self) -> Option<(&'static str, &str)> {
        pool_of(|key| self.labels.get(key))
    }

    /// Creates a host from a Node; `None` unless it is a Windows node. `now`: the time for
    /// [`NodeReadiness::is_settled`]; `None` if no time is known, as in a file.
    pub fn of_node(node: &impl NodeSigns, now: Option<Timestamp>) -> Option<Host> {
        if !node.is_windows() {
            return None;
        }
        let build = node.build();
        // A node without any of its kubelet's labels is a short hand-written one: its kubelet would add them.
        let mut labels = Labels::of_node(node.labels());
        let by_kubelet = [OS_LABEL, BETA_OS_LABEL, ARCH_LABEL, HOSTNAME_LABEL];
        let mut by_kubelet = by_kubelet.iter().chain(&BUILD_LABELS);
        if !by_kubelet.any(|label| labels.contains_key(label)) {
            for label in BUILD_LABELS {
                if let Some(build) = build {
                    labels.expect(label, build.to_string());
                }
            }
        }
        for (label, value) in [
            (OS_LABEL, "windows"),
            (BETA_OS_LABEL, "windows"),
            (ARCH_LABEL, "amd64"),
            (BETA_ARCH_LABEL, "amd64"),
            (HOSTNAME_LABEL, node.name()),
        ] {
            if !labels.contains_key(label) {
                labels.expect(label, value.to_owned());
            }
        }
        Some(Host {
            name: node.name().to_owned(),
            build,
            revision: Build::parse_kernel_version(node.kernel_version()).and_then(|(_, revision)| revision),
            taints: node.taints(),
            planned_taints: None,
            containerd: node.containerd(),
            labels,
            audited_labels: Vec::new(),
            offered: node.offered_resources().into_owned(),
            is_settled: node.readiness().is_settled(now),
            may_be_at_zero: false,
        })
    }

    /// Whether a label has the build of the host. For a pool at zero, its kubelets will write it.
    pub fn is_labelled(&self, label: &str) -> bool {
        self.may_be_at_zero || (self.build.is_some() && self.labelled_build(label) == self.build)
    }

    /// Its architecture in Go's words. Windows nodes are amd64 unless their label says otherwise.
    pub fn architecture(&self) -> &str {
        self.labels.get(ARCH_LABEL).unwrap_or("amd64")
    }

    /// The build in a label.
    pub fn labelled_build(&self, label: &str) -> Option<Build> {
        self.labels.get(label).and_then(Build::parse_label)
    }

    /// Adds a label to the host that Transom is about to write.
    pub fn promise_label(&mut self, label: &str, value: String) {
        if self.labels.get(label) != Some(value.as_str()) {
            self.labels.expect(label, value);
        }
    }

    /// The same host with the labels that a node policy only audits.
    #[must_use]
    pub fn reconciled(&self) -> Host {
        let mut host = self.clone();
        for (label, value) in std::mem::take(&mut host.audited_labels) {
            host.promise_label(label, value);
        }
        host
    }

    /// Its taints, and those that a node policy is about to set on it.
    pub fn present_and_planned_taints(&self) -> impl Iterator<Item = &Taint> {
        self.taints.iter().chain(self.planned_taints.iter().flatten())
    }

    /// Whether both are equivalent: equal except for what belongs to a single node, its name and [`LABELS_OF_ONE_NODE`].
    pub fn is_alike(&self, other: &Host) -> bool {
        let Host {
            name: _,
            build,
            revision,
            taints,
            planned_taints,
            containerd,
            labels,
            audited_labels,
            offered,
            is_settled,
            may_be_at_zero,
        } = self;
        *build == other.build
            && *revision == other.revision
            && *taints == other.taints
            && *planned_taints == other.planned_taints
            && *containerd == other.containerd
            && *audited_labels == other.audited_labels
            && *offered == other.offered
            && *is_settled == other.is_settled
            && *may_be_at_zero == other.may_be_at_zero
            && (labels.is_same(&other.labels) || shared_labels(labels).eq(shared_labels(&other.labels)))
    }
}

/// Labels whose value belongs to a single node. A missing entry costs time, not correctness: nodes that differ by it
/// are compared one by one.
pub const LABELS_OF_ONE_NODE: [&str; 3] = [
    HOSTNAME_LABEL,
    "alpha.eksctl.io/instance-id",
    "karpenter.sh/nodeclaim",
];

/// The labels that several nodes may share.
pub fn shared_labels(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(key, _)| !LABELS_OF_ONE_NODE.contains(key))
}

impl KnownNodeLabels for Host {
    fn node_name(&self) -> Option<&str> {
        (!self.may_be_at_zero).then_some(self.name.as_str())
    }

    fn label_value(&self, key: &str) -> LabelValue<'_> {
        /// No selector can know the names of future nodes; this is not a valid label value.
        const NAME_TO_COME: &str = "?";
        let known = self.labels.get(key).map(|value| {
            if value == VALUE_TO_COME {
                LabelValue::Unknown
            } else {
                LabelValue::Is(value.into())
            }
        });
        let implied = || {
            let of_build = || {
                self.build.map_or(LabelValue::Unknown, |build| {
                    LabelValue::Is(Cow::Owned(build.to_string()))
                })
            };
            match key {
                _ if !self.may_be_at_zero => LabelValue::Absent,
                OS_LABEL | BETA_OS_LABEL => LabelValue::Is("windows".into()),
                ARCH_LABEL | BETA_ARCH_LABEL => LabelValue::Is("amd64".into()),
                HOSTNAME_LABEL => LabelValue::Is(NAME_TO_COME.into()),
                BUILD_LABEL | RESTRICTED_BUILD_LABEL => of_build(),
                _ => (VersionLabel::find(key).zip(self.build))
                    .and_then(|(label, build)| label.value_of(build))
                    .map_or(LabelValue::Unknown, |value| LabelValue::Is(value.into())),
            }
        };
        known.unwrap_or_else(implied)
    }

    /// A node that is new may offer more resources soon.
    fn offers(&self, resource: &str, amount: u64) -> Match {
        match self.offered.offers(resource, amount) {
            Match::No if !self.is_settled && !self.may_be_at_zero => Match::Unknown,
            known => known,
        }
    }
}

/// AKS' names for Windows versions, with their builds.
///
/// Source: <https://learn.microsoft.com/azure/aks/upgrade-windows-os>
const SKUS: [(&str, u32); 3] = [
    ("Windows2019", 17763),
    ("Windows2022", 20348),
    ("Windows2025", 26100),
];

/// The build for a value of the AKS label.
pub fn build_of_sku(os_sku: &str) -> Option<Build> {
    let row = SKUS.iter().find(|(sku, _)| sku.eq_ignore_ascii_case(os_sku));
    row.map(|(_, number)| Build::new(*number))
}

/// Parses `1.36`, `v1.36.2` or `1.7.20+x` as (1, 36) and so on.
pub fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The newest minor release of these kubelets; `cluster` if none reports one.
pub fn newest_minor<'k>(kubelets: impl Iterator<Item = &'k str>, cluster: u32) -> u32 {
    let minors = kubelets.filter_map(|version| Some(major_minor(version)?.1));
    minors.max().unwrap_or(cluster)
}
