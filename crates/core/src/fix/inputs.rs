//! Fixes the objects of inputs: plans, rewrites the texts, and checks the result, so that a finding is called fixed only
//! if it is gone.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use json_patch::Patch;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::refusal::RefusedField;
use super::replacement::Replacement;
use super::rewrite::{EditableText, Rewritten};

use crate::check::{
    CheckNote, CheckOutcome, Checked, FixRules, FixScope, Manifests, PlannedEdit, PlannedFix,
    SuppressedFinding, UnreadableInput,
};
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::PlacementField;
use crate::model::cluster::severity::Severity;
use crate::model::objects::object::ReviewStage;
use crate::model::syntax::path::Path;
use crate::model::syntax::report_schema::json_patch;
use crate::model::syntax::text::object_title;
use crate::rules::{Finding, Required, Resolver};

/// What a fix made of inputs.
#[derive(Debug)]
pub struct FixedInputs {
    /// The objects in which something was found, in input order.
    pub objects: Vec<FixedObject>,
    /// The inputs that changed, by name.
    pub texts: BTreeMap<String, FixedText>,
    /// What could not be read or evaluated.
    pub errors: Vec<UnreadableInput>,
    /// Notes about the inputs.
    pub notes: Vec<CheckNote>,
    /// How many findings are left because their rules are not selected.
    pub unselected: usize,
    /// The namespaces of all objects.
    pub namespaces: BTreeSet<String>,
}

/// An input that changed.
#[derive(Debug)]
pub struct FixedText {
    pub bytes: Vec<u8>,
    /// What was replaced in its old bytes, in order.
    pub replaced: Vec<Replacement>,
}

/// One object and its fix.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FixedObject {
    /// The name of the file; `-` for standard input.
    pub source: String,
    /// The line where the object begins, as read.
    pub line: usize,
    /// Its `apiVersion` as written.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty if neither the object nor an argument names one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The changes as a JSON Patch (RFC 6902): exactly the difference between the object before and after. Empty if nothing
    /// changed.
    #[schemars(schema_with = "json_patch")]
    pub patch: Patch,
    /// Why the changes could not be made; null if they were made, or if there are none.
    pub error: Option<String>,
    /// The findings that the changes resolve.
    pub fixed: Vec<FixedFinding>,
    /// The other changes: those that resolve no finding of the object as written.
    pub changes: Vec<FixedChange>,
    /// The findings that are left.
    pub remaining: Vec<RemainingFinding>,
}

/// A finding that a fix resolves.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FixedFinding {
    /// The ID of the rule.
    pub id: &'static str,
    /// The name of the rule.
    pub rule: &'static str,
    /// Its severity.
    #[serde(skip)]
    pub severity: Severity,
    /// The field, with names of items.
    pub path: String,
    /// The line of the field as read.
    pub line: usize,
    /// What the pod loses on Windows, if its field asked for it: the field had no effect there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loses: Option<&'static str>,
}

/// A change that resolves no finding of the object as written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct FixedChange {
    /// The field, with names of items.
    pub path: String,
    /// Why it is changed.
    pub reason: String,
}

/// A finding that a fix does not resolve.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RemainingFinding {
    /// The ID of the rule.
    pub id: &'static str,
    /// The name of the rule.
    pub rule: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// The field, with names of items.
    pub path: String,
    /// The line of the field as read.
    pub line: usize,
    /// Why it is left.
    pub reason: String,
}

impl RemainingFinding {
    fn of(finding: &Finding, line: usize, reason: String) -> Self {
        RemainingFinding {
            id: finding.rule.id,
            rule: finding.rule.name,
            severity: finding.severity,
            path: finding.path.named(),
            line,
            reason,
        }
    }
}

impl FixedObject {
    /// The display name: `Deployment shop/web`.
    pub fn title(&self) -> String {
        object_title(&self.kind, &self.namespace, &self.name)
    }

    /// Records that the changes were not made, if there are any: what they would have fixed is left.
    fn refuse(&mut self, reason: &str) {
        if self.patch.is_empty() {
            return;
        }
        self.patch = Patch::default();
        self.changes.clear();
        self.error = Some(reason.to_owned());
        let left = self.fixed.drain(..).map(|fixed| RemainingFinding {
            id: fixed.id,
            rule: fixed.rule,
            severity: fixed.severity,
            path: fixed.path,
            line: fixed.line,
            reason: reason.to_owned(),
        });
        self.remaining.splice(0..0, left);
    }
}

impl FixedInputs {
    /// Records that a text was not written: its objects are as they were.
    pub fn not_written(&mut self, source: &str, error: &str) {
        for object in self.objects.iter_mut().filter(|object| object.source == source) {
            object.refuse(error);
        }
        self.texts.remove(source);
    }
}

/// An object before its fix.
struct Before<'d> {
    checked: Checked<'d>,
    object: FixedObject,
    /// Whether it may be fixed.
    is_meant: bool,
    plan: Option<PlannedFix>,
    /// The fields whose text cannot be changed.
    blocked: Vec<RefusedField>,
}

impl Before<'_> {
    /// Plans the changes, without those of fields that cannot be changed.
    fn plan(&mut self, manifests: &Manifests, rules: FixRules<'_>) {
        if !self.is_meant {
            return;
        }
        let is_blocked = |pointer: &str| self.blocked.iter().any(|field| field.is_touched_by(pointer));
        (self.plan, self.object.error) = match manifests.plan_fix(&self.checked, rules, &is_blocked) {
            Ok(plan) => (Some(plan), None),
            Err(error) => (None, Some(format!("the fixed object cannot be read: {error}"))),
        };
    }

    /// The object with its changes, if there are any.
    fn after(&self) -> Option<&Value> {
        let plan = self.plan.as_ref().filter(|_| self.object.error.is_none())?;
        (plan.before != plan.after).then_some(&plan.after)
    }

    /// Why a finding is left.
    fn reason_left(&self, finding: &Finding, scope: &FixScope) -> String {
        let edited = finding.edit.as_ref().map_or(&finding.path, |edit| edit.path());
        let pointer = edited.pointer();
        let mut blocked = self.blocked.iter();
        let blocked = blocked.find(|field| field.is_touched_by(pointer.as_str()));
        let refused = self.object.error.as_ref().or_else(|| Some(&blocked?.reason));
        if let Some(reason) = refused {
            return reason.clone();
        }
        let withheld = self.plan.as_ref().map_or(&[][..], |plan| &plan.withheld);
        let remedy = &finding.remedy;
        let placed_by = finding.rule.placed_by;
        let by_admission = finding.resolved_by == Some(Resolver::Placement);
        if let Some(field) = placed_by
            && !scope.placement
        {
            match field {
                PlacementField::WindowsBuild | PlacementField::Tolerations => {
                    "--placement adds it if one value is certain".to_owned()
                }
                _ => "--placement adds it".to_owned(),
            }
        } else if placed_by == Some(PlacementField::OsName) && !withheld.is_empty() {
            let fields: Vec<String> = withheld.iter().map(Path::named).collect();
            let fields = fields.join(", ");
            format!("the API server would then reject {fields}; remove that first")
        } else if placed_by.is_some() && by_admission {
            format!(
                "no value is certain for the file, and placement adds it to the pods in admission; or {remedy}"
            )
        } else if placed_by.is_some() {
            format!("no value is certain; {remedy}")
        } else if finding.required == (Required::UnlessWindows { is_windows: false }) {
            let placement = if scope.placement {
                ""
            } else {
                ", which --placement adds"
            };
            format!("Pod Security may require it without spec.os.name: windows{placement}")
        } else if finding.required == Required::ByOthers {
            "Pod Security may require it of a pod without runAsNonRoot: true; set that first, and remove runAsUser \
             and procMount"
                .to_owned()
        } else if finding.edit.is_some() {
            format!("it may be intended; {remedy}")
        } else {
            format!("it needs a decision; {remedy}")
        }
    }
}

/// Fixes the objects that `selects` accepts. `facts` are those of the arguments: the inputs add theirs.
pub fn fix(
    manifests: &Manifests,
    facts: &Facts,
    policies: &PolicySet,
    scope: &FixScope,
    selects: impl Fn(&Checked<'_>) -> bool,
) -> FixedInputs {
    let written = manifests.objects(ReviewStage::Written);
    let mut known = facts.clone();
    written.learn(&mut known, policies);
    let namespaces = written.namespaces();
    let rules = FixRules {
        facts: &known,
        policies,
        scope,
    };
    let mut objects: Vec<Before<'_>> = Vec::new();
    let CheckOutcome { errors, notes } = written.run(&known, policies, |checked| {
        let is_selected = selects(&checked);
        let mut object = before(checked, is_selected);
        object.plan(manifests, rules);
        objects.push(object);
    });
    let texts = rewrite_texts(manifests, &mut objects, rules);
    let after = findings_after(manifests, &texts, facts, policies);
    let mut after = after.into_iter();
    let (mut fixed, mut unselected) = (Vec::new(), 0);
    for before in objects {
        let after = after.next();
        unselected += unselected_findings(&before, after.as_deref(), scope);
        if let Some(object) = compare(&before, after.as_deref(), scope) {
            fixed.push(object);
        }
    }
    FixedInputs {
        objects: fixed,
        unselected,
        texts,
        errors,
        notes,
        namespaces,
    }
}

/// Writes the planned changes into the texts.
fn rewrite_texts(
    manifests: &Manifests,
    objects: &mut [Before<'_>],
    rules: FixRules<'_>,
) -> BTreeMap<String, FixedText> {
    let written = manifests.texts();
    let mut of_sources: BTreeMap<String, Vec<&mut Before<'_>>> = BTreeMap::new();
    for before in objects.iter_mut().filter(|before| before.after().is_some()) {
        let source = before.object.source.clone();
        of_sources.entry(source).or_default().push(before);
    }
    let mut texts = BTreeMap::new();
    for (source, mut objects) in of_sources {
        let bytes = written.get(source.as_str()).copied().unwrap_or_default();
        let plan = |before: &mut Before<'_>| before.plan(manifests, rules);
        if let Some(text) = rewrite_text(bytes, &mut objects, plan) {
            texts.insert(source, text);
        }
    }
    texts
}

/// Writes the planned changes of objects into their text. If a field of an object cannot be changed, `plan` plans the object
/// again without it. `None` if nothing changes.
fn rewrite_text(
    bytes: &[u8],
    objects: &mut [&mut Before<'_>],
    plan: impl Fn(&mut Before<'_>),
) -> Option<FixedText> {
    /// How often a text is written. A merge key can show one field after the other.
    const ROUNDS: usize = 8;
    let text = EditableText::read(bytes);
    for round in 1..=ROUNDS {
        let changes = objects.iter();
        let changes =
            changes.filter_map(|before| Some((before.checked.document.start(), before.after()?.clone())));
        let mut rewritten = text.rewrite(&changes.collect());
        let mut is_planned_again = false;
        for before in objects.iter_mut() {
            match rewritten.refused.remove(&before.checked.document.start()) {
                Some(refusal) if refusal.fields.is_empty() || round == ROUNDS => {
                    before.object.error = Some(refusal.reason);
                }
                Some(refusal) => {
                    before.blocked.extend(refusal.fields);
                    plan(before);
                    is_planned_again = true;
                }
                None => {}
            }
        }
        if !is_planned_again {
            let Rewritten {
                bytes: new, replaced, ..
            } = rewritten;
            return (new != bytes).then_some(FixedText { bytes: new, replaced });
        }
    }
    None
}

/// The findings of every object after the fix; empty if nothing changed.
fn findings_after(
    manifests: &Manifests,
    texts: &BTreeMap<String, FixedText>,
    facts: &Facts,
    policies: &PolicySet,
) -> Vec<Vec<Finding>> {
    let mut after = Vec::new();
    if texts.is_empty() {
        return after;
    }
    let texts = texts
        .iter()
        .map(|(name, text)| (name.as_str(), text.bytes.as_slice()));
    let manifests = manifests.with_texts(&texts.collect());
    let edited = manifests.objects(ReviewStage::Written);
    let mut known = facts.clone();
    edited.learn(&mut known, policies);
    let _ = edited.check(&known, policies, |checked| {
        after.push(checked.evaluation.findings);
    });
    after
}

fn before(checked: Checked<'_>, is_selected: bool) -> Before<'_> {
    let object = FixedObject {
        source: checked.source.to_owned(),
        line: checked.document.start().line,
        api_version: checked.api_version.to_owned(),
        kind: checked.kind.to_string(),
        namespace: checked.namespace.clone(),
        name: checked.name.clone(),
        ..FixedObject::default()
    };
    Before {
        is_meant: is_selected && FixScope::covers(&checked.evaluation, &checked),
        checked,
        object,
        plan: None,
        blocked: Vec::new(),
    }
}

/// Whether a finding is left. `after`: the findings of its object after the fix, if its text changed.
fn is_left(finding: &Finding, after: Option<&[Finding]>) -> bool {
    after.is_none_or(|after| after.iter().any(|left| left.identity() == finding.identity()))
}

/// How many findings of an object are left because their rules are not selected.
fn unselected_findings(before: &Before<'_>, after: Option<&[Finding]>, scope: &FixScope) -> usize {
    let findings = before.checked.findings().filter(|_| before.is_meant);
    let unselected = findings.filter(|(finding, _)| !scope.selects(finding.rule) && is_left(finding, after));
    unselected.count()
}

/// The result for one object; `None` if nothing was found in it.
fn compare(before: &Before<'_>, after: Option<&[Finding]>, scope: &FixScope) -> Option<FixedObject> {
    if !before.is_meant {
        return None;
    }
    let mut object = before.object.clone();
    let mut edits = Vec::new();
    if let (Some(plan), None) = (&before.plan, &object.error) {
        object.patch = json_patch::diff(&plan.before, &plan.after);
        edits.clone_from(&plan.edits);
    }
    let remaining: Option<HashSet<_>> = after.map(|after| after.iter().map(Finding::identity).collect());
    for (finding, detail) in before.checked.findings() {
        let line = detail.position.line;
        let is_left = |left: &HashSet<_>| left.contains(&finding.identity());
        if remaining.as_ref().is_some_and(|left| !is_left(left)) {
            edits.retain(|edit| !explains(finding, edit));
            object.fixed.push(FixedFinding {
                id: finding.rule.id,
                rule: finding.rule.name,
                severity: finding.severity,
                path: finding.path.named(),
                line,
                loses: finding.lost_on_windows(),
            });
        } else if scope.selects(finding.rule) {
            let reason = before.reason_left(finding, scope);
            object.remaining.push(RemainingFinding::of(finding, line, reason));
        }
    }
    let others = edits.into_iter().map(|edit| FixedChange {
        path: edit.path.named(),
        reason: edit.reason,
    });
    object.changes = others.collect();
    for SuppressedFinding {
        finding,
        position,
        place,
        ..
    } in &before.checked.suppressed
    {
        let reason = format!("suppressed by {place}");
        let left = RemainingFinding::of(finding, position.line, reason);
        object.remaining.push(left);
    }
    let is_empty = object.fixed.is_empty() && object.remaining.is_empty() && object.patch.is_empty();
    (!is_empty || object.error.is_some()).then_some(object)
}

/// Whether a finding that is gone is the reason of an edit.
fn explains(finding: &Finding, edit: &PlannedEdit) -> bool {
    match &edit.finding {
        Some(identity) => finding.identity() == *identity,
        // Several tolerations have one path.
        None if edit.taint.is_some() => finding.taint == edit.taint,
        None => {
            let is_related = finding.path.starts_with(&edit.path) || edit.path.starts_with(&finding.path);
            finding.rule.placed_by.is_some() && is_related
        }
    }
}
