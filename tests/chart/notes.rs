//! What Helm prints after an installation: it is true of the values that it is printed for.

use serde_json::{Value, json};

use super::engine::engine;

/// These words stand in the notes of these values, and those do not.
fn cases() -> Vec<(Value, &'static [&'static str], &'static [&'static str])> {
    let built = json!({"registry": "mirror.example.com"});
    vec![
        // The placeholder of the chart is nobody's registry, by whichever value it came.
        (
            json!({}),
            &[
                "pods cannot start",
                "kubectl wait --for=condition=Ready wpp/default",
                "helm uninstall transom --namespace transom-system --no-hooks",
            ],
            &["is installed", "are refused from now on"],
        ),
        (
            json!({"global": {"imageRegistry": "registry.example.com"}}),
            &["pods cannot start"],
            &["is installed"],
        ),
        (
            json!({"image": built}),
            &["is installed", "This is refused when it does:"],
            &["pods cannot start", "--no-hooks"],
        ),
        (
            json!({"global": {"imageRegistry": "mirror.example.com"}}),
            &["is installed"],
            &["pods cannot start"],
        ),
        // Is it called? A refusal is promised only where one comes.
        (
            json!({"image": built, "policy": {"spec": {"mode": "Warn"}}}),
            &["answered with a warning when it does"],
            &["refused when"],
        ),
        (
            json!({"image": built, "policy": {"spec": {"mode": "Audit"}}}),
            &[
                "accepted without a word, because the mode is Audit",
                "transom_reviews_total",
                "| grep transom-test",
            ],
            &["refused when", "answered with"],
        ),
        (
            json!({"image": built, "policy": {"spec": {"validation": {"action": "Disabled"}}}}),
            &["because validation.action is Disabled"],
            &["refused when"],
        ),
        (
            json!({"image": built, "policy": {"create": false}}),
            &[
                "because nothing is denied without a policy",
                "| grep transom-test",
            ],
            &["refused when"],
        ),
        (
            json!({"policy": {"spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}}}}),
            &["(in a namespace that the policy selects)"],
            &[],
        ),
        (
            json!({"hostNetwork": true, "ports": {"webhook": 10260}}),
            &[
                "port 10260 of the nodes",
                "pod-security.kubernetes.io/enforce=privileged",
                "add-scc-to-user",
            ],
            &[],
        ),
    ]
}

#[test]
fn the_notes_promise_what_the_values_hold() {
    let Some(engine) = engine() else { return };
    for (values, said, not_said) in cases() {
        engine.ask("validate", json!({"values": values})).unwrap();
        let notes = engine.render(&values).unwrap().notes;
        for words in said {
            assert!(notes.contains(words), "{values}: {words}\n{notes}");
        }
        for words in not_said {
            assert!(!notes.contains(words), "{values}: {words}\n{notes}");
        }
    }
}
