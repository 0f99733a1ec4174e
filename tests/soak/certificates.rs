//! Certificates over a real API server: rotated again and again under load, fixed when somebody breaks them, and the
//! chart's own fields left alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::control_plane::ControlPlane;
use base64::Engine as _;
use hyper::StatusCode;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;
use transom::certs::{self, CertificateConfig, CertificateMode, CertificateTask, FIELD_MANAGER, Lifetimes};
use transom::cluster::lease::Leadership;
use transom::cluster::watch_staleness::WatchStaleness;
use transom::cluster::webhook_configurations::WebhookConfigurations;
use transom::process::metrics::{Metrics, Reconciles};
use transom::process::readiness::Readiness;
use transom::process::tasks::Tasks;
use transom::registration::configurations::Configurations;
use transom::tls::files::CertificateFiles;
use transom::tls::source::CertificateSource;
use transom::webhook::{
    Limits, ListenArgs, OnPending, PendingData, Phase, ReviewBody, ReviewHandler, ReviewResponse, Server,
    WebhookConfig,
};

/// A CA for half a minute, a certificate for eight seconds.
const LIFETIMES: Lifetimes = Lifetimes {
    ca: Duration::from_secs(24),
    leaf: Duration::from_secs(9),
    backdate: Duration::from_secs(60),
    settle: Duration::from_secs(1),
    grace: Duration::from_secs(3),
};

/// Allows everything, and counts it.
#[derive(Default)]
struct AllowAll(AtomicUsize);

impl ReviewHandler for AllowAll {
    fn review(&self, _: Phase, sent: ReviewBody<'_>, _: OnPending) -> Result<ReviewResponse, PendingData> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let ReviewBody::Whole(body) = sent else {
            panic!("{sent:?}")
        };
        let review: Value = serde_json::from_slice(body).unwrap();
        let answer = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": review["request"]["uid"], "allowed": true},
        });
        Ok(ReviewResponse {
            status: StatusCode::OK,
            body: answer.to_string().into_bytes(),
            record: None,
        })
    }
}

/// A replica: a webhook's server, and what keeps its certificate.
struct Replica {
    port: u16,
    readiness: Readiness,
    reviewer: Arc<AllowAll>,
    leads: watch::Sender<Option<Instant>>,
    metrics: Metrics,
    registered: watch::Receiver<Option<Arc<Configurations>>>,
    contested: watch::Receiver<Option<String>>,
    tasks: Vec<JoinHandle<()>>,
    /// Aborted when it is dropped.
    _watches: Tasks,
}

impl Replica {
    async fn start(client: &Client, config: CertificateConfig, leads: bool) -> Self {
        Self::start_with(client, CertificateMode::SelfManaged, config, leads).await
    }

    async fn start_with(
        client: &Client,
        mode: CertificateMode,
        config: CertificateConfig,
        leads: bool,
    ) -> Self {
        let until = |leads: bool| leads.then(|| Instant::now() + Duration::from_secs(3_600));
        let (sender, receiver) = watch::channel(until(leads));
        let (readiness, metrics) = (Readiness::default(), Metrics::new("0", None));
        let mut watches = Tasks::default();
        let configurations = WebhookConfigurations::start(
            &mut watches,
            client,
            &WatchStaleness::default(),
            &config.configuration,
            &metrics,
        );
        let (publish_contested, contested) = watch::channel(None);
        let serving = certs::first(client, &mode, &config, &readiness).await.unwrap();
        assert!(
            !readiness.is_ready(),
            "not before it was compared with the configurations"
        );
        let server = Server::bind(WebhookConfig {
            clients: None,
            listen: ListenArgs {
                listen: "127.0.0.1:0".parse().unwrap(),
                health_listen: "127.0.0.1:0".parse().unwrap(),
            },
            limits: Limits::default(),
            certificate: CertificateSource::Provided(Arc::clone(&serving)),
            metrics: metrics.clone(),
            readiness: readiness.clone(),
            tracer: None,
        })
        .await
        .unwrap();
        let port = server.address().port();
        let reviewer = Arc::new(AllowAll::default());
        let reviews = Arc::clone(&reviewer);
        let keeper = CertificateTask {
            staleness: WatchStaleness::default(),
            client: client.clone(),
            mode,
            config,
            leadership: Leadership::new(receiver),
            serving,
            readiness: readiness.clone(),
            metrics: metrics.clone(),
            reconcile: Reconciles::new(&metrics).of("certificates"),
            contested: publish_contested,
        };
        let tasks = vec![
            tokio::spawn(async { drop(server.serve(reviews, std::future::pending()).await) }),
            tokio::spawn(async move {
                let error = Box::pin(keeper.run(configurations.stored)).await;
                eprintln!("the keeper ended: {error}");
            }),
        ];
        Replica {
            port,
            readiness,
            reviewer,
            leads: sender,
            metrics,
            registered: configurations.registered,
            contested,
            tasks,
            _watches: watches,
        }
    }

    /// What the metrics show of a configuration.
    fn shows(&self, webhook_type: &str) -> Option<String> {
        let start = format!("transom_webhook_configuration_present{{type=\"{webhook_type}\"}} ");
        let text = self.metrics.expose();
        text.lines()
            .find_map(|line| line.strip_prefix(&start).map(str::to_owned))
    }

    /// What is said of another writer of the `caBundle`.
    fn contested(&self) -> Option<String> {
        self.contested.borrow().clone()
    }

    fn lead(&self, leads: bool) {
        let until = leads.then(|| Instant::now() + Duration::from_secs(3_600));
        self.leads.send_replace(until);
    }

    async fn is_ready_within(&self, most: Duration) {
        let start = Instant::now();
        while !self.readiness.is_ready() {
            assert!(
                start.elapsed() < most,
                "not ready: {:?}",
                self.readiness.reasons()
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn works(&self) {
        assert!(
            self.tasks.iter().all(|task| !task.is_finished()),
            "a task has ended"
        );
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn config(name: &str) -> CertificateConfig {
    CertificateConfig {
        namespace: "default".to_owned(),
        secret: name.to_owned(),
        configuration: name.to_owned(),
        names: vec!["127.0.0.1".to_owned()],
        lifetimes: LIFETIMES,
    }
}

const KINDS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "admissionregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "admissionregistration.k8s.io/v1".to_owned(),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    };
    Api::all_with(client.clone(), &resource)
}

/// A configuration as the chart has it: every field but the `caBundle`. Each entry calls another replica.
fn chart(kind: &str, name: &str, ports: &[u16], timeout: u32) -> Value {
    let path = if kind.starts_with("Mutating") {
        "mutate"
    } else {
        "validate"
    };
    let entries: Vec<Value> = ports
        .iter()
        .enumerate()
        .map(|(number, port)| {
            json!({
                "name": format!("{path}-{number}.transom.dev"),
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("https://127.0.0.1:{port}/{path}")},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": timeout,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
                }],
            })
        })
        .collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": entries,
    })
}

async fn apply_chart(client: &Client, name: &str, ports: &[u16], timeout: u32) {
    for kind in KINDS {
        let wanted = Patch::Apply(chart(kind, name, ports, timeout));
        api(client, kind)
            .patch(name, &PatchParams::apply("chart"), &wanted)
            .await
            .unwrap();
    }
}

/// Creates pods without storing them, until it is told to stop; the errors, and how many there were.
struct Load {
    stop: Arc<AtomicBool>,
    created: Arc<AtomicUsize>,
    task: JoinHandle<Vec<String>>,
}

impl Load {
    fn start(client: &Client, namespace: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let created = Arc::new(AtomicUsize::new(0));
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let task = tokio::spawn({
            let (stop, created) = (Arc::clone(&stop), Arc::clone(&created));
            async move {
                let pod = serde_json::from_value(json!({
                    "metadata": {"generateName": "load-"},
                    "spec": {"containers": [{"name": "web", "image": "web"}]},
                }))
                .unwrap();
                let params = PostParams {
                    dry_run: true,
                    ..PostParams::default()
                };
                let mut errors = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match pods.create(&params, &pod).await {
                        Ok(_) => drop(created.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => errors.push(error.to_string()),
                    }
                    sleep(Duration::from_millis(10)).await;
                }
                errors
            }
        });
        Load { stop, created, task }
    }

    /// Asserts that none failed.
    async fn stop(self, at_least: usize) {
        self.stop.store(true, Ordering::Relaxed);
        let errors = self.task.await.unwrap();
        let created = self.created.load(Ordering::Relaxed);
        eprintln!("{created} creates, {} failed", errors.len());
        assert!(
            errors.is_empty(),
            "{} of {created}: {:#?}",
            errors.len(),
            errors.first()
        );
        assert!(created >= at_least, "only {created} creates");
    }
}

/// Connects to the replicas again and again, trusting only what is published at the time: API servers keep their
/// connections, and would not notice a certificate that nobody accepts.
async fn handshakes(client: Client, name: &'static str, ports: [u16; 2], stop: Arc<AtomicBool>) -> usize {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        for bundle in bundles(&client, name).await {
            let pem = base64::prelude::BASE64_STANDARD.decode(&bundle).unwrap();
            let mut roots = RootCertStore::empty();
            for authority in CertificateDer::pem_slice_iter(&pem) {
                roots.add(authority.unwrap()).unwrap();
            }
            let tls = ClientConfig::builder()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let connector = TlsConnector::from(Arc::new(tls));
            for port in ports {
                let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let server = ServerName::try_from("127.0.0.1").unwrap();
                let shaken = connector.connect(server, stream).await;
                assert!(shaken.is_ok(), "handshake {count}: {:?}", shaken.err());
                count += 1;
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
    count
}

async fn secret(client: &Client, name: &str) -> Option<Secret> {
    Api::namespaced(client.clone(), "default")
        .get_opt(name)
        .await
        .unwrap()
}

fn value(secret: &Secret, key: &str) -> Vec<u8> {
    secret
        .data
        .as_ref()
        .and_then(|data| data.get(key))
        .map(|value| value.0.clone())
        .unwrap_or_default()
}

async fn configuration(client: &Client, kind: &str, name: &str) -> Value {
    serde_json::to_value(api(client, kind).get(name).await.unwrap()).unwrap()
}

/// The different `caBundle`s of both configurations.
async fn bundles(client: &Client, name: &str) -> BTreeSet<String> {
    let mut bundles = BTreeSet::new();
    for kind in KINDS {
        let configuration = configuration(client, kind, name).await;
        for webhook in configuration["webhooks"].as_array().unwrap() {
            bundles.insert(
                webhook["clientConfig"]["caBundle"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
            );
        }
    }
    bundles
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_kept_over_a_real_api_server() {
    let _turn = crate::beside_others();
    let Some(cluster) = ControlPlane::start_or_skip("tests/soak/certificates.rs") else {
        return;
    };
    let client = cluster.client().await;
    // Each has configurations and a Secret of its own, and mostly waits.
    let beside = async {
        the_chart_keeps_its_fields_and_we_keep_ours(&client).await;
        a_bundle_that_somebody_replaces_is_taken_back(&client).await;
        a_writer_that_replaces_the_bundle_without_end_never_silences_the_leader(&client).await;
        a_configuration_that_was_deleted_is_not_made_again(&client).await;
        files_of_somebody_else_are_served_and_their_ca_published_only_on_request(&client).await;
    };
    tokio::join!(rotation_under_load_fails_nobody(&cluster, &client), beside);
}

async fn rotation_under_load_fails_nobody(cluster: &ControlPlane, client: &Client) {
    let name = "rotation";
    cluster.create_namespace(name, &[]);
    // Nothing is there yet: the first one leads, and makes it.
    let one = Replica::start(client, config(name), true).await;
    let two = Replica::start(client, config(name), false).await;
    one.is_ready_within(Duration::from_secs(10)).await;
    two.is_ready_within(Duration::from_secs(10)).await;
    apply_chart(client, name, &[one.port, two.port], 5).await;
    while bundles(client, name).await.contains("") {
        sleep(Duration::from_millis(20)).await;
    }
    // API servers read configurations from a cache.
    sleep(Duration::from_secs(2)).await;

    let load = Load::start(client, name);
    let ports = [one.port, two.port];
    let shaking = tokio::spawn(handshakes(client.clone(), name, ports, Arc::clone(&load.stop)));
    let (mut leaves, mut authorities) = (BTreeSet::new(), BTreeSet::new());
    let start = Instant::now();
    let (mut deleted, mut changed_leader, mut broken) = (false, false, false);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    while start.elapsed() < Duration::from_secs(75) {
        if let Some(secret) = secret(client, name).await {
            leaves.insert(value(&secret, "tls.crt"));
            authorities.insert(value(&secret, "ca.key"));
        }
        if !changed_leader && start.elapsed() > Duration::from_secs(25) {
            changed_leader = true;
            one.lead(false);
            two.lead(true);
        }
        if !deleted && start.elapsed() > Duration::from_secs(40) {
            deleted = true;
            secrets.delete(name, &DeleteParams::default()).await.unwrap();
        }
        if !broken && start.elapsed() > Duration::from_secs(55) {
            broken = true;
            let garbage = json!({"stringData": {"tls.key": "garbage", "ca.key": "garbage"}});
            secrets
                .patch(name, &PatchParams::default(), &Patch::Merge(garbage))
                .await
                .unwrap();
        }
        one.works();
        two.works();
        sleep(Duration::from_millis(200)).await;
    }
    assert!(one.readiness.is_ready(), "{:?}", one.readiness.reasons());
    assert!(two.readiness.is_ready(), "{:?}", two.readiness.reasons());
    eprintln!("{} certificates by {} CAs", leaves.len(), authorities.len());
    load.stop(1_000).await;
    let shaken = shaking.await.unwrap();
    eprintln!("{shaken} handshakes, 0 failed");
    assert!(shaken >= 500, "only {shaken} handshakes");
    for replica in [&one, &two] {
        assert!(
            replica.reviewer.0.load(Ordering::Relaxed) >= 1_000,
            "it is called"
        );
    }
    assert!(leaves.len() >= 8, "{} certificates", leaves.len());
    assert!(authorities.len() >= 4, "{} CAs", authorities.len());
}

async fn the_chart_keeps_its_fields_and_we_keep_ours(client: &Client) {
    let name = "chart";
    apply_chart(client, name, &[1, 2], 5).await;
    let replica = Replica::start(client, config(name), true).await;
    replica.is_ready_within(Duration::from_secs(10)).await;
    let published = bundles(client, name).await;
    assert!(published.len() == 1 && !published.contains(""), "{published:?}");
    for kind in KINDS {
        is_let_go(client, kind, name).await;
    }

    // Upgrades of the chart by server-side apply: other fields change.
    apply_chart(client, name, &[1, 2], 7).await;
    assert_eq!(
        bundles(client, name).await,
        published,
        "the chart says nothing of it"
    );
    let after = configuration(client, KINDS[0], name).await;
    assert_eq!(after["webhooks"][0]["timeoutSeconds"], 7);
    assert_eq!(after["webhooks"].as_array().unwrap().len(), 2);
    for kind in KINDS {
        is_let_go(client, kind, name).await;
    }

    // One entry goes, and the other keeps its bundle; it comes again, gets the bundle, and goes again.
    for _ in 0..2 {
        apply_chart(client, name, &[1], 7).await;
        assert_eq!(bundles(client, name).await, published);
        for kind in KINDS {
            let after = configuration(client, kind, name).await;
            assert_eq!(after["webhooks"].as_array().unwrap().len(), 1, "{after:#}");
        }
        apply_chart(client, name, &[1, 2], 7).await;
        is_published_again(client, name).await;
        assert_eq!(bundles(client, name).await, published);
        for kind in KINDS {
            is_let_go(client, kind, name).await;
        }
    }

    // A leader was interrupted before it let go.
    for kind in KINDS {
        hold(client, kind, name).await;
        is_let_go(client, kind, name).await;
    }
    apply_chart(client, name, &[2], 7).await;
    assert_eq!(bundles(client, name).await, published);
    apply_chart(client, name, &[1, 2], 7).await;
    is_published_again(client, name).await;

    // Everything is written by PUT, without a caBundle, as Helm before its version 4 does.
    for kind in KINDS {
        let mut object: Value = chart(kind, name, &[1], 6);
        object["metadata"]["resourceVersion"] =
            configuration(client, kind, name).await["metadata"]["resourceVersion"].clone();
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api(client, kind)
            .replace(name, &PostParams::default(), &object)
            .await
            .unwrap();
    }
    is_published_again(client, name).await;
    let after = configuration(client, KINDS[0], name).await;
    assert_eq!(
        after["webhooks"].as_array().unwrap().len(),
        1,
        "the entry that went stays away"
    );
    replica.works();
}

async fn is_published_again(client: &Client, name: &str) {
    let start = Instant::now();
    while bundles(client, name).await.contains("") {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "the bundle is not written again"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the chart alone owns the configuration: we own no part of an entry, as anybody, by whatever operation.
async fn is_let_go(client: &Client, kind: &str, name: &str) {
    let start = Instant::now();
    loop {
        let configuration = configuration(client, kind, name).await;
        let owners = configuration["metadata"]["managedFields"].as_array().unwrap();
        let names: BTreeSet<_> = owners
            .iter()
            .filter_map(|owner| owner["manager"].as_str())
            .collect();
        if names == BTreeSet::from(["chart"]) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{owners:#?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Applies the bundles that stand there, as us.
async fn hold(client: &Client, kind: &str, name: &str) {
    let seen = configuration(client, kind, name).await;
    let entries: Vec<_> = seen["webhooks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            json!({"name": entry["name"], "clientConfig": {"caBundle": entry["clientConfig"]["caBundle"]}})
        })
        .collect();
    let held = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": entries,
    });
    let held = api(client, kind)
        .patch(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(held))
        .await
        .unwrap();
    let owners = held.metadata.managed_fields.unwrap();
    let ours = owners
        .iter()
        .find(|owner| owner.manager.as_deref() == Some(FIELD_MANAGER))
        .unwrap();
    assert_eq!(ours.operation.as_deref(), Some("Apply"));
}

async fn a_bundle_that_somebody_replaces_is_taken_back(client: &Client) {
    let name = "replaced";
    apply_chart(client, name, &[1], 5).await;
    let replica = Replica::start(client, config(name), true).await;
    replica.is_ready_within(Duration::from_secs(10)).await;
    let foreign = foreign_bundle();
    replace_bundle(client, name, &foreign).await;
    is_taken_back(client, name, &foreign, Duration::from_secs(10)).await;
    replica.is_ready_within(Duration::from_secs(5)).await;
}

fn foreign_bundle() -> Value {
    let foreign = rcgen::generate_simple_self_signed(vec!["x".to_owned()]);
    let foreign = foreign.unwrap().cert.pem();
    serde_json::to_value(k8s_openapi::ByteString(foreign.into_bytes())).unwrap()
}

/// Applies another bundle, as another field manager.
async fn replace_bundle(client: &Client, name: &str, foreign: &Value) {
    let theirs = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": KINDS[1],
        "metadata": {"name": name},
        "webhooks": [{"name": "validate-0.transom.dev", "clientConfig": {"caBundle": foreign}}],
    });
    let params = PatchParams::apply("somebody").force();
    api(client, KINDS[1])
        .patch(name, &params, &Patch::Apply(theirs))
        .await
        .unwrap();
}

async fn is_taken_back(client: &Client, name: &str, foreign: &Value, within: Duration) {
    let start = Instant::now();
    while bundles(client, name).await.contains(foreign.as_str().unwrap()) {
        assert!(start.elapsed() < within, "it is not taken back");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn a_writer_that_replaces_the_bundle_without_end_never_silences_the_leader(client: &Client) {
    let name = "contested";
    apply_chart(client, name, &[1], 5).await;
    let config = CertificateConfig {
        lifetimes: Lifetimes::default(),
        ..config(name)
    };
    let replica = Replica::start(client, config, true).await;
    replica.is_ready_within(Duration::from_secs(10)).await;
    assert_eq!(replica.contested(), None);
    let foreign = foreign_bundle();
    for _ in 0..100 {
        replace_bundle(client, name, &foreign).await;
        sleep(Duration::from_millis(100)).await;
    }
    let reported = replica.contested().expect("it is reported");
    assert!(
        reported.starts_with("the field manager \"somebody\" overwrites the caBundle of the Validating"),
        "{reported}"
    );
    is_taken_back(client, name, &foreign, Duration::from_secs(20)).await;
    replica.works();
}

async fn a_configuration_that_was_deleted_is_not_made_again(client: &Client) {
    let name = "deleted";
    apply_chart(client, name, &[1], 5).await;
    let replica = Replica::start(client, config(name), true).await;
    replica.is_ready_within(Duration::from_secs(10)).await;
    let shown =
        || ["mutating", "validating"].map(|webhook_type| replica.shows(webhook_type).unwrap_or_default());
    let entries = || {
        let known = replica.registered.borrow();
        let known = known.as_ref().expect("both were looked for");
        [known.mutating.entries.len(), known.validating.entries.len()]
    };
    assert_eq!((shown(), entries()), (["1", "1"].map(str::to_owned), [1, 1]));
    api(client, KINDS[0])
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
    // A rotation and more passes.
    sleep(Duration::from_secs(8)).await;
    assert_eq!((shown(), entries()), (["0", "1"].map(str::to_owned), [0, 1]));
    assert!(api(client, KINDS[0]).get_opt(name).await.unwrap().is_none());
    replica.works();
    assert!(replica.readiness.is_ready(), "{:?}", replica.readiness.reasons());
    // Nor by a write that was decided on while it was there.
    let late = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": KINDS[0],
        "metadata": {"name": name, "resourceVersion": "1"},
        "webhooks": [{"name": "mutate-0.transom.dev", "clientConfig": {"caBundle": ""}}],
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let refused = api(client, KINDS[0])
        .patch(name, &params, &Patch::Apply(late))
        .await;
    match refused {
        Err(kube::Error::Api(status)) => eprintln!("a late write: {} {}", status.code, status.message),
        other => panic!("a late write was accepted: {other:?}"),
    }
}

async fn files_of_somebody_else_are_served_and_their_ca_published_only_on_request(client: &Client) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let issue = || {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let ca = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned()];
        let leaf = rcgen::CertificateParams::new(names)
            .unwrap()
            .signed_by(&key, &ca)
            .unwrap();
        std::fs::write(path("ca.crt"), ca.pem()).unwrap();
        std::fs::write(path("tls.crt"), leaf.pem()).unwrap();
        std::fs::write(path("tls.key"), key.serialize_pem()).unwrap();
        base64::prelude::BASE64_STANDARD.encode(ca.pem().replace("\r\n", "\n"))
    };
    let first = issue();
    let files = CertificateFiles {
        certificate: path("tls.crt"),
        key: path("tls.key"),
        poll: Duration::from_millis(100),
    };
    for name in ["provided", "cert-manager"] {
        apply_chart(client, name, &[1], 5).await;
    }
    let provided = CertificateMode::Provided {
        files: files.clone(),
        ca_bundle: Some(path("ca.crt")),
    };
    let provided = Replica::start_with(client, provided, config("provided"), true).await;
    let injected = CertificateMode::CertManager(files);
    let injected = Replica::start_with(client, injected, config("cert-manager"), true).await;
    provided.is_ready_within(Duration::from_secs(10)).await;
    assert_eq!(bundles(client, "provided").await, BTreeSet::from([first.clone()]));
    assert_eq!(
        bundles(client, "cert-manager").await,
        BTreeSet::from([String::new()]),
        "that is the CA injector's"
    );
    let mut why = String::new();
    for _ in 0..100 {
        why = injected.readiness.reasons().join("; ");
        if why.contains("certificate-chain") && why.contains("inject-ca-from") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(
        why.contains("certificate-chain") && why.contains("inject-ca-from"),
        "{why}"
    );

    // What the CA injector does.
    for kind in KINDS {
        let path = if kind.starts_with("Mutating") {
            "mutate"
        } else {
            "validate"
        };
        let entry = json!({"name": format!("{path}-0.transom.dev"), "clientConfig": {"caBundle": first}});
        let injector = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "cert-manager"},
            "webhooks": [entry],
        });
        let params = PatchParams::apply("cainjector");
        api(client, kind)
            .patch("cert-manager", &params, &Patch::Apply(injector))
            .await
            .unwrap();
    }
    injected.is_ready_within(Duration::from_secs(10)).await;

    let second = issue();
    let start = Instant::now();
    while bundles(client, "provided").await != BTreeSet::from([second.clone()]) {
        assert!(
            start.elapsed() < Duration::from_secs(15),
            "the new CA is not published"
        );
        sleep(Duration::from_millis(50)).await;
    }
    provided.is_ready_within(Duration::from_secs(10)).await;
    assert!(secret(client, "provided").await.is_none() && secret(client, "cert-manager").await.is_none());
    provided.works();
    injected.works();
}
