//! Removes from a Windows pod the fields that Windows ignores and the API server would reject, and nothing else. A field that
//! Pod Security may require stays: a pod that the API server accepts must not become one that it rejects.

use super::pod_patch::PodPatch;
use crate::model::cluster::facts::PodSecurity;
use crate::model::objects::pod::PodSpec;
use crate::model::syntax::edit::Edit;
use crate::model::syntax::path::Path;
use crate::rules::{Finding, Required, relies_on_user_namespace};

/// The pod that is stored, as Pod Security sees it.
#[derive(Clone, Copy)]
pub struct StoredPod {
    /// The profile of its namespace.
    pub profile: PodSecurity,
    /// Whether it will have `spec.os.name: windows`.
    pub is_for_windows: bool,
}

impl StoredPod {
    /// Whether Pod Security accepts the pod without a field if it accepts the pod with it. `pod` has lost the others.
    pub fn may_lose(self, finding: &Finding, pod: &PodSpec<'_>) -> bool {
        match finding.required {
            Required::Never => true,
            Required::UnlessWindows { .. } => match self.profile {
                PodSecurity::Lower => true,
                PodSecurity::Unknown | PodSecurity::Restricted => self.is_for_windows,
                PodSecurity::RestrictedForAll => false,
            },
            Required::ByOthers => !relies_on_user_namespace(pod),
        }
    }
}

/// Plans the removal of every removable field that was found below this path and that the stored pod may lose. Returns the
/// fields that stay because of Pod Security.
pub fn plan_removals(
    patch: &mut PodPatch<'_, '_>,
    findings: &[Finding],
    below: &Path,
    stored: StoredPod,
) -> Vec<Path> {
    let mut kept = Vec::new();
    let meant = (findings.iter()).filter(|finding| finding.is_removable() && finding.path.starts_with(below));
    // What others require goes last: the others may be gone by then.
    let is_last = |finding: &&Finding| finding.required == Required::ByOthers;
    let first = meant.clone().filter(|finding| !is_last(finding));
    for finding in first.chain(meant.filter(is_last)) {
        let Some(Edit::Remove(path)) = &finding.edit else {
            continue;
        };
        if stored.may_lose(finding, patch.pod()) {
            patch.remove(path);
        } else {
            kept.push(path.clone());
        }
    }
    kept
}
