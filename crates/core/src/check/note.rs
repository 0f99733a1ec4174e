//! What is said about inputs in addition to findings: what could not be read, and notes.

use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::syntax::string_enum::string_enum;

/// A part of the input that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct UnreadableInput {
    /// The name of the file; `-` for standard input.
    pub source: String,
    /// The line, from 1; 0 if the whole file could not be read.
    pub line: usize,
    /// The reason and the remedy.
    pub message: String,
}

impl UnreadableInput {
    /// An error at a line of an input.
    pub fn new(source: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        UnreadableInput {
            source: source.into(),
            line,
            message: message.into(),
        }
    }

    /// An error of a whole file or folder.
    pub fn of_file(path: &Path, message: impl Into<String>) -> Self {
        UnreadableInput::new(path.display().to_string(), 0, message)
    }
}

/// As in `file.yaml:7: message`.
impl fmt::Display for UnreadableInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnreadableInput {
            source,
            line,
            message,
        } = self;
        match line {
            0 => write!(f, "{source}: {message}"),
            line => write!(f, "{source}:{line}: {message}"),
        }
    }
}

string_enum! {
    /// How much a note matters.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum NoteLevel {
        /// It can be cleaned up.
        Note = "note",
        /// It has an effect that the author did not intend.
        Warning = "warning",
    }
}

/// A note about an input, suppressions or images.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Note")]
pub struct CheckNote {
    /// The name of the file; `-` for standard input.
    pub source: String,
    /// The line, from 1; 0 if there is none.
    pub line: usize,
    /// The column, from 1, in characters; 0 if there is none.
    pub column: usize,
    /// How important it is.
    pub level: NoteLevel,
    /// The note.
    pub message: String,
}

impl CheckNote {
    /// A note about a place: its line and its column.
    pub fn new(
        source: impl Into<String>,
        (line, column): (usize, usize),
        level: NoteLevel,
        message: String,
    ) -> Self {
        CheckNote {
            source: source.into(),
            line,
            column,
            level,
            message,
        }
    }
}

/// As in `file.yaml:7:3: message`.
impl fmt::Display for CheckNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CheckNote {
            source,
            line,
            column,
            message,
            ..
        } = self;
        match (line, column) {
            (0, _) => write!(f, "{source}: {message}"),
            (line, 0) => write!(f, "{source}:{line}: {message}"),
            (line, column) => write!(f, "{source}:{line}:{column}: {message}"),
        }
    }
}
