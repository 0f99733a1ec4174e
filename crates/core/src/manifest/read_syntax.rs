//! Reads the syntax trees of a whole text, YAML or JSON, for edits.

use std::cell::OnceCell;

use super::input::{Chunk, split};
use super::json::JsonValue;
use super::locate::TextIndex;
use super::syntax::{Syntax, SyntaxRoot};
use super::{MAX_ERRORS, Position, json, yaml};

impl Syntax {
    /// Reads the documents of a text that [`parse`](super::parse) accepts, if they contain one of these positions.
    pub fn of(text: &str, positions: &[Position]) -> Self {
        let mut syntax = Syntax::default();
        let index = OnceCell::new();
        let chunks = split(text);
        for (at, chunk) in chunks.iter().enumerate() {
            let next = chunks.get(at + 1).map_or(usize::MAX, |next| next.line);
            let is_meant = |position: &Position| (chunk.line..next).contains(&position.line);
            if positions.iter().any(is_meant) {
                syntax.read(text, chunk, &index);
            }
        }
        syntax
    }

    /// `index` is of the whole text, for all documents that are JSON.
    fn read(&mut self, text: &str, chunk: &Chunk, index: &OnceCell<TextIndex>) {
        let Some(part) = text.get(chunk.range.clone()).filter(|_| !chunk.is_refused) else {
            return;
        };
        if let Some(start) = json::begins(part) {
            let scan = json::read(text, chunk.range.start + start..chunk.range.end, MAX_ERRORS);
            if scan.errors.is_empty() {
                let index = || index.get_or_init(|| TextIndex::new(text));
                let position = |at| index().position(text, at);
                let root = |value: JsonValue| SyntaxRoot::of_json(text, value.range, &position, true);
                self.roots.extend(scan.values.into_iter().map(root));
                return;
            }
        }
        if let Ok(document) = yaml::read(text, chunk, None) {
            self.roots.extend(document.root);
        }
    }
}
