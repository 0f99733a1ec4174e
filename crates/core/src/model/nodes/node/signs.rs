//! What a node is: whether it is a Windows node or a virtual one, its build, its pool, whether it is initialized, and whether
//! ordinary pods are kept off it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::taint::Taint;
use super::{
    BETA_OS_LABEL, BUILD_LABEL, NodeReadiness, OS_LABEL, RESTRICTED_BUILD_LABEL, major_minor, pool_of,
    virtual_nodes,
};
use crate::model::nodes::extended_resources::OfferedResources;
use crate::model::nodes::network_plugin::NetworkPlugin;
use crate::model::nodes::node_affinity::{KnownNodeLabels, LabelValue, Match};
use crate::model::objects::resources::Node;
use crate::model::windows::build::Build;

/// The operating system that a kubelet reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportedOs {
    Windows,
    Other,
    /// Nothing yet.
    Silent,
    /// None, because the node is virtual and has no kubelet.
    Virtual,
}

/// What of a node is not for pods: the difference between its capacity and what is allocatable. `None` if the node does not
/// report both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReservedResources {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Thousandths of a CPU.
    pub cpu: Option<u64>,
}

impl ReservedResources {
    /// From `status.capacity` and `status.allocatable`, which return thousandths of a resource.
    pub fn between(
        capacity: impl Fn(&str) -> Option<u128>,
        allocatable: impl Fn(&str) -> Option<u128>,
    ) -> Self {
        let kept = |name| u64::try_from(capacity(name)?.saturating_sub(allocatable(name)?)).ok();
        ReservedResources {
            memory: kept("memory").map(|millis| millis / 1000),
            cpu: kept("cpu"),
        }
    }
}

/// What a node is. A Node object, and a node in the cache of a cluster, supply only the fields that are read; what these mean
/// is decided here for all who ask.
pub trait NodeSigns: fmt::Debug + Send + Sync {
    fn name(&self) -> &str;
    /// The value of one of its labels.
    fn label(&self, key: &str) -> Option<&str>;
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
    fn labels(&self) -> Arc<BTreeMap<String, String>>;
    /// The extended resources in `status.allocatable`, which is what the scheduler counts.
    fn offered_resources(&self) -> Cow<'_, OfferedResources>;
    /// Since when the node is Ready.
    fn readiness(&self) -> NodeReadiness;
    /// What it reserves for Windows and its services.
    fn reserved(&self) -> ReservedResources;

    /// The label that names its pool, and the name, if its platform labels pools.
    fn pool(&self) -> Option<(&'static str, &str)> {
        pool_of(|key| self.label(key))
    }

    /// Whether it is a virtual node of a known provider: it has no kubelet, and no Windows of its own.
    fn is_virtual(&self) -> bool {
        virtual_nodes::provider_of(self.kubelet_version(), |key| self.label(key), || self.taints()).is_some()
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

    /// Whether ordinary pods, such as those for Linux, are not scheduled on it, whatever its taints are meant for.
    fn keeps_ordinary_pods_off(&self) -> bool {
        self.taints().iter().any(Taint::keeps_ordinary_pods_off)
    }

    /// Whether a cloud, Cluster API or Karpenter may still add labels to it.
    fn is_uninitialized(&self) -> bool {
        let mut taints = self.taints().into_iter();
        taints.any(|taint| Taint::UNINITIALIZED_KEYS.contains(&&*taint.key))
    }

    /// The version of containerd, major and minor, if that is its container runtime.
    fn containerd(&self) -> Option<(u32, u32)> {
        (self.container_runtime().strip_prefix("containerd://")).and_then(major_minor)
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

    fn reserved(&self) -> ReservedResources {
        let status = &self.status;
        ReservedResources::between(
            |name| status.capacity.get(name)?.millis(),
            |name| status.allocatable.get(name)?.millis(),
        )
    }

    fn readiness(&self) -> NodeReadiness {
        let mut conditions = self.status.conditions.iter();
        let ready = conditions.find(|condition| &*condition.r#type == "Ready");
        ready.map_or(NodeReadiness::Unreported, |ready| {
            NodeReadiness::of_condition(&ready.status, ready.last_transition_time.as_deref())
        })
    }
}

impl<N: NodeSigns + ?Sized> KnownNodeLabels for N {
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
}
