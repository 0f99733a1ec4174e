//! Storage objects of Windows pods: claims and volumes in Block mode, and claims that cannot grow.

mod drivers;

use super::context::{Cx, PodCx};
use super::rule::{Check, Reporter, Rule};
use crate::model::field_set::FieldSet;
use crate::model::objects::known_claims::ClaimMode;
use crate::model::objects::object::Body;
use crate::model::objects::pod::ClaimSpec;
use crate::model::objects::resources::Meta;
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;

/// Rules TSM851 and up.
pub static RULES: &[&Rule] = &[
    &BLOCK_PVC,
    &PVC_EXPANSION,
    &drivers::LINUX_FILE_SYSTEM,
    &drivers::CSI_DRIVER_NOT_ON_WINDOWS,
];

const STORAGE: &str = "https://kubernetes.io/docs/concepts/storage/windows-storage/";

static BLOCK_PVC: Rule = Rule {
    id: "TSM851",
    name: "block-pvc",
    summary: "Windows cannot use a volume in Block mode",
    docs: "The kubelet on Windows is built without block volume support. For a Windows pod, a claim with `volumeMode: \
           Block` never becomes ready, and the pod stays in ContainerCreating. On a pod or StatefulSet, the rule \
           reports claim templates, generic ephemeral volumes and claims known to be in Block mode. It also reports a \
           claim, or the volume bound to it, if a known Windows workload uses the claim. The mode of a claim cannot be \
           changed.",
    remedy: "use volumeMode: Filesystem; if the claim exists, create a new one",
    see: &[
        STORAGE,
        "https://kubernetes.io/docs/concepts/storage/persistent-volumes/#raw-block-volume-support",
        "kubernetes: pkg/volume/util/volumepathhandler/volume_path_handler_unsupported.go",
    ],
    bad: &[
        "apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  template: {metadata: {labels: {app: db}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
  volumeClaimTemplates: [{metadata: {name: logs}, spec: {}}, {metadata: {name: data}, spec: {volumeMode: Block}}]",
        "volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {volumeMode: Block}}}}]",
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}, spec: {volumeMode: Block}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv}, spec: {volumeMode: Block, claimRef: {namespace: shop, name: data-db-0}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  template: {metadata: {labels: {app: db}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {volumeMode: Filesystem}}]",
    ],
    good: &[
        "apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  template: {metadata: {labels: {app: db}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {volumeMode: Filesystem}}, {metadata: {name: logs}, spec: {}}]",
        "apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  template: {metadata: {labels: {app: db}}, spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: app, image: app}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {volumeMode: Block}}]",
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: other}, spec: {volumeMode: Block}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv}, spec: {volumeMode: Filesystem, claimRef: {namespace: shop, name: data}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}, {name: w, ephemeral: {volumeClaimTemplate: {spec: {volumeMode: Filesystem}}}}]}}",
    ],
    needs: FieldSet::CLAIMS,
    check: Check::PodAnd(&[Kind::PersistentVolumeClaim, Kind::PersistentVolume], |cx, out| {
        let mode = || Path::of(&["spec", "volumeMode"]);
        match &cx.subject.body {
            Body::Pod(_) => block_claims_of_pod(cx, out),
            Body::Claim(claim)
                if is_block(&claim.spec) && cx.facts.is_claim_used_on_windows(cx.subject) =>
            {
                out.report(mode()).message("a Windows workload uses this claim, but Windows cannot use a volume in Block mode");
            }
            Body::Volume(volume) if volume.spec.volume_mode.as_deref() == Some("Block") => {
                let claim = volume.spec.claim_ref.as_ref();
                if cx.facts.is_volume_used_on_windows(cx.subject, claim) {
                    out.report(mode()).message("a Windows workload uses this volume's claim, but Windows cannot use a volume in Block mode");
                }
            }
            _ => {}
        }
    }),
    ..Rule::BASE
};

fn is_block(claim: &ClaimSpec<'_>) -> bool {
    claim.volume_mode.as_deref() == Some("Block")
}

fn block_claims_of_pod(cx: &Cx<'_>, out: &mut Reporter<'_>) {
    let templates = cx
        .template
        .iter()
        .flat_map(|template| template.claim_templates.iter().enumerate());
    for (index, template) in templates.filter(|(_, template)| is_block(&template.spec)) {
        let path = Path::of(&["spec", "volumeClaimTemplates"]).named_item(index, &template.metadata.name);
        out.report(path.fields(&["spec", "volumeMode"]));
    }
    for volume in cx.pod().iter().flat_map(PodCx::volumes) {
        let template = volume
            .ephemeral
            .as_ref()
            .and_then(|source| source.volume_claim_template.as_ref());
        if template.is_some_and(|template| is_block(&template.spec)) {
            out.report(volume.at(&["ephemeral", "volumeClaimTemplate", "spec", "volumeMode"]));
        }
        let Some(source) = &volume.persistent_volume_claim else {
            continue;
        };
        let (namespace, name) = (&*cx.subject.namespace, &*source.claim_name);
        if cx.facts.claims.mode(namespace, name, &cx.subject.source) == ClaimMode::Block {
            let finding = out.report(volume.at(&["persistentVolumeClaim", "claimName"]));
            finding.message(format!(
                "the claim \"{name}\" is in Block mode, which Windows cannot use"
            ));
        }
    }
}

static PVC_EXPANSION: Rule = Rule {
    id: "TSM852",
    name: "pvc-expansion",
    summary: "Windows cannot expand the file system of an in-tree volume",
    docs: "The kubelet on Windows does not expand file systems (`Resize is not supported for this build`): the disk \
           gets larger, but the claim stays in FileSystemResizePending forever. CSI drivers expand the file system \
           themselves. So the rule does not report claims of a CSI provisioner, nor in-tree claims that Kubernetes has \
           migrated to CSI. It checks claims that a known Windows workload uses and whose request exceeds their \
           capacity.",
    remedy: "provision the volume with a CSI driver that can expand it on Windows, and move the data there",
    see: &[
        STORAGE,
        "https://kubernetes.io/docs/concepts/storage/persistent-volumes/#expanding-persistent-volumes-claims",
        "kubernetes: k8s.io/mount-utils/resizefs_unsupported.go",
    ],
    bad: &[
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop, annotations: {volume.beta.kubernetes.io/storage-provisioner: kubernetes.io/azure-disk}}, spec: {resources: {requests: {storage: 20Gi}}}, status: {capacity: {storage: 10Gi}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-db-12, namespace: shop, annotations: {volume.kubernetes.io/storage-provisioner: kubernetes.io/vsphere-volume}}, spec: {resources: {requests: {storage: 10241Mi}}}, status: {capacity: {storage: 10Gi}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  template: {metadata: {labels: {app: db}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {}}]",
    ],
    good: &[
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop, annotations: {volume.kubernetes.io/storage-provisioner: disk.csi.azure.com}}, spec: {resources: {requests: {storage: 20Gi}}}, status: {capacity: {storage: 10Gi}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop, annotations: {volume.kubernetes.io/storage-provisioner: kubernetes.io/azure-disk, pv.kubernetes.io/migrated-to: disk.csi.azure.com}}, spec: {resources: {requests: {storage: 20Gi}}}, status: {capacity: {storage: 10Gi}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop, annotations: {volume.kubernetes.io/storage-provisioner: kubernetes.io/azure-disk}}, spec: {resources: {requests: {storage: 10Gi}}}, status: {capacity: {storage: 10240Mi}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}",
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-db-x, namespace: shop, annotations: {volume.kubernetes.io/storage-provisioner: kubernetes.io/azure-disk}}, spec: {resources: {requests: {storage: 20Gi}}}, status: {capacity: {storage: 10Gi}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  template: {metadata: {labels: {app: db}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {}}]",
    ],
    check: Check::Object(&[Kind::PersistentVolumeClaim], |cx, out| {
        let Body::Claim(claim) = &cx.subject.body else { return };
        let (Some(request), Some(capacity)) =
            (claim.spec.resources.requests.get("storage"), claim.status.capacity.get("storage"))
        else {
            return;
        };
        // A quantity that does not parse is unknown and not compared.
        let grows = request.millis().zip(capacity.millis()).is_some_and(|(request, capacity)| request > capacity);
        if grows
            && is_in_tree(&claim.metadata)
            && cx.facts.is_claim_used_on_windows(cx.subject)
        {
            out.report(Path::of(&["spec", "resources", "requests"]).key("storage"));
        }
    }),
    ..Rule::BASE
};

/// Whether a claim was provisioned by a plugin inside Kubernetes that has not been migrated to CSI.
fn is_in_tree(meta: &Meta<'_>) -> bool {
    const PROVISIONER: [&str; 2] = [
        "volume.kubernetes.io/storage-provisioner",
        "volume.beta.kubernetes.io/storage-provisioner",
    ];
    let mut provisioners = PROVISIONER.iter().filter_map(|key| meta.annotations.get(key));
    provisioners.any(|name| name.starts_with("kubernetes.io/"))
        && meta.annotations.get("pv.kubernetes.io/migrated-to").is_none()
}
