//! A span as it waits for its export: names, times and attributes; nothing of how they are written.

use super::context::Origin;

/// The longest text of an attribute, in bytes: what waits in the queue is bounded, whoever sends reviews.
const LONGEST: usize = 1024;

/// One span of kind SERVER.
#[derive(Clone, Default, Debug)]
pub(super) struct Span {
    pub name: &'static str,
    pub origin: Origin,
    /// Nanoseconds since 1970.
    pub start: u64,
    pub end: u64,
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, where it did.
    pub error: Option<&'static str>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// One of the words of the program.
    Word(&'static str),
    /// A text of at most 1024 bytes.
    Text(Box<str>),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
    /// Words of the program.
    Words(Vec<&'static str>),
}

impl From<&'static str> for Value {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<Vec<&'static str>> for Value {
    fn from(words: Vec<&'static str>) -> Self {
        Self::Words(words)
    }
}

impl Value {
    /// A text from outside, cut where it is too long.
    pub fn text(text: &str) -> Self {
        let end = (0..=text.len().min(LONGEST))
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or_default();
        Self::Text(text.get(..end).unwrap_or_default().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        let text = "é".repeat(LONGEST);
        let Value::Text(cut) = Value::text(&format!("a{text}")) else {
            panic!("a text is a text");
        };
        assert_eq!(cut.len(), LONGEST - 1);
        assert_eq!(Value::text("short"), Value::Text("short".into()));
    }
}
