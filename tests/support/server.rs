//! The real program as a child process, and a client that calls it over TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::command::program;

/// A running `transom serve --standalone`; killed when dropped.
pub struct Server {
    pub child: Child,
    pub port: u16,
    pub health: u16,
    ca: PathBuf,
}

/// A free port, below the range that the kernel uses for outgoing connections, of which other tests open
/// many, and different for each call in this process.
pub fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const PORTS: u16 = 10_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = u16::try_from(std::process::id() * 97 % u32::from(PORTS)).unwrap();
    loop {
        let port = FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS) % PORTS;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The sum of the metrics whose names and labels begin like this; `None` if there are none.
pub fn metric(exposition: &str, series: &str) -> Option<u64> {
    let lines = exposition.lines().filter(|line| line.starts_with(series));
    let values = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    values.reduce(|sum, value| sum + value)
}

impl Server {
    /// Starts the program and waits until it is ready.
    pub fn start(folder: &Path, args: &[&str]) -> Server {
        Server::start_with(folder, &[&["--log", "warn"], args].concat(), Stdio::inherit())
    }

    /// Starts the program with this standard error.
    pub fn start_with(folder: &Path, args: &[&str], log: Stdio) -> Server {
        Server::start_as(Command::new(program()), folder, args, log)
    }

    /// Starts the program with these soft and hard limits of descriptors.
    pub fn start_within(folder: &Path, args: &[&str], soft: u32, hard: u32) -> Server {
        let mut shell = Command::new("sh");
        let limits = format!("ulimit -S -n {soft} && ulimit -H -n {hard} && exec \"$0\" \"$@\"");
        shell.args(["-c", &limits]).arg(program());
        Server::start_as(shell, folder, args, Stdio::inherit())
    }

    fn start_as(mut command: Command, folder: &Path, args: &[&str], log: Stdio) -> Server {
        let (port, health, ca) = (free_port(), free_port(), folder.join("ca.pem"));
        command
            .args(["serve", "--standalone"])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--health-listen", &format!("127.0.0.1:{health}")])
            .args(args)
            .stdout(Stdio::null())
            .stderr(log);
        if !args.contains(&"--tls-cert") {
            command.arg("--write-ca").arg(&ca);
        }
        let mut server = Server {
            child: command.spawn().unwrap(),
            port,
            health,
            ca,
        };
        let start = Instant::now();
        while server
            .get("/readyz")
            .is_none_or(|answer| !answer.starts_with("HTTP/1.1 200"))
        {
            assert!(
                server.child.try_wait().unwrap().is_none(),
                "the server ended before it was ready"
            );
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "the server did not become ready"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// A GET on the plain-HTTP listener: the complete response.
    pub fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.health)).ok()?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// The value of a metric.
    pub fn metric(&self, series: &str) -> Option<u64> {
        metric(&self.get("/metrics").unwrap(), series)
    }

    /// A POST over TLS: status and body.
    pub fn post(&self, path: &str, body: &[u8]) -> (u16, String) {
        self.post_with(path, &[], body)
    }

    /// A POST with additional headers.
    pub fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        let mut tls = self.connect();
        write!(
            tls,
            "POST {path}?timeout=2s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n",
            body.len()
        )
        .unwrap();
        for (name, value) in headers {
            write!(tls, "{name}: {value}\r\n").unwrap();
        }
        tls.write_all(b"\r\n").unwrap();
        tls.write_all(body).unwrap();
        let mut answer = Vec::new();
        // The server may close the connection without a close_notify after its response.
        let _ = tls.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// A connection to the webhook.
    pub fn connect(&self) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(&self.ca).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        StreamOwned::new(connection, stream)
    }

    /// Sends SIGTERM, and waits for the exit status.
    pub fn terminate(mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &id])
                .status()
                .unwrap()
                .success()
        );
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
