//! The edits that an author makes in a manifest: those that need no decision. Admission uses none of this.

use super::evaluate::{Evaluation, images};
use super::placement::{ForbiddenFields, Placement};
use super::pod_patch::PodPatch;
use crate::model::edit::Edit;
use crate::model::facts::Facts;
use crate::model::object::Object;
use crate::model::os::Verdict;
use crate::model::path::Path;
use crate::model::policy::Policy;
use crate::model::severity::Class;
use crate::model::workload::Kind;
use crate::model::workload::custom::PodLayout;
use crate::rules::{Cx, Finding};

/// Rules about an ignored field that shows what the author wants; the remedy has another way to get it.
const INTENTS: [&str; 2] = ["host-network", "hyperv-annotation"];

/// The edit that resolves a finding in a manifest without a decision: the removal of a field that Windows ignores, the
/// stable name of a deprecated label, the spelling of a value. Not an edit that changes what the pod does.
pub fn safe_edit(finding: &Finding, kind: Kind) -> Option<&Edit> {
    let edit = finding.edit.as_ref()?;
    if is_shared(edit.path(), kind) {
        return None;
    }
    let is_safe = match edit {
        // What Windows ignores in a Service, Linux nodes may use.
        Edit::Remove(_) => {
            let is_ignored = matches!(finding.class, Class::Api | Class::Ignored) && kind.has_pod();
            let is_intent = INTENTS.contains(&finding.rule.name);
            finding.is_removable() || (is_ignored && !is_intent) || finding.class == Class::BestPractice
        }
        Edit::Set(..) | Edit::Append(..) | Edit::Move(..) => true,
    };
    is_safe.then_some(edit)
}

/// Whether a field of an object with several pods is not that of one pod: another pod, which may be for Linux, uses it too.
fn is_shared(path: &Path, kind: Kind) -> bool {
    const POD_LISTS: [&str; 3] = ["templates", "tasks", "finally"];
    let has_several = kind.custom().is_some_and(|custom| {
        matches!(
            custom.layout,
            PodLayout::Workflow(_) | PodLayout::Pipeline(_) | PodLayout::PipelineRun
        )
    });
    let text = path.to_string();
    has_several && !POD_LISTS.iter().any(|list| text.contains(&format!(".{list}[")))
}

/// The edits that place the pods of an object, and the fields that prevent setting `spec.os.name`.
///
/// The manifest of every workload is placed, also that of a DaemonSet: its controller reads the template as written.
pub fn placement_edits(
    subject: &Object<'_>,
    facts: &Facts,
    policy: &Policy,
    evaluation: &Evaluation,
) -> (Vec<Edit>, Vec<Path>) {
    let inference = &evaluation.inference;
    let images = images(subject, inference.verdict, facts);
    let as_written = Cx::new(subject, inference, facts, policy, &images);
    let Some(template) = as_written.template else {
        return Default::default();
    };
    if !template.has_spec || template.spec.is_bound() || subject.is_mirror {
        return Default::default();
    }
    let placement = Placement {
        as_written,
        forbidden: ForbiddenFields::Unknown,
    };
    let mut patch = PodPatch::new(template, subject.spec_path());
    let mut withheld = Vec::new();
    match inference.verdict {
        Verdict::Windows => withheld = placement.in_manifest(&mut patch),
        Verdict::Linux | Verdict::Unknown => placement.linux_pod(&mut patch),
        Verdict::Conflicting => {}
    }
    let edits = patch.into_parts().0;
    (edits.into_iter().map(|(edit, _)| edit).collect(), withheld)
}
