//! `latency`: the latency that a webhook adds to a dry-run create of a pod, through a real API server.
//!
//! There are five namespaces, with: no webhook; a ValidatingAdmissionPolicy with the same field checks; two bare TLS handlers;
//! the same handlers, of which the first answers with Transom's patch; Transom's two webhooks. Each gets two pods: one that
//! Transom places, and the same pod already placed, which Transom evaluates and does not change. The order of all requests is
//! shuffled, so that other load on the machine affects all of them equally.
//!
//! A patch alone is expensive for the API server: it applies the patch, decodes the pod again and runs its own plugins again.
//! The API server uses HTTP/2 for a loopback address and HTTP/1.1 for all others, as for a Service. Therefore the webhooks
//! listen on an address that is not a loopback address, if the machine has one.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::apiserver::{Client, make_namespaces, start_control_plane};
use crate::control_plane::{ControlPlane, wait};
use crate::drive::Target;
use crate::process::Server;

/// The namespaces, in the order of the table.
const WAYS: [&str; 5] = ["nothing", "policy", "bare", "patching", "transom"];
const BARE: usize = 2;
const PATCHING: usize = 3;
const TRANSOM: usize = 4;

/// The pods, in the order of the table: Transom patches the first.
const PODS: [&str; 2] = ["to place", "placed"];

/// The result of one round for one pod: latencies in microseconds, sorted, by way.
type Part = [Vec<f64>; 5];
type Round = [Part; 2];

pub async fn run(transom: &Path, rounds: usize, requests: usize) -> anyhow::Result<()> {
    let cluster = start_control_plane(&[])?;
    let review = crate::inputs::read(&crate::inputs::reviews().join(crate::TYPICAL));
    let pod = pod_of(&review)?;

    let host = outside();
    if host.is_loopback() {
        println!("this machine has a loopback address only: the API server speaks HTTP/2 to the webhooks");
    }
    let mut server = Server::transom_at(transom, host)?;
    let (target, _) = server.ready("/mutate", &review).await?;
    let patch = patch(&target, &review, &pod).await?;
    let mut bare = Server::bare_at("serve-uid", host, &[])?;
    let (bare_target, _) = bare.ready("/", &review).await?;
    let mut patching = Server::bare_at("serve-uid", host, &["--patch", &patch])?;
    let (patching_target, _) = patching.ready("/", &review).await?;
    make_namespaces(&cluster, WAYS);
    cluster
        .kubectl_with(&["create", "-f", "-"], &policy().to_string())
        .succeeded();
    register(
        &cluster,
        "bare",
        bare_target.address(),
        ["/", "/"],
        &bare.ca_pem()?,
        None,
    );
    let paths = ["/patch", "/"];
    register(
        &cluster,
        "patching",
        patching_target.address(),
        paths,
        &patching.ca_pem()?,
        None,
    );
    let paths = ["/mutate", "/validate"];
    register(
        &cluster,
        "transom",
        target.address(),
        paths,
        &server.ca_pem()?,
        None,
    );

    let mut client = Client::connect(&cluster).await?;
    let placed = prove(&cluster, &mut client, &pod).await?;
    let pods = [pod, placed];
    println!("{requests} requests of each way and pod in every round, one at a time; p50/p99 in µs");
    println!(
        "{:<6} {:<9} {:>18} {:>18} {:>18} {:>18} {:>18} {:>9} {:>12}",
        "round", "pod", "nothing", "policy", "bare", "patching", "transom", "to bare", "to patching"
    );
    let mut ratios: [(usize, usize, Vec<f64>); 3] = [
        (0, BARE, Vec::new()),
        (0, PATCHING, Vec::new()),
        (1, BARE, Vec::new()),
    ];
    let mut all = Round::default();
    for round in 0..=rounds {
        let measured = measure(&mut client, &pods, requests).await?;
        if round == 0 {
            // Warm-up.
            continue;
        }
        for (all, part) in all.iter_mut().flatten().zip(measured.iter().flatten()) {
            all.extend(part.iter().copied());
        }
        for (pod, base, ratios) in &mut ratios {
            ratios.push(ratio(&measured[*pod], *base));
        }
        lines(&round.to_string(), &measured);
    }
    for latencies in all.iter_mut().flatten() {
        latencies.sort_by(f64::total_cmp);
    }
    lines("all", &all);
    for (pod, base, ratios) in &mut ratios {
        ratios.sort_by(f64::total_cmp);
        let (low, high) = interval(ratios);
        println!(
            "pod {}: what Transom adds to the median, in parts of what `{}` adds: {:.3} (95 % interval of {} rounds: \
             {low:.3} to {high:.3})",
            PODS[*pod],
            WAYS[*base],
            at(ratios, 0.5),
            ratios.len()
        );
    }
    Ok(())
}

fn lines(round: &str, measured: &Round) {
    for (name, part) in PODS.into_iter().zip(measured) {
        let columns: Vec<String> = (part.iter())
            .map(|latencies| format!("{:>11.0}/{:>6.0}", at(latencies, 0.5), at(latencies, 0.99)))
            .collect();
        let (bare, patching) = (ratio(part, BARE), ratio(part, PATCHING));
        println!(
            "{round:<6} {name:<9} {} {bare:>9.3} {patching:>12.3}",
            columns.join(" ")
        );
    }
}

/// An address of this machine that is not a loopback address, if it has one. Nothing is sent.
pub fn outside() -> IpAddr {
    let found = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    found.map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip())
}

/// The patch that Transom's `/mutate` answers for the pod, in base64.
pub async fn patch(target: &Target, review: &str, pod: &Value) -> anyhow::Result<String> {
    let mut review: Value = serde_json::from_str(review)?;
    review["request"]["object"] = pod.clone();
    let answer = target.request(&review.to_string()).await?;
    let patch = answer["response"]["patch"].as_str();
    Ok(patch.context("Transom does not patch the pod")?.to_owned())
}

/// The pod of a review, as a client would send it.
fn pod_of(review: &str) -> anyhow::Result<Value> {
    let review: Value = serde_json::from_str(review).context("the review is not JSON")?;
    let mut pod = review["request"]["object"].clone();
    unserved(&mut pod)?;
    // This API server has no RuntimeClasses and no ServiceAccounts.
    let spec = pod["spec"].as_object_mut().context("the pod has no spec")?;
    for other in [
        "runtimeClassName",
        "serviceAccountName",
        "serviceAccount",
        "overhead",
        "priority",
        "nodeName",
    ] {
        spec.remove(other);
    }
    Ok(pod)
}

/// Removes the fields that an API server adds.
pub fn unserved(pod: &mut Value) -> anyhow::Result<()> {
    let metadata = pod["metadata"].as_object_mut().context("there is no pod")?;
    for server in [
        "managedFields",
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "namespace",
        "ownerReferences",
    ] {
        metadata.remove(server);
    }
    Ok(())
}

/// The fields that the API server forbids on Windows pods, as a ValidatingAdmissionPolicy.
fn policy() -> Value {
    const POD: [&str; 10] = [
        "seLinuxOptions",
        "seccompProfile",
        "appArmorProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
    ];
    const CONTAINER: [&str; 10] = [
        "seLinuxOptions",
        "seccompProfile",
        "appArmorProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let mut validations: Vec<Value> = ["hostPID", "hostIPC", "hostNetwork", "hostUsers", "shareProcessNamespace"]
        .map(|field| json!({"expression": format!("!has(object.spec.{field})"), "message": format!("spec.{field}: Windows has none")}))
        .to_vec();
    validations.extend(POD.map(|field| json!({
        "expression": format!("!has(object.spec.securityContext) || !has(object.spec.securityContext.{field})"),
        "message": format!("spec.securityContext.{field}: Windows has none"),
    })));
    for list in ["containers", "initContainers"] {
        validations.extend(CONTAINER.map(|field| json!({
            "expression": format!(
                "!has(object.spec.{list}) || object.spec.{list}.all(c, !has(c.securityContext) || !has(c.securityContext.{field}))"
            ),
            "message": format!("spec.{list}[*].securityContext.{field}: Windows has none"),
        })));
    }
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "windows"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]},
            ]},
            "validations": validations,
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "windows"},
        "spec": {
            "policyName": "windows", "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"way": "policy"}}},
        },
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding]})
}

/// Registers a mutating and a validating webhook for the pods of the namespace of this name, with a condition if one is
/// given.
pub fn register(
    cluster: &ControlPlane,
    way: &str,
    address: SocketAddr,
    paths: [&str; 2],
    ca: &str,
    condition: Option<&str>,
) {
    use base64::Engine as _;
    let ca = base64::prelude::BASE64_STANDARD.encode(ca);
    let conditions: Vec<Value> = (condition.into_iter())
        .map(|expression| json!({"name": "condition", "expression": expression}))
        .collect();
    let configuration = |kind: &str, path: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": way},
            "webhooks": [{
                "name": format!("{way}.latency.transom.dev"),
                "clientConfig": {"url": format!("https://{address}{path}"), "caBundle": ca},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"way": way}},
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 2,
                "matchConditions": conditions,
            }],
        })
    };
    let both = json!({"apiVersion": "v1", "kind": "List", "items": [
        configuration("MutatingWebhookConfiguration", paths[0]), configuration("ValidatingWebhookConfiguration", paths[1]),
    ]});
    cluster
        .kubectl_with(&["create", "-f", "-"], &both.to_string())
        .succeeded();
}

/// Verifies that each way works as intended, so that the measurement is valid; returns the pod that Transom placed.
async fn prove(cluster: &ControlPlane, client: &mut Client, pod: &Value) -> anyhow::Result<Value> {
    let mut bad = pod.clone();
    bad["spec"]["hostPID"] = json!(true);
    bad["spec"]["os"] = Value::Null;
    let denies = |way: &'static str, word: &'static str| {
        let printed = cluster.kubectl_with(
            &["-n", way, "create", "--dry-run=server", "-f", "-"],
            &bad.to_string(),
        );
        printed.err.contains(word)
    };
    let ready = || denies("policy", "ValidatingAdmissionPolicy") && denies("transom", "problem");
    if !wait(Duration::from_secs(30), ready) {
        bail!("the policy or Transom does not deny a pod with hostPID");
    }
    let touched = |answer: &Value| answer["spec"]["os"]["name"] == "windows";
    for (way, expected) in WAYS.into_iter().zip([false, false, false, true, true]) {
        let (_, answer) = client.create(way, pod).await?;
        if touched(&answer) != expected {
            bail!("in {way} the pod comes back as {answer}");
        }
    }
    let (_, mut placed) = client.create(WAYS[TRANSOM], pod).await?;
    unserved(&mut placed)?;
    for way in [0, TRANSOM] {
        let (_, answer) = client.create(WAYS[way], &placed).await?;
        if answer["spec"] != placed["spec"] {
            bail!("in {} the placed pod comes back as {answer}", WAYS[way]);
        }
    }
    Ok(placed)
}

/// Shuffles lists, with the same sequence in every run.
pub struct Shuffle(u64);

impl Default for Shuffle {
    fn default() -> Self {
        Shuffle(0x9e37_79b9_7f4a_7c15)
    }
}

impl Shuffle {
    /// Applies the next order.
    pub fn apply<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            list.swap(last, usize::try_from(self.0 % (last as u64 + 1)).unwrap_or(0));
        }
    }
}

async fn measure(client: &mut Client, pods: &[Value; 2], requests: usize) -> anyhow::Result<Round> {
    let mut round = Round::default();
    let mut shuffle = Shuffle::default();
    for _ in 0..requests {
        let mut order: Vec<(usize, usize)> = (0..PODS.len())
            .flat_map(|pod| (0..WAYS.len()).map(move |way| (pod, way)))
            // The patch would change a placed pod again.
            .filter(|case| *case != (1, PATCHING))
            .collect();
        shuffle.apply(&mut order);
        for (pod, way) in order {
            let (took, _): (Duration, Value) = client.create(WAYS[way], &pods[pod]).await?;
            round[pod][way].push(took.as_secs_f64() * 1e6);
        }
    }
    for latencies in round.iter_mut().flatten() {
        latencies.sort_by(f64::total_cmp);
    }
    Ok(round)
}

/// The latency that Transom adds to the median, relative to that of another way.
fn ratio(part: &Part, base: usize) -> f64 {
    let median = |way: usize| part.get(way).map_or(f64::NAN, |latencies| at(latencies, 0.5));
    (median(TRANSOM) - median(0)) / (median(base) - median(0))
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
pub fn at(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * part).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}

/// A 95 % confidence interval of the median by the order statistics of the rounds (binomial, normal approximation).
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
pub fn interval(sorted: &[f64]) -> (f64, f64) {
    let n = sorted.len() as f64;
    let half = 1.96 * n.sqrt() / 2.0;
    let low = (n / 2.0 - half).floor().max(0.0) as usize;
    let high = ((n / 2.0 + half).ceil() as usize).min(sorted.len().saturating_sub(1));
    (
        sorted.get(low).copied().unwrap_or(f64::NAN),
        sorted.get(high).copied().unwrap_or(f64::NAN),
    )
}
