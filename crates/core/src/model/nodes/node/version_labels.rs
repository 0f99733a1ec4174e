//! The labels in which platforms state the Windows version of a node, or the image that it was created from. An upgrade in
//! place changes them, so what selects nodes by them does not select the same nodes afterwards.

use super::{OS_SKU_EFFECTIVE_LABEL, OS_SKU_LABEL, OS_SKU_REQUESTED_LABEL, SKUS};
use crate::model::windows::build::Build;

/// A label with the Windows version of a node.
#[derive(Debug)]
pub struct VersionLabel {
    pub key: &'static str,
    /// The platform that writes it.
    pub platform: &'static str,
    /// What its values state.
    pub states: StatedVersion,
    /// When the row was last compared with its source.
    pub date: &'static str,
    /// Where it is documented.
    pub source: &'static str,
}

/// What the value of a label states.
#[derive(Debug)]
pub enum StatedVersion {
    /// The release: each value, with the third number of its build.
    Release(&'static [(&'static str, u32)]),
    /// A family of releases: another build may have the same value.
    Family,
    /// The image of the node: the value changes with every image.
    Image,
}

const AKS: &str = "https://learn.microsoft.com/azure/aks/use-labels";
const EKS: &str = "https://docs.aws.amazon.com/eks/latest/userguide/launch-templates.html";
const GKE: &str = "https://cloud.google.com/kubernetes-engine/docs/concepts/node-images";

/// All labels of platforms that state a version.
pub static VERSION_LABELS: [VersionLabel; 7] = [
    of_aks(OS_SKU_LABEL, StatedVersion::Release(&SKUS)),
    of_aks(OS_SKU_EFFECTIVE_LABEL, StatedVersion::Release(&SKUS)),
    of_aks(OS_SKU_REQUESTED_LABEL, StatedVersion::Release(&SKUS)),
    of_aks("kubernetes.azure.com/node-image-version", StatedVersion::Image),
    of_eks("eks.amazonaws.com/nodegroup-image"),
    of_eks("eks.amazonaws.com/sourceLaunchTemplateVersion"),
    VersionLabel {
        key: "cloud.google.com/gke-os-distribution",
        platform: "GKE",
        states: StatedVersion::Family,
        date: "2026-11-29",
        source: GKE,
    },
];

const fn of_aks(key: &'static str, states: StatedVersion) -> VersionLabel {
    VersionLabel {
        key,
        platform: "AKS",
        states,
        date: "2026-11-29",
        source: AKS,
    }
}

/// A label with the image of the nodes of a managed node group.
const fn of_eks(key: &'static str) -> VersionLabel {
    VersionLabel {
        key,
        platform: "EKS",
        states: StatedVersion::Image,
        date: "2026-11-29",
        source: EKS,
    }
}

impl VersionLabel {
    /// The row of a label; `None` for every other label.
    pub fn find(key: &str) -> Option<&'static VersionLabel> {
        VERSION_LABELS.iter().find(|label| label.key == key)
    }

    /// Its value on nodes of a build, if it is known before they exist.
    pub fn value_of(&self, build: Build) -> Option<&'static str> {
        let StatedVersion::Release(values) = &self.states else {
            return None;
        };
        let row = values.iter().find(|(_, number)| Build::new(*number) == build);
        row.map(|(value, _)| *value)
    }

    /// Whether nodes of another build always have another value.
    pub fn always_changes(&self) -> bool {
        !matches!(self.states, StatedVersion::Family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_found_by_its_key_and_only_a_release_has_a_known_value() {
        let sku = VersionLabel::find(OS_SKU_LABEL).unwrap();
        assert_eq!(sku.value_of(Build::new(26100)), Some("Windows2025"));
        assert_eq!(sku.value_of(Build::new(25398)), None);
        let image = VersionLabel::find("eks.amazonaws.com/nodegroup-image").unwrap();
        assert_eq!(
            (image.value_of(Build::new(26100)), image.always_changes()),
            (None, true)
        );
        let family = VersionLabel::find("cloud.google.com/gke-os-distribution").unwrap();
        assert!(!family.always_changes());
        assert!(VersionLabel::find("agentpool").is_none());
    }

    #[test]
    fn every_row_has_a_date_and_a_source() {
        for row in &VERSION_LABELS {
            assert!(row.date.parse::<jiff::civil::Date>().is_ok(), "{row:?}");
            assert!(row.source.starts_with("https://"), "{row:?}");
        }
    }
}
