//! YAML for people, from JSON: block style, keys in their order, and literal blocks for multi-line text.

use std::fmt::Write as _;

use serde_json::Value;

use crate::model::syntax::text::is_yaml_constant;

/// Writes a value as a YAML document, without a document marker.
pub fn yaml(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    out
}

/// Several values as one stream of YAML documents.
pub fn yaml_documents(values: &[Value]) -> String {
    let mut out = String::new();
    for value in values {
        out.push_str(
            "---
",
        );
        out.push_str(&yaml(value));
    }
    out
}

/// A value that starts on its own line.
fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (at, (key, value)) in fields.iter().enumerate() {
                // The first key follows the dash of its item.
                if at > 0 {
                    pad(out, indent);
                }
                out.push_str(&line(key));
                out.push(':');
                after_key(out, value, indent);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    pad(out, indent);
                }
                out.push_str("- ");
                block(out, item, indent + 2);
            }
        }
        other => {
            out.push_str(&scalar(other, indent));
            out.push('\n');
        }
    }
}

fn after_key(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            pad(out, indent + 2);
            block(out, value, indent + 2);
        }
        // Lists are not indented under their key, as kubectl writes them.
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            pad(out, indent);
            block(out, value, indent);
        }
        other => {
            let _ = writeln!(out, " {}", scalar(other, indent + 2));
        }
    }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(value: &Value, indent: usize) -> String {
    match value {
        Value::String(text) if fits_a_block(text) => {
            let mut out = "|-".to_owned();
            for line in text.lines() {
                out.push('\n');
                if !line.is_empty() {
                    pad(&mut out, indent);
                    out.push_str(line);
                }
            }
            out
        }
        Value::String(text) => line(text),
        // Empty collections and scalars are the same in JSON.
        other => other.to_string(),
    }
}

/// Whether a literal block can represent this multi-line text unchanged.
fn fits_a_block(text: &str) -> bool {
    let plain =
        |c: char| c == '\n' || (!c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}'));
    text.contains('\n')
        && !text.starts_with([' ', '\n'])
        && !text.ends_with([' ', '\n'])
        && text.chars().all(plain)
}

/// Text on one line: plain if every YAML parser reads it as the same string, otherwise quoted as in JSON.
fn line(text: &str) -> String {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let plain = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || " -_./()'=$@*+".contains(c))
        && !text.ends_with(' ');
    if begins && plain && !is_yaml_constant(text) {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_what_is_read() {
        let value = json!({
            "plain": "a/b-c.d",
            "quoted": ["true", "No", "", "*", "a: b", "- x", "1.0", "a\"b\\c", " a", "tab\there", "ü", "#"],
            "several": "one\n  two: 'x'\n\nthree",
            "odd": ["a\n", "\nb", " c\nd", "x\n\ty"],
            "deep": [{"a": [{"b": {"c": [[1, 2], []]}}], "text": "x\ny"}, {}, [], null, true, 1.5],
            "app.kubernetes.io/name": {"true": false},
        });
        let written = yaml(&value);
        let parsed = crate::manifest::parse(written.clone().into_bytes());
        assert!(parsed.errors.is_empty(), "{:?}\n{written}", parsed.errors);
        let read: Value = serde_json::from_str(parsed.documents[0].json()).unwrap();
        assert_eq!(read, value, "{written}");
    }

    #[test]
    fn people_can_read_it() {
        let value = json!({"a": [{"name": "x", "text": "one\ntwo"}, "true"], "b": {}});
        assert_eq!(
            yaml(&value),
            "a:\n- name: x\n  text: |-\n    one\n    two\n- \"true\"\nb: {}\n"
        );
    }
}
