//! Rules on limits of Windows that a pod meets at run time: the scratch disk, the environment block; and on comparison
//! operators in tolerations.

use super::RESOURCES;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::syntax::json_types::Quantity;
use crate::model::syntax::text::shown;
use crate::rules::rule::{Check, Rule};

pub(super) static EPHEMERAL_STORAGE_ABOVE_SCRATCH: Rule = Rule {
    id: "TSM423",
    name: "ephemeral-storage-above-scratch",
    severity: Severity::Advice,
    class: Class::BestPractice,
    kubernetes: 14..=Rule::STILL,
    summary: "the container's C: drive is smaller than its ephemeral-storage",
    docs: "The C: drive of a Windows container is a scratch disk of 20 GB. A larger amount of `ephemeral-storage` does \
           not enlarge it: the limit only decides when the kubelet evicts the pod. A program that writes more than 20 \
           GB to C: fails with `There is not enough space on the disk`. The size can be changed only in the \
           configuration of containerd on the node. The rule skips pods with an emptyDir volume, which is outside of \
           the scratch disk and counts as ephemeral storage.",
    remedy: "write large files to a volume, or enlarge the scratch disk in the configuration of containerd",
    see: &[
        RESOURCES,
        "https://github.com/containerd/containerd/issues/6694",
        "https://github.com/kubernetes/kubernetes/issues/83450",
    ],
    bad: &[
        "containers: [{name: app, image: app, resources: {limits: {ephemeral-storage: 50Gi}}}]",
        "containers: [{name: app, image: app, resources: {requests: {ephemeral-storage: 30G}}}]",
    ],
    good: &[
        "containers: [{name: app, image: app, resources: {limits: {ephemeral-storage: 20Gi}}}]",
        "containers: [{name: app, image: app, resources: {limits: {ephemeral-storage: 50Gi}}}]\nvolumes: [{name: cache, emptyDir: {}}]",
        "hostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}\ncontainers: [{name: app, image: app, resources: {limits: {ephemeral-storage: 50Gi}}}]",
        "containers: [{name: app, image: app, resources: {limits: {memory: 50Gi}}}]",
    ],
    needs: FieldSet::LIMITS.or(FieldSet::REQUESTS),
    check: Check::Pod(|cx, out| {
        const SCRATCH_MILLIS: u128 = 20 * (1 << 30) * 1000;
        const RESOURCE: &str = "ephemeral-storage";
        if cx.spec.has_host_process() || cx.spec.volumes.iter().any(|volume| volume.empty_dir.is_some()) {
            return;
        }
        for container in cx.containers() {
            let Some(resources) = container.resources.as_ref() else {
                continue;
            };
            let is_larger =
                |amount: &&Quantity<'_>| amount.millis().is_some_and(|millis| millis > SCRATCH_MILLIS);
            let amounts = [("limits", &resources.limits), ("requests", &resources.requests)];
            let larger = amounts
                .into_iter()
                .find(|(_, amounts)| amounts.get(RESOURCE).as_ref().is_some_and(&is_larger));
            if let Some((field, _)) = larger {
                out.report(container.at(&["resources", field]).key(RESOURCE));
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static MEMORY_BELOW_MEBIBYTE: Rule = Rule {
    id: "TSM426",
    name: "memory-below-mebibyte",
    severity: Severity::Warning,
    class: Class::BestPractice,
    summary: "less than 1 MiB of memory",
    docs: "`800m` is 0.8 byte: the suffix `m` means thousandths, and a number without a suffix means bytes. The API \
           server accepts such an amount. The runtime on Windows counts limits in whole MiB, so a smaller limit \
           becomes 0: no limit. A smaller request reserves nothing on the node.",
    remedy: "write the amount with a unit, as in 800Mi",
    see: &[
        RESOURCES,
        "https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#meaning-of-memory",
        "hcsshim: internal/hcsoci/hcsdoc_wcow.go, MemoryMaximumInMB",
    ],
    bad: &[
        "containers: [{name: app, image: app, resources: {limits: {memory: 800m}}}]",
        "containers: [{name: app, image: app, resources: {limits: {memory: 512}}}]",
        "initContainers: [{name: app, image: app, resources: {limits: {memory: 1Gi}, requests: {memory: 100k}}}]",
    ],
    good: &[
        "containers: [{name: app, image: app, resources: {limits: {memory: 1Mi}, requests: {memory: 2M, cpu: 100m}}}]",
        "containers: [{name: app, image: app, resources: {limits: {memory: 1Gi}, requests: {memory: 0}}}]",
        "containers: [{name: app, image: app, resources: {limits: {memory: 1Gi, ephemeral-storage: 500m}}}]",
    ],
    needs: FieldSet::LIMITS.or(FieldSet::REQUESTS),
    check: Check::Pod(|cx, out| {
        const LEAST_MILLIS: u128 = (1 << 20) * 1000;
        const RESOURCE: &str = "memory";
        for container in cx.containers() {
            let Some(resources) = container.resources.as_ref() else {
                continue;
            };
            let limit = resources.limits.get(RESOURCE);
            // The API server copies a limit to a missing request.
            let request = resources
                .requests
                .get(RESOURCE)
                .filter(|request| Some(*request) != limit);
            for (field, amount) in [("limits", limit), ("requests", request)] {
                let Some(amount) = amount else {
                    continue;
                };
                if amount
                    .millis()
                    .is_some_and(|millis| millis > 0 && millis < LEAST_MILLIS)
                {
                    out.report(container.at(&["resources", field]).key(RESOURCE))
                        .message(format!("{} is less than 1 MiB of memory", shown(&amount.0)));
                }
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static SERVICE_LINKS_ENVIRONMENT: Rule = Rule {
    id: "TSM424",
    name: "service-links-environment",
    severity: Severity::Advice,
    class: Class::Run,
    summary: "the variables of all Services do not fit into the environment of a Windows process",
    docs: "The kubelet adds about seven environment variables for each port of each Service in the namespace to every \
           container, unless `enableServiceLinks` is false. The environment of a Windows process has at most 65,535 \
           bytes, with two bytes for each character. In a namespace with many Services it overflows: the container does \
           not start, or programs such as IIS fail (`APPCMD error 259`). The rule estimates the size from the Services \
           that `transom check` reads with the pod, and reports nothing without them.",
    remedy: "set enableServiceLinks: false, and use the DNS names of the Services",
    see: &[
        "https://kubernetes.io/docs/tutorials/services/connect-applications-service/#accessing-the-service",
        "https://github.com/microsoft/nav-docker/issues/470",
        "https://github.com/microsoft/IIS.ServiceMonitor/issues/76",
    ],
    bad: &[MANY_SERVICES],
    good: &[
        MANY_SERVICES_WITHOUT_LINKS,
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {os: {name: windows}, containers: [{name: app, image: app}]}}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        const LARGEST: usize = 65_535;
        if cx.spec.enable_service_links == Some(false) {
            return;
        }
        let known = cx.facts.service_variables.get(&*cx.subject.namespace);
        // Windows stores the environment in UTF-16.
        let bytes = known.map_or(0, |characters| characters * 2);
        if bytes > LARGEST {
            out.report(cx.at(&["enableServiceLinks"])).message(format!(
                "the variables of the namespace's Services take about {bytes} bytes; an environment has at most {LARGEST}"
            ));
        }
    }),
    ..Rule::BASE
};

macro_rules! many_services {
    ($links:literal) => {
        concat!(
            "{apiVersion: v1, kind: Service, metadata: {name: a-service-with-a-long-name-and-many-ports-for-all-of-the-teams, namespace: shop}, spec: {ports: [&p {name: a-port-with-a-long-name, port: 80}, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p, *p]}}\n---\n",
            "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {os: {name: windows}, ",
            $links,
            "containers: [{name: app, image: app}]}}"
        )
    };
}
const MANY_SERVICES: &str = many_services!("");
const MANY_SERVICES_WITHOUT_LINKS: &str = many_services!("enableServiceLinks: false, ");

pub(super) static TOLERATION_COMPARISON: Rule = Rule {
    id: "TSM425",
    name: "toleration-comparison",
    severity: Severity::Advice,
    class: Class::BestPractice,
    summary: "the operators Gt and Lt of tolerations are alpha",
    docs: "Kubernetes 1.35 knows the operators `Gt` and `Lt` in tolerations as alpha, behind the feature gate \
           TaintTolerationComparisonOperators. Without the gate, and in older releases, the API server rejects them. \
           Transom does not evaluate them: placement treats such a toleration as one that tolerates nothing, and adds \
           the tolerations of Windows taints as usual.",
    remedy: "use the operators Equal or Exists, or enable the feature gate and check placement",
    see: &[
        "https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/",
        "https://github.com/kubernetes/enhancements/issues/5471",
    ],
    bad: &[
        "tolerations: [{key: sla, operator: Gt, value: '950', effect: NoSchedule}]",
        "tolerations: [{key: os, operator: Exists}, {key: sla, operator: Lt, value: '950'}]",
    ],
    good: &[
        "tolerations: [{key: os, operator: Exists}, {key: os, value: windows}, {key: os, operator: Equal, value: windows}]",
    ],
    needs: FieldSet::COMPARED_TOLERATIONS,
    check: Check::Pod(|cx, out| {
        let gates = &cx.facts.feature_gates;
        if gates.is_on("TaintTolerationComparisonOperators", cx.facts.kubernetes) {
            return;
        }
        for (index, toleration) in cx.spec.tolerations.iter().enumerate() {
            let Some(operator) = toleration
                .operator
                .as_deref()
                .filter(|it| matches!(*it, "Gt" | "Lt"))
            else {
                continue;
            };
            out.report(cx.at(&["tolerations"]).item(index).field("operator"))
                .message(format!(
                    "the API server accepts the operator {} only with the feature gate TaintTolerationComparisonOperators",
                    shown(operator)
                ));
        }
    }),
    ..Rule::BASE
};
