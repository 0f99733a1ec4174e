//! Reads files that contain one document of Transom's own: configurations, baselines and tests of policies. Each problem
//! has its line.

use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::api::read_document;
use crate::manifest::{self, Document, NodeStep};
use crate::model::syntax::text::one_line;
use crate::process::files::{self, Accept};

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DocumentFileError {
    /// The file cannot be read.
    #[error("cannot read the {what} {name}: {why}")]
    Read {
        /// What the file is.
        what: &'static str,
        name: String,
        /// The error of the operating system.
        why: io::Error,
    },
    /// Its content is invalid; one line per problem.
    #[error("the {what} cannot be used:\n{}", .problems.join("\n"))]
    Invalid {
        /// What the file is.
        what: &'static str,
        /// The problems, each with file and line.
        problems: Vec<String>,
    },
}

/// A file that was read.
pub(super) struct DocumentFile<'f, T> {
    pub content: T,
    document: Option<Document>,
    what: &'static str,
    file: &'f Path,
    problems: Vec<String>,
}

/// Reads a file with at most one document; an empty file is an empty map.
///
/// # Errors
/// If it cannot be read, or is invalid.
pub(super) fn read<'f, T: DeserializeOwned>(
    file: &'f Path,
    what: &'static str,
) -> Result<DocumentFile<'f, T>, DocumentFileError> {
    let bytes = files::read(file, Accept::RegularOrPipe, files::MANIFEST_BYTES);
    let bytes = bytes.map_err(|why| DocumentFileError::Read {
        what,
        name: file.display().to_string(),
        why,
    })?;
    let mut parsed = manifest::parse(bytes);
    if parsed.documents.is_empty() && parsed.errors.is_empty() {
        parsed = manifest::parse(b"{}".to_vec());
    }
    let mut problems = Vec::new();
    let mut problem = |line: usize, message: &str| problems.push(problem_at(file, line, message));
    for error in &parsed.errors {
        problem(error.line, &error.message);
    }
    // Of a file that is only for Transom, nothing is ignored.
    for warning in &parsed.warnings {
        problem(warning.position.line, &warning.message);
    }
    if let Some(second) = parsed.documents.get(1) {
        problem(
            second.start().line,
            "there is a second document; the file has only one",
        );
    }
    let content = match parsed.documents.first().map(read_document) {
        Some(Ok(content)) => Some(content),
        Some(Err(errors)) => {
            for error in &errors {
                problem(error.line, &error.message);
            }
            None
        }
        None => None,
    };
    match content {
        Some(content) if problems.is_empty() => Ok(DocumentFile {
            content,
            document: parsed.documents.into_iter().next(),
            what,
            file,
            problems,
        }),
        _ => Err(DocumentFileError::Invalid { what, problems }),
    }
}

impl<T> DocumentFile<'_, T> {
    /// The line of the field at a path.
    pub fn line(&self, path: &[NodeStep<'_>]) -> usize {
        self.document
            .as_ref()
            .map_or(1, |document| document.locate(path).line)
    }

    /// Records a problem with the field at a path.
    pub fn problem(&mut self, path: &[NodeStep<'_>], message: &str) {
        let line = self.line(path);
        self.problems.push(problem_at(self.file, line, message));
    }

    /// The content.
    ///
    /// # Errors
    /// If there are problems.
    pub fn finish(self) -> Result<T, DocumentFileError> {
        if self.problems.is_empty() {
            return Ok(self.content);
        }
        Err(DocumentFileError::Invalid {
            what: self.what,
            problems: self.problems,
        })
    }
}

fn problem_at(file: &Path, line: usize, message: &str) -> String {
    one_line(&format!("{}:{line}: {message}", file.display())).into_owned()
}
