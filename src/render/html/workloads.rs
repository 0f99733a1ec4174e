//! The rows of the table of workloads, and what can be chosen above it.

use std::collections::BTreeSet;

use super::findings::{counts, mark};
use super::{count, release_name};
use crate::model::severity::Severity;
use crate::scan::report::ScanReport;
use crate::scan::{FindingOutcome, FindingResult, OwnerOutcome, OwnerResult};

/// One row.
pub(super) struct WorkloadCard<'r> {
    /// What was judged.
    pub(super) judged: &'r OwnerResult,
    /// The findings, in their order.
    pub(super) findings: Vec<SaidFinding<'r>>,
    /// How many findings of each severity count, worst first; none that is zero.
    pub(super) tallies: Vec<Tally>,
    /// The rules of the findings that count, each once, in order.
    pub(super) rules: Vec<&'static str>,
    /// By what the column of findings is sorted: the severity of the worst, then how many.
    pub(super) order: String,
    /// The builds of its images, in words; empty where there is nothing to say.
    pub(super) images: String,
}

/// One finding with what the page says of it.
pub(super) struct SaidFinding<'r> {
    /// The finding.
    pub(super) found: &'r FindingResult,
    /// The mark of its severity.
    pub(super) mark: &'static str,
    /// What becomes of it.
    pub(super) fate: &'static str,
}

/// How many findings of a severity count.
pub(super) struct Tally {
    /// The severity.
    pub(super) severity: Severity,
    /// Its mark.
    pub(super) mark: &'static str,
    /// The number in words.
    pub(super) words: String,
}

impl<'r> WorkloadCard<'r> {
    /// Of a judgement.
    pub(super) fn of(judged: &'r OwnerResult) -> Self {
        let counted = || judged.findings.iter().filter(|found| counts(found));
        let of = |severity| counted().filter(|found| found.severity == severity).count();
        let severities = Severity::ALL.into_iter().rev();
        let numbers: Vec<(Severity, usize)> = (severities.map(|severity| (severity, of(severity))))
            .filter(|(_, number)| *number > 0)
            .collect();
        let worst = numbers.first().map_or(0, |(severity, _)| *severity as usize + 1);
        let mut rules = Vec::new();
        for found in counted() {
            if !rules.contains(&found.rule) {
                rules.push(found.rule);
            }
        }
        WorkloadCard {
            judged,
            findings: judged.findings.iter().map(SaidFinding::of).collect(),
            tallies: numbers.into_iter().map(Tally::of).collect(),
            rules,
            order: format!("{worst}-{:06}", counted().count()),
            images: images(judged),
        }
    }

    /// The worst severity that counts; empty where none does.
    pub(super) fn worst(&self) -> &'static str {
        self.tallies.first().map_or("", |tally| tally.severity.as_str())
    }

    /// What a row says where no finding counts.
    pub(super) fn quiet(&self) -> String {
        let changes = self.judged.changes.len() + self.judged.would_change.len();
        match (self.judged.findings.len(), changes) {
            (0, 0) => "nothing found".to_owned(),
            (0, changes) => count(changes, "change"),
            (findings, _) => format!("{} fixed or exempted", count(findings, "finding")),
        }
    }

    /// What becomes of it, in words: a workload that passes with errors says why.
    pub(super) fn outcome(&self) -> &'static str {
        match (self.judged.outcome, self.would_be_denied(), self.worst()) {
            (OwnerOutcome::Passes, true, _) => "passes; denied in mode Enforce",
            (OwnerOutcome::Passes, false, "error") => "passes; its errors are only recorded",
            (other, ..) => outcome(other),
        }
    }

    fn would_be_denied(&self) -> bool {
        self.judged.findings.iter().any(|found| found.would_deny)
    }

    /// The class of that.
    pub(super) fn class(&self) -> &'static str {
        match self.judged.outcome {
            OwnerOutcome::Denied => "error",
            OwnerOutcome::Changed => "advice",
            OwnerOutcome::Passes if self.would_be_denied() || self.worst() == "error" => "warning",
            OwnerOutcome::Passes => "ok",
            OwnerOutcome::NotAsked => "warning",
        }
    }

    /// The place of its outcome among all outcomes.
    pub(super) fn outcome_order(&self) -> usize {
        self.judged.outcome as usize
    }
}

/// The rows, worst first; those that are as bad stay in the order of the report.
pub(super) fn worst_first(report: &ScanReport) -> Vec<WorkloadCard<'_>> {
    let mut workloads: Vec<WorkloadCard<'_>> = report.owners.iter().map(WorkloadCard::of).collect();
    workloads.sort_by_cached_key(|workload| {
        let is_denied = workload.judged.outcome == OwnerOutcome::Denied;
        std::cmp::Reverse((is_denied, workload.would_be_denied(), workload.order.clone()))
    });
    workloads
}

impl<'r> SaidFinding<'r> {
    fn of(found: &'r FindingResult) -> Self {
        let fate = match found.fate {
            FindingOutcome::Denied => "refuses the object",
            FindingOutcome::Warned => "warns",
            FindingOutcome::Noted => "is noted in the audit log",
            FindingOutcome::Fixed => "is fixed by admission",
            FindingOutcome::Fixable => "would be fixed without dry run",
            FindingOutcome::Exempted => "is exempted",
            FindingOutcome::Passed => "passes: admission is not asked",
        };
        SaidFinding {
            found,
            mark: mark(found.severity),
            fate,
        }
    }
}

impl Tally {
    fn of((severity, number): (Severity, usize)) -> Self {
        let words = match severity {
            Severity::Error => count(number, "error"),
            Severity::Warning => count(number, "warning"),
            Severity::Advice => format!("{number} advice"),
        };
        Tally {
            severity,
            mark: mark(severity),
            words,
        }
    }
}

fn outcome(outcome: OwnerOutcome) -> &'static str {
    match outcome {
        OwnerOutcome::Denied => "denied",
        OwnerOutcome::Changed => "changed",
        OwnerOutcome::Passes => "passes",
        OwnerOutcome::NotAsked => "not asked",
    }
}

fn images(judged: &OwnerResult) -> String {
    let known = judged.image_builds.iter();
    let mut said: Vec<String> = known
        .map(|build| format!("{build} ({})", release_name(*build)))
        .collect();
    if judged.has_unknown_images {
        said.push("not told by the name".to_owned());
    }
    said.join(", ")
}

/// What the filters offer: only what is there.
pub(super) struct Choices<'r> {
    /// Namespaces.
    pub(super) namespaces: BTreeSet<&'r str>,
    /// Outcomes, with their words.
    pub(super) outcomes: Vec<(&'static str, &'static str)>,
    /// Severities that count.
    pub(super) severities: BTreeSet<Severity>,
    /// Rules whose findings count.
    pub(super) rules: BTreeSet<&'static str>,
}

impl<'r> Choices<'r> {
    /// Of a report.
    pub(super) fn of(report: &'r ScanReport) -> Self {
        let owners = || report.owners.iter();
        let found = || owners().flat_map(|owner| owner.findings.iter().filter(|found| counts(found)));
        let outcomes: BTreeSet<OwnerOutcome> = owners().map(|owner| owner.outcome).collect();
        Choices {
            namespaces: owners().map(|owner| owner.namespace.as_str()).collect(),
            outcomes: (outcomes.into_iter())
                .map(|it| (it.as_str(), outcome(it)))
                .collect(),
            severities: found().map(|found| found.severity).collect(),
            rules: found().map(|found| found.rule).collect(),
        }
    }
}
