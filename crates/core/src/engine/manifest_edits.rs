//! The edits that an author makes in a manifest: those that need no decision. Admission uses none of this.

use super::evaluate::Evaluation;
use super::placement::{ForbiddenFields, Placement};
use super::pod_patch::PodPatch;
use super::scheduling::images;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::Policy;
use crate::model::cluster::severity::Class;
use crate::model::nodes::node::Taint;
use crate::model::objects::object::Object;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload::custom::PodLayout;
use crate::model::syntax::edit::Edit;
use crate::model::syntax::path::{Path, Segment};
use crate::model::windows::os::Verdict;
use crate::rules::{Cx, Finding, Required};

/// The edit that resolves a finding in a manifest without a decision: the removal of a field that Windows ignores, the
/// stable name of a deprecated label, the spelling of a value. Not an edit that changes what the pod does.
///
/// Pod Security may require a field in the namespace that the object will be in. `for_windows`: whether the same edit
/// writes `spec.os.name: windows`.
pub fn safe_edit(finding: &Finding, kind: Kind, for_windows: bool) -> Option<&Edit> {
    let edit = finding.edit.as_ref()?;
    let may_be_required = match finding.required {
        Required::Never => false,
        Required::UnlessWindows { is_windows } => !is_windows && !for_windows,
        Required::ByOthers => true,
    };
    let is_safe = match edit {
        Edit::Remove(_) => is_safe_removal(finding, kind),
        Edit::Set(..) | Edit::Append(..) | Edit::Move(..) => true,
    };
    (is_safe && !may_be_required && !is_shared(edit.path(), kind)).then_some(edit)
}

/// Whether an object loses nothing that its author wants if the field is removed.
fn is_safe_removal(finding: &Finding, kind: Kind) -> bool {
    // What Windows ignores in a Service, Linux nodes may use.
    let is_ignored = matches!(finding.class, Class::Api | Class::Ignored) && kind.has_pod();
    finding.is_removable()
        || (is_ignored && !finding.rule.shows_intent)
        || finding.class == Class::BestPractice
}

/// Whether a field of an object with several pods is not that of one pod: another pod, which may be for Linux, uses it too.
fn is_shared(path: &Path, kind: Kind) -> bool {
    const POD_LISTS: [&str; 3] = ["templates", "tasks", "finally"];
    let has_several = matches!(
        kind.layout(),
        Some(PodLayout::Workflow(_) | PodLayout::Pipeline(_) | PodLayout::PipelineRun)
    );
    let text = path.to_string();
    has_several && !POD_LISTS.iter().any(|list| text.contains(&format!(".{list}[")))
}

/// The edits that place the pods of an object, each with its reason, and the fields that prevent setting `spec.os.name`.
///
/// The manifest of every workload is placed, also that of a DaemonSet: its controller reads the template as written.
pub fn placement_edits(
    subject: &Object<'_>,
    facts: &Facts,
    policy: &Policy,
    evaluation: &Evaluation,
) -> (Vec<(Edit, String)>, Vec<Path>) {
    let inference = &evaluation.inference;
    let images = images(subject, inference.verdict, facts);
    let as_written = Cx::new(subject, inference, facts, policy, &images);
    let Some(template) = as_written.template else {
        return Default::default();
    };
    if !template.has_spec || template.spec.is_bound() || subject.context.is_mirror {
        return Default::default();
    }
    let placement = Placement {
        as_written,
        os_is_added: false,
        forbidden: ForbiddenFields::Unknown,
    };
    let mut patch = PodPatch::new(template, subject.spec_path());
    let mut withheld = Vec::new();
    match inference.verdict {
        Verdict::Windows => withheld = placement.in_manifest(&mut patch),
        Verdict::Linux | Verdict::Unknown => placement.linux_pod(&mut patch),
        Verdict::Conflicting => {}
    }
    let edits = patch.into_parts().0.into_iter();
    let edits = edits.map(|(edit, _)| {
        let reason = reason(&edit, facts, policy);
        (edit, reason)
    });
    (edits.collect(), withheld)
}

/// Why placement makes an edit.
fn reason(edit: &Edit, facts: &Facts, policy: &Policy) -> String {
    let (Edit::Set(path, _) | Edit::Append(path, _)) = edit else {
        return "placement writes the stable label instead".to_owned();
    };
    let Some(tolerated) = taint_of(edit) else {
        let is_os = path.segments().contains(&Segment::Field("os"));
        let of_nodes = if is_os {
            "the API server then checks the pod as a Windows pod"
        } else {
            "the pod can run only on such nodes"
        };
        return of_nodes.to_owned();
    };
    let mut of_nodes = facts.sorts().chain(&facts.pools).flat_map(|host| &host.taints);
    if of_nodes.any(|taint| *taint == tolerated) {
        format!("Windows nodes have the taint {tolerated}")
    } else if facts.required_taints.contains(&tolerated) {
        format!("a WindowsNodePolicy requires the taint {tolerated}")
    } else if policy.taints.contains(&tolerated) {
        format!(
            "placement.toleratedTaints of the policy {} lists the taint {tolerated}",
            policy.name
        )
    } else {
        "placement adds the toleration".to_owned()
    }
}

/// The taint that an edit of placement makes a pod tolerate.
pub fn taint_of(edit: &Edit) -> Option<Taint> {
    let (Edit::Set(path, value) | Edit::Append(path, value)) = edit else {
        return None;
    };
    let toleration = value.get(0).unwrap_or(value);
    let text = |field: &str| toleration.get(field)?.as_str().map(str::to_owned);
    let is_toleration = path.segments().contains(&Segment::Field("tolerations"));
    is_toleration.then_some(Taint {
        key: text("key")?,
        value: text("value").unwrap_or_default(),
        effect: text("effect").unwrap_or_default(),
    })
}
