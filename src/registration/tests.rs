//! The configurations are frozen, fail open, and match nothing that a cluster depends on.

use super::*;
use crate::model::objects::workload::CUSTOM_WORKLOADS;
use crate::model::objects::workload::custom::CustomWorkload;
use serde_json::{Value, json};

/// Both configurations with every option.
fn everything() -> [Value; 2] {
    let options = RegistrationOptions {
        validate_failure_policy: FailurePolicy::Fail,
        timeout: Duration::from_secs(30),
        linux_pods: Some(LabelSelector::default()),
        default_os: Some(LabelSelector {
            match_labels: Some([("team".to_owned(), "a".to_owned())].into()),
            match_expressions: Some(vec![requirement("tier", "Exists", &[])]),
        }),
        default_node_selector: Some(LabelSelector::default()),
        image_registries: RegistryPatterns::parse(["mcr.microsoft.com", "*.azurecr.io"]).unwrap(),
        ..RegistrationOptions::default()
    };
    [
        serde_json::to_value(mutating(&options)).unwrap(),
        serde_json::to_value(validating(&options)).unwrap(),
    ]
}

fn webhooks(configuration: &Value) -> &[Value] {
    configuration["webhooks"].as_array().unwrap()
}

#[test]
fn the_names_are_frozen() {
    let made: Vec<String> = (everything().iter())
        .flat_map(webhooks)
        .map(|entry| entry["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        made,
        [
            "mutate.transom.dev",
            "default-os.mutate.transom.dev",
            "linux-pods.mutate.transom.dev",
            "images.mutate.transom.dev",
            "certain.validate.transom.dev",
            "validate.transom.dev",
            "custom-resources.validate.transom.dev",
            "default-os.validate.transom.dev",
            "default-node-selector.validate.transom.dev",
            "linux-pods.validate.transom.dev",
            "images.validate.transom.dev",
        ]
    );
}

/// The API server reads an object for CEL once for each entry.
#[test]
fn one_entry_in_each_phase_is_for_all_windows_pods_unless_some_of_them_fail_closed() {
    let made = |failure_policy: FailurePolicy| {
        let options = RegistrationOptions {
            validate_failure_policy: failure_policy,
            ..RegistrationOptions::default()
        };
        let both = [
            serde_json::to_value(mutating(&options)).unwrap(),
            serde_json::to_value(validating(&options)).unwrap(),
        ];
        both.map(|made| {
            let entries = webhooks(&made).iter();
            let shown = entries.map(|entry| {
                let conditions = entry["matchConditions"].as_array().unwrap();
                assert_eq!(conditions.len(), 1, "the API server works out each of several");
                format!(
                    "{} {} {}",
                    entry["name"].as_str().unwrap(),
                    conditions[0]["name"].as_str().unwrap(),
                    entry["failurePolicy"].as_str().unwrap()
                )
            });
            shown.collect::<Vec<_>>()
        })
    };
    let mutate = ["mutate.transom.dev has-a-sign-of-windows Ignore"];
    let [of_mutate, of_validate] = made(FailurePolicy::Ignore);
    assert_eq!(of_mutate, mutate);
    let custom = "custom-resources.validate.transom.dev has-a-sign-of-windows Ignore";
    assert_eq!(
        of_validate,
        ["validate.transom.dev has-a-sign-of-windows Ignore", custom]
    );
    let [of_mutate, of_validate] = made(FailurePolicy::Fail);
    assert_eq!(of_mutate, mutate);
    assert_eq!(
        of_validate,
        [
            "certain.validate.transom.dev is-for-windows Fail",
            "validate.transom.dev may-be-for-windows Ignore",
            custom,
        ]
    );
}

#[test]
fn only_certain_may_fail_closed_and_none_may_be_slow() {
    for entry in everything().iter().flat_map(webhooks) {
        let closed = entry["name"] == names::CERTAIN_VALIDATE;
        assert_eq!(
            entry["failurePolicy"],
            if closed { "Fail" } else { "Ignore" },
            "{entry}"
        );
        assert_eq!(entry["timeoutSeconds"], 2, "{entry}");
        assert_eq!(entry["sideEffects"], "None", "{entry}");
        assert!(
            entry["matchConditions"].as_array().unwrap().len() <= 64,
            "{entry}"
        );
    }
    let plain = serde_json::to_value(validating(&RegistrationOptions::default())).unwrap();
    assert_eq!(webhooks(&plain)[0]["failurePolicy"], "Ignore");
}

#[test]
fn nothing_is_matched_that_a_cluster_lives_by() {
    const MATCHED: [&str; 11] = [
        "pods",
        "pods/ephemeralcontainers",
        "pods/resize",
        "replicationcontrollers",
        "podtemplates",
        "deployments",
        "replicasets",
        "statefulsets",
        "daemonsets",
        "jobs",
        "cronjobs",
    ];
    for entry in everything().iter().flat_map(webhooks) {
        let is_custom = entry["name"] == names::CUSTOM_RESOURCES_VALIDATE;
        for rule in entry["rules"].as_array().unwrap() {
            let group = rule["apiGroups"][0].as_str().unwrap();
            assert_eq!(group.contains('.'), is_custom, "{rule}");
            for resource in rule["resources"].as_array().unwrap() {
                let resource = resource.as_str().unwrap();
                let of_table = |custom: &CustomWorkload| (custom.group, custom.resource) == (group, resource);
                let is_matched = MATCHED.contains(&resource) || CUSTOM_WORKLOADS.iter().any(of_table);
                assert!(is_matched, "{resource}");
            }
            for operation in rule["operations"].as_array().unwrap() {
                assert!(
                    ["CREATE", "UPDATE"].contains(&operation.as_str().unwrap()),
                    "{operation}"
                );
            }
        }
        let names = &entry["namespaceSelector"]["matchExpressions"][0];
        for namespace in NEVER.into_iter().chain(BY_DEFAULT).chain(["transom-system"]) {
            assert!(
                names["values"].as_array().unwrap().contains(&json!(namespace)),
                "{entry}"
            );
        }
    }
}

#[test]
fn what_is_left_out_is_what_the_selector_does_not_select() {
    use kube::core::{Selector, SelectorExt as _};
    const NAME: &str = "kubernetes.io/metadata.name";
    let options = RegistrationOptions::default();
    let selector = Selector::try_from(options.namespaces(None)).unwrap();
    let mut excluded = options.excluded_namespaces.clone();
    excluded.push("transom-system".to_owned());
    for (name, label, out) in [
        ("kube-system", None, true),
        ("transom-system", None, true),
        ("calico-system", None, true),
        ("a", None, false),
        // kubebuilder scaffolds add this label to ordinary namespaces.
        ("a", Some(("control-plane", "x")), false),
        ("a", Some(("kubernetes.azure.com/managedby", "aks")), true),
        ("a", Some(("kubernetes.azure.com/managedby", "me")), false),
        ("a", Some(("transom.dev/ignore", "true")), true),
        ("a", Some(("transom.dev/ignore", "false")), false),
        ("a", Some(("windows.k8s.io/disabled", "true")), false),
    ] {
        let labels = [Some((NAME, name)), label].into_iter().flatten();
        let labels = labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(is_left_out(name, &labels, &excluded), out, "{name} {label:?}");
        assert_eq!(selector.matches(&labels), !out, "{name} {label:?}");
    }
}

#[test]
fn what_is_opted_into_keeps_the_exclusions() {
    let [mutating, _] = everything();
    let selector = &webhooks(&mutating)[1]["namespaceSelector"];
    assert_eq!(selector["matchLabels"], json!({"team": "a"}));
    let expressions = selector["matchExpressions"].as_array().unwrap();
    let all = webhooks(&mutating)[0]["namespaceSelector"]["matchExpressions"]
        .as_array()
        .unwrap();
    assert_eq!(expressions[..all.len()], all[..]);
    assert_eq!(
        expressions[all.len()..],
        [json!({"key": "tier", "operator": "Exists"})]
    );
}

#[test]
fn a_url_is_called_at_its_paths() {
    let options = RegistrationOptions {
        endpoint: WebhookEndpoint::Url("https://127.0.0.1:8443/".to_owned()),
        ca_bundle: Some(b"pem".to_vec()),
        ..RegistrationOptions::default()
    };
    let validating = serde_json::to_value(validating(&options)).unwrap();
    assert_eq!(
        webhooks(&validating)[0]["clientConfig"],
        json!({"caBundle": "cGVt", "url": "https://127.0.0.1:8443/validate"})
    );
    assert_eq!(validating["metadata"]["name"], "zz-transom");
}
