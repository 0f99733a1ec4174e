//! The table of the names of fields of Kubernetes' own kinds is that of the client library. To write it again:
//! `TRANSOM_BLESS=1 cargo test --test offline api_fields::`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use k8s_openapi::Resource;
use k8s_openapi::api::{apps, autoscaling, batch, core, discovery, networking, node, storage};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;
use transom::model::cluster::facts::Facts;
use transom::model::objects::workload::Kind;

const TABLE: &str = "crates/core/src/model/objects/api_fields/fields.txt";

/// The schemas of kinds, and the name of the schema of each.
#[derive(Default)]
struct Schemas {
    generator: SchemaGenerator,
    /// By `apiVersion` and kind.
    kinds: Vec<(&'static str, &'static str, String)>,
}

impl Schemas {
    fn add<T: Resource + JsonSchema>(&mut self) {
        self.generator.subschema_for::<T>();
        self.kinds
            .push((T::API_VERSION, T::KIND, T::schema_name().into_owned()));
    }

    /// Every kind without a custom resource, in the versions of the client library.
    fn of_kinds() -> Self {
        let mut all = Schemas::default();
        all.add::<core::v1::Pod>();
        all.add::<apps::v1::Deployment>();
        all.add::<apps::v1::ReplicaSet>();
        all.add::<apps::v1::StatefulSet>();
        all.add::<apps::v1::DaemonSet>();
        all.add::<batch::v1::Job>();
        all.add::<batch::v1::CronJob>();
        all.add::<core::v1::ReplicationController>();
        all.add::<core::v1::PodTemplate>();
        all.add::<core::v1::Service>();
        all.add::<discovery::v1::EndpointSlice>();
        all.add::<networking::v1::NetworkPolicy>();
        all.add::<core::v1::PersistentVolumeClaim>();
        all.add::<core::v1::PersistentVolume>();
        all.add::<storage::v1::StorageClass>();
        all.add::<storage::v1::CSINode>();
        all.add::<core::v1::Node>();
        all.add::<node::v1::RuntimeClass>();
        all.add::<autoscaling::v1::HorizontalPodAutoscaler>();
        all.add::<autoscaling::v2::HorizontalPodAutoscaler>();
        let known: BTreeSet<_> = all.kinds.iter().map(|(_, kind, _)| *kind).collect();
        let own = Kind::ALL.into_iter().filter(|kind| !kind.is_custom());
        assert_eq!(known, own.map(Kind::as_str).collect());
        all
    }
}

/// The fields of a schema, each with the schema that it refers to, itself or in a list.
fn fields(schema: &Value) -> BTreeMap<&str, Option<(&str, bool)>> {
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.into_iter().flatten().map(|(name, schema)| {
        let item = schema.get("items");
        let of = item.unwrap_or(schema);
        let choices = ["allOf", "anyOf", "oneOf"]
            .iter()
            .filter_map(|key| of.get(key)?.as_array());
        let of = choices
            .flatten()
            .chain([of])
            .find_map(|choice| choice.get("$ref")?.as_str());
        let of = of.map(|of| (of.rsplit('/').next().unwrap_or_default(), item.is_some()));
        (name.as_str(), of)
    });
    fields.collect()
}

/// The table, from the schemas.
fn table() -> String {
    let mut schemas = Schemas::of_kinds();
    let definitions: BTreeMap<String, Value> = schemas
        .generator
        .take_definitions(true)
        .into_iter()
        .map(|(name, schema)| (name.clone(), schema))
        .collect();
    let is_object = |name: &str| !fields(&definitions[name]).is_empty();
    let mut reached = BTreeSet::new();
    let mut queue: Vec<&str> = schemas.kinds.iter().map(|(.., name)| name.as_str()).collect();
    while let Some(name) = queue.pop() {
        if reached.insert(name) {
            let below = fields(&definitions[name]).into_values().flatten();
            queue.extend(below.map(|(of, _)| of).filter(|of| is_object(of)));
            for schema in definitions[name]["properties"].as_object().unwrap().values() {
                let values = schema
                    .get("additionalProperties")
                    .and_then(|values| values.get("$ref"));
                let of = values
                    .and_then(Value::as_str)
                    .and_then(|of| of.rsplit('/').next());
                assert!(
                    !of.is_some_and(is_object),
                    "the table has no maps of objects: {name} {of:?}"
                );
            }
        }
    }
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    for name in &reached {
        *alike.entry(last(name)).or_default() += 1;
    }
    // Types of several groups may have one name.
    let short = |name: &str| match alike[&last(name)] {
        1 => last(name),
        _ => name.trim_start_matches("io.k8s.api.").to_owned(),
    };
    let mut text = format!(
        "# The fields of the kinds of Kubernetes 1.{}, one type a line: its name, then its fields with the types of their \
         objects,\n# in brackets if they are lists. `kind`: the type of a kind. Written by tests/offline/api_fields.rs.\n",
        Facts::KUBERNETES
    );
    for (api_version, kind, name) in &schemas.kinds {
        _ = writeln!(text, "kind {api_version} {kind} {}", short(name));
    }
    let lines: BTreeSet<String> = reached
        .iter()
        .map(|name| {
            let fields = fields(&definitions[*name])
                .into_iter()
                .map(|(field, of)| match of {
                    Some((of, true)) if is_object(of) => format!(" {field}:[{}]", short(of)),
                    Some((of, false)) if is_object(of) => format!(" {field}:{}", short(of)),
                    _ => format!(" {field}"),
                });
            short(name) + &fields.collect::<String>()
        })
        .collect();
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[test]
fn the_table_of_fields_is_that_of_the_client_library() {
    let table = table();
    if std::env::var_os("TRANSOM_BLESS").is_some() {
        fs::write(TABLE, &table).unwrap();
    }
    let committed = fs::read_to_string(TABLE).unwrap();
    let is_same = committed == table;
    assert!(
        is_same,
        "{TABLE} is out of date: run the test with TRANSOM_BLESS=1"
    );
    assert!(table.len() < 64 * 1024, "{} bytes", table.len());
}
