//! What of a report the texts show, and in which words.

use crate::model::cluster::severity::Severity;
use crate::scan::{FindingOutcome, FindingResult, OwnerResult};

/// What to show of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanView {
    /// Whether to show advice that neither denies nor warns.
    pub advice: bool,
    /// The maximum number of rows of a table, and of owners per namespace.
    pub rows: usize,
}

impl ScanView {
    /// Whether to show a finding.
    pub(super) fn shows(self, severity: Severity, outcome: FindingOutcome, would_deny: bool) -> bool {
        let does_something = matches!(outcome, FindingOutcome::Denied | FindingOutcome::Warned) || would_deny;
        self.advice || severity > Severity::Advice || does_something
    }

    pub(super) fn shows_finding(self, found: &FindingResult) -> bool {
        self.shows(found.severity, found.outcome, found.would_deny)
    }

    /// Whether there is something to show for an owner.
    pub(super) fn shows_owner(self, owner_result: &OwnerResult) -> bool {
        let patches = !owner_result.patches.is_empty() || !owner_result.would_patch.is_empty();
        patches
            || owner_result
                .findings
                .iter()
                .any(|found| self.shows_finding(found))
    }
}

/// The outcome of a finding, in one or two words.
pub(super) fn outcome(outcome: FindingOutcome) -> &'static str {
    match outcome {
        FindingOutcome::Denied => "denied",
        FindingOutcome::Warned => "warned of",
        FindingOutcome::Audited => "audited",
        FindingOutcome::Reported => "reported",
        FindingOutcome::Fixed => "fixed in admission",
        FindingOutcome::Fixable => "would be fixed if not in dry run",
        FindingOutcome::Exempted => "exempted",
        FindingOutcome::NotReviewed => "not reviewed",
    }
}
