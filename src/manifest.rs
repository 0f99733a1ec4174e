//! Parses manifests (YAML or JSON text) into [`Document`]s: JSON text whose nodes map back to lines of the
//! input. Does not interpret the objects.

mod directives;
mod input;
mod json;
mod locate;
mod scalar;
mod syntax;
mod yaml;

pub use self::syntax::{
    Syntax, SyntaxEntry, SyntaxForm, SyntaxMapping, SyntaxNode, SyntaxObject, line_end, line_start,
};

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

pub use self::directives::{Directive, DirectiveScope};
use input::Chunk;
use locate::{TextIndex, TextMark};

use crate::model::json::{Members, string_at};

/// Parsing stops at this number of errors: the file is not a manifest.
const MAX_ERRORS: usize = 1000;
/// The largest text that is tried as YAML after it failed as JSON (the YAML scanner keeps a whole `{ … }` in
/// memory).
const MAX_FLOW: usize = 4 << 20;

/// A position in the input, for people and editors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters (not bytes).
    pub column: usize,
}

/// One step of a path from an object to one of its nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeStep<'a> {
    /// The entry with this key of a mapping.
    Key(&'a str),
    /// The item at this index (from 0) of a sequence.
    Index(usize),
}

/// A part of the input that could not be parsed; the rest is still parsed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The message and remedy, in lower case, without the position.
    pub message: String,
}

/// The result of parsing one input, in input order.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The objects; lists are expanded into their items.
    pub documents: Vec<Document>,
    /// The parts that could not be parsed, with their positions.
    pub errors: Vec<ParseError>,
    /// The comments that are addressed to Transom (`# transom:…`).
    pub directives: Vec<Directive>,
    /// The `functionConfig` of the last `ResourceList` that has one: the settings of a KRM function.
    pub function_config: Option<Document>,
}

/// One Kubernetes object (or any other document) with its positions in the input.
///
/// Cloning is cheap: all documents of an input share the text.
#[derive(Clone)]
pub struct Document {
    source: Arc<SourceText>,
    range: Range<usize>,
    list: Option<Arc<ListOrigin>>,
}

/// The list that an item came from.
#[derive(Debug)]
struct ListOrigin {
    kind: String,
    api_version: Option<String>,
}

/// JSON text, and the mapping of its offsets to positions in the input.
struct SourceText {
    text: String,
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
    fn position(&self, offset: usize) -> Position {
        match &self.positions {
            Positions::Own(index) => index
                .get_or_init(|| TextIndex::new(&self.text))
                .position(&self.text, offset),
            Positions::Marks(marks) => locate::marked(marks, offset),
        }
    }
}

/// Which of the two texts a document's range belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextOrigin {
    Input,
    Transcribed,
}

/// Parses YAML or JSON text: one document or many, including output of `kubectl get -o yaml`.
///
/// Scalars have the same meaning as for `kubectl` (YAML 1.1 as read by go-yaml v2 and sigs.k8s.io/yaml).
/// Lists (`List`, `PodList`, …) are expanded. An invalid document becomes an error and does not affect the
/// others; a file that is an unrendered template gives one error, regardless of the number of invalid
/// documents. Never panics.
pub fn parse(bytes: Vec<u8>) -> Parsed {
    let text = match input::decode(bytes) {
        Ok(text) => text,
        Err(error) => {
            return Parsed {
                errors: vec![error],
                ..Parsed::default()
            };
        }
    };
    let mut reader = DocumentReader {
        input: SourceText {
            text,
            positions: Positions::Own(OnceLock::new()),
        },
        yaml: yaml::Transcriber::default(),
        found: Vec::new(),
        errors: Vec::new(),
        template_seen: false,
    };
    for chunk in input::split(&reader.input.text) {
        reader.chunk(&chunk);
        if reader.errors.len() > MAX_ERRORS {
            reader.errors.truncate(MAX_ERRORS);
            let position = reader
                .errors
                .last()
                .map_or(Position { line: 1, column: 1 }, |last| Position {
                    line: last.line,
                    column: last.column,
                });
            reader.fail(
                position,
                format!("more than {MAX_ERRORS} errors: the rest was not read; is this a manifest?"),
            );
            break;
        }
    }
    reader.finish()
}

struct DocumentReader {
    input: SourceText,
    yaml: yaml::Transcriber,
    found: Vec<(TextOrigin, Range<usize>)>,
    errors: Vec<ParseError>,
    template_seen: bool,
}

impl DocumentReader {
    fn chunk(&mut self, chunk: &Chunk) {
        let Some(text) = self.input.text.get(chunk.range.clone()) else {
            return;
        };
        let Some(start) = json::begins(text) else {
            match self.yaml.document(text, chunk.line) {
                Ok(ranges) => self
                    .found
                    .extend(ranges.into_iter().map(|range| (TextOrigin::Transcribed, range))),
                Err(failure) => self.fail_yaml(failure),
            }
            return;
        };
        let mut outcome = json::read(
            &self.input.text,
            chunk.range.start + start..chunk.range.end,
            MAX_ERRORS,
        );
        if let Some(first) = outcome.errors.first() {
            // Like kubectl, reads text as YAML if it begins like JSON and is not.
            if text.len() <= MAX_FLOW {
                match self.yaml.document(text, chunk.line) {
                    Ok(ranges) => {
                        self.found
                            .extend(ranges.into_iter().map(|range| (TextOrigin::Transcribed, range)));
                        return;
                    }
                    Err(failure)
                        if failure.template || (first.looks_like_yaml && outcome.values.is_empty()) =>
                    {
                        self.fail_yaml(failure);
                        outcome.errors.clear();
                    }
                    Err(_) => {}
                }
            }
            for error in outcome.errors {
                let position = self.input.position(error.offset);
                let message = match error.first {
                    Some(first) => format!(
                        "{}, at lines {} and {}: remove one of them",
                        error.message,
                        self.input.position(first).line,
                        position.line
                    ),
                    None => error.message,
                };
                self.fail(position, message);
            }
        }
        self.found
            .extend(outcome.values.into_iter().map(|range| (TextOrigin::Input, range)));
    }

    fn fail_yaml(&mut self, failure: yaml::YamlError) {
        if failure.template && std::mem::replace(&mut self.template_seen, true) {
            return;
        }
        self.fail(failure.position, failure.message);
    }

    fn fail(&mut self, position: Position, message: String) {
        self.errors.push(ParseError {
            line: position.line,
            column: position.column,
            message,
        });
    }

    fn finish(self) -> Parsed {
        let (text, marks) = self.yaml.into_parts();
        let transcribed = Arc::new(SourceText {
            text,
            positions: Positions::Marks(marks),
        });
        let directives = directives::find(&self.input.text);
        let input = Arc::new(self.input);
        let mut unfolded = Unfolded {
            documents: Vec::with_capacity(self.found.len()),
            function_config: None,
        };
        for (origin, range) in self.found {
            let source = if origin == TextOrigin::Input {
                &input
            } else {
                &transcribed
            };
            unfold(source, range, None, &mut unfolded);
        }
        Parsed {
            documents: unfolded.documents,
            errors: self.errors,
            directives,
            function_config: unfolded.function_config,
        }
    }
}

/// What the objects and lists of an input contain.
struct Unfolded {
    documents: Vec<Document>,
    function_config: Option<Document>,
}

/// Adds the object at `range`, or its items if it is a list. The parser bounds the depth of the text, and
/// therefore the recursion.
fn unfold(
    source: &Arc<SourceText>,
    range: Range<usize>,
    list: Option<&Arc<ListOrigin>>,
    unfolded: &mut Unfolded,
) {
    let text = &source.text;
    if text.get(range.clone()) == Some("null") {
        return;
    }
    let (mut kind, mut api_version, mut items, mut settings) = (None, None, None, None);
    for (key, value) in Members::of_object(text, range.start) {
        match text.get(key) {
            Some("\"kind\"") => {
                kind = string_at(text, value).filter(|kind| kind.ends_with("List"));
                if kind.is_none() {
                    break;
                }
            }
            Some("\"apiVersion\"") => api_version = string_at(text, value),
            Some("\"items\"") => items = Some(value),
            Some("\"functionConfig\"") => settings = Some(value),
            _ => {}
        }
    }
    let items = items.filter(|items| matches!(text.as_bytes().get(items.start), Some(b'[' | b'n')));
    let (Some(kind), Some(items)) = (kind, items) else {
        unfolded.documents.push(Document {
            source: Arc::clone(source),
            range,
            list: list.map(Arc::clone),
        });
        return;
    };
    if let Some(range) = settings.filter(|_| kind == "ResourceList") {
        unfolded.function_config = Some(Document {
            source: Arc::clone(source),
            range,
            list: None,
        });
    }
    let list = Arc::new(ListOrigin {
        kind: kind.into_owned(),
        api_version: api_version.map(std::borrow::Cow::into_owned),
    });
    for item in Members::of_array(text, items.start) {
        unfold(source, item.1, Some(&list), unfolded);
    }
}

#[cfg(test)]
mod tests {
    use super::NodeStep::{Index, Key};
    use super::*;

    fn read(text: &str) -> Parsed {
        parse(text.as_bytes().to_vec())
    }

    fn good(text: &str) -> Vec<Document> {
        let parsed = read(text);
        assert_eq!(parsed.errors, [], "{text}");
        parsed.documents
    }

    fn json(text: &str) -> Vec<String> {
        good(text)
            .iter()
            .map(|document| document.json().to_owned())
            .collect()
    }

    fn only(text: &str) -> Document {
        let mut documents = good(text);
        assert_eq!(documents.len(), 1, "{text}");
        documents.remove(0)
    }

    fn at(document: &Document, path: &[NodeStep<'_>]) -> (usize, usize) {
        let Position { line, column } = document.locate(path);
        (line, column)
    }

    fn errors(text: &str) -> Vec<String> {
        read(text).errors.iter().map(ToString::to_string).collect()
    }

    const POD: &str = "# a comment\napiVersion: v1\nkind: Pod\nspec:\n  # another\n  containers:\n  - name: é\n    \
                       ports: [{a: 80}, {b: 81}]\n  -   name: ü\n      args:\n      - x\n      - |\n        text\n      - z\n";

    #[test]
    fn a_yaml_pod_is_compact_json() {
        let expected = r#"{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"é","ports":[{"a":80},{"b":81}]},{"name":"ü","args":["x","text\n","z"]}]}}"#;
        assert_eq!(only(POD).json(), expected);
    }

    #[test]
    fn yaml_nodes_stand_at_their_keys_and_items() {
        let second = [Key("spec"), Key("containers"), Index(1)];
        let cases: &[(&[NodeStep<'_>], (usize, usize))] = &[
            (&[], (2, 1)),
            (&[Key("kind")], (3, 1)),
            (&[Key("spec"), Key("containers")], (6, 3)),
            (&[Key("spec"), Key("containers"), Index(0)], (7, 5)),
            (
                &[Key("spec"), Key("containers"), Index(0), Key("ports"), Index(1)],
                (8, 22),
            ),
            (
                &[
                    Key("spec"),
                    Key("containers"),
                    Index(0),
                    Key("ports"),
                    Index(1),
                    Key("b"),
                ],
                (8, 23),
            ),
            (&second, (9, 7)),
            (&[second[0], second[1], second[2], Key("args"), Index(1)], (12, 9)),
            (&[second[0], second[1], second[2], Key("args"), Index(2)], (14, 9)),
            // A missing node has the position of its nearest parent.
            (&[Key("spec"), Key("containers"), Index(0), Key("image")], (7, 5)),
            (&[Key("spec"), Key("containers"), Index(7), Key("image")], (6, 3)),
            (&[Key("spec"), Key("os"), Key("name")], (4, 1)),
            (&[Index(0)], (2, 1)),
        ];
        let (unix, windows) = (only(POD), only(&POD.replace('\n', "\r\n")));
        for (path, expected) in cases {
            assert_eq!(at(&unix, path), *expected, "{path:?}");
            assert_eq!(at(&windows, path), *expected, "{path:?} with CRLF");
        }
        assert_eq!(unix.json(), windows.json());
    }

    #[test]
    fn columns_are_counted_in_characters() {
        let document = only("{größe: 1, 日本: {\u{1F980}: 2, z: 3}}\n");
        assert_eq!(at(&document, &[Key("日本")]), (1, 12));
        assert_eq!(at(&document, &[Key("日本"), Key("z")]), (1, 23));
        let document = only("{\"größe\": 1, \"日本\": [\"\u{1F980}\", 3]}\n");
        assert_eq!(at(&document, &[Key("日本")]), (1, 14));
        assert_eq!(at(&document, &[Key("日本"), Index(1)]), (1, 26));
    }

    #[test]
    fn json_is_not_copied_and_has_positions() {
        let text = "\u{FEFF}\r\n{\r\n  \"kind\": \"Pod\",\r\n  \"sp\\u0065c\": {\"a\": [1, {\"b\": \"}\\\"\"}, 2]}\r\n}\r\n{\"kind\":\"X\"}[1]";
        let documents = good(text);
        assert_eq!(documents.len(), 3);
        let pod = &documents[0];
        assert_eq!(pod.json(), text[5..text.len() - 17].trim_end());
        assert_eq!(pod.start(), Position { line: 2, column: 1 });
        assert_eq!(at(pod, &[Key("kind")]), (3, 3));
        assert_eq!(at(pod, &[Key("spec"), Key("a"), Index(1), Key("b")]), (4, 27));
        assert_eq!(at(pod, &[Key("spec"), Key("a"), Index(2)]), (4, 40));
        assert_eq!(at(pod, &[Key("spec"), Key("c")]), (4, 3));
        assert_eq!(at(&documents[1], &[Key("kind")]), (6, 2));
        assert_eq!(documents[2].json(), "[1]");
    }

    #[test]
    fn lists_unfold_and_their_items_keep_their_positions() {
        let yaml = "apiVersion: v1\nitems:\n- metadata:\n    name: a\n- kind: List\n  items:\n  - {kind: Job}\n- null\n- kind: AllowList\n  spec: 1\nkind: PodList\n";
        let json = "{\"apiVersion\":\"v1\",\"items\":[\n{\"metadata\":{\n\"name\":\"a\"}},\n{\"kind\":\"List\",\n\"items\":[{\"kind\":\"Job\"}]},null,{\"kind\":\"AllowList\",\"spec\":1}],\"kind\":\"PodList\"}";
        for (text, name, job) in [(yaml, (4, 5), (7, 5)), (json, (3, 1), (5, 10))] {
            let documents = good(text);
            let found: Vec<_> = documents
                .iter()
                .map(|d| (d.json().replace('\n', ""), d.list_kind()))
                .collect();
            assert_eq!(
                found,
                [
                    ("{\"metadata\":{\"name\":\"a\"}}".to_owned(), Some("PodList")),
                    ("{\"kind\":\"Job\"}".to_owned(), Some("List")),
                    ("{\"kind\":\"AllowList\",\"spec\":1}".to_owned(), Some("PodList")),
                ]
            );
            assert_eq!(documents[0].list_api_version(), Some("v1"));
            assert_eq!(documents[1].list_api_version(), None);
            assert_eq!(at(&documents[0], &[Key("metadata"), Key("name")]), name);
            assert_eq!(
                documents[1].start(),
                Position {
                    line: job.0,
                    column: job.1
                }
            );
        }
        assert_eq!(only("kind: Pod\nitems: [1]\n").list_kind(), None);
    }

    #[test]
    fn an_empty_list_holds_nothing() {
        let text = "kind: List\nitems: []\n---\nkind: PodList\nitems: null\n---\n{\"kind\":\"List\",\"items\":[ ]}\n";
        assert!(good(text).is_empty());
    }

    #[test]
    fn empty_documents_are_skipped() {
        for text in [
            "",
            "\n",
            "# only this\n",
            "---\n---\n# x\n---\nnull\n---\n~\n...\n",
            "\u{FEFF}",
            "%YAML 1.1\n",
        ] {
            let parsed = read(text);
            assert!(parsed.documents.is_empty(), "{text:?}");
            assert_eq!(
                parsed.errors.is_empty(),
                text != "%YAML 1.1\n",
                "{text:?} {:?}",
                parsed.errors
            );
        }
    }

    #[test]
    fn a_broken_second_document_leaves_the_others_alone() {
        let parsed = read("a: 1\n---\nb: 'x\n---\nc: 3\n");
        let found: Vec<_> = parsed.documents.iter().map(Document::json).collect();
        assert_eq!(found, ["{\"a\":1}", "{\"c\":3}"]);
        assert_eq!(at(&parsed.documents[1], &[Key("c")]), (5, 1));
        assert_eq!(parsed.errors.len(), 1);
        assert_eq!(parsed.errors[0].line, 3);
    }

    #[test]
    fn documents_may_mix_yaml_and_json() {
        let text = "%YAML 1.1\n--- # first\n{\"a\": 1}\n---\nb: 2\n...\n--- {c: 3}\n---  \n# x\n[4]\n\u{FEFF}---\nd: 5\n";
        let expected = ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}", "[4]", "{\"d\":5}"];
        // The first document has a directive, so it is parsed as YAML and loses its space.
        assert_eq!(json(text), expected);
        let lines: Vec<_> = good(text).iter().map(|document| document.start().line).collect();
        assert_eq!(lines, [3, 5, 7, 10, 12]);
    }

    #[test]
    fn broken_json_leaves_the_next_lines_alone() {
        let parsed = read("{\"a\":1}\n{\"b\":\n{\"c\":3}\n{\"d\":4,,}\n[5]\n");
        let found: Vec<_> = parsed.documents.iter().map(Document::json).collect();
        assert_eq!(found, ["{\"a\":1}", "[5]"]);
        assert_eq!(
            parsed.errors.iter().map(|error| error.line).collect::<Vec<_>>(),
            [4, 4]
        );
        let parsed = read("{\"b\":1\n{\"c\":3}\n");
        assert_eq!(parsed.documents[0].json(), "{\"c\":3}");
        assert_eq!(parsed.errors[0].line, 2);
    }

    #[test]
    fn what_begins_like_json_may_be_yaml() {
        assert_eq!(json("{a: b, c: [d, 'e']} # f\n"), [r#"{"a":"b","c":["d","e"]}"#]);
        assert_eq!(json("{\"a\": 1,}"), [r#"{"a":1}"#]);
        assert_eq!(json("{\"a\": 1e999}"), [r#"{"a":"1e999"}"#]);
        assert_eq!(
            errors("{a: b, c: [}\n"),
            ["line 1, column 12: a value is missing or cannot begin like this: put it in quotes"]
        );
    }

    #[test]
    fn errors_in_json_report_the_place_and_the_cure() {
        let cases = [
            (
                "{\"a\": 1\n \"é\": 2}",
                "line 2, column 2: not JSON: expected `,` or `}`; check for a missing comma, quote or bracket just before this place",
            ),
            (
                "{\"é\": [1, 2",
                "line 1, column 11: the JSON ends too early: a bracket or quote is not closed, or the file was cut off",
            ),
            (
                "{\"a\": 1,\n \"b\": {\"x\": 1, \"a\": 2,\n \"x\": 3}}",
                "line 3, column 2: the key `x` is given twice in one object, at lines 2 and 3: remove one of them",
            ),
            (
                "{\"a\": \"C:\\logs\"}",
                "line 1, column 11: an unknown `\\` escape: write `\\\\` for a backslash, for example in \"C:\\\\logs\"",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(errors(text), [expected], "{text}");
        }
    }

    #[test]
    fn a_template_has_to_be_rendered_first() {
        let cases = [
            ("{{ .Values.x }}\n", 1, 1),
            ("{{- if .Values.x }}\nkind: Pod\n{{- end }}\n", 1, 1),
            ("kind: Pod\nmetadata:\n  name: {{ .Release.Name }}\n", 3, 9),
            (
                "kind: Pod\nmetadata:\n  {{- include \"x\" . | nindent 2 }}\n  name: x\n",
                3,
                3,
            ),
            ("# {{ }}\nimage: repo/{{ .Values.image }}:1\n", 2, 13),
            ("a: \"{{ fine }}\"\nb: |\n  {{ fine }}\nc: {{ bad }}\n", 4, 4),
            ("a: text\n  more\n  {{ x }}\n", 3, 3),
            ("args: [{{ .Values.x }}]\n", 1, 8),
            (
                "{{ range $x := .Values.y }}\n---\na: {{ $x }}\n---\nb: {{ $x }}\n",
                1,
                1,
            ),
        ];
        for (text, line, column) in cases {
            assert_eq!(
                errors(text),
                [format!(
                    "line {line}, column {column}: this is a template that was not rendered (line {line} has \
                     \"{{{{ ... }}}}\"): render the chart first, for example: helm template RELEASE CHART | transom check -"
                )],
                "{text}"
            );
        }
    }

    #[test]
    fn braces_in_quotes_and_block_scalars_are_text() {
        let text = "a: '{{ .x }}'\nb: \"{{ .y }}\"\nc: |\n  {{ .z }}\n# {{ comment }}\nd: >-\n  {{ f }}\n";
        assert_eq!(
            only(text).json(),
            r#"{"a":"{{ .x }}","b":"{{ .y }}","c":"{{ .z }}\n","d":"{{ f }}"}"#
        );
        assert_eq!(only("{\"a\": \"{{ .x }}\"}").json(), "{\"a\": \"{{ .x }}\"}");
        // An error elsewhere is not attributed to them.
        let found = errors(&format!("{text}e: [\n"));
        assert!(found.len() == 1 && !found[0].contains("template"), "{found:?}");
        let found = errors("a: @\nb: {{ x }}\n");
        assert_eq!(
            found,
            ["line 1, column 4: a value cannot begin with this character: put the value in quotes"]
        );
    }

    #[test]
    fn a_long_line_has_positions_too() {
        let text = format!("[{}{{\"a\":1}}]", "\"é\", ".repeat(10_000));
        let document = only(&text);
        assert_eq!(at(&document, &[Index(10_000), Key("a")]), (1, 50_003));
        assert_eq!(at(&document, &[Index(9_999)]), (1, 49_997));
    }

    #[test]
    fn a_hopeless_file_ends_early() {
        let parsed = read(&"---\n:\n".repeat(5000));
        assert_eq!(parsed.errors.len(), MAX_ERRORS + 1);
        assert_eq!(
            parsed.errors[MAX_ERRORS].message,
            "more than 1000 errors: the rest was not read; is this a manifest?"
        );
        assert_eq!(read(&"{\"a\"]\n".repeat(5000)).errors.len(), MAX_ERRORS + 1);
    }

    #[test]
    fn depth_is_bounded_in_both_forms() {
        let deep = |open: &str, inner: &str, close: &str, n: usize| open.repeat(n) + inner + &close.repeat(n);
        for n in [127, 128, 1_000, 200_000] {
            for text in [
                deep("[", "1", "]", n),
                deep("{\"a\":", "1", "}", n),
                deep("- ", "x", "", n),
                deep("{a: ", "x", "}", n),
            ] {
                let parsed = read(&text);
                assert_eq!(
                    parsed.errors.is_empty(),
                    n == 127,
                    "{} {:?}",
                    &text[..9],
                    parsed.errors
                );
                if let Some(document) = parsed.documents.first() {
                    assert!(serde_json::from_str::<serde_json::Value>(document.json()).is_ok());
                }
            }
        }
        let expected = "nested deeper than 127 levels: no Kubernetes object is, make it flatter";
        assert_eq!(
            read(&deep("{\"a\":\n", "1", "}", 128)).errors[0].message,
            expected
        );
        assert_eq!(read(&deep("- ", "x", "", 128)).errors[0].message, expected);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm() {
        let seeds = [
            POD,
            "{\"kind\":\"List\",\"items\":[{\"a\":[1,\"\\n\"]}]}",
            "a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n",
            "{{ x }}\n",
        ];
        let parts = [
            "{", "[", "\"", "'", "\n", "- ", ": ", "*x", "&x ", "<<: ", "|\n", "\t", "#", "\\", "---\n",
            "...\n", "!", "é", "\r", "}", "]",
        ];
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % bound as u64).unwrap()
        };
        for _ in 0..3000 {
            let mut bytes = seeds[next(seeds.len())].as_bytes().to_vec();
            for _ in 0..=next(8) {
                let place = next(bytes.len() + 1);
                let part = parts[next(parts.len())];
                bytes.splice(place..(place + next(4)).min(bytes.len()), part.bytes());
            }
            for document in parse(bytes.clone()).documents {
                let text = String::from_utf8_lossy(&bytes);
                assert!(
                    serde_json::from_str::<serde_json::Value>(document.json()).is_ok(),
                    "{text:?}"
                );
                document.locate(&[Key("spec"), Key("containers"), Index(1), Key("args")]);
            }
        }
    }
}
