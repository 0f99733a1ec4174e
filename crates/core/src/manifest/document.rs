//! The documents of an input, and the positions of their fields.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::locate::{self, TextIndex, TextMark};
use super::{NodeStep, Position};
use crate::model::syntax::json::{Members, string_at};
use crate::model::syntax::path::{Path, Segment};

/// One Kubernetes object (or any other document) with its positions in the input.
///
/// Cloning is cheap: all documents of an input share the text.
#[derive(Clone)]
pub struct Document {
    source: Arc<SourceText>,
    pub(super) range: Range<usize>,
    list: Option<Arc<ListOrigin>>,
}

/// The list that an item came from.
#[derive(Debug)]
struct ListOrigin {
    kind: String,
    api_version: Option<String>,
}

/// JSON text, and the mapping of its offsets to positions in the input.
pub(super) struct SourceText {
    pub text: String,
    positions: Positions,
}

enum Positions {
    /// The text is the input.
    Own(OnceLock<TextIndex>),
    /// The text was generated from YAML. Marks are sorted by offset, one per key, item and document.
    Marks(Vec<TextMark>),
}

impl Document {
    /// The JSON text of this object.
    pub fn json(&self) -> &str {
        self.source.text.get(self.range.clone()).unwrap_or_default()
    }

    /// Whether its text was generated.
    pub(super) fn is_generated(&self) -> bool {
        matches!(self.source.positions, Positions::Marks(_))
    }

    /// The position of the document's first node.
    pub fn start(&self) -> Position {
        self.source.position(self.range.start)
    }

    /// The position of the node at `path`, or of its nearest existing parent.
    ///
    /// The position of a mapping entry is its key, which people search for; that of a sequence item is the
    /// item. Nodes from a YAML alias or merge key have the position of the anchored node.
    pub fn locate(&self, path: &[NodeStep<'_>]) -> Position {
        self.locator().locate(path)
    }

    /// Finds many positions in this object almost as fast as one.
    pub fn locator(&self) -> Locator<'_> {
        Locator {
            source: &self.source,
            walker: locate::Walker::new(&self.source.text, self.range.start),
        }
    }

    /// The `kind` of the list that contained this object, such as `PodList` or `List`.
    ///
    /// Items of a typed list may lack `kind` and `apiVersion`; this identifies them.
    pub fn list_kind(&self) -> Option<&str> {
        self.list.as_ref().map(|list| list.kind.as_str())
    }

    /// The `apiVersion` of the list that contained this object, if the list had one.
    pub fn list_api_version(&self) -> Option<&str> {
        self.list.as_ref().and_then(|list| list.api_version.as_deref())
    }
}

/// Finds positions in one object; caches what it has read for the next lookup.
pub struct Locator<'d> {
    source: &'d SourceText,
    walker: locate::Walker<'d>,
}

impl Locator<'_> {
    /// The position of a field, or of its nearest existing parent.
    pub fn of(&mut self, path: &Path) -> Position {
        let steps = path.segments().iter().map(|segment| match segment {
            Segment::Field(name) => NodeStep::Key(name),
            Segment::Key(key) | Segment::Unknown(key) => NodeStep::Key(key),
            Segment::Item(index, _) => NodeStep::Index(*index),
        });
        self.locate(&steps.collect::<Vec<_>>())
    }

    /// As [`Document::locate`].
    pub fn locate(&mut self, path: &[NodeStep<'_>]) -> Position {
        self.source.position(self.walker.walk(path))
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the shared text: it may be megabytes.
        f.debug_struct("Document")
            .field("json", &self.json())
            .field("start", &self.start())
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}

impl SourceText {
    /// A text that is the input itself.
    pub fn of_input(text: String) -> Self {
        SourceText {
            text,
            positions: Positions::Own(OnceLock::new()),
        }
    }

    /// A text that was generated, with its marks.
    pub fn generated((text, marks): (String, Vec<TextMark>)) -> Self {
        SourceText {
            text,
            positions: Positions::Marks(marks),
        }
    }

    /// The line and column of a byte.
    pub fn position(&self, offset: usize) -> Position {
        match &self.positions {
            Positions::Own(index) => index
                .get_or_init(|| TextIndex::new(&self.text))
                .position(&self.text, offset),
            Positions::Marks(marks) => locate::marked(marks, offset),
        }
    }
}

/// What the objects and lists of an input contain.
#[derive(Default)]
pub(super) struct Unfolded {
    pub documents: Vec<Document>,
    pub function_config: Option<Document>,
}

impl Unfolded {
    /// Adds the object at `range`, or its items if it is a list, after those at `first`.
    pub fn add(&mut self, source: &Arc<SourceText>, range: Range<usize>, first: &[Range<usize>]) {
        self.add_of(source, range, first, None);
    }

    /// As [`Unfolded::add`], for an item of a list. The parser bounds the depth of the text, and therefore the recursion.
    fn add_of(
        &mut self,
        source: &Arc<SourceText>,
        range: Range<usize>,
        first: &[Range<usize>],
        list: Option<&Arc<ListOrigin>>,
    ) {
        let text = &source.text;
        if text.get(range.clone()) == Some("null") {
            return;
        }
        let document = |range, list| Document {
            source: Arc::clone(source),
            range,
            list,
        };
        let Some(head) = ListHead::read(text, range.start) else {
            self.documents.push(document(range, list.map(Arc::clone)));
            return;
        };
        if let Some(range) = head
            .function_config
            .filter(|_| head.origin.kind == "ResourceList")
        {
            self.function_config = Some(document(range, None));
        }
        let list = Arc::new(head.origin);
        let others = Members::of_array(text, head.items).map(|(_, item)| item);
        for item in first.iter().cloned().chain(others) {
            self.add_of(source, item, &[], Some(&list));
        }
    }
}

/// The fields of a list.
struct ListHead {
    origin: ListOrigin,
    /// The offset of its items.
    items: usize,
    function_config: Option<Range<usize>>,
}

impl ListHead {
    /// The list that starts at an offset of JSON; `None` if the object is not a list.
    fn read(text: &str, start: usize) -> Option<Self> {
        let (mut kind, mut api_version, mut items, mut function_config) = (None, None, None, None);
        for (key, value) in Members::of_object(text, start) {
            match text.get(key) {
                Some("\"kind\"") => {
                    let written = string_at(text, value).filter(|kind| kind.ends_with("List"))?;
                    kind = Some(written.into_owned());
                }
                Some("\"apiVersion\"") => api_version = string_at(text, value).map(Cow::into_owned),
                Some("\"items\"") => items = Some(value.start),
                Some("\"functionConfig\"") => function_config = Some(value),
                _ => {}
            }
        }
        let items = items.filter(|items| matches!(text.as_bytes().get(*items), Some(b'[' | b'n')))?;
        Some(ListHead {
            origin: ListOrigin {
                kind: kind?,
                api_version,
            },
            items,
            function_config,
        })
    }
}
