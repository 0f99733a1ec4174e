//! A finding as the JSON report of a check has it, which the playground shows too.

use schemars::JsonSchema;
use serde::Serialize;

use super::checked::FindingDetail;
use crate::manifest::Position;
use crate::model::cluster::policy::Action;
use crate::model::cluster::severity::Severity;
use crate::rules::{Finding, Resolver};

/// One rule that fires at one field of an object.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Finding")]
pub struct ReportedFinding {
    /// The id of the rule, as in `TSM204`.
    id: &'static str,
    /// The name of the rule, as in `run-as-user`.
    rule: &'static str,
    /// How severe it is.
    severity: Severity,
    /// The field, from the root of the object.
    path: String,
    /// What is wrong.
    message: String,
    /// What to do.
    remedy: String,
    /// The line of the field, or of its nearest existing parent; from 1.
    line: usize,
    /// The column of the field, or of its nearest existing parent; from 1.
    column: usize,
    /// How admission fixes it; null if it does not. A finding that admission fixes denies nothing.
    resolved_by: Option<Resolver>,
    /// The effect of the finding; `Disabled` if admission fixes it, or ignores the object.
    action: Action,
    /// The reason, if the action differs from the default of the severity.
    action_reason: Option<String>,
}

impl ReportedFinding {
    /// A finding at its position, without a reason for its action, as of one that is exempted or suppressed.
    pub fn of(finding: &Finding, position: Position) -> Self {
        ReportedFinding {
            id: finding.rule.id,
            rule: finding.rule.name,
            severity: finding.severity,
            path: finding.path.to_string(),
            message: finding.message.to_string(),
            remedy: finding.remedy.to_string(),
            line: position.line,
            column: position.column,
            resolved_by: finding.resolved_by,
            action: finding.effect(),
            action_reason: None,
        }
    }

    /// A finding that applies, with the reason for its action.
    pub fn of_applied((finding, detail): (&Finding, &FindingDetail)) -> Self {
        ReportedFinding {
            action_reason: detail.action_reason.clone().filter(|_| finding.is_open()),
            ..ReportedFinding::of(finding, detail.position)
        }
    }
}
