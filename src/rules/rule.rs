//! What a rule is: data about it, one check, and the findings that the check reports. The rules themselves stand in the files of their families.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::RangeInclusive;

use serde::Serialize;

use super::context::{Cx, PodCx};
use crate::model::edit::Edit;
use crate::model::facts::Runtime;
use crate::model::field_set::FieldSet;
use crate::model::object::ReviewStage;
use crate::model::os::Verdict;
use crate::model::path::Path;
use crate::model::policy::{Action, RulesVersion};
use crate::model::severity::{Class, Severity};
use crate::model::text::{cut, is_one_line, one_line};
use crate::model::workload::Kind;

/// One entry of the catalogue. Everything that Transom says of it anywhere comes from here.
///
/// `bad` and `good` are the rule's tests, and what `transom explain` shows. An example is either whole manifests (it
/// has a `kind`), or a piece of a pod spec that is laid over [`examples::BASE`](crate::rules::examples), a plain
/// Windows pod. Its first line may carry options of `transom check`: `# --kubernetes-version 1.9 --runtime docker`.
#[allow(clippy::struct_excessive_bools)] // independent properties of a rule
pub struct Rule {
    /// The stable id: `TSM` and three digits, hundreds by family; never used again for another rule.
    pub id: &'static str,
    /// The slug: public, in every output.
    pub name: &'static str,
    /// The worst that a finding of this rule can be.
    pub severity: Severity,
    /// Its severities if a case differs from the others, as in `advice; warning when …`; else empty.
    pub severities: &'static str,
    /// Who finds out, and when.
    pub class: Class,
    /// The minor releases of Kubernetes that the rule applies to.
    pub kubernetes: RangeInclusive<u32>,
    /// The Windows builds that the rule applies to.
    pub builds: Builds,
    /// The container runtime that the rule applies to, if only one.
    pub runtime: Option<Runtime>,
    /// The verdicts that the rule is for.
    pub verdicts: &'static [Verdict],
    /// Whether the rule is only for objects as they will be stored, after every mutating webhook.
    pub stored_only: bool,
    /// The version in which it appeared. A rule that was made to find more is a new one.
    pub since: RulesVersion,
    /// Whether Windows ignores the field, so that it may be removed from pods.
    pub removable: bool,
    /// Whether the field asks for access to the node, which the pod then does without: an error even where ignored fields
    /// are none.
    pub asks_for_node: bool,
    /// Whether an error of this rule is printed before all others: while it lasts, the rest does not matter.
    pub is_first: bool,
    /// What is wrong: lower case, no full stop. Also the message of a finding that has none of its own.
    pub summary: &'static str,
    /// Why it is wrong, what happens on the node, what to know: whole sentences.
    pub docs: &'static str,
    /// What to do: lower case, no full stop.
    pub remedy: &'static str,
    /// Where it is written: documentation and source.
    pub see: &'static [&'static str],
    /// The fields of which a pod has to have one, or the rule has nothing to say and is not called; [`FieldSet::ALWAYS`]
    /// where it speaks of what is absent. Of an object without a pod nothing is asked.
    pub needs: FieldSet,
    /// Examples in which the rule fires.
    pub bad: &'static [&'static str],
    /// Examples in which it is silent.
    pub good: &'static [&'static str],
    /// The check.
    pub check: Check,
}

/// What a rule looks at.
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
    /// Every build.
    Any,
    /// Builds below this one: the rule runs only where the pod may land on such a node.
    Below(u32),
}

/// A rule for Windows pods.
pub const WINDOWS: &[Verdict] = &[Verdict::Windows];

impl Rule {
    /// The end of a range of releases that has no end.
    pub const STILL: u32 = u32::MAX;

    /// What most rules have in common; the rest is written out in each.
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
        removable: false,
        asks_for_node: false,
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

    /// Whether the rule looks at objects of this kind.
    pub fn applies_to(&self, kind: Kind) -> bool {
        match self.check {
            Check::Pod(_) => kind.has_pod(),
            Check::PodAnd(kinds, _) => kind.has_pod() || kinds.contains(&kind),
            Check::Object(kinds, _) => kinds.contains(&kind),
        }
    }

    /// Runs the rule where it applies, and collects what it finds.
    pub fn run(&'static self, cx: &Cx<'_>, findings: &mut Vec<Finding>) {
        self.run_weighed(cx, findings, &BY_SEVERITY);
    }

    /// The same; `weigh` decides which of the findings that are too many to keep counts most ([`MOST_OF_A_RULE`]).
    pub fn run_weighed(&'static self, cx: &Cx<'_>, findings: &mut Vec<Finding>, weigh: &ActionOf<'_>) {
        if !cx.policy.is_off(self.id) {
            self.report_to(cx, findings, weigh);
        }
    }

    /// Runs the rule where it applies, even if the policy has it off: what the API server refuses, it refuses anyway.
    pub fn run_regardless(&'static self, cx: &Cx<'_>, findings: &mut Vec<Finding>) {
        self.report_to(cx, findings, &BY_SEVERITY);
    }

    fn report_to(&'static self, cx: &Cx<'_>, findings: &mut Vec<Finding>, weigh: &ActionOf<'_>) {
        if !self.applies(cx) {
            return;
        }
        let mut out = Reporter {
            rule: self,
            first: findings.len(),
            findings,
            weigh,
            last: None,
            beyond: None,
        };
        match self.check {
            Check::Pod(check) => {
                if let Some(pod) = cx.pod() {
                    check(&pod, &mut out);
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
            && (!self.stored_only || cx.subject.stage == ReviewStage::Stored)
            && (!cx.subject.kind.has_pod() || self.is_for(cx))
            && match self.builds {
                Builds::Any => true,
                Builds::Below(build) => cx.may_land_below(build),
            }
    }
}

/// What is asked before a rule is called, in few bytes: it lets in at least what [`Rule::run`] does.
#[derive(Clone, Copy)]
pub(super) struct Gate {
    needs: FieldSet,
    /// Kinds of objects, and verdicts of those with a pod: one bit for each.
    kinds: u32,
    verdicts: u32,
    runtime: Option<Runtime>,
}

impl Gate {
    /// A gate that lets nothing in.
    pub(super) const SHUT: Gate = Gate {
        needs: FieldSet::ALWAYS,
        kinds: 0,
        verdicts: 0,
        runtime: None,
    };

    /// The gate of a rule.
    pub(super) const fn of(rule: &Rule) -> Gate {
        let (of_pods, others): (bool, &[Kind]) = match rule.check {
            Check::Pod(_) => (true, &[]),
            Check::PodAnd(kinds, _) => (true, kinds),
            Check::Object(kinds, _) => (false, kinds),
        };
        let (mut kinds, mut index) = (0, 0);
        while index < others.len() {
            kinds |= 1 << others[index] as u32;
            index += 1;
        }
        index = 0;
        while of_pods && index < Kind::ALL.len() {
            if Kind::ALL[index].has_pod() {
                kinds |= 1 << Kind::ALL[index] as u32;
            }
            index += 1;
        }
        let mut verdicts = 0;
        index = 0;
        while index < rule.verdicts.len() {
            verdicts |= 1 << rule.verdicts[index] as u32;
            index += 1;
        }
        // `is_for` looks more closely.
        if matches!(rule.class, Class::Api | Class::ApiAlways) {
            verdicts |= 1 << Verdict::Conflicting as u32;
        }
        Gate {
            needs: rule.needs,
            kinds,
            verdicts,
            runtime: rule.runtime,
        }
    }

    /// Whether the rule may have something to say of an object.
    pub(super) fn lets_in(&self, cx: &Cx<'_>) -> bool {
        let (kind, verdict) = (cx.subject.kind, cx.inference.verdict);
        cx.has_any(self.needs)
            && self.kinds & 1 << kind as u32 != 0
            && (self.verdicts & 1 << verdict as u32 != 0 || !kind.has_pod())
            && self.runtime.is_none_or(|runtime| runtime == cx.facts.runtime)
    }
}

impl Rule {
    /// Whether the rule is for the object's verdict. What the API server is about to refuse is said of a pod that
    /// contradicts itself too: it asks `spec.os.name` only, and would say nothing of the contradiction.
    fn is_for(&self, cx: &Cx<'_>) -> bool {
        let verdict = cx.inference.verdict;
        let says_windows = || cx.template.is_some_and(|t| t.spec.os_name() == Some("windows"));
        let refused = || matches!(self.class, Class::Api | Class::ApiAlways) && says_windows();
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

/// What a finding would do to the object; `None` where an exemption lifts it.
pub type ActionOf<'w> = dyn Fn(&Finding) -> Option<Action> + 'w;

/// Without a policy the severity decides.
const BY_SEVERITY: fn(&Finding) -> Option<Action> = |finding| Some(Action::of_severity(finding.severity));

/// Where a check reports to.
pub struct Reporter<'o> {
    rule: &'static Rule,
    findings: &'o mut Vec<Finding>,
    /// The index of the first finding of this rule.
    first: usize,
    weigh: &'o ActionOf<'o>,
    /// The finding that was reported last, where it is one too many: its check may still change it.
    last: Option<Finding>,
    /// The one among the findings that are too many that counts most, with what it would do.
    beyond: Option<(Action, Finding)>,
}

/// The most findings of one rule that are kept of one object: each takes memory, and a person reads no more. One rule with
/// many findings takes no room from another. Of the findings beyond this, the one that would do most is kept, so that
/// a rule that denies still denies; the others are in its [`Finding::beyond`], by which an update is compared.
pub const MOST_OF_A_RULE: usize = 200;

impl Reporter<'_> {
    /// Reports the rule at a place, in its own words; the finding that comes back can be made more precise.
    pub fn report(&mut self, path: Path) -> &mut Finding {
        let finding = Finding::new(self.rule, path);
        let at = self.findings.len();
        if at - self.first >= MOST_OF_A_RULE {
            self.settle();
            return self.last.insert(finding);
        }
        self.findings.push(finding);
        // Cannot panic: the finding was pushed a line above.
        &mut self.findings[at]
    }

    /// Takes in the last of the findings that are too many.
    fn settle(&mut self) {
        let Some(mut finding) = self.last.take() else {
            return;
        };
        // An update must not treat as known what an exemption lifts.
        let Some(action) = (self.weigh)(&finding) else {
            return;
        };
        let other = (finding.identity_hash(), finding.severity, action);
        if let Some((most, kept)) = &mut self.beyond {
            if (action, finding.severity) > (*most, kept.severity) {
                finding.beyond = std::mem::take(&mut kept.beyond);
                (*most, *kept) = (action, finding);
            }
            kept.beyond.push(other);
        } else {
            finding.beyond.push(other);
            self.beyond = Some((action, finding));
        }
    }

    fn finish(mut self) {
        self.settle();
        let Some((_, mut finding)) = self.beyond else {
            return;
        };
        let more = finding.beyond.len() - 1;
        if more > 0 {
            let message = format!("{} (and {more} more places that are not listed)", finding.message);
            finding.says(message);
        }
        self.findings.push(finding);
    }
}

impl Reporter<'_> {
    /// How many findings there are so far.
    pub fn reported(&self) -> usize {
        self.findings.len()
    }

    /// The findings since then, to weigh them differently.
    pub fn since(&mut self, first: usize) -> impl Iterator<Item = &mut Finding> {
        self.findings.iter_mut().skip(first)
    }
}

/// What kind of admission edit resolves a finding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resolver {
    /// An edit that makes the pod land where it can run.
    Placement,
    /// An edit that removes an ignored field.
    Removal,
}

/// One rule, firing at one place of one object.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: &'static Rule,
    /// The rule's severity, or less where the case is milder.
    pub severity: Severity,
    /// The rule's class, or the one that fits this case.
    pub class: Class,
    /// Where.
    pub path: Path,
    /// What is wrong: lower case, no full stop.
    pub message: Cow<'static, str>,
    /// What to do about it: lower case, no full stop.
    pub remedy: Cow<'static, str>,
    /// An edit that makes the rule silent, where one is safe.
    pub edit: Option<Edit>,
    /// What makes this finding go away in admission, where something does.
    pub resolved_by: Option<Resolver>,
    /// What the finding does: set by the engine from the policy; `Off` until then.
    pub action: Action,
    /// What it would do if `validation` were Deny.
    pub enforced_action: Action,
    /// The findings of the same rule that are too many to keep, this one among them: what they are
    /// ([`Finding::identity_hash`]), how bad, and what each would do. Empty for all others.
    pub beyond: Vec<(u64, Severity, Action)>,
}

impl Finding {
    /// A finding with the rule's own words.
    pub fn new(rule: &'static Rule, path: Path) -> Self {
        Finding {
            rule,
            severity: rule.severity,
            class: rule.class,
            path,
            message: Cow::Borrowed(rule.summary),
            remedy: Cow::Borrowed(rule.remedy),
            edit: None,
            resolved_by: None,
            action: Action::Disabled,
            enforced_action: Action::Disabled,
            beyond: Vec::new(),
        }
    }

    /// Says it more precisely than the rule does.
    pub fn says(&mut self, message: impl Into<Cow<'static, str>>) -> &mut Self {
        self.message = tidy(message.into());
        self
    }

    /// Gives a remedy that fits this case.
    pub fn remedy(&mut self, remedy: impl Into<Cow<'static, str>>) -> &mut Self {
        self.remedy = tidy(remedy.into());
        self
    }

    /// Weighs this case differently from the rule.
    pub fn severity(&mut self, severity: Severity) -> &mut Self {
        self.severity = severity;
        self
    }

    /// Puts this case in another class than the rule's.
    pub fn class(&mut self, class: Class) -> &mut Self {
        self.class = class;
        self
    }

    /// Attaches the edit that takes the field away.
    pub fn removable(&mut self) -> &mut Self {
        self.edit = Some(Edit::Remove(self.path.clone()));
        self
    }

    /// What this finding is, so that it can be recognised in another version of the object:
    /// the rule and the path with names, never indexes.
    pub fn identity(&self) -> (&'static str, String) {
        (self.rule.id, self.path.named())
    }

    /// [`Finding::identity`] as a number, for the many that are not kept.
    pub fn identity_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.identity().hash(&mut hasher);
        hasher.finish()
    }

    /// Whether it is of an ignored field: the pod runs with the field as it does without. Not where the kubelet rejects the
    /// pod for it, or the API server whatever `spec.os` says.
    pub fn is_ignored_field(&self) -> bool {
        self.rule.removable && matches!(self.class, Class::Api | Class::Ignored)
    }

    /// Whether the field may be removed: an ignored one, and one at which only some kubelets hang.
    pub fn is_removable(&self) -> bool {
        self.is_ignored_field() || (self.rule.removable && self.class == Class::Run)
    }

    /// Whether no edit of admission makes it go away.
    pub fn is_open(&self) -> bool {
        self.resolved_by.is_none()
    }
}

/// What a user reads is one line of reasonable length, whatever values of the object it quotes.
fn tidy(text: Cow<'static, str>) -> Cow<'static, str> {
    const LONGEST: usize = 403;
    if text.len() <= LONGEST && is_one_line(&text) {
        return text;
    }
    cut(&one_line(&text), LONGEST).into_owned().into()
}
