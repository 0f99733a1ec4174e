//! The results of a check in the formats of CI systems.

mod github;
mod gitlab;
pub(super) mod junit;
mod sarif;

pub use self::github::check_github;
pub use self::gitlab::check_gitlab;
pub use self::junit::check_junit;
pub use self::sarif::check_sarif;

use super::json::{JsonFinding, JsonObject};
use crate::model::policy::Action;
use crate::model::severity::Severity;

/// The severity levels of CI systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Error,
    Warning,
    Note,
}

impl JsonObject {
    /// The display name of the object: `Deployment shop/web`.
    fn title(&self) -> String {
        match self.namespace.as_deref() {
            Some(namespace) => format!("{} {namespace}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        }
    }

    /// Whether admission would deny it for a finding that is not suppressed.
    fn is_denied(&self) -> bool {
        self.is_denied
    }

    /// The findings that placement does not fix, no exemption covers and the author does not suppress.
    fn open(&self) -> impl Iterator<Item = &JsonFinding> {
        self.findings.iter().filter(|found| found.resolved_by.is_none())
    }

    /// A finding that denies is an error. A finding that admission only records is reported one level lower.
    fn level(&self, found: &JsonFinding) -> Level {
        match (found.action, found.severity) {
            (Action::Deny, _) if self.not_reviewed.is_none() => Level::Error,
            (Action::Warn, _) | (_, Severity::Error) => Level::Warning,
            _ => Level::Note,
        }
    }

    /// Identifies a finding independently of line numbers and of the order of containers.
    fn fingerprint(&self, found: &JsonFinding) -> String {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let (kind, name) = (self.kind, &self.name);
        format!("{}:{namespace}/{kind}/{name}:{}", found.id, found.named_path)
    }
}

impl JsonFinding {
    /// `spec.containers[web].securityContext.runAsUser: Windows has no user IDs; remove it`.
    fn sentence(&self) -> String {
        format!("{}: {}; {}", self.named_path, self.message, self.remedy)
    }
}
