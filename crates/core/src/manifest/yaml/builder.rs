//! Builds the syntax tree of a document from events.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read as _};
use std::ops::Range;

use libyaml_safer::{Encoding, Event, EventData, MappingStyle, Mark, Parser, ScalarStyle, SequenceStyle};

use super::hidden::HiddenCharacters;
use super::{ItemSink, MAX_DEPTH, ScanFailure, TOO_DEEP, YamlResult, diagnostics, failure, mark_number};
use crate::manifest::locate::narrow;
use crate::manifest::scalar::{self, Scalar};
use crate::manifest::syntax::{Place, SyntaxEntry, SyntaxForm, SyntaxMapping, SyntaxNode, SyntaxRoot};

/// How many bytes the scanner decodes at a time.
const SCANNED: usize = 16 << 10;
/// The prefix of the tags of YAML's own types.
const CORE_TAG: &str = "tag:yaml.org,2002:";
/// The number of entries from which a mapping gets an index of its keys.
const LARGE_MAPPING: usize = 24;

/// What is built of a document.
#[derive(Default)]
pub(super) struct BuiltTree {
    /// The offsets of the aliases by the number of their anchor.
    pub aliases: HashMap<usize, Vec<usize>>,
    /// The lines of quoted and block scalars that contain `{{`, for messages.
    pub literal: Vec<(usize, usize)>,
    /// Whether an unquoted scalar contains `{{`.
    pub has_braces: bool,
    /// A field of an item of the sink that was not rendered.
    pub unrendered: Option<Place>,
    /// The offset after the document; `None` if it is the end of the text.
    pub end: Option<usize>,
}

/// An open mapping or sequence.
struct OpenNode {
    node: SyntaxNode,
    /// The key whose value comes next.
    key: Option<OpenKey>,
    /// The keys of a large mapping.
    index: HashSet<Box<str>>,
}

struct OpenKey {
    name: Option<Box<str>>,
    is_written: bool,
    place: Place,
    span: Range<usize>,
}

/// What an anchor is set on.
enum Anchored {
    /// A mapping or a sequence.
    Collection,
    /// A scalar: as a key, and as JSON.
    Scalar(Result<Box<str>, String>, Box<str>),
}

/// Builds nodes from events. All offsets are in the text.
pub(super) struct TreeBuilder<'t, 's> {
    /// The text up to the end of the document.
    text: &'t str,
    /// The offset of the document.
    base: usize,
    /// The line of the document.
    first_line: usize,
    hidden: &'t HiddenCharacters,
    open: Vec<OpenNode>,
    /// The number of the last anchor with each name, from 1.
    names: HashMap<String, usize>,
    /// By number, from 1.
    anchors: Vec<Anchored>,
    sink: Option<ItemSink<'t, 's>>,
    pub tree: BuiltTree,
}

/// The place of an event.
struct EventSpot {
    range: Range<usize>,
    place: Place,
    start: Mark,
    end: Mark,
}

impl<'t, 's> TreeBuilder<'t, 's> {
    /// Builds the tree of a document whose text begins at the byte `base` of the input.
    pub fn new(
        text: &'t str,
        base: usize,
        first_line: usize,
        hidden: &'t HiddenCharacters,
        sink: Option<ItemSink<'t, 's>>,
    ) -> Self {
        TreeBuilder {
            text,
            base,
            first_line,
            hidden,
            open: Vec::new(),
            names: HashMap::new(),
            anchors: Vec::new(),
            sink,
            tree: BuiltTree::default(),
        }
    }

    /// Reads the document; `None` if it is empty.
    pub fn read(&mut self) -> YamlResult<Option<SyntaxNode>> {
        let text = self.text.get(self.base..).unwrap_or_default();
        let input = self.hidden.input(text);
        let input = input.as_deref().unwrap_or(text);
        // The scanner needs a line break after a block scalar.
        let line_break: &[u8] = if input.ends_with(['\n', '\r']) { b"" } else { b"\n" };
        // The scanner decodes all that a buffer has.
        let mut input = BufReader::with_capacity(SCANNED, input.as_bytes().chain(line_break));
        let mut parser = Parser::new();
        parser.set_input(&mut input as &mut dyn BufRead);
        parser.set_encoding(Encoding::Utf8);
        let mut root = None;
        loop {
            let event = parser
                .parse()
                .map_err(|error| diagnostics::scan_error(&error, text))?;
            match event.data {
                EventData::StreamEnd => break,
                EventData::DocumentEnd { .. } => {
                    self.tree.end = Some(self.offset(event.end_mark));
                    break;
                }
                EventData::StreamStart { .. } | EventData::DocumentStart { .. } => {}
                _ => {
                    if let Some(node) = self.event(event)? {
                        root = Some(node);
                    }
                }
            }
        }
        Ok(root.filter(|node| &*node.json != "null"))
    }

    /// The offset of a mark, at most the end of the document.
    fn offset(&self, mark: Mark) -> usize {
        let offset = self.base + self.hidden.offset(mark_number(mark.index));
        offset.min(self.text.len())
    }

    fn spot(&self, event: &Event) -> EventSpot {
        let Event {
            start_mark: start,
            end_mark: end,
            ..
        } = *event;
        EventSpot {
            range: self.offset(start)..self.offset(end),
            place: Place {
                line: narrow(self.first_line).saturating_add(narrow(mark_number(start.line))),
                column: narrow(mark_number(start.column)) + 1,
            },
            start,
            end,
        }
    }

    /// Returns the root when it is complete.
    fn event(&mut self, event: Event) -> YamlResult<Option<SyntaxNode>> {
        let spot = self.spot(&event);
        match event.data {
            EventData::MappingStart {
                anchor, tag, style, ..
            } => {
                let form = SyntaxForm::Mapping(SyntaxMapping::new(style == MappingStyle::Flow));
                self.begin(form, anchor, tag.is_some(), &spot)
            }
            EventData::SequenceStart {
                anchor, tag, style, ..
            } => {
                let form = SyntaxForm::Sequence {
                    flow: style == SequenceStyle::Flow,
                    items: Vec::new(),
                };
                self.begin(form, anchor, tag.is_some(), &spot)
            }
            EventData::MappingEnd | EventData::SequenceEnd => Ok(self.end(&spot)),
            EventData::Alias { anchor } => self.alias(&anchor, &spot),
            EventData::Scalar {
                anchor,
                tag,
                value,
                plain_implicit,
                style,
                ..
            } => {
                let written = WrittenScalar {
                    value: self.hidden.shown(value, style),
                    tag,
                    plain_implicit,
                    style,
                };
                self.scalar(&written, anchor, &spot)
            }
            _ => Ok(None),
        }
    }

    fn begin(
        &mut self,
        form: SyntaxForm,
        anchor: Option<String>,
        has_tag: bool,
        spot: &EventSpot,
    ) -> YamlResult<Option<SyntaxNode>> {
        if self.expects_key() {
            return Err(complex_key(spot.start));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(failure(spot.start, TOO_DEEP.to_owned()));
        }
        let begin = self.content_start(spot.range.start, anchor.is_some() || has_tag);
        let anchor = self.anchor(anchor, || Anchored::Collection);
        self.open.push(OpenNode {
            node: SyntaxNode {
                span: begin..begin,
                form,
                anchor,
                json: Box::default(),
                place: spot.place,
            },
            key: None,
            index: HashSet::new(),
        });
        Ok(None)
    }

    fn end(&mut self, spot: &EventSpot) -> Option<SyntaxNode> {
        let OpenNode { mut node, .. } = self.open.pop()?;
        let (first, end) = (node.span.start, spot.range.end);
        // A mapping of one entry in a flow sequence (`[a: b]`) has no braces.
        let last = end.checked_sub(1).and_then(|last| self.byte(last));
        let is_bracketed = matches!(self.byte(first), Some(b'{' | b'[')) && matches!(last, Some(b'}' | b']'));
        node.span.end = if node.form.is_flow() && is_bracketed {
            end
        } else {
            node.form
                .last_end()
                .map_or(spot.range.start, |end| end.max(first))
        };
        self.add(node)
    }

    fn alias(&mut self, name: &str, spot: &EventSpot) -> YamlResult<Option<SyntaxNode>> {
        let fail = |message: &str| Err(failure(spot.start, message.to_owned()));
        let number = self.names.get(name).copied().unwrap_or_default();
        let anchored = number.checked_sub(1).and_then(|index| self.anchors.get(index));
        let Some(anchored) = anchored else {
            return fail(
                "an alias (`*name`) without an anchor (`&name`) above it: add the anchor, or quote the text",
            );
        };
        if self.open.iter().any(|open| open.node.anchor == number) {
            return fail("an alias (`*name`) inside its own anchor would never end: write the value out");
        }
        if self.expects_key() {
            let name = match anchored {
                Anchored::Collection => return Err(complex_key(spot.start)),
                Anchored::Scalar(Err(message), _) => return fail(message),
                Anchored::Scalar(Ok(name), _) => name.clone(),
            };
            self.key(Some(name), false, spot.range.clone(), spot.place);
            return Ok(None);
        }
        let json = match anchored {
            Anchored::Scalar(_, json) => json.clone(),
            Anchored::Collection => Box::default(),
        };
        let aliases = self.tree.aliases.entry(number).or_default();
        aliases.push(spot.range.start);
        Ok(self.add(SyntaxNode {
            span: spot.range.clone(),
            form: SyntaxForm::Alias(number),
            anchor: 0,
            json,
            place: spot.place,
        }))
    }

    fn scalar(
        &mut self,
        written: &WrittenScalar,
        anchor: Option<String>,
        spot: &EventSpot,
    ) -> YamlResult<Option<SyntaxNode>> {
        self.note_braces(written, spot);
        let span = self.scalar_span(written, anchor.is_some(), spot);
        if self.expects_key() && written.is_merge() {
            self.key(None, false, span, spot.place);
            return Ok(None);
        }
        let fail = |message| failure(spot.start, message);
        if self.expects_key() {
            let name = written.key().map_err(fail)?;
            self.anchor(anchor, || {
                Anchored::Scalar(Ok(name.clone()), written.json().unwrap_or_default())
            });
            self.key(Some(name), written.tag.is_none(), span, spot.place);
            return Ok(None);
        }
        let json = written.json().map_err(fail)?;
        let anchor = self.anchor(anchor, || Anchored::Scalar(written.key(), json.clone()));
        Ok(self.add(SyntaxNode {
            span,
            form: written.form(),
            anchor,
            json,
            place: spot.place,
        }))
    }

    /// Records where `{{` is, which may be a template that was not rendered.
    fn note_braces(&mut self, written: &WrittenScalar, EventSpot { start, end, .. }: &EventSpot) {
        if !written.value.contains("{{") {
            return;
        }
        if written.style == ScalarStyle::Plain {
            self.tree.has_braces = true;
        } else {
            // A block scalar ends at the start of the line after it.
            let is_after = end.column == 0 && end.line > start.line;
            let last = mark_number(end.line) + 1 - usize::from(is_after);
            self.tree.literal.push((mark_number(start.line) + 1, last));
        }
    }

    /// The bytes of a scalar; empty after the colon for a value that is not written.
    fn scalar_span(
        &self,
        written: &WrittenScalar,
        has_anchor: bool,
        EventSpot { range, .. }: &EventSpot,
    ) -> Range<usize> {
        let has_properties = has_anchor || written.tag.is_some();
        let is_text = !(written.style == ScalarStyle::Plain && written.value.is_empty());
        let begin = self.content_start(range.start, has_properties && is_text);
        match written.style {
            ScalarStyle::Literal | ScalarStyle::Folded => begin..self.block_end(begin, range.end),
            _ if is_text => begin..range.end.max(begin),
            _ if has_properties => range.end..range.end,
            _ => self.after_colon(begin).map_or(begin..begin, |end| end..end),
        }
    }

    /// Whether the next node is the key of a mapping.
    fn expects_key(&self) -> bool {
        self.open
            .last()
            .is_some_and(|open| open.key.is_none() && matches!(open.node.form, SyntaxForm::Mapping(_)))
    }

    /// Records a key of the innermost mapping; `None` is a merge key.
    fn key(&mut self, name: Option<Box<str>>, is_written: bool, span: Range<usize>, place: Place) {
        let Some(OpenNode { node, key, index }) = self.open.last_mut() else {
            return;
        };
        let SyntaxForm::Mapping(mapping) = &mut node.form else {
            return;
        };
        if mapping.entries.is_empty() && !mapping.flow {
            node.span = span.clone();
        }
        if let Some(name) = &name {
            // Most mappings are small: for these, comparing is faster than hashing.
            let is_known = if mapping.entries.len() < LARGE_MAPPING {
                let mut entries = mapping.entries.iter();
                entries.any(|entry| entry.key.as_deref() == Some(&**name))
            } else {
                if index.is_empty() {
                    index.extend(mapping.entries.iter().filter_map(|entry| entry.key.clone()));
                }
                !index.insert(name.clone())
            };
            mapping.has_duplicates |= is_known;
        }
        *key = Some(OpenKey {
            name,
            is_written,
            place,
            span,
        });
    }

    /// The number of a new anchor; 0 without one.
    fn anchor(&mut self, name: Option<String>, on: impl FnOnce() -> Anchored) -> usize {
        let Some(name) = name else { return 0 };
        self.anchors.push(on());
        self.names.insert(name, self.anchors.len());
        self.anchors.len()
    }

    /// Adds a complete node to its parent, or returns it if it is the root.
    fn add(&mut self, node: SyntaxNode) -> Option<SyntaxNode> {
        let is_item = matches!(&self.open[..], [OpenNode { key: Some(key), .. }, _]
            if key.name.as_deref() == Some("items"));
        if let Some(sink) = self
            .sink
            .as_deref_mut()
            .filter(|_| is_item && self.anchors.is_empty())
        {
            let unrendered = node.unrendered_field().filter(|_| self.tree.has_braces);
            let unrendered = unrendered.map(|field| field.place);
            self.tree.unrendered = self.tree.unrendered.or(unrendered);
            sink(Some(SyntaxRoot {
                node,
                aliases: HashMap::new(),
            }));
            return None;
        }
        let Some(parent) = self.open.last_mut() else {
            return Some(node);
        };
        match &mut parent.node.form {
            SyntaxForm::Mapping(mapping) => {
                if let Some(key) = parent.key.take() {
                    mapping.entries.push(SyntaxEntry {
                        key: key.name,
                        is_written: key.is_written,
                        key_place: key.place,
                        key_span: key.span,
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
        self.text.as_bytes().get(at).copied()
    }

    /// The start of a node after its anchor and tag, and after the blanks and comments that follow them.
    fn content_start(&self, start: usize, has_properties: bool) -> usize {
        let mut at = start;
        if !has_properties {
            return at;
        }
        loop {
            let rest = self.text.get(at..).unwrap_or_default();
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

    /// The offset after the colon of the key whose value is not written; its mark may be further away.
    fn after_colon(&self, at: usize) -> Option<usize> {
        let key = self.open.last()?.key.as_ref()?;
        let end = key.span.end;
        let between = self.text.get(end..at)?;
        Some(if between.trim_end().ends_with(':') {
            end + between.trim_end().len()
        } else {
            end
        })
    }

    /// The end of the last line with text of a block scalar.
    fn block_end(&self, begin: usize, end: usize) -> usize {
        let text = self.text.get(begin..end).unwrap_or_default();
        let last = begin + text.trim_end().len();
        let rest = self.text.get(last..).unwrap_or_default();
        last + rest.find(['\n', '\r']).unwrap_or(rest.len())
    }
}

/// A scalar as the scanner reports it.
struct WrittenScalar {
    value: String,
    tag: Option<String>,
    plain_implicit: bool,
    style: ScalarStyle,
}

impl WrittenScalar {
    fn resolve(&self) -> Result<Scalar<'_>, String> {
        let text = &*self.value;
        match self.tag.as_deref() {
            None | Some("") if self.plain_implicit => Ok(scalar::plain(text)),
            None | Some("") => Ok(Scalar::Text(text.into())),
            // A tag of another application means text, as for `kubectl`.
            Some(tag) => match tag.strip_prefix(CORE_TAG) {
                Some(core) => scalar::tagged(core, text),
                None => Ok(Scalar::Text(text.into())),
            },
        }
    }

    /// Whether it is a merge key, if it is a key.
    fn is_merge(&self) -> bool {
        let tag = self.tag.as_deref().and_then(|tag| tag.strip_prefix(CORE_TAG));
        self.value == "<<" && (self.plain_implicit || tag == Some("merge"))
    }

    fn key(&self) -> Result<Box<str>, String> {
        let name = self.resolve()?.as_key();
        name.ok_or_else(|| diagnostics::null_key(&self.value))
    }

    fn json(&self) -> Result<Box<str>, String> {
        let text = &self.value;
        (self.resolve()?.json())
            .ok_or_else(|| format!("`{text}` is a number that JSON cannot represent: quote it if it is text"))
    }

    fn form(&self) -> SyntaxForm {
        match self.style {
            ScalarStyle::SingleQuoted => SyntaxForm::SingleQuoted,
            ScalarStyle::DoubleQuoted => SyntaxForm::DoubleQuoted,
            ScalarStyle::Literal | ScalarStyle::Folded => SyntaxForm::Block,
            _ => SyntaxForm::Plain,
        }
    }
}

/// YAML parses `{{ .Values.x }}` as a mapping that is a key.
fn complex_key(at: Mark) -> ScanFailure {
    failure(
        at,
        "a key must be text, not a mapping or a list: put it in quotes if it is text".to_owned(),
    )
}
