//! Values that become part of CEL expressions: whatever they contain, they stay text between quotes, or are refused.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use super::cluster::define;
use super::engine::{Engine, engine};
use crate::support::control_plane::ControlPlane;

/// Each place of the values whose text becomes part of an expression, by its path, with a value that is valid there.
const PLACES: [(&str, &str); 12] = [
    ("/cluster/nodeLabels/0/key", "pool"),
    ("/cluster/nodeLabels/0/values/0", "windows"),
    ("/cluster/nodeLabels/0/valuePrefixes/0", "win-"),
    ("/cluster/podTemplates/0/group", "example.com"),
    ("/cluster/podTemplates/0/kind", "Fleet"),
    ("/cluster/podTemplates/0/path", "spec.template"),
    ("/cluster/podTemplates/0/resource", "fleets"),
    ("/imageLookups/registries/0", "registry.example.com"),
    ("/imageLookups/registries/1", "*.example.com:5000"),
    ("/serviceAccount/name", "transom"),
    ("/hooks/serviceAccount/name", "jobs"),
    ("/certificates/secretName", "certificates"),
];

/// Values with the valid text in every place.
fn plain() -> Value {
    let mut values = json!({
        "cluster": {
            "nodeLabels": [{"key": "", "values": [""], "valuePrefixes": [""]}],
            "podTemplates": [{"group": "", "kind": "", "path": "", "resource": ""}],
        },
        "imageLookups": {"registries": ["", ""]},
        "serviceAccount": {"name": ""},
        "hooks": {"serviceAccount": {"name": ""}},
        "certificates": {"secretName": ""},
        "nodeStartup": {"admissionPolicy": {"enabled": true}, "imagePuller": {"enabled": true}},
        "reports": {"enabled": true},
    });
    for (place, text) in PLACES {
        *values.pointer_mut(place).unwrap() = text.into();
    }
    values
}

fn with(place: &str, text: &str) -> Value {
    let mut values = plain();
    *values.pointer_mut(place).unwrap() = text.into();
    values
}

/// Every CEL expression in the objects of a release.
fn expressions(object: &Value, out: &mut Vec<String>) {
    match object {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("expression" | "messageExpression", Value::String(text)) => out.push(text.clone()),
                    _ => expressions(value, out),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, out)),
        _ => {}
    }
}

/// An expression without the text between its quotes, and those texts. `None` if a quote is not closed.
fn without_texts(expression: &str) -> Option<(String, Vec<String>)> {
    let (mut outside, mut texts) = (String::new(), Vec::new());
    let mut characters = expression.chars();
    while let Some(next) = characters.next() {
        outside.push(next);
        if next != '\'' && next != '"' {
            continue;
        }
        let mut text = String::new();
        loop {
            match characters.next()? {
                '\\' => text.push(characters.next()?),
                // A text must end in its line.
                '\n' => return None,
                end if end == next => break,
                other => text.push(other),
            }
        }
        outside.push(next);
        texts.push(text);
    }
    Some((outside, texts))
}

/// What stays of all expressions without their texts, in any order, because labels are sorted by their keys; and the number of
/// texts.
fn shape(rendered: &[Value]) -> (Vec<char>, usize) {
    let mut all = Vec::new();
    for object in rendered {
        expressions(object, &mut all);
    }
    let (mut outside, mut texts) = (Vec::new(), 0);
    for expression in all {
        let parts =
            without_texts(&expression).unwrap_or_else(|| panic!("a quote is not closed: {expression}"));
        outside.extend(parts.0.chars());
        texts += parts.1.len();
    }
    outside.sort_unstable();
    (outside, texts)
}

fn render(engine: &Engine, values: &Value) -> Option<Vec<Value>> {
    engine.request("validate", json!({"values": values})).ok()?;
    engine.render(values).ok().map(|rendered| rendered.objects)
}

/// Texts that try to leave the quotes, random ones, and changed valid ones.
fn odd_text() -> impl Strategy<Value = String> {
    let attacks = prop::sample::select(vec![
        "x' || true || 'x",
        "x\\' || true || 'x",
        "\\",
        "x\\",
        "'",
        "\"",
        "x') || has(object.spec) || (v == 'x",
        "x\n|| true",
        "{{ .Release.Name }}",
        "%s",
        "x // y",
        "spec.template || true",
        "spec.template].orValue(true)",
        "*.'",
        "[::1]:5000",
    ]);
    prop_oneof![
        2 => attacks.prop_map(str::to_owned),
        3 => "[a-zA-Z0-9./*:'\"\\\\|&()\\[\\]{}%$ \n-]{1,12}",
        3 => (prop::sample::select(PLACES.map(|(_, text)| text).to_vec()), "[a-z0-9.'\\\\/*:-]{0,3}", 0_usize..8)
            .prop_map(|(text, more, at)| {
                let mut text = text.to_owned();
                text.insert_str(at.min(text.len()), &more);
                text
            }),
    ]
}

#[test]
fn no_value_leaves_the_quotes_of_an_expression() {
    let Some(engine) = engine() else { return };
    let expected = shape(&render(engine, &plain()).expect("the plain values are valid"));
    // Each place is really part of an expression, or its text would prove nothing.
    let all = render(engine, &plain()).unwrap();
    let mut rendered = Vec::new();
    for object in &all {
        expressions(object, &mut rendered);
    }
    let rendered = rendered.join("\n");
    for (place, text) in PLACES {
        let text = match place {
            "/cluster/podTemplates/0/path" => "?spec.?template",
            "/cluster/podTemplates/0/kind" => "fleets",
            "/imageLookups/registries/1" => ".example.com:5000",
            _ => text,
        };
        assert!(rendered.contains(text), "{place} is in no expression");
    }
    let accepted = std::cell::Cell::new(0);
    let cases = Config {
        cases: 300,
        ..Config::default()
    };
    TestRunner::new(cases)
        .run(
            &(
                prop::sample::select(PLACES.map(|(place, _)| place).to_vec()),
                odd_text(),
            ),
            |(place, text)| {
                let Some(objects) = render(engine, &with(place, &text)) else {
                    return Ok(());
                };
                accepted.set(accepted.get() + 1);
                // Two accounts with one name are one text, a path has as many fields as it names, and a registry with a * another
                // test: these contain nothing that could end a text.
                let is_harmless = text
                    .chars()
                    .all(|it| it.is_ascii_alphanumeric() || ".*:-_/[]".contains(it));
                prop_assert!(is_harmless || shape(&objects) == expected, "{}: {}", place, text);
                Ok(())
            },
        )
        .unwrap();
    assert!(accepted.get() > 20, "{} accepted", accepted.get());
}

#[test]
fn what_is_accepted_compiles_on_an_api_server() {
    let Some(engine) = engine() else { return };
    let Some(cluster) = ControlPlane::start_or_skip("values that become part of CEL") else {
        return;
    };
    define(&cluster);
    let mut seen = BTreeSet::new();
    for (place, text) in [
        ("/cluster/nodeLabels/0/key", "example.com/pool_1"),
        ("/cluster/nodeLabels/0/key", "in"),
        ("/cluster/nodeLabels/0/values/0", "true"),
        ("/cluster/nodeLabels/0/valuePrefixes/0", "Win_1.x-"),
        ("/cluster/podTemplates/0/group", "in.true.null"),
        ("/cluster/podTemplates/0/resource", "in"),
        ("/cluster/podTemplates/0/path", "spec.namespace.template"),
        ("/cluster/podTemplates/0/path", "spec.in.template"),
        ("/cluster/podTemplates/0/path", "spec.true"),
        ("/cluster/podTemplates/0/path", "spec.null.if.for.template"),
        ("/imageLookups/registries/0", "[2001:db8::1]:5000"),
        ("/imageLookups/registries/1", "*.a.*.example.com"),
        ("/serviceAccount/name", "0x1.2"),
    ] {
        let Some(objects) = render(engine, &with(place, text)) else {
            println!("refused by the chart: {place}: {text}");
            continue;
        };
        for object in objects {
            let kind = object["kind"].as_str().unwrap();
            let has_expressions = ["WebhookConfiguration", "AdmissionPolicy"]
                .iter()
                .any(|it| kind.ends_with(it));
            if !has_expressions || !seen.insert(object.to_string()) {
                continue;
            }
            let applied =
                cluster.kubectl_with(&["create", "--dry-run=server", "-f", "-"], &object.to_string());
            assert!(applied.ok, "{place}: {text}: {kind}: {}", applied.err);
        }
    }
    assert!(seen.len() > 30, "{} objects", seen.len());
}
