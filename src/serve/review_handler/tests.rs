use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::date;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::model::cluster::policy::ImageEvidence;
use crate::model::windows::image_facts::{ImageFacts, ImageVariant};
use crate::process::metrics::Metrics;
use crate::process::tasks::Tasks;
use crate::serve::image_args::ImageSettings;

const WEB: &str = "registry.corp/shop/web:1";

/// A reviewer with look-ups that never end, because nothing runs them.
fn reviewer(policy: Policy) -> (Reviewer, ImageLookups) {
    let settings = ImageSettings {
        registries: crate::model::windows::registry_patterns::RegistryPatterns::parse(["registry.corp"])
            .unwrap(),
        pull_secret: None,
        pull_secret_namespaces: Vec::new(),
        ca_files: Vec::new(),
        plain_http: Vec::new(),
    };
    let lookups =
        ImageLookups::start(&settings, &Metrics::new("0.0.0", None), &mut Tasks::default()).unwrap();
    let facts = Facts::new(Facts::KUBERNETES, date(2026, 6, 1));
    let snapshot = Snapshot::of_files(facts, PolicySet::new(Vec::new(), policy));
    let (_, latest) = watch::channel(Arc::new(snapshot));
    (Reviewer::of_files(latest, Some(lookups.clone())), lookups)
}

fn with_registries(wait: Duration) -> Policy {
    Policy {
        image_evidence: ImageEvidence::Registry,
        image_wait: wait,
        ..Policy::standalone()
    }
}

fn review(operation: &str, object: &Value, old: &Value) -> Vec<u8> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": operation, "namespace": "shop", "name": "web",
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": object, "oldObject": old,
        },
    });
    review.to_string().into_bytes()
}

fn pod(images: &[&str]) -> Value {
    let container = |(number, image): (usize, &&str)| json!({"name": format!("c{number}"), "image": image});
    let containers: Vec<Value> = images.iter().enumerate().map(container).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": containers}})
}

fn windows() -> ImageFacts {
    let variants = vec![ImageVariant::new("windows", "amd64", "10.0.20348.2700")];
    ImageFacts::of(variants, Timestamp::UNIX_EPOCH)
}

fn evaluated(reviewer: &Reviewer, phase: Phase, body: &[u8]) -> ReviewResponse {
    let answer = reviewer.review(phase, ReviewBody::Whole(body), OnPending::Evaluate);
    answer.unwrap_or_else(|_| panic!("it must not wait"))
}

/// The review if nothing is pending.
fn if_known(reviewer: &Reviewer, phase: Phase, body: &[u8]) -> Result<ReviewResponse, PendingData> {
    reviewer.review(phase, ReviewBody::Whole(body), OnPending::Return)
}

fn verdict(reviewer: &Reviewer, phase: Phase, body: &[u8]) -> Option<String> {
    let answer = evaluated(reviewer, phase, body);
    let record = answer.record.unwrap();
    record.verdict.map(|verdict| verdict.as_str().to_owned())
}

#[tokio::test]
async fn a_review_waits_for_look_ups_only_if_its_policy_says_so_and_only_while_it_is_mutated() {
    let body = review("CREATE", &pod(&[WEB]), &Value::Null);
    for (wait, phase, waits) in [
        (200, Phase::Mutate, Some(200)),
        (0, Phase::Mutate, None),
        (200, Phase::Validate, None),
    ] {
        let (reviewer, _) = reviewer(with_registries(Duration::from_millis(wait)));
        let pending = if_known(&reviewer, phase, &body).err();
        let at_most = pending.map(|pending| pending.at_most);
        assert_eq!(at_most, waits.map(Duration::from_millis), "{phase:?}, {wait} ms");
        // In the end it uses what there is.
        assert_eq!(verdict(&reviewer, phase, &body).as_deref(), Some("Unknown"));
    }
}

#[tokio::test]
async fn what_is_known_is_used_by_policies_with_registries_and_by_no_other() {
    let body = review("CREATE", &pod(&[WEB]), &Value::Null);
    for (policy, expected) in [
        (with_registries(Duration::from_millis(500)), "Windows"),
        (Policy::standalone(), "Unknown"),
    ] {
        let (reviewer, lookups) = reviewer(policy);
        lookups.learn(WEB, windows());
        for phase in [Phase::Mutate, Phase::Validate] {
            assert!(if_known(&reviewer, phase, &body).is_ok());
            assert_eq!(
                verdict(&reviewer, phase, &body).as_deref(),
                Some(expected),
                "{phase:?}"
            );
        }
    }
}

#[tokio::test]
async fn the_annotation_says_how_many_images_are_known() {
    let (reviewer, lookups) = reviewer(with_registries(Duration::ZERO));
    lookups.learn(WEB, windows());
    let body = review("CREATE", &pod(&[WEB, "registry.corp/shop/new:1"]), &Value::Null);
    let answer = evaluated(&reviewer, Phase::Mutate, &body);
    let record = answer.record.unwrap();
    assert_eq!(record.annotation("images"), Some("1 of 2 known"), "{record:?}");
}

#[tokio::test]
async fn an_update_uses_the_facts_of_both_versions_and_waits_for_the_new_one_only() {
    let (reviewer, lookups) = reviewer(with_registries(Duration::from_millis(500)));
    let old = "registry.corp/shop/old:1";
    lookups.learn(WEB, windows());
    let body = review("UPDATE", &pod(&[WEB]), &pod(&[old]));
    assert!(if_known(&reviewer, Phase::Mutate, &body).is_ok());
    lookups.learn(old, windows());
    let snapshot = reviewer.snapshot();
    let context = AdmissionContext {
        facts: &snapshot.facts,
        policies: &snapshot.policies,
    };
    let mut changed = Review::new(decode(&body).unwrap(), &context);
    let images = reviewer.images(&mut changed, context.facts).unwrap();
    let mut known: Vec<&str> = images.facts.images.keys().map(String::as_str).collect();
    known.sort_unstable();
    assert_eq!(known, [old, WEB]);
    // An update that changes nothing needs no facts.
    let body = review("UPDATE", &pod(&[WEB]), &pod(&[WEB]));
    let mut unchanged = Review::new(decode(&body).unwrap(), &context);
    assert!(reviewer.images(&mut unchanged, context.facts).is_none());
}
