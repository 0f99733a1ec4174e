//! Parses manifests (YAML or JSON text) into [`Document`]s: JSON text whose nodes map back to lines of the
//! input. Does not interpret the objects.

mod directives;
mod document;
mod input;
mod json;
mod locate;
mod read_syntax;
mod reader;
mod scalar;
mod syntax;
mod transcript;
mod yaml;

pub use self::syntax::{
    Syntax, SyntaxEntry, SyntaxForm, SyntaxMapping, SyntaxNode, SyntaxObject, line_end, line_start,
};

pub use self::directives::{Directive, DirectiveScope};
pub use self::document::{Document, Locator};
pub use self::locate::TextIndex;
use self::reader::DocumentReader;

/// Parsing stops at this number of errors: the file is not a manifest.
const MAX_ERRORS: usize = 1000;

/// A position in the input, for people and editors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters (not bytes).
    pub column: usize,
}

/// One step of a path from an object to one of its nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeStep<'a> {
    /// The entry with this key of a mapping.
    Key(&'a str),
    /// The item at this index (from 0) of a sequence.
    Index(usize),
}

/// A part of the input that could not be parsed; the rest is still parsed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The message and remedy, in lower case, without the position.
    pub message: String,
}

/// Text that `kubectl` accepts and ignores: a key that the same mapping has again, or what follows the end of a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseWarning {
    /// The position of the repeated key, or of the text.
    pub position: Position,
    /// The message and the remedy.
    pub message: String,
    /// The offset in the transcript of the mapping; `None` if it is outside of every document.
    offset: Option<usize>,
}

/// The result of parsing one input, in input order.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The objects; lists are expanded into their items.
    pub documents: Vec<Document>,
    /// The parts that could not be parsed, with their positions.
    pub errors: Vec<ParseError>,
    /// What `kubectl` reads otherwise than its author may expect.
    pub warnings: Vec<ParseWarning>,
    /// The comments that are addressed to Transom (`# transom:…`).
    pub directives: Vec<Directive>,
    /// The `functionConfig` of the last `ResourceList` that has one: the settings of a KRM function.
    pub function_config: Option<Document>,
}

impl Parsed {
    /// The warnings about this document.
    pub fn warnings_of(&self, document: &Document) -> impl Iterator<Item = &ParseWarning> {
        let is_inside = |warning: &&ParseWarning| warning.is_inside(document);
        self.warnings.iter().filter(is_inside)
    }
}

impl ParseWarning {
    /// Whether it is about this document of the same input.
    pub fn is_inside(&self, document: &Document) -> bool {
        document.is_generated() && self.offset.is_some_and(|offset| document.range.contains(&offset))
    }
}

/// Parses YAML or JSON text: one document or many, including output of `kubectl get -o yaml`.
///
/// Scalars have the same meaning as for `kubectl` (YAML 1.1 as read by go-yaml v2 and sigs.k8s.io/yaml).
/// Lists (`List`, `PodList`, …) are expanded. An invalid document becomes an error and does not affect the
/// others; a file that is an unrendered template gives one error, regardless of the number of invalid
/// documents. Never panics.
pub fn parse(bytes: Vec<u8>) -> Parsed {
    match input::decode(bytes) {
        Ok(text) => DocumentReader::new(text).read(),
        Err(error) => Parsed {
            errors: vec![error],
            ..Parsed::default()
        },
    }
}

#[cfg(test)]
mod tests;
