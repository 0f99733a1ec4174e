//! How values are written in a text: as its author writes others.

use serde_json::Value;

use crate::manifest::{SyntaxForm, SyntaxMapping, SyntaxNode, line_end};
use crate::model::syntax::text::is_plain_yaml;

/// The notation of an object.
#[derive(Clone, Copy)]
pub(super) struct Notation {
    pub line_break: &'static str,
    is_json: bool,
    /// Between the members of a container in brackets.
    pub comma: &'static str,
    /// Between a key and its value in brackets.
    colon: &'static str,
}

/// How the author indents, as seen so far.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// The column of the keys of a block mapping; `None` in brackets.
    pub column: Option<usize>,
    /// Spaces between a key and the keys below it.
    pub step: usize,
    /// Spaces between a key and the dashes below it.
    pub dash: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Layout {
            column: None,
            step: 2,
            dash: 0,
        }
    }
}

impl Layout {
    fn at(self, column: usize) -> Self {
        Layout {
            column: Some(column),
            ..self
        }
    }

    fn blank(self) -> String {
        " ".repeat(self.column.unwrap_or_default())
    }
}

impl Notation {
    /// The notation of an object, whose first key shows the spaces in brackets.
    pub fn of(text: &str, object: &SyntaxNode) -> Self {
        let first_line = text.get(..line_end(text, object.span.start)).unwrap_or_default();
        let is_quoted = |at: usize| text.get(at..).is_some_and(|rest| rest.starts_with('"'));
        let entries = match &object.form {
            SyntaxForm::Mapping(SyntaxMapping {
                flow: true, entries, ..
            }) => Some(entries),
            _ => None,
        };
        let first = entries.and_then(|entries| entries.first());
        let between = first.and_then(|entry| text.get(entry.key_span.end..entry.value.span.start));
        let (comma, colon) = if between == Some(":") {
            (",", ":")
        } else {
            (", ", ": ")
        };
        Notation {
            line_break: if first_line.ends_with('\r') { "\r\n" } else { "\n" },
            is_json: entries
                .is_some_and(|entries| entries.iter().all(|entry| is_quoted(entry.key_span.start))),
            comma,
            colon,
        }
    }

    /// A member of a container in brackets.
    pub fn member(self, key: Option<&str>, value: &Value) -> String {
        let value = self.flow(value);
        match key {
            Some(key) => format!("{}{}{value}", self.key(key), self.colon),
            None => value,
        }
    }

    fn key(self, key: &str) -> String {
        let form = if self.is_json {
            SyntaxForm::DoubleQuoted
        } else {
            SyntaxForm::Plain
        };
        self.scalar(&Value::from(key), &form)
    }

    /// A value in one line.
    pub fn flow(self, value: &Value) -> String {
        match value {
            Value::Object(entries) => {
                let members = entries.iter().map(|(key, value)| self.member(Some(key), value));
                format!("{{{}}}", members.collect::<Vec<_>>().join(self.comma))
            }
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.flow(item)).collect();
                format!("[{}]", items.join(self.comma))
            }
            _ if self.is_json => value.to_string(),
            _ => self.scalar(value, &SyntaxForm::Plain),
        }
    }

    /// A scalar, or an empty container, in the form of the one that it replaces.
    pub fn scalar(self, value: &Value, form: &SyntaxForm) -> String {
        match value.as_str() {
            Some(text) if *form == SyntaxForm::SingleQuoted && !text.contains(['\n', '\r']) => {
                format!("'{}'", text.replace('\'', "''"))
            }
            Some(text) if *form != SyntaxForm::DoubleQuoted && !self.is_json && is_plain_yaml(text) => {
                text.to_owned()
            }
            _ => value.to_string(),
        }
    }

    /// The lines of an entry of a block mapping.
    pub fn entry(self, key: &str, value: &Value, layout: Layout) -> String {
        let (blank, key) = (layout.blank(), self.key(key));
        if is_empty(value) {
            let value = self.scalar(value, &SyntaxForm::Plain);
            return format!("{blank}{key}: {value}{}", self.line_break);
        }
        let below = self.below(value, layout);
        format!("{blank}{key}:{}{below}", self.line_break)
    }

    /// The lines of a container below a key in this layout.
    pub fn below(self, value: &Value, layout: Layout) -> String {
        let column = layout.column.unwrap_or_default();
        let (of_keys, of_dashes) = (layout.at(column + layout.step), layout.at(column + layout.dash));
        match value {
            Value::Object(entries) => (entries.iter())
                .map(|(key, value)| self.entry(key, value, of_keys))
                .collect(),
            Value::Array(items) => items.iter().map(|item| self.item(item, of_dashes)).collect(),
            _ => String::new(),
        }
    }

    /// The lines of an item of a block sequence.
    pub fn item(self, value: &Value, layout: Layout) -> String {
        let blank = layout.blank();
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                let of_keys = layout.at(layout.column.unwrap_or_default() + 2);
                let entries = entries.iter();
                let lines: String = entries
                    .map(|(key, value)| self.entry(key, value, of_keys))
                    .collect();
                format!("{blank}- {}", lines.trim_start())
            }
            _ => {
                let value = match value {
                    Value::Array(_) => self.flow(value),
                    _ => self.scalar(value, &SyntaxForm::Plain),
                };
                format!("{blank}- {value}{}", self.line_break)
            }
        }
    }
}

/// Whether a value has nothing below it.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(entries) => entries.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    }
}
