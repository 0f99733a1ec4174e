//! The webhook configurations on a real API server: who is called, and who is left alone. A webhook that only remembers
//! stands behind every entry, and every entry fails closed here, so that a condition that cannot be worked out is seen.
//! Without the programs of envtest these tests say so and prove nothing.
#![cfg(unix)]

mod engine;
mod limits;
mod listed_images;
mod plain;
mod pods;
mod updates;
mod world;

use std::path::Path;

use pods::{linux_pods, linux_pods_with_a_sign, windows_pods};
use serde_json::{Value, json};
use transom::model::objects::workload::Kind;
use transom::registration::{FailurePolicy, RegistrationOptions, mutating, names, validating};
use world::{
    KINDS, OPTED, OS, PLAIN, RUNTIME, SELECTED, Sent, affinity, closed, entries, image, label_os, spec, term,
    world, wrap,
};

use crate::support::command::transom;

#[test]
fn linux_pods_cause_no_call_in_any_kind() {
    let Some(world) = world() else { return };
    let sent: Vec<Sent> = linux_pods()
        .iter()
        .enumerate()
        .flat_map(|(n, over)| KINDS.map(|kind| wrap(kind, PLAIN, &format!("linux-{n}"), &spec(over))))
        .collect();
    let labelled = KINDS.map(|kind| {
        let mut sent = wrap(
            kind,
            PLAIN,
            "linux-labelled",
            &spec(&json!({"nodeSelector": {OS: "linux"}})),
        );
        label_os(&mut sent, "linux");
        sent
    });
    let sent = [sent, labelled.into()].concat();
    let answers = RUNTIME.block_on(world.create_all(&sent));
    for (sent, (answer, calls)) in sent.iter().zip(&answers) {
        assert_eq!(*answer, Ok(()), "{}", sent.object);
        assert_eq!(entries(calls), [""; 0], "{}", sent.object);
    }
    println!("{} objects of Linux pods, no call", sent.len());
}

/// What is called without need costs a call and nothing else: where a part fails closed, they are in the other part.
#[test]
fn linux_pods_with_a_sign_of_windows_cause_a_call_and_fail_open() {
    let Some(world) = world() else { return };
    let sent: Vec<Sent> = (linux_pods_with_a_sign().iter().enumerate())
        .flat_map(|(n, over)| KINDS.map(|kind| wrap(kind, PLAIN, &format!("vain-{n}"), &spec(over))))
        .collect();
    // Its kubelet rejects such a pod.
    let labelled = KINDS.map(|kind| {
        let mut sent = wrap(
            kind,
            PLAIN,
            "labelled",
            &spec(&json!({"nodeSelector": {OS: "linux"}})),
        );
        label_os(&mut sent, "windows");
        sent
    });
    let sent = [sent, labelled.into()].concat();
    let answers = RUNTIME.block_on(world.create_all(&sent));
    for (sent, (answer, calls)) in sent.iter().zip(&answers) {
        let one = [names::MUTATE, names::VALIDATE];
        assert_eq!(*answer, Ok(()), "{}", sent.object);
        assert_eq!(entries(calls), one, "{}", sent.object);
        assert_eq!(closed(calls), [names::VALIDATE], "{}", sent.object);
    }
}

#[test]
fn every_kind_of_evidence_calls_one_entry_in_each_phase() {
    let Some(world) = world() else { return };
    let cases: Vec<(bool, Sent)> = windows_pods()
        .iter()
        .enumerate()
        .flat_map(|(n, (certain, over))| {
            KINDS.map(|kind| (*certain, wrap(kind, PLAIN, &format!("windows-{n}"), &spec(over))))
        })
        .collect();
    let sent: Vec<Sent> = cases.iter().map(|(_, sent)| sent.clone()).collect();
    let answers = RUNTIME.block_on(world.create_all(&sent));
    for ((certain, sent), (answer, calls)) in cases.iter().zip(&answers) {
        assert_eq!(*answer, Ok(()), "{}", sent.object);
        let one = [names::MUTATE, names::VALIDATE];
        assert_eq!(entries(calls), one, "{}", sent.object);
        let expected = if *certain {
            names::CERTAIN_VALIDATE
        } else {
            names::VALIDATE
        };
        assert_eq!(closed(calls), [expected], "{}", sent.object);
    }
    println!("{} objects of Windows pods, one call in each phase", sent.len());
}

/// What a RuntimeClass selects and runs only Transom knows: pods get the former before webhooks are called, templates carry
/// its name and no more. Of pods that name a class of Linux by its project's name nothing is asked.
#[test]
fn a_runtime_class_causes_a_call_unless_its_name_says_linux() {
    let Some(world) = world() else { return };
    let class = |name: &str, selector: Value| {
        let mut class = json!({"metadata": {"name": name}, "handler": "h"});
        if !selector.is_null() {
            class["scheduling"] = json!({"nodeSelector": selector});
        }
        class
    };
    let linux = json!({"os": {"name": "linux"}});
    RUNTIME.block_on(async {
        for class in [
            class("for-windows", json!({OS: "windows"})),
            class("for-linux", json!({OS: "linux"})),
            class("for-anything", Value::Null),
            class("nvidia", Value::Null),
        ] {
            let url = "/apis/node.k8s.io/v1/runtimeclasses";
            world.post(url, &class, false).await.unwrap();
        }
        let mut sent = Vec::new();
        for name in ["for-windows", "for-linux", "for-anything", "nvidia"] {
            let mut over = json!({"runtimeClassName": name});
            sent.extend(KINDS.map(|kind| wrap(kind, PLAIN, &format!("class-{name}"), &spec(&over))));
            json_patch::merge(&mut over, &linux);
            sent.extend(KINDS.map(|kind| wrap(kind, PLAIN, &format!("linux-class-{name}"), &spec(&over))));
        }
        for (sent, (answer, calls)) in sent.iter().zip(world.create_all(&sent).await) {
            assert_eq!(answer, Ok(()), "{}", sent.object);
            let one: &[&str] = &[names::MUTATE, names::VALIDATE];
            let (expected, where_some_fail) = match (sent.kind, sent.name().ends_with("for-windows")) {
                (Kind::Pod, true) => (one, &[names::CERTAIN_VALIDATE][..]),
                (Kind::Pod, false) if sent.name().ends_with("nvidia") => (&[][..], &[][..]),
                // Whether it fits what else the template says, only Transom knows.
                _ => (one, &[names::VALIDATE][..]),
            };
            assert_eq!(entries(&calls), expected, "{}", sent.object);
            assert_eq!(closed(&calls), where_some_fail, "{}", sent.object);
        }
    });
}

#[test]
fn namespaces_that_are_left_out_cause_no_call_and_no_label_of_an_object_leaves_it_out() {
    let Some(world) = world() else { return };
    let windows = spec(&json!({"os": {"name": "windows"}}));
    let mut sent = Vec::new();
    for namespace in [
        "ignored",
        "managed",
        "transom-system",
        "calico-system",
        "kube-system",
    ] {
        sent.extend(KINDS.map(|kind| wrap(kind, namespace, "left-out", &windows)));
    }
    for (sent, (answer, calls)) in sent.iter().zip(RUNTIME.block_on(world.create_all(&sent))) {
        assert_eq!(answer, Ok(()), "{}", sent.object);
        assert_eq!(entries(&calls), [""; 0], "{} in {}", sent.object, sent.namespace);
    }
    // Kubebuilder puts the label control-plane on ordinary namespaces.
    for namespace in [PLAIN, "scaffolded"] {
        let mut ours = wrap(Kind::Deployment, namespace, "ours", &windows);
        ours.object["metadata"]["labels"] = json!({"app.kubernetes.io/name": "transom"});
        let (answer, calls) = RUNTIME.block_on(world.create_all(&[ours])).remove(0);
        assert_eq!(answer, Ok(()));
        assert_eq!(
            entries(&calls),
            ["mutate.transom.dev", "validate.transom.dev"],
            "{namespace}"
        );
    }
}

#[test]
fn the_entries_to_opt_into_take_what_the_others_leave() {
    let Some(world) = world() else { return };
    let both = ["default-os.", "linux-pods."];
    let table = [
        (json!({}), &both[..], &both[..1]),
        (
            json!({"tolerations": [{"operator": "Exists"}]}),
            &both,
            &both[..1],
        ),
        (json!({"os": {"name": "linux"}}), &both[1..], &[]),
        (json!({"nodeSelector": {OS: "linux"}}), &[], &[]),
        (affinity(&[term(OS, "In", &["linux"])]), &[], &[]),
        // It may run on either, and says so.
        (
            affinity(&[term(OS, "In", &["linux", "windows"])]),
            &both[..1],
            &both[..1],
        ),
        (json!({"nodeName": "w1"}), &both[..1], &both[..1]),
        (json!({"nodeSelector": {OS: "windows"}}), &[""], &[""]),
        (image("x:ltsc2022"), &[""], &[""]),
    ];
    let mut cases = Vec::new();
    for (n, (over, of_pods, of_templates)) in table.iter().enumerate() {
        for kind in KINDS {
            // What holds pods off is told to the author of a DaemonSet, too: its template is not written to.
            let [mutate, validate] = match kind {
                Kind::Pod => [of_pods, of_pods],
                Kind::DaemonSet => [of_templates, of_pods],
                _ => [of_templates, of_templates],
            };
            let expected = [("mutate", *mutate), ("validate", *validate)];
            cases.push((expected, wrap(kind, OPTED, &format!("opted-{n}"), &spec(over))));
        }
    }
    let sent: Vec<Sent> = cases.iter().map(|(_, sent)| sent.clone()).collect();
    let answers = RUNTIME.block_on(world.create_all(&sent));
    for ((expected, sent), (answer, calls)) in cases.iter().zip(answers) {
        assert_eq!(answer, Ok(()), "{}", sent.object);
        for (phase, expected) in *expected {
            let called: Vec<&str> = entries(&calls)
                .into_iter()
                .filter_map(|entry| entry.strip_suffix(&format!("{phase}.transom.dev")))
                .collect();
            assert_eq!(called, expected, "{phase}: {}", sent.object);
        }
    }
}

#[test]
fn templates_without_a_sign_cause_a_call_where_their_namespace_has_a_node_selector() {
    let Some(world) = world() else { return };
    let of_template = [names::DEFAULT_NODE_SELECTOR_VALIDATE];
    let windows = [names::MUTATE, names::VALIDATE];
    for (n, (over, expected)) in [
        (json!({}), &of_template[..]),
        (json!({"nodeSelector": {"disk": "ssd"}}), &of_template),
        (json!({"nodeSelector": {OS: "linux"}}), &[]),
        (json!({"nodeSelector": {OS: "windows"}}), &windows),
    ]
    .into_iter()
    .enumerate()
    {
        let sent = KINDS.map(|kind| wrap(kind, SELECTED, &format!("selected-{n}"), &spec(&over)));
        for (sent, (answer, calls)) in sent.iter().zip(RUNTIME.block_on(world.create_all(&sent))) {
            assert_eq!(answer, Ok(()), "{}", sent.object);
            // The API server has added the selector to a pod by then.
            let is_signless_pod = sent.kind == Kind::Pod && expected == of_template;
            let expected: &[&str] = if is_signless_pod { &[] } else { expected };
            assert_eq!(entries(&calls), expected, "{}", sent.object);
        }
    }
}

/// What a person would apply is what these tests have tried; no cluster is needed to see it.
#[test]
fn what_is_printed_is_what_the_library_makes() {
    let generate = |args: &[&str]| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        transom(root, &[&["generate", "webhooks"], args].concat())
    };
    let options = RegistrationOptions {
        validate_failure_policy: FailurePolicy::Fail,
        ..RegistrationOptions::default()
    };
    let expected = [
        serde_json::to_value(mutating(&options)).unwrap(),
        serde_json::to_value(validating(&options)).unwrap(),
    ];
    let args = ["--service", "transom.transom-system", "--failure-policy", "Fail"];
    let run = generate(&args);
    assert_eq!(run.status, 0, "{}", run.err);
    let parsed = transom::manifest::parse(run.out.into_bytes());
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let printed = parsed
        .documents
        .iter()
        .map(|d| serde_json::from_str(d.json()).unwrap());
    assert_eq!(printed.collect::<Vec<Value>>(), expected);
    let list = generate(&[&args[..], &["-o", "json"]].concat()).json();
    assert_eq!(list["items"], json!(expected));

    for (args, why) in [
        (&[][..], "--service"),
        (&["--url", "http://h"], "https://"),
        (&["--url", "https://h", "--service", "a.b"], "cannot be used with"),
        (&["--url", "https://h", "--timeout-seconds", "3"], "1..=2"),
        (&["--url", "https://h", "--ca-bundle", "Cargo.toml"], "not PEM"),
        (
            &["--url", "https://h", "--default-os-selector", "a in (b)"],
            "write labels as in",
        ),
        (
            &["--url", "https://h", "--image-registry", "quay.io,mcr.*"],
            "\"mcr.*\" ends with a *",
        ),
    ] {
        let run = generate(args);
        assert!(run.status == 2 && run.err.contains(why), "{args:?}: {run:?}");
    }
}
