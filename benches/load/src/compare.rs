//! `compare`: every round runs every handler, so that other load on the machine affects all of them equally.

use std::path::Path;
use std::time::Duration;

use hyper::body::Bytes;

use crate::drive::{Outcome, Target};
use crate::inputs;
use crate::process::Server;

/// The result of one turn.
struct Turn {
    outcome: Outcome,
    /// Microseconds of the server's CPU time per answer.
    cpu: f64,
    resident: u64,
    peak: u64,
}

/// The baseline of the comparison.
const BASE: &str = "read";
/// A pod that `/validate` denies for nine findings.
const DENIAL: &str = "denial, nine findings";

pub async fn run(
    transom: &Path,
    rounds: usize,
    connections: u16,
    time: Duration,
    bodies: Vec<String>,
) -> anyhow::Result<()> {
    let quiet = ["--log", "info,audit=warn"];
    let mut servers = [
        Server::bare("serve-read")?,
        Server::bare("serve-parse")?,
        Server::transom(transom, &[])?,
        Server::transom(transom, &quiet)?,
    ];
    let mut handlers: Vec<(&str, usize, Target)> = Vec::new();
    for (index, name) in [BASE, "parse", "validate", "validate, no audit log"]
        .into_iter()
        .enumerate()
    {
        let (target, _) = servers[index].ready("/validate", &bodies[0]).await?;
        handlers.push((name, index, target));
    }
    handlers.insert(3, ("mutate", 2, servers[2].target("/mutate")?));
    handlers.insert(4, (DENIAL, 2, servers[2].target("/validate")?));
    handlers.push(("mutate, no audit log", 3, servers[3].target("/mutate")?));

    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let sizes: Vec<usize> = bodies.iter().map(String::len).collect();
    println!(
        "{cores} cores for driver and server together; {connections} connections; {rounds} rounds of {time:?};"
    );
    println!("bodies of {sizes:?} bytes; medians of the rounds, ratios to `{BASE}` of the same round\n");
    let bodies: Vec<Bytes> = bodies.into_iter().map(Bytes::from).collect();
    let denied = vec![Bytes::from(inputs::denied())];

    let mut turns: Vec<Vec<Turn>> = handlers.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (at, (name, server, target)) in handlers.iter().enumerate() {
            let bodies = if *name == DENIAL { &denied } else { &bodies };
            let turn = turn(&servers[*server], target, connections, time, bodies).await?;
            eprintln!("round {}: {name}: {:.0}/s", round + 1, turn.outcome.rate());
            turns[at].push(turn);
        }
    }
    table(
        &handlers.iter().map(|(name, ..)| *name).collect::<Vec<_>>(),
        &turns,
    );
    Ok(())
}

async fn turn(
    server: &Server,
    target: &Target,
    connections: u16,
    time: Duration,
    bodies: &[Bytes],
) -> anyhow::Result<Turn> {
    target.load(connections, Duration::from_secs(1), bodies).await?;
    let before = server.cpu()?;
    let outcome = target.load(connections, time, bodies).await?;
    let used = server.cpu()? - before;
    let memory = server.memory()?;
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    let cpu = used * 1e6 / outcome.answered().max(1) as f64;
    Ok(Turn {
        outcome,
        cpu,
        resident: memory.resident,
        peak: memory.peak,
    })
}

fn table(names: &[&str], turns: &[Vec<Turn>]) {
    println!(
        "{:<24} {:>9} {:>7} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7} {:>9} {:>9}  other",
        "handler", "requests", "ratio", "p50", "p90", "p99", "p99.9", "CPU", "ratio", "RSS", "peak"
    );
    println!(
        "{:<24} {:>9} {:>7} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7} {:>9} {:>9}  statuses",
        "", "/s", "", "µs", "µs", "µs", "µs", "µs/answer", "", "MiB", "MiB"
    );
    let base = names
        .iter()
        .position(|name| *name == BASE)
        .and_then(|at| turns.get(at));
    for (name, turns) in names.iter().zip(turns) {
        let of = |value: &dyn Fn(&Turn) -> f64| median(turns.iter().map(value).collect());
        let ratio = |value: &dyn Fn(&Turn) -> f64| {
            let pairs = turns.iter().zip(base.into_iter().flatten());
            median(pairs.map(|(turn, base)| value(turn) / value(base)).collect())
        };
        let rate = |turn: &Turn| turn.outcome.rate();
        let cpu = |turn: &Turn| turn.cpu;
        let others: Vec<String> = (turns.iter().flat_map(|turn| &turn.outcome.statuses))
            .filter(|(status, _)| **status != 200)
            .map(|(status, count)| format!("{count}x{status}"))
            .collect();
        println!(
            "{name:<24} {:>9.0} {:>7.2} {:>8.0} {:>8.0} {:>8.0} {:>9.0} {:>9.1} {:>7.2} {:>9.1} {:>9.1}  {}",
            of(&rate),
            ratio(&rate),
            of(&|turn| turn.outcome.percentile(0.5)),
            of(&|turn| turn.outcome.percentile(0.9)),
            of(&|turn| turn.outcome.percentile(0.99)),
            of(&|turn| turn.outcome.percentile(0.999)),
            of(&cpu),
            ratio(&cpu),
            of(&|turn| mebibytes(turn.resident)),
            of(&|turn| mebibytes(turn.peak)),
            others.join(" "),
        );
    }
}

/// KiB as MiB.
#[allow(clippy::cast_precision_loss)] // far below 2^52
pub fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / 1024.0
}

/// The median; the higher of two middle values.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
