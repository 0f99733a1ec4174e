//! Access to the input objects as JSON, for commands that do not evaluate rules.

use super::{DocumentRole, Manifests, SourceRole, UnreadableInput};
use crate::model::workload::Kind;

impl Manifests {
    /// Calls `each` with every object of a known kind, in input order. Errors of `each` are returned together
    /// with the existing input errors.
    pub fn visit(&self, mut each: impl FnMut(Kind, &str) -> Result<(), String>) -> Vec<UnreadableInput> {
        let mut errors = Vec::new();
        for (source, document) in &self.documents {
            let Some(source) = self.sources.get(*source) else {
                continue;
            };
            let problem = match self.role(document) {
                Ok(DocumentRole::Subject(kind, _)) => each(kind, document.json())
                    .err()
                    .map(|error| format!("this {kind} cannot be read: {error}")),
                Err(_) if source.role == SourceRole::Found => None,
                Err(error) => Some(error),
                Ok(_) => None,
            };
            errors.extend(problem.map(|message| UnreadableInput {
                source: source.name.clone(),
                line: document.start().line,
                message,
            }));
        }
        errors
    }
}
