//! A network of the test's own: EndpointSlices refuse loopback addresses, so replicas need others, which nobody else
//! should see.

use std::process::{Command, Stdio};

use crate::support::skipped::skipped;

/// The addresses of the replicas, on the loopback device of that network.
pub const ADDRESSES: [&str; 3] = ["10.213.7.1", "10.213.7.2", "10.213.7.3"];

const INSIDE: &str = "TRANSOM_TEST_NETWORK";

const SET_UP: &str = r#"
ip link set lo up || exit 97
for address in $ADDRESSES; do ip addr add "$address/32" dev lo || exit 97; done
exec "$0" "$@"
"#;

/// Whether this process is in a network of its own. Otherwise the test is run again in one; it has passed, then, or this
/// fails, or says past the test harness that nothing is proved.
pub fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        // Input ends when the process outside does.
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::exit(1);
        });
        return true;
    }
    // An administrator needs no namespace of users; anybody else may be allowed one.
    for unshare in [&["--net"][..], &["--map-root-user", "--net"]] {
        if !Command::new("unshare")
            .args(unshare)
            .args(["sh", "-c", "ip link set lo up"])
            .output()
            .is_ok_and(|tried| tried.status.success())
        {
            continue;
        }
        let mut inside = Command::new("unshare")
            .args(unshare)
            .args(["sh", "-c", SET_UP])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env("ADDRESSES", ADDRESSES.join(" "))
            .env(INSIDE, "yes")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let input = inside.stdin.take();
        let status = inside.wait().unwrap();
        drop(input);
        assert!(status.success(), "{test} failed in its own network: {status}");
        return false;
    }
    skipped(format!(
        "SKIPPED: {test}: no network namespace can be made here. It takes the programs unshare and ip, and root or\n\
         SKIPPED: unprivileged user namespaces"
    ));
    false
}
