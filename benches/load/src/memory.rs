//! `memory`: Transom's resident memory when idle, with small reviews and with the largest ones, and its start-up time.

use std::path::Path;
use std::time::Duration;

use hyper::body::Bytes;

use crate::compare::{mebibytes, median};
use crate::drive::{Outcome, Target};
use crate::inputs::{self, Worst};
use crate::process::Server;
use crate::process_memory::Memory;

/// Number of timed starts.
const STARTS: usize = 20;

pub async fn run(transom: &Path, connections: u16, time: Duration) -> anyhow::Result<()> {
    let small = inputs::read(&inputs::reviews().join(super::TYPICAL));
    starts(transom, &small).await?;

    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>10}  statuses",
        "load", "RSS MiB", "anonymous", "peak MiB", "answers/s"
    );
    let small = vec![Bytes::from(small)];
    {
        let mut server = Server::transom(transom, &[])?;
        let (target, _) = server.ready("/validate", std::str::from_utf8(&small[0])?).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        print("idle, one review answered", server.memory()?, None);
        under(&server, &target, "small reviews", connections, time, &small).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        print("two seconds after", server.memory()?, None);
    }
    // A new process for each load, so that memory which the allocator keeps does not affect the next one.
    let shapes = [
        Worst::Linux,
        Worst::Containers,
        Worst::Findings,
        Worst::Injected,
        Worst::Mounts,
    ];
    let sizes = [inputs::LARGEST, inputs::LARGEST_REVIEW];
    for (size, worst) in sizes
        .into_iter()
        .flat_map(|size| shapes.map(|worst| (size, worst)))
    {
        let body = vec![Bytes::from(worst.review(size))];
        for path in ["/validate", "/mutate"] {
            let mut server = Server::transom(transom, &[])?;
            server.ready(path, std::str::from_utf8(&small[0])?).await?;
            let target = server.target(path)?;
            let what = format!("{} MiB, {}, {path}", size >> 20, worst.name());
            under(&server, &target, &what, connections, time, &body).await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            print("two seconds after", server.memory()?, None);
            tokio::time::sleep(Duration::from_secs(8)).await;
            print("ten seconds after", server.memory()?, None);
        }
    }
    for (name, worst) in [
        ("parse: 3 MiB, linux", Worst::Linux),
        ("parse: 3 MiB, containers", Worst::Containers),
    ] {
        let mut server = Server::bare("serve-parse")?;
        let (target, _) = server.ready("/validate", std::str::from_utf8(&small[0])?).await?;
        let body = vec![Bytes::from(worst.review(inputs::LARGEST))];
        under(&server, &target, name, connections, time, &body).await?;
    }
    Ok(())
}

async fn starts(transom: &Path, body: &str) -> anyhow::Result<()> {
    let mut took = Vec::new();
    for _ in 0..STARTS {
        let mut server = Server::transom(transom, &[])?;
        let (_, ready) = server.ready("/validate", body).await?;
        took.push(ready.as_secs_f64() * 1e3);
    }
    let most = took.iter().copied().fold(0.0, f64::max);
    println!(
        "from start to the first HTTPS answer: median {:.1} ms, most {most:.1} ms of {STARTS}\n",
        median(took)
    );
    Ok(())
}

/// Loads the server and reads its memory every 20 ms.
async fn under(
    server: &Server,
    target: &Target,
    what: &str,
    connections: u16,
    time: Duration,
    bodies: &[Bytes],
) -> anyhow::Result<()> {
    let mut most = Memory::default();
    let load = target.load(connections, time, bodies);
    tokio::pin!(load);
    let outcome = loop {
        tokio::select! {
            outcome = &mut load => break outcome?,
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                let now = server.memory()?;
                most.resident = most.resident.max(now.resident);
                most.anonymous = most.anonymous.max(now.anonymous);
            }
        }
    };
    most.peak = server.memory()?.peak;
    print(what, most, Some(&outcome));
    Ok(())
}

fn print(what: &str, memory: Memory, outcome: Option<&Outcome>) {
    let (rate, statuses) = outcome.map_or((String::new(), String::new()), |outcome| {
        let statuses: Vec<String> = outcome
            .statuses
            .iter()
            .map(|(status, count)| format!("{count}x{status}"))
            .collect();
        (format!("{:.0}", outcome.rate()), statuses.join(" "))
    });
    println!(
        "{what:<34} {:>9.1} {:>9.1} {:>9.1} {rate:>10}  {statuses}",
        mebibytes(memory.resident),
        mebibytes(memory.anonymous),
        mebibytes(memory.peak)
    );
}
