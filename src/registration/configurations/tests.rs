//! Missing parts are reported with their remedy, and complete configurations are not reported.

use super::super::{FailurePolicy, RegistrationOptions, mutating, validating};
use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as ApiSelector;

use crate::model::windows::os::Os;

/// The configurations as the API server would store them.
fn registered(options: &RegistrationOptions) -> Configurations {
    let read = |title: &str, configuration: Value| {
        let webhooks = &configuration["webhooks"];
        let read = Configuration::read(format!("{title} zz-transom"), Some(webhooks));
        assert_eq!(read.entries.len(), webhooks.as_array().unwrap().len());
        read
    };
    Configurations {
        mutating: read(
            "MutatingWebhookConfiguration",
            serde_json::to_value(mutating(options)).unwrap(),
        ),
        validating: read(
            "ValidatingWebhookConfiguration",
            serde_json::to_value(validating(options)).unwrap(),
        ),
    }
}

fn policy(change: impl FnOnce(&mut Policy)) -> StoredPolicy {
    let mut policy = Policy::standalone();
    change(&mut policy);
    StoredPolicy::for_all(policy)
}

fn of_team(team: &str) -> LabelSelector {
    LabelSelector {
        match_labels: [("team".to_owned(), team.to_owned())].into(),
        ..LabelSelector::default()
    }
}

fn api(selector: &LabelSelector) -> ApiSelector {
    serde_json::from_value(json!(selector)).unwrap()
}

/// The namespaces `a` and `b` of these teams, and one that is always excluded.
fn namespaces() -> BTreeMap<String, BTreeMap<String, String>> {
    let labels = |name: &str, team: &str| {
        let labels = [(EVERY_NAMESPACE, name), ("team", team)];
        labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    };
    ["a", "b", "kube-system"]
        .map(|name| (name.to_owned(), labels(name, name)))
        .into()
}

fn gaps(registered: &Configurations, stored: &StoredPolicy) -> Vec<(&'static str, String)> {
    gaps_asking(registered, stored, &RegistryPatterns::default())
}

fn gaps_asking(
    registered: &Configurations,
    stored: &StoredPolicy,
    registries: &RegistryPatterns,
) -> Vec<(&'static str, String)> {
    let namespaces = namespaces();
    let counts_in = namespaces
        .iter()
        .filter(|(_, labels)| stored.namespace_selector.selects(labels))
        .map(|(name, labels)| (name.as_str(), labels));
    (registered.gaps(stored, registries, &counts_in).into_iter())
        .map(|gap| (gap.reason, gap.message))
        .collect()
}

#[test]
fn a_policy_that_asks_for_nothing_special_is_served_by_the_plain_registration() {
    assert_eq!(
        gaps(&registered(&RegistrationOptions::default()), &policy(|_| {})),
        []
    );
}

#[test]
fn without_the_webhooks_nothing_has_an_effect_but_a_policy_that_is_off_misses_nothing() {
    let mut gone = registered(&RegistrationOptions::default());
    gone.mutating.entries.clear();
    let found = gaps(&gone, &policy(|policy| policy.linux_pods = LinuxPods::Apply));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "WebhookConfigurationMissing");
    assert!(
        found[0]
            .1
            .contains("there is no MutatingWebhookConfiguration zz-transom,"),
        "{found:?}"
    );
    gone.validating.entries.remove(0);
    assert!(
        gaps(&gone, &policy(|_| {}))[0]
            .1
            .contains("and no ValidatingWebhookConfiguration zz-transom,")
    );
    let off =
        policy(|policy| (policy.validation, policy.placement) = (Action::Disabled, PlacementMode::Disabled));
    assert_eq!(gaps(&gone, &off), []);
}

#[test]
fn two_entries_for_windows_pods_are_as_good_as_one_and_half_of_them_is_not() {
    let fails_closed = registered(&RegistrationOptions {
        validate_failure_policy: FailurePolicy::Fail,
        ..RegistrationOptions::default()
    });
    assert_eq!(gaps(&fails_closed, &policy(|_| {})), []);
    assert_eq!(gaps(&fails_closed, &policy(|_| {})), []);
    for missing in [names::CERTAIN_VALIDATE, names::VALIDATE] {
        let mut half = fails_closed.clone();
        half.validating
            .entries
            .retain(|entry| entry.webhook.name != missing);
        assert_eq!(gaps(&half, &policy(|_| {}))[0].0, "WebhookConfigurationMissing");
    }
    // The single entry leaves nothing to another one.
    assert_eq!(
        registered(&RegistrationOptions::default()).mutating.entries.len(),
        1
    );
}

#[test]
fn an_entry_that_a_policy_needs_is_missed_with_the_value_and_the_flag_that_bring_it() {
    let plain = registered(&RegistrationOptions::default());
    let guarded = policy(|policy| policy.linux_pods = LinuxPods::Warn);
    assert_eq!(
        gaps(&plain, &guarded),
        [(
            "WebhookEntryMissing",
            "placement.linuxPods: Warn has no effect: the webhook configurations lack the entry linux-pods.mutate.transom.dev or linux-pods.validate.transom.dev; set the chart's \
             webhooks.linuxPods: {\"enabled\":true,\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\
             \"kubernetes.io/metadata.name\",\"operator\":\"Exists\"}]}}, or add to transom generate webhooks: \
             --linux-pods-selector 'kubernetes.io/metadata.name'"
                .to_owned()
        )]
    );
    let mut of_a = policy(|policy| policy.default_os = Some(Os::Windows));
    of_a.namespace_selector = of_team("a");
    let found = gaps(&plain, &of_a);
    assert!(
        found[0].1.contains(
            "evidence.defaultOS: Windows has no effect: the webhook configurations lack the entry default-os.mutate.transom.dev or default-os.validate.transom.dev; set \
             the chart's webhooks.defaultOS: {\"enabled\":true,\"namespaceSelector\":{\"matchLabels\":{\"team\":\"a\"}}}, \
             or add to transom generate webhooks: --default-os-selector 'team=a'"
        ),
        "{found:?}"
    );
    // The recommended remedy fixes it.
    let fixed = registered(&RegistrationOptions {
        linux_pods: Some(ApiSelector {
            match_expressions: Some(vec![super::super::requirement(EVERY_NAMESPACE, "Exists", &[])]),
            match_labels: None,
        }),
        default_os: Some(api(&of_team("a"))),
        ..RegistrationOptions::default()
    });
    assert_eq!(gaps(&fixed, &guarded), []);
    assert_eq!(gaps(&fixed, &of_a), []);
}

#[test]
fn namespaces_that_an_entry_does_not_select_are_named_unless_they_are_left_out_of_everything() {
    let of_a = registered(&RegistrationOptions {
        linux_pods: Some(api(&of_team("a"))),
        ..RegistrationOptions::default()
    });
    let guarded = policy(|policy| policy.linux_pods = LinuxPods::Apply);
    let found = gaps(&of_a, &guarded);
    assert_eq!(found[0].0, "NamespacesNotSelected");
    assert!(
        found[0]
            .1
            .starts_with("placement.linuxPods: Apply has no effect in b: linux-pods.mutate.transom.dev and "),
        "{found:?}"
    );
}

#[test]
fn a_policy_that_uses_registries_misses_the_list_the_entries_and_each_registry() {
    let wanted = policy(|policy| policy.image_evidence = ImageEvidence::Registry);
    let list = |text: &[&str]| RegistryPatterns::parse(text.iter().copied()).unwrap();
    let gaps = |options: &[&str], registries: &[&str]| {
        let options = RegistrationOptions {
            image_registries: list(options),
            ..RegistrationOptions::default()
        };
        gaps_asking(&registered(&options), &wanted, &list(registries))
    };
    let registries = ["mcr.microsoft.com", "*.azurecr.io"];
    assert_eq!(
        gaps(&registries, &[]),
        [(
            "ImageRegistriesNotConfigured",
            "evidence.imageEvidence: Registry has no effect: Transom may not ask any registry; set the chart's imageLookups.registries, as \
             in [mcr.microsoft.com, \"*.azurecr.io\"], or add to transom serve and to transom generate webhooks: \
             --image-registry 'PATTERN'"
                .to_owned()
        )]
    );
    assert_eq!(
        gaps(&[], &registries),
        [(
            "WebhookEntryMissing",
            "evidence.imageEvidence: Registry has no effect on pods without a sign of Windows: the webhook configurations lack the \
             entry images.mutate.transom.dev or images.validate.transom.dev; add to the chart's imageLookups.registries: \
             [\"mcr.microsoft.com\",\"*.azurecr.io\"], or to transom generate webhooks: --image-registry \
             'mcr.microsoft.com,*.azurecr.io'"
                .to_owned()
        )]
    );
    assert_eq!(
        gaps(&registries[..1], &registries),
        [(
            "ImageRegistriesNotRegistered",
            "evidence.imageEvidence: Registry has no effect on pods without a sign of Windows whose images are on registries that the \
             webhook configurations do not know; add to the chart's imageLookups.registries: [\"*.azurecr.io\"], or to transom \
             generate webhooks: --image-registry '*.azurecr.io'"
                .to_owned()
        )]
    );
    assert_eq!(gaps(&registries, &registries), []);
    assert_eq!(
        gaps(&registries, &registries[..1]),
        [],
        "one more costs a call only"
    );
}

#[test]
fn selectors_are_written_as_the_flag_reads_them() {
    let selector: LabelSelector = serde_json::from_value(json!({
        "matchLabels": {"team": "a"},
        "matchExpressions": [
            {"key": "tier", "operator": "NotIn", "values": ["test", "dev"]},
            {"key": "legacy", "operator": "DoesNotExist"},
            {"key": "windows", "operator": "Exists"},
            {"key": "site", "operator": "In", "values": ["x"]},
        ],
    }))
    .unwrap();
    assert_eq!(
        selector_flag(&selector),
        "team=a,tier!=test,tier!=dev,!legacy,windows,site=x"
    );
    let several: LabelSelector = serde_json::from_value(json!({
        "matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}],
    }))
    .unwrap();
    assert_eq!(selector_flag(&several), EVERY_NAMESPACE);
    assert_eq!(
        selector_value(&several),
        json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]})
    );
}

#[test]
fn pods_are_placed_only_where_the_entry_stands_and_selects_the_namespace() {
    let known = registered(&RegistrationOptions::default());
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    let named = |name| labels(&[("kubernetes.io/metadata.name", name)]);
    assert!(known.mutates_in(&named("shop")));
    assert!(!known.mutates_in(&named("kube-system")));
    assert!(!known.mutates_in(&labels(&[("transom.dev/ignore", "true")])));
    let mut gone = known;
    gone.mutating.entries.clear();
    assert!(!gone.mutates_in(&named("shop")));
}

#[test]
fn what_transom_registers_is_as_transom_registers_it() {
    let everywhere = api(&LabelSelector::default());
    for options in [
        RegistrationOptions::default(),
        RegistrationOptions {
            validate_failure_policy: FailurePolicy::Fail,
            linux_pods: Some(everywhere.clone()),
            default_os: Some(api(&of_team("a"))),
            default_node_selector: Some(everywhere.clone()),
            image_registries: RegistryPatterns::parse(["docker.io", "*.azurecr.io"]).unwrap(),
            timeout: std::time::Duration::from_secs(1),
            excluded_namespaces: Vec::new(),
            ..RegistrationOptions::default()
        },
        RegistrationOptions {
            endpoint: super::super::WebhookEndpoint::Url("https://laptop:8443".to_owned()),
            ..RegistrationOptions::default()
        },
    ] {
        let registered = registered(&options);
        assert_eq!(registered.drift(), Vec::<String>::new());
        assert_eq!(registered.problems(None), []);
    }
}

/// A phase, a change of its entry, and the messages for that.
type ConfigurationCase<'c> = (&'c str, &'c dyn Fn(&mut Value), &'c [&'c str]);

/// A difference evaluates every stored workload again.
#[test]
fn a_new_certificate_changes_no_configuration() {
    let read = |bundle: &str| {
        let mut stored = serde_json::to_value(validating(&RegistrationOptions::default())).unwrap();
        stored["webhooks"][0]["clientConfig"]["caBundle"] = json!(bundle);
        Configuration::read(String::new(), Some(&stored["webhooks"]))
    };
    assert!(!read("YQ==").entries.is_empty());
    assert_eq!(read("YQ=="), read("Yg=="));
}

#[test]
fn what_was_changed_by_hand_is_named_with_what_it_has_to_be() {
    let change = |phase: &str, change: &dyn Fn(&mut Value)| {
        let options = RegistrationOptions::default();
        let mut configuration = match phase {
            "mutate" => serde_json::to_value(mutating(&options)).unwrap(),
            _ => serde_json::to_value(validating(&options)).unwrap(),
        };
        let webhooks = configuration["webhooks"].as_array_mut().unwrap();
        let found = webhooks
            .iter_mut()
            .find(|it| it["name"] == format!("{phase}.transom.dev"));
        change(found.unwrap());
        let read = Configuration::read(String::new(), Some(&configuration["webhooks"]));
        read.drift(phase == "mutate")
    };
    let set = |path: &'static str, value: Value| {
        move |entry: &mut Value| *entry.pointer_mut(path).unwrap() = value.clone()
    };
    let all = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]);
    let more = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods", "secrets"]}]);
    let always = json!([{"name": "has-a-sign-of-windows", "expression": "true"}]);
    let cases: [ConfigurationCase<'_>; 13] = [
        (
            "mutate",
            &set("/rules", all),
            &["its rules match more than Transom evaluates (* */*/*/*)"],
        ),
        (
            "validate",
            &set("/rules", more),
            &[
                "match more than Transom evaluates (CREATE core/v1/secrets)",
                "its rules omit CREATE apps/v1/daemonsets,",
            ],
        ),
        (
            "mutate",
            &|entry| drop(entry.as_object_mut().unwrap().remove("rules")),
            &["its rules omit CREATE"],
        ),
        (
            "mutate",
            &set("/matchConditions", json!([])),
            &["it has no matchConditions"],
        ),
        (
            "mutate",
            &set("/matchConditions", always),
            &["it has none of Transom's matchConditions"],
        ),
        (
            "validate",
            &|entry| {
                entry["matchConditions"]
                    .as_array_mut()
                    .unwrap()
                    .push(json!({"name": "not-mine", "expression": "false"}));
            },
            &["Transom has no condition not-mine"],
        ),
        (
            "mutate",
            &set("/timeoutSeconds", json!(30)),
            &["timeoutSeconds is 30 and must be at most 2"],
        ),
        (
            "mutate",
            &set("/failurePolicy", json!("Fail")),
            &["failurePolicy is Fail and must be Ignore"],
        ),
        (
            "validate",
            &set("/failurePolicy", json!("Fail")),
            &["failurePolicy is Fail and must be Ignore"],
        ),
        (
            "validate",
            &set("/matchPolicy", json!("Exact")),
            &["matchPolicy is Exact and must be Equivalent"],
        ),
        (
            "mutate",
            &set("/reinvocationPolicy", json!("Never")),
            &["reinvocationPolicy is Never and must be IfNeeded"],
        ),
        (
            "mutate",
            &set("/namespaceSelector", json!({})),
            &[
                "does not exclude kube-system, kube-node-lease, kube-public, those with transom.dev/ignore=true",
            ],
        ),
        (
            "validate",
            &|entry| {
                entry["objectSelector"] = json!({"matchLabels": {"app": "web"}});
                entry["clientConfig"]["service"]["path"] = json!("/mutate");
            },
            &[
                "its objectSelector excludes objects",
                "clientConfig.service.path is /mutate and must be /validate",
            ],
        ),
    ];
    for (phase, changed, expected) in cases {
        let found = change(phase, changed);
        assert_eq!(found.len(), 1, "{expected:?}: {found:?}");
        assert!(
            found[0].starts_with(&format!("{phase}.transom.dev: ")),
            "{found:?}"
        );
        for reported in expected {
            assert!(found[0].contains(reported), "{reported}: {found:?}");
        }
    }
    let renamed = change("mutate", &set("/name", json!("another.example.com")));
    assert_eq!(renamed, ["another.example.com: Transom has no such entry"]);

    // The status of every policy reports it, with the remedy.
    let mut widened = registered(&RegistrationOptions::default());
    widened.validating.entries[0].webhook.rules = None;
    let [differs] = widened.problems(None).try_into().unwrap();
    assert_eq!(differs.reason, "WebhookConfigurationDrifted");
    assert!(
        differs.message.contains("run helm upgrade again"),
        "{}",
        differs.message
    );
}

#[test]
fn configurations_that_were_made_for_other_facts_about_the_cluster_are_reported() {
    let of = |hash: Option<&str>| {
        let options = RegistrationOptions {
            cluster_config_hash: hash.map(str::to_owned),
            ..RegistrationOptions::default()
        };
        let annotated = |configuration: Configuration, json: Value| {
            let annotations: BTreeMap<String, String> =
                serde_json::from_value(json["metadata"]["annotations"].clone()).unwrap();
            configuration.annotated(&annotations)
        };
        let Configurations {
            mutating: one,
            validating: other,
        } = registered(&options);
        Configurations {
            mutating: annotated(one, serde_json::to_value(mutating(&options)).unwrap()),
            validating: annotated(other, serde_json::to_value(validating(&options)).unwrap()),
        }
    };
    let reasons = |made_for: Option<&str>, used: Option<&str>| {
        let problems = of(made_for).problems(used);
        problems.iter().map(|problem| problem.reason).collect::<Vec<_>>()
    };
    assert_eq!(reasons(None, None), [""; 0]);
    assert_eq!(reasons(Some("a"), Some("a")), [""; 0]);
    for (made_for, used) in [(None, Some("a")), (Some("a"), None), (Some("a"), Some("b"))] {
        assert_eq!(reasons(made_for, used), ["ClusterConfigDiffers"]);
    }
    let mut half = of(Some("a"));
    half.mutating.cluster_config_hash = None;
    assert_eq!(half.problems(Some("a"))[0].reason, "ClusterConfigDiffers");
}
