//! What Helm prints after an installation: short, and true of the values that it is printed for.

use serde_json::{Value, json};

use super::cluster::matrix;
use super::engine::engine;

/// These words are in the notes of these values, and those are not.
fn cases() -> Vec<(Value, &'static [&'static str], &'static [&'static str])> {
    vec![
        (
            json!({}),
            &[
                "Transom 0.1.0 is installed in the namespace transom-system.",
                "The WindowsPodPolicy default has mode Enforce.",
                "The WindowsNodePolicy default has mode Reconcile: the leader writes labels and taints to 0 Windows nodes.",
                "are denied; running pods stay",
                "all pods are admitted (webhooks.failurePolicy=Ignore)",
                "transom preflight",
                "kubectl -n transom-system rollout status deployment/transom",
                "helm test transom -n transom-system",
                "transom generate break-glass | kubectl apply -f -",
            ],
            &["uninstall", "Host network", "rbac.create", "Fix them", "docs/"],
        ),
        (
            json!({"documentation": {"baseURL": "https://git.example.com/docs/"}}),
            &["All steps: https://git.example.com/docs/how-to/operations.md"],
            &[],
        ),
        (
            json!({"mode": "Audit"}),
            &[
                "The WindowsPodPolicy default has mode Audit.",
                "The WindowsNodePolicy default has mode Audit: the leader writes nothing to 0 Windows nodes.",
                "Transom only records, and changes nothing but its own objects.",
                "then set mode=Enforce",
            ],
            &["are denied"],
        ),
        (
            json!({"mode": "Audit", "nodePolicies": {"default": {"spec": {"labels": {"kubelet": {"mode": "Reconcile"}}}}}}),
            &[
                "The WindowsPodPolicy default has mode Audit.",
                "has mode Audit: the leader writes labels to",
            ],
            &["nothing but its own objects"],
        ),
        (
            json!({"podPolicies": {"default": {"create": false}}}),
            &["without one Transom denies and changes nothing"],
            &["The WindowsPodPolicy default"],
        ),
        (
            json!({"webhooks": {"failurePolicy": "Fail"}}),
            &["certain Windows pods are denied (webhooks.failurePolicy=Fail)"],
            &["all pods are admitted", "narrow"],
        ),
        (json!({"replicaCount": 1}), &["while the pod restarts"], &[]),
        (
            json!({"hooks": {"runner": "none"}}),
            &[
                "transom uninstall --transom-namespace transom-system --name transom --lease transom --certificate-secret \
                 transom-certificates",
            ],
            // Its Job is a hook too.
            &["helm test", "--keep"],
        ),
        (
            json!({"hooks": {"runner": "none"}, "uninstall": {"keepTaints": true, "keepNodeLabels": true, "keepRuntimeClasses": true}}),
            &[
                "--certificate-secret transom-certificates --keep-node-labels --keep-runtime-classes --keep-taints   # before",
            ],
            &[],
        ),
        (
            json!({"admissionPolicies": {"enabled": false}}),
            &[],
            &["helm test"],
        ),
        (
            json!({"hostNetwork": true, "ports": {"webhook": 10260}}),
            &["port 10260 of the nodes"],
            &[],
        ),
        (
            json!({"rbac": {"create": false}}),
            &["rbac.create=false: grant rights"],
            &[],
        ),
    ]
}

#[test]
fn the_notes_promise_what_the_values_hold() {
    let Some(engine) = engine() else { return };
    for (values, present, absent) in cases() {
        engine.request("validate", json!({"values": values})).unwrap();
        let notes = engine.render(&values).unwrap().notes;
        for words in present {
            assert!(notes.contains(words), "{values}: {words}\n{notes}");
        }
        for words in absent {
            assert!(!notes.contains(words), "{values}: {words}\n{notes}");
        }
    }
}

#[test]
fn the_notes_fit_fifteen_lines_whatever_the_values() {
    let Some(engine) = engine() else { return };
    // Everything that adds a line.
    let longest = json!({
        "hostNetwork": true, "ports": {"webhook": 10260}, "replicaCount": 1, "rbac": {"create": false},
        "webhooks": {"failurePolicy": "Fail"}, "podPolicies": {"default": {"spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}}}},
    });
    for values in matrix().into_iter().chain([longest]) {
        let notes = engine.render(&values).unwrap().notes;
        let lines = notes.trim().lines().count();
        assert!(lines <= 15, "{lines} lines of {values}\n{notes}");
        assert!(!notes.contains("\n\n\n"), "{values}\n{notes}");
    }
}

#[test]
fn denials_link_to_the_documentation() {
    let Some(engine) = engine() else { return };
    let url = |values: &Value| {
        let rendered = engine.render(values).unwrap();
        let deployment = rendered.object("Deployment", "transom");
        let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].clone();
        let mut variables = variables.as_array().unwrap().clone().into_iter();
        variables.find(|variable| variable["name"] == json!("TRANSOM_DOCUMENTATION_BASE_URL"))
    };
    let published = json!({"documentation": {"baseURL": "https://transom.example.com/docs"}});
    assert_eq!(
        url(&published).unwrap()["value"],
        "https://transom.example.com/docs"
    );
    assert!(url(&json!({})).is_none());
}
