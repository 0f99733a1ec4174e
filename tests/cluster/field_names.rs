//! The fields that `check` reports as unknown are those that a real API server rejects with `--validate=strict`, in every
//! object that the table of fields knows. Without the programs of envtest this says so and proves nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use transom::check::{CheckInput, Manifests};
use transom::engine::policy_set::PolicySet;
use transom::model::cluster::facts::Facts;
use transom::model::cluster::policy::Policy;
use transom::model::objects::object::ReviewStage;

use crate::support::control_plane::ControlPlane;

/// The table: types with their fields, and the type of each kind.
const TABLE: &str = include_str!("../../crates/core/src/model/objects/api_fields/fields.txt");

/// How many objects of one document get unknown fields: the API server reports the first hundred.
const AT_ONCE: usize = 40;

/// A field without a name that is near to it.
const PROBE: &str = "transomProbe";

/// The fields of a type, with the type of those that are objects, and whether these are lists.
type Fields = BTreeMap<&'static str, Option<(&'static str, bool)>>;

#[derive(Default)]
struct Table {
    types: BTreeMap<&'static str, Fields>,
    kinds: Vec<(&'static str, &'static str, &'static str)>,
}

impl Table {
    fn read() -> Self {
        let mut table = Table::default();
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            match words.next().unwrap() {
                "kind" => {
                    let [api_version, kind, of] = [(); 3].map(|()| words.next().unwrap());
                    table.kinds.push((api_version, kind, of));
                }
                name => {
                    let field = |word: &'static str| match word.split_once(':') {
                        None => (word, None),
                        Some((name, of)) => {
                            let item = of.trim_matches(['[', ']']);
                            (name, Some((item, item != of)))
                        }
                    };
                    table.types.insert(name, words.map(field).collect());
                }
            }
        }
        table
    }

    /// An object of a type with everything in it that is an object. Those from the index `from` on, as many as fit, have
    /// unknown fields: `at` counts them.
    fn sample(&self, of: &str, from: usize, at: &mut usize) -> Value {
        let mut object = Map::new();
        if (from..from + AT_ONCE).contains(at) {
            object.insert(PROBE.to_owned(), json!("x"));
            let field = self.types[of].keys().next().unwrap();
            object.insert(field[..1].to_uppercase() + &field[1..], json!(null));
        }
        *at += 1;
        for (field, of) in &self.types[of] {
            if let Some((of, is_list)) = of {
                let below = self.sample(of, from, at);
                object.insert((*field).to_owned(), if *is_list { json!([below]) } else { below });
            }
        }
        Value::Object(object)
    }
}

/// What the API server says that the types of an object do not have.
fn rejected(cluster: &ControlPlane, object: &str) -> BTreeSet<String> {
    let create = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
    let printed = cluster.kubectl_with(&create, object);
    assert!(!printed.ok, "{printed:?}");
    let fields = printed.err.split("unknown field \"").skip(1);
    fields
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
        .collect()
}

/// What `check` says of the same object.
fn reported(object: &str) -> BTreeSet<String> {
    let manifests = Manifests::parse(vec![CheckInput {
        source: "-".to_owned(),
        bytes: object.into(),
    }]);
    let (facts, policies) = (
        Facts::new(Facts::KUBERNETES, jiff::civil::date(2026, 1, 1)),
        PolicySet::new(Vec::new(), Policy::standalone()),
    );
    let mut found = BTreeSet::new();
    let errors = manifests
        .objects(ReviewStage::Written)
        .check(&facts, &policies, |checked| {
            let findings = checked.evaluation.findings.iter();
            let findings = findings.filter(|finding| finding.rule.name == "unknown-field");
            found.extend(findings.map(|finding| finding.path.to_string()));
        });
    assert_eq!(errors, [], "{object}");
    found
}

#[test]
fn the_api_server_rejects_exactly_the_fields_that_check_reports() {
    let Some(cluster) = ControlPlane::start_or_skip("tests/cluster/field_names.rs") else {
        return;
    };
    let table = Table::read();
    let (mut all, mut newer) = (0, BTreeSet::new());
    for (api_version, kind, of) in &table.kinds {
        let (mut from, mut last) = (0, usize::MAX);
        while from < last {
            last = 0;
            let mut object = table.sample(of, from, &mut last);
            object["apiVersion"] = json!(api_version);
            object["kind"] = json!(kind);
            object["metadata"]["name"] = json!("a");
            let object = object.to_string();
            let (rejected, reported) = (rejected(&cluster, &object), reported(&object));
            // The table is of a newer Kubernetes than this API server, which does not read what is in its new fields.
            let is_probe = |path: &str| {
                let name = path.rsplit('.').next().unwrap_or_default();
                name == PROBE || name.starts_with(|c: char| c.is_uppercase())
            };
            let (probes, known): (BTreeSet<_>, BTreeSet<_>) =
                rejected.into_iter().partition(|path| is_probe(path));
            let is_within_known = |path: &str| {
                known.iter().any(|known| {
                    path.strip_prefix(known.as_str())
                        .is_some_and(|rest| rest.starts_with(['.', '[']))
                })
            };
            let reported: BTreeSet<_> = reported
                .into_iter()
                .filter(|path| !is_within_known(path))
                .collect();
            assert_eq!(probes, reported, "{api_version} {kind} from {from}");
            all += probes.len();
            newer.extend(known.into_iter().map(|path| format!("{kind} {path}")));
            from += AT_ONCE;
        }
    }
    println!(
        "{all} unknown fields; {} are of a newer Kubernetes: {newer:?}",
        newer.len()
    );
    assert!(all > 2_000, "{all}");
}

#[test]
fn misspelled_fields_are_rejected_where_check_reports_them() {
    let Some(cluster) = ControlPlane::start_or_skip("tests/cluster/field_names.rs, misspelled fields") else {
        return;
    };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "typos"}, "spec": {
        "os": {"name": "windows"},
        "nodeSelectors": {"kubernetes.io/os": "windows"},
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "securityContext": {"windowsOptions": {"runAsUsername": "ContainerUser", "gmsaCredentialSpecname": "a", "hostprocess": true}},
        "tolerations": [{"key": "os", "value": "windows", "Effect": "NoSchedule"}],
        "containers": [{"name": "a", "image": "registry.example.com/a:1-ltsc2022", "runAsUserName": "ContainerUser",
                        "windowsOptions": {"runAsUserName": "ContainerUser"}}],
    }});
    let fields = [
        "spec.nodeSelectors",
        "spec.securityContext.windowsOptions.runAsUsername",
        "spec.securityContext.windowsOptions.gmsaCredentialSpecname",
        "spec.securityContext.windowsOptions.hostprocess",
        "spec.tolerations[0].Effect",
        "spec.containers[0].runAsUserName",
        "spec.containers[0].windowsOptions",
    ];
    let expected: BTreeSet<String> = fields.map(str::to_owned).into();
    assert_eq!(rejected(&cluster, &pod.to_string()), expected);
    assert_eq!(reported(&pod.to_string()), expected);
}
