//! Rendering: what `check` found, for people and for machines. Writes; judges nothing.

mod json;
mod rules;
mod text;
mod yaml;

pub use self::json::Json;
pub use self::rules::{explain, rules_json, rules_markdown, rules_text};
pub use self::text::TextReport;
pub use self::yaml::{yaml, yaml_documents};

use crate::check::Checked;
use crate::engine::Decision;
use crate::model::os::Verdict;

/// What all objects together add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Objects that rules looked at.
    pub subjects: usize,
    /// Those of them that are Windows pods or carry one.
    pub windows: usize,
    /// Those that admission would refuse.
    pub denied: usize,
    /// Findings, resolved ones included.
    pub findings: usize,
}

impl Summary {
    /// Counts one object.
    pub fn count(&mut self, checked: &Checked<'_>) {
        self.subjects += 1;
        self.windows += usize::from(checked.inspection.inference.verdict == Verdict::Windows);
        self.denied += usize::from(checked.inspection.decision() == Decision::Deny);
        self.findings += checked.inspection.findings.len();
    }
}
