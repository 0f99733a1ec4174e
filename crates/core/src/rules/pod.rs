//! Settings of the pod as a whole that have no effect on Windows. The submodules check container settings, commands,
//! sidecar injection, and limitations of old releases.

mod command;
mod container;
mod escapes;
mod field_names;
mod injection;
mod limits;
mod version_gates;

pub(super) use command::{commands, is_reported_command};

use super::asks_for_nothing::{AsksForNothing, Pods};
use super::rule::{Check, Required, Rule};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::objects::pod::PodSpec;

/// Rules TSM401 and up.
pub static RULES: &[&Rule] = &[
    &HOST_PID,
    &HOST_IPC,
    &HOST_USERS,
    &SHARE_PROCESS_NAMESPACE,
    &POD_LEVEL_RESOURCES,
    &HOST_NETWORK,
    &DNS_CLUSTER_FIRST_WITH_HOST_NET,
    &DNS_SEARCH_LIST,
    &container::HUGEPAGES_RESOURCE,
    &container::RESOURCE_CLAIMS,
    &container::REQUESTS_NOT_EQUAL_LIMITS,
    &container::RESOURCE_LIMITS_MISSING,
    &version_gates::RESOURCES_OLD_VERSION,
    &version_gates::MULTI_CONTAINER_OLD_BUILD,
    &container::STOP_SIGNAL,
    &version_gates::ENV_COLON,
    &command::UNIX_COMMAND,
    &version_gates::TERMINATION_GRACE_PERIOD,
    &version_gates::TERMINATION_MESSAGE_PATH,
    &version_gates::STATEFUL_SET_OLD_VERSION,
    &version_gates::HPA_OLD_VERSION,
    &injection::LINUX_SIDECAR_INJECTION,
    &limits::EPHEMERAL_STORAGE_ABOVE_SCRATCH,
    &limits::SERVICE_LINKS_ENVIRONMENT,
    &limits::TOLERATION_COMPARISON,
    &limits::MEMORY_BELOW_MEBIBYTE,
    &version_gates::API_VERSION_NOT_SERVED,
    &escapes::COMMAND_ESCAPE,
    &field_names::UNKNOWN_FIELD,
];

const INTRO: &str = "https://kubernetes.io/docs/concepts/windows/intro/";
const INTRO_POD: &str = "https://kubernetes.io/docs/concepts/windows/intro/#compatibility-v1-pod";
const NETWORKING: &str = "https://kubernetes.io/docs/concepts/services-networking/windows-networking/";
const DNS: &str = "https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#dns-windows";
const RESOURCES: &str = "https://kubernetes.io/docs/concepts/configuration/windows-resource-management/";
const HOST_PROCESS: &str = "https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/";
/// What the values of a field mean.
const TYPES: &str = "kubernetes: staging/src/k8s.io/api/core/v1/types.go";
const SOURCE: &str = "kubernetes: pkg/apis/core/validation/validation.go, validateWindows";

/// A field that the API server forbids with `spec.os.name: windows`, and that Windows ignores.
const FORBIDDEN: Rule = Rule {
    severity: Severity::Error,
    class: Class::Api,
    tolerable: true,
    removable: true,
    ..Rule::BASE
};

const HOST_PROCESS_SEVERITIES: &str = "error; advice on HostProcess pods";

/// The process namespace of the node. Texts use the rule as their second example.
pub static HOST_PID: Rule = Rule {
    id: "TSM401",
    name: "host-pid",
    severities: HOST_PROCESS_SEVERITIES,
    asks_for_nothing: &[AsksForNothing {
        value: "true",
        pods: Pods::HostProcess,
        because: "a HostProcess container sees the processes of its node without hostPID",
        source: HOST_PROCESS,
    }],
    loses: "the view of the processes of its node",
    summary: "Windows has no host process namespace to share",
    docs: "On Linux, the field lets a pod see the processes of its node. Windows has no such namespace and ignores the \
           field. With `spec.os.name: windows`, the API server rejects it. Only a HostProcess container can see the \
           processes of a Windows node. `false` is treated as not set.",
    remedy: "remove it; use a HostProcess container (windowsOptions.hostProcess) to see the node's processes",
    see: &[INTRO_POD, HOST_PROCESS, SOURCE],
    bad: &[
        "hostPID: true",
        "os: null\nhostPID: true\nhostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}",
    ],
    good: &["hostPID: false", "hostPID: null"],
    needs: FieldSet::HOST_PID,
    check: Check::Pod(|cx, out| {
        if cx.spec.host_pid.0 {
            out.report_value(cx.at(&["hostPID"]), "true").removable();
        }
    }),
    ..FORBIDDEN
};

static HOST_IPC: Rule = Rule {
    id: "TSM402",
    name: "host-ipc",
    severities: HOST_PROCESS_SEVERITIES,
    asks_for_nothing: &[AsksForNothing {
        value: "true",
        pods: Pods::HostProcess,
        because: "a HostProcess container shares the kernel objects of its node without hostIPC",
        source: "https://github.com/kubernetes/enhancements/tree/master/keps/sig-windows/1981-windows-privileged-container-support",
    }],
    loses: "the shared memory of its node",
    summary: "Windows has no host IPC namespace to share",
    docs: "On Linux, the field lets a pod use the shared memory and semaphores of its node. Windows has no such \
           namespace and ignores the field. With `spec.os.name: windows`, the API server rejects it. `false` is \
           treated as not set.",
    remedy: "remove it",
    see: &[INTRO_POD, SOURCE],
    bad: &[
        "hostIPC: true",
        "os: null\nhostIPC: true\nhostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}",
    ],
    good: &["hostIPC: false", "hostIPC: null"],
    needs: FieldSet::HOST_IPC,
    check: Check::Pod(|cx, out| {
        if cx.spec.host_ipc.0 {
            out.report_value(cx.at(&["hostIPC"]), "true").removable();
        }
    }),
    ..FORBIDDEN
};

/// Whether the API server, or Pod Security's restricted or baseline profile, may reject a pod without `hostUsers: false`:
/// in a user namespace a process may be root there and see all of /proc.
///
/// Source: kubernetes, pod-security-admission/policy: `check_runAsNonRoot.go`, `check_runAsUser.go`,
/// `check_procMount_baseline.go`; pkg/apis/core/validation, `validateHostUsers`.
pub fn relies_on_user_namespace(pod: &PodSpec<'_>) -> bool {
    let of_pod = &pod.security_context;
    let mut containers = pod.visit_containers();
    of_pod.run_as_user.0
        || of_pod.run_as_non_root == Some(false)
        || containers.any(|(_, _, container)| {
            let own = &container.security_context;
            own.run_as_user.0 || own.proc_mount.is_some() || pod.run_as_non_root(container) != Some(true)
        })
}

static HOST_USERS: Rule = Rule {
    id: "TSM403",
    name: "host-users",
    severities: "error; warning for true",
    kubernetes: 25..=Rule::STILL,
    asks_for_nothing: &[AsksForNothing {
        value: "true",
        pods: Pods::All,
        because: "the value true is the default, and Windows has no user namespaces",
        source: TYPES,
    }],
    loses: "the isolation of its users from those of the node",
    summary: "Windows has no user namespaces",
    docs: "The field defines whether the pod shares the user namespace of its node. Windows has no user namespaces. \
           With `spec.os.name: windows`, the API server rejects both `true` and `false`. The documentation does not \
           list the field among the forbidden fields.",
    remedy: "remove it (true too)",
    see: &[
        "https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/",
        SOURCE,
    ],
    bad: &["hostUsers: false", "hostUsers: true"],
    good: &["hostUsers: null", "# --kubernetes-version 1.24\nhostUsers: false"],
    needs: FieldSet::HOST_USERS,
    check: Check::Pod(|cx, out| {
        if let Some(shares) = cx.spec.host_users {
            let value = if shares { "true" } else { "false" };
            let finding = out.report_value(cx.at(&["hostUsers"]), value).removable();
            if !shares && relies_on_user_namespace(cx.spec) {
                finding.required(Required::ByOthers);
            }
        }
    }),
    ..FORBIDDEN
};

static SHARE_PROCESS_NAMESPACE: Rule = Rule {
    id: "TSM404",
    name: "share-process-namespace",
    severities: "error; warning for false; advice for true on HostProcess pods",
    asks_for_nothing: &[
        AsksForNothing {
            value: "false",
            pods: Pods::All,
            because: "Windows containers never share their processes, as false requests",
            source: TYPES,
        },
        AsksForNothing {
            value: "true",
            pods: Pods::HostProcess,
            because: "HostProcess containers see all processes of their node, also each other's",
            source: HOST_PROCESS,
        },
    ],
    loses: "the view of the other containers' processes",
    summary: "Windows containers cannot share a process namespace",
    docs: "Every Windows container has its own processes, regardless of the field. With `spec.os.name: windows`, the \
           API server rejects it; `false` is treated as set.",
    remedy: "remove the field, also when it is false",
    see: &[INTRO_POD, SOURCE],
    bad: &["shareProcessNamespace: true", "shareProcessNamespace: false"],
    good: &["shareProcessNamespace: null"],
    needs: FieldSet::SHARE_PROCESS_NAMESPACE,
    check: Check::Pod(|cx, out| {
        if let Some(shares) = cx.spec.share_process_namespace {
            let value = if shares { "true" } else { "false" };
            out.report_value(cx.at(&["shareProcessNamespace"]), value)
                .removable();
        }
    }),
    ..FORBIDDEN
};

static POD_LEVEL_RESOURCES: Rule = Rule {
    id: "TSM405",
    name: "pod-level-resources",
    kubernetes: 32..=Rule::STILL,
    removable: false,
    severities: "error; warning for an empty object",
    asks_for_nothing: &[AsksForNothing {
        value: "{}",
        pods: Pods::All,
        because: "an empty object requests no resources, and the kubelet admits the pod",
        source: "kubernetes: staging/src/k8s.io/component-helpers/resource/helpers.go, IsPodLevelResourcesSet",
    }],
    loses: "its start: the kubelet rejects the pod",
    summary: "Windows does not support pod-level resources",
    docs: "Pod-level resources (alpha in 1.32, on by default since 1.34) are set on the pod's Linux control group. \
           With `spec.os.name: windows`, the API server rejects them, even an empty object (`may not be set for a \
           windows pod`). Without it the pod is scheduled, and the kubelet on Windows rejects it \
           (PodLevelResourcesNotSupported).",
    remedy: "set the resources of each container instead",
    see: &[
        "https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/",
        "kubernetes: pkg/apis/core/validation/validation.go, validatePodResources",
        "kubernetes: pkg/kubelet/lifecycle/features_windows.go",
    ],
    bad: &[
        "resources: {limits: {memory: 1Gi}}",
        "resources: {}",
        "os: null\nresources: {limits: {cpu: 1}}",
    ],
    good: &[
        "resources: null",
        "# --kubernetes-version 1.31\nresources: {limits: {memory: 1Gi}}",
    ],
    needs: FieldSet::POD_RESOURCES,
    check: Check::Pod(|cx, out| {
        if let Some(resources) = &cx.spec.resources {
            let is_empty = resources.limits.is_empty() && resources.requests.is_empty();
            let value = if is_empty { "{}" } else { "" };
            let finding = out.report_value(cx.at(&["resources"]), value);
            if cx.spec.os_name().is_none() && !is_empty {
                finding
                    .class(Class::Admit)
                    .message("the kubelet on Windows rejects a pod with pod-level resources");
            }
        }
    }),
    ..FORBIDDEN
};

static HOST_NETWORK: Rule = Rule {
    id: "TSM406",
    name: "host-network",
    class: Class::Ignored,
    loses: "the network of its node",
    shows_intent: true,
    summary: "on Windows, only HostProcess containers can use the host network",
    docs: "A Windows pod has its own network, regardless of the field: containerd ignores the field unless the pod is \
           HostProcess. But the kubelet does use it, and does not set the pod's hostname and the cluster DNS. The API \
           server accepts the field, because HostProcess pods need it. No runtime ever used the feature gate \
           WindowsHostNetwork (alpha in 1.26), and it is deprecated since 1.33.",
    remedy: "remove it, or make every container HostProcess (windowsOptions.hostProcess)",
    see: &[
        NETWORKING,
        HOST_PROCESS,
        "containerd: internal/cri/server/helpers.go",
    ],
    bad: &[
        "hostNetwork: true",
        "hostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: false}}",
        "# --kubernetes-version 1.28\nhostNetwork: true",
    ],
    good: &[
        "hostNetwork: false",
        "hostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}",
        "hostNetwork: true\ncontainers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true}}}]",
    ],
    needs: FieldSet::HOST_NETWORK,
    check: Check::Pod(|cx, out| {
        if cx.spec.host_network.0 && !cx.spec.has_host_process() {
            out.report(cx.at(&["hostNetwork"])).removable();
        }
    }),
    ..Rule::BASE
};

static DNS_CLUSTER_FIRST_WITH_HOST_NET: Rule = Rule {
    id: "TSM407",
    name: "dns-cluster-first-with-host-net",
    severity: Severity::Advice,
    class: Class::Ignored,
    tolerable: true,
    removable: true,
    summary: "dnsPolicy ClusterFirstWithHostNet has no effect on Windows",
    docs: "The policy is for pods on the host network, which only HostProcess pods can use on Windows. For any other \
           Windows pod the kubelet treats it like ClusterFirst, which is the default.",
    remedy: "remove it (the default is ClusterFirst), and remove hostNetwork if it is set",
    see: &[DNS, INTRO_POD],
    bad: &[
        "dnsPolicy: ClusterFirstWithHostNet",
        "hostNetwork: true\ndnsPolicy: ClusterFirstWithHostNet",
    ],
    good: &[
        "dnsPolicy: ClusterFirst",
        "dnsPolicy: Default",
        "hostNetwork: true\ndnsPolicy: ClusterFirstWithHostNet\nsecurityContext: {windowsOptions: {hostProcess: true}}",
    ],
    needs: FieldSet::DNS_WITH_HOST_NETWORK,
    check: Check::Pod(|cx, out| {
        if cx.spec.dns_policy.as_deref() == Some("ClusterFirstWithHostNet") && !cx.spec.has_host_process() {
            let finding = out.report(cx.at(&["dnsPolicy"]));
            // While hostNetwork is set, the default is the node's DNS, so removing the field would change the pod.
            if !cx.spec.host_network.0 {
                finding.removable();
            }
        }
    }),
    ..Rule::BASE
};

static DNS_SEARCH_LIST: Rule = Rule {
    id: "TSM408",
    name: "dns-search-list",
    severity: Severity::Advice,
    class: Class::Ignored,
    summary: "Windows uses only one DNS suffix",
    docs: "A Windows pod has one DNS suffix, that of its namespace. Windows does not try further search domains, and \
           the option `ndots` has no effect: Windows treats a name with a dot in it as fully qualified.",
    remedy: "use fully qualified names, such as service.namespace.svc.cluster.local",
    see: &[DNS, NETWORKING],
    bad: &[
        "dnsConfig: {searches: [one.example.com, two.example.com]}",
        "dnsConfig: {options: [{name: timeout, value: '2'}, {name: ndots, value: '2'}]}",
    ],
    good: &[
        "dnsConfig: {searches: [one.example.com]}",
        "dnsConfig: {nameservers: [192.0.2.1], options: [{name: edns0}]}",
        "hostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}\ndnsConfig: {options: [{name: ndots, value: '2'}]}",
    ],
    needs: FieldSet::DNS_CONFIG,
    check: Check::Pod(|cx, out| {
        let Some(config) = cx.spec.dns_config.as_ref() else {
            return;
        };
        if cx.spec.has_host_process() {
            return;
        }
        if config.searches.len() > 1 {
            out.report(cx.at(&["dnsConfig", "searches"]));
        }
        for (index, option) in config.options.iter().enumerate() {
            if option.name.as_deref() == Some("ndots") {
                let path = cx.at(&["dnsConfig", "options"]).named_item(index, "ndots");
                out.report(path)
                    .message("Windows ignores ndots and treats a name with a dot in it as fully qualified");
            }
        }
    }),
    ..Rule::BASE
};
