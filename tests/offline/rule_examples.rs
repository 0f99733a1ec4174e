//! One walk over the catalogue: every rule's own examples, and what every rule must have.

use crate::support::command::is_up_to_date;
use crate::support::gate;
use crate::support::objects::registry_images;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::civil::date;
use serde_json::Value;
use transom::check::{CheckInput, CheckSettings, Manifests, Scope, StatedSystems, settings};
use transom::engine::policy_set::PolicySet;
use transom::model::cluster::facts::{Facts, Runtime};
use transom::model::cluster::policy::{LinuxPods, Policy};
use transom::model::cluster::severity::Severity;
use transom::model::field_set::FieldSet;
use transom::model::objects::object::{Object, ReviewContext, ReviewStage};
use transom::model::syntax::edit::to_json_patch;
use transom::model::windows::os::Os;
use transom::rules::{Rule, catalogue, examples};

struct Case {
    text: String,
    facts: Facts,
    policy: Policy,
    stage: ReviewStage,
    os: Option<Os>,
}

/// An example as a case: options from its first line, a piece of a spec laid over the base pod.
fn case(example: &str) -> Case {
    let mut case = Case {
        text: example.to_owned(),
        facts: Facts::new(Facts::KUBERNETES, date(2026, 1, 1)),
        policy: Policy::standalone(),
        stage: ReviewStage::Written,
        os: None,
    };
    case.facts.images = registry_images(example);
    if let Some(options) = example
        .lines()
        .next()
        .filter(|line| !line.starts_with("# image "))
        .and_then(|line| line.trim().strip_prefix("# "))
    {
        let mut words = options.split_whitespace();
        while let Some(option) = words.next() {
            match option {
                "--kubernetes-version" => {
                    case.facts.kubernetes =
                        words.next().unwrap().strip_prefix("1.").unwrap().parse().unwrap();
                }
                "--runtime" => {
                    assert_eq!(words.next(), Some("docker"));
                    case.facts.runtime = Runtime::Docker;
                }
                "--feature-gate" => {
                    case.facts.feature_gates.set(words.next().unwrap()).unwrap();
                }
                "--linux-pods" => {
                    assert_eq!(words.next(), Some("Warn"));
                    case.policy.linux_pods = LinuxPods::Warn;
                }
                "--os" => case.os = Os::parse_lenient(words.next().unwrap()),
                "--stored" => case.stage = ReviewStage::Stored,
                other => panic!("unknown option {other} in example: {example}"),
            }
        }
    }
    let parsed = transom::manifest::parse(example.as_bytes().to_vec());
    assert!(
        parsed.errors.is_empty(),
        "example does not parse: {example}: {:?}",
        parsed.errors
    );
    let documents: Vec<Value> = parsed
        .documents
        .iter()
        .map(|d| serde_json::from_str(d.json()).unwrap())
        .collect();
    if documents.iter().all(|document| document.get("kind").is_none()) {
        let mut pod: Value = serde_json::from_str(examples::BASE).unwrap();
        for document in &documents {
            json_patch::merge(&mut pod["spec"], document);
        }
        case.text = pod.to_string();
    }
    case
}

fn manifests(text: String, os: Option<Os>) -> Manifests {
    let systems = StatedSystems {
        all: os,
        ..StatedSystems::default()
    };
    let mut manifests = Manifests::new(CheckSettings {
        keep_text: false,
        scope: Scope {
            systems,
            ..Scope::default()
        },
        ..settings()
    });
    manifests.add(CheckInput {
        source: "example".into(),
        bytes: text.into_bytes(),
    });
    manifests
}

/// Every object of an example, with the facts and the policy by which it is judged.
fn each_object(example: &str, mut each: impl FnMut(&Object<'_>, &Facts, &Policy)) {
    let Case {
        text,
        mut facts,
        policy,
        stage,
        os,
    } = case(example);
    let policies = PolicySet::new(Vec::new(), policy.clone());
    let manifests = manifests(text, os);
    let objects = manifests.objects(stage);
    objects.learn(&mut facts, &policies);
    let errors = objects.check(&facts, &policies, |checked| {
        let read = Object::parse(checked.kind, checked.document.json(), stage).expect("it was read before");
        let context = ReviewContext {
            stated_os: checked.stated_os,
            ..read.context
        };
        let subject = Object { context, ..read };
        each(&subject, &facts, &policy);
    });
    assert!(errors.is_empty(), "{example}: {errors:?}");
}

/// A finding of a rule in an example of it.
struct Fired {
    /// How severe it is, what it does, where it is and what it says.
    shown: String,
    /// The document after the finding's own edit.
    edited: Option<String>,
}

/// The findings of one rule in an example.
fn fire(rule: &Rule, example: &str, text: Option<String>) -> Vec<Fired> {
    let mut case = case(example);
    if let Some(text) = text {
        case.text = text;
    }
    let policies = PolicySet::new(Vec::new(), case.policy);
    let manifests = manifests(case.text, case.os);
    let mut facts = case.facts;
    let objects = manifests.objects(case.stage);
    objects.learn(&mut facts, &policies);
    let mut fired = Vec::new();
    let errors = objects.check(&facts, &policies, |checked| {
        for finding in checked
            .evaluation
            .findings
            .iter()
            .filter(|f| f.rule.id == rule.id)
        {
            assert!(
                finding.severity <= rule.severity,
                "{rule:?} is worse than it says: {example}"
            );
            assert_worded(&finding.message, rule);
            assert_worded(&finding.remedy, rule);
            let edited = finding.edit.as_ref().map(|edit| {
                let patch = to_json_patch(std::slice::from_ref(edit));
                let mut document: Value = serde_json::from_str(checked.document.json()).unwrap();
                json_patch::patch(&mut document, &patch).unwrap();
                document.to_string()
            });
            let (severity, action) = (finding.severity, finding.action.as_str());
            let shown = format!(
                "{severity}, {action}: {}: {}",
                finding.path.named(),
                finding.message
            );
            fired.push(Fired { shown, edited });
        }
    });
    assert!(errors.is_empty(), "{rule:?}: {example}: {errors:?}");
    fired
}

fn assert_worded(text: &str, rule: &Rule) {
    let first = text.chars().next().unwrap_or_default();
    let proper = text.split([' ', '\'']).next().unwrap_or_default();
    let is_name = [
        "Windows",
        "Kubernetes",
        "HostProcess",
        "Docker",
        "Hyper-V",
        "ClusterFirstWithHostNet",
        "AppArmor",
    ]
    .contains(&proper)
        || proper.chars().skip(1).any(char::is_uppercase)
        || ".NET Nano Server".split(' ').any(|name| name == proper);
    assert!(
        !first.is_uppercase() || is_name,
        "{rule:?} should begin in lower case: {text}"
    );
    assert!(
        !text.ends_with('.') && !text.is_empty(),
        "{rule:?} should say something without a full stop: {text}"
    );
    assert!(
        !text.chars().any(char::is_control),
        "{rule:?} has a control character: {text:?}"
    );
}

#[test]
fn every_bad_example_fires_and_every_good_one_is_silent() {
    let mut failures = Vec::new();
    for rule in catalogue() {
        for bad in rule.bad {
            if fire(rule, bad, None).is_empty() {
                failures.push(format!("{rule:?} is silent about a bad example:\n{bad}"));
            }
        }
        for good in rule.good {
            if !fire(rule, good, None).is_empty() {
                failures.push(format!("{rule:?} fires at a good example:\n{good}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Read the paths in the difference when you write it again: they are what the reader of a finding looks for.
#[test]
fn the_findings_in_bad_examples_have_the_right_paths_severities_and_actions() {
    let mut all = String::new();
    for rule in catalogue() {
        let _ = writeln!(all, "{} {}", rule.id, rule.name);
        for (index, bad) in rule.bad.iter().enumerate() {
            for Fired { shown, .. } in fire(rule, bad, None) {
                let _ = writeln!(all, "  {}: {shown}", index + 1);
            }
        }
    }
    insta::assert_snapshot!(all);
}

#[test]
fn every_bad_example_has_a_field_that_its_rule_needs() {
    for rule in catalogue().filter(|rule| rule.needs != FieldSet::ALWAYS) {
        for bad in rule.bad {
            let mut has_one = false;
            each_object(bad, |subject, _, _| {
                let fields = subject.template().map_or(FieldSet::ALL, FieldSet::of);
                has_one |= rule.applies_to(subject.kind) && fields.any_of(rule.needs);
            });
            assert!(has_one, "{rule:?} needs none of the fields of its example: {bad}");
        }
    }
}

/// Every rule on every example, of whichever rule: what one speaks of is what another might have overlooked.
#[test]
fn a_rule_that_is_not_called_would_have_reported_nothing() {
    let examples: BTreeSet<&str> = catalogue()
        .flat_map(|rule| rule.bad.iter().chain(rule.good).copied())
        .collect();
    for example in examples {
        each_object(example, |subject, facts, policy| {
            let [with, without] = gate::with_and_without(subject, facts, policy);
            assert_eq!(with, without, "{example}");
        });
    }
}

#[test]
fn every_attached_edit_makes_its_rule_silent() {
    for rule in catalogue() {
        for bad in rule.bad {
            let fired = fire(rule, bad, None);
            let count = fired.len();
            for edited in fired.into_iter().filter_map(|fired| fired.edited) {
                // Facts among the documents are gone here; only what the object itself says is asked again.
                let left = fire(rule, bad, Some(edited));
                assert!(left.len() < count, "{rule:?}: its edit leaves it firing: {bad}");
            }
        }
    }
}

#[test]
fn every_rule_says_what_why_and_what_to_do() {
    let (mut last, mut names) = ("", BTreeSet::new());
    for rule in catalogue() {
        assert!(rule.id.starts_with("TSM") && rule.id.len() == 6, "{rule:?}");
        assert!(rule.id > last, "{rule:?} should come before {last}");
        last = rule.id;
        assert!(names.insert(rule.name), "{rule:?} has the name of another rule");
        assert!(
            rule.name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "{rule:?}"
        );
        assert_worded(rule.summary, rule);
        assert_worded(rule.remedy, rule);
        assert!(rule.summary.len() <= 100, "{rule:?}: the summary is too long");
        assert!(
            rule.docs.len() > 40 && rule.docs.ends_with(['.', '`']),
            "{rule:?}: docs are whole sentences"
        );
        assert!(
            !rule.bad.is_empty() && !rule.good.is_empty() && !rule.see.is_empty(),
            "{rule:?}"
        );
        let named = Severity::ALL
            .iter()
            .filter(|severity| rule.severities.contains(severity.as_str()));
        let named: Vec<&Severity> = named.collect();
        assert!(
            rule.severities.is_empty() || (named.len() > 1 && named.contains(&&rule.severity)),
            "{rule:?}"
        );
        assert_eq!(
            !rule.severities.is_empty(),
            has_several_severities(rule),
            "{rule:?}: severities"
        );
    }
}

/// Whether an example of a rule has another severity than the rule.
fn has_several_severities(rule: &Rule) -> bool {
    let mut differs = false;
    for bad in rule.bad {
        each_object(bad, |subject, facts, policy| {
            let findings = transom::engine::evaluate(subject, facts, policy).findings;
            let mut of_rule = findings.iter().filter(|finding| finding.rule.id == rule.id);
            differs |= of_rule.any(|finding| finding.severity != rule.severity);
        });
    }
    differs || !rule.severities.is_empty()
}

/// The chart refuses other names in its values.
#[test]
fn the_chart_has_the_names_of_all_rules() {
    let mut names: Vec<&str> = catalogue().map(|rule| rule.name).collect();
    names.sort_unstable();
    is_up_to_date(
        "charts/transom/files/rules.txt",
        &(names.join("\n") + "\n"),
        "offline rule_examples::",
    );
}
