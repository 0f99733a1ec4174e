//! Texts for people: cut to a length, on one line, listed. The one place that cuts and lists.

use std::borrow::Cow;
use std::fmt::Write as _;

/// So much of a text as fits into `most` bytes, an ellipsis at its end where something is missing.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let room = most.saturating_sub('…'.len_utf8());
    let end = (0..=room).rev().find(|at| text.is_char_boundary(*at));
    Cow::Owned(format!(
        "{}…",
        text.get(..end.unwrap_or_default()).unwrap_or_default()
    ))
}

/// At most so many characters of a text, and of these so many from its end; an ellipsis where something is missing.
pub fn cut_middle(text: &str, most: usize, end: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= most {
        return Cow::Borrowed(text);
    }
    let start = text.chars().take(most.saturating_sub(end + 1));
    let end = text.chars().skip(length.saturating_sub(end));
    Cow::Owned(start.chain(['…']).chain(end).collect())
}

/// A value from an object as a message may quote it: control and direction characters escaped, a long one cut.
pub fn shown(value: &str) -> String {
    /// Sixty, and the ellipsis.
    const LONGEST: usize = 63;
    let mut text = String::with_capacity(value.len().min(LONGEST));
    for c in cut(value, LONGEST).chars() {
        if c.is_control() || is_hidden(c) {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    text
}

/// Whether a character has no width of its own, turns the direction of writing, or ends a line where readers of logs know
/// Unicode's line ends.
pub fn is_hidden(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The text on one line: what would end a line, or move a terminal's cursor, is a space, and what has no width or turns the
/// direction of writing the replacement character. As many characters as before.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if is_one_line(text) {
        return Cow::Borrowed(text);
    }
    let plain = |c: char| match c {
        c if c.is_control() => ' ',
        c if is_hidden(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    Cow::Owned(text.chars().map(plain).collect())
}

/// Whether nothing in the text would end a line, move a terminal's cursor, or hide.
pub fn is_one_line(text: &str) -> bool {
    // Nearly every text is plain ASCII, and bytes are compared many at a time.
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    is_plain || !text.contains(|c: char| c.is_control() || is_hidden(c))
}

/// The first `most` names, each of at most [`LONGEST_NAME`] bytes, and how many more there are: `a, b and 3 more`.
pub fn list<N: AsRef<str>>(names: impl IntoIterator<Item = N>, most: usize) -> String {
    let mut names = names.into_iter();
    let mut text = String::new();
    for name in names.by_ref().take(most) {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}{}", cut(name.as_ref(), LONGEST_NAME));
    }
    match names.count() {
        0 => {}
        more if text.is_empty() => _ = write!(text, "{more}"),
        more => _ = write!(text, " and {more} more"),
    }
    text
}

/// How much of a name is shown in a [`list`], in bytes.
pub const LONGEST_NAME: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_never_longer_than_asked_for() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "lo…");
        assert_eq!(cut("äöüäöü", 8), "äö…");
        for most in 3..20 {
            assert!(cut("ein längerer Text", most).len() <= most, "{most}");
        }
    }

    #[test]
    fn a_text_that_is_cut_in_its_middle_keeps_its_end() {
        assert_eq!(cut_middle("in all", 6, 2), "in all");
        assert_eq!(cut_middle("äöü and the end", 7, 3), "äöü…end");
    }

    #[test]
    fn nothing_of_a_text_reaches_the_start_of_a_line() {
        assert_eq!(one_line("a\n::error ::\u{1b}[31m"), "a ::error :: [31m");
        assert_eq!(one_line("a\u{202e}b\u{2028}c"), "a\u{fffd}b\u{fffd}c");
        assert!(matches!(one_line("plain"), Cow::Borrowed("plain")));
    }

    #[test]
    fn the_first_names_are_listed_and_the_others_counted() {
        assert_eq!(list(["a", "b"], 3), "a, b");
        assert_eq!(list(["a", "b", "c", "d"], 3), "a, b, c and 1 more");
        assert_eq!(list([] as [&str; 0], 3), "");
        assert_eq!(list(["a", "b"], 0), "2");
    }
}
