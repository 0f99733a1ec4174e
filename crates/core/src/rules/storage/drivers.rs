//! The rules on file systems that Windows cannot mount, and on CSI drivers that Windows nodes do not have.

use super::STORAGE;
use crate::model::cluster::severity::Severity;
use crate::model::field_set::FieldSet;
use crate::model::knowledge::StorageDriver;
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::rules::context::{Cx, PodCx};
use crate::rules::rule::{Check, Reporter, Rule};
use crate::rules::volume_drivers::{ClassUse, DriverUse, classes, uses, windows_volume};

const CSI_ON_WINDOWS: &str = "https://kubernetes.io/docs/concepts/storage/volumes/#windows-csi-proxy";

/// Only `transom check` evaluates storage objects; the webhooks receive pods only.
const OF_STORAGE: Rule = Rule {
    severity: Severity::Warning,
    ..Rule::BASE
};

pub(super) static LINUX_FILE_SYSTEM: Rule = Rule {
    id: "TSM853",
    name: "linux-file-system",
    summary: "the volume has a file system that Windows cannot mount",
    docs: "Windows formats and mounts NTFS (and ReFS). A Windows node cannot mount a volume that was formatted with \
           ext4 or xfs (`fsType`). When a driver formats the volume itself, it rejects or ignores that `fsType`, so \
           the finding is a warning. The rule reports inline CSI volumes of a pod. It also reports a StatefulSet's \
           claim templates and generic ephemeral volumes if their StorageClass is among the checked objects and \
           requests such a file system (`csi.storage.k8s.io/fstype`, `fsType`). In `transom check` only, it also \
           reports PersistentVolumeClaims of such a class and PersistentVolumes (`csi` and in-tree disks) that a known \
           Windows workload uses.",
    remedy: "use a StorageClass with csi.storage.k8s.io/fstype: ntfs for Windows workloads",
    see: &[
        STORAGE,
        "https://github.com/kubernetes-sigs/aws-ebs-csi-driver/tree/master/examples/kubernetes/windows",
        "https://github.com/kubernetes-sigs/azuredisk-csi-driver/tree/master/deploy/example/windows",
    ],
    bad: &[
        "volumes: [{name: data, csi: {driver: disk.csi.example.com, fsType: ext4}}]",
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv}, spec: {csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1, fsType: ext4}, claimRef: {namespace: shop, name: data}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv}, spec: {awsElasticBlockStore: {volumeID: vol-1, fsType: xfs}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}]}}}}",
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: ebs.csi.aws.com, parameters: {csi.storage.k8s.io/fstype: xfs}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}, spec: {storageClassName: fast}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: ebs.csi.aws.com, parameters: {fsType: ext4}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  template: {metadata: {labels: {app: db}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast}}]",
    ],
    good: &[
        "volumes: [{name: share, csi: {driver: smb.csi.k8s.io}}, {name: data, csi: {driver: disk.csi.example.com, fsType: ntfs}}]",
        // A Linux workload uses it.
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv}, spec: {csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1, fsType: ext4}, claimRef: {namespace: shop, name: data}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: win}, provisioner: ebs.csi.aws.com, parameters: {csi.storage.k8s.io/fstype: ntfs}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  template: {metadata: {labels: {app: db}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: win}}, {metadata: {name: log}, spec: {storageClassName: unknown}}]",
    ],
    needs: FieldSet::CSI.or(FieldSet::CLAIMS),
    check: Check::PodAnd(&[Kind::PersistentVolumeClaim, Kind::PersistentVolume], |cx, out| {
        for volume in cx.pod().iter().flat_map(PodCx::volumes) {
            let fs_type = volume.csi.as_ref().and_then(|csi| csi.fs_type.as_deref());
            if let Some(fs_type) = fs_type.filter(|fs_type| is_of_linux(fs_type)) {
                report_file_system(out, volume.at(&["csi", "fsType"]), fs_type, "the volume");
            }
        }
        for ClassUse { path, name, class, .. } in classes(cx) {
            if let Some(fs_type) = class.fs_type.as_deref().filter(|fs_type| is_of_linux(fs_type)) {
                let subject = format!("the StorageClass \"{}\"", shown(name));
                report_file_system(out, path, fs_type, &subject);
            }
        }
        let Some(volume) = windows_volume(cx) else { return };
        let spec = &volume.spec;
        let disk = [
            ("awsElasticBlockStore", &spec.aws_elastic_block_store),
            ("gcePersistentDisk", &spec.gce_persistent_disk),
            ("vsphereVolume", &spec.vsphere_volume),
        ];
        let disks = disk.iter().filter_map(|(field, disk)| Some((*field, disk.as_ref()?.fs_type.as_deref()?)));
        let csi = spec.csi.iter().filter_map(|csi| Some(("csi", csi.fs_type.as_deref()?)));
        for (field, fs_type) in csi.chain(disks).filter(|(_, fs_type)| is_of_linux(fs_type)) {
            report_file_system(out, Path::of(&["spec", field, "fsType"]), fs_type, "the volume");
        }
    }),
    ..OF_STORAGE
};

fn is_of_linux(fs_type: &str) -> bool {
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(fs_type))
}

fn report_file_system(out: &mut Reporter<'_>, path: Path, fs_type: &str, whose: &str) {
    out.report(path).message(format!(
        "{whose} requests {fs_type}, which Windows cannot mount, but a Windows workload uses it"
    ));
}

pub(super) static CSI_DRIVER_NOT_ON_WINDOWS: Rule = Rule {
    id: "TSM854",
    name: "csi-driver-not-on-windows",
    summary: "no Windows node has the volume's CSI driver",
    docs: "A CSI driver mounts volumes with a plugin that runs on each node, and its Linux DaemonSet does not run on \
           Windows nodes. Many drivers have a second one for Windows, which must be enabled, and some have none. Without \
           it the pod stays in ContainerCreating (`driver name … not found in the list of registered CSI \
           drivers`). `transom knowledge list` shows what the known drivers support: the rule reports one without a node \
           plugin for Windows, unless a Windows node has registered it. It reports any other driver if a Windows node \
           is known with its CSINode, and none lists the driver. It reports inline CSI volumes of \
           a pod, and a StatefulSet's claim templates and generic ephemeral volumes if their StorageClass is among the \
           checked objects. In `transom check` only, it also reports PersistentVolumeClaims of such a class and \
           PersistentVolumes that a known Windows workload uses. It ignores an unknown provisioner that no node has \
           registered.",
    remedy: "use a driver that the Windows nodes have",
    see: &[
        CSI_ON_WINDOWS,
        "https://kubernetes-csi.github.io/docs/drivers.html",
        "kubernetes: pkg/volume/csi/csi_plugin.go",
    ],
    bad: &[
        // Drivers that no Windows node can have, without any node.
        "volumes: [{name: b, csi: {driver: blob.csi.azure.com, volumeAttributes: {containerName: c}}}]",
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: ceph}, provisioner: rook-ceph.rbd.csi.ceph.com}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  template: {metadata: {labels: {app: db}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: ceph}}]",
        // The claim names the volume, which is not bound yet.
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv}, spec: {csi: {driver: efs.csi.aws.com, volumeHandle: fs-1}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}, spec: {volumeName: pv, storageClassName: ''}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        // Only some volumes of the driver.
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: san}, provisioner: csi.trident.netapp.io, parameters: {backendType: ontap-san}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: san}}}}]}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: win-1}, spec: {drivers: [{name: disk.csi.azure.com, nodeID: win-1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: keys, csi: {driver: secrets-store.csi.k8s.io}}]}}",
        // The CSINode comes first and lists no driver.
        "{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: win-1}, spec: {drivers: null}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv}, spec: {csi: {driver: nfs.csi.k8s.io, volumeHandle: a}, claimRef: {namespace: shop, name: data}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: win-1}, spec: {drivers: [{name: disk.csi.azure.com, nodeID: win-1}]}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: linux-1}, spec: {drivers: [{name: nfs.csi.k8s.io, nodeID: linux-1}]}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: shared}, provisioner: nfs.csi.k8s.io}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  template: {metadata: {labels: {app: db}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: shared}}]",
    ],
    good: &[
        // No Windows node is known.
        "volumes: [{name: keys, csi: {driver: secrets-store.csi.k8s.io}}, {name: data, csi: {driver: csi.example.com}}]",
        // A driver without a node plugin for Windows that a Windows node has registered nevertheless.
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: win-1}, spec: {drivers: [{name: driver.longhorn.io, nodeID: win-1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: data, csi: {driver: driver.longhorn.io}}]}}",
        // A StorageClass of a driver that has a node plugin for Windows, and of its volumes that Windows can mount.
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: smb}, provisioner: csi.trident.netapp.io, parameters: {backendType: ontap-nas, trident.netapp.io/nasType: smb}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}, spec: {storageClassName: smb}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        // A Linux workload uses it.
        "{apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: app, image: app}], volumes: [{name: b, csi: {driver: blob.csi.azure.com}}]}}",
        "{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: linux-1}, spec: {drivers: [{name: nfs.csi.k8s.io, nodeID: linux-1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: keys, csi: {driver: secrets-store.csi.k8s.io}}]}}",
        // One Windows node has it.
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: win-1}, spec: {drivers: [{name: secrets-store.csi.k8s.io, nodeID: win-1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: keys, csi: {driver: secrets-store.csi.k8s.io}}]}}",
        // A provisioner that is not a CSI driver.
        "{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: win-1}, spec: {drivers: []}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: local}, provisioner: rancher.io/local-path}
---
{apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: local}}}}]}}",
    ],
    needs: FieldSet::CSI.or(FieldSet::CLAIMS),
    check: Check::PodAnd(&[Kind::PersistentVolumeClaim, Kind::PersistentVolume], |cx, out| {
        for found in uses(cx) {
            report_driver(cx, found, out);
        }
    }),
    ..OF_STORAGE
};

fn report_driver(cx: &Cx<'_>, found: DriverUse<'_>, out: &mut Reporter<'_>) {
    let DriverUse {
        path,
        driver,
        known,
        is_provisioner,
    } = found;
    let path = if is_provisioner {
        path
    } else {
        path.field("driver")
    };
    let missing = known.filter(|known| known.is_missing());
    // A row for some volumes of a driver holds also where the driver is installed.
    let is_there =
        |known: &StorageDriver| known.volumes.is_none() && cx.facts.has_csi_driver_on_windows(driver);
    if let Some(known) = missing.filter(|known| !is_there(known)) {
        let plan = if known.not_planned {
            ", and none is planned"
        } else {
            ""
        };
        out.report(path)
            .message(format!(
                "the driver {} ({}) has no node plugin for Windows{plan}",
                shown(driver),
                known.product
            ))
            .remedy(known.remedy.clone());
        return;
    }
    let is_driver = !is_provisioner || cx.facts.is_csi_driver(driver);
    if missing.is_none() && is_driver && cx.facts.lacks_csi_driver_on_windows(driver) {
        let finding = out.report(path);
        finding.message(format!(
            "no Windows node has registered the CSI driver {}",
            shown(driver)
        ));
        if let Some(known) = known {
            finding.remedy(known.remedy.clone());
        }
    }
}
