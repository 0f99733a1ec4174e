//! Plans the fix of an object in a file: the object as its author would write it. Does not change texts.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::{Checked, Manifests};
use crate::engine::manifest_edits::{placement_edits, safe_edit, taint_of};
use crate::engine::policy_set::PolicySet;
use crate::engine::{Evaluation, evaluate};
use crate::model::cluster::facts::{Facts, PodSecurity};
use crate::model::cluster::policy::{PlacementField, Policy};
use crate::model::nodes::node::Taint;
use crate::model::objects::object::{Object, ObjectError, ReviewStage};
use crate::model::syntax::edit::{Edit, to_json_patch};
use crate::model::syntax::path::{Path, Segment};
use crate::model::windows::os::{Os, Verdict};
use crate::rules::{Required, Rule, catalogue};

/// What a fix may change.
#[derive(Clone, Debug, Default)]
pub struct FixScope {
    /// Whether to place the pods: os, nodeSelector, tolerations, build.
    pub placement: bool,
    /// The IDs of the only rules whose findings may be fixed; `None` for all.
    pub rules: Option<Vec<&'static str>>,
}

impl FixScope {
    /// Whether the findings of a rule may be fixed.
    pub fn selects(&self, rule: &Rule) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.contains(&rule.id))
    }

    /// Whether an object with this evaluation may be fixed: one for Windows, or for Linux if the author states that its file is
    /// for Linux. Only a rule about Windows reports an object without pods.
    pub fn covers(evaluation: &Evaluation, checked: &Checked<'_>) -> bool {
        let is_linux = matches!(evaluation.inference.verdict, Verdict::Linux | Verdict::Unknown);
        (checked.kind.has_pod() && is_linux) == (checked.stated_os == Some(Os::Linux))
    }

    /// Whether the rules of a field of placement are selected, and it resolves no finding that the author suppresses.
    /// `suppressed` are the IDs of rules.
    fn places(&self, field: PlacementField, suppressed: &HashSet<&str>) -> bool {
        let rules: Vec<&Rule> = catalogue().filter(|rule| rule.placed_by == Some(field)).collect();
        // No rule reports that a RuntimeClass is missing.
        rules.is_empty()
            || rules.iter().any(|rule| self.selects(rule))
                && !rules.iter().any(|rule| suppressed.contains(rule.id))
    }
}

/// An object before and after its fix.
#[derive(Clone, Debug)]
pub struct PlannedFix {
    /// As written.
    pub before: Value,
    /// With every edit.
    pub after: Value,
    pub edits: Vec<PlannedEdit>,
    /// The fields that prevented placement from setting `spec.os.name`.
    pub withheld: Vec<Path>,
}

/// One edit of a fix.
#[derive(Clone, Debug)]
pub struct PlannedEdit {
    pub path: Path,
    /// The identity of the finding that it resolves, unless it places the pod.
    pub finding: Option<(&'static str, String)>,
    /// The taint that it makes the pod tolerate.
    pub taint: Option<Taint>,
    /// The reason for the edit.
    pub reason: String,
}

/// What a fix depends on, except for the object.
#[derive(Clone, Copy)]
pub struct FixRules<'f> {
    /// The facts with which the object was checked.
    pub facts: &'f Facts,
    /// The policies with which it was checked.
    pub policies: &'f PolicySet,
    /// What may be changed.
    pub scope: &'f FixScope,
}

impl Manifests {
    /// Plans the fix of an object that was checked. An edit at a JSON Pointer that `is_blocked` is not made.
    ///
    /// # Errors
    /// If the object cannot be read after an edit.
    pub fn plan_fix(
        &self,
        checked: &Checked<'_>,
        rules: FixRules<'_>,
        is_blocked: &dyn Fn(&str) -> bool,
    ) -> Result<PlannedFix, ObjectError> {
        let before: Value = serde_json::from_str(checked.document.json()).unwrap_or_default();
        let suppressed = checked.suppressed.iter();
        let suppressed: HashSet<_> = suppressed.map(|it| it.finding.identity()).collect();
        let planner = |for_windows| FixPlanner {
            manifests: self,
            checked,
            suppressed: &suppressed,
            rules,
            is_blocked,
            for_windows,
            is_placed: !rules.scope.placement,
            relies_on_windows: false,
            fix: PlannedFix {
                after: before.clone(),
                before: before.clone(),
                edits: Vec::new(),
                withheld: Vec::new(),
            },
        };
        let profile = rules.facts.pod_security(&checked.namespace);
        // Then no pod of the namespace needs these fields, also if another field prevents `spec.os.name`.
        let requires_nothing = profile == PodSecurity::Lower;
        if rules.scope.placement && profile != PodSecurity::RestrictedForAll {
            let mut planner = planner(true);
            planner.plan()?;
            let after = planner.fix.after.to_string();
            if requires_nothing || !planner.relies_on_windows || planner.read(&after)?.is_for_windows() {
                return Ok(planner.fix);
            }
        }
        let mut planner = planner(requires_nothing);
        planner.plan()?;
        Ok(planner.fix)
    }
}

/// Plans the fix of one object in rounds: the edits of its findings, then its placement.
struct FixPlanner<'p> {
    manifests: &'p Manifests,
    checked: &'p Checked<'p>,
    /// The identities of the findings that the author accepts.
    suppressed: &'p HashSet<(&'static str, String)>,
    rules: FixRules<'p>,
    is_blocked: &'p dyn Fn(&str) -> bool,
    /// Whether the pod may lose what Pod Security requires of pods without `spec.os.name: windows`.
    for_windows: bool,
    /// Whether the pod is placed already, or is not to be placed.
    is_placed: bool,
    /// Whether the pod loses what Pod Security requires of others.
    relies_on_windows: bool,
    fix: PlannedFix,
}

/// An edit, and what is reported of it.
type ExplainedEdit = (Edit, PlannedEdit);

impl FixPlanner<'_> {
    fn plan(&mut self) -> Result<(), ObjectError> {
        /// A rule reports a limited number of findings per object, so that an object may need several rounds.
        const ROUNDS: usize = 200;
        let mut json = Cow::Borrowed(self.checked.document.json());
        for _ in 0..ROUNDS {
            let object = self.read(&json)?;
            let policy = self
                .rules
                .policies
                .in_namespace(&object.namespace, self.rules.facts);
            let evaluation = evaluate(&object, self.rules.facts, &policy);
            if !FixScope::covers(&evaluation, self.checked) {
                break;
            }
            let mut edits = self.edits_of_findings(&evaluation);
            if edits.is_empty() {
                if self.is_placed {
                    break;
                }
                self.is_placed = true;
                edits = self.edits_of_placement(&object, policy.into_owned(), &evaluation);
            }
            if !self.apply(edits) && self.is_placed {
                break;
            }
            json = Cow::Owned(self.fix.after.to_string());
        }
        Ok(())
    }

    fn read<'j>(&self, json: &'j str) -> Result<Object<'j>, ObjectError> {
        let Checked { kind, stated_os, .. } = self.checked;
        (self.manifests).read_object(*kind, json, ReviewStage::Written, *stated_os)
    }

    fn edits_of_findings(&mut self, evaluation: &Evaluation) -> Vec<ExplainedEdit> {
        let mut edits = Vec::new();
        for finding in &evaluation.findings {
            let is_meant =
                self.rules.scope.selects(finding.rule) && !self.suppressed.contains(&finding.identity());
            let Some(edit) = safe_edit(finding, self.checked.kind, self.for_windows).filter(|_| is_meant)
            else {
                continue;
            };
            self.relies_on_windows |= finding.required == Required::UnlessWindows { is_windows: false };
            let planned = PlannedEdit {
                path: edit.path().clone(),
                finding: Some(finding.identity()),
                taint: None,
                reason: format!("{} {}: {}", finding.rule.id, finding.rule.name, finding.message),
            };
            edits.push((edit.clone(), planned));
        }
        self.allowed(edits)
    }

    fn edits_of_placement(
        &mut self,
        object: &Object<'_>,
        mut policy: Policy,
        evaluation: &Evaluation,
    ) -> Vec<ExplainedEdit> {
        let suppressed = self.suppressed.iter().map(|(rule, _)| *rule).collect();
        let scope = &self.rules.scope;
        (policy.placed).retain(|field| scope.places(*field, &suppressed));
        if !policy.explicit.taints {
            // An unwritten default: only known nodes need a toleration.
            policy.taints.clear();
        }
        if !policy.places(PlacementField::NodeSelector) && evaluation.inference.verdict != Verdict::Windows {
            return Vec::new();
        }
        let (placed, withheld) = placement_edits(object, self.rules.facts, &policy, evaluation);
        self.fix.withheld = withheld;
        let explain = |(edit, reason): (Edit, String)| {
            let planned = PlannedEdit {
                path: edit.path().clone(),
                finding: None,
                taint: taint_of(&edit),
                reason,
            };
            (edit, planned)
        };
        self.allowed(placed.into_iter().map(explain).collect())
    }

    /// The edits of fields that are not blocked.
    fn allowed(&self, mut edits: Vec<ExplainedEdit>) -> Vec<ExplainedEdit> {
        edits.retain(|(edit, _)| !(self.is_blocked)(edit.path().pointer().as_str()));
        edits
    }

    /// Applies edits; returns whether one of them changed the object.
    fn apply(&mut self, edits: Vec<ExplainedEdit>) -> bool {
        let known = self.fix.edits.len();
        for (edit, planned) in edits {
            if apply(&mut self.fix.after, &edit) {
                self.fix.edits.push(planned);
            }
        }
        self.fix.edits.len() > known
    }
}

/// Applies one edit, and removes a map that it empties if an empty one means nothing. Returns whether there was
/// something to do.
fn apply(object: &mut Value, edit: &Edit) -> bool {
    let before = object.clone();
    let patch = to_json_patch(std::slice::from_ref(edit));
    if json_patch::patch(object, &patch).is_err() {
        *object = before;
        return false;
    }
    if let Edit::Remove(path) = edit {
        remove_emptied(object, path);
    }
    *object != before
}

/// Removes the map that contained this field, and the maps around it, as long as they are empty.
fn remove_emptied(object: &mut Value, path: &Path) {
    const MEANINGLESS: [&str; 4] = ["annotations", "lifecycle", "nodeSelector", "securityContext"];
    let Some(parent) = path.parent() else { return };
    let is_meaningless =
        matches!(parent.segments().last(), Some(Segment::Field(name)) if MEANINGLESS.contains(name));
    let is_empty = parent
        .get(object)
        .and_then(Value::as_object)
        .is_some_and(serde_json::Map::is_empty);
    if is_meaningless && is_empty {
        let edit = Edit::Remove(parent.clone());
        // The parent was just found.
        let _ = json_patch::patch(object, &to_json_patch(&[edit]));
        remove_emptied(object, &parent);
    }
}
