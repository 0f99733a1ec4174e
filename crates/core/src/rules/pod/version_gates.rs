//! Limitations of old Kubernetes releases, old Windows builds and the Docker runtime. None of these rules fires on a
//! current cluster.

use super::{INTRO, INTRO_POD};
use crate::model::cluster::facts::{Runtime, RuntimeClassFacts};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::nodes::os_selectors::os_of_label;
use crate::model::objects::api_versions::not_served;
use crate::model::objects::object::Body;
use crate::model::objects::resources::Autoscaler;
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::model::windows::os::Os;
use crate::rules::context::Cx;
use crate::rules::rule::{Builds, Check, Rule};

pub(super) static RESOURCES_OLD_VERSION: Rule = Rule {
    id: "TSM413",
    name: "resources-old-version",
    severity: Severity::Warning,
    class: Class::Ignored,
    kubernetes: 0..=9,
    summary: "Windows containers have no resource limits before Kubernetes 1.10",
    docs: "Kubernetes sets limits of CPU and memory on Windows containers since 1.10. Before that, a container can use \
           everything its node has; the scheduler counts requests as usual.",
    remedy: "upgrade to Kubernetes 1.10 or later",
    see: &["https://kubernetes.io/docs/concepts/configuration/windows-resource-management/"],
    bad: &[
        "# --kubernetes-version 1.9\ncontainers: [{name: app, image: app, resources: {limits: {memory: 1Gi}}}]",
        "# --kubernetes-version 1.9\ncontainers: [{name: app, image: app, resources: {limits: {cpu: 1}}}]",
    ],
    good: &[
        "containers: [{name: app, image: app, resources: {limits: {memory: 1Gi}}}]",
        "# --kubernetes-version 1.10\ncontainers: [{name: app, image: app, resources: {limits: {memory: 1Gi}}}]",
        "# --kubernetes-version 1.9\ncontainers: [{name: app, image: app, resources: {requests: {memory: 1Gi}}}]",
    ],
    needs: FieldSet::LIMITS,
    check: Check::Pod(|cx, out| {
        for container in cx.containers() {
            let Some(resources) = container.resources.as_ref() else {
                continue;
            };
            if ["cpu", "memory"]
                .iter()
                .any(|name| resources.limits.get(name).is_some())
            {
                out.report(container.at(&["resources", "limits"]));
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static MULTI_CONTAINER_OLD_BUILD: Rule = Rule {
    id: "TSM414",
    name: "multi-container-old-build",
    severities: "error; warning when the pod may also land on a newer build",
    builds: Builds::Below(16299),
    summary: "Windows Server 2016 runs only one container per pod",
    docs: "Containers of one pod share a network compartment since Windows Server 1709 (build 16299). On Windows \
           Server 2016 a pod can have only one container. The finding is an error if every node that the pod may land \
           on is that old, and a warning if only some are.",
    remedy: "keep one container, or select newer nodes with node.kubernetes.io/windows-build",
    see: &[INTRO],
    bad: &[
        "nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.14393}\n\
         containers: [{name: app, image: app}, {name: log, image: log}]",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, containers: [{name: app, image: app}, {name: log, image: log}]}}\n\
         ---\n\
         {apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.14393.7606}}}",
    ],
    good: &[
        "containers: [{name: app, image: app}, {name: log, image: log}]",
        "nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.14393}",
        "nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}\n\
         containers: [{name: app, image: app}, {name: log, image: log}]",
    ],
    needs: FieldSet::SEVERAL_CONTAINERS,
    check: Check::Pod(|cx, out| {
        if cx.spec.containers.len() > 1 {
            let finding = out.report(cx.at(&["containers"]));
            if cx.targets().iter().any(|target| target.number() >= 16299) {
                finding.severity(Severity::Warning);
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static ENV_COLON: Rule = Rule {
    id: "TSM416",
    name: "env-colon",
    class: Class::ApiAlways,
    kubernetes: 0..=31,
    summary: "this Kubernetes release does not allow a colon in the name of an environment variable",
    docs: "Before Kubernetes 1.32, the API server rejects names such as `Logging:LogLevel:Default`, which .NET \
           configuration uses. The feature gate RelaxedEnvironmentVariableValidation (alpha in 1.30, on by default \
           since 1.32) allows every printable ASCII character except `=`. .NET reads two underscores as a colon, on \
           every release of Kubernetes.",
    remedy: "write two underscores instead of each colon (Logging__LogLevel__Default)",
    see: &[
        "https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/",
        "https://learn.microsoft.com/aspnet/core/fundamentals/configuration/#environment-variables",
        "kubernetes: staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go, IsEnvVarName",
    ],
    bad: &[
        "# --kubernetes-version 1.29\ncontainers: [{name: app, image: app, env: [{name: 'Logging:LogLevel', value: Debug}]}]",
        "# --kubernetes-version 1.31\ncontainers: [{name: app, image: app, env: [{name: 'A:B', value: x}]}]",
        "# --kubernetes-version 1.29 --feature-gate RelaxedEnvironmentVariableValidation=true\n\
         initContainers: [{name: init, image: app, env: [{name: 'A:B', value: x}]}]",
    ],
    good: &[
        "containers: [{name: app, image: app, env: [{name: 'Logging:LogLevel', value: Debug}]}]",
        "# --kubernetes-version 1.32\ncontainers: [{name: app, image: app, env: [{name: 'A:B', value: x}]}]",
        "# --kubernetes-version 1.30 --feature-gate RelaxedEnvironmentVariableValidation=true\n\
         containers: [{name: app, image: app, env: [{name: 'A:B', value: x}]}]",
        "# --kubernetes-version 1.29\ncontainers: [{name: app, image: app, env: [{name: A__B, value: 'x:y'}]}]",
    ],
    needs: FieldSet::ENV,
    check: Check::Pod(|cx, out| {
        let minor = cx.facts.kubernetes;
        let gates = &cx.facts.feature_gates;
        if minor >= 30 && gates.is_on("RelaxedEnvironmentVariableValidation", minor) {
            return;
        }
        for container in cx.containers() {
            for (index, variable) in container.env.iter().enumerate() {
                if variable.name.contains(':') {
                    let path = container
                        .at(&["env"])
                        .named_item(index, &variable.name)
                        .field("name");
                    out.report(path).message(format!(
                        "Kubernetes 1.{} does not allow a colon in the name of an environment variable; 1.32 does",
                        cx.facts.kubernetes
                    ));
                }
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static TERMINATION_GRACE_PERIOD: Rule = Rule {
    id: "TSM418",
    name: "termination-grace-period",
    severity: Severity::Warning,
    class: Class::Ignored,
    runtime: Some(Runtime::Docker),
    summary: "Docker on Windows does not wait for the grace period",
    docs: "With the Docker runtime, Windows stops the processes of a container five seconds after CTRL_SHUTDOWN_EVENT, \
           regardless of the pod's grace period. The five seconds are a default of the registry \
           (WaitToKillServiceTimeout). With containerd, the grace period works.",
    remedy: "use nodes with containerd, or make the program stop within five seconds",
    see: &[INTRO_POD],
    bad: &[
        "# --runtime docker\nterminationGracePeriodSeconds: 120",
        "# --runtime docker\nterminationGracePeriodSeconds: 0",
    ],
    good: &[
        "terminationGracePeriodSeconds: 120",
        "# --runtime docker\nterminationGracePeriodSeconds: 30",
        "# --runtime docker\nterminationGracePeriodSeconds: null",
    ],
    needs: FieldSet::GRACE_PERIOD,
    check: Check::Pod(|cx, out| {
        if cx
            .spec
            .termination_grace_period_seconds
            .is_some_and(|seconds| seconds != 30)
        {
            out.report(cx.at(&["terminationGracePeriodSeconds"]));
        }
    }),
    ..Rule::BASE
};

pub(super) static TERMINATION_MESSAGE_PATH: Rule = Rule {
    id: "TSM419",
    name: "termination-message-path",
    severity: Severity::Warning,
    class: Class::Ignored,
    runtime: Some(Runtime::Docker),
    summary: "Docker on Windows cannot mount the termination message file",
    docs: "The kubelet maps a single file into the container to read the termination message from. Docker on Windows \
           cannot map single files, so the kubelet reads no message, regardless of the path. With containerd it works.",
    remedy: "use nodes with containerd, or terminationMessagePolicy: FallbackToLogsOnError",
    see: &[
        INTRO_POD,
        "kubernetes: pkg/kubelet/kuberuntime/kuberuntime_container.go",
    ],
    bad: &[r"# --runtime docker
containers: [{name: app, image: app, terminationMessagePath: 'C:\app\message.txt'}]"],
    good: &[
        r"containers: [{name: app, image: app, terminationMessagePath: 'C:\app\message.txt'}]",
        "# --runtime docker\ncontainers: [{name: app, image: app, terminationMessagePath: /dev/termination-log}]",
        "# --runtime docker\ncontainers: [{name: app, image: app, terminationMessagePath: ''}]",
    ],
    needs: FieldSet::TERMINATION_MESSAGE_PATH,
    check: Check::Pod(|cx, out| {
        for container in cx.containers() {
            let path = container.termination_message_path.as_deref().unwrap_or_default();
            if !matches!(path, "" | "/dev/termination-log") {
                out.report(container.at(&["terminationMessagePath"]));
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static STATEFUL_SET_OLD_VERSION: Rule = Rule {
    id: "TSM420",
    name: "stateful-set-old-version",
    severity: Severity::Warning,
    class: Class::Run,
    kubernetes: 0..=13,
    summary: "StatefulSets of Windows pods are not supported before Kubernetes 1.14",
    docs: "Windows nodes became stable with Kubernetes 1.14. The documentation of earlier releases lists StatefulSets \
           of Windows pods as not supported.",
    remedy: "upgrade to Kubernetes 1.14 or later, or use a Deployment",
    see: &[INTRO],
    bad: &["# --kubernetes-version 1.13\n\
         {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {serviceName: db, template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: db, image: db}]}}}}"],
    good: &[
        "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {serviceName: db, template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: db, image: db}]}}}}",
        "# --kubernetes-version 1.13\n\
         {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {serviceName: db, template: {spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: db, image: db}]}}}}",
        "# --kubernetes-version 1.13\n\
         {apiVersion: apps/v1, kind: Deployment, metadata: {name: db}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: db, image: db}]}}}}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Object(&[Kind::StatefulSet], |_, out| {
        out.report(Path::of(&["kind"]));
    }),
    ..Rule::BASE
};

pub(super) static HPA_OLD_VERSION: Rule = Rule {
    id: "TSM421",
    name: "hpa-old-version",
    severity: Severity::Warning,
    class: Class::Run,
    kubernetes: 0..=13,
    summary: "autoscaling of Windows pods is not supported before Kubernetes 1.14",
    docs: "Windows nodes became stable with Kubernetes 1.14. The documentation of earlier releases lists horizontal \
           autoscaling of Windows pods as not supported. The rule checks autoscalers whose target is known to be for \
           Windows.",
    remedy: "upgrade to Kubernetes 1.14 or later, or set a fixed number of replicas",
    see: &[INTRO],
    bad: &["# --kubernetes-version 1.13\n\
         {apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: web, image: web}]}}}}\n\
         ---\n\
         {apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: shop}, spec: {scaleTargetRef: {kind: Deployment, name: web}}}"],
    good: &[
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: web, image: web}]}}}}\n\
         ---\n\
         {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: shop}, spec: {scaleTargetRef: {kind: Deployment, name: web}}}",
        "# --kubernetes-version 1.13\n\
         {apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: web, image: web}]}}}}\n\
         ---\n\
         {apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: other}, spec: {scaleTargetRef: {kind: Deployment, name: web}}}",
        "# --kubernetes-version 1.13\n\
         {apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: web, image: web}]}}}}\n\
         ---\n\
         {apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: shop}, spec: {scaleTargetRef: {kind: Deployment, name: web}}}",
    ],
    check: Check::Object(&[Kind::HorizontalPodAutoscaler], |cx, out| {
        let Body::Autoscaler(autoscaler) = &cx.subject.body else {
            return;
        };
        let target = &autoscaler.spec.scale_target_ref;
        if scales_windows(cx, autoscaler) {
            let message = format!(
                "the target {} {} is for Windows, and autoscaling it needs Kubernetes 1.14 or later",
                shown(&target.kind),
                shown(&target.name)
            );
            out.report(Path::of(&["spec", "scaleTargetRef"])).message(message);
        }
    }),
    ..Rule::BASE
};

/// The kinds without pods whose API versions are checked.
const API_VERSION_KINDS: &[Kind] = &[
    Kind::RuntimeClass,
    Kind::HorizontalPodAutoscaler,
    Kind::StorageClass,
    Kind::CsiNode,
    Kind::EndpointSlice,
];

pub(super) static API_VERSION_NOT_SERVED: Rule = Rule {
    id: "TSM427",
    name: "api-version-not-served",
    class: Class::ApiAlways,
    summary: "the release of Kubernetes does not serve the object's API version",
    docs: "The API server rejects an object of an API version that its release does not serve (`no matches for kind`). \
           The rule compares the `apiVersion` in a file with the release of `--kubernetes-version`. It checks \
           workloads for Windows, RuntimeClasses for Windows, and HorizontalPodAutoscalers of Windows workloads. It \
           checks StorageClasses, CSINodes and EndpointSlices if there are Windows workloads or nodes among the \
           inputs. Admission never reports it, because the API server converts objects.",
    remedy: "write an API version that the release serves",
    see: &["https://kubernetes.io/docs/reference/using-api/deprecation-guide/"],
    bad: &[
        "{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: web, image: web}]}}}}",
        "# --kubernetes-version 1.25\n{apiVersion: batch/v1beta1, kind: CronJob, metadata: {name: web}, spec: {jobTemplate: {spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: web, image: web}]}}}}}}",
        "# --kubernetes-version 1.20\n{apiVersion: batch/v1, kind: CronJob, metadata: {name: web}, spec: {jobTemplate: {spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: web, image: web}]}}}}}}",
        "{apiVersion: node.k8s.io/v1beta1, kind: RuntimeClass, metadata: {name: w}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {kubernetes.io/os: windows}}}",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: web, image: web}]}}}}\n\
         ---\n\
         {apiVersion: autoscaling/v2beta2, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: shop}, spec: {scaleTargetRef: {kind: Deployment, name: web}}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: db, image: db}]}}\n\
         ---\n\
         {apiVersion: storage.k8s.io/v1beta1, kind: StorageClass, metadata: {name: fast}, provisioner: disk.csi.azure.com}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}\n\
         ---\n\
         {apiVersion: storage.k8s.io/v1beta1, kind: CSINode, metadata: {name: win-1}, spec: {drivers: []}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: web, image: web}]}}\n\
         ---\n\
         {apiVersion: discovery.k8s.io/v1beta1, kind: EndpointSlice, metadata: {name: web-x, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: []}",
    ],
    good: &[
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: web, image: web}]}}}}",
        "# --kubernetes-version 1.15\n{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: web, image: web}]}}}}",
        "{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: web, image: web}]}}}}",
        "{apiVersion: autoscaling/v2beta2, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: shop}, spec: {scaleTargetRef: {kind: Deployment, name: web}}}",
        "{apiVersion: node.k8s.io/v1beta1, kind: RuntimeClass, metadata: {name: gvisor}, handler: runsc}",
        "# --kubernetes-version 1.21\n\
         {apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: db, image: db}]}}\n\
         ---\n\
         {apiVersion: storage.k8s.io/v1beta1, kind: StorageClass, metadata: {name: fast}, provisioner: disk.csi.azure.com}",
        "{apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: db, image: db}]}}\n\
         ---\n\
         {apiVersion: storage.k8s.io/v1beta1, kind: StorageClass, metadata: {name: fast}, provisioner: disk.csi.azure.com}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::PodAnd(API_VERSION_KINDS, |cx, out| {
        let is_for_windows = match &cx.subject.body {
            Body::RuntimeClass(class) => {
                let facts = RuntimeClassFacts::of(class);
                let mut selector = facts.node_selector.iter();
                facts.is_for_windows_by_handler(&cx.subject.meta.name)
                    || selector.any(|(key, value)| {
                        os_of_label(key, value, &cx.facts.node_labels) == Some(Os::Windows)
                    })
            }
            Body::Autoscaler(autoscaler) => scales_windows(cx, autoscaler),
            Body::StorageClass(_) | Body::CsiNode(_) | Body::EndpointSlice(_) => {
                !cx.facts.workloads.is_empty() || !cx.facts.hosts().is_empty()
            }
            _ => true,
        };
        let version = &*cx.subject.api_version;
        if version.is_empty() || !is_for_windows {
            return;
        }
        if let Some((why, remedy)) = not_served(version, cx.subject.kind, cx.facts.kubernetes) {
            out.report(Path::of(&["apiVersion"])).message(why).remedy(remedy);
        }
    }),
    ..Rule::BASE
};

/// Whether the target of an autoscaler is known to be for Windows.
fn scales_windows(cx: &Cx<'_>, autoscaler: &Autoscaler<'_>) -> bool {
    let target = &autoscaler.spec.scale_target_ref;
    cx.facts.workloads.iter().any(|workload| {
        workload.namespace == *cx.subject.namespace
            && workload.kind == *target.kind
            && workload.name == *target.name
    })
}
