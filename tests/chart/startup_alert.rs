//! The alert for new nodes that get no pods, evaluated by promtool over time.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::engine::engine;
use super::prometheus::is_installed;
use crate::support::skipped::skipped;

const ALERT: &str = "TransomNewNodesBlocked";
const OF_A_TARGET: &str = "job=\"transom-metrics\",namespace=\"transom-system\"";

/// A series that is constant for ten minutes.
fn series(metric: &str, labels: &str, value: u32) -> Value {
    json!({"series": format!("{metric}{{{labels}}}"), "values": format!("{value}x10")})
}

/// The metrics of one replica.
fn replica(leads: u32, blocked: u32) -> Vec<Value> {
    let state = format!("{OF_A_TARGET},state=\"blocked\"");
    vec![
        series("transom_leader", OF_A_TARGET, leads),
        series("transom_startup_nodes", &state, blocked),
    ]
}

#[test]
fn blocked_nodes_of_the_startup_gate_alert_with_and_without_a_leader() {
    let Some(engine) = engine() else { return };
    if !is_installed() {
        skipped("SKIPPED: the alert for new nodes: there is no promtool");
        return;
    }
    let values =
        json!({"metrics": {"serviceMonitor": {"enabled": true}, "prometheusRule": {"enabled": true}}});
    let rendered = engine.render(&values).unwrap();
    let groups = &rendered.object("PrometheusRule", "transom")["spec"]["groups"];
    let rules = groups[0]["rules"].as_array().unwrap();
    let rule = rules.iter().find(|rule| rule["alert"] == ALERT).unwrap();
    let startup = "node=\"w\",key=\"startup-taint.cluster-autoscaler.kubernetes.io/transom\"";
    let tainted = || series("kube_node_spec_taint", startup, 1);
    let cases = [
        ("a leader works", [replica(1, 0), vec![tainted()]].concat(), None),
        (
            "the API server refuses the leader's writes",
            [replica(1, 2), vec![tainted()]].concat(),
            Some(2),
        ),
        ("the same without kube-state-metrics", replica(1, 2), Some(2)),
        (
            "no replica leads",
            [replica(0, 0), vec![tainted()]].concat(),
            Some(1),
        ),
        ("no replica is scraped", vec![tainted()], Some(1)),
        ("no node is new", replica(0, 0), None),
    ];
    let tests = cases.map(|(name, input, nodes)| {
        let expected = nodes.map(|nodes: u32| {
            let annotations = rule["annotations"].to_string();
            let annotations = annotations.replace("{{ $value }}", &nodes.to_string());
            let annotations: Value = serde_json::from_str(&annotations).unwrap();
            json!({"exp_labels": rule["labels"], "exp_annotations": annotations})
        });
        let expected: Vec<Value> = expected.into_iter().collect();
        json!({"name": name, "interval": "1m", "input_series": input, "alert_rule_test": [
            {"eval_time": "4m", "alertname": ALERT, "exp_alerts": []},
            {"eval_time": "6m", "alertname": ALERT, "exp_alerts": expected}]})
    });
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: Value| fs::write(folder.path().join(name), content.to_string());
    write("rules.json", json!({"groups": groups})).unwrap();
    // JSON is YAML.
    let tests = json!({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests});
    write("tests.json", tests).unwrap();
    let tested = Command::new("promtool")
        .args(["test", "rules", "tests.json"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&tested.stdout);
    let errors = String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{output}{errors}");
}
