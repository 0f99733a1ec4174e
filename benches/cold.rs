//! One review with cold CPU caches, as between two calls of an API server; a warm loop takes a fraction of that time.
//!
//! `cargo bench --bench cold`: medians in microseconds, by the MiB of memory written before each review.

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/inputs.rs"]
mod inputs;

use std::hint::black_box;
use std::time::{Duration, Instant};

use transom::admission::{AdmissionContext, Phase, review};
use transom::engine::policy_set::PolicySet;
use transom::engine::{evaluate, infer_os};
use transom::model::cluster::policy::Policy;
use transom::model::objects::object::{Object, ReviewStage};
use transom::model::objects::workload::Kind;

/// The typical review, as in benches/engine.rs.
const TYPICAL: &str = "pod-create-by-replicaset-runtimeclass";
const ROUNDS: usize = 400;
const COLUMNS: [&str; 5] = ["mutate", "validate", "parse", "infer", "inspect"];

fn main() {
    let facts = cluster::facts();
    let policy = Policy::standalone();
    let policies = PolicySet::new(Vec::new(), Policy::standalone());
    let context = AdmissionContext {
        facts: &facts,
        policies: &policies,
    };
    let sample = inputs::sample(TYPICAL);
    let body = sample.to_string();
    let object = sample["request"]["object"].to_string();
    let answer = |phase| review(phase, black_box(body.as_bytes()), &context).expect("a real review");
    let parse = || Object::parse(Kind::Pod, black_box(&object), ReviewStage::Written).expect("a real pod");
    let subject = parse();

    print!("{:<5}", "MiB");
    for column in COLUMNS {
        print!(" {column:>9}");
    }
    println!();
    for mebibytes in [0, 2, 16, 64] {
        let mut other = vec![1_u8; mebibytes << 20];
        let mut medians: [Vec<Duration>; COLUMNS.len()] = Default::default();
        for _ in 0..ROUNDS {
            let mut time = |column: usize, work: &dyn Fn()| {
                for byte in other.iter_mut().step_by(64) {
                    *byte ^= 1;
                }
                black_box(&other);
                let started = Instant::now();
                work();
                medians[column].push(started.elapsed());
            };
            time(0, &|| drop(black_box(answer(Phase::Mutate))));
            time(1, &|| drop(black_box(answer(Phase::Validate))));
            time(2, &|| drop(black_box(parse())));
            time(3, &|| drop(black_box(infer_os(&subject, &facts, &policy))));
            time(4, &|| drop(black_box(evaluate(&subject, &facts, &policy))));
        }
        print!("{mebibytes:<5}");
        for times in &mut medians {
            times.sort_unstable();
            print!(" {:>9.1}", times[times.len() / 2].as_secs_f64() * 1e6);
        }
        println!();
    }
}
