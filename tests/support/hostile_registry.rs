//! A registry that is in the way of a real one: it passes requests on, until it is told to misbehave.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How it answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behaviour {
    /// As the real registry does.
    Honest,
    /// The head, and then a byte of the body each second.
    Drip,
    /// Another index than the one with the digest that it states.
    WrongDigest,
    /// A redirect to the address at which clouds provide credentials.
    Redirect,
    /// A manifest of 5 MiB.
    TooLarge,
    /// A page for people, with status 200.
    Page,
    /// Never.
    Hang,
    /// 429 with `Retry-After`.
    TooManyRequests,
}

/// A registry on 127.0.0.1 and `localhost`.
pub struct HostileRegistry {
    port: u16,
    behaviour: Arc<Mutex<Behaviour>>,
    /// It behaves like this for paths with this part; honest for others.
    part: Arc<Mutex<String>>,
    /// The paths of the requests that got no honest answer.
    refused: Arc<Mutex<Vec<String>>>,
}

impl HostileRegistry {
    /// An honest one, in front of the registry on this port.
    pub fn before(real: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let registry = HostileRegistry {
            port: listener.local_addr().unwrap().port(),
            behaviour: Arc::new(Mutex::new(Behaviour::Honest)),
            part: Arc::default(),
            refused: Arc::default(),
        };
        let (behaviour, refused) = (Arc::clone(&registry.behaviour), Arc::clone(&registry.refused));
        let part = Arc::clone(&registry.part);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (behaviour, refused) = (Arc::clone(&behaviour), Arc::clone(&refused));
                let part = part.lock().unwrap().clone();
                std::thread::spawn(move || {
                    let Some(head) = head_of(&connection) else {
                        return;
                    };
                    let mut behaviour = *behaviour.lock().unwrap();
                    if !head.split(' ').nth(1).unwrap_or_default().contains(&part) {
                        behaviour = Behaviour::Honest;
                    }
                    if behaviour != Behaviour::Honest {
                        let path = head.split(' ').nth(1).unwrap_or_default();
                        refused.lock().unwrap().push(path.to_owned());
                    }
                    // Whoever asks may close the connection at any time.
                    let _ = answer(connection, &head, behaviour, real);
                });
            }
        });
        registry
    }

    pub fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    pub fn reference(&self, image: &str) -> String {
        format!("{}/{image}", self.host())
    }

    pub fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    /// The same for paths with this part only.
    pub fn behave_for(&self, part: &str, behaviour: Behaviour) {
        part.clone_into(&mut self.part.lock().unwrap());
        self.behave(behaviour);
    }

    /// The number of requests for paths with this part that got no honest answer.
    pub fn refused(&self, part: &str) -> usize {
        let refused = self.refused.lock().unwrap();
        refused.iter().filter(|path| path.contains(part)).count()
    }
}

fn head_of(mut connection: &TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if connection.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn answer(mut connection: TcpStream, head: &str, behaviour: Behaviour, real: u16) -> std::io::Result<()> {
    // Each connection has one request, so that the next one meets the next behaviour.
    const HEAD: &str =
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/vnd.oci.image.index.v1+json\r\n";
    match behaviour {
        Behaviour::Honest => {
            let mut upstream = TcpStream::connect(("127.0.0.1", real))?;
            let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
            upstream.write_all(head.as_bytes())?;
            std::io::copy(&mut upstream, &mut connection).map(|_| ())
        }
        Behaviour::Drip => {
            // Without a digest, so that a GET follows a HEAD.
            connection.write_all(format!("{HEAD}content-length: 100\r\n\r\n").as_bytes())?;
            for _ in 0..100 {
                std::thread::sleep(Duration::from_secs(1));
                connection.write_all(b" ")?;
            }
            Ok(())
        }
        Behaviour::WrongDigest => {
            let digest = super::registry::digest(b"something else");
            let body = r#"{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}"#;
            let length = body.len();
            let head = format!("{HEAD}docker-content-digest: {digest}\r\ncontent-length: {length}\r\n\r\n");
            connection.write_all(format!("{head}{body}").as_bytes())
        }
        Behaviour::Redirect => connection.write_all(
            b"HTTP/1.1 302 Found\r\nconnection: close\r\nlocation: https://169.254.169.254/latest/meta-data\r\n\
              content-length: 0\r\n\r\n",
        ),
        Behaviour::TooLarge => {
            let body = format!("{{\"schemaVersion\": 2, \"x\": \"{}\"}}", "x".repeat(5 << 20));
            connection.write_all(format!("{HEAD}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())
        }
        Behaviour::Page => connection.write_all(
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>",
        ),
        Behaviour::Hang => {
            std::thread::sleep(Duration::from_secs(120));
            Ok(())
        }
        Behaviour::TooManyRequests => connection.write_all(
            b"HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\nretry-after: 600\r\ncontent-length: 0\r\n\r\n",
        ),
    }
}
