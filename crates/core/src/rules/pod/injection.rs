//! The rule on injectors that will add a Linux container to a Windows pod.

use crate::model::cluster::facts::NamespaceFacts;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::knowledge::{Injector, InjectorSign, SignPlace};
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::rules::context::PodCx;
use crate::rules::rule::{Check, Reporter, Rule};

pub(super) static LINUX_SIDECAR_INJECTION: Rule = Rule {
    id: "TSM422",
    name: "linux-sidecar-injection",
    severity: Severity::Warning,
    class: Class::Run,
    summary: "an injector will add Linux containers to the pod",
    docs: "Service meshes, secret stores and monitoring products add containers to pods if labels or annotations of the \
           pod or its namespace request it: Istio, Linkerd, Consul, Kuma, Vault's agent injector, the OpenTelemetry \
           operator, Datadog, Dynatrace, the proxy of Azure Workload Identity and others. These containers are for \
           Linux: a Windows node cannot pull their images, and the pod never becomes ready. If `spec.os.name` is set \
           and the injector adds Linux settings, the API server rejects the pod. `transom knowledge list` shows the \
           known injectors and their signs. If the API group of the CloudWatch agent's operator is there, the \
           annotations of the OpenTelemetry operator mean that one: for Java and .NET, it adds Windows containers to \
           pods whose nodeSelector has `kubernetes.io/os: windows`.",
    remedy: "disable the injector for the pod",
    see: &[
        "https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/#controlling-the-injection-policy",
        "https://github.com/istio/istio/issues/27893",
        "https://linkerd.io/2-edge/features/proxy-injection/",
        "https://developer.hashicorp.com/vault/docs/deploy/kubernetes/injector/annotations",
        "https://github.com/open-telemetry/opentelemetry-operator#opentelemetry-auto-instrumentation-injection",
        "https://github.com/Azure/azure-workload-identity/issues/1017",
    ],
    bad: &[
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {sidecar.istio.io/inject: 'true'}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {linkerd.io/inject: enabled}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {metadata: {annotations: {vault.hashicorp.com/agent-inject: 'true'}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}}}",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {metadata: {annotations: {instrumentation.opentelemetry.io/inject-dotnet: 'true'}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {azure.workload.identity/inject-proxy-sidecar: 'true'}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        // Requested by the namespace.
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio-injection: enabled}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio.io/rev: stable}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {linkerd.io/inject: enabled}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {instrumentation.opentelemetry.io/inject-java: 'true'}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        // Each injector that a pod requests.
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {admission.datadoghq.com/enabled: 'true'}, annotations: {admission.datadoghq.com/dotnet-lib.version: v3}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {consul.hashicorp.com/connect-inject: 'true'}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {dynakube.internal.dynatrace.com/instance: dynakube}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {kuma.io/sidecar-injection: enabled}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        // The operator of the CloudWatch agent does not know that this is a Windows pod, and has no Windows image for Python.
        "{apiVersion: cloudwatch.aws.amazon.com/v1alpha1, kind: AmazonCloudWatchAgent, metadata: {name: a, namespace: b}, spec: {}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {instrumentation.opentelemetry.io/inject-java: 'true'}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: cloudwatch.aws.amazon.com/v1alpha1, kind: AmazonCloudWatchAgent, metadata: {name: a, namespace: b}, spec: {}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {instrumentation.opentelemetry.io/inject-python: 'true'}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
        // Both operators are there.
        "{apiVersion: cloudwatch.aws.amazon.com/v1alpha1, kind: AmazonCloudWatchAgent, metadata: {name: a, namespace: b}, spec: {}}
---
{apiVersion: opentelemetry.io/v1alpha1, kind: Instrumentation, metadata: {name: a, namespace: b}, spec: {}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {instrumentation.opentelemetry.io/inject-java: 'true'}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    good: &[
        // The operator of the CloudWatch agent adds Windows containers.
        "{apiVersion: cloudwatch.aws.amazon.com/v1alpha1, kind: AmazonCloudWatchAgent, metadata: {name: a, namespace: b}, spec: {}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {instrumentation.opentelemetry.io/inject-java: 'true', instrumentation.opentelemetry.io/inject-dotnet: 'true'}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
        // The injector of Dapr has Windows images. Datadog's adds only variables.
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {admission.datadoghq.com/enabled: 'true'}, annotations: {dapr.io/enabled: 'true'}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {admission.datadoghq.com/enabled: 'false'}, annotations: {admission.datadoghq.com/java-lib.version: v1}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {dynakube.internal.dynatrace.com/instance: dynakube}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop, annotations: {oneagent.dynatrace.com/inject: 'false'}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {app: a}, annotations: {linkerd.io/inject: disabled, vault.hashicorp.com/agent-inject: 'false', instrumentation.opentelemetry.io/inject-sdk: 'true'}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        // The pod's setting takes precedence over that of its namespace.
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio-injection: enabled}, annotations: {linkerd.io/inject: enabled}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop, labels: {sidecar.istio.io/inject: 'false'}, annotations: {linkerd.io/inject: disabled}}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio-injection: disabled, istio.io/rev: stable}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
        // Injectors skip pods on the host network.
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio-injection: enabled}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {os: {name: windows}, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {sidecar.istio.io/inject: 'true'}, annotations: {vault.hashicorp.com/agent-inject: 'true'}}, spec: {os: {name: linux}, containers: [{name: app, image: app}]}}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        let namespace = cx.facts.namespaces.get(&*cx.subject.namespace);
        for injector in &cx.facts.knowledge.injectors {
            if injector.skips_host_network && cx.spec.host_network.0 {
                continue;
            }
            for signs in &injector.signs {
                if let Some(request) = signs.iter().find_map(|sign| InjectionRequest::of(cx, namespace, sign)) {
                    // The pod could decline what its namespace requests.
                    let of_pod = signs.first().filter(|_| request.is_of_namespace());
                    let path = path_of(cx, of_pod.unwrap_or(request.sign));
                    report(cx, injector, &request, path, out);
                }
            }
        }
    }),
    ..Rule::BASE
};

/// A label or an annotation that decides whether an injector is requested.
struct InjectionRequest<'r> {
    sign: &'r InjectorSign,
    value: &'r str,
    is_made: bool,
}

impl<'r> InjectionRequest<'r> {
    /// The decision of one sign, if the pod or its namespace has it and it decides.
    fn of(cx: &PodCx<'r>, namespace: Option<&'r NamespaceFacts>, sign: &'r InjectorSign) -> Option<Self> {
        let key = sign.key.as_str();
        let value = match sign.at {
            SignPlace::PodLabel => &**cx.meta.labels.get(key)?,
            SignPlace::PodAnnotation => &**cx.meta.annotations.get(key)?,
            SignPlace::NamespaceLabel => namespace?.labels.get(key)?,
            SignPlace::NamespaceAnnotation => namespace?.injections.get(key)?,
        };
        Some(InjectionRequest {
            sign,
            value,
            is_made: sign.decision(value)?,
        })
    }

    /// Whether its namespace makes it.
    fn is_of_namespace(&self) -> bool {
        matches!(
            self.sign.at,
            SignPlace::NamespaceLabel | SignPlace::NamespaceAnnotation
        )
    }
}

/// Where a sign of a pod is, or would be.
fn path_of(cx: &PodCx<'_>, sign: &InjectorSign) -> Path {
    let map = match sign.at {
        SignPlace::PodLabel | SignPlace::NamespaceLabel => "labels",
        SignPlace::PodAnnotation | SignPlace::NamespaceAnnotation => "annotations",
    };
    cx.meta_at(map).key(&sign.key)
}

fn report(
    cx: &PodCx<'_>,
    injector: &Injector,
    request: &InjectionRequest<'_>,
    path: Path,
    out: &mut Reporter<'_>,
) {
    let key = &request.sign.key;
    let is_meant = || (cx.facts.knowledge).is_meant(injector, key, &cx.facts.injector_groups);
    if !request.is_made || !is_meant() {
        return;
    }
    let by_namespace = if request.is_of_namespace() {
        format!(", because its namespace has {key}={}", shown(request.value))
    } else {
        String::new()
    };
    let adds = format!(
        "{} will add Linux containers to this Windows pod",
        injector.injector
    );
    let windows = injector.windows.as_ref().filter(|windows| windows.is_for(key));
    let lacks =
        windows.map(|windows| windows.unselected(|key| cx.spec.node_selector.get(key).map(|value| &**value)));
    let finding = match lacks {
        Some(None) => return,
        Some(Some((label, value))) => out
            .report(path)
            .message(format!(
                "{adds}{by_namespace}: it adds Windows containers only if nodeSelector has {label}: {value}"
            ))
            .remedy(format!(
                "set nodeSelector {label}: {value}, or {}",
                injector.remedy
            )),
        None => out
            .report(path)
            .message(format!("{adds}{by_namespace}"))
            .remedy(injector.remedy.clone()),
    };
    finding.class(Class::Run);
}
