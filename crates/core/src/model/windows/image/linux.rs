//! Names that identify Linux images: words of a tag, and repositories that have never contained a Windows image.

use super::{ImageRef, is_on};

/// Distributions, their code names, and words that only Linux images have; words that end in `linux` need no entry.
/// `slim` is not included: it only means small.
static WORDS: &[&str] = &[
    "alpine",
    "bionic",
    "bookworm",
    "bullseye",
    "buster",
    "busybox",
    "centos",
    "chiseled",
    "chiselled",
    "debian",
    "distroless",
    "fedora",
    "focal",
    "forky",
    "jammy",
    "jessie",
    "mariner",
    "musl",
    "noble",
    "opensuse",
    "photon",
    "plucky",
    "questing",
    "rhel",
    "rocky",
    "sles",
    "stretch",
    "trixie",
    "ubi",
    "ubuntu",
    "wolfi",
    "xenial",
];

/// Docker Hub's official images without Windows variants. Source: github.com/docker-library/official-images,
/// `library/`: none of these files has listed `windows-amd64` in the years whose tags are still pulled (Redis had
/// Windows tags in 2016, with `nanoserver` in their names).
static OFFICIAL: &[&str] = &[
    "adminer",
    "almalinux",
    "alpine",
    "amazonlinux",
    "archlinux",
    "bash",
    "buildpack-deps",
    "busybox",
    "cassandra",
    "centos",
    "clickhouse",
    "couchdb",
    "debian",
    "drupal",
    "eclipse-mosquitto",
    "elasticsearch",
    "fedora",
    "flink",
    "ghost",
    "haproxy",
    "httpd",
    "influxdb",
    "joomla",
    "kibana",
    "kong",
    "logstash",
    "mariadb",
    "mediawiki",
    "memcached",
    "mongo-express",
    "mysql",
    "neo4j",
    "nextcloud",
    "nginx",
    "node",
    "oraclelinux",
    "percona",
    "photon",
    "php",
    "phpmyadmin",
    "postgres",
    "rabbitmq",
    "redis",
    "rockylinux",
    "ruby",
    "solr",
    "sonarqube",
    "spark",
    "tomcat",
    "ubuntu",
    "varnish",
    "vault",
    "wordpress",
    "zookeeper",
];

/// Linux-only repositories: the registries that serve them, the path (with a trailing `/`: everything below it), and
/// the source of the claim.
static REPOSITORIES: &[(&[&str], &str)] = &[
    // istio/istio#27893 (no Windows data plane), and pilot/docker/Dockerfile.proxyv2: based on Debian or distroless.
    (&["docker.io"], "istio/"),
    (&["gcr.io"], "istio-release/"),
    (&["gcr.io"], "istio-testing/"),
    (&["mcr.microsoft.com"], "oss/istio/"),
    // linkerd/linkerd2 .github/workflows/release.yml, linkerd2-proxy-init Dockerfile: linux/amd64 and linux/arm64; the
    // init container calls iptables.
    (&["cr.l5d.io", "ghcr.io"], "linkerd/"),
    // hashicorp/vault Dockerfile, hashicorp/vault-k8s Dockerfile: Alpine and UBI.
    (&["docker.io", "public.ecr.aws"], "hashicorp/vault"),
    (&["docker.io"], "hashicorp/vault-k8s"),
    // prometheus/node_exporter README: "for *nix kernels", on Windows windows_exporter; Makefile, DOCKER_ARCHS.
    (&["quay.io"], "prometheus/node-exporter"),
    (&["docker.io"], "prom/node-exporter"),
    // prometheus: Makefile.common builds images for linux only.
    (&["quay.io"], "prometheus/prometheus"),
    (&["docker.io"], "prom/prometheus"),
    (&["quay.io"], "prometheus/alertmanager"),
    (&["docker.io"], "prom/alertmanager"),
    // kubernetes/ingress-nginx Makefile, BUILDX_PLATFORMS.
    (&["registry.k8s.io", "k8s.gcr.io"], "ingress-nginx/"),
    // kubernetes/kube-state-metrics Makefile, ALL_ARCH; kubernetes-sigs/metrics-server Makefile, ALL_ARCHITECTURES;
    // coredns/coredns Makefile.docker, LINUX_ARCH.
    (&["registry.k8s.io", "k8s.gcr.io"], "kube-state-metrics/"),
    (&["registry.k8s.io", "k8s.gcr.io"], "metrics-server/"),
    (&["registry.k8s.io", "k8s.gcr.io"], "coredns/"),
    (&["docker.io"], "coredns/coredns"),
    // envoyproxy/envoy: Windows images were in separate repositories (envoyproxy/envoy-windows), until 2023.
    (&["docker.io"], "envoyproxy/envoy"),
    // Azure/azure-workload-identity#1017: the migration sidecars are for Linux containers.
    (&["mcr.microsoft.com"], "oss/azure/workload-identity/proxy"),
    (&["mcr.microsoft.com"], "oss/azure/workload-identity/proxy-init"),
    // SQL Server on Windows containers was a beta in separate repositories on Docker Hub, and ended in July 2021.
    (&["mcr.microsoft.com"], "mssql/server"),
    // Repositories of the distributions.
    (&["mcr.microsoft.com"], "azurelinux/"),
    (&["mcr.microsoft.com"], "cbl-mariner/"),
    (&["gcr.io"], "distroless/"),
    (&["cgr.dev"], "chainguard/"),
    (&["docker.io"], "bitnami/"),
    (&["docker.io"], "bitnamilegacy/"),
    (&["docker.io"], "ubuntu/"),
    (&["docker.io"], "rockylinux/"),
    (&["docker.io"], "redhat/"),
    (&["registry.access.redhat.com"], "ubi8/"),
    (&["registry.access.redhat.com"], "ubi9/"),
    (&["registry.access.redhat.com"], "ubi10/"),
    (&["public.ecr.aws"], "amazonlinux/"),
];

/// Registries that mirror Docker Hub's official images, and the path before their names.
static MIRRORS: &[(&str, &str)] = &[
    ("public.ecr.aws", "docker/library/"),
    ("mirror.gcr.io", "library/"),
];

/// Whether the repository has only ever contained Linux images.
pub(super) fn is_linux_only(image: &ImageRef<'_>) -> bool {
    let mirrored = MIRRORS.iter().find_map(|(registry, before)| {
        let name = image.repository.strip_prefix(before)?;
        is_on(image.registry, registry).then_some(name)
    });
    if let Some(name) = mirrored.or(image.is_official().then_some(image.repository)) {
        return OFFICIAL.contains(&name);
    }
    REPOSITORIES.iter().any(|(registries, path)| {
        let here = if path.ends_with('/') {
            image.repository.starts_with(path)
        } else {
            image.repository == *path
        };
        here && registries.iter().any(|registry| is_on(image.registry, registry))
    })
}

/// Repositories with Windows variants under tags that name a Linux distribution (`nginx:1.14-alpine`): the registries that
/// serve them, the path before the names, and the source of the claim.
static WITH_WINDOWS_VARIANTS: &[(&[&str], &str)] = &[
    // kubernetes/kubernetes test/images/*/BASEIMAGE lists windows/amd64 for each.
    (&["registry.k8s.io", "k8s.gcr.io"], "e2e-test-images/"),
    (&["gcr.io"], "k8s-staging-e2e-test-images/"),
    (&["gcr.io"], "kubernetes-e2e-test-images/"),
    // kubernetes-sigs/windows-testing gce/prepull-*.yaml: the images of DaemonSets that select Windows nodes.
    (&["k8sprow.azurecr.io"], "kubernetes-e2e-test-images/"),
    (&["docker.io"], "e2eteam/"),
];

/// The names of those repositories whose Windows variants contain busybox. Source: kubernetes/kubernetes,
/// `test/images/busybox/Dockerfile_windows` installs it; `test/images/*/BASEIMAGE` of the others names busybox or
/// agnhost as the base for Windows.
static WITH_BUSYBOX: &[&str] = &[
    "agnhost",
    "busybox",
    "httpd",
    "httpd-new",
    "jessie-dnsutils",
    "kitten",
    "nautilus",
    "nginx",
    "nginx-new",
    "redis",
];

/// Whether a tag of this repository that names a Linux distribution may also be for Windows.
pub(super) fn has_windows_variants(image: &ImageRef<'_>) -> bool {
    WITH_WINDOWS_VARIANTS.iter().any(|(registries, path)| {
        image.repository.starts_with(path)
            && registries.iter().any(|registry| is_on(image.registry, registry))
    })
}

/// Whether the Windows variants of this repository contain busybox.
pub(super) fn has_busybox(image: &ImageRef<'_>) -> bool {
    let name = image.repository.rsplit('/').next();
    has_windows_variants(image) && name.is_some_and(|name| WITH_BUSYBOX.contains(&name))
}

/// Whether a token of a tag indicates Linux, optionally with a version appended: `alpine3.20`, `ubi9`, `azurelinux3.0`.
pub(super) fn is_linux_token(token: &str) -> bool {
    let word = token.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let end = word
        .len()
        .checked_sub("linux".len())
        .and_then(|at| word.get(at..));
    end.is_some_and(|end| end.eq_ignore_ascii_case("linux"))
        || WORDS.iter().any(|known| known.eq_ignore_ascii_case(word))
}
