//! Repositories that contain Windows images only, by name. The module `inference` has the words of tags.

use super::{ImageRef, is_on};

/// Repositories outside Microsoft's own trees: the registries that serve them, the path, and the source of the claim.
static REPOSITORIES: &[(&[&str], &str)] = &[
    // projectcalico/calico: postrelease tests list these as the Windows images of a release; before v3.26 there was one
    // image, `calico/windows` (docs of v3.24, calico-windows-vxlan.yaml).
    (&["docker.io", "quay.io"], "calico/windows"),
    (&["docker.io", "quay.io"], "calico/node-windows"),
    (&["docker.io", "quay.io"], "calico/cni-windows"),
    // antrea-io/antrea build/yamls/antrea-windows-with-ovs.yml.
    (&["docker.io"], "antrea/antrea-windows"),
    // prometheus-community/windows_exporter README and release.yml: windows/amd64 only.
    (&["ghcr.io"], "prometheus-community/windows-exporter"),
    // kubernetes-sigs/sig-windows-tools hostprocess/csi-proxy and hostprocess/eventflow-logger.
    (&["ghcr.io"], "kubernetes-sigs/sig-windows/csi-proxy"),
    (&["ghcr.io"], "kubernetes-sigs/sig-windows/eventflow-logger"),
    // microsoft/windows-host-process-containers-base-image README: usable for HostProcess containers only.
    (
        &["mcr.microsoft.com"],
        "oss/kubernetes/windows-host-process-containers-base-image",
    ),
    // MicrosoftDocs/azure-aks-docs articles/aks/use-windows-gpu.md.
    (&["mcr.microsoft.com"], "aks/aks-windows-gpu-device-plugin"),
];

/// Whether the repository is listed here.
pub(super) fn is_windows_only(image: &ImageRef<'_>) -> bool {
    REPOSITORIES.iter().any(|(registries, path)| {
        image.repository == *path && registries.iter().any(|registry| is_on(image.registry, registry))
    })
}
