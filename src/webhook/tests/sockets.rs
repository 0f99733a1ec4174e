//! Real connections: both versions of HTTP, slow clients, and requests that are rejected while the client
//! still sends.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// What a server sends until it closes the connection.
async fn hang_up(mut stream: impl AsyncReadExt + Unpin) -> String {
    let mut message = Vec::new();
    // A reset also closes the connection.
    let _ = stream.read_to_end(&mut message).await;
    String::from_utf8_lossy(&message).into_owned()
}

#[tokio::test]
async fn http_1_keeps_its_connection_and_http_2_shares_one() {
    let server = start(Limits::default(), self_signed()).await;
    let mut one = server.http1().await;
    let mut two = server.http2().await;
    for length in 1..=3 {
        let response = one
            .send_request(post("/mutate?timeout=2s", full(vec![b' '; length])))
            .await
            .unwrap();
        assert_eq!(text(response).await, format!("{{\"length\":{length}}}"));
    }
    let streams = (1..=20).map(|length| {
        let sent = two.send_request(post("/validate", full(vec![b' '; length])));
        tokio::spawn(async move { text(sent.await.unwrap()).await })
    });
    for (stream, length) in streams.collect::<Vec<_>>().into_iter().zip(1..) {
        assert_eq!(stream.await.unwrap(), format!("{{\"length\":{length}}}"));
    }
    let (status, metrics) = server.health("/metrics").await;
    assert_eq!(status, 200);
    assert!(metrics.contains("transom_connections_open 2"), "{metrics}");
    let counted =
        "type=\"mutating\",operation=\"CREATE\",kind=\"Pod\",decision=\"allow\",dry_run=\"false\"} 3";
    assert!(metrics.contains(counted), "{metrics}");
    assert_eq!(
        server.health("/readyz").await,
        (StatusCode::OK, "ok\n".to_owned())
    );
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_never_finishes_a_head_is_hung_up_on() {
    let server = start(limits(), self_signed()).await;
    let silent = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(hang_up(silent).await, "");

    let mut slow = connect(server.address, &server.ca, "http/1.1").await.unwrap();
    slow.write_all(b"POST /mutate HTTP/1.1\r\nhost: t").await.unwrap();
    assert_eq!(hang_up(slow).await, "");

    let mut second = connect(server.address, &server.ca, "http/1.1").await.unwrap();
    second
        .write_all(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 8];
    second.read_exact(&mut answer).await.unwrap();
    second
        .write_all(b"POST /mutate HTTP/1.1\r\nhost: t")
        .await
        .unwrap();
    assert!(hang_up(second).await.contains("404"));
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_outlives_the_header_timeout_and_not_the_idle_timeout() {
    let patient = Limits {
        idle_timeout: Duration::from_secs(60),
        ..limits()
    };
    let server = start(patient, self_signed()).await;
    let mut sender = server.http1().await;
    sender.send_request(post("/mutate", full("{}"))).await.unwrap();
    tokio::time::sleep(limits().header_timeout * 3).await;
    assert_eq!(
        sender
            .send_request(post("/mutate", full("{}")))
            .await
            .unwrap()
            .status(),
        200
    );
    server.stop().await;

    let server = start(
        Limits {
            idle_timeout: Duration::from_millis(300),
            ..limits()
        },
        self_signed(),
    )
    .await;
    let (mut one, mut two) = (server.http1().await, server.http2().await);
    one.send_request(post("/mutate", full("{}"))).await.unwrap();
    two.send_request(post("/mutate", full("{}"))).await.unwrap();
    while !(one.is_closed() && two.is_closed()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_stops_half_way_is_answered_408() {
    let server = start(limits(), self_signed()).await;
    let mut slow = connect(server.address, &server.ca, "http/1.1").await.unwrap();
    let head =
        "POST /mutate HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.unwrap();
    let message = hang_up(slow).await;
    assert!(message.starts_with("HTTP/1.1 408 "), "{message}");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_answered_and_read_to_its_end_so_that_the_answer_arrives() {
    // Many megabytes take a while on a busy machine.
    let limits = Limits {
        body_timeout: Duration::from_secs(20),
        ..limits()
    };
    let header_timeout = limits.header_timeout;
    let server = start(limits, self_signed()).await;
    let large = Bytes::from(vec![b' '; 27 * 1024 * 1024]);
    let answer_to_large = "{\"length\":65536,\"of\":28311552}";
    let mut two = server.http2().await;
    let response = two
        .send_request(post("/mutate", full(large.clone())))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, answer_to_large);
    assert_eq!(
        two.send_request(post("/mutate", full("{}")))
            .await
            .unwrap()
            .status(),
        200
    );

    // Without a client library: this client writes everything before it reads.
    let mut one = connect(server.address, &server.ca, "http/1.1").await.unwrap();
    for (body, answered) in [(large.as_ref(), answer_to_large), (b"{}", "{\"length\":2}")] {
        let head = "POST /mutate HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length:";
        one.write_all(format!("{head} {}\r\n\r\n", body.len()).as_bytes())
            .await
            .unwrap();
        one.write_all(body).await.unwrap();
        let mut answer = [0; 12];
        one.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 200");
        let mut rest = Vec::new();
        while !rest.ends_with(answered.as_bytes()) {
            rest.push(one.read_u8().await.unwrap());
        }
        // Longer than the timeout of a head: the discarded bytes must not be mistaken for one.
        tokio::time::sleep(header_timeout * 2).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_refused_body_is_read_to_its_end_so_that_the_answer_arrives() {
    let limits = Limits {
        body_timeout: Duration::from_secs(20),
        ..limits()
    };
    let server = start(limits, self_signed()).await;
    let mut one = connect(server.address, &server.ca, "http/1.1").await.unwrap();
    let large = vec![b' '; 8 * 1024 * 1024];
    for (path, body, status) in [("/nothing", large.as_slice(), "404"), ("/mutate", b"{}", "200")] {
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length:");
        one.write_all(format!("{head} {}\r\n\r\n", body.len()).as_bytes())
            .await
            .unwrap();
        one.write_all(body).await.unwrap();
        let mut answer = [0; 12];
        one.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"));
        let mut rest = Vec::new();
        while !rest.ends_with(b"/validate\n") && !rest.ends_with(b"}") {
            rest.push(one.read_u8().await.unwrap());
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_panic_does_not_cost_the_connection() {
    let server = start(Limits::default(), self_signed()).await;
    let mut sender = server.http1().await;
    for (body, status) in [("panic", 500), ("{}", 200)] {
        assert_eq!(
            sender
                .send_request(post("/mutate", full(body)))
                .await
                .unwrap()
                .status(),
            status
        );
        sender.ready().await.unwrap();
    }
    assert!(server.metrics.expose().contains("transom_review_panics_total 1"));
    server.stop().await;
}

#[tokio::test]
async fn a_connection_too_many_takes_the_place_of_another() {
    let server = start(
        Limits {
            max_connections: 1,
            ..Limits::default()
        },
        self_signed(),
    )
    .await;
    let mut first = server.http1().await;
    first.send_request(post("/mutate", full("{}"))).await.unwrap();
    let mut second = server.http2().await;
    let answer = second.send_request(post("/mutate", full("{}"))).await.unwrap();
    assert_eq!(answer.status(), 200);
    while !first.is_closed() {
        tokio::task::yield_now().await;
    }
    let metrics = server.metrics.expose();
    assert!(metrics.contains("transom_connections_open 1"), "{metrics}");
    assert!(
        metrics.contains("transom_connections_evicted_total 1"),
        "{metrics}"
    );
    server.stop().await;
}

#[tokio::test]
async fn an_address_in_use_is_named_with_its_flag() {
    let server = start(Limits::default(), self_signed()).await;
    let mut taken = config(Limits::default(), self_signed());
    taken.listen.health_listen = server.address;
    let error = Server::bind(taken).await.unwrap_err().to_string();
    let expected = format!(
        "cannot listen on {} (--health-listen): address in use; ",
        server.address
    );
    assert!(error.starts_with(&expected), "{error}");
    server.stop().await;
}
