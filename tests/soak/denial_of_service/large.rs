//! Reviews that are large, and many of them at once, by an admin of one namespace: none gets a bad workload in.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::control_plane::{ControlPlane, programs_or_skip};
use crate::support::install::{self, Replica};

/// What an admin of a namespace has. The role `admin` is made of these by a controller that does not run here.
const ROLES: [&str; 3] = [
    "system:aggregate-to-admin",
    "system:aggregate-to-edit",
    "system:aggregate-to-view",
];

/// Two namespaces, one with `mode: Enforce`, one with `Audit`; alice is an admin of both, and of nothing else.
struct World {
    cluster: ControlPlane,
    runtime: Runtime,
    replica: Replica,
    alice: Client,
}

impl World {
    fn start(what: &str, failure_policy: &str) -> Option<World> {
        let programs = programs_or_skip(what)?;
        let cluster = ControlPlane::start(programs).unwrap();
        let audit = "---
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: audit}
spec: {mode: Audit, placement: {mode: Apply}, priority: 1, namespaceSelector: {matchLabels: {audit: 'true'}}}
";
        install::prepare(&cluster, &(install::POLICIES.to_owned() + audit));
        let replica = Replica::start(&cluster, "transom", &["--log=info"]);
        replica.is_ready(&cluster);
        install::register(
            &cluster,
            replica.port,
            &[&format!("--failure-policy={failure_policy}")],
        );
        for namespace in ["shop", "audited"] {
            cluster.create_namespace(namespace, &[]);
            for role in ROLES {
                let name = role.replace(':', "-");
                let role = format!("--clusterrole={role}");
                cluster
                    .kubectl(&[
                        "create",
                        "rolebinding",
                        &name,
                        &role,
                        "--user=alice",
                        "-n",
                        namespace,
                    ])
                    .succeeded();
            }
        }
        cluster
            .kubectl(&["label", "namespace", "audited", "audit=true"])
            .succeeded();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let alice = runtime.block_on(cluster.client_with(|config| {
            config.default_retry = false;
            config.auth_info.impersonate = Some("alice".to_owned());
        }));
        let world = World {
            cluster,
            runtime,
            replica,
            alice,
        };
        world.is_called();
        Some(world)
    }

    /// Waits until a bad pod is denied: the API server takes a moment to know the webhooks.
    fn is_called(&self) {
        let denied = || {
            self.create_pod("shop", &windows(true, ""))
                .is_err_and(|why| why.contains("TSM"))
        };
        assert!(
            crate::support::control_plane::wait(Duration::from_secs(30), denied),
            "{}",
            self.cluster.end_of_log("transom")
        );
    }

    /// Creates a pod; says why it was refused.
    fn create_pod(&self, namespace: &str, spec: &Value) -> Result<(), String> {
        let pods: Api<Pod> = Api::namespaced(self.alice.clone(), namespace);
        // Not the pod: a failed test prints it.
        answered(|| self.runtime.block_on(create(&pods, spec)).map(|_| ()))
    }

    fn deployments(&self, namespace: &str) -> Api<Deployment> {
        Api::namespaced(self.alice.clone(), namespace)
    }

    /// Writes a Deployment, a new one or over the one that is there.
    fn deploy(&self, namespace: &str, spec: &Value) -> Result<(), String> {
        answered(|| self.deploy_once(namespace, spec))
    }

    fn deploy_once(&self, namespace: &str, spec: &Value) -> Result<(), String> {
        let deployments = self.deployments(namespace);
        let object: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
            },
        }))
        .unwrap();
        let written = self.runtime.block_on(async {
            match deployments.get_opt("web").await? {
                Some(_) => deployments.replace("web", &PostParams::default(), &object).await,
                None => deployments.create(&PostParams::default(), &object).await,
            }
        });
        written.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// Tries until the API server has an answer: on a busy machine a debug build may need longer than its timeout for a review of
/// 16 MB. With `Fail` such an attempt is refused, and none gets in.
fn answered(attempt: impl Fn() -> Result<(), String>) -> Result<(), String> {
    const TRIES: usize = 20;
    let is_late = |why: &String| why.contains("failed calling webhook");
    let mut last = attempt();
    for _ in 1..TRIES {
        if !last.as_ref().is_err_and(is_late) {
            break;
        }
        last = attempt();
    }
    last
}

/// The spec of a Windows pod, bad by `hostPID`, with an environment variable of this value.
fn windows(bad: bool, padding: &str) -> Value {
    json!({
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "hostPID": bad,
        "containers": [{
            "name": "app",
            "image": "mcr.microsoft.com/windows/servercore:ltsc2022",
            "env": [{"name": "PADDING", "value": padding}],
        }],
    })
}

/// Creates a pod as a dry run, which admission sees like any other; says why it was refused.
async fn create(pods: &Api<Pod>, spec: &Value) -> Result<Pod, String> {
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"generateName": "load-"}, "spec": spec})).unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    pods.create(&params, &pod)
        .await
        .map_err(|error| error.to_string())
}

#[test]
fn no_size_takes_a_bad_workload_of_a_namespace_admin_past_deny() {
    let _turn = crate::alone();
    let Some(world) = World::start(
        "the test of large reviews in tests/soak/denial_of_service/large.rs",
        "Fail",
    ) else {
        return;
    };
    // Each character takes six bytes in a review.
    let [half, most] = [1_400_000, 2_900_000].map(|length| "<".repeat(length));
    let denied = world.create_pod("shop", &windows(true, &half)).unwrap_err();
    assert!(denied.contains("TSM"), "8.4 MB are evaluated: {denied}");
    world.create_pod("shop", &windows(false, &half)).unwrap();

    world.deploy("shop", &windows(false, &half)).unwrap();
    let denied = world.deploy("shop", &windows(true, &half)).unwrap_err();
    assert!(
        denied.contains("TSM"),
        "an update of 16.8 MB is evaluated: {denied}"
    );
    for bad in [true, false] {
        let denied = world.deploy("shop", &windows(bad, &most)).unwrap_err();
        let reported = "transom cannot evaluate this Deployment: its admission review has 24.6 MiB, and Transom reads at most 20.0 MiB";
        assert!(denied.contains(reported), "{denied}");
    }
    let stored = world
        .runtime
        .block_on(world.deployments("shop").get("web"))
        .unwrap();
    let spec = stored.spec.template.spec.unwrap();
    assert_ne!(spec.host_pid, Some(true));
    let denials = "transom_reviews_too_large_total{type=\"mutating\",decision=\"deny\"} ";
    assert!(world.replica.metric(denials).unwrap_or(0) >= 2);

    // The cure works, and what Audit lets through is recorded. etcd refuses what is as large as that.
    world.deploy("shop", &windows(false, "short")).unwrap();
    world.deploy("audited", &windows(false, &half)).unwrap();
    let refused = world.deploy("audited", &windows(true, &most)).unwrap_err();
    assert!(!refused.contains("transom"), "{refused}");
    let allowed = "transom_reviews_too_large_total{type=\"validating\",decision=\"allow\"} ";
    let log = world.cluster.end_of_log("transom");
    // The API server asks again when etcd has refused the object.
    let is_allowed = |line: &&str| line.contains("type=validating") && line.contains("not_evaluated=");
    let recorded = log.lines().filter(is_allowed).count() as u64;
    assert!(recorded > 0, "{log}");
    assert_eq!(world.replica.metric(allowed).unwrap_or(0), recorded, "{log}");
    assert!(log.contains("allowed: the policy does not deny"), "{log}");
}

/// What came of a load.
#[derive(Default, Debug)]
struct Counted {
    denied: usize,
    /// Bad pods that were let through.
    admitted: usize,
    /// Bad pods that were refused by another than Transom.
    otherwise: usize,
    good: usize,
    /// Good pods that were refused: why.
    refused: Vec<String>,
    /// Good pods that were not placed.
    unplaced: usize,
    slowest: Duration,
}

/// The processor time of a process so far, in milliseconds.
fn processor(world: &World, name: &str) -> usize {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", world.cluster.pid(name))).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // The kernel counts in hundredths of a second.
    [11, 12]
        .map(|field| fields[field].parse::<usize>().unwrap() * 10)
        .iter()
        .sum()
}

/// Reviews that were refused with 503.
fn shed(world: &World) -> u64 {
    let reasons = [
        "max_concurrent",
        "max_bytes",
        "max_open_requests",
        "slow_client",
        "large_review",
    ];
    let of = |reason| {
        let series = format!("transom_requests_rejected_total{{reason=\"{reason}\"}} ");
        world.replica.metric(&series).unwrap_or(0)
    };
    reasons.map(of).iter().sum()
}

/// What the senders achieve with bad pods whose variable has this value, and at which cost.
fn attack(world: &World, padding: &str, senders: usize, seconds: u64) -> (Counted, u64) {
    let pods: Api<Pod> = Api::namespaced(world.alice.clone(), "shop");
    let both = ["transom", "kube-apiserver"];
    let (before, known) = (both.map(|name| processor(world, name)), shed(world));
    let span = Duration::from_secs(seconds);
    let counted = world.runtime.block_on(load(&pods, padding, senders, span));
    let shed = shed(world) - known;
    let reviews = (2 * (counted.denied + counted.admitted)).max(1);
    let [ours, theirs] = [0, 1].map(|of| processor(world, both[of]) - before[of]);
    let _ = writeln!(
        std::io::stderr(),
        "{senders} senders of {} KB of {:?} for {seconds} s: {counted:?}, {shed} reviews refused with 503; \
         processor time for each review: transom {} ms, kube-apiserver {} ms",
        padding.len() / 1_000,
        padding.chars().next().unwrap_or_default(),
        ours / reviews,
        theirs / reviews,
    );
    (counted, shed)
}

#[test]
fn bad_pods_of_300_kilobytes_from_24_senders_are_denied() {
    const SENDERS: usize = 24;
    let _turn = crate::alone();
    let Some(world) = World::start("the load in tests/soak/denial_of_service/large.rs", "Ignore") else {
        return;
    };
    let seconds = std::env::var("TRANSOM_SIEGE_SECONDS").map_or(15, |text| text.parse().unwrap());
    let (counted, shed) = attack(&world, &"x".repeat(300_000), SENDERS, seconds);
    assert!(counted.denied > 0 && counted.good > 0, "{counted:?}");
    assert!(counted.refused.is_empty(), "{counted:?}");
    assert_eq!(shed, 0, "{counted:?}");
    // What passes is a question of the processors; that something is refused is not.
    for (length, senders) in [(300_000, SENDERS), (1_400_000, 4)] {
        let (counted, _) = attack(&world, &"<".repeat(length), senders, seconds / 2);
        assert!(counted.refused.is_empty(), "{counted:?}");
        assert!(
            counted.denied + counted.admitted + counted.otherwise > 0,
            "{counted:?}"
        );
    }
}

#[test]
fn under_fail_no_load_takes_a_bad_pod_past_deny() {
    let _turn = crate::alone();
    let Some(world) = World::start(
        "the load under Fail in tests/soak/denial_of_service/large.rs",
        "Fail",
    ) else {
        return;
    };
    let seconds = std::env::var("TRANSOM_SIEGE_SECONDS").map_or(6, |text| text.parse().unwrap());
    for length in [300_000, 1_400_000] {
        let (counted, _) = attack(&world, &"<".repeat(length), 24, seconds / 2);
        assert_eq!(counted.admitted, 0, "{counted:?}");
        assert!(counted.denied + counted.otherwise > 0, "{counted:?}");
    }
}

async fn load(pods: &Api<Pod>, padding: &str, senders: usize, span: Duration) -> Counted {
    let stop = Arc::new(AtomicBool::new(false));
    let bad = Arc::new(windows(true, padding));
    let senders: Vec<_> = (0..senders)
        .map(|_| {
            let (pods, stop, bad) = (pods.clone(), Arc::clone(&stop), Arc::clone(&bad));
            tokio::spawn(async move {
                let mut ended = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    ended.push(create(&pods, &bad).await.map(|_| ()));
                }
                ended
            })
        })
        .collect();
    let mut counted = Counted::default();
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    let (began, good) = (Instant::now(), windows(false, ""));
    while began.elapsed() < span {
        ticks.tick().await;
        let requested = Instant::now();
        match create(pods, &good).await {
            Ok(pod) => {
                counted.good += 1;
                let placed = pod
                    .spec
                    .is_some_and(|spec| spec.os.is_some_and(|os| os.name == "windows"));
                counted.unplaced += usize::from(!placed);
            }
            Err(why) => counted.refused.push(why),
        }
        counted.slowest = counted.slowest.max(requested.elapsed());
    }
    stop.store(true, Ordering::Relaxed);
    for sender in senders {
        for ended in sender.await.unwrap() {
            match ended {
                Ok(()) => counted.admitted += 1,
                Err(why) if why.contains("TSM") => counted.denied += 1,
                Err(_) => counted.otherwise += 1,
            }
        }
    }
    counted
}
