//! Access to the input objects as JSON, for commands that do not evaluate rules.

use super::{DocumentRole, Manifests, SourceRole, UnreadableInput};
use crate::api::{NODE_POLICY, POD_POLICY};
use crate::manifest::Document;
use crate::model::workload::Kind;

impl Manifests {
    /// What cannot be read: inputs, and documents in them that are no object or of an unknown version.
    pub fn unreadable(&self) -> Vec<UnreadableInput> {
        let documents = self.documents.iter().filter_map(|(source, document)| {
            let is_given = self.sources.get(*source)?.role != SourceRole::Found;
            let message = self.role(document).err().filter(|_| is_given)?;
            self.unreadable_document(*source, document, message)
        });
        self.errors().iter().cloned().chain(documents).collect()
    }

    /// Calls `each` with every object of a known kind, in input order. Returns the errors of `each`.
    pub fn visit(&self, mut each: impl FnMut(Kind, &str) -> Result<(), String>) -> Vec<UnreadableInput> {
        let mut errors = Vec::new();
        for (source, document) in &self.documents {
            if let Ok(DocumentRole::Subject(kind, _)) = self.role(document)
                && let Err(error) = each(kind, document.json())
            {
                let message = format!("this {kind} cannot be read: {error}");
                errors.extend(self.unreadable_document(*source, document, message));
            }
        }
        errors
    }

    /// Calls `each` with the kind of every object that says something about the cluster: nodes, classes, namespaces,
    /// policies, and kinds that are not evaluated. Returns the errors of `each`.
    pub fn visit_cluster(
        &self,
        mut each: impl FnMut(&str, &str) -> Result<(), String>,
    ) -> Vec<UnreadableInput> {
        let mut errors = Vec::new();
        for (source, document) in &self.documents {
            let kind = match self.role(document) {
                Ok(DocumentRole::Subject(kind, _)) if kind.has_pod() => continue,
                Ok(DocumentRole::Subject(kind, _)) => kind.to_string(),
                Ok(DocumentRole::Namespace) => "Namespace".to_owned(),
                Ok(DocumentRole::Policy) => POD_POLICY.to_owned(),
                Ok(DocumentRole::NodePolicy) => NODE_POLICY.to_owned(),
                Ok(DocumentRole::Other { kind, .. }) => kind,
                Err(_) => continue,
            };
            if let Err(error) = each(&kind, document.json()) {
                let message = format!("this {kind} cannot be read: {error}");
                errors.extend(self.unreadable_document(*source, document, message));
            }
        }
        errors
    }

    fn unreadable_document(
        &self,
        source: usize,
        document: &Document,
        message: String,
    ) -> Option<UnreadableInput> {
        Some(UnreadableInput {
            source: self.sources.get(source)?.name.clone(),
            line: document.start().line,
            message,
        })
    }
}
