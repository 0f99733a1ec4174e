//! HostProcess containers: what the API server checks. The submodules check what they meet on a node (`host_process`),
//! the names of their `hosts`, and the user of a container: `user` names, and group-managed service accounts (`gmsa`).

mod gmsa;
mod host_process;
mod hosts;
mod user;

use super::context::{ContainerAt, PodCx};
use super::rule::{Check, Rule};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::objects::pod::{HostPath, WindowsOptions};
use crate::model::syntax::edit::Edit;
use crate::model::syntax::path::Path;
use crate::model::windows::build::ContainerIsolation;

/// Rules TSM301 and up.
pub static RULES: &[&Rule] = &[
    &HOST_PROCESS_REQUIRES_HOST_NETWORK,
    &HOST_PROCESS_ALL_CONTAINERS,
    &HOST_PROCESS_POD_CONTAINER_MISMATCH,
    &HOST_PROCESS_RUN_AS_NON_ROOT,
    &HOST_PROCESS_USER,
    &NAMED_PIPE_IN_HOST_PROCESS,
    &HOST_PROCESS_HYPERV,
    &HOST_PROCESS_VERSION,
    &gmsa::GMSA_NAME_SYNTAX,
    &gmsa::GMSA_SPEC_SIZE,
    &gmsa::GMSA_NAME_UNRESOLVED,
    &user::RUN_AS_USER_NAME_SYNTAX,
    &user::RUN_AS_NON_ROOT_ADMINISTRATOR,
    &hosts::GMSA_SHARED_BY_REPLICAS,
    &hosts::GMSA_OLD_REVISION,
    &hosts::LONG_NODE_NAME,
    &host_process::HOST_PROCESS_UNKNOWN_USER,
    &host_process::HOST_PROCESS_COMMAND,
    &host_process::HOST_PROCESS_MOUNT_LOCATION,
    &host_process::SERVICE_BEFORE_HOST_PROCESS,
    &user::RUN_AS_USER_NAME_NUMBER,
    &gmsa::GMSA_NAME_UNKNOWN,
    &user::CONTAINER_USER_IIS,
];

const HOST_PROCESS: &str = "https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/";
const HOST_PROCESS_SOURCE: &str =
    "kubernetes: pkg/apis/core/validation/validation.go, validateWindowsHostProcessPod";
const OPTIONS_SOURCE: &str =
    "kubernetes: pkg/apis/core/validation/validation.go, validateWindowsSecurityContextOptions";

/// HostProcess rules that the API server has enforced since it knows the field.
const HOST_PROCESS_API: Rule = Rule {
    class: Class::ApiAlways,
    kubernetes: 22..=Rule::STILL,
    ..Rule::BASE
};

/// The Windows options as written: the pod's own (`None`), then those of each container.
fn windows_options<'c>(
    cx: &PodCx<'c>,
) -> impl Iterator<Item = (Option<ContainerAt<'c>>, &'c WindowsOptions<'c>)> + use<'c> {
    let pod = cx.spec.windows_options().map(|options| (None, options));
    let containers = cx
        .containers()
        .filter_map(|c| Some((Some(c), c.container.windows_options()?)));
    pod.into_iter().chain(containers)
}

/// The path of a field of the security context of a container, or of the pod.
fn context_at(cx: &PodCx<'_>, container: Option<ContainerAt<'_>>, fields: &[&'static str]) -> Path {
    let context = &["securityContext"];
    container
        .map_or_else(|| cx.at(context), |container| container.at(context))
        .fields(fields)
}

/// The path of a field of the Windows options of a container, or of the pod.
fn option_at(cx: &PodCx<'_>, container: Option<ContainerAt<'_>>, field: &'static str) -> Path {
    context_at(cx, container, &["windowsOptions", field])
}

/// The path where the pod first sets HostProcess; `None` if the pod is not HostProcess.
fn host_process_at(cx: &PodCx<'_>) -> Option<Path> {
    let first = cx
        .containers()
        .find(|container| cx.spec.is_host_process(container))?;
    let is_explicit = first
        .windows_options()
        .is_some_and(|options| options.host_process.is_some());
    Some(option_at(cx, is_explicit.then_some(first), "hostProcess"))
}

static HOST_PROCESS_REQUIRES_HOST_NETWORK: Rule = Rule {
    id: "TSM301",
    name: "host-process-requires-host-network",
    summary: "a pod with HostProcess containers needs hostNetwork: true",
    docs: "HostProcess containers use the network of their node. The API server rejects a pod with HostProcess \
           containers unless it sets `hostNetwork: true`.",
    remedy: "add hostNetwork: true",
    see: &[HOST_PROCESS, HOST_PROCESS_SOURCE],
    bad: &[
        "securityContext: {windowsOptions: {hostProcess: true}}",
        "hostNetwork: false\ncontainers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true}}}]",
        "initContainers: [{name: init, image: app, securityContext: {windowsOptions: {hostProcess: true}}}]",
    ],
    good: &[
        "hostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}",
        "securityContext: {windowsOptions: {hostProcess: false}}",
        "# --kubernetes-version 1.21\nsecurityContext: {windowsOptions: {hostProcess: true}}",
    ],
    needs: FieldSet::HOST_PROCESS,
    check: Check::Pod(|cx, out| {
        if !cx.spec.host_network.0 && cx.spec.has_host_process() {
            let finding = out.report(cx.at(&["hostNetwork"]));
            finding.edit = Some(Edit::Set(finding.path.clone(), true.into()));
        }
    }),
    ..HOST_PROCESS_API
};

static HOST_PROCESS_ALL_CONTAINERS: Rule = Rule {
    id: "TSM302",
    name: "host-process-all-containers",
    summary: "only some containers of the pod are HostProcess",
    docs: "Either all containers of a pod are HostProcess or none of them, including init and ephemeral containers. \
           The API server rejects anything else, and so do the kubelet and containerd.",
    remedy: "make it HostProcess too (windowsOptions.hostProcess: true), or run it in a separate pod",
    see: &[HOST_PROCESS, HOST_PROCESS_SOURCE],
    bad: &[
        "hostNetwork: true\ncontainers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true}}}, {name: app, image: app}]",
        "hostNetwork: true\n\
         initContainers: [{name: init, image: app}]\n\
         containers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true}}}]",
        "hostNetwork: true\n\
         containers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true}}}]\n\
         ephemeralContainers: [{name: debugger, image: app}]",
    ],
    good: &[
        "hostNetwork: true\ninitContainers: [{name: init, image: app}]\nsecurityContext: {windowsOptions: {hostProcess: true}}",
        "containers: [{name: a, image: a}, {name: b, image: b, securityContext: {windowsOptions: {hostProcess: false}}}]",
    ],
    needs: FieldSet::HOST_PROCESS,
    check: Check::Pod(|cx, out| {
        if !cx.spec.has_host_process() {
            return;
        }
        for container in cx
            .containers()
            .filter(|container| !cx.spec.is_host_process(container))
        {
            out.report(option_at(cx, Some(container), "hostProcess"))
                .message("this container is not HostProcess, but other containers of the pod are");
        }
    }),
    ..HOST_PROCESS_API
};

static HOST_PROCESS_POD_CONTAINER_MISMATCH: Rule = Rule {
    id: "TSM303",
    name: "host-process-pod-container-mismatch",
    summary: "hostProcess of the container contradicts hostProcess of the pod",
    docs: "`windowsOptions.hostProcess` can be set on the pod and on a container, but both must have the same value. \
           The API server rejects the pod if they differ.",
    remedy: "set hostProcess in one place only, for the pod as a whole",
    see: &[HOST_PROCESS, HOST_PROCESS_SOURCE],
    bad: &[
        "hostNetwork: true\n\
         securityContext: {windowsOptions: {hostProcess: true}}\n\
         containers: [{name: app, image: app, securityContext: {windowsOptions: {hostProcess: false}}}]",
        "hostNetwork: true\n\
         securityContext: {windowsOptions: {hostProcess: false}}\n\
         initContainers: [{name: init, image: app, securityContext: {windowsOptions: {hostProcess: true}}}]",
    ],
    good: &[
        "hostNetwork: true\n\
         securityContext: {windowsOptions: {hostProcess: true}}\n\
         containers: [{name: app, image: app, securityContext: {windowsOptions: {hostProcess: true}}}]",
        "hostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}",
    ],
    needs: FieldSet::HOST_PROCESS,
    check: Check::Pod(|cx, out| {
        let Some(of_pod) = cx.spec.windows_options().and_then(|options| options.host_process) else {
            return;
        };
        for container in cx.containers() {
            if container
                .windows_options()
                .and_then(|options| options.host_process)
                == Some(!of_pod)
            {
                out.report(option_at(cx, Some(container), "hostProcess"));
            }
        }
    }),
    ..HOST_PROCESS_API
};

static HOST_PROCESS_RUN_AS_NON_ROOT: Rule = Rule {
    id: "TSM304",
    name: "host-process-run-as-non-root",
    severity: Severity::Advice,
    class: Class::BestPractice,
    kubernetes: 22..=Rule::STILL,
    summary: "runAsNonRoot is not intended for HostProcess containers",
    docs: "The documentation says that runAsNonRoot cannot be true for HostProcess containers, but nothing enforces \
           it. The kubelet only checks that the user is not ContainerAdministrator. So a container that runs as NT \
           AUTHORITY\\SYSTEM passes as non-root.",
    remedy: "remove it; set windowsOptions.runAsUserName to a user with few rights instead",
    see: &[
        HOST_PROCESS,
        "kubernetes: pkg/kubelet/kuberuntime/security_context_windows.go",
    ],
    bad: &[
        "hostNetwork: true\nsecurityContext: {runAsNonRoot: true, windowsOptions: {hostProcess: true}}",
        "hostNetwork: true\ncontainers: [{name: agent, image: agent, securityContext: {runAsNonRoot: true, windowsOptions: {hostProcess: true}}}]",
    ],
    good: &[
        "securityContext: {runAsNonRoot: true}",
        "hostNetwork: true\nsecurityContext: {runAsNonRoot: false, windowsOptions: {hostProcess: true}}",
        "hostNetwork: true\n\
         securityContext: {runAsNonRoot: true, windowsOptions: {hostProcess: true}}\n\
         containers: [{name: agent, image: agent, securityContext: {runAsNonRoot: false}}]",
    ],
    needs: FieldSet::HOST_PROCESS,
    check: Check::Pod(|cx, out| {
        let mut inherited = false;
        for container in cx
            .containers()
            .filter(|container| cx.spec.is_host_process(container))
        {
            match container.security_context.run_as_non_root {
                Some(true) => {
                    out.report(context_at(cx, Some(container), &["runAsNonRoot"]));
                }
                Some(false) => {}
                None => inherited = true,
            }
        }
        if inherited && cx.spec.security_context.run_as_non_root == Some(true) {
            out.report(context_at(cx, None, &["runAsNonRoot"]));
        }
    }),
    ..Rule::BASE
};

static HOST_PROCESS_USER: Rule = Rule {
    id: "TSM305",
    name: "host-process-user",
    severity: Severity::Advice,
    class: Class::BestPractice,
    kubernetes: 22..=Rule::STILL,
    summary: "the HostProcess container does not set its user",
    docs: "The documentation asks for runAsUserName on HostProcess containers, but nothing enforces it. A HostProcess \
           container runs on the node itself. The user can be NT AUTHORITY\\SYSTEM (all rights), NT AUTHORITY\\Local \
           service or NT AUTHORITY\\NetworkService (few rights). It can also be a local group of the node, for which a \
           temporary account is created.",
    remedy: "set windowsOptions.runAsUserName, such as NT AUTHORITY\\Local service",
    see: &[HOST_PROCESS],
    bad: &[
        "hostNetwork: true\ncontainers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true}}}]",
        "hostNetwork: true\n\
         securityContext: {windowsOptions: {hostProcess: true}}\n\
         containers: [{name: agent, image: agent}]",
    ],
    good: &[
        "containers: [{name: app, image: app}]",
        "hostNetwork: true\n\
         securityContext: {windowsOptions: {hostProcess: true, runAsUserName: 'NT AUTHORITY\\SYSTEM'}}\n\
         containers: [{name: agent, image: agent}]",
        "hostNetwork: true\ncontainers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true, runAsUserName: 'NT AUTHORITY\\Local service'}}}]",
    ],
    needs: FieldSet::HOST_PROCESS,
    check: Check::Pod(|cx, out| {
        let mut inherited = false;
        for container in cx
            .containers()
            .filter(|container| cx.spec.is_host_process(container))
        {
            if cx.spec.run_as_user_name(container.container).is_some() {
                continue;
            }
            if container
                .windows_options()
                .is_some_and(|options| options.host_process.is_some())
            {
                out.report(option_at(cx, Some(container), "runAsUserName"));
            } else {
                inherited = true;
            }
        }
        if inherited {
            out.report(option_at(cx, None, "runAsUserName"));
        }
    }),
    ..Rule::BASE
};

/// Whether a host path is a named pipe of Windows, `\\.\pipe\...`.
fn is_named_pipe(path: &str) -> bool {
    let prefix = path.get(..9).unwrap_or_default();
    prefix.eq_ignore_ascii_case(r"\\.\pipe\") || prefix.eq_ignore_ascii_case("//./pipe/")
}

/// Whether a host path looks like a Unix socket: `*.sock`.
fn is_unix_socket(path: &str) -> bool {
    path.len()
        .checked_sub(5)
        .and_then(|at| path.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(".sock"))
}

static NAMED_PIPE_IN_HOST_PROCESS: Rule = Rule {
    id: "TSM306",
    name: "named-pipe-in-host-process",
    kubernetes: 22..=Rule::STILL,
    summary: "a HostProcess container cannot mount a named pipe or a Unix socket",
    docs: "A HostProcess container runs on the node and can open the node's pipes and sockets directly. A mount of a \
           pipe or socket fails when the container is created (`named pipe mounts not supported for job containers`).",
    remedy: r"remove the mount, and open the path directly, such as \\.\pipe\containerd-containerd",
    see: &[HOST_PROCESS, "hcsshim: internal/jobcontainers/mounts.go"],
    bad: &[
        r"hostNetwork: true
securityContext: {windowsOptions: {hostProcess: true}}
volumes: [{name: cri, hostPath: {path: '\\.\pipe\containerd-containerd'}}]
containers: [{name: agent, image: agent, volumeMounts: [{name: cri, mountPath: '\\.\pipe\containerd-containerd'}]}]",
        r"hostNetwork: true
securityContext: {windowsOptions: {hostProcess: true}}
volumes: [{name: csi, hostPath: {path: 'C:\csi\csi.sock'}}]
initContainers: [{name: init, image: agent, volumeMounts: [{name: csi, mountPath: 'C:\csi\csi.sock'}]}]",
    ],
    good: &[
        r"volumes: [{name: cri, hostPath: {path: '\\.\pipe\containerd-containerd'}}]
containers: [{name: agent, image: agent, volumeMounts: [{name: cri, mountPath: '\\.\pipe\containerd-containerd'}]}]",
        r"hostNetwork: true
securityContext: {windowsOptions: {hostProcess: true}}
volumes: [{name: cri, hostPath: {path: '\\.\pipe\containerd-containerd'}}]",
        r"hostNetwork: true
securityContext: {windowsOptions: {hostProcess: true}}
volumes: [{name: csi, hostPath: {path: 'C:\csi', type: DirectoryOrCreate}}]
containers: [{name: agent, image: agent, volumeMounts: [{name: csi, mountPath: 'C:\csi'}]}]",
    ],
    needs: FieldSet::HOST_PROCESS,
    check: Check::Pod(|cx, out| {
        let is_endpoint = |path: &HostPath<'_>| is_named_pipe(&path.path) || is_unix_socket(&path.path);
        let mut endpoints: Vec<&str> = (cx.volumes())
            .filter(|volume| volume.host_path.as_ref().is_some_and(is_endpoint))
            .map(|volume| &*volume.volume.name)
            .collect();
        if endpoints.is_empty() {
            return;
        }
        endpoints.sort_unstable();
        for container in cx
            .containers()
            .filter(|container| cx.spec.is_host_process(container))
        {
            for (index, mount) in container.volume_mounts.iter().enumerate() {
                if endpoints.binary_search(&&*mount.name).is_ok() {
                    out.report(container.mount(index));
                }
            }
        }
    }),
    ..Rule::BASE
};

/// HostProcess containers with Hyper-V isolation.
pub static HOST_PROCESS_HYPERV: Rule = Rule {
    id: "TSM307",
    name: "host-process-hyperv",
    kubernetes: 22..=Rule::STILL,
    summary: "HostProcess containers cannot use Hyper-V isolation",
    docs: "A HostProcess container is a process of the node and cannot be isolated. The API server does not check \
           this; the container fails on the node.",
    remedy: "remove runtimeClassName, or use a RuntimeClass with a process isolation handler (runhcs-wcow-process)",
    see: &[HOST_PROCESS],
    bad: &[
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, hostNetwork: true, runtimeClassName: isolated, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: agent, image: agent}]}}\n\
         ---\n\
         {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: isolated}, handler: runhcs-wcow-hypervisor}",
    ],
    good: &[
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, hostNetwork: true, runtimeClassName: plain, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: agent, image: agent}]}}\n\
         ---\n\
         {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: plain}, handler: runhcs-wcow-process}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, runtimeClassName: isolated, containers: [{name: app, image: app}]}}\n\
         ---\n\
         {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: isolated}, handler: runhcs-wcow-hypervisor}",
    ],
    needs: FieldSet::HOST_PROCESS,
    check: Check::Pod(|cx, out| {
        let Some(class) = cx.runtime_class() else { return };
        if class.isolation() == ContainerIsolation::HyperV && cx.spec.has_host_process() {
            out.report(cx.at(&["runtimeClassName"]));
        }
    }),
    ..Rule::BASE
};

/// HostProcess containers on versions that do not have them.
pub static HOST_PROCESS_VERSION: Rule = Rule {
    id: "TSM308",
    name: "host-process-version",
    severity: Severity::Warning,
    summary: "HostProcess containers need Kubernetes 1.22 and containerd 1.6",
    docs: "HostProcess containers are alpha in Kubernetes 1.22 (behind the feature gate WindowsHostProcessContainers), \
           beta in 1.23 and stable since 1.26. They need containerd 1.6 or later on the node. The rule reports a \
           cluster that is older. It also reports a cluster in which every Windows node that reports a containerd \
           version has an older containerd.",
    remedy: "upgrade Kubernetes to 1.23 or later (1.22 with the feature gate), and containerd to 1.6 or later",
    see: &[HOST_PROCESS],
    bad: &[
        "# --kubernetes-version 1.21\nhostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, hostNetwork: true, containers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true}}}]}}\n\
         ---\n\
         {apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, containerRuntimeVersion: 'containerd://1.5.13'}}}",
    ],
    good: &[
        "hostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}",
        "# --kubernetes-version 1.21\nsecurityContext: {windowsOptions: {runAsUserName: ContainerUser}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: agent, image: agent}]}}\n\
         ---\n\
         {apiVersion: v1, kind: Node, metadata: {name: old}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, containerRuntimeVersion: 'containerd://1.5.13'}}}\n\
         ---\n\
         {apiVersion: v1, kind: Node, metadata: {name: new}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://1.10.0'}}}",
    ],
    needs: FieldSet::HOST_PROCESS,
    check: Check::Pod(|cx, out| {
        let old_cluster = cx.facts.kubernetes < 22;
        let newest = || cx.hosts().filter_map(|host| host.containerd).max();
        if !old_cluster && newest().is_none_or(|version| version >= (1, 6)) {
            return;
        }
        if let Some(path) = host_process_at(cx) {
            let finding = out.report(path);
            if old_cluster {
                finding.message(format!(
                    "Kubernetes 1.{} does not support HostProcess containers",
                    cx.facts.kubernetes
                ));
            } else if let Some((major, minor)) = newest() {
                finding
                    .message(format!(
                        "the Windows nodes have containerd {major}.{minor}; HostProcess needs 1.6"
                    ))
                    .remedy("upgrade containerd on the Windows nodes to 1.6 or later");
            }
        }
    }),
    ..Rule::BASE
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_sockets_are_distinguished_from_folders() {
        for path in [
            r"\\.\pipe\containerd-containerd",
            r"\\.\PIPE\docker_engine",
            "//./pipe/docker_engine",
        ] {
            assert!(is_named_pipe(path), "{path}");
        }
        assert!(is_unix_socket(r"C:\csi\csi.sock") && is_unix_socket("/var/run/docker.sock"));
        for path in [r"C:\pipe", r"\\server\share", "", "é", r"C:\csi", "sock"] {
            assert!(!is_named_pipe(path) && !is_unix_socket(path), "{path}");
        }
    }
}
