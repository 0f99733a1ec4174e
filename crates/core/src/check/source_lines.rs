//! A text that was read and is kept: for excerpts of lines, and for edits.

use crate::manifest::{Position, TextIndex};

/// A text, and where its lines are.
#[derive(Debug)]
pub struct SourceLines {
    /// As read; bytes that are not UTF-8 have neither excerpts nor edits.
    read: Result<String, Vec<u8>>,
    /// The length of the byte order mark.
    mark: usize,
    index: TextIndex,
}

impl SourceLines {
    /// A text of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        const MARK: char = '\u{FEFF}';
        let read = String::from_utf8(bytes).map_err(std::string::FromUtf8Error::into_bytes);
        let text = read.as_deref().unwrap_or_default();
        let rest = text.strip_prefix(MARK).unwrap_or(text);
        SourceLines {
            mark: text.len() - rest.len(),
            index: TextIndex::new(rest),
            read,
        }
    }

    /// The bytes of the text.
    pub fn bytes(&self) -> &[u8] {
        self.read.as_ref().map_or_else(Vec::as_slice, String::as_bytes)
    }

    /// The text without a byte order mark; empty if it is not UTF-8.
    fn text(&self) -> &str {
        let text = self.read.as_deref().unwrap_or_default();
        text.get(self.mark..).unwrap_or_default()
    }

    /// The characters of a line (from 1) after the first `skip`, at most `most` of them.
    pub fn excerpt(&self, line: usize, skip: usize, most: usize) -> Option<String> {
        let column = skip + 1;
        let (offset, found) = self.index.offset_before(Position { line, column })?;
        let rest = self.text().get(offset..)?;
        let of_line = rest.chars().take_while(|c| !matches!(c, '\n' | '\r'));
        Some(of_line.skip(column - found.column).take(most).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_kept_and_has_no_column() {
        let lines = SourceLines::new("\u{FEFF}größe: 1\r\nb: 2".into());
        assert!(lines.bytes().starts_with(b"\xEF\xBB\xBF"));
        assert_eq!(lines.excerpt(1, 0, 5).as_deref(), Some("größe"));
        assert_eq!(lines.excerpt(2, 1, 9).as_deref(), Some(": 2"));
        assert_eq!(lines.excerpt(3, 0, 9), None);
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_kept_and_have_no_excerpts() {
        let lines = SourceLines::new(vec![b'a', 0xFF]);
        assert_eq!(lines.bytes(), [b'a', 0xFF]);
        assert_eq!(lines.excerpt(1, 0, 9).unwrap_or_default(), "");
    }
}
