//! Text from inputs that is printed: none of it can begin a line, move a terminal's cursor, turn the direction of writing, or
//! give an order to a CI system that reads the log.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::model::text::{is_hidden, one_line};

/// The text on one line, with nothing in it that does more than stand there. Keeps the count of characters.
pub fn safe(text: &str) -> Cow<'_, str> {
    let text = one_line(text);
    if !orders(&text) {
        return text;
    }
    let plain = |(at, c)| {
        if is_order(&text, at) {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    Cow::Owned(text.char_indices().map(plain).collect())
}

/// The same for a document in JSON, which means what it meant: such characters are escaped in its strings, where alone they
/// can stand. JSON has no line ends in strings.
pub fn safe_json(json: &str) -> Cow<'_, str> {
    if !json.contains(is_hidden) && !orders(json) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 64);
    for (at, c) in json.char_indices() {
        if is_hidden(c) || is_order(json, at) {
            // Writing to a String cannot fail. None of them needs a surrogate.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Whether there is an order in a text.
fn orders(text: &str) -> bool {
    text.contains("##") && text.match_indices('#').any(|(at, _)| is_order(text, at))
}

/// Whether the second sign of an order stands here. GitHub and Azure take orders in the middle of a line too: `##[error]`,
/// `##vso[task.setvariable]`.
fn is_order(text: &str, at: usize) -> bool {
    let rest = at.checked_sub(1).and_then(|before| text.get(before..));
    let after = rest.and_then(|rest| rest.strip_prefix("##"));
    after.is_some_and(|after| after.starts_with(|c: char| c == '[' || c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::{safe, safe_json};

    #[test]
    fn nothing_printed_gives_an_order() {
        for (text, printed) in [
            ("plain", "plain"),
            ("a\n::error ::b", "a ::error ::b"),
            ("a\r\x1b[2Jb", "a  [2Jb"),
            ("a ##vso[task.setvariable]", "a #\u{fffd}vso[task.setvariable]"),
            ("##[error]##[error]", "#\u{fffd}[error]#\u{fffd}[error]"),
            ("###[error]", "##\u{fffd}[error]"),
            ("## a comment", "## a comment"),
            ("a\u{202e}b\u{2028}c", "a\u{fffd}b\u{fffd}c"),
        ] {
            assert_eq!(safe(text), printed);
            assert_eq!(text.chars().count(), printed.chars().count());
            let json = serde_json::to_string_pretty(&[text]).unwrap();
            let escaped = safe_json(&json);
            assert_eq!(
                safe(&escaped.replace('\n', "")),
                escaped.replace('\n', ""),
                "{escaped}"
            );
            assert_eq!(serde_json::from_str::<Vec<String>>(&escaped).unwrap(), [text]);
        }
    }
}
