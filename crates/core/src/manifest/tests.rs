//! Tests of parsing: documents, positions, errors and warnings.

use super::NodeStep::{Index, Key};
use super::reader::LARGE_LIST;
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
fn a_large_list_is_like_a_small_one() {
    let text = |first: &str, kind: &str, last: &str| {
        let item = |n: usize| {
            let blank = " ".repeat(1000);
            format!("- metadata: {{name: a{n}}}\n  spec: 1{blank}\n")
        };
        let items: String = (0..LARGE_LIST / 1000).map(item).collect();
        format!("apiVersion: v1\nitems:\n{first}{items}{last}kind: {kind}\n")
    };
    let documents = good(&text("", "PodList", "- &x {b: 1}\n- *x\n- null\n"));
    assert_eq!(documents.len(), LARGE_LIST / 1000 + 2);
    assert_eq!(documents[1].json(), r#"{"metadata":{"name":"a1"},"spec":1}"#);
    assert_eq!(
        (documents[1].list_kind(), documents[1].list_api_version()),
        (Some("PodList"), Some("v1"))
    );
    assert_eq!(documents[1].start(), Position { line: 5, column: 3 });
    assert_eq!(at(&documents[1], &[Key("spec")]), (6, 3));
    assert!(documents.iter().rev().take(2).all(|it| it.json() == r#"{"b":1}"#));
    // What is no list is read again.
    let only = only(&text("", "Pod", ""));
    assert!(
        only.json()
            .starts_with(r#"{"apiVersion":"v1","items":[{"metadata":{"name":"a0"}"#)
    );
    let parsed = read(&text("- a: 1\n  a: 2\n", "List", "").replace("apiVersion: v1", "items: [1]"));
    assert_eq!(parsed.warnings.len(), 2);
    assert_eq!(parsed.documents[0].json(), r#"{"a":2}"#);
    let parsed = read(&text("- a: 1\n  a: 2\n", "List", "- ]\n"));
    assert!(parsed.documents.is_empty() && parsed.warnings.is_empty());
    assert_eq!(parsed.errors.len(), 1);
    let template =
        "- {apiVersion: v1, kind: Pod, metadata: {name: x}}\n- apiVersion: v{{ x }}\n  kind: Pod\n";
    assert_eq!(errors(&text(template, "List", "")).len(), 1);
}

#[test]
fn an_empty_list_holds_nothing() {
    let text =
        "kind: List\nitems: []\n---\nkind: PodList\nitems: null\n---\n{\"kind\":\"List\",\"items\":[ ]}\n";
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
    let text = "--- # first\n{\"a\": 1}\n---\nb: 2\n...\n---\n{c: 3}\n---  \n# x\n[4]\n---\n\u{FEFF}d: 5\n";
    let expected = ["{\"a\": 1}", "{\"b\":2}", "{\"c\":3}", "[4]", "{\"d\":5}"];
    assert_eq!(json(text), expected);
    let lines: Vec<_> = good(text).iter().map(|document| document.start().line).collect();
    assert_eq!(lines, [2, 4, 7, 10, 12]);
}

#[test]
fn text_on_the_line_of_a_separator_is_refused_with_its_document() {
    for (text, message) in [
        (
            "a: 1\n--- {b: 2}\nx: 1\n---\nc: 3\n",
            "line 2, column 4: text on the line of a `---`: kubectl accepts only a comment there; put the text on the \
             next line",
        ),
        (
            "a: 1\n--- {{ b }}\nx: 1\n---\nc: 3\n",
            "line 2, column 4: this looks like a template that was not rendered (line 2 has \"{{ ... }}\"): render the \
             chart first, for example: helm template RELEASE CHART | transom check -",
        ),
        (
            "a: 1\n---\n# x\n%YAML 1.1\n---\nc: 3\n",
            "line 4, column 1: a line that begins with `%` is a directive, which kubectl does not read: remove it, or \
             quote it if it is text",
        ),
    ] {
        assert_eq!(errors(text), [message], "{text}");
        let parsed = read(text);
        let found: Vec<_> = parsed.documents.iter().map(Document::json).collect();
        assert_eq!(found, ["{\"a\":1}", "{\"c\":3}"], "{text}");
    }
}

#[test]
fn text_after_the_end_of_a_document_is_not_read_and_noted() {
    let found = |text: &str| -> Vec<(usize, usize)> {
        let parsed = read(text);
        assert_eq!(parsed.errors, [], "{text}");
        assert_eq!(parsed.documents.len(), 2, "{text}");
        let positions = parsed
            .warnings
            .iter()
            .map(|it| (it.position.line, it.position.column));
        positions.collect()
    };
    for text in [
        "a: 1\n...\n---\nb: 2\n",
        "a: 1\n... # x\n# y\n...\n---\nb: 2\n...\n\n",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
    assert_eq!(found("a: 1\n...\n\n # x\n  @b: [\n---\nb: 2\n"), [(5, 3)]);
    assert_eq!(found("a: 1\r\n---\r\nb: 2\r\n...\r\nc\r\n"), [(5, 1)]);
    assert_eq!(read("---\n...\na: 1\n").errors.len(), 1);
    assert_eq!(read("{a: 1}\n...\n{b: 2}\n").warnings.len(), 1);
    // Of several JSON values, each is read.
    assert_eq!(read("{\"a\":1}\n{\"b\":2}\n").warnings, []);
    assert_eq!(read("{\"a\":1}\n{b: 2}\n").errors.len(), 1);
}

#[test]
fn many_characters_that_only_go_yaml_reads_are_read() {
    let count = 500;
    let item = |n: usize| format!("- [2001:db8::{n}:, \"it\\'s\", 'C:\\', \"\\\\'\", a:b]\n- |\n  x:[ \\'\n");
    let text: String = (0..count).map(item).collect();
    let items: serde_json::Value = serde_json::from_str(only(&text).json()).unwrap();
    let items = items.as_array().unwrap();
    assert_eq!(items.len(), 2 * count);
    for (n, pair) in items.chunks(2).enumerate() {
        let expected = serde_json::json!([
            [format!("2001:db8::{n}:"), "it's", "C:\\", "\\'", "a:b"],
            "x:[ \\'\n"
        ]);
        assert_eq!(serde_json::json!(pair), expected);
    }
    // A blank before the colons is only found when libyaml refuses them.
    assert_eq!(json("[a ::, b:]\n"), [r#"["a ::","b:"]"#]);
    // What go-yaml does not read either is refused.
    for text in ["[a:, ::]\n", "[a:, b:?]\n", "[a:, b:[c]]\n", "{a:[b]}\n"] {
        assert_eq!(read(text).errors.len(), 1, "{text}");
    }
    assert_eq!(read("a: [b:]\nb: {\"c\":[1]}\nd: @\n").errors[0].line, 3);
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
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a-{{ .Release.Name }}\n",
            9,
            9,
        ),
        ("apiVersion: {{ x }}/v1\nkind: Pod\n", 1, 13),
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  image: repo/{{ .Values.image }}:1\n",
            4,
            10,
        ),
        (
            "kind: List\napiVersion: v1\nitems:\n- apiVersion: apps/v1\n  kind: Deployment\n  nodeSelector:\n    a: b{{ c }}\n",
            7,
            8,
        ),
        ("a: \"{{ fine }}\"\nb: |\n  {{ fine }}\nc: {{ bad }}\n", 4, 4),
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
                "line {line}, column {column}: this looks like a template that was not rendered (line {line} has \
                 \"{{{{ ... }}}}\"): render the chart first, for example: helm template RELEASE CHART | transom check -"
            )],
            "{text}"
        );
    }
}

#[test]
fn braces_that_a_controller_may_replace_are_text() {
    let rule = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec:\n  summary: on {{ $labels.device }}\n";
    assert!(
        only(rule)
            .json()
            .ends_with(r#"{"summary":"on {{ $labels.device }}"}}"#)
    );
    for image in [
        "image: a:{{inputs.parameters.tag}}",
        "nodeSelector:\n    a: b{{inputs.x}}",
    ] {
        let workflow = format!("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nspec:\n  {image}\n");
        assert_eq!(good(&workflow).len(), 1, "{workflow}");
    }
    for data in ["name: a {{ b }}", "image: a{{ b }}", "nodeSelector: a{{ b }}"] {
        let text = format!("apiVersion: v1\nkind: ConfigMap\ndata:\n  {data}\n");
        assert_eq!(good(&text).len(), 1, "{text}");
    }
    assert_eq!(good("image: a{{ b }}\nname: c{{ d }}\n").len(), 1);
}

#[test]
fn a_key_given_twice_is_noted_and_the_last_one_applies() {
    let yaml = "a: 1\nb: {x: 1, x: 2, x: 3}\n80: c\n---\nb: 1\n";
    let json = "{\"a\": 1,\n\"b\": {\"x\": 1, \"x\": 2, \"\\u0078\": 3},\n\"80\": \"c\"}\n{\"b\": 1}";
    for (text, columns) in [(yaml, [11, 17]), (json, [15, 23])] {
        let parsed = read(text);
        assert_eq!(parsed.errors, []);
        let found: Vec<_> = parsed
            .documents
            .iter()
            .map(|it| it.json().replace([' ', '\n'], ""))
            .collect();
        assert_eq!(found, [r#"{"a":1,"b":{"x":3},"80":"c"}"#, r#"{"b":1}"#]);
        let found: Vec<_> = (parsed.warnings.iter())
            .map(|it| (it.position.line, it.position.column, &*it.message))
            .collect();
        let message =
            "the key x is given twice in one mapping, on line 2: the last one applies; remove one of them";
        assert_eq!(found, columns.map(|column| (2, column, message)));
        let of_documents = parsed.documents.iter().map(|it| parsed.warnings_of(it).count());
        assert_eq!(of_documents.collect::<Vec<_>>(), [2, 0]);
        assert_eq!(at(&parsed.documents[0], &[Key("b"), Key("x")]), (2, columns[1]));
    }
    let many: Vec<String> = (0..40).map(|n| format!("k{n}: {n}\n")).collect();
    let many = many.concat();
    let parsed = read(&format!("{many}k7: x\n'80': a\n80: b\n"));
    let lines: Vec<_> = parsed.warnings.iter().map(|it| it.position.line).collect();
    assert_eq!(lines, [41, 43]);
}

#[test]
fn what_libyaml_accepts_is_read() {
    let cases = [
        ("a: {b: 1,\nc: 2\n}\n", r#"{"a":{"b":1,"c":2}}"#),
        ("a: [x,\nz]\n", r#"{"a":["x","z"]}"#),
        ("a: \"x\ny\"\n", r#"{"a":"x y"}"#),
        ("a:\tb\n", r#"{"a":"b"}"#),
        ("a: [2001:db8::, 'x']\n", r#"{"a":["2001:db8::","x"]}"#),
        ("a: \"it\\'s\"\n", r#"{"a":"it's"}"#),
        ("a: !Ref b\nc: !!set {d}\n", r#"{"a":"b","c":{"d":null}}"#),
        ("a: |\n  b", "{\"a\":\"b\\n\"}"),
        ("a: b\u{FEFF}\n", "{\"a\":\"b\u{FEFF}\"}"),
        ("1.50: a\n", r#"{"1.5":"a"}"#),
    ];
    for (text, expected) in cases {
        assert_eq!(json(text), [expected], "{text}");
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
    let found = errors("a: @\nb: x {{ x }}\n");
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
        "{", "[", "\"", "'", "\n", "- ", ": ", "*x", "&x ", "<<: ", "|\n", "\t", "#", "\\", "---\n", "...\n",
        "!", "é", "\r", "}", "]",
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
