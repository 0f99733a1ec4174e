//! Findings about images that a registry was asked about.

use std::sync::Arc;

use super::*;
use crate::model::cluster::policy::ImageEvidence;
use crate::model::windows::image_facts::{ImageFacts, ImageVariant};

/// The facts of a cluster with a node of each build, in which a registry reports these platforms of an image: the
/// system, the architecture and the version of each.
fn facts_of_image(builds: &[&str], image: &str, listed: &[(&str, &str, &str)]) -> Facts {
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    for build in builds {
        let node = json!({"metadata": {"name": format!("node-{build}")},
            "status": {"nodeInfo": {"operatingSystem": "windows", "kernelVersion": build}}});
        let text = node.to_string();
        facts.learn(&Object::parse(Kind::Node, &text, ReviewStage::Written).unwrap());
    }
    let variants = listed
        .iter()
        .map(|(os, architecture, version)| ImageVariant::new(os, architecture, version));
    let mut known = ImageFacts::of(variants.collect(), "2026-01-01T12:34:56Z".parse().unwrap());
    "sha256:0123456789abcdef".clone_into(&mut known.found.as_mut().unwrap().digest);
    facts.images.insert(image.to_owned(), Arc::new(known));
    facts
}

/// The findings about the image of a pod that selects Windows, or has `over` in its spec: the rule, the severity and the
/// message of the first finding on an image.
fn on_image(facts: &Facts, policy: &Policy, over: &Value) -> Option<(&'static str, Severity, String)> {
    let json = object(Kind::Pod, &spec(over));
    let subject = Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap();
    let evaluation = evaluate(&subject, facts, policy);
    let mut found = evaluation
        .open()
        .filter(|f| f.path.to_string().ends_with("image"));
    let found = found.next()?;
    Some((found.rule.name, found.severity, found.message.to_string()))
}

#[test]
fn findings_name_what_the_registry_lists_its_digest_and_the_time() {
    let policy = Policy::standalone();
    let source = "(sha256:0123456789ab, 2026-01-01T12:34Z)";
    let linux = [
        ("linux", "amd64", ""),
        ("linux", "arm64", ""),
        ("linux", "amd64", ""),
    ];
    let of = |image: &str, listed: &[(&str, &str, &str)], over: &Value| {
        let facts = facts_of_image(&["10.0.20348.1"], image, listed);
        let mut whole = json!({"containers": [{"name": "web", "image": image}]});
        json_patch::merge(&mut whole, over);
        on_image(&facts, &policy, &whole)
    };
    let windows = json!({});
    let none = "image-has-no-windows-variant";
    assert_eq!(
        of("corp.example/app:1", &linux, &windows),
        Some((
            none,
            Severity::Error,
            format!(
                "corp.example/app:1 has no Windows variant: its registry lists linux/amd64, linux/arm64 {source}"
            )
        ))
    );
    assert_eq!(
        of("corp.example/app:1-ltsc2022", &linux[..1], &windows),
        Some((
            none,
            Severity::Error,
            format!(
                "corp.example/app:1-ltsc2022 has no Windows variant: its registry lists linux/amd64 {source}, although \
                 its name says Windows"
            )
        ))
    );
    assert_eq!(
        of(
            "corp.example/app:1",
            &[("windows", "arm64", "10.0.26100.1")],
            &windows
        ),
        Some((
            none,
            Severity::Error,
            format!(
                "corp.example/app:1 has no Windows variant for amd64: its registry lists windows/arm64 {source}"
            )
        ))
    );
    // The registry contradicts the tag.
    let selects = json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}});
    assert_eq!(
        of(
            "corp.example/app:1-ltsc2022",
            &[("windows", "amd64", "10.0.17763.1")],
            &selects
        ),
        Some((
            "image-build-mismatch",
            Severity::Error,
            format!(
                "corp.example/app:1-ltsc2022 is for Windows Server 2019 (10.0.17763) according to its registry {source}, \
                 although its name says Windows Server 2022 (10.0.20348), but the pod requires Windows Server 2022 \
                 (10.0.20348)"
            )
        ))
    );
}

#[test]
fn an_image_without_a_windows_variant_is_an_error_if_the_pod_is_certainly_for_windows() {
    let image = "corp.example/linux:1";
    let mut facts = facts_of_image(&[], image, &[("linux", "amd64", "")]);
    let windows = ImageFacts::of(
        vec![ImageVariant::new("windows", "amd64", "")],
        jiff::Timestamp::UNIX_EPOCH,
    );
    facts
        .images
        .insert("corp.example/windows:1".to_owned(), Arc::new(windows));
    let of = |first: &str| {
        let over = json!({"nodeSelector": null, "containers": [{"name": "a", "image": first}, {"name": "b", "image": image}]});
        let found = on_image(&facts, &Policy::standalone(), &over);
        found.map(|(name, severity, _)| (name, severity))
    };
    let name = "image-has-no-windows-variant";
    assert_eq!(of("corp.example/windows:1"), Some((name, Severity::Error)));
    // Only a name says Windows.
    assert_eq!(
        of("mcr.microsoft.com/windows/servercore:ltsc2022"),
        Some((name, Severity::Warning))
    );
    // Nothing says Windows.
    assert_eq!(of("corp.example/other:1"), None);
}

#[test]
fn an_image_that_does_not_exist_denies_nothing() {
    let image = "corp.example/app:1";
    let mut facts = facts_of_image(&["10.0.20348.1"], image, &[]);
    let missing = ImageFacts {
        looked_up: "2026-01-01T12:34:56Z".parse().unwrap(),
        found: None,
    };
    facts.images.insert(image.to_owned(), Arc::new(missing));
    let over = json!({"containers": [{"name": "web", "image": image}]});
    let found = on_image(&facts, &Policy::standalone(), &over);
    let message =
        "its registry has no corp.example/app:1, or the credentials may not read it (2026-01-01T12:34Z)"
            .to_owned();
    assert_eq!(found, Some(("image-not-found", Severity::Warning, message)));
    let json = object(Kind::Pod, &spec(&over));
    let subject = Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap();
    assert_eq!(
        evaluate(&subject, &facts, &Policy::standalone())
            .denials()
            .count(),
        0
    );
}

/// Images are not evidence, by name or by registry; what is known of them still applies to a Windows pod.
#[test]
fn without_image_evidence_the_registry_does_not_decide_the_system() {
    let image = "corp.example/app:1";
    let facts = facts_of_image(&[], image, &[("windows", "amd64", "10.0.20348.1")]);
    let verdict = |evidence| {
        let policy = Policy {
            image_evidence: evidence,
            ..Policy::standalone()
        };
        let json = object(
            Kind::Pod,
            &spec(&json!({"nodeSelector": null, "containers": [{"name": "a", "image": image}]})),
        );
        let subject = Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap();
        evaluate(&subject, &facts, &policy).inference.verdict
    };
    assert_eq!(verdict(ImageEvidence::Disabled), Verdict::Unknown);
    assert_eq!(verdict(ImageEvidence::Names), Verdict::Windows);
    assert_eq!(verdict(ImageEvidence::Registry), Verdict::Windows);
}

#[test]
fn what_a_registry_has_means_nothing_to_a_container_that_never_pulls() {
    let image = "corp.example/app:1-ltsc2022";
    let facts = facts_of_image(&["10.0.20348.1"], image, &[("linux", "amd64", "")]);
    let found = |policy: &str| {
        let over = json!({"containers": [{"name": "web", "image": image, "imagePullPolicy": policy}]});
        on_image(&facts, &Policy::standalone(), &over).map(|(rule, ..)| rule)
    };
    assert_eq!(found("Always"), Some("image-has-no-windows-variant"));
    assert_eq!(found("IfNotPresent"), Some("image-has-no-windows-variant"));
    assert_eq!(found("Never"), None);
    let verdict = |policy: &str| {
        let over = json!({"os": null, "nodeSelector": null,
            "containers": [{"name": "web", "image": image, "imagePullPolicy": policy}]});
        let json = object(Kind::Pod, &spec(&over));
        let subject = Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap();
        evaluate(&subject, &facts, &Policy::standalone())
            .inference
            .verdict
    };
    assert_eq!(verdict("Always"), Verdict::Linux);
    assert_eq!(verdict("Never"), Verdict::Windows, "by its name");
}
