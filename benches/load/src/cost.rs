//! `cost`: the cost of a pod for the API server, in processor time and latency, by registered webhooks.
//!
//! The test creates six pods as dry runs: Linux, Windows already placed, and Windows to be placed, each with
//! one container and with three. It creates them in namespaces with: no webhook; two webhooks whose condition
//! is false; two bare handlers with one cheap condition; the same handlers with Transom's patch; and Transom
//! as it registers itself. The kernel reports processor time in steps of 10 ms, so each measurement is a
//! block of requests. The blocks of a round are shuffled.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::apiserver::{Client, make_namespaces, start_control_plane};
use crate::control_plane::ControlPlane;
use crate::latency::{Shuffle, at, interval, outside, patch, register, unserved};
use crate::process::{Server, cpu_of};

/// The namespaces, in the order of the tables.
const WAYS: [&str; 5] = ["nothing", "floor", "cheap", "patching", "transom"];
const FLOOR: usize = 1;
const CHEAP: usize = 2;
const PATCHING: usize = 3;
const TRANSOM: usize = 4;

const SIZES: [usize; 2] = [1, 3];

/// The cheapest condition that is still useful.
const CHEAP_CONDITION: &str = "\
has(object.spec.os) && object.spec.os.name == 'windows' || has(object.spec.nodeSelector) \
&& 'kubernetes.io/os' in object.spec.nodeSelector && object.spec.nodeSelector['kubernetes.io/os'] != 'linux' \
|| has(object.spec.runtimeClassName) || object.spec.containers.exists(c, c.image.contains('nanoserver') \
|| c.image.contains('servercore') || c.image.contains('ltsc20'))";

/// A pod, its name, and the baseline of the comparison.
struct Case {
    name: String,
    pod: Value,
    /// The number of containers, which selects the namespace with its patch.
    size: usize,
    base: usize,
    /// For each way and round: milliseconds of processor time per create, and the median latency in milliseconds.
    measured: [Vec<(f64, f64)>; WAYS.len()],
}

pub async fn run(transom: &Path, rounds: usize, requests: usize) -> anyhow::Result<()> {
    let cluster = start_control_plane(&[])?;
    let review = crate::inputs::read(&crate::inputs::reviews().join(crate::TYPICAL));
    let host = outside();
    let mut server = Server::transom_at(transom, host)?;
    let (target, _) = server.ready("/mutate", &review).await?;
    let mut bare = Server::bare_at("serve-uid", host, &[])?;
    let (bare_target, _) = bare.ready("/", &review).await?;
    let patching = SIZES.map(|size| format!("patching-{size}"));
    make_namespaces(
        &cluster,
        WAYS.into_iter().chain(patching.iter().map(String::as_str)),
    );
    let mut client = Client::connect(&cluster).await?;
    let (address, ca) = (bare_target.address(), bare.ca_pem()?);
    for (way, condition) in [("floor", "false"), ("cheap", CHEAP_CONDITION)] {
        register(&cluster, way, address, ["/", "/"], &ca, Some(condition));
    }
    let url = format!("https://{}", target.address());
    register_transom(&cluster, transom, WAYS[TRANSOM], &url, &server.ca_pem()?, &[])?;

    // They must run until the measurement ends.
    let mut handlers = Vec::new();
    let mut cases = Vec::new();
    for (size, way) in SIZES.into_iter().zip(&patching) {
        let [linux, windows] = defaulted(&mut client, size).await?;
        let patch = patch(&target, &review, &windows).await?;
        let mut handler = Server::bare_at("serve-uid", host, &["--patch", &patch])?;
        let (handler_target, _) = handler.ready("/", &review).await?;
        register(
            &cluster,
            way,
            handler_target.address(),
            ["/patch", "/"],
            &handler.ca_pem()?,
            Some(CHEAP_CONDITION),
        );
        handlers.push(handler);
        let placed = placed(&mut client, &linux, &windows, way).await?;
        for (name, pod, base) in [
            ("Linux", linux, FLOOR),
            ("Windows, placed", placed, CHEAP),
            ("Windows, to place", windows, PATCHING),
        ] {
            cases.push(Case {
                name: format!("{name}, {size}"),
                pod,
                size,
                base,
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

/// Registers the webhooks that Transom generates with these arguments, for one namespace.
pub fn register_transom(
    cluster: &ControlPlane,
    transom: &Path,
    way: &str,
    url: &str,
    ca: &str,
    arguments: &[&str],
) -> anyhow::Result<()> {
    let file = tempfile::NamedTempFile::new().context("cannot make a file for the CA")?;
    std::fs::write(file.path(), ca).context("cannot write the CA")?;
    let output = Command::new(transom)
        .args([
            "generate",
            "webhooks",
            "-o",
            "json",
            "--name",
            way,
            "--url",
            url,
            "--ca-bundle",
        ])
        .arg(file.path())
        .args(arguments)
        .output()
        .context("cannot run transom generate webhooks")?;
    let mut list: Value = serde_json::from_slice(&output.stdout).context("transom printed no webhooks")?;
    let configurations = list["items"].as_array_mut().into_iter().flatten();
    for entry in configurations.flat_map(|item| item["webhooks"].as_array_mut().into_iter().flatten()) {
        let here = json!({"key": "way", "operator": "In", "values": [way]});
        let expressions = entry["namespaceSelector"]["matchExpressions"].as_array_mut();
        expressions.context("an entry has no selector")?.push(here);
    }
    cluster
        .kubectl_with(&["create", "-f", "-"], &list.to_string())
        .succeeded();
    Ok(())
}

/// A pod with this many containers of ten variables each.
pub fn pod(image: &str, os: Option<&str>, size: usize) -> Value {
    let variables: Vec<Value> = (0..10)
        .map(|n| json!({"name": format!("VARIABLE_{n}"), "value": format!("value-of-the-variable-{n}")}))
        .collect();
    let containers: Vec<Value> = (0..size)
        .map(|n| json!({"name": format!("container-{n}"), "image": image, "env": variables}))
        .collect();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "measured", "labels": {"app": "measured"}},
        "spec": {"containers": containers},
    });
    if let Some(os) = os {
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": os});
    }
    pod
}

/// A Linux pod and a Windows pod with this many containers and the API server's defaults, so that the patch of the second
/// applies.
async fn defaulted(client: &mut Client, size: usize) -> anyhow::Result<[Value; 2]> {
    let mut both = [
        pod(
            "registry.example.com/team/application:1.27.3",
            Some("linux"),
            size,
        ),
        pod(
            "mcr.microsoft.com/windows/servercore:ltsc2022",
            Some("windows"),
            size,
        ),
    ];
    for pod in &mut both {
        (_, *pod) = client.create(WAYS[0], pod).await?;
        unserved(pod)?;
    }
    Ok(both)
}

/// Waits until each way works as intended; returns the pod that Transom placed.
async fn placed(
    client: &mut Client,
    linux: &Value,
    windows: &Value,
    patching: &str,
) -> anyhow::Result<Value> {
    let touched = |answer: &Value| answer["spec"]["os"]["name"] == "windows";
    for _ in 0..300 {
        let (_, mut by_transom) = client.create(WAYS[TRANSOM], windows).await?;
        let (_, by_handler) = client.create(patching, windows).await?;
        if touched(&by_transom) && by_handler["spec"] == by_transom["spec"] {
            let (_, left_alone) = client.create(WAYS[TRANSOM], linux).await?;
            if left_alone["spec"] != linux["spec"] {
                bail!("the Linux pod comes back as {left_alone}");
            }
            unserved(&mut by_transom)?;
            return Ok(by_transom);
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    bail!("Transom does not place the pod, or the handler with its patch does not");
}

/// Creates a pod many times: the processor time of the API server for each, and the median latency, in milliseconds.
pub async fn block(
    client: &mut Client,
    server: u32,
    namespace: &str,
    pod: &Value,
    requests: usize,
    is_expected: impl Fn(&Value) -> bool,
) -> anyhow::Result<(f64, f64)> {
    let mut latencies = Vec::with_capacity(requests);
    let before = cpu_of(server)?;
    for _ in 0..requests {
        let (took, answer) = client.create(namespace, pod).await?;
        if !is_expected(&answer) {
            bail!("in {namespace} the pod comes back as {answer}");
        }
        latencies.push(took.as_secs_f64() * 1e3);
    }
    #[allow(clippy::cast_precision_loss)] // there are at most thousands
    let cpu = (cpu_of(server)? - before) * 1e3 / requests as f64;
    latencies.sort_by(f64::total_cmp);
    Ok((cpu, at(&latencies, 0.5)))
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
            .filter(|(case, way)| *way != PATCHING || cases.get(*case).is_some_and(|it| it.base == PATCHING))
            .collect();
        shuffle.apply(&mut order);
        for (case, way) in order {
            let case = &mut cases[case];
            let namespace = if way == PATCHING {
                format!("patching-{}", case.size)
            } else {
                WAYS[way].to_owned()
            };
            let measured = block(client, server, &namespace, &case.pod, requests, |_| true).await?;
            // The first round is a warm-up.
            if round > 0 {
                case.measured[way].push(measured);
            }
        }
    }
    Ok(())
}

fn print(cases: &[Case], rounds: usize, requests: usize) {
    println!(
        "medians of {rounds} rounds of {requests} creates: processor time of the API server in ms per create (95 % \
         interval), latency in ms"
    );
    print!("{:<22}", "pod, containers");
    for way in WAYS {
        print!(" {way:>32}");
    }
    println!();
    for case in cases {
        print!("{:<22}", case.name);
        for measured in &case.measured {
            if measured.is_empty() {
                print!(" {:>32}", "");
                continue;
            }
            let sorted = |part: fn(&(f64, f64)) -> f64| {
                let mut all: Vec<f64> = measured.iter().map(part).collect();
                all.sort_by(f64::total_cmp);
                all
            };
            let (cpu, latency) = (sorted(|it| it.0), sorted(|it| it.1));
            let (low, high) = interval(&cpu);
            let shown = format!(
                "{:.2} ({low:.2} to {high:.2}), {:.2}",
                at(&cpu, 0.5),
                at(&latency, 0.5)
            );
            print!(" {shown:>32}");
        }
        println!();
    }
    for case in cases {
        let both = case.measured[TRANSOM].iter().zip(&case.measured[case.base]);
        let mut ratios: Vec<f64> = both.map(|((transom, _), (base, _))| transom / base).collect();
        ratios.sort_by(f64::total_cmp);
        let (low, high) = interval(&ratios);
        println!(
            "{}: processor time with Transom, in parts of that with `{}`: {:.3} (95 % interval {low:.3} to {high:.3})",
            case.name,
            WAYS[case.base],
            at(&ratios, 0.5)
        );
    }
}
