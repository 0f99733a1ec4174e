//! Access to the input objects as JSON, for commands that do not evaluate rules.

use super::document_role::DocumentRole;
use super::input::SourceRole;
use super::manifests::Manifests;
use super::note::UnreadableInput;
use crate::manifest::Document;
use crate::model::objects::policy_kinds::{NODE_POLICY, NODE_POOL, POD_POLICY};
use crate::model::objects::workload::Kind;

/// A document of a custom resource of Transom.
pub struct PolicyDocument<'m> {
    /// The name of its input.
    pub source: &'m str,
    /// WindowsPodPolicy, WindowsNodePolicy or WindowsNodePool.
    pub kind: &'static str,
    pub content: &'m Document,
}

impl Manifests {
    /// The custom resources of Transom after the first `known` documents.
    pub fn policy_documents(&self, known: usize) -> impl Iterator<Item = PolicyDocument<'_>> {
        self.documents().skip(known).filter_map(|(source, document)| {
            let kind = match document.role()? {
                DocumentRole::Policy => POD_POLICY,
                DocumentRole::NodePolicy => NODE_POLICY,
                DocumentRole::NodePool => NODE_POOL,
                _ => return None,
            };
            Some(PolicyDocument {
                source: &source.name,
                kind,
                content: &document.content,
            })
        })
    }

    /// What cannot be read: inputs, and documents in them that are not objects or of an unknown version.
    pub fn unreadable(&self) -> Vec<UnreadableInput> {
        let documents = self.documents().filter_map(|(source, document)| {
            let message = document.object_type.as_ref().err()?;
            let is_given = source.role != SourceRole::Found;
            is_given.then(|| source.unreadable_document(&document.content, message.clone()))
        });
        self.errors().iter().cloned().chain(documents).collect()
    }

    /// Calls `each` with every object of a known kind, in input order. Returns the errors of `each`.
    pub fn visit(&self, mut each: impl FnMut(Kind, &str) -> Result<(), String>) -> Vec<UnreadableInput> {
        self.visit_roles(|role, json| match role {
            DocumentRole::Object(kind) => each(*kind, json).map_err(|error| (kind.to_string(), error)),
            _ => Ok(()),
        })
    }

    /// Calls `each` with the kind of every object that says something about the cluster: nodes, classes, namespaces,
    /// policies, and kinds that are not evaluated. Returns the errors of `each`.
    pub fn visit_cluster(
        &self,
        mut each: impl FnMut(&str, &str) -> Result<(), String>,
    ) -> Vec<UnreadableInput> {
        self.visit_roles(|role, json| {
            let kind = match role {
                DocumentRole::Object(kind) if kind.has_pod() => return Ok(()),
                DocumentRole::Object(kind) => kind.as_str(),
                DocumentRole::Namespace => "Namespace",
                DocumentRole::Policy => POD_POLICY,
                DocumentRole::NodePolicy => NODE_POLICY,
                DocumentRole::NodePool => NODE_POOL,
                DocumentRole::Other(kind) => kind,
            };
            each(kind, json).map_err(|error| (kind.to_owned(), error))
        })
    }

    /// Calls `each` with every object; an error of it names the kind.
    fn visit_roles(
        &self,
        mut each: impl FnMut(&DocumentRole, &str) -> Result<(), (String, String)>,
    ) -> Vec<UnreadableInput> {
        let objects = self.documents().filter_map(|(source, document)| {
            let (kind, error) = each(document.role()?, document.content.json()).err()?;
            let message = format!("this {kind} cannot be read: {error}");
            Some(source.unreadable_document(&document.content, message))
        });
        objects.collect()
    }
}
