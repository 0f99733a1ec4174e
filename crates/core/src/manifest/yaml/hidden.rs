//! Characters that go-yaml reads and libyaml refuses.

use libyaml_safer::ScalarStyle;

/// A text with some characters hidden that go-yaml reads and libyaml refuses, each by a substitute.
#[derive(Default)]
pub(super) struct HiddenCharacters {
    /// The offsets in the text, ascending.
    offsets: Vec<usize>,
    /// The same offsets in the input of the scanner.
    in_input: Vec<usize>,
    /// How often something was hidden.
    rounds: usize,
}

impl HiddenCharacters {
    /// The colon in `[a:,]`: in brackets, it is text inside of a plain scalar.
    const COLON: char = '\u{10FF3A}';
    /// The backslash in `"it\'s"`: this escape is a quote.
    const BACKSLASH: char = '\u{10FF5C}';
    /// What hides a character is this many bytes longer.
    const LONGER: usize = 3;

    /// How often a document is read again for a character that is not found in advance.
    const MOST: usize = 100;

    /// Hides the character that libyaml refused, if go-yaml reads it, and all similar ones. Returns whether it is hidden now.
    pub fn hide(&mut self, text: &str, refused: usize) -> bool {
        let rest = text.get(refused..).unwrap_or_default();
        let is_read = [":,", ":]", ":}", "\\'"]
            .iter()
            .any(|start| rest.starts_with(start));
        if !is_read || self.rounds == Self::MOST || text.contains([Self::COLON, Self::BACKSLASH]) {
            return false;
        }
        if self.rounds == 0 {
            self.offsets = refusable(text);
        }
        self.rounds += 1;
        match self.offsets.binary_search(&refused) {
            // It is hidden already, and refused all the same.
            Ok(_) if self.rounds > 1 => return false,
            Ok(_) => {}
            Err(at) => self.offsets.insert(at, refused),
        }
        let longer = (0..).step_by(Self::LONGER);
        self.in_input = self
            .offsets
            .iter()
            .zip(longer)
            .map(|(offset, longer)| offset + longer)
            .collect();
        true
    }

    /// The text for the scanner.
    pub fn input(&self, text: &str) -> Option<String> {
        if self.offsets.is_empty() {
            return None;
        }
        let mut input = String::with_capacity(text.len() + self.offsets.len() * Self::LONGER);
        let mut from = 0;
        for offset in &self.offsets {
            input.push_str(text.get(from..*offset)?);
            let is_colon = text.as_bytes().get(*offset) == Some(&b':');
            input.push(if is_colon { Self::COLON } else { Self::BACKSLASH });
            from = offset + 1;
        }
        input.push_str(text.get(from..)?);
        Some(input)
    }

    /// The offset in the text of an offset in the input.
    pub fn offset(&self, input: usize) -> usize {
        let before = self.in_input.partition_point(|hidden| *hidden < input);
        input - (before * Self::LONGER).min(input)
    }

    /// The text of a scalar of the input.
    pub fn shown(&self, scalar: String, style: ScalarStyle) -> String {
        if self.offsets.is_empty() {
            return scalar;
        }
        let backslash = if style == ScalarStyle::DoubleQuoted {
            ""
        } else {
            "\\"
        };
        scalar
            .replace(Self::COLON, ":")
            .replace(Self::BACKSLASH, backslash)
    }
}

/// The offsets of the characters that libyaml may refuse and go-yaml reads. Where libyaml does not refuse one, hiding it changes
/// nothing: not a colon that can end a key, and not a backslash that another one escapes.
fn refusable(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    // The byte before the colons in front of the current byte, and whether a backslash escapes the current byte.
    let (mut before, mut is_escaped) = (b' ', false);
    for (offset, pair) in bytes.windows(2).enumerate() {
        let &[byte, next] = pair else { continue };
        let is_hidden = match byte {
            b':' => {
                matches!(next, b',' | b']' | b'}')
                    && !matches!(
                        before,
                        b' ' | b'\t' | b'\r' | b'\n' | b',' | b'[' | b'{' | b'"' | b'\'' | b']' | b'}'
                    )
            }
            b'\\' => next == b'\'' && !is_escaped,
            _ => false,
        };
        if is_hidden {
            found.push(offset);
        }
        is_escaped = byte == b'\\' && !is_escaped;
        if byte != b':' {
            before = byte;
        }
    }
    found
}
