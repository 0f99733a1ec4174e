//! Why a finding does something else than its severity says.

use crate::model::owner::MadeBy;
use crate::model::policy::{Action, Policy};
use crate::model::subject::Subject;
use crate::rules::Finding;

/// Why a finding's action is not that of its severity; `None` where it is, and for objects that nothing is ever done to.
pub fn because(finding: &Finding, subject: &Subject<'_>, policy: &Policy) -> Option<String> {
    let usual = Action::of_severity(finding.severity);
    if finding.action == usual || !subject.kind.has_pod() {
        return None;
    }
    let Policy { name, validation, .. } = policy;
    let rule = finding.rule.name;
    let said = policy.rule_action(finding.rule.id, finding.severity);
    let why = if finding.wanted > finding.action {
        format!("validation of the policy {name} is {}", validation.as_str())
    } else if said == finding.wanted {
        format!("the policy {name} sets {rule} to {}", said.as_str())
    } else if subject.is_mirror() {
        "a mirror pod runs whatever admission says".to_owned()
    } else if subject.made_by == MadeBy::Controller {
        "the controller of its owner is assumed to have made it, and the owner was judged".to_owned()
    } else {
        "kubectl debug writes it by itself".to_owned()
    };
    Some(format!(
        "{} instead of {}: {why}",
        finding.action.as_str(),
        usual.as_str()
    ))
}
