//! The results of a check: every output is written from the same report.

mod github;
mod gitlab;
mod json;
pub(super) mod junit;
mod sarif;
mod summary;
mod text;

pub use self::github::check_github;
pub use self::gitlab::check_gitlab;
pub use self::json::{check_json, schema as check_schema};
pub use self::junit::check_junit;
pub use self::sarif::check_sarif;
pub use self::summary::{CheckSummary, NotEvaluated};
pub use self::text::{CheckTextOptions, check_text, unknown_os_remedy};

use crate::check::{CheckOutcome, Checked, ImageCounts, Repository};
use crate::model::cluster::policy::Action;
use crate::model::cluster::severity::Severity;
use crate::model::syntax::text::object_title;
use crate::rules::Finding;

/// What a check found.
#[derive(Default)]
pub struct CheckReport<'d> {
    /// The objects, in the order of the input.
    pub objects: Vec<Checked<'d>>,
    /// The totals of the objects.
    pub summary: CheckSummary,
    /// What could not be read, and notes.
    pub outcome: CheckOutcome,
    /// What was not evaluated.
    pub not_evaluated: NotEvaluated,
    /// How many images were looked up, if any were.
    pub images: Option<ImageCounts>,
    /// The configuration files that apply.
    pub configurations: Vec<String>,
    /// How the formats of CI systems name files.
    pub repository: Repository,
}

/// The severity levels of CI systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Error,
    Warning,
    Note,
}

/// The display name of an object: `Deployment shop/web`.
fn title(checked: &Checked<'_>) -> String {
    object_title(checked.kind, &checked.namespace, &checked.name)
}

/// A finding that denies is an error. A finding that admission only records is reported one level lower.
fn level(checked: &Checked<'_>, finding: &Finding) -> Level {
    match (finding.effect(), finding.severity) {
        (Action::Deny, _) if checked.not_reviewed.is_none() => Level::Error,
        (Action::Warn, _) | (_, Severity::Error) => Level::Warning,
        _ => Level::Note,
    }
}

/// Identifies a finding independently of line numbers and of the order of containers.
fn fingerprint(checked: &Checked<'_>, finding: &Finding) -> String {
    let (kind, namespace, name) = (checked.kind, &checked.namespace, &checked.name);
    let path = finding.path.named();
    format!("{}:{namespace}/{kind}/{name}:{path}", finding.rule.id)
}

/// `spec.containers[web].securityContext.runAsUser: Windows has no user IDs; remove it`.
fn sentence(finding: &Finding) -> String {
    let path = finding.path.named();
    format!("{path}: {}; {}", finding.message, finding.remedy)
}
