//! `transom check` without its output: a dump of 10,000 objects, as JSON and as YAML.
//!
//! `cargo bench --bench check`; measures parsing the text, collecting the facts and evaluating every object.

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/dump.rs"]
mod dump;

use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use transom::check::{CheckInput, Manifests, settings};
use transom::engine::policy_set::PolicySet;
use transom::model::cluster::facts::Facts;
use transom::model::cluster::policy::Policy;
use transom::model::objects::object::ReviewStage;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5))
        .configure_from_args();
    let policies = PolicySet::new(Vec::new(), Policy::standalone());
    let mut group = criterion.benchmark_group("check");
    // Comparing with a tenth of the objects shows whether time grows linearly with the dump.
    for objects in [1_000, 10_000] {
        let list = dump::list(objects);
        for (format, text) in [("json", format!("{list:#}")), ("yaml", dump::yaml(&list))] {
            eprintln!(
                "{objects} objects as {format}: {} bytes each",
                text.len() / objects
            );
            let input = || CheckInput {
                source: "dump".to_owned(),
                bytes: text.clone().into_bytes(),
            };
            group.throughput(Throughput::Bytes(text.len() as u64));
            group.bench_function(BenchmarkId::new(format!("{format}/parse"), objects), |b| {
                b.iter_batched(input, parse, BatchSize::PerIteration);
            });
            let manifests = parse(input());
            assert_eq!(manifests.len(), objects, "every object is read");
            group.bench_function(BenchmarkId::new(format!("{format}/judge"), objects), |b| {
                b.iter_with_large_drop(|| evaluate_all(&manifests, &policies));
            });
            group.bench_function(BenchmarkId::new(format!("{format}/whole"), objects), |b| {
                b.iter_batched(
                    input,
                    |input| evaluate_all(&parse(input), &policies),
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
    criterion.final_summary();
}

/// Parses a text as the program does.
fn parse(input: CheckInput) -> Manifests {
    let mut manifests = Manifests::new(settings());
    manifests.add(input);
    manifests
}

/// Collects facts and evaluates; returns the number of findings, so that the compiler cannot remove the work.
fn evaluate_all(manifests: &Manifests, policies: &PolicySet) -> usize {
    let mut facts: Facts = cluster::facts();
    let objects = manifests.objects(ReviewStage::Written);
    objects.learn(&mut facts, policies);
    let mut findings = 0;
    let errors = objects.check(&facts, policies, |checked| {
        findings += checked.evaluation.findings.len();
    });
    assert!(errors.is_empty(), "{:?}", errors.first());
    assert!(findings > 0, "a dump with Windows pods has findings");
    findings
}
