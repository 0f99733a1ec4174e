//! Windows workloads as their vendors ship them: what the starting mode denies, and what each author loses that `Enforce`
//! denies.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use transom::engine::policy_set::PolicySet;
use transom::engine::{Decision, Evaluation};
use transom::model::cluster::policy::{IgnoredFields, Policy};
use transom::model::cluster::severity::Severity;

use super::{Answer, File, World, again, in_folder, none};

/// The workload as `mode: Enforce` with `ignoredFields: Warn` evaluates it, which is how clusters with charts of vendors
/// start.
fn in_the_starting_mode(file: &File, answer: &Answer) -> Evaluation {
    let World { facts, stage, .. } = &file.world;
    let mut policy = Policy::standalone();
    policy.ignored_fields = IgnoredFields::Warn;
    let world = World {
        facts: facts.clone(),
        policies: PolicySet::new(Vec::new(), policy),
        stage: *stage,
    };
    again(&world, &answer.json)
}

#[test]
fn at_least_sixty_workloads_of_vendors_are_windows_and_name_their_source() {
    let workloads: Vec<_> = in_folder("production").collect();
    let names: BTreeSet<_> = workloads.iter().map(|(_, answer)| &answer.name).collect();
    assert_eq!(names.len(), workloads.len(), "a name occurs twice");
    assert!(workloads.len() >= 60, "{}", workloads.len());
    let failures: Vec<String> = (workloads.iter())
        .filter(|(_, answer)| answer.evaluation.inference.verdict.as_str() != "Windows")
        .map(|(file, answer)| file.at(answer))
        .collect();
    none(&failures);
}

#[test]
fn the_starting_mode_denies_none() {
    let denied: Vec<String> = in_folder("production")
        .map(|(file, answer)| (file, answer, in_the_starting_mode(file, answer)))
        .filter(|(.., evaluation)| evaluation.decision() == Decision::Deny)
        .map(|(file, answer, evaluation)| format!("{}/{}\n{}", file.name, answer.name, losses(&evaluation)))
        .collect();
    none(&denied);
}

#[test]
fn each_denial_of_enforce_names_what_the_author_loses() {
    let mut denials = String::new();
    for (file, answer) in in_folder("production") {
        if answer.evaluation.decision() == Decision::Deny {
            let _ = writeln!(denials, "{}/{}", file.name, answer.name);
            let _ = write!(denials, "{}", losses(&answer.evaluation));
        }
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../corpus/snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("production-denied-by-enforce", denials));
}

/// The open errors of a workload, one a line.
fn losses(evaluation: &Evaluation) -> String {
    let mut losses = String::new();
    for error in evaluation
        .open()
        .filter(|finding| finding.severity == Severity::Error)
    {
        let _ = writeln!(
            losses,
            "  {} {}: {}",
            error.rule.name,
            error.path.named(),
            error.message
        );
    }
    losses
}
