//! Explains YAML errors and their remedies, and detects templates; does not find errors.

use libyaml_safer::{Error, ErrorKind};

use super::{ScanFailure, YamlError, failure, mark_number};
use crate::manifest::{Position, locate};

/// The lines of a document without their line ends, split on first use.
pub(super) struct DocumentLines<'t> {
    text: &'t str,
    lines: Option<Vec<&'t str>>,
}

impl<'t> DocumentLines<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        DocumentLines { text, lines: None }
    }

    /// The line with this number (from 1).
    fn get(&mut self, number: usize) -> &'t str {
        let text = self.text;
        let lines = self.lines.get_or_insert_with(|| {
            locate::lines(text)
                .map(|line| line.trim_end_matches(['\r', '\n']))
                .collect()
        });
        let line = number.checked_sub(1).and_then(|index| lines.get(index));
        line.copied().unwrap_or_default()
    }
}

/// The place and the message for an error of the scanner or the parser.
pub(super) fn scan_error(error: &Error, text: &str) -> ScanFailure {
    let mut lines = DocumentLines::new(text);
    let problem = error.problem();
    let Some(at) = error.problem_mark() else {
        return control_character(text, error);
    };
    let line = mark_number(at.line) + 1;
    let tab = |number: usize, lines: &mut DocumentLines<'_>| {
        let text = lines.get(number);
        let indentation = text.chars().take_while(|c| matches!(c, ' ' | '\t')).count();
        let tab = text.chars().take(indentation).position(|c| c == '\t');
        tab.filter(|_| !text.trim().is_empty())
    };
    if let Some(column) = tab(line, &mut lines) {
        let message = "a TAB in the indentation: YAML requires spaces; replace the TAB by spaces";
        return ScanFailure::new(line, column + 1, message);
    }
    if let Some(line) = only_directive(text).filter(|_| problem.contains("expected <document start>")) {
        return ScanFailure::new(line, 1, DIRECTIVE);
    }
    let message = translate(problem, error.context().unwrap_or_default());
    let context = error.context_mark();
    if problem == "could not find expected ':'" {
        // The scanner notices a missing colon at the next line with content.
        let content = |line: &usize| {
            let text = lines.get(*line).trim_start();
            !text.is_empty() && !text.starts_with('#')
        };
        let line = (1..=line).rev().find(content).unwrap_or(line);
        let start = context.map_or(line, |context| mark_number(context.line) + 1);
        let line = line.min(start);
        let column = lines.get(line).chars().take_while(|c| c.is_whitespace()).count() + 1;
        return ScanFailure::new(line, column, message);
    }
    // An error in a scalar is at its quote, and what is not closed is where it opens.
    let is_open =
        problem.contains("',' or") || error.context().is_some_and(|it| it.contains("scanning a quoted"));
    let is_refused = matches!(problem, "found unexpected ':'" | "found unknown escape character");
    let shown = context.filter(|_| is_open).unwrap_or(at);
    ScanFailure {
        refused: is_refused.then(|| mark_number(at.index)),
        ..failure(shown, message)
    }
}

fn control_character(text: &str, error: &Error) -> ScanFailure {
    let is_refused = |c: char| {
        (c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}'))
            || matches!(c, '\u{FFFE}' | '\u{FFFF}')
    };
    let offset = text.find(is_refused).unwrap_or_default();
    let before = text.get(..offset).unwrap_or_default();
    let line = locate::lines(before).count().max(1) + usize::from(before.ends_with(['\n', '\r']));
    let column = before
        .rsplit(['\n', '\r'])
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    let message = if error.kind() == ErrorKind::Reader {
        "a control character, which YAML does not allow: remove it, or write it as an escape in double quotes"
            .to_owned()
    } else {
        format!("not YAML: {error}")
    };
    ScanFailure::new(line, column, message)
}

/// The line of the first directive of a document that has nothing else: `kubectl` splits before the `---` that ends the
/// directives.
fn only_directive(text: &str) -> Option<usize> {
    let is_nothing_else = |line: &str| line.trim().is_empty() || line.starts_with(['%', '#']);
    let first = text.lines().position(|line| line.starts_with('%'))?;
    text.lines().all(is_nothing_else).then_some(first + 1)
}

/// The message for a line that begins with `%`.
const DIRECTIVE: &str = "a line that begins with `%` is a directive, which kubectl does not read: remove it, or quote it if it \
                         is text";

/// The message for a key that is null.
pub(super) fn null_key(text: &str) -> String {
    if text.is_empty() {
        "a key is missing before `:`: write one".to_owned()
    } else {
        format!("the key `{text}` is null: quote it if it is text")
    }
}

/// Messages of the scanner and the parser, and the messages in the terms of the author; the first match applies.
const KNOWN: &[(&str, &str)] = &[
    (
        "a tab character",
        "a TAB where YAML requires spaces: replace it by spaces",
    ),
    (
        "expected comment or line break while scanning a block scalar",
        "text on the line of a `|` or `>`: begin it on the next line, or quote the value if it begins with one",
    ),
    (
        "did not find expected '-'",
        "this does not fit the list above: begin it with `- `, or align it with a key",
    ),
    ("directive", DIRECTIVE),
    (
        "incompatible YAML document",
        "a version of YAML that is not known: remove the `%YAML` line",
    ),
    (
        "unknown escape character",
        "an unknown `\\` escape in double quotes: use single quotes for Windows paths ('C:\\logs'), or double the \
             backslash",
    ),
    (
        "hexdecimal number",
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
        "the quote that opens here is still open at the end of the document: close it",
    ),
    (
        "mapping values are not allowed",
        "a `: ` where no key is allowed: correct the indentation, or quote the value if the colon is part of it",
    ),
    (
        "could not find expected ':'",
        "no `key: value` here: add the missing `:`, or correct the indentation",
    ),
    (
        "did not find expected key",
        "this does not fit here: align the line with its neighbours, or quote the whole value",
    ),
    (
        "block sequence entries are not allowed",
        "a list item (`- `) where none is allowed: put it on a line of its own, below its key",
    ),
    (
        "mapping keys are not allowed",
        "a `? ` where no key is allowed: quote the text if it begins with one",
    ),
    (
        "cannot start any token",
        "a value cannot begin with this character: put the value in quotes",
    ),
    (
        "unexpected ':'",
        "a `:` right before a bracket or comma: put a space between them, or quote the text",
    ),
    (
        "',' or '}'",
        "the `{` that opens here is not closed, or a comma is missing: correct that, or quote the text",
    ),
    (
        "',' or ']'",
        "the `[` that opens here is not closed, or a comma is missing: correct that, or quote the text",
    ),
    (
        "expected <document start>",
        "this does not fit the indentation of the lines above: align it with its neighbours",
    ),
    (
        "undefined tag handle",
        "a tag (`!name!…`) that is not declared: remove it",
    ),
    (
        "tag",
        "this tag (`!…`) cannot be read: remove it, or quote the text if it begins with `!`",
    ),
    (
        "alphabetic or numeric character",
        "a `&` or `*` without a name: quote the text if it begins with one",
    ),
    (
        "did not find expected node content",
        "a value is missing or cannot begin like this: put it in quotes",
    ),
];

fn translate(problem: &str, context: &str) -> String {
    let full = format!("{problem} {context}");
    KNOWN.iter().find(|(part, _)| full.contains(part)).map_or_else(
        || format!("not YAML: {problem}; check the indentation and the quotes here"),
        |(_, message)| (*message).to_owned(),
    )
}

/// The error of a document that is a template, at the position of its braces.
pub(super) fn unrendered(position: Position) -> YamlError {
    YamlError {
        position,
        message: format!(
            "this looks like a template that was not rendered (line {} has \"{{{{ ... }}}}\"): render the chart first, \
             for example: helm template RELEASE CHART | transom check -",
            position.line
        ),
        template: true,
    }
}

/// Checks whether a template caused the failure, and converts lines to those of the input.
///
/// `literal` are the lines of quoted and block scalars, which may contain braces.
pub(super) fn explain(
    trouble: ScanFailure,
    lines: &mut DocumentLines<'_>,
    literal: &[(usize, usize)],
    first_line: usize,
) -> YamlError {
    let before = first_line - 1;
    let is_literal = |line: usize| {
        // They are in document order.
        let next = literal.partition_point(|(_, last)| *last < line);
        literal.get(next).is_some_and(|(first, _)| *first <= line)
    };
    // Text after the error did not cause it.
    for line in (1..=trouble.line).filter(|line| !is_literal(*line)) {
        let text = lines.get(line);
        let text = text.split(" #").next().unwrap_or(text);
        if let Some(at) = text.find("{{").filter(|_| !text.trim_start().starts_with('#')) {
            return unrendered(Position {
                line: before + line,
                column: text.get(..at).unwrap_or_default().chars().count() + 1,
            });
        }
    }
    let (line, column) = (before + trouble.line, trouble.column);
    YamlError::new(Position { line, column }, trouble.message)
}

#[cfg(test)]
mod tests {
    use crate::manifest::parse;

    #[track_caller]
    fn refuse(cases: &[(&str, usize, usize, &str)]) {
        for (text, line, column, message) in cases {
            let parsed = parse(text.as_bytes().to_vec());
            let found: Vec<_> = (parsed.errors.iter())
                .map(|error| (error.line, error.column, error.message.as_str()))
                .collect();
            assert_eq!(found, [(*line, *column, *message)], "{text}");
            assert!(parsed.documents.is_empty(), "{text}");
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
                "? [a]\n: b\n",
                1,
                3,
                "a key must be text, not a mapping or a list: put it in quotes if it is text",
            ),
            ("~: b\n", 1, 1, "the key `~` is null: quote it if it is text"),
            (
                ": b\n",
                1,
                1,
                "this does not fit here: align the line with its neighbours, or quote the whole value",
            ),
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
                3,
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
                "the quote that opens here is never closed: close it",
            ),
            (
                "a: {b: c\n",
                1,
                4,
                "the `{` that opens here is not closed, or a comma is missing: correct that, or quote the text",
            ),
            (
                "a: ]\n",
                1,
                4,
                "a value is missing or cannot begin like this: put it in quotes",
            ),
            (
                "a: 'x' y\n",
                1,
                8,
                "this does not fit here: align the line with its neighbours, or quote the whole value",
            ),
            (
                "a: | x\n",
                1,
                6,
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
                1,
                3,
                "a line that begins with `%` is a directive, which kubectl does not read: remove it, or quote it if it is text",
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
                7,
                "a `\\x` or `\\u` escape without its digits: use single quotes for Windows paths ('C:\\users'), or double the backslash",
            ),
            (
                "a: &\n",
                1,
                5,
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
                "this does not fit here: align the line with its neighbours, or quote the whole value",
            ),
            (
                "a: ,\n",
                1,
                4,
                "a value is missing or cannot begin like this: put it in quotes",
            ),
            (
                "a: \"C:\\windows\"\n",
                1,
                7,
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
                "this does not fit here: align the line with its neighbours, or quote the whole value",
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
                1,
                4,
                "the `[` that opens here is not closed, or a comma is missing: correct that, or quote the text",
            ),
        ]);
    }
}
