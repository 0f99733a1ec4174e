//! Volume sources: emptyDir, hostPath, files with modes, network file systems, plugins.

use std::collections::BTreeSet;

use super::{INTRO, MICROSOFT, STORAGE, VOLUMES};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::objects::pod::{DEFAULT_MODE, FileSource, Volume};
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::rules::context::{PodCx, VolumeAt};
use crate::rules::rule::{Builds, Check, Reporter, Rule};
use crate::rules::volume_drivers::{over_nfs, windows_volume};

pub(super) static EMPTY_DIR_MEMORY: Rule = Rule {
    id: "TSM501",
    name: "empty-dir-memory",
    class: Class::Ignored,
    tolerable: true,
    loses: "the memory: the data is on the disk of the node, in clear text",
    summary: "Windows stores a memory-backed emptyDir on disk",
    docs: "Windows has no tmpfs. The kubelet silently creates a normal directory on the node's disk. Data that was \
           meant to stay in memory, often a secret or a cache, is written to disk in clear text. It also uses disk \
           space instead of memory.",
    remedy: "remove medium: Memory, and do not store secrets in the volume",
    see: &[
        STORAGE,
        INTRO,
        "kubernetes: pkg/volume/emptydir/empty_dir.go, setupTmpfs",
    ],
    bad: &["volumes: [{name: cache, emptyDir: {medium: Memory}}]"],
    good: &[
        "volumes: [{name: cache, emptyDir: {}}]",
        "volumes: [{name: cache, emptyDir: {medium: '', sizeLimit: 1Gi}}]",
    ],
    needs: FieldSet::MEDIUM,
    check: Check::Pod(|cx, out| {
        for volume in cx.volumes() {
            if medium(&volume) == Some("Memory") {
                out.report(volume.at(&["emptyDir", "medium"])).removable();
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static EMPTY_DIR_HUGEPAGES: Rule = Rule {
    id: "TSM502",
    name: "empty-dir-hugepages",
    summary: "Windows has no huge pages",
    docs: "The kubelet on Windows cannot create an emptyDir with huge pages; the pod stays in ContainerCreating.",
    remedy: "remove the medium and the hugepages resources",
    see: &[INTRO, "kubernetes: pkg/volume/emptydir/empty_dir.go"],
    bad: &[
        "volumes: [{name: pages, emptyDir: {medium: HugePages}}]",
        "volumes: [{name: pages, emptyDir: {medium: HugePages-2Mi}}]",
    ],
    good: &["volumes: [{name: pages, emptyDir: {}}]"],
    needs: FieldSet::MEDIUM,
    check: Check::Pod(|cx, out| {
        for volume in cx.volumes() {
            if medium(&volume).is_some_and(|medium| medium.starts_with("HugePages")) {
                out.report(volume.at(&["emptyDir", "medium"]));
            }
        }
    }),
    ..Rule::BASE
};

fn medium<'v>(volume: &'v Volume<'_>) -> Option<&'v str> {
    volume.empty_dir.as_ref()?.medium.as_deref()
}

pub(super) static VOLUME_DEFAULT_MODE: Rule = Rule {
    id: "TSM506",
    name: "volume-default-mode",
    severity: Severity::Advice,
    class: Class::Ignored,
    summary: "Windows files have no modes",
    docs: "Windows has access control lists instead of permission bits. The only effect of a mode is the read-only \
           attribute, which is set if the owner's write bit is missing. A mode does not restrict who may read the file \
           of a secret: every process of the container may. 0644 (420) is the API server's default and is not \
           reported.",
    remedy: "remove it; restrict access with another user or an access control list inside the container",
    see: &[
        STORAGE,
        "https://kubernetes.io/docs/concepts/security/windows-security/",
    ],
    bad: &[
        "volumes: [{name: keys, secret: {secretName: keys, defaultMode: 256}}]",
        "volumes: [{name: config, configMap: {name: config, items: [{key: a, path: a, mode: 493}]}}]",
        "volumes: [{name: info, downwardAPI: {defaultMode: 288, items: []}}]",
        "volumes: [{name: all, projected: {defaultMode: 256, sources: []}}]",
        "volumes: [{name: all, projected: {sources: [{secret: {name: s, items: [{key: a, path: a, mode: 256}]}}]}}]",
        "volumes: [{name: all, projected: {sources: [{downwardAPI: {items: [{path: a, mode: 256}]}}]}}]",
    ],
    good: &[
        "volumes: [{name: keys, secret: {secretName: keys, defaultMode: 420}}, {name: config, configMap: {name: config, defaultMode: 420, items: [{key: a, path: a}]}}]",
        "volumes: [{name: token, projected: {defaultMode: 420, sources: [{serviceAccountToken: {path: token}}]}}]",
        "volumes: [{name: keys, secret: {secretName: keys}}]",
    ],
    needs: FieldSet::FILE_MODES,
    check: Check::Pod(|cx, out| {
        for volume in cx.volumes() {
            file_modes(&volume, out);
            let Some(projected) = &volume.projected else {
                continue;
            };
            default_mode(projected.default_mode, &volume, "projected", out);
            for (index, source) in projected.sources.iter().enumerate() {
                for (field, files) in [
                    ("secret", &source.secret),
                    ("configMap", &source.config_map),
                    ("downwardAPI", &source.downward_api),
                ] {
                    let at = || volume.at(&["projected", "sources"]).item(index).field(field);
                    item_modes(files.as_ref(), at, out);
                }
            }
        }
    }),
    ..Rule::BASE
};

fn file_modes(volume: &VolumeAt<'_>, out: &mut Reporter<'_>) {
    for (field, files) in [
        ("secret", &volume.secret),
        ("configMap", &volume.config_map),
        ("downwardAPI", &volume.downward_api),
    ] {
        default_mode(
            files.as_ref().and_then(|files| files.default_mode),
            volume,
            field,
            out,
        );
        item_modes(files.as_ref(), || volume.at(&[field]), out);
    }
}

fn default_mode(mode: Option<i64>, volume: &VolumeAt<'_>, source: &'static str, out: &mut Reporter<'_>) {
    if let Some(mode) = mode.filter(|mode| *mode != DEFAULT_MODE) {
        report_mode(mode, volume.at(&[source, "defaultMode"]), out);
    }
}

fn item_modes(files: Option<&FileSource>, at: impl Fn() -> Path, out: &mut Reporter<'_>) {
    for (index, item) in files.iter().flat_map(|files| files.items.iter().enumerate()) {
        if let Some(mode) = item.mode {
            report_mode(mode, at().field("items").item(index).field("mode"), out);
        }
    }
}

fn report_mode(mode: i64, path: Path, out: &mut Reporter<'_>) {
    out.report(path)
        .message(format!(
            "Windows files have no modes; {mode} (octal {mode:04o}) protects nothing"
        ))
        .removable();
}

pub(super) static NFS_VOLUME: Rule = Rule {
    id: "TSM507",
    name: "nfs-volume",
    summary: "Windows cannot mount NFS volumes",
    docs: "The mounter of the kubelet on Windows supports SMB and bind mounts only. An NFS volume fails with `only \
           cifs mount is supported now`, and the pod stays in ContainerCreating. Some CSI drivers that Windows nodes \
           have mount some volumes over NFS too, such as Azure Files with the protocol `nfs` and vSphere with \
           ReadWriteMany. The rule reports these, and claims of a StorageClass among the checked objects. It checks a PersistentVolume if \
           its node affinity allows only Windows nodes, or if a Windows workload uses its claim.",
    remedy: "share the files over SMB with the SMB CSI driver (smb.csi.k8s.io)",
    see: &[
        STORAGE,
        "https://github.com/kubernetes-csi/csi-driver-smb",
        "kubernetes: k8s.io/mount-utils/mount_windows.go",
    ],
    bad: &[
        "volumes: [{name: share, nfs: {server: nfs.example.com, path: /share}}]",
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: share}, spec: {nfs: {server: nfs.example.com, path: /share}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}, {matchExpressions: [{key: node.kubernetes.io/windows-build, operator: Exists}]}]}}}}",
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: share}, spec: {nfs: {server: nfs.example.com, path: /share}, claimRef: {namespace: default, name: share}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: share, persistentVolumeClaim: {claimName: share}}]}}",
        // By a CSI driver.
        "volumes: [{name: share, csi: {driver: file.csi.azure.com, volumeAttributes: {shareName: s, protocol: nfs}}}]",
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: nfs}, provisioner: file.csi.azure.com, parameters: {protocol: nfs}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: share, namespace: default}, spec: {storageClassName: nfs}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: share, persistentVolumeClaim: {claimName: share}}]}}",
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: share}, spec: {accessModes: [ReadWriteMany], csi: {driver: csi.vsphere.vmware.com, volumeHandle: a}, claimRef: {namespace: default, name: share}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: share, persistentVolumeClaim: {claimName: share}}]}}",
    ],
    good: &[
        "volumes: [{name: share, csi: {driver: smb.csi.k8s.io}}, {name: other, csi: {driver: file.csi.azure.com, volumeAttributes: {shareName: s, protocol: smb}}}]",
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: share}, spec: {nfs: {server: nfs.example.com, path: /share}}}",
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: share}, spec: {nfs: {server: nfs.example.com, path: /share}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux, windows]}]}]}}}}",
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: share}, spec: {nfs: {server: nfs.example.com, path: /share}, claimRef: {namespace: other, name: share}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: share, persistentVolumeClaim: {claimName: share}}]}}",
    ],
    needs: FieldSet::NFS.or(FieldSet::CSI).or(FieldSet::CLAIMS),
    check: Check::PodAnd(&[Kind::PersistentVolumeClaim, Kind::PersistentVolume], |cx, out| {
        for volume in cx.pod().iter().flat_map(PodCx::volumes) {
            if volume.nfs.0 {
                out.report(volume.at(&["nfs"]));
            }
        }
        if windows_volume(cx).is_some_and(|volume| volume.spec.nfs.0) {
            out.report(Path::of(&["spec", "nfs"]));
        }
        for (path, driver) in over_nfs(cx) {
            out.report(path)
                .message(format!(
                    "the driver of {} mounts this volume over NFS, which Windows cannot mount",
                    driver.product
                ))
                .remedy(driver.remedy.clone());
        }
    }),
    ..Rule::BASE
};

pub(super) static UNSUPPORTED_VOLUME_PLUGIN: Rule = Rule {
    id: "TSM508",
    name: "unsupported-volume-plugin",
    severities: "error; warning for the deprecated FlexVolume",
    summary: "Windows cannot mount volumes of this type",
    docs: "The in-tree plugins for iSCSI, Fibre Channel, Ceph, Gluster and other storage need Linux tools or file \
           systems. On Windows the mount fails and the pod stays in ContainerCreating. Most of these plugins are also \
           gone from recent releases of Kubernetes. FlexVolume works if its driver is a Windows executable, but it is \
           deprecated in favour of CSI since 1.23: that is a warning.",
    remedy: "use a CSI driver that has a node plugin for Windows",
    see: &[
        STORAGE,
        VOLUMES,
        "https://kubernetes-csi.github.io/docs/drivers.html",
    ],
    bad: &[
        "volumes: [{name: disk, iscsi: {targetPortal: '10.0.0.1:3260', iqn: 'iqn.2001-04.com.example:disk', lun: 0}}]",
        "volumes: [{name: disk, fc: {targetWWNs: [500a0982991b8dc5], lun: 2}}]",
        "volumes: [{name: disk, rbd: {monitors: ['10.0.0.1:6789'], image: foo}}]",
        "volumes: [{name: disk, cephfs: {monitors: ['10.0.0.1:6789']}}]",
        "volumes: [{name: disk, glusterfs: {endpoints: gluster, path: kube_vol}}]",
        "volumes: [{name: disk, cinder: {volumeID: x}}, {name: other, flocker: {datasetName: x}}]",
        "volumes: [{name: disk, quobyte: {registry: x, volume: z}}, {name: other, scaleIO: {gateway: x, system: z}}]",
        "volumes: [{name: disk, storageos: {volumeName: x}}, {name: other, portworxVolume: {volumeID: x}}]",
        "volumes: [{name: disk, photonPersistentDisk: {pdID: x}}, {name: code, gitRepo: {repository: 'https://example.com/x.git'}}]",
        "volumes: [{name: disk, flexVolume: {driver: microsoft.com/smb.cmd}}]",
    ],
    good: &[
        "volumes: [{name: disk, csi: {driver: disk.csi.azure.com}}, {name: claim, persistentVolumeClaim: {claimName: x}}]",
    ],
    needs: FieldSet::VOLUME_PLUGINS,
    check: Check::Pod(|cx, out| {
        for volume in cx.volumes() {
            for field in unsupported(&volume) {
                let finding = out.report(volume.at(&[field]));
                finding.message(format!("Windows cannot mount {field} volumes"));
                if field == "gitRepo" {
                    finding.remedy("clone the repository in an init container, into an emptyDir");
                }
            }
            if volume.flex_volume.0 {
                let finding = out
                    .report(volume.at(&["flexVolume"]))
                    .message("FlexVolume is deprecated");
                finding.severity(Severity::Warning).class(Class::BestPractice);
            }
        }
    }),
    ..Rule::BASE
};

fn unsupported(volume: &Volume<'_>) -> impl Iterator<Item = &'static str> {
    let plugins = [
        ("iscsi", volume.iscsi),
        ("fc", volume.fc),
        ("rbd", volume.rbd),
        ("cephfs", volume.cephfs),
        ("glusterfs", volume.glusterfs),
        ("cinder", volume.cinder),
        ("flocker", volume.flocker),
        ("quobyte", volume.quobyte),
        ("scaleIO", volume.scale_io),
        ("storageos", volume.storageos),
        ("portworxVolume", volume.portworx_volume),
        ("photonPersistentDisk", volume.photon_persistent_disk),
        ("gitRepo", volume.git_repo),
    ];
    plugins
        .into_iter()
        .filter(|(_, present)| present.0)
        .map(|(field, _)| field)
}

pub(super) static IMAGE_VOLUME: Rule = Rule {
    id: "TSM509",
    name: "image-volume",
    severity: Severity::Warning,
    kubernetes: 31..=Rule::STILL,
    summary: "no runtime is known to mount an image as a volume on Windows",
    docs: "Image volumes (alpha in 1.31, stable in 1.36) need a container runtime that mounts an OCI image or artifact \
           into a container. The documentation does not name the operating systems. Kubernetes' own tests of image \
           volumes run on Linux nodes only (`LinuxOnly`), and no test on a Windows node is known. So the finding is a \
           warning.",
    remedy: "put the files into the container's own image, or copy them in an init container; or test it on a Windows node first",
    see: &[
        "https://kubernetes.io/docs/concepts/storage/volumes/#image",
        "https://github.com/kubernetes/enhancements/issues/4639",
        "https://github.com/containerd/containerd/pull/10579",
    ],
    bad: &["volumes: [{name: model, image: {reference: registry.example.com/model:1.0}}]"],
    good: &[
        "# --kubernetes-version 1.30\nvolumes: [{name: model, image: {reference: registry.example.com/model:1.0}}]",
        "volumes: [{name: model, emptyDir: {}}]",
    ],
    needs: FieldSet::IMAGE_VOLUME,
    check: Check::Pod(|cx, out| {
        for volume in cx.volumes() {
            if volume.image.0 {
                out.report(volume.at(&["image"]));
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static HOST_PATH_DEVICE_TYPE: Rule = Rule {
    id: "TSM511",
    name: "host-path-device-type",
    summary: "Windows has no device files",
    docs: "The kubelet checks that the path is a block or character device. Windows has no such files, so the check \
           always fails (`hostPath type check failed: ... is not a block device`) and the pod stays in \
           ContainerCreating.",
    remedy: "remove the hostPath; use a device plugin to give a device to a Windows container",
    see: &[
        STORAGE,
        VOLUMES,
        "kubernetes: pkg/volume/hostpath/host_path.go, checkType",
    ],
    bad: &[
        r"volumes: [{name: disk, hostPath: {path: 'C:\disk', type: BlockDevice}}]",
        r"volumes: [{name: tty, hostPath: {path: 'C:\tty', type: CharDevice}}]",
    ],
    good: &[
        r"volumes: [{name: logs, hostPath: {path: 'C:\logs', type: DirectoryOrCreate}}, {name: data, hostPath: {path: 'C:\data', type: ''}}]",
    ],
    needs: FieldSet::HOST_PATH,
    check: Check::Pod(|cx, out| {
        for (volume, _, kind) in host_paths(cx) {
            if is_device(kind) {
                out.report(volume.at(&["hostPath", "type"]));
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static NAMED_PIPE_HOST_PATH_TYPE: Rule = Rule {
    id: "TSM512",
    name: "named-pipe-host-path-type",
    severities: "error; warning for the type File",
    summary: "a named pipe does not match any hostPath type",
    docs: "To mount a Windows named pipe, leave the `type` of the hostPath empty. With a type, the kubelet checks for \
           a file, a directory or a Unix socket, does not recognize the pipe, and the pod stays in ContainerCreating. \
           Whether `File` passes depends on the release, so it is a warning.",
    remedy: "remove type, or leave it empty",
    see: &[
        MICROSOFT,
        "https://github.com/kubernetes/kubernetes/pull/69484",
        "kubernetes: pkg/volume/hostpath/host_path.go, checkType",
    ],
    bad: &[
        r"volumes: [{name: docker, hostPath: {path: '\\.\pipe\docker_engine', type: Socket}}]",
        r"volumes: [{name: docker, hostPath: {path: '\\.\pipe\docker_engine', type: File}}]",
        r"volumes: [{name: docker, hostPath: {path: '//./PIPE/docker_engine', type: FileOrCreate}}]",
    ],
    good: &[
        r"volumes: [{name: docker, hostPath: {path: '\\.\pipe\docker_engine', type: ''}}]",
        r"volumes: [{name: docker, hostPath: {path: '\\.\pipe\docker_engine', type: null}}]",
        r"volumes: [{name: logs, hostPath: {path: 'C:\pipe', type: Directory}}]",
    ],
    needs: FieldSet::HOST_PATH,
    check: Check::Pod(|cx, out| {
        for (volume, path, kind) in host_paths(cx) {
            // `host-path-device-type` reports device types.
            if kind.is_empty() || is_device(kind) || !is_named_pipe(path) {
                continue;
            }
            let finding = out.report(volume.at(&["hostPath", "type"])).removable();
            let (pipe, kind) = (shown(path), shown(kind));
            if kind == "File" {
                finding.severity(Severity::Warning);
                finding.message(format!(
                    "the named pipe \"{pipe}\" may not pass the check for type File"
                ));
            } else {
                finding.message(format!(
                    "the named pipe \"{pipe}\" does not pass the check for type {kind}"
                ));
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static NAMED_PIPE_OLD_BUILD: Rule = Rule {
    id: "TSM513",
    name: "named-pipe-old-build",
    builds: Builds::Below(16299),
    summary: "Windows Server 2016 cannot map a named pipe into a container",
    docs: "Named pipes can be mapped since Windows Server, version 1709 (build 16299). On Windows Server 2016 (14393) \
           the container does not start, or starts without the pipe.",
    remedy: "select newer nodes (node.kubernetes.io/windows-build)",
    see: &[MICROSOFT, "https://github.com/moby/moby/pull/33852"],
    bad: &[
        r"{apiVersion: v1, kind: Node, metadata: {name: old, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.14393.2000}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: docker, hostPath: {path: '\\.\pipe\docker_engine'}}]}}",
    ],
    good: &[
        r"volumes: [{name: docker, hostPath: {path: '\\.\pipe\docker_engine'}}]",
        r"{apiVersion: v1, kind: Node, metadata: {name: new, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2000}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: docker, hostPath: {path: '\\.\pipe\docker_engine'}}]}}",
        r"{apiVersion: v1, kind: Node, metadata: {name: old, labels: {kubernetes.io/os: windows}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.14393.2000}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}, containers: [{name: app, image: app}], volumes: [{name: docker, hostPath: {path: '\\.\pipe\docker_engine'}}]}}",
    ],
    needs: FieldSet::HOST_PATH,
    check: Check::Pod(|cx, out| {
        for (volume, path, _) in host_paths(cx) {
            if is_named_pipe(path) {
                out.report(volume.at(&["hostPath", "path"]));
            }
        }
    }),
    ..Rule::BASE
};

/// The volumes with a hostPath: its path and its type, which is empty if unset.
pub(super) fn host_paths<'c>(
    cx: &PodCx<'c>,
) -> impl Iterator<Item = (VolumeAt<'c>, &'c str, &'c str)> + use<'c> {
    cx.volumes().filter_map(|at| {
        let source = at.volume.host_path.as_ref()?;
        Some((at, &*source.path, source.r#type.as_deref().unwrap_or_default()))
    })
}

fn is_device(kind: &str) -> bool {
    matches!(kind, "BlockDevice" | "CharDevice")
}

/// Whether a path is that of a named pipe, with backslashes or slashes.
pub(super) fn is_named_pipe(path: &str) -> bool {
    const PREFIX: &[u8] = br"\\.\pipe\";
    let fold = |b: u8| if b == b'/' { b'\\' } else { b.to_ascii_lowercase() };
    path.as_bytes()
        .get(..PREFIX.len())
        .is_some_and(|start| start.iter().zip(PREFIX).all(|(a, b)| fold(*a) == *b))
}

pub(super) static SECRET_VOLUME_OLD_BUILD: Rule = Rule {
    id: "TSM519",
    name: "secret-volume-old-build",
    builds: Builds::Below(17134),
    summary: "Windows before build 17134 cannot mount secrets and configMaps as files",
    docs: "The files of these volumes are symbolic links, which containers can follow since Windows Server, version \
           1803 (build 17134). On 1607 and 1709 the files exist but cannot be opened. The rule does not report the \
           service account token, which Kubernetes mounts automatically.",
    remedy: "pass the values as environment variables, or select newer nodes (node.kubernetes.io/windows-build)",
    see: &[STORAGE, "https://kubernetes.io/docs/concepts/configuration/secret/#using-secrets-as-environment-variables"],
    bad: &[
        "{apiVersion: v1, kind: Node, metadata: {name: old}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.16299.15}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: keys, secret: {secretName: keys}}]}}",
        "nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.14393}\nvolumes: [{name: config, configMap: {name: config}}]",
        "nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.16299}\nvolumes: [{name: all, projected: {sources: [{secret: {name: keys}}]}}]",
    ],
    good: &[
        "volumes: [{name: keys, secret: {secretName: keys}}]",
        "nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}\nvolumes: [{name: keys, secret: {secretName: keys}}]",
        "nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.16299}
containers: [{name: app, image: app, volumeMounts: [{name: default-token-x2x4x, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}]}]
volumes: [{name: default-token-x2x4x, secret: {secretName: default-token-x2x4x}}]",
    ],
    needs: FieldSet::FILES,
    check: Check::Pod(|cx, out| {
        let tokens = token_volumes(cx);
        for volume in cx.volumes() {
            for (field, present) in [
                ("secret", volume.secret.is_some()),
                ("configMap", volume.config_map.is_some()),
                ("projected", volume.projected.is_some()),
            ] {
                if present && !tokens.contains(&*volume.name) {
                    out.report(volume.at(&[field]));
                }
            }
        }
    }),
    ..Rule::BASE
};

/// The volumes with the service account's token, which Kubernetes mounts automatically.
fn token_volumes<'c>(cx: &PodCx<'c>) -> BTreeSet<&'c str> {
    const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    super::mounts(cx)
        .filter(|(.., mount)| &*mount.mount_path == TOKEN)
        .map(|(.., mount)| &*mount.name)
        .collect()
}
