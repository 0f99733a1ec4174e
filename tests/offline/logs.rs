//! The log of the real program: its reader may sleep, and neither reviews nor probes nor the end of the process wait for it.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::server::Server;
use serde_json::{Value, json};

/// A pod for Windows; denied where `bad`.
fn review(uid: &str, bad: bool) -> Vec<u8> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "os": {"name": "windows"}, "hostPID": bad,
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}],
            "containers": [{"name": "a", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}],
        },
    });
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": uid, "operation": "CREATE", "namespace": "shop", "name": "web",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "userInfo": {"username": "alice"}, "object": pod,
        },
    })
    .to_string()
    .into_bytes()
}

/// Sends denials over one connection; each is answered in time.
fn deny(server: &Server, reviews: usize) {
    let mut tls = server.connect();
    tls.sock.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let body = review(&"u".repeat(36), true);
    let head = format!(
        "POST /validate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), &body].concat();
    for number in 0..reviews {
        tls.write_all(&request).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}}") {
            let mut piece = [0; 4096];
            let read = tls
                .read(&mut piece)
                .unwrap_or_else(|error| panic!("review {number} is not answered: {error}"));
            assert!(read > 0, "review {number}: the server hung up");
            answer.extend_from_slice(&piece[..read]);
        }
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains("\"allowed\":false"), "{answer}");
    }
}

#[test]
fn a_reader_of_the_log_that_sleeps_holds_up_no_review_no_probe_and_not_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_with(folder.path(), &[], Stdio::piped());
    let log = server.child.stderr.take().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| deny(&server, 2_500));
        }
    });
    for path in ["/livez", "/readyz"] {
        let answer = server.get(path).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    let dropped = server.metric("transom_log_lines_dropped_total ").unwrap();
    assert!(dropped > 1_000, "only {dropped} of 10,000 lines were dropped");

    // It wakes up: what waited is there, and how much is missing.
    let mut log = BufReader::new(log).lines().map(Result::unwrap);
    let mut denials = 0;
    let message = log
        .by_ref()
        .inspect(|line| denials += u64::from(line.contains("decision=deny")))
        .find(|line| line.contains("log lines were dropped"));
    let message = message.expect("it is reported");
    assert!(
        message.contains(&format!("{dropped} log lines were dropped")),
        "{message}"
    );
    assert_eq!(denials + dropped, 10_000);

    // It sleeps again, and the process is told to end.
    deny(&server, 2_000);
    let start = Instant::now();
    let id = server.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    let status = loop {
        if let Some(status) = server.child.try_wait().unwrap() {
            break status;
        }
        // The kubelet waits as long before it kills.
        assert!(start.elapsed() < Duration::from_secs(30), "it does not end");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
    drop(log);
}

/// The lines of reviews, of a server with these flags: one that is denied, and one that is plainly allowed.
fn lines(flags: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_with(folder.path(), flags, Stdio::piped());
    let log = server.child.stderr.take().unwrap();
    assert_eq!(server.post("/mutate", &review("good", false)).0, 200);
    assert_eq!(server.post("/validate", &review("bad", true)).0, 200);
    assert_eq!(server.terminate(), Some(0));
    let lines = BufReader::new(log).lines().map(Result::unwrap);
    lines.filter(|line| line.contains("audit")).collect()
}

#[test]
fn a_denial_is_logged_by_default_and_what_is_plainly_allowed_only_on_request() {
    let [denied] = lines(&["--log-format=json"]).try_into().unwrap();
    let denied: Value = serde_json::from_str(&denied).unwrap();
    let mut expected = json!({
        "level": "INFO", "target": "audit", "message": "review", "type": "validating", "decision": "deny",
        "verdict": "Windows", "operation": "CREATE", "kind": "Pod", "namespace": "shop", "name": "web",
        "user": "alice", "uid": "bad", "dry_run": false, "policy": "built-in",
        "rules": ["host-pid", "missing-build-selector", "resource-limits-missing"],
        "evidence": "spec.os.name=windows, spec.nodeSelector[kubernetes.io/os]=windows", "denied_by": "host-pid",
    });
    expected["timestamp"] = denied["timestamp"].clone();
    assert_eq!(denied, expected);

    let all: [String; 2] = lines(&["--log=audit=debug"]).try_into().unwrap();
    let [allowed, denied] = all.each_ref().map(|line| line.split_once("Z ").unwrap().1);
    assert_eq!(
        allowed,
        "DEBUG audit: review decision=allow type=mutating verdict=Windows operation=CREATE kind=Pod namespace=\"shop\" \
         name=\"web\" user=\"alice\" uid=\"good\" dry_run=false policy=\"built-in\" rules=missing-build-selector,resource-limits-missing"
    );
    assert!(
        denied.starts_with(" INFO audit: review decision=deny type=validating"),
        "{denied}"
    );
    assert!(
        denied.contains(
            " rules=host-pid,missing-build-selector,resource-limits-missing evidence=\"spec.os.name=windows, "
        ),
        "{denied}"
    );
    assert_eq!(lines(&["--log=info,audit=off"]), [""; 0]);
}

#[test]
fn names_of_any_length_make_no_long_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_with(folder.path(), &["--log-format=json"], Stdio::piped());
    let log = server.child.stderr.take().unwrap();
    let reader = thread::spawn(move || {
        BufReader::new(log)
            .lines()
            .map(Result::unwrap)
            .collect::<Vec<_>>()
    });
    let long = "\u{1}\u{fc}\"x".repeat(80 << 10);
    for _ in 0..4 {
        let mut review: Value = serde_json::from_slice(&review(&long, true)).unwrap();
        let request = &mut review["request"];
        request["userInfo"]["username"] = long.clone().into();
        request["namespace"] = long.clone().into();
        request["name"] = long.clone().into();
        request["object"]["metadata"]["name"] = long.clone().into();
        request["object"]["spec"]["containers"][0]["image"] = long.clone().into();
        let answer = server.post("/validate", review.to_string().as_bytes());
        assert_eq!(answer.0, 200, "{:.200}", answer.1);
    }
    assert_eq!(server.terminate(), Some(0));
    let lines = reader.join().unwrap();
    let reported: Vec<_> = lines.iter().filter(|line| line.contains("\"audit\"")).collect();
    assert_eq!(reported.len(), 4);
    for line in lines {
        assert!(line.len() < 32 << 10, "a line of {} bytes", line.len());
        let line: Value = serde_json::from_str(&line).expect("a line is whole");
        for field in ["user", "uid", "namespace", "name"] {
            let length = line[field].as_str().map_or(0, str::len);
            assert!(length <= 256, "{field}: {length} bytes");
        }
    }
}
