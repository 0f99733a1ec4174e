//! What HostProcess containers meet on their node, as containerd and hcsshim start them: users, commands, mounts, and
//! Services before them.

use super::{HOST_PROCESS, option_at};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::nodes::node::Host;
use crate::model::objects::object::Body;
use crate::model::objects::workload::Kind;
use crate::model::syntax::json_types::Str;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::rules::context::{ContainerAt, PodCx};
use crate::rules::pod::{commands, is_reported_command};
use crate::rules::rule::{Check, Reporter, Rule};

const LOGON: &str = "hcsshim: internal/jobcontainers/logon.go, processToken";
const PATHS: &str = "hcsshim: internal/jobcontainers/path.go, getApplicationName";
const CREATE: &str = "hcsshim: internal/jobcontainers/jobcontainer.go";

pub(super) static HOST_PROCESS_UNKNOWN_USER: Rule = Rule {
    id: "TSM317",
    name: "host-process-unknown-user",
    severities: "error; warning for accounts other than ContainerUser and ContainerAdministrator",
    kubernetes: 22..=Rule::STILL,
    summary: "a HostProcess container cannot log on as this user",
    docs: "A HostProcess container runs on the node, so its user must exist there. `ContainerUser` and \
           `ContainerAdministrator` exist only inside of other containers, and the container does not start (`failed \
           to logon user`). The runtime has no password, so only two kinds of names work. A local group of the node, \
           such as `Administrators`, gets a temporary account. The service accounts `NT AUTHORITY\\SYSTEM`, `NT \
           AUTHORITY\\Local service` and `NT AUTHORITY\\NetworkService` log on as services, but only if the domain is \
           written in capital letters.",
    remedy: "use a local group of the node, or NT AUTHORITY\\SYSTEM, NT AUTHORITY\\Local service or NT \
             AUTHORITY\\NetworkService",
    see: &[HOST_PROCESS, LOGON],
    bad: &[
        "hostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true, runAsUserName: ContainerUser}}\n\
         containers: [{name: agent, image: agent}]",
        "hostNetwork: true\n\
         containers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true, runAsUserName: containeradministrator}}}]",
        r"hostNetwork: true
containers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true, runAsUserName: 'nt authority\system'}}}]",
        r"hostNetwork: true
containers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true, runAsUserName: 'CORP\agent'}}}]",
        "hostNetwork: true\n\
         containers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true, runAsUserName: SYSTEM}}}]",
    ],
    good: &[
        "securityContext: {windowsOptions: {runAsUserName: ContainerUser}}",
        r"hostNetwork: true
containers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true, runAsUserName: 'NT AUTHORITY\system'}}}]",
        r"hostNetwork: true
containers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true, runAsUserName: 'NT AUTHORITY\Local service'}}}]",
        "hostNetwork: true\n\
         containers: [{name: agent, image: agent, securityContext: {windowsOptions: {hostProcess: true, runAsUserName: Administrators}}}]",
    ],
    needs: FieldSet::HOST_PROCESS,
    check: Check::Pod(|cx, out| {
        let mut inherited = false;
        for container in host_process(cx) {
            let own = container
                .windows_options()
                .and_then(|own| own.run_as_user_name.as_deref());
            match own {
                Some(name) => report_user(name, || option_at(cx, Some(container), "runAsUserName"), out),
                None => inherited = true,
            }
        }
        let of_pod = cx
            .spec
            .windows_options()
            .and_then(|pod| pod.run_as_user_name.as_deref());
        if let (true, Some(name)) = (inherited, of_pod) {
            report_user(name, || option_at(cx, None, "runAsUserName"), out);
        }
    }),
    ..Rule::BASE
};

/// The HostProcess containers of a pod.
fn host_process<'c>(cx: &PodCx<'c>) -> impl Iterator<Item = ContainerAt<'c>> {
    cx.containers()
        .filter(|container| cx.spec.is_host_process(container))
}

fn report_user(name: &str, path: impl Fn() -> Path, out: &mut Reporter<'_>) {
    let text = shown(name);
    match LogonProblem::of(name) {
        None => {}
        Some(LogonProblem::ContainerAccount) => {
            out.report(path()).message(format!(
                "the user {text} does not exist on the node, where HostProcess containers run"
            ));
        }
        Some(LogonProblem::Spelling) => {
            out.report(path()).severity(Severity::Warning).message(format!(
                "the user {text} cannot log on, because only the domain \"NT AUTHORITY\" means a service account"
            ));
        }
        Some(LogonProblem::Password) => {
            out.report(path()).severity(Severity::Warning).message(format!(
                "the user {text} cannot log on, because a HostProcess container has no password"
            ));
        }
    }
}

/// Why a HostProcess container cannot log on as a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogonProblem {
    /// The account is that of a container.
    ContainerAccount,
    /// A service account whose domain is missing or in other letters.
    Spelling,
    /// Neither a service account nor a group.
    Password,
}

impl LogonProblem {
    /// A name without a domain may be a local group, which only the node knows.
    fn of(name: &str) -> Option<Self> {
        /// Without spaces, as Windows accepts them too.
        const SERVICES: [&str; 4] = ["system", "localsystem", "localservice", "networkservice"];
        const DOMAIN: &str = "NT AUTHORITY";
        let (domain, user) = name
            .split_once('\\')
            .map_or((None, name), |(domain, user)| (Some(domain), user));
        let plain: String = user.to_lowercase().split(' ').collect();
        if matches!(plain.as_str(), "containeruser" | "containeradministrator") {
            return Some(LogonProblem::ContainerAccount);
        }
        let is_service = SERVICES.contains(&plain.as_str());
        match domain {
            None => is_service.then_some(LogonProblem::Spelling),
            Some(DOMAIN) => (!is_service).then_some(LogonProblem::Password),
            Some(other) if other.eq_ignore_ascii_case(DOMAIN) => Some(LogonProblem::Spelling),
            Some(_) => Some(LogonProblem::Password),
        }
    }
}

pub(super) static HOST_PROCESS_COMMAND: Rule = Rule {
    id: "TSM318",
    name: "host-process-command",
    severity: Severity::Warning,
    kubernetes: 22..=Rule::STILL,
    summary: "the command of a HostProcess container is a path of the node",
    docs: "A HostProcess container sees the file system of its node. `C:\\` is the disk of the node, and the files of \
           the image are in another folder: `C:\\hpc`, or `C:\\hpc\\` and the ID of the container on nodes without \
           support for bind mounts. So `/agent.exe` or `C:\\app\\agent.exe` is searched for on the node, and the \
           container does not start, a probe fails, or a hook is skipped. A relative path is searched for in the \
           working directory, which is the folder of the image by default. The rule ignores folders that nodes have \
           (C:\\Windows, C:\\Program Files, C:\\ProgramData, C:\\k, C:\\etc, C:\\opt, C:\\var, …), other disks than \
           C:, and paths below a volume of the pod. It also reports PowerShell 7 (`pwsh.exe`), which Windows Server \
           does not contain.",
    remedy: "write a relative path, such as agent.exe, or %CONTAINER_SANDBOX_MOUNT_POINT%\\agent.exe",
    see: &[HOST_PROCESS, PATHS, CREATE],
    bad: &[
        "hostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}\n\
         containers: [{name: agent, image: agent, lifecycle: {preStop: {exec: {command: [/agent.exe, stop]}}}}]",
        r"hostNetwork: true
securityContext: {windowsOptions: {hostProcess: true}}
containers: [{name: agent, image: agent, command: ['C:\app\agent.exe']}]",
        r"hostNetwork: true
securityContext: {windowsOptions: {hostProcess: true}}
containers: [{name: agent, image: agent, livenessProbe: {exec: {command: [/usr/local/bin/agent.exe, health]}}}]",
        "hostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}\n\
         containers: [{name: agent, image: agent, command: [pwsh.exe, -c, date]}]",
    ],
    good: &[
        "containers: [{name: app, image: app, command: [/app/agent.exe]}]",
        "hostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}\n\
         containers: [{name: agent, image: agent, command: [agent.exe]}]",
        r"hostNetwork: true
securityContext: {windowsOptions: {hostProcess: true}}
containers: [{name: agent, image: agent, command: ['%CONTAINER_SANDBOX_MOUNT_POINT%\agent.exe']}]",
        r"hostNetwork: true
securityContext: {windowsOptions: {hostProcess: true}}
containers: [{name: agent, image: agent, command: ['C:\hpc\agent.exe'], livenessProbe: {exec: {command: ['c:/windows/system32/cmd.exe', /c, dir]}}}]",
        r"hostNetwork: true
securityContext: {windowsOptions: {hostProcess: true}}
volumes: [{name: tools, hostPath: {path: 'C:\tools'}}]
containers: [{name: agent, image: agent, command: ['C:\bin\agent.exe'], volumeMounts: [{name: tools, mountPath: 'C:\bin'}]}, {name: b, image: b, command: [powershell.exe, -c, date]}, {name: c, image: c, command: ['C:\Tools\c.exe']}]",
    ],
    needs: FieldSet::HOST_PROCESS,
    check: Check::Pod(|cx, out| {
        for container in host_process(cx) {
            for (path, command) in commands(&container) {
                check_program(cx, &container, command, path, out);
            }
        }
    }),
    ..Rule::BASE
};

fn check_program(
    cx: &PodCx<'_>,
    container: &ContainerAt<'_>,
    command: &[Str<'_>],
    path: Path,
    out: &mut Reporter<'_>,
) {
    let Some(program) = command.first().filter(|program| !is_reported_command(program)) else {
        return;
    };
    let text = shown(program);
    if ["pwsh", "pwsh.exe"]
        .iter()
        .any(|name| program.eq_ignore_ascii_case(name))
    {
        out.report(path.item(0))
            .message(format!("the node has no {text}, which is PowerShell 7"))
            .remedy("use powershell.exe, or a path of the image that contains PowerShell 7");
    } else if let Some(on_node) = path_on_system_disk(program)
        && !is_known_on_node(&on_node)
        && !is_in_volume(cx, container, &on_node)
    {
        out.report(path.item(0)).message(format!(
            "the path {text} is one of the node, because a HostProcess container sees the node's disk"
        ));
    }
}

/// A rooted path on the system disk, in lower case, with backslashes and without the drive.
fn path_on_system_disk(path: &str) -> Option<String> {
    let path = path.trim().replace('/', "\\").to_lowercase();
    let rest = path.strip_prefix("c:").unwrap_or(&path);
    // Two backslashes begin a share or a device.
    (rest.starts_with('\\') && !rest.starts_with("\\\\")).then(|| rest.to_owned())
}

/// Folders of the system disk that nodes have: those of Windows, of the image (`hpc`), and of Kubernetes on the platforms.
static NODE_FOLDERS: &[&str] = &[
    "azuredata",
    "calicowindows",
    "csi",
    "csi-proxy",
    "etc",
    "hpc",
    "k",
    "opt",
    "program files",
    "program files (x86)",
    "programdata",
    "users",
    "var",
    "windows",
];

fn is_known_on_node(path: &str) -> bool {
    let first = path
        .trim_start_matches('\\')
        .split('\\')
        .next()
        .unwrap_or_default();
    NODE_FOLDERS.contains(&first)
}

/// Whether a path is below a mount of the container, or below a folder of the node that the pod names.
fn is_in_volume(cx: &PodCx<'_>, container: &ContainerAt<'_>, path: &str) -> bool {
    let mounts = container.volume_mounts.iter().map(|mount| &*mount.mount_path);
    let mut folders = mounts.chain(
        cx.volumes()
            .filter_map(|volume| Some(&*volume.volume.host_path.as_ref()?.path)),
    );
    folders.any(|folder| {
        let folder = path_on_system_disk(folder);
        let folder = folder.as_deref().map(|folder| folder.trim_end_matches('\\'));
        folder.is_some_and(|folder| {
            path.strip_prefix(folder)
                .is_some_and(|rest| rest.starts_with('\\'))
        })
    })
}

pub(super) static HOST_PROCESS_MOUNT_LOCATION: Rule = Rule {
    id: "TSM319",
    name: "host-process-mount-location",
    severity: Severity::Advice,
    class: Class::BestPractice,
    kubernetes: 22..=Rule::STILL,
    summary: "on some nodes, mounts of a HostProcess container are in another folder",
    docs: "With containerd 1.7 or later on Windows Server 2022 or later, a volume of a HostProcess container is at its \
           mountPath, and the image is in `C:\\hpc`. With containerd 1.6, and on Windows Server 2019 with any \
           containerd, Windows cannot bind folders to a container. There, mounts are links below the folder of the \
           image, `%CONTAINER_SANDBOX_MOUNT_POINT%` (`C:\\hpc\\` and the ID of the container; `C:\\C\\` and the ID with \
           containerd 1.6), and a workingDir is relative to that folder. Newer nodes have both locations. So a program \
           that opens `C:\\data` finds nothing on older nodes. The rule reports a HostProcess container with mounts \
           whose pod may land on a known node of that kind.",
    remedy: "open the files below %CONTAINER_SANDBOX_MOUNT_POINT%, which works on every node, or select newer nodes",
    see: &[HOST_PROCESS, CREATE, "hcsshim: internal/jobcontainers/mounts.go"],
    bad: &[
        r"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, volumes: [{name: data, emptyDir: {}}], containers: [{name: agent, image: agent, volumeMounts: [{name: data, mountPath: 'C:\data'}]}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: old}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, containerRuntimeVersion: 'containerd://1.7.13'}}}",
        r"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, volumes: [{name: data, emptyDir: {}}], containers: [{name: agent, image: agent, volumeMounts: [{name: data, mountPath: 'C:\data'}]}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: old}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://1.6.36'}}}",
    ],
    good: &[
        r"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, volumes: [{name: data, emptyDir: {}}], containers: [{name: agent, image: agent, volumeMounts: [{name: data, mountPath: 'C:\data'}]}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: new}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://2.0.4'}}}",
        r"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, volumes: [{name: data, emptyDir: {}}], containers: [{name: agent, image: agent, volumeMounts: [{name: data, mountPath: 'C:\data'}]}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: old}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, containerRuntimeVersion: 'containerd://1.7.13'}}}",
    ],
    needs: FieldSet::HOST_PROCESS,
    check: Check::Pod(|cx, out| {
        let Some(host) = cx.target_nodes().find(|host| !binds_folders(host)) else {
            return;
        };
        for container in host_process(cx) {
            // The token of the service account is there too, where only client libraries open it.
            let mut mounts = container.volume_mounts.iter().enumerate();
            let is_files = |path: &str| !path.contains("kubernetes.io/serviceaccount");
            if let Some((index, mount)) = mounts.find(|(_, mount)| is_files(&mount.mount_path)) {
                out.report(container.mount(index)).message(format!(
                    "on node {}, {} is only below %CONTAINER_SANDBOX_MOUNT_POINT%",
                    host.name,
                    shown(&mount.mount_path)
                ));
            }
        }
    }),
    ..Rule::BASE
};

/// Whether a node can show a folder at another path to one container only, as far as is known.
fn binds_folders(host: &Host) -> bool {
    host.containerd.is_none_or(|version| version >= (1, 7))
        && host.build.is_none_or(|build| build.number() >= 20348)
}

pub(super) static SERVICE_BEFORE_HOST_PROCESS: Rule = Rule {
    id: "TSM320",
    name: "service-before-host-process",
    severity: Severity::Advice,
    class: Class::BestPractice,
    kubernetes: 22..=Rule::STILL,
    summary: "pods of the same node do not reach a HostProcess pod through the Service",
    docs: "A HostProcess pod has the address of its node. kube-proxy on Windows cannot balance a Service to the address \
           of its own node for pods of that node, so that such a connection fails, while pods of other nodes reach the \
           HostProcess pod. The rule reports a Service that selects a known HostProcess workload of its namespace.",
    remedy: "let pods connect to the address of their node (fieldRef status.hostIP) and the port of the HostProcess pod",
    see: &[
        "https://github.com/kubernetes/kubernetes/issues/126795",
        "kubernetes: pkg/proxy/winkernel/proxier.go",
    ],
    bad: &[
        "{apiVersion: v1, kind: Service, metadata: {name: agent, namespace: mon}, spec: {selector: {app: agent}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: mon, labels: {app: agent}}, spec: {os: {name: windows}, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: agent, image: agent}]}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Service, metadata: {name: agent, namespace: mon}, spec: {selector: {app: agent}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: mon, labels: {app: agent}}, spec: {os: {name: windows}, containers: [{name: agent, image: agent}]}}",
        "{apiVersion: v1, kind: Service, metadata: {name: agent, namespace: mon}, spec: {clusterIP: None, selector: {app: agent}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: mon, labels: {app: agent}}, spec: {os: {name: windows}, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: agent, image: agent}]}}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Object(&[Kind::Service], |cx, out| {
        let Body::Service(service) = &cx.subject.body else { return };
        let headless = service.spec.cluster_ip.as_deref() == Some("None");
        let selector = &service.spec.selector;
        if headless || selector.is_empty() {
            return;
        }
        let selects = |labels: &std::collections::BTreeMap<String, String>| {
            selector
                .iter()
                .all(|(key, value)| labels.get(&**key).is_some_and(|own| **own == **value))
        };
        let mut workloads = cx.facts.workloads.iter();
        let found = workloads.find(|workload| {
            workload.is_on_host_network && *workload.namespace == *cx.subject.namespace && selects(&workload.labels)
        });
        if let Some(workload) = found {
            out.report(Path::of(&["spec", "selector"])).message(format!(
                "pods of the same node do not reach the HostProcess pods of {} {} through the Service",
                workload.kind, workload.name
            ));
        }
    }),
    ..Rule::BASE
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_that_log_on_without_a_password_are_groups_and_service_accounts() {
        use LogonProblem::{ContainerAccount, Password, Spelling};
        for (name, problem) in [
            ("Administrators", None),
            ("hpc-agents", None),
            (r"NT AUTHORITY\SYSTEM", None),
            (r"NT AUTHORITY\Network Service", None),
            (r"NT AUTHORITY\LocalService", None),
            ("ContainerUser", Some(ContainerAccount)),
            (r"User Manager\ContainerAdministrator", Some(ContainerAccount)),
            (r"nt authority\system", Some(Spelling)),
            ("LocalSystem", Some(Spelling)),
            (r"NT AUTHORITY\Agent", Some(Password)),
            (r"BUILTIN\Administrators", Some(Password)),
            (r"CORP\agent$", Some(Password)),
        ] {
            assert_eq!(LogonProblem::of(name), problem, "{name}");
        }
    }

    #[test]
    fn only_rooted_paths_of_the_system_disk_are_paths_of_the_node() {
        for (path, on_node) in [
            ("/agent.exe", Some(r"\agent.exe")),
            (r"C:\App\agent.exe", Some(r"\app\agent.exe")),
            ("c:/app/agent.exe", Some(r"\app\agent.exe")),
            ("agent.exe", None),
            (r"bin\agent.exe", None),
            (r"C:agent.exe", None),
            (r"D:\agent.exe", None),
            (r"\\server\share\agent.exe", None),
            (r"%CONTAINER_SANDBOX_MOUNT_POINT%\agent.exe", None),
        ] {
            assert_eq!(path_on_system_disk(path).as_deref(), on_node, "{path}");
        }
        assert!(is_known_on_node(r"\windows\system32\cmd.exe") && is_known_on_node(r"\k\kubectl.exe"));
        assert!(!is_known_on_node(r"\agent.exe") && !is_known_on_node(r"\kube\agent.exe"));
    }
}
