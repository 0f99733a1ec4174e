//! What comes of values: templates do what the comments in values.yaml say.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use transom::model::cluster::feature_gates;

use super::engine::{Engine, Rendered, engine};
use super::{generated, refusal};
use crate::support::control_plane::ControlPlane;

/// The objects of one of Helm's hooks.
pub fn of_hook(rendered: &Rendered, hook: &str) -> Vec<Value> {
    let of_it = |it: &&Value| it["metadata"]["annotations"]["helm.sh/hook"] == hook;
    rendered.objects.iter().filter(of_it).cloned().collect()
}

/// The container of the Deployment.
fn container(rendered: &Rendered) -> &Value {
    &rendered.object("Deployment", "transom")["spec"]["template"]["spec"]["containers"][0]
}

#[test]
fn the_program_leaves_out_the_namespaces_that_the_webhooks_leave_out() {
    let Some(engine) = engine() else { return };
    for (namespaces, value) in [
        (json!(["123", "null", "0x1f"]), "123,null,0x1f"),
        (json!(["true"]), "true"),
        (json!([]), ""),
    ] {
        let rendered = engine
            .render(&json!({"webhooks": {"excludedNamespaces": namespaces}}))
            .unwrap();
        let env = container(&rendered)["env"].as_array().unwrap();
        let given = env
            .iter()
            .find(|it| it["name"] == "TRANSOM_EXCLUDE_NAMESPACE")
            .unwrap();
        // The API server stores no empty value: without one, the variable is empty.
        assert_eq!(given["value"].as_str().unwrap_or_default(), value, "{namespaces}");
        let webhooks = rendered.object("ValidatingWebhookConfiguration", "zz-transom");
        let excluded = &webhooks["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"];
        for namespace in namespaces.as_array().unwrap() {
            assert!(excluded.as_array().unwrap().contains(namespace), "{excluded}");
        }
    }
}

#[test]
fn a_variable_of_the_values_replaces_that_of_the_chart() {
    let Some(engine) = engine() else { return };
    let values = json!({"proxy": {"https": "http://proxy.example.com:3128"},
        "extraEnv": [{"name": "TRANSOM_LOG", "value": "debug"}, {"name": "NO_PROXY", "value": "10.0.0.0/8"}]});
    let rendered = engine.render(&values).unwrap();
    let env = container(&rendered)["env"].as_array().unwrap();
    let names: BTreeSet<&str> = env.iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names.len(), env.len(), "{env:#?}");
    for (name, value) in [
        ("TRANSOM_LOG", "debug"),
        ("NO_PROXY", "10.0.0.0/8"),
        ("HTTPS_PROXY", "http://proxy.example.com:3128"),
    ] {
        let given = env.iter().find(|it| it["name"] == name).unwrap();
        assert_eq!(given["value"], value, "{name}");
    }
}

#[test]
fn the_program_understands_every_feature_gate_that_the_chart_accepts() {
    let Some(engine) = engine() else { return };
    let with = |gates: &[&str]| json!({"server": {"featureGates": gates}});
    let gates = ["WinDSR=false", "ContainerStopSignals=true"];
    engine
        .request("validate", json!({"values": with(&gates)}))
        .unwrap();
    let rendered = engine.render(&with(&gates)).unwrap();
    let env = container(&rendered)["env"].as_array().unwrap();
    let given = env
        .iter()
        .find(|it| it["name"] == "TRANSOM_FEATURE_GATES")
        .unwrap();
    let given: Vec<&str> = given["value"].as_str().unwrap().split(',').collect();
    assert_eq!(given, gates);
    for gate in given {
        feature_gates::parse(gate).unwrap();
    }
    for bad in ["WinDSR", "WinDSR=yes", "WinDSR=true,ContainerStopSignals=true"] {
        assert!(feature_gates::parse(bad).is_err(), "{bad}");
        let refusal = refusal(engine, &with(&[bad]));
        assert!(refusal.contains("/server/featureGates"), "{bad}: {refusal}");
    }
}

#[test]
fn a_spread_keeps_the_selector_that_it_has() {
    let Some(engine) = engine() else { return };
    let spread = |more: Value| {
        let mut constraint =
            json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"});
        constraint
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let rendered = engine
            .render(&json!({"topologySpreadConstraints": [constraint]}))
            .unwrap();
        let deployment = rendered.object("Deployment", "transom");
        deployment["spec"]["template"]["spec"]["topologySpreadConstraints"][0].clone()
    };
    for selector in [
        json!({"matchLabels": {"app": "other"}}),
        json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
    ] {
        assert_eq!(
            spread(json!({"labelSelector": selector}))["labelSelector"],
            selector
        );
    }
    let ours = json!({"matchLabels": {"app.kubernetes.io/name": "transom", "app.kubernetes.io/instance": "transom"}});
    assert_eq!(spread(json!({}))["labelSelector"], ours);
    assert_eq!(spread(json!({}))["whenUnsatisfiable"], "DoNotSchedule");
}

#[test]
fn looking_up_images_grants_what_it_needs_and_nothing_before_a_registry_is_listed() {
    let Some(engine) = engine() else { return };
    let env = |rendered: &Rendered| -> Vec<String> {
        let env = container(rendered)["env"].as_array().unwrap().iter();
        let shown = env.map(|it| {
            format!(
                "{}={}",
                it["name"].as_str().unwrap(),
                it["value"].as_str().unwrap_or_default()
            )
        });
        let is_of_images =
            |it: &String| it.starts_with("TRANSOM_IMAGE_") || it.starts_with("TRANSOM_REGISTRY_");
        shown.filter(is_of_images).collect()
    };
    let rules = |rendered: &Rendered, kind: &str, name: &str, namespace: &str| -> Vec<Value> {
        let is_it = |it: &&Value| {
            it["kind"] == kind
                && it["metadata"]["name"] == name
                && (namespace.is_empty() || it["metadata"]["namespace"] == namespace)
        };
        let found = rendered.objects.iter().find(is_it);
        found.map_or_else(Vec::new, |it| it["rules"].as_array().unwrap().clone())
    };
    let workloads = [
        json!({"apiGroups": ["apps"], "resources": ["deployments", "statefulsets", "daemonsets"], "verbs": ["list", "watch"]}),
        json!({"apiGroups": ["batch"], "resources": ["jobs", "cronjobs"], "verbs": ["list", "watch"]}),
    ];
    let secret =
        json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["pull"], "verbs": ["get"]});
    let any_secret = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});

    let without = engine
        .render(&json!({"nodePolicies": {"default": {"create": false}}}))
        .unwrap();
    assert_eq!(env(&without), [""; 0]);
    let of_cluster = rules(&without, "ClusterRole", "transom", "");
    assert!(!of_cluster.is_empty() && workloads.iter().all(|rule| !of_cluster.contains(rule)));

    let values = json!({"nodePolicies": {"default": {"create": false}}, "imageLookups": {
        "registries": ["mcr.microsoft.com", "*.azurecr.io", "registry.corp:5000"], "pullSecret": "pull",
        "pullSecretNamespaces": ["shop", "billing"], "plainHTTP": ["registry.corp:5000"], "caConfigMap": {"name": "roots", "key": "all.pem"},
    }});
    engine.request("validate", json!({"values": values})).unwrap();
    let with = engine.render(&values).unwrap();
    assert_eq!(
        env(&with),
        [
            "TRANSOM_IMAGE_REGISTRY=mcr.microsoft.com,*.azurecr.io,registry.corp:5000",
            "TRANSOM_IMAGE_PULL_SECRET=pull",
            "TRANSOM_IMAGE_PULL_SECRET_NAMESPACE=shop,billing",
            "TRANSOM_REGISTRY_PLAIN_HTTP=registry.corp:5000",
            "TRANSOM_REGISTRY_CA=/var/run/transom/registries/all.pem",
        ]
    );
    let pod = &with.object("Deployment", "transom")["spec"]["template"]["spec"];
    assert_eq!(
        pod["volumes"],
        json!([{"name": "cluster", "configMap": {"name": "transom-cluster", "optional": true}}, {"name": "registries-ca", "configMap": {"name": "roots"}}])
    );
    let mounts = json!([{"name": "cluster", "mountPath": "/var/run/transom/cluster", "readOnly": true}, {"name": "registries-ca", "mountPath": "/var/run/transom/registries", "readOnly": true}]);
    assert_eq!(pod["containers"][0]["volumeMounts"], mounts);
    let of_cluster = rules(&with, "ClusterRole", "transom", "");
    assert!(
        workloads.iter().all(|rule| of_cluster.contains(rule)),
        "{of_cluster:?}"
    );
    assert!(rules(&with, "Role", "transom", "transom-system").contains(&secret));
    for namespace in ["shop", "billing"] {
        let granted = rules(&with, "Role", "transom-image-pull-secrets", namespace);
        assert_eq!(granted, std::slice::from_ref(&any_secret), "{namespace}");
    }
    assert!(
        !json!(of_cluster).to_string().contains("secrets"),
        "{of_cluster:?}"
    );
    let is_binding =
        |it: &&Value| it["kind"] == "RoleBinding" && it["metadata"]["name"] == "transom-image-pull-secrets";
    let bindings: Vec<&Value> = with.objects.iter().filter(is_binding).collect();
    let account = json!([{"kind": "ServiceAccount", "name": "transom", "namespace": "transom-system"}]);
    assert!(
        bindings.len() == 2 && bindings.iter().all(|it| it["subjects"] == account),
        "{bindings:?}"
    );

    // A registry that is asked by plain HTTP needs no CA.
    let plain =
        json!({"imageLookups": {"registries": ["registry.corp:5000"], "plainHTTP": ["registry.corp:5000"]}});
    engine.request("validate", json!({"values": plain})).unwrap();
    assert_eq!(env(&engine.render(&plain).unwrap()).len(), 2);
}

/// Copies a folder with what is in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_parent_chart_may_have_it_with_a_condition() {
    if engine().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let parent = folder.path().join("platform");
    copy(&generated::chart(), &parent.join("charts/transom"));
    let metadata = "apiVersion: v2\nname: platform\nversion: 0.1.0\ndependencies:\n\
                    - {name: transom, version: 0.1.0, condition: transom.enabled}\n";
    fs::write(parent.join("Chart.yaml"), metadata).unwrap();
    fs::write(parent.join("values.yaml"), "transom:\n  enabled: false\n").unwrap();
    let engine = Engine::of(&parent).unwrap();
    let global = json!({"imageRegistry": "mirror.example.com", "storageClass": "fast"});
    let with = |enabled: bool| {
        let values = json!({"global": global, "transom": {"enabled": enabled, "mode": "Warn"}});
        engine.request("validate", json!({"values": values})).unwrap();
        engine.render(&values).unwrap()
    };
    assert!(with(false).objects.is_empty());
    let rendered = with(true);
    let policy = &rendered.object("WindowsPodPolicy", "default")["spec"];
    assert_eq!(policy["mode"], "Warn");
    let image = container(&rendered)["image"].as_str().unwrap();
    assert!(
        image.starts_with("mirror.example.com/transom/transom:"),
        "{image}"
    );
    let wrong = json!({"transom": {"enabled": true, "replicaCount": "two"}});
    let error = engine.request("validate", json!({"values": wrong})).unwrap_err();
    assert!(error.contains("/replicaCount"), "{error}");
}

#[test]
fn without_roles_and_accounts_the_chart_makes_none_for_its_jobs_either() {
    let Some(engine) = engine() else { return };
    let roles = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    let accounts = |rendered: &Rendered| -> BTreeSet<String> {
        let jobs = rendered.objects.iter().filter(|it| it["kind"] == "Job");
        let named = jobs.map(|it| {
            it["spec"]["template"]["spec"]["serviceAccountName"]
                .as_str()
                .unwrap()
                .to_owned()
        });
        named.collect()
    };
    for runner in ["helm", "argocd"] {
        let render = |account: &str, mut values: Value| {
            values["hooks"] = json!({"runner": runner, "serviceAccount": {"name": account}});
            engine.request("validate", json!({"values": values})).unwrap();
            engine.render(&values).unwrap()
        };
        let none = render(
            "",
            json!({"rbac": {"create": false}, "serviceAccount": {"create": false, "name": "existing"}}),
        );
        for kind in roles.iter().chain(&["ServiceAccount"]) {
            assert_eq!(none.names(kind), [""; 0], "{kind}");
        }
        assert_eq!(accounts(&none), ["existing".to_owned()].into());
        assert!(none.notes.contains("rbac.create=false"), "{}", none.notes);

        let ours = render("janitor", json!({"rbac": {"create": false}}));
        for kind in roles {
            assert_eq!(ours.names(kind), [""; 0], "{kind}");
        }
        assert_eq!(ours.names("ServiceAccount"), ["transom"]);
        assert_eq!(accounts(&ours), ["janitor".to_owned()].into());

        let bound = render("janitor", json!({}));
        for binding in bound
            .objects
            .iter()
            .filter(|it| it["kind"].as_str().unwrap().ends_with("RoleBinding"))
        {
            let of_a_job = binding["metadata"]["labels"]["app.kubernetes.io/component"].is_string();
            let expected = if of_a_job { "janitor" } else { "transom" };
            assert_eq!(binding["subjects"][0]["name"], expected, "{binding:#}");
        }
    }
    // Each Job of the default has an account of its own, and nobody else has.
    let default = engine.render(&json!({})).unwrap();
    assert_eq!(
        accounts(&default),
        ["transom-pre-delete", "transom-pre-upgrade", "transom-test"]
            .map(str::to_owned)
            .into()
    );
    assert!(default.names("ServiceAccount").contains(&"transom-pre-delete"));
}

#[test]
fn the_jobs_stay_off_the_host_network_and_have_resources_of_their_own() {
    let Some(engine) = engine() else { return };
    let quota =
        json!({"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}});
    let host = json!({"hostNetwork": true, "ports": {"webhook": 10260, "health": 10261}, "hooks": {"resources": quota}});
    let default = json!({"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}});
    for (values, resources) in [
        (host, quota),
        (json!({}), default),
        (json!({"hooks": {"resources": null}}), Value::Null),
    ] {
        engine.request("validate", json!({"values": values})).unwrap();
        let rendered = engine.render(&values).unwrap();
        let jobs: Vec<&Value> = rendered.objects.iter().filter(|it| it["kind"] == "Job").collect();
        assert_eq!(jobs.len(), 3, "{jobs:#?}");
        for job in jobs {
            let pod = &job["spec"]["template"]["spec"];
            assert_eq!(
                (&pod["hostNetwork"], &pod["dnsPolicy"]),
                (&Value::Null, &Value::Null),
                "{pod:#}"
            );
            assert_eq!(pod["containers"][0]["resources"], resources, "{pod:#}");
        }
    }
}

#[test]
fn names_that_yaml_reads_as_numbers_or_booleans_stay_text() {
    // The same values with plain names, in the place of which the others are put afterwards.
    const PLAIN: [&str; 9] = [
        "qrelease",
        "qnamespace",
        "qfullname",
        "qpolicy",
        "qnodes",
        "qaccount",
        "qsecret",
        "qmap",
        "qother",
    ];
    let Some(engine) = engine() else { return };
    let render = |names: [&str; 9]| {
        let [
            release,
            namespace,
            fullname,
            policy,
            nodes,
            account,
            secret,
            map,
            other,
        ] = names;
        let values = json!({
            "fullnameOverride": fullname, "podPolicies": {"default": null, (policy): {"spec": {}}}, "nodePolicies": {"default": null, (nodes): {"spec": {}}},
            "serviceAccount": {"name": account}, "hooks": {"serviceAccount": {"name": other}},
            "certificates": {"mode": "provided", "secretName": secret},
            "imageLookups": {"registries": ["quay.io"], "pullSecret": secret, "pullSecretNamespaces": [other], "caConfigMap": {"name": map}},
            "clientCertificates": {"caConfigMap": {"name": map}},
            "tracing": {"endpoint": "https://collector:4318"},
            "probe": {"enabled": true, "namespace": other}, "priorityClassName": other,
            "metrics": {"serviceMonitor": {"enabled": true}, "prometheusRule": {"enabled": true}},
            "commonLabels": {"team": other},
        });
        engine.request("validate", json!({"values": values})).unwrap();
        engine.render_as(release, namespace, &values).unwrap().objects
    };
    let plain = render(PLAIN);
    for odd in [
        ["123", "2024", "null", "1", "2", "3", "0x1f", "4", "5"],
        ["on", "1e3", "true", "no", "off", "yes", "null", "y", "false"],
    ] {
        let mut expected = json!(plain).to_string();
        for (plain, odd) in PLAIN.iter().zip(odd) {
            expected = expected.replace(plain, odd);
        }
        let expected: Value = serde_json::from_str(&expected).unwrap();
        for (made, expected) in render(odd).iter().zip(expected.as_array().unwrap()) {
            assert_eq!(made, expected);
        }
    }
}

#[test]
fn policies_are_created_by_name_and_the_webhooks_follow_them() {
    let Some(engine) = engine() else { return };
    let guard = |team: &str| json!({"spec": {"priority": 5, "placement": {"linuxPods": "Warn"}, "namespaceSelector": {"matchLabels": {"team": team}}}});
    let values = |more: Value, enabled: Value| {
        let mut policies =
            json!({"default": {"create": false}, "absent": null, "plain": {}, "guard": guard("a")});
        json_patch::merge(&mut policies, &more);
        json!({"podPolicies": policies, "webhooks": {"linuxPods": {"enabled": enabled}}})
    };
    let rendered = engine.render(&values(json!({}), json!("auto"))).unwrap();
    let mut policies: Vec<(&Value, &Value)> = (rendered.objects.iter())
        .filter(|it| it["kind"] == "WindowsPodPolicy")
        .map(|it| (&it["metadata"]["name"], &it["spec"]["mode"]))
        .collect();
    policies.sort_by_key(|(name, _)| name.as_str());
    assert_eq!(
        json!(policies),
        json!([["guard", "Enforce"], ["plain", "Enforce"]])
    );
    let entry = |more: Value, enabled: Value| {
        let rendered = engine.render(&values(more, enabled)).unwrap();
        let webhooks = rendered.object("ValidatingWebhookConfiguration", "zz-transom")["webhooks"].clone();
        let mut webhooks = webhooks.as_array().unwrap().clone().into_iter();
        let entry = webhooks.find(|it| it["name"].as_str().unwrap().starts_with("linux-pods."));
        entry.map(|it| it["namespaceSelector"]["matchLabels"].clone())
    };
    let team = json!({"team": "a"});
    assert_eq!(entry(json!({}), json!("auto")), Some(team));
    // Of several policies, and of those that the chart does not create, no selector is known.
    assert_eq!(
        entry(json!({"other": guard("b")}), json!("auto")),
        Some(Value::Null)
    );
    assert_eq!(entry(json!({}), json!(true)), Some(Value::Null));
    assert_eq!(entry(json!({}), json!(false)), None);
    assert_eq!(entry(json!({"guard": null}), json!("auto")), None);
}

#[test]
fn the_webhooks_can_be_kept_to_some_namespaces() {
    let Some(engine) = engine() else { return };
    let selector =
        json!({"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]});
    let values = json!({"webhooks": {
        "namespaceSelector": selector, "failurePolicy": "Fail",
        "defaultOS": {"enabled": true, "namespaceSelector": {"matchLabels": {"team": "b"}}},
        "linuxPods": {"enabled": true},
    }});
    let rendered = engine.render(&values).unwrap();
    let whole = engine
        .render(&json!({"webhooks": {"linuxPods": {"enabled": true}, "defaultOS": {"enabled": true}}}))
        .unwrap();
    let mut entries = 0;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let of = |rendered: &Rendered| {
            rendered.object(kind, "zz-transom")["webhooks"]
                .as_array()
                .unwrap()
                .clone()
        };
        for (narrow, whole) in of(&rendered).iter().zip(of(&whole)) {
            let mut expected = whole["namespaceSelector"]["matchExpressions"]
                .as_array()
                .unwrap()
                .clone();
            expected.push(json!({"key": "tier", "operator": "Exists"}));
            expected.push(json!({"key": "team", "operator": "In", "values": ["a"]}));
            assert_eq!(narrow["namespaceSelector"]["matchExpressions"], json!(expected));
            let own = narrow["name"]
                .as_str()
                .unwrap()
                .starts_with("default-os")
                .then(|| json!({"team": "b"}));
            assert_eq!(narrow["namespaceSelector"].get("matchLabels"), own.as_ref());
            entries += 1;
        }
    }
    assert!(entries >= 6, "{entries}");
    let unscoped = json!({"webhooks": {"failurePolicy": "Fail"}, "podPolicies": {"default": {"spec": {"namespaceSelector": selector}}}});
    assert!(
        engine
            .render(&unscoped)
            .unwrap()
            .notes
            .contains("set webhooks.namespaceSelector to narrow it")
    );
}

#[test]
fn the_network_policy_lets_in_whom_the_values_name() {
    let Some(engine) = engine() else { return };
    let peers = json!([{"ipBlock": {"cidr": "192.0.2.0/28"}}]);
    let ingress = |more: Value| {
        let mut policy = json!({"enabled": true});
        policy
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let values = json!({"networkPolicy": policy});
        engine.request("validate", json!({"values": values})).unwrap();
        engine.render(&values).unwrap().object("NetworkPolicy", "transom")["spec"]["ingress"].clone()
    };
    let open = ingress(json!({}));
    assert!(
        open[0].get("from").is_none() && open[1].get("from").is_none(),
        "{open}"
    );
    let narrow = ingress(json!({"webhookFrom": peers}));
    assert_eq!(
        (&narrow[0]["from"], &narrow[0]["ports"][0]["port"]),
        (&peers, &json!("webhook"))
    );
    assert!(narrow[1].get("from").is_none(), "{narrow}");
}

#[test]
fn no_label_or_annotation_stands_twice_whoever_sets_it() {
    let Some(engine) = engine() else { return };
    // The engine reads what was rendered strictly: a key that stands twice is an error there.
    let labels = json!({"app.kubernetes.io/part-of": "platform", "app.kubernetes.io/version": "9", "team": "a",
                        "app.kubernetes.io/managed-by": "somebody", "helm.sh/chart": "other"});
    let annotations =
        json!({"kubectl.kubernetes.io/default-container": "other", "helm.sh/resource-policy": "keep"});
    let values = json!({
        "commonLabels": labels, "podLabels": labels, "commonAnnotations": annotations, "podAnnotations": annotations,
        "service": {"annotations": annotations}, "webhooks": {"annotations": annotations},
        "metrics": {"serviceMonitor": {"enabled": true, "labels": labels}, "dashboard": {"enabled": true, "labels": labels},
                    "prometheusRule": {"enabled": true, "labels": labels}},
    });
    engine.request("validate", json!({"values": values})).unwrap();
    let rendered = engine.render(&values).unwrap();
    for object in &rendered.objects {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/part-of"], "platform", "{object:#}");
        // Helm takes nothing for its own that says another manager.
        assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{object:#}");
        assert_eq!(labels["app.kubernetes.io/name"], "transom", "{object:#}");
    }
    let template = &rendered.object("Deployment", "transom")["spec"]["template"]["metadata"];
    assert_eq!(
        template["annotations"]["kubectl.kubernetes.io/default-container"],
        "other"
    );
    let error = refusal(
        engine,
        &json!({"metrics": {"dashboard": {"labels": {"app.kubernetes.io/name": "x"}}}}),
    );
    assert!(error.contains("invalid propertyName"), "{error}");
}

#[test]
fn the_right_to_patch_the_webhooks_goes_with_who_writes_the_ca() {
    let Some(engine) = engine() else { return };
    let provided = |ca: &str| json!({"certificates": {"mode": "provided", "secretName": "mine", "provided": {"caKey": ca}}});
    for (values, publishes) in [
        (json!({}), true),
        (provided("ca.crt"), true),
        (provided(""), false),
        (json!({"certificates": {"mode": "cert-manager"}}), false),
    ] {
        let rendered = engine.render(&values).unwrap();
        let rules = rendered.object("ClusterRole", "transom")["rules"]
            .as_array()
            .unwrap()
            .clone();
        let rule = rules
            .iter()
            .find(|it| it["apiGroups"][0] == "admissionregistration.k8s.io")
            .unwrap();
        assert_eq!(
            rule["verbs"].as_array().unwrap().contains(&json!("patch")),
            publishes,
            "{values}: {rule}"
        );
    }
}

#[test]
fn an_api_server_takes_what_the_values_for_narrowing_make() {
    let Some(engine) = engine() else { return };
    let Some(cluster) = ControlPlane::start_or_skip("values that narrow what the chart makes") else {
        return;
    };
    let crds = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("manifests/crds.yaml")
        .display()
        .to_string();
    cluster
        .kubectl(&["apply", "--server-side", "-f", &crds])
        .succeeded();
    cluster.wait_for_definitions();
    cluster.create_namespace("transom-system", &[]);
    let selector =
        json!({"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]});
    for values in [
        json!({"rbac": {"create": false}, "hooks": {"serviceAccount": {"name": "janitor"}}}),
        json!({"hooks": {"runner": "argocd"}, "serviceAccount": {"create": false, "name": "existing"}}),
        json!({"webhooks": {"failurePolicy": "Fail", "namespaceSelector": selector, "linuxPods": {"enabled": true},
                            "defaultOS": {"enabled": true, "namespaceSelector": {"matchLabels": {"team": "b"}}}},
               "podPolicies": {"default": {"spec": {"namespaceSelector": selector}}}, "nodePolicies": {"default": {"spec": {"taints": {"mode": "Reconcile"}}}}}),
        json!({"networkPolicy": {"enabled": true, "webhookFrom": [{"ipBlock": {"cidr": "192.0.2.0/28"}}]}}),
        json!({"certificates": {"mode": "provided", "secretName": "mine", "provided": {"caKey": ""}},
               "commonLabels": {"app.kubernetes.io/part-of": "platform"},
               "podAnnotations": {"kubectl.kubernetes.io/default-container": "other"}}),
        json!({"webhooks": {"excludedNamespaces": ["123", "null"]}, "resources": null, "nodeSelector": null, "securityContext": null,
               "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
                                              "labelSelector": {"matchLabels": {"app": "other"}}}]}),
    ] {
        engine.request("validate", json!({"values": values})).unwrap();
        let rendered = engine.render(&values).unwrap();
        let dry_run = [
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            "-",
        ];
        let printed = cluster.kubectl_with(&dry_run, &rendered.list());
        assert!(printed.ok && printed.err.is_empty(), "{values}\n{}", printed.err);
        assert_eq!(printed.out.lines().count(), rendered.objects.len(), "{values}");
    }
}

#[test]
fn a_digest_is_added_to_the_tag_and_what_the_values_add_is_in_the_release() {
    let Some(engine) = engine() else { return };
    let digest = format!("sha256:{}", "a".repeat(64));
    let rendered = engine
        .render(&json!({
            "image": {"tag": "1.2.3", "digest": digest}, "runtimeClassName": "gvisor", "deploymentAnnotations": {"a": "b"},
            "metrics": {"serviceMonitor": {"enabled": true, "relabelings": [{"targetLabel": "cluster", "replacement": "east"}]}},
            "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}],
        }))
        .unwrap();
    let deployment = rendered.object("Deployment", "transom");
    let pod = &deployment["spec"]["template"]["spec"];
    let image = pod["containers"][0]["image"].as_str().unwrap();
    assert!(
        image.ends_with(&format!("/transom/transom:1.2.3@{digest}")),
        "{image}"
    );
    assert_eq!(pod["runtimeClassName"], "gvisor");
    assert_eq!(deployment["metadata"]["annotations"]["a"], "b");
    assert_eq!(rendered.names("ConfigMap"), ["transom-cluster", "transom-more"]);
    let endpoint = &rendered.object("ServiceMonitor", "transom")["spec"]["endpoints"][0];
    assert_eq!(endpoint["relabelings"][0]["replacement"], "east");
}

#[test]
fn a_single_failure_raises_no_alert() {
    let Some(engine) = engine() else { return };
    let values = json!({"metrics": {"prometheusRule": {"enabled": true, "job": "transom"}},
                        "reports": {"enabled": true}, "imageLookups": {"registries": ["quay.io"]}});
    let rendered = engine.render(&values).unwrap();
    let rules = rendered.object("PrometheusRule", "transom")["spec"]["groups"][0]["rules"].clone();
    for rule in rules.as_array().unwrap() {
        let (alert, expression) = (rule["alert"].as_str().unwrap(), rule["expr"].as_str().unwrap());
        // A panic is a defect, however seldom.
        if alert == "TransomReviewPanic" {
            continue;
        }
        let minutes = |text: &str| text.trim_end_matches(['m', 'h']).parse::<u32>().unwrap();
        let holds = rule["for"]
            .as_str()
            .unwrap_or_else(|| panic!("{alert} has no time"));
        for range in expression.split('[').skip(1) {
            let range = range.split(']').next().unwrap();
            assert!(minutes(range) < minutes(holds), "{alert}: {range} in {holds}");
        }
    }
}
