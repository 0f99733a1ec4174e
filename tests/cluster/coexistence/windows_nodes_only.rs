//! Templates that name Windows nodes and not Windows: they are stored with every field, and scan names them.

use serde_json::{Value, json};

use super::node_selectors::scan;
use super::place;
use crate::support::objects::workload;

const NAMESPACE: &str = "windows-nodes-only";

/// A Deployment that no pod is created for, with a field that Windows does not have and these requirements.
fn deployment(name: &str, more: &Value) -> Value {
    let mut spec = json!({"hostPID": true, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "web", "image": "registry.example.com/web:1"}]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    workload("Deployment", name, &spec, 0)
}

fn affinity(term: &Value) -> Value {
    let required = json!({"nodeSelectorTerms": [term]});
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
}

#[test]
fn scan_warns_of_a_template_that_only_windows_nodes_match() {
    let Some(place) = place() else { return };
    place.cluster.create_namespace(NAMESPACE, &[]);
    let host_names = |names: &[&str]| {
        let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": names});
        affinity(&json!({"matchExpressions": [expression]}))
    };
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["win-2019"]});
    // Not the label of a pool: the leader would record a pool of two builds, and other tests share the cluster.
    let label = ["label", "node", "win-2019", "win-2022-a", "machines=win19"];
    place.kubectl(&label).succeeded();
    for (name, requires) in [
        ("by-affinity", host_names(&["win-2019"])),
        ("by-field", affinity(&json!({"matchFields": [field]}))),
        (
            "by-host-name",
            json!({"nodeSelector": {"kubernetes.io/hostname": "win-2022-a"}}),
        ),
        ("by-name", json!({"nodeName": "win-2019"})),
        ("by-pool", json!({"nodeSelector": {"machines": "win19"}})),
        ("of-any-node", json!({})),
        ("of-both", host_names(&["win-2019", "linux-a"])),
        ("of-no-node", json!({"nodeSelector": {"machines": "none"}})),
    ] {
        let created = place.create(NAMESPACE, &deployment(name, &requires), &[]);
        created.succeeded();
    }
    let report = scan(place, NAMESPACE);
    place
        .kubectl(&["label", "node", "win-2019", "win-2022-a", "machines-"])
        .succeeded();
    let owners = report["owners"].as_array().unwrap().iter();
    let named: Vec<(&Value, &Value)> = owners
        .filter(|owner| owner["findings"][0]["rule"] == "windows-nodes-only")
        .map(|owner| (&owner["name"], &owner["decision"]))
        .collect();
    let expected = ["by-affinity", "by-field", "by-host-name", "by-name", "by-pool"].map(|name| json!(name));
    let allow = json!("allow");
    assert_eq!(
        named,
        expected.each_ref().map(|name| (name, &allow)),
        "{report:#}"
    );
}
