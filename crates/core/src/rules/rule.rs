//! The definition of a rule: its data, one check, and the findings that the check reports. The modules of the families
//! contain the rules themselves.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::Serialize;

use super::asks_for_nothing::{AsksForNothing, Pods};
use super::context::{Cx, PodCx};
use crate::model::cluster::facts::Runtime;
use crate::model::cluster::policy::{Action, PlacementField, RulesVersion};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::nodes::node::Taint;
use crate::model::objects::object::ReviewStage;
use crate::model::objects::pod::PodSpec;
use crate::model::objects::workload::Kind;
use crate::model::syntax::edit::Edit;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::{cut, is_one_line, one_line};
use crate::model::windows::os::{Os, Verdict};

/// One entry of the catalogue: the only source of every text about the rule.
///
/// `bad` and `good` are the rule's tests, and what `transom explain` shows. An example is either whole manifests (it
/// has a `kind`), or a part of a pod spec that is merged into [`examples::BASE`](crate::rules::examples), a plain
/// Windows pod. Its first line may contain options of `transom check`: `# --kubernetes-version 1.9 --runtime docker`. A
/// line `# image app:1: linux/amd64, windows/amd64 10.0.20348.1 user=ContainerUser volume=c:\\data base=2025-12-09` states what a registry
/// lists; `none` that it does not have the image.
#[allow(clippy::struct_excessive_bools)] // independent properties of a rule
pub struct Rule {
    /// The stable ID: `TSM` and three digits, hundreds by family; never reused for another rule.
    pub id: &'static str,
    /// The name: public, in every output.
    pub name: &'static str,
    /// The highest severity of a finding of this rule.
    pub severity: Severity,
    /// Its severities if some cases differ, such as `advice; warning when …`; else empty.
    pub severities: &'static str,
    /// Which component rejects or fails, and when.
    pub class: Class,
    /// The minor releases of Kubernetes that the rule applies to.
    pub kubernetes: RangeInclusive<u32>,
    /// The Windows builds that the rule applies to.
    pub builds: Builds,
    /// The container runtime that the rule applies to, if only one.
    pub runtime: Option<Runtime>,
    /// The verdicts that the rule applies to.
    pub verdicts: &'static [Verdict],
    /// Whether the rule applies only to objects as they will be stored, after every mutating webhook.
    pub stored_only: bool,
    /// The version in which it appeared. A change that finds more needs a new rule.
    pub since: RulesVersion,
    /// The values of its field that request nothing which Windows lacks: their findings are no errors, unless the API
    /// server rejects the field.
    pub asks_for_nothing: &'static [AsksForNothing],
    /// What the pod does not have if Windows ignores another value of the field: lower case, no full stop. Empty if
    /// the rule reports no ignored field as an error.
    pub loses: &'static str,
    /// Whether findings of an ignored field follow the policy's `ignoredFields`. Not of `hostNetwork`: without the
    /// node's network, other programs do not find the pod where its author expects it.
    pub tolerable: bool,
    /// Whether Windows ignores the field, so that Transom may remove it from pods.
    pub removable: bool,
    /// Whether Pod Security's restricted profile requires the field of pods without `spec.os.name: windows`.
    pub required_by_restricted: bool,
    /// Whether an edit of placement can cause a finding: a pod that selects Windows nodes meets their taints.
    pub caused_by_placement: bool,
    /// The field of placement that resolves the findings of this rule, if one does.
    pub placed_by: Option<PlacementField>,
    /// Whether an ignored field shows something that the author wants, and can have in the way that `remedy` names:
    /// `transom fix` then does not remove it.
    pub shows_intent: bool,
    /// Whether findings with the rule's own severity are printed before all others, because they make others irrelevant or
    /// must be resolved together with them.
    pub is_first: bool,
    /// What is wrong: lower case, no full stop. Also the default message of a finding.
    pub summary: &'static str,
    /// Why it is wrong, what happens on the node, what the reader must know: whole sentences.
    pub docs: &'static str,
    /// What to do: lower case, no full stop.
    pub remedy: &'static str,
    /// References: documentation and source code.
    pub see: &'static [&'static str],
    /// The rule is called only if the pod has one of these fields; [`FieldSet::ALWAYS`] if the rule reports a missing
    /// field. Ignored for an object without a pod.
    pub needs: FieldSet,
    /// Examples that the rule reports.
    pub bad: &'static [&'static str],
    /// Examples that it does not report.
    pub good: &'static [&'static str],
    pub check: Check,
}

/// Which objects a rule checks.
pub enum Check {
    /// A pod, or the template of one.
    Pod(fn(&PodCx<'_>, &mut Reporter<'_>)),
    /// Every object with a pod, and objects of these kinds.
    PodAnd(&'static [Kind], fn(&Cx<'_>, &mut Reporter<'_>)),
    /// Objects of these kinds only.
    Object(&'static [Kind], fn(&Cx<'_>, &mut Reporter<'_>)),
}

/// The Windows builds that a rule applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Builds {
    Any,
    /// Builds below this one: the rule runs only if the pod may land on such a node.
    Below(u32),
}

/// The verdicts of rules for Windows pods only.
pub const WINDOWS: &[Verdict] = &[Verdict::Windows];

impl Rule {
    /// The end of an open range of releases.
    pub const STILL: u32 = u32::MAX;

    /// The defaults of most rules.
    pub const BASE: Rule = Rule {
        id: "",
        name: "",
        severity: Severity::Error,
        severities: "",
        class: Class::Run,
        kubernetes: 0..=Rule::STILL,
        builds: Builds::Any,
        runtime: None,
        verdicts: WINDOWS,
        stored_only: false,
        since: RulesVersion::FIRST,
        asks_for_nothing: &[],
        loses: "",
        tolerable: false,
        removable: false,
        required_by_restricted: false,
        caused_by_placement: false,
        placed_by: None,
        shows_intent: false,
        is_first: false,
        summary: "",
        docs: "",
        remedy: "",
        see: &[],
        needs: FieldSet::ALWAYS,
        bad: &[],
        good: &[],
        check: Check::Object(&[], |_, _| {}),
    };

    /// Whether the rule checks objects of this kind.
    pub fn applies_to(&self, kind: Kind) -> bool {
        match self.check {
            Check::Pod(_) => kind.has_pod(),
            Check::PodAnd(kinds, _) => kind.has_pod() || kinds.contains(&kind),
            Check::Object(kinds, _) => kinds.contains(&kind),
        }
    }

    /// Runs the rule if it applies, and collects its findings. `pod` is the pod of the object, made once for all rules.
    pub fn run(&'static self, cx: &Cx<'_>, pod: Option<&PodCx<'_>>, findings: &mut Vec<Finding>) {
        self.run_weighed(cx, pod, findings, &BY_SEVERITY);
    }

    /// The same; `weigh` decides which of the findings beyond the limit is the most important ([`MOST_OF_A_RULE`]).
    pub fn run_weighed(
        &'static self,
        cx: &Cx<'_>,
        pod: Option<&PodCx<'_>>,
        findings: &mut Vec<Finding>,
        weigh: &ActionOf<'_>,
    ) {
        if !cx.policy.is_off(self.id) {
            self.report_to(cx, pod, findings, weigh);
        }
    }

    /// Runs the rule if it applies, even if the policy disables it: what the API server rejects, it rejects anyway.
    pub fn run_regardless(&'static self, pod: &PodCx<'_>, findings: &mut Vec<Finding>) {
        self.report_to(&pod.cx, Some(pod), findings, &BY_SEVERITY);
    }

    fn report_to(
        &'static self,
        cx: &Cx<'_>,
        pod: Option<&PodCx<'_>>,
        findings: &mut Vec<Finding>,
        weigh: &ActionOf<'_>,
    ) {
        if !self.applies(cx) {
            return;
        }
        let mut out = Reporter {
            rule: self,
            cx,
            first: findings.len(),
            findings,
            weigh,
            last: None,
            over_limit: None,
            is_host_process: OnceCell::new(),
        };
        match self.check {
            Check::Pod(check) => {
                if let Some(pod) = pod {
                    check(pod, &mut out);
                }
            }
            Check::PodAnd(_, check) | Check::Object(_, check) => check(cx, &mut out),
        }
        out.finish();
    }

    fn applies(&self, cx: &Cx<'_>) -> bool {
        cx.has_any(self.needs)
            && self.applies_to(cx.subject.kind)
            && self.kubernetes.contains(&cx.facts.kubernetes)
            && self.runtime.is_none_or(|runtime| runtime == cx.facts.runtime)
            && (!self.stored_only || cx.subject.context.stage == ReviewStage::Stored)
            && (!cx.subject.kind.has_pod() || self.is_for(cx))
            && match self.builds {
                Builds::Any => true,
                Builds::Below(build) => cx.may_land_below(build),
            }
    }
}

/// A compact pre-check before a rule is called: it admits at least what [`Rule::run`] does.
#[derive(Clone, Copy)]
pub(super) struct Gate {
    needs: FieldSet,
    /// The verdicts of objects with a pod, one bit for each; none if the rule checks only objects without a pod.
    verdicts: u32,
}

impl Gate {
    /// The gate of a rule.
    pub(super) const fn of(rule: &Rule) -> Gate {
        let kinds: &[Kind] = match rule.check {
            Check::Object(kinds, _) => kinds,
            Check::Pod(_) | Check::PodAnd(..) => &[Kind::Pod],
        };
        let (mut verdicts, mut at) = (0, 0);
        while at < kinds.len() {
            let mut index = 0;
            while kinds[at].has_pod() && index < rule.verdicts.len() {
                verdicts |= 1 << rule.verdicts[index] as u32;
                index += 1;
            }
            at += 1;
        }
        // `is_for` makes the exact check.
        if matches!(rule.class, Class::Api | Class::ApiAlways) {
            verdicts |= 1 << Verdict::Conflicting as u32;
        }
        Gate {
            needs: rule.needs,
            verdicts,
        }
    }

    /// Whether the rule may report a finding for an object.
    pub(super) fn may_match(&self, cx: &Cx<'_>) -> bool {
        let is_for = || self.verdicts & 1 << cx.inference.verdict as u32 != 0;
        cx.has_any(self.needs) && (is_for() || !cx.subject.kind.has_pod())
    }
}

impl Rule {
    /// Whether the rule applies to the object's verdict. What the API server is about to reject is also reported for a
    /// contradictory pod: the API server reads `spec.os.name` only and would not report the contradiction.
    fn is_for(&self, cx: &Cx<'_>) -> bool {
        let verdict = cx.inference.verdict;
        let is_for_windows = || cx.template.is_some_and(|t| t.spec.os_name() == Some("windows"));
        let refused = || matches!(self.class, Class::Api | Class::ApiAlways) && is_for_windows();
        self.verdicts.contains(&verdict) || (verdict == Verdict::Conflicting && refused())
    }
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.id, self.name)
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// What a finding would do to the object; `None` if it is exempt.
pub type ActionOf<'w> = dyn Fn(&Finding) -> Option<Action> + 'w;

/// Without a policy the severity decides.
const BY_SEVERITY: fn(&Finding) -> Option<Action> = |finding| Some(Action::of_severity(finding.severity));

/// Collects the findings of a check.
pub struct Reporter<'o> {
    rule: &'static Rule,
    cx: &'o Cx<'o>,
    findings: &'o mut Vec<Finding>,
    /// The index of the first finding of this rule.
    first: usize,
    weigh: &'o ActionOf<'o>,
    /// The last reported finding, if it is beyond the limit: its check may still change it.
    last: Option<Finding>,
    /// The most important finding beyond the limit, with its action.
    over_limit: Option<(Action, Finding)>,
    /// Whether the pod is HostProcess, found when the first value depends on it: all containers are read for it.
    is_host_process: OnceCell<bool>,
}

/// The maximum number of findings of one rule that are kept for one object: each takes memory, and no reader needs
/// more. The limit is per rule, so a rule with many findings does not displace those of another. Of the findings beyond
/// the limit, the one with the strongest action is kept, so a rule that denies still denies. The others are in its
/// [`Finding::over_limit`], which is used to compare updates.
pub const MOST_OF_A_RULE: usize = 200;

impl Reporter<'_> {
    /// Reports the rule at a path with the rule's own texts; the caller can make the returned finding more precise.
    pub fn report(&mut self, path: Path) -> &mut Finding {
        let finding = Finding::new(self.rule, path);
        let at = self.findings.len();
        if at - self.first >= MOST_OF_A_RULE {
            self.settle();
            return self.last.insert(finding);
        }
        self.findings.push(finding);
        // Cannot panic: the finding was just pushed.
        &mut self.findings[at]
    }

    /// Reports a field with this value: an error, unless the rule's table says that the pod loses nothing by it.
    pub fn report_value(&mut self, path: Path, value: &str) -> &mut Finding {
        let harmless = self.harmless(value);
        let finding = self.report(path);
        if let Some(row) = harmless {
            finding.message(row.because).severity(row.severity());
            if row.pods == Pods::HostProcess {
                finding.remedy("remove it");
            }
        }
        finding
    }

    /// The entry of a value in the rule's table, if this pod loses nothing by it. None if the API server rejects the
    /// field, because the pod then loses its admission.
    fn harmless(&self, value: &str) -> Option<&'static AsksForNothing> {
        let spec = self.cx.template.map(|template| &template.spec);
        if self.rule.class == Class::Api && spec.and_then(|spec| spec.os_name()) == Some(Os::Windows.label())
        {
            return None;
        }
        let is_host_process = || {
            let found = || spec.is_some_and(PodSpec::has_host_process);
            *self.is_host_process.get_or_init(found)
        };
        (self.rule.asks_for_nothing.iter())
            .find(|row| row.value == value && (row.pods == Pods::All || is_host_process()))
    }

    /// Processes the last finding beyond the limit.
    fn settle(&mut self) {
        let Some(mut finding) = self.last.take() else {
            return;
        };
        // An update must not treat an exempt finding as known.
        let Some(action) = (self.weigh)(&finding) else {
            return;
        };
        let other = (finding.identity_hash(), finding.severity, action);
        if let Some((most, kept)) = &mut self.over_limit {
            if (action, finding.severity) > (*most, kept.severity) {
                finding.over_limit = std::mem::take(&mut kept.over_limit);
                (*most, *kept) = (action, finding);
            }
            kept.over_limit.push(other);
        } else {
            finding.over_limit.push(other);
            self.over_limit = Some((action, finding));
        }
    }

    /// By reference, because a reporter has hundreds of bytes, and each review finishes one for each rule.
    fn finish(&mut self) {
        self.settle();
        let Some((_, mut finding)) = self.over_limit.take() else {
            return;
        };
        let more = finding.over_limit.len() - 1;
        if more > 0 {
            let message = format!("{} (and {more} more places that are not listed)", finding.message);
            finding.message(message);
        }
        self.findings.push(finding);
    }
}

impl Reporter<'_> {
    /// The number of findings so far.
    pub fn reported(&self) -> usize {
        self.findings.len()
    }

    /// The findings since this index, to change their severity.
    pub fn since(&mut self, first: usize) -> impl Iterator<Item = &mut Finding> {
        self.findings.iter_mut().skip(first)
    }
}

/// The kind of admission edit that resolves a finding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Resolver {
    /// An edit that makes the pod land where it can run.
    Placement,
    /// An edit that removes an ignored field.
    Removal,
}

/// When Pod Security's restricted profile accepts a pod only with an ignored field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Required {
    /// It does not require the field.
    Never,
    /// Unless the pod has `spec.os.name: windows`.
    UnlessWindows { is_windows: bool },
    /// The field exempts the pod from other requirements that it does not meet.
    ByOthers,
}

/// One rule that fires at one path of one object.
#[derive(Clone, Debug)]
pub struct Finding {
    pub rule: &'static Rule,
    /// The rule's severity, or less for a milder case.
    pub severity: Severity,
    /// The rule's class, or the one that fits this case.
    pub class: Class,
    /// The path of the field.
    pub path: Path,
    /// What is wrong: lower case, no full stop.
    pub message: Cow<'static, str>,
    /// What to do about it: lower case, no full stop.
    pub remedy: Cow<'static, str>,
    /// An edit that resolves the finding, if one is safe.
    pub edit: Option<Edit>,
    /// When Pod Security may require the field, so that it is not removed.
    pub required: Required,
    /// The taint that the pod does not tolerate, if the finding is about one.
    pub taint: Option<Taint>,
    /// The kind of edit that resolves this finding in admission, if any.
    pub resolved_by: Option<Resolver>,
    /// What the finding does: the engine sets it from the policy; `Off` until then.
    pub action: Action,
    /// What it would do with `validation.action: Deny`.
    pub enforced_action: Action,
    /// The findings of the same rule beyond the limit, including this one: their identity ([`Finding::identity_hash`]),
    /// severity and action. Empty for all others.
    pub over_limit: Vec<(u64, Severity, Action)>,
}

impl Finding {
    /// What the pod does not have on Windows although a field asks for it, because Windows ignores the field.
    pub fn lost_on_windows(&self) -> Option<&'static str> {
        let is_ignored = self.rule.tolerable && self.class.is_ignored();
        let asks = is_ignored && self.severity != Severity::Advice;
        Some(self.rule.loses).filter(|loses| asks && !loses.is_empty())
    }

    /// A finding with the rule's own texts.
    pub fn new(rule: &'static Rule, path: Path) -> Self {
        Finding {
            rule,
            severity: rule.severity,
            class: rule.class,
            path,
            message: Cow::Borrowed(rule.summary),
            remedy: Cow::Borrowed(rule.remedy),
            edit: None,
            required: Required::Never,
            taint: None,
            resolved_by: None,
            action: Action::Disabled,
            enforced_action: Action::Disabled,
            over_limit: Vec::new(),
        }
    }

    /// Sets a more precise message than the rule's summary.
    pub fn message(&mut self, message: impl Into<Cow<'static, str>>) -> &mut Self {
        self.message = tidy(message.into());
        self
    }

    /// Sets a remedy for this case.
    pub fn remedy(&mut self, remedy: impl Into<Cow<'static, str>>) -> &mut Self {
        self.remedy = tidy(remedy.into());
        self
    }

    /// Sets the taint that the pod does not tolerate.
    pub fn taint(&mut self, taint: &Taint) -> &mut Self {
        self.taint = Some(taint.clone());
        self
    }

    /// Sets another severity than the rule's.
    pub fn severity(&mut self, severity: Severity) -> &mut Self {
        self.severity = severity;
        self
    }

    /// Sets another class than the rule's.
    pub fn class(&mut self, class: Class) -> &mut Self {
        self.class = class;
        self
    }

    /// Attaches the edit that removes the field.
    pub fn removable(&mut self) -> &mut Self {
        self.edit = Some(Edit::Remove(self.path.clone()));
        self
    }

    /// Sets when Pod Security requires the field.
    pub fn required(&mut self, required: Required) -> &mut Self {
        self.required = required;
        self
    }

    /// Limits what the finding does, with any `validation.action`.
    pub fn limit_action(&mut self, most: Action) {
        self.action = self.action.min(most);
        self.enforced_action = self.enforced_action.min(most);
    }

    /// The identity of the finding in other versions of the object: the rule and the path with names, never indexes.
    pub fn identity(&self) -> (&'static str, String) {
        (self.rule.id, self.path.named())
    }

    /// [`Finding::identity`] as a number, for the findings that are not kept.
    pub fn identity_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.identity().hash(&mut hasher);
        hasher.finish()
    }

    /// Whether the policy's `ignoredFields` may apply: the pod runs with and without the field. Not if the kubelet
    /// rejects the pod because of the field, or the API server does regardless of `spec.os`.
    pub fn is_tolerable(&self) -> bool {
        self.rule.tolerable && self.class.is_ignored()
    }

    /// Whether the field may be removed: an ignored field, or one that hangs only some kubelets.
    pub fn is_removable(&self) -> bool {
        self.rule.removable && (self.class.is_ignored() || self.class == Class::Run)
    }

    /// Whether no edit of admission resolves it.
    pub fn is_open(&self) -> bool {
        self.resolved_by.is_none()
    }

    /// What admission does for it: nothing for one that it fixes.
    pub fn effect(&self) -> Action {
        if self.is_open() {
            self.action
        } else {
            Action::Disabled
        }
    }

    /// Whether it is printed before all others.
    pub fn is_first(&self) -> bool {
        self.rule.is_first && self.severity == self.rule.severity
    }
}

/// Limits a text to one line of reasonable length, regardless of the values that it quotes.
fn tidy(text: Cow<'static, str>) -> Cow<'static, str> {
    const LONGEST: usize = 403;
    if text.len() <= LONGEST && is_one_line(&text) {
        return text;
    }
    cut(&one_line(&text), LONGEST).into_owned().into()
}
