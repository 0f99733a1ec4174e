//! The API server with the webhook configurations as they are generated, and objects on their way to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use transom::model::nodes::node::{MOST_NODE_LABELS, NodeLabel};
use transom::model::objects::workload::Kind;
use transom::model::windows::registry_patterns::{
    LONGEST_REGISTRY_LIST, MOST_REGISTRY_PATTERNS, RegistryPatterns,
};
use transom::registration::{
    FailurePolicy, RegistrationOptions, WebhookEndpoint, mutating, names, validating,
};

use crate::support::control_plane::{ControlPlane, programs_or_skip};
pub use crate::support::objects::{KINDS, api_version, object, plural, spec_of, url_of};
use crate::support::recorder::{Call, Recorder};

/// The namespace where nothing is opted into.
pub const PLAIN: &str = "plain";
/// The namespace with both entries that are opted into.
pub const OPTED: &str = "opted";
/// A namespace with a default node selector.
pub const SELECTED: &str = "selected";
/// The namespace for which a third configuration lists Docker Hub and others.
pub const HUB: &str = "hub";

/// How many requests are under way at once.
pub const AT_ONCE: usize = 8;

pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

pub struct World {
    /// Runs as long as the tests do.
    _cluster: ControlPlane,
    pub client: kube::Client,
    pub recorder: Recorder,
}

/// The cluster that the tests of this file share; `None` where there are no programs to start one.
pub fn world() -> Option<&'static World> {
    static WORLD: OnceLock<World> = OnceLock::new();
    let programs = programs_or_skip("the tests of tests/cluster/match_conditions.rs")?;
    Some(WORLD.get_or_init(|| {
        let cluster = ControlPlane::start(programs).unwrap_or_else(|error| panic!("{error}"));
        RUNTIME.block_on(World::prepare(cluster))
    }))
}

/// An object on its way to the API server.
#[derive(Clone)]
pub struct Sent {
    pub kind: Kind,
    pub namespace: &'static str,
    pub object: Value,
}

impl Sent {
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap()
    }
}

/// What the API server said: nothing where it took the object, else code and message.
pub type Answer = Result<(), (u16, String)>;

/// Whether a request failed because a condition did. The last test proves that this is how it looks.
pub fn is_condition_error(answer: &Answer) -> bool {
    answer.as_ref().is_err_and(|(code, message)| {
        *code >= 500 || message.contains("resulted in error") || message.contains("cost")
    })
}

impl World {
    pub async fn prepare(cluster: ControlPlane) -> World {
        let patient = |config: &mut kube::Config| config.read_timeout = Some(Duration::from_secs(120));
        let world = World {
            client: cluster.client_with(patient).await,
            _cluster: cluster,
            recorder: Recorder::start().await,
        };
        for (name, label) in [
            (PLAIN, ("nothing", "here")),
            (OPTED, ("opted", "in")),
            (SELECTED, ("selected", "yes")),
            ("ignored", ("transom.dev/ignore", "true")),
            ("scaffolded", ("control-plane", "controller-manager")),
            ("managed", ("kubernetes.azure.com/managedby", "aks")),
            ("transom-system", ("nothing", "here")),
            ("calico-system", ("nothing", "here")),
            ("broken", ("broken", "yes")),
            (HUB, ("hub", "yes")),
        ] {
            let (key, value) = label;
            let namespace = json!({"metadata": {"name": name, "labels": {key: value}}});
            world.post("/api/v1/namespaces", &namespace, false).await.unwrap();
        }
        let options = RegistrationOptions {
            endpoint: WebhookEndpoint::Url(world.recorder.url.clone()),
            ca_bundle: Some(world.recorder.ca.clone()),
            excluded_namespaces: vec!["calico-system".to_owned(), "transom-system".to_owned()],
            node_labels: node_labels(),
            linux_pods: Some(only("opted", "in")),
            default_os: Some(only("opted", "in")),
            default_node_selector: Some(only("selected", "yes")),
            image_registries: registries(),
            ..RegistrationOptions::default()
        };
        let fails_closed = RegistrationOptions {
            name: "closed".to_owned(),
            validate_failure_policy: FailurePolicy::Fail,
            linux_pods: None,
            default_os: None,
            default_node_selector: None,
            image_registries: RegistryPatterns::default(),
            ..options.clone()
        };
        let of_hub = RegistrationOptions {
            name: "hub".to_owned(),
            linux_pods: None,
            default_os: None,
            default_node_selector: None,
            image_registries: hub_registries(),
            ..options.clone()
        };
        let configurations = [
            ("mutating", "", serde_json::to_value(mutating(&options)).unwrap()),
            (
                "validating",
                "",
                serde_json::to_value(validating(&options)).unwrap(),
            ),
            (
                "validating",
                CLOSED,
                serde_json::to_value(validating(&fails_closed)).unwrap(),
            ),
            (
                "mutating",
                OF_HUB,
                only_images(serde_json::to_value(mutating(&of_hub)).unwrap()),
            ),
            (
                "validating",
                OF_HUB,
                only_images(serde_json::to_value(validating(&of_hub)).unwrap()),
            ),
        ];
        for (phase, mark, mut configuration) in configurations {
            for entry in configuration["webhooks"].as_array_mut().unwrap() {
                // The test's own: which entry it was, and no error unseen.
                let name = entry["name"].as_str().unwrap();
                let url = format!("{}/{mark}{name}", world.recorder.url);
                entry["clientConfig"]["url"] = url.into();
                entry["failurePolicy"] = "Fail".into();
                entry["timeoutSeconds"] = 30.into();
            }
            let url = format!("/apis/admissionregistration.k8s.io/v1/{phase}webhookconfigurations");
            world.post(&url, &configuration, false).await.unwrap();
        }
        world.wait_for_entries().await;
        world
    }

    /// Waits until the API server calls every entry.
    pub async fn wait_for_entries(&self) {
        let windows = json!({"os": {"name": "windows"}});
        let image = json!({"containers": [{"name": "a", "image": "x:ltsc2022"}]});
        for attempt in 0..300 {
            let probes = [
                wrap(Kind::Pod, PLAIN, &format!("probe-a{attempt}"), &spec(&windows)),
                wrap(Kind::Pod, PLAIN, &format!("probe-b{attempt}"), &spec(&image)),
                wrap(Kind::Pod, OPTED, &format!("probe-c{attempt}"), &spec(&json!({}))),
                wrap(
                    Kind::Deployment,
                    SELECTED,
                    &format!("probe-f{attempt}"),
                    &spec(&json!({})),
                ),
                wrap(
                    Kind::Pod,
                    HUB,
                    &format!("probe-d{attempt}"),
                    &self::image("listed.example.com/nginx"),
                ),
                wrap(
                    Kind::Pod,
                    HUB,
                    &format!("probe-e{attempt}"),
                    &self::image("nginx"),
                ),
            ];
            for probe in &probes {
                // The first ones may meet a webhook whose certificate the API server does not know yet.
                let _ = self.create(probe).await;
            }
            let called: BTreeSet<String> = self.recorder.calls().into_iter().map(|c| c.entry).collect();
            let registered = [
                names::MUTATE,
                names::DEFAULT_OS_MUTATE,
                names::LINUX_PODS_MUTATE,
                names::IMAGES_MUTATE,
                names::VALIDATE,
                names::DEFAULT_OS_VALIDATE,
                names::DEFAULT_NODE_SELECTOR_VALIDATE,
                names::LINUX_PODS_VALIDATE,
                names::IMAGES_VALIDATE,
            ];
            let registered = registered.into_iter();
            let of_closed = [names::VALIDATE, names::CERTAIN_VALIDATE].map(|name| format!("{CLOSED}{name}"));
            let of_hub = [names::IMAGES_MUTATE, names::IMAGES_VALIDATE].map(|name| format!("{OF_HUB}{name}"));
            if registered
                .map(str::to_owned)
                .chain(of_closed)
                .chain(of_hub)
                .all(|name| called.contains(&name))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("not every entry is called: {:?}", self.recorder.calls());
    }

    pub async fn post(&self, url: &str, object: &Value, dry_run: bool) -> Answer {
        let params = PostParams {
            dry_run,
            field_manager: None,
        };
        let request = kube::core::Request::new(url)
            .create(&params, serde_json::to_vec(object).unwrap())
            .unwrap();
        answer(self.client.request_text(request).await.map(drop))
    }

    /// Creates it in a dry run.
    pub async fn create(&self, sent: &Sent) -> Answer {
        self.post(&url_of(sent.kind, sent.namespace), &sent.object, true)
            .await
    }

    /// Creates each of them in a dry run; answers and calls of each. What one entry is for goes to exactly one of the two
    /// that are registered where a part of it fails closed.
    pub async fn create_all(&self, sent: &[Sent]) -> Vec<(Answer, Vec<Call>)> {
        let before = self.recorder.count();
        let requests = sent.iter().map(|sent| self.create(sent));
        let answers: Vec<Answer> = futures::stream::iter(requests).buffered(AT_ONCE).collect().await;
        let mut calls = BTreeMap::<(String, String, String), Vec<Call>>::new();
        for call in self.recorder.calls_after(before) {
            let key = (call.namespace.clone(), call.kind.clone(), call.name.clone());
            calls.entry(key).or_default().push(call);
        }
        let with_calls = sent.iter().zip(answers).map(|(sent, answer)| {
            let key = (
                sent.namespace.to_owned(),
                sent.kind.as_str().to_owned(),
                sent.name().to_owned(),
            );
            let calls = calls.remove(&key).unwrap_or_default();
            let one = entries(&calls)
                .into_iter()
                .filter(|entry| *entry == names::VALIDATE);
            assert_eq!(closed(&calls).len(), one.count(), "{}: {calls:?}", sent.object);
            (answer, calls)
        });
        with_calls.collect()
    }
}

pub fn answer(result: Result<(), kube::Error>) -> Answer {
    result.map_err(|error| match error {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        other => (599, other.to_string()),
    })
}

pub fn only(key: &str, value: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some([(key.to_owned(), value.to_owned())].into()),
        match_expressions: None,
    }
}

/// The last value of [`node_labels`], as long as a label's may be.
pub fn last_pool() -> String {
    format!("{}-last", "x".repeat(58))
}

/// The well-known labels, and as many of a policy's own as there may be: all values of one label, most of them long.
pub fn node_labels() -> Vec<NodeLabel> {
    let exact = ["it's", "w2", "w4"].map(|value| NodeLabel::exact("pool", value));
    let short = ["win", "w3"].map(|prefix| NodeLabel::prefix("pool", prefix));
    let short = exact.into_iter().chain(short);
    let long =
        (6..MOST_NODE_LABELS).map(|n| NodeLabel::prefix("pool", &format!("{}-{n:04}", "x".repeat(58))));
    let own = short.chain(long).chain([NodeLabel::exact("pool", &last_pool())]);
    NodeLabel::well_known().into_iter().chain(own).collect()
}

/// The least pod spec, with this laid over it.
pub fn spec(over: &Value) -> Value {
    let mut spec = json!({"containers": [{"name": "app", "image": "registry.example.com/app:1.0"}]});
    json_patch::merge(&mut spec, over);
    spec
}

/// An object of a kind around a pod spec, such as the API server takes.
pub fn wrap(kind: Kind, namespace: &'static str, name: &str, spec: &Value) -> Sent {
    Sent {
        kind,
        namespace,
        object: object(kind, name, spec),
    }
}

/// Gives the pod of an object, or those of its template, a label `kubernetes.io/os`.
pub fn label_os(sent: &mut Sent, os: &str) {
    let mut here = &mut sent.object;
    for field in sent.kind.template().unwrap() {
        here = &mut here[*field];
    }
    here["metadata"]["labels"][OS] = os.into();
}

/// What stands before the entries of the configuration of which a part fails closed.
const CLOSED: &str = "closed-";

/// What stands before the entries of the configuration for [`HUB`].
const OF_HUB: &str = "hub-";

/// The entries for images of a configuration, for [`HUB`] only.
fn only_images(mut configuration: Value) -> Value {
    let webhooks = configuration["webhooks"].as_array_mut().unwrap();
    webhooks.retain(|entry| {
        [names::IMAGES_MUTATE, names::IMAGES_VALIDATE]
            .map(Value::from)
            .contains(&entry["name"])
    });
    for entry in webhooks {
        entry["namespaceSelector"] = json!(only("hub", "yes"));
    }
    configuration
}

/// The registries of the configuration for [`HUB`].
pub fn hub_registries() -> RegistryPatterns {
    let listed = [
        "docker.io",
        "mcr.microsoft.com",
        "*.azurecr.io",
        "*.dkr.ecr.*.amazonaws.com",
        "*.corp:5000",
        "localhost:5000",
        "[fd00::5]:5000",
    ];
    RegistryPatterns::parse(listed).unwrap()
}

/// As many registries, and as long ones, as may be listed; only two of them are ever used.
fn registries() -> RegistryPatterns {
    let used = ["listed.example.com", "*.listed.example"];
    let room = LONGEST_REGISTRY_LIST - used.concat().len();
    let count = MOST_REGISTRY_PATTERNS - used.len();
    let long = (0..count).map(|n| {
        let end = format!(".{n:02}.example.net");
        format!("*.{}{end}", "x".repeat(room / count - "*.".len() - end.len()))
    });
    let long: Vec<String> = long.collect();
    let all = long.iter().map(String::as_str).chain(used);
    let registries = RegistryPatterns::parse(all).unwrap();
    assert_eq!(registries.iter().len(), MOST_REGISTRY_PATTERNS);
    registries
}

/// The entries of the configuration for [`HUB`] that were called, sorted.
pub fn hub_entries(calls: &[Call]) -> Vec<&str> {
    let names = calls.iter().filter_map(|call| call.entry.strip_prefix(OF_HUB));
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names
}

/// The entries that were called where all of them fail open, sorted.
pub fn entries(calls: &[Call]) -> Vec<&str> {
    let all = calls.iter().map(|call| call.entry.as_str());
    let others = [CLOSED, OF_HUB];
    let mut entries: Vec<&str> = all
        .filter(|entry| !others.iter().any(|other| entry.starts_with(other)))
        .collect();
    entries.sort_unstable();
    entries
}

/// Those that were called where a part of `/validate` fails closed.
pub fn closed(calls: &[Call]) -> Vec<&str> {
    let names = calls.iter().filter_map(|call| call.entry.strip_prefix(CLOSED));
    names.collect()
}

/// An expression of required node affinity, in a term of its own.
pub fn term(key: &str, operator: &str, values: &[&str]) -> Value {
    let mut expression = json!({"key": key, "operator": operator});
    if !values.is_empty() {
        expression["values"] = json!(values);
    }
    json!({"matchExpressions": [expression]})
}

pub fn affinity(terms: &[Value]) -> Value {
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }}})
}

pub const OS: &str = "kubernetes.io/os";
pub const BETA: &str = "beta.kubernetes.io/os";
pub const BUILD: &str = "node.kubernetes.io/windows-build";

pub fn image(image: &str) -> Value {
    json!({"containers": [{"name": "app", "image": image}]})
}
