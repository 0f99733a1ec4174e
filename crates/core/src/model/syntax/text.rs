//! Texts for messages: limits length and lines, and formats lists. All code that truncates or lists uses this module.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use sha2::{Digest as _, Sha256};

/// The beginning of a text that fits into `most` bytes, with an ellipsis if it is truncated.
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

/// At most `most` characters of a text, `end` of them from its end; with an ellipsis if the middle is cut.
pub fn cut_middle(text: &str, most: usize, end: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= most {
        return Cow::Borrowed(text);
    }
    let start = text.chars().take(most.saturating_sub(end + 1));
    let end = text.chars().skip(length.saturating_sub(end));
    Cow::Owned(start.chain(['…']).chain(end).collect())
}

/// The first hexadecimal digits of the SHA-256 of a text, at most 64.
pub fn digest_hex(text: &[u8], digits: usize) -> String {
    let mut hex = hex(&Sha256::digest(text));
    hex.truncate(digits);
    hex
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// A text as a YAML scalar: in quotes unless every parser reads it as the same text without them.
pub fn yaml_scalar(text: &str) -> Cow<'_, str> {
    if is_plain_yaml(text) {
        Cow::Borrowed(text)
    } else {
        // A JSON string is a YAML string.
        Cow::Owned(serde_json::Value::from(text).to_string())
    }
}

/// Whether every YAML parser reads this text without quotes as the same text: only plain words, so that YAML 1.1 and 1.2
/// agree.
pub fn is_plain_yaml(text: &str) -> bool {
    // Numbers and dates do not begin with a letter.
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && (text.chars()).all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '/'))
        && !is_yaml_constant(text)
}

/// Whether a YAML parser may read this text without quotes as a boolean or as null.
pub fn is_yaml_constant(text: &str) -> bool {
    let words = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    words.iter().any(|word| word.eq_ignore_ascii_case(text))
}

/// A count with its noun, as in `1 node` and `2 nodes`.
pub fn count<N: Copy + PartialEq + From<u8> + fmt::Display>(number: N, noun: &str) -> String {
    let s = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{s}")
}

/// A size with one digit after the point, or in bytes if it is less than a kibibyte.
pub fn size_text(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let Some((unit, name)) = UNITS.into_iter().find(|(unit, _)| bytes >= *unit) else {
        return format!("{bytes} B");
    };
    let tenths = (bytes % unit) * 10 / unit;
    format!("{}.{tenths} {name}", bytes / unit)
}

/// The title of an object in messages: `Deployment shop/web`, or `Deployment web` without a namespace.
pub fn object_title(kind: impl fmt::Display, namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        format!("{kind} {name}")
    } else {
        format!("{kind} {namespace}/{name}")
    }
}

/// A word of a command, in single quotes if a shell would not read it as one word.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| {
        c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ':' | '@' | ',' | '=' | '%')
    };
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Breaks a paragraph into lines of at most `width` characters.
pub fn wrap(text: &str, width: usize) -> String {
    let (mut out, mut used) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            out.push('\n');
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out
}

/// A value from an object for a message: control and direction characters escaped, truncated if long.
pub fn shown(value: &str) -> String {
    /// Sixty plus the ellipsis.
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

/// Whether a character has no width, changes the writing direction, or ends a line for log readers that support Unicode
/// line ends.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Whether the second character of a CI command is at this position. GitHub and Azure also accept commands in the
/// middle of a line: `##[error]`, `##vso[task.setvariable]`.
fn is_order(text: &str, at: usize) -> bool {
    let rest = at.checked_sub(1).and_then(|before| text.get(before..));
    let after = rest.and_then(|rest| rest.strip_prefix("##"));
    after.is_some_and(|after| after.starts_with(|c: char| c == '[' || c.is_ascii_alphanumeric()))
}

/// Whether a text can be printed as it is, according to a fast check.
pub fn is_one_line(text: &str) -> bool {
    // Most texts are plain ASCII without a number sign. The fold reads every byte, so that it compares many at a time.
    let is_plain = |byte| matches!(byte, b' '..=b'"' | b'$'..=b'~');
    text.bytes().fold(true, |all, byte| all & is_plain(byte))
        || !text.contains(|c: char| c.is_control() || is_hidden(c)) && !text.contains("##")
}

/// The text as one safe line. Characters that would end a line or move a terminal's cursor become spaces. Characters
/// without width, direction characters, and those that would start a CI command become the replacement character. The
/// number of characters stays the same.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if is_one_line(text) {
        return Cow::Borrowed(text);
    }
    let plain = |(at, c): (usize, char)| match c {
        c if c.is_control() => ' ',
        c if is_hidden(c) || is_order(text, at) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    Cow::Owned(text.char_indices().map(plain).collect())
}

/// A JSON document with the same meaning, in which such characters are escaped. They can occur only in its strings, and
/// a JSON string contains no line ends.
pub fn plain_json(json: &str) -> Cow<'_, str> {
    // serde_json does not escape these control characters: DEL, and the C1 set, which terminals also interpret.
    let is_live = |c: char| is_hidden(c) || matches!(c, '\u{7f}'..='\u{9f}');
    if !json.contains(is_live) && !json.contains("##") {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 64);
    for (at, c) in json.char_indices() {
        if is_live(c) || is_order(json, at) {
            // Writing to a String cannot fail. None of these characters needs a surrogate pair.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Writes each piece through [`one_line`].
pub struct OneLine<W>(pub W);

impl<W: fmt::Write> fmt::Write for OneLine<W> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.0.write_str(&one_line(piece))
    }
}

/// The first `most` names, each of at most [`LONGEST_NAME`] bytes, and the number of the others: `a, b and 3 more`.
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

/// The maximum length of a name in a [`list`], in bytes.
pub const LONGEST_NAME: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_never_longer_than_requested() {
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
    fn what_yaml_reads_as_something_else_than_text_is_quoted() {
        for plain in [
            "windows",
            "Win2019",
            "a.b/c-d_e",
            "e1",
            "x1f",
            "nan",
            "none",
            "trueish",
        ] {
            assert_eq!(yaml_scalar(plain), plain);
        }
        let words = "true True FALSE yes No on Off null NULL y N ~";
        let numbers =
            "0 7 -1 +1 1_000 0644 0o17 0x1f 0b1 1.5 .5 1e3 1:30 .inf -.Inf .nan 2026-12-31 10.0.20348";
        let symbols = "- ? : # & * ! | > % @ ` [ ] { } , = << --- _a a: a#b a,b a{b a]b \u{fc}";
        for texts in [words, numbers, symbols] {
            for text in texts.split(' ') {
                assert_eq!(yaml_scalar(text), format!("\"{text}\""));
            }
        }
        for (text, quoted) in [
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("a ", r#""a ""#),
            ("a\n", r#""a\n""#),
            ("a\"\\", r#""a\"\\""#),
            ("'a'", r#""'a'""#),
        ] {
            assert_eq!(yaml_scalar(text), quoted);
        }
    }

    #[test]
    fn nothing_of_a_text_reaches_the_start_of_a_line() {
        for (text, printed) in [
            ("a\n::error ::b", "a ::error ::b"),
            ("a\n\r\x1b[31mb", "a   [31mb"),
            ("a ##vso[task.setvariable]", "a #\u{fffd}vso[task.setvariable]"),
            ("##[error]##[error]", "#\u{fffd}[error]#\u{fffd}[error]"),
            ("###[error]", "##\u{fffd}[error]"),
            ("## a comment", "## a comment"),
            ("a\u{202e}b\u{2028}c", "a\u{fffd}b\u{fffd}c"),
            ("a\u{9b}31mb\u{7f}", "a 31mb "),
        ] {
            assert_eq!(one_line(text), printed);
            assert_eq!(one_line(printed), printed);
            assert_eq!(text.chars().count(), printed.chars().count());
            let json = serde_json::to_string(&[text]).unwrap();
            let plain = plain_json(&json);
            assert_eq!(one_line(&plain), plain);
            assert_eq!(serde_json::from_str::<Vec<String>>(&plain).unwrap(), [text]);
        }
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
