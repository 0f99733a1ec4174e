//! Splits lines into objects: one per line as the API server writes them, or formatted over several lines as
//! other tools print them.

use memchr::memmem;

/// The maximum nesting of lists and objects around an object. Log stores use two.
const DEEPEST: usize = 64;

/// The result of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FramedPiece<'p> {
    /// The text of an object, from its first to its last brace.
    Whole(&'p [u8]),
    /// A line that belongs to no object, or an object without an end.
    Invalid,
    /// An object over several lines that is too long.
    TooLong,
}

/// Assembles objects from the lines of a log, also those over several lines.
#[derive(Default)]
pub struct ObjectFramer {
    /// The lines so far of an object over several lines.
    open: Option<OpenObject>,
    /// The closing brackets of the lists and objects around the next object.
    enclosing: Vec<u8>,
}

#[derive(Default)]
struct OpenObject {
    text: Vec<u8>,
    depth: usize,
    in_string: bool,
}

impl ObjectFramer {
    /// Whether an object has begun and not ended.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Adds a line; `give` gets each piece that is complete with it.
    pub fn take(&mut self, line: &[u8], longest: usize, mut give: impl FnMut(FramedPiece<'_>)) {
        let text = line.trim_ascii();
        if let Some(mut open) = self.open.take() {
            // No tool that formats objects begins a line like this: the previous object was never finished,
            // and the log continues.
            let is_next = line.first() == Some(&b'{') && is_event(text);
            if !is_next {
                open.add(text);
                if open.depth == 0 {
                    give(FramedPiece::Whole(trim_comma(&open.text)));
                } else if open.text.len() > longest {
                    give(FramedPiece::TooLong);
                } else if open.depth == 2 && is_list(text) {
                    if !self.go_into(b"}]") {
                        give(FramedPiece::Invalid);
                    }
                } else {
                    self.open = Some(open);
                }
                return;
            }
            give(FramedPiece::Invalid);
        }
        let text = trim_comma(text);
        match text {
            [] => {}
            [b'{', .., b'}'] => give(FramedPiece::Whole(text)),
            b"{" | b"[{" | b"[ {" => {
                if text.len() > 1 && !self.go_into(b"]") {
                    give(FramedPiece::Invalid);
                }
                let mut open = OpenObject::default();
                open.add(b"{");
                self.open = Some(open);
            }
            b"[" => {
                if !self.go_into(b"]") {
                    give(FramedPiece::Invalid);
                }
            }
            [b'[', b'{', .., b'}', b']'] => give(FramedPiece::Whole(text)),
            _ => self.between(text, give),
        }
    }

    /// Records the closing brackets of the lists that begin here, unless they are nested too deep.
    fn go_into(&mut self, ends: &[u8]) -> bool {
        let is_bounded = self.enclosing.len() + ends.len() <= DEEPEST;
        if is_bounded {
            self.enclosing.extend(ends);
        }
        is_bounded
    }

    /// Handles a line between objects.
    fn between(&mut self, text: &[u8], mut give: impl FnMut(FramedPiece<'_>)) {
        match (self.enclosing.last(), text) {
            (Some(end), [first, ..]) if end == first => {
                self.enclosing.pop();
            }
            // Other members of the object that holds the list.
            (Some(b'}'), _) => {}
            // A log store has written a prefix before the object.
            (_, [.., b'}']) => {
                let start = memmem::find(text, b" {").or_else(|| memmem::find(text, b"\t{"));
                give(match start.and_then(|start| text.get(start + 1..)) {
                    Some(object) => FramedPiece::Whole(object),
                    None => FramedPiece::Invalid,
                });
            }
            _ => give(FramedPiece::Invalid),
        }
    }
}

impl OpenObject {
    fn add(&mut self, line: &[u8]) {
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
        let mut escaped = false;
        for byte in line {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        // A JSON string cannot contain a line end.
        self.in_string = false;
    }
}

fn is_event(text: &[u8]) -> bool {
    text.ends_with(b"}") && memmem::find(text, b"\"auditID\"").is_some()
}

/// Whether a line begins the list of an object that holds one.
fn is_list(text: &[u8]) -> bool {
    let Some(name) = text.strip_suffix(b"[").map(<[u8]>::trim_ascii_end) else {
        return false;
    };
    let lists: [&[u8]; 5] = [
        b"\"items\":",
        b"\"events\":",
        b"\"logEvents\":",
        b"\"records\":",
        b"\"value\":",
    ];
    lists.contains(&name)
}

fn trim_comma(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    text.strip_suffix(b",").unwrap_or(text).trim_ascii_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<String> {
        let mut pieces = ObjectFramer::default();
        let mut given = Vec::new();
        for line in text.lines() {
            pieces.take(line.as_bytes(), 1000, |piece| {
                given.push(match piece {
                    FramedPiece::Whole(text) => String::from_utf8_lossy(text)
                        .split_whitespace()
                        .collect::<String>(),
                    FramedPiece::Invalid => "invalid".to_owned(),
                    FramedPiece::TooLong => "too long".to_owned(),
                });
            });
        }
        assert!(!pieces.is_open(), "{text}");
        given
    }

    #[test]
    fn objects_are_found_however_they_are_laid_out() {
        for (text, expected) in [
            ("{\"a\":1}\n{\"a\":2}", &["{\"a\":1}", "{\"a\":2}"][..]),
            ("[\n{\"a\":1},\n{\"a\":2}\n]", &["{\"a\":1}", "{\"a\":2}"]),
            (
                "{\n \"a\": {\n  \"b\": \"}\\\"{\"\n }\n}\n{\"a\":2}",
                &["{\"a\":{\"b\":\"}\\\"{\"}}", "{\"a\":2}"],
            ),
            (
                "[\n  {\n    \"a\": [\n      1\n    ]\n  },\n  {\n    \"a\": 2\n  }\n]",
                &["{\"a\":[1]}", "{\"a\":2}"],
            ),
            (
                "{\n \"kind\": \"EventList\",\n \"items\": [\n  {\n   \"a\": 1\n  },\n  {\"a\": 2}\n ],\n \"b\": []\n}\n{\"a\":3}",
                &["{\"a\":1}", "{\"a\":2}", "{\"a\":3}"],
            ),
            ("2026-11-21T10:00:00.000Z {\"a\":1}", &["{\"a\":1}"]),
            (
                "not json\n{\"a\":1}\n{\"a\":",
                &["invalid", "{\"a\":1}", "invalid"],
            ),
            (
                "{\n \"a\": 1,\n{\"auditID\":\"x\"}",
                &["invalid", "{\"auditID\":\"x\"}"],
            ),
            (
                "apiVersion: v1\nkind: Pod\n- a: b",
                &["invalid", "invalid", "invalid"],
            ),
        ] {
            assert_eq!(pieces(text), expected, "{text}");
        }
    }

    #[test]
    fn lists_in_lists_without_end_are_broken_and_take_no_room() {
        for opening in ["[\n", "{\n\"items\": [\n"] {
            let mut pieces = ObjectFramer::default();
            let mut invalid = 0;
            for line in opening.repeat(100_000).lines() {
                pieces.take(line.as_bytes(), 1000, |piece| {
                    invalid += u32::from(piece == FramedPiece::Invalid);
                });
            }
            assert_eq!(pieces.enclosing.len(), DEEPEST, "{opening}");
            assert!(invalid > 99_000, "{invalid}");
        }
    }

    #[test]
    fn an_object_that_never_ends_is_given_up() {
        let long = format!("{{\n{}}}", "\"a\": 1,\n".repeat(400));
        let given = pieces(&long);
        assert_eq!(given[0], "too long");
        assert!(given[1..].iter().all(|piece| piece == "invalid"), "{given:?}");
    }
}
