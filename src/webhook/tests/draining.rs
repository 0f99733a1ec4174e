//! Shutdown of a server: requests in flight finish, new ones are not accepted, and nothing waits forever.

use super::*;

async fn until_unready(server: &Running) {
    while server.health("/readyz").await.0 == StatusCode::OK {
        tokio::task::yield_now().await;
    }
}

async fn until_open(server: &Running, requests: usize) {
    while !server
        .metrics
        .expose()
        .contains(&format!("transom_http_requests_in_flight {requests}\n"))
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn draining_under_load_finishes_what_is_in_flight_and_takes_nothing_new() {
    let mut server = start(Limits::default(), self_signed()).await;
    let mut bodies = Vec::new();
    let mut answers = Vec::new();
    for _ in 0..4 {
        let (body, receiver) = fed(None);
        let (mut one, mut two) = (server.http1().await, server.http2().await);
        answers.push(tokio::spawn(async move {
            one.send_request(post("/mutate", receiver)).await
        }));
        bodies.push(body);
        let (body, receiver) = fed(None);
        answers.push(tokio::spawn(async move {
            two.send_request(post("/validate", receiver)).await
        }));
        bodies.push(body);
    }
    for body in &bodies {
        body.send(Bytes::from_static(b"{")).unwrap();
    }
    until_open(&server, 8).await;

    server.begin_stop();
    until_unready(&server).await;
    assert_eq!(server.health("/readyz").await.1, "draining: shutting down\n");
    assert_eq!(server.health("/livez").await.0, 200);
    while connect(server.address, &server.ca, "h2").await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!server.ended.is_finished());

    for body in bodies {
        body.send(Bytes::from_static(b"}")).unwrap();
    }
    for answer in answers {
        let response = answer.await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        let closes = response
            .headers()
            .get("connection")
            .is_some_and(|value| value == "close");
        assert_eq!(closes, response.version() == hyper::Version::HTTP_11);
        assert_eq!(text(response).await, "{\"length\":2}");
    }
    server.ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn during_the_drain_delay_all_is_served_but_http_1_clients_are_sent_elsewhere() {
    let mut server = start(
        Limits {
            drain_delay: Duration::from_secs(1),
            ..Limits::default()
        },
        self_signed(),
    )
    .await;
    let mut known = server.http1().await;
    let before = known.send_request(post("/mutate", full("{}"))).await.unwrap();
    assert_eq!(before.headers().get("connection"), None);
    text(before).await;
    server.begin_stop();
    until_unready(&server).await;
    let new = server.http1().await;
    let closes = async |mut client: http1::SendRequest<Full<Bytes>>| {
        let response = client.send_request(post("/mutate", full("{}"))).await.unwrap();
        assert_eq!(response.status(), 200);
        let closes = response
            .headers()
            .get("connection")
            .is_some_and(|value| value == "close");
        text(response).await;
        closes
    };
    assert!(closes(known).await, "a connection that is there");
    assert!(closes(new).await, "a new one");
    let response = server
        .http2()
        .await
        .send_request(post("/mutate", full("{}")))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers().get("connection"), None);
    server.ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_never_finishes_does_not_keep_the_server() {
    let server = start(
        Limits {
            drain_timeout: Duration::from_millis(50),
            ..Limits::default()
        },
        self_signed(),
    )
    .await;
    let (_body, receiver) = fed(None);
    let mut sender = server.http1().await;
    let answer = tokio::spawn(async move { sender.send_request(post("/mutate", receiver)).await.is_ok() });
    until_open(&server, 1).await;
    server.stop().await;
    assert!(!answer.await.unwrap());
}
