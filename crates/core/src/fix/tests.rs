//! Texts before and after a change: what an author would have written.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::rewrite::{EditableText, Rewritten};
use crate::manifest::{Position, parse};

fn rewrite(text: &str, changes: &BTreeMap<Position, Value>) -> Rewritten {
    EditableText::read(text.as_bytes()).rewrite(changes)
}

/// Applies a JSON patch to the first object of a text.
fn edit(text: &str, patch: Value) -> Result<String, String> {
    let parsed = parse(text.as_bytes().to_vec());
    assert_eq!(parsed.errors, [], "{text}");
    let document = &parsed.documents[0];
    let mut after: Value = serde_json::from_str(document.json()).unwrap();
    let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
    json_patch::patch(&mut after, &patch).unwrap();
    let result = rewrite(text, &BTreeMap::from([(document.start(), after)]));
    let edited = String::from_utf8(result.bytes).unwrap();
    match result.refused.into_values().next() {
        Some(refusal) => {
            assert_eq!(edited, text, "a refused object stays as it is");
            Err(refusal.reason)
        }
        None => Ok(edited),
    }
}

fn remove(path: &str) -> Value {
    json!([{"op": "remove", "path": path}])
}

#[allow(clippy::needless_pass_by_value)] // reads better at the calls
fn add(path: &str, value: Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

#[track_caller]
fn becomes(text: &str, patch: Value, expected: &str) {
    assert_eq!(edit(text, patch.clone()).as_deref(), Ok(expected), "{text}");
    let (text, expected) = (text.replace('\n', "\r\n"), expected.replace('\n', "\r\n"));
    assert_eq!(
        edit(&text, patch.clone()).as_deref(),
        Ok(expected.as_str()),
        "with CRLF"
    );
    let (text, expected) = (format!("\u{FEFF}{text}"), format!("\u{FEFF}{expected}"));
    assert_eq!(
        edit(&text, patch).as_deref(),
        Ok(expected.as_str()),
        "with a byte order mark"
    );
}

#[test]
fn only_the_lines_of_a_removed_entry_go() {
    becomes(
        "a: 1 # one\n# two\nb: 2 # gone\n# three\nc: 3\n",
        remove("/b"),
        "a: 1 # one\n# two\n# three\nc: 3\n",
    );
    becomes(
        "a:\n  b: {c: 1,\n      d: 2}\n  e:\n  - 1\n  - |\n    x\n\n    y\n\n# end\nf: 1\n",
        remove("/a/e"),
        "a:\n  b: {c: 1,\n      d: 2}\n\n# end\nf: 1\n",
    );
    becomes(
        "a:\n  b: >-\n    x\n    y\n  c: 'd\n    e'\n  f: g",
        json!([{"op": "remove", "path": "/a/b"}, {"op": "remove", "path": "/a/c"}]),
        "a:\n  f: g",
    );
    becomes("a:\nb: 1\nc:\n", remove("/a"), "b: 1\nc:\n");
    becomes("a:\n- x\n- y\nb: 1\n", remove("/a"), "b: 1\n");
}

#[test]
fn an_entry_on_the_line_of_a_dash_is_removed() {
    becomes(
        "l:\n- a: 1\n  b: 2\n- c: 3\n",
        remove("/l/0/a"),
        "l:\n- b: 2\n- c: 3\n",
    );
    becomes(
        "l:\n  -   a:\n        x: 1\n      # about b\n      b: 2\n",
        remove("/l/0/a"),
        "l:\n  -\n      # about b\n      b: 2\n",
    );
    becomes(
        "l:\n- a: 1\n  b: 2\n  c: 3\n",
        json!([{"op": "remove", "path": "/l/0/a"}, {"op": "remove", "path": "/l/0/b"}]),
        "l:\n- c: 3\n",
    );
}

#[test]
fn the_last_entry_leaves_an_empty_map() {
    becomes(
        "a:\n  b:\n    c: 1\nd: 2\n",
        remove("/a/b/c"),
        "a:\n  b: {}\nd: 2\n",
    );
    becomes("a: {b: 1}\n", remove("/a/b"), "a: {}\n");
    becomes(
        "a: # of a\n  # of b\n  b: 1 # gone\n  # end\nc: 2\n",
        remove("/a/b"),
        "a: {} # of a\n  # of b\n  # end\nc: 2\n",
    );
}

#[test]
fn entries_in_braces_are_removed_with_one_comma() {
    let text = "a: {b: 1, c: [x, y], 'd': 3}\n";
    becomes(text, remove("/a/b"), "a: {c: [x, y], 'd': 3}\n");
    becomes(text, remove("/a/c"), "a: {b: 1, 'd': 3}\n");
    becomes(text, remove("/a/d"), "a: {b: 1, c: [x, y]}\n");
    let json = "{\n  \"a\": 1,\n  \"b\": {\n    \"c\": [1, 2]\n  },\n  \"d\": 3\n}\n";
    becomes(json, remove("/b"), "{\n  \"a\": 1,\n  \"d\": 3\n}\n");
    becomes(
        json,
        json!([{"op": "remove", "path": "/b"}, {"op": "remove", "path": "/d"}]),
        "{\n  \"a\": 1\n}\n",
    );
}

#[test]
fn entries_are_added_in_the_style_of_the_author() {
    let selector = json!({"kubernetes.io/os": "windows"});
    let toleration = json!([{"key": "os", "operator": "Equal", "value": "1"}]);
    becomes(
        "spec:\n    containers:\n      - name: a\n        args:\n          - x\n    # end of spec\nz: 1",
        json!([
            {"op": "add", "path": "/spec/nodeSelector", "value": selector},
            {"op": "add", "path": "/spec/tolerations", "value": toleration},
        ]),
        "spec:\n    containers:\n      - name: a\n        args:\n          - x\n    nodeSelector:\n        \
         kubernetes.io/os: windows\n    tolerations:\n      - key: os\n        operator: Equal\n        value: \"1\"\n    \
         # end of spec\nz: 1",
    );
    becomes(
        "spec:\n  containers:\n  - name: a",
        add("/spec/tolerations", toleration.clone()),
        "spec:\n  containers:\n  - name: a\n  tolerations:\n  - key: os\n    operator: Equal\n    value: \"1\"",
    );
    becomes(
        "{\"spec\":{\"containers\":[{\"name\":\"a\"}]}}",
        add("/spec/os", json!({"name": "windows"})),
        "{\"spec\":{\"containers\":[{\"name\":\"a\"}],\"os\":{\"name\":\"windows\"}}}",
    );
    becomes(
        "{\n  \"spec\": {\n    \"a\": 1\n  }\n}\n",
        add("/spec/os", json!({"name": "windows"})),
        "{\n  \"spec\": {\n    \"a\": 1,\n    \"os\": {\"name\": \"windows\"}\n  }\n}\n",
    );
    becomes(
        "spec: {a: 1}\n",
        add("/spec/os", json!({"name": "yes"})),
        "spec: {a: 1, os: {name: \"yes\"}}\n",
    );
}

#[test]
fn lists_grow_at_their_end() {
    let item = json!({"key": "a", "values": ["b"]});
    becomes(
        "l:\n- key: x # first\n# end\nm: 1\n",
        add("/l/-", item.clone()),
        "l:\n- key: x # first\n- key: a\n  values:\n  - b\n# end\nm: 1\n",
    );
    becomes(
        "l: [{key: x}]\n",
        add("/l/-", item.clone()),
        "l: [{key: x}, {key: a, values: [b]}]\n",
    );
    becomes(
        "l: []\n",
        add("/l/-", item.clone()),
        "l: [{key: a, values: [b]}]\n",
    );
    becomes(
        "l: null # none\nm: 1\n",
        add("/l", json!([item])),
        "l: # none\n- key: a\n  values:\n  - b\nm: 1\n",
    );
    becomes(
        "s:\n  k:\n  m: 1\n",
        add("/s/k", json!({"a": "b"})),
        "s:\n  k:\n    a: b\n  m: 1\n",
    );
}

#[test]
fn scalars_and_keys_keep_their_quotes() {
    becomes(
        "a: Windows # x\n",
        add("/a", "windows".into()),
        "a: windows # x\n",
    );
    becomes(
        "a: 'Windows' # 'x'\n",
        add("/a", "windows".into()),
        "a: 'windows' # 'x'\n",
    );
    becomes(
        "a: \"Windows\"\n",
        add("/a", "windows".into()),
        "a: \"windows\"\n",
    );
    becomes(
        "- {a: &x Windows, b: 1}\n",
        add("/0/a", "yes".into()),
        "- {a: &x \"yes\", b: 1}\n",
    );
    for quote in ["", "'", "\""] {
        becomes(
            &format!("s:\n  {quote}beta.kubernetes.io/os{quote}: windows # x\n  z: 1\n"),
            json!([{"op": "move", "from": "/s/beta.kubernetes.io~1os", "path": "/s/kubernetes.io~1os"}]),
            &format!("s:\n  {quote}kubernetes.io/os{quote}: windows # x\n  z: 1\n"),
        );
    }
    becomes("a: false\n", add("/a", true.into()), "a: true\n");
}

#[test]
fn the_item_of_a_list_is_edited_and_no_other() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- kind: A\n  x: 1\n- kind: B\n  x: 1\n";
    becomes(
        text,
        remove("/x"),
        "apiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: B\n  x: 1\n",
    );
    becomes(
        "--- # first\na: 1\nb: 1\n---\na: 1\n",
        remove("/b"),
        "--- # first\na: 1\n---\na: 1\n",
    );
}

#[test]
fn what_is_not_safe_is_refused_with_the_reason() {
    let merged = "x: &x {a: 1, b: 2}\nw:\n  <<: *x\n  c: 3\n";
    let repeated = "x: &x\n  a: 1\n  b: 2\nw: *x\n";
    let cases = [
        (merged, remove("/w/a"), "comes from a merge key"),
        (repeated, remove("/x"), "would not have exactly the planned value"),
        (
            repeated,
            remove("/x/a"),
            "comes from a merge key (`<<`) or an alias",
        ),
        (
            repeated,
            remove("/w/a"),
            "comes from a merge key (`<<`) or an alias",
        ),
        (
            "? a\n: 1\n? b\n: 2\n",
            remove("/a"),
            "on the same line as something else",
        ),
        (
            "a: {b: 1, # x\n  c: 2}\n",
            remove("/a/b"),
            "a comment would be lost",
        ),
        ("a: |\n  x\n", add("/a", json!({"b": 1})), "a block scalar"),
        (
            "kind: List\napiVersion: v1\nitems:\n- &a {kind: A, x: &x {u: 1, z: 2}}\n- {kind: B, x: *x}\n",
            remove("/x/u"),
            "another object uses its anchor",
        ),
    ];
    for (text, patch, reason) in cases {
        let refused = edit(text, patch).unwrap_err();
        assert!(refused.contains(reason), "{refused}: {text}");
    }
    let all = json!([{"op": "remove", "path": "/x"}, {"op": "remove", "path": "/w"}, {"op": "add", "path": "/z", "value": 1}]);
    becomes(repeated, all, "z: 1\n");
    // Both places of one object change alike, so the anchor is enough.
    let both = json!([{"op": "remove", "path": "/x/a"}, {"op": "remove", "path": "/w/a"}]);
    becomes(repeated, both, "x: &x\n  b: 2\nw: *x\n");
}

#[test]
fn an_object_that_cannot_be_edited_does_not_stop_the_others() {
    let item = |n: usize| match n % 100 {
        7 => format!("- kind: A\n  n: {n}\n  <<: {{x: 1, y: 2}}\n"),
        _ => format!("- kind: A # {n}\n  n: {n}\n  x: 1\n  y: 2\n"),
    };
    let text = format!(
        "kind: List\napiVersion: v1\nitems:\n{}",
        (0..2000).map(item).collect::<String>()
    );
    let parsed = parse(text.clone().into_bytes());
    let changes: BTreeMap<_, _> = parsed
        .documents
        .iter()
        .map(|document| {
            let mut after: Value = serde_json::from_str(document.json()).unwrap();
            after.as_object_mut().unwrap().shift_remove("x");
            (document.start(), after)
        })
        .collect();
    let result = rewrite(&text, &changes);
    assert_eq!(result.refused.len(), 20);
    let edited = String::from_utf8(result.bytes).unwrap();
    assert_eq!(edited.matches("  x: 1\n").count(), 0);
    assert_eq!(edited.matches("{x: 1, y: 2}").count(), 20);
    assert_eq!(edited.matches('#').count(), 1980);
}

#[test]
fn a_document_that_cannot_be_read_stays_and_the_others_are_edited() {
    for unreadable in ["c: {{ .Values.c }}\n", "a:\n\tb: [\n", "a: *missing\n"] {
        for (before, after) in [("", "a: 1\nb: 2\n"), ("z: 1\n---\n", "a: 1\nb: 2\n---\ny: 1\n")] {
            let text = format!("{before}{after}---\n{unreadable}---\nb: 3\n");
            let parsed = parse(text.as_bytes().to_vec());
            assert_eq!(parsed.errors.len(), 1, "{text}");
            let of = |document: &&crate::manifest::Document| document.json().contains("\"a\":1");
            let document = parsed.documents.iter().find(of).unwrap();
            let changes = BTreeMap::from([(document.start(), json!({"a": 1}))]);
            let result = rewrite(&text, &changes);
            assert_eq!(result.refused, BTreeMap::new(), "{text}");
            assert_eq!(
                String::from_utf8(result.bytes).unwrap(),
                text.replacen("b: 2\n", "", 1)
            );
        }
    }
}

/// What is refused names the fields, so that the others can be changed.
#[test]
fn a_refusal_names_the_fields() {
    let text = "x: &x {a: 1, b: 2}\nv: {c: 1, # c\n  d: 2}\nw:\n  <<: *x\n  c: 3\n  e: 4\nz: 1\n";
    let document = parse(text.as_bytes().to_vec()).documents.remove(0);
    let mut after: Value = serde_json::from_str(document.json()).unwrap();
    for (object, key) in [("w", "a"), ("w", "c"), ("v", "c")] {
        after[object].as_object_mut().unwrap().shift_remove(key);
    }
    let refused = |after: &Value| {
        let result = rewrite(text, &BTreeMap::from([(document.start(), after.clone())]));
        let refused = result.refused.into_values().flat_map(|refusal| refusal.fields);
        (
            refused.map(|field| field.pointer).collect::<Vec<_>>(),
            String::from_utf8(result.bytes).unwrap(),
        )
    };
    assert_eq!(refused(&after).0, ["/v"]);
    after["v"]["c"] = 1.into();
    assert_eq!(refused(&after).0, ["/w/a"]);
    after["w"]["a"] = 1.into();
    assert_eq!(refused(&after), (Vec::new(), text.replace("  c: 3\n", "")));
}

#[test]
fn a_mapping_with_a_key_that_is_given_twice_is_not_edited() {
    let refuses = |text: &str, patch: Value| {
        let reason = edit(text, patch).unwrap_err();
        assert!(
            reason.starts_with("a key is given twice in one mapping: remove one of them"),
            "{text}: {reason}"
        );
    };
    for text in [
        "a: {x: 1, z: 2, x: 3}\nb: 1\n",
        "a:\n  x: 1\n  z: 2\n  'x': 3\nb: 1\n",
        "{\"a\": {\"x\": 1, \"z\": 2, \"\\u0078\": 3}, \"b\": 1}\n",
    ] {
        for patch in [remove("/a/z"), remove("/a/x"), add("/a/new", json!(1))] {
            refuses(text, patch);
        }
        // What is next to it is edited.
        assert!(edit(text, add("/b", json!(2))).is_ok(), "{text}");
        // No key is lost with the whole of it.
        for patch in [remove("/a"), add("/a", json!({}))] {
            let reason = edit(text, patch).unwrap_err();
            let expected = "a key is given twice in a mapping that would be removed: remove one of them";
            assert!(reason.starts_with(expected), "{text}: {reason}");
        }
    }
    // A mapping around what changes.
    let around = "a: {x: 1}\nb: 1\nb: 2\n";
    refuses(around, remove("/a/x"));
    let json = "{\"a\": {\"x\": 1}, \"b\": 1, \"b\": 2}";
    refuses(json, remove("/a/x"));
}
