//! Fixes the objects of inputs: plans, rewrites the texts, and checks the result, so that a finding is called fixed only
//! if it is gone.

use std::collections::{BTreeMap, HashMap, HashSet};

use json_patch::Patch;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::rewrite::rewrite;
use super::text_edit::{RefusedField, Replacement};
use crate::check::{CheckNote, CheckOutcome, UnreadableInput};
use crate::check::{Checked, FixRules, FixScope, FixTarget, Manifests, PlannedEdit, PlannedFix};
use crate::engine::policy_set::PolicySet;
use crate::manifest::Position;
use crate::model::facts::Facts;
use crate::model::object::ReviewStage;
use crate::model::path::Path;
use crate::model::report_schema::json_patch;
use crate::model::resources::MetaOnly;
use crate::model::severity::Severity;
use crate::rules::{Finding, Required};

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
}

/// An input that changed.
#[derive(Debug)]
pub struct FixedText {
    /// Its new bytes.
    pub bytes: Vec<u8>,
    /// What was replaced in its old bytes, in order.
    pub replaced: Vec<Replacement>,
}

/// One object and its fix.
#[derive(Clone, Debug, Serialize, JsonSchema)]
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
    /// Whether the object names its namespace itself.
    #[serde(skip)]
    pub names_namespace: bool,
    /// The changes as a JSON Patch (RFC 6902): exactly the difference between the object before and after. Empty if nothing
    /// changed.
    #[schemars(schema_with = "json_patch")]
    pub patch: Patch,
    /// Why the changes could not be made; null if they were made, or if there are none.
    pub error: Option<String>,
    /// Why Kustomize cannot apply the patch to this object, and to no other one.
    #[serde(skip)]
    pub unpatchable: Option<&'static str>,
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

impl FixedObject {
    /// The display name: `Deployment shop/web`.
    pub fn title(&self) -> String {
        if self.namespace.is_empty() {
            format!("{} {}", self.kind, self.name)
        } else {
            format!("{} {}/{}", self.kind, self.namespace, self.name)
        }
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

    /// Records that only patches for Kustomize are written: an object that none can select is as it was.
    pub fn only_patches(&mut self) {
        for object in &mut self.objects {
            if let Some(reason) = object.unpatchable {
                object.refuse(&format!("no patch: {reason}"));
            }
        }
    }
}

/// Whether the target of a Kustomize patch for `object` also selects `other`: a target without a namespace selects all.
fn selects(object: &FixedObject, other: &FixedObject) -> bool {
    let namespace = |object: &FixedObject| object.names_namespace.then(|| object.namespace.clone());
    namespace(object).is_none_or(|of| namespace(other) == Some(of))
}

/// Records the objects that a Kustomize patch cannot select.
fn find_unpatchable(objects: &mut [Before]) {
    let mut same: HashMap<[String; 3], Vec<usize>> = HashMap::new();
    for (index, Before { object, .. }) in objects.iter().enumerate() {
        let key = [&object.api_version, &object.kind, &object.name].map(String::clone);
        same.entry(key).or_default().push(index);
    }
    let unnamed = objects.iter().enumerate().filter(|(_, before)| !before.is_named);
    let mut reasons: Vec<(usize, &'static str)> = unnamed
        .map(|(index, _)| {
            (
                index,
                "it has no name (generateName), and Kustomize selects objects by name",
            )
        })
        .collect();
    for indexes in same.values().filter(|indexes| indexes.len() > 1) {
        for index in indexes {
            let mut others = indexes.iter().filter(|other| *other != index);
            let is_ambiguous = others.any(|other| match (objects.get(*index), objects.get(*other)) {
                (Some(one), Some(other)) => selects(&one.object, &other.object),
                _ => false,
            });
            if is_ambiguous {
                reasons.push((
                    *index,
                    "another object has the same kind and name, and the patch would select both",
                ));
            }
        }
    }
    for (index, reason) in reasons {
        if let Some(before) = objects.get_mut(index) {
            before.object.unpatchable.get_or_insert(reason);
        }
    }
}

/// An object before its fix.
struct Before {
    object: FixedObject,
    position: Position,
    findings: Vec<(Finding, usize)>,
    /// Findings that the author accepts, each with the place of the suppression.
    suppressed: Vec<(Finding, usize, String)>,
    /// What is fixed, if anything may be.
    target: Option<FixTarget>,
    plan: Option<PlannedFix>,
    /// The fields whose text cannot be changed.
    blocked: Vec<RefusedField>,
    is_named: bool,
}

impl Before {
    /// Plans the changes, without those of fields that cannot be changed.
    fn plan(&mut self, manifests: &Manifests, rules: FixRules<'_>) {
        let Some(target) = &self.target else { return };
        let is_blocked = |pointer: &str| self.blocked.iter().any(|field| field.is_touched_by(pointer));
        (self.plan, self.object.error) = match manifests.plan_fix(target, rules, &is_blocked) {
            Ok(plan) => (Some(plan), None),
            Err(error) => (None, Some(format!("the fixed object cannot be read: {error}"))),
        };
    }

    /// The object with its changes, if there are any.
    fn after(&self) -> Option<&Value> {
        let plan = self.plan.as_ref().filter(|_| self.object.error.is_none())?;
        (plan.before != plan.after).then_some(&plan.after)
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
    let mut known = facts.clone();
    manifests.learn(&mut known, policies);
    let rules = FixRules {
        facts: &known,
        policies,
        scope,
    };
    let mut objects: Vec<Before> = Vec::new();
    let check = |checked: Checked<'_>| {
        let is_selected = selects(&checked);
        let mut object = before(&checked, is_selected);
        object.plan(manifests, rules);
        objects.push(object);
    };
    let CheckOutcome { errors, notes } = manifests.run(&known, policies, ReviewStage::Written, check);
    find_unpatchable(&mut objects);
    let texts = rewrite_texts(manifests, &mut objects, rules);
    let after = findings_after(manifests, &texts, facts, policies);
    let mut after = after.into_iter();
    let mut fixed = Vec::new();
    for before in objects {
        let after = after.next();
        if let Some(object) = compare(before, after.as_deref(), scope) {
            fixed.push(object);
        }
    }
    FixedInputs {
        objects: fixed,
        texts,
        errors,
        notes,
    }
}

/// Writes the planned changes into the texts. If a field of an object cannot be changed, the object is planned again without
/// it.
fn rewrite_texts(
    manifests: &Manifests,
    objects: &mut [Before],
    rules: FixRules<'_>,
) -> BTreeMap<String, FixedText> {
    /// How often a text is written. A merge key can show one field after the other.
    const ROUNDS: usize = 8;
    let written = manifests.texts();
    let mut of_sources: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, before) in objects
        .iter()
        .enumerate()
        .filter(|(_, before)| before.after().is_some())
    {
        of_sources
            .entry(before.object.source.clone())
            .or_default()
            .push(index);
    }
    let mut texts = BTreeMap::new();
    for (source, indexes) in of_sources {
        let bytes = written.get(source.as_str()).copied().unwrap_or_default();
        for round in 1..=ROUNDS {
            let of_source = indexes.iter().filter_map(|index| objects.get(*index));
            let changes: BTreeMap<Position, Value> = of_source
                .filter_map(|before| Some((before.position, before.after()?.clone())))
                .collect();
            let mut rewritten = rewrite(bytes, &changes);
            let mut is_planned_again = false;
            for index in &indexes {
                let Some(before) = objects.get_mut(*index) else {
                    continue;
                };
                let Some(refusal) = rewritten.refused.remove(&before.position) else {
                    continue;
                };
                if refusal.fields.is_empty() || round == ROUNDS {
                    before.object.error = Some(refusal.reason);
                } else {
                    before.blocked.extend(refusal.fields);
                    before.plan(manifests, rules);
                    is_planned_again = true;
                }
            }
            if is_planned_again {
                continue;
            }
            if rewritten.bytes != bytes {
                let text = FixedText {
                    bytes: rewritten.bytes,
                    replaced: rewritten.replaced,
                };
                texts.insert(source, text);
            }
            break;
        }
    }
    texts
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
    let mut known = facts.clone();
    manifests.learn(&mut known, policies);
    let _ = manifests.check(&known, policies, ReviewStage::Written, |checked| {
        after.push(checked.evaluation.findings);
    });
    after
}

fn before(checked: &Checked<'_>, is_selected: bool) -> Before {
    let evaluation = &checked.evaluation;
    let is_meant = is_selected
        && FixScope::covers(
            evaluation.inference.verdict,
            checked.kind.has_pod(),
            checked.stated_os,
        );
    let mut places = checked.places();
    let findings = evaluation.findings.iter();
    let metadata = serde_json::from_str::<MetaOnly<'_>>(checked.document.json()).unwrap_or_default();
    let metadata = metadata.metadata;
    Before {
        object: FixedObject {
            source: checked.source.to_owned(),
            line: checked.document.start().line,
            api_version: checked.api_version.clone(),
            kind: checked.kind.to_string(),
            namespace: checked.namespace.clone(),
            name: checked.name.clone(),
            names_namespace: !metadata.namespace.is_empty(),
            unpatchable: None,
            patch: Patch::default(),
            error: None,
            fixed: Vec::new(),
            changes: Vec::new(),
            remaining: Vec::new(),
        },
        position: checked.document.start(),
        suppressed: (checked.suppressed.iter().filter(|_| is_meant))
            .map(|it| {
                let line = places.of(&it.finding.path).line;
                (it.finding.clone(), line, it.place.clone())
            })
            .collect(),
        findings: if is_meant {
            findings
                .map(|finding| (finding.clone(), places.of(&finding.path).line))
                .collect()
        } else {
            Vec::new()
        },
        target: is_meant.then(|| FixTarget::of(checked)),
        plan: None,
        blocked: Vec::new(),
        is_named: !metadata.name.is_empty(),
    }
}

/// The result for one object; `None` if nothing was found in it.
fn compare(before: Before, after: Option<&[Finding]>, scope: &FixScope) -> Option<FixedObject> {
    let Before {
        mut object,
        findings,
        suppressed,
        target,
        plan,
        blocked,
        ..
    } = before;
    target?;
    let withheld = plan
        .as_ref()
        .map(|plan| plan.withheld.clone())
        .unwrap_or_default();
    let mut edits = Vec::new();
    if let (Some(plan), None) = (plan, &object.error) {
        object.patch = json_patch::diff(&plan.before, &plan.after);
        edits = plan.edits;
    }
    let remaining: Option<HashSet<_>> = after.map(|after| after.iter().map(Finding::identity).collect());
    for (finding, line) in findings {
        let (id, rule) = (finding.rule.id, finding.rule.name);
        let path = finding.path.named();
        let is_fixed = remaining
            .as_ref()
            .is_some_and(|left| !left.contains(&finding.identity()));
        if is_fixed {
            let severity = finding.severity;
            edits.retain(|edit| !explains(&finding, edit));
            object.fixed.push(FixedFinding {
                id,
                rule,
                severity,
                path,
                line,
            });
        } else if scope.selects(finding.rule) {
            let refused = object.error.as_deref().or_else(|| {
                let pointer = finding
                    .edit
                    .as_ref()
                    .map_or(&finding.path, |edit| edit.path())
                    .pointer();
                let field = blocked.iter().find(|field| field.is_touched_by(pointer.as_str()));
                field.map(|field| field.reason.as_str())
            });
            let reason = reason(&finding, refused, &withheld, scope);
            let severity = finding.severity;
            object.remaining.push(RemainingFinding {
                id,
                rule,
                severity,
                path,
                line,
                reason,
            });
        }
    }
    let others = edits.into_iter().map(|edit| FixedChange {
        path: edit.path.named(),
        reason: edit.reason,
    });
    object.changes = others.collect();
    for (finding, line, place) in suppressed {
        object.remaining.push(RemainingFinding {
            id: finding.rule.id,
            rule: finding.rule.name,
            severity: finding.severity,
            path: finding.path.named(),
            line,
            reason: format!("suppressed by {place}"),
        });
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
            FixScope::is_of_placement(finding.rule) && is_related
        }
    }
}

/// Why a finding is left.
fn reason(finding: &Finding, refused: Option<&str>, withheld: &[Path], scope: &FixScope) -> String {
    let remedy = &finding.remedy;
    let is_of_placement = FixScope::is_of_placement(finding.rule);
    match refused {
        Some(reason) => reason.to_owned(),
        None if is_of_placement && !scope.placement => "--placement adds it".to_owned(),
        None if finding.rule.name == "os-name-missing" && !withheld.is_empty() => {
            let fields: Vec<String> = withheld.iter().map(Path::named).collect();
            format!(
                "the API server would then reject {}; remove that first",
                fields.join(", ")
            )
        }
        None if is_of_placement => format!("no value is certain; {remedy}"),
        None if finding.required == (Required::UnlessWindows { is_windows: false }) => {
            let placement = if scope.placement { "" } else { ", which --placement adds" };
            format!("Pod Security may require it without spec.os.name: windows{placement}")
        }
        None if finding.required == Required::ByOthers => {
            "Pod Security may require it of a pod without runAsNonRoot: true; set that first, and remove runAsUser \
             and procMount"
                .to_owned()
        }
        None if finding.edit.is_some() => format!("it may be intended; {remedy}"),
        None => format!("it needs a decision; {remedy}"),
    }
}
