//! Finds the position of the node at a path: follows paths in JSON text, and converts byte offsets to lines
//! and columns.

use std::collections::HashMap;
use std::ops::Range;

use super::{NodeStep, Position};
use crate::model::syntax::json::{Members, string_at};

/// The input position of the node at a byte offset of generated JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextMark {
    pub(super) offset: u32,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The position of the mark at `offset`, or of the nearest before it.
pub(super) fn marked(marks: &[TextMark], offset: usize) -> Position {
    let after = marks.partition_point(|mark| mark.offset as usize <= offset);
    after
        .checked_sub(1)
        .and_then(|index| marks.get(index))
        .map_or(Position { line: 1, column: 1 }, |mark| Position {
            line: mark.line as usize,
            column: mark.column as usize,
        })
}

/// The lines of a text including their ends; `\n`, `\r\n` and `\r` end a line, as in YAML.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let bytes = rest.as_bytes();
        let end = match bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            Some(at) if bytes.get(at) == Some(&b'\r') && bytes.get(at + 1) == Some(&b'\n') => at + 2,
            Some(at) => at + 1,
            None if rest.is_empty() => return None,
            None => rest.len(),
        };
        // `end` follows an ASCII byte or is the end, so it is a character boundary.
        let (line, tail) = rest.split_at(end);
        rest = tail;
        Some(line)
    })
}

/// Known positions of a text, so that finding one costs a search and a short count: every line start, and a
/// checkpoint every few thousand bytes of a long line (JSON is often one line of megabytes).
#[derive(Debug)]
pub struct TextIndex(Vec<TextMark>);

impl TextIndex {
    const STRIDE: usize = 4096;

    /// The index of a text.
    pub fn new(text: &str) -> Self {
        let mut marks = Vec::new();
        let (mut offset, mut number) = (0, 1);
        for line in lines(text) {
            let (mut column, mut rest) = (1, line);
            loop {
                marks.push(TextMark {
                    offset: narrow(offset),
                    line: narrow(number),
                    column: narrow(column),
                });
                if rest.len() <= Self::STRIDE {
                    break;
                }
                let (piece, tail) = rest.split_at(floor_boundary(rest, Self::STRIDE));
                offset += piece.len();
                column += piece.chars().count();
                rest = tail;
            }
            offset += rest.len();
            number += 1;
        }
        Self(marks)
    }

    /// The last known position at or before a position, in its line, and its offset; `None` if there is no such line.
    pub fn offset_before(&self, position: Position) -> Option<(usize, Position)> {
        let known = |mark: &TextMark| Position {
            line: mark.line as usize,
            column: mark.column as usize,
        };
        let after = self.0.partition_point(|mark| known(mark) <= position);
        let mark = self.0.get(after.checked_sub(1)?)?;
        let found = known(mark);
        (found.line == position.line).then_some((mark.offset as usize, found))
    }

    /// The position of an offset of the text.
    pub fn position(&self, text: &str, offset: usize) -> Position {
        let after = self.0.partition_point(|mark| mark.offset as usize <= offset);
        let Some(mark) = after.checked_sub(1).and_then(|index| self.0.get(index)) else {
            return Position { line: 1, column: 1 };
        };
        let until = floor_boundary(text, offset);
        let passed = text
            .get(mark.offset as usize..until)
            .map_or(0, |passed| passed.chars().count());
        Position {
            line: mark.line as usize,
            column: mark.column as usize + passed,
        }
    }
}

/// Offsets, lines and columns fit into 32 bits: the input is at most 1 GiB, and `yaml` bounds its output.
pub(super) fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The nearest character boundary at or before `at`.
fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Follows paths in one document and caches what it has read, so that many paths cost little more than one.
pub(super) struct Walker<'t> {
    text: &'t str,
    start: usize,
    /// The keys and values of the objects and lists read so far, by the offset of the object or list.
    passed: HashMap<usize, Vec<(Range<usize>, usize)>>,
}

impl<'t> Walker<'t> {
    pub(super) fn new(text: &'t str, start: usize) -> Self {
        Self {
            text,
            start,
            passed: HashMap::new(),
        }
    }

    /// The offset of the node at `path` (of its key or item), or of its nearest existing parent.
    pub(super) fn walk(&mut self, path: &[NodeStep<'_>]) -> usize {
        let text = self.text;
        let (mut known, mut value) = (self.start, self.start);
        for step in path {
            let members = self.passed.entry(value).or_insert_with(|| {
                let object = Members::of_object(text, value);
                let list = Members::of_array(text, value);
                object
                    .chain(list)
                    .map(|(key, value)| (key, value.start))
                    .collect()
            });
            let next = match step {
                NodeStep::Key(name) => members
                    .iter()
                    .find(|(key, _)| string_at(text, key.clone()).is_some_and(|key| key == *name))
                    .map(|(key, value)| (key.start, *value)),
                NodeStep::Index(index) => members
                    .get(*index)
                    .filter(|(key, _)| key.is_empty())
                    .map(|(_, value)| (*value, *value)),
            };
            let Some(next) = next else { break };
            (known, value) = next;
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_ends() {
        for text in [
            "{", "{\"", "{\"a", "{\"a\"", "{\"a\":", "[}", "[,,,", "[\"\\", "{a b c", "[]]]", "{\"a\":}",
            "[1 2 3",
        ] {
            assert!(Members::of_object(text, 0).count() < 9, "{text}");
            assert!(Members::of_array(text, 0).count() < 9, "{text}");
            Walker::new(text, 0).walk(&[NodeStep::Key("a"), NodeStep::Index(2)]);
        }
    }

    #[test]
    fn every_line_end_counts_once() {
        let found: Vec<_> = lines("a\nb\r\nc\rd\n\n\r\re").collect();
        assert_eq!(found, ["a\n", "b\r\n", "c\r", "d\n", "\n", "\r", "\r", "e"]);
        assert_eq!(lines("").count(), 0);
    }

    #[test]
    fn positions_follow_lines_and_characters() {
        let text = "aé\r\n\rb";
        let index = TextIndex::new(text);
        let found: Vec<_> = [0, 1, 2, 3, 5, 6, 7, 99]
            .map(|at| index.position(text, at))
            .map(|p| (p.line, p.column))
            .into();
        // Offset 2 is inside the é; 99 is after the end.
        assert_eq!(
            found,
            [(1, 1), (1, 2), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2), (3, 2)]
        );
        assert_eq!(marked(&[], 3), Position { line: 1, column: 1 });
    }
}
