//! Finds the comments that are addressed to Transom (`# transom:suppress …`), and the lines that they apply to. Does not
//! interpret them.

use std::ops::Range;

use memchr::memmem;

use super::locate::lines;

/// What a comment to Transom starts with, after `#` and spaces.
const MARKER: &str = "transom:";

/// A comment to Transom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directive {
    /// Its line, from 1.
    pub line: usize,
    /// The lines that it applies to.
    pub scope: DirectiveScope,
    /// The text after `transom:`.
    pub text: String,
}

/// The lines that a directive applies to; all lines count from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirectiveScope {
    /// It follows a field on this line.
    Line(usize),
    /// It is directly above this line. No line is 0: then no field follows.
    Above(usize),
    /// It is above the first field of a YAML document: every object that starts in these lines.
    Document(Range<usize>),
}

/// Every directive of a YAML text, in order. Text in block scalars and quotes is not a comment.
pub(super) fn find(text: &str) -> Vec<Directive> {
    // Nearly every text has none: one fast search instead of a walk over its lines.
    if memmem::find(text.as_bytes(), MARKER.as_bytes()).is_none() {
        return Vec::new();
    }
    let mut finder = DirectiveFinder::default();
    let mut last = 0;
    for (index, line) in lines(text).enumerate() {
        last = index + 1;
        finder.line(last, line.trim_end_matches(['\n', '\r']));
    }
    finder.end_document(last + 1);
    finder.found
}

#[derive(Default)]
struct DirectiveFinder {
    found: Vec<Directive>,
    /// Whether the current document has a field already.
    has_content: bool,
    /// The indexes of directives above the first field of the current document.
    at_top: Vec<usize>,
    /// The indexes of directives on lines of their own, directly above the current line.
    above: Vec<usize>,
    /// The indentation of the field whose block scalar (`|`, `>`) may continue.
    scalar: Option<usize>,
}

impl DirectiveFinder {
    fn line(&mut self, number: usize, line: &str) {
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let content = line.trim_start_matches(' ');
        let indent = line.len() - content.len();
        if let Some(parent) = self.scalar {
            if content.trim().is_empty() || indent > parent {
                return;
            }
            self.scalar = None;
        }
        let of_end = line.strip_prefix("...");
        let is_end = of_end.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        let is_start = line.starts_with("---");
        // Comments before `---` belong to the document that it starts.
        if is_end || is_start && self.has_content {
            self.end_document(number);
        }
        let (code, comment) = split_comment(if is_start || is_end {
            line.get(3..).unwrap_or_default()
        } else {
            line
        });
        let has_code = !code.trim().is_empty();
        if has_code {
            for index in self.above.drain(..) {
                if let Some(directive) = self.found.get_mut(index) {
                    directive.scope = DirectiveScope::Above(number);
                }
            }
        }
        if let Some(text) = comment.and_then(directive) {
            self.add(number, has_code, text);
        }
        if has_code {
            self.has_content = true;
            self.scalar = block_scalar(code);
        } else if comment.is_none() {
            self.above.clear();
        }
    }

    /// Adds a directive of a line with or without a field.
    fn add(&mut self, line: usize, has_code: bool, text: &str) {
        let index = self.found.len();
        let scope = if has_code {
            DirectiveScope::Line(line)
        } else if self.has_content {
            self.above.push(index);
            DirectiveScope::Above(0)
        } else {
            self.at_top.push(index);
            DirectiveScope::Document(line..line)
        };
        self.found.push(Directive {
            line,
            scope,
            text: text.to_owned(),
        });
    }

    /// Ends the current document before a line.
    fn end_document(&mut self, before: usize) {
        for index in self.at_top.drain(..) {
            if let Some(Directive { line, scope, .. }) = self.found.get_mut(index) {
                *scope = DirectiveScope::Document(*line..before);
            }
        }
        self.above.clear();
        self.has_content = false;
    }
}

/// A line as its code and its comment, which begins with `#`.
fn split_comment(line: &str) -> (&str, Option<&str>) {
    let (mut quote, mut before, mut is_escaped) = (None, ' ', false);
    for (at, c) in line.char_indices() {
        match quote {
            Some('"') if is_escaped => is_escaped = false,
            Some('"') if c == '\\' => is_escaped = true,
            Some(open) => quote = (c != open).then_some(open),
            None if c == '#' && matches!(before, ' ' | '\t') => {
                let (code, comment) = line.split_at(at);
                return (code, Some(comment));
            }
            // `''` inside single quotes is one quote.
            None if c == '\'' && before == '\'' => quote = Some(c),
            // A quote inside a plain scalar, as in `it's`, is text.
            None if matches!(c, '"' | '\'') && matches!(before, ' ' | '\t' | '[' | '{' | ',' | ':') => {
                quote = Some(c);
            }
            None => {}
        }
        before = c;
    }
    (line, None)
}

/// The text of a directive, if the comment is one: `transom: see the wiki` is prose.
fn directive(comment: &str) -> Option<&str> {
    let text = comment.trim_start_matches('#').trim().strip_prefix(MARKER)?;
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        .then_some(text)
}

/// The indentation of the field that this line gives a block scalar; lines of the scalar are indented further.
fn block_scalar(code: &str) -> Option<usize> {
    let code = code.trim_end();
    let header = code.rsplit([' ', '\t']).next()?;
    let indicators = header.strip_prefix(['|', '>'])?;
    if indicators.len() > 2 || !indicators.chars().all(|c| matches!(c, '+' | '-' | '1'..='9')) {
        return None;
    }
    let mut rest = code.trim_start();
    let mut parent = code.len() - rest.len();
    while let Some(item) = rest.strip_prefix("- ") {
        let item = item.trim_start();
        // `- |`: the item itself is the scalar.
        if item == header {
            return Some(parent);
        }
        parent = code.len() - item.len();
        rest = item;
    }
    (rest != header).then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::DirectiveScope::{Above, Document, Line};
    use super::*;

    fn scopes(text: &str) -> Vec<(usize, DirectiveScope, String)> {
        let found = find(text).into_iter();
        found.map(|it| (it.line, it.scope, it.text)).collect()
    }

    #[test]
    fn a_directive_applies_to_its_line_the_line_below_or_the_document() {
        let text = "# licence\n\n# transom:suppress a\napiVersion: v1 # transom:suppress b\nspec:\n  # transom:suppress c\n  \
                    # why\n  x: 1\n  # transom:suppress d\n\n  y: 'it''s # transom:suppress no'\n---\n# Source: a.yaml\n#transom:suppress e\n\
                    kind: Pod\n---\n---# transom:suppress f\nkind: Pod\n";
        let expected = [
            (3, Document(3..12), "suppress a"),
            (4, Line(4), "suppress b"),
            (6, Above(8), "suppress c"),
            (9, Above(0), "suppress d"),
            (14, Document(14..16), "suppress e"),
            (17, Document(17..19), "suppress f"),
        ];
        let expected = expected.map(|(line, scope, text)| (line, scope, text.to_owned()));
        for text in [
            text.to_owned(),
            text.replace('\n', "\r\n"),
            format!("\u{feff}{text}"),
        ] {
            assert_eq!(scopes(&text), expected);
        }
    }

    #[test]
    fn text_in_scalars_and_prose_is_no_directive() {
        for text in [
            "a: |\n  # transom:suppress x\n\n  # transom:suppress y\n",
            "- >-\n # transom:suppress x\n",
            "- a: &s |2+ # the script\n    # transom:suppress x\n",
            "a: \"b \\\" # transom:suppress x\"\n",
            "a: b# transom:suppress x\n",
            "# transom: see the wiki\n",
            "# See transom:suppress x\n",
        ] {
            assert_eq!(scopes(text), [], "{text}");
        }
        // A comment that is not indented further ends the scalar.
        let text = "- a: |\n    b\n  # transom:suppress x\n  c: it's # transom:suppress y\n";
        let expected = [(3, Above(4), "suppress x"), (4, Line(4), "suppress y")];
        assert_eq!(
            scopes(text),
            expected.map(|(line, scope, text)| (line, scope, text.to_owned()))
        );
    }
}
