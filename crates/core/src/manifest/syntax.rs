//! The syntax tree of a text: where each node is, how it is written, and its scalars as JSON. `yaml` builds it for YAML,
//! this file for JSON; `transcript` writes it as JSON text.

use std::collections::HashMap;
use std::ops::Range;

use super::Position;
use super::locate::narrow;
use crate::model::objects::workload::Kind;
use crate::model::syntax::json::{Members, string_at};

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
    /// A scalar of YAML as JSON; empty if the text itself is JSON.
    pub(super) json: Box<str>,
    pub(super) place: Place,
}

/// A position in 32 bits: there is one in every node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Place {
    /// The line, from 1.
    pub(super) line: u32,
    /// The column, from 1, in characters.
    pub(super) column: u32,
}

impl Place {
    pub(super) fn position(self) -> Position {
        Position {
            line: self.line as usize,
            column: self.column as usize,
        }
    }
}

impl From<Position> for Place {
    fn from(Position { line, column }: Position) -> Self {
        Place {
            line: narrow(line),
            column: narrow(column),
        }
    }
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
    /// `*name`, with the number of the anchor.
    Alias(usize),
    Mapping(SyntaxMapping),
    /// A sequence, with its items.
    Sequence {
        /// Whether it is written in brackets.
        flow: bool,
        items: Vec<SyntaxNode>,
    },
}

impl SyntaxForm {
    /// Whether it is a mapping or a sequence in brackets.
    pub fn is_flow(&self) -> bool {
        match self {
            SyntaxForm::Mapping(mapping) => mapping.flow,
            SyntaxForm::Sequence { flow, .. } => *flow,
            _ => false,
        }
    }

    /// The end of the last entry or item.
    pub(super) fn last_end(&self) -> Option<usize> {
        match self {
            SyntaxForm::Mapping(mapping) => mapping.entries.last().map(|entry| entry.value.span.end),
            SyntaxForm::Sequence { items, .. } => items.last().map(|item| item.span.end),
            _ => None,
        }
    }
}

/// A mapping as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxMapping {
    /// Whether it is written in braces.
    pub flow: bool,
    /// Whether a key is given more than once: the last one applies.
    pub has_duplicates: bool,
    /// The entries, in order.
    pub entries: Vec<SyntaxEntry>,
}

/// An entry of a mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxEntry {
    /// The key as in JSON; `None` for a merge key (`<<`).
    pub key: Option<Box<str>>,
    /// Whether the key itself is in the text, without an alias or a tag.
    pub(super) is_written: bool,
    pub(super) key_place: Place,
    /// The bytes of the key, with its quotes.
    pub key_span: Range<usize>,
    pub value: SyntaxNode,
}

impl SyntaxMapping {
    pub(super) fn new(flow: bool) -> Self {
        SyntaxMapping {
            flow,
            has_duplicates: false,
            entries: Vec::new(),
        }
    }

    /// The index of the entry with this key, if the key itself is in the text.
    pub fn find(&self, key: &str) -> Option<usize> {
        let mut entries = self.entries.iter();
        entries.rposition(|entry| entry.is_written && entry.key.as_deref() == Some(key))
    }

    fn value_of(&self, key: &str) -> Option<&SyntaxNode> {
        let mut entries = self.entries.iter().rev();
        let entry = entries.find(|entry| entry.key.as_deref() == Some(key))?;
        Some(&entry.value)
    }
}

impl SyntaxNode {
    fn member(&self, key: &str) -> Option<&SyntaxNode> {
        match &self.form {
            SyntaxForm::Mapping(mapping) => mapping.value_of(key),
            _ => None,
        }
    }

    /// Whether this is a list whose items are its only `items`.
    pub(super) fn is_list(&self) -> bool {
        let is_plain = |mapping: &SyntaxMapping| {
            !mapping.has_duplicates && mapping.entries.iter().all(|entry| entry.key.is_some())
        };
        matches!(&self.form, SyntaxForm::Mapping(mapping) if is_plain(mapping))
            && self
                .member("kind")
                .is_some_and(|kind| kind.json.ends_with("List\""))
    }

    fn items(&self) -> &[SyntaxNode] {
        match self.member("items").map(|items| &items.form) {
            Some(SyntaxForm::Sequence { items, .. }) => items,
            _ => &[],
        }
    }

    /// The first field of an object that cannot contain an unquoted `{{` on purpose: its type, its name, and in
    /// Kubernetes' own kinds with pods its images and node selectors. Everywhere else the braces can be text for a controller, as in
    /// an alert, or in the pods of an Argo Workflow.
    pub(super) fn unrendered_field(&self) -> Option<&SyntaxNode> {
        let (version, kind) = (self.member("apiVersion")?, self.member("kind")?);
        let metadata = self.member("metadata");
        let mut of_object = [
            Some(version),
            Some(kind),
            metadata.and_then(|metadata| metadata.member("name")),
            metadata.and_then(|metadata| metadata.member("namespace")),
        ]
        .into_iter()
        .flatten();
        let is_own_pod = || {
            let kind = Kind::of_api_version(version.json.trim_matches('"'), kind.json.trim_matches('"'));
            kind.is_some_and(|kind| kind.has_pod() && !kind.is_custom())
        };
        of_object.find(|node| node.is_template()).or_else(|| {
            let items = self.items();
            if items.is_empty() && is_own_pod() {
                self.unrendered_in_pods()
            } else {
                items.iter().find_map(SyntaxNode::unrendered_field)
            }
        })
    }

    fn is_template(&self) -> bool {
        self.form == SyntaxForm::Plain && self.json.contains("{{")
    }

    /// The first image or node selector below this node that contains an unquoted `{{`. The depth of the tree is bounded.
    fn unrendered_in_pods(&self) -> Option<&SyntaxNode> {
        let is_template = |node: &&SyntaxNode| node.is_template();
        match &self.form {
            SyntaxForm::Mapping(mapping) => mapping.entries.iter().find_map(|entry| {
                let value = &entry.value;
                let own = match entry.key.as_deref() {
                    Some("image") => Some(value).filter(is_template),
                    Some("nodeSelector") => match &value.form {
                        SyntaxForm::Mapping(labels) => {
                            labels.entries.iter().map(|label| &label.value).find(is_template)
                        }
                        _ => Some(value).filter(is_template),
                    },
                    _ => None,
                };
                own.or_else(|| value.unrendered_in_pods())
            }),
            SyntaxForm::Sequence { items, .. } => items.iter().find_map(SyntaxNode::unrendered_in_pods),
            _ => None,
        }
    }
}

/// A root, and the offsets of the aliases of its document by the number of their anchor.
#[derive(Debug)]
pub(super) struct SyntaxRoot {
    pub(super) node: SyntaxNode,
    pub(super) aliases: HashMap<usize, Vec<usize>>,
}

impl SyntaxRoot {
    /// The syntax of valid JSON. Finding a position takes time: with `only_objects`, only objects that may be items of
    /// lists get one.
    pub(super) fn of_json(
        text: &str,
        range: Range<usize>,
        position: &dyn Fn(usize) -> Position,
        only_objects: bool,
    ) -> Self {
        let place = |at, is_object| {
            if is_object || !only_objects {
                position(at).into()
            } else {
                Place::default()
            }
        };
        SyntaxRoot {
            node: json_node(text, range, &place, true),
            aliases: HashMap::new(),
        }
    }
}

/// The syntax of some documents of a text.
#[derive(Debug, Default)]
pub struct Syntax {
    pub(super) roots: Vec<SyntaxRoot>,
}

/// An object of a text: its node, and the aliases of its document.
#[derive(Clone, Copy, Debug)]
pub struct SyntaxObject<'s> {
    pub node: &'s SyntaxNode,
    /// The offsets of the aliases of its document, by the number of their anchor.
    pub aliases: &'s HashMap<usize, Vec<usize>>,
}

impl Syntax {
    /// The objects by their position; lists are expanded into their items.
    pub fn objects(&self) -> HashMap<Position, SyntaxObject<'_>> {
        let mut objects = HashMap::new();
        for SyntaxRoot { node, aliases } in &self.roots {
            let mut open = vec![node];
            while let Some(node) = open.pop() {
                objects.insert(node.place.position(), SyntaxObject { node, aliases });
                open.extend(node.items());
            }
        }
        objects
    }
}

/// The validation of the text bounds its depth, and so the recursion.
fn json_node(
    text: &str,
    range: Range<usize>,
    place: &dyn Fn(usize, bool) -> Place,
    is_object: bool,
) -> SyntaxNode {
    let form = match text.as_bytes().get(range.start) {
        Some(b'{') => {
            let mut mapping = SyntaxMapping::new(true);
            mapping.entries = Members::of_object(text, range.start)
                .map(|(key, value)| {
                    let has_objects = is_object && text.get(key.clone()) == Some("\"items\"");
                    SyntaxEntry {
                        key: string_at(text, key.clone()).map(|key| key.into_owned().into_boxed_str()),
                        is_written: true,
                        key_place: place(key.start, false),
                        value: json_node(text, value, place, has_objects),
                        key_span: key,
                    }
                })
                .collect();
            mapping.has_duplicates = has_duplicates(&mapping.entries);
            SyntaxForm::Mapping(mapping)
        }
        Some(b'[') => SyntaxForm::Sequence {
            flow: true,
            items: Members::of_array(text, range.start)
                .map(|(_, item)| json_node(text, item, place, is_object))
                .collect(),
        },
        Some(b'"') => SyntaxForm::DoubleQuoted,
        _ => SyntaxForm::Plain,
    };
    SyntaxNode {
        place: place(range.start, is_object),
        span: range,
        form,
        anchor: 0,
        json: Box::default(),
    }
}

fn has_duplicates(entries: &[SyntaxEntry]) -> bool {
    let mut keys: Vec<&str> = entries.iter().filter_map(|entry| entry.key.as_deref()).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair.first() == pair.last())
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
