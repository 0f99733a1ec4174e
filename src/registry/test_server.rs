//! A server on this machine that answers as a test says: registries that behave as a real one does not.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Requests as they came: each with its head, and its body if it has one.
pub type Requests = Arc<Mutex<Vec<String>>>;

/// Answers the head of each request, and the body of a form; returns the port, and the requests.
pub async fn server(answer: impl Fn(&str, u16) -> String + Send + 'static) -> (u16, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let request = request(&mut connection).await;
            let answer = answer(&request, port);
            seen.lock().unwrap().push(request);
            // A client that has read enough closes the connection.
            let _ = connection.write_all(answer.as_bytes()).await;
        }
    });
    (port, requests)
}

/// Reads one request.
pub async fn request(connection: &mut TcpStream) -> String {
    let (mut request, mut part) = (String::new(), [0; 4096]);
    let is_complete = |request: &str| {
        request.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let head = head.to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            body.len() >= length.map_or(0, |length| length.parse().unwrap())
        })
    };
    while !is_complete(&request) {
        let read = connection.read(&mut part).await.unwrap();
        request.push_str(std::str::from_utf8(&part[..read]).unwrap());
        if read == 0 {
            break;
        }
    }
    request
}

/// An answer with these headers, each with its line end.
pub fn answer(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
}
