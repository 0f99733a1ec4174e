//! Reads an input document by document: JSON as it is, YAML as JSON text that is generated from its syntax tree.

use std::ops::Range;
use std::sync::Arc;

use super::document::{SourceText, Unfolded};
use super::input::{self, Chunk};
use super::json::{self, JsonScan};
use super::syntax::SyntaxRoot;
use super::transcript::Transcript;
use super::yaml::{self, YamlDocument, YamlError};
use super::{MAX_ERRORS, ParseError, ParseWarning, Parsed, Position, directives};

/// The largest text that is tried as YAML after it failed as JSON (the YAML scanner keeps a whole `{ … }` in
/// memory).
const MAX_FLOW: usize = 4 << 20;
/// The size from which a document is not kept as a tree if it is a list: only one item at a time is.
pub(super) const LARGE_LIST: usize = 1 << 20;
/// The message for text after the end of a document.
const UNREAD: &str = "kubectl does not read this, because the document above has ended: write `---` above it";

/// A document, before lists are expanded.
struct FoundValue {
    /// Whether it was written as JSON; else it is in the input.
    is_generated: bool,
    range: Range<usize>,
    /// The first items of a large list, which were written before the list itself.
    items: Vec<Range<usize>>,
}

/// Reads the documents of an input.
pub(super) struct DocumentReader {
    input: SourceText,
    /// The documents of YAML, and JSON with duplicate keys, as JSON.
    written: Transcript,
    found: Vec<FoundValue>,
    warnings: Vec<ParseWarning>,
    errors: Vec<ParseError>,
    template_seen: bool,
}

/// A state to go back to: of the transcript, and the number of warnings.
type Checkpoint = ((usize, usize), usize);

impl DocumentReader {
    /// Reads this input from its beginning.
    pub fn new(text: String) -> Self {
        DocumentReader {
            input: SourceText::of_input(text),
            written: Transcript::default(),
            found: Vec::new(),
            warnings: Vec::new(),
            errors: Vec::new(),
            template_seen: false,
        }
    }

    /// Reads every document; stops if too many cannot be read.
    pub fn read(mut self) -> Parsed {
        for chunk in input::split(&self.input.text) {
            self.chunk(&chunk);
            if self.errors.len() > MAX_ERRORS {
                self.errors.truncate(MAX_ERRORS);
                let last = self.errors.last();
                let position = last.map_or(Position { line: 1, column: 1 }, |last| Position {
                    line: last.line,
                    column: last.column,
                });
                let message =
                    format!("more than {MAX_ERRORS} errors: the rest was not read; is this a manifest?");
                self.fail(position, message);
                break;
            }
        }
        self.finish()
    }

    fn checkpoint(&self) -> Checkpoint {
        (self.written.checkpoint(), self.warnings.len())
    }

    fn reset(&mut self, (written, warnings): Checkpoint) {
        self.written.reset(written);
        self.warnings.truncate(warnings);
    }

    fn chunk(&mut self, chunk: &Chunk) {
        let Some(text) = self.input.text.get(chunk.range.clone()) else {
            return;
        };
        if chunk.is_refused {
            let failure = yaml::refused_separator(text, chunk.line);
            self.fail_yaml(failure);
        } else if let Some(start) = json::begins(text) {
            self.json(chunk, start);
        } else if let Err(failure) = self.yaml(chunk, true) {
            self.fail_yaml(failure);
        }
    }

    /// Reads text that begins like JSON at an offset. Like kubectl, reads it as YAML if it is not JSON.
    fn json(&mut self, chunk: &Chunk, start: usize) {
        let range = chunk.range.start + start..chunk.range.end;
        let JsonScan { values, mut errors } = json::read(&self.input.text, range, MAX_ERRORS);
        if let Some(first) = errors.first().filter(|_| chunk.range.len() <= MAX_FLOW) {
            let is_yaml = first.looks_like_yaml && values.is_empty();
            match self.yaml(chunk, values.is_empty()) {
                Ok(()) => return,
                Err(failure) if failure.template || is_yaml => {
                    self.fail_yaml(failure);
                    errors.clear();
                }
                Err(_) => {}
            }
        }
        for error in errors {
            let position = self.input.position(error.offset);
            self.fail(position, error.message);
        }
        for value in values {
            if value.has_duplicates {
                self.json_with_duplicates(value.range);
            } else {
                self.found.push(FoundValue {
                    is_generated: false,
                    range: value.range,
                    items: Vec::new(),
                });
            }
        }
    }

    /// Reads a document of YAML. `may_end_early`: whether text may follow its end, which `kubectl` ignores.
    fn yaml(&mut self, chunk: &Chunk, may_end_early: bool) -> Result<(), YamlError> {
        let before = self.checkpoint();
        self.yaml_document(chunk, may_end_early)
            .inspect_err(|_| self.reset(before))
    }

    fn yaml_document(&mut self, chunk: &Chunk, may_end_early: bool) -> Result<(), YamlError> {
        let before = self.checkpoint();
        let (document, mut items) = self.read_yaml(chunk, chunk.range.len() > LARGE_LIST);
        let YamlDocument { mut root, unread } = document?;
        if let Some(position) = unread.filter(|_| !may_end_early) {
            return Err(YamlError::new(position, UNREAD));
        }
        if !items.is_empty() && !root.as_ref().is_some_and(|root| root.node.is_list()) {
            self.reset(before);
            (root, items) = (self.read_yaml(chunk, false).0?.root, Vec::new());
        }
        if let Some(root) = root {
            let range = (self.written).add(&self.input.text, &root, &mut self.warnings)?;
            self.found.push(FoundValue {
                is_generated: true,
                range,
                items,
            });
        }
        self.warnings.extend(unread.map(|position| ParseWarning {
            position,
            message: UNREAD.to_owned(),
            offset: None,
        }));
        Ok(())
    }

    /// Reads a document of YAML; with `streams`, writes the items of a list before the document is complete.
    fn read_yaml(
        &mut self,
        chunk: &Chunk,
        streams: bool,
    ) -> (Result<YamlDocument, YamlError>, Vec<Range<usize>>) {
        let before = (self.written.checkpoint(), self.warnings.len());
        let text = &self.input.text;
        let (written, warnings, mut items) = (&mut self.written, &mut self.warnings, Vec::new());
        let mut sink = |item: Option<SyntaxRoot>| {
            if let Some(item) = item {
                // Without aliases, nothing can fail.
                items.extend(written.add(text, &item, warnings));
            } else {
                written.reset(before.0);
                warnings.truncate(before.1);
                items.clear();
            }
        };
        let document = yaml::read(text, chunk, if streams { Some(&mut sink) } else { None });
        if document.is_err() {
            sink(None);
        }
        (document, items)
    }

    /// Writes JSON again without the entries that a later one replaces.
    fn json_with_duplicates(&mut self, range: Range<usize>) {
        let input = &self.input;
        let root = SyntaxRoot::of_json(&input.text, range, &|at| input.position(at), false);
        // Valid JSON has no aliases, whose expansion could fail.
        if let Ok(range) = self.written.add(&input.text, &root, &mut self.warnings) {
            self.found.push(FoundValue {
                is_generated: true,
                range,
                items: Vec::new(),
            });
        }
    }

    fn fail_yaml(&mut self, failure: YamlError) {
        if failure.template && std::mem::replace(&mut self.template_seen, true) {
            return;
        }
        self.fail(failure.position, failure.message);
    }

    fn fail(&mut self, position: Position, message: String) {
        self.errors.push(ParseError {
            line: position.line,
            column: position.column,
            message,
        });
    }

    fn finish(self) -> Parsed {
        let generated = Arc::new(SourceText::generated(self.written.into_parts()));
        let directives = directives::find(&self.input.text);
        let input = Arc::new(self.input);
        let mut unfolded = Unfolded::default();
        for found in self.found {
            let source = if found.is_generated { &generated } else { &input };
            unfolded.add(source, found.range, &found.items);
        }
        Parsed {
            documents: unfolded.documents,
            errors: self.errors,
            warnings: self.warnings,
            directives,
            function_config: unfolded.function_config,
        }
    }
}
