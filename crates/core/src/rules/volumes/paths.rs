//! Paths that leave the volume, have no meaning on Windows, contain control characters, or are identical on Windows.

use super::{INTRO, MICROSOFT, STORAGE, mounts};
use crate::model::cluster::facts::Runtime;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::objects::pod::{HostPath, VolumeMount};
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::rules::context::PodCx;
use crate::rules::rule::{Check, Reporter, Rule};
use crate::rules::volume_drivers::windows_volume;

const YAML: &str = "https://yaml.org/spec/1.2.2/#57-escaped-characters";

pub(super) static SUB_PATH_WINDOWS_ESCAPE: Rule = Rule {
    id: "TSM505",
    name: "sub-path-windows-escape",
    summary: "subPath leaves the volume",
    docs: "The API server splits a subPath at `/` only, so it accepts `..\\..\\x`, `C:\\x` and `\\x`. The kubelet on \
           Windows detects that the path is outside the volume (`not within volume path`) and does not start the \
           container.",
    remedy: "write a relative path with forward slashes and without \"..\"",
    see: &[
        "https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath",
        "kubernetes: pkg/volume/util/subpath/subpath_windows.go, doSafeMakeDir",
    ],
    bad: &[
        r"containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPath: '..\..\Windows'}]}]",
        r"containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPath: 'a\..'}]}]",
        r"containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPath: 'C:\Windows'}]}]",
        r"containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPath: '\Windows'}]}]",
        r"containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPathExpr: '$(POD_NAME)\..\x'}]}]",
    ],
    good: &[
        r"containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPath: 'logs\today..old'}]}]",
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPath: logs/app}]}]",
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPath: ''}]}]",
    ],
    needs: FieldSet::SUB_PATH,
    check: Check::Pod(|cx, out| {
        for (container, index, mount) in mounts(cx) {
            for (field, value) in [
                ("subPath", &mount.sub_path),
                ("subPathExpr", &mount.sub_path_expr),
            ] {
                if let Some(path) = value.as_deref().filter(|path| leaves_volume(path)) {
                    let finding = out.report(container.mount(index).field(field));
                    finding.message(format!("{field} \"{}\" leaves the volume", shown(path)));
                }
            }
        }
    }),
    ..Rule::BASE
};

fn leaves_volume(path: &str) -> bool {
    let mut start = path.bytes();
    let drive = start.next().is_some_and(|b| b.is_ascii_alphabetic()) && start.next() == Some(b':');
    // The API server rejects "../x", without a backslash.
    drive
        || path.starts_with('\\')
        || (path.contains('\\') && path.split(['\\', '/']).any(|part| part == ".."))
}

pub(super) static UNIX_PATH: Rule = Rule {
    id: "TSM514",
    name: "unix-path",
    severity: Severity::Warning,
    class: Class::BestPractice,
    summary: "this path has no meaning on Windows",
    docs: "The kubelet adds `c:` to a path without a drive. So `/proc` becomes `c:\\proc`, which is an empty directory \
           and not a process list, and a Unix socket is not a named pipe. The rule ignores paths that exist on Windows \
           nodes or that Kubernetes uses there (/var/log, /var/lib/kubelet, /var/run/secrets, /etc/cni, /opt/cni, /k, \
           /dev/termination-log). Of a hostPath with `type: Directory` or `type: File`, which must exist on the node, \
           it also reports paths below /tmp, /etc and /var/run, except /etc/cni and /etc/kubernetes. It ignores \
           HostProcess containers.",
    remedy: "write a Windows path (C:\\...)",
    see: &[
        INTRO,
        MICROSOFT,
        "kubernetes: pkg/volume/util/util.go, MakeAbsolutePath",
    ],
    bad: &[
        "volumes: [{name: docker, hostPath: {path: /var/run/docker.sock}}]",
        "volumes: [{name: containerd, hostPath: {path: /run/containerd/containerd.sock, type: Socket}}]",
        "volumes: [{name: v, hostPath: {path: /proc}}]",
        "volumes: [{name: v, hostPath: {path: /sys/fs/cgroup}}]",
        "volumes: [{name: v, hostPath: {path: /lib/modules/}}]",
        "volumes: [{name: v, hostPath: {path: /etc/localtime}}]",
        "volumes: [{name: v, hostPath: {path: /tmp, type: Directory}}]",
        "volumes: [{name: v, hostPath: {path: /etc/app/config.yaml, type: File}}]",
        "volumes: [{name: v, hostPath: {path: /var/run/app/, type: Directory}}]",
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: /dev/shm}]}]",
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: /usr/share/app}]}]",
        "initContainers: [{name: init, image: app, volumeMounts: [{name: v, mountPath: /etc/ssl/certs}]}]",
    ],
    good: &[
        "volumes: [{name: a, hostPath: {path: /var/log/pods}}, {name: b, hostPath: {path: /var/lib/kubelet}}, {name: c, hostPath: {path: /k}}, {name: d, hostPath: {path: /etc/cni/net.d}}, {name: e, hostPath: {path: /opt/cni/bin}}]",
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}, {name: w, mountPath: /dev/termination-log}, {name: x, mountPath: /cache}, {name: z, mountPath: /binaries}]}]",
        "volumes: [{name: a, hostPath: {path: /tmp}}, {name: b, hostPath: {path: /etc/app, type: DirectoryOrCreate}}, {name: c, hostPath: {path: /etc/cni/net.d, type: Directory}}, {name: d, hostPath: {path: /etc/kubernetes, type: Directory}}, {name: e, hostPath: {path: /var/lib/kubelet, type: Directory}}, {name: f, hostPath: {path: /var/log, type: Directory}}, {name: g, hostPath: {path: /etcd, type: Directory}}]",
        r"volumes: [{name: docker, hostPath: {path: '\\.\pipe\docker_engine'}}, {name: v, hostPath: {path: 'C:\proc'}}]",
        "hostNetwork: true
securityContext: {windowsOptions: {hostProcess: true, runAsUserName: 'NT AUTHORITY\\SYSTEM'}}
containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: /usr/bin}]}]
volumes: [{name: v, hostPath: {path: /usr/bin}}]",
    ],
    needs: FieldSet::HOST_PATH.or(FieldSet::VOLUME_MOUNTS),
    check: Check::Pod(|cx, out| {
        let host_process = cx.spec.has_host_process();
        for volume in cx.volumes().filter(|_| !host_process) {
            if let Some(path) = (volume.host_path.as_ref())
                .filter(|source| is_unix(&source.path) || must_exist(source))
                .map(|source| &*source.path)
            {
                let finding = out.report(volume.at(&["hostPath", "path"]));
                finding.message(format!("\"{}\" does not exist on a Windows node", shown(path)));
                finding.remedy(instead_of(path));
            }
        }
        for (container, index, mount) in mounts(cx) {
            if is_unix(&mount.mount_path) && !cx.spec.is_host_process(container.container) {
                let path = shown(&mount.mount_path);
                let finding = out.report(container.mount(index).field("mountPath"));
                finding.message(format!(
                    "\"{path}\" has no meaning on Windows, where it becomes c:{}",
                    path.replace('/', "\\")
                ));
                finding.remedy(instead_of(&mount.mount_path));
            }
        }
    }),
    ..Rule::BASE
};

/// The remedy for a Unix path.
fn instead_of(path: &str) -> &'static str {
    let below = |tree: &str| is_or_below(path, tree);
    if is_socket(path) {
        "mount the service's named pipe (\\\\.\\pipe\\...) instead, or remove the volume and its mount"
    } else if ["/proc", "/sys", "/dev", "/lib/modules"].into_iter().any(below) {
        "remove the volume and its mount; Windows has no equivalent"
    } else {
        "write a Windows path (C:\\...)"
    }
}

/// Whether the kubelet starts the pod only if the path exists, below a directory that Windows nodes do not have.
fn must_exist(source: &HostPath<'_>) -> bool {
    let has_type = matches!(source.r#type.as_deref(), Some("Directory" | "File"));
    let below = |tree: &str| is_or_below(source.path.trim_end_matches('/'), tree);
    has_type
        && ["/tmp", "/etc", "/var/run"].into_iter().any(below)
        && !["/etc/cni", "/etc/kubernetes"].into_iter().any(below)
}

fn is_or_below(path: &str, tree: &str) -> bool {
    path.strip_prefix(tree)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_unix(path: &str) -> bool {
    const TREES: [&str; 10] = [
        "/proc",
        "/sys",
        "/dev",
        "/lib/modules",
        "/usr",
        "/bin",
        "/etc/localtime",
        "/etc/passwd",
        "/etc/ssl",
        "/etc/resolv.conf",
    ];
    if !path.starts_with('/') {
        return false;
    }
    let path = path.trim_end_matches('/');
    let below = |tree: &str| is_or_below(path, tree);
    let socket = is_socket(path) && (below("/var/run") || below("/run"));
    socket || (path != "/dev/termination-log" && TREES.into_iter().any(below))
}

fn is_socket(path: &str) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, extension)| extension == "sock")
}

pub(super) static PATH_CONTROL_CHARACTER: Rule = Rule {
    id: "TSM515",
    name: "path-control-character",
    summary: "the path contains a control character",
    docs: "In YAML's double quotes a backslash starts an escape: \"C:\\temp\" is `C:`, a TAB and `emp`. The API server \
           does not check this. Windows does not allow control characters in paths, so the container is not created. \
           Single quotes and plain scalars do not change backslashes. Of a PersistentVolume for Windows, the rule \
           checks local and hostPath.",
    remedy: "write it in single quotes, with doubled backslashes or with forward slashes",
    see: &[
        YAML,
        "https://learn.microsoft.com/windows/win32/fileio/naming-a-file",
    ],
    bad: &[
        r#"containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: "C:\temp"}]}]"#,
        r#"containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:\v', subPath: "logs\new"}]}]"#,
        r#"containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:\v', subPathExpr: "$(POD_NAME)\x01"}]}]"#,
        r#"containers: [{name: app, image: app, workingDir: "C:\app"}]"#,
        r#"containers: [{name: app, image: app, terminationMessagePath: "C:\run\Log.txt"}]"#,
        r#"volumes: [{name: v, hostPath: {path: "D:\Logs"}}]"#,
        r#"{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {local: {path: "D:\volumes"}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}]}}}}"#,
    ],
    good: &[
        r"containers: [{name: app, image: app, workingDir: 'C:\app', volumeMounts: [{name: v, mountPath: 'C:\temp', subPath: 'logs\new'}]}]",
        r#"containers: [{name: app, image: app, workingDir: C:\app, volumeMounts: [{name: v, mountPath: "C:\\temp"}]}]"#,
        "volumes: [{name: v, hostPath: {path: 'D:/Protokolle/für alle'}}]",
        r#"{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {local: {path: "/a\tb"}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}]}}}}"#,
    ],
    needs: FieldSet::HOST_PATH
        .or(FieldSet::WORKING_DIR)
        .or(FieldSet::TERMINATION_MESSAGE_PATH)
        .or(FieldSet::VOLUME_MOUNTS),
    check: Check::PodAnd(&[Kind::PersistentVolume], |cx, out| {
        if let Some(pod) = cx.pod() {
            control_characters_of_pod(&pod, out);
        }
        let Some(volume) = windows_volume(cx) else { return };
        if let Some(local) = &volume.spec.local {
            control_character(&local.path, || Path::of(&["spec", "local", "path"]), out);
        }
        if let Some(host) = &volume.spec.host_path {
            control_character(&host.path, || Path::of(&["spec", "hostPath", "path"]), out);
        }
    }),
    ..Rule::BASE
};

fn control_characters_of_pod(pod: &PodCx<'_>, out: &mut Reporter<'_>) {
    for volume in pod.volumes() {
        if let Some(source) = &volume.host_path {
            control_character(&source.path, || volume.at(&["hostPath", "path"]), out);
        }
    }
    for container in pod.containers() {
        for (field, path) in [
            ("workingDir", &container.working_dir),
            ("terminationMessagePath", &container.termination_message_path),
        ] {
            control_character(
                path.as_deref().unwrap_or_default(),
                || container.at(&[field]),
                out,
            );
        }
    }
    for (container, index, mount) in mounts(pod) {
        for (field, path) in [
            ("mountPath", Some(&*mount.mount_path)),
            ("subPath", mount.sub_path.as_deref()),
            ("subPathExpr", mount.sub_path_expr.as_deref()),
        ] {
            control_character(
                path.unwrap_or_default(),
                || container.mount(index).field(field),
                out,
            );
        }
    }
}

fn control_character(path: &str, at: impl Fn() -> Path, out: &mut Reporter<'_>) {
    let is_control = |c: char| matches!(c, '\0'..='\x1f' | '\x7f' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let Some(found) = path.chars().find(|c| is_control(*c)) else {
        return;
    };
    let escape = in_double_quotes(found).unwrap_or_default();
    let mut written = String::new();
    for c in path.chars() {
        match in_double_quotes(c) {
            Some(escape) => written.push_str(&escape),
            None => written.push(c),
        }
    }
    let finding = out.report(at());
    finding.message(format!(
        "\"{}\" contains a control character, {escape} in double quotes",
        shown(&written)
    ));
    // A shortened path cannot be copied.
    if !written.contains('\'') && written == shown(&written) {
        finding.remedy(format!(
            "write it in single quotes, '{written}', or with forward slashes"
        ));
    }
}

/// How YAML's double quotes write a control character; `None` for any other character. If the character came from a
/// backslash in double quotes, this is what the author wrote.
fn in_double_quotes(c: char) -> Option<String> {
    let letter = match c {
        '\0' => '0',
        '\x07' => 'a',
        '\x08' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\x0b' => 'v',
        '\x0c' => 'f',
        '\r' => 'r',
        '\x1b' => 'e',
        '\u{85}' => 'N',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        other => return other.is_control().then(|| format!("\\x{:02x}", u32::from(other))),
    };
    Some(format!("\\{letter}"))
}

pub(super) static MOUNT_PATH_C_DRIVE: Rule = Rule {
    id: "TSM516",
    name: "mount-path-c-drive",
    runtime: Some(Runtime::Containerd),
    summary: "a volume cannot be mounted over the C: drive of a container",
    docs: "containerd rejects it (`destination path can not be C drive`): the drive is the container's own file \
           system. `/` is the same path. Other drive letters may be mounted as a whole. The rule ignores HostProcess \
           containers, which see the host's C: drive.",
    remedy: "mount it on a directory below (C:\\data)",
    see: &[
        MICROSOFT,
        STORAGE,
        "containerd: internal/cri/opts/spec_windows_opts.go",
    ],
    bad: &[
        r"containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:\'}]}]",
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'c:'}]}]",
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: /}]}]",
        r"initContainers: [{name: init, image: app, volumeMounts: [{name: v, mountPath: '\'}]}]",
    ],
    good: &[
        r"containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:\data'}, {name: w, mountPath: 'D:\'}, {name: x, mountPath: /data}]}]",
        "# --runtime docker\ncontainers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/'}]}]",
        "hostNetwork: true
securityContext: {windowsOptions: {hostProcess: true, runAsUserName: 'NT AUTHORITY\\SYSTEM'}}
containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: /}]}]",
    ],
    needs: FieldSet::VOLUME_MOUNTS,
    check: Check::Pod(|cx, out| {
        for (container, index, mount) in mounts(cx) {
            if is_c_drive(&mount.mount_path) && !cx.spec.is_host_process(container.container) {
                out.report(container.mount(index).field("mountPath"));
            }
        }
    }),
    ..Rule::BASE
};

fn is_c_drive(path: &str) -> bool {
    let drive = path
        .strip_prefix(['c', 'C'])
        .and_then(|rest| rest.strip_prefix(':'));
    matches!(path, "/" | "\\") || drive.is_some_and(|rest| rest.trim_start_matches(['/', '\\']).is_empty())
}

pub(super) static MOUNT_PATH_CASE_COLLISION: Rule = Rule {
    id: "TSM517",
    name: "mount-path-case-collision",
    summary: "two mounts of a container have the same path on Windows",
    docs: "Windows paths are not case-sensitive, `/` and `\\` are equivalent, and the kubelet adds `c:` to a path \
           without a drive. So `C:/Data`, `c:\\data\\` and `/data` are the same path. The API server compares the \
           bytes and accepts them. Then one of the volumes is missing, or the container is not created.",
    remedy: "give each mount a different path",
    see: &[
        STORAGE,
        "https://learn.microsoft.com/windows/wsl/case-sensitivity",
        "kubernetes: pkg/volume/util/util.go, MakeAbsolutePath",
    ],
    bad: &[
        r"containers: [{name: app, image: app, volumeMounts: [{name: a, mountPath: 'C:\Data'}, {name: b, mountPath: 'C:\data'}]}]",
        r"containers: [{name: app, image: app, volumeMounts: [{name: a, mountPath: 'c:/data/'}, {name: b, mountPath: 'C:\data'}]}]",
        r"containers: [{name: app, image: app, volumeMounts: [{name: a, mountPath: /data}, {name: b, mountPath: 'D:\data'}, {name: a, mountPath: 'C:\data'}]}]",
    ],
    good: &[
        r"containers: [{name: app, image: app, volumeMounts: [{name: a, mountPath: 'C:\data'}, {name: b, mountPath: 'D:\data'}, {name: c, mountPath: 'C:\data\sub'}]}]",
        r"containers: [{name: app, image: app, volumeMounts: [{name: a, mountPath: 'C:\data'}]}, {name: other, image: app, volumeMounts: [{name: a, mountPath: 'C:\Data'}]}]",
    ],
    needs: FieldSet::SEVERAL_MOUNTS,
    check: Check::Pod(|cx, out| {
        for container in cx.containers() {
            let mounts = &container.container.volume_mounts;
            for (later, earlier) in collisions(mounts) {
                let (Some(one), Some(other)) = (mounts.get(later), mounts.get(earlier)) else {
                    continue;
                };
                let (one, other) = (&*one.mount_path, &*other.mount_path);
                let finding = out.report(container.mount(later).field("mountPath"));
                finding.message(format!(
                    "on Windows \"{}\" is the same path as \"{}\", which is mounted already",
                    shown(one),
                    shown(other)
                ));
                if one == other {
                    // Byte for byte identical: the API server rejects these.
                    finding.class(Class::ApiAlways);
                }
            }
        }
    }),
    ..Rule::BASE
};

/// The mounts whose path an earlier mount has: the indexes of both.
fn collisions(mounts: &[VolumeMount<'_>]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    if mounts.len() <= 16 {
        // Few mounts: comparing all pairs needs no memory.
        for (later, mount) in mounts.iter().enumerate() {
            let mut before = mounts.iter().take(later);
            if let Some(earlier) =
                before.position(|other| folded(&other.mount_path).eq(folded(&mount.mount_path)))
            {
                found.push((later, earlier));
            }
        }
        return found;
    }
    let mut sorted: Vec<(usize, &str)> = mounts
        .iter()
        .map(|mount| &*mount.mount_path)
        .enumerate()
        .collect();
    // A stable sort keeps the earliest of equal paths first.
    sorted.sort_by(|(_, a), (_, b)| folded(a).cmp(folded(b)));
    let mut first: Option<(usize, &str)> = None;
    for (index, path) in sorted {
        match first {
            Some((earlier, same)) if folded(same).eq(folded(path)) => found.push((index, earlier)),
            _ => first = Some((index, path)),
        }
    }
    found.sort_unstable();
    found
}

/// A path as Windows compares it, below `c:\` unless it names another drive.
fn folded(path: &str) -> impl Iterator<Item = char> {
    let path = path.trim_end_matches(['/', '\\']);
    let below_c = path
        .strip_prefix(['c', 'C'])
        .and_then(|rest| rest.strip_prefix(':'))
        .unwrap_or(path);
    let characters = below_c
        .trim_start_matches(['/', '\\'])
        .chars()
        .flat_map(char::to_lowercase);
    characters.map(|c| if c == '/' { '\\' } else { c })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_character_is_written_as_its_author_wrote_it() {
        for (character, escape) in [
            ('\t', r"\t"),
            ('\x07', r"\a"),
            ('\u{2028}', r"\L"),
            ('\u{85}', r"\N"),
            ('\x01', r"\x01"),
        ] {
            assert_eq!(in_double_quotes(character).as_deref(), Some(escape));
        }
        assert_eq!(in_double_quotes('\\'), None);
    }

    #[test]
    fn many_mounts_collide_as_few_do() {
        let paths = |n: usize| {
            (0..n)
                .map(|i| format!("C:/v{i}"))
                .chain(["/V1/".into(), r"c:\v0".into(), "V1".into()])
        };
        for n in [4, 40] {
            let mounts: Vec<VolumeMount<'_>> = paths(n)
                .map(|path| VolumeMount {
                    mount_path: path.into(),
                    ..VolumeMount::default()
                })
                .collect();
            assert_eq!(collisions(&mounts), [(n, 1), (n + 1, 0), (n + 2, 1)]);
        }
    }
}
