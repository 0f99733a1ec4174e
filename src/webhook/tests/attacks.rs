//! Attacks during which a second client sends reviews and probes: all are answered, and none waits for the
//! attackers.

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

/// How long each attack lasts.
const SIEGE: Duration = Duration::from_millis(2_500);

/// A second client that waits longer is blocked by the attackers, even on the busiest machine: an attack that
/// blocks it does so for its whole duration.
const HELD_UP: Duration = Duration::from_secs(10);

/// How long an attacker takes to reconnect.
const AGAIN: Duration = Duration::from_millis(100);

/// One attack at a time: the limits assume that the server has the other half of the machine.
static ATTACK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Sends probes and reviews until the attack is over, each over its own connection, and reviews also over a
/// persistent one; each must be answered correctly and in time.
async fn assert_served(server: &Running) {
    let mut known = server.http2().await;
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < SIEGE || rounds < 4 {
        for path in ["/livez", "/readyz"] {
            let probed = timeout(HELD_UP, server.health(path)).await;
            assert_eq!(probed.expect(path).0, StatusCode::OK, "{path}");
        }
        let answer = timeout(HELD_UP, async {
            let mut new = server.http2().await;
            new.send_request(post("/validate", full("{}"))).await.unwrap()
        });
        assert_eq!(
            answer.await.expect("a new client is answered in time").status(),
            200
        );
        let answer = timeout(
            HELD_UP,
            known.send_request(post("/mutate", full(vec![b' '; 100 << 10]))),
        );
        let answer = answer.await.expect("a known client is answered in time");
        assert_eq!(answer.unwrap().status(), 200);
        rounds += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_sockets_on_the_health_port_hold_up_no_probe() {
    let _alone = ATTACK.lock().await;
    let server = start(Limits::default(), self_signed()).await;
    let mut siege = JoinSet::new();
    let health = server.health;
    for _ in 0..500 {
        siege.spawn(async move {
            loop {
                let mut silent = TcpStream::connect(health).await.unwrap();
                // Until the server closes the connection.
                let _ = silent.read(&mut [0; 1]).await;
                sleep(AGAIN).await;
            }
        });
    }
    assert_served(&server).await;
    siege.shutdown().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrapes_whose_answers_are_not_read_hold_up_no_probe() {
    let _alone = ATTACK.lock().await;
    let server = start(Limits::default(), self_signed()).await;
    let mut siege = JoinSet::new();
    let health = server.health;
    for _ in 0..300 {
        siege.spawn(async move {
            loop {
                let mut scrape = TcpStream::connect(health).await.unwrap();
                let head = b"GET /metrics HTTP/1.1\r\nhost: t\r\n\r\nGET /metrics HTTP/1.1\r\nhost: t\r\n";
                let _ = scrape.write_all(head).await;
                sleep(AGAIN).await;
            }
        });
    }
    assert_served(&server).await;
    siege.shutdown().await;
    server.stop().await;
}

#[tokio::test]
async fn a_silent_socket_on_the_health_port_is_hung_up_on_and_a_probe_has_the_last_word() {
    let server = start(limits(), self_signed()).await;
    let mut silent = TcpStream::connect(server.health).await.unwrap();
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
    let mut probe = TcpStream::connect(server.health).await.unwrap();
    probe
        .write_all(b"GET /livez HTTP/1.1\r\nhost: t\r\n\r\n")
        .await
        .unwrap();
    let mut message = String::new();
    probe.read_to_string(&mut message).await.unwrap();
    assert!(
        message.contains("connection: close") && message.ends_with("ok\n"),
        "{message}"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_one_byte_on_one_connection_take_no_room_of_reviews() {
    let _alone = ATTACK.lock().await;
    let server = start(Limits::default(), self_signed()).await;
    let mut siege = JoinSet::new();
    for _ in 0..4 {
        let attacker = server.http2().await;
        for _ in 0..256 {
            let mut attacker = attacker.clone();
            siege.spawn(async move {
                loop {
                    let (byte, body) = fed(None);
                    byte.send(Bytes::from_static(b"{")).unwrap();
                    if attacker.send_request(post("/mutate", body)).await.is_err() {
                        return;
                    }
                    drop(byte);
                }
            });
        }
    }
    assert_served(&server).await;
    siege.shutdown().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_that_never_end_give_way_to_reviews() {
    let _alone = ATTACK.lock().await;
    let server = start(Limits::default(), self_signed()).await;
    let (address, ca) = (server.address, server.ca.clone());
    let mut siege = JoinSet::new();
    for _ in 0..12 {
        let ca = ca.clone();
        siege.spawn(async move {
            let head = "POST /mutate HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 7000000\r\n\r\n";
            loop {
                let Ok(mut hoard) = connect(address, &ca, "http/1.1").await else { continue };
                let _ = hoard.write_all(head.as_bytes()).await;
                let _ = hoard.write_all(&vec![b' '; 6_900_000]).await;
                let _ = hoard.read(&mut [0; 1]).await;
            }
        });
    }
    assert_served(&server).await;
    let refused = server.metrics.expose();
    assert!(
        !refused.contains("transom_requests_rejected_total{reason=\"slow_client\"} 0\n"),
        "{refused}"
    );
    siege.shutdown().await;
    server.stop().await;
}

#[tokio::test]
async fn threads_that_are_busy_with_reviews_hold_up_no_probe() {
    use std::io::{Read as _, Write as _};

    let server = start(Limits::default(), self_signed()).await;
    let address = server.health;
    assert_eq!(server.health("/livez").await.0, 200);
    let probe = std::thread::spawn(move || {
        let mut probe = std::net::TcpStream::connect(address).unwrap();
        // If the busy thread were needed, neither of the two would ever continue.
        probe.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        probe
            .write_all(b"GET /livez HTTP/1.1\r\nhost: t\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).unwrap();
        answer
    });
    // The only thread of this runtime is busy until the probe is answered.
    let answer = probe.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    server.stop().await;
}
