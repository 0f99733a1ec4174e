//! What a condition must bear: missing fields, and the worst pods that the API server takes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use transom::model::objects::workload::Kind;
use transom::registration::{RegistrationOptions, WebhookEndpoint, names, validating};

use super::pods::Dice;
use super::world::{
    BETA, BUILD, KINDS, OPTED, OS, RUNTIME, Sent, affinity, api_version, closed, entries, is_condition_error,
    last_pool, spec, spec_of, term, world, wrap,
};

/// A pod that has everything that a condition looks at, and much that none does.
fn full_spec() -> Value {
    let mut spec = json!({
        "os": {"name": "windows"},
        "nodeSelector": {OS: "windows", BETA: "windows", BUILD: "10.0.20348", "kubernetes.azure.com/os-sku": "Windows2022"},
        "priorityClassName": "system-node-critical",
        "hostNetwork": true,
        "securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}},
        "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}],
        "initContainers": [{"name": "i", "image": "busybox", "securityContext": {"windowsOptions": {}}}],
        "containers": [
            {"name": "a", "image": "x:ltsc2022", "securityContext": {"windowsOptions": {"hostProcess": true}}},
            {"name": "b", "image": "mcr.microsoft.com/windows/nanoserver:1809", "ports": [{"containerPort": 80}]},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    let mut terms = [
        term(OS, "In", &["windows"]),
        term(BETA, "NotIn", &["linux"]),
        term("kubernetes.azure.com/os-sku", "In", &["Windows2022"]),
    ];
    terms[0]["matchFields"] = json!([{"key": "metadata.name", "operator": "In", "values": ["w1"]}]);
    json_patch::merge(&mut spec, &affinity(&terms));
    spec
}

/// Takes fields out at random, or makes them null or empty.
pub fn thin_out(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Object(fields) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            for key in keys {
                match dice.below(60) {
                    0 | 1 => {
                        fields.remove(&key);
                    }
                    2 => fields[&key] = Value::Null,
                    3 => match &mut fields[&key] {
                        Value::Object(inner) => inner.clear(),
                        Value::Array(inner) => inner.clear(),
                        Value::String(inner) => inner.clear(),
                        _ => {}
                    },
                    _ => thin_out(&mut fields[&key], dice),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| thin_out(item, dice)),
        _ => {}
    }
}

#[test]
fn no_missing_field_makes_a_condition_fail() {
    const OBJECTS: usize = 900;
    let Some(world) = world() else { return };
    let mut dice = Dice(0xf1e1d);
    let sent: Vec<Sent> = (0..OBJECTS)
        .map(|n| {
            let kind = KINDS[n % KINDS.len()];
            let mut sent = wrap(kind, OPTED, "", &full_spec());
            // Most of all the pod itself, else the object would be empty before it came to that.
            if dice.one_in(3) {
                thin_out(&mut sent.object, &mut dice);
            } else if let Some(spec) = spec_of(kind, &mut sent.object) {
                thin_out(spec, &mut dice);
            }
            sent.object["apiVersion"] = api_version(kind).into();
            sent.object["kind"] = kind.as_str().into();
            sent.object["metadata"] = json!({"name": format!("thin-{n}")});
            sent
        })
        .collect();
    let answers = RUNTIME.block_on(world.create_all(&sent));
    let mut counts = BTreeMap::<u16, usize>::new();
    for (sent, (answer, _)) in sent.iter().zip(&answers) {
        assert!(!is_condition_error(answer), "{answer:?}: {}", sent.object);
        *counts
            .entry(answer.as_ref().map_or_else(|(code, _)| *code, |()| 201))
            .or_default() += 1;
    }
    println!("objects with missing fields, by the API server's answer: {counts:?}");
    assert!(counts[&201] > 50 && counts[&422] > 50, "{counts:?}");
}

/// What no label can have is refused by the API server or never fits; until then it must not make a condition fail.
#[test]
fn no_text_of_any_length_makes_a_condition_fail() {
    let Some(world) = world() else { return };
    let long = "x".repeat(LARGEST_BODY - 4_000);
    let pool_and_image = |over: Value| {
        let mut spec = spec(&json!({"containers": [{"name": "a", "image": "x:ltsc2022"}]}));
        json_patch::merge(&mut spec, &over);
        spec
    };
    for (n, over) in [
        json!({"os": {"name": long}}),
        json!({"nodeSelector": {OS: long}}),
        json!({"nodeSelector": {"pool": long}}),
        json!({"nodeSelector": {(long.as_str()): "a"}}),
        json!({"priorityClassName": long}),
        json!({"nodeName": long}),
        affinity(&[term("pool", "In", &[&long])]),
        affinity(&[term(OS, "In", &[&long])]),
        affinity(&[term(BUILD, "In", &[&long])]),
        affinity(&[term(&long, "Exists", &[])]),
    ]
    .into_iter()
    .enumerate()
    {
        for kind in [Kind::Pod, Kind::Deployment] {
            let sent = wrap(kind, OPTED, &format!("long-{n}"), &pool_and_image(over.clone()));
            let (answer, calls) = RUNTIME.block_on(world.create_all(&[sent])).remove(0);
            let short = answer.as_ref().map_err(|(code, _)| *code);
            assert!(!is_condition_error(&answer), "{n} in a {kind}: {short:?}");
            // Refused by another plugin, or asked about.
            let requested = entries(&calls)
                .iter()
                .any(|entry| [names::MUTATE, names::VALIDATE].contains(entry));
            assert!(requested || short == Err(403), "{n} in a {kind}: {short:?}");
        }
    }
}

/// An error of a condition looks as these tests take it to look; else they would prove nothing.
#[test]
fn a_condition_that_fails_is_seen() {
    let Some(world) = world() else { return };
    let mut configuration = serde_json::to_value(validating(&RegistrationOptions {
        name: "broken".to_owned(),
        endpoint: WebhookEndpoint::Url(world.recorder.url.clone()),
        ca_bundle: Some(world.recorder.ca.clone()),
        ..RegistrationOptions::default()
    }))
    .unwrap();
    let entry = configuration["webhooks"][0].take();
    let with = |name: &str, expression: &str| {
        let mut entry = entry.clone();
        entry["name"] = format!("{name}.transom.dev").into();
        entry["failurePolicy"] = "Fail".into();
        entry["namespaceSelector"] = json!({"matchLabels": {"broken": "yes"}});
        entry["objectSelector"] = json!({"matchLabels": {"how": name}});
        entry["matchConditions"] = json!([{"name": "broken", "expression": expression}]);
        entry
    };
    configuration["webhooks"] = json!([
        with("missing", "object.spec.nosuchfield == 'x'"),
        with(
            "costly",
            "object.spec.containers.all(a, object.spec.containers.all(b, a.name + b.name != ''))"
        ),
    ]);
    RUNTIME.block_on(async {
        let url = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        world.post(url, &configuration, false).await.unwrap();
        let containers: Vec<Value> = (0..2_000)
            .map(|n| json!({"name": format!("c{n}"), "image": "a"}))
            .collect();
        for (how, containers) in [
            ("missing", json!([{"name": "a", "image": "a"}])),
            ("costly", json!(containers)),
        ] {
            let mut sent = wrap(Kind::Pod, "broken", how, &json!({"containers": containers}));
            sent.object["metadata"]["labels"] = json!({"how": how});
            let mut answer = Ok(());
            for _ in 0..300 {
                answer = world.create(&sent).await;
                if answer.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            println!("{how}: {answer:?}");
            assert!(is_condition_error(&answer), "{how}: {answer:?}");
        }
    });
}

/// The most bytes of a body that the API server reads.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// Containers with such images, as many as there may be in all these bytes.
fn containers(bytes: usize, image: &str) -> Value {
    let each = json!({"name": "c000000", "image": image}).to_string().len() + 1;
    let containers = (0..bytes / each).map(|n| json!({"name": format!("c{n:06}"), "image": image}));
    json!({"containers": containers.collect::<Vec<_>>()})
}

/// An image that begins as one of Microsoft's does, so that the longer list of words is searched for, and has none of them.
fn long_image(length: usize) -> String {
    let start = "mcr.microsoft.com/a/";
    format!("{start}{}", "x".repeat(length - start.len()))
}

/// As many containers, and as long images, as are looked into.
fn most_images() -> Value {
    let list = |prefix: &str| -> Vec<Value> {
        (0..150)
            .map(|n| json!({"name": format!("{prefix}{n}"), "image": long_image(512)}))
            .collect()
    };
    json!({"initContainers": list("i"), "containers": list("c")})
}

/// As much as is looked into for a sign, and there is none. All patterns of the pool are tried.
fn costliest_without_a_sign() -> Value {
    let other = term("pool", "In", &["other"]);
    let each = json!({"matchExpressions": vec![other["matchExpressions"][0].clone(); 16]});
    let mut spec = most_images();
    json_patch::merge(&mut spec, &affinity(&vec![each; 8]));
    spec
}

/// As many containers as are looked into, with images whose first part has this length: of no listed registry.
fn without_a_path(length: usize) -> Value {
    let host = format!("{}.b", "x".repeat(length - 2));
    let image = format!("{host}/{}", "x".repeat(512_usize.saturating_sub(length + 1)));
    let image = image.trim_end_matches('/').to_owned();
    let mut spec = costliest_without_a_sign();
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().unwrap() {
            container["image"] = json!(image);
        }
    }
    spec
}

/// The same, and all registries are compared with each image, until the last pattern fits the last one.
fn costliest_of_a_listed_registry() -> Value {
    let mut spec = costliest_without_a_sign();
    let longest = format!("tenant.listed.example/microsoft/{}", "x".repeat(480));
    spec["containers"].as_array_mut().unwrap().last_mut().unwrap()["image"] = longest.into();
    spec
}

/// As much as is looked into to be sure, and it surely is for Windows: only the last of the pool's patterns fits, the last
/// value fits none, and the last expression of each term says Windows.
fn costliest_to_be_sure_of() -> Value {
    let mut values = vec![last_pool(); 7];
    values.push("other".to_owned());
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let mut expressions = vec![term("pool", "In", &values)["matchExpressions"][0].clone(); 7];
    expressions.push(term(OS, "In", &["windows"; 8])["matchExpressions"][0].clone());
    let mut spec = most_images();
    json_patch::merge(
        &mut spec,
        &affinity(&vec![json!({"matchExpressions": expressions}); 8]),
    );
    spec
}

/// Which entries of the webhooks a pod causes calls to.
enum ExpectedCalls {
    /// None of those for pods with a sign of Windows.
    NoneForASign,
    /// Of those that fail closed, the one for pods that are certainly for Windows.
    Certain,
    /// Those for images of listed registries, and no others.
    Images,
    /// It does not matter.
    Any,
}

#[test]
#[allow(clippy::too_many_lines)] // one table of cases
fn the_worst_legal_pods_stay_within_the_cost() {
    let Some(world) = world() else { return };
    let room = LARGEST_BODY - 2_000;
    let words = |count: usize, word: &str| vec![word.to_owned(); count];
    let wide = |key: &str, word: &str| {
        let mut wide = term(key, "In", &["a"]);
        wide["matchExpressions"][0]["values"] = json!(words(room / (word.len() + 3), word));
        affinity(&[wide])
    };
    let every: &[Kind] = &KINDS;
    let some = &[Kind::Pod, Kind::CronJob][..];
    let one_term = term("zone", "In", &["a"]);
    let terms = vec![one_term.clone(); room / (one_term.to_string().len() + 1)];
    let mut of_pools = vec![term("pool", "In", &[last_pool().as_str(); 8]); 32];
    for term in &mut of_pools {
        let expressions = term["matchExpressions"].as_array_mut().unwrap();
        expressions.resize(32, expressions[0].clone());
    }
    let labels: serde_json::Map<String, Value> = (0..room / 20)
        .map(|n| (format!("key{n:06}"), "value".into()))
        .collect();
    let with_calls = [
        (
            "300 long images, 8 terms of 16 expressions, no sign",
            every,
            costliest_without_a_sign(),
            ExpectedCalls::NoneForASign,
        ),
        (
            "300 long images, 8 terms of 8 expressions with 8 values, for Windows",
            some,
            costliest_to_be_sure_of(),
            ExpectedCalls::Certain,
        ),
        (
            "300 long images, 8 terms of 16 expressions, no sign, the last image on a listed registry",
            some,
            costliest_of_a_listed_registry(),
            ExpectedCalls::Images,
        ),
    ];
    let others = [
        (
            "300 images without a path, as long as they may be",
            some,
            without_a_path(512),
        ),
        (
            "300 images of a registry with a name as long as it may be",
            some,
            without_a_path(253),
        ),
        (
            "containers with images of 255 characters",
            every,
            containers(room, &long_image(255)),
        ),
        (
            "containers with images of 1,024 characters",
            some,
            containers(room, &long_image(1_024)),
        ),
        // As many as fit into a body take the API server half a minute.
        ("the smallest containers", some, containers(room / 6, "a")),
        ("one image", some, containers(room, &long_image(room - 100))),
        ("terms", some, spec(&affinity(&terms))),
        (
            "32 terms of 32 expressions on the label of a pool",
            some,
            spec(&affinity(&of_pools)),
        ),
        ("values on the zone", some, spec(&wide("zone", "a"))),
        ("values on the operating system", some, spec(&wide(OS, "windows"))),
        (
            "entries of the nodeSelector",
            some,
            spec(&json!({"nodeSelector": labels})),
        ),
    ];
    let others = others.map(|(what, kinds, spec)| (what, kinds, spec, ExpectedCalls::Any));
    for (n, (what, kinds, spec, expected)) in with_calls.iter().chain(&others).enumerate() {
        for kind in *kinds {
            let sent = wrap(*kind, OPTED, &format!("worst-{n}"), spec);
            let size = sent.object.to_string().len();
            assert!(size <= LARGEST_BODY, "{what}: {size}");
            let start = Instant::now();
            let (answer, calls) = RUNTIME.block_on(world.create_all(&[sent])).remove(0);
            assert!(!is_condition_error(&answer), "{what} in a {kind}: {answer:?}");
            let short = answer
                .as_ref()
                .map_err(|(code, message)| (*code, message.chars().take(160).collect::<String>()));
            println!(
                "{what} in a {kind}: {} kB, {:?}, {short:?}, {:?}, {:?}",
                size / 1_024,
                start.elapsed(),
                entries(&calls),
                closed(&calls)
            );
            let entries = entries(&calls);
            match expected {
                ExpectedCalls::NoneForASign => assert!(
                    !entries.contains(&names::MUTATE) && !entries.contains(&names::VALIDATE),
                    "{calls:?}"
                ),
                ExpectedCalls::Certain => assert_eq!(closed(&calls), [names::CERTAIN_VALIDATE]),
                ExpectedCalls::Images => {
                    assert_eq!(entries, [names::IMAGES_MUTATE, names::IMAGES_VALIDATE], "{what}");
                }
                ExpectedCalls::Any => {}
            }
            assert_eq!(answer, Ok(()), "{what} in a {kind} is legal");
        }
    }
}
