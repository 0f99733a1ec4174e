//! The volumes of storage drivers in an object, and what is known of these drivers on Windows; the volumes that are for Windows.

use super::context::{Cx, PodCx};
use crate::model::cluster::facts::StorageClassFacts;
use crate::model::knowledge::{DriverOnWindows, StorageDriver, VolumeOfDriver};
use crate::model::nodes::os_selectors::os_of_terms;
use crate::model::objects::object::Body;
use crate::model::objects::pod::{ClaimSpec, CsiSource};
use crate::model::objects::resources::PersistentVolume;
use crate::model::syntax::json_types::Map;
use crate::model::syntax::path::Path;
use crate::model::windows::os::Os;

/// A claim of a known StorageClass.
pub(super) struct ClassUse<'c> {
    /// The path of the name of the class.
    pub path: Path,
    pub name: &'c str,
    pub class: &'c StorageClassFacts,
    pub claim: &'c ClaimSpec<'c>,
}

/// A volume of a storage driver.
pub(super) struct DriverUse<'c> {
    /// The path of its `csi` source, or of the name of its StorageClass.
    pub path: Path,
    pub driver: &'c str,
    /// What is known of the driver, for volumes like this one.
    pub known: Option<&'c StorageDriver>,
    /// Whether it is the provisioner of a StorageClass, which need not be a CSI driver.
    pub is_provisioner: bool,
}

/// The volumes that are mounted over NFS by their driver, with what is known of it.
pub(super) fn over_nfs<'c>(cx: &Cx<'c>) -> impl Iterator<Item = (Path, &'c StorageDriver)> {
    uses(cx).into_iter().filter_map(|found| {
        let known = found
            .known
            .filter(|known| known.windows == DriverOnWindows::NotOverNfs)?;
        Some((found.path, known))
    })
}

/// The volumes of storage drivers in an object: inline CSI volumes, claims of known StorageClasses, and a PersistentVolume
/// for Windows.
pub(super) fn uses<'c>(cx: &Cx<'c>) -> Vec<DriverUse<'c>> {
    let knowledge = &cx.facts.knowledge;
    let of_csi = |path: Path, csi: &'c CsiSource<'c>, access_modes: Vec<&'c str>| {
        let volume = VolumeOfDriver {
            driver: &csi.driver,
            fs_type: csi.fs_type.as_deref(),
            access_modes,
            parameters: (csi.volume_attributes.iter())
                .map(|(key, value)| (&**key, &**value))
                .collect(),
        };
        DriverUse {
            path,
            driver: volume.driver,
            known: knowledge.driver_of(&volume),
            is_provisioner: false,
        }
    };
    let mut found = Vec::new();
    for at in cx.pod().iter().flat_map(PodCx::volumes) {
        if let Some(csi) = &at.volume.csi {
            found.push(of_csi(at.at(&["csi"]), csi, Vec::new()));
        }
    }
    found.extend(classes(cx).into_iter().map(|of| DriverUse {
        path: of.path,
        driver: &of.class.provisioner,
        known: knowledge.driver_of(&of.class.volume(of.claim)),
        is_provisioner: true,
    }));
    if let Some(volume) = windows_volume(cx)
        && let Some(csi) = &volume.spec.csi
    {
        let modes = volume.spec.access_modes.iter().map(|mode| &**mode);
        found.push(of_csi(Path::of(&["spec", "csi"]), csi, modes.collect()));
    }
    found
}

/// The known StorageClasses of the claims of an object: a StatefulSet's claim templates, generic ephemeral volumes, and a
/// claim that a Windows workload uses.
pub(super) fn classes<'c>(cx: &Cx<'c>) -> Vec<ClassUse<'c>> {
    let mut found = Vec::new();
    // Reviews never know StorageClasses.
    if cx.facts.storage_classes.is_empty() {
        return found;
    }
    let mut add = |path: &dyn Fn() -> Path, claim: &'c ClaimSpec<'c>| {
        let named = claim.storage_class_name.as_deref();
        if let Some((name, class)) = named.and_then(|name| Some((name, cx.facts.storage_classes.get(name)?)))
        {
            found.push(ClassUse {
                path: path(),
                name,
                class,
                claim,
            });
        }
    };
    let templates = cx
        .template
        .iter()
        .flat_map(|template| template.claim_templates.iter().enumerate());
    for (index, template) in templates {
        let path = || {
            let path = Path::of(&["spec", "volumeClaimTemplates"]).named_item(index, &template.metadata.name);
            path.fields(&["spec", "storageClassName"])
        };
        add(&path, &template.spec);
    }
    for at in cx.pod().iter().flat_map(PodCx::volumes) {
        let source = at.volume.ephemeral.as_ref();
        if let Some(template) = source.and_then(|source| source.volume_claim_template.as_ref()) {
            let path = || at.at(&["ephemeral", "volumeClaimTemplate", "spec", "storageClassName"]);
            add(&path, &template.spec);
        }
    }
    if let Body::Claim(claim) = &cx.subject.body
        && cx.facts.is_claim_used_on_windows(cx.subject)
    {
        add(&|| Path::of(&["spec", "storageClassName"]), &claim.spec);
    }
    found
}

/// A PersistentVolume that is for Windows: its node affinity allows only Windows nodes, or a Windows workload uses its
/// claim.
pub(super) fn windows_volume<'c>(cx: &Cx<'c>) -> Option<&'c PersistentVolume<'c>> {
    let Body::Volume(volume) = &cx.subject.body else {
        return None;
    };
    let required = volume
        .spec
        .node_affinity
        .as_ref()
        .and_then(|affinity| affinity.required.as_ref());
    let selects = required.is_some_and(|selector| {
        let os = os_of_terms(
            &selector.node_selector_terms,
            &Map::default(),
            &cx.facts.node_labels,
        );
        os.is_some_and(|(os, ..)| os == Os::Windows)
    });
    let claim = volume.spec.claim_ref.as_ref();
    let used = || cx.facts.is_volume_used_on_windows(cx.subject, claim);
    (selects || used()).then_some(&**volume)
}
