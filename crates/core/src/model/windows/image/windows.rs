//! Repositories that contain Windows images, by name: only such images, under a word of the tag, or versions of a product
//! that are not releases of Windows. The module `inference` has the words of tags.

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
    // signalfx/splunk-otel-collector-chart docs/advanced-configuration.md: "all windows images are available in a separate
    // repository".
    (&["quay.io"], "signalfx/splunk-otel-collector-windows"),
    // rancher/windows_exporter-package, in the chart rancher-windows-exporter of rancher/charts.
    (&["docker.io"], "rancher/windows_exporter-package"),
    // MicrosoftDocs/azure-aks-docs articles/aks/use-windows-gpu.md.
    (&["mcr.microsoft.com"], "aks/aks-windows-gpu-device-plugin"),
];

/// Repositories with Windows images under a word of the tag that proves nothing in other repositories: the registries, the
/// path, the word, and the source of the claim.
static TAG_WORDS: &[(&[&str], &str, &str)] = &[
    // DataDog/helm-charts charts/datadog/values.yaml, agents.image: `7.x.y-servercore`; `latest-servercore` too.
    (
        &["gcr.io", "eu.gcr.io", "asia.gcr.io"],
        "datadoghq/agent",
        "servercore",
    ),
    (&["docker.io", "public.ecr.aws"], "datadog/agent", "servercore"),
    (
        &["datadoghq.azurecr.io", "registry.datadoghq.com"],
        "agent",
        "servercore",
    ),
    // grafana/agent docs/sources/flow/get-started/install/docker.md: `latest-windows`, `v0.x.y-windows`.
    (&["docker.io"], "grafana/agent", "windows"),
];

/// Products whose versions are years as well: one of the last two parts of the path, in any registry. In a tag like `windows-2019` the
/// year can be that of the product. Source: the names of images that mcr.microsoft.com, Docker Hub and their docs use.
static PRODUCTS_WITH_YEARS: &[&str] = &[
    "buildtools",
    "exchange",
    "mssql",
    "mssql-server",
    "mssql-server-windows",
    "mssql-server-windows-developer",
    "mssql-server-windows-express",
    "sharepoint",
    "sql-server",
    "sqlserver",
    "sqlserver-developer",
    "sqlserver-express",
    "visualstudio",
    "vs-buildtools",
    "vsbuildtools",
];

/// Whether the repository contains Windows images only.
pub(super) fn is_windows_only(image: &ImageRef<'_>) -> bool {
    (REPOSITORIES.iter()).any(|(registries, path)| is_at(image, registries, path))
}

/// Whether a word of the tag means Windows in this repository.
pub(super) fn is_tag_word(image: &ImageRef<'_>, token: &str) -> bool {
    (TAG_WORDS.iter())
        .any(|(registries, path, word)| word.eq_ignore_ascii_case(token) && is_at(image, registries, path))
}

/// Whether a year in the tag can be the version of the product.
pub(super) fn is_product_with_years(image: &ImageRef<'_>) -> bool {
    let mut names = image.repository.rsplit('/').take(2);
    names.any(|name| PRODUCTS_WITH_YEARS.contains(&name))
}

fn is_at(image: &ImageRef<'_>, registries: &[&str], path: &str) -> bool {
    image.repository == path && registries.iter().any(|registry| is_on(image.registry, registry))
}
