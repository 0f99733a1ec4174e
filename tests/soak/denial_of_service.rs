//! Every attack on the sockets at once, against two replicas behind a Service, while people go on creating pods through a
//! real API server: under Deny no bad pod gets in, under Fail no good one is refused, probes are answered, and memory
//! stays under the chart's limit. `TRANSOM_SIEGE_SECONDS` makes it longer. Without the programs, or without a network of
//! its own, this says so and proves nothing.
#![cfg(target_os = "linux")]

mod attacks;
mod large;
mod sockets;

use crate::netns;
use crate::support::install;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::service::{self, Endpoints, name, replica_of};
use crate::support::control_plane::{ControlPlane, programs_or_skip};
use attacks::Attackers;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::runtime::Runtime;

const TEST: &str =
    "denial_of_service::no_bad_pod_gets_in_and_no_good_one_is_refused_while_every_attack_goes_on";

/// The replicas that are attacked.
const REPLICAS: usize = 2;

/// The chart's `resources.limits.memory`, in KiB.
const LIMIT: usize = 512 << 10;

/// Half of a second between two creates of each kind.
const PACE: Duration = Duration::from_millis(500);

#[test]
fn no_bad_pod_gets_in_and_no_good_one_is_refused_while_every_attack_goes_on() {
    let _turn = crate::alone();
    let Some(programs) = programs_or_skip("tests/soak/denial_of_service.rs") else {
        return;
    };
    if !netns::is_inside(TEST) {
        return;
    }
    let cluster = ControlPlane::start(programs).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let client = runtime.block_on(cluster.client_with(|config| config.default_retry = false));
    cluster.create_namespace("shop", &[]);
    install::prepare(&cluster, &attacks::policies());
    service::make(&cluster);
    let endpoints = Endpoints::follow(runtime.handle().clone(), client.clone());
    for number in 0..REPLICAS {
        service::start(&cluster, number);
    }
    service::register(&cluster, "Ignore");
    endpoints.are(&cluster, &[0, 1]);

    let peace = Counted::of(&runtime, &client, Duration::from_secs(3), REPLICAS);
    assert!(peace.is_as_in_peace(), "{peace:?}");

    let seconds = std::env::var("TRANSOM_SIEGE_SECONDS").map_or(60, |text| text.parse().unwrap());
    let attackers = Attackers::start(runtime.handle(), REPLICAS);
    for failure_policy in ["Ignore", "Fail"] {
        service::register(&cluster, failure_policy);
        let siege = Duration::from_secs(seconds) / 2;
        let counted = Counted::of(&runtime, &client, siege, REPLICAS);
        let _ = writeln!(std::io::stderr(), "siege under {failure_policy}: {counted:?}");
        assert!(counted.is_as_in_peace(), "{counted:?}\n{}", logs(&cluster));
    }
    let tried = attackers.stop(&runtime);
    let _ = writeln!(std::io::stderr(), "attacks begun: {tried:?}");
    assert!(tried.iter().all(|(_, times)| *times > 0), "{tried:?}");
    // They go on as before, and shed what was too much.
    let after = Counted::of(&runtime, &client, Duration::from_secs(3), REPLICAS);
    assert!(after.is_as_in_peace(), "{after:?}");
    for number in 0..REPLICAS {
        let (_, metrics) = replica_of(number).get("/metrics").unwrap();
        assert!(metrics.contains("transom_review_panics_total 0"), "{metrics}");
    }
}

fn logs(cluster: &ControlPlane) -> String {
    (0..REPLICAS)
        .map(|number| cluster.end_of_log(&name(number)))
        .collect::<Vec<_>>()
        .join("\n")
}

/// What came of the creates and the probes of a while.
#[derive(Default, Debug)]
struct Counted {
    placed: usize,
    /// Good pods that were refused, or let through without placement: why.
    failures: Vec<String>,
    denied: usize,
    /// Bad pods that were let through, or refused by another than Transom: why.
    slipped: Vec<String>,
    probes: usize,
    /// Probes that were not answered within a second.
    late: Vec<String>,
    slowest: Duration,
    /// The most that a replica had resident so far, in KiB.
    peak: usize,
}

impl Counted {
    /// Creates pods of both kinds and probes the replicas for so long.
    fn of(runtime: &Runtime, client: &Client, span: Duration, replicas: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let probes = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || probe(&stop, replicas))
        };
        let mut counted = runtime.block_on(create(client.clone(), span));
        stop.store(true, Ordering::Relaxed);
        (counted.probes, counted.late) = probes.join().unwrap();
        counted.peak = (0..replicas)
            .map(|number| peak(&name(number)))
            .max()
            .unwrap_or_default();
        counted
    }

    fn is_as_in_peace(&self) -> bool {
        let there = self.placed > 0 && self.denied > 0 && self.probes > 0;
        there
            && self.failures.is_empty()
            && self.slipped.is_empty()
            && self.late.is_empty()
            && self.peak < LIMIT
    }
}

/// Asks for readiness and life as a kubelet does, once a second.
fn probe(stop: &AtomicBool, replicas: usize) -> (usize, Vec<String>) {
    let (mut probes, mut late) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        for number in 0..replicas {
            for path in ["/livez", "/readyz"] {
                let began = Instant::now();
                let answer = replica_of(number).get(path);
                let took = began.elapsed();
                probes += 1;
                if took > Duration::from_secs(1) || !answer.as_ref().is_some_and(|(ok, _)| *ok) {
                    late.push(format!("{path} of {}: {answer:?} after {took:?}", name(number)));
                }
            }
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    (probes, late)
}

async fn create(client: Client, span: Duration) -> Counted {
    let pods: Api<Pod> = Api::namespaced(client, "shop");
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pod = |bad: bool| -> Pod {
        let mut spec = json!({
            "os": {"name": "windows"},
            "containers": [{"name": "app", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}],
        });
        if bad {
            // The API server takes it of a pod that does not say Windows by its os.
            spec = json!({
                "nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true, "containers": spec["containers"],
            });
        }
        serde_json::from_value(json!({"metadata": {"generateName": "siege-"}, "spec": spec})).unwrap()
    };
    let (good, bad) = (pod(false), pod(true));
    let mut counted = Counted::default();
    let mut ticks = tokio::time::interval(PACE);
    let began = Instant::now();
    while began.elapsed() < span {
        ticks.tick().await;
        let requested = Instant::now();
        match pods.create(&params, &good).await {
            Ok(pod) if is_placed(&pod) => counted.placed += 1,
            Ok(_) => counted.failures.push("not placed".to_owned()),
            Err(error) => counted.failures.push(error.to_string()),
        }
        counted.slowest = counted.slowest.max(requested.elapsed());
        let requested = Instant::now();
        match pods.create(&params, &bad).await {
            Ok(_) => counted
                .slipped
                .push(format!("let through after {:?}", requested.elapsed())),
            Err(error) if error.to_string().contains("denied the request") => counted.denied += 1,
            Err(error) => counted.slipped.push(error.to_string()),
        }
        counted.slowest = counted.slowest.max(requested.elapsed());
    }
    counted
}

fn is_placed(pod: &Pod) -> bool {
    let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
    selector.is_some_and(|selector| selector.contains_key("kubernetes.io/os"))
}

/// The most that the process of a replica had resident, in KiB.
fn peak(identity: &str) -> usize {
    let identity = format!("--identity={identity}");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let of_replica = processes.filter(|process| {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        arguments
            .split(|byte| *byte == 0)
            .any(|argument| argument == identity.as_bytes())
    });
    let peaks = of_replica.filter_map(|process| {
        let status = std::fs::read_to_string(process.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    });
    peaks.max().unwrap_or_else(|| panic!("{identity} does not run"))
}
