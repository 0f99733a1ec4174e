//! An HTTP proxy that knows CONNECT only, as those that lead out of a company's network. Every tunnel ends at one port of
//! this machine, whatever host it is requested for.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A running proxy. Its thread ends with the test binary.
pub struct Proxy {
    pub port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// A proxy whose tunnels end at this port; with `None`, it refuses every tunnel with status 403.
    pub fn start(to: Option<u16>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&heads);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || serve(client, to, &seen));
            }
        });
        Proxy { port, heads }
    }

    /// The heads of the requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn serve(mut client: TcpStream, to: Option<u16>, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or_default() == 0 {
            return;
        }
    }
    let is_connect = head.starts_with("CONNECT ");
    seen.lock().unwrap().push(head);
    let target = to
        .filter(|_| is_connect)
        .and_then(|port| TcpStream::connect(("127.0.0.1", port)).ok());
    let Some(mut target) = target else {
        let _ = client.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
        return;
    };
    if client
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .is_err()
    {
        return;
    }
    let (back, forth) = (target.try_clone().unwrap(), client.try_clone().unwrap());
    let answers = std::thread::spawn(move || copy(back, forth));
    // What the client sent after its head is in the reader.
    let _ = std::io::copy(&mut reader, &mut target);
    let _ = target.shutdown(Shutdown::Write);
    let _ = answers.join();
}

fn copy(mut from: impl Read, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
