//! The load test of `transom serve`, compared with two bare handlers; all on 127.0.0.1, with limited connections and time.

mod apiserver;
mod bare;
mod compare;
#[path = "../../../tests/support/control_plane.rs"]
#[allow(dead_code)] // the tests use more of it
mod control_plane;
mod cost;
mod drive;
#[path = "../../support/inputs.rs"]
mod inputs;
mod latency;
mod listed_images;
mod memory;
mod process;
#[path = "../../../tests/support/process_memory.rs"]
#[allow(dead_code)] // the tests use more of it
mod process_memory;
#[path = "../../../tests/support/skipped.rs"]
mod skipped;
mod stored;
mod storm;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Load test of `transom serve`
#[derive(Parser, Debug)]
#[command(version)]
enum Command {
    #[command(flatten)]
    Bare(Bare),
    /// Requests per second, latency and CPU time of Transom and of the bare handlers, in alternating rounds
    Compare {
        #[command(flatten)]
        transom: Transom,
        /// Rounds for every handler
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Connections, each with one request at a time
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
        connections: u16,
        /// Measured seconds of each turn, after one second of warm-up
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Files of reviews to send in turn; by default a pod of a ReplicaSet, 3.6 KB
        #[arg(long)]
        body: Vec<PathBuf>,
    },
    /// Latency that Transom's two webhooks add to a dry-run create of a pod through a real API server, compared with two bare
    /// handlers and a ValidatingAdmissionPolicy; needs the programs of envtest
    Latency {
        #[command(flatten)]
        transom: Transom,
        /// Measured rounds of all ways, after one warm-up round
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=200))]
        rounds: u16,
        /// Requests of each way in a round
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(10..=10_000))]
        requests: u16,
    },
    /// Cost of Linux and Windows pods for the API server, in its own processor time, by registered webhooks; needs the programs
    /// of envtest
    Cost {
        #[command(flatten)]
        transom: Transom,
        /// Measured rounds of all ways, after one warm-up round
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=200))]
        rounds: u16,
        /// Requests of each way and pod in a round
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(10..=10_000))]
        requests: u16,
    },
    /// Cost of pods without an operating system for the API server, in its own processor time, without and with the entries for
    /// images of listed registries; needs the programs of envtest
    Images {
        #[command(flatten)]
        transom: Transom,
        /// Measured rounds of all ways, after one warm-up round
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=200))]
        rounds: u16,
        /// Requests of each way and pod in a round
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(10..=10_000))]
        requests: u16,
    },
    /// Latency of reviews in a large cluster while labels of nodes are patched; needs the programs of envtest
    Storm {
        #[command(flatten)]
        transom: Transom,
        /// Windows nodes
        #[arg(long, default_value_t = 5_000)]
        nodes: usize,
        /// Seconds of each part
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
        seconds: u64,
    },
    /// Time, memory and requests of a scan, and of the leader's reports, with a real API server that stores the pods of a large
    /// cluster; needs the programs of envtest, and a few gigabytes for etcd and the API server
    Stored {
        #[command(flatten)]
        transom: Transom,
        /// Pods; of twenty, nineteen belong to one ReplicaSet and Deployment, and one has no owner
        #[arg(long, default_value_t = 100_000)]
        pods: usize,
        /// Additional arguments of `transom serve`, such as --reports; without any, it is not started
        #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
        serve: Vec<String>,
    },
    /// Resident memory of Transom when idle, with small reviews and with reviews of 3 MiB, and the time until it answers
    Memory {
        #[command(flatten)]
        transom: Transom,
        /// Connections, each with one request at a time
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
        connections: u16,
        /// Seconds of each load
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
    },
}

/// The Transom under test.
#[derive(Args, Debug)]
struct Transom {
    /// Its release binary
    #[arg(long, value_name = "FILE", default_value = "target/dist/transom")]
    transom: PathBuf,
}

/// The bare handlers, which `compare` starts as separate processes.
#[derive(Subcommand, Debug)]
#[allow(clippy::enum_variant_names)] // they are the names of subcommands
enum Bare {
    /// Serve a handler that reads the body and answers a constant AdmissionReview: the upper limit
    ServeRead(BareArgs),
    /// Serve a handler that finds the uid of the review and allows it: the least that an API server accepts as an answer
    ServeUid(BareArgs),
    /// Serve a handler that parses the body into kube's AdmissionReview<Pod> and allows it
    ServeParse(BareArgs),
}

#[derive(Args, Debug)]
struct BareArgs {
    #[arg(long)]
    listen: SocketAddr,
    /// Where to write the CA of its certificate
    #[arg(long)]
    write_ca: PathBuf,
    /// With serve-uid, the patch that /patch answers with, in base64
    #[arg(long)]
    patch: Option<String>,
}

fn main() -> anyhow::Result<()> {
    let command = Command::parse();
    // Like `#[tokio::main]` and Transom: one worker for each core.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // When the load test is stopped, its servers are dropped, which kills them.
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            done = run(command) => done,
            _ = terminate.recv() => bail!("terminated"),
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Bare(Bare::ServeRead(args)) => bare::serve(bare::read(), &args).await,
        Command::Bare(Bare::ServeUid(args)) => bare::serve(bare::uid(args.patch.clone()), &args).await,
        Command::Bare(Bare::ServeParse(args)) => bare::serve(bare::parse(), &args).await,
        Command::Compare {
            transom,
            rounds,
            connections,
            seconds,
            body,
        } => {
            let files = if body.is_empty() {
                vec![inputs::reviews().join(TYPICAL)]
            } else {
                body
            };
            let bodies = files.iter().map(|file| inputs::read(file)).collect();
            compare::run(
                &transom.transom,
                rounds,
                connections,
                Duration::from_secs(seconds),
                bodies,
            )
            .await
        }
        Command::Latency {
            transom,
            rounds,
            requests,
        } => latency::run(&transom.transom, rounds.into(), requests.into()).await,
        Command::Cost {
            transom,
            rounds,
            requests,
        } => cost::run(&transom.transom, rounds.into(), requests.into()).await,
        Command::Images {
            transom,
            rounds,
            requests,
        } => listed_images::run(&transom.transom, rounds.into(), requests.into()).await,
        Command::Storm {
            transom,
            nodes,
            seconds,
        } => storm::run(&transom.transom, nodes, Duration::from_secs(seconds)).await,
        Command::Stored { transom, pods, serve } => stored::run(&transom.transom, pods, &serve).await,
        Command::Memory {
            transom,
            connections,
            seconds,
        } => memory::run(&transom.transom, connections, Duration::from_secs(seconds)).await,
    }
}

/// The typical review.
const TYPICAL: &str = "pod-create-by-replicaset-runtimeclass.json";
