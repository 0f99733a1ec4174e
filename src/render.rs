//! Rendering: what was found, for people and for machines. Writes; judges nothing.

pub mod audit_log;
mod check;
mod html;
mod json;
mod plain;
mod plan;
mod rules;
mod sarif;
mod scan;
mod table;
mod text;
mod yaml;

pub use self::check::{check_github, check_gitlab, check_junit, check_sarif};
pub use self::html::{PlanCapacity, PlanClass, PlanPool, PlanRow, PlanSection, page};
pub use self::json::Json;
pub use self::plain::write_json;
pub use self::plan::{can_move, plan_section, plan_text};
pub use self::rules::{explain, rules_json, rules_markdown, rules_text};
pub use self::scan::{ScanView, scan_json, scan_sarif, scan_text};
pub use self::text::TextReport;
pub use self::yaml::{yaml, yaml_documents};

use std::collections::BTreeMap;

use crate::check::{Checked, Manifests};
use crate::engine::Decision;
use crate::model::os::Verdict;
use crate::model::severity::Severity;

/// What all objects together add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckSummary {
    /// Objects that rules looked at.
    pub subjects: usize,
    /// Those of them that are Windows pods or carry one.
    pub windows: usize,
    /// Those that admission would refuse.
    pub denied: usize,
    /// Those that admission would never see.
    pub not_admitted: usize,
    /// Findings, resolved ones included.
    pub findings: usize,
    /// Findings that an exemption lifts; not among those above.
    pub exempted: usize,
    /// Findings that nothing resolves, by severity.
    #[serde(skip)]
    pub open: [usize; Severity::ALL.len()],
}

impl CheckSummary {
    /// Counts one object.
    pub fn count(&mut self, checked: &Checked<'_>) {
        let evaluation = &checked.evaluation;
        self.subjects += 1;
        self.windows += usize::from(evaluation.inference.verdict == Verdict::Windows);
        self.denied += usize::from(evaluation.decision() == Decision::Deny);
        self.not_admitted += usize::from(checked.not_admitted.is_some());
        self.findings += evaluation.findings.len();
        self.exempted += evaluation
            .exempted
            .iter()
            .map(|(_, found)| found.len())
            .sum::<usize>();
        for finding in evaluation.open() {
            self.open[finding.severity as usize] += 1;
        }
    }
}

/// What was left out of the judgement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NotEvaluated {
    /// Objects of kinds that rules do not know and that carry pods: how many, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// Documents of folders that are no Kubernetes objects, by their places.
    pub passed_over: Vec<String>,
}

impl NotEvaluated {
    /// What manifests leave out.
    pub fn of(manifests: &Manifests) -> Self {
        NotEvaluated {
            skipped: manifests.skipped(),
            passed_over: manifests.passed_over(),
        }
    }
}
