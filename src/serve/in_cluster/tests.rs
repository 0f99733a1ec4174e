//! Which arguments are rejected before the cluster is contacted, and what ends the process.

use std::future::pending;

use clap::Parser;
use jiff::Timestamp;

use super::*;
use crate::process::day_of;
use crate::process::metrics::Metrics;
use crate::process::readiness::Readiness;
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
        (
            Facts::new(Facts::KUBERNETES, day_of(Timestamp::now())),
            ServedClusterConfig::default(),
            ServedKnowledge::default(),
        ),
        (None, None),
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
    for (message, expected) in [
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
        assert_eq!(message, expected);
    }
}

#[tokio::test]
async fn a_server_that_is_shut_down_ends_well() {
    let (mut tasks, mut election) = (Tasks::default(), Tasks::default());
    tasks.spawn("facts", pending());
    assert!(outlive(async { Ok(()) }, &mut tasks, &mut election).await.is_ok());
}
