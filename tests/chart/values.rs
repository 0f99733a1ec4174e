//! Values that would break an installation in one way or another: each is refused by name, before anything is made.

use serde_json::{Value, json};

use super::engine::engine;
use super::generated::{self, MAY_BE_NULL};
use super::{read, refusal};

/// Every value of the chart by its path; those that hold others stand before them.
fn paths(values: &Value, path: &str, out: &mut Vec<String>) {
    for (name, value) in values.as_object().into_iter().flatten() {
        // Below these stands what Kubernetes or a policy names, not the chart.
        let free = [
            "nodePolicies.default",
            "podPolicies.default",
            "nodeSelector",
            "podSecurityContext",
            "securityContext",
        ];
        let below = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let leaf = free.contains(&below.as_str())
            || below.starts_with("resources.")
            || below.starts_with("hooks.resources.")
            || below.ends_with("labels");
        out.push(below.clone());
        if !leaf {
            paths(value, &below, out);
        }
    }
}

/// These values alone: `a.b` with a value.
fn only(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |inner, name| json!({ name: inner }))
}

#[test]
fn null_is_refused_by_name_or_takes_a_value_away() {
    let Some(engine) = engine() else { return };
    let mut all = Vec::new();
    paths(&generated::values(&read("values.yaml")), "", &mut all);
    assert!(all.len() > 100, "{all:?}");
    for path in &all {
        let values = only(path, Value::Null);
        if MAY_BE_NULL.contains(&path.as_str()) {
            engine.request("validate", json!({"values": values})).unwrap();
            engine.render(&values).unwrap();
            continue;
        }
        let name = path.rsplit('.').next().unwrap();
        let refusal = refusal(engine, &values);
        assert!(
            refusal.contains("missing propert") && refusal.contains(&format!("'{name}'")),
            "{path}: {refusal}"
        );
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn what_would_only_fail_in_the_cluster_is_refused_before() {
    let Some(engine) = engine() else { return };
    let memory = |limit: &str| json!({"resources": {"limits": {"memory": limit}}});
    let images = |more: Value| {
        let mut images = json!({"registries": ["quay.io"], "caConfigMap": {"name": "roots"}});
        for (name, value) in more.as_object().unwrap() {
            images[name] = value.clone();
        }
        json!({ "imageLookups": images })
    };
    let cert_manager = |more: Value| json!({"certificates": {"mode": "cert-manager", "certManager": more}});
    let cases = [
        (
            json!({"server": {"limits": {"maxBytesInFlight": "1B"}}}),
            "server.limits.maxBytesInFlight: 1B is less than 24MiB",
        ),
        (
            json!({"server": {"limits": {"maxBytesInFlight": "4GiB"}}}),
            "resources.limits.memory: 512Mi is less than eight times server.limits.maxBytesInFlight (4GiB)",
        ),
        (
            memory("64Mi"),
            "resources.limits.memory: 64Mi is less than eight times",
        ),
        (memory("0..5"), "/resources/limits/memory"),
        (memory("256mi"), "/resources/limits/memory"),
        (
            json!({"shutdown": {"terminationGracePeriodSeconds": 5}}),
            "shutdown.terminationGracePeriodSeconds: 5 is no longer than drainDelay and drainTimeout together (30 s)",
        ),
        (json!({"shutdown": {"drainTimeout": "40s"}}), "together (45 s)"),
        (
            cert_manager(json!({"duration": "0s"})),
            "certificates.certManager.duration: 0s",
        ),
        (
            cert_manager(json!({"duration": "700h"})),
            "certificates.certManager.renewBefore: 720h must be",
        ),
        (
            cert_manager(json!({"issuerRef": {"kind": "Issuer"}})),
            "missing property 'name'",
        ),
        (
            json!({"podPolicies": {"default": {"spec": {"exemptions": [{"name": "a", "rules": ["*"], "namespaces": ["a"], "expiresOn": "2027-02-30", "owner": "a", "reason": "b"}]}}}}),
            "'2027-02-30' is not valid date",
        ),
        (
            json!({"server": {"log": {"filter": "foo=bar=baz"}}}),
            "/server/log/filter",
        ),
        (
            images(json!({"registries": ["*.0.0.1"]})),
            "imageLookups.registries: *.0.0.1 has a * in an address; list each address",
        ),
        (
            images(json!({"registries": ["*.localhost:5000"]})),
            "imageLookups.registries: *.localhost:5000 has a * in an address",
        ),
        (
            images(json!({"registries": ["registry"]})),
            "write docker.io, or the port, as in registry:5000",
        ),
        (
            images(
                json!({"registries": (0..64).map(|n| format!("{n:02}{}.example.com", "a".repeat(60))).collect::<Vec<_>>()}),
            ),
            "imageLookups.registries: they have 4736 characters together, and the maximum is 4096",
        ),
        (
            images(json!({"pullSecretNamespaces": ["shop", "kube-system"]})),
            "imageLookups.pullSecretNamespaces: the webhooks are never called for kube-system",
        ),
        (
            images(json!({"pullSecretNamespaces": ["transom-system"]})),
            "imageLookups.pullSecretNamespaces: transom-system is Transom's own namespace; name its Secret with imageLookups.pullSecret",
        ),
        (
            images(json!({"pullSecretNamespaces": ["calico-system"]})),
            "imageLookups.pullSecretNamespaces: the webhooks are not called for the namespace calico-system",
        ),
        (
            json!({"imageLookups": {"pullSecret": "pull"}}),
            "imageLookups.pullSecret: it has no effect, because imageLookups.registries is empty",
        ),
        (
            json!({"imageLookups": {"pullSecretNamespaces": ["shop"]}}),
            "imageLookups.pullSecretNamespaces: it has no effect",
        ),
        (
            json!({"imageLookups": {"plainHTTP": ["registry.corp:5000"]}}),
            "imageLookups.plainHTTP: it has no effect",
        ),
        (
            images(json!({"plainHTTP": ["registry.corp:5000"]})),
            "imageLookups.plainHTTP: registry.corp:5000 is not in imageLookups.registries",
        ),
        (
            json!({"podPolicies": {"default": {"spec": {"exemptions": [
                {"name": "a", "rules": ["*"], "namespaces": ["a"], "expiresOn": "2027-02-28", "owner": "a", "reason": "b"},
                {"name": "a", "rules": ["*"], "namespaces": ["b"], "expiresOn": "2027-02-28", "owner": "a", "reason": "b"}]}}}}),
            "podPolicies.default.spec.exemptions[1].name: there are two exemptions with the name a",
        ),
        (
            json!({"mode": "Audit", "podPolicies": {"default": {"spec": {"evidence": {"imageEvidence": "Registry"}}}}}),
            "podPolicies.default.spec.evidence.imageEvidence: Registry has no effect, because imageLookups.registries is empty",
        ),
        (
            json!({"server": {"log": {"filter": "foo=loud"}}}),
            "/server/log/filter",
        ),
        (json!({"listenAddress": "999.1.1.1"}), "/listenAddress"),
        (json!({"listenAddress": "[:::]"}), "/listenAddress"),
        (json!({"image": {"registry": "https://x/"}}), "/image/registry"),
        (json!({"image": {"repository": "Foo Bar"}}), "/image/repository"),
        (
            json!({"image": {"registry": ""}}),
            "image.registry: it is empty, and docker.io has no image of Transom",
        ),
        (
            json!({"image": {"registry": "registry.example.com"}}),
            "image.registry: registry.example.com is a placeholder",
        ),
        (
            json!({"global": {"imageRegistry": "registry.example.com/mirror"}}),
            "name that registry: --set image.registry=REGISTRY",
        ),
        (
            json!({"nodeSelector": {"kubernetes.io/os": "windows"}}),
            "nodeSelector: kubernetes.io/os=windows selects no Linux node",
        ),
        (
            json!({"nodeSelector": {"beta.kubernetes.io/os": "Windows"}}),
            "nodeSelector: beta.kubernetes.io/os=Windows selects no Linux node",
        ),
        (
            json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}}),
            "nodeSelector: node.kubernetes.io/windows-build=10.0.20348 selects Windows nodes",
        ),
        (
            json!({"nodeSelector": {"kubernetes.azure.com/os-sku": "Windows2022"}}),
            "nodeSelector: kubernetes.azure.com/os-sku=Windows2022 selects Windows nodes",
        ),
        (
            json!({"nodeSelector": {"pool": "win-1"}, "cluster": {"nodeLabels": [{"key": "pool", "valuePrefixes": ["win-"]}]}}),
            "nodeSelector: pool=win-1 selects Windows nodes",
        ),
        (
            json!({"podDisruptionBudget": {"maxUnavailable": 2}}),
            "podDisruptionBudget.maxUnavailable: 2 allows all 2 replicas to be evicted at the same time",
        ),
        (
            json!({"replicaCount": 3, "podDisruptionBudget": {"maxUnavailable": "67%"}}),
            "podDisruptionBudget.maxUnavailable: 67% allows all 3 replicas",
        ),
        (
            json!({"probe": {"namespace": "calico-system"}}),
            "probe.namespace: the webhooks are not called for the namespace calico-system",
        ),
        (json!({"dnsPolicy": "None"}), "/dnsPolicy"),
        (
            json!({"hostNetwork": true, "ports": {"webhook": 10260, "health": 10250}}),
            "ports.health: 10250 is the kubelet's port on the host network",
        ),
        (json!({"fullnameOverride": "1a"}), "/fullnameOverride"),
        (
            json!({"podPolicies": {"default": {"create": false, "spec": {"mode": "Audit"}}}}),
            "podPolicies.default.spec: no policy would use it, because podPolicies.default.create is false",
        ),
        (
            json!({"podPolicies": {"default": {"create": false, "spec": {"priority": 1}}}}),
            "podPolicies.default.spec: no policy would use it",
        ),
        (
            json!({"nodePolicies": {"default": {"create": false, "spec": {"taints": {"mode": "Reconcile"}}}}}),
            "nodePolicies.default.spec: no policy would use it",
        ),
    ];
    for (values, words) in cases {
        let refusal = refusal(engine, &values);
        assert!(refusal.contains(words), "{values}\n{refusal}");
    }
    let refusal = engine.render_as("1a", "default", &json!({})).unwrap_err();
    assert!(
        refusal.contains("fullnameOverride: the name \"1a-transom\""),
        "{refusal}"
    );
    for values in [
        json!({"server": {"limits": {"maxBytesInFlight": "32 mib"}}}),
        json!({"server": {"limits": {"maxBytesInFlight": "33554432"}}, "resources": {"limits": {"memory": 268_435_456}}}),
        json!({"server": {"limits": {"maxBytesInFlight": "128MiB"}}, "resources": {"limits": {"memory": "1Gi"}}}),
        json!({"server": {"limits": {"maxBytesInFlight": "1GiB"}}, "resources": {"limits": null}}),
        memory("0.5Gi"),
        memory("2e9"),
        json!({"shutdown": {"drainTimeout": "39s 999ms"}}),
        cert_manager(json!({"duration": "1h", "renewBefore": "20m"})),
        json!({"global": {"imageRegistry": "mirror.example.com"}, "image": {"registry": ""}}),
        json!({"nodeSelector": {"kubernetes.io/os": "linux", "kubernetes.azure.com/os-sku": "AzureLinux", "pool": "linux"}}),
        json!({"podDisruptionBudget": {"maxUnavailable": "50%"}}),
        json!({"replicaCount": 1, "podDisruptionBudget": {"maxUnavailable": 1}}),
        json!({"podDisruptionBudget": {"enabled": false, "maxUnavailable": 5}}),
        json!({"hooks": {"runner": "argocd"}, "nodePolicies": {"default": {"create": false, "spec": {"taints": {"mode": "Reconcile"}}}}}),
        json!({"server": {"log": {"filter": "info,audit=warn,transom::webhook=debug,h2[span]=off"}}}),
        json!({"listenAddress": "[fd00::1]"}),
        json!({"image": {"registry": "mirror.example.com:5000/a/b-c"}}),
    ] {
        engine.request("validate", json!({"values": values})).unwrap();
        engine
            .render(&values)
            .unwrap_or_else(|error| panic!("{values}: {error}"));
    }
}

#[test]
fn a_selector_that_no_label_can_match_is_refused_wherever_it_stands() {
    let Some(engine) = engine() else { return };
    let places: [fn(&Value) -> Value; 4] = [
        |it| json!({"podPolicies": {"default": {"spec": {"namespaceSelector": it}}}}),
        |it| json!({"nodePolicies": {"default": {"spec": {"nodeSelector": it}}}}),
        |it| json!({"webhooks": {"namespaceSelector": it}}),
        |it| json!({"webhooks": {"defaultOS": {"namespaceSelector": it}}}),
    ];
    let expression = |it: Value| json!({"matchExpressions": [it]});
    let impossible = [
        json!({"matchLabels": {"team": "not a label"}}),
        json!({"matchLabels": {"not a key": "a"}}),
        json!({"matchLabels": {"team": true}}),
        expression(json!({"key": "team", "operator": "in", "values": ["a"]})),
        expression(json!({"key": "team", "operator": "In"})),
        expression(json!({"key": "team", "operator": "NotIn", "values": []})),
        expression(json!({"key": "team", "operator": "Exists", "values": ["a"]})),
        expression(json!({"key": "team", "operator": "In", "values": ["-a"]})),
    ];
    for place in places {
        for selector in &impossible {
            let refusal = refusal(engine, &place(selector));
            let named =
                refusal.contains("elector/match") || refusal.contains("invalid propertyName 'not a key'");
            assert!(named, "{selector}: {refusal}");
        }
        for selector in [
            json!({}),
            json!({"matchLabels": {"example.com/team": "A_1.b", "empty": ""}}),
            expression(json!({"key": "team", "operator": "In", "values": ["a", "b"]})),
            expression(json!({"key": "team", "operator": "DoesNotExist"})),
        ] {
            let values = place(&selector);
            engine.request("validate", json!({"values": values})).unwrap();
            engine
                .render(&values)
                .unwrap_or_else(|error| panic!("{values}: {error}"));
        }
    }
}

#[test]
fn a_release_with_dots_has_names_that_a_service_may_have() {
    let Some(engine) = engine() else { return };
    let rendered = engine.render_as("a.b", "default", &json!({})).unwrap();
    assert_eq!(rendered.names("Deployment"), ["a-b-transom"]);
}
