//! Validates JSON text and finds the values in it, without copying or building a tree.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The ranges of the valid values and the errors, both in text order.
#[derive(Debug, Default)]
pub(super) struct JsonScan {
    pub(super) values: Vec<Range<usize>>,
    pub(super) errors: Vec<JsonSyntaxError>,
}

/// An error at an offset of the text.
#[derive(Debug)]
pub(super) struct JsonSyntaxError {
    pub(super) offset: usize,
    /// For a duplicate key: the offset of its first occurrence.
    pub(super) first: Option<usize>,
    pub(super) message: String,
    /// The keys have no quotes: the author probably meant YAML.
    pub(super) looks_like_yaml: bool,
}

/// The offset of the first character after blanks, comments and a `---`, if it is a bracket.
pub(super) fn begins(chunk: &str) -> Option<usize> {
    let mut rest = chunk;
    let mut marker = false;
    loop {
        rest = rest.trim_start_matches(['\u{FEFF}', ' ', '\t', '\r', '\n']);
        match rest.as_bytes().first()? {
            b'{' | b'[' => return Some(chunk.len() - rest.len()),
            b'#' => rest = rest.trim_start_matches(|c| c != '\n' && c != '\r'),
            _ if !marker => {
                rest = rest.strip_prefix("---")?;
                marker = true;
            }
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
                    let value = base + done - raw.get().len()..base + done;
                    match check(raw.get()) {
                        Ok(()) => outcome.values.push(value),
                        Err(mut error) => {
                            error.offset += value.start;
                            error.first = error.first.map(|first| first + value.start);
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
            first: None,
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
        first: None,
        message,
        looks_like_yaml,
    }
}

/// Checks what the syntax does not cover: depth, numbers, escapes, duplicate keys.
fn check(text: &str) -> Result<(), JsonSyntaxError> {
    let duplicate = Cell::new(None);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let Err(error) = (JsonChecker {
        text,
        duplicate: &duplicate,
    })
    .deserialize(&mut deserializer) else {
        return Ok(());
    };
    let offset = offset_of(&error, text);
    let Some((first, second)) = duplicate.take() else {
        return Err(JsonSyntaxError {
            offset,
            ..explain(&error)
        });
    };
    let full = error.to_string();
    let message = full
        .rfind(" at line ")
        .and_then(|at| full.get(..at))
        .unwrap_or(&full)
        .to_owned();
    Err(JsonSyntaxError {
        offset: second.unwrap_or(offset),
        first,
        message,
        looks_like_yaml: false,
    })
}

/// The offsets of the first and the second occurrence of a key; `None` for a key with escapes, which
/// serde_json copies.
type Duplicate = (Option<usize>, Option<usize>);

#[derive(Clone, Copy)]
struct JsonChecker<'t> {
    text: &'t str,
    duplicate: &'t Cell<Option<Duplicate>>,
}

impl JsonChecker<'_> {
    /// The offset of a key's opening quote.
    fn offset(&self, key: &JsonKey<'_>) -> Option<usize> {
        let JsonKey(Cow::Borrowed(key)) = key else {
            return None;
        };
        (key.as_ptr() as usize)
            .checked_sub(self.text.as_ptr() as usize)?
            .checked_sub(1)
    }
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
        let mut keys: Vec<(Cow<'de, str>, Option<usize>)> = Vec::new();
        let mut large: HashMap<Cow<'de, str>, Option<usize>> = HashMap::new();
        while let Some(key) = entries.next_key::<JsonKey<'de>>()? {
            let offset = self.offset(&key);
            let JsonKey(key) = key;
            let first = if large.is_empty() {
                keys.iter()
                    .find(|(seen, _)| *seen == key)
                    .map(|(_, first)| *first)
            } else {
                large.get(&key).copied()
            };
            if let Some(first) = first {
                self.duplicate.set(Some((first, offset)));
                return Err(de::Error::custom(format_args!(
                    "the key `{key}` is given twice in one object"
                )));
            }
            if large.is_empty() && keys.len() < SMALL {
                keys.push((key, offset));
            } else {
                large.extend(keys.drain(..));
                large.insert(key, offset);
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
        let found: Vec<_> = outcome.values.into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, ["{\"a\":1}", "[2]", "{}"]);
    }

    #[test]
    fn a_key_given_twice_is_found_in_small_and_large_objects() {
        let many: Vec<_> = (0..200).map(|n| format!("\"k{n}\":{n},")).collect();
        let many = many.concat();
        for again in [0, 5, 23, 24, 25, 199] {
            let text = format!("{{{many}\"k{again}\":0}}");
            let outcome = all(&text);
            let error = &outcome.errors[0];
            assert_eq!(
                error.message,
                format!("the key `k{again}` is given twice in one object")
            );
            assert_eq!(error.first, text.find(&format!("\"k{again}\"")));
            assert_eq!(Some(error.offset), text.rfind(&format!("\"k{again}\"")));
        }
        assert!(
            all(&format!("{{{many}\"x\":[{{\"k1\":1}},{{\"k1\":1}}]}}"))
                .errors
                .is_empty()
        );
        // A duplicate with escapes is detected, but the position of its first occurrence is unknown.
        let error = &all(r#"{"\u0061":1,"a":2}"#).errors[0];
        assert_eq!((error.offset, error.first), (12, None));
    }

    #[test]
    fn a_key_given_twice_does_not_stop_the_next_value() {
        let outcome = all("{\"a\":1,\"a\":2} {\"b\":1}");
        assert_eq!(outcome.values.first(), Some(&(14..21)));
        assert_eq!((outcome.values.len(), outcome.errors.len()), (1, 1));
    }

    #[test]
    fn json_begins_after_comments_and_a_marker() {
        let cases = [
            ("{}", Some(0)),
            ("# {\n--- # x\n\n [1]", Some(14)),
            ("---{", Some(3)),
            ("---\n---\n{}", None),
            ("a: {}", None),
            ("", None),
            ("#", None),
        ];
        for (text, expected) in cases {
            assert_eq!(begins(text), expected, "{text:?}");
        }
    }
}
