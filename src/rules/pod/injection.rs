//! The rule on injectors that will add a Linux container to a Windows pod.

use crate::model::facts::NamespaceFacts;
use crate::model::field_set::FieldSet;
use crate::model::path::Path;
use crate::model::severity::{Class, Severity};
use crate::model::text::shown;
use crate::rules::context::PodCx;
use crate::rules::rule::{Check, Reporter, Rule};

pub(super) static LINUX_SIDECAR_INJECTION: Rule = Rule {
    id: "TSM422",
    name: "linux-sidecar-injection",
    severity: Severity::Warning,
    class: Class::Run,
    summary: "an injector will add Linux containers to the pod",
    docs: "Istio, Linkerd, Vault's agent injector, the OpenTelemetry operator and the proxy of Azure Workload Identity \
           add containers to pods if labels or annotations of the pod or its namespace request it. These containers \
           are for Linux: a Windows node cannot pull their images, and the pod never becomes ready. If `spec.os.name` \
           is set and the injector adds Linux settings, the API server rejects the pod. None of the injectors checks \
           the operating system of the pod. On the pod, the rule checks the labels `sidecar.istio.io/inject` and \
           `istio.io/rev`. It also checks the annotations `sidecar.istio.io/inject`, `linkerd.io/inject`, \
           `vault.hashicorp.com/agent-inject`, `instrumentation.opentelemetry.io/inject-…` (except `inject-sdk`, which \
           adds only variables), and `azure.workload.identity/inject-proxy-sidecar`. On the namespace, it checks the \
           labels `istio-injection` and `istio.io/rev`, and the annotations of Linkerd and OpenTelemetry.",
    remedy: "disable the injector: sidecar.istio.io/inject: \"false\", linkerd.io/inject: disabled, or \"false\" for the others",
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
    ],
    good: &[
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
        const VAULT: &str = "vault.hashicorp.com/agent-inject";
        const AZURE_PROXY: &str = "azure.workload.identity/inject-proxy-sidecar";
        let namespace = cx.facts.namespaces.get(&*cx.subject.namespace);
        if !cx.spec.host_network.0 {
            istio(cx, namespace, out);
            linkerd(cx, namespace, out);
        }
        if cx.meta.annotations.get(VAULT).is_some_and(|value| is_true(value)) {
            report(out, cx.meta_at("annotations").key(VAULT), "the injector of Vault", None);
        }
        // Any value enables it.
        if cx.meta.annotations.get(AZURE_PROXY).is_some() {
            report(
                out,
                cx.meta_at("annotations").key(AZURE_PROXY),
                "the webhook of Azure Workload Identity",
                None,
            );
        }
        opentelemetry(cx, namespace, out);
    }),
    ..Rule::BASE
};

/// What requests the injection: the pod (`None`), or this label or annotation of its namespace.
type ByNamespace<'n> = Option<(&'static str, &'n str)>;

fn report(out: &mut Reporter<'_>, path: Path, injector: &str, by: ByNamespace<'_>) {
    let adds = format!("{injector} will add Linux containers to this Windows pod");
    out.report(path).message(match by {
        None => adds,
        Some((key, value)) => format!("{adds}, because its namespace has {key}={}", shown(value)),
    });
}

/// As Go's `strconv.ParseBool` reads it.
fn is_true(value: &str) -> bool {
    matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

fn istio(cx: &PodCx<'_>, namespace: Option<&NamespaceFacts>, out: &mut Reporter<'_>) {
    const INJECT: &str = "sidecar.istio.io/inject";
    const REVISION: &str = "istio.io/rev";
    const INJECTION: &str = "istio-injection";
    let of = |from: &'static str| {
        let map = if from == "labels" {
            &cx.meta.labels
        } else {
            &cx.meta.annotations
        };
        Some((from, map.get(INJECT)?))
    };
    if let Some((from, value)) = of("labels").or_else(|| of("annotations")) {
        if is_true(value) {
            report(out, cx.meta_at(from).key(INJECT), "the injector of Istio", None);
        }
        return;
    }
    let path = |key: &str| cx.meta_at("labels").key(key);
    if cx.meta.labels.get(REVISION).is_some() {
        return report(out, path(REVISION), "the injector of Istio", None);
    }
    let label = |key: &'static str| Some((key, namespace?.labels.get(key)?.as_str()));
    let by = match label(INJECTION) {
        Some((_, "enabled")) => label(INJECTION),
        Some(_) => None,
        None => label(REVISION),
    };
    if by.is_some() {
        report(out, path(INJECT), "the injector of Istio", by);
    }
}

fn linkerd(cx: &PodCx<'_>, namespace: Option<&NamespaceFacts>, out: &mut Reporter<'_>) {
    const INJECT: &str = "linkerd.io/inject";
    let asks = |value: &str| matches!(value, "enabled" | "ingress");
    let path = || cx.meta_at("annotations").key(INJECT);
    if let Some(value) = cx.meta.annotations.get(INJECT) {
        if asks(value) {
            report(out, path(), "the injector of Linkerd", None);
        }
    } else if let Some(value) = namespace
        .and_then(|known| known.injections.get(INJECT))
        .filter(|value| asks(value))
    {
        report(out, path(), "the injector of Linkerd", Some((INJECT, value)));
    }
}

fn opentelemetry(cx: &PodCx<'_>, namespace: Option<&NamespaceFacts>, out: &mut Reporter<'_>) {
    const KEYS: [&str; 7] = [
        "instrumentation.opentelemetry.io/inject-apache-httpd",
        "instrumentation.opentelemetry.io/inject-dotnet",
        "instrumentation.opentelemetry.io/inject-go",
        "instrumentation.opentelemetry.io/inject-java",
        "instrumentation.opentelemetry.io/inject-nginx",
        "instrumentation.opentelemetry.io/inject-nodejs",
        "instrumentation.opentelemetry.io/inject-python",
    ];
    // The name of an Instrumentation also enables injection.
    let asks = |value: &str| !value.is_empty() && !value.eq_ignore_ascii_case("false");
    let known = namespace
        .map(|known| &known.injections)
        .filter(|known| !known.is_empty());
    if cx.meta.annotations.is_empty() && known.is_none() {
        return;
    }
    for key in KEYS {
        let path = || cx.meta_at("annotations").key(key);
        if let Some(value) = cx.meta.annotations.get(key) {
            if asks(value) {
                report(out, path(), "the OpenTelemetry operator", None);
            }
        } else if let Some(value) = known.and_then(|known| known.get(key)).filter(|value| asks(value)) {
            report(out, path(), "the OpenTelemetry operator", Some((key, value)));
        }
    }
}
