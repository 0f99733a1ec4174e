//! How containers mount volumes: devices, subPath, propagation, read-only mounts. The module `paths` checks the paths
//! themselves.

use super::{INTRO, STORAGE, VOLUMES, mounts};
use crate::model::cluster::facts::Runtime;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::rules::rule::{Check, Rule};

pub(super) static VOLUME_DEVICES: Rule = Rule {
    id: "TSM503",
    name: "volume-devices",
    summary: "Windows cannot give a raw block device to a container",
    docs: "The kubelet on Windows is built without block volume support: the volume never becomes ready (`not \
           supported for this build`) and the pod stays in ContainerCreating.",
    remedy: "use a claim with volumeMode: Filesystem, and volumeMounts",
    see: &[
        STORAGE,
        INTRO,
        "kubernetes: pkg/volume/util/volumepathhandler/volume_path_handler_unsupported.go",
    ],
    bad: &[
        "containers: [{name: app, image: app, volumeDevices: [{name: disk, devicePath: /dev/xvda}]}]",
        "initContainers: [{name: init, image: app, volumeDevices: [{name: disk, devicePath: 'C:/disk'}]}]",
    ],
    good: &[
        "containers: [{name: app, image: app, volumeDevices: []}]",
        "containers: [{name: app, image: app, volumeMounts: [{name: disk, mountPath: 'C:/disk'}]}]",
    ],
    needs: FieldSet::VOLUME_DEVICES,
    check: Check::Pod(|cx, out| {
        for container in cx.containers() {
            if !container.volume_devices.is_empty() {
                out.report(container.at(&["volumeDevices"]));
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static SUB_PATH: Rule = Rule {
    id: "TSM504",
    name: "sub-path",
    runtime: Some(Runtime::Docker),
    summary: "subPath does not work on Windows with Docker",
    docs: "Docker on Windows maps whole directories only: a subPath that is a file fails, and Docker does not follow \
           symbolic links inside the volume safely. With containerd, subPath works for directories and single files. \
           So this rule applies only to Docker (and the Mirantis runtime), although the Kubernetes documentation still \
           lists subPath as unsupported.",
    remedy: "mount the whole volume, or use nodes with containerd",
    see: &[STORAGE, "kubernetes: pkg/volume/util/subpath/subpath_windows.go"],
    bad: &[
        "# --runtime docker\ncontainers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPath: a}]}]",
        "# --runtime docker\ncontainers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPathExpr: $(POD_NAME)}]}]",
    ],
    good: &[
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPath: a}]}]",
        "# --runtime docker\ncontainers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', subPath: ''}]}]",
    ],
    needs: FieldSet::SUB_PATH,
    check: Check::Pod(|cx, out| {
        for (container, index, mount) in mounts(cx) {
            for (field, value) in [
                ("subPath", &mount.sub_path),
                ("subPathExpr", &mount.sub_path_expr),
            ] {
                if value.as_deref().is_some_and(|path| !path.is_empty()) {
                    out.report(container.mount(index).field(field));
                }
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static RECURSIVE_READ_ONLY: Rule = Rule {
    id: "TSM510",
    name: "recursive-read-only",
    kubernetes: 30..=Rule::STILL,
    summary: "Windows does not support recursive read-only mounts",
    docs: "`recursiveReadOnly: Enabled` needs a runtime that reports the feature. No runtime on Windows does, and the \
           container is not created. Plain `readOnly: true` works, because Windows has no submounts that it could \
           miss.",
    remedy: "use readOnly: true, with recursiveReadOnly: IfPossible or none",
    see: &[
        "https://kubernetes.io/docs/concepts/storage/volumes/#recursive-read-only-mounts",
        VOLUMES,
    ],
    bad: &[
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', readOnly: true, recursiveReadOnly: Enabled}]}]",
    ],
    good: &[
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', readOnly: true, recursiveReadOnly: IfPossible}]}]",
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', recursiveReadOnly: Disabled}]}]",
    ],
    needs: FieldSet::RECURSIVE_READ_ONLY,
    check: Check::Pod(|cx, out| {
        for (container, index, mount) in mounts(cx) {
            if mount.recursive_read_only.as_deref() == Some("Enabled") {
                out.report(container.mount(index).field("recursiveReadOnly"))
                    .removable();
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static MOUNT_PROPAGATION: Rule = Rule {
    id: "TSM518",
    name: "mount-propagation",
    severities: "error; warning for HostToContainer",
    class: Class::ApiAlways,
    summary: "Windows does not support mount propagation",
    docs: "Every mount is private on Windows, and the kubelet silently overrides the field. The API server accepts \
           `HostToContainer`, which has no effect. It rejects `Bidirectional`, because that needs a privileged \
           container, which Windows does not have. `None` is the default and is accepted.",
    remedy: "remove it",
    see: &[
        "https://kubernetes.io/docs/concepts/storage/volumes/#mount-propagation",
        INTRO,
        "kubernetes: pkg/kubelet/kubelet_pods.go, translateMountPropagation",
    ],
    bad: &[
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', mountPropagation: HostToContainer}]}]",
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', mountPropagation: Bidirectional}]}]",
    ],
    good: &[
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', mountPropagation: None}]}]",
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v'}]}]",
    ],
    needs: FieldSet::MOUNT_PROPAGATION,
    check: Check::Pod(|cx, out| {
        for (container, index, mount) in mounts(cx) {
            let path = || container.mount(index).field("mountPropagation");
            match mount.mount_propagation.as_deref() {
                Some("HostToContainer") => {
                    let finding = out
                        .report(path())
                        .severity(Severity::Warning)
                        .class(Class::Ignored);
                    finding.removable();
                }
                Some("Bidirectional") => {
                    out.report(path())
                        .message("propagation Bidirectional needs a privileged container, which Windows does not have")
                        .removable();
                }
                _ => {}
            }
        }
    }),
    ..Rule::BASE
};
