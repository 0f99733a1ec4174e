//! Properties of a node: whether it runs Windows, its build and its taints. `check`, reviews, metrics and the
//! controllers all use this module.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::extended_resources::OfferedResources;
use super::network_plugin::NetworkPlugin;
use super::node_affinity::{KnownNodeLabels, LabelValue, Match};
use crate::model::objects::pod::Toleration;
use crate::model::objects::resources::Node;
use crate::model::syntax::json_types::Str;
use crate::model::syntax::text::yaml_scalar;
use crate::model::windows::build::Build;

mod labels;
mod other_nodes;
mod version_labels;
mod virtual_nodes;

pub use self::labels::Labels;
pub use self::other_nodes::{OtherNode, OtherNodes};
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
/// The labels that every kubelet sets on its Windows node.
pub const LABELS_OF_KUBELETS: [&str; 6] = [
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
    /// Exactly this value.
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

/// The operating system that a kubelet reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportedOs {
    /// Windows.
    Windows,
    /// Another one.
    Other,
    /// Nothing yet.
    Silent,
    /// None, because the node is virtual and has no kubelet.
    Virtual,
}

/// Since when a node is Ready, according to its condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NodeReadiness {
    /// The node has no such condition: it comes from a file, or its kubelet has not reported.
    #[default]
    Unreported,
    /// It is not Ready.
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

/// The inputs from a Node, independent of its representation; the provided methods derive the rest.
pub trait NodeSigns {
    /// Its name.
    fn name(&self) -> &str;
    /// The value of one of its labels.
    fn label(&self, key: &str) -> Option<&str>;
    /// Its taints.
    fn taints(&self) -> Vec<Taint>;
    /// `status.nodeInfo.operatingSystem`; empty if the kubelet has not reported.
    fn operating_system(&self) -> &str;
    /// `status.nodeInfo.kernelVersion`.
    fn kernel_version(&self) -> &str;
    /// `status.nodeInfo.containerRuntimeVersion`.
    fn container_runtime(&self) -> &str;
    /// `status.nodeInfo.kubeletVersion`.
    fn kubelet_version(&self) -> &str;
    /// Its network plugin, if an annotation of the node names it.
    fn network_plugin(&self) -> Option<NetworkPlugin>;
    /// All its labels.
    fn labels(&self) -> Arc<BTreeMap<String, String>>;
    /// The extended resources in `status.allocatable`, which is what the scheduler counts.
    fn offered_resources(&self) -> Cow<'_, OfferedResources>;
    /// Since when the node is Ready.
    fn readiness(&self) -> NodeReadiness;

    /// The label that names its pool, and the name, if its platform labels pools.
    fn pool(&self) -> Option<(&'static str, &str)> {
        pool_of(|key| self.label(key))
    }

    /// Whether it is a virtual node of a known provider: it has no kubelet, and no Windows of its own.
    fn is_virtual(&self) -> bool {
        virtual_nodes::provider_of(self).is_some()
    }

    /// Whether it is a Windows node with a kubelet: what concerns the node itself, not only the pods on it.
    fn has_windows(&self) -> bool {
        self.is_windows() && !self.is_virtual()
    }

    /// The operating system that its kubelet reports.
    fn reported_os(&self) -> ReportedOs {
        match self.operating_system() {
            _ if self.is_virtual() => ReportedOs::Virtual,
            "" => ReportedOs::Silent,
            os if is_windows(os) => ReportedOs::Windows,
            _ => ReportedOs::Other,
        }
    }

    /// Whether a label identifies it as a Windows node, including the deprecated label.
    fn is_labelled_windows(&self) -> bool {
        let mut labels_of = [OS_LABEL, BETA_OS_LABEL]
            .into_iter()
            .filter_map(|key| self.label(key));
        labels_of.any(is_windows)
    }

    /// Whether Windows pods run on it: according to its kubelet, or to a label until the kubelet reports. A virtual node
    /// counts, too.
    fn is_windows(&self) -> bool {
        match self.operating_system() {
            "" => self.is_labelled_windows(),
            os => is_windows(os),
        }
    }

    /// The build of its kernel.
    fn kernel_build(&self) -> Option<Build> {
        Build::parse_kernel_version(self.kernel_version()).map(|(build, _)| build)
    }

    /// Its build: that of its kernel, or that of a label until the kubelet reports one. The label that a kubelet cannot
    /// write takes precedence.
    fn build(&self) -> Option<Build> {
        let of_label = |key| self.label(key).and_then(Build::parse_label);
        self.kernel_build()
            .or_else(|| of_label(RESTRICTED_BUILD_LABEL))
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

    fn kubelet_version(&self) -> &str {
        &self.status.node_info.kubelet_version
    }

    fn network_plugin(&self) -> Option<NetworkPlugin> {
        NetworkPlugin::of_annotations(self.metadata.annotations.iter().map(|(key, _)| &**key))
    }

    fn labels(&self) -> Arc<BTreeMap<String, String>> {
        Arc::new(self.metadata.labels.to_owned_map())
    }

    fn offered_resources(&self) -> Cow<'_, OfferedResources> {
        let allocatable = self.status.allocatable.iter();
        Cow::Owned(OfferedResources::of_node(
            allocatable.map(|(name, amount)| (&**name, amount.clone())),
        ))
    }

    fn readiness(&self) -> NodeReadiness {
        let mut conditions = self.status.conditions.iter();
        let ready = conditions.find(|condition| &*condition.r#type == "Ready");
        ready.map_or(NodeReadiness::Unreported, |ready| {
            NodeReadiness::of_condition(&ready.status, ready.last_transition_time.as_deref())
        })
    }
}

impl<N: NodeSigns> KnownNodeLabels for N {
    fn node_name(&self) -> Option<&str> {
        Some(self.name())
    }

    fn label_value(&self, key: &str) -> LabelValue<'_> {
        self.label(key).into()
    }

    fn offers(&self, resource: &str, amount: u64) -> Match {
        self.offered_resources().offers(resource, amount)
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

    /// Whether placement may learn the taint's toleration for every Windows pod: it means Windows and nothing else, and
    /// its effect is `NoSchedule`.
    ///
    /// Maintenance, pressure, spot, tenant and lifecycle taints never qualify.
    pub fn marks_windows(&self) -> bool {
        self.effect == "NoSchedule" && self.windows_release().is_some()
    }

    /// What the taint says after Windows: nothing, or a release as in `2019`. `None` if it does not mean Windows, or says
    /// more, as in `os=windows-team`: the key must be one that is commonly used for this.
    pub fn windows_release(&self) -> Option<String> {
        const KEYS: [&str; 5] = [
            "os",
            "windows",
            "sku",
            "node.kubernetes.io/os",
            "kubernetes.io/os",
        ];
        if !KEYS.contains(&self.key.as_str()) {
            return None;
        }
        let value = self.value.to_ascii_lowercase();
        if value == "true" && matches!(self.key.as_str(), "windows" | "os" | "sku") {
            return Some(String::new());
        }
        let rest = value
            .strip_prefix("windows")
            .or_else(|| value.strip_prefix("win"))?;
        let rest: String = rest.chars().filter(|it| !"-_.".contains(*it)).collect();
        let rest = rest.strip_prefix("server").unwrap_or(&rest);
        let release = ["ltsc", "sac"].iter().find_map(|name| rest.strip_prefix(name));
        let release = release.unwrap_or(rest);
        let is_release = release == "20h2" || release.bytes().all(|byte| byte.is_ascii_digit());
        is_release.then(|| release.to_owned())
    }

    /// Prefixes of the keys of taints that belong to Kubernetes, a cloud or an autoscaler. The admission policies of the
    /// chart protect the same ones: `files/node-writes.json` is generated from these lists.
    pub const PROTECTED_PREFIXES: [&str; 9] = [
        "node.kubernetes.io/",
        "node.cloudprovider.kubernetes.io/",
        "node-role.kubernetes.io/",
        "startup-taint.cluster-autoscaler.kubernetes.io/",
        "status-taint.cluster-autoscaler.kubernetes.io/",
        "ignore-taint.cluster-autoscaler.kubernetes.io/",
        "karpenter.sh/",
        "karpenter.k8s.aws/",
        "karpenter.azure.com/",
    ];

    /// Keys of such taints.
    pub const PROTECTED_KEYS: [&str; 2] = [
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
    ];

    /// A key with a protected prefix that only states the system of the node: GKE's, which a policy may require.
    pub const SETTABLE_KEY: &str = "node.kubernetes.io/os";

    /// The startup taint, which whoever creates a node puts on it. It is the one taint that Transom may remove without
    /// having set it; Transom never sets it.
    pub const STARTUP_KEY: &str = "startup-taint.cluster-autoscaler.kubernetes.io/transom";

    /// The taints of nodes that a cloud, Cluster API or Karpenter has not labelled yet. They are removed when it has.
    pub const UNINITIALIZED_KEYS: [&str; 3] = [
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cluster.x-k8s.io/uninitialized",
        "karpenter.sh/unregistered",
    ];

    /// Whether it belongs to Kubernetes, a cloud or an autoscaler: Transom neither sets nor removes these, regardless
    /// of policies and annotations.
    pub fn is_protected(&self) -> bool {
        let key = self.key.as_str();
        key != Self::SETTABLE_KEY
            && (Self::PROTECTED_PREFIXES
                .iter()
                .any(|prefix| key.starts_with(prefix))
                || Self::PROTECTED_KEYS.contains(&key))
    }

    /// Whether pods that do not tolerate it are not scheduled on the node, or are evicted; false for
    /// `PreferNoSchedule`.
    pub fn keeps_off(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }

    /// Whether the taint is permanent. Controllers and autoscalers use temporary taints for a node that is new, in
    /// trouble, or about to be removed; the pods that those keep off are scheduled later.
    pub fn lasts(&self) -> bool {
        const PASSING: [&str; 13] = [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
            "node.kubernetes.io/unschedulable",
            "node.kubernetes.io/memory-pressure",
            "node.kubernetes.io/disk-pressure",
            "node.kubernetes.io/pid-pressure",
            "node.kubernetes.io/network-unavailable",
            "node.kubernetes.io/out-of-service",
            "node.cloudprovider.kubernetes.io/shutdown",
            "ToBeDeletedByClusterAutoscaler",
            "DeletionCandidateOfClusterAutoscaler",
            "karpenter.sh/disrupted",
            "karpenter.sh/disruption",
        ];
        // The cluster autoscaler and others remove theirs when a node has started.
        let of_start = [
            "startup-taint.cluster-autoscaler.kubernetes.io/",
            "ignore-taint.cluster-autoscaler.kubernetes.io/",
        ];
        !PASSING.contains(&self.key.as_str())
            && !Self::UNINITIALIZED_KEYS.contains(&self.key.as_str())
            && !of_start.iter().any(|start| self.key.starts_with(start))
    }

    /// A toleration of it, as YAML in one line.
    pub fn toleration_yaml(&self) -> String {
        let (key, effect) = (yaml_scalar(&self.key), yaml_scalar(&self.effect));
        if self.value.is_empty() {
            return format!("{{key: {key}, operator: Exists, effect: {effect}}}");
        }
        let value = yaml_scalar(&self.value);
        format!("{{key: {key}, operator: Equal, value: {value}, effect: {effect}}}")
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
    /// Its build, if known.
    pub build: Option<Build>,
    /// Its update revision (UBR), the fourth number of its kernel version.
    pub revision: Option<u32>,
    /// Its taints.
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
            containerd: (node.container_runtime().strip_prefix("containerd://")).and_then(major_minor),
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

    /// Whether both are equivalent: equal except for what belongs to a single node, its name and [`OWN_LABELS`].
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
pub const OWN_LABELS: [&str; 3] = [
    HOSTNAME_LABEL,
    "alpha.eksctl.io/instance-id",
    "karpenter.sh/nodeclaim",
];

/// The labels that several nodes may share.
pub fn shared_labels(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(key, _)| !OWN_LABELS.contains(key))
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
        let labels_of =
            |os, windows, build: &str| (os, windows, (!build.is_empty()).then(|| build.to_owned()));
        let labels = format!(
            r#"{{"kubernetes.io/os": "windows", "{BUILD_LABEL}": "10.0.17763", "{RESTRICTED_BUILD_LABEL}": "10.0.26100"}}"#
        );
        let kernel = r#"{"operatingSystem": "Windows", "kernelVersion": "10.0.20348.1"}"#;
        let linux = r#"{"operatingSystem": "linux", "kernelVersion": "6.1.0"}"#;
        assert_eq!(
            node(&labels, kernel),
            labels_of(ReportedOs::Windows, true, "10.0.20348")
        );
        assert_eq!(
            node(&labels, "{}"),
            labels_of(ReportedOs::Silent, true, "10.0.26100")
        );
        assert_eq!(
            node(&labels, linux),
            labels_of(ReportedOs::Other, false, "10.0.26100")
        );
        let beta = format!(r#"{{"{BETA_OS_LABEL}": "windows", "{BUILD_LABEL}": "10.0.17763"}}"#);
        assert_eq!(
            node(&beta, "{}"),
            labels_of(ReportedOs::Silent, true, "10.0.17763")
        );
        assert_eq!(node("{}", "{}"), labels_of(ReportedOs::Silent, false, ""));
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
            ("os", "windows-server-2022"),
            ("os", "windows_ltsc2025"),
            ("os", "win20H2"),
        ] {
            assert!(Taint::no_schedule(key, value).marks_windows(), "{key}={value}");
        }
        for (key, value) in [
            ("cattle.io/os", "linux"),
            ("os", "linux"),
            ("sku", "gpu"),
            ("team", "windows"),
            ("os", "windows-team"),
            ("sku", "windows2025-gpu"),
            ("sku", "winter"),
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
    fn the_toleration_of_a_taint_is_text_for_yaml_too() {
        for (key, value, expected) in [
            (
                "node.kubernetes.io/os",
                "windows",
                "{key: node.kubernetes.io/os, operator: Equal, value: windows, effect: NoSchedule}",
            ),
            (
                "windows",
                "true",
                "{key: windows, operator: Equal, value: \"true\", effect: NoSchedule}",
            ),
            (
                "sku",
                "2019",
                "{key: sku, operator: Equal, value: \"2019\", effect: NoSchedule}",
            ),
            (
                "dedicated",
                "",
                "{key: dedicated, operator: Exists, effect: NoSchedule}",
            ),
            ("on", "", "{key: \"on\", operator: Exists, effect: NoSchedule}"),
        ] {
            assert_eq!(Taint::no_schedule(key, value).toleration_yaml(), expected);
        }
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
