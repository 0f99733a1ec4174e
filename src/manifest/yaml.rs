//! Converts YAML documents to compact JSON text and records the position of each key and item; `scalar`
//! resolves scalars.

mod diagnostics;
mod keys;
mod merge;

use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::Position;
use super::locate::{TextMark, narrow};
use super::scalar::{self, Scalar};
use crate::model::json::write_string;
use diagnostics::DocumentLines;
use keys::MappingKey;
use merge::Fragment;

/// One level less than serde_json accepts, so that it can parse the output.
const MAX_DEPTH: u32 = 127;
/// Why a document could not be parsed.
#[derive(Debug)]
pub(super) struct YamlError {
    pub(super) position: Position,
    pub(super) message: String,
    /// Whether the document is a template that was not rendered.
    pub(super) template: bool,
}

/// A failure before checking whether a template caused it.
struct ScanFailure {
    line: usize,
    column: usize,
    message: String,
    template: bool,
}

type YamlResult<T = ()> = Result<T, ScanFailure>;

/// The JSON text of all documents parsed so far.
#[derive(Debug, Default)]
pub(super) struct Transcriber {
    out: String,
    marks: Vec<TextMark>,
    expanded: usize,
}

impl Transcriber {
    /// Adds the documents of `chunk` (nearly always one), whose first line is line `first_line` of the input,
    /// and returns their ranges in the text. After an error nothing is added.
    pub(super) fn document(
        &mut self,
        chunk: &str,
        first_line: usize,
    ) -> Result<Vec<Range<usize>>, YamlError> {
        let before = (self.out.len(), self.marks.len());
        let mut reader = EventReader {
            lines: DocumentLines::new(chunk),
            first_line,
            to: self,
            frames: Vec::new(),
            keys: Vec::new(),
            anchors: HashMap::new(),
            literal: Vec::new(),
        };
        // A panic of the scanner must lose one document, never the whole run.
        let outcome = catch_unwind(AssertUnwindSafe(|| reader.read())).unwrap_or_else(|_| {
            Err(ScanFailure {
                line: 1,
                column: 1,
                message:
                    "the YAML scanner fails at this document: write it more plainly, for example as JSON"
                        .to_owned(),
                template: false,
            })
        });
        let failure = match outcome {
            Ok(documents) => return Ok(documents),
            Err(trouble) => diagnostics::failure(trouble, &reader.lines, &reader.literal, first_line),
        };
        self.out.truncate(before.0);
        self.marks.truncate(before.1);
        Err(failure)
    }

    /// The text, and the marks of its keys, items and documents, sorted by offset.
    pub(super) fn into_parts(self) -> (String, Vec<TextMark>) {
        (self.out, self.marks)
    }
}

/// What a mapping expects next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Key,
    Value,
    /// The value of `<<`, which is removed from the text again.
    Merge {
        start: usize,
        marks: usize,
    },
}

/// A mapping or sequence that is being written.
struct YamlFrame {
    /// `None` for a sequence.
    expect: Option<Expect>,
    start: usize,
    /// The number of marks before its content.
    marks: usize,
    anchor: usize,
    empty: bool,
    /// Its current height in levels, including itself.
    height: u32,
    /// The index of its first key in `EventReader::keys`.
    keys: usize,
    /// The lines of its keys, once there are many.
    index: HashMap<Box<str>, u32>,
    merges: Vec<Rc<Fragment>>,
    /// The first `<<`, for messages.
    merge_line: usize,
}

struct EventReader<'t, 'o> {
    lines: DocumentLines<'t>,
    first_line: usize,
    to: &'o mut Transcriber,
    frames: Vec<YamlFrame>,
    /// The keys of all open mappings, mapping by mapping.
    keys: Vec<MappingKey>,
    anchors: HashMap<usize, Rc<Fragment>>,
    /// The lines of quoted and block scalars that contain `{{`, which is valid there.
    literal: Vec<(usize, usize)>,
}

impl EventReader<'_, '_> {
    fn read(&mut self) -> YamlResult<Vec<Range<usize>>> {
        let mut documents = Vec::new();
        let mut start = self.to.out.len();
        for event in Parser::new_from_str(self.lines.text()) {
            let (event, span) = event.map_err(|error| {
                let (line, column, message) = diagnostics::scan_error(&error, &self.lines);
                ScanFailure {
                    line,
                    column,
                    message,
                    template: false,
                }
            })?;
            let at = span.start;
            match event {
                Event::Nothing | Event::StreamStart => {}
                Event::StreamEnd => break,
                Event::DocumentStart(_) => start = self.to.out.len(),
                Event::DocumentEnd => {
                    let range = start..self.to.out.len();
                    if self
                        .to
                        .out
                        .get(range.clone())
                        .is_some_and(|json| !json.is_empty() && json != "null")
                    {
                        documents.push(range);
                    }
                    self.anchors.clear();
                }
                Event::Scalar(text, style, anchor, tag) => {
                    if style != ScalarStyle::Plain && text.contains("{{") {
                        // The mark of a block scalar is its first line of text.
                        self.literal.push((at.line(), span.end.line()));
                    }
                    self.scalar(&text, style, anchor, tag.as_deref(), at)?;
                }
                Event::Alias(anchor) => self.alias(anchor, at)?,
                Event::SequenceStart(anchor, tag) => self.open(None, anchor, tag.as_deref(), at)?,
                Event::MappingStart(anchor, tag) => {
                    self.open(Some(Expect::Key), anchor, tag.as_deref(), at)?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.close(at)?,
            }
        }
        Ok(documents)
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        at: Marker,
    ) -> YamlResult {
        let is_plain = style == ScalarStyle::Plain;
        if is_plain && text.contains("{{") {
            return Err(ScanFailure {
                template: true,
                ..trouble(at, String::new())
            });
        }
        let is_key = matches!(
            self.frames.last(),
            Some(YamlFrame {
                expect: Some(Expect::Key),
                ..
            })
        );
        let merge_tag = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "merge");
        if is_key && text == "<<" && (merge_tag || (is_plain && tag.is_none())) {
            self.begin_merge(at);
            return Ok(());
        }
        let resolved = match tag {
            None if is_plain => scalar::plain(text),
            None => Ok(Scalar::Text(text.into())),
            // `! text`: a non-specific tag, which means text.
            Some(tag) if tag.suffix.is_empty() || (tag.handle.is_empty() && tag.suffix == "!") => {
                Ok(Scalar::Text(text.into()))
            }
            Some(tag) if tag.is_yaml_core_schema() => scalar::tagged(&tag.suffix, text),
            Some(tag) => Err(scalar::unknown_tag(&tag.to_string())),
        }
        .map_err(|message| trouble(at, message))?;
        if is_key {
            let key = self.begin_key(at);
            match resolved {
                Scalar::Text(text) => write_string(&mut self.to.out, &text),
                Scalar::Number(number) => write_string(&mut self.to.out, &number),
                Scalar::Bool(value) => {
                    write_string(&mut self.to.out, if value { "true" } else { "false" });
                }
                Scalar::Null => return Err(trouble(at, diagnostics::null_key(text))),
            }
            return self.end_key(key, anchor, at);
        }
        let at = if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
            self.header(text, at)
        } else {
            place(at)
        };
        let (start, marks) = self.begin(at);
        match resolved {
            Scalar::Null => self.to.out.push_str("null"),
            Scalar::Bool(value) => self.to.out.push_str(if value { "true" } else { "false" }),
            Scalar::Number(number) => self.to.out.push_str(&number),
            Scalar::Text(text) => write_string(&mut self.to.out, &text),
        }
        self.end(start, marks, anchor, 0, at)
    }

    /// The position of a block scalar's `|`, which the scanner does not report: the last line above with
    /// text.
    fn header(&self, text: &str, at: Marker) -> YamlPosition {
        let here = self.lines.get(at.line()).chars().nth(at.col());
        let in_sequence = self.frames.last().is_some_and(|frame| frame.expect.is_none());
        if !in_sequence || (text.trim().is_empty() && matches!(here, Some('|' | '>'))) {
            return place(at);
        }
        let above = (1..at.line())
            .rev()
            .find(|line| !self.lines.get(*line).trim().is_empty());
        let indicator = above.and_then(|line| {
            let header = self.lines.get(line);
            let header = header.split(" #").next().unwrap_or(header);
            let found = header.rfind(['|', '>'])?;
            Some(YamlPosition {
                line,
                column: header.get(..found)?.chars().count() + 1,
            })
        });
        indicator.unwrap_or(place(at))
    }

    fn alias(&mut self, anchor: usize, at: Marker) -> YamlResult {
        let Some(fragment) = self.anchors.get(&anchor).map(Rc::clone) else {
            return Err(trouble(
                at,
                "an alias (`*name`) inside its own anchor would never end: write the value out".to_owned(),
            ));
        };
        self.spend(fragment.cost(), at)?;
        if matches!(
            self.frames.last(),
            Some(YamlFrame {
                expect: Some(Expect::Key),
                ..
            })
        ) {
            let key = self.begin_key(at);
            match fragment.json.as_bytes().first() {
                Some(b'{' | b'[') | None => return Err(self.complex_key(at)),
                Some(b'"') => self.to.out.push_str(&fragment.json),
                _ if fragment.json == "null" => return Err(trouble(at, diagnostics::null_key("null"))),
                _ => write_string(&mut self.to.out, &fragment.json),
            }
            return self.end_key(key, 0, at);
        }
        self.deeper(fragment.height, at)?;
        let (start, marks) = self.begin(place(at));
        self.append(&fragment.json, &fragment.marks, 0);
        self.end(start, marks, 0, fragment.height, place(at))
    }

    fn open(&mut self, expect: Option<Expect>, anchor: usize, tag: Option<&Tag>, at: Marker) -> YamlResult {
        if matches!(
            self.frames.last(),
            Some(YamlFrame {
                expect: Some(Expect::Key),
                ..
            })
        ) {
            return Err(self.complex_key(at));
        }
        let own = if expect.is_some() { "map" } else { "seq" };
        if let Some(tag) = tag.filter(|tag| !(tag.is_yaml_core_schema() && tag.suffix == own)) {
            let name = if tag.is_yaml_core_schema() {
                format!("!!{}", tag.suffix)
            } else {
                tag.to_string()
            };
            return Err(trouble(at, scalar::unknown_tag(&name)));
        }
        self.deeper(1, at)?;
        let (start, marks) = self.begin(place(at));
        self.to.out.push(if expect.is_some() { '{' } else { '[' });
        self.frames.push(YamlFrame {
            expect,
            start,
            marks,
            anchor,
            empty: true,
            height: 1,
            keys: self.keys.len(),
            index: HashMap::new(),
            merges: Vec::new(),
            merge_line: 0,
        });
        Ok(())
    }

    fn close(&mut self, at: Marker) -> YamlResult {
        self.write_merges(at)?;
        // The scanner closes only what it opened.
        let Some(frame) = self.frames.pop() else {
            return Ok(());
        };
        self.keys.truncate(frame.keys);
        self.to.out.push(if frame.expect.is_some() { '}' } else { ']' });
        self.end(frame.start, frame.marks, frame.anchor, frame.height, place(at))
    }

    /// Starts a value: writes the comma and mark of an item. Returns the offset of the value.
    fn begin(&mut self, at: YamlPosition) -> (usize, usize) {
        let mut mark = true;
        if let Some(frame) = self.frames.last_mut() {
            mark = frame.expect.is_none();
            if mark && !std::mem::replace(&mut frame.empty, false) {
                self.to.out.push(',');
            }
        }
        if mark {
            self.mark(at);
        }
        (self.to.out.len(), self.to.marks.len())
    }

    /// Ends a value: stores it if it has an anchor, and continues with the parent frame.
    fn end(
        &mut self,
        start: usize,
        marks: usize,
        anchor: usize,
        height: u32,
        at: YamlPosition,
    ) -> YamlResult {
        if anchor > 0 {
            let fragment = self.copy(start, marks, height);
            self.spend_at(fragment.cost(), at)?;
            self.anchors.insert(anchor, Rc::new(fragment));
        }
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        if let Some(Expect::Merge { start, marks }) = frame.expect {
            frame.expect = Some(Expect::Key);
            let line = frame.merge_line;
            let fragment = self.copy(start, marks, height);
            self.to.out.truncate(start);
            self.to.marks.truncate(marks);
            return self.add_merge(fragment, line);
        }
        frame.height = frame.height.max(height + 1);
        if frame.expect.is_some() {
            frame.expect = Some(Expect::Key);
        }
        Ok(())
    }

    fn mark(&mut self, at: YamlPosition) {
        self.to.marks.push(TextMark {
            offset: narrow(self.to.out.len()),
            line: narrow(self.first_line - 1 + at.line),
            column: narrow(at.column),
        });
    }

    fn deeper(&self, levels: u32, at: Marker) -> YamlResult {
        if self.frames.len() + levels as usize > MAX_DEPTH as usize {
            return Err(trouble(
                at,
                format!("nested deeper than {MAX_DEPTH} levels: no Kubernetes object is, make it flatter"),
            ));
        }
        Ok(())
    }
}

/// A position in the document: line and column from 1.
#[derive(Clone, Copy)]
struct YamlPosition {
    line: usize,
    column: usize,
}

fn place(at: Marker) -> YamlPosition {
    YamlPosition {
        line: at.line(),
        column: at.col() + 1,
    }
}

fn trouble(at: Marker, message: String) -> ScanFailure {
    ScanFailure {
        line: at.line(),
        column: at.col() + 1,
        message,
        template: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> String {
        let mut transcriber = Transcriber::default();
        let ranges = transcriber
            .document(text, 1)
            .unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
        let (text, marks) = transcriber.into_parts();
        assert!(marks.is_sorted_by_key(|mark| mark.offset));
        assert_eq!(ranges.len(), 1);
        text
    }

    #[test]
    fn scalars_keep_their_kind() {
        let cases = [
            (
                "a: yes\nb: 'yes'\nc: \"1\"\nd: |\n  1\ne: 0644\nf:\n",
                r#"{"a":true,"b":"yes","c":"1","d":"1\n","e":420,"f":null}"#,
            ),
            (
                "- !!str 80\n- !!int '5'\n- ! 7\n- !!null ''\n- !!map {a: 1}\n- !!seq [1]\n",
                r#"["80",5,"7",null,{"a":1},[1]]"#,
            ),
            (
                "path: C:\\logs\nq: 'C:\\logs'\nr: \"C:\\\\logs\\u00e9\"\n",
                r#"{"path":"C:\\logs","q":"C:\\logs","r":"C:\\logsé"}"#,
            ),
            ("{a, b: [c: d]}\n", r#"{"a":null,"b":[{"c":"d"}]}"#),
            ("text over\n  lines\n", r#""text over lines""#),
        ];
        for (text, expected) in cases {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn keys_become_text() {
        let text = "80: a\ntrue: b\n0x10: c\n'on': d\n1.50: e\n? f\n: g\n&x h: i\n*x : j\n";
        // `*x` is the key `h` again.
        let failure = Transcriber::default().document(text, 1).unwrap_err();
        assert_eq!(
            failure.message,
            "the key `h` is given twice in one mapping, at lines 8 and 9: remove one of them"
        );
        let text = text.replace("*x : j", "? *x\n").replace("&x h: i\n", "z: &x h\n");
        assert_eq!(
            json(&text),
            r#"{"80":"a","true":"b","16":"c","on":"d","1.5":"e","f":"g","z":"h","h":null}"#
        );
    }

    #[test]
    fn lines_count_from_the_start_of_the_input() {
        let mut transcriber = Transcriber::default();
        let failure = transcriber.document("a: 1\na: 2\n", 10).unwrap_err();
        assert_eq!(failure.position, Position { line: 11, column: 1 });
        assert_eq!(
            failure.message,
            "the key `a` is given twice in one mapping, at lines 10 and 11: remove one of them"
        );
        transcriber.document("a: 1\n", 20).unwrap();
        assert_eq!(
            transcriber.marks[1],
            TextMark {
                offset: 1,
                line: 20,
                column: 1
            }
        );
    }
}
