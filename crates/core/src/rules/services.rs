//! Services with Windows backends, or in clusters with Windows nodes: what kube-proxy on Windows does not do; and
//! NetworkPolicies of Windows pods.

mod network_policies;

use std::net::IpAddr;

use super::context::Cx;
use super::rule::{Builds, Check, Rule};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::objects::object::Body;
use crate::model::objects::resources::Service;
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::windows::build::Build;

/// Rules TSM801 and up.
pub static RULES: &[&Rule] = &[
    &SERVICE_SESSION_AFFINITY_TIMEOUT,
    &SERVICE_SESSION_AFFINITY,
    &SERVICE_TOO_MANY_BACKENDS,
    &SERVICE_EXTERNAL_TRAFFIC_LOCAL,
    &SERVICE_PRESERVE_DESTINATION,
    &SERVICE_IPV6,
    &SERVICE_SCTP,
    &network_policies::NETWORK_POLICY_NOT_ENFORCED,
];

const NETWORK: &str =
    "https://kubernetes.io/docs/concepts/services-networking/windows-networking/#load-balancing-and-services";
const LIMITATIONS: &str =
    "https://kubernetes.io/docs/concepts/services-networking/windows-networking/#limitations";
const DUAL_STACK: &str =
    "https://kubernetes.io/docs/concepts/services-networking/dual-stack/#windows-support";
const PROXIER: &str = "kubernetes: pkg/proxy/winkernel/proxier.go";

/// Common to most of this family: kube-proxy on Windows ignores the field.
const IGNORED: Rule = Rule {
    severity: Severity::Warning,
    class: Class::Ignored,
    ..Rule::BASE
};

/// The checked Service, unless kube-proxy does not handle it: a headless Service or an ExternalName.
fn proxied<'c>(cx: &Cx<'c>) -> Option<&'c Service<'c>> {
    let service = any_service(cx)?;
    let headless = service.spec.cluster_ip.as_deref() == Some("None");
    let name_only = service.spec.r#type.as_deref() == Some("ExternalName");
    (!headless && !name_only).then_some(service)
}

fn any_service<'c>(cx: &Cx<'c>) -> Option<&'c Service<'c>> {
    match &cx.subject.body {
        Body::Service(service) => Some(service),
        _ => None,
    }
}

/// Whether a known Windows workload of its namespace has every label that the Service selects.
fn has_windows_backends(cx: &Cx<'_>, service: &Service<'_>) -> bool {
    let selector = &service.spec.selector;
    !selector.is_empty()
        && cx.facts.workloads.iter().any(|workload| {
            *workload.namespace == *cx.subject.namespace
                && selector
                    .iter()
                    .all(|(key, value)| workload.labels.get(&**key).is_some_and(|own| **own == **value))
        })
}

fn concerns_windows(cx: &Cx<'_>, service: &Service<'_>) -> bool {
    cx.hosts().next().is_some() || has_windows_backends(cx, service)
}

fn affinity_is_client_ip(service: &Service<'_>) -> bool {
    service.spec.session_affinity.as_deref() == Some("ClientIP")
}

/// The oldest build of the known Windows nodes, if it is older than this one.
fn oldest_below(cx: &Cx<'_>, build: u32) -> Option<Build> {
    cx.host_builds()
        .first()
        .copied()
        .filter(|oldest| oldest.number() < build)
}

/// How many backends the Service has in its larger address family, according to the known EndpointSlices, and whether
/// any is an IPv6 address. kube-proxy balances each family separately.
fn backends(cx: &Cx<'_>) -> (usize, bool) {
    let key = (cx.subject.namespace.to_string(), cx.subject.meta.name.to_string());
    let addresses = || cx.facts.backends.get(&key).into_iter().flatten();
    let v6 = addresses()
        .filter(|address| matches!(address.parse(), Ok(IpAddr::V6(_))))
        .count();
    (v6.max(addresses().count() - v6), v6 > 0)
}

static SERVICE_SESSION_AFFINITY_TIMEOUT: Rule = Rule {
    id: "TSM801",
    name: "service-session-affinity-timeout",
    summary: "kube-proxy on Windows ignores the session affinity timeout",
    docs: "kube-proxy does not pass the timeout to the host networking service of Windows, which has its own. 10800 \
           seconds is the API server's default and is not reported. Linux nodes use the timeout, so clients get \
           different behaviour depending on the node through which they connect.",
    remedy: "remove timeoutSeconds; keep sessions in the application if their length matters",
    see: &[NETWORK, "kubernetes: pkg/proxy/winkernel/hns.go, getLoadBalancer"],
    bad: &[
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web, tier: front}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 10800}}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}",
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web, tier: back}, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web, tier: front}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, sessionAffinity: None, sessionAffinityConfig: null, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}",
    ],
    check: Check::Object(&[Kind::Service], |cx, out| {
        const DEFAULT: i64 = 10800;
        let Some(service) = proxied(cx).filter(|service| affinity_is_client_ip(service)) else { return };
        let config = service.spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
        let timeout = config.and_then(|client_ip| client_ip.timeout_seconds);
        if timeout.is_some_and(|seconds| seconds != DEFAULT) && concerns_windows(cx, service) {
            out.report(Path::of(&["spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"])).removable();
        }
    }),
    ..IGNORED
};

static SERVICE_SESSION_AFFINITY: Rule = Rule {
    id: "TSM802",
    name: "service-session-affinity",
    builds: Builds::Below(20348),
    summary: "Windows before Server 2022 has no session affinity",
    docs: "Session affinity by client IP needs the host networking service of Windows Server 2022 (build 20348). On \
           older nodes kube-proxy logs a message and balances without affinity. That affects every connection that \
           enters through such a node, regardless of the operating system of the backends.",
    remedy: "use Windows Server 2022 or later for the nodes, or keep sessions in the application",
    see: &[NETWORK, PROXIER],
    bad: &["{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, sessionAffinity: ClientIP, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.5000}}}"],
    good: &[
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, sessionAffinity: ClientIP, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2700}}}",
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, sessionAffinity: None, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.5000}}}",
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, clusterIP: None, sessionAffinity: ClientIP, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.5000}}}",
    ],
    check: Check::Object(&[Kind::Service], |cx, out| {
        if proxied(cx).is_some_and(affinity_is_client_ip) {
            let finding = out.report(Path::of(&["spec", "sessionAffinity"]));
            if let Some(build) = oldest_below(cx, 20348) {
                finding.message(format!("kube-proxy on Windows nodes of build {build} has no session affinity"));
            }
        }
    }),
    ..IGNORED
};

/// Sixty-five backends (the limit of Windows until Kubernetes 1.24 is 64) and a Windows node.
macro_rules! sixty_five_backends {
    () => {
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.5000}}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-x, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints:
- addresses: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, 10.0.0.6, 10.0.0.7, 10.0.0.8, 10.0.0.9, 10.0.0.10, 10.0.0.11, 10.0.0.12, 10.0.0.13,
    10.0.0.14, 10.0.0.15, 10.0.0.16, 10.0.0.17, 10.0.0.18, 10.0.0.19, 10.0.0.20, 10.0.0.21, 10.0.0.22, 10.0.0.23, 10.0.0.24, 10.0.0.25, 10.0.0.26,
    10.0.0.27, 10.0.0.28, 10.0.0.29, 10.0.0.30, 10.0.0.31, 10.0.0.32, 10.0.0.33, 10.0.0.34, 10.0.0.35, 10.0.0.36, 10.0.0.37, 10.0.0.38, 10.0.0.39,
    10.0.0.40, 10.0.0.41, 10.0.0.42, 10.0.0.43, 10.0.0.44, 10.0.0.45, 10.0.0.46, 10.0.0.47, 10.0.0.48, 10.0.0.49, 10.0.0.50, 10.0.0.51, 10.0.0.52,
    10.0.0.53, 10.0.0.54, 10.0.0.55, 10.0.0.56, 10.0.0.57, 10.0.0.58, 10.0.0.59, 10.0.0.60, 10.0.0.61, 10.0.0.62, 10.0.0.63, 10.0.0.64, 10.0.0.65]"
    };
}

static SERVICE_TOO_MANY_BACKENDS: Rule = Rule {
    id: "TSM803",
    name: "service-too-many-backends",
    summary: "more backends than Windows can balance for one Service",
    docs: "The host networking service of Windows supports a limited number of backends (unique destination addresses) \
           for one Service. The limit is 1024 according to the documentation of current releases, and 64 according to \
           that of Kubernetes 1.24 and earlier. With more backends, the Service may stop working on Windows nodes. The \
           rule counts the addresses of all known EndpointSlices of the Service, each address family separately. It \
           ignores headless Services, which are not balanced.",
    remedy: "split the workload and its Service",
    see: &[LIMITATIONS, "https://github.com/kubernetes/kubernetes/issues/135518"],
    bad: &[concat!("# --kubernetes-version 1.24\n", sixty_five_backends!())],
    good: &[
        concat!("# --kubernetes-version 1.36\n", sixty_five_backends!()),
        "# --kubernetes-version 1.24
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.5000}}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-x, namespace: shop, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}]}",
    ],
    check: Check::Object(&[Kind::Service], |cx, out| {
        let limit = if cx.facts.kubernetes <= 24 { 64 } else { 1024 };
        let Some(service) = proxied(cx).filter(|service| concerns_windows(cx, service)) else { return };
        let (count, _) = backends(cx);
        if count > limit {
            let selects = !service.spec.selector.is_empty();
            let path = if selects { Path::of(&["spec", "selector"]) } else { Path::of(&["metadata", "name"]) };
            out.report(path).message(format!("{count} backends; Windows balances at most {limit} for one Service"));
        }
    }),
    ..Rule::BASE
};

/// Whether kube-proxy on Windows has Direct Server Return: by default since 1.33, by its feature gate since 1.14.
fn has_dsr(cx: &Cx<'_>) -> bool {
    let minor = cx.facts.kubernetes;
    minor >= 14 && cx.facts.feature_gates.is_on("WinDSR", minor)
}

static SERVICE_EXTERNAL_TRAFFIC_LOCAL: Rule = Rule {
    id: "TSM804",
    name: "service-external-traffic-local",
    summary: "externalTrafficPolicy Local does not work on these Windows nodes",
    docs: "To keep external traffic on the node and preserve the client's address, kube-proxy needs Direct Server \
           Return in the host networking service: Windows Server 2019 (build 17763) and Kubernetes 1.14, where \
           kube-proxy got the feature gate (WinDSR, on by default since 1.33). Without it, kube-proxy logs a message \
           and balances over all backends. Transom cannot see whether kube-proxy runs with `--enable-dsr=true`.",
    remedy: "use Windows Server 2019 or later with kube-proxy --enable-dsr=true, or externalTrafficPolicy Cluster",
    see: &[NETWORK, PROXIER],
    bad: &[
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17134.100}}}",
        "# --kubernetes-version 1.13
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {type: NodePort, externalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.5000}}}",
        "# --kubernetes-version 1.13\n{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {type: NodePort, externalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 80}]}}",
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {type: LoadBalancer, externalTrafficPolicy: Cluster, selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17134.100}}}",
    ],
    check: Check::Object(&[Kind::Service], |cx, out| {
        let Some(service) = proxied(cx) else { return };
        if service.spec.external_traffic_policy.as_deref() != Some("Local") {
            return;
        }
        let path = || Path::of(&["spec", "externalTrafficPolicy"]);
        if let Some(build) = oldest_below(cx, 17763) {
            out.report(path()).message(format!("kube-proxy on Windows nodes of build {build} ignores externalTrafficPolicy Local"));
        } else if !has_dsr(cx) && concerns_windows(cx, service) {
            out.report(path()).message(format!(
                "kube-proxy on Windows has no Direct Server Return by default in Kubernetes 1.{}, and ignores Local without it",
                cx.facts.kubernetes
            ));
        }
    }),
    ..IGNORED
};

static SERVICE_PRESERVE_DESTINATION: Rule = Rule {
    id: "TSM805",
    name: "service-preserve-destination",
    builds: Builds::Below(18362),
    summary: "Windows before version 1903 does not preserve the destination address",
    docs: "The annotation `preserve-destination: \"true\"` keeps the Service's address in packets to the backends. It \
           needs Direct Server Return and Windows Server, version 1903 (build 18362). On older nodes kube-proxy logs a \
           message and rewrites the address.",
    remedy: "use Windows Server 2022 or later with kube-proxy --enable-dsr=true, or remove the annotation",
    see: &[NETWORK, PROXIER],
    bad: &["{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop, annotations: {preserve-destination: 'true'}}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.5000}}}"],
    good: &[
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop, annotations: {preserve-destination: 'true'}}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.18362.100}}}",
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop, annotations: {preserve-destination: 'false'}}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.5000}}}",
    ],
    check: Check::Object(&[Kind::Service], |cx, out| {
        const ANNOTATION: &str = "preserve-destination";
        let Some(service) = proxied(cx) else { return };
        if service.metadata.annotations.get(ANNOTATION).is_some_and(|value| &**value == "true") {
            out.report(Path::of(&["metadata", "annotations"]).key(ANNOTATION));
        }
    }),
    ..IGNORED
};

static SERVICE_IPV6: Rule = Rule {
    id: "TSM806",
    name: "service-ipv6",
    severities: "error; warning when the cluster could have a dual-stack l2bridge network",
    summary: "Windows does not support IPv6-only networking",
    docs: "Kubernetes on Windows supports neither IPv6-only networking nor IPv6 on overlay networks. On a dual-stack \
           cluster with an l2bridge network (Kubernetes 1.20 and Windows Server 2019 or later), a single-family \
           Service works, including IPv6. If the cluster could have such a network, the finding is a warning. If the \
           Service is known to have IPv6 backends, the rule reports nothing.",
    remedy: "add IPv4 to ipFamilies, with ipFamilyPolicy: PreferDualStack",
    see: &[DUAL_STACK, LIMITATIONS],
    bad: &[
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ipFamilies: [IPv6], ipFamilyPolicy: SingleStack, selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
        "# --kubernetes-version 1.19
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ipFamilies: [IPv6], selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ipFamilies: [IPv6, IPv4], ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ipFamilies: [IPv6], selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ipFamilies: [IPv6], selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-6, namespace: shop, labels: {kubernetes.io/service-name: web}}, addressType: IPv6, endpoints: [{addresses: ['fd00::10']}]}",
    ],
    check: Check::Object(&[Kind::Service], |cx, out| {
        let Some(service) = any_service(cx) else { return };
        let only_v6 = !service.spec.ip_families.is_empty() && service.spec.ip_families.iter().all(|f| &**f == "IPv6");
        if !only_v6 || !has_windows_backends(cx, service) || backends(cx).1 {
            return;
        }
        let finding = out.report(Path::of(&["spec", "ipFamilies"]));
        if cx.facts.kubernetes >= 20 && oldest_below(cx, 17763).is_none() {
            finding.severity(Severity::Warning);
            finding.message("an IPv6-only Service with Windows backends needs a dual-stack l2bridge network");
        }
    }),
    ..Rule::BASE
};

static SERVICE_SCTP: Rule = Rule {
    id: "TSM807",
    name: "service-sctp",
    summary: "Windows does not support SCTP",
    docs: "The network stack of Windows and its host networking service do not support SCTP: the API server accepts a \
           port of that protocol, but clients cannot reach it. The rule checks a Service if it selects a Windows \
           workload.",
    remedy: "use TCP or UDP",
    see: &["https://kubernetes.io/docs/reference/networking/service-protocols/#protocol-sctp", NETWORK],
    bad: &[
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{name: web, port: 80}, {name: signal, port: 3868, protocol: SCTP}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
        "containers: [{name: app, image: app, ports: [{containerPort: 3868, protocol: SCTP}]}]",
    ],
    good: &[
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{name: signal, port: 3868, protocol: SCTP}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: other, labels: {app: web}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
        "containers: [{name: app, image: app, ports: [{containerPort: 80, protocol: TCP}, {containerPort: 53, protocol: UDP}]}]",
    ],
    needs: FieldSet::PORTS,
    check: Check::PodAnd(&[Kind::Service], |cx, out| {
        for container in cx.pod().iter().flat_map(super::context::PodCx::containers) {
            for (index, port) in container.container.ports.iter().enumerate() {
                if port.protocol.as_deref() == Some("SCTP") {
                    let name = port.name.as_deref().unwrap_or_default();
                    out.report(container.at(&["ports"]).named_item(index, name).field("protocol"));
                }
            }
        }
        let Some(service) = any_service(cx) else { return };
        for (index, port) in service.spec.ports.iter().enumerate() {
            if port.protocol.as_deref() == Some("SCTP") && has_windows_backends(cx, service) {
                let name = port.name.as_deref().unwrap_or_default();
                out.report(Path::of(&["spec", "ports"]).named_item(index, name).field("protocol"));
            }
        }
    }),
    ..Rule::BASE
};
