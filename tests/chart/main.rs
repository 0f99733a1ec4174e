//! The chart, by Helm's own engine and on a real API server. Without one of the two these tests say so, past the test
//! harness, and prove nothing.
#![cfg(unix)]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each binary of tests uses a part of it")]
mod support;

mod cel_values;
mod certificates;
mod cluster;
mod container;
mod documents;
mod engine;
mod escalation;
mod generated;
mod helm_test;
mod kubelet;
mod leaving;
mod live;
mod monitoring;
mod notes;
mod older;
mod packaging;
mod preflight;
mod prometheus;
mod puller;
mod quick_starts;
mod registries;
mod release;
mod rendered;
mod second_applier;
mod startup;
mod startup_alert;
mod trust;
mod used_rights;
mod values;

use std::fs;

use engine::engine;
use generated::{chart, is_up_to_date};
use serde_json::{Value, json};
use support::command::printed;

fn read(file: &str) -> String {
    fs::read_to_string(chart().join(file)).unwrap_or_else(|error| panic!("cannot read {file}: {error}"))
}

#[test]
fn what_the_chart_takes_from_the_code_is_what_the_code_says() {
    let file = |name: &str| chart().join(name);
    is_up_to_date(
        &file("files/webhooks.json"),
        &format!("{:#}\n", generated::webhooks()),
    );
    is_up_to_date(
        &file("files/node-writes.json"),
        &format!("{:#}\n", generated::node_writes()),
    );
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    is_up_to_date(
        &file("values.schema.json"),
        &generated::schema(&schema, &read("values.yaml")),
    );
    is_up_to_date(
        &file("README.md"),
        &generated::readme(&read("README.md"), &read("values.yaml")),
    );
}

#[test]
fn strict_lint_finds_nothing() {
    let Some(engine) = engine() else { return };
    for values in [
        json!({}),
        json!({"hooks": {"runner": "argocd"}, "certificates": {"mode": "cert-manager"}}),
    ] {
        for release in ["v1.30.0", "v1.36.0"] {
            let found = engine
                .request("lint", json!({"values": values, "kube_version": release}))
                .unwrap();
            assert_eq!(found["errors"], json!([]), "{found:#}");
            let messages = found["messages"].as_array().unwrap();
            let bad = messages.iter().filter(|it| it["severity"].as_u64() > Some(1));
            assert_eq!(bad.count(), 0, "{found:#}");
        }
    }
}

/// The configurations as `transom generate webhooks` prints them.
fn generated_webhooks(arguments: &[&str]) -> Vec<Value> {
    let generate = ["generate", "webhooks", "-o", "json"];
    let text = printed(&[&generate, arguments].concat());
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array().unwrap().clone()
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn the_webhook_configurations_are_those_of_the_program() {
    let Some(engine) = engine() else { return };
    let service = ["--service", "transom.transom-system"];
    let cases: &[(Value, &[&str])] = &[
        (json!({}), &[]),
        (
            json!({"webhooks": {"failurePolicy": "Fail"}}),
            &["--failure-policy", "Fail"],
        ),
        (
            json!({"webhooks": {"timeoutSeconds": 1}}),
            &["--timeout-seconds", "1"],
        ),
        (
            json!({"webhooks": {"excludedNamespaces": ["a", "kube-system", "b"]}}),
            &["--exclude-namespace", "a,kube-system,b"],
        ),
        (
            json!({"cluster": {"podTemplates": [
                {"group": "example.com", "kind": "GameServerSet", "path": "spec.template"},
                {"group": "example.org", "kind": "Proxy", "path": "spec.podSpec"},
            ]}}),
            &[],
        ),
        (
            json!({"cluster": {"nodeLabels": [
                {"key": "example.com/pool", "valuePrefixes": ["Win-", "Windows-"]},
                {"key": "kubernetes.azure.com/os-sku", "values": ["Odd_1.x", "Core"]},
                {"key": "zone", "values": ["windows"]},
                {"key": "kubernetes.io/os", "values": ["windows"]},
            ]}}),
            &[],
        ),
        (
            json!({
                "podPolicies": {"default": {"spec": {"placement": {"linuxPods": "Warn"}, "evidence": {"defaultOS": "Linux"}}}},
                "webhooks": {"defaultOS": {"namespaceSelector": {"matchExpressions": [
                    {"key": "team", "operator": "In", "values": ["a"]},
                ]}}},
            }),
            &["--linux-pods-selector", "", "--default-os-selector", "team=a"],
        ),
        (json!({"cluster": {"podNodeSelector": "Enabled"}}), &[]),
        (
            json!({"cluster": {"defaultNodeSelector": {"kubernetes.io/os": "windows"}}}),
            &[],
        ),
        (
            json!({
                "imageLookups": {"caConfigMap": {"name": "roots"}, "registries": [
                    "MCR.microsoft.com:443", "*.azurecr.io", "index.docker.io", "registry-1.docker.io", "docker.io", "docker.io:5000", "Registry.corp:5000",
                    "a.*.dkr.*.corp:5000", "10.0.0.5", "localhost:5000", "[fd00::5]:5000", "[FD00::5]", "mcr.microsoft.com",
                ]},
                "webhooks": {"failurePolicy": "Fail", "linuxPods": {"enabled": true}, "defaultOS": {"enabled": true}},
                "cluster": {"podNodeSelector": "Enabled"},
            }),
            &[
                "--image-registry",
                "MCR.microsoft.com:443,*.azurecr.io,index.docker.io,registry-1.docker.io,docker.io,docker.io:5000,Registry.corp:5000",
                "--image-registry",
                "a.*.dkr.*.corp:5000,10.0.0.5,localhost:5000,[fd00::5]:5000,[FD00::5],mcr.microsoft.com",
                "--failure-policy",
                "Fail",
                "--linux-pods-selector",
                "",
                "--default-os-selector",
                "",
            ],
        ),
        (
            json!({"imageLookups": {"caConfigMap": {"name": "roots"}, "registries": ["quay.io"]}}),
            &["--image-registry", "quay.io"],
        ),
    ];
    for (values, arguments) in cases {
        // The command line has no selector for every namespace; the chart has.
        let everywhere = arguments.contains(&"");
        let arguments: Vec<&str> = arguments
            .iter()
            .map(|it| if it.is_empty() { "x" } else { it })
            .collect();
        let rendered = engine.render(values).unwrap();
        // The same file gives the same entries and the same hash.
        let folder = tempfile::tempdir().unwrap();
        let facts = folder.path().join("cluster.yaml");
        let text = &rendered.object("ConfigMap", "transom-cluster")["data"]["cluster.yaml"];
        std::fs::write(&facts, text.as_str().unwrap()).unwrap();
        let facts = ["--cluster-config", facts.to_str().unwrap()];
        for mut expected in generated_webhooks(&[&service[..], &arguments[..], &facts].concat()) {
            if everywhere {
                for webhook in expected["webhooks"].as_array_mut().unwrap() {
                    let expressions = webhook["namespaceSelector"]["matchExpressions"].as_array_mut();
                    expressions.unwrap().retain(|it| it["key"] != "x");
                }
            }
            let kind = expected["kind"].as_str().unwrap();
            let made = rendered.object(kind, "zz-transom");
            assert_eq!(made["webhooks"], expected["webhooks"], "{kind} of {values}");
            assert_eq!(made["metadata"]["name"], expected["metadata"]["name"]);
            for part in ["labels", "annotations"] {
                for (key, value) in expected["metadata"][part].as_object().unwrap() {
                    assert_eq!(&made["metadata"][part][key], value, "{kind}: {key}");
                }
            }
        }
    }
}

/// What is wrong with these values, in the words that a user gets.
#[track_caller]
pub fn refusal(engine: &engine::Engine, values: &Value) -> String {
    let by_schema = engine.request("validate", json!({"values": values}));
    by_schema
        .and_then(|_| engine.render(values).map(|_| ()))
        .expect_err(&values.to_string())
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn nonsense_is_refused_and_the_refusal_names_the_value() {
    let Some(engine) = engine() else { return };
    let policy = |spec: Value| json!({"podPolicies": {"default": {"spec": spec}}});
    let node_policy = |spec: Value| json!({"nodePolicies": {"default": {"spec": spec}}});
    let many = |name: &str| -> Vec<String> { (0..40).map(|number| format!("{name}{number}")).collect() };
    let cases = [
        (
            json!({"replica": 3}),
            "additional properties 'replica' not allowed",
        ),
        (json!({"replicaCount": "two"}), "/replicaCount"),
        (json!({"replicaCount": 0}), "/replicaCount"),
        (json!({"runtimeClassName": "A B"}), "/runtimeClassName"),
        (
            json!({"extraObjects": [{"kind": "ConfigMap"}]}),
            "/extraObjects/0",
        ),
        (
            json!({"podDisruptionBudget": {"maxUnavailable": "0%"}}),
            "/podDisruptionBudget/maxUnavailable",
        ),
        (
            json!({"validation": "Audit"}),
            "additional properties 'validation' not allowed",
        ),
        (policy(json!({"mode": "Deny"})), "/podPolicies/default/spec/mode"),
        (json!({"mode": null}), "missing property 'mode'"),
        (json!({"mode": "Off"}), "/mode"),
        (
            policy(json!({"validation": {"action": false}})),
            "/podPolicies/default/spec/validation/action",
        ),
        (
            policy(json!({"validation": {"ignoredFields": "Off"}})),
            "/podPolicies/default/spec/validation/ignoredFields",
        ),
        (
            policy(json!({"placement": {"mode": "Deny"}})),
            "/podPolicies/default/spec/placement/mode",
        ),
        (json!({"image": {"digest": "latest"}}), "/image/digest"),
        (json!({"ports": {"webhook": 443}}), "/ports/webhook"),
        (json!({"listenAddress": "::"}), "/listenAddress"),
        (
            json!({"webhooks": {"failurePolicy": "fail"}}),
            "/webhooks/failurePolicy",
        ),
        (
            json!({"webhooks": {"timeoutSeconds": 30}}),
            "/webhooks/timeoutSeconds",
        ),
        (
            json!({"webhooks": {"failurePolicy": "Fail", "excludedNamespaces": []}}),
            "/webhooks/excludedNamespaces': minItems: got 0, want 1",
        ),
        (json!({"certificates": {"mode": "acme"}}), "/certificates/mode"),
        (json!({"hooks": {"runner": "flux"}}), "/hooks/runner"),
        (
            json!({"commonLabels": {"app.kubernetes.io/name": "x"}}),
            "invalid propertyName 'app.kubernetes.io/name'",
        ),
        (
            json!({"resources": {"limits": {"memory": "lots"}}}),
            "/resources/limits/memory",
        ),
        (json!({"shutdown": {"drainDelay": "5"}}), "/shutdown/drainDelay"),
        (
            policy(json!({"rules": {}})),
            "additional properties 'rules' not allowed",
        ),
        (
            policy(json!({"priorty": 1})),
            "additional properties 'priorty' not allowed",
        ),
        (
            policy(json!({"validation": {"rules": [{"name": "run-as-user", "action": "warn"}]}})),
            "/podPolicies/default/spec/validation/rules/0/action",
        ),
        (
            policy(json!({"validation": {"rules": [{"name": "run-as-usr", "action": "Warn"}]}})),
            "podPolicies.default.spec.validation.rules: unknown rule \"run-as-usr\"; `transom rules` lists them",
        ),
        (
            policy(
                json!({"exemptions": [{"name": "a", "rules": ["*", "TSM301"], "namespaces": ["a"], "expiresOn": "2027-01-01", "owner": "a", "reason": "b"}]}),
            ),
            "podPolicies.default.spec.exemptions[0].rules: unknown rule \"TSM301\"",
        ),
        (
            policy(
                json!({"exemptions": [{"name": "a", "rules": ["*"], "expiresOn": "2027-01-01", "reason": "b"}]}),
            ),
            "missing property 'owner'",
        ),
        (
            node_policy(json!({"taints": {"mode": "Enforce"}})),
            "/nodePolicies/default/spec/taints/mode",
        ),
        (
            node_policy(json!({"taints": {"required": [{"key": "os", "effect": "NoExecute"}]}})),
            "set nodePolicies.default.spec.taints.noExecute=Allowed",
        ),
        (
            json!({"cluster": {"nodeLabels": [{"key": "pool", "value": "win*"}]}}),
            "additional properties 'value' not allowed",
        ),
        (
            json!({"cluster": {"nodeLabels": [{"key": "a", "values": many("a")}, {"key": "b", "valuePrefixes": many("b")}]}}),
            "cluster.nodeLabels: there are 80 values and prefixes",
        ),
        // What becomes a part of a condition of the webhooks cannot end it.
        (
            json!({"cluster": {"nodeLabels": [{"key": "a/b"}]}}),
            "/cluster/nodeLabels/0",
        ),
        (
            json!({"cluster": {"nodeLabels": [{"key": "a'||true||'", "values": ["b"]}]}}),
            "/cluster/nodeLabels/0/key",
        ),
        (
            json!({"cluster": {"podTemplates": [{"group": "x.io' || true || '", "kind": "A", "path": "spec"}]}}),
            "/cluster/podTemplates/0/group",
        ),
        (
            json!({"cluster": {"podTemplates": [{"group": "x.io", "kind": "A'", "path": "spec"}]}}),
            "/cluster/podTemplates/0/kind",
        ),
        (
            json!({"cluster": {"podTemplates": [{"group": "x.io", "kind": "A", "path": "spec.a[0]"}]}}),
            "/cluster/podTemplates/0/path",
        ),
        (
            json!({"cluster": {"podTemplates": [{"group": "x.io", "kind": "A", "path": "spec", "resource": "a/b"}]}}),
            "/cluster/podTemplates/0/resource",
        ),
        (
            json!({"hostNetwork": true}),
            "ports.webhook: 10250 is the kubelet's port on the host network",
        ),
        (
            json!({"ports": {"health": 10250}}),
            "ports: webhook and health are both 10250",
        ),
        (
            json!({"certificates": {"mode": "provided"}}),
            "certificates.secretName: with",
        ),
        (
            json!({"serviceAccount": {"create": false}}),
            "serviceAccount.name: with",
        ),
        (
            json!({"probe": {"namespace": "calico-system"}}),
            "probe.namespace: the webhooks are not called for the namespace calico-system",
        ),
        (
            json!({"probe": {"enabled": true, "namespace": "other"}, "admissionPolicies": {"enabled": false}}),
            "probe.enabled: the right to create pods in probe.namespace is granted for dry runs only",
        ),
        (
            json!({"clientCertificates": {"required": true}}),
            "clientCertificates.caConfigMap.name: clientCertificates.required",
        ),
        (
            json!({"imageLookups": {"registries": ["https://quay.io"]}}),
            "/imageLookups/registries/0",
        ),
        (
            json!({"imageLookups": {"registries": ["app*.azurecr.io"]}}),
            "/imageLookups/registries/0",
        ),
        (
            json!({"imageLookups": {"registries": ["mcr.*"]}}),
            "/imageLookups/registries/0",
        ),
        (
            json!({"imageLookups": {"registries": ["quay.io", "quay.io"]}}),
            "/imageLookups/registries",
        ),
        (
            json!({"imageLookups": {"plainHTTP": ["*.corp:80"]}}),
            "/imageLookups/plainHTTP/0",
        ),
        (
            json!({"imageLookups": {"pullSecretNamespaces": [""]}}),
            "/imageLookups/pullSecretNamespaces/0",
        ),
        (
            json!({"imageLookups": {"pullSecretNamespaces": ["*"]}}),
            "/imageLookups/pullSecretNamespaces/0",
        ),
        (
            json!({"imageLookups": {"pullSecret": "a/b"}}),
            "/imageLookups/pullSecret",
        ),
    ];
    for (values, words) in cases {
        let refusal = refusal(engine, &values);
        assert!(refusal.contains(words), "{values}\n{refusal}");
    }
}

#[test]
fn one_mode_decides_what_the_installation_writes_and_explicit_modes_win() {
    let Some(engine) = engine() else { return };
    let mode = |mode: &str| json!({"mode": mode});
    let set = |mode: &str, spec: Value| json!({"mode": mode, "nodePolicies": {"default": {"spec": spec}}});
    let labels_only = json!({"mode": "Reconcile", "taints": {"mode": "Audit"}});
    for (values, of_pods, of_nodes) in [
        (json!({}), "Enforce", mode("Reconcile")),
        (mode("Enforce"), "Enforce", mode("Reconcile")),
        (mode("Warn"), "Warn", labels_only.clone()),
        (mode("Audit"), "Audit", mode("Audit")),
        // Values that are set win.
        (
            json!({"mode": "Audit", "podPolicies": {"default": {"spec": {"mode": "Warn"}}}}),
            "Warn",
            mode("Audit"),
        ),
        (set("Warn", mode("Reconcile")), "Warn", mode("Reconcile")),
        (
            set("Enforce", json!({"taints": {"mode": "Audit"}})),
            "Enforce",
            labels_only,
        ),
        (
            set("Audit", json!({"labels": {"kubelet": {"mode": "Reconcile"}}})),
            "Audit",
            json!({"mode": "Audit", "labels": {"kubelet": {"mode": "Reconcile"}}}),
        ),
    ] {
        engine.request("validate", json!({"values": values})).unwrap();
        let rendered = engine.render(&values).unwrap();
        let spec = &rendered.object("WindowsPodPolicy", "default")["spec"];
        assert_eq!(*spec, json!({"mode": of_pods}), "{values}");
        let spec = &rendered.object("WindowsNodePolicy", "default")["spec"];
        assert_eq!(*spec, of_nodes, "{values}");
    }
    // What else the values say of taints stays.
    let required = json!([{"key": "os", "value": "Windows"}]);
    let values = json!({"nodePolicies": {"default": {"spec": {"taints": {"required": required}}}}});
    let rendered = engine.render(&values).unwrap();
    assert_eq!(
        rendered.object("WindowsNodePolicy", "default")["spec"],
        json!({"mode": "Reconcile", "taints": {"required": required}})
    );
    // With no platform's values does an installation that only audits write anything but its own objects.
    for platform in ["aks", "bare-metal", "eks", "gke", "openshift", "rancher"] {
        let mut values = generated::values(&read(&format!("platforms/{platform}.yaml")));
        values["mode"] = json!("Audit");
        let rendered = engine.render(&values).unwrap();
        let spec = rendered.object("WindowsNodePolicy", "default")["spec"].to_string();
        assert!(!spec.contains("Reconcile"), "{platform}: {spec}");
        let role = rendered.object("ClusterRole", "transom").to_string();
        assert!(!role.contains("\"nodes/status\""), "{platform}");
    }
}

#[test]
fn alerts_and_dashboard_use_metrics_that_are_documented() {
    let Some(engine) = engine() else { return };
    let values = json!({"metrics": {"prometheusRule": {"enabled": true, "job": "transom"}, "dashboard": {"enabled": true}}});
    let rendered = engine.render(&values).unwrap();
    let rules = rendered.object("PrometheusRule", "transom").to_string();
    let dashboard = rendered.object("ConfigMap", "transom-dashboard")["data"]["transom.json"].clone();
    let dashboard: Value = serde_json::from_str(dashboard.as_str().unwrap()).unwrap();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let documented = fs::read_to_string(root.join("docs/reference/metrics.md")).unwrap();
    let mut seen = 0;
    for text in [rules, dashboard["panels"].to_string()] {
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            if word.starts_with("transom_") {
                seen += 1;
                let of_histogram = ["_bucket", "_count", "_sum"];
                let metric = of_histogram.iter().find_map(|end| word.strip_suffix(end));
                let metric = metric
                    .filter(|metric| documented.contains(metric))
                    .unwrap_or(word);
                assert!(
                    documented.contains(metric),
                    "docs/reference/metrics.md does not know {word}"
                );
            }
        }
    }
    assert!(seen > 10, "only {seen} metrics were found");
}

#[test]
fn tracing_that_cannot_work_is_refused() {
    let Some(engine) = engine() else { return };
    let cases = [
        (
            json!({"tracing": {"endpoint": "collector:4318"}}),
            "/tracing/endpoint",
        ),
        (
            json!({"tracing": {"endpoint": "http://user:password@collector:4318"}}),
            "/tracing/endpoint",
        ),
        (json!({"tracing": {"ratio": 1.5}}), "/tracing/ratio"),
    ];
    for (values, words) in cases {
        let refusal = refusal(engine, &values);
        assert!(refusal.contains(words), "{values}\n{refusal}");
    }
}

#[test]
fn tracing_is_off_until_there_is_an_endpoint_and_then_says_what_the_program_understands() {
    let Some(engine) = engine() else { return };
    let container = |values: &Value| {
        let rendered = engine.render(values).unwrap();
        rendered.object("Deployment", "transom")["spec"]["template"]["spec"]["containers"][0].clone()
    };
    let variables = |container: &Value| -> Vec<Value> {
        let mut all = container["env"].as_array().unwrap().clone();
        all.retain(|it| it["name"].as_str().unwrap().starts_with("OTEL_"));
        all
    };
    let idle = json!({"tracing": {"ratio": 1}});
    for off in [json!({}), idle] {
        let container = container(&off);
        assert!(variables(&container).is_empty(), "{container}");
    }

    let headers = json!({"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": {"secretKeyRef": {"name": "collector", "key": "headers"}}});
    let values = json!({"tracing": {"endpoint": "https://collector.observability:4318", "ratio": 0.01}, "extraEnv": [headers]});
    let container = container(&values);
    let variables = variables(&container);
    assert_eq!(
        json!(variables),
        json!([
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "https://collector.observability:4318"},
            {"name": "OTEL_TRACES_SAMPLER_ARG", "value": "0.01"},
            {"name": "OTEL_RESOURCE_ATTRIBUTES",
             "value": "k8s.namespace.name=$(TRANSOM_NAMESPACE),k8s.pod.name=$(TRANSOM_IDENTITY)"},
            headers,
        ])
    );

    // The kubelet puts a variable in where it was defined before.
    let names: Vec<&str> = (container["env"].as_array().unwrap().iter())
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    let at = |name: &str| names.iter().position(|it| *it == name).unwrap();
    assert!(at("TRANSOM_NAMESPACE").max(at("TRANSOM_IDENTITY")) < at("OTEL_RESOURCE_ATTRIBUTES"));
    let help = printed(&["serve", "--help"]);
    for variable in &variables {
        let name = variable["name"].as_str().unwrap();
        assert!(
            help.contains(&format!("[env: {name}")),
            "transom serve does not know {name}:\n{help}"
        );
    }
}
