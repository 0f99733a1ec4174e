//! Which arguments are rejected before the cluster is contacted, and what ends the process.

use std::future::pending;

use clap::Parser;

use serde_json::json;

use super::*;
use crate::cluster::cache::ClusterCache;
use crate::process::metrics::Metrics;
use crate::process::resource_limits::ResourceLimits;
use crate::tls::args::TlsArgs;
use crate::webhook::{LimitArgs, ListenArgs};

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    in_cluster: InClusterArgs,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

/// The error of `serve` with these flags and an unreachable cluster.
async fn refusal(flags: &[&str]) -> String {
    const START: [&str; 5] = [
        "serve",
        "--kubeconfig",
        "/no/such/kubeconfig",
        "--health-listen",
        "127.0.0.1:0",
    ];
    let flags = Flags::try_parse_from(START.iter().chain(flags)).unwrap();
    let config = WebhookConfig {
        listen: flags.listen,
        limits: flags.limits.within(ResourceLimits::default()),
        certificate: flags.tls.into(),
        clients: None,
        metrics: Metrics::new("0", None),
        readiness: Readiness::default(),
        tracer: None,
    };
    let run = run(
        flags.in_cluster,
        Facts::new(Facts::KUBERNETES, day_of(Timestamp::now())),
        config,
        Handle::current(),
        pending(),
    );
    format!("{:#}", run.await.unwrap_err())
}

#[tokio::test]
async fn what_can_be_refused_without_a_cluster_is_refused_before_one_is_looked_for() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let [certificate, key, ca] =
        ["tls.crt", "tls.key", "ca.crt"].map(|name| directory.path().join(name).display().to_string());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::write(&ca, "no certificate").unwrap();
    let files = ["--tls-cert", &certificate, "--tls-key", &key];
    let with = |more: &[&'static str]| [&files[..], more].concat();
    for (flags, expected) in [
        (
            vec!["--listen", &taken],
            "address in use; stop the process that listens there",
        ),
        (
            vec![
                "--certificates",
                "provided",
                "--tls-cert",
                "/no/such.crt",
                "--tls-key",
                &key,
            ],
            "/no/such.crt (--tls-cert): No such file",
        ),
        (
            [&with(&["--certificates", "provided"])[..], &["--ca-bundle", &ca]].concat(),
            "(--ca-bundle): no CA certificate in it",
        ),
        (
            with(&[]),
            "--tls-cert and --tls-key are for --certificates provided or cert-manager",
        ),
        (
            with(&["--certificates", "cert-manager", "--ca-bundle", "/ca.crt"]),
            "--ca-bundle is for --certificates provided; with cert-manager",
        ),
        (vec!["--write-ca", "/ca.crt"], "--write-ca is for --standalone"),
        // Valid arguments: only now the cluster is contacted.
        (
            vec!["--listen", "127.0.0.1:0"],
            "/no/such/kubeconfig (--kubeconfig)",
        ),
    ] {
        let refusal = refusal(&flags).await;
        assert!(refusal.contains(expected), "{flags:?}: {refusal}");
    }
}

/// The result of a process in which the server runs and another task ends.
async fn outcome(start: impl FnOnce(&mut Tasks, &mut Tasks)) -> String {
    let (mut tasks, mut election) = (Tasks::default(), Tasks::default());
    tasks.spawn("another", pending());
    start(&mut tasks, &mut election);
    let end = outlive(pending(), &mut tasks, &mut election);
    let end = tokio::time::timeout(Duration::from_secs(10), end).await;
    end.expect("the process goes on without it")
        .unwrap_err()
        .to_string()
}

#[tokio::test]
async fn a_background_task_that_ends_or_panics_ends_the_process_by_its_name() {
    for (said, expected) in [
        (
            outcome(|tasks, _| tasks.spawn("facts", async {})).await,
            "the task \"facts\" ended unexpectedly",
        ),
        (
            outcome(|tasks, _| tasks.spawn("nodes", async { panic!("a defect") })).await,
            "the task \"nodes\" ended unexpectedly: it panicked",
        ),
        (
            outcome(|tasks, _| tasks.spawn_reporting("certificates", async { "no names" })).await,
            "the task \"certificates\" ended unexpectedly: no names",
        ),
        (
            outcome(|_, election| election.spawn("lease", async {})).await,
            "the task \"lease\" ended unexpectedly",
        ),
    ] {
        assert_eq!(said, expected);
    }
}

/// A view with a policy that cannot be used, and with this status.
fn with_a_broken_policy(generation: i64, status: &serde_json::Value) -> Arc<ClusterCache> {
    let policy = json!({
        "metadata": {"name": "p", "uid": "u", "generation": generation}, "spec": {"validation": "Enforce"}, "status": status,
    });
    Arc::new(ClusterCache {
        kubernetes: 36,
        pod_policies: [("p".to_owned(), Arc::new(policy))].into(),
        ..ClusterCache::default()
    })
}

#[tokio::test]
async fn a_replica_that_would_enforce_less_than_another_is_not_ready_at_its_start() {
    let accepted = |status: &str, reason: &str| json!({"conditions": [{"type": "Accepted", "status": status, "reason": reason}]});
    let metrics = Metrics::new("0", None);
    let readiness = Readiness::default();
    let (_tell, registered) = watch::channel(None);
    let following = SnapshotTask {
        snapshots: SnapshotBuilder::new(Facts::new(Facts::KUBERNETES, day_of(Timestamp::now())), []),
        registered,
        arrival: watch::channel(None).1,
        reporting: watch::channel(ReportingState::Off).1,
        gauges: ClusterMetrics::new(&metrics),
        readiness: readiness.clone(),
        freshness: WatchStaleness::default(),
    };
    let (publish, views) = watch::channel(None);
    let (show, mut latest) = watch::channel(Arc::new(following.snapshots.unknown()));
    let running = tokio::spawn(following.run(views, show));
    let mut shown = async |generation: i64, status: serde_json::Value| {
        publish.send_replace(Some(with_a_broken_policy(generation, &status)));
        let is_it = |snapshot: &Arc<Snapshot>| {
            let policy = snapshot.view.pod_policies.get("p");
            policy.is_some_and(|policy| policy["metadata"]["generation"] == generation)
        };
        latest.wait_for(is_it).await.unwrap();
        // The snapshot is published before readiness changes.
        tokio::task::yield_now().await;
        readiness.reasons()
    };
    let reasons = shown(1, accepted("True", "Accepted")).await;
    assert!(
        reasons.len() == 1
            && reasons[0].starts_with("policies: another replica uses a version of WindowsPodPolicy p"),
        "{reasons:?}"
    );
    assert_eq!(
        shown(2, accepted("False", "PreviousVersionApplies")).await.len(),
        1
    );
    // The other replica is gone, and the next leader has updated the status, as in a cluster that starts with
    // a broken policy.
    assert!(shown(3, accepted("False", "Invalid")).await.is_empty());
    // A replica that is ready stays ready.
    assert!(shown(4, accepted("True", "Accepted")).await.is_empty());
    running.abort();
}

#[test]
fn snapshots_take_a_fifth_of_a_core_at_most_and_are_never_late_for_long() {
    for (took, rest) in [(0, 0), (1, 4), (70, 280), (400, 1_600), (5_000, 2_000)] {
        assert_eq!(
            rest_after(Duration::from_millis(took)),
            Duration::from_millis(rest)
        );
    }
}

#[tokio::test]
async fn a_server_that_was_told_to_end_ends_well() {
    let (mut tasks, mut election) = (Tasks::default(), Tasks::default());
    tasks.spawn("facts", pending());
    assert!(outlive(async { Ok(()) }, &mut tasks, &mut election).await.is_ok());
}
