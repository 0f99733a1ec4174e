//! `images`: the cost of the entries for images of listed registries, in processor time of the API server.
//!
//! The test creates pods without an operating system as dry runs, with one container and with three: from a registry
//! that is not listed, which costs the evaluation of two more conditions, and from a listed one, which causes two calls. A third
//! pod is from a listed registry and says that it is for Linux. It creates them in namespaces with: no webhook; Transom's
//! webhooks; the same with the entries for five registries. The blocks of a round are shuffled, as for `cost`.

use std::path::Path;

use serde_json::Value;

use crate::apiserver::{Client, make_namespaces, start_control_plane};
use crate::cost::{block, pod, register_transom};
use crate::latency::{Shuffle, at, interval, outside, unserved};
use crate::process::Server;

/// The namespaces, in the order of the tables.
const WAYS: [&str; 3] = ["nothing", "without", "with"];
const WITHOUT: usize = 1;
const WITH: usize = 2;

const REGISTRIES: &str = "mcr.microsoft.com,*.azurecr.io,docker.io,quay.io,registry.corp.example:5000";
const LISTED: &str = "shop.azurecr.io/team/application:1.27.3";
const OTHER: &str = "registry.example.com/team/application:1.27.3";

struct Case {
    name: String,
    pod: Value,
    /// For each way and round: milliseconds of processor time per create.
    measured: [Vec<f64>; WAYS.len()],
}

pub async fn run(transom: &Path, rounds: usize, requests: usize) -> anyhow::Result<()> {
    let cluster = start_control_plane(&[])?;
    let review = crate::inputs::read(&crate::inputs::reviews().join(crate::TYPICAL));
    let mut server = Server::transom_at(transom, outside())?;
    let (target, _) = server.ready("/mutate", &review).await?;
    make_namespaces(&cluster, WAYS);
    let url = format!("https://{}", target.address());
    let ca = server.ca_pem()?;
    register_transom(&cluster, transom, WAYS[WITHOUT], &url, &ca, &[])?;
    let listed = ["--image-registry", REGISTRIES];
    register_transom(&cluster, transom, WAYS[WITH], &url, &ca, &listed)?;
    // The API server takes a moment to use a new configuration.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;

    let mut client = Client::connect(&cluster).await?;
    let mut cases = Vec::new();
    for size in [1, 3] {
        for (name, image, os) in [
            ("another registry", OTHER, None),
            ("a listed registry", LISTED, None),
            ("a listed registry, for Linux", LISTED, Some("linux")),
        ] {
            let (_, mut pod) = client.create(WAYS[0], &pod(image, os, size)).await?;
            unserved(&mut pod)?;
            cases.push(Case {
                name: format!("{name}, {size}"),
                pod,
                measured: Default::default(),
            });
        }
    }
    measure(
        &mut client,
        &mut cases,
        cluster.pid("kube-apiserver"),
        rounds,
        requests,
    )
    .await?;
    print(&cases, rounds, requests);
    Ok(())
}

async fn measure(
    client: &mut Client,
    cases: &mut [Case],
    server: u32,
    rounds: usize,
    requests: usize,
) -> anyhow::Result<()> {
    let mut shuffle = Shuffle::default();
    for round in 0..=rounds {
        let mut order: Vec<(usize, usize)> = (0..cases.len())
            .flat_map(|case| (0..WAYS.len()).map(move |way| (case, way)))
            .collect();
        shuffle.apply(&mut order);
        for (case, way) in order {
            let case = &mut cases[case];
            let is_unchanged = |answer: &Value| answer["spec"] == case.pod["spec"];
            let (cpu, _) = block(client, server, WAYS[way], &case.pod, requests, is_unchanged).await?;
            // The first round is a warm-up.
            if round > 0 {
                case.measured[way].push(cpu);
            }
        }
    }
    Ok(())
}

fn print(cases: &[Case], rounds: usize, requests: usize) {
    println!(
        "medians of {rounds} rounds of {requests} creates: processor time of the API server in ms per create (95 % \
         interval)"
    );
    print!("{:<32}", "pod of, containers");
    for way in WAYS {
        print!(" {way:>24}");
    }
    println!(" {:>32}", "with / without");
    for case in cases {
        print!("{:<32}", case.name);
        for measured in &case.measured {
            let mut sorted = measured.clone();
            sorted.sort_by(f64::total_cmp);
            let (low, high) = interval(&sorted);
            let shown = format!("{:.2} ({low:.2} to {high:.2})", at(&sorted, 0.5));
            print!(" {shown:>24}");
        }
        let both = case.measured[WITH].iter().zip(&case.measured[WITHOUT]);
        let mut ratios: Vec<f64> = both.map(|(with, without)| with / without).collect();
        ratios.sort_by(f64::total_cmp);
        let (low, high) = interval(&ratios);
        let shown = format!("{:.3} ({low:.3} to {high:.3})", at(&ratios, 0.5));
        println!(" {shown:>32}");
    }
}
