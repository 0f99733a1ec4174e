//! Plans the fix of an object in a file: the object as its author would write it. Does not change texts.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::{CheckInput, Checked, Manifests, SourceLines};
use crate::engine::evaluate;
use crate::engine::manifest_edits::{placement_edits, safe_edit};
use crate::engine::policy_set::PolicySet;
use crate::model::edit::{Edit, to_json_patch};
use crate::model::facts::Facts;
use crate::model::object::{ObjectError, ReviewStage};
use crate::model::os::Verdict;
use crate::model::path::{Path, Segment};
use crate::model::policy::PlacementParts;
use crate::rules::{Finding, Rule};

/// What a fix may change.
#[derive(Clone, Debug, Default)]
pub struct FixScope {
    /// Whether to place the pods: os, nodeSelector, tolerations, build.
    pub placement: bool,
    /// Whether to fix Windows pods.
    pub windows: bool,
    /// Whether to fix Linux pods, and pods of unknown operating system.
    pub linux: bool,
    /// The IDs of the only rules whose findings may be fixed; `None` for all.
    pub rules: Option<Vec<&'static str>>,
}

impl FixScope {
    /// Whether the findings of a rule may be fixed.
    pub fn selects(&self, rule: &Rule) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.contains(&rule.id))
    }

    /// Whether objects with this verdict may be fixed. Only a rule about Windows reports an object without pods.
    pub fn covers(&self, verdict: Verdict, has_pod: bool) -> bool {
        if has_pod && matches!(verdict, Verdict::Linux | Verdict::Unknown) {
            self.linux
        } else {
            self.windows
        }
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
    /// The fields that prevented placement from setting `spec.os.name`.
    pub withheld: Vec<Path>,
}

impl Manifests {
    /// Plans the fix of an object that was checked with these facts and policies.
    ///
    /// # Errors
    /// If the object cannot be read after an edit.
    pub fn plan_fix(
        &self,
        checked: &Checked<'_>,
        facts: &Facts,
        policies: &PolicySet,
        scope: &FixScope,
    ) -> Result<PlannedFix, ObjectError> {
        /// A rule reports a limited number of findings per object, so that an object may need several rounds.
        const ROUNDS: usize = 200;
        let json = checked.document.json();
        let before: Value = serde_json::from_str(json).unwrap_or_default();
        let mut fix = PlannedFix {
            after: before.clone(),
            before,
            withheld: Vec::new(),
        };
        let mut json = Cow::Borrowed(json);
        let mut is_placed = !scope.placement;
        let suppressed: HashSet<_> = (checked.suppressed.iter())
            .map(|suppressed| suppressed.finding.identity())
            .collect();
        for _ in 0..ROUNDS {
            let subject = self.subject_of_json(&json, checked.kind, ReviewStage::Written)?;
            let mut policy = policies.in_namespace(&subject.namespace, facts);
            let evaluation = evaluate(&subject, facts, &policy);
            if !scope.covers(evaluation.inference.verdict, checked.kind.has_pod()) {
                break;
            }
            let is_meant =
                |finding: &&Finding| scope.selects(finding.rule) && !suppressed.contains(&finding.identity());
            let findings = evaluation.findings.iter().filter(is_meant);
            let mut edits: Vec<Edit> = findings
                .filter_map(|finding| safe_edit(finding, checked.kind))
                .cloned()
                .collect();
            if edits.is_empty() {
                if is_placed {
                    break;
                }
                is_placed = true;
                let parts = &mut policy.to_mut().parts;
                let of_rules = checked.suppressed.iter().map(|it| it.finding.rule.id);
                *parts = scope.parts(*parts, &of_rules.collect());
                let may_select = parts.os || evaluation.inference.verdict == Verdict::Windows;
                if may_select {
                    (edits, fix.withheld) = placement_edits(&subject, facts, &policy, &evaluation);
                }
            }
            let mut is_changed = false;
            for edit in &edits {
                is_changed |= apply(&mut fix.after, edit);
            }
            if !is_changed && is_placed {
                break;
            }
            json = Cow::Owned(fix.after.to_string());
        }
        Ok(fix)
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
    pub fn with_texts(&self, texts: &BTreeMap<String, Vec<u8>>) -> Manifests {
        let mut others = Manifests::new(true)
            .within(self.scope.clone())
            .with_pod_templates(self.configured.clone());
        others.of_policies.clone_from(&self.of_policies);
        for source in &self.sources {
            let text = texts.get(&source.name).map(Vec::as_slice);
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
