//! Builds the syntax tree of a YAML document from the events of libyaml's parser, of which `kubectl`'s own reader is
//! another port; `scalar` resolves scalars.

mod builder;
mod diagnostics;
mod hidden;

use std::panic::{AssertUnwindSafe, catch_unwind};

use libyaml_safer::Mark;

use self::builder::TreeBuilder;
use self::diagnostics::DocumentLines;
use self::hidden::HiddenCharacters;
use super::Position;
use super::input::Chunk;
use super::locate;
use super::syntax::SyntaxRoot;

/// One level less than serde_json accepts, so that it can parse the output.
pub(super) const MAX_DEPTH: usize = 127;
/// The message for what is nested deeper.
pub(super) const TOO_DEEP: &str = "nested deeper than 127 levels: no Kubernetes object is, make it flatter";
/// Why a document could not be read.
#[derive(Debug)]
pub(super) struct YamlError {
    pub(super) position: Position,
    pub(super) message: String,
    /// Whether the document is a template that was not rendered.
    pub(super) template: bool,
}

impl YamlError {
    /// An error that no template causes.
    pub(super) fn new(position: Position, message: impl Into<String>) -> Self {
        YamlError {
            position,
            message: message.into(),
            template: false,
        }
    }
}

/// A failure before checking whether a template caused it; line and column from 1, in the document.
struct ScanFailure {
    line: usize,
    column: usize,
    message: String,
    /// The offset in the input of a character that go-yaml may read.
    refused: Option<usize>,
}

impl ScanFailure {
    fn new(line: usize, column: usize, message: impl Into<String>) -> Self {
        ScanFailure {
            line,
            column,
            message: message.into(),
            refused: None,
        }
    }
}

type YamlResult<T> = Result<T, ScanFailure>;

/// Takes the items of a list as soon as they are complete, so that a tree never has all of them; `None`: the document is
/// read again, and the items so far are void.
pub(super) type ItemSink<'r, 's> = &'r mut (dyn FnMut(Option<SyntaxRoot>) + 's);

/// The document of a chunk.
pub(super) struct YamlDocument {
    /// `None` if it is empty.
    pub(super) root: Option<SyntaxRoot>,
    /// The position of the text after the end of the document.
    pub(super) unread: Option<Position>,
}

/// Reads the document of a chunk of a text. As for `kubectl`, a chunk has one document, and what follows its end (`...`) is
/// not read.
///
/// With `sink`, the root is without those `items` that the sink has got.
pub(super) fn read(
    text: &str,
    chunk: &Chunk,
    mut sink: Option<ItemSink<'_, '_>>,
) -> Result<YamlDocument, YamlError> {
    let text = text.get(..chunk.range.end).unwrap_or_default();
    let part = text.get(chunk.range.start..).unwrap_or_default();
    let part = part.trim_start_matches('\u{FEFF}');
    let base = text.len() - part.len();
    let mut hidden = HiddenCharacters::default();
    let (root, tree) = loop {
        if let Some(sink) = &mut sink {
            sink(None);
        }
        let mut builder = TreeBuilder::new(text, base, chunk.line, &hidden, sink.as_deref_mut());
        // A panic of the scanner must lose one document, never the whole run.
        let outcome = catch_unwind(AssertUnwindSafe(|| builder.read())).unwrap_or_else(|_| {
            let message =
                "the YAML scanner fails at this document: write it more plainly, for example as JSON";
            Err(ScanFailure::new(1, 1, message))
        });
        let tree = builder.tree;
        let failure = match outcome {
            Ok(root) => break (root, tree),
            Err(failure) => failure,
        };
        let refused = failure.refused.map(|at| hidden.offset(at));
        let mut lines = DocumentLines::new(part);
        let error = diagnostics::explain(failure, &mut lines, &tree.literal, chunk.line);
        if !refused.is_some_and(|offset| hidden.hide(part, offset)) {
            return Err(error);
        }
    };
    let unread = tree.end.and_then(|end| unread_offset(text, end));
    let unread = unread.map(|offset| position_in(part, offset - base, chunk.line));
    let Some(node) = root else {
        return Ok(YamlDocument { root: None, unread });
    };
    let of_root = || Some(node.unrendered_field().filter(|_| tree.has_braces)?.place);
    if let Some(field) = tree.unrendered.or_else(of_root) {
        return Err(diagnostics::unrendered(field.position()));
    }
    let aliases = tree.aliases;
    let root = Some(SyntaxRoot { node, aliases });
    Ok(YamlDocument { root, unread })
}

/// The position of an offset in a document that begins on a line.
fn position_in(text: &str, offset: usize, first_line: usize) -> Position {
    let before = text.get(..offset).unwrap_or_default();
    let last = before.rsplit(['\n', '\r']).next().unwrap_or_default();
    let line = locate::lines(before).count() - usize::from(!last.is_empty());
    Position {
        line: first_line + line,
        column: last.chars().count() + 1,
    }
}

/// The error for a chunk after a separator that `kubectl` does not accept.
pub(super) fn refused_separator(chunk: &str, line: usize) -> YamlError {
    let position = Position { line, column: 4 };
    let separator = chunk.lines().next().unwrap_or_default();
    if separator.contains("{{") {
        return diagnostics::unrendered(position);
    }
    YamlError::new(
        position,
        "text on the line of a `---`: kubectl accepts only a comment there; put the text on the next line",
    )
}

/// The offset of the first text after the end of a document that is neither a comment nor another end.
fn unread_offset(text: &str, end: usize) -> Option<usize> {
    let mut rest = text.get(end..)?;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{FEFF}');
        if rest.starts_with('#') {
            rest = rest.trim_start_matches(|c| c != '\n' && c != '\r');
        } else if let Some(after) = rest.strip_prefix("...") {
            rest = after;
        } else {
            return (!rest.is_empty()).then(|| text.len() - rest.len());
        }
    }
}

/// Lines and columns of the scanner begin at 0.
fn mark_number(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn failure(at: Mark, message: String) -> ScanFailure {
    ScanFailure::new(mark_number(at.line) + 1, mark_number(at.column) + 1, message)
}
