//! A Node as the API server has it, trimmed to the view of it.

use k8s_openapi::api::core::v1::Node;

use crate::cluster::view::{NodeView, OWNED_ANNOTATION};

/// Trims a Node to what is read of it.
pub fn view_of(node: &Node) -> NodeView {
    let meta = &node.metadata;
    let status = node.status.as_ref();
    let info = status.and_then(|status| status.node_info.as_ref());
    let text = |field: Option<&String>| field.cloned().unwrap_or_default();
    NodeView {
        name: text(meta.name.as_ref()),
        uid: text(meta.uid.as_ref()),
        resource_version: text(meta.resource_version.as_ref()),
        labels: meta.labels.clone().unwrap_or_default(),
        owned: (meta.annotations.as_ref()).and_then(|all| all.get(OWNED_ANNOTATION).cloned()),
        taints: (node.spec.as_ref())
            .and_then(|spec| spec.taints.clone())
            .unwrap_or_default(),
        operating_system: text(info.map(|info| &info.operating_system)),
        architecture: text(info.map(|info| &info.architecture)),
        kernel_version: text(info.map(|info| &info.kernel_version)),
        container_runtime: text(info.map(|info| &info.container_runtime_version)),
        kubelet_version: text(info.map(|info| &info.kubelet_version)),
        runtime_handlers: (status.and_then(|status| status.runtime_handlers.as_ref()))
            .into_iter()
            .flatten()
            .filter_map(|handler| handler.name.clone())
            .filter(|name| !name.is_empty())
            .collect(),
        deleting: meta.deletion_timestamp.is_some(),
    }
}
