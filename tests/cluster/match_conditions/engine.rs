//! The engine beside the conditions: both judge the corpus, the rules' examples and thrown pods.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::civil::date;
use serde_json::{Value, json};
use transom::engine::{Evaluation, evaluate};
use transom::model::cluster::facts::{Facts, RuntimeClassFacts};
use transom::model::cluster::policy::Policy;
use transom::model::objects::object::{Object, ReviewStage};
use transom::model::objects::workload::Kind;
use transom::model::windows::os::Verdict;
use transom::registration::names;
use transom::rules::{catalogue, examples};

use super::limits::thin_out;
use super::pods::{Dice, thrown_spec};
use super::world::{
    Answer, KINDS, OS, PLAIN, RUNTIME, Sent, World, api_version, closed, entries, is_condition_error,
    label_os, node_labels, spec_of, world, wrap,
};
use crate::support::recorder::Call;

/// What people and rules wrote down: each file of the corpus and each example of a rule, as documents that belong together.
fn bundles() -> Vec<(String, Vec<Value>)> {
    let mut texts = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    for folder in ["good", "bad", "linux", "placement", "cluster", "production"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            texts.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    texts.sort();
    for rule in catalogue() {
        for example in rule.bad.iter().chain(rule.good) {
            texts.push((format!("{rule:?}: {example}"), example.as_bytes().to_vec()));
        }
    }
    let bundles = texts.into_iter().map(|(label, text)| {
        let parsed = transom::manifest::parse(text);
        let mut documents = Vec::new();
        for document in &parsed.documents {
            let document: Value = serde_json::from_str(document.json()).unwrap();
            match document["items"].as_array() {
                Some(items) => documents.extend(items.iter().cloned()),
                None if document.get("kind").is_none() => {
                    let mut pod: Value = serde_json::from_str(examples::BASE).unwrap();
                    json_patch::merge(&mut pod["spec"], &document);
                    documents.push(pod);
                }
                None => documents.push(document),
            }
        }
        (label, documents)
    });
    bundles.collect()
}

/// An object of a bundle, ready to be sent, and what the engine says of it.
struct EvaluatedObject {
    label: String,
    sent: Sent,
    evaluation: Evaluation,
}

/// Whether the engine would say anything of an object, or do anything with it.
fn speaks(evaluation: &Evaluation) -> bool {
    matches!(
        evaluation.inference.verdict,
        Verdict::Windows | Verdict::Conflicting
    ) || evaluation.open().next().is_some()
        || !evaluation.edits.is_empty()
        || !evaluation.would_edit.is_empty()
}

/// What is wrong with the calls that an object caused, if anything.
fn wrong(evaluation: &Evaluation, answer: &Answer, calls: &[Call]) -> Option<&'static str> {
    let by = |phase: &str| {
        entries(calls)
            .into_iter()
            .filter(|entry| entry.contains(phase))
            .count()
    };
    // Refused by a plugin that is asked before webhooks, or because a field is of another type.
    let earlier = matches!(answer, Err((400 | 403, _))) && calls.is_empty();
    if is_condition_error(answer) {
        Some("a condition failed")
    } else if by("mutate") > 1 || by("validate") > 1 {
        Some("more than one call in a phase")
    } else if closed(calls).contains(&names::CERTAIN_VALIDATE) && evaluation.inference.is_weak() {
        Some("certain without strong evidence")
    } else if speaks(evaluation) && calls.is_empty() && !earlier {
        Some("not called")
    } else {
        None
    }
}

/// Makes the RuntimeClasses of a bundle under names of their own, and judges its objects.
async fn evaluate_bundle(
    world: &World,
    n: usize,
    (label, documents): (String, Vec<Value>),
) -> Vec<EvaluatedObject> {
    let mut facts = Facts::new(36, date(2026, 6, 1));
    facts.node_labels = node_labels();
    let mut objects = Vec::new();
    for (at, mut object) in documents.iter().cloned().enumerate() {
        let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let known = Kind::of_api_version(&text(&object, "apiVersion"), &text(&object, "kind"));
        // Custom resources: tests/cluster/pod_template_kinds.rs.
        let Some(kind) = known.filter(|kind| kind.has_pod() && !kind.is_custom()) else {
            continue;
        };
        object["apiVersion"] = api_version(kind).into();
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let metadata = object["metadata"].as_object_mut().unwrap();
        for field in [
            "namespace",
            "generateName",
            "resourceVersion",
            "uid",
            "managedFields",
        ] {
            metadata.remove(field);
        }
        metadata.insert("name".to_owned(), format!("bundle-{n}-{at}").into());
        if let Some(name) = spec_of(kind, &mut object).and_then(|spec| spec.get_mut("runtimeClassName"))
            && let Some(old) = name.as_str().map(str::to_owned)
        {
            let own = format!("bundle-{n}-{}", old.to_lowercase());
            *name = own.clone().into();
            if !facts.runtime_classes.contains_key(&own) {
                let found = documents
                    .iter()
                    .find(|d| d["kind"] == "RuntimeClass" && d["metadata"]["name"] == *old);
                facts
                    .runtime_classes
                    .insert(own.clone(), make_class(world, &own, found).await);
            }
        }
        let json = object.to_string();
        let Ok(subject) = Object::parse(kind, &json, ReviewStage::Written) else {
            continue;
        };
        objects.push(EvaluatedObject {
            label: label.clone(),
            evaluation: evaluate(&subject, &facts, &Policy::standalone()),
            sent: Sent {
                kind,
                namespace: PLAIN,
                object,
            },
        });
    }
    objects
}

async fn make_class(world: &World, name: &str, found: Option<&Value>) -> RuntimeClassFacts {
    let handler = found.and_then(|found| found["handler"].as_str()).unwrap_or("h");
    let mut class = json!({"metadata": {"name": name}, "handler": handler});
    let selector = found
        .map(|found| &found["scheduling"]["nodeSelector"])
        .and_then(Value::as_object);
    if let Some(selector) = selector {
        class["scheduling"] = json!({"nodeSelector": selector});
    }
    world
        .post("/apis/node.k8s.io/v1/runtimeclasses", &class, false)
        .await
        .unwrap();
    let pairs = selector.into_iter().flatten();
    RuntimeClassFacts {
        handler: handler.to_owned(),
        node_selector: pairs
            .map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()))
            .collect(),
        ..RuntimeClassFacts::default()
    }
}

#[test]
fn whatever_the_engine_speaks_of_is_let_through() {
    let Some(world) = world() else { return };
    let evaluated: Vec<EvaluatedObject> = RUNTIME.block_on(async {
        let mut evaluated = Vec::new();
        for (n, bundle) in bundles().into_iter().enumerate() {
            evaluated.extend(evaluate_bundle(world, n, bundle).await);
        }
        evaluated
    });
    let sent: Vec<Sent> = evaluated.iter().map(|evaluated| evaluated.sent.clone()).collect();
    let answers = RUNTIME.block_on(world.create_all(&sent));
    let mut counts = BTreeMap::<String, usize>::new();
    let mut mistakes = Vec::new();
    for (evaluated, (answer, calls)) in evaluated.iter().zip(&answers) {
        let EvaluatedObject {
            label,
            sent,
            evaluation,
        } = evaluated;
        if let Some(wrong) = wrong(evaluation, answer, calls) {
            mistakes.push(format!(
                "{wrong}: {label}\n  {}\n  {:?}\n  {answer:?} {:?}",
                sent.object,
                evaluation.inference,
                entries(calls)
            ));
        }
        let verdict = evaluation.inference.verdict;
        let part = match closed(calls).first() {
            Some(part) => part,
            None if calls.is_empty() => "none",
            // By the API server itself, between the two phases.
            None => "called, then refused",
        };
        *counts.entry(format!("{verdict} -> {part}")).or_default() += 1;
    }
    println!("the engine's verdict -> the part that was called: {counts:#?}");
    assert!(
        mistakes.is_empty(),
        "{} wrong:\n{}",
        mistakes.len(),
        mistakes.join("\n\n")
    );
    assert!(
        counts
            .get("Windows -> certain.validate.transom.dev")
            .is_some_and(|n| *n > 100),
        "{counts:?}"
    );
    assert!(
        counts
            .get("Windows -> validate.transom.dev")
            .is_some_and(|n| *n > 20),
        "{counts:?}"
    );
}

/// How many pods are thrown: `TRANSOM_THROWN_PODS`, else what takes a few seconds.
fn thrown_pods() -> usize {
    let requested = std::env::var("TRANSOM_THROWN_PODS");
    requested.map_or(4_000, |count| {
        count.parse().expect("TRANSOM_THROWN_PODS is a number")
    })
}

/// The RuntimeClasses that thrown pods name, in the cluster and as the engine knows them.
async fn thrown_classes(world: &World, facts: &mut Facts) {
    for (name, handler, selector) in [
        ("thrown-windows", "h", json!({OS: "windows"})),
        ("thrown-linux", "h", json!({OS: "linux"})),
        ("thrown-anything", "h", Value::Null),
        ("thrown-wcow", "runhcs-wcow-process", Value::Null),
        // Its name says Linux, and is believed.
        ("kata", "runhcs-wcow-process", Value::Null),
    ] {
        let class = json!({"handler": handler, "scheduling": {"nodeSelector": selector}});
        let known = make_class(world, name, Some(&class)).await;
        facts.runtime_classes.insert(name.to_owned(), known);
    }
}

/// The conditions and the engine are written twice, in two languages; here they judge the same objects, and some of them
/// lack fields or have `null` in their place.
#[test]
fn every_thrown_object_of_which_the_engine_speaks_causes_a_call() {
    const BATCH: usize = 1_000;
    let Some(world) = world() else { return };
    let mut facts = Facts::new(36, date(2026, 6, 1));
    facts.node_labels = node_labels();
    RUNTIME.block_on(thrown_classes(world, &mut facts));
    let (policy, mut dice, all) = (Policy::standalone(), Dice(0x5eed), thrown_pods());
    let (mut counts, mut mistakes) = (BTreeMap::<String, usize>::new(), Vec::new());
    let (mut thrown, mut called_in_vain) = (0, 0);
    while thrown < all {
        let batch = thrown..all.min(thrown + BATCH);
        thrown = batch.end;
        let sent: Vec<Sent> = batch
            .map(|n| {
                let mut spec = thrown_spec(&mut dice);
                if dice.one_in(8) {
                    thin_out(&mut spec, &mut dice);
                    // The plugin for RuntimeClasses answers 500 to an empty name, before any webhook is asked.
                    if spec["runtimeClassName"] == "" {
                        spec["runtimeClassName"] = Value::Null;
                    }
                }
                let mut sent = wrap(KINDS[dice.below(9)], PLAIN, &format!("thrown-{n}"), &spec);
                if dice.one_in(6) {
                    label_os(&mut sent, ["windows", "linux", "Windows"][dice.below(3)]);
                }
                sent
            })
            .collect();
        let answers = RUNTIME.block_on(world.create_all(&sent));
        for (sent, (answer, calls)) in sent.iter().zip(&answers) {
            let json = sent.object.to_string();
            let subject = Object::parse(sent.kind, &json, ReviewStage::Written).unwrap();
            let evaluation = evaluate(&subject, &facts, &policy);
            if let Some(wrong) = wrong(&evaluation, answer, calls) {
                mistakes.push(format!(
                    "{wrong}: {json}\n  {:?}\n  {answer:?} {:?}",
                    evaluation.inference,
                    entries(calls)
                ));
            }
            called_in_vain += usize::from(!calls.is_empty() && !speaks(&evaluation));
            let part = if calls.is_empty() { "not called" } else { "called" };
            *counts
                .entry(format!("{} -> {part}", evaluation.inference.verdict))
                .or_default() += 1;
        }
    }
    println!("{all} thrown objects, the engine's verdict -> what the conditions say: {counts:#?}");
    println!("{called_in_vain} of {all} are asked about for nothing");
    mistakes.truncate(20);
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n\n"));
    // They are made of signs; of plain pods another test says how many are asked about.
    assert!(called_in_vain * 4 < all, "{called_in_vain} of {all}");
}
