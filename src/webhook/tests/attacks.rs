//! Attacks that go on while a second client asks: its reviews are answered within 2 s, and its probes within 1 s.

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

/// How long each attack goes on.
const SIEGE: Duration = Duration::from_millis(2_500);

/// Asks for probes and reviews, each over a connection of its own and reviews also over one that stays, until the siege
/// is over; each has to be answered well and in time.
async fn assert_served(server: &Running) {
    let mut known = server.http2().await;
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < SIEGE {
        for path in ["/livez", "/readyz"] {
            let probed = timeout(Duration::from_secs(1), server.health(path)).await;
            assert_eq!(probed.expect(path).0, StatusCode::OK, "{path}");
        }
        let answer = timeout(Duration::from_secs(2), async {
            let mut new = server.http2().await;
            new.send_request(post("/validate", full("{}"))).await.unwrap()
        });
        assert_eq!(
            answer.await.expect("a new client is answered in time").status(),
            200
        );
        let answer = timeout(
            Duration::from_secs(2),
            known.send_request(post("/mutate", full(vec![b' '; 100 << 10]))),
        );
        let answer = answer.await.expect("a known client is answered in time");
        assert_eq!(answer.unwrap().status(), 200);
        rounds += 1;
    }
    assert!(rounds > 3, "only {rounds} rounds in {SIEGE:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_sockets_on_the_health_port_hold_up_no_probe() {
    let server = start(Limits::default(), self_signed()).await;
    let mut siege = JoinSet::new();
    let health = server.health;
    for _ in 0..200 {
        siege.spawn(async move {
            loop {
                let mut silent = TcpStream::connect(health).await.unwrap();
                // Until the server has enough of it.
                let _ = silent.read(&mut [0; 1]).await;
            }
        });
    }
    assert_served(&server).await;
    siege.shutdown().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrapes_whose_answers_are_not_read_hold_up_no_probe() {
    let server = start(Limits::default(), self_signed()).await;
    let mut siege = JoinSet::new();
    let health = server.health;
    for _ in 0..100 {
        siege.spawn(async move {
            loop {
                let mut scrape = TcpStream::connect(health).await.unwrap();
                let head = b"GET /metrics HTTP/1.1\r\nhost: t\r\n\r\nGET /metrics HTTP/1.1\r\nhost: t\r\n";
                let _ = scrape.write_all(head).await;
                sleep(Duration::from_millis(100)).await;
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
    let mut said = String::new();
    probe.read_to_string(&mut said).await.unwrap();
    assert!(
        said.contains("connection: close") && said.ends_with("ok\n"),
        "{said}"
    );
    server.stop().await;
}
