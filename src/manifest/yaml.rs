//! Builds the syntax tree of a YAML document from the events of libyaml's parser, of which `kubectl`'s own reader is
//! another port; `scalar` resolves scalars.

mod diagnostics;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read as _};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libyaml_safer::{Encoding, Event, EventData, MappingStyle, Mark, Parser, ScalarStyle, SequenceStyle};

use self::diagnostics::DocumentLines;
use super::Position;
use super::input::Chunk;
use super::locate::{self, narrow};
use super::scalar::{self, Scalar};
use super::syntax::{Place, SyntaxEntry, SyntaxForm, SyntaxMapping, SyntaxNode, SyntaxRoot};

/// One level less than serde_json accepts, so that it can parse the output.
pub(super) const MAX_DEPTH: usize = 127;
/// The message for what is nested deeper.
pub(super) const TOO_DEEP: &str = "nested deeper than 127 levels: no Kubernetes object is, make it flatter";
/// How many bytes the scanner decodes at a time.
const SCANNED: usize = 16 << 10;
/// The prefix of the tags of YAML's own types.
const CORE_TAG: &str = "tag:yaml.org,2002:";
/// The number of entries from which a mapping gets an index of its keys.
const LARGE_MAPPING: usize = 24;

/// Why a document could not be read.
#[derive(Debug)]
pub(super) struct YamlError {
    pub(super) position: Position,
    pub(super) message: String,
    /// Whether the document is a template that was not rendered.
    pub(super) template: bool,
}

/// A failure before checking whether a template caused it; line and column from 1, in the document.
struct ScanFailure {
    line: usize,
    column: usize,
    message: String,
    /// The offset in the input of a character that go-yaml may read.
    refused: Option<usize>,
}

type YamlResult<T = ()> = Result<T, ScanFailure>;

/// Takes the items of a list as soon as they are complete, so that a tree never has all of them; `None`: the document is
/// read again, and the items so far are void.
pub(super) type ItemSink<'r, 's> = &'r mut (dyn FnMut(Option<SyntaxRoot>) + 's);

/// The document of a chunk.
pub(super) struct YamlDocument {
    /// `None` if it is empty.
    pub(super) root: Option<SyntaxRoot>,
    /// The position of the text after the end of the document.
    pub(super) unread: Option<Position>,
}

/// Reads the document of a chunk of a text. As for `kubectl`, a chunk has one document, and what follows its end (`...`) is
/// not read.
///
/// With `sink`, the root is without those `items` that the sink has got.
pub(super) fn read(
    text: &str,
    chunk: &Chunk,
    mut sink: Option<ItemSink<'_, '_>>,
) -> Result<YamlDocument, YamlError> {
    let part = text.get(chunk.range.clone()).unwrap_or_default();
    let rest = part.trim_start_matches('\u{FEFF}');
    let mut hidden = HiddenCharacters::default();
    let (root, aliases, has_braces, unrendered, end) = loop {
        if let Some(sink) = &mut sink {
            sink(None);
        }
        let mut builder = TreeBuilder {
            text: rest,
            hidden: &hidden,
            base: chunk.range.start + part.len() - rest.len(),
            first_line: chunk.line,
            open: Vec::new(),
            names: HashMap::new(),
            anchors: Vec::new(),
            aliases: HashMap::new(),
            literal: Vec::new(),
            has_braces: false,
            sink: sink.as_deref_mut(),
            unrendered: None,
            end: rest.len(),
        };
        // A panic of the scanner must lose one document, never the whole run.
        let outcome = catch_unwind(AssertUnwindSafe(|| builder.read())).unwrap_or_else(|_| {
            Err(ScanFailure {
                line: 1,
                column: 1,
                message:
                    "the YAML scanner fails at this document: write it more plainly, for example as JSON"
                        .to_owned(),
                refused: None,
            })
        });
        let failure = match outcome {
            Ok(root) => {
                let TreeBuilder {
                    aliases,
                    has_braces,
                    unrendered,
                    end,
                    ..
                } = builder;
                break (root, aliases, has_braces, unrendered, end);
            }
            Err(failure) => failure,
        };
        let refused = failure.refused.map(|at| hidden.offset(at));
        let error = diagnostics::explain(
            failure,
            &mut DocumentLines::new(rest),
            &builder.literal,
            chunk.line,
        );
        if !refused.is_some_and(|offset| hidden.hide(rest, offset)) {
            return Err(error);
        }
    };
    let unread = unread_offset(rest, end).map(|offset| {
        let before = rest.get(..offset).unwrap_or_default();
        let last = before.rsplit(['\n', '\r']).next().unwrap_or_default();
        let line = locate::lines(before).count() - usize::from(!last.is_empty());
        Position {
            line: chunk.line + line,
            column: last.chars().count() + 1,
        }
    });
    let Some(node) = root else {
        return Ok(YamlDocument { root: None, unread });
    };
    let of_root = || Some(node.unrendered_field().filter(|_| has_braces)?.place);
    if let Some(field) = unrendered.or_else(of_root) {
        return Err(diagnostics::unrendered(field.position()));
    }
    let root = Some(SyntaxRoot { node, aliases });
    Ok(YamlDocument { root, unread })
}

/// The error for a chunk after a separator that `kubectl` does not accept.
pub(super) fn refused_separator(chunk: &str, line: usize) -> YamlError {
    let position = Position { line, column: 4 };
    let separator = chunk.lines().next().unwrap_or_default();
    if separator.contains("{{") {
        return diagnostics::unrendered(position);
    }
    YamlError {
        position,
        message:
            "text on the line of a `---`: kubectl accepts only a comment there; put the text on the next line"
                .to_owned(),
        template: false,
    }
}

/// The offset of the first text after the end of a document that is neither a comment nor another end.
fn unread_offset(text: &str, end: usize) -> Option<usize> {
    let mut rest = text.get(end..)?;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{FEFF}');
        if rest.starts_with('#') {
            rest = rest.trim_start_matches(|c| c != '\n' && c != '\r');
        } else if let Some(after) = rest.strip_prefix("...") {
            rest = after;
        } else {
            return (!rest.is_empty()).then(|| text.len() - rest.len());
        }
    }
}

/// A text with some characters hidden that go-yaml reads and libyaml refuses, each by one that stands for it.
#[derive(Default)]
struct HiddenCharacters {
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
    fn hide(&mut self, text: &str, refused: usize) -> bool {
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
    fn input(&self, text: &str) -> Option<String> {
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
    fn offset(&self, input: usize) -> usize {
        let before = self.in_input.partition_point(|hidden| *hidden < input);
        input - (before * Self::LONGER).min(input)
    }

    /// The text of a scalar of the input.
    fn shown(&self, scalar: String, style: ScalarStyle) -> String {
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

/// Builds nodes from events. Offsets are in the chunk until they are in a node or a key.
struct TreeBuilder<'t, 's> {
    text: &'t str,
    hidden: &'t HiddenCharacters,
    /// The offset of the chunk in the text.
    base: usize,
    first_line: usize,
    open: Vec<OpenNode>,
    /// The number of the last anchor with each name, from 1.
    names: HashMap<String, usize>,
    /// By number, from 1.
    anchors: Vec<Anchored>,
    aliases: HashMap<usize, Vec<usize>>,
    /// The lines of quoted and block scalars that contain `{{`, for messages.
    literal: Vec<(usize, usize)>,
    /// Whether an unquoted scalar contains `{{`.
    has_braces: bool,
    sink: Option<ItemSink<'t, 's>>,
    /// A field of an item of the sink that was not rendered.
    unrendered: Option<Place>,
    /// The offset after the document.
    end: usize,
}

impl TreeBuilder<'_, '_> {
    fn read(&mut self) -> YamlResult<Option<SyntaxNode>> {
        let input = self.hidden.input(self.text);
        let input = input.as_deref().unwrap_or(self.text);
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
                .map_err(|error| diagnostics::scan_error(&error, self.text))?;
            match event.data {
                EventData::StreamEnd => break,
                EventData::DocumentEnd { .. } => {
                    self.end = self.offset(event.end_mark);
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

    /// The offset of a mark in the document, at most its length.
    fn offset(&self, mark: Mark) -> usize {
        self.hidden.offset(mark_number(mark.index)).min(self.text.len())
    }

    /// Returns the root when it is complete.
    fn event(&mut self, event: Event) -> YamlResult<Option<SyntaxNode>> {
        let Event {
            data,
            start_mark,
            end_mark,
            ..
        } = event;
        let start = self.offset(start_mark);
        let place = Place {
            line: narrow(self.first_line).saturating_add(narrow(mark_number(start_mark.line))),
            column: narrow(mark_number(start_mark.column)) + 1,
        };
        match data {
            EventData::MappingStart {
                anchor, tag, style, ..
            } => {
                let form = SyntaxForm::Mapping(SyntaxMapping::new(style == MappingStyle::Flow));
                self.begin(form, anchor, tag.is_some(), start, place, start_mark)?;
                Ok(None)
            }
            EventData::SequenceStart {
                anchor, tag, style, ..
            } => {
                let form = SyntaxForm::Sequence {
                    flow: style == SequenceStyle::Flow,
                    items: Vec::new(),
                };
                self.begin(form, anchor, tag.is_some(), start, place, start_mark)?;
                Ok(None)
            }
            EventData::MappingEnd | EventData::SequenceEnd => {
                let end = self.offset(end_mark);
                let Some(OpenNode { mut node, .. }) = self.open.pop() else {
                    return Ok(None);
                };
                // A mapping of one entry in a flow sequence (`[a: b]`) has no braces.
                let is_bracketed = matches!(self.byte(node.span.start), Some(b'{' | b'['))
                    && matches!(
                        end.checked_sub(1).and_then(|last| self.byte(last)),
                        Some(b'}' | b']')
                    );
                node.span = if is_flow(&node) && is_bracketed {
                    self.base + node.span.start..self.base + end
                } else {
                    // Its entries are complete: their offsets are in the text.
                    let first = self.base + node.span.start;
                    first..last_end(&node).map_or(self.base + start, |end| end.max(first))
                };
                Ok(self.add(node))
            }
            EventData::Alias { anchor } => self.alias(&anchor, start, end_mark, place, start_mark),
            EventData::Scalar {
                anchor,
                tag,
                value,
                plain_implicit,
                style,
                ..
            } => {
                let end = self.offset(end_mark);
                let written = WrittenScalar {
                    value: self.hidden.shown(value, style),
                    tag,
                    plain_implicit,
                    style,
                };
                self.scalar(&written, anchor, start..end, place, start_mark, end_mark)
            }
            _ => Ok(None),
        }
    }

    fn begin(
        &mut self,
        form: SyntaxForm,
        anchor: Option<String>,
        has_tag: bool,
        start: usize,
        place: Place,
        at: Mark,
    ) -> YamlResult {
        if self.expects_key() {
            return Err(complex_key(at));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(failure(at, TOO_DEEP.to_owned()));
        }
        let begin = self.content_start(start, anchor.is_some() || has_tag);
        let anchor = self.anchor(anchor, || Anchored::Collection);
        self.open.push(OpenNode {
            node: SyntaxNode {
                span: begin..begin,
                form,
                anchor,
                json: Box::default(),
                place,
            },
            key: None,
            index: HashSet::new(),
        });
        Ok(())
    }

    fn alias(
        &mut self,
        name: &str,
        start: usize,
        end_mark: Mark,
        place: Place,
        at: Mark,
    ) -> YamlResult<Option<SyntaxNode>> {
        let end = self.offset(end_mark);
        let anchored = self.names.get(name).copied();
        let Some((number, anchored)) =
            anchored.and_then(|number| Some((number, self.anchors.get(number.checked_sub(1)?)?)))
        else {
            return Err(failure(
                at,
                "an alias (`*name`) without an anchor (`&name`) above it: add the anchor, or quote the text"
                    .to_owned(),
            ));
        };
        if self.open.iter().any(|open| open.node.anchor == number) {
            return Err(failure(
                at,
                "an alias (`*name`) inside its own anchor would never end: write the value out".to_owned(),
            ));
        }
        if self.expects_key() {
            let name = match anchored {
                Anchored::Collection => return Err(complex_key(at)),
                Anchored::Scalar(Err(message), _) => return Err(failure(at, message.clone())),
                Anchored::Scalar(Ok(name), _) => name.clone(),
            };
            self.key(Some(name), false, start..end, place);
            return Ok(None);
        }
        let json = match anchored {
            Anchored::Scalar(_, json) => json.clone(),
            Anchored::Collection => Box::default(),
        };
        let offset = self.base + start;
        self.aliases.entry(number).or_default().push(offset);
        let node = SyntaxNode {
            span: offset..self.base + end,
            form: SyntaxForm::Alias(number),
            anchor: 0,
            json,
            place,
        };
        Ok(self.add(node))
    }

    fn scalar(
        &mut self,
        written: &WrittenScalar,
        anchor: Option<String>,
        range: Range<usize>,
        place: Place,
        at: Mark,
        end: Mark,
    ) -> YamlResult<Option<SyntaxNode>> {
        let is_plain = written.style == ScalarStyle::Plain;
        if written.value.contains("{{") {
            if is_plain {
                self.has_braces = true;
            } else {
                // A block scalar ends at the start of the line after it.
                let is_after = end.column == 0 && end.line > at.line;
                let last = mark_number(end.line) + 1 - usize::from(is_after);
                self.literal.push((mark_number(at.line) + 1, last));
            }
        }
        let has_properties = anchor.is_some() || written.tag.is_some();
        let is_text = !(is_plain && written.value.is_empty());
        let begin = self.content_start(range.start, has_properties && is_text);
        let span = match written.style {
            ScalarStyle::Literal | ScalarStyle::Folded => begin..self.block_end(begin, range.end),
            _ if is_text => begin..range.end.max(begin),
            _ if has_properties => range.end..range.end,
            _ => self.after_colon(begin).map_or(begin..begin, |end| end..end),
        };
        let is_merge = written.value == "<<"
            && (written.plain_implicit
                || written.tag.as_deref().and_then(|tag| tag.strip_prefix(CORE_TAG)) == Some("merge"));
        if self.expects_key() && is_merge {
            self.key(None, false, span, place);
            return Ok(None);
        }
        let resolved = written.resolve();
        let as_key = || match &resolved {
            Ok(scalar) => scalar
                .as_key()
                .ok_or_else(|| diagnostics::null_key(&written.value)),
            Err(message) => Err(message.clone()),
        };
        if self.expects_key() {
            let name = as_key().map_err(|message| failure(at, message))?;
            if anchor.is_some() {
                let json = resolved.ok().and_then(|resolved| resolved.json());
                self.anchor(anchor, || {
                    Anchored::Scalar(Ok(name.clone()), json.unwrap_or_default())
                });
            }
            self.key(Some(name), written.tag.is_none(), span, place);
            return Ok(None);
        }
        let json = match &resolved {
            Ok(resolved) => resolved.json().ok_or_else(|| {
                let text = &written.value;
                format!("`{text}` is a number that JSON cannot represent: quote it if it is text")
            }),
            Err(message) => Err(message.clone()),
        };
        let json = json.map_err(|message| failure(at, message))?;
        let anchor = self.anchor(anchor, || Anchored::Scalar(as_key(), json.clone()));
        let node = SyntaxNode {
            span: self.base + span.start..self.base + span.end,
            form: match written.style {
                ScalarStyle::SingleQuoted => SyntaxForm::SingleQuoted,
                ScalarStyle::DoubleQuoted => SyntaxForm::DoubleQuoted,
                ScalarStyle::Literal | ScalarStyle::Folded => SyntaxForm::Block,
                _ => SyntaxForm::Plain,
            },
            anchor,
            json,
            place,
        };
        Ok(self.add(node))
    }

    /// Whether the next node is the key of a mapping.
    fn expects_key(&self) -> bool {
        self.open
            .last()
            .is_some_and(|open| open.key.is_none() && matches!(open.node.form, SyntaxForm::Mapping(_)))
    }

    /// Records a key of the innermost mapping; `None` is a merge key.
    fn key(&mut self, name: Option<Box<str>>, is_written: bool, span: Range<usize>, place: Place) {
        let base = self.base;
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
                mapping
                    .entries
                    .iter()
                    .any(|entry| entry.key.as_deref() == Some(&**name))
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
            span: base + span.start..base + span.end,
        });
    }

    /// The number of a new anchor; 0 without one.
    fn anchor(&mut self, name: Option<String>, on: impl FnOnce() -> Anchored) -> usize {
        let Some(name) = name else { return 0 };
        self.anchors.push(on());
        self.names.insert(name, self.anchors.len());
        self.anchors.len()
    }

    /// Adds a complete node, whose offsets are in the text, to its parent, or returns it if it is the root.
    fn add(&mut self, node: SyntaxNode) -> Option<SyntaxNode> {
        let is_item = matches!(&self.open[..], [OpenNode { key: Some(key), .. }, _]
            if key.name.as_deref() == Some("items"));
        if let Some(sink) = self
            .sink
            .as_deref_mut()
            .filter(|_| is_item && self.anchors.is_empty())
        {
            let unrendered = node.unrendered_field().filter(|_| self.has_braces);
            self.unrendered = self.unrendered.or(unrendered.map(|field| field.place));
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
        let end = key.span.end - self.base;
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

/// Lines and columns of the scanner begin at 0.
fn mark_number(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn failure(at: Mark, message: String) -> ScanFailure {
    ScanFailure {
        line: mark_number(at.line) + 1,
        column: mark_number(at.column) + 1,
        message,
        refused: None,
    }
}

/// YAML parses `{{ .Values.x }}` as a mapping that is a key.
fn complex_key(at: Mark) -> ScanFailure {
    failure(
        at,
        "a key must be text, not a mapping or a list: put it in quotes if it is text".to_owned(),
    )
}
