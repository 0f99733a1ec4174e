//! Validates JSON text and finds the values in it, without copying or building a tree.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The ranges of the valid values and the errors, both in text order.
#[derive(Debug, Default)]
pub(super) struct JsonScan {
    pub(super) values: Vec<JsonValue>,
    pub(super) errors: Vec<JsonSyntaxError>,
}

#[derive(Debug)]
pub(super) struct JsonValue {
    pub(super) range: Range<usize>,
    /// Whether a key of one of its objects is given more than once.
    pub(super) has_duplicates: bool,
}

/// An error at an offset of the text.
#[derive(Debug)]
pub(super) struct JsonSyntaxError {
    pub(super) offset: usize,
    pub(super) message: String,
    /// The keys have no quotes: the author probably meant YAML.
    pub(super) looks_like_yaml: bool,
}

/// The offset of the first character after blanks and comments, if it is a bracket.
pub(super) fn begins(chunk: &str) -> Option<usize> {
    let mut rest = chunk;
    loop {
        rest = rest.trim_start_matches(['\u{FEFF}', ' ', '\t', '\r', '\n']);
        match rest.as_bytes().first()? {
            b'{' | b'[' => return Some(chunk.len() - rest.len()),
            b'#' => rest = rest.trim_start_matches(|c| c != '\n' && c != '\r'),
            _ => return None,
        }
    }
}

/// Reads the consecutive values in `range` of `text`.
///
/// After a syntax error it continues at the next line that begins with a bracket, where another value
/// probably begins.
pub(super) fn read(text: &str, range: Range<usize>, max_errors: usize) -> JsonScan {
    let mut outcome = JsonScan::default();
    let mut base = range.start;
    while outcome.errors.len() <= max_errors {
        let Some(rest) = text.get(base..range.end) else {
            break;
        };
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let mut failed = None;
        let mut done = 0;
        while let Some(value) = stream.next() {
            match value {
                Ok(raw) => {
                    done = stream.byte_offset();
                    let range = base + done - raw.get().len()..base + done;
                    match check(raw.get()) {
                        Ok(has_duplicates) => outcome.values.push(JsonValue {
                            range,
                            has_duplicates,
                        }),
                        Err(mut error) => {
                            error.offset += range.start;
                            outcome.errors.push(error);
                        }
                    }
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let Some(error) = failed else { break };
        let at = offset_of(&error, rest);
        outcome.errors.push(JsonSyntaxError {
            offset: base + at,
            ..explain(&error)
        });
        // At least one byte after the start of this attempt, so that the loop terminates.
        let Some(next) = next_start(rest, at.max(done + 1)) else {
            break;
        };
        base += next;
    }
    outcome
}

/// The next line at or after `at` that begins with a bracket.
fn next_start(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    (at..bytes.len()).find(|&here| {
        matches!(bytes.get(here), Some(b'{' | b'['))
            && here
                .checked_sub(1)
                .is_some_and(|before| matches!(bytes.get(before), Some(b'\n' | b'\r')))
    })
}

/// serde_json counts lines by `\n` and columns in bytes, from 1.
fn offset_of(error: &serde_json::Error, text: &str) -> usize {
    let start: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    (start + error.column().saturating_sub(1)).min(text.len())
}

fn explain(error: &serde_json::Error) -> JsonSyntaxError {
    let full = error.to_string();
    let what = full
        .rfind(" at line ")
        .and_then(|at| full.get(..at))
        .unwrap_or(&full);
    let looks_like_yaml =
        what == "key must be a string" || what == "expected value" || what == "expected ident";
    let message = if error.is_eof() {
        "the JSON ends too early: a bracket or quote is not closed, or the file was cut off".to_owned()
    } else if what.starts_with("recursion limit") {
        "nested deeper than 127 levels: no Kubernetes object is, make it flatter".to_owned()
    } else if what == "trailing comma" {
        "a comma before a closing bracket is not JSON: remove it".to_owned()
    } else if what == "key must be a string" {
        "not JSON: a key must be in double quotes here".to_owned()
    } else if what == "number out of range" {
        "a number that is too large: quote it if it is text".to_owned()
    } else if what.starts_with("control character") {
        "not JSON: a line break or control character inside a string; write it as `\\n`, or close the quote before it"
            .to_owned()
    } else if what == "invalid escape" {
        "an unknown `\\` escape: write `\\\\` for a backslash, for example in \"C:\\\\logs\"".to_owned()
    } else {
        format!("not JSON: {what}; check for a missing comma, quote or bracket just before this place")
    };
    JsonSyntaxError {
        offset: 0,
        message,
        looks_like_yaml,
    }
}

/// Checks what the syntax does not cover: depth, numbers, escapes. Returns whether there are duplicate keys.
fn check(text: &str) -> Result<bool, JsonSyntaxError> {
    let has_duplicates = Cell::new(false);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    (JsonChecker {
        has_duplicates: &has_duplicates,
    })
    .deserialize(&mut deserializer)
    .map_err(|error| JsonSyntaxError {
        offset: offset_of(&error, text),
        ..explain(&error)
    })?;
    Ok(has_duplicates.get())
}

#[derive(Clone, Copy)]
struct JsonChecker<'t> {
    has_duplicates: &'t Cell<bool>,
}

/// A key, borrowed if it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct JsonKey<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for JsonChecker<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonChecker<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        // Most objects are small: for these, comparing is faster than hashing.
        const SMALL: usize = 24;
        let mut keys: Vec<Cow<'de, str>> = Vec::new();
        let mut large: HashSet<Cow<'de, str>> = HashSet::new();
        while let Some(JsonKey(key)) = entries.next_key::<JsonKey<'de>>()? {
            if large.is_empty() && keys.contains(&key) || large.contains(&key) {
                self.has_duplicates.set(true);
            } else if large.is_empty() && keys.len() < SMALL {
                keys.push(key);
            } else {
                large.extend(keys.drain(..));
                large.insert(key);
            }
            entries.next_value_seed(self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> JsonScan {
        read(text, 0..text.len(), 10)
    }

    #[test]
    fn values_are_ranges_of_the_text() {
        let text = " {\"a\":1}\n\n[2]{} ";
        let outcome = all(text);
        assert!(outcome.errors.is_empty());
        let found: Vec<_> = outcome
            .values
            .into_iter()
            .map(|value| &text[value.range])
            .collect();
        assert_eq!(found, ["{\"a\":1}", "[2]", "{}"]);
    }

    #[test]
    fn a_key_given_twice_is_found_in_small_and_large_objects() {
        let many: Vec<_> = (0..200).map(|n| format!("\"k{n}\":{n},")).collect();
        let many = many.concat();
        let has_duplicates = |text: &str| all(text).values[0].has_duplicates;
        for again in [0, 5, 23, 24, 25, 199] {
            assert!(has_duplicates(&format!("{{{many}\"k{again}\":0}}")));
        }
        assert!(!has_duplicates(&format!(
            "{{{many}\"x\":[{{\"k1\":1}},{{\"k1\":1}}]}}"
        )));
        assert!(has_duplicates(r#"{"\u0061":1,"a":2}"#));
    }

    #[test]
    fn json_begins_after_comments() {
        let cases = [
            ("{}", Some(0)),
            ("# {\n# x\n\n [1]", Some(10)),
            ("---{", None),
            ("a: {}", None),
            ("", None),
            ("#", None),
        ];
        for (text, expected) in cases {
            assert_eq!(begins(text), expected, "{text:?}");
        }
    }
}
