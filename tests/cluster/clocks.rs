//! A replica whose clock is wrong, and a certificate that has expired: the API server checks the certificate, so its clock
//! decides. Without libfaketime the tests of clocks say so and prove nothing.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, wait};
use crate::support::install::{self, Replica};
use crate::support::objects::windows_pod;
use crate::support::skipped::skipped;

const A_WHILE: Duration = Duration::from_secs(60);
const SECRET: [&str; 4] = ["secret", "transom-certificates", "-n", "transom-system"];

/// The library that changes the clock of a program.
fn faketime() -> Option<PathBuf> {
    let folders = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let library = folders.map(|folder| format!("/usr/lib/{folder}/faketime/libfaketimeMT.so.1"));
    let found = library.iter().map(PathBuf::from).find(|path| path.is_file());
    if found.is_none() {
        skipped("SKIPPED: tests/cluster/clocks.rs: no libfaketime; install the package faketime".to_owned());
    }
    found
}

struct Test {
    cluster: ControlPlane,
    ports: [u16; 2],
}

impl Test {
    fn start(what: &str) -> Option<Test> {
        let cluster = ControlPlane::start_or_skip(what)?;
        install::prepare(&cluster, install::POLICIES);
        let ports = crate::support::control_plane::free_ports();
        install::register(&cluster, ports[0], &[]);
        Some(Test { cluster, ports })
    }

    fn replica(&self, name: &str) -> Replica {
        let [port, health] = self.ports;
        Replica::start_at(&self.cluster, name, port, health, &[])
    }

    /// A replica whose clock is off by so much (`+300d`).
    fn replica_off_by(&self, library: &Path, name: &str, offset: &str) -> Replica {
        let clock = [
            format!("LD_PRELOAD={}", library.display()),
            format!("FAKETIME={offset}"),
            "DONT_FAKE_MONOTONIC=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ];
        Replica::start_with_environment(&self.cluster, &clock, name, self.ports)
    }

    fn secret(&self) -> Value {
        let read = [&["get", "-o", "json"], &SECRET[..]].concat();
        let read = self.cluster.kubectl(&read);
        if read.ok {
            read.object()["data"].clone()
        } else {
            Value::Null
        }
    }

    /// Whether the API server reaches the webhook and trusts its certificate.
    fn denies(&self) -> bool {
        let mut bad = windows_pod("bad");
        bad["spec"]["hostPID"] = true.into();
        let create = ["create", "--dry-run=server", "-f", "-"];
        let created = self.cluster.kubectl_with(&create, &bad.to_string());
        created.err.contains("host-pid")
    }

    #[track_caller]
    fn leads_and_denies(&self, replica: &Replica) {
        let log = || self.cluster.end_of_log(&replica.name);
        assert!(
            wait(A_WHILE, || replica.metric("transom_leader ") == Some(1)),
            "{}",
            log()
        );
        assert!(wait(A_WHILE, || self.denies()), "{}", log());
    }
}

#[test]
fn a_leader_with_a_wrong_clock_replaces_no_certificate_and_issues_one_that_the_api_server_accepts() {
    let Some(library) = faketime() else { return };
    let Some(test) = Test::start("a wrong clock") else {
        return;
    };
    let first = test.replica("first");
    first.is_ready(&test.cluster);
    test.leads_and_denies(&first);
    let issued = test.secret();
    test.cluster.end("first", "TERM");

    // A certificate is valid for a year and renewed after two thirds of it, and starts a day before it is issued.
    for (name, offset) in [("ahead", "+300d"), ("far-ahead", "+400d"), ("behind", "-30d")] {
        let replica = test.replica_off_by(&library, name, offset);
        test.leads_and_denies(&replica);
        replica.is_ready(&test.cluster);
        assert_eq!(
            test.secret(),
            issued,
            "{offset}: {}",
            test.cluster.end_of_log(name)
        );
        test.cluster.end(name, "TERM");
    }

    let delete = [&["delete"], &SECRET[..]].concat();
    test.cluster.kubectl(&delete).succeeded();
    let replica = test.replica_off_by(&library, "issues", "+300d");
    replica.is_ready(&test.cluster);
    test.leads_and_denies(&replica);
    assert_ne!(test.secret(), issued);
}

#[test]
fn a_certificate_that_expired_while_nobody_ran_is_replaced_before_readiness() {
    let Some(test) = Test::start("an expired certificate") else {
        return;
    };
    let first = test.replica("first");
    first.is_ready(&test.cluster);
    test.leads_and_denies(&first);
    test.cluster.end("first", "TERM");

    let decode = |key: &str| {
        use base64::Engine as _;
        let text = test.secret()[key].as_str().unwrap().to_owned();
        String::from_utf8(base64::prelude::BASE64_STANDARD.decode(text).unwrap()).unwrap()
    };
    let ca_key = rcgen::KeyPair::from_pem(&decode("ca.key")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&decode("ca.crt"), ca_key).unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let expired = params.signed_by(&key, &issuer).unwrap().pem();
    let patch = json!({"stringData": {"tls.crt": expired, "tls.key": key.serialize_pem()}}).to_string();
    let patch = [&["patch"], &SECRET[..], &["--type=merge", "-p", &patch]].concat();
    test.cluster.kubectl(&patch).succeeded();

    let second = test.replica("second");
    second.is_ready(&test.cluster);
    test.leads_and_denies(&second);
    assert_ne!(decode("tls.crt"), expired);
}
