//! A user of a namespace who may write reports there: what Transom reports comes back, whatever that user writes.

use serde_json::{Value, json};

use super::{OPEN, OPEN_REPORTS, POLICIES, Test, refusing, windows};
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::install::{self, Replica};

const MALLORY: [&str; 2] = ["--as", "mallory"];

/// The rights of an editor of reports in a namespace, as other report tools give them to its administrators.
fn may_write_reports(test: &Test, namespace: &str) {
    let verbs = "--verb=get,list,create,update,patch,delete";
    let resource = format!("--resource={OPEN}");
    let kubectl = |args: &[&str]| drop(test.cluster.kubectl(args).succeeded());
    kubectl(&["create", "role", "reports", verbs, &resource, "-n", namespace]);
    let role = "--role=reports";
    kubectl(&[
        "create",
        "rolebinding",
        "reports",
        role,
        "--user=mallory",
        "-n",
        namespace,
    ]);
}

#[test]
fn a_tenant_who_may_write_reports_falsifies_and_hides_none() {
    let Some(cluster) = ControlPlane::start_or_skip("tests/cluster/reports/forged.rs") else {
        return;
    };
    let test = Test { cluster };
    install::prepare(&test.cluster, POLICIES);
    for namespace in ["shop", "attackers"] {
        test.cluster.create_namespace(namespace, &[]);
    }
    test.define(OPEN, OPEN_REPORTS);
    may_write_reports(&test, "shop");
    may_write_reports(&test, "attackers");
    test.apply(&windows("stored", true).to_string());
    let one = Replica::start(&test.cluster, "one", &["--reports"]);
    install::register(&test.cluster, one.port, &[]);
    one.is_ready(&test.cluster);
    let is_true = |report: &Value| refusing(report)["result"] == "fail";
    let report = test.report(OPEN, "stored", is_true);
    let name = report["metadata"]["name"].as_str().unwrap().to_owned();
    let as_mallory = |args: &[&str], input: &Value| {
        let printed = test
            .cluster
            .kubectl_with(&[args, &MALLORY].concat(), &input.to_string());
        drop(printed.succeeded());
    };

    // The results are changed, and the annotation by which Transom knows them stays.
    let version = || test.report(OPEN, "stored", is_true)["metadata"]["resourceVersion"].clone();
    let before = version();
    let pass = json!({"results": [], "summary": {"fail": 0, "pass": 1}}).to_string();
    as_mallory(
        &["patch", OPEN, &name, "-n", "shop", "--type=merge", "-p", &pass],
        &Value::Null,
    );
    assert!(wait(super::PATIENCE, || version() != before), "{}", test.logs());
    test.report(OPEN, "stored", |report| {
        is_true(report) && report["summary"]["fail"] == 1
    });

    // Copies with another name, and in another namespace, stand in for it, and it is deleted.
    let copy = |namespace: &str, name: &str| {
        let mut copy = report.clone();
        let metadata = json!({"name": name, "namespace": namespace, "labels": report["metadata"]["labels"],
            "annotations": report["metadata"]["annotations"], "ownerReferences": report["metadata"]["ownerReferences"]});
        copy["metadata"] = metadata;
        copy["results"] = json!([]);
        copy["scope"] = Value::Null;
        copy
    };
    as_mallory(&["create", "-f", "-"], &copy("shop", "transom-copy"));
    as_mallory(&["create", "-f", "-"], &copy("attackers", &name));
    as_mallory(&["delete", OPEN, &name, "-n", "shop"], &Value::Null);
    test.report(OPEN, "stored", is_true);

    // A pod that names the owner of others: its findings stay.
    let owner = &report["metadata"]["ownerReferences"][0];
    let mut pod = windows("forged", true)["spec"]["template"].clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"] = json!({"name": "forged", "namespace": "shop", "ownerReferences": [
        {"apiVersion": "example.com/v1", "kind": "Thing", "name": "a", "uid": owner["uid"], "controller": true}]});
    test.apply(&pod.to_string());
    test.report(OPEN, "forged", is_true);
    test.report(OPEN, "stored", is_true);
}
