//! The engine and the review codec: one pod, every recorded review, and pods as large as the API server
//! accepts.
//!
//! `cargo bench --bench engine`; throughput is in bytes of the review: a falling rate means that the time
//! grows faster than the size of the pod.

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/inputs.rs"]
mod inputs;

use std::cell::LazyCell;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use inputs::Worst;
use serde_json::Value;
use transom::admission::{AdmissionContext, Phase, review};
use transom::engine::policy_set::{DatedExemption, PolicySet, StoredPolicy};
use transom::engine::{evaluate, infer_os};
use transom::model::cluster::facts::Facts;
use transom::model::cluster::policy::{Exemption, IgnoredFields, Policy};
use transom::model::objects::object::{Object, ReviewStage};
use transom::model::objects::workload::Kind;
use transom::model::windows::image::{ImageRef, build_hint, os_hint};

/// The allocator of the image.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The typical review: a pod of a ReplicaSet, 3.6 KB.
const TYPICAL: &str = "pod-create-by-replicaset-runtimeclass";

const PHASES: [(Phase, &str); 2] = [(Phase::Mutate, "mutate"), (Phase::Validate, "validate")];

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let facts = cluster::facts();
    pod(&mut criterion, &facts);
    real(&mut criterion, &facts);
    containers(&mut criterion, &facts);
    worst(&mut criterion, &facts);
    exemptions(&mut criterion, &facts);
    images(&mut criterion);
    criterion.final_summary();
}

/// The policy with the most and longest patterns that the API server stores, none of which matches.
fn largest_policy() -> StoredPolicy {
    let text = "r*e*g*i*s*t*r*y*.*e*x*a*m*p*l*e*.*c*o*m*:*5*0*0*0*";
    let exemption = |n: usize| DatedExemption {
        exemption: Exemption {
            rules: Vec::new(),
            images: vec![format!("*{text}:{n:010}")],
            note: format!("{n}"),
        },
        usernames: Vec::new(),
        groups: Vec::new(),
        namespaces: Vec::new(),
        expires: jiff::civil::Date::MAX,
    };
    StoredPolicy {
        exemptions: (0..256).map(exemption).collect(),
        ..StoredPolicy::for_all(Policy::standalone())
    }
}

/// Pods with the most findings, and with the most images, under the policy with the most exemptions.
fn exemptions(criterion: &mut Criterion, facts: &Facts) {
    let mut group = criterion.benchmark_group("exemptions");
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    let policies = PolicySet::new(vec![largest_policy()], Policy::standalone());
    let context = AdmissionContext {
        facts,
        policies: &policies,
    };
    for worst in [Worst::Findings, Worst::Containers] {
        let body = LazyCell::new(|| worst.review(inputs::LARGEST));
        group.bench_function(BenchmarkId::new("validate", worst.name()), |b| {
            b.iter(|| review(Phase::Validate, black_box(body.as_bytes()), &context).expect("a review"));
        });
    }
    group.finish();
}

fn policies() -> [(&'static str, PolicySet); 2] {
    let removing = Policy {
        ignored_fields: IgnoredFields::Remove,
        ..Policy::standalone()
    };
    [
        ("", PolicySet::new(Vec::new(), Policy::standalone())),
        ("+repair", PolicySet::new(Vec::new(), removing)),
    ]
}

/// The object of a review, as text.
fn object(review: &str) -> String {
    let review: Value = serde_json::from_str(review).expect("a review is JSON");
    review["request"]["object"].to_string()
}

/// The parts of a review's time: parsing the pod, inferring the operating system, evaluation.
fn pod(criterion: &mut Criterion, facts: &Facts) {
    let mut group = criterion.benchmark_group("pod");
    let policy = Policy::standalone();
    for name in [TYPICAL, "pod-create-linux-fields", "pod-create-linux"] {
        let json = object(&inputs::sample(name).to_string());
        let parse = || Object::parse(Kind::Pod, &json, ReviewStage::Written).expect("a real pod parses");
        let subject = parse();
        group.throughput(Throughput::Bytes(json.len() as u64));
        group.bench_function(BenchmarkId::new("parse", name), |b| b.iter(|| black_box(parse())));
        group.bench_function(BenchmarkId::new("infer", name), |b| {
            b.iter(|| infer_os(black_box(&subject), facts, &policy));
        });
        group.bench_function(BenchmarkId::new("inspect", name), |b| {
            b.iter(|| evaluate(black_box(&subject), facts, &policy));
        });
    }
    group.finish();
}

/// From request bytes to answer bytes, as in the webhook.
///
/// `make` creates the body, only if the filter on the command line selects the benchmark.
fn answer(
    group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>,
    name: &str,
    bytes: usize,
    make: &dyn Fn() -> String,
    facts: &Facts,
) {
    let body = LazyCell::new(make);
    group.throughput(Throughput::Bytes(bytes as u64));
    for (phase, phase_name) in PHASES {
        for (suffix, policies) in &policies() {
            // The validating phase plans removals too, but edits nothing.
            if phase == Phase::Validate && !suffix.is_empty() {
                continue;
            }
            let context = AdmissionContext { facts, policies };
            group.bench_function(BenchmarkId::new(format!("{phase_name}{suffix}"), name), |b| {
                b.iter(|| {
                    review(phase, black_box(body.as_bytes()), &context).expect("a review that is understood")
                });
            });
        }
    }
}

fn real(criterion: &mut Criterion, facts: &Facts) {
    let mut group = criterion.benchmark_group("review");
    for (name, body) in inputs::real() {
        answer(&mut group, &name, body.len(), &|| body.clone(), facts);
    }
    group.finish();
}

/// Ten times the containers should take ten times as long.
fn containers(criterion: &mut Criterion, facts: &Facts) {
    let mut group = criterion.benchmark_group("containers");
    group.sample_size(20);
    for (sample, short) in [(TYPICAL, "clean"), ("pod-create-linux-fields", "fields")] {
        for count in [1, 10, 100, 1000] {
            let body = inputs::many_containers(sample, count);
            answer(
                &mut group,
                &format!("{short}/{count}"),
                body.len(),
                &|| body.clone(),
                facts,
            );
        }
    }
    group.finish();
}

/// A quarter of the largest pod and the whole pod, in every shape that could be slow.
fn worst(criterion: &mut Criterion, facts: &Facts) {
    let mut group = criterion.benchmark_group("worst");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(1));
    for worst in Worst::ALL {
        for bytes in [inputs::LARGEST / 4, inputs::LARGEST] {
            let name = format!("{}/{}K", worst.name(), bytes >> 10);
            answer(&mut group, &name, bytes, &|| worst.review(bytes), facts);
        }
    }
    group.finish();
}

fn images(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("image");
    let digest = format!(
        "registry.example.com:5000/team/app:1.2.3-nanoserver-ltsc2022@sha256:{}",
        "0f".repeat(32)
    );
    for (name, image) in [
        ("short", "nginx"),
        (
            "microsoft",
            "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022",
        ),
        ("digest", digest.as_str()),
    ] {
        group.throughput(Throughput::Bytes(image.len() as u64));
        group.bench_function(BenchmarkId::new("parse", name), |b| {
            b.iter(|| ImageRef::parse(black_box(image)));
        });
        group.bench_function(BenchmarkId::new("parse+hints", name), |b| {
            b.iter(|| {
                let image = ImageRef::parse(black_box(image)).expect("an image");
                black_box((build_hint(&image), os_hint(&image)));
            });
        });
    }
    group.finish();
}
