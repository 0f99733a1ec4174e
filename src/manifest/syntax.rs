//! The syntax of a text: where each node is and how it is written. Does not interpret values; `yaml` and `json` do.

use std::collections::HashMap;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle};

use super::input::{Chunk, split};
use super::locate::TextIndex;
use super::scalar::{self, Scalar};
use super::{MAX_ERRORS, Position, json};
use crate::model::json::{Members, string_at};

/// A node of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxNode {
    /// Its bytes, without its anchor and tag. A block mapping starts at its first key, a block sequence at its first
    /// dash; both end with their last entry. Empty for a value that is not written.
    pub span: Range<usize>,
    /// How it is written.
    pub form: SyntaxForm,
    /// The number of its anchor in the document; 0 if it has none.
    pub anchor: usize,
    /// Its position as in [`Document::start`](super::Document::start).
    position: Position,
}

/// How a node is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SyntaxForm {
    /// A scalar without quotes.
    Plain,
    /// A scalar in single quotes.
    SingleQuoted,
    /// A scalar in double quotes.
    DoubleQuoted,
    /// A scalar after `|` or `>`.
    Block,
    /// `*name`.
    Alias,
    /// A mapping.
    Mapping(SyntaxMapping),
    /// A sequence, with its items.
    Sequence {
        /// Whether it is written in brackets.
        flow: bool,
        /// The items.
        items: Vec<SyntaxNode>,
    },
}

/// A mapping as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxMapping {
    /// Whether it is written in braces.
    pub flow: bool,
    /// The entries, in order.
    pub entries: Vec<SyntaxEntry>,
}

/// An entry of a mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxEntry {
    /// The key; `None` for a merge key (`<<`) and for an alias.
    pub key: Option<String>,
    /// The bytes of the key, with its quotes.
    pub key_span: Range<usize>,
    /// The value.
    pub value: SyntaxNode,
}

impl SyntaxMapping {
    /// The index of the entry with this key.
    pub fn find(&self, key: &str) -> Option<usize> {
        let mut entries = self.entries.iter();
        entries.position(|entry| entry.key.as_deref() == Some(key))
    }
}

/// The syntax of some documents of a text.
#[derive(Debug, Default)]
pub struct Syntax {
    roots: Vec<SyntaxNode>,
    /// The offsets of the aliases, by document (its index in `roots`) and anchor.
    aliases: Vec<HashMap<usize, Vec<usize>>>,
}

/// An object of a text: its node, and the aliases of its document.
#[derive(Clone, Copy, Debug)]
pub struct SyntaxObject<'s> {
    /// Its node.
    pub node: &'s SyntaxNode,
    /// The offsets of the aliases of its document, by the number of their anchor.
    pub aliases: &'s HashMap<usize, Vec<usize>>,
}

impl Syntax {
    /// Reads the documents of a text that [`parse`](super::parse) accepts, if they contain one of these positions.
    pub fn of(text: &str, positions: &[Position]) -> Self {
        let mut syntax = Syntax::default();
        let chunks = split(text);
        for (at, chunk) in chunks.iter().enumerate() {
            let next = chunks.get(at + 1).map_or(usize::MAX, |next| next.line);
            let is_meant = |position: &Position| (chunk.line..next).contains(&position.line);
            if positions.iter().any(is_meant) {
                syntax.read(text, chunk);
            }
        }
        syntax
    }

    fn read(&mut self, text: &str, chunk: &Chunk) {
        let Some(part) = text.get(chunk.range.clone()) else {
            return;
        };
        if let Some(start) = json::begins(part) {
            let scan = json::read(text, chunk.range.start + start..chunk.range.end, MAX_ERRORS);
            if scan.errors.is_empty() {
                let index = TextIndex::new(text);
                for range in scan.values {
                    self.roots.push(of_json(text, range, &index, true));
                    self.aliases.push(HashMap::new());
                }
                return;
            }
        }
        let mut builder = Builder {
            cursor: CharCursor {
                text: part,
                chars: 0,
                bytes: 0,
            },
            base: chunk.range.start,
            first_line: chunk.line,
            stack: Vec::new(),
            aliases: HashMap::new(),
        };
        for event in Parser::new_from_str(part) {
            let Ok((event, span)) = event else { return };
            let Some(root) = builder.event(&event, span) else {
                continue;
            };
            self.roots.push(root);
            self.aliases.push(std::mem::take(&mut builder.aliases));
        }
    }

    /// The objects by their position; lists are expanded into their items.
    pub fn objects(&self) -> HashMap<Position, SyntaxObject<'_>> {
        let mut objects = HashMap::new();
        for (root, aliases) in self.roots.iter().zip(&self.aliases) {
            let mut open = vec![root];
            while let Some(node) = open.pop() {
                objects.insert(node.position, SyntaxObject { node, aliases });
                if let SyntaxForm::Mapping(mapping) = &node.form
                    && let Some(items) = mapping.find("items").and_then(|at| mapping.entries.get(at))
                    && let SyntaxForm::Sequence { items, .. } = &items.value.form
                {
                    open.extend(items);
                }
            }
        }
        objects
    }
}

/// The syntax of valid JSON. Only objects that may be items of lists get a position: finding one takes time.
fn of_json(text: &str, range: Range<usize>, index: &TextIndex, is_object: bool) -> SyntaxNode {
    let position = if is_object {
        index.position(text, range.start)
    } else {
        Position { line: 0, column: 0 }
    };
    let form = match text.as_bytes().get(range.start) {
        Some(b'{') => {
            let entry = |(key, value): (Range<usize>, Range<usize>)| SyntaxEntry {
                key: string_at(text, key.clone()).map(std::borrow::Cow::into_owned),
                value: of_json(
                    text,
                    value,
                    index,
                    is_object && text.get(key.clone()) == Some("\"items\""),
                ),
                key_span: key,
            };
            SyntaxForm::Mapping(SyntaxMapping {
                flow: true,
                entries: Members::of_object(text, range.start).map(entry).collect(),
            })
        }
        Some(b'[') => {
            let items = Members::of_array(text, range.start);
            SyntaxForm::Sequence {
                flow: true,
                items: items
                    .map(|(_, item)| of_json(text, item, index, is_object))
                    .collect(),
            }
        }
        Some(b'"') => SyntaxForm::DoubleQuoted,
        _ => SyntaxForm::Plain,
    };
    SyntaxNode {
        span: range,
        form,
        anchor: 0,
        position,
    }
}

/// Converts offsets in characters to offsets in bytes; cheap if they ascend.
struct CharCursor<'t> {
    text: &'t str,
    chars: usize,
    bytes: usize,
}

impl CharCursor<'_> {
    fn to(&mut self, chars: usize) -> usize {
        while self.chars < chars {
            let Some(next) = self.text.get(self.bytes..).and_then(|rest| rest.chars().next()) else {
                break;
            };
            (self.chars, self.bytes) = (self.chars + 1, self.bytes + next.len_utf8());
        }
        while self.chars > chars {
            let Some(last) = self
                .text
                .get(..self.bytes)
                .and_then(|rest| rest.chars().next_back())
            else {
                break;
            };
            (self.chars, self.bytes) = (self.chars - 1, self.bytes - last.len_utf8());
        }
        self.bytes
    }
}

/// An open mapping or sequence.
struct Open {
    node: SyntaxNode,
    /// The key whose value comes next.
    key: Option<(Option<String>, Range<usize>)>,
}

/// Builds nodes from the events of the YAML parser. Offsets are in the document until a node is complete.
struct Builder<'t> {
    cursor: CharCursor<'t>,
    base: usize,
    first_line: usize,
    stack: Vec<Open>,
    aliases: HashMap<usize, Vec<usize>>,
}

impl Builder<'_> {
    /// Returns the root when it is complete.
    fn event(&mut self, event: &Event<'_>, span: saphyr_parser::Span) -> Option<SyntaxNode> {
        let start = self.cursor.to(span.start.index());
        let position = Position {
            line: self.first_line - 1 + span.start.line(),
            column: span.start.col() + 1,
        };
        let (form, anchor, has_tag) = match event {
            Event::MappingStart(anchor, tag) | Event::SequenceStart(anchor, tag) => {
                let begin = self.content_start(start, *anchor > 0 || tag.is_some());
                // The parser reports a sequence that is not indented after its first dash.
                let dash = match event {
                    Event::SequenceStart(..) => self.dash(begin),
                    _ => None,
                };
                let begin = dash.unwrap_or(begin);
                let flow = self.stack.last().is_some_and(|open| is_flow(&open.node))
                    || matches!(self.byte(begin), Some(b'{' | b'['));
                let form = match event {
                    Event::MappingStart(..) => SyntaxForm::Mapping(SyntaxMapping {
                        flow,
                        entries: Vec::new(),
                    }),
                    _ => SyntaxForm::Sequence {
                        flow,
                        items: Vec::new(),
                    },
                };
                self.stack.push(Open {
                    node: SyntaxNode {
                        span: begin..begin,
                        form,
                        anchor: *anchor,
                        position,
                    },
                    key: None,
                });
                return None;
            }
            Event::MappingEnd | Event::SequenceEnd => {
                // The parser may count blanks and a comment after the bracket as part of it.
                let is_bracket = matches!(self.byte(start), Some(b'}' | b']'));
                let Open { mut node, .. } = self.stack.pop()?;
                node.span.end = if is_flow(&node) && is_bracket {
                    start + 1
                } else {
                    // Its entries are complete: their offsets are in the text.
                    last_end(&node).map_or(start, |end| end - self.base)
                };
                return self.add(node);
            }
            Event::Alias(anchor) => {
                let offset = self.base + start;
                self.aliases.entry(*anchor).or_default().push(offset);
                (SyntaxForm::Alias, 0, false)
            }
            Event::Scalar(_, style, anchor, tag) => {
                let form = match style {
                    ScalarStyle::Plain => SyntaxForm::Plain,
                    ScalarStyle::SingleQuoted => SyntaxForm::SingleQuoted,
                    ScalarStyle::DoubleQuoted => SyntaxForm::DoubleQuoted,
                    ScalarStyle::Literal | ScalarStyle::Folded => SyntaxForm::Block,
                };
                (form, *anchor, tag.is_some())
            }
            _ => return None,
        };
        let is_written = !matches!(event, Event::Scalar(text, ScalarStyle::Plain, ..) if text.is_empty());
        let begin = self.content_start(start, is_written && (anchor > 0 || has_tag));
        let span = match form {
            SyntaxForm::Block => {
                let end = self.block_end(begin);
                begin.min(end)..end
            }
            SyntaxForm::SingleQuoted | SyntaxForm::DoubleQuoted => begin..self.quoted_end(begin),
            _ if is_written => begin..self.cursor.to(span.end.index()).max(begin),
            _ => self.after_key().map_or(begin..begin, |at| at..at),
        };
        if let Some(Open {
            node:
                SyntaxNode {
                    form: SyntaxForm::Mapping(mapping),
                    span: of_mapping,
                    ..
                },
            key: expected @ None,
        }) = self.stack.last_mut()
        {
            if mapping.entries.is_empty() && !mapping.flow {
                *of_mapping = span.clone();
            }
            *expected = Some((key_of(event), self.base + span.start..self.base + span.end));
            return None;
        }
        self.add(SyntaxNode {
            span,
            form,
            anchor,
            position,
        })
    }

    /// Adds a complete node to its parent, or returns it if it is the root.
    fn add(&mut self, mut node: SyntaxNode) -> Option<SyntaxNode> {
        node.span = self.base + node.span.start..self.base + node.span.end;
        let Some(parent) = self.stack.last_mut() else {
            return Some(node);
        };
        match &mut parent.node.form {
            SyntaxForm::Mapping(mapping) => {
                if let Some((key, key_span)) = parent.key.take() {
                    mapping.entries.push(SyntaxEntry {
                        key,
                        key_span,
                        value: node,
                    });
                }
            }
            SyntaxForm::Sequence { items, .. } => items.push(node),
            _ => {}
        }
        None
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.cursor.text.as_bytes().get(at).copied()
    }

    /// The start of a node after its anchor and tag, and after the blanks and comments that follow them.
    fn content_start(&self, start: usize, has_properties: bool) -> usize {
        let text = self.cursor.text;
        let mut at = start;
        if !has_properties {
            return at;
        }
        loop {
            let rest = text.get(at..).unwrap_or_default();
            let length = match rest.chars().next() {
                Some('&' | '!') => rest.find(|c: char| c.is_whitespace()).unwrap_or(rest.len()),
                Some(c) if c.is_whitespace() => c.len_utf8(),
                Some('#') => rest.find('\n').unwrap_or(rest.len()),
                _ => break,
            };
            at += length;
        }
        at
    }

    /// The end of a scalar in quotes: the parser may count a comment after it as part of it.
    fn quoted_end(&self, begin: usize) -> usize {
        let bytes = self.cursor.text.as_bytes();
        let quote = self.byte(begin);
        let mut at = begin + 1;
        while let Some(byte) = bytes.get(at) {
            let is_quote = Some(*byte) == quote;
            let is_escape = *byte == if quote == Some(b'"') { b'\\' } else { b'\'' };
            if is_quote && !(is_escape && self.byte(at + 1) == quote) {
                return at + 1;
            }
            at += 1 + usize::from(is_escape);
        }
        bytes.len()
    }

    /// The first dash of a sequence that the parser reports after it; such a sequence is the value of a key.
    fn dash(&self, at: usize) -> Option<usize> {
        let text = self.cursor.text;
        let rest = text.get(at..).unwrap_or_default();
        let is_dash = rest
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(char::is_whitespace));
        let is_value = self.stack.last().is_some_and(|open| open.key.is_some());
        if is_dash || !is_value {
            return None;
        }
        let before = text.get(..at)?.trim_end();
        before.strip_suffix('-').map(str::len)
    }

    /// The offset after the colon of the key whose value comes next.
    fn after_key(&self) -> Option<usize> {
        let (_, key) = self.stack.last()?.key.as_ref()?;
        let end = key.end - self.base;
        let rest = self.cursor.text.get(end..)?;
        let blanks = rest.len() - rest.trim_start_matches(' ').len();
        Some(if rest.get(blanks..)?.starts_with(':') {
            end + blanks + 1
        } else {
            end
        })
    }

    /// The end of the last line of a block scalar: the lines after its header that are indented more than its parent.
    fn block_end(&self, begin: usize) -> usize {
        let text = self.cursor.text;
        let Some(parent) = self.stack.last() else {
            return text.len();
        };
        let (from, owner) = match &parent.key {
            Some((_, key)) => (key.start - self.base, key.start - self.base),
            None => (begin, parent.node.span.start),
        };
        let indentation = owner - line_start(text, owner);
        let mut at = line_end(text, from);
        let mut end = at;
        while at < text.len() {
            at += 1;
            let next = line_end(text, at);
            let line = text.get(at..next).unwrap_or_default();
            let blanks = line.len() - line.trim_start_matches(' ').len();
            if !line.trim().is_empty() {
                if blanks <= indentation {
                    break;
                }
                end = next;
            }
            at = next;
        }
        end - usize::from(text.get(..end).is_some_and(|text| text.ends_with('\r')))
    }
}

/// The text of a key; `None` for a merge key and for what is not a plain scalar.
fn key_of(event: &Event<'_>) -> Option<String> {
    let Event::Scalar(text, style, _, tag) = event else {
        return None;
    };
    if *style != ScalarStyle::Plain || tag.is_some() {
        return tag.is_none().then(|| text.to_string());
    }
    match scalar::plain(text) {
        Ok(Scalar::Text(text)) if text != "<<" => Some(text.into_owned()),
        Ok(Scalar::Number(number)) => Some(number.into_owned()),
        Ok(Scalar::Bool(value)) => Some(value.to_string()),
        _ => None,
    }
}

fn is_flow(node: &SyntaxNode) -> bool {
    match &node.form {
        SyntaxForm::Mapping(mapping) => mapping.flow,
        SyntaxForm::Sequence { flow, .. } => *flow,
        _ => false,
    }
}

/// The end of the last entry, in the text.
fn last_end(node: &SyntaxNode) -> Option<usize> {
    match &node.form {
        SyntaxForm::Mapping(mapping) => mapping.entries.last().map(|entry| entry.value.span.end),
        SyntaxForm::Sequence { items, .. } => items.last().map(|item| item.span.end),
        _ => None,
    }
}

/// The start of the line of an offset.
pub fn line_start(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    before.rfind('\n').map_or(0, |end| end + 1)
}

/// The end of the line of an offset: the offset of its `\n`, or the end of the text.
pub fn line_end(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    rest.find('\n').map_or(text.len(), |end| at + end)
}
