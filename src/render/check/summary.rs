//! The totals of a check.

use crate::check::{Checked, Manifests, SkippedDocuments};
use crate::model::cluster::severity::Severity;
use crate::model::windows::os::Verdict;

/// The totals of all objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckSummary {
    /// Objects that were checked.
    pub objects: usize,
    /// Objects with the verdict Windows.
    pub windows: usize,
    /// Objects with pods of which nothing says for which operating system they are: no rule for Windows checks them.
    pub unknown: usize,
    /// Objects that admission would deny, except those that only suppressed findings deny.
    pub denied: usize,
    /// Objects that admission would never review.
    pub not_reviewed: usize,
    /// Findings, including those that admission fixes.
    pub findings: usize,
    /// Findings that an exemption covers; not included in `findings`.
    pub exempted: usize,
    /// Findings that a comment, an annotation or a baseline suppresses; not included in `findings`.
    pub suppressed: usize,
    /// Unresolved findings, by severity.
    #[serde(skip)]
    pub open: [usize; Severity::ALL.len()],
}

impl CheckSummary {
    /// The totals of some objects.
    pub fn of<'c, 'd: 'c>(objects: impl IntoIterator<Item = &'c Checked<'d>>) -> Self {
        let mut summary = CheckSummary::default();
        for checked in objects {
            summary.count(checked);
        }
        summary
    }

    fn count(&mut self, checked: &Checked<'_>) {
        let evaluation = &checked.evaluation;
        self.objects += 1;
        self.windows += usize::from(evaluation.inference.verdict == Verdict::Windows);
        self.unknown += usize::from(checked.has_unknown_os());
        self.denied += usize::from(checked.is_denied());
        self.not_reviewed += usize::from(checked.not_reviewed.is_some());
        self.findings += evaluation.findings.len();
        self.exempted += evaluation
            .exempted
            .iter()
            .map(|(_, found)| found.len())
            .sum::<usize>();
        self.suppressed += checked.suppressed.len();
        for finding in evaluation.open() {
            self.open[finding.severity as usize] += 1;
        }
    }
}

/// What was not evaluated.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NotEvaluated {
    /// The objects with pods of kinds that are not evaluated.
    pub skipped: SkippedDocuments,
    /// Documents in folders that are not Kubernetes objects, by position.
    pub other_documents: Vec<String>,
}

impl NotEvaluated {
    /// Adds what was not evaluated of manifests.
    pub fn add(&mut self, manifests: &Manifests) {
        let skipped = manifests.skipped();
        for (kind, count) in skipped.kinds {
            *self.skipped.kinds.entry(kind).or_default() += count;
        }
        self.skipped.for_windows.extend(skipped.for_windows);
        self.other_documents.extend(manifests.other_documents());
    }
}
