//! Inspection: verdict, findings, edits and decision for one object. The one function that webhook, command line and audit share.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::draft::Draft;
use super::exemption;
use super::os::infer;
use super::placement::{Forbidden, Placement};
use super::repair;
use crate::model::edit::Edit;
use crate::model::facts::Facts;
use crate::model::finding::{Class, Finding, Resolver};
use crate::model::os::{Inference, Verdict};
use crate::model::path::{Path, Segment};
use crate::model::pod::ContainerList;
use crate::model::policy::{Action, Policy, Repair, ReverseGuard, Switch};
use crate::model::subject::{Editable, Subject, Template};
use crate::model::workload::Kind;
use crate::rules::{self, Cx, Image, MOST_FINDINGS};

/// What admission does with the object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Decision {
    /// It passes.
    Allow,
    /// It is refused.
    Deny,
}

impl Decision {
    /// The name in every output.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Allow => "Allow",
            Decision::Deny => "Deny",
        }
    }
}

/// What is to be said of one object, and done with it.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The verdict, with the evidence for it.
    pub inference: Inference,
    /// Every finding of the object as it stands, in the order in which a person would mend them; those that an edit
    /// resolves say so.
    pub findings: Vec<Finding>,
    /// What admission changes: only ever something for pods.
    pub edits: Vec<Edit>,
    /// What admission would change if the parts of the policy in dry run were on; empty where none is.
    pub would_edit: Vec<Edit>,
    /// The fields among the edits that repair takes out.
    pub repaired: Vec<Path>,
    /// The fields that kept placement from setting `spec.os.name`.
    pub withheld: Vec<Path>,
    /// How many findings an exemption lifted, by the exemption's note.
    pub exempted: Vec<(String, usize)>,
}

impl Inspection {
    /// The findings that no edit resolves.
    pub fn open(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_open())
    }

    /// The open findings that refuse the object.
    pub fn denials(&self) -> impl Iterator<Item = &Finding> {
        self.open().filter(|finding| finding.action == Action::Deny)
    }

    /// Whether any open finding refuses the object.
    pub fn decision(&self) -> Decision {
        if self.denials().next().is_some() {
            Decision::Deny
        } else {
            Decision::Allow
        }
    }
}

/// Judges one object. Pure: the same object, facts and policy give the same inspection.
pub fn inspect(subject: &Subject<'_>, facts: &Facts, policy: &Policy) -> Inspection {
    let inference = infer(subject, facts, policy);
    let template = subject.template();
    let images = match template {
        Some(template) if matches!(inference.verdict, Verdict::Windows | Verdict::Conflicting) => {
            Image::of_pod(&template.spec, facts)
        }
        _ => Vec::new(),
    };
    let cx = Cx {
        subject,
        template,
        inference: &inference,
        facts,
        policy,
        images: &images,
    };
    let mut findings = Vec::new();
    for rule in rules::catalogue() {
        rule.run(&cx, &mut findings);
    }
    let exempted = exemption::lift(&mut findings, template.map(|t| &t.spec), policy);
    for finding in &mut findings {
        finding.wanted = wanted(finding, subject, policy);
        finding.action = finding.wanted.min(policy.validation);
    }

    let mut plan = Planned::default();
    if let Some(template) = template {
        let all_told = policy.actions.is_empty() && exempted.is_empty() && findings.len() < MOST_FINDINGS;
        let planner = Planner {
            cx,
            template,
            findings: &findings,
            forbidden: if all_told {
                Forbidden::Among(&findings)
            } else {
                Forbidden::Unknown
            },
        };
        plan = planner.plan();
        plan.resolve(&cx, &mut findings);
    }

    let emitted = subject.editable != Editable::Nothing;
    findings.sort_by_cached_key(order);
    Inspection {
        inference: inference.clone(),
        findings,
        repaired: plan
            .edits
            .iter()
            .filter(|(_, by)| *by == Resolver::Repair)
            .map(|(e, _)| e.path().clone())
            .collect(),
        edits: if emitted {
            plan.edits.into_iter().map(|(edit, _)| edit).collect()
        } else {
            Vec::new()
        },
        would_edit: if emitted { plan.would } else { Vec::new() },
        withheld: if emitted { plan.withheld } else { Vec::new() },
        exempted,
    }
}

/// What a finding does to this object where `validation` is Deny.
///
/// A denial must reach a person: of an object that a controller made, only what cannot run anyway is refused; the rest
/// was decided at its owner. Objects without a pod are not admitted by us at all, and a mirror pod runs whatever we say.
fn wanted(finding: &Finding, subject: &Subject<'_>, policy: &Policy) -> Action {
    let action = policy.rule_action(finding.rule, finding.severity);
    if !subject.kind.has_pod() || subject.is_mirror() {
        return action.min(Action::Audit);
    }
    let cannot_run = matches!(finding.class, Class::ApiAlways | Class::Admit);
    if subject.is_made_by_controller() && !cannot_run {
        return action.min(Action::Audit);
    }
    // kubectl writes such fields itself, and offers no way to leave them out; Windows ignores them.
    if subject.is_node_debugger() && matches!(finding.class, Class::Api | Class::Ignored) {
        return action.min(Action::Warn);
    }
    action
}

/// Errors first; then the pod before its containers, those in the order in which they stand; then by rule.
fn order(finding: &Finding) -> impl Ord + use<> {
    let segments = finding.path.segments();
    let container = segments.windows(2).find_map(|pair| match pair {
        [Segment::Field(list), Segment::Item(index, _)] => {
            let rank = ContainerList::ALL.iter().position(|l| l.field() == *list)?;
            Some((rank, *index))
        }
        _ => None,
    });
    (Reverse(finding.severity), container, finding.rule.id)
}

struct Planner<'p, 'f> {
    cx: Cx<'p>,
    template: &'p Template<'p>,
    findings: &'f [Finding],
    forbidden: Forbidden<'f>,
}

#[derive(Default)]
struct Planned<'p> {
    edits: Vec<(Edit, Resolver)>,
    template: Option<Template<'p>>,
    would: Vec<Edit>,
    withheld: Vec<Path>,
}

impl<'p> Planner<'p, '_> {
    /// Plans what is on, and beside it what would be if everything in dry run were on too.
    fn plan(&self) -> Planned<'p> {
        let policy = self.cx.policy;
        let (on, withheld) = self.draft(policy.placement == Switch::Apply, policy.repair == Repair::Inert);
        let (edits, template) = on.into_parts();
        let mut planned = Planned {
            edits,
            template,
            would: Vec::new(),
            withheld,
        };
        if policy.placement == Switch::DryRun || policy.repair == Repair::DryRun {
            let (both, withheld) = self.draft(policy.placement != Switch::Off, policy.repair != Repair::Off);
            planned.would = both.into_parts().0.into_iter().map(|(edit, _)| edit).collect();
            if policy.placement == Switch::DryRun {
                planned.withheld = withheld;
            }
        }
        planned
    }

    fn draft(&self, placement: bool, repair: bool) -> (Draft<'p, 'p>, Vec<Path>) {
        let Cx {
            subject,
            inference,
            facts,
            policy,
            images,
            ..
        } = self.cx;
        let spec = subject.spec_path();
        let mut draft = Draft::new(self.template, spec.clone());
        let placed = self.template.spec.is_bound() || subject.is_mirror();
        // Workload templates are planned too, to see what admission of their pods will resolve; a DaemonSet's is not:
        // its controller reads the template itself.
        let whole = self.template.has_spec
            && match subject.kind {
                Kind::Pod => subject.editable == Editable::Pod && !placed,
                Kind::DaemonSet => false,
                _ => true,
            };
        let mut withheld = Vec::new();
        let plan = Placement {
            subject,
            inference,
            facts,
            policy,
            images,
            forbidden: self.forbidden,
        };
        match inference.verdict {
            Verdict::Windows if whole => {
                if repair && !subject.is_daemonset_pod() {
                    repair::plan(&mut draft, self.findings, &spec);
                }
                if placement {
                    withheld = plan.windows(&mut draft);
                }
            }
            // kubectl's own debug profiles add what the API server then refuses: always mended while placement is on.
            Verdict::Windows if subject.editable == Editable::EphemeralContainers && placement => {
                repair::plan(&mut draft, self.findings, &spec.field("ephemeralContainers"));
            }
            Verdict::Linux | Verdict::Unknown
                if whole && placement && policy.reverse_guard == ReverseGuard::Apply =>
            {
                plan.reverse_guard(&mut draft);
            }
            _ => {}
        }
        (draft, withheld)
    }
}

impl Planned<'_> {
    /// Runs the rules on the pod as it will be, and marks the findings that are gone there.
    fn resolve(&self, cx: &Cx<'_>, findings: &mut [Finding]) {
        let Some(template) = &self.template else { return };
        let cx = Cx {
            template: Some(template),
            ..*cx
        };
        // An edit mends; it never makes a rule speak that was silent. Only those that spoke are asked again.
        let (mut after, mut asked) = (Vec::new(), Vec::new());
        for rule in findings.iter().map(|finding| finding.rule) {
            if !asked.contains(&rule) {
                asked.push(rule);
                rule.run(&cx, &mut after);
            }
        }
        let still: HashSet<_> = after.iter().map(|f| (f.rule.id, &f.path)).collect();
        let repaired: HashSet<&Path> = self
            .edits
            .iter()
            .filter(|(_, by)| *by == Resolver::Repair)
            .map(|(edit, _)| edit.path())
            .collect();
        for finding in findings
            .iter_mut()
            .filter(|f| !still.contains(&(f.rule.id, &f.path)))
        {
            let by_repair = repaired.contains(&finding.path);
            finding.resolved_by = Some(if by_repair {
                Resolver::Repair
            } else {
                Resolver::Placement
            });
        }
    }
}
