//! Attacks on the sockets of the real program that go on while a second client asks: descriptors and memory.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::server::Server;
use serde_json::json;

/// Reviews and probes of a second client, for a while; each is answered, and far sooner than the attackers let go.
fn assert_served(server: &Server, siege: Duration) {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": "CREATE", "namespace": "shop", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "object": {"apiVersion": "v1", "kind": "Pod", "spec": {"os": {"name": "windows"}, "hostPID": true, "containers": []}},
        },
    });
    let review = review.to_string();
    let start = Instant::now();
    while start.elapsed() < siege {
        let requested = Instant::now();
        let (status, answer) = server.post("/validate", review.as_bytes());
        assert!(
            status == 200 && answer.contains("\"allowed\":false"),
            "{status} {answer}"
        );
        assert!(
            requested.elapsed() < Duration::from_secs(10),
            "{:?}",
            requested.elapsed()
        );
        for path in ["/livez", "/readyz"] {
            let requested = Instant::now();
            let answer = server.get(path).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
            assert!(
                requested.elapsed() < Duration::from_secs(10),
                "{path}: {:?}",
                requested.elapsed()
            );
        }
    }
}

#[test]
fn more_sockets_than_descriptors_keep_no_review_and_no_probe_out() {
    let _turn = crate::alone();
    let folder = tempfile::tempdir().unwrap();
    // 460 less those that are kept for others.
    let server = Server::start_within(folder.path(), &["--log=error"], 100, 460);
    thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let mut sockets = Vec::new();
            for socket in 0..3_000_usize {
                let silent = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
                if sockets.len() < 600 {
                    sockets.push(silent);
                } else {
                    sockets[socket % 600] = silent;
                }
                thread::sleep(Duration::from_millis(1));
            }
            sockets
        });
        assert_served(&server, Duration::from_secs(3));
        let open = server.metric("transom_connections_open ").unwrap();
        assert!((100..=140).contains(&open), "{open} connections");
        assert!(server.metric("transom_connections_evicted_total ").unwrap() > 400);
        drop(attack.join().unwrap());
    });
    assert_eq!(server.terminate(), Some(0));
}

/// The resident memory of a process, in KiB.
fn memory(server: &Server) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn heads_that_never_end_take_no_more_memory_than_their_connections_may() {
    const CONNECTIONS: usize = 600;
    let _turn = crate::alone();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--max-connections=500", "--header-timeout=30s"]);
    server.post("/validate", b"{}");
    let before = memory(&server);
    let mut heads = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut tls = server.connect();
        let _ = write!(tls, "POST /validate HTTP/1.1\r\nhost: localhost\r\nx-long: ");
        // The server hangs up on what is longer than a head may be.
        let _ = tls.write_all(&vec![b'x'; 15 << 10]);
        heads.push(tls);
    }
    let mut hello = Vec::new();
    for _ in 0..50 {
        // A handshake that promises 16 KiB more than it brings.
        let mut socket = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let _ = socket.write_all(&[&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc][..], &vec![0; 16_000]].concat());
        hello.push(socket);
    }
    assert_served(&server, Duration::from_secs(1));
    let grown = memory(&server).saturating_sub(before);
    assert!(server.metric("transom_connections_open ").unwrap() <= 500);
    assert!(grown < 500 * 64, "{grown} KiB for 500 connections");
    println!("{} KiB for each connection", grown / 500);
}
