//! Bytes as the body of an AdmissionReview: no panic, the uid comes back, and a patch applies to the object it is for.
#![no_main]

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::civil::date;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use transom::admission::{AdmissionContext, Phase, review};
use transom::engine::policy_set::PolicySet;
use transom::model::windows::build::Build;
use transom::model::cluster::facts::{Facts, RuntimeClassFacts};
use transom::model::nodes::node::{Host, Taint};
use transom::model::cluster::policy::{IgnoredFields, Policy, LinuxPods};

static FACTS: LazyLock<Facts> = LazyLock::new(|| {
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    for build in [17763, 20348, 26100] {
        facts.add_host(Host {
            name: format!("node-{build}"),
            build: Some(Build::new(build)),
            taints: vec![Taint::no_schedule("os", "windows"), Taint::no_schedule("sku", "Windows")],
            containerd: Some((1, 7)),
            ..Host::default()
        });
    }
    let selector = [("kubernetes.io/os".to_owned(), "windows".to_owned())];
    let class = RuntimeClassFacts { handler: "runhcs-wcow-process".into(), node_selector: selector.into(), ..RuntimeClassFacts::default() };
    facts.runtime_classes.insert("windows-2022".into(), class);
    facts
});

static POLICIES: LazyLock<[PolicySet; 2]> = LazyLock::new(|| {
    let guarded = Policy {
        ignored_fields: IgnoredFields::Remove,
        linux_pods: LinuxPods::Apply,
        runtime_classes: [("ltsc2022".to_owned(), "windows-2022".to_owned())].into(),
        ..Policy::standalone()
    };
    [Policy::standalone(), guarded].map(|policy| PolicySet::new(Vec::new(), policy))
});

fuzz_target!(|body: &[u8]| {
    let requested: Option<Value> = serde_json::from_slice(body).ok();
    for policies in POLICIES.iter() {
        for phase in [Phase::Mutate, Phase::Validate] {
            let Ok(answer) = review(phase, body, &AdmissionContext { facts: &FACTS, policies }) else { continue };
            let answer: Value = serde_json::from_slice(&answer.body).expect("the answer is JSON");
            let response = &answer["response"];
            // Numbers out of range and deep nesting are skipped unread by the program; this reader refuses them.
            let Some(requested) = &requested else { continue };
            assert_eq!(response["uid"], requested["request"]["uid"]);
            let Some(patch) = response["patch"].as_str() else { continue };
            assert_eq!((phase, &response["allowed"]), (Phase::Mutate, &Value::Bool(true)));
            let patch = BASE64_STANDARD.decode(patch).expect("the patch is base64");
            let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("the patch is a JSON Patch");
            let mut object = requested["request"]["object"].clone();
            json_patch::patch(&mut object, &patch).expect("the patch applies");
        }
    }
});
