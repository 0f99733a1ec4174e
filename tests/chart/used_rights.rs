//! The rights of the chart's account beside those that it uses, by the audit log of the API server: a release with everything
//! that can be enabled, and what makes it read, write, write again after a conflict, and clean up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::engine::engine;
use super::leaving::{self, CLASS, untainted};
use super::release::{NAMESPACE, World, windows_pod};
use super::trust::ACCOUNT;
use crate::support::control_plane::wait;
use crate::support::pulling_kubelet::STARTUP;

/// A right: group, resource with its subresource, and verb.
type Right = (String, String, String);

const LARGE: &str = "for an object of more than 256 KiB; here, a Deployment is one";
const UNDEFINED: &str = "where the kind is defined";

/// The rights that no request of this test needs: the group, the resources and verbs (`*`: all), and when they are used.
const ELSEWHERE: [(&str, &[&str], &[&str], &str); 15] = [
    (
        "",
        &["pods", "podtemplates", "replicationcontrollers"],
        &["get"],
        LARGE,
    ),
    (
        "apps",
        &["daemonsets", "replicasets", "statefulsets"],
        &["get"],
        LARGE,
    ),
    ("batch", &["cronjobs", "jobs"], &["get"], LARGE),
    ("networking.k8s.io", &["networkpolicies"], &["get"], LARGE),
    ("actions.github.com", &["*"], &["*"], UNDEFINED),
    ("agones.dev", &["*"], &["*"], UNDEFINED),
    ("apps.kruise.io", &["*"], &["*"], UNDEFINED),
    ("argoproj.io", &["*"], &["*"], UNDEFINED),
    ("keda.sh", &["*"], &["*"], UNDEFINED),
    ("serving.knative.dev", &["*"], &["*"], UNDEFINED),
    ("tekton.dev", &["*"], &["*"], UNDEFINED),
    ("wgpolicyk8s.io", &["*"], &["*"], UNDEFINED),
    ("config.openshift.io", &["schedulers"], &["get"], "on OpenShift"),
    (
        "transom.dev",
        &["windowsnodepools"],
        &["delete"],
        "when a recorded pool has had no node for months",
    ),
    (
        "events.k8s.io",
        &["events"],
        &["patch"],
        "when the same happens again within minutes",
    ),
];

/// The requests of the account that the API server did not refuse.
fn used(world: &World) -> BTreeSet<Right> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut used = BTreeSet::new();
    for event in world.cluster.audit_events() {
        let code = &event["responseStatus"]["code"];
        if event["user"]["username"] != ACCOUNT || *code == 403 {
            continue;
        }
        let object = &event["objectRef"];
        let mut resource = text(&object["resource"]);
        if let Some(part) = object["subresource"].as_str() {
            resource = format!("{resource}/{part}");
        }
        let right = |verb: &str| (text(&object["apiGroup"]), resource.clone(), verb.to_owned());
        let verb = text(&event["verb"]);
        // Server-side apply of an object that does not exist needs both rights.
        if verb == "patch" && *code == 201 {
            used.insert(right("create"));
        }
        used.insert(right(&verb));
    }
    used
}

/// What the roles of the release grant its account.
fn granted(world: &World) -> BTreeSet<Right> {
    let mut roles = vec![world.get("clusterrole", "transom")];
    for (namespace, name) in [
        (NAMESPACE, "transom"),
        ("default", "transom-events"),
        (NAMESPACE, "transom-image-puller"),
        ("apps", "transom-probe"),
    ] {
        let role = ["get", "role", name, "-n", namespace, "-o", "json"];
        roles.push(world.cluster.kubectl(&role).succeeded().object());
    }
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().unwrap().iter();
        list.map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let mut all = BTreeSet::new();
    for rule in roles.iter().flat_map(|role| role["rules"].as_array().unwrap()) {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                let verbs = texts(&rule["verbs"]).into_iter();
                all.extend(verbs.map(|verb| (group.clone(), resource.clone(), verb)));
            }
        }
    }
    all
}

/// What is granted, not used, and not used elsewhere either, as verbs by group and resource.
fn unused(world: &World) -> BTreeMap<(String, String), Vec<String>> {
    let has = |list: &[&str], text: &str| list.contains(&"*") || list.contains(&text);
    let mut unused = BTreeMap::<_, Vec<String>>::new();
    for (group, resource, verb) in granted(world).difference(&used(world)) {
        let is_elsewhere = |(of, resources, verbs, _): &(&str, &[&str], &[&str], &str)| {
            of == group && has(resources, resource) && has(verbs, verb)
        };
        if !ELSEWHERE.iter().any(is_elsewhere) {
            let of = (group.clone(), resource.clone());
            unused.entry(of).or_default().push(verb.clone());
        }
    }
    unused
}

/// A Deployment that is denied, of at least so many bytes.
fn deployment(name: &str, bytes: usize) -> Value {
    let mut spec = windows_pod("x")["spec"].clone();
    spec["hostPID"] = json!(true);
    spec["containers"][0]["args"] = json!(["x".repeat(bytes)]);
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "apps"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec}}})
}

/// Installs everything that can be enabled, beside stored workloads with findings.
fn install(world: &World, engine: &super::engine::Engine) {
    let definitions = include_str!("../reports/openreports.yaml");
    world
        .cluster
        .kubectl_with(&["create", "-f", "-"], definitions)
        .succeeded();
    for (name, bytes) in [("small", 0), ("large", 300_000)] {
        world.create(&deployment(name, bytes));
    }
    let startup = json!({"puller": "Pods", "timeoutSeconds": 30, "imageSource": "Listed", "images": ["registry.example/a:1"]});
    let values = json!({
        "reports": {"enabled": true}, "probe": {"enabled": true, "namespace": "apps"}, "rbac": {"runtimeClasses": true},
        "nodeStartup": {"admissionPolicy": {"enabled": true}, "imagePuller": {"enabled": true}},
        "nodePolicies": {"default": {"spec": {"taints": {"mode": "Reconcile"}, "runtimeClasses": {"mode": "Reconcile"}, "startup": startup}}},
    });
    leaving::install(world, engine, &values);
}

#[test]
fn the_account_has_no_right_that_it_never_uses() {
    let Some(engine) = engine() else { return };
    let Some(world) = World::start(
        "that each right is used (tests/chart/used_rights.rs)",
        &untainted(),
    ) else {
        return;
    };
    install(&world, engine);
    let patch = |object: &[&str], patch: &Value| {
        let patch = patch.to_string();
        let arguments = [&["patch", "--type=merge", "-p", &patch], object].concat();
        world.cluster.kubectl(&arguments).succeeded();
    };

    // Three versions of a policy: the first one is forgotten.
    for mode in ["Warn", "Audit", "Enforce"] {
        patch(&["wpp", "default"], &json!({"spec": {"mode": mode}}));
        std::thread::sleep(Duration::from_secs(3));
    }
    // A new node, whose images are pulled.
    let mut node = untainted();
    node["metadata"]["name"] = json!("win-2");
    node["spec"]["taints"] = json!([{"key": STARTUP, "effect": "NoSchedule"}]);
    world.create(&node);
    let mut ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    ready["status"]["nodeInfo"] = node["status"]["nodeInfo"].clone();
    patch(&["node", "win-2", "--subresource=status"], &ready);
    // Another client changes what Transom writes, until it is faster than Transom.
    let removed = "transom.dev.node-restriction.kubernetes.io/windows-build-";
    let has_conflict = || {
        for at in 0..20 {
            let other = format!("team=t{at}");
            world
                .cluster
                .kubectl(&["label", "node", "win-1", removed, &other, "--overwrite"]);
        }
        used(&world).contains(&(String::new(), "nodes".to_owned(), "get".to_owned()))
    };
    assert!(wait(Duration::from_secs(120), has_conflict), "no conflict");
    // A RuntimeClass that was changed, a damaged Secret, and a workload that is no longer for Windows.
    patch(
        &["runtimeclass", CLASS],
        &json!({"scheduling": {"tolerations": []}}),
    );
    patch(
        &["secret", "transom-certificates", "-n", NAMESPACE],
        &json!({"data": {"tls.crt": ""}}),
    );
    let linux = json!({"kubernetes.io/os": "linux"});
    patch(
        &["deployment", "small", "-n", "apps"],
        &json!({"spec": {"template": {"spec": {"nodeSelector": linux}}}}),
    );
    let is_class_corrected = || {
        used(&world).contains(&(
            "node.k8s.io".to_owned(),
            "runtimeclasses".to_owned(),
            "patch".to_owned(),
        ))
    };
    assert!(
        wait(Duration::from_secs(60), is_class_corrected),
        "no class is corrected"
    );
    patch(
        &["wnp", "default"],
        &json!({"spec": {"runtimeClasses": {"mode": "Disabled"}}}),
    );

    wait(Duration::from_secs(120), || unused(&world).is_empty());
    let unused = unused(&world);
    assert!(unused.is_empty(), "{unused:#?}\n{}", world.kubelet.logs());
}
