//! Bytes as a file of manifests: no panic, every document is valid JSON, every position is in the text.
#![no_main]

use jiff::civil::date;
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use transom::check::{CheckInput, Manifests};
use transom::engine::policy_set::PolicySet;
use transom::model::cluster::facts::Facts;
use transom::model::cluster::policy::Policy;
use transom::model::objects::object::ReviewStage;

fuzz_target!(|bytes: &[u8]| {
    let parsed = transom::manifest::parse(bytes.to_vec());
    for document in &parsed.documents {
        serde_json::from_str::<&RawValue>(document.json()).expect("the document is JSON");
        assert!(document.start().line >= 1 && document.start().column >= 1);
    }
    // Lines end at \n, \r or \r\n, and UTF-16 text has no more of them than bytes.
    for error in &parsed.errors {
        assert!((1..=bytes.len() + 1).contains(&error.line), "{error}");
    }
    let policies = PolicySet::new(Vec::new(), Policy::standalone());
    let manifests = Manifests::parse(vec![CheckInput { source: "fuzz".into(), bytes: bytes.to_vec() }]);
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let objects = manifests.objects(ReviewStage::Written);
    objects.learn(&mut facts, &policies);
    objects.check(&facts, &policies, |checked| {
        let mut places = checked.places();
        for finding in &checked.evaluation.findings {
            let position = places.of(&finding.path);
            assert!((1..=bytes.len() + 1).contains(&position.line));
        }
    });
});
