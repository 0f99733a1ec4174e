//! Evaluates every object, and collects what there is to say about inputs and suppressions.

use jiff::civil::Date;

use super::ambiguous_names::ambiguous_names;
use super::baseline::{Baseline, BaselineUse};
use super::checked::{Checked, FindingDetail};
use super::effective_policy::PolicyChoice;
use super::environment::in_order;
use super::input::DocumentSource;
use super::manifests::Manifests;
use super::note::{CheckNote, NoteLevel, UnreadableInput};
use super::objects::{InputObject, ManifestObjects};
use super::suppress::{SuppressionUse, Suppressions};
use super::suppression::SUPPRESS_ANNOTATION;
use crate::engine::policy_set::{PolicyQuery, PolicySet};
use crate::engine::{action_reason, evaluate_each, infer_os};
use crate::manifest::Position;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Action, IgnoredFields, PlacementMode, Policy};
use crate::model::objects::object::Object;
use crate::model::objects::requester::Origin;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::windows::os::Verdict;
use crate::rules::Finding;

/// What a run says in addition to the findings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckOutcome {
    /// The parts of the input that could not be read.
    pub errors: Vec<UnreadableInput>,
    /// Notes about the inputs and about suppressions, in the order of the input.
    pub notes: Vec<CheckNote>,
}

impl<'m> ManifestObjects<'m> {
    /// Evaluates every object in input order, and passes each to `each`.
    pub fn check(
        self,
        facts: &Facts,
        policies: &PolicySet,
        each: impl FnMut(Checked<'m>),
    ) -> Vec<UnreadableInput> {
        self.run(facts, policies, each).errors
    }

    /// As [`ManifestObjects::check`], with notes about the suppressions.
    pub fn run(self, facts: &Facts, policies: &PolicySet, mut each: impl FnMut(Checked<'m>)) -> CheckOutcome {
        let checker = ObjectChecker {
            manifests: self.manifests,
            facts,
            policies,
        };
        let mut collected = Collected::new(self.manifests);
        let check = |input| (input, checker.check(input));
        let environment = self.manifests.settings.environment;
        in_order(environment, &self.all, check, |(input, checked)| match checked {
            Ok(Some((checked, used))) => {
                collected.add(input.source, used);
                each(checked);
            }
            Ok(None) => {}
            Err(error) => collected.outcome.errors.push(error),
        });
        collected.finish(&checker)
    }
}

/// What the checks of objects say about their inputs.
struct Collected {
    outcome: CheckOutcome,
    /// The comments of each source that matched, and which of their rules.
    used_comments: Vec<Vec<(usize, usize)>>,
    used_baseline: BaselineUse,
}

impl Collected {
    fn new(manifests: &Manifests) -> Self {
        Collected {
            outcome: CheckOutcome {
                errors: manifests.errors.clone(),
                notes: manifests.notes.clone(),
            },
            used_comments: vec![Vec::new(); manifests.sources.len()],
            used_baseline: BaselineUse::default(),
        }
    }

    /// Adds what suppressions did for one object.
    fn add(&mut self, source: &DocumentSource, used: SuppressionUse) {
        if let Some(comments) = self.used_comments.get_mut(source.index) {
            comments.extend(used.matched);
        }
        self.used_baseline.add(&used.baseline);
        self.outcome.notes.extend(used.notes);
        let errors = used.errors.into_iter();
        let errors = errors.map(|(line, message)| source.unreadable(line, message));
        self.outcome.errors.extend(errors);
    }

    fn finish(self, checker: &ObjectChecker<'_>) -> CheckOutcome {
        let CheckOutcome {
            mut errors,
            mut notes,
        } = self.outcome;
        let manifests = checker.manifests;
        errors.sort_by(|a, b| (&a.source, a.line).cmp(&(&b.source, b.line)));
        for (source, used) in manifests.sources.iter().zip(&self.used_comments) {
            // What could not be read may be what the comment is about.
            if !errors.iter().any(|error| error.source == source.name) {
                notes.extend(checker.suppressions(source).notes(&source.name, used));
            }
        }
        if let (Some(baseline), unused @ 1..) = (
            &manifests.settings.baseline,
            Baseline::unused(&self.used_baseline),
        ) {
            let message = format!(
                "entries of the baseline that match no finding: {unused}; write it again with --write-baseline"
            );
            notes.push(CheckNote::new(&baseline.name, (0, 0), NoteLevel::Note, message));
        }
        notes.sort();
        CheckOutcome { errors, notes }
    }
}

/// An evaluated object, and what suppressions did for it.
type CheckedAndUsed<'m> = (Checked<'m>, SuppressionUse);

/// Evaluates objects one by one.
struct ObjectChecker<'c> {
    manifests: &'c Manifests,
    facts: &'c Facts,
    policies: &'c PolicySet,
}

impl ObjectChecker<'_> {
    /// `None` if there is nothing to evaluate.
    fn check<'m>(&self, input: &InputObject<'m>) -> Result<Option<CheckedAndUsed<'m>>, UnreadableInput> {
        let Some(object) = input.to_check()? else {
            return Ok(None);
        };
        let query = PolicyQuery::without_user(&object.namespace, self.facts);
        let mut policy = self.policies.effective(&query);
        let choice = PolicyChoice::of(self.policies, &query, &policy);
        let scope = &self.manifests.settings.scope;
        let not_reviewed = scope.not_reviewed(&object.namespace, self.facts);
        let not_reviewed = not_reviewed.filter(|_| object.kind.has_pod());
        if not_reviewed.is_some() {
            switch_off(policy.to_mut());
        }
        let mut inferences = input.inferences(object, self.facts, &policy).iter();
        let evaluation = evaluate_each(object, self.facts, &policy, |pod| match inferences.next() {
            Some(inference) => inference.clone(),
            None => infer_os(pod, self.facts, &policy),
        });
        let mut checked = Checked {
            source: &input.source.name,
            text: input.source.text.as_ref(),
            document: &input.document.content,
            api_version: input.document.api_version(),
            kind: object.kind,
            namespace: self.named_namespace(object),
            name: object.meta.display_name().to_owned(),
            owner: assumed_owner(object, self.facts.today),
            meta: object.meta.clone(),
            stated_os: input.source.stated_os,
            details: Vec::new(),
            choice,
            decision: evaluation.decision(),
            evaluation,
            suppressed: Vec::new(),
            not_reviewed,
        };
        checked.details = self.details(&checked, object, &policy);
        let used = self.suppress(input, object, &mut checked);
        Ok(Some((checked, used)))
    }

    /// Applies the suppressions, and adds notes.
    fn suppress(
        &self,
        input: &InputObject<'_>,
        object: &Object<'_>,
        checked: &mut Checked<'_>,
    ) -> SuppressionUse {
        let mut used = SuppressionUse::default();
        if !self.manifests.settings.for_admission {
            let annotation = object.meta.annotations.get(SUPPRESS_ANNOTATION);
            let suppressions = self.suppressions(input.source);
            used = suppressions.apply(checked, annotation.map(|it| &**it));
        }
        used.notes.extend(ambiguity_notes(checked, object, self.facts));
        used
    }

    /// The namespace that the object or an argument names.
    fn named_namespace(&self, object: &Object<'_>) -> String {
        let assumed = self.manifests.settings.scope.namespace.as_deref();
        match &*object.meta.namespace {
            "" if object.kind.is_namespaced() => assumed.unwrap_or_default().to_owned(),
            written => written.to_owned(),
        }
    }

    fn details(&self, checked: &Checked<'_>, object: &Object<'_>, policy: &Policy) -> Vec<FindingDetail> {
        let mut places = checked.places();
        let is_reviewed = checked.not_reviewed.is_none();
        let detail = |finding: &Finding| {
            let rules = self.manifests.settings.rule_actions.as_ref();
            let rules = rules.filter(|(_, ids)| ids.contains(&finding.rule.id));
            let file = rules.map(|(file, _)| file.as_str());
            FindingDetail {
                position: places.of(&finding.path),
                action_reason: action_reason(finding, object, policy, file).filter(|_| is_reviewed),
            }
        };
        checked.evaluation.findings.iter().map(detail).collect()
    }

    fn suppressions<'s>(&'s self, source: &'s DocumentSource) -> Suppressions<'s> {
        Suppressions {
            comments: &source.suppressions,
            baseline: self.manifests.settings.baseline.as_deref(),
            today: self.facts.today,
        }
    }
}

/// Makes a policy do nothing.
fn switch_off(policy: &mut Policy) {
    policy.validation = Action::Disabled;
    policy.placement = PlacementMode::Disabled;
    policy.ignored_fields = IgnoredFields::Deny;
}

/// The owner whose controller is assumed to have created an object.
fn assumed_owner(object: &Object<'_>, today: Date) -> Option<String> {
    let owner = WorkloadName::top_owner_of(object.kind, &object.meta, &object.namespace, today);
    let owner = owner.filter(|_| object.context.origin == Origin::Controller)?;
    Some(owner.in_namespace())
}

/// Notes about names of a pod that could mean several objects. What they mean does not matter to a Linux pod.
fn ambiguity_notes(checked: &Checked<'_>, object: &Object<'_>, facts: &Facts) -> Vec<CheckNote> {
    if checked.evaluation.inference.verdict == Verdict::Linux {
        return Vec::new();
    }
    let mut places = checked.places();
    let notes = ambiguous_names(object, facts).into_iter().map(|(path, message)| {
        let Position { line, column } = places.of(&path);
        CheckNote::new(checked.source, (line, column), NoteLevel::Note, message)
    });
    notes.collect()
}
