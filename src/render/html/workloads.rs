//! The rows of the workload table, and its filters.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::cards::denial_words;
use super::findings::{counts, mark};
use super::release_name;
use crate::model::cluster::severity::Severity;
use crate::model::syntax::text::count;
use crate::scan::report::ScanReport;
use crate::scan::{FindingOutcome, FindingResult, OwnerOutcome, OwnerResult};

pub(super) struct WorkloadCard<'r> {
    pub(super) owner_result: &'r OwnerResult,
    /// The findings, in their order.
    pub(super) findings: Vec<FindingRow<'r>>,
    /// The number of counted findings of each severity, worst first; without zeros.
    pub(super) tallies: Vec<Tally>,
    /// The rules of the counted findings, without duplicates, in order.
    pub(super) rules: Vec<&'static str>,
    /// The sort key of the findings column: the worst severity, then the number.
    pub(super) order: String,
    /// The builds of its images as text; may be empty.
    pub(super) images: String,
}

/// One finding with its texts on the page.
pub(super) struct FindingRow<'r> {
    pub(super) result: &'r FindingResult,
    /// The symbol of its severity.
    pub(super) mark: &'static str,
    pub(super) outcome: &'static str,
}

/// The number of counted findings of a severity.
pub(super) struct Tally {
    pub(super) severity: Severity,
    pub(super) mark: &'static str,
    /// The number as text.
    pub(super) words: String,
}

impl<'r> WorkloadCard<'r> {
    /// The row of an evaluated owner.
    pub(super) fn of(owner_result: &'r OwnerResult) -> Self {
        let counted = || owner_result.findings.iter().filter(|found| counts(found));
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
            owner_result,
            findings: owner_result.findings.iter().map(FindingRow::of).collect(),
            tallies: numbers.into_iter().map(Tally::of).collect(),
            rules,
            order: format!("{worst}-{:06}", counted().count()),
            images: images(owner_result),
        }
    }

    /// The worst counted severity; empty if no finding is counted.
    pub(super) fn worst(&self) -> &'static str {
        self.tallies.first().map_or("", |tally| tally.severity.as_str())
    }

    /// The text of a row without counted findings.
    pub(super) fn quiet(&self) -> String {
        let patches = self.owner_result.patches.len() + self.owner_result.would_patch.len();
        match (self.owner_result.findings.len(), patches) {
            (0, 0) => "nothing found".to_owned(),
            (0, patches) => count(patches, "patched field"),
            (findings, _) => format!("{} fixed or exempted", count(findings, "finding")),
        }
    }

    /// Its outcome as text, which is also the value of the filter.
    pub(super) fn outcome(&self) -> &'static str {
        let cause = self.owner_result.denial_cause();
        match (self.owner_result.outcome, cause.map(denial_words)) {
            (OwnerOutcome::Denied, Some([denied, _])) => denied,
            (OwnerOutcome::Denied, None) => "denied",
            (OwnerOutcome::Patched, _) => "patched",
            (OwnerOutcome::Passes, Some([_, denied_in_enforce])) => denied_in_enforce,
            (OwnerOutcome::Passes, None) if self.worst() == "error" => "passes; its errors are only recorded",
            (OwnerOutcome::Passes, None) => "passes",
            (OwnerOutcome::NotReviewed, _) => "not reviewed",
        }
    }

    fn would_be_denied(&self) -> bool {
        self.owner_result.denial_cause().is_some()
    }

    /// The CSS class of the outcome.
    pub(super) fn class(&self) -> &'static str {
        match self.owner_result.outcome {
            OwnerOutcome::Denied => "error",
            OwnerOutcome::Patched => "advice",
            OwnerOutcome::Passes if self.would_be_denied() || self.worst() == "error" => "warning",
            OwnerOutcome::Passes => "ok",
            OwnerOutcome::NotReviewed => "warning",
        }
    }

    /// The position of its outcome among all outcomes.
    pub(super) fn outcome_order(&self) -> usize {
        self.owner_result.outcome as usize
    }
}

/// The rows, worst first; equal rows keep the order of the report.
pub(super) fn worst_first(report: &ScanReport) -> Vec<WorkloadCard<'_>> {
    let mut workloads: Vec<WorkloadCard<'_>> = report.owners.iter().map(WorkloadCard::of).collect();
    workloads.sort_by_cached_key(|workload| {
        let is_denied = workload.owner_result.outcome == OwnerOutcome::Denied;
        let cause = workload.owner_result.denial_cause().map(Reverse);
        Reverse((is_denied, cause, workload.order.clone()))
    });
    workloads
}

impl<'r> FindingRow<'r> {
    /// Whether it would deny the object in mode Enforce, and does not now.
    pub(super) fn only_would_deny(&self) -> bool {
        self.result.would_deny && self.result.outcome != FindingOutcome::Denied
    }

    fn of(result: &'r FindingResult) -> Self {
        let outcome = match result.outcome {
            FindingOutcome::Denied => "denies the object",
            FindingOutcome::Warned => "warns",
            FindingOutcome::Audited => "is recorded in the audit log",
            FindingOutcome::Reported => "is only reported: admission does not review this kind",
            FindingOutcome::Fixed => "is fixed by admission",
            FindingOutcome::Fixable => "would be fixed without dry run",
            FindingOutcome::Exempted => "is exempted",
            FindingOutcome::NotReviewed => "is not reviewed: admission is not called",
        };
        FindingRow {
            result,
            mark: mark(result.severity),
            outcome,
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

fn images(owner_result: &OwnerResult) -> String {
    let known = owner_result.image_builds.iter();
    let mut builds: Vec<String> = known
        .map(|build| format!("{build} ({})", release_name(*build)))
        .collect();
    if owner_result.has_unknown_images {
        builds.push("not shown by the name".to_owned());
    }
    builds.join(", ")
}

/// The values of the filters: only those that occur.
pub(super) struct Choices<'r> {
    pub(super) namespaces: BTreeSet<&'r str>,
    /// Outcomes, in their order.
    pub(super) outcomes: Vec<&'static str>,
    /// Severities of counted findings.
    pub(super) severities: BTreeSet<Severity>,
    /// Rules of counted findings.
    pub(super) rules: BTreeSet<&'static str>,
}

impl<'r> Choices<'r> {
    /// The filter values of the rows.
    pub(super) fn of(workloads: &[WorkloadCard<'r>]) -> Self {
        let owners = || workloads.iter().map(|workload| workload.owner_result);
        let found = || owners().flat_map(|owner| owner.findings.iter().filter(|found| counts(found)));
        let outcomes: BTreeSet<(OwnerOutcome, &str)> = (workloads.iter())
            .map(|workload| (workload.owner_result.outcome, workload.outcome()))
            .collect();
        Choices {
            namespaces: owners().map(|owner| owner.namespace.as_str()).collect(),
            outcomes: outcomes.into_iter().map(|(_, words)| words).collect(),
            severities: found().map(|found| found.severity).collect(),
            rules: found().map(|found| found.rule).collect(),
        }
    }
}
