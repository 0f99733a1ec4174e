//! Explains YAML errors and their remedies, and detects templates; does not find errors.

use std::cell::OnceCell;

use saphyr_parser::ScanError;

use super::{ScanFailure, YamlError};
use crate::manifest::{Position, locate};

/// The lines of a document, split on first use.
pub(super) struct DocumentLines<'t> {
    text: &'t str,
    starts: OnceCell<Vec<&'t str>>,
}

impl<'t> DocumentLines<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            starts: OnceCell::new(),
        }
    }

    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    /// The line with this number (from 1), without its line end.
    pub(super) fn get(&self, number: usize) -> &'t str {
        let lines = self.starts.get_or_init(|| {
            locate::lines(self.text)
                .map(|line| line.trim_end_matches(['\r', '\n']))
                .collect()
        });
        number
            .checked_sub(1)
            .and_then(|index| lines.get(index))
            .copied()
            .unwrap_or_default()
    }
}

/// The line and column (from 1, in the document) and the message for a scanner error.
pub(super) fn scan_error(error: &ScanError, lines: &DocumentLines<'_>) -> (usize, usize, String) {
    let at = error.marker();
    // The scanner reports a TAB on its line or, if the error is in a construct that began above, one line
    // later.
    for number in [at.line(), at.line().saturating_sub(1), at.line() + 1] {
        let text = lines.get(number);
        let indentation: usize = text.chars().take_while(|c| matches!(c, ' ' | '\t')).count();
        let tab = text.chars().take(indentation).position(|c| c == '\t');
        if let Some(tab) = tab.filter(|_| !text.trim().is_empty()) {
            let message =
                "a TAB in the indentation: YAML requires spaces; replace the TAB by spaces".to_owned();
            return (number, tab + 1, message);
        }
    }
    let before = lines.get(at.line()).chars().take(at.col());
    if error.info().contains("simple key expect") && before.into_iter().all(char::is_whitespace) {
        // The scanner reports a missing `:` only at the next line with content.
        let content = |line: &usize| {
            let text = lines.get(*line).trim_start();
            !text.is_empty() && !text.starts_with('#')
        };
        if let Some(line) = (1..at.line()).rev().find(content) {
            let column = lines.get(line).chars().take_while(|c| c.is_whitespace()).count() + 1;
            return (line, column, translate(error.info()));
        }
    }
    (at.line(), at.col() + 1, translate(error.info()))
}

/// The message for a key that is null.
pub(super) fn null_key(text: &str) -> String {
    if text.is_empty() {
        "a key is missing before `:`: write one".to_owned()
    } else {
        format!("the key `{text}` is null: quote it if it is text")
    }
}

/// Parts of scanner messages, and the messages in the terms of the author; the first match applies.
const KNOWN: &[(&str, &str)] = &[
    ("tab", "a TAB where YAML requires spaces: replace it by spaces"),
    (
        "a block scalar, did not find",
        "text on the line of a `|` or `>`: begin it on the next line, or quote the value if it begins with one",
    ),
    (
        "did not find expected '-'",
        "this does not fit the list above: begin it with `- `, or align it with a key",
    ),
    (
        "directive",
        "a line that begins with `%` is a directive: indent or quote it if it is text",
    ),
    (
        "illegal placement of ':'",
        "a `:` after a bracket or value that is not closed: close the bracket, or quote the text",
    ),
    (
        "comments must be separated",
        "a `#` right after a value: put a space before the comment, or quote the value",
    ),
    (
        "unknown escape character",
        "an unknown `\\` escape in double quotes: use single quotes for Windows paths ('C:\\logs'), or double the \
             backslash",
    ),
    (
        "hexadecimal number",
        "a `\\x` or `\\u` escape without its digits: use single quotes for Windows paths ('C:\\users'), or double \
             the backslash",
    ),
    (
        "Unicode character escape",
        "a `\\u` escape that names no character: correct it, or use single quotes",
    ),
    (
        "unexpected end of stream",
        "the quote that opens here is never closed: close it",
    ),
    (
        "unexpected document indicator",
        "a quote is still open at the end of the document: close it",
    ),
    (
        "mapping values are not allowed",
        "a `: ` where no key is allowed: correct the indentation, or quote the value if the colon is part of it",
    ),
    (
        "simple key expect",
        "no `key: value` here: add the missing `:`, or correct the indentation",
    ),
    (
        "did not find expected key",
        "this does not fit the indentation of the lines above: align it with its neighbours",
    ),
    (
        "block sequence entries are not allowed",
        "a list item (`- `) where none is allowed: put it on a line of its own, below its key",
    ),
    (
        "only valid inside a block",
        "a `- ` inside brackets: separate the items by commas instead",
    ),
    (
        "unknown anchor",
        "an alias (`*name`) without an anchor (`&name`) above it: add the anchor, or quote the text",
    ),
    (
        "unexpected character",
        "a value cannot begin with this character: put the value in quotes",
    ),
    (
        "',' or '}'",
        "a `{` here or above that is not closed, or a missing comma: close it, or quote the text",
    ),
    (
        "',' or ']'",
        "a `[` here or above that is not closed, or a missing comma: close it, or quote the text",
    ),
    (
        "indentation in quoted scalar",
        "the quote that opens here continues on a line that is indented too little: close it, or indent that line",
    ),
    (
        "flow",
        "the brackets do not fit here: close them, and indent them deeper than their key",
    ),
    (
        "misplaced bracket",
        "a closing bracket without an opening one: remove it, or quote the text",
    ),
    (
        "invalid indentation",
        "the indentation fits nothing above: align the line with its neighbours",
    ),
    (
        "wrongly indented line in block scalar",
        "a line of the `|` or `>` text is indented less than its first: align it",
    ),
    (
        "recursion limit",
        "nested deeper than 127 levels: no Kubernetes object is, make it flatter",
    ),
    (
        "invalid trailing content",
        "something follows the closing quote: quote the whole value",
    ),
    (
        "expected <document start>",
        "this does not fit the indentation of the lines above: align it with its neighbours",
    ),
    (
        "comment intercepting",
        "a comment in the middle of a value: move it, or quote the value",
    ),
    (
        "byte order mark",
        "a byte order mark inside the document: remove it (an editor shows it as U+FEFF)",
    ),
    (
        "handle wasn't declared",
        "a tag (`!name!…`) that is not declared: remove it",
    ),
    (
        "tag",
        "this tag (`!…`) cannot be read: remove it, or quote the text if it begins with `!`",
    ),
    (
        "anchor",
        "a `&` or `*` without a name: quote the text if it begins with one",
    ),
    (
        "did not find expected node content",
        "a value is missing or cannot begin like this: put it in quotes",
    ),
];

fn translate(info: &str) -> String {
    KNOWN.iter().find(|(part, _)| info.contains(part)).map_or_else(
        || format!("not YAML: {info}; check the indentation and the quotes here"),
        |(_, message)| (*message).to_owned(),
    )
}

/// Checks whether a template caused the failure, and converts lines to those of the input.
///
/// `literal` are the lines of quoted and block scalars, which may contain braces.
pub(super) fn failure(
    trouble: ScanFailure,
    lines: &DocumentLines<'_>,
    literal: &[(usize, usize)],
    first_line: usize,
) -> YamlError {
    let before = first_line - 1;
    let braces = |line: usize| {
        let text = lines.get(line);
        let text = text.split(" #").next().unwrap_or(text);
        let at = text.find("{{").filter(|_| !text.trim_start().starts_with('#'))?;
        Some((line, text.get(..at)?.chars().count() + 1))
    };
    let inside = |line: usize| {
        // They are in document order.
        let next = literal.partition_point(|(_, last)| *last < line);
        literal.get(next).is_some_and(|(first, _)| *first <= line)
    };
    let place = if trouble.template {
        // A plain scalar may begin lines above its braces.
        let found = (trouble.line..=trouble.line.saturating_add(100)).find_map(braces);
        Some(found.unwrap_or((trouble.line, trouble.column)))
    } else {
        // Text after the error did not cause it.
        (1..=trouble.line).filter(|line| !inside(*line)).find_map(braces)
    };
    let Some((line, column)) = place else {
        let position = Position {
            line: before + trouble.line,
            column: trouble.column,
        };
        return YamlError {
            position,
            message: trouble.message,
            template: false,
        };
    };
    let line = before + line;
    let message = format!(
        "this is a template that was not rendered (line {line} has \"{{{{ ... }}}}\"): render the chart first, for \
         example: helm template RELEASE CHART | transom check -"
    );
    YamlError {
        position: Position { line, column },
        message,
        template: true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Transcriber;

    #[track_caller]
    fn refuse(cases: &[(&str, usize, usize, &str)]) {
        for (text, line, column, message) in cases {
            let mut transcriber = Transcriber::default();
            let failure = transcriber.document(text, 1).unwrap_err();
            assert_eq!(failure.message, *message, "{text}");
            assert_eq!(
                (failure.position.line, failure.position.column),
                (*line, *column),
                "{text}"
            );
            assert!(!failure.template && transcriber.out.is_empty() && transcriber.marks.is_empty());
        }
    }

    #[test]
    fn what_kubernetes_cannot_hold_is_refused() {
        refuse(&[
            (
                "a:\n\tb: c\n",
                2,
                1,
                "a TAB in the indentation: YAML requires spaces; replace the TAB by spaces",
            ),
            (
                "a:\n  b: 1\n \t c: 2\n",
                3,
                2,
                "a TAB in the indentation: YAML requires spaces; replace the TAB by spaces",
            ),
            (
                "a: .nan\n",
                1,
                4,
                "`.nan` is a number that JSON cannot represent: quote it if it is text",
            ),
            (
                "a: 1\nb:\n  x: 1\na: 2\n",
                4,
                1,
                "the key `a` is given twice in one mapping, at lines 1 and 4: remove one of them",
            ),
            (
                "80: a\n'80': b\n",
                2,
                1,
                "the key `80` is given twice in one mapping, at lines 1 and 2: remove one of them",
            ),
            (
                "a: !Ref b\n",
                1,
                4,
                "the tag `!Ref` means nothing to Kubernetes: remove it, or render the file with the tool it is for",
            ),
            (
                "a: !!set {b}\n",
                1,
                4,
                "the tag `!!set` means nothing to Kubernetes: remove it, or render the file with the tool it is for",
            ),
            (
                "? [a]\n: b\n",
                1,
                3,
                "a key must be text, not a mapping or a list: put it in quotes if it is text",
            ),
            ("~: b\n", 1, 1, "the key `~` is null: quote it if it is text"),
            (": b\n", 1, 1, "a key is missing before `:`: write one"),
            (
                "a: &x {b: *x}\n",
                1,
                11,
                "an alias (`*name`) inside its own anchor would never end: write the value out",
            ),
            (
                "a: *b\n",
                1,
                4,
                "an alias (`*name`) without an anchor (`&name`) above it: add the anchor, or quote the text",
            ),
            (
                "a: 1\nb:\n  <<: 5\n",
                3,
                1,
                "`<<` merges mappings: give it an alias of a mapping, or a list of them",
            ),
        ]);
    }

    #[test]
    fn what_the_scanner_refuses_has_a_cure() {
        refuse(&[
            (
                "a: \"x\ny: 1\n",
                1,
                4,
                "the quote that opens here continues on a line that is indented too little: close it, or indent that line",
            ),
            (
                "a: {b: c\n",
                2,
                1,
                "a `{` here or above that is not closed, or a missing comma: close it, or quote the text",
            ),
            (
                "a: ]\n",
                1,
                4,
                "a closing bracket without an opening one: remove it, or quote the text",
            ),
            (
                "a: 'x' y\n",
                1,
                8,
                "something follows the closing quote: quote the whole value",
            ),
            (
                "a: | x\n",
                1,
                4,
                "text on the line of a `|` or `>`: begin it on the next line, or quote the value if it begins with one",
            ),
            (
                "a:\n- b\nc\n",
                3,
                1,
                "no `key: value` here: add the missing `:`, or correct the indentation",
            ),
            (
                "- a\nb: c\n",
                2,
                1,
                "this does not fit the list above: begin it with `- `, or align it with a key",
            ),
            (
                "%x\n",
                2,
                1,
                "this does not fit the indentation of the lines above: align it with its neighbours",
            ),
            (
                "a: |#\n",
                1,
                5,
                "a `#` right after a value: put a space before the comment, or quote the value",
            ),
            (
                "a: - b\n",
                1,
                4,
                "a list item (`- `) where none is allowed: put it on a line of its own, below its key",
            ),
            (
                "a: \"\\x1\"\n",
                1,
                4,
                "a `\\x` or `\\u` escape without its digits: use single quotes for Windows paths ('C:\\users'), or double the backslash",
            ),
            (
                "a: &\n",
                1,
                4,
                "a `&` or `*` without a name: quote the text if it begins with one",
            ),
            (
                "a: !x!y z\n",
                1,
                4,
                "a tag (`!name!…`) that is not declared: remove it",
            ),
        ]);
    }

    #[test]
    fn what_does_not_fit_together_has_a_cure() {
        refuse(&[
            (
                "a: |2\n x\n",
                2,
                2,
                "a line of the `|` or `>` text is indented less than its first: align it",
            ),
            (
                "a: ,\n",
                1,
                4,
                "a value is missing or cannot begin like this: put it in quotes",
            ),
            (
                "a: b\u{FEFF}\n",
                1,
                5,
                "a byte order mark inside the document: remove it (an editor shows it as U+FEFF)",
            ),
            (
                "a: \"C:\\windows\"\n",
                1,
                4,
                "an unknown `\\` escape in double quotes: use single quotes for Windows paths ('C:\\logs'), or double the backslash",
            ),
            (
                "a: b: c\n",
                1,
                5,
                "a `: ` where no key is allowed: correct the indentation, or quote the value if the colon is part of it",
            ),
            (
                "a: 1\n  b: 2\n",
                2,
                4,
                "a `: ` where no key is allowed: correct the indentation, or quote the value if the colon is part of it",
            ),
            (
                "a:\n  b: 1\n c: 2\n",
                3,
                2,
                "this does not fit the indentation of the lines above: align it with its neighbours",
            ),
            (
                "a: 1\nb\nc: 2\n",
                2,
                1,
                "no `key: value` here: add the missing `:`, or correct the indentation",
            ),
            (
                "a: 'x\n",
                1,
                4,
                "the quote that opens here is never closed: close it",
            ),
            (
                "a: @b\n",
                1,
                4,
                "a value cannot begin with this character: put the value in quotes",
            ),
            (
                "a: [1, 2\nb: 3\n",
                2,
                2,
                "a `:` after a bracket or value that is not closed: close the bracket, or quote the text",
            ),
        ]);
    }
}
