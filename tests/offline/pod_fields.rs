//! Every field of a pod is read by Transom, or declared here as not needed, with the reason. The fields are those of the
//! client library, so that a new release of Kubernetes fails this test until someone decides. Kubernetes has a similar test
//! (`TestValidateOSFields`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::api::core::v1::PodSpec as SchemaSource;
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};
use transom::model::objects::pod::PodSpec;

/// The fields that Transom does not read, by type, and why. `Container` is also `EphemeralContainer`.
const NOT_READ: &[(&str, &[&str], &str)] = &[
    (
        "PodSpec",
        &[
            "activeDeadlineSeconds",
            "automountServiceAccountToken",
            "evictionResponders",
            "preemptionPolicy",
            "priority",
            "readinessGates",
            "schedulerName",
            "schedulingGates",
            "schedulingGroup",
            "serviceAccount",
            "serviceAccountName",
        ],
        "the control plane uses them, for pods of each system alike",
    ),
    (
        "PodSpec",
        &[
            "hostAliases",
            "hostname",
            "hostnameOverride",
            "setHostnameAsFQDN",
            "subdomain",
        ],
        "the kubelet on Windows writes the hosts file and sets the name of the sandbox, too",
    ),
    (
        "PodAffinity",
        &["preferredDuringSchedulingIgnoredDuringExecution"],
        "a preference excludes no node",
    ),
    (
        "PodAntiAffinity",
        &["preferredDuringSchedulingIgnoredDuringExecution"],
        "a preference excludes no node",
    ),
    (
        "PodAffinityTerm",
        &[
            "labelSelector",
            "matchLabelKeys",
            "mismatchLabelKeys",
            "namespaceSelector",
            "namespaces",
        ],
        "they select other pods, not nodes",
    ),
    (
        "PreferredSchedulingTerm",
        &["weight"],
        "a preference excludes no node",
    ),
    (
        "TopologySpreadConstraint",
        &["labelSelector", "matchLabelKeys"],
        "they select pods; the domains do not depend on them",
    ),
    (
        "Container",
        &["stdin", "stdinOnce", "tty", "targetContainerName"],
        "the console works on Windows",
    ),
    (
        "Container",
        &["envFrom", "restartPolicyRules", "terminationMessagePolicy"],
        "the kubelet implements them for each system alike",
    ),
    ("Container", &["resizePolicy"], "the resize itself is denied"),
    (
        "ContainerPort",
        &["containerPort", "hostIP", "hostPort"],
        "the API server accepts them, and they work",
    ),
    ("EnvVar", &["valueFrom"], "each source works"),
    (
        "Probe",
        &[
            "failureThreshold",
            "grpc",
            "httpGet",
            "initialDelaySeconds",
            "periodSeconds",
            "successThreshold",
            "tcpSocket",
            "terminationGracePeriodSeconds",
            "timeoutSeconds",
        ],
        "the kubelet sends these probes itself; only a command runs in the container",
    ),
    (
        "LifecycleHandler",
        &["httpGet", "sleep", "tcpSocket"],
        "the kubelet does these itself",
    ),
    ("PodDNSConfig", &["nameservers"], "they are set in the sandbox"),
    ("PodDNSConfigOption", &["value"], "the option itself is reported"),
    (
        "AppArmorProfile",
        &["localhostProfile"],
        "the type says that it is used",
    ),
    (
        "SeccompProfile",
        &["localhostProfile"],
        "the type says that it is used",
    ),
    ("VolumeMount", &["readOnly"], "it works"),
    ("VolumeDevice", &["devicePath"], "the device itself is reported"),
    (
        "Volume",
        &[
            "awsElasticBlockStore",
            "azureDisk",
            "azureFile",
            "gcePersistentDisk",
            "vsphereVolume",
        ],
        "CSI drivers replace them, and those drivers run on Windows",
    ),
    (
        "ConfigMapVolumeSource",
        &["name", "optional"],
        "the kubelet reads the object for each system alike",
    ),
    (
        "SecretVolumeSource",
        &["optional", "secretName"],
        "as for a configMap",
    ),
    ("ConfigMapProjection", &["name", "optional"], "as for a configMap"),
    ("SecretProjection", &["name", "optional"], "as for a configMap"),
    (
        "KeyToPath",
        &["key", "path"],
        "the kubelet writes the files itself",
    ),
    (
        "DownwardAPIVolumeFile",
        &["fieldRef", "path", "resourceFieldRef"],
        "the kubelet writes the files itself",
    ),
    (
        "ServiceAccountTokenProjection",
        &["audience", "expirationSeconds", "path"],
        "the kubelet writes the file itself",
    ),
    (
        "ClusterTrustBundleProjection",
        &["labelSelector", "name", "optional", "path", "signerName"],
        "the kubelet writes the file itself",
    ),
    (
        "PodCertificateProjection",
        &[
            "certificateChainPath",
            "credentialBundlePath",
            "keyPath",
            "keyType",
            "maxExpirationSeconds",
            "signerName",
            "userAnnotations",
        ],
        "the kubelet writes the files itself",
    ),
    (
        "EmptyDirVolumeSource",
        &["sizeLimit"],
        "the kubelet evicts pods on Windows, too",
    ),
    (
        "CSIVolumeSource",
        &["nodePublishSecretRef", "readOnly"],
        "they are for the driver, which is identified by name",
    ),
    ("PersistentVolumeClaimVolumeSource", &["readOnly"], "it works"),
    (
        "PersistentVolumeClaimTemplate",
        &["metadata"],
        "labels and annotations",
    ),
    (
        "PersistentVolumeClaimSpec",
        &[
            "dataSource",
            "dataSourceRef",
            "selector",
            "volumeAttributesClassName",
        ],
        "they choose or fill the volume, on each system alike",
    ),
    (
        "VolumeResourceRequirements",
        &["limits"],
        "the size that is requested is used",
    ),
];

/// The last part of a reference; both types of containers have one name.
fn type_name(reference: &str) -> &str {
    let name = reference.rsplit(['/', '.']).next().unwrap_or(reference);
    if name == "EphemeralContainer" {
        "Container"
    } else {
        name
    }
}

/// A value that fits the schema, and is no default. `depth`: how many objects may contain each other.
fn sample(schema: &Value, definitions: &BTreeMap<String, Value>, depth: usize) -> Value {
    let name = schema.get("$ref").and_then(Value::as_str).map(type_name);
    if name == Some("Quantity") {
        return json!("7");
    }
    let schema = referred(schema)
        .filter(|_| schema.get("items").is_none())
        .map_or(schema, |name| &definitions[type_name(name)]);
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null"),
        other => Some(other),
    };
    match kind.and_then(Value::as_str) {
        Some("boolean") => json!(true),
        Some("integer") => json!(7),
        Some("string") => json!("sample"),
        Some("array") => json!([sample(&schema["items"], definitions, depth)]),
        _ if depth == 0 => json!({}),
        _ if schema.get("additionalProperties").is_some() => {
            json!({"sample": sample(&schema["additionalProperties"], definitions, depth - 1)})
        }
        _ => {
            let fields = schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten();
            fields
                .map(|(name, schema)| (name.clone(), sample(schema, definitions, depth - 1)))
                .collect()
        }
    }
}

/// The type that a field refers to, itself or in a list.
fn referred(schema: &Value) -> Option<&str> {
    let own = schema.get("$ref").or_else(|| schema.get("items")?.get("$ref"));
    let choices = ["anyOf", "allOf", "oneOf"]
        .iter()
        .filter_map(|name| schema.get(name)?.as_array());
    own.or_else(|| choices.flatten().find_map(|choice| choice.get("$ref")))?
        .as_str()
}

/// Where an object of a type is in a pod: the fields on the way, and whether each is a list.
type Way = Vec<(String, bool)>;

/// A pod spec with this object at the end of the way.
fn pod(way: &[(String, bool)], object: Value) -> Value {
    way.iter().rev().fold(object, |inner, (field, is_list)| {
        let inner = if *is_list { json!([inner]) } else { inner };
        json!({ field: inner })
    })
}

/// What Transom reads of a pod spec; `None` if a value has a type that it refuses.
fn read(spec: &Value) -> Option<String> {
    let text = spec.to_string();
    let read: Option<PodSpec<'_>> = serde_json::from_str(&text).ok();
    read.map(|spec| format!("{spec:?}"))
}

#[test]
fn every_field_of_a_pod_is_read_or_declared() {
    let mut generator = SchemaGenerator::default();
    generator.subschema_for::<SchemaSource>();
    let definitions: BTreeMap<String, Value> = generator
        .definitions()
        .iter()
        .map(|(name, schema)| (type_name(name).to_owned(), schema.clone()))
        .collect();

    let declared: BTreeMap<(&str, &str), &str> = NOT_READ
        .iter()
        .flat_map(|(of, fields, why)| fields.iter().map(move |field| ((*of, *field), *why)))
        .collect();
    let mut not_read = BTreeSet::new();
    let mut met = BTreeSet::from(["PodSpec".to_owned()]);
    let mut queue: VecDeque<(String, Way)> = VecDeque::from([("PodSpec".to_owned(), Way::new())]);
    while let Some((name, way)) = queue.pop_front() {
        let Some(fields) = definitions[&name].get("properties").and_then(Value::as_object) else {
            continue;
        };
        let without = read(&pod(&way, json!({})));
        for (field, schema) in fields {
            let with = |value: Value| {
                read(&pod(
                    &way,
                    Value::Object(Map::from_iter([(field.clone(), value)])),
                ))
            };
            let set = with(sample(schema, &definitions, 3));
            if set == without {
                not_read.insert((name.clone(), field.clone()));
                continue;
            }
            // Of some fields only the presence matters, so that nothing below is read.
            let other = json!("another type");
            let is_list = schema.get("items").is_some();
            let only_presence = set == with(if is_list { json!([other]) } else { other });
            if let Some(of) = referred(schema).map(type_name)
                && !only_presence
                && definitions.contains_key(of)
                && met.insert(of.to_owned())
            {
                let way = way.iter().cloned().chain([(field.clone(), is_list)]).collect();
                queue.push_back((of.to_owned(), way));
            }
        }
    }

    let declared_fields: BTreeSet<(String, String)> = declared
        .keys()
        .map(|(of, field)| ((*of).to_owned(), (*field).to_owned()))
        .collect();
    let undecided: Vec<_> = not_read.difference(&declared_fields).collect();
    assert!(
        undecided.is_empty(),
        "nothing reads these fields of a pod. Does Windows support each? Then add it to NOT_READ with the reason, else \
         write a rule: {undecided:?}"
    );
    let stale: Vec<_> = declared_fields.difference(&not_read).collect();
    assert!(
        stale.is_empty(),
        "these fields are read, or do not exist: {stale:#?}"
    );
}
