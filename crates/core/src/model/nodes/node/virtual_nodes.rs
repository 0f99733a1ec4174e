//! Virtual nodes: Node objects of a provider that runs pods elsewhere (Virtual Kubelet). They have neither a kubelet nor a
//! Windows of their own.

use jiff::civil::{Date, date};

use super::Taint;

/// A provider of virtual nodes that can run Windows pods.
#[derive(Debug)]
pub struct VirtualNodeProvider {
    /// The value of its taint [`PROVIDER_TAINT`].
    pub provider: &'static str,
    pub name: &'static str,
    /// Where this is from.
    pub source: &'static str,
    /// When it was last compared with its source.
    pub date: Date,
}

/// The known providers. A kubelet can report any version and most labels, so no other node is believed to be virtual.
pub static VIRTUAL_NODE_PROVIDERS: [VirtualNodeProvider; 1] = [VirtualNodeProvider {
    provider: "azure",
    name: "Azure Container Instances",
    source: "https://github.com/virtual-kubelet/azure-aci",
    date: date(2026, 11, 29),
}];

/// The taint of virtual nodes, which keeps all other pods away.
const PROVIDER_TAINT: &str = "virtual-kubelet.io/provider";
/// The label of virtual nodes, and its value.
const TYPE_LABEL: (&str, &str) = ("type", "virtual-kubelet");
/// What the versions of Virtual Kubelet contain, as in `v1.25.0-vk-azure-aci-1.6.2`.
const VERSION_PART: &str = "-vk-";

/// The known provider of a virtual node; `None` for any other node.
pub(super) fn provider_of<'l>(
    kubelet_version: &str,
    label: impl FnOnce(&str) -> Option<&'l str>,
    taints: impl FnOnce() -> Vec<Taint>,
) -> Option<&'static VirtualNodeProvider> {
    let (key, value) = TYPE_LABEL;
    if !kubelet_version.contains(VERSION_PART) || label(key) != Some(value) {
        return None;
    }
    let taints = taints();
    let is_of = |provider: &&VirtualNodeProvider| {
        let is_its = |taint: &Taint| {
            taint.key == PROVIDER_TAINT && taint.value == provider.provider && taint.effect == "NoSchedule"
        };
        taints.iter().any(is_its)
    };
    VIRTUAL_NODE_PROVIDERS.iter().find(is_of)
}

#[cfg(test)]
mod tests {
    use crate::model::nodes::node::NodeSigns as _;
    use crate::model::objects::resources::Node;

    #[test]
    fn a_node_is_virtual_by_its_version_its_label_and_the_taint_of_a_known_provider() {
        let node = r#"{"metadata": {"name": "v", "labels": {"type": "virtual-kubelet", "kubernetes.io/os": "windows"}},
            "spec": {"taints": [{"key": "virtual-kubelet.io/provider", "value": "azure", "effect": "NoSchedule"}]},
            "status": {"nodeInfo": {"kubeletVersion": "v1.25.0-vk-azure-aci-1.6.2", "operatingSystem": "Windows"}}}"#;
        let is_virtual = |from: &str, to: &str| {
            assert!(node.contains(from), "{from}");
            let text = node.replace(from, to);
            let node: Node<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(node.is_windows(), from != r#""Windows""#, "{to}");
            node.is_virtual()
        };
        assert!(is_virtual(
            "v1.25.0-vk-azure-aci-1.6.2",
            "v1.14.3-vk-azure-aci-vv1.3.0"
        ));
        for (from, to) in [
            ("v1.25.0-vk-azure-aci-1.6.2", "v1.25.0"),
            (r#""type": "virtual-kubelet""#, r#""type": "vm""#),
            (r#""value": "azure""#, r#""value": "mine""#),
            ("NoSchedule", "PreferNoSchedule"),
            ("virtual-kubelet.io/provider", "other"),
        ] {
            assert!(!is_virtual(from, to), "{to}");
        }
    }
}
