//! The objects among the inputs, as JSON: for those who look at them for something else than rules.

use super::{DocumentRole, Manifests, UnreadableInput, role};
use crate::model::workload::Kind;

impl Manifests {
    /// Hands every object of a kind that is known to `each`, in the order of the input. What `each` has against an object
    /// becomes an error of the input, beside those that are there.
    pub fn visit(&self, mut each: impl FnMut(Kind, &str) -> Result<(), String>) -> Vec<UnreadableInput> {
        let mut errors = Vec::new();
        for (source, document) in &self.documents {
            let Some(source) = self.sources.get(*source) else {
                continue;
            };
            let problem = match role(document) {
                Ok(DocumentRole::Subject(kind, _)) => each(kind, document.json())
                    .err()
                    .map(|error| format!("this {kind} cannot be read: {error}")),
                Err(_) if source.found => None,
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
