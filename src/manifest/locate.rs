//! Finds nodes in valid JSON text without making a tree of it, and turns byte offsets into lines and columns.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

use super::{Position, Step};

/// Where the node at a byte offset of transcribed JSON text stood in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) offset: u32,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The position of the mark at `offset`, or of the nearest before it.
pub(super) fn marked(marks: &[Mark], offset: usize) -> Position {
    let after = marks.partition_point(|mark| mark.offset as usize <= offset);
    after
        .checked_sub(1)
        .and_then(|index| marks.get(index))
        .map_or(Position { line: 1, column: 1 }, |mark| Position {
            line: mark.line as usize,
            column: mark.column as usize,
        })
}

/// The lines of a text with their ends; `\n`, `\r\n` and `\r` end a line, as in YAML.
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

/// Known places of a text, so that a position costs a search and a short count: every line start, and a checkpoint
/// every few thousand bytes of a long line (JSON is often one line of megabytes).
#[derive(Debug)]
pub(super) struct TextIndex(Vec<Mark>);

impl TextIndex {
    const STRIDE: usize = 4096;

    pub(super) fn new(text: &str) -> Self {
        let mut marks = Vec::new();
        let (mut offset, mut number) = (0, 1);
        for line in lines(text) {
            let (mut column, mut rest) = (1, line);
            loop {
                marks.push(Mark {
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

    pub(super) fn position(&self, text: &str, offset: usize) -> Position {
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

/// Offsets, lines and columns fit 32 bits: the input is at most 1 GiB, and `yaml` bounds what it writes.
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

/// Walks paths through one document and remembers what it has passed, so that many paths cost little more than one.
pub(super) struct Walker<'t> {
    text: &'t str,
    start: usize,
    /// The members of the objects and lists passed so far, by the offset at which these begin: key and value.
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

    /// The offset at which the node at `path` is known (a key, an item), or its nearest existing parent.
    pub(super) fn walk(&mut self, path: &[Step<'_>]) -> usize {
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
                Step::Key(name) => members
                    .iter()
                    .find(|(key, _)| string_at(text, key.clone()).is_some_and(|key| key == *name))
                    .map(|(key, value)| (key.start, *value)),
                Step::Index(index) => members
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

/// The string whose JSON form stands at `range`, if it is one.
pub(super) fn string_at(text: &str, range: Range<usize>) -> Option<Cow<'_, str>> {
    let raw = text.get(range)?;
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str::<String>(raw).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

/// The members of an object (key with its quotes, value) or of an array (an empty key), as ranges of the text.
///
/// The text must be valid JSON; of anything else it yields nonsense, but it ends and does not panic.
pub(super) struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
    keyed: bool,
}

impl<'a> Members<'a> {
    /// The members of the object that begins at `at`; none if there is no object.
    pub(super) fn of_object(text: &'a str, at: usize) -> Self {
        Self::open(text, at, b'{')
    }

    /// The items of the array that begins at `at`; none if there is no array.
    pub(super) fn of_array(text: &'a str, at: usize) -> Self {
        Self::open(text, at, b'[')
    }

    fn open(text: &'a str, at: usize, bracket: u8) -> Self {
        let bytes = text.as_bytes();
        let at = if bytes.get(at) == Some(&bracket) {
            at + 1
        } else {
            bytes.len()
        };
        Self {
            bytes,
            at,
            keyed: bracket == b'{',
        }
    }
}

impl Iterator for Members<'_> {
    type Item = (Range<usize>, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut start = skip_blank(self.bytes, self.at);
        let mut key = start..start;
        match (self.bytes.get(start)?, self.keyed) {
            (b'}' | b']', _) => {
                self.at = self.bytes.len();
                return None;
            }
            (b'"', true) => {
                key = start..skip_string(self.bytes, start + 1);
                // After the key come blanks, the colon and blanks.
                start = skip_blank(self.bytes, skip_blank(self.bytes, key.end) + 1);
            }
            _ => {}
        }
        let end = skip_value(self.bytes, start);
        let next = skip_blank(self.bytes, end);
        self.at = if self.bytes.get(next) == Some(&b',') {
            next + 1
        } else {
            next.max(start + 1)
        };
        Some((key, start..end))
    }
}

fn skip_blank(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

/// The offset after the string whose opening quote is before `at`.
fn skip_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(rest) = bytes.get(at..) {
        match rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
            Some(found) if rest.get(found) == Some(&b'"') => return at + found + 1,
            Some(found) => at += found + 2,
            None => break,
        }
    }
    bytes.len()
}

/// The offset after the value that begins at `at`. Counts brackets, so depth costs nothing.
fn skip_value(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut end = at;
    while let Some(byte) = bytes.get(end) {
        match byte {
            b'"' => {
                end = skip_string(bytes, end + 1);
                if depth == 0 {
                    return end;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return end + 1;
                }
            }
            b',' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return end,
            _ if depth == 0 => {
                // A number or a word: it ends at whatever cannot be part of it.
                let rest = bytes.get(end..).unwrap_or_default();
                let length = rest
                    .iter()
                    .position(|byte| b",]} \t\n\r".contains(byte))
                    .unwrap_or(rest.len());
                return end + length.max(1);
            }
            _ => {}
        }
        end += 1;
    }
    bytes.len()
}

/// Writes `text` as a JSON string; the same text always gives the same bytes.
pub(super) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest
        .bytes()
        .position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\')
    {
        // The byte at `at` is ASCII, so both sides of it are character boundaries.
        let (clean, tail) = rest.split_at(at);
        let (special, tail) = tail.split_at(1);
        out.push_str(clean);
        match special {
            "\"" => out.push_str("\\\""),
            "\\" => out.push_str("\\\\"),
            "\n" => out.push_str("\\n"),
            "\r" => out.push_str("\\r"),
            "\t" => out.push_str("\\t"),
            other => {
                for byte in other.bytes() {
                    // Writing to a String does not fail.
                    let _ = write!(out, "\\u{byte:04x}");
                }
            }
        }
        rest = tail;
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_whatever_the_blanks() {
        let text = " { \"a\" : [ 1 , \"],\\\"}\" ,{ } ] ,\n\"b\":-1.5e3,\"c\":null }";
        let found: Vec<_> = Members::of_object(text, 1)
            .map(|(key, value)| (&text[key], &text[value]))
            .collect();
        assert_eq!(
            found,
            [
                ("\"a\"", "[ 1 , \"],\\\"}\" ,{ } ]"),
                ("\"b\"", "-1.5e3"),
                ("\"c\"", "null")
            ]
        );
        let items: Vec<_> = Members::of_array(text, 9)
            .map(|(_, value)| &text[value])
            .collect();
        assert_eq!(items, ["1", "\"],\\\"}\"", "{ }"]);
        assert_eq!(Members::of_object(text, 0).count(), 0);
        assert_eq!(Members::of_array("[]", 0).count(), 0);
        assert_eq!(Members::of_object("{ }", 0).count(), 0);
    }

    #[test]
    fn nonsense_ends() {
        for text in [
            "{", "{\"", "{\"a", "{\"a\"", "{\"a\":", "[}", "[,,,", "[\"\\", "{a b c", "[]]]", "{\"a\":}",
            "[1 2 3",
        ] {
            assert!(Members::of_object(text, 0).count() < 9, "{text}");
            assert!(Members::of_array(text, 0).count() < 9, "{text}");
            Walker::new(text, 0).walk(&[Step::Key("a"), Step::Index(2)]);
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

    #[test]
    fn strings_are_written_as_json_reads_them() {
        for text in [
            "",
            "plain é",
            "\"quoted\"",
            "C:\\logs",
            "a\nb\tc\r\u{1}\u{1f}\u{7f}\u{2028}",
        ] {
            let mut out = String::new();
            write_string(&mut out, text);
            assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
            assert_eq!(string_at(&out, 0..out.len()).unwrap(), text);
        }
    }
}
