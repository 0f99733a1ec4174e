//! Rules on permissions of volumes: users that cannot read host folders, and Unix permissions that Windows ignores.

use super::VOLUMES;
use super::sources::is_named_pipe;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::objects::pod::FileSource;
use crate::model::syntax::path::Path;
use crate::rules::context::VolumeAt;
use crate::rules::rule::{Check, Reporter, Rule};

pub(super) static CONTAINER_USER_HOST_PATH: Rule = Rule {
    id: "TSM521",
    name: "container-user-host-path",
    severity: Severity::Advice,
    class: Class::BestPractice,
    summary: "ContainerUser may have no access to the folder of the node",
    docs: "A folder of the node keeps its Windows permissions in the container. `ContainerUser` is not an administrator \
           and is unknown to the node, so it can read only folders that everybody may read, and write to almost none: \
           programs fail with `Access is denied`. Kubernetes cannot change the permissions, because `fsGroup` has no \
           effect on Windows. The rule reports hostPath volumes that a container with `runAsUserName: ContainerUser` \
           mounts, except for named pipes.",
    remedy: "give Users or Authenticated Users access to the folder on the node, or use another kind of volume",
    see: &[
        VOLUMES,
        "https://github.com/containerd/containerd/issues/6183",
        "https://github.com/microsoft/Windows-Containers/issues/136",
    ],
    bad: &[
        r"{securityContext: {windowsOptions: {runAsUserName: ContainerUser}}, volumes: [{name: data, hostPath: {path: 'C:\data'}}], containers: [{name: app, image: app, volumeMounts: [{name: data, mountPath: 'C:\data'}]}]}",
    ],
    good: &[
        r"{securityContext: {windowsOptions: {runAsUserName: ContainerAdministrator}}, volumes: [{name: data, hostPath: {path: 'C:\data'}}], containers: [{name: app, image: app, volumeMounts: [{name: data, mountPath: 'C:\data'}]}]}",
        r"{securityContext: {windowsOptions: {runAsUserName: ContainerUser}}, volumes: [{name: pipe, hostPath: {path: '\\.\pipe\app'}}], containers: [{name: app, image: app, volumeMounts: [{name: pipe, mountPath: '\\.\pipe\app'}]}]}",
        r"{volumes: [{name: data, hostPath: {path: 'C:\data'}}], containers: [{name: app, image: app, volumeMounts: [{name: data, mountPath: 'C:\data'}]}]}",
        r"{securityContext: {windowsOptions: {runAsUserName: ContainerUser}}, volumes: [{name: data, emptyDir: {}}], containers: [{name: app, image: app, volumeMounts: [{name: data, mountPath: 'C:\data'}]}]}",
    ],
    needs: FieldSet::HOST_PATH,
    check: Check::Pod(|cx, out| {
        let of_node = |name: &str| {
            let mut volumes = cx.spec.volumes.iter();
            volumes.any(|volume| {
                let path = volume.host_path.as_ref().map(|source| &*source.path);
                *volume.name == *name && path.is_some_and(|path| !is_named_pipe(path))
            })
        };
        for container in cx.containers() {
            let user = cx.spec.run_as_user_name(container.container);
            if !user.is_some_and(|user| user.eq_ignore_ascii_case("ContainerUser")) {
                continue;
            }
            for (index, mount) in container.volume_mounts.iter().enumerate() {
                if of_node(&mount.name) {
                    out.report(container.mount(index));
                }
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static UNIX_VOLUME_PERMISSIONS: Rule = Rule {
    id: "TSM522",
    name: "unix-volume-permissions",
    severity: Severity::Advice,
    class: Class::Ignored,
    kubernetes: 37..=Rule::STILL,
    summary: "Windows has no Unix permissions for volumes",
    docs: "Kubernetes 1.37 adds alpha fields: `mode` of an emptyDir volume sets the Unix permission bits of its \
           folder, `defaultUser` and `user` set the user ID that owns the files of a configMap, secret, downwardAPI or \
           projected volume, and `bindMountOptions` of a volume mount sets options such as `noexec`. The kubelet on \
           Windows ignores `mode` (it logs `EmptyDir mode is not supported on Windows`) and the owner (it logs \
           `skipping change of Linux owner`), and Windows has no such mount options. A pod that relies on them is less \
           protected on Windows than its manifest says.",
    remedy: "remove the field, and protect the files with Windows permissions",
    see: &[
        "https://github.com/kubernetes/kubernetes/pull/140244",
        "https://github.com/kubernetes/enhancements/issues/5502",
        "https://github.com/kubernetes/website/pull/56457",
    ],
    bad: &[
        "{volumes: [{name: tmp, emptyDir: {mode: 1023}}], containers: [{name: app, image: app, volumeMounts: [{name: tmp, mountPath: /tmp}]}]}",
        "{volumes: [{name: tmp, emptyDir: {}}], containers: [{name: app, image: app, volumeMounts: [{name: tmp, mountPath: /tmp, bindMountOptions: [noexec]}]}]}",
        "volumes: [{name: keys, secret: {secretName: keys, defaultUser: 1000}}]",
        "volumes: [{name: config, configMap: {name: config, items: [{key: a, path: a, user: 1000}]}}]",
        "volumes: [{name: all, projected: {defaultUser: 1000, sources: []}}]",
        "volumes: [{name: all, projected: {sources: [{secret: {name: s, items: [{key: a, path: a, user: 1000}]}}]}}]",
        "volumes: [{name: all, projected: {sources: [{serviceAccountToken: {path: token, user: 1000}}]}}]",
    ],
    good: &[
        "{volumes: [{name: tmp, emptyDir: {}}], containers: [{name: app, image: app, volumeMounts: [{name: tmp, mountPath: /tmp}]}]}",
        "# --kubernetes-version 1.36\n{volumes: [{name: tmp, emptyDir: {mode: 1023}}], containers: [{name: app, image: app}]}",
    ],
    needs: FieldSet::UNIX_VOLUME_PERMISSIONS,
    check: Check::Pod(|cx, out| {
        for at in cx.volumes() {
            if at.volume.empty_dir.as_ref().is_some_and(|dir| dir.mode.0) {
                out.report(at.at(&["emptyDir", "mode"]))
                    .message("the kubelet on Windows ignores the mode of an emptyDir");
            }
            owners(&at, out);
        }
        for container in cx.containers() {
            for (index, mount) in container.volume_mounts.iter().enumerate() {
                if mount.bind_mount_options.0 {
                    out.report(container.mount(index).field("bindMountOptions"))
                        .message("Windows has no such mount options");
                }
            }
        }
    }),
    ..Rule::BASE
};

/// Reports each field that sets the owner of a volume's files.
fn owners(volume: &VolumeAt<'_>, out: &mut Reporter<'_>) {
    let sources = [
        ("secret", &volume.secret),
        ("configMap", &volume.config_map),
        ("downwardAPI", &volume.downward_api),
    ];
    for (field, files) in sources {
        owners_of_files(files.as_ref(), &volume.at(&[field]), out);
    }
    let Some(projected) = &volume.projected else {
        return;
    };
    if projected.default_user.0 {
        report_owner(volume.at(&["projected", "defaultUser"]), out);
    }
    for (index, source) in projected.sources.iter().enumerate() {
        let at = volume.at(&["projected", "sources"]).item(index);
        let sources = [
            ("secret", &source.secret),
            ("configMap", &source.config_map),
            ("downwardAPI", &source.downward_api),
        ];
        for (field, files) in sources {
            owners_of_files(files.as_ref(), &at.clone().field(field), out);
        }
        let files = [
            ("serviceAccountToken", &source.service_account_token),
            ("clusterTrustBundle", &source.cluster_trust_bundle),
            ("podCertificate", &source.pod_certificate),
        ];
        for (field, file) in files {
            if file.as_ref().is_some_and(|file| file.user.0) {
                report_owner(at.clone().field(field).field("user"), out);
            }
        }
    }
}

fn owners_of_files(files: Option<&FileSource>, at: &Path, out: &mut Reporter<'_>) {
    let Some(files) = files else { return };
    if files.default_user.0 {
        report_owner(at.clone().field("defaultUser"), out);
    }
    for (index, _) in files.items.iter().enumerate().filter(|(_, item)| item.user.0) {
        report_owner(at.clone().field("items").item(index).field("user"), out);
    }
}

fn report_owner(path: Path, out: &mut Reporter<'_>) {
    out.report(path)
        .message("the kubelet on Windows does not change the owner of files");
}
