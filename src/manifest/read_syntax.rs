//! Reads the syntax trees of a whole text, YAML or JSON, for edits.

use super::input::{Chunk, split};
use super::locate::TextIndex;
use super::syntax::{Syntax, SyntaxRoot};
use super::{MAX_ERRORS, Position, json, yaml};

impl Syntax {
    /// Reads the documents of a text that [`parse`](super::parse) accepts, if they contain one of these positions.
    pub fn of(text: &str, positions: &[Position]) -> Self {
        let mut syntax = Syntax::default();
        let chunks = split(text);
        for (at, chunk) in chunks.iter().enumerate() {
            let next = chunks.get(at + 1).map_or(usize::MAX, |next| next.line);
            let is_meant = |position: &Position| (chunk.line..next).contains(&position.line);
            if positions.iter().any(is_meant) {
                syntax.read(text, chunk);
            }
        }
        syntax
    }

    fn read(&mut self, text: &str, chunk: &Chunk) {
        let Some(part) = text.get(chunk.range.clone()) else {
            return;
        };
        if let Some(start) = json::begins(part) {
            let scan = json::read(text, chunk.range.start + start..chunk.range.end, MAX_ERRORS);
            if scan.errors.is_empty() {
                let index = TextIndex::new(text);
                let roots = scan.values.into_iter();
                self.roots
                    .extend(roots.map(|value| SyntaxRoot::of_json(text, value.range, &index, true)));
                return;
            }
        }
        if let Ok(Some(document)) = yaml::read(text, chunk, None) {
            self.roots.push(document);
        }
    }
}
