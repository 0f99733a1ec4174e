//! Removes from a Windows pod the fields that Windows ignores and the API server would reject, and nothing else.

use super::pod_patch::PodPatch;
use crate::model::edit::Edit;
use crate::model::path::Path;
use crate::rules::Finding;

/// Plans the removal of every removable field that was found below this path.
pub fn plan_removals(patch: &mut PodPatch<'_, '_>, findings: &[Finding], below: &Path) {
    for finding in findings {
        let is_meant = finding.is_removable() && finding.path.starts_with(below);
        if let (true, Some(Edit::Remove(path))) = (is_meant, &finding.edit) {
            patch.remove(path);
        }
    }
}
