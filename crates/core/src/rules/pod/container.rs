//! Settings of containers: resources, stop signals.

use super::RESOURCES;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::objects::object::ReviewStage;
use crate::model::objects::pod::ContainerList;
use crate::model::syntax::text::shown;
use crate::rules::rule::{Check, Rule};

pub(super) static HUGEPAGES_RESOURCE: Rule = Rule {
    id: "TSM409",
    name: "hugepages-resource",
    summary: "Windows nodes have no huge pages",
    docs: "No Windows node reports huge pages as a resource. The scheduler finds no node, and the pod stays Pending.",
    remedy: "remove it; request memory instead",
    see: &[
        "https://kubernetes.io/docs/concepts/windows/intro/#api",
        "https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/",
    ],
    bad: &[
        "containers: [{name: app, image: app, resources: {limits: {memory: 1Gi, hugepages-2Mi: 64Mi}}}]",
        "containers: [{name: app, image: app, resources: {requests: {hugepages-1Gi: 1Gi}}}]",
    ],
    good: &[
        "containers: [{name: app, image: app, resources: {limits: {memory: 1Gi}, requests: {cpu: 100m}}}]",
        "containers: [{name: app, image: app, resources: {limits: {hugepages-2Mi: 0}}}]",
    ],
    needs: FieldSet::LIMITS.or(FieldSet::REQUESTS),
    check: Check::Pod(|cx, out| {
        for container in cx.containers() {
            let Some(resources) = container.resources.as_ref() else {
                continue;
            };
            for (field, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
                for (name, amount) in amounts {
                    // The API server copies limits to requests, so one finding is enough. An amount of zero is not a
                    // request.
                    let copied = field == "requests" && resources.limits.get(name).is_some();
                    if name.starts_with("hugepages-") && !copied && amount.millis() != Some(0) {
                        out.report(container.at(&["resources", field]).key(name));
                    }
                }
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static RESOURCE_CLAIMS: Rule = Rule {
    id: "TSM410",
    name: "resource-claims",
    kubernetes: 26..=Rule::STILL,
    summary: "Windows does not support dynamic resource allocation",
    docs: "The kubelet on Windows has no manager for dynamic resource allocation, so nothing prepares the claim on the \
           node. Device plugins do work on Windows.",
    remedy: "use a device plugin and its extended resource",
    see: &[
        "https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/",
        "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/",
        "kubernetes: pkg/kubelet/cm/container_manager_windows.go",
    ],
    bad: &[
        "resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]",
        "containers: [{name: app, image: app, resources: {claims: [{name: gpu}]}}]",
    ],
    good: &[
        "resourceClaims: []",
        "containers: [{name: app, image: app, resources: {claims: [], limits: {microsoft.com/directx: 1}}}]",
        "# --kubernetes-version 1.25\nresourceClaims: [{name: gpu}]",
    ],
    needs: FieldSet::RESOURCE_CLAIMS,
    check: Check::Pod(|cx, out| {
        if !cx.spec.resource_claims.is_empty() {
            out.report(cx.at(&["resourceClaims"]));
        }
        for container in cx.containers() {
            if container
                .resources
                .as_ref()
                .is_some_and(|resources| !resources.claims.is_empty())
            {
                out.report(container.at(&["resources", "claims"]));
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static REQUESTS_NOT_EQUAL_LIMITS: Rule = Rule {
    id: "TSM411",
    name: "requests-not-equal-limits",
    severity: Severity::Advice,
    class: Class::BestPractice,
    summary: "the memory request differs from the memory limit",
    docs: "Windows has no out-of-memory killer: if the containers of a node use more memory than it has, Windows pages \
           to disk and everything on the node becomes slow. The scheduler counts requests only, so limits above the \
           requests overcommit the node. If a container sets only a limit, the API server uses it as the request too.",
    remedy: "set only the memory limit, or the same value as request and limit",
    see: &[RESOURCES],
    bad: &[
        "containers: [{name: app, image: app, resources: {limits: {memory: 1Gi}, requests: {memory: 512Mi}}}]",
    ],
    good: &[
        "containers: [{name: app, image: app, resources: {limits: {memory: 1Gi}, requests: {memory: 1024Mi}}}]",
        "containers: [{name: app, image: app, resources: {limits: {memory: 1Gi}}}]",
        "containers: [{name: app, image: app, resources: {limits: {memory: 1Gi, cpu: 2}, requests: {cpu: 100m}}}]",
    ],
    needs: FieldSet::REQUESTS,
    check: Check::Pod(|cx, out| {
        for container in cx.containers() {
            let Some(resources) = container.resources.as_ref() else {
                continue;
            };
            let (limit, request) = (resources.limits.get("memory"), resources.requests.get("memory"));
            let (Some(limit), Some(request)) = (limit, request) else {
                continue;
            };
            if limit == request {
                continue;
            }
            let (Some(most), Some(least)) = (limit.millis(), request.millis()) else {
                continue;
            };
            if most != least {
                let message = format!(
                    "the memory request {} differs from the limit {}",
                    shown(&request.0),
                    shown(&limit.0)
                );
                out.report(container.at(&["resources", "requests"]).key("memory"))
                    .message(message);
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static RESOURCE_LIMITS_MISSING: Rule = Rule {
    id: "TSM412",
    name: "resource-limits-missing",
    severity: Severity::Advice,
    class: Class::BestPractice,
    // Before 1.10 a limit has no effect: `resources-old-version` reports that.
    kubernetes: 10..=Rule::STILL,
    summary: "the container has no memory limit",
    docs: "Windows has no out-of-memory killer. Without a limit, one container can use up the memory of its node, and \
           Windows then pages to disk. A memory limit becomes the commit limit of the container's job object, also for \
           a HostProcess container. A LimitRange of the namespace may give pods a limit that their template does not \
           show.",
    remedy: "set resources.limits.memory",
    see: &[
        RESOURCES,
        "kubernetes: pkg/kubelet/kuberuntime/kuberuntime_container_windows.go",
    ],
    bad: &[
        "containers: [{name: app, image: app}]",
        "containers: [{name: app, image: app, resources: {limits: {cpu: 1}, requests: {memory: 1Gi}}}]",
        "initContainers: [{name: init, image: app}]",
        "hostNetwork: true\ncontainers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true}}}]",
    ],
    good: &[
        "containers: [{name: app, image: app, resources: {limits: {memory: 1Gi}}}]",
        "ephemeralContainers: [{name: debugger, image: app}]",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        for container in cx.containers() {
            // Ephemeral containers cannot have resources.
            let can = container.list != ContainerList::Ephemeral;
            let limit = || container.resources.as_ref()?.limits.get("memory");
            if can && limit().is_none() {
                out.report(container.at(&["resources", "limits"]).key("memory"));
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static STOP_SIGNAL: Rule = Rule {
    id: "TSM415",
    name: "stop-signal",
    class: Class::Api,
    kubernetes: 33..=Rule::STILL,
    summary: "Windows supports only the stop signals SIGTERM and SIGKILL",
    docs: "The field requires the feature gate ContainerStopSignals, which is alpha and off by default since 1.33. If \
           the gate is off, the API server silently drops the field before it validates and stores the pod. So the \
           rule reports the field only if the gate is known to be on, or if the field is still set after every \
           webhook. If the gate is on, the API server rejects other signals on a pod with `spec.os.name: windows`, and \
           every signal on a pod without `spec.os.name`.",
    remedy: "remove it, or write SIGTERM",
    see: &[
        "https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/",
        "kubernetes: pkg/apis/core/validation/validation.go, validateLifecycle",
    ],
    bad: &[
        "# --kubernetes-version 1.33 --feature-gate ContainerStopSignals=true\n\
         containers: [{name: app, image: app, lifecycle: {stopSignal: SIGUSR1}}]",
        "# --stored\ncontainers: [{name: app, image: app, lifecycle: {stopSignal: SIGINT}}]",
        "# --feature-gate ContainerStopSignals=true\n\
         os: null\ncontainers: [{name: app, image: app, lifecycle: {stopSignal: SIGQUIT}}]",
    ],
    good: &[
        "containers: [{name: app, image: app, lifecycle: {stopSignal: SIGUSR1}}]",
        "# --feature-gate ContainerStopSignals=true\ncontainers: [{name: app, image: app, lifecycle: {stopSignal: SIGTERM}}]",
        "# --stored\ncontainers: [{name: app, image: app, lifecycle: {stopSignal: SIGKILL}}]",
        "# --kubernetes-version 1.32 --stored\ncontainers: [{name: app, image: app, lifecycle: {stopSignal: SIGUSR1}}]",
    ],
    needs: FieldSet::STOP_SIGNAL,
    check: Check::Pod(|cx, out| {
        let gates = &cx.facts.feature_gates;
        if cx.subject.context.stage != ReviewStage::Stored
            && !gates.is_on("ContainerStopSignals", cx.facts.kubernetes)
        {
            return;
        }
        for container in cx.containers() {
            let signal = container.lifecycle.stop_signal.as_deref();
            if signal.is_some_and(|signal| !matches!(signal, "SIGKILL" | "SIGTERM")) {
                let finding = out.report(container.at(&["lifecycle", "stopSignal"])).removable();
                if cx.spec.os_name().is_none() {
                    finding.class(Class::ApiAlways);
                }
            }
        }
    }),
    ..Rule::BASE
};
