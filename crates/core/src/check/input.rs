//! The inputs of a check: a text, why it is read, and what could be read of it.

use super::document_role::{DocumentRole, ObjectType};
use super::note::UnreadableInput;
use super::source_lines::SourceLines;
use super::suppression::CommentSuppressions;
use crate::manifest::Document;
use crate::model::objects::known_claims::ObjectSource;
use crate::model::windows::os::Os;

/// One text to check, and its name.
#[derive(Clone, Debug)]
pub struct CheckInput {
    /// The file's name, or `-` for standard input.
    pub source: String,
    pub bytes: Vec<u8>,
}

/// Why a source is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceRole {
    /// The user named it.
    Named,
    /// It was found in a folder, which can contain files that are not manifests.
    Found,
    /// It describes the cluster: its objects are not checked.
    Facts,
}

/// A text that was read.
pub(super) struct DocumentSource {
    /// Its index among the sources.
    pub index: usize,
    pub name: String,
    /// The same for facts and objects.
    pub origin: ObjectSource,
    pub text: Option<SourceLines>,
    pub role: SourceRole,
    /// The operating system that the author states for it.
    pub stated_os: Option<Os>,
    pub suppressions: CommentSuppressions,
    pub documents: Vec<InputDocument>,
}

/// A document of a text.
pub(super) struct InputDocument {
    pub content: Document,
    /// Its type; else why it is not a Kubernetes object.
    pub object_type: Result<ObjectType, String>,
}

impl DocumentSource {
    /// An error at a line of it.
    pub fn unreadable(&self, line: usize, message: String) -> UnreadableInput {
        UnreadableInput::new(&self.name, line, message)
    }

    /// An error at the start of a document of it.
    pub fn unreadable_document(&self, document: &Document, message: String) -> UnreadableInput {
        self.unreadable(document.start().line, message)
    }
}

impl InputDocument {
    /// Its `apiVersion` as written; empty if it is not a Kubernetes object.
    pub fn api_version(&self) -> &str {
        let object_type = self.object_type.as_ref();
        object_type.map_or("", |object_type| &object_type.api_version)
    }

    /// Its role; `None` if it is not a Kubernetes object.
    pub fn role(&self) -> Option<&DocumentRole> {
        Some(&self.object_type.as_ref().ok()?.role)
    }
}
