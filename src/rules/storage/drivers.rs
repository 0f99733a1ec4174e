//! The rules on file systems that Windows cannot mount, and on CSI drivers that Windows nodes do not have.

use super::STORAGE;
use crate::model::facts::StorageClassFacts;
use crate::model::field_set::FieldSet;
use crate::model::object::Body;
use crate::model::path::Path;
use crate::model::pod::ClaimSpec;
use crate::model::severity::Severity;
use crate::model::text::shown;
use crate::model::workload::Kind;
use crate::rules::context::{Cx, PodCx};
use crate::rules::rule::{Check, Reporter, Rule};
use crate::rules::volumes::windows_volume;

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
        for (path, name, class) in classes(cx) {
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
           Windows nodes. Many drivers have a second DaemonSet for Windows, which must be enabled, and some have none. \
           Without it the pod stays in ContainerCreating (`driver name … not found in the list of registered CSI \
           drivers`). The CSINode objects list the drivers of each node. The rule reports a driver only if it knows at \
           least one Windows node with its CSINode and none of them lists the driver. It reports inline CSI volumes of \
           a pod, and a StatefulSet's claim templates and generic ephemeral volumes if their StorageClass is among the \
           checked objects. In `transom check` only, it also reports PersistentVolumeClaims of such a class and \
           PersistentVolumes that a known Windows workload uses. It ignores a provisioner that no node has registered, \
           because it may not be a CSI driver.",
    remedy: "install the driver's node plugin for Windows, or use a driver that the Windows nodes have",
    see: &[
        CSI_ON_WINDOWS,
        "https://kubernetes-csi.github.io/docs/drivers.html",
        "kubernetes: pkg/volume/csi/csi_plugin.go",
    ],
    bad: &[
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
        "volumes: [{name: keys, csi: {driver: secrets-store.csi.k8s.io}}]",
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
        let lacks = |driver: &str| cx.facts.lacks_csi_driver_on_windows(driver);
        let mut report = |path: Path, driver: &str| {
            out.report(path)
                .message(format!("no Windows node has registered the CSI driver {}", shown(driver)));
        };
        for volume in cx.pod().iter().flat_map(PodCx::volumes) {
            if let Some(csi) = volume.csi.as_ref().filter(|csi| lacks(&csi.driver)) {
                report(volume.at(&["csi", "driver"]), &csi.driver);
            }
        }
        for (path, _, class) in classes(cx) {
            if cx.facts.is_csi_driver(&class.provisioner) && lacks(&class.provisioner) {
                report(path, &class.provisioner);
            }
        }
        let csi = windows_volume(cx).and_then(|volume| volume.spec.csi.as_ref());
        if let Some(csi) = csi.filter(|csi| lacks(&csi.driver)) {
            report(Path::of(&["spec", "csi", "driver"]), &csi.driver);
        }
    }),
    ..OF_STORAGE
};

/// The known StorageClasses of the claims of an object, with the paths of their names: a StatefulSet's claim templates,
/// generic ephemeral volumes, and a claim that a Windows workload uses.
fn classes<'c>(cx: &Cx<'c>) -> Vec<(Path, &'c str, &'c StorageClassFacts)> {
    let mut found = Vec::new();
    // Reviews never know StorageClasses.
    if cx.facts.storage_classes.is_empty() {
        return found;
    }
    let class_of = |claim: &'c ClaimSpec<'c>| {
        let name = claim.storage_class_name.as_deref()?;
        Some((name, cx.facts.storage_classes.get(name)?))
    };
    let templates = cx
        .template
        .iter()
        .flat_map(|template| template.claim_templates.iter().enumerate());
    for (index, template) in templates {
        if let Some((name, class)) = class_of(&template.spec) {
            let path = Path::of(&["spec", "volumeClaimTemplates"]).named_item(index, &template.metadata.name);
            found.push((path.fields(&["spec", "storageClassName"]), name, class));
        }
    }
    for volume in cx.pod().iter().flat_map(PodCx::volumes) {
        let template = volume
            .volume
            .ephemeral
            .as_ref()
            .and_then(|source| source.volume_claim_template.as_ref());
        if let Some((name, class)) = template.and_then(|template| class_of(&template.spec)) {
            let path = volume.at(&["ephemeral", "volumeClaimTemplate", "spec", "storageClassName"]);
            found.push((path, name, class));
        }
    }
    if let Body::Claim(claim) = &cx.subject.body
        && let Some((name, class)) = class_of(&claim.spec)
        && cx.facts.is_claim_used_on_windows(cx.subject)
    {
        found.push((Path::of(&["spec", "storageClassName"]), name, class));
    }
    found
}
