//! The servers under test as processes: started, measured with `/proc`, and killed when dropped.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use crate::drive::Target;
use crate::process_memory::Memory;

/// The facts of the benchmarks, so that every rule and all of placement are exercised.
const FACTS: &str = include_str!("../../support/facts.yaml");

/// The address of servers that only the driver calls.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Clock ticks of `/proc/PID/stat`, `USER_HZ`: 100 on every Linux.
const TICKS: f64 = 100.0;

/// A server and its files.
pub struct Server {
    child: Child,
    address: SocketAddr,
    ca: PathBuf,
    folder: TempDir,
    started: Instant,
}

impl Server {
    /// This program as a bare server on loopback: `serve-read` or `serve-parse`.
    pub fn bare(subcommand: &str) -> anyhow::Result<Self> {
        Self::bare_at(subcommand, LOOPBACK, &[])
    }

    /// The same at another address, with additional arguments.
    pub fn bare_at(subcommand: &str, host: IpAddr, more: &[&str]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        Self::start(&program, host, |command, address, folder| {
            command
                .arg(subcommand)
                .args(["--listen", &address.to_string()])
                .args(more);
            command.arg("--write-ca").arg(folder.join("ca.pem"));
            Ok(())
        })
    }

    /// Transom in standalone mode, with all features; its log goes to a file, as in a container.
    pub fn transom(program: &Path, more: &[&str]) -> anyhow::Result<Self> {
        Self::transom_with(program, LOOPBACK, more)
    }

    /// The same at another address.
    pub fn transom_at(program: &Path, host: IpAddr) -> anyhow::Result<Self> {
        Self::transom_with(program, host, &[])
    }

    fn transom_with(program: &Path, host: IpAddr, more: &[&str]) -> anyhow::Result<Self> {
        Self::start(program, host, |command, address, folder| {
            let facts = folder.join("facts.yaml");
            std::fs::write(&facts, FACTS).context("cannot write the facts")?;
            command.args(["serve", "--standalone", "--listen", &address.to_string()]);
            command.args(["--health-listen", &free_port(LOOPBACK)?.to_string()]);
            command
                .arg("--write-ca")
                .arg(folder.join("ca.pem"))
                .arg("--facts")
                .arg(facts)
                .args(more);
            Ok(())
        })
    }

    fn start(
        program: &Path,
        host: IpAddr,
        configure: impl FnOnce(&mut Command, SocketAddr, &Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let address = free_port(host)?;
        let mut command = Command::new(program);
        configure(&mut command, address, folder.path())?;
        let log = File::create(folder.path().join("log")).context("cannot make a log")?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let started = Instant::now();
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Server {
            child,
            address,
            ca: folder.path().join("ca.pem"),
            folder,
            started,
        })
    }

    /// Waits for the first answer over HTTPS; returns the time since the start of the process.
    pub async fn ready(&mut self, path: &'static str, body: &str) -> anyhow::Result<(Target, Duration)> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                bail!("the server ended, {status}: {log}");
            }
            // If the CA file is incomplete, parsing or the handshake fails, and the next attempt reads it again.
            if let Ok(target) = Target::new(self.address, &self.ca, path)
                && target.request(body).await.is_ok()
            {
                return Ok((target, self.started.elapsed()));
            }
            if self.started.elapsed() > Duration::from_secs(20) {
                bail!("no answer from {} within 20 s", self.address);
            }
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    }

    /// The same server at another path.
    pub fn target(&self, path: &'static str) -> anyhow::Result<Target> {
        Target::new(self.address, &self.ca, path)
    }

    /// The CA of its certificate, in PEM.
    pub fn ca_pem(&self) -> anyhow::Result<String> {
        std::fs::read_to_string(&self.ca).context("cannot read the CA of the server")
    }

    /// Seconds of CPU time, user and system, in steps of 10 ms.
    pub fn cpu(&self) -> anyhow::Result<f64> {
        cpu_of(self.child.id())
    }

    /// Its memory.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        Memory::of(self.child.id()).context("the server is gone")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Seconds of CPU time of a process, user and system, in steps of 10 ms.
pub fn cpu_of(process: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).context("the server is gone")?;
    // The program's name is in parentheses and may contain any character; utime and stime are fields 14 and 15.
    let fields = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace();
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    Ok(ticks / TICKS)
}

/// A free port. If another process takes it first, the server reports the error.
fn free_port(host: IpAddr) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((host, 0)).context("cannot find a free port")?;
    Ok(listener.local_addr()?)
}
