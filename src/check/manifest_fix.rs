//! Plans the fix of an object in a file: the object as its author would write it. Does not change texts.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::{CheckInput, Checked, Manifests, SourceLines};
use crate::engine::evaluate;
use crate::engine::manifest_edits::{placement_edits, safe_edit, taint_of};
use crate::engine::policy_set::PolicySet;
use crate::manifest::Document;
use crate::model::edit::{Edit, to_json_patch};
use crate::model::facts::{Facts, PodSecurity};
use crate::model::node::Taint;
use crate::model::object::{ObjectError, ReviewStage};
use crate::model::os::{Os, Verdict};
use crate::model::path::{Path, Segment};
use crate::model::policy::PlacementParts;
use crate::model::workload::Kind;
use crate::rules::{Finding, Required, Rule};

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

    /// Whether an object may be fixed: one for Windows, or for Linux if the author states that its file is for Linux. Only
    /// a rule about Windows reports an object without pods.
    pub fn covers(verdict: Verdict, has_pod: bool, stated: Option<Os>) -> bool {
        let is_for_linux = has_pod && matches!(verdict, Verdict::Linux | Verdict::Unknown);
        is_for_linux == (stated == Some(Os::Linux))
    }

    /// The parts of placement whose rules are selected, and which resolve no finding that the author suppresses.
    /// `suppressed` are the IDs of rules.
    fn parts(&self, of_policy: PlacementParts, suppressed: &HashSet<&str>) -> PlacementParts {
        let any = |names: &[&str]| {
            let rules = || crate::rules::catalogue().filter(|rule| names.contains(&rule.name));
            rules().any(|rule| self.selects(rule)) && !rules().any(|rule| suppressed.contains(rule.id))
        };
        PlacementParts {
            os: of_policy.os && any(&SELECTOR_RULES),
            build: of_policy.build && any(&["missing-build-selector"]),
            tolerations: of_policy.tolerations && any(&["missing-windows-toleration"]),
            os_field: of_policy.os_field && any(&["os-name-missing"]),
            ..of_policy
        }
    }

    /// Whether placement can resolve findings of this rule.
    pub fn is_of_placement(rule: &Rule) -> bool {
        const OTHERS: [&str; 3] = [
            "missing-build-selector",
            "missing-windows-toleration",
            "os-name-missing",
        ];
        SELECTOR_RULES.contains(&rule.name) || OTHERS.contains(&rule.name)
    }
}

/// The rules about the nodeSelector for the operating system.
const SELECTOR_RULES: [&str; 3] = [
    "missing-os-selector",
    "daemonset-template-unselective",
    "linux-pod-tolerates-windows",
];

/// An object before and after its fix.
#[derive(Clone, Debug)]
pub struct PlannedFix {
    /// As written.
    pub before: Value,
    /// With every edit.
    pub after: Value,
    /// The edits.
    pub edits: Vec<PlannedEdit>,
    /// The fields that prevented placement from setting `spec.os.name`.
    pub withheld: Vec<Path>,
}

/// One edit of a fix.
#[derive(Clone, Debug)]
pub struct PlannedEdit {
    /// The field.
    pub path: Path,
    /// The identity of the finding that it resolves, unless it places the pod.
    pub finding: Option<(&'static str, String)>,
    /// The taint that it makes the pod tolerate.
    pub taint: Option<Taint>,
    /// Why it is made.
    pub reason: String,
}

/// An object to fix.
#[derive(Clone, Debug)]
pub struct FixTarget {
    document: Document,
    kind: Kind,
    namespace: String,
    /// The operating system that the author states for its input.
    stated_os: Option<Os>,
    /// The identities of the findings that the author accepts.
    suppressed: HashSet<(&'static str, String)>,
}

impl FixTarget {
    /// An object that was checked.
    pub fn of(checked: &Checked<'_>) -> Self {
        let suppressed = checked.suppressed.iter();
        FixTarget {
            document: checked.document.clone(),
            kind: checked.kind,
            stated_os: checked.stated_os,
            namespace: checked.namespace.clone(),
            suppressed: suppressed.map(|it| it.finding.identity()).collect(),
        }
    }
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
    /// Plans the fix of an object. An edit at a JSON Pointer that `is_blocked` is not made.
    ///
    /// # Errors
    /// If the object cannot be read after an edit.
    pub fn plan_fix(
        &self,
        target: &FixTarget,
        rules: FixRules<'_>,
        is_blocked: &dyn Fn(&str) -> bool,
    ) -> Result<PlannedFix, ObjectError> {
        let profile = rules.facts.pod_security(&target.namespace);
        if rules.scope.placement && profile != PodSecurity::RestrictedForAll {
            let (fix, relies_on_it) = self.plan_fix_for(true, target, rules, is_blocked)?;
            if !relies_on_it {
                return Ok(fix);
            }
            let after = fix.after.to_string();
            let subject =
                self.subject_of_json(&after, target.kind, ReviewStage::Written, target.stated_os)?;
            if subject.is_for_windows() {
                return Ok(fix);
            }
        }
        Ok(self.plan_fix_for(false, target, rules, is_blocked)?.0)
    }

    /// Plans the fix. `for_windows`: whether the pod may lose what Pod Security requires of pods without
    /// `spec.os.name: windows`. Returns also whether it loses any of that.
    fn plan_fix_for(
        &self,
        for_windows: bool,
        target: &FixTarget,
        FixRules {
            facts,
            policies,
            scope,
        }: FixRules<'_>,
        is_blocked: &dyn Fn(&str) -> bool,
    ) -> Result<(PlannedFix, bool), ObjectError> {
        /// A rule reports a limited number of findings per object, so that an object may need several rounds.
        const ROUNDS: usize = 200;
        let json = target.document.json();
        let before: Value = serde_json::from_str(json).unwrap_or_default();
        let mut fix = PlannedFix {
            after: before.clone(),
            before,
            edits: Vec::new(),
            withheld: Vec::new(),
        };
        let mut json = Cow::Borrowed(json);
        let mut is_placed = !scope.placement;
        let mut relies_on_windows = false;
        for _ in 0..ROUNDS {
            let subject = self.subject_of_json(&json, target.kind, ReviewStage::Written, target.stated_os)?;
            let mut policy = policies.in_namespace(&subject.namespace, facts);
            let evaluation = evaluate(&subject, facts, &policy);
            if !FixScope::covers(
                evaluation.inference.verdict,
                target.kind.has_pod(),
                target.stated_os,
            ) {
                break;
            }
            let is_meant = |finding: &&Finding| {
                scope.selects(finding.rule) && !target.suppressed.contains(&finding.identity())
            };
            let mut edits: Vec<(Edit, PlannedEdit)> = Vec::new();
            for finding in evaluation.findings.iter().filter(is_meant) {
                let Some(edit) = safe_edit(finding, target.kind, for_windows) else {
                    continue;
                };
                relies_on_windows |= finding.required == Required::UnlessWindows { is_windows: false };
                let planned = PlannedEdit {
                    path: edit.path().clone(),
                    finding: Some(finding.identity()),
                    taint: None,
                    reason: format!("{} {}: {}", finding.rule.id, finding.rule.name, finding.message),
                };
                edits.push((edit.clone(), planned));
            }
            edits.retain(|(edit, _)| !is_blocked(edit.path().pointer().as_str()));
            if edits.is_empty() {
                if is_placed {
                    break;
                }
                is_placed = true;
                let policy = policy.to_mut();
                let of_rules = target.suppressed.iter().map(|(rule, _)| *rule);
                policy.parts = scope.parts(policy.parts, &of_rules.collect());
                if !policy.explicit.taints {
                    // A default that nobody wrote: only known nodes need a toleration.
                    policy.taints.clear();
                }
                let may_select = policy.parts.os || evaluation.inference.verdict == Verdict::Windows;
                if may_select {
                    let (placed, withheld) = placement_edits(&subject, facts, policy, &evaluation);
                    fix.withheld = withheld;
                    edits = placed
                        .into_iter()
                        .map(|(edit, reason)| {
                            let planned = PlannedEdit {
                                path: edit.path().clone(),
                                finding: None,
                                taint: taint_of(&edit),
                                reason,
                            };
                            (edit, planned)
                        })
                        .collect();
                    edits.retain(|(edit, _)| !is_blocked(edit.path().pointer().as_str()));
                }
            }
            let mut is_changed = false;
            for (edit, planned) in edits {
                if apply(&mut fix.after, &edit) {
                    is_changed = true;
                    fix.edits.push(planned);
                }
            }
            if !is_changed && is_placed {
                break;
            }
            json = Cow::Owned(fix.after.to_string());
        }
        Ok((fix, relies_on_windows))
    }

    /// The name and the bytes of every input; of several inputs with one name the last one.
    pub fn texts(&self) -> BTreeMap<&str, &[u8]> {
        let texts = self.sources.iter();
        texts
            .filter_map(|source| Some((source.name.as_str(), source.text.as_ref()?.bytes())))
            .collect()
    }

    /// The same inputs, some of them with other texts.
    #[must_use]
    pub fn with_texts(&self, texts: &BTreeMap<&str, &[u8]>) -> Manifests {
        let mut others = Manifests::new(true)
            .within(self.scope.clone())
            .with_pod_templates(self.configured.clone());
        others.of_policies.clone_from(&self.of_policies);
        for source in &self.sources {
            let text = texts.get(source.name.as_str()).copied();
            let text = text.or_else(|| source.text.as_ref().map(SourceLines::bytes));
            let input = CheckInput {
                source: source.name.clone(),
                bytes: text.unwrap_or_default().to_vec(),
            };
            others.add_as(source.role, input);
        }
        others
    }
}

/// The object with one edit; `None` if there is nothing to change.
pub fn with_edit(object: &Value, edit: &Edit) -> Option<Value> {
    let mut edited = object.clone();
    apply(&mut edited, edit).then_some(edited)
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
