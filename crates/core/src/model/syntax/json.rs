//! JSON text without a parsed tree: finds members, and writes strings. Fields of a parsed tree that may be missing.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::ops::Range;

use serde_json::Value;

use super::path::{Path, Segment};

/// Whether a path of valid JSON text has a value other than null.
pub fn exists(json: &str, path: &Path) -> bool {
    let found = (path.segments().iter()).try_fold(json.trim_start(), |value, segment| match segment {
        Segment::Field(name) => member(value, name),
        Segment::Key(key) | Segment::Unknown(key) => member(value, key),
        Segment::Item(index, _) => {
            let (_, item) = Members::of_array(value, 0).nth(*index)?;
            value.get(item)
        }
    });
    found.is_some_and(|value| value != "null")
}

/// The text at a JSON Pointer; empty if there is none.
pub fn text(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// The items of the list at a JSON Pointer.
pub fn items<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    let items = value.pointer(pointer).and_then(Value::as_array);
    items.into_iter().flatten()
}

/// The texts of the map at a JSON Pointer, by key.
pub fn labels<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = (String, String)> + use<'v> {
    let map = value.pointer(pointer).and_then(Value::as_object);
    (map.into_iter().flatten()).filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
}

/// The value in an object below these keys.
pub fn at<'j>(json: &'j str, keys: &[&str]) -> Option<&'j str> {
    keys.iter()
        .try_fold(json.trim_start(), |object, key| member(object, key))
}

/// The member of an object with this key; the last one if there are several, like other JSON parsers.
fn member<'j>(object: &'j str, key: &str) -> Option<&'j str> {
    let of_key =
        |(name, _): &(Range<usize>, _)| string_at(object, name.clone()).is_some_and(|name| name == key);
    let (_, value) = Members::of_object(object, 0).filter(of_key).last()?;
    object.get(value)
}

/// The string whose JSON form is at `range`, if it is a string.
pub fn string_at(text: &str, range: Range<usize>) -> Option<Cow<'_, str>> {
    let raw = text.get(range)?;
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str::<String>(raw).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

/// The members of an object (key with its quotes, value) or of an array (an empty key), as ranges of the text.
///
/// The text must be valid JSON; for anything else the result is meaningless, but the iteration ends and does not panic.
pub struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
    keyed: bool,
}

impl<'a> Members<'a> {
    /// The members of the object that starts at `at`; none if no object starts there.
    pub fn of_object(text: &'a str, at: usize) -> Self {
        Self::open(text, at, b'{')
    }

    /// The items of the array that starts at `at`; none if no array starts there.
    pub fn of_array(text: &'a str, at: usize) -> Self {
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
                // Whitespace, the colon and whitespace follow the key.
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
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'"' => return at + 1,
            // Of six bytes, the last four are hexadecimal digits.
            b'\\' if bytes.get(at + 1) == Some(&b'u') => 6,
            b'\\' => 2,
            _ => 1,
        };
    }
    bytes.len()
}

/// The offset after the value that starts at `at`. Counts brackets, so it does not recurse.
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
                // A number or a literal: it ends at a character that cannot be part of it.
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
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    escape(out, text);
    out.push('"');
}

/// Writes a text, piece by piece, into a JSON string; the caller writes the quotes.
pub struct Escaped<'o> {
    out: &'o mut String,
    /// The length of the text so far, in bytes, before escaping.
    length: usize,
}

impl<'o> Escaped<'o> {
    /// A string at the end of a text.
    pub fn new(out: &'o mut String) -> Self {
        Escaped { out, length: 0 }
    }

    /// Writes `line` if the text then has at most `most` bytes. Returns whether it did.
    pub fn write_within(&mut self, most: usize, line: fmt::Arguments<'_>) -> bool {
        let (end, length) = (self.out.len(), self.length);
        // Writing to a String cannot fail.
        let _ = fmt::Write::write_fmt(self, line);
        if self.length > most {
            self.out.truncate(end);
            self.length = length;
            return false;
        }
        true
    }
}

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        escape(self.out, piece);
        self.length += piece.len();
        Ok(())
    }
}

fn escape(out: &mut String, text: &str) {
    let is_special = |byte: u8| matches!(byte, 0..0x20 | b'"' | b'\\');
    // Most texts need no escape. The fold reads every byte, so that it compares many at a time.
    if !text.bytes().fold(false, |any, byte| any | is_special(byte)) {
        out.push_str(text);
        return;
    }
    let mut rest = text;
    while let Some(at) = rest.bytes().position(is_special) {
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
                    // Writing to a String cannot fail.
                    let _ = write!(out, "\\u{byte:04x}");
                }
            }
        }
        rest = tail;
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_exists_where_something_stands() {
        let json = r#"{"spec": {"containers": [{"name": "a"}, {"name": "b", "tty": true, "env": null}]}}"#;
        let item = Path::of(&["spec", "containers"]).item(1);
        assert!(exists(json, &item.clone().field("tty")));
        assert!(!exists(json, &item.clone().field("env")));
        assert!(!exists(json, &item.field("stdin")));
        assert!(!exists(
            json,
            &Path::of(&["spec", "nodeSelector"]).key("kubernetes.io/os")
        ));
    }

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

    #[test]
    fn a_piece_that_is_too_long_leaves_no_trace() {
        let mut out = "\"".to_owned();
        let mut text = Escaped::new(&mut out);
        assert!(text.write_within(4, format_args!("a{}", "\"\\")));
        assert!(!text.write_within(4, format_args!("b{}", "\n")));
        assert!(text.write_within(4, format_args!("\n")));
        out.push('"');
        assert_eq!(out, r#""a\"\\\n""#);
    }
}
