//! Renders results for people and machines. Writes output only; evaluates nothing.

pub mod audit_log;
mod check;
mod html;
mod image;
mod json;
mod plain;
mod plan;
mod policy_tests;
mod rules;
mod sarif;
mod scan;
mod table;
mod text;
mod yaml;

pub use self::check::{check_github, check_gitlab, check_junit, check_sarif};
pub use self::html::{PlanCapacity, PlanClass, PlanPool, PlanRow, PlanSection, page};
pub use self::image::image_text;
pub use self::json::{Json, JsonNote, schema as check_schema};
pub use self::plain::write_json;
pub use self::plan::{can_move, plan_section, plan_text};
pub use self::policy_tests::{tests_junit, tests_text};
pub use self::rules::{explain, rules_json, rules_markdown, rules_schema, rules_text};
pub use self::scan::{ScanView, scan_json, scan_sarif, scan_text};
pub use self::text::{TextReport, unknown_os_remedy};
pub use self::yaml::{yaml, yaml_documents};

use std::collections::BTreeMap;

use crate::check::{Checked, Manifests};
use crate::engine::Decision;
use crate::model::os::Verdict;
use crate::model::severity::Severity;

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
    /// Adds one object to the counts.
    pub fn count(&mut self, checked: &Checked<'_>) {
        let evaluation = &checked.evaluation;
        self.objects += 1;
        self.windows += usize::from(evaluation.inference.verdict == Verdict::Windows);
        self.unknown += usize::from(checked.has_unknown_os());
        self.denied += usize::from(evaluation.decision() == Decision::Deny);
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
    /// The number of objects with pods per kind that is not evaluated.
    pub skipped: BTreeMap<String, usize>,
    /// Documents in folders that are not Kubernetes objects, by position.
    pub other_documents: Vec<String>,
}

impl NotEvaluated {
    /// What was not evaluated of these manifests.
    pub fn of(manifests: &Manifests) -> Self {
        NotEvaluated {
            skipped: manifests.skipped(),
            other_documents: manifests.other_documents(),
        }
    }

    /// Adds what was not evaluated of other manifests.
    pub fn add(&mut self, other: NotEvaluated) {
        for (kind, count) in other.skipped {
            *self.skipped.entry(kind).or_default() += count;
        }
        self.other_documents.extend(other.other_documents);
    }
}
