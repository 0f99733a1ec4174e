//! A replica that cannot reach the API server, which still reaches the replica: a network that loses every packet one way.
//! `TRANSOM_PARTITION_SECONDS` makes it longer: after three minutes the replica logs that its data is stale.
#![cfg(unix)]

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::control_plane::{ControlPlane, free_ports, wait};
use crate::support::install::{self, Replica};
use crate::support::objects::windows_pod;
use crate::support::partition::Partition;

const A_WHILE: Duration = Duration::from_secs(60);
/// From this age on a watch is stale, and the log says so; `log_changes` checks every 15 s.
const STALE: u64 = 180 + 15;

fn denies(cluster: &ControlPlane) -> bool {
    let mut bad = windows_pod("bad");
    bad["spec"]["hostPID"] = true.into();
    let create = ["create", "--dry-run=server", "-f", "-"];
    let created = cluster.kubectl_with(&create, &bad.to_string());
    created.err.contains("host-pid")
}

/// A kubeconfig of the administrator whose connections can be cut.
fn behind_partition(cluster: &ControlPlane) -> (Partition, PathBuf) {
    let text = std::fs::read_to_string(cluster.path("admin.kubeconfig")).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    let server = &mut kubeconfig["clusters"][0]["cluster"]["server"];
    let port = server
        .as_str()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let partition = Partition::before(port);
    *server = format!("https://127.0.0.1:{}", partition.port).into();
    let path = cluster.path("partition.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    (partition, path)
}

/// When the API server last answered the watch of the policies, in seconds since 1970.
fn last_contact(replica: &Replica) -> f64 {
    let series = "transom_watch_last_contact_timestamp_seconds{resource=\"windowspodpolicies\"} ";
    let (_, metrics) = replica.get("/metrics").unwrap();
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(series)).unwrap();
    value.parse().unwrap()
}

#[test]
fn a_replica_that_is_cut_off_enforces_its_last_policies_says_so_and_recovers() {
    let Some(cluster) = ControlPlane::start_or_skip("tests/cluster/partition.rs") else {
        return;
    };
    install::prepare(&cluster, install::POLICIES);
    let (partition, kubeconfig) = behind_partition(&cluster);
    let replica = Replica::start_with_kubeconfig(&cluster, &kubeconfig, "cut-off", free_ports(), &[]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    assert!(
        wait(A_WHILE, || denies(&cluster)),
        "{}",
        cluster.end_of_log("cut-off")
    );
    let is_leader = || replica.metric("transom_leader ") == Some(1);
    assert!(wait(A_WHILE, is_leader));

    let seconds = std::env::var("TRANSOM_PARTITION_SECONDS").map_or(16, |text| text.parse().unwrap());
    let (began, cut) = (
        Instant::now(),
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap(),
    );
    partition.cut(true);
    let audit = r#"{"spec": {"mode": "Audit"}}"#;
    let patch = [
        "patch",
        "windowspodpolicy",
        "default",
        "--type=merge",
        "-p",
        audit,
    ];
    cluster.kubectl(&patch).succeeded();
    let mut attempts = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        attempts += 1;
        assert!(denies(&cluster), "{}", cluster.end_of_log("cut-off"));
        assert!(
            replica.get("/readyz").is_some_and(|(ok, _)| ok),
            "stale data is better than no webhook"
        );
        std::thread::sleep(Duration::from_millis(500));
    }
    let _ = writeln!(
        std::io::stderr(),
        "cut off for {seconds} s: {attempts} bad pods, {attempts} denied"
    );
    assert!(!is_leader(), "another replica may lead");
    let contact = last_contact(&replica);
    assert!(contact < cut.as_secs_f64() + 1.0, "{contact}, {cut:?}");
    if seconds > STALE {
        let log = std::fs::read_to_string(cluster.path("cut-off.log")).unwrap();
        assert!(
            log.contains("the API server has not answered the watch for"),
            "{log}"
        );
    }

    partition.cut(false);
    assert!(
        wait(A_WHILE, || !denies(&cluster)),
        "{}",
        cluster.end_of_log("cut-off")
    );
    assert!(wait(A_WHILE, is_leader), "{}", cluster.end_of_log("cut-off"));
}
