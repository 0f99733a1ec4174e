//! The files of the chart that come out of the code: registration, rule names, schema of the policies, README.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value, json};
use transom::api;
use transom::cluster::node::OWNED_ANNOTATION;
use transom::cluster::node_ownership::PROOF_LABEL;
use transom::controller::node_policies::nodes::labels::LABELS;
use transom::model::cluster::feature_gates;
use transom::model::nodes::node::{
    BETA_OS_LABEL, BUILD_LABEL, NodeLabel, NodeLabelValue, OS_LABEL, RESTRICTED_BUILD_LABEL, Taint,
};
use transom::model::objects::workload::CUSTOM_WORKLOADS;
use transom::model::objects::workload::configured::{CEL_KEYWORDS, ConfiguredKind, PodTemplateKind};
use transom::model::windows::registry_patterns::RegistryPatterns;
use transom::registration::{
    FailurePolicy, RegistrationOptions, ServiceName, WebhookEndpoint, mutating, validating,
};

/// A label of a pool that nobody has: where it stands in a condition, the chart puts the labels of an installation.
const KEY: &str = "POOL_KEY";
const VALUE: &str = "pool_value";
/// A custom resource that nobody has, in the same way.
const POD_TEMPLATE: &str = "pod-template-group.invalid/PodTemplateKind=spec.podTemplatePath";

/// A registry that nobody has, in the same way.
const REGISTRY: &str = "image-registry.invalid";

pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/transom")
}

pub fn is_up_to_date(file: &Path, generated: &str) {
    crate::support::command::is_up_to_date(file, generated, "chart");
}

/// The webhook configurations with every entry (that of `/validate` by what it does without Transom), and what stands in
/// them once for each pool label.
pub fn webhooks() -> Value {
    let is_value = format!("v == '{VALUE}'");
    let kind = PodTemplateKind::parse(POD_TEMPLATE)
        .unwrap()
        .configured()
        .unwrap();
    let (without, pools) = (
        configurations(&[], &[], &[REGISTRY]),
        configurations(&[KEY], &[], &[REGISTRY]),
    );
    let with = configurations(&[KEY], &[kind], &[REGISTRY]);
    let (mut parts, mut of_pod_templates) = (BTreeSet::new(), BTreeSet::new());
    for (without, with) in expressions(&without).iter().zip(expressions(&pools)) {
        parts.extend(inserted(without, &with, KEY));
    }
    for (without, with) in expressions(&pools).iter().zip(expressions(&with)) {
        of_pod_templates.extend(inserted(without, &with, kind.group()));
    }
    let [of_pod_template] = <[String; 1]>::try_from(Vec::from_iter(of_pod_templates)).unwrap();
    let images = images(&configurations(&[KEY], &[], &[]), &pools);
    let mut custom_resources: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for custom in &CUSTOM_WORKLOADS {
        custom_resources
            .entry(custom.group)
            .or_default()
            .push(custom.resource);
    }
    for part in &parts {
        assert!(part.contains(KEY), "{part}");
        assert_eq!(part.contains(VALUE), part.contains(&is_value), "{part}");
    }
    let well_known = NodeLabel::well_known()
        .into_iter()
        .map(|label| match label.value {
            NodeLabelValue::Exact(value) => json!({"key": label.key, "values": [value]}),
            NodeLabelValue::Prefix(prefix) => json!({"key": label.key, "valuePrefixes": [prefix]}),
        });
    let well_known: Vec<Value> = well_known.collect();
    let [mutating, ignore, fail] = with;
    json!({
        "mutating": mutating,
        "validating": {"Ignore": ignore, "Fail": fail},
        "pools": {
            "wellKnown": well_known,
            // What the engine knows by itself of these labels counts, whatever a policy says.
            "known": [OS_LABEL, BETA_OS_LABEL, BUILD_LABEL, RESTRICTED_BUILD_LABEL],
            "key": KEY,
            "value": is_value,
            "parts": parts,
        },
        "podTemplates": {
            "group": kind.group(),
            "resource": kind.resource(),
            "path": ".?spec.?podTemplatePath",
            "part": of_pod_template,
            "keywords": CEL_KEYWORDS,
        },
        "images": images,
        "customResources": custom_resources,
    })
}

/// What stands in conditions where registries are listed: the parts that are gone without one, the test of a registry, and
/// what is tested in addition for docker.io.
fn images(without: &[Value; 3], with: &[Value; 3]) -> Value {
    let mut parts = BTreeSet::new();
    for (without, with) in without.iter().zip(with) {
        let (without, mut with) = (
            expressions(std::slice::from_ref(without)),
            expressions(std::slice::from_ref(with)),
        );
        // The entry of images is the last one.
        let last = with.pop().unwrap();
        assert!(last.contains(REGISTRY) && without.len() == with.len());
        for (without, with) in without.iter().zip(with) {
            parts.extend(inserted(without, &with, REGISTRY));
        }
    }
    assert_eq!(parts.len(), 2, "{parts:?}");
    let test = format!("(g in ['{REGISTRY}'])");
    let [_, hub] = [&[REGISTRY], &["docker.io"]].map(|registry| {
        let [mutating, ..] = configurations(&[], &[], registry);
        expressions(&[mutating]).pop().unwrap()
    });
    let (_, of_hub) = hub.split_once("'registry-1.docker.io'] || ").unwrap();
    let of_hub = &of_hub[..of_hub.find("'localhost'").unwrap() + "'localhost'".len()];
    for part in &parts {
        assert!(part.contains(&test), "{part}");
    }
    json!({"parts": parts, "test": test, "ofDockerHub": of_hub})
}

/// That of `/mutate` and both of `/validate`, with every entry, for pools with these labels.
fn configurations(keys: &[&str], pod_templates: &[ConfiguredKind], registries: &[&str]) -> [Value; 3] {
    let open = RegistrationOptions {
        endpoint: WebhookEndpoint::Service(ServiceName {
            name: "NAME".to_owned(),
            namespace: "NAMESPACE".to_owned(),
        }),
        excluded_namespaces: Vec::new(),
        node_labels: keys.iter().map(|key| NodeLabel::exact(key, VALUE)).collect(),
        pod_templates: pod_templates.to_vec(),
        linux_pods: Some(LabelSelector::default()),
        default_os: Some(LabelSelector::default()),
        default_node_selector: Some(LabelSelector::default()),
        image_registries: RegistryPatterns::parse(registries.iter().copied()).unwrap(),
        ..RegistrationOptions::default()
    };
    let closed = RegistrationOptions {
        validate_failure_policy: FailurePolicy::Fail,
        ..open.clone()
    };
    [
        json!(mutating(&open)),
        json!(validating(&open)),
        json!(validating(&closed)),
    ]
}

fn expressions(configurations: &[Value]) -> Vec<String> {
    let webhooks = configurations
        .iter()
        .flat_map(|it| it["webhooks"].as_array().unwrap());
    let conditions = webhooks.flat_map(|it| it["matchConditions"].as_array().unwrap());
    conditions
        .map(|it| it["expression"].as_str().unwrap().to_owned())
        .collect()
}

/// What a text has more than another, part by part; each part has one key.
fn inserted(without: &str, with: &str, key: &str) -> Vec<String> {
    let (mut old, mut new, mut parts) = (without, with, Vec::new());
    loop {
        let same = old.bytes().zip(new.bytes()).take_while(|(a, b)| a == b).count();
        (old, new) = (&old[same..], &new[same..]);
        if new.is_empty() {
            assert_eq!(old, "");
            return parts;
        }
        let next = &old[..old.len().min(60)];
        let key = new
            .find(key)
            .unwrap_or_else(|| panic!("nothing configured makes {new}"));
        let end = key + new[key..].find(next).unwrap_or_else(|| panic!("{next} is gone"));
        parts.push(new[..end].to_owned());
        new = &new[end..];
    }
}

/// What the program writes to nodes, and which taints it neither sets nor removes: the admission policies allow no more.
pub fn node_writes() -> Value {
    let labels = LABELS.iter().map(|label| label.key);
    let labels: Vec<&str> = labels.chain([PROOF_LABEL]).collect();
    json!({
        "labels": labels,
        "annotation": OWNED_ANNOTATION,
        "startupTaint": Taint::STARTUP_KEY,
        "protectedTaints": {
            "prefixes": Taint::PROTECTED_PREFIXES,
            "keys": Taint::PROTECTED_KEYS,
            "except": Taint::SETTABLE_KEY,
        },
    })
}

/// Values that null takes away, as Helm has it: what the templates then leave out. A parent chart's `global` is its own.
pub const MAY_BE_NULL: [&str; 18] = [
    "affinity",
    "global.imagePullSecrets",
    "global.imageRegistry",
    "hooks.resources",
    "hooks.resources.limits",
    "hooks.resources.requests",
    "imagePullSecrets",
    "metrics.dashboard.labels",
    "nodePolicies.default",
    "nodeSelector",
    "podPolicies.default",
    "podSecurityContext",
    "resources",
    "resources.limits",
    "resources.requests",
    "securityContext",
    "tolerations",
    "topologySpreadConstraints",
];

/// The defaults of the chart.
pub fn values(yaml: &str) -> Value {
    let parsed = transom::manifest::parse(yaml.as_bytes().to_vec());
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    serde_json::from_str(parsed.documents[0].json()).unwrap()
}

/// Requires every value that has a default: null would take it away, and a template would find nothing there.
fn require(schema: &mut Value, values: &Value, path: &str) {
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    let (Some(values), Some(fields)) = (values.as_object(), fields) else {
        return;
    };
    let mut required = Vec::new();
    for (name, value) in values {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        if !MAY_BE_NULL.contains(&path.as_str()) {
            required.push(name.clone());
        }
        require(fields.get_mut(name).unwrap_or(&mut Value::Null), value, &path);
    }
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
}

/// `values.schema.json`, with the schemas of the policies as the CustomResourceDefinitions have them.
pub fn schema(written: &Value, yaml: &str) -> String {
    let mut schema = written.clone();
    schema["properties"]["cluster"] = for_values(&api::ClusterConfigSpec::schema());
    let gates = feature_gates::names().flat_map(|name| [format!("{name}=true"), format!("{name}=false")]);
    schema["properties"]["server"]["properties"]["featureGates"]["items"]["enum"] = gates.collect();
    require(&mut schema, &values(yaml), "");
    for (name, definition) in [
        ("podPolicySpec", api::pod_policy_definition()),
        ("nodePolicySpec", api::node_policy_definition()),
        ("nodePoolSpec", api::node_pool_definition()),
    ] {
        let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        schema["definitions"][name] = for_values(spec);
    }
    // The chart fills it in: the mode of the installation.
    for name in ["podPolicySpec", "nodePolicySpec"] {
        schema["definitions"][name]
            .as_object_mut()
            .unwrap()
            .remove("required");
    }
    format!("{schema:#}\n")
}

/// A schema of a CustomResourceDefinition in the words that Helm knows, with nothing unknown.
fn for_values(schema: &Value) -> Value {
    let Value::Object(schema) = schema else {
        return schema.clone();
    };
    // The same for every selector: stricter than the API server is with a selector of a policy, as labels are.
    let fields = schema.get("properties").and_then(Value::as_object);
    if fields.is_some_and(|it| it.contains_key("matchLabels") && it.contains_key("matchExpressions")) {
        return json!({"$ref": "#/definitions/selector"});
    }
    let mut out = Map::new();
    for (key, value) in schema {
        match key.as_str() {
            // A date is one for Helm too; int32 and the like are not.
            "format" if value == "date" => {
                out.insert(key.clone(), value.clone());
            }
            "default" | "format" => {}
            "properties" => {
                let each = value.as_object().unwrap().iter();
                let each = each.map(|(name, schema)| (name.clone(), for_values(schema)));
                out.insert(key.clone(), Value::Object(each.collect()));
                out.insert("additionalProperties".to_owned(), json!(false));
            }
            key if key.starts_with("x-kubernetes") => {}
            "items" | "additionalProperties" => {
                out.insert(key.clone(), for_values(value));
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}

/// A value of the chart as its comment in values.yaml documents it.
struct Documented {
    path: String,
    default: String,
    text: String,
}

/// The documented values, in their order. A comment that begins with `# --` documents the key below it.
fn documented(values: &str) -> Vec<Documented> {
    let (mut all, mut path, mut text) = (Vec::new(), Vec::<(usize, String)>::new(), None::<String>);
    let mut lines = values.lines().peekable();
    while let Some(line) = lines.next() {
        let (trimmed, indent) = (line.trim_start(), line.len() - line.trim_start().len());
        if let Some(begin) = trimmed.strip_prefix("# -- ") {
            text = Some(begin.to_owned());
        } else if let (Some(more), Some(text)) = (trimmed.strip_prefix("# "), &mut text) {
            text.push(' ');
            text.push_str(more);
        } else if let Some((key, default)) = trimmed.split_once(':')
            && !trimmed.starts_with(['#', '-'])
        {
            path.retain(|(at, _)| *at < indent);
            path.push((indent, key.to_owned()));
            let Some(text) = text.take() else { continue };
            let names: Vec<&str> = path.iter().map(|(_, name)| name.as_str()).collect();
            let mut default = default.trim().to_owned();
            while default.is_empty() || default.starts_with('\n') {
                match lines.peek() {
                    Some(next) if next.len() - next.trim_start().len() > indent => {
                        default.push('\n');
                        default.push_str(lines.next().unwrap());
                    }
                    _ => break,
                }
            }
            let default = default.split_whitespace().collect::<Vec<_>>().join(" ");
            all.push(Documented {
                path: names.join("."),
                default,
                text,
            });
        }
    }
    all
}

/// The chart's README: what is written by hand, then a table of the values.
pub fn readme(written: &str, values: &str) -> String {
    const MARK: &str = "<!-- made from values.yaml by tests/chart -->\n";
    let (before, _) = written
        .split_once(MARK)
        .expect("the README has a mark for its table");
    let mut text = format!("{before}{MARK}\n| value | default | meaning |\n|---|---|---|\n");
    for Documented {
        path,
        default,
        text: meaning,
    } in documented(values)
    {
        let escape = |text: &str| text.replace('|', "\\|");
        let default = match default.as_str() {
            "" | "\"\"" => "empty".to_owned(),
            other => format!("`{}`", escape(other)),
        };
        let _ = writeln!(text, "| `{path}` | {default} | {} |", escape(&meaning));
    }
    text
}
