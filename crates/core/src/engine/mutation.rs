//! Mutation: the edits of placement and field removal for one object, and the findings that they resolve.

use std::collections::HashSet;

use super::admission_additions::AdmissionAdditions;
use super::field_removal::{StoredPod, plan_removals};
use super::placement::{ForbiddenFields, Placement};
use super::pod_patch::PodPatch;
use crate::model::cluster::policy::{IgnoredFields, LinuxPods, PlacementMode};
use crate::model::objects::managed_fields::SCC_ANNOTATION;
use crate::model::objects::object::{Editable, Object, Template};
use crate::model::objects::workload::Kind;
use crate::model::syntax::edit::Edit;
use crate::model::syntax::path::Path;
use crate::model::windows::os::{Os, Verdict};
use crate::rules::{self, Cx, Finding, Required, Resolver};

/// The changes that let a pod run on a suitable node.
#[derive(Default)]
pub struct Mutation<'p> {
    /// The active edits, each with the part that made it.
    pub edits: Vec<(Edit, Resolver)>,
    /// The edits that would be made if everything in dry run were active; empty if nothing is in dry run.
    pub would_edit: Vec<Edit>,
    /// The fields that prevented placement from setting `spec.os.name`.
    pub withheld: Vec<Path>,
    /// The ignored fields that stay because Pod Security may require them.
    pub kept: Vec<Path>,
    /// The pod with the edits, if there are any.
    changed: Option<Template<'p>>,
}

impl<'p> Mutation<'p> {
    /// Plans the active edits, and the edits that would be made if everything in dry run were active too.
    ///
    /// `findings` are those of the object as written. `is_complete` means that no rule was disabled, and no finding was
    /// exempt or dropped.
    pub fn plan(as_written: &Cx<'p>, findings: &[Finding], is_complete: bool) -> Self {
        let additions = AdmissionAdditions::of(as_written, findings);
        let Some(template) = as_written.template else {
            return Mutation::default();
        };
        let policy = as_written.policy;
        let builder = MutationBuilder {
            template,
            findings,
            added_fields: &additions.fields,
            placement: Placement {
                as_written: *as_written,
                os_is_added: additions.os,
                forbidden: if is_complete {
                    ForbiddenFields::Among(findings)
                } else {
                    ForbiddenFields::Unknown
                },
            },
        };
        let removes = policy.ignored_fields == IgnoredFields::Remove;
        let on = builder.draft(policy.placement == PlacementMode::Apply, removes);
        let (edits, changed) = on.patch.into_parts();
        let mut changes = Mutation {
            edits,
            would_edit: Vec::new(),
            withheld: on.withheld,
            kept: on.kept,
            changed,
        };
        if policy.placement == PlacementMode::Audit {
            let both = builder.draft(true, removes);
            let edits = both.patch.into_parts().0;
            changes.would_edit = edits.into_iter().map(|(edit, _)| edit).collect();
            changes.withheld = both.withheld;
        }
        changes
    }

    /// Runs the rules on the pod as it will be stored, and marks the findings that no longer appear. Returns the findings
    /// that only the pod with the edits has. `exempted`: the exempt findings of the pod as written.
    pub fn resolve(
        &self,
        as_written: &Cx<'_>,
        findings: &mut [Finding],
        exempted: &[(String, Vec<Finding>)],
    ) -> Vec<Finding> {
        /// Up to this many findings are compared pairwise; more would take too long.
        const FEW: usize = 16;
        let Some(changed) = &self.changed else {
            return Vec::new();
        };
        let as_stored = as_written.with_template(changed);
        let pod = as_stored.pod();
        // Few rules find what an edit causes; of the others only those with findings run again.
        let caused_by_placement = rules::applicable(&as_stored).filter(|rule| rule.caused_by_placement);
        let (mut after, mut checked) = (Vec::new(), Vec::new());
        for rule in findings
            .iter()
            .map(|finding| finding.rule)
            .chain(caused_by_placement)
        {
            if !checked.contains(&rule) {
                checked.push(rule);
                rule.run(&as_stored, pod.as_ref(), &mut after);
            }
        }
        let hashed: HashSet<_> = if after.len() > FEW {
            after.iter().map(|f| (f.rule.id, &f.path)).collect()
        } else {
            HashSet::new()
        };
        let is_still_there = |finding: &Finding| {
            // It represents findings that were not kept, and the changed pod may still have some of them.
            if !finding.over_limit.is_empty() {
                return after.iter().any(|other| other.rule == finding.rule);
            }
            if after.len() > FEW {
                return hashed.contains(&(finding.rule.id, &finding.path));
            }
            (after.iter()).any(|other| other.rule == finding.rule && other.path == finding.path)
        };
        let removed: HashSet<&Path> = self.removed().collect();
        for finding in &mut *findings {
            if !is_still_there(finding) {
                finding.resolved_by = Some(if removed.contains(&finding.path) {
                    Resolver::Removal
                } else {
                    Resolver::Placement
                });
            }
        }
        let is_caused = |new: &mut Finding| {
            let is_known = |known: &Finding| known.rule == new.rule && known.path == new.path;
            new.rule.caused_by_placement
                && !findings.iter().any(is_known)
                && !exempted.iter().flat_map(|(_, exempted)| exempted).any(is_known)
        };
        after.extract_if(.., is_caused).collect()
    }

    /// The ignored fields that the edits remove because Windows ignores them.
    pub fn removed(&self) -> impl Iterator<Item = &Path> {
        let by_removal = self.edits.iter().filter(|(_, by)| *by == Resolver::Removal);
        by_removal.map(|(edit, _)| edit.path())
    }

    /// The part that admission applies or reports: nothing for an object that admission does not edit.
    pub fn of_admission(self, subject: &Object<'_>) -> Self {
        if subject.context.editable == Editable::Nothing {
            return Mutation::default();
        }
        self
    }
}

/// The input for drafts.
struct MutationBuilder<'p, 'f> {
    template: &'p Template<'p>,
    findings: &'f [Finding],
    /// Fields to remove because admission added them.
    added_fields: &'f [Path],
    placement: Placement<'p, 'f>,
}

/// A draft of the pod.
struct Draft<'p> {
    patch: PodPatch<'p, 'p>,
    /// The fields that prevented placement from setting `spec.os.name`.
    withheld: Vec<Path>,
    /// The ignored fields that stay because Pod Security may require them.
    kept: Vec<Path>,
}

impl Draft<'_> {
    fn is_for_windows(&self) -> bool {
        self.patch.pod().os_name() == Some(Os::Windows.label())
    }
}

/// The ignored fields that a draft removes.
#[derive(Clone, Copy)]
enum Removal {
    Nothing,
    /// Those that a pod may lose if it has `spec.os.name: windows` afterwards, or not.
    Fields {
        is_for_windows: bool,
    },
}

impl<'p> MutationBuilder<'p, '_> {
    /// The pod with the active parts of placement and field removal.
    fn draft(&self, placement: bool, removal: bool) -> Draft<'p> {
        let Cx {
            subject,
            inference,
            policy,
            ..
        } = self.placement.as_written;
        let spec = subject.spec_path();
        let mut draft = self.empty();
        let is_for_windows = draft.is_for_windows();
        match inference.verdict {
            Verdict::Windows if self.is_drafted_whole() => {
                let removal = removal && self.removes_ignored_fields();
                let added: &[Path] = if placement { self.added_fields } else { &[] };
                let removes = |is_for_windows| {
                    if removal {
                        Removal::Fields { is_for_windows }
                    } else {
                        Removal::Nothing
                    }
                };
                draft = self.whole(placement, removes(true), added);
                if self.is_constrained() && !draft.is_for_windows() {
                    draft = self.whole(placement, Removal::Nothing, &[]);
                } else if removal && !draft.is_for_windows() && self.may_keep_fields() {
                    // What prevents it would be removed, except for these fields.
                    let withheld = draft.withheld;
                    draft = self.whole(placement, removes(false), added);
                    draft.withheld = withheld;
                }
            }
            // The DaemonSet controller reads placement from the template, so only fields are removed from its pods.
            Verdict::Windows if subject.kind.is_daemon_set() && removal && self.removes_ignored_fields() => {
                self.remove(&mut draft, &spec, is_for_windows);
            }
            // kubectl's own debug profiles add what the API server then rejects: always removed while placement is
            // active.
            Verdict::Windows if subject.context.editable == Editable::EphemeralContainers && placement => {
                self.remove(&mut draft, &spec.field("ephemeralContainers"), is_for_windows);
            }
            Verdict::Linux | Verdict::Unknown
                if placement && policy.linux_pods == LinuxPods::Apply && self.is_drafted_whole() =>
            {
                self.placement.linux_pod(&mut draft.patch);
            }
            _ => {}
        }
        draft
    }

    /// The pod as it is.
    fn empty(&self) -> Draft<'p> {
        Draft {
            patch: PodPatch::new(self.template, self.placement.as_written.subject.spec_path()),
            withheld: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Removes the fields below this path that the pod may lose.
    fn remove(&self, draft: &mut Draft<'p>, below: &Path, is_for_windows: bool) {
        let Cx { subject, facts, .. } = self.placement.as_written;
        let stored = StoredPod {
            profile: facts.pod_security(&subject.namespace),
            is_for_windows,
        };
        draft.kept = plan_removals(&mut draft.patch, self.findings, below, stored);
    }

    /// The whole pod with placement and field removal, and without these fields.
    fn whole(&self, placement: bool, removal: Removal, added: &[Path]) -> Draft<'p> {
        let mut draft = self.empty();
        if let Removal::Fields { is_for_windows } = removal {
            let spec = self.placement.as_written.subject.spec_path();
            self.remove(&mut draft, &spec, is_for_windows);
        }
        for field in added {
            draft.patch.remove(field);
        }
        if placement {
            draft.withheld = self.placement.windows(&mut draft.patch);
        }
        draft
    }

    /// Whether OpenShift has written its defaults into the pod. After all webhooks OpenShift checks for them again in a
    /// pod that does not say Windows, and would reject the pod if they were removed.
    fn is_constrained(&self) -> bool {
        let is_pod = self.placement.as_written.subject.kind == Kind::Pod;
        is_pod && self.template.meta.annotations.get(SCC_ANNOTATION).is_some()
    }

    /// Whether field removal in the pod, or in the pods of a template, resolves findings. Not if the API server rejects
    /// the template itself for the field, before there is a pod.
    fn removes_ignored_fields(&self) -> bool {
        let subject = self.placement.as_written.subject;
        let template = self.template;
        template.has_spec
            && (subject.kind == Kind::Pod || template.spec.os_name() != Some(Os::Windows.label()))
    }

    /// Whether a field may stay that a pod with `spec.os.name: windows` may lose.
    fn may_keep_fields(&self) -> bool {
        let mut required = self.findings.iter().map(|finding| finding.required);
        required.any(|required| matches!(required, Required::UnlessWindows { .. }))
    }

    /// Whether everything in the pod may change. Workload templates are drafted too, to see what admission of their
    /// pods will resolve. A DaemonSet's template is not: its controller uses the template as written.
    fn is_drafted_whole(&self) -> bool {
        let subject = self.placement.as_written.subject;
        let is_placed = || self.template.spec.is_bound() || subject.context.is_mirror;
        self.template.has_spec
            && match subject.kind {
                Kind::Pod => subject.context.editable == Editable::Pod && !is_placed(),
                kind => !kind.is_daemon_set(),
            }
    }
}
