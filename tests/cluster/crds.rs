//! The custom resources on a real API server, as people meet them: through kubectl. And the generated files, which are
//! to be what the code says. Without the programs of envtest the tests of the API server say so and prove nothing.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use std::{env, fs};

use crate::support::command::{is_up_to_date, printed};
use crate::support::control_plane::{ControlPlane, Printed, programs, programs_or_skip, wait};
use crate::support::skipped::skipped;
use serde_json::{Value, json};
use tokio::sync::watch;
use transom::api;
use transom::cluster::cache::{CachedNamespace, ClusterCache};
use transom::cluster::lease::Leadership;
use transom::cluster::policy_revisions::PolicyRevision;
use transom::cluster::snapshot::{Snapshot, SnapshotBuilder, SnapshotReceiver};
use transom::controller::keep_policy_revisions::PolicyRevisionController;
use transom::controller::leader_loop::LeaderLoop;
use transom::controller::pod_policies::{PolicyStatusController, StatusSources};
use transom::controller::writer::{WRITES_PER_SECOND, Writer as LeaderWriter};
use transom::model::cluster::facts::Facts;
use transom::model::cluster::policy::Action;
use transom::process::metrics::{Metrics, Reconciles};
use transom::registration::configurations::{Configuration, Configurations};
use transom::registration::{RegistrationOptions, mutating, validating};
use transom::render::{yaml, yaml_documents};

/// Where the leader keeps versions of policies: a namespace that every cluster has.
const OURS: &str = "kube-system";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_definitions_of_chart_and_manifests_are_what_the_types_say() {
    let generated = yaml_documents(&api::definitions());
    let is_up_to_date = |path: &str, generated: &str| is_up_to_date(path, generated, "cluster crds::");
    is_up_to_date("manifests/crds.yaml", &generated);
    for (file, definition) in [
        ("windowspodpolicies", api::pod_policy_definition()),
        ("windowsnodepolicies", api::node_policy_definition()),
        ("windowsnodepools", api::node_pool_definition()),
    ] {
        is_up_to_date(&format!("charts/transom/crds/{file}.yaml"), &yaml(&definition));
    }
    assert_eq!(printed(&["generate", "crds"]), generated);
}

/// The cluster that the tests of this file share, with both definitions; `None` where there are no programs.
fn cluster() -> Option<&'static ControlPlane> {
    static CLUSTER: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
    let programs = programs_or_skip("the API server's part of tests/cluster/crds.rs")?;
    let started = CLUSTER.get_or_init(|| {
        let cluster = ControlPlane::start(programs)?;
        let definitions = yaml_documents(&api::definitions());
        let created = cluster.kubectl_with(&["create", "-f", "-"], &definitions);
        if !created.ok || created.err.contains("Warning") {
            return Err(format!("the definitions are refused or warned of: {created:?}"));
        }
        cluster.wait_for_definitions();
        let listed = || cluster.kubectl(&["get", "wpp,wnp,wnpool"]).ok;
        if wait(Duration::from_secs(30), listed) {
            Ok(cluster)
        } else {
            Err("the new kinds are not served".to_owned())
        }
    });
    Some(started.as_ref().unwrap_or_else(|error| panic!("{error}")))
}

fn policy(kind: &str, name: &str, spec: &Value) -> String {
    let object =
        json!({"apiVersion": "transom.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    object.to_string()
}

fn create(cluster: &ControlPlane, object: &str) -> Printed {
    cluster.kubectl_with(&["create", "-o", "json", "-f", "-"], object)
}

/// Whether everything of `part` stands in `whole` just so.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(k, v)| whole.get(k).is_some_and(|w| holds(w, v))),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(w, p)| holds(w, p))
        }
        _ => whole == part,
    }
}

#[test]
fn the_definitions_are_established_without_complaints_about_their_schemas() {
    let Some(cluster) = cluster() else { return };
    let definitions = cluster
        .kubectl(&["get", "crd", "-o", "json"])
        .succeeded()
        .objects();
    assert_eq!(definitions.len(), 3);
    for definition in definitions {
        let conditions = definition["status"]["conditions"].as_array().unwrap();
        let is = |name: &str| {
            conditions
                .iter()
                .find(|c| c["type"] == name)
                .map(|c| c["status"].clone())
        };
        assert_eq!(is("Established"), Some(json!("True")), "{conditions:?}");
        assert_eq!(is("NamesAccepted"), Some(json!("True")), "{conditions:?}");
        assert_eq!(is("NonStructuralSchema"), None, "{conditions:?}");
        assert_eq!(definition["spec"]["scope"], "Cluster");
        assert_eq!(definition["spec"]["names"]["categories"], json!(["transom"]));
        assert_eq!(
            definition["spec"]["versions"][0]["subresources"],
            json!({"status": {}})
        );
    }
}

#[test]
fn an_older_program_keeps_a_newer_definition_unless_it_is_forced() {
    const NAME: &str = "windowsnodepolicies.transom.dev";
    let Some(cluster) = cluster() else { return };
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let apply = |more: &[&str]| printed(&[&["crds", "apply", "--kubeconfig", &kubeconfig], more].concat());
    let metadata = || {
        let found = cluster.kubectl(&["get", "crd", NAME, "-o", "json"]).succeeded();
        found.object()["metadata"].clone()
    };
    let newer = [
        "annotate",
        "--overwrite",
        "crd",
        NAME,
        "transom.dev/version=999.0.0",
    ];
    cluster.kubectl(&newer).succeeded();
    let before = metadata();

    let kept = format!("{NAME} kept: it is of version 999.0.0, which is newer than");
    let said = apply(&[]);
    assert!(said.lines().any(|line| line.starts_with(&kept)), "{said}");
    assert!(
        said.contains("windowspodpolicies.transom.dev unchanged"),
        "{said}"
    );
    assert_eq!(metadata()["resourceVersion"], before["resourceVersion"]);

    let said = apply(&["--force"]);
    assert!(said.contains(&format!("{NAME} updated")), "{said}");
    let annotations = metadata()["annotations"].clone();
    assert_eq!(annotations["transom.dev/version"], env!("CARGO_PKG_VERSION"));
    // Argo CD deletes neither definition with the Application, nor if the chart no longer contains it.
    assert_eq!(
        annotations["argocd.argoproj.io/sync-options"],
        "Delete=false,Prune=false"
    );
}

#[test]
fn a_policy_that_says_no_more_than_it_must_is_stored_with_every_default() {
    let Some(cluster) = cluster() else { return };
    let bare = policy("WindowsPodPolicy", "bare", &json!({"mode": "Enforce"}));
    let stored = create(cluster, &bare).succeeded().object();
    let expected = serde_json::from_value::<api::WindowsPodPolicySpec>(json!({"mode": "Enforce"}));
    let expected = json!(expected.unwrap());
    assert!(holds(&stored["spec"], &expected), "{stored:#}");
    // What follows from the mode is not written into the spec: it would stay when the mode changes.
    assert_eq!(stored["spec"]["validation"]["action"], Value::Null);
    assert_eq!(stored["spec"]["validation"]["ignoredFields"], Value::Null);
    assert_eq!(stored["spec"]["placement"]["mode"], Value::Null);
    // And what may grow with a version is not either: it would stay off for every policy that was stored before.
    for list in ["fields", "toleratedTaints"] {
        assert_eq!(stored["spec"]["placement"][list], Value::Null, "{list}");
    }
    assert!(stored.get("status").is_none(), "{stored:#}");
    // What the cluster filled in says the same to us as nothing at all.
    let (of_cluster, of_file) = (
        api::decode_policy(&stored).unwrap(),
        api::read_policies(bare.into()).unwrap(),
    );
    assert_eq!([(*of_cluster.policy).clone()], of_file.pod_policies[..]);
    assert!(of_cluster.unknown_fields.is_empty() && of_cluster.unknown_rules.is_empty());

    let bare = r#"{"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": "bare"}, "spec": {"mode": "Audit"}}"#;
    let stored = create(cluster, bare).succeeded().object();
    let spec: api::WindowsNodePolicySpec = serde_json::from_value(stored["spec"].clone()).unwrap();
    assert_eq!(spec, api::WindowsNodePolicySpec::default());
    for part in [
        "/taints/mode",
        "/taints/required",
        "/labels/kubelet/mode",
        "/runtimeClasses/isolations",
    ] {
        assert_eq!(stored["spec"].pointer(part), None, "{part}");
    }
    assert_eq!(
        stored["spec"]["runtimeClasses"]["handlers"]["process"],
        "runhcs-wcow-process"
    );
}

#[test]
fn the_examples_are_stored_as_they_are_written() {
    let Some(cluster) = cluster() else { return };
    let mut seen = 0;
    for entry in fs::read_dir(root().join("manifests/examples")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_policy = ["policy", "node-policy", "node-pool"]
            .iter()
            .any(|it| name.starts_with(it));
        if !is_policy {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let stored = create(cluster, &text).succeeded().object();
        let parsed = transom::manifest::parse(text.clone().into_bytes());
        let written: Value = serde_json::from_str(parsed.documents[0].json()).unwrap();
        assert!(
            holds(&stored["spec"], &written["spec"]),
            "{name}:\n{stored:#}\n{written:#}"
        );
        if name.starts_with("policy") {
            let of_cluster = api::decode_policy(&stored).unwrap();
            let of_file = api::read_policies(text.into()).unwrap();
            assert_eq!([(*of_cluster.policy).clone()], of_file.pod_policies[..], "{name}");
        }
        seen += 1;
    }
    assert!(seen >= 4, "there are {seen} examples of policies");
}

#[test]
fn what_cannot_be_meant_is_refused_with_the_field_and_the_cure() {
    let Some(cluster) = cluster() else { return };
    let parsed = transom::manifest::parse(include_bytes!("crds/refused.yaml").to_vec());
    let table: Value = serde_json::from_str(parsed.documents[0].json()).unwrap();
    let (mut wrong, mut seen) = (String::new(), 0);
    for (family, kind) in [
        ("pod", "WindowsPodPolicy"),
        ("node", "WindowsNodePolicy"),
        ("pool", "WindowsNodePool"),
    ] {
        for (i, case) in table[family].as_array().unwrap().iter().enumerate() {
            let (spec, answer) = (&case["spec"], case["answer"].as_str().unwrap());
            let printed = create(cluster, &policy(kind, &format!("bad-{i}"), spec));
            if printed.ok || !printed.err.contains(answer) {
                let _ = writeln!(wrong, "{spec}\n  is answered {}\n  not {answer}", printed.err);
            }
            seen += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(seen > 30, "the table has {seen} cases");
}

#[test]
fn no_execute_is_accepted_where_it_is_requested_in_so_many_words() {
    let Some(cluster) = cluster() else { return };
    let spec = json!({"mode": "Reconcile", "taints": {"noExecute": "Allowed", "required": [{"key": "os", "effect": "NoExecute"}]}});
    create(cluster, &policy("WindowsNodePolicy", "evict", &spec)).succeeded();
}

#[test]
fn the_greatest_policies_that_the_schema_allows_cost_no_more_than_the_server_gives() {
    let Some(cluster) = cluster() else { return };
    let label = |i: usize| format!("{i:03}.example.com/{}", "k".repeat(60));
    let expressions: Vec<Value> = (0..64)
        .map(|i| json!({"key": label(i), "operator": "In", "values": (0..256).map(|v| format!("value-{v}")).collect::<Vec<_>>()}))
        .collect();
    let exemptions: Vec<Value> = (0..256)
        .map(|i| {
            json!({"name": format!("exemption-{i}"), "owner": "a", "reason": "b", "expiresOn": "2027-03-31",
                        "rules": ["host-pid"], "images": [format!("{i:032}")], "groups": [format!("{i:032}")]})
        })
        .collect();
    let spec = json!({
        "mode": "Enforce", "validation": {"rulesVersion": "0.1"},
        "namespaceSelector": {"matchExpressions": expressions}, "exemptions": exemptions,
    });
    create(cluster, &policy("WindowsPodPolicy", "great", &spec)).succeeded();
    for (field, words) in [
        (
            "namespaces",
            "the exemptions name more than 512 namespaces, images, users and groups together",
        ),
        ("images", "have more than 16384 characters together"),
    ] {
        let mut spec = spec.clone();
        let exemption = &mut spec["exemptions"][0];
        if field == "images" {
            exemption[field][0] = json!("i".repeat(33));
        } else {
            exemption[field] = json!(["w"]);
        }
        let refused = create(cluster, &policy("WindowsPodPolicy", "greater", &spec));
        assert!(
            !refused.ok && refused.err.contains(words),
            "{words}: {}",
            refused.err
        );
    }
    let taints: Vec<Value> = (0..16)
        .map(|i| json!({"key": label(i), "effect": "NoSchedule"}))
        .collect();
    let spec = json!({"mode": "Reconcile", "nodeSelector": {"matchExpressions": expressions}, "taints": {"required": taints}});
    create(cluster, &policy("WindowsNodePolicy", "great", &spec)).succeeded();
    let labels: serde_json::Map<String, Value> = (0..16).map(|i| (label(i), json!("v"))).collect();
    let spec =
        json!({"nodeSelector": {"matchLabels": labels}, "template": {"labels": labels, "taints": taints}});
    create(cluster, &policy("WindowsNodePool", "great", &spec)).succeeded();
}

/// Writes the status of the object `columns`.
fn patch_status(cluster: &ControlPlane, kind: &str, status: &Value) {
    let status = status.to_string();
    let patch = [
        "patch",
        kind,
        "columns",
        "--subresource=status",
        "--type=merge",
        "-p",
        &status,
    ];
    cluster.kubectl(&patch).succeeded();
}

#[test]
fn kubectl_lists_node_pools_in_columns() {
    let Some(cluster) = cluster() else { return };
    let spec =
        json!({"nodeSelector": {"matchLabels": {"agentpool": "win"}}, "template": {"build": "10.0.20348"}});
    create(cluster, &policy("WindowsNodePool", "columns", &spec)).succeeded();
    let label = [
        "label",
        "wnpool",
        "columns",
        "app.kubernetes.io/managed-by=transom",
    ];
    cluster.kubectl(&label).succeeded();
    let seen = jiff::Timestamp::now().to_string();
    let status = json!({"nodeCount": 2, "lastSeenTime": seen, "builds": [], "conditions": [{"type": "Ready", "status": "True",
        "reason": "NodesMatched", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    patch_status(cluster, "wnpool", &json!({"status": status}));
    let printed = cluster.kubectl(&["get", "wnpool", "columns"]).succeeded().out;
    let words: Vec<&str> = printed.split_whitespace().collect();
    assert_eq!(
        words[..7],
        ["NAME", "BUILD", "NODES", "LAST-SEEN", "READY", "ORIGIN", "AGE"],
        "{printed}"
    );
    assert_eq!(
        (&words[7..10], &words[11..13]),
        (&["columns", "10.0.20348", "2"][..], &["True", "transom"][..]),
        "{printed}"
    );
}

#[test]
fn kubectl_lists_policies_in_columns_and_explains_their_fields() {
    let Some(cluster) = cluster() else { return };
    let spec = json!({"mode": "Warn", "placement": {"mode": "Disabled"}, "priority": 7});
    create(cluster, &policy("WindowsPodPolicy", "columns", &spec)).succeeded();
    let status = json!({"status": {
        "observedGeneration": 1,
        "effective": {"generation": 1, "validation": "Warn", "ignoredFields": "Warn", "placement": "Disabled",
            "linuxPods": "Disabled"},
        "matchedNamespaces": {"count": 12, "effectiveCount": 3, "names": ["web"]},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Ready", "message": "",
             "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Overridden", "status": "False", "reason": "NotOverridden", "message": "",
             "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ],
    }});
    patch_status(cluster, "wpp", &status);
    let printed = cluster.kubectl(&["get", "wpp", "columns"]).succeeded().out;
    let rows: Vec<Vec<&str>> = printed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let header = [
        "NAME",
        "MODE",
        "PRIORITY",
        "NAMESPACES",
        "READY",
        "OVERRIDDEN",
        "AGE",
    ];
    assert_eq!(rows[0], header);
    assert_eq!(rows[1][..6], ["columns", "Warn", "7", "3", "True", "False"]);

    create(
        cluster,
        &policy("WindowsNodePolicy", "columns", &json!({"mode": "Audit"})),
    )
    .succeeded();
    let builds = [
        ("10.0.17763", Some("ltsc2019"), 2),
        ("10.0.20348", Some("ltsc2022"), 5),
    ]
    .map(|(build, release, node_count)| api::BuildCount {
        build: build.to_owned(),
        release: release.map(str::to_owned),
        node_count,
    });
    let status = api::WindowsNodePolicyStatus {
        observed_generation: Some(1),
        node_count: 7,
        build_summary: api::BuildCount::summary(&builds),
        builds: builds.into(),
        drifted_node_count: 1,
        drifted_nodes: vec![api::DriftedNode {
            name: "n".into(),
            message: "w".into(),
        }],
        ..api::WindowsNodePolicyStatus::default()
    };
    patch_status(cluster, "wnp", &json!({"status": status}));
    let printed = cluster.kubectl(&["get", "wnp", "columns"]).succeeded().out;
    assert!(
        printed.starts_with("NAME      MODE    NODES   BUILDS"),
        "{printed}"
    );
    assert!(
        printed.contains("columns   Audit   7       ltsc2019 2, ltsc2022 5   1 "),
        "{printed}"
    );

    let all = cluster.kubectl(&["get", "transom", "-o", "name"]).succeeded().out;
    assert!(
        all.contains("windowspodpolicy.transom.dev/columns") && all.contains("windowsnodepolicy"),
        "{all}"
    );

    let mut explained = String::new();
    let explains = || {
        explained = cluster.kubectl(&["explain", "wpp.spec.validation.action"]).out;
        explained.contains("FIELD: action")
    };
    assert!(wait(Duration::from_secs(30), explains), "{explained}");
    assert!(
        explained.contains("The strongest action of findings: Deny, Warn"),
        "{explained}"
    );
    let fields = cluster
        .kubectl(&["explain", "wnp.spec", "--recursive"])
        .succeeded()
        .out;
    assert!(
        fields.contains("noExecute") && fields.contains("namePattern"),
        "{fields}"
    );
}

#[test]
fn every_field_is_described() {
    fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if property["description"].as_str().is_none_or(str::is_empty) {
                found.push(path.clone());
            }
            undescribed(property, &path, found);
            undescribed(&property["items"], &format!("{path}[]"), found);
        }
    }
    for definition in api::definitions() {
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert!(schema["description"].is_string());
        let mut found = Vec::new();
        undescribed(&schema["properties"]["spec"], "spec", &mut found);
        undescribed(&schema["properties"]["status"], "status", &mut found);
        assert!(found.is_empty(), "without a description: {found:?}");
        let text = definition.to_string();
        assert!(!text.contains("[`"), "links of the source in a description");
    }
}

fn snapshots() -> SnapshotBuilder {
    SnapshotBuilder::new(Facts::new(Facts::KUBERNETES, today()), [])
}

fn today() -> jiff::civil::Date {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date()
}

/// What the API server has, as the watches would show it.
fn visit(cluster: &ControlPlane) -> ClusterCache {
    let by_name = |kind: &str| -> BTreeMap<String, Value> {
        let listed = cluster
            .kubectl(&["get", kind, "-o", "json"])
            .succeeded()
            .objects();
        listed
            .into_iter()
            .map(|object| (object["metadata"]["name"].as_str().unwrap().to_owned(), object))
            .collect()
    };
    let labels =
        |object: &Value| serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
    ClusterCache {
        namespaces: (by_name("namespaces").into_iter())
            .map(|(name, object)| {
                let seen = CachedNamespace {
                    uid: object["metadata"]["uid"].as_str().unwrap().to_owned(),
                    labels: labels(&object),
                    ..CachedNamespace::default()
                };
                (name, Arc::new(seen))
            })
            .collect(),
        pod_policies: by_name("wpp")
            .into_iter()
            .map(|(name, object)| (name, Arc::new(object)))
            .collect(),
        policy_revisions: revisions(cluster),
        ..ClusterCache::default()
    }
}

/// The versions of policies that the leader keeps.
fn revisions(cluster: &ControlPlane) -> BTreeMap<String, Arc<PolicyRevision>> {
    let listed = cluster.kubectl(&["get", "controllerrevisions", "-n", OURS, "-o", "json"]);
    let listed = listed.succeeded().objects().into_iter();
    let read = listed.filter_map(|object| {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let view = PolicyRevision::of(serde_json::from_value(object).unwrap())?;
        Some((name, Arc::new(view)))
    });
    read.collect()
}

/// The Events about a policy, as `type reason`, with repetitions.
fn events_of(cluster: &ControlPlane, policy: &str) -> Vec<String> {
    let listed = cluster.kubectl(&["get", "events.events.k8s.io", "-n", "default", "-o", "json"]);
    let of_policy = |event: &&Value| event["regarding"]["name"] == policy;
    let reported = |event: &Value| {
        let again = event["series"]["count"]
            .as_i64()
            .map_or_else(String::new, |count| format!(" x{count}"));
        format!(
            "{} {}{again}",
            event["type"].as_str().unwrap(),
            event["reason"].as_str().unwrap()
        )
    };
    let mut reported: Vec<String> = listed
        .succeeded()
        .objects()
        .iter()
        .filter(of_policy)
        .map(reported)
        .collect();
    reported.sort();
    reported
}

/// A cluster whose definitions are of a newer version: a rollback leaves them, and what was stored by them.
fn newer_cluster(programs: std::path::PathBuf) -> ControlPlane {
    let cluster = ControlPlane::start(programs).unwrap();
    let mut definition = api::pod_policy_definition();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let properties = definition.pointer_mut(spec).unwrap();
    properties["mode"]["enum"]
        .as_array_mut()
        .unwrap()
        .push(json!("Simulate"));
    properties["tomorrow"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    cluster
        .kubectl_with(&["create", "-f", "-"], &definition.to_string())
        .succeeded();
    assert!(wait(Duration::from_secs(30), || cluster
        .kubectl(&["get", "wpp"])
        .ok));
    cluster
}

/// A loop whose passes nobody counts.
fn leader_loop(latest: SnapshotReceiver, until: watch::Receiver<Option<tokio::time::Instant>>) -> LeaderLoop {
    LeaderLoop {
        latest,
        leadership: Leadership::new(until),
        reconcile: Reconciles::new(&Metrics::new("0", None)).of("pod_policies"),
    }
}

/// What writes for a leader.
fn leader_writes(
    client: &kube::Client,
    until: &watch::Receiver<Option<tokio::time::Instant>>,
) -> LeaderWriter {
    let leadership = Leadership::new(until.clone());
    LeaderWriter::new(client.clone(), Some(leadership), WRITES_PER_SECOND)
}

/// The task that writes statuses, on a cluster of its own.
struct Writer {
    cluster: ControlPlane,
    client: kube::Client,
    show: watch::Sender<Arc<Snapshot>>,
    lease: watch::Sender<Option<tokio::time::Instant>>,
    known: Mutex<(SnapshotBuilder, Option<Arc<Configurations>>)>,
    task: tokio::task::JoinHandle<()>,
    keeps: tokio::task::JoinHandle<()>,
}

impl Writer {
    async fn start(cluster: ControlPlane) -> Self {
        let client = cluster.client().await;
        let mut snapshots = snapshots();
        let first = snapshots.take(&Arc::new(visit(&cluster)), None, jiff::Timestamp::now());
        let (show, latest) = watch::channel(Arc::new(first));
        let (lease, until) = watch::channel(None);
        let writes = leader_writes(&client, &until);
        let revisions = PolicyRevisionController {
            writer: writes.clone(),
            namespace: OURS.to_owned(),
        };
        let keeps = tokio::spawn(leader_loop(show.subscribe(), until.clone()).run(revisions));
        let statuses = PolicyStatusController::new(writes, StatusSources::none());
        let task = tokio::spawn(leader_loop(latest, until).run(statuses));
        Writer {
            cluster,
            client,
            show,
            lease,
            known: Mutex::new((snapshots, None)),
            task,
            keeps,
        }
    }

    fn apply(&self, name: &str, spec: &Value) {
        let object = policy("WindowsPodPolicy", name, spec);
        self.cluster
            .kubectl_with(&["apply", "-f", "-"], &object)
            .succeeded();
    }

    fn get(&self, policy: &str, path: &str) -> String {
        let path = format!("-o=jsonpath={{{path}}}");
        self.cluster.kubectl(&["get", "wpp", policy, &path]).out
    }

    /// The condition of a policy as `status reason`.
    fn condition(&self, policy: &str, kind: &str) -> String {
        self.get(
            policy,
            &format!(".status.conditions[?(@.type=='{kind}')]['status','reason']"),
        )
    }

    /// Shows a view.
    fn show(&self, view: ClusterCache) {
        let (snapshots, registered) = &mut *self.known.lock().unwrap();
        let snapshot = snapshots.take(&Arc::new(view), registered.clone(), jiff::Timestamp::now());
        self.show.send_replace(Arc::new(snapshot));
    }

    /// Shows the cluster as it is.
    fn visit(&self) {
        self.show(visit(&self.cluster));
    }

    /// Tells what is registered.
    fn register(&self, registered: Arc<Configurations>) {
        self.known.lock().unwrap().1 = Some(registered);
        self.visit();
    }

    /// Shows the cluster as it is until something has come about.
    #[track_caller]
    fn until(&self, what: &str, done: impl Fn() -> bool) {
        let came = wait(Duration::from_secs(30), || {
            self.visit();
            done()
        });
        let stored = || self.cluster.kubectl(&["get", "wpp", "-o", "yaml"]).out;
        assert!(came, "{what}: that did not come about\n{}", stored());
    }

    #[track_caller]
    fn until_condition(&self, policy: &str, kind: &str, expected: &str) {
        self.until(expected, || self.condition(policy, kind) == expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_and_events_say_what_counts_also_after_a_rollback() {
    let Ok(programs) = programs() else {
        assert!(cluster().is_none());
        return;
    };
    let cluster = newer_cluster(programs);
    let writer = Writer::start(cluster).await;
    only_the_leader_writes(&writer);
    the_last_valid_version_applies_whatever_a_status_says(&writer);
    what_the_api_server_stores_and_nobody_can_mean_is_reported(&writer);
    a_status_is_written_once(&writer);
    what_is_not_registered_is_reported_once(&writer);
    an_old_view_does_not_write_over_others(&writer);
    a_label_that_does_nothing_is_reported_once(&writer).await;
    let Writer {
        show,
        task,
        keeps,
        cluster: _cluster,
        ..
    } = writer;
    drop(show);
    let ended = tokio::time::timeout(Duration::from_secs(10), task).await;
    ended.expect("it ends with the views").unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), keeps).await;
    ended.expect("it ends with the views").unwrap();
}

fn only_the_leader_writes(writer: &Writer) {
    writer.apply("base", &json!({"mode": "Warn"}));
    writer.apply(
        "same",
        &json!({"mode": "Enforce", "validation": {"rules": [{"name": "rule-of-tomorrow", "action": "Deny"}]}, "tomorrow": {"a": 1}}),
    );
    writer.until("policies are learnt", || writer.show.borrow().outcomes.len() == 2);
    assert_eq!(writer.condition("base", "Ready"), "");

    let hour = tokio::time::Instant::now() + Duration::from_secs(3600);
    writer.lease.send_replace(Some(hour));
    writer.until_condition("base", "Ready", "True Ready");
    writer.until_condition("same", "Ready", "True Ready");
    assert_eq!(writer.condition("base", "Accepted"), "True Accepted");
    assert_eq!(writer.condition("same", "Accepted"), "True PartiallyInvalid");
    let message = writer.get("same", ".status.conditions[?(@.type=='Accepted')].message");
    assert!(
        message.contains("the rules rule-of-tomorrow") && message.contains("the fields spec.tomorrow"),
        "{message}"
    );
    writer.until_condition("same", "Overlapping", "True Overlapping");
    writer.until_condition("base", "Overlapping", "True Overlapping");
    // Not those that the webhooks never ask about.
    writer.until("one namespace is matched", || {
        let row = writer
            .cluster
            .kubectl(&["get", "wpp", "base", "--no-headers"])
            .out;
        row.split_whitespace().collect::<Vec<_>>()[..5] == ["base", "Warn", "0", "1", "True"]
    });
    let reported = [
        "Warning Overlapping",
        "Warning Overridden",
        "Warning PartiallyInvalid",
    ];
    writer.until("Events are told", || {
        events_of(&writer.cluster, "same") == reported
    });
}

fn the_last_valid_version_applies_whatever_a_status_says(writer: &Writer) {
    writer.until("its version is kept", || revisions(&writer.cluster).len() == 2);
    writer.apply("base", &json!({"mode": "Simulate"}));
    writer.until_condition("base", "Ready", "False UsingLastValid");
    writer.visit();
    let set = Arc::clone(&writer.show.borrow().policies);
    assert_eq!(set.stored()[0].policy.validation, Action::Warn);
    assert_eq!(writer.get("base", ".status.effective.validation"), "Warn");
    // Whoever may write a status cannot say with it what is enforced.
    let planted = json!({"status": {"observedGeneration": 1, "effective": {"generation": 1, "validation": "Disabled",
        "ignoredFields": "Audit", "placement": "Disabled", "linuxPods": "Apply"}}});
    let patch = planted.to_string();
    let args = [
        "patch",
        "wpp",
        "base",
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ];
    writer.cluster.kubectl(&args).succeeded();
    // A replica that starts now uses it too: the leader has kept it in a ControllerRevision.
    let started = snapshots().take(&Arc::new(visit(&writer.cluster)), None, jiff::Timestamp::now());
    assert_eq!(*started.policies, *set);
    assert!(started.lacking().is_empty());
    let problem = writer.get("base", ".status.message");
    assert!(
        problem.starts_with("spec.mode: unknown value \"Simulate\";"),
        "{problem}"
    );

    // Corrected: nothing of the old problem is left.
    writer.apply("base", &json!({"mode": "Enforce", "priority": 1}));
    writer.until_condition("base", "Ready", "True Ready");
    writer.until_condition("same", "Overlapping", "");
    assert_eq!(writer.get("base", ".status.message"), "");
    let reported = [
        "Normal Accepted",
        "Normal NotOverlapping",
        "Warning Overlapping",
        "Warning UsingLastValid",
    ];
    writer.until("Events are told", || {
        events_of(&writer.cluster, "base") == reported
    });
}

fn what_the_api_server_stores_and_nobody_can_mean_is_reported(writer: &Writer) {
    let bad = json!({"mode": "Warn", "priority": 1, "namespaceSelector": {"matchLabels": {"a..b/c": "x"}}});
    writer.apply("base", &bad);
    writer.until_condition("base", "Ready", "False UsingLastValid");
    writer.visit();
    let set = Arc::clone(&writer.show.borrow().policies);
    assert_eq!(set.stored()[0].policy.validation, Action::Deny);
    let reported = || {
        let listed = writer
            .cluster
            .kubectl(&["get", "events", "-n", "default", "-o", "json"]);
        let listed = listed.succeeded().objects();
        let messages = listed.iter().filter_map(|event| event["message"].as_str());
        messages.map(str::to_owned).collect::<Vec<_>>()
    };
    let problem = "spec.namespaceSelector.matchLabels: \"a..b/c\" is not a label key:";
    assert!(writer.get("base", ".status.message").starts_with(problem));
    writer.until(
        "an Event has its words, and not those of the problem before it",
        || reported().iter().any(|message| message.starts_with(problem)),
    );

    // Two problems are both told, the one that an older version would not have looked at too.
    let worse =
        json!({"mode": "Simulate", "priority": 1, "namespaceSelector": {"matchLabels": {"a.-b/c": "x"}}});
    writer.apply("base", &worse);
    writer.until("both problems are told", || {
        let problem = writer.get("base", ".status.message");
        problem.starts_with("2 problems: (1) spec.mode: unknown value \"Simulate\"")
            && problem.contains("; (2) spec.namespaceSelector.matchLabels: \"a.-b/c\" is not a label key")
    });

    // A release that this version does not know is left out, and the rest counts.
    let classes = json!([{"release": "ltsc2040", "name": "windows-2040"}]);
    let newer =
        json!({"mode": "Enforce", "priority": 1, "placement": {"runtimeClasses": {"names": classes}}});
    writer.apply("base", &newer);
    writer.until_condition("base", "Accepted", "True PartiallyInvalid");
    assert_eq!(writer.condition("base", "Ready"), "True Ready");
    writer.apply("base", &json!({"mode": "Enforce", "priority": 1}));
    writer.until_condition("base", "Accepted", "True Accepted");
    writer.until("two versions of a policy are kept", || {
        revisions(&writer.cluster).len() == 3
    });
}

async fn a_label_that_does_nothing_is_reported_once(writer: &Writer) {
    writer.cluster.create_namespace("web", &[]);
    let label = |label: &str| {
        let args = ["label", "--overwrite", "namespace", "web", label];
        writer.cluster.kubectl(&args).succeeded();
    };
    let reported = || events_of(&writer.cluster, "web");
    label("transom.dev/mode=enforce");
    writer.until_condition("base", "NamespaceLabelsIgnored", "True LabelsIgnored");
    writer.until("the Event is written", || reported() == ["Warning LabelIgnored"]);
    let report_text = [
        "get",
        "events",
        "-n",
        "default",
        "--field-selector=reason=LabelIgnored",
    ];
    let report_text = writer.cluster.kubectl(&report_text).succeeded().out;
    assert!(
        report_text.contains("namespace/web") && report_text.contains("transom.dev/mode=Enforce"),
        "{report_text}"
    );

    // Neither more looks nor another leader tell it again.
    let another = |labels: Option<&str>| {
        let mut seen = visit(&writer.cluster);
        if let Some(value) = labels {
            let web = Arc::make_mut(seen.namespaces.get_mut("web").unwrap());
            web.labels.insert("transom.dev/mod".into(), value.to_owned());
        }
        seen
    };
    let mut of_another = snapshots();
    let mut taken =
        |labels| Arc::new(of_another.take(&Arc::new(another(labels)), None, jiff::Timestamp::now()));
    let (show, latest) = watch::channel(taken(None));
    let hour = tokio::time::Instant::now() + Duration::from_secs(3600);
    let (_lease, until) = watch::channel(Some(hour));
    let writes = leader_writes(&writer.client, &until);
    let statuses = PolicyStatusController::new(writes, StatusSources::none());
    let task = tokio::spawn(leader_loop(latest, until).run(statuses));
    // What it tells next says that it has come past the first.
    tokio::time::sleep(Duration::from_secs(2)).await;
    show.send_replace(taken(Some("Warn")));
    let next = "the label transom.dev/mod=Warn of namespace web has no effect";
    let listed = || writer.cluster.kubectl(&["get", "events", "-n", "default"]).out;
    assert!(
        wait(Duration::from_secs(30), || listed().contains(next)),
        "{}",
        listed()
    );
    drop(show);
    tokio::time::timeout(Duration::from_secs(10), task)
        .await
        .expect("it ends with the views")
        .unwrap();
    assert_eq!(reported(), ["Warning LabelIgnored", "Warning LabelIgnored"]);

    label("transom.dev/mode=Enforce");
    writer.until_condition("base", "NamespaceLabelsIgnored", "");
}

fn a_status_is_written_once(writer: &Writer) {
    let versions = || ["base", "same"].map(|name| writer.get(name, ".metadata.resourceVersion"));
    let before = versions();
    for _ in 0..30 {
        writer.visit();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(versions(), before, "statuses are written without a change");
}

/// The configurations of these options, as the API server would have them.
fn registered(options: &RegistrationOptions) -> Arc<Configurations> {
    let read = |configuration: Value| {
        let title = "webhook configuration zz-transom".to_owned();
        Configuration::read(title, Some(&configuration["webhooks"]))
    };
    Arc::new(Configurations {
        mutating: read(serde_json::to_value(mutating(options)).unwrap()),
        validating: read(serde_json::to_value(validating(options)).unwrap()),
    })
}

fn what_is_not_registered_is_reported_once(writer: &Writer) {
    writer.apply(
        "base",
        &json!({"mode": "Enforce", "priority": 1, "placement": {"linuxPods": "Warn"}}),
    );
    writer.until("the policy is seen", || {
        writer.get("base", ".status.observedGeneration") == writer.get("base", ".metadata.generation")
    });
    // Nothing is said before anybody knows.
    assert_eq!(writer.condition("base", "Programmed"), "");
    let plain = registered(&RegistrationOptions::default());
    writer.register(plain);
    writer.until_condition("base", "Programmed", "False WebhookEntryMissing");
    // What one policy lacks is not a problem of another.
    writer.until_condition("same", "Programmed", "True Programmed");
    let message = writer.get("base", ".status.conditions[?(@.type=='Programmed')].message");
    assert!(
        message.contains("--linux-pods-selector 'kubernetes.io/metadata.name'"),
        "{message}"
    );
    assert_eq!(writer.get("base", ".status.message"), message);
    // The same once more, and in another object: nothing is written.
    let version = || writer.get("base", ".metadata.resourceVersion");
    let before = version();
    for _ in 0..10 {
        writer.register(registered(&RegistrationOptions::default()));
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(version(), before, "statuses are written without a change");

    let options = RegistrationOptions {
        linux_pods: Some(serde_json::from_value(json!({})).unwrap()),
        ..RegistrationOptions::default()
    };
    writer.register(registered(&options));
    writer.until_condition("base", "Programmed", "True Programmed");
    writer.until_condition("same", "Programmed", "True Programmed");
    assert_eq!(writer.get("base", ".status.message"), "");
    writer.until("Events are told", || {
        let reported = events_of(&writer.cluster, "base");
        ["Warning WebhookEntryMissing", "Normal Programmed"]
            .iter()
            .all(|event| reported.iter().any(|reported| reported == event))
    });
}

fn an_old_view_does_not_write_over_others(writer: &Writer) {
    let mut old = visit(&writer.cluster);
    old.namespaces.insert("more".into(), Arc::default());
    let foreign = json!({"status": {"conditions": [{"type": "Reviewed", "status": "True", "reason": "ByTeam",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let patch = foreign.to_string();
    let args = [
        "patch",
        "wpp",
        "same",
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ];
    writer.cluster.kubectl(&args).succeeded();
    writer.show(old);
    // "base" was not touched, so that its write says when the old view has been worked off.
    let worked_off = wait(Duration::from_secs(30), || {
        writer.get("base", ".status.matchedNamespaces.count") == "5"
    });
    assert!(worked_off);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(writer.condition("same", "Reviewed"), "True ByTeam");
    assert_eq!(writer.condition("same", "Ready"), "");
    writer.until_condition("same", "Ready", "True Ready");
    assert_eq!(writer.condition("same", "Reviewed"), "True ByTeam");
}

/// A value as Lua writes it.
fn lua(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Array(items) => format!("{{{}}}", items.iter().map(lua).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("[{name:?}] = {}", lua(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// Argo CD runs these scripts with gopher-lua, which is Lua 5.1.
#[test]
fn argo_cd_shows_the_health_of_each_kind() {
    let interpreter = ["lua5.1", "lua", "luajit"]
        .into_iter()
        .find(|name| Command::new(name).arg("-v").output().is_ok());
    let Some(interpreter) = interpreter else {
        skipped("SKIPPED: Argo CD's health check is not proved: there is no lua5.1");
        return;
    };
    let file = fs::read(root().join("manifests/argocd-health.yaml")).unwrap();
    let file = transom::manifest::parse(file);
    let patch: Value = serde_json::from_str(file.documents[0].json()).unwrap();
    let condition = |kind: &str, status: &str, reason: &str, generation: u64| {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("because of {reason}"),
            "observedGeneration": generation})
    };
    let cases = [
        (json!(null), "Progressing"),
        (json!({"observedGeneration": 2, "conditions": []}), "Progressing"),
        (
            json!({"conditions": [condition("Accepted", "True", "Accepted", 2), condition("Ready", "True", "Ready", 2)]}),
            "Healthy because of Ready",
        ),
        (
            json!({"conditions": [condition("Ready", "True", "Ready", 1)]}),
            "Progressing",
        ),
        (
            json!({"conditions": [condition("Accepted", "True", "Accepted", 2), condition("Ready", "False", "Invalid", 2)]}),
            "Degraded because of Invalid",
        ),
        (
            json!({"conditions": [condition("Ready", "False", "Reconciling", 2)]}),
            "Progressing because of Reconciling",
        ),
        (
            json!({"conditions": [condition("Ready", "Unknown", "Unknown", 2)]}),
            "Progressing because of Unknown",
        ),
    ];
    for kind in ["WindowsPodPolicy", "WindowsNodePolicy", "WindowsNodePool"] {
        let script = patch["data"][format!("resource.customizations.health.transom.dev_{kind}")]
            .as_str()
            .unwrap();
        for (status, expected) in &cases {
            let object =
                json!({"kind": kind, "metadata": {"name": "default", "generation": 2}, "status": status});
            let program = format!(
                "obj = {}\nlocal health = (function()\n{script}\nend)()\nprint(health.status .. ' ' .. health.message)",
                lua(&object)
            );
            let run = Command::new(interpreter).args(["-e", &program]).output().unwrap();
            let printed =
                String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
            assert!(printed.starts_with(expected), "{kind} {status}: {printed}");
        }
    }
}
